"""What a method declares to the runtime: what it sends, needs, and cannot work with.

Whatever is not declared here is refused, at the sites and at the server.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

from fedward.errors import ConfigError

COMMON_RECORDS = frozenset({"metrics", "rounds", "queries", "bytes", "binned"})
"""Logs that every run folder has."""
COMMON_LOGS = frozenset({"loss", "seconds"})
"""Numbers that every site reports of its training: the mean total loss, and the duration.

The loss is that of the last phase that trains, in rounds of several phases."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")

EVERY_TENSOR = ""
"""The prefix of every tensor's name, for :class:`TensorRules`."""

ServerImages: TypeAlias = Literal["validation", "training", "labels", "pictures"]
"""A use of the server's own images.

:attr:`Federation.validate`; ``learn`` without or with their labels; or ``show``.
"""


class Feature(StrEnum):
    """What a job, or a site's file, can ask of any method. The value is the setting that asks."""

    SECURE_AGGREGATION = "secure_aggregation=true"
    """The server sees no single model, only the mean of the sites' models by ``weight``."""
    ROBUST_MEAN = "robust"
    """A median or a trimmed mean, in which each site counts once, replaces the weighted mean."""
    MOVING_AVERAGE = "average_decay"
    """A moving average of the global model is evaluated and saved in its place."""
    FLOAT16_UPDATES = "update_dtype=float16"
    """Sites round their updates to 11 significant bits."""
    SEVERAL_LABELS = "data.multi_label=true"
    """An image may show any number of the classes."""
    TRAIN_ALL = "trainable=all"
    """All of the network is trained."""
    TRAIN_HEAD = "trainable=head"
    """The classifier alone is trained, and the rest of the network is frozen."""
    TRAIN_LAST_BLOCKS = "trainable=last:N"
    """The classifier and the last N blocks are trained."""
    TRAIN_ADAPTERS = "trainable=adapters"
    """The classifier and low-rank changes of the linear layers are trained."""
    SEVERAL_PROCESSES = "processes"
    """Several processes at a site share each training batch. A site's file asks for it."""


_REASONS_BY_DEFAULT: Mapping[Feature, str] = {
    Feature.SEVERAL_LABELS: "it is written for one label an image",
}
"""Feature that needs code in the method itself -> the reason where a method declares nothing."""


@dataclass(frozen=True)
class Sends:
    """What a site may report besides its update, and what the workflow may log.

    Raises ConfigError for a name that is malformed, or that all methods have.
    """

    losses: frozenset[str] = frozenset()
    """Names of loss terms; each begins with ``loss_``."""
    logs: frozenset[str] = frozenset()
    """Names of further scalars of a training step, such as the share of pseudo-labels kept."""
    records: frozenset[str] = frozenset()
    """Names of the run folder's logs, besides :data:`COMMON_RECORDS`, that the workflow writes."""
    class_totals: bool = False
    """Whether updates hold sums over the images of single classes.

    Sites then leave out labelled images of rare classes, which such a sum would reveal.
    """
    card: bool = True
    """Whether answers may carry the site's card, where the site's policy lets it out."""
    subgroups: bool = True
    """Whether counts of answers may be by subgroup too, where the site's policy lets them out."""
    clusters: bool = True
    """Whether they may say what the images are worth in intervals, as patients have several."""

    def __post_init__(self) -> None:
        names = self.losses | self.logs | self.records
        malformed = {name for name in names if not _NAME.fullmatch(name)}
        without_prefix = {name for name in self.losses if not name.startswith("loss_")}
        taken = (self.records & COMMON_RECORDS) | (self.logs & COMMON_LOGS)
        wrong = malformed | without_prefix | taken
        if wrong:
            raise ConfigError(
                f"a method's requirements cannot name {', '.join(sorted(wrong))}",
                "Use small letters, digits and _, loss_* for losses, and no name that all methods"
                " have.",
            )

    @property
    def reported(self) -> frozenset[str]:
        """Names of the numbers that a site may report of its training."""
        return COMMON_LOGS | self.losses | self.logs


@dataclass(frozen=True)
class ServerNeeds:
    """What the server must offer: exchanges, models for single sites, images of its own."""

    exchanges: int = 1
    """Exchanges of a round at most; sites refuse further ones."""
    peers: int = 0
    """Models besides the global one that a site is sent at most: ``peer0``, ``peer1`` and so on."""
    lone_peers: str = ""
    """The setting that lets a site be sent another single site's model; empty where none does."""
    images: frozenset[ServerImages] = frozenset()
    """What the server's own images are used for."""
    network: bool = False
    """Whether the workflow runs models on images that it makes itself (``Federation.network``)."""

    @property
    def learns_alone(self) -> bool:
        """Whether the server learns from labels of its own, so that no site has to."""
        return "labels" in self.images


@dataclass(frozen=True)
class TensorRules:
    """Which tensors of the model are not treated as all others. Names are given by their prefix."""

    private: tuple[str, ...] = ()
    """Prefixes of tensors that a site trains and keeps for itself."""
    excluded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Task -> prefixes of tensors that the task does not train, and that do not go up after it."""
    untrained: tuple[str, ...] = ()
    """Prefixes of tensors on the way to the logits that no round trains.

    A model with such tensors is not evaluated.
    """
    per_class: tuple[str, ...] = ()
    """Prefixes of added tensors whose rows belong to classes, as those of a classifier do."""
    distributions: tuple[str, ...] = ()
    """Names of added tensors (R, K) that a site sends with rows that are distributions, or 0."""
    moments: str = ""
    """Name of an added module whose tensors are moments of features; empty where none are sent.

    They are those of :class:`fedward.methods.oneshot.moments.Moments`."""

    @property
    def none_travels(self) -> bool:
        """Whether sites keep all that they train, so that the server's model never changes."""
        return EVERY_TENSOR in self.private

    def withheld(self, task: str) -> tuple[str, ...]:
        """Return prefixes of tensors that do not go up after a task: the server keeps its own."""
        return tuple(dict.fromkeys((*self.private, *self.excluded.get(task, ()))))


@dataclass(frozen=True)
class Requirements:
    """All that a method needs of the runtime, and all that its sites may send."""

    tasks: frozenset[str] = frozenset({"train"})
    """Names of the tasks that the workflow gives to sites; they refuse others, except ``idle``."""
    sends: Sends = Sends()
    server: ServerNeeds = ServerNeeds()
    tensors: TensorRules = TensorRules()
    reasons_against: Mapping[Feature, str] = field(default_factory=dict)
    """Feature -> why the method cannot work with it; an empty text where it can.

    A method can work with the features that it does not name, except for several labels an image.
    """
    plain_images: bool = False
    """Whether sites look at their labelled images as they are: at no views and no other images."""
    hidden_labels: bool = False
    """Whether sites train as if none of their training images had a label."""

    def reason_against(self, feature: Feature) -> str:
        """Return why the method cannot work with a feature; an empty text where it can."""
        if feature in self.reasons_against:
            return self.reasons_against[feature]
        return _REASONS_BY_DEFAULT.get(feature, "")
