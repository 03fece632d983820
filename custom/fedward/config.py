"""One experiment as a typed, frozen model: what a job decides, without what sites decide."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedward.cards import STUDY_ITEMS, card
from fedward.digests import digest
from fedward.errors import ConfigError, did_you_mean
from fedward.faults import explain, names_in
from fedward.frozen import FrozenMapping, plain
from fedward.label_kinds import LabelKind, kind_of_field
from fedward.methods import settings_type
from fedward.methods.requirements import Feature, Requirements
from fedward.protocol.answer_rules import AnswerRules
from fedward.registry import METHODS, METRICS, SURVEY, VIEWS, Extension, extensions, image_size
from fedward.text import composed

if TYPE_CHECKING:
    from fedward.methods.settings import Settings

DERMOSCOPY_TITLES = {
    "MEL": "melanoma",
    "NV": "melanocytic nevus",
    "BCC": "basal cell carcinoma",
    "AK": "actinic keratosis",
    "BKL": "benign keratosis",
    "DF": "dermatofibroma",
    "VASC": "vascular lesion",
    "SCC": "squamous cell carcinoma",
}
"""The eight ISIC 2019 diagnoses, in FedPerl's order, and what they stand for."""
DERMOSCOPY = tuple(DERMOSCOPY_TITLES)
_Texts: TypeAlias = Annotated[Mapping[str, str], PlainSerializer(plain, return_type=dict[str, str])]
MOST_CLASSES = 1000
"""The most classes of a job. Sites and server count answers in tables of K rows and K columns."""
LONGEST_CLASS = 200
"""Characters of a class's name."""
_LONGEST_TITLE = 60
"""Characters of a class's title."""
EXPECTED_TITLE = f"1 to {_LONGEST_TITLE} printable characters"
"""What a class's title is, in words."""


class _Frozen(BaseModel):
    """A model whose fields cannot be set again, and that accepts no unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def is_title(text: str) -> bool:
    """Return whether a text may be what a class stands for on pages: :data:`EXPECTED_TITLE`."""
    return 1 <= len(text) <= _LONGEST_TITLE and text.isprintable()


class DataSpec(_Frozen):
    """The data set that a job is for; each site's own file says where its images are."""

    name: str = "dermoscopy"
    """Name of the data set in reports."""
    classes: tuple[Annotated[str, Field(min_length=1, max_length=LONGEST_CLASS)], ...] = Field(
        DERMOSCOPY, min_length=2, max_length=MOST_CLASSES
    )
    """K distinct names; output k of the network is class k. A site may have only some of them.

    Their letters are composed (Unicode's NFC), as those of the sites' labels."""
    titles: Annotated[Mapping[str, str], PlainSerializer(plain, return_type=dict[str, str])] = (
        Field(
            default_factory=lambda fields: (
                {name: DERMOSCOPY_TITLES[name] for name in fields["classes"]}
                if set(fields.get("classes", ["unknown"])) <= set(DERMOSCOPY)
                else {}
            ),
            validate_default=True,
        )
    )
    """Class -> what it stands for on pages, such as ``MEL`` -> ``melanoma``.

    Classes without a title are shown by their names alone. The classes of dermoscopy, and some of
    them, have titles by default.
    """
    multi_label: bool = False
    """True: an image may show any number of the classes. False: exactly one."""
    image_size: int = Field(32, ge=16, le=1024)
    """Height and width in pixels that the network sees."""
    channels: Literal[1, 3] = 3
    """1: grey; 3: RGB."""
    views: str = "rotation_invariant"
    """Name of the random changes of training images that do not change what they show.

    Those of fedward are in :mod:`fedward.views.recipes`."""
    evaluate_by: Literal["image", "patient"] = "image"
    """What validation and test metrics count: images, or patients.

    A patient is a group in a site's file, and has one label. The prediction for a patient is the
    mean of the probabilities of the patient's images."""
    card: _Texts = Field(default_factory=dict, validate_default=True)
    """What the study states about itself: field -> text.

    :data:`fedward.cards.STUDY_ITEMS` lists the fields, such as ``intended_use``. Pages show them,
    and call the others "not stated"."""

    @property
    def label_kind(self) -> LabelKind:
        """Whether images have one label or several, and all that follows from it."""
        return kind_of_field(self.multi_label)

    @model_validator(mode="after")
    def _one_label_a_patient(self) -> "DataSpec":
        if self.multi_label and self.evaluate_by != "image":
            raise ValueError(
                "evaluate_by=patient needs one label a patient:"
                " set evaluate_by=image with multi_label"
            )
        return self

    @field_validator("titles")
    @classmethod
    def _titles_of_classes(
        cls, titles: Mapping[str, str], info: ValidationInfo
    ) -> Mapping[str, str]:
        written = titles
        titles = {composed(name): title for name, title in written.items()}
        if len(titles) < len(written):
            raise ValueError("a class has two titles")
        classes = info.data.get("classes", titles)
        others = {name: title for name, title in titles.items() if name not in classes}
        # A job with classes of its own may have been made from one with the default ones.
        unknown = [name for name in others if DERMOSCOPY_TITLES.get(name) != others[name]]
        if unknown:
            raise ValueError(f"{unknown[0][:80]!r} is not one of the classes")
        titles = {name: title for name, title in titles.items() if name in classes}
        for title in titles.values():
            if not is_title(title):
                raise ValueError(f"titles have {EXPECTED_TITLE}")
        return FrozenMapping(titles)

    @field_validator("card")
    @classmethod
    def _known_items(cls, texts: Mapping[str, str]) -> Mapping[str, str]:
        return FrozenMapping(card(texts, STUDY_ITEMS))

    @field_validator("views")
    @classmethod
    def _known_views(cls, views: str) -> str:
        VIEWS.extension(views)
        return views

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        classes = tuple(map(composed, classes))
        if len(set(classes)) < len(classes):
            raise ValueError("a class is named twice")
        return classes


