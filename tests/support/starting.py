"""First models and networks of experiments, each with the experiment's own method."""

from torch import nn

from fedward import starting_model
from fedward.config import Experiment
from fedward.methods import method_of
from fedward.starting_model import FirstModel, Weights


def initial_model(experiment: Experiment, weights: Weights | None = None) -> FirstModel:
    """Return the model before the first round."""
    return starting_model.initial_model(experiment, method_of(experiment), weights)


def network_of(experiment: Experiment) -> nn.Module:
    """Return the network that a run begins with."""
    return starting_model.network_of(experiment, method_of(experiment))
