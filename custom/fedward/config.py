"""One experiment as a typed, frozen model: what a job says, and nothing a site should decide for
itself.
"""

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedward.digests import digest
from fedward.errors import ConfigError, did_you_mean
from fedward.evaluation.names import overall
from fedward.faults import explain, names_in
from fedward.registry import METHODS, METRICS, VIEWS, Extension, extensions, image_size

if TYPE_CHECKING:
    from fedward.methods.algorithm import Algorithm

DERMOSCOPY = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
"""The eight ISIC 2019 diagnoses, in FedPerl's order."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataSpec(_Frozen):
    """The data set a job names; each site's own file says what that is there."""

    name: str = "dermoscopy"
    """What reports call the data set."""
    classes: tuple[str, ...] = Field(DERMOSCOPY, min_length=2)
    """K names, each once; output k of the network is class k. A site's file names some or all of
    them.
    """
    multi_label: bool = False
    """Whether an image may show several of the classes, or none of them; else it is of one."""
    image_size: int = Field(32, ge=16, le=1024)
    """Height and width in pixels the network sees."""
    channels: Literal[1, 3] = 3
    """1: grey; 3: RGB."""
    views: str = "rotation_invariant"
    """How training pictures are varied: what may be done to an image without changing what it
    shows. See :mod:`fedward.views.recipes`."""

    evaluate_by: Literal["image", "patient"] = "image"
    """What validation and test numbers are of. ``patient``: of what a site's file calls a group,
    each of one label. Its answer is the mean of the probabilities of its images."""

    @model_validator(mode="after")
    def _one_question_an_image(self) -> "DataSpec":
        if self.multi_label and self.evaluate_by != "image":
            raise ValueError(
                "evaluate_by=patient needs one label a patient: set evaluate_by=image with multi_label"
            )
        return self

    @field_validator("views")
    @classmethod
    def _known_views(cls, views: str) -> str:
        VIEWS.extension(views)
        return views

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(classes)) < len(classes):
            raise ValueError("a class is named twice")
        return classes


def default_metric(data: DataSpec) -> str:
    """Return the metric that chooses the best round where a job names none."""
    return "auroc_macro" if data.multi_label else "accuracy"


SURE_OF_EACH = 0.95
"""Threshold of pseudo-labels where an image may show several classes and a job names none;
FixMatch's.

A network that has learned nothing is surer than 0.6 that an image lacks a rare finding."""


class WeightsFile(_Frozen):
    """A file of weights in the folder ``FEDWARD_WEIGHTS`` of the server and of each site; none is
    sent.
    """

    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,100}\.safetensors$")
    """Its name."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of its bytes, in small hexadecimal digits."""


class SyntheticData(_Frozen):
    """The built-in synthetic images, for a site without a data file of its own. Absent in clinical
    jobs.
    """

    labelled: float = Field(0.1, ge=0.0, le=1.0)
    """Share of training images whose label is visible, stratified by class."""
    images: int = Field(240, ge=16)
    """Images of a full-size synthetic site; the layout makes some sites smaller."""
    sites: int = Field(10, ge=1, le=100)
    """How many sites a simulation has, from the first on. From the eleventh on they have the
    cameras and diagnoses of the first ten in turn, with patients of their own."""
    isolated: bool = False
    """Sites with an even number show no label at all."""


