"""References that a reader knows: classifiers of scikit-learn on the images of a study.

They show what its images and its encoder are worth without a federation: a support vector machine
and a logistic regression on raw pixels, a logistic regression and a linear discriminant analysis on
the features of its frozen encoder. Each is fitted to the labels of all sites together, and to those
of each site alone. Validation images choose C or the shrinkage, by the study's metric; no test
image chooses anything.
"""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedward.config import Experiment
from fedward.evaluation.arrays import Values
from fedward.evaluation.patients import unit_answers
from fedward.evaluation.selection import mean
from fedward.lab.bench.by_group import Answered
from fedward.lab.bench.reference import Input, Labels, Model, Reference, references_on
from fedward.lab.noted_answers import GroupedImages
from fedward.sites.data import Images

COMPONENTS = 60
"""Principal components of raw pixels."""
STRENGTHS: Mapping[Model, tuple[float, ...]] = {
    "svm": (1.0, 10.0, 100.0),
    "logistic": (0.001, 0.01, 0.1, 1.0, 10.0),
    "lda": (0.2, 0.5, 0.8),
}
"""Model -> the values of C that validation chooses from, or of the shrinkage."""
_ITERATIONS = 2000
"""Iterations of a logistic regression at most."""

Inputs: TypeAlias = Callable[[str, Images], Values]
"""Returns the input vectors (N, D) of a site's images, N > 0."""
Classes: TypeAlias = NDArray[np.int64]


class _Classifier(Protocol):
    """A classifier of scikit-learn."""

    classes_: Classes

    def fit(self, x: Values, y: Classes) -> Any:
        """Learn from inputs (N, D) and their classes (N,)."""


@dataclass(frozen=True)
class SiteImages:
    """What a site has for the references."""

    few: Images
    """Training images with the labels that a method may see."""
    whole: Images
    """Training images with all labels."""
    train: Images
    """All training images, with and without labels; principal components are fitted to them."""
    val: Images
    test: Images
    tested: GroupedImages
    """The test images by group."""

    def labelled(self, labels: Labels) -> Images:
        """Return the images with ``few`` or ``all`` labels."""
        return self.few if labels == "few" else self.whole


class FittedReference(NamedTuple):
    """What a reference reached."""

    chosen: dict[str, float]
    """Site -> the chosen C or shrinkage; ``""`` is for all sites."""
    validation: float | None
    """The study's metric on validation images, as a mean over sites."""
    sites: dict[str, dict[str, float]]
    """Site -> metric -> test value, and the number of ``images``."""
    answers: list[Answered]
    """Of each site with test images."""


@dataclass(frozen=True)
class _Members:
    """The sites that share a model, and the inputs of their images."""

    sites: Sequence[str]
    to_inputs: Inputs
    val: Mapping[str, Values]
    """Site -> inputs of its validation images, where it has some."""
    test: Mapping[str, Values]
    """Site -> inputs of its test images, where it has some."""


class _Trial(NamedTuple):
    """A classifier that was fitted with one of the strengths that validation chooses from."""

    strength: float
    """C, or the shrinkage."""
    values: list[float | None]
    """The study's metric on the validation images of each site that has some."""
    classifier: _Classifier


