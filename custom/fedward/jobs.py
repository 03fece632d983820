"""The jobs this package ships: one row each. ``fedward jobs`` exports them to ``jobs/``."""

from typing import Any

from fedward.config import DataSpec, Experiment, StandIn

_PHANTOM = {
    "rounds": 12,
    "participants": 3,
    "images_per_round": 208,
    "batch": 16,
    "learning_rate": 2e-3,
}
"""Few rounds with a large step, so that a laptop sees peers at work within minutes. The papers' values are defaults."""


def _phantom(method: str, labelled: float = 0.1, **options: Any) -> Experiment:
    return Experiment(
        method=method,
        options={**_PHANTOM, **options},
        data=DataSpec(image_size=32),
        net="small_cnn",
        stand_in=StandIn(labelled=labelled),
        evaluate_every=4,
    )


JOBS: dict[str, Experiment] = {
    "fedperl": _phantom("fedperl", warm_up=3),
    "ssfl": _phantom("ssfl"),
    "fedavg": _phantom("fedavg"),
    "fedavg_full": _phantom("fedavg", labelled=1.0),
}
"""``fedavg`` learns from the labelled images only, ``fedavg_full`` from all labels: the two bounds of the others."""
