"""What a method's workflow may use of the server: its sites, their models, and images of the
server's own.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Any

import torch

from fedward.evaluation.selection import MetricRow
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import Federation, State
from fedward.server.public import PublicImages
from fedward.sites import SERVER
from fedward.storage.pictures import save_pictures
from fedward.storage.run_folder import RunFolder
from fedward.training.networks import Networks

_SHOWN = 6
"""Images of the server's own in a report."""


def federation_of(algorithm: Algorithm[Any], run: RunFolder, images: PublicImages) -> Federation:
    """Return the federation of a run, with what the method needs of the network and of the server's
    own images.

    Raises:
        ConfigError: the server has no such images.
        DataError: one that a report shows cannot be read.
    """

    def record(log: str, row: dict[str, Any]) -> None:
        if (
            not run.experiment.secure_aggregation
        ):  # else the method measures the mean, and would record it of each site
            run.record(log, row)

    def learn(model: State, round_: int, task: str, memory: MutableMapping[str, State]) -> State:
        trained, means = images.learn(model, round_, task, memory)
        for name, value in means.items():
            run.append("metrics", MetricRow(round_, SERVER, "train", name, value, images.number))
        return trained

    least = run.experiment.effective_replies
    federation = Federation(
        run.sites, run.experiment.seed, run.models, record=record, effective_replies=least
    )
    if not algorithm.settings.takes_mean:
        net = Networks(run.experiment, algorithm, torch.device("cpu"))[0]
        names = frozenset(name for name, _ in net.named_parameters(remove_duplicate=False))
        federation = replace(federation, parameters=names)
    uses = algorithm.requirements.server.images
    images.require(uses)
    if "validation" in uses:
        federation = replace(federation, validate=images.accuracy)
    if "training" in uses:
        federation = replace(federation, learn=learn)
    if "pictures" in uses:
        shown = images.first(_SHOWN)  # read now: a broken file ends a run before its first round

        def show(model: State, facts: Mapping[str, Any]) -> None:
            save_pictures(run.path, images.pictures(model, shown) if len(shown) else {}, facts)

        federation = replace(federation, show=show)
    return federation