class WeightsFile(_Frozen):
    """A file of weights, which the server and each site keep in their folder ``FEDWARD_WEIGHTS``.

    It is never sent.
    """

    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,100}\.safetensors$")
    """Name of the file, without a folder."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the file, in lower-case hexadecimal digits."""


class SyntheticData(_Frozen):
    """Synthetic images for the sites of a simulation that have no site file.

    A clinical job sets ``synthetic`` to None.
    """

    labelled: float = Field(0.1, ge=0.0, le=1.0)
    """Share of training images of each class whose label is visible."""
    images: int = Field(240, ge=16)
    """Number of images of a full-size synthetic site. Some sites are smaller."""
    sites: int = Field(10, ge=1, le=100)
    """Number of sites in a simulation.

    From the eleventh on, sites repeat the cameras and diagnoses of the first ten in turn, with
    patients of their own."""
    places: tuple[Annotated[int, Field(ge=1, le=10)], ...] | None = None
    """Numbers of the sites whose cameras and diagnoses the sites have in turn.

    None: those of all ten. With ``(1, 6)``, site-1 is as it is otherwise, and site-2 as site-6."""
    isolated: bool = False
    """Whether sites with an even number show no label at all."""
    labelled_sites: tuple[int, ...] | None = None
    """Numbers of the sites that show labels, such as 2 for site-2; None: all, or as ``isolated``.

    In the paper of FedPerl, "few labelled clients" are its clients 1 and 9, here 2 and 10."""

    @field_validator("places")
    @classmethod
    def _some_place(cls, places: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if places == ():
            raise ValueError("places=[] must be numbers from 1 to 10")
        return places

    @model_validator(mode="after")
    def _one_choice_of_labelled_sites(self) -> "SyntheticData":
        numbers = self.labelled_sites
        if numbers is None:
            return self
        if self.isolated:
            raise ValueError(
                "isolated and labelled_sites both choose the sites with labels: set one"
            )
        unknown = [number for number in numbers if not 1 <= number <= self.sites]
        if unknown or not numbers:
            sites = list(numbers)
            raise ValueError(
                f"labelled_sites={sites} must be numbers from 1 to synthetic.sites={self.sites}"
            )
        return self


class Experiment(_Frozen):
    """Everything a run depends on besides the sites' data.

    Equal experiments on equal data give equal weights. An experiment cannot be changed.
    """

    method: str
    """Name of a method: built in, of an installed package, or registered in this process."""
    data: DataSpec = DataSpec()
    """What the images are."""
    options: Annotated[Mapping[str, Any], PlainSerializer(plain, return_type=dict[str, Any])] = (
        Field(default_factory=dict, validate_default=True)
    )
    """The method's settings, checked against the method's own model and read-only.

    In a multi-label job the default of ``threshold`` is that of
    :class:`~fedward.label_kinds.SeveralLabels`.
    """
    net: str = "small_cnn"
    """Name of the network: one of fedward's, such as ``small_cnn``, or of timm's.

    :func:`fedward.nets.build` lists them."""
    pretrained: bool | WeightsFile = False
    """Weights the network starts from: False: random ones, True: ImageNet's, or those of a file."""
    trainable: str = "all"
    """Part of the network that is trained and sent: ``all``, ``head``, ``last:N`` or ``adapters``.

    ``head`` is the classifier. ``last:N`` adds the last N blocks, ``adapters`` a low-rank change of
    each linear layer. All else is frozen and never sent: the server and each site build it."""
    stored_views: int = Field(4, ge=1, le=16)
    """Number of weak views and of strong views of each image whose features are stored.

    Features are stored if only the head is trained."""
    synthetic: SyntheticData | None = SyntheticData()
    """Images of sites without a site file. None: a site without a file is an error."""
    seed: int = Field(1, ge=0)
    """Seed of every random draw."""
    evaluate_every: int = Field(1, ge=1)
    """Number of rounds from one evaluation of the global model at all sites to the next.

    The model is also evaluated before the first round and after the last."""
    key_metric: str = Field(
        default_factory=lambda fields: (fields.get("data") or DataSpec()).label_kind.key_metric
    )
    """Validation metric that chooses the best round; higher is better.

    By default ``auroc_macro`` in a multi-label job, ``accuracy`` in any other."""
    metrics: tuple[str, ...] = ()
    """Metrics from other packages, which sites report besides those of every job."""
    minimum_replies: int = Field(1, ge=1)
    """Number of accepted replies that an exchange needs. With fewer, none of them is used.

    Methods that ask groups of sites in turn have an exchange for each group, so a group smaller
    than this never counts. The weights of an average are moved towards equal ones until it has the
    ``effective_replies`` that follow from this number."""
    timeout: int = Field(3600, ge=1)
    """Seconds that a site has for one exchange, including the time in a queue."""
    largest_update: float = Field(100.0, gt=0)
    """Largest norm of an update that is accepted, as a multiple of the norm of the model sent."""
    update_dtype: Literal["float32", "float16"] = "float32"
    """Precision of the updates that sites send.

    float16 takes at most half of the bytes, and keeps 11 significant bits of each number."""
    secure_aggregation: bool = False
    """Whether sites encrypt their updates, so that the server learns only means of two or more.

    See docs/encryption.md."""

    @property
    def digest(self) -> str:
        """SHA-256 of all settings as canonical JSON.

        Sites approve a job by its digest, and compare the digest of their copy with the server's.
        """
        return digest(self.model_dump(mode="json"))

    @property
    def extensions(self) -> list[Extension]:
        """The names of other installed packages that the experiment uses, each with its package."""
        return extensions(self.model_dump(mode="json"))

    @property
    def effective_replies(self) -> float:
        """Effective number of replies that an average must reach: 1 / Σ w_k² of their shares w_k.

        It is five sixths of ``minimum_replies``, for example 2.5 for 3. If no more replies arrive
        than that minimum, the standard deviation of their weights is at most 45 % of their mean.
        """
        return max(1.0, 5 * self.minimum_replies / 6)

    @property
    def smallest_sum(self) -> int:
        """Number of encrypted updates that a mean needs before a site decrypts it, at least 2.

        The mean of a single update would be that update.
        """
        return max(2, self.minimum_replies)

    def answer_rules(self, requirements: Requirements) -> AnswerRules:
        """Return what answers to this job's requests may hold.

        Args:
            requirements: the requirements of the job's method.
        """
        kind = self.data.label_kind
        return AnswerRules(
            classes=self.data.classes,
            metric_names=(*kind.metric_names, *kind.error_names, *self.metrics),
            training_numbers=requirements.sends.reported,
            withheld=requirements.tensors.withheld,
            card=requirements.sends.card,
            subgroups=requirements.sends.subgroups,
            clusters=requirements.sends.clusters,
            distributions=requirements.tensors.distributions,
            moments=requirements.tensors.moments,
            exclusive=kind.exclusive,
            fewest_others=kind.fewest_others,
        )

    @field_validator("trainable")
    @classmethod
    def _known_part(cls, part: str) -> str:
        if not re.fullmatch(r"all|head|adapters|last:[1-9]\d{0,3}", part):
            raise ValueError(
                f"{part[:80]!r}, not one of all, head, adapters, or last:N such as last:2"
            )
        return part

    @field_validator("options")
    @classmethod
    def _frozen_options(cls, options: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        """Make the options read-only, with the threshold that suits the kind of labels."""
        # ``info.data`` lacks fields that were refused.
        method = info.data.get("method")
        data = info.data.get("data")
        threshold = None if data is None else data.label_kind.threshold
        if threshold and method and "threshold" in settings_type(method).model_fields:
            options = {"threshold": threshold, **options}
        return FrozenMapping(options)

    @model_validator(mode="after")
    def _supported_by_its_method(self) -> "Experiment":
        # Imported here, because a method imports torch.
        from fedward.methods import job_of, methods_supporting

        job = job_of(self)
        if self.secure_aggregation:
            self._check_encryption(job.settings)
        requests = _feature_requests(self, job.settings, job.requirements)
        for request in requests:
            reason = job.requirements.reason_against(request.feature)
            if reason:
                remedy = f"Set {request.instead}."
                supporting_methods = methods_supporting([asked.feature for asked in requests])
                # A training does not stand in for a survey.
                if supporting_methods and self.method != SURVEY:
                    remedy = (
                        f"Set {request.instead}, or choose one of {', '.join(supporting_methods)}"
                        " with its default settings."
                    )
                raise ConfigError(
                    f"{self.method} cannot work with {request.setting}: {reason}", remedy
                )
        return self

    @model_validator(mode="after")
    def _known_metrics(self) -> "Experiment":
        if self.metrics and self.data.multi_label:
            raise ValueError(
                "metrics: none with data.multi_label,"
                " because metrics of other packages take one label an image"
            )
        for name in self.metrics:
            METRICS.extension(name)
        metric_names = (*self.data.label_kind.metric_names, *self.metrics)
        if self.key_metric not in metric_names:
            suggestion = did_you_mean(self.key_metric, metric_names)
            raise ValueError(
                f"key_metric={self.key_metric!r} must be one of"
                f" {', '.join(metric_names)}{suggestion}"
            )
        repeated = set()
        for name in self.metrics:
            if name in METRICS.builtin or self.metrics.count(name) > 1:
                repeated.add(name)
        if repeated:
            raise ValueError(f"metrics: {', '.join(sorted(repeated))} would be reported twice")
        return self

    @model_validator(mode="after")
    def _fitting_images(self) -> "Experiment":
        only_size = image_size(self.net)
        if only_size is not None and self.data.image_size != only_size:
            raise ConfigError(
                f"net {self.net}",
                f"Set data.image_size={only_size}, or choose the network for images of that size.",
                expected=f"data.image_size = {only_size}, the only one it takes",
                found=f"{self.data.image_size}",
            )
        return self

    def _check_encryption(self, settings: "Settings") -> None:
        """Raise ConfigError if a setting cannot be combined with encrypted updates."""
        if self.update_dtype != "float32":
            raise ConfigError(
                f"update_dtype={self.update_dtype} cannot be combined with secure_aggregation,"
                " whose ciphertexts have a precision of their own",
                "Set update_dtype=float32, or secure_aggregation=false.",
            )
        if settings.robust != "no":
            raise ConfigError(
                f"robust={settings.robust} cannot be combined with secure_aggregation, under which"
                " nobody sees the single models that a median needs",
                "Set robust=no, or secure_aggregation=false.",
            )
        participants = settings.participants
        if participants is not None and participants < self.smallest_sum:
            raise ConfigError(
                f"participants={participants} is too few with secure_aggregation, which needs at"
                f" least {self.smallest_sum} sites a round",
                "Raise participants: the mean of one site's model is that model.",
            )

    @classmethod
    def parse(cls, raw: Any, where: str) -> "Experiment":
        """Return a checked experiment from plain JSON values.

        Args:
            raw: the values.
            where: where they are from, as errors name it.

        Raises:
            ConfigError: some fields are wrong; it names each of them.
        """
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            values, field_names = cls._with_options_beside(raw)
            help_on_names = "`fedward settings` lists all."
            raise explain(error, where, values, field_names, help_on_names) from error

    @classmethod
    def _with_options_beside(cls, raw: Any) -> tuple[Any, list[str]]:
        """Return the method's options beside the other values, and the names of all fields.

        People write and change jobs in this form, so errors name fields as they are in it.
        """
        if not isinstance(raw, Mapping):
            return raw, []
        options = raw.get("options")
        values = dict(raw)
        if isinstance(options, Mapping):
            values = {**options, **raw}
        field_names = list(names_in(cls))
        method = raw.get("method")
        if isinstance(method, str) and (method == SURVEY or method in METHODS.builtin):
            field_names += settings_type(method).model_fields
        return values, field_names


class _FeatureRequest(NamedTuple):
    """A feature that an experiment asks for, in the words of its settings."""

    feature: Feature
    setting: str
    """The setting that asks for it, such as ``update_dtype=float16``."""
    instead: str
    """What to set in order to do without the feature."""


def _feature_requests(
    experiment: Experiment, settings: "Settings", requirements: Requirements
) -> Sequence[_FeatureRequest]:
    """Return the features that the settings of an experiment ask of its method."""
    requests = list[_FeatureRequest]()
    if experiment.update_dtype == "float16":
        requests.append(
            _FeatureRequest(Feature.FLOAT16_UPDATES, "update_dtype=float16", "update_dtype=float32")
        )
    if experiment.data.multi_label:
        requests.append(
            _FeatureRequest(
                Feature.SEVERAL_LABELS, "data.multi_label=true", "data.multi_label=false"
            )
        )
    if experiment.secure_aggregation:
        requests.append(
            _FeatureRequest(
                Feature.SECURE_AGGREGATION, "secure_aggregation=true", "secure_aggregation=false"
            )
        )
    if settings.robust != "no":
        requests.append(
            _FeatureRequest(Feature.ROBUST_MEAN, f"robust={settings.robust}", "robust=no")
        )
    if settings.average_decay:
        requests.append(
            _FeatureRequest(
                Feature.MOVING_AVERAGE,
                f"average_decay={settings.average_decay:g}",
                "average_decay=0",
            )
        )
    requests.append(_trained_part(experiment.trainable, requirements))
    return requests


_TRAINED_PARTS = {
    "all": Feature.TRAIN_ALL,
    "head": Feature.TRAIN_HEAD,
    "last": Feature.TRAIN_LAST_BLOCKS,
    "adapters": Feature.TRAIN_ADAPTERS,
}
"""Word of ``trainable`` before a colon -> the feature that it asks for."""


def _trained_part(trainable: str, requirements: Requirements) -> _FeatureRequest:
    """Return the request to train a part of the network."""
    feature = _TRAINED_PARTS[trainable.partition(":")[0]]
    supported = [part for part in _TRAINED_PARTS.values() if not requirements.reason_against(part)]
    return _FeatureRequest(feature, f"trainable={trainable}", " or ".join(supported))
