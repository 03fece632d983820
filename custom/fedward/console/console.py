"""What a run prints: one header, one row a round, one closing block, in 80 columns of plain text."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from fedward.console.listener import Listener, Start
from fedward.console.progress_line import ProgressLine
from fedward.runs.exchanges import took_no_step
from fedward.runs.outcome import outcome
from fedward.runs.sentences import MOST_SITES, more_sites, nobody_asked, nothing_to_judge
from fedward.storage.info import Summary
from fedward.storage.rows import RoundRow
from fedward.terminal import Printer, printable
from fedward.text import count

WIDTH = 80
FILES = ("run.json", "metrics.jsonl", "surveys.jsonl", "best.safetensors", "model.safetensors")
_LEGEND = (
    "replied: of the sites asked. val: {} on validation {}s of the model that a round starts from, mean of sites "
    "[lowest, highest]. kept: share of pseudo-labels that are used. MB: of all sites."
)


class Console(Listener):
    """Prints a run's progress; everything it says is also in the run folder, so it is silent once
    its reader has left.

    Args:
        stream: where to; standard output by default.
        progress: the line below the rows, which is told what goes on.
    """

    def __init__(self, stream: TextIO | None = None, progress: ProgressLine | None = None) -> None:
        self._line = Printer(stream).line
        self._progress = progress or ProgressLine()
        self._metric = "accuracy"

    def header(self, start: Start) -> None:
        """Say what runs, on how many sites, and what the columns are."""
        experiment = start.experiment
        rounds = start.rounds
        self._metric = experiment.key_metric
        self._progress.begin(rounds)
        parts = [
            f"fedward {experiment.method}",
            f"{experiment.data.name} {experiment.data.image_size}px",
            experiment.net,
            count(len(start.sites), "site"),
            *([count(rounds, "round")] if rounds else []),
            f"seed {experiment.seed}",
        ]
        self._wrapped(" · ".join(parts))
        if start.resumed_after:
            self._line(f"resumed after round {start.resumed_after}")
        if start.taken:
            self._line(f"weights of {start.taken[0]}")
            self._wrapped(f"tensors {start.taken[1]}")
        self._wrapped(_LEGEND.format(self._metric, experiment.data.evaluate_by))
        self._line(
            f"{'round':>6} {'seconds':>8} {'replied':>8}  {'val':<20} {'kept':>5} {'MB down':>9} {'MB up':>9}"
        )

    def asked(self, round_: int, part: int, sites: Collection[str]) -> None:
        """Show it in the line below."""
        self._progress.asked(round_, part, sites)

    def answered(self, site: str) -> None:
        """Show it in the line below."""
        self._progress.answered(site)

    def round(self, row: RoundRow, values: Mapping[str, float], kept: float | None = None) -> None:
        """Print a row; that of a round's second exchange begins with e.g. 3.2, of the first one
        with 3.
        """
        replied = f"{len(row.replied)}/{len(row.asked)}"
        down = f"{row.bytes_down / 1e6:.1f}"
        up = f"{row.bytes_up / 1e6:.1f}"
        share = "-" if kept is None else f"{kept:.2f}"
        number = f"{row.round}.{row.part + 1}" if row.part else str(row.round)
        self._line(
            f"{number:>6} {row.seconds:>8.1f} {replied:>8}  {_spread(values):<20} {share:>5} {down:>9} {up:>9}"
        )
        self._reasons(row.failed)

    def waiting(self, sites: Mapping[str, str]) -> None:
        """Say which do, and of which job."""
        for site, digest in sorted(sites.items())[:MOST_SITES]:
            self._wrapped(f"waiting for approval: {site}, job {digest}", indent=" " * 7)
        self._wrapped(more_sites(len(sites)), indent=" " * 7)
        if not sites:
            self._wrapped("no site waits for approval any more", indent=" " * 7)

    def closing(self, folder: Path, summary: Summary, untrained: Sequence[str] = ()) -> None:
        """Say how the run ended, which round is best and why, what it reaches, and where the files
        are.
        """
        self._progress.end()
        if summary.reason is not None:
            self._wrapped(f"failed: {summary.reason}", most=6)
        else:
            self._wrapped(f"finished after {count(summary.rounds or 0, 'round')}")
            self._wrapped(nothing_to_judge(untrained) or "")
        self._wrapped(nobody_asked(summary.enough_labels))
        not_evaluated = summary.not_evaluated
        if not_evaluated:
            self._wrapped(f"last model not evaluated at {count(len(not_evaluated), 'site')}:")
            self._reasons(not_evaluated)
        if summary.best_value is not None:
            why = f"highest mean validation {self._metric} over sites, {summary.best_value:.3f}"
            self._wrapped(f"best: round {summary.best_round} ({why})")
        test = outcome(folder, summary)
        if test:
            of = f"mean of {count(test.sites, 'site')}, {count(test.images, test.unit)}"
            self._wrapped(f"test: {test.metric} {test.value:.3f} after round {test.round} ({of})")
        elif summary.reason is None and not (untrained or not_evaluated):
            self._wrapped(
                "test: not measured, as no site reports test images (of five or more in a class)"
            )
        self._line(
            f"folder: {folder}"
        )  # whole, even when it is long: a path cut or wrapped cannot be used
        there = [name for name in FILES if (folder / name).exists()]
        if there:
            self._wrapped(f"files: {', '.join(there)}")
        report = folder / "report.html"
        if report.exists():
            self._line(f"report: {report.resolve().as_uri()}")

    def _reasons(self, failed: Mapping[str, str]) -> None:
        for site, reason in list(failed.items())[:MOST_SITES]:
            self._wrapped(
                f"{site}: {reason}", indent=" " * 7, most=1 if took_no_step(reason) else 3
            )
        self._wrapped(more_sites(len(failed)), indent=" " * 7)

    def _wrapped(self, text: str, indent: str = "", most: int | None = None) -> None:
        wrapper = textwrap.TextWrapper(
            WIDTH, indent, indent + "  ", max_lines=most, placeholder=" ..."
        )
        for line in wrapper.wrap(
            printable(text)
        ):  # with the escapes, which are wider than what they stand for
            self._line(line)


def _spread(values: Mapping[str, float]) -> str:
    if not values:
        return "-"
    mean = sum(values.values()) / len(values)
    return f"{mean:.3f} [{min(values.values()):.3f}, {max(values.values()):.3f}]"
