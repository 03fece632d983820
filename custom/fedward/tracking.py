"""A run's numbers for TensorBoard: which there are of an answer, and what writes those of a run on
this machine.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedward.protocol.transport import Deliver, Transport
    from fedward.protocol.wire import Message

FOLDER = "tb_events"
"""In the run folder, with a folder for each site; FLARE's receiver writes one of the same name."""
_FILE = "events.out.tfevents.fedward"
_VERSION = "brain.Event:2"
"""As TensorBoard looks for it, and the format that its first event names."""


def scalars(meta: dict[str, Any], part: int, exchanges: int) -> Iterator[tuple[str, int, float]]:
    """Yield (tag, round, value) of an answer's training means and summary metrics, for tracking.

    Metrics are those of the model that was sent, and come first: Weights & Biases drops what comes
    behind a later round. In the ``exchanges`` of a method's round it is the model of the round
    before. Behind them, by the number of the ``part``, it is the average after the round.
    """
    for row in meta.get("metrics", []):
        if "/" not in row["name"] and row["value"] is not None:
            yield f"{row['split']}/{row['name']}", meta["round"] - (part < exchanges), row["value"]
    for name, value in meta.get("train", {}).items():
        yield f"train/{name}", meta["round"], value


def write_scalars(folder: Path, meta: dict[str, Any], part: int, exchanges: int) -> None:
    """Add an answer's :func:`scalars` to a site's folder. No file stays open: a run may have a
    thousand sites.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _FILE).open("ab") as file:
        writer = RecordWriter(file)
        now = time.time()
        if not file.tell():
            writer.write(Event(wall_time=now, file_version=_VERSION).SerializeToString())
        for tag, step, value in scalars(meta, part, exchanges):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.write(Event(wall_time=now, step=step, summary=summary).SerializeToString())


class TrackedTransport:
    """Carries messages as another transport does, and writes the scalars of each answer below
    ``folder``.

    ``exchanges``: those of the method's round.
    """

    def __init__(self, inner: "Transport", folder: Path, exchanges: int) -> None:
        self._inner = inner
        self._folder = folder
        self._exchanges = exchanges

    def sites(self) -> list[str]:
        """Return the sites' names, sorted."""
        return self._inner.sites()

    def exchange(self, requests: "dict[str, Message]", timeout: int, deliver: "Deliver") -> None:
        """Carry out an exchange; an answer is delivered once its scalars are written."""

        def track(site: str, answer: "Message") -> None:
            write_scalars(
                self._folder / site, answer.meta, requests[site].meta["part"], self._exchanges
            )
            deliver(site, answer)

        self._inner.exchange(requests, timeout, track)
