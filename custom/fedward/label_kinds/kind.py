"""What the two kinds of labels have in common."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedward.errors import listed
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.metric_rows import Metric, MetricFunction
from fedward.labels import SEPARATOR, Label, Labels

if TYPE_CHECKING:
    from fedward.methods.outputs import Outputs
    from fedward.sites.decoding import BadRow


class LabelShape(Protocol):
    """An array or a tensor of labels, as far as its shape says of which kind they are."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        ...


def unusable_label(reason: str) -> "BadRow":
    """Return the error of a row whose label cannot be used."""
    # Imported here: a process that only reads a job must start without the readers of images.
    from fedward.sites.decoding import BadRow

    return BadRow(reason)


class LabelKind(ABC):
    """What an image may show, and all that follows from it.

    There are two: :class:`~fedward.label_kinds.one_label.OneLabel` and
    :class:`~fedward.label_kinds.several_labels.SeveralLabels`. Neither has a state, so they are
    compared by identity. What concerns tensors is in :attr:`outputs`, because processes that only
    read a job must start without torch.
    """

    multi_label: ClassVar[bool]
    """Value of the field ``multi_label`` in jobs, ``data.json`` and exported models."""
    exclusive: ClassVar[bool]
    """Whether classes exclude each other: an image gets one answer, so that there is an accuracy,
    a confusion matrix and a highest probability."""
    metric_names: ClassVar[tuple[str, ...]]
    """Metrics over all classes, in the order in which they are reported."""
    error_names: ClassVar[tuple[str, ...]]
    """Further numbers over all classes, of which lower is better."""
    key_metric: ClassVar[str]
    """Metric that chooses the best round where a job names none."""
    card_metrics: ClassVar[tuple[str, ...]]
    """Metrics that a model card shows."""
    threshold: ClassVar[float | None]
    """Threshold of pseudo-labels where a job names none. None: the default of the method."""
    fewest_others: ClassVar[int]
    """Images without a class that a split needs before a number about the class may leave a site.
    """

    task: ClassVar[str]
    """The task of a model, in the words of MONAI's bundles."""
    label_shape: ClassVar[str]
    """How an array holds the labels of N images."""
    answer_words: ClassVar[str]
    """What an annotator answers about one image."""
    output: ClassVar[str]
    """The function from logits to probabilities."""
    ranked_pair: ClassVar[str]
    """Which two images an AUROC compares."""
    limit: ClassVar[str]
    """What a model of this kind cannot say of an image."""
    card_limit: ClassVar[str]
    """The same in a model card."""

    # How labels are written.

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """Return the names in one cell of a table, or in one answer, in composed letters."""

    @abstractmethod
    def label_names(self, classes: Sequence[str]) -> frozenset[str]:
        """Return all names that a label may consist of."""

    @abstractmethod
    def encode(self, names: Collection[str], classes: Sequence[str]) -> Label:
        """Return the label of an image that shows these classes.

        Args:
            names: some of :meth:`label_names`; empty for an image without a label.
            classes: K names, in the job's order.

        Returns:
            What :data:`fedward.labels.Label` describes; -1 where there is no label.
        """

    @abstractmethod
    def require_compatible(self, words: Sequence[str]) -> None:
        """Raise BadRow where words of one label contradict each other."""

    @abstractmethod
    def encode_numbers(
        self, given: NDArray[np.int64], names: Mapping[int, str], classes: Sequence[str]
    ) -> Label:
        """Return the label of one image by what an array holds of it.

        Args:
            given: a number (), or 0 and 1 for each column (C,).
            names: number of a label, or of a column, -> class; empty where the job has none.
            classes: K names, in the job's order.

        Raises:
            BadRow: the numbers are not a label.
        """

    @abstractmethod
    def columns(self, labels: Labels) -> set[int]:
        """Return the numbers of the columns in an array of labels; empty where it has none."""

    @abstractmethod
    def unlabelled(self, images: int, classes: int) -> Labels:
        """Return the labels of images that have none: all -1."""

    def encode_words(
        self, words: Sequence[str], meanings: Mapping[str, str], classes: Sequence[str]
    ) -> Label:
        """Return the label of one image by what a site's table says of it.

        Args:
            words: in the site's language; an empty one says nothing.
            meanings: word of the site -> class.
            classes: K names, in the job's order.

        Raises:
            BadRow: a word is not a class of the job, or words contradict each other.
        """
        names = {meanings.get(word, word) for word in words} - {""}
        if not names <= self.label_names(classes):
            expected = f"a class of the job ({listed(classes)})"
            own = [word for word in meanings if word not in classes]
            if own:
                expected = f"a label of the site ({listed(own)}) or {expected}"
            raise unusable_label(f"expected {expected}, found {SEPARATOR.join(words)!r}")
        self.require_compatible(words)
        return self.encode(names, classes)

    @property
    @abstractmethod
    def outputs(self) -> "Outputs":
        """What the logits of a network mean: losses and probabilities, as tensors."""

    # Numbers about a model.

    @abstractmethod
    def metrics(
        self,
        probabilities: NDArray[np.floating],
        labels: NDArray[np.integer],
        classes: Sequence[str],
        extra: Mapping[str, MetricFunction],
    ) -> list[Metric]:
        """Return the metrics of one model on N images; ``extra``: metrics of other packages."""

    @abstractmethod
    def counts(
        self, probabilities: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> AnswerCounts | None:
        """Return the counts of a model's answers that may leave a site; None without any."""

    @abstractmethod
    def right_by_class(
        self, probabilities: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which of N images show which class, and which the model assigns to which, (N, K).

        The first is False for classes without numbers of their own, as in :meth:`counts`.
        """

    @abstractmethod
    def performance(
        self,
        probabilities: NDArray[np.floating],
        labels: NDArray[np.integer],
        classes: Sequence[str],
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """Return numbers with intervals for people to read, as plain JSON values.

        See :func:`fedward.evaluation.performance.performance`.
        """

    @abstractmethod
    def evaluated_classes(self, labels: Labels, classes: int) -> NDArray[np.bool_]:
        """Return of which classes (K,) numbers may be given.

        ``labels``: of the images of one split that
        :func:`fedward.evaluation.evaluated_images.images_of_common_classes` leaves.
        """

    # A model's answer about one image.

    @abstractmethod
    def answer(self, probabilities: NDArray[np.floating], classes: Sequence[str]) -> str:
        """Return what a model answers with these probabilities (K,)."""

    @abstractmethod
    def confidence(self, probabilities: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the probability (N,) of a model's answer about each of N images.

        Of several answers about one image it is that of the least probable one.
        """