class Experiment(_Frozen):
    """Everything a run depends on besides the sites' data; equal experiments on equal data give
    equal weights.
    """

    method: str
    """A method's name: one of docs/methods.md, of an installed package, or registered in this
    process.
    """
    options: dict[str, Any] = Field(default_factory=dict)
    """The method's settings; checked against the method's own model. In a multi-label job a
    ``threshold`` that is not named is :data:`SURE_OF_EACH`."""
    data: DataSpec = DataSpec()
    """What the images are."""
    net: str = "small_cnn"
    """A network's name; :func:`fedward.nets.build` lists them."""
    pretrained: bool | WeightsFile = False
    """Whether the network begins with ImageNet weights, or with those in a file that each
    participant has.
    """
    trainable: str = "all"
    """What of the network trains and travels: all of it; ``head``, the classifier; ``last:N``, also
    the last N blocks; ``adapters``, also a low-rank change of each linear layer. All else is
    frozen, and made anew at each end."""
    stored_views: int = Field(4, ge=1, le=16)
    """Where the head alone trains: weak views of each image, and as many strong ones, whose
    features are stored.
    """
    synthetic: SyntheticData | None = SyntheticData()
    """Images of sites without a file; None: such a site is an error."""
    seed: int = Field(1, ge=0)
    """Of every random draw."""
    evaluate_every: int = Field(1, ge=1)
    """The global model is evaluated at all sites every so many rounds, before the first and after
    the last.
    """
    key_metric: str = Field(
        default_factory=lambda known: default_metric(known.get("data") or DataSpec())
    )
    """Validation metric that chooses the best round, the higher the better. In a multi-label job
    ``auroc_macro``, else ``accuracy``, unless another is named."""
    metrics: tuple[str, ...] = ()
    """Metrics of other packages, which sites report besides those that every job has."""
    minimum_replies: int = Field(1, ge=1)
    """Accepted replies an exchange needs; with fewer none of them is used, and the round says so.
    Methods that ask groups of sites in turn have an exchange for each: a group smaller than this
    never counts. Weights of an average are moved towards equal ones until it is worth five sixths
    of this number of equally weighted sites."""
    timeout: int = Field(3600, ge=1)
    """Seconds a site has for one exchange, queueing included."""
    largest_update: float = Field(100.0, gt=0)
    """An update whose norm is over this many times that of the model it was trained from is
    refused.
    """
    update_dtype: Literal["float32", "float16"] = "float32"
    """In what sites send their updates: float16 takes half of the bytes or less, and 11 bits of
    each number.
    """
    secure_aggregation: bool = False
    """Sites send their updates encrypted, and the server learns the mean of at least two; see
    docs/privacy.md.
    """

    @property
    def digest(self) -> str:
        """SHA-256 of all settings as canonical JSON: by it a job is approved, and server and sites
        compare theirs.
        """
        return digest(self.model_dump(mode="json"))

    @property
    def extensions(self) -> list[Extension]:
        """What of other packages the experiment needs."""
        return extensions(self.model_dump(mode="json"))

    @property
    def effective_replies(self) -> float:
        """The effective number of replies, 1 / Σ w_k² of their shares, that an average must be
        worth.

        It is five sixths of ``minimum_replies``, such as 2.5 of 3: where no more replies come,
        their weights may have a standard deviation of 45 % of their mean, and no more.
        """
        return max(1.0, 5 * self.minimum_replies / 6)

    @property
    def smallest_sum(self) -> int:
        """Encrypted updates a mean needs before a site decrypts it: two, as the mean of one is that
        one, or more.
        """
        return max(2, self.minimum_replies)

    @model_validator(mode="before")
    @classmethod
    def _no_threads(cls, raw: Any) -> Any:
        options = raw.get("options") if isinstance(raw, dict) else None
        if isinstance(raw, dict) and "threads" in {
            *raw,
            *(options if isinstance(options, dict) else {}),
        }:
            raise ValueError(
                "threads is no setting of a job: write it into the files of sites that use more than one"
            )
        return raw

    @field_validator("trainable")
    @classmethod
    def _known_part(cls, part: str) -> str:
        if not re.fullmatch(r"all|head|adapters|last:[1-9]\d{0,3}", part):
            raise ValueError(
                f"{part[:80]!r}, not one of all, head, adapters, or last:N such as last:2"
            )
        return part

    @model_validator(mode="after")
    def _sure_of_each(self) -> "Experiment":
        if self.data.multi_label and "threshold" in METHODS[self.method].settings_type.model_fields:
            self.options.setdefault("threshold", SURE_OF_EACH)
        return self

    @model_validator(mode="after")
    def _known_method(self) -> "Experiment":
        from fedward.methods import method_of

        algorithm = method_of(self)
        if self.trainable != "all" and (reason := algorithm.requirements.whole):
            remedy = "Set trainable=all, or choose another method."
            raise ConfigError(
                f"trainable with {self.method}", expected="all", found=reason, remedy=remedy
            )
        if self.update_dtype != "float32" and (reason := algorithm.requirements.exact):
            where = f"update_dtype with {self.method}"
            found = f"{self.update_dtype}: {reason}"
            raise ConfigError(
                where, expected="float32", found=found, remedy="Set update_dtype=float32."
            )
        if self.data.multi_label and (reason := algorithm.requirements.one_label):
            where = f"data.multi_label with {self.method}"
            expected = "losses that take several labels an image"
            remedy = "Choose fedavg, ssfl, fedperl or fedal, with the defaults of such settings."
            raise ConfigError(where, expected=expected, found=reason, remedy=remedy)
        if self.secure_aggregation:
            self._must_do_with_means(algorithm)
        if algorithm.settings.robust != "no":
            self._must_do_without_weights(algorithm)
        if not algorithm.settings.takes_mean and not algorithm.requirements.server_optimizer:
            where = f"server_optimizer={algorithm.settings.server_optimizer} with {self.method}"
            expected = "a method with one plain mean a round"
            found = f"a method of other means (server_learning_rate={algorithm.settings.server_learning_rate})"
            remedy = "Choose fedavg, ssfl, fedperl or fedal, or set server_optimizer=average, server_learning_rate=1."
            raise ConfigError(where, expected=expected, found=found, remedy=remedy)
        part = algorithm.requirements.trainable
        if part not in ("", self.trainable):
            where = f"trainable with {self.method}"
            remedy = f"Set trainable={part}, or choose another method."
            raise ConfigError(
                where, expected=f"{part}, all that it computes", found=self.trainable, remedy=remedy
            )
        return self

    @model_validator(mode="after")
    def _known_metrics(self) -> "Experiment":
        if self.metrics and self.data.multi_label:
            raise ValueError(
                "metrics: none with data.multi_label, as those of other packages take one label an image"
            )
        for name in self.metrics:
            METRICS.extension(name)
        if self.key_metric not in (known := (*overall(self.data.multi_label), *self.metrics)):
            like = did_you_mean(self.key_metric, known)
            raise ValueError(
                f"key_metric={self.key_metric!r} must be one of {', '.join(known)}{like}"
            )
        repeated = {
            name for name in self.metrics if name in METRICS.builtin or self.metrics.count(name) > 1
        }
        if repeated:
            raise ValueError(f"metrics: {', '.join(sorted(repeated))} would be reported twice")
        return self

    @model_validator(mode="after")
    def _fitting_images(self) -> "Experiment":
        size = image_size(self.net)
        found = self.data.image_size
        if size not in (None, found):
            expected = f"data.image_size = {size}, the only one it takes"
            remedy = f"Set data.image_size={size}, or choose the network for images of that size."
            raise ConfigError(f"net {self.net}", expected=expected, found=f"{found}", remedy=remedy)
        return self

    def _must_do_with_means(self, algorithm: "Algorithm[Any]") -> None:
        if self.update_dtype != "float32":
            expected = "update_dtype = float32: ciphertexts have no other"
            remedy = "Leave one of the two out."
            raise ConfigError(
                "secure_aggregation", expected=expected, found=self.update_dtype, remedy=remedy
            )
        where = f"secure_aggregation with {self.method}"
        participants = algorithm.settings.participants
        reason = algorithm.requirements.single_models
        if reason:
            expected = "a method that needs no more than the mean of the sites' models"
            remedy = "Choose fedavg, ssfl or fedprox, or set secure_aggregation=false."
            raise ConfigError(where, expected=expected, found=reason, remedy=remedy)
        if participants is not None and participants < self.smallest_sum:
            expected = f"at least {self.smallest_sum} participants a round"
            remedy = "Raise participants: the mean of one site is that site's model."
            raise ConfigError(where, expected=expected, found=f"{participants}", remedy=remedy)

    def _must_do_without_weights(self, algorithm: "Algorithm[Any]") -> None:
        reason = algorithm.requirements.weights
        if self.secure_aggregation:
            reason = "under secure_aggregation nobody sees the single models that a median is of"
        if reason:
            where = f"robust={algorithm.settings.robust} with {self.method}"
            expected = "a method whose sites are averaged by their counts alone, unencrypted"
            remedy = "Choose fedavg, ssfl, fedperl, fedal or fedprox without secure_aggregation, or set robust=no."
            raise ConfigError(where, expected=expected, found=reason, remedy=remedy)

    @classmethod
    def parse(cls, raw: Any, where: str) -> "Experiment":
        """Return a checked experiment from plain JSON values; raise :class:`ConfigError` naming
        each wrong field.
        """
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise explain(error, where, *cls._written(raw)) from error

    @classmethod
    def _written(cls, raw: Any) -> tuple[Any, list[str]]:
        """Return the values with the method's own beside the others, as faults name them, and the
        names there are.
        """
        if not isinstance(raw, dict):
            return raw, []
        options = raw.get("options")
        known = list(names_in(cls))
        method = raw.get("method")
        if method in METHODS.builtin:
            known += METHODS[method].settings_type.model_fields
        return {**(options if isinstance(options, dict) else {}), **raw}, known
