"""What is told of a run while it goes on."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedward.config import Experiment
from fedward.storage.info import Summary
from fedward.storage.rows import RoundRow


class Start(NamedTuple):
    """What runs."""

    experiment: Experiment
    sites: Sequence[str]
    """Their names."""
    rounds: int = 0
    """How many there will be."""
    resumed_after: int = 0
    """The round after which the run goes on."""
    taken: tuple[str, str] | None = None
    """The folder of the run whose weights this one starts from, and which of its tensors."""


class Listener:
    """Hears what happens in a run, in this order, and keeps it for itself: each kind tells what its
    reader needs.
    """

    def header(self, start: Start) -> None:
        """Hear what runs."""

    def asked(self, round_: int, part: int, sites: Collection[str]) -> None:
        """Hear who is asked in an exchange of a round, the first of which is part 0."""

    def answered(self, site: str) -> None:
        """Hear that an answer has come, usable or not."""

    def round(self, row: RoundRow, values: Mapping[str, float], kept: float | None = None) -> None:
        """Hear of one exchange.

        Args:
            row: a row of rounds.jsonl.
            values: site -> key metric on its validation images; empty when the round was not
                evaluated.
            kept: share of pseudo-labels kept, mean over the sites that trained; None without
                pseudo-labels.
        """

    def waiting(self, sites: Mapping[str, str]) -> None:
        """Hear which sites wait for approval (site -> the job's digest), or that none does any
        more.
        """

    def closing(self, folder: Path, summary: Summary, untrained: Sequence[str] = ()) -> None:
        """Hear how the run ended, when its report is written.

        Args:
            folder: the run folder.
            summary: how it ended, as in run.json.
            untrained: how the names of tensors begin that the run did not train, though its results
                hang on them.
        """
