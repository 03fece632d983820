"""Names that an experiment uses, and the object that each stands for.

A name is built in, offered by an installed package as an entry point (docs/extending.md), or
registered in this process. Nothing is imported before its name is looked up.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from fedward.errors import ConfigError, did_you_mean
from fedward.evaluation.names import ERRORS, MULTI_LABEL, OVERALL

if TYPE_CHECKING:
    from fedward.evaluation.metric_rows import MetricFunction
    from fedward.methods.algorithm import Algorithm
    from fedward.methods.samplers.base import Sampler
    from fedward.nets.build import Network
    from fedward.views import Views

T = TypeVar("T")


class Extension(NamedTuple):
    """One name that an installed package adds."""

    kind: str
    """``method``, ``network``, ``sampler``, ``view`` or ``metric``."""
    name: str
    """The name as experiments use it."""
    package: str
    """Name of the distribution package."""
    version: str
    """Installed version of the package."""

    def __str__(self) -> str:
        return f"{self.package}=={self.version}:{self.name}"


class Registry(Mapping[str, T], Generic[T]):
    """The names of one kind.

    As a mapping it has the built-in and the registered names. A lookup finds names of installed
    packages too.

    Args:
        kind: the kind in the singular; entry points belong to the group ``fedward.<kind>s``.
        package: the package of the built-in objects.
        builtin: name -> ``module:object`` below the package.
        attributes: names of the attributes that every object of this kind has.
        reserved: names that jobs use for something else, and that nothing of this kind may have.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        builtin: Mapping[str, str],
        attributes: Sequence[str] = ("__call__",),
        reserved: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.group = f"fedward.{kind}s"
        self._attributes = attributes
        self._reserved = reserved
        self.builtin = {name: f"{package}.{target}" for name, target in builtin.items()}
        self.registered: dict[str, T] = {}
        """Name -> object, of this process alone."""

    def __getitem__(self, name: str) -> T:
        """Return the object that a name stands for, imported now.

        Raises:
            ConfigError: no package, or more than one, has that name, or the package cannot be
                imported.
        """
        if name in self.registered:
            return self.registered[name]
        extension = self.extension(name)
        if extension is None:
            builtin: T = EntryPoint(name, self.builtin[name], self.group).load()
            return builtin
        try:
            thing: T = self._offers(name)[0].load()
        except Exception as error:  # another package's module may raise anything
            raise ConfigError(
                f"{self.kind} {extension} cannot be imported: {type(error).__name__}: {error}",
                f"Repair or remove the package {extension.package}.",
            ) from error
        self._require(thing, f"{self.kind} {name} of {extension}")
        return thing

    def __contains__(self, name: object) -> bool:
        return name in self.registered or name in self.builtin or bool(self._offers(name))

    def __iter__(self) -> Iterator[str]:
        return iter({**self.builtin, **self.registered})

    def __len__(self) -> int:
        return len({**self.builtin, **self.registered})

    def extension(self, name: str) -> Extension | None:
        """Return the installed package that adds a name; None where it is built in or registered.

        Imports nothing.

        Raises:
            ConfigError: no package, or more than one, has that name.
        """
        if name in self.registered:
            return None
        offers = []
        for entry in self._offers(name):
            if entry.dist is not None:  # an installed package has one
                offers.append(Extension(self.kind, name, entry.dist.name, entry.dist.version))
        sources = [str(offer) for offer in offers]
        if name in self.builtin or (offers and name in self._reserved):
            sources.insert(0, "fedward itself")
        if not sources:
            names = self.names()
            raise ConfigError(
                self.kind,
                "Name one of them, or install the package that adds it.",
                expected=f"one of {', '.join(names)}",
                found=f"{name!r}{did_you_mean(name, names)}",
            )
        if len(sources) > 1:
            raise ConfigError(
                f"{self.kind} {name}",
                f"Remove one package, or rename its entry point in the group {self.group}.",
                expected="one package with that name",
                found=" and ".join(sources),
            )
        return offers[0] if offers else None

    def names(self) -> list[str]:
        """Return all names: built in, registered, and of installed packages. Imports nothing."""
        installed = [entry.name for entry in self._installed()]
        return list(dict.fromkeys([*self, *installed]))

    def register(self, name: str, thing: T) -> None:
        """Add a name in this process, or replace one that was registered before.

        Raises:
            ConfigError: fedward or an installed package has the name, or ``thing`` lacks an
                attribute of its kind.
        """
        is_reserved = name in self._reserved
        if is_reserved or (name not in self.registered and name in self):
            owner = "fedward itself" if is_reserved else self.extension(name) or "fedward itself"
            raise ConfigError(
                f"{self.kind} {name}", "Choose another.", expected="a new name", found=str(owner)
            )
        self._require(thing, f"{self.kind} {name}")
        self.registered[name] = thing

    def _require(self, thing: T, where: str) -> None:
        missing = [name for name in self._attributes if not hasattr(thing, name)]
        if missing:
            raise ConfigError(
                where,
                "docs/extending.md says what each kind is.",
                expected=f"an object with {', '.join(self._attributes)}",
                found=f"{thing!r:.80} without {', '.join(missing)}",
            )

    def _offers(self, name: object) -> list[EntryPoint]:
        return [entry for entry in self._installed() if entry.name == name]

    def _installed(self) -> EntryPoints:
        return _entry_points(self.group, tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Return the entry points of all packages on a search path.

    They are read once for each path, because all installed packages must be looked at.
    """
    return entry_points(group=group)


_METHODS = {
    "fedavg": "fedavg:FedAvg",
    "ssfl": "ssfl:SSFL",
    "fedperl": "fedperl.algorithm:FedPerl",
    "alone": "alone:Alone",
    "wfedavg": "wfedavg:WFedAvg",
    "fedprox": "fedprox:FedProx",
    "mt_wfedavg": "mt_wfedavg:MTWFedAvg",
    "rscfed": "rscfed:RSCFed",
    "isofed": "isofed:IsoFed",
    "fedirm": "fedirm.algorithm:FedIRM",
    "fedmatch": "fedmatch.algorithm:FedMatch",
    "fedal": "fedal.algorithm:FedAL",
    "selffed": "selffed.algorithm:SelfFed",
    "oneshot": "oneshot.algorithm:OneShot",
}
SURVEY = "survey"
"""Name of the job that is no method: it asks sites what their images are, and trains nothing."""
_SWINS = {"28": 28, "32": 32, "32_patch4": 32, "64": 64, "224": 224}
"""End of a name after ``swin_`` -> height and width of the network's images in pixels."""
_NETWORKS = {
    "small_cnn": "small_cnn:SmallCNN",
    "small_cnn_gn": "small_cnn_gn:SmallCNNGN",
    **{f"swin_{size}": f"masked_swin:swin_{size}" for size in _SWINS},
    **{f"masked_swin_{size}": f"masked_swin:masked_swin_{size}" for size in _SWINS},
}
_SAMPLERS = {
    "random": "base:Random",
    "local_entropy": "fedal:LocalEntropy",
    "global_entropy": "fedal:GlobalEntropy",
    "fedal": "fedal:EnsembleEntropy",
    "aift": "aift:AIFT",
    "sa": "suggestive:Suggestive",
    "mcdal": "mcdal:MCDAL",
    "bald": "uncertainty:BALD",
    "margin": "uncertainty:Margin",
    "core_set": "core_set:CoreSet",
}
_VIEWS = {
    name: f"recipes:{name.upper()}"
    for name in ("rotation_invariant", "mirrored", "upright", "filtered")
}
_METRICS = dict.fromkeys(MULTI_LABEL, "several_labels:multi_label_metrics")
_METRICS |= dict.fromkeys((*OVERALL, *ERRORS), "one_label:classification_metrics")


METHODS: "Registry[type[Algorithm[Any]]]" = Registry(
    "method",
    "fedward.methods",
    _METHODS,
    ("settings_type", "state_type", "start", "rounds", "phases"),
    reserved=(SURVEY,),
)
NETWORKS: "Registry[Network]" = Registry("network", "fedward.nets", _NETWORKS)
"""Networks of this package. Those of timm, and MONAI's under ``monai:NAME``, have no row here."""
SAMPLERS: "Registry[type[Sampler]]" = Registry(
    "sampler", "fedward.methods.samplers", _SAMPLERS, ("settings_type", "uses", "choose")
)
VIEWS: "Registry[Views]" = Registry("view", "fedward.views", _VIEWS, ("weak", "strong"))
METRICS: "Registry[MetricFunction]" = Registry("metric", "fedward.evaluation", _METRICS)
"""The built-in metrics are those of every job, and are computed together."""

KINDS: Mapping[str, Registry[Any]] = {
    registry.kind: registry for registry in (METHODS, NETWORKS, SAMPLERS, VIEWS, METRICS)
}


def image_size(net: str) -> int | None:
    """Return the only image size that a network of fedward takes; None where it takes several.

    It is the height and width in pixels.
    """
    if net not in _NETWORKS:
        return None
    return _SWINS.get(net.removeprefix("masked_").removeprefix("swin_"))


def extensions(experiment: Mapping[str, Any]) -> list[Extension]:
    """Return the names of other packages in an experiment, given as plain JSON values.

    Imports none of the packages. Values that are not names, and unknown names, are left for the
    check of the experiment.

    Raises:
        ConfigError: more than one package has a name.
    """
    used = []
    for registry, name in _named(experiment):
        extension = registry.extension(name)
        if extension is not None:
            used.append(extension)
    return used


def registered(experiment: Mapping[str, Any]) -> list[str]:
    """Return kind and name of what :func:`fedward.register` added to an experiment's names.

    The experiment is given as plain JSON values.
    """
    return [
        f"{registry.kind} {name}"
        for registry, name in _named(experiment)
        if name in registry.registered
    ]


def _named(experiment: Mapping[str, Any]) -> list[tuple[Registry[Any], str]]:
    """Return the known names of an experiment, each with its registry."""
    candidates: list[tuple[Registry[Any], Any]] = [
        (METHODS, experiment.get("method")),
        (NETWORKS, experiment.get("net")),
        (SAMPLERS, _field(experiment, "options", "sampler")),
        (VIEWS, _field(experiment, "data", "views")),
    ]
    metrics = experiment.get("metrics")
    if isinstance(metrics, list | tuple):
        candidates += [(METRICS, name) for name in metrics]
    named = []
    for registry, name in candidates:
        if isinstance(name, str) and name in registry:
            named.append((registry, name))
    return named


def _field(experiment: Mapping[str, Any], part: str, name: str) -> Any:
    """Return a field of a part of an experiment; None where either is missing."""
    values = experiment.get(part)
    return values.get(name) if isinstance(values, Mapping) else None
