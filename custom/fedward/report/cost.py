"""The report's section on time and on data moved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedward.report import figures
from fedward.report.peers import peer_bytes
from fedward.runs.exchanges import Traffic, merged_rounds, traffic_by_site
from fedward.runs.run import Run
from fedward.storage.rows import RoundRow


@dataclass(frozen=True)
class Cost:
    """What the section shows."""

    rounds: Sequence[RoundRow]
    """One row per round."""
    traffic: Markup
    """Megabytes per round."""
    durations: Markup
    """Seconds per round."""
    peers_per_request: float
    """Peer models for each training request after the warm-up; 0 without peers."""
    by_site: Mapping[str, Traffic]

    @classmethod
    def of(cls, run: Run) -> "Cost | None":
        """Return the section; None before the end of the first round."""
        rounds = merged_rounds(run)
        if not rounds:
            return None
        after_warm_up = [row for row in rounds if row.round > run.warm_up]
        peer_models = sum(row.peer_models for row in after_warm_up)
        requests = sum(len(row.asked) for row in after_warm_up)
        return cls(
            rounds=rounds,
            traffic=figures.traffic([row.round for row in rounds], _megabytes(run, rounds)),
            durations=figures.durations({row.round: row.seconds for row in rounds}),
            peers_per_request=peer_models / requests if peer_models else 0.0,
            by_site=traffic_by_site(run),
        )

    @property
    def with_peers(self) -> bool:
        """Whether any peer model was sent."""
        return any(row.peer_models for row in self.rounds)

    @property
    def seconds(self) -> float:
        """Seconds of all rounds."""
        return sum(row.seconds for row in self.rounds)


def _megabytes(run: Run, rounds: Sequence[RoundRow]) -> dict[str, list[float]]:
    """Return what was sent -> megabytes per round."""
    of_peers = peer_bytes(run)
    model = [(row.bytes_down - of_peers.get(row.round, 0.0)) / 1e6 for row in rounds]
    peers = [of_peers.get(row.round, 0.0) / 1e6 for row in rounds]
    updates = [row.bytes_up / 1e6 for row in rounds]
    if not any(peers):
        return {"global model, down": model, "updates, up": updates}
    return {"global model, down": model, "peers, down": peers, "updates, up": updates}
