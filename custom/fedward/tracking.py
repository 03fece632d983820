"""A run's numbers for TensorBoard: those in an answer, and a writer for runs on this machine."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedward.protocol.transport import Deliver, Transport
    from fedward.protocol.wire import Message

EVENTS_FOLDER = "tb_events"
"""Folder in the run folder, with one for each site; FLARE's receiver writes the same."""

_FILE = "events.out.tfevents.fedward"
"""Name of a file of events; TensorBoard looks for its beginning."""

_VERSION = "brain.Event:2"
"""The format of such a file, which its first event names."""


def scalars(meta: dict[str, Any], part: int, exchanges: int) -> Iterator[tuple[str, int, float]]:
    """Yield (tag, round, value) of an answer's summary metrics and mean training losses.

    Metrics describe the model that was sent, which is that of the round before. In an exchange
    after those of the method it is the moving average after the round. Metrics come first: Weights
    & Biases drops values that arrive after those of a later round.

    Args:
        meta: the answer's.
        part: number of the exchange in its round, from 0.
        exchanges: how many exchanges the method has in a round.
    """
    round_ = meta["round"]
    evaluated_round = round_ - 1 if part < exchanges else round_
    for row in meta.get("metrics", []):
        is_of_one_class = "/" in row["name"]
        if not is_of_one_class and row["value"] is not None:
            yield f"{row['split']}/{row['name']}", evaluated_round, row["value"]
    for name, value in meta.get("train", {}).items():
        yield f"train/{name}", round_, value


def write_scalars(folder: Path, meta: dict[str, Any], part: int, exchanges: int) -> None:
    """Add an answer's :func:`scalars` to a site's folder.

    No file stays open, because a run may have a thousand sites.
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
    """Carries messages as another transport does, and writes the scalars of each answer.

    Args:
        inner: the transport that carries the messages.
        folder: gets a folder for each site.
        exchanges: how many exchanges the method has in a round.
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
            part = requests[site].meta["part"]
            write_scalars(self._folder / site, answer.meta, part, self._exchanges)
            deliver(site, answer)

        self._inner.exchange(requests, timeout, track)
