"""What a method's workflow may use of the server: its sites, their models, and its own images."""

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from fedward.evaluation.selection import MetricRow
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import Federation
from fedward.model_state import State
from fedward.server.network import network_for
from fedward.server.public import PublicImages
from fedward.sites import SERVER
from fedward.storage.pictures import save_pictures
from fedward.storage.run_folder import RunFolder

_PICTURED_IMAGES = 6
"""The server's images of which a report shows pictures."""


def federation_of(algorithm: Algorithm[Any], run: RunFolder, images: PublicImages) -> Federation:
    """Return the federation of a run, with what the method needs of the server.

    Args:
        algorithm: the run's method.
        run: the run's folder.
        images: the server's own.

    Raises:
        ConfigError: the server has no images, but the method needs some.
        DataError: an image that a report shows cannot be read.
    """

    def record(log: str, row: dict[str, Any]) -> None:
        # Under secure aggregation the method sees the mean in place of each site's model, and
        # would record it of each site.
        if not run.experiment.secure_aggregation:
            run.record(log, row)

    def learn(model: State, round_: int, task: str, memory: MutableMapping[str, State]) -> State:
        trained, means = images.learn(model, round_, task, memory)
        for name, value in means.items():
            run.append("metrics", MetricRow(round_, SERVER, "train", name, value, images.number))
        return trained

    federation = Federation(
        run.sites,
        run.experiment.seed,
        run.models,
        record=record,
        network=network_for(algorithm, run.experiment),
        effective_replies=run.experiment.effective_replies,
    )
    uses = algorithm.requirements.server.images
    images.require(uses)
    if "validation" in uses:
        federation = replace(federation, validate=images.accuracy)
    if uses & {"training", "labels"}:
        federation = replace(federation, learn=learn)
    if "pictures" in uses:
        # They are read now, so that a broken file ends the run before its first round.
        pictured = images.first(_PICTURED_IMAGES)

        def show(model: State, facts: Mapping[str, Any]) -> None:
            pictures = images.pictures(model, pictured) if len(pictured) else {}
            save_pictures(run.path, pictures, facts)

        federation = replace(federation, show=show)
    return federation
