"""The jobs this package ships: one row each. ``fedward jobs`` exports them to ``jobs/``."""

from typing import Any

from fedward.config import DataSpec, Experiment, StandIn

_PHANTOM = {
    "rounds": 10,
    "participants": 3,
    "images_per_round": 832,
    "batch": 16,
    "learning_rate": 2e-3,
}
"""Few rounds of much local work with a large step: in the simulator a round costs ten process starts, so that more
rounds would make a laptop wait, not learn. The papers' values are the methods' defaults."""


def _phantom(method: str, labelled: float = 0.2, **options: Any) -> Experiment:
    return Experiment(
        method=method,
        options={**_PHANTOM, **options},
        data=DataSpec(image_size=32),
        net="small_cnn_gn",
        stand_in=StandIn(labelled=labelled, images=400),
        evaluate_every=5,
        key_metric="f1_weighted",
    )


JOBS: dict[str, Experiment] = {
    "fedperl": _phantom("fedperl", warm_up=4),
    "ssfl": _phantom("ssfl"),
    "fedavg": _phantom("fedavg"),
    "fedavg_full": _phantom("fedavg", labelled=1.0),
}
"""``fedavg`` learns from the labelled images only, ``fedavg_full`` from all labels: the two bounds of the others."""
