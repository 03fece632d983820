"""The methods by name. A new method is one file and one row of :data:`METHODS`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedward.errors import ConfigError
from fedward.methods.algorithm import Algorithm
from fedward.methods.fedal import FedAL
from fedward.methods.fedavg import FedAvg
from fedward.methods.fedperl import FedPerl
from fedward.methods.fedprox import FedProx
from fedward.methods.isofed import IsoFed
from fedward.methods.mt_wfedavg import MTWFedAvg
from fedward.methods.rscfed import RSCFed
from fedward.methods.selffed import SelfFed
from fedward.methods.settings import Settings
from fedward.methods.ssfl import SSFL
from fedward.methods.wfedavg import WFedAvg

if TYPE_CHECKING:
    from fedward.config import Experiment

METHODS: dict[str, type[Algorithm[Any]]] = {
    "fedavg": FedAvg,
    "ssfl": SSFL,
    "fedperl": FedPerl,
    "wfedavg": WFedAvg,
    "fedprox": FedProx,
    "mt_wfedavg": MTWFedAvg,
    "rscfed": RSCFed,
    "isofed": IsoFed,
    "fedal": FedAL,
    "selffed": SelfFed,
}


def settings_of(method: str, options: Mapping[str, Any]) -> Settings:
    """Return a method's checked settings; ConfigError for an unknown method, pydantic's error for a wrong value."""
    if method not in METHODS:
        raise ConfigError(
            "method", expected=f"one of {', '.join(METHODS)}", found=repr(method), remedy="Name one of them."
        )
    return METHODS[method].settings_type.model_validate(dict(options))


def method_of(experiment: "Experiment") -> Algorithm[Any]:
    """Return the method an experiment names, with its settings."""
    settings = settings_of(experiment.method, experiment.options)
    return METHODS[experiment.method](settings)


__all__ = ["METHODS", "method_of", "settings_of"]
