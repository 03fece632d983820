"""Scalars as TensorBoard reads them."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return tag -> [(step, value)] of a site's folder."""
    read = EventAccumulator(str(folder))
    read.Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }
