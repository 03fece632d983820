"""SCAFFOLD (Karimireddy et al., ICML 2020, Algorithm 1, option II) and a small network, as a
package for fedward.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor, nn

from fedward.methods.aggregation import mean_of
from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs
from fedward.methods.participants import draw_participants
from fedward.methods.requirements import Feature, Requirements, Sends, TensorRules
from fedward.methods.settings import Settings
from fedward.methods.supervised import supervised_loss
from fedward.methods.workflow import ClientTask, Exchange, Federation, Rounds

CONTROL = "control"


class ScaffoldSettings(Settings):
    """Plain SGD of one rate, since option II computes gradients from steps."""

    optimizer: str = Field("sgd", pattern="^sgd$")
    momentum: float = Field(0.0, ge=0.0, le=0.0)
    weight_decay: float = Field(0.0, ge=0.0, le=0.0)
    clip_gradient: None = None
    learning_rate: float = Field(0.05, gt=0.0)
    schedule: str = Field("constant", pattern="^constant$")
    round_warm_up: float = Field(0.0, ge=0.0, le=0.0)


def buffer(parameter: str) -> str:
    """Return what c of a parameter is called in the network: a buffer's name has no dots."""
    return parameter.replace(".", "-")


def add_control(net: nn.Module) -> None:
    """Give a network the server's control variate c: buffers, which travel with the model and are
    not trained.
    """
    control = nn.Module()
    for name, parameter in net.named_parameters():
        control.register_buffer(buffer(name), torch.zeros_like(parameter))
    net.add_module(CONTROL, control)


@dataclass
class Local:
    """What a site carries through one round."""

    net: nn.Module
    start: dict[str, Tensor]  # x
    own: dict[str, Tensor]  # c_i
    server: dict[str, Tensor]  # c
    steps: int = 0  # K


class Corrected(Objective[Local]):
    """The supervised loss plus <c - c_i, y>, whose gradient is the correction of each step."""

    def __init__(self, learning_rate: float) -> None:
        self._rate = learning_rate

    def init(self, net: nn.Module, inputs: RoundInputs) -> Local:
        start = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
        server = {name: net.get_buffer(f"{CONTROL}.{buffer(name)}") for name in start}
        known = inputs.memory.get(CONTROL, {})
        own = {
            name: known[name].to(c) if name in known else torch.zeros_like(c)
            for name, c in server.items()
        }
        return Local(net, start, own, server)

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: Local) -> Losses:
        if batch.labelled is None or batch.labels is None:
            return Losses({"loss_control": torch.zeros(())}, learns=False)
        terms = [
            ((state.server[name] - state.own[name]) * y).sum() for name, y in net.named_parameters()
        ]
        supervised = supervised_loss(net(batch.labelled), batch.labels, inputs)
        return Losses({"loss_supervised": supervised, "loss_control": torch.stack(terms).sum()})

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: Local) -> Local:
        state.steps += 1
        return state

    def remember(self, state: Local) -> Mapping[str, Mapping[str, Tensor]]:
        """c_i' = c_i - c + (x - y_i) / (K eta)."""
        if not state.steps:
            return {}
        trained = dict(state.net.named_parameters())
        scale = 1 / (state.steps * self._rate)
        change = {
            name: scale * (x - trained[name].detach()) - state.server[name]
            for name, x in state.start.items()
        }
        return {CONTROL: {name: (state.own[name] + each).cpu() for name, each in change.items()}}


class Scaffold(Algorithm[ServerState]):
    settings_type = ScaffoldSettings
    state_type = ServerState
    extend = staticmethod(add_control)

    def __init__(self, settings: ScaffoldSettings) -> None:
        self.settings = settings
        self.weight = lambda task, labelled, unlabelled, steps: 1
        self.requirements = Requirements(
            sends=Sends(losses=frozenset({"loss_supervised", "loss_control"})),
            tensors=TensorRules(excluded={"train": (f"{CONTROL}.",)}),
            reasons_against={
                Feature.SECURE_AGGREGATION: "its server needs each site's steps with its model",
                Feature.ROBUST_MEAN: "its control variate is a mean",
            },
        )

    def phases(self, task: str, round_: int, labelled: int) -> list[Phase]:
        return [Phase(Corrected(self.settings.learning_rate), self.settings.learning_rate)]

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        while state.round < self.settings.rounds:
            before = state.model
            round_ = state.round + 1
            sites = draw_participants(
                federation.sites, self.settings.participants, federation.seed, round_
            )
            replies = yield Exchange(round_, before, {site: ClientTask("train") for site in sites})
            least = federation.effective_replies
            model = dict(mean_of(replies, "train", self.weight, self.settings, before, least))
            for name, x in before.items():
                key = f"{CONTROL}.{buffer(name)}"
                if key in before:
                    c = before[key]
                    rate = self.settings.learning_rate
                    changes = [
                        (x - r.state[name]) / (r.steps * rate) - c for r in replies if r.steps
                    ]
                    model[key] = c + sum(changes, torch.zeros_like(c)) / len(federation.sites)
            state.model = model
            state.round = round_


class TwoLayers(nn.Module):
    """A convolution, a mean over the image, and a classifier."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 16, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        self.classifier = nn.Linear(16, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).flatten(1))
