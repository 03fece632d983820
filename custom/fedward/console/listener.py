"""What is reported of a run while it goes on."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedward.config import Experiment
from fedward.storage.info import Summary
from fedward.storage.rows import RoundRow


class StartingWeights(NamedTuple):
    """The weights of another run that a run began with."""

    folder: str
    """The other run's folder."""
    tensors: str
    """Which of its tensors were taken over (:func:`fedward.starting_model.described`)."""


class Start(NamedTuple):
    """What runs."""

    experiment: Experiment
    sites: Sequence[str]
    """Names of the sites."""
    rounds: int = 0
    """Number of rounds that there will be."""
    resumed_after: int = 0
    """The round after which an interrupted run continues; 0 for a new one."""
    weights: StartingWeights | None = None
    """Those that the run began with, also if it is resumed; None for fresh ones."""
    job: str = ""
    """Name of the job, if it has one."""
    synthetic: bool = False
    """Whether fedward draws the images of all sites, as a simulation without site files does."""


class Listener:
    """Receives a run's events in the order of its methods; each subclass shows those it needs."""

    def header(self, start: Start) -> None:
        """The run starts or continues."""

    def asked(self, round_: int, part: int, sites: Collection[str]) -> None:
        """Sites are asked in an exchange of a round; ``part`` counts its exchanges from 0."""

    def answered(self, site: str) -> None:
        """A site's answer has arrived, usable or not."""

    def evaluated(self, round_: int, values: Mapping[str, float]) -> None:
        """Sites have evaluated a model, most often in the exchange that begins the next round.

        Args:
            round_: how many rounds had trained the model.
            values: site -> key metric on its validation images, of the sites that have one.
        """

    def round(self, row: RoundRow, kept: float | None = None) -> None:
        """An exchange has ended.

        Args:
            row: a row of rounds.jsonl.
            kept: share of pseudo-labels kept, mean over the sites that trained; None without
                pseudo-labels.
        """

    def waiting(self, sites: Mapping[str, str]) -> None:
        """Sites wait for approval: site -> the job's digest; empty when no site waits any more."""

    def reporting(self, reason: str | None) -> None:
        """No exchange follows, and the report is written.

        Args:
            reason: why the run has failed; None if it has finished.
        """

    def closing(self, folder: Path, summary: Summary, untrained: Sequence[str] = ()) -> None:
        """The run has ended, and its report is written.

        Args:
            folder: the run folder.
            summary: how it ended, as in run.json.
            untrained: prefixes of tensors that the run did not train, though its results depend
                on them.
        """
