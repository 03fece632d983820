"""All names by which an experiment says what it is made of, and where each leads.

A name is built in, offered by an installed package as an entry point (docs/extending.md), or
registered in this process. Nothing is imported before its name is looked up.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from fedward.errors import ConfigError, did_you_mean
from fedward.evaluation.names import MULTI_LABEL, OVERALL

if TYPE_CHECKING:
    from fedward.evaluation.classification import MetricFunction
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
    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package}=={self.version}:{self.name}"


class Registry(Mapping[str, T], Generic[T]):
    """The names of one kind.

    As a mapping it has the built-in and the registered ones; a lookup finds those of installed
    packages too.

    Args:
        kind: in the singular; entry points belong to the group ``fedward.<kind>s``.
        package: where the built-in ones are.
        builtin: name -> ``module:object`` below the package.
        needs: attributes without which an object is none of this kind.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        builtin: Mapping[str, str],
        needs: Sequence[str] = ("__call__",),
    ) -> None:
        self.kind = kind
        self.group = f"fedward.{kind}s"
        self._needs = needs
        self.builtin = {name: f"{package}.{target}" for name, target in builtin.items()}
        self.registered: dict[str, T] = {}
        """Those of this process alone."""

    def __getitem__(self, name: str) -> T:
        """Return what a name stands for, imported now.

        Raises:
            ConfigError: nothing has that name, or more than one package, or its package cannot be
                imported.
        """
        if name in self.registered:
            return self.registered[name]
        found = self.extension(name)
        if found is None:
            return EntryPoint(name, self.builtin[name], self.group).load()  # type: ignore[no-any-return]
        try:
            loaded: T = self._offers(name)[0].load()
        except Exception as error:  # whatever another package's module raises
            where = f"{self.kind} {found}"
            why = f"{type(error).__name__}: {error}"
            remedy = f"Repair or remove the package {found.package}."
            raise ConfigError(
                where, expected="a module that can be imported", found=why, remedy=remedy
            ) from error
        self._require(loaded, f"{self.kind} {name} of {found}")
        return loaded

    def __contains__(self, name: object) -> bool:
        return name in self.registered or name in self.builtin or bool(self._offers(name))

    def __iter__(self) -> Iterator[str]:
        return iter({**self.builtin, **self.registered})

    def __len__(self) -> int:
        return len({**self.builtin, **self.registered})

    def extension(self, name: str) -> Extension | None:
        """Return which installed package adds a name, None for one that is built in or registered;
        imports nothing.

        Raises:
            ConfigError: nothing has that name, or more than one package.
        """
        if name in self.registered:
            return None
        dists = [
            entry.dist for entry in self._offers(name) if entry.dist
        ]  # each has one: its package is installed
        offers = [Extension(self.kind, name, dist.name, dist.version) for dist in dists]
        sources = [*(["fedward itself"] if name in self.builtin else []), *map(str, offers)]
        if not sources:
            known = self.names()
            found = f"{name!r}{did_you_mean(name, known)}"
            raise ConfigError(
                self.kind,
                expected=f"one of {', '.join(known)}",
                found=found,
                remedy="Name one of them.",
            )
        if len(sources) > 1:
            where = f"{self.kind} {name}"
            found = " and ".join(sources)
            remedy = f"Remove one package, or rename its entry point in the group {self.group}."
            raise ConfigError(
                where, expected="one package with that name", found=found, remedy=remedy
            )
        return offers[0] if offers else None

    def names(self) -> list[str]:
        """Return all names: built-in, registered and of installed packages; imports nothing."""
        return list(dict.fromkeys([*self, *(entry.name for entry in self._installed())]))

    def register(self, name: str, thing: T) -> None:
        """Add a name in this process, in place of one that was registered before.

        Raises:
            ConfigError: the name is taken by fedward or an installed package, or ``thing`` is none
                of this kind.
        """
        if name not in self.registered and name in self:
            taken = self.extension(name) or "fedward itself"
            raise ConfigError(
                f"{self.kind} {name}",
                expected="a new name",
                found=str(taken),
                remedy="Choose another.",
            )
        self._require(thing, f"{self.kind} {name}")
        self.registered[name] = thing

    def _require(self, thing: T, where: str) -> None:
        missing = ", ".join(attribute for attribute in self._needs if not hasattr(thing, attribute))
        if missing:
            expected = f"an object with {', '.join(self._needs)}"
            found = f"{thing!r:.80} without {missing}"
            remedy = "docs/extending.md says what each kind is."
            raise ConfigError(where, expected=expected, found=found, remedy=remedy)

    def _offers(self, name: object) -> list[EntryPoint]:
        return [entry for entry in self._installed() if entry.name == name]

    def _installed(self) -> EntryPoints:
        return _entry_points(self.group, tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Return those of all packages on a search path; read once, as it takes looking at every
    package.
    """
    return entry_points(group=group)


_METHODS = {
    "fedavg": "fedavg:FedAvg",
    "ssfl": "ssfl:SSFL",
    "fedperl": "fedperl:FedPerl",
    "wfedavg": "wfedavg:WFedAvg",
    "fedprox": "fedprox:FedProx",
    "mt_wfedavg": "mt_wfedavg:MTWFedAvg",
    "rscfed": "rscfed:RSCFed",
    "isofed": "isofed:IsoFed",
    "fedal": "fedal:FedAL",
    "selffed": "selffed:SelfFed",
    "oneshot": "oneshot:OneShot",
    "survey": "survey:Survey",
}
_SWINS = {"28": 28, "32": 32, "32_patch4": 32, "64": 64, "224": 224}
"""What follows ``swin_`` in a name -> height and width of its images in pixels."""
_NETWORKS = {
    "small_cnn": "small_cnn:SmallCNN",
    "small_cnn_gn": "small_cnn_gn:SmallCNNGN",
    **{
        f"{name}_{size}": f"masked_swin:{name}_{size}"
        for name in ("swin", "masked_swin")
        for size in _SWINS
    },
}
_SAMPLERS = {
    "random": "base:Random",
    "local_entropy": "uncertainty:LocalEntropy",
    "global_entropy": "uncertainty:GlobalEntropy",
    "fedal": "uncertainty:FedAL",
    "aift": "aift:AIFT",
    "sa": "suggestive:Suggestive",
    "mcdal": "mcdal:MCDAL",
    "bald": "uncertainty:BALD",
    "margin": "uncertainty:Margin",
    "core_set": "core_set:CoreSet",
    "feal": "feal:FEAL",
}
_VIEWS = {name: f"recipes:{name.upper()}" for name in ("rotation_invariant", "mirrored", "upright")}
_METRICS = dict.fromkeys(MULTI_LABEL, "multi_label:multi_label_metrics")
_METRICS |= dict.fromkeys(OVERALL, "classification:classification_metrics")


METHODS: "Registry[type[Algorithm[Any]]]" = Registry(
    "method",
    "fedward.methods",
    _METHODS,
    ("settings_type", "state_type", "start", "rounds", "phases"),
)
NETWORKS: "Registry[Network]" = Registry("network", "fedward.nets", _NETWORKS)
"""Those that need no other package; all of timm, and MONAI's under ``monai:NAME``, have no row
here.
"""
SAMPLERS: "Registry[type[Sampler]]" = Registry(
    "sampler", "fedward.methods.samplers", _SAMPLERS, ("name", "settings_type", "uses", "choose")
)
VIEWS: "Registry[Views]" = Registry("view", "fedward.views", _VIEWS, ("weak", "strong"))
METRICS: "Registry[MetricFunction]" = Registry("metric", "fedward.evaluation", _METRICS)
"""Built in are those that every job has; they are computed together."""

KINDS: Mapping[str, Registry[Any]] = {
    each.kind: each for each in (METHODS, NETWORKS, SAMPLERS, VIEWS, METRICS)
}


def image_size(net: str) -> int | None:
    """Return the only height and width in pixels that a network of fedward takes; None where it is
    not bound to one.
    """
    return (
        _SWINS.get(net.removeprefix("masked_").removeprefix("swin_")) if net in _NETWORKS else None
    )


def extensions(experiment: Mapping[str, Any]) -> list[Extension]:
    """Return what an experiment, as plain JSON values, takes from other packages; imports none of
    it.

    Values that are no names, and names that nothing has, are left for the check of the experiment.

    Raises:
        ConfigError: a name that more than one package has.
    """
    return [found for registry, name in _named(experiment) if (found := registry.extension(name))]


def registered(experiment: Mapping[str, Any]) -> list[str]:
    """Return what an experiment, as plain JSON values, takes from :func:`fedward.register`: kind
    and name of each.
    """
    return [
        f"{registry.kind} {name}"
        for registry, name in _named(experiment)
        if name in registry.registered
    ]


def _named(experiment: Mapping[str, Any]) -> list[tuple[Registry[Any], str]]:
    data, options = (
        part if isinstance(part := experiment.get(key), Mapping) else {}
        for key in ("data", "options")
    )
    metrics = experiment.get("metrics")
    named: list[tuple[Registry[Any], Any]] = [
        (METHODS, experiment.get("method")),
        (NETWORKS, experiment.get("net")),
        (SAMPLERS, options.get("sampler")),
        (VIEWS, data.get("views")),
        *((METRICS, name) for name in (metrics if isinstance(metrics, list | tuple) else [])),
    ]
    return [
        (registry, name) for registry, name in named if isinstance(name, str) and name in registry
    ]