@dataclass(frozen=True)
class Fits:
    """Fits references to the images of sites.

    Args:
        sites: by name.
        experiment: names the classes, the metric that chooses, and the seed of all draws.
        inputs: input -> what makes it from images.
    """

    sites: Mapping[str, SiteImages]
    experiment: Experiment
    inputs: Mapping[Input, Inputs]

    def all(
        self, fitted: Collection[Reference] = ()
    ) -> Iterator[tuple[Reference, FittedReference]]:
        """Fit the references that are not among the fitted ones, and yield each.

        Those with few labels are left out if methods may see all labels.
        """
        # One thread, as a site's training has: several processes would wait for each other.
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1), warnings.catch_warnings():
            # A class with one image at a site has no variance of its own; shrinkage supplies it.
            warnings.filterwarnings("ignore", "Only one sample available")
            yield from self._all(fitted)

    def _all(self, fitted: Collection[Reference]) -> Iterator[tuple[Reference, FittedReference]]:
        some_are_hidden = any(len(site.few) < len(site.whole) for site in self.sites.values())
        label_sets: tuple[Labels, ...] = ("few", "all") if some_are_hidden else ("all",)
        training = [name for name, site in self.sites.items() if len(site.train)]
        for input_name in self.inputs:
            members_of_models = {
                "pooled": {"": self._members(input_name, list(self.sites))},
                "alone": {site: self._members(input_name, [site]) for site in training},
            }
            for reference in references_on(input_name, label_sets):
                if reference not in fitted:
                    members_of = members_of_models[reference.sites]
                    yield reference, self._fitted(reference, members_of)

    def _members(self, input_name: Input, sites: Sequence[str]) -> _Members:
        """Return sites that share a model, with the inputs of their validation and test images."""
        to_inputs = self.inputs[input_name]
        if input_name == "pixels":
            to_inputs = self._components(to_inputs, sites)
        val = {}
        test = {}
        for site in sites:
            images = self.sites[site]
            if len(images.val):
                val[site] = to_inputs(site, images.val)
            if len(images.test):
                test[site] = to_inputs(site, images.test)
        return _Members(sites, to_inputs, val, test)

    def _components(self, to_vectors: Inputs, sites: Sequence[str]) -> Inputs:
        """Return what makes principal components, fitted to all training images of the sites."""
        from sklearn.decomposition import PCA

        training = [site for site in sites if len(self.sites[site].train)]
        vectors = np.concatenate([to_vectors(site, self.sites[site].train) for site in training])
        components = min(COMPONENTS, *vectors.shape)
        pca = PCA(components, svd_solver="randomized", random_state=self.experiment.seed)
        pca.fit(vectors)
        return lambda site, images: np.asarray(pca.transform(to_vectors(site, images)))

    def _fitted(self, reference: Reference, members_of: Mapping[str, _Members]) -> FittedReference:
        """Fit a reference, and return what it reached.

        Args:
            reference: what it learns from.
            members_of: name of each of its models, as in :attr:`FittedReference.chosen` -> the
                sites that share it.
        """
        chosen: dict[str, float] = {}
        validation: list[float | None] = []
        test_values: dict[str, dict[str, float]] = {}
        answers: list[Answered] = []
        for name, members in members_of.items():
            inputs = []
            labels = []
            for site in members.sites:
                images = self.sites[site].labelled(reference.labels)
                if len(images):
                    inputs.append(members.to_inputs(site, images))
                    labels.append(images.labels)
            # A site without labels learns nothing alone.
            if not labels:
                continue
            best = self._best_trial(
                reference.model, np.concatenate(inputs), np.concatenate(labels), members
            )
            chosen[name] = best.strength
            validation += best.values
            for site, vectors in members.test.items():
                test_values[site], answered = self._tested(site, best.classifier, vectors)
                answers.append(answered)
        return FittedReference(chosen, mean(validation), test_values, answers)

    def _best_trial(
        self, model: Model, inputs: Values, labels: Classes, members: _Members
    ) -> _Trial:
        """Fit a model with each strength, and return the best on validation images.

        Of equally good strengths the smallest is chosen, so also where there are no validation
        images.
        """
        trials = []
        for strength in STRENGTHS[model]:
            classifier = _classifier(model, strength, self.experiment.seed, labels)
            classifier.fit(inputs, labels)
            values = []
            for site, vectors in members.val.items():
                scores, truths = self._answers(classifier, vectors, self.sites[site].val)
                values.append(self._metrics(scores, truths)[self.experiment.key_metric])
            trials.append(_Trial(strength, values, classifier))
        # Of equal values `max` takes the first, and strengths rise.
        return max(trials, key=lambda trial: mean(trial.values) or 0.0)

    def _tested(
        self, site: str, classifier: _Classifier, vectors: Values
    ) -> tuple[dict[str, float], Answered]:
        """Return a site's test values with its number of ``images``, and its answers."""
        scores, labels = self._answers(classifier, vectors, self.sites[site].test)
        values = {"images": float(len(labels))}
        for name, value in self._metrics(scores, labels).items():
            if value is not None:
                values[name] = value
        tested = self.sites[site].tested
        return values, Answered(tested.labels, tested.groups, scores.argmax(axis=1))

    def _answers(
        self, classifier: _Classifier, vectors: Values, images: Images
    ) -> tuple[Values, Classes]:
        """Return scores (N, K) and labels (N,) of images, or of patients where these count."""
        return unit_answers(self._scores(classifier, vectors), images)

    def _metrics(self, scores: Values, labels: Classes) -> dict[str, float | None]:
        """Return metric -> value, by the code that evaluates the models of sites."""
        data = self.experiment.data
        rows = data.label_kind.metrics(scores, labels, data.classes, {})
        return {row["name"]: row["value"] for row in rows}

    def _scores(self, classifier: _Classifier, vectors: Values) -> Values:
        """Return (N, K): 0 for classes that the classifier has not seen."""
        scores = np.zeros((len(vectors), len(self.experiment.data.classes)))
        scores[:, classifier.classes_] = _probabilities(classifier, vectors)
        return scores


class _OnlyClass:
    """The classifier of a site that has labels of one class alone."""

    def __init__(self, labels: Classes) -> None:
        self.classes_ = np.unique(labels)

    def fit(self, x: Values, y: Classes) -> None:
        """Do nothing."""

    def predict_proba(self, x: Values) -> Values:
        """Return (N, 1) of 1."""
        return np.ones((len(x), 1))


def _classifier(model: Model, strength: float, seed: int, labels: Classes) -> _Classifier:
    """Return a classifier that is not fitted yet.

    Args:
        model: one of :data:`STRENGTHS`.
        strength: C above 0, or the shrinkage in [0, 1].
        seed: of its draws.
        labels: (N,) that it will be fitted to.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    if len(np.unique(labels)) == 1:
        return _OnlyClass(labels)
    made: _Classifier
    if model == "svm":
        # Ties are broken by the decision values, from which its scores are made as well.
        made = SVC(C=strength, break_ties=True, random_state=seed)
    elif model == "logistic":
        made = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=_ITERATIONS))
    else:
        made = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=strength)
    return made


def _probabilities(classifier: Any, vectors: Values) -> Values:
    """Return scores (N, classes seen) in [0, 1], whose largest is the predicted class.

    A support vector machine has no probabilities. The softmax of its decision values orders classes
    as they do.
    """
    if hasattr(classifier, "predict_proba"):
        return np.asarray(classifier.predict_proba(vectors), np.float64)
    decisions = np.asarray(classifier.decision_function(vectors), np.float64)
    if decisions.ndim == 1:
        # Two classes have one decision value d: the softmax of -d/2 and d/2 is its sigmoid.
        decisions = np.stack([-decisions, decisions], axis=1) / 2
    exponentials = np.exp(decisions - decisions.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
