"""What a run prints: a header, one row per round and a closing block, at most 80 columns wide."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from fedward.console.listener import Listener, Start
from fedward.console.progress import Progress
from fedward.console.run_end import report_line, value_line, verdict_line
from fedward.runs.exchanges import took_no_step
from fedward.runs.open_questions import open_questions
from fedward.runs.outcome import ending, outcome
from fedward.runs.sentences import (
    MOST_SITES,
    first_sites,
    more_sites,
    no_head,
    nobody_asked,
    nothing_to_judge,
    unanswered,
)
from fedward.storage.info import INTERRUPTED, Summary
from fedward.storage.rows import RoundRow
from fedward.terminal import WIDTH, Printer, columns, printable
from fedward.text import count, natural

FILES = ("run.json", "metrics.jsonl", "surveys.jsonl", "best.safetensors", "model.safetensors")
"""Files of a run folder that the closing block names where they exist."""
_LEGEND = (
    "replied: sites that trained, of those asked. val: {metric} on validation {unit}s of the model "
    "after the round{often}, mean of sites [lowest, highest]. kept: share of pseudo-labels that "
    "are used."
)
_LEGEND_OF_BYTES = " MB: of all sites."
_ROW = "{round:>6} {seconds:>8} {replied:>8}  {val:<20} {kept:>5} {down:>9} {up:>9}"
_NARROW_ROW = "{round:>5} {replied:>7} {val:<20} {kept:>4}"
"""The columns of a terminal that is too narrow for all: they fit 40 characters."""
_MOST_IDLE = 3
"""Sites with nothing to train on that have a line each; more of them share one."""
_INDENT = " " * 7
"""Below the column of rounds."""


class Console(Listener):
    """Prints a run's progress, until its reader has left: all of it is also in the run folder.

    Args:
        stream: where to print; standard output by default.
        progress: follows the exchanges, for a line below the rows.
    """

    def __init__(self, stream: TextIO | None = None, progress: Progress | None = None) -> None:
        self._line = Printer(stream).line
        self._width = columns(stream)
        self._row = _ROW if self._width == WIDTH else _NARROW_ROW
        self._progress = progress or Progress()
        self._metric = "accuracy"
        self._reasons_before: Mapping[str, str] = {}
        """Site -> why it did not train in the exchange before."""
        self._pending: tuple[RoundRow, float | None] | None = None
        """The newest row and its share of pseudo-labels kept, until its model is evaluated."""
        self._has_named_exchanges = False

    def header(self, start: Start) -> None:
        """Print what runs, on how many sites, and what the columns are."""
        experiment = start.experiment
        self._metric = experiment.key_metric
        self._progress.begin(start.rounds)
        method = experiment.method
        title = method if start.job in ("", method) else f"{start.job} ({method})"
        parts = [
            f"fedward {title}",
            f"{experiment.data.name} {experiment.data.image_size}px",
            *(["synthetic images"] if start.synthetic else []),
            experiment.net,
            count(len(start.sites), "site"),
        ]
        if start.rounds:
            parts.append(count(start.rounds, "round"))
        parts.append(f"seed {experiment.seed}")
        self._wrapped(" · ".join(parts))
        if start.resumed_after:
            self._line(f"resumed after round {start.resumed_after}")
        if start.weights:
            self._line(f"weights of {start.weights.folder}")
            self._wrapped(f"tensors {start.weights.tensors}")
        often = ""
        if experiment.evaluate_every > 1:
            often = f", every {experiment.evaluate_every} rounds"
        legend = _LEGEND.format(metric=self._metric, unit=experiment.data.evaluate_by, often=often)
        if self._row == _ROW:
            legend += _LEGEND_OF_BYTES
        self._wrapped(legend)
        names = self._row.format(
            round="round",
            seconds="seconds",
            replied="replied",
            val="val",
            kept="kept",
            down="MB down",
            up="MB up",
        )
        self._line(names)

    def asked(self, round_: int, part: int, sites: Collection[str]) -> None:
        """Pass it on to the progress."""
        self._progress.asked(round_, part, sites)

    def answered(self, site: str) -> None:
        """Pass it on to the progress."""
        self._progress.answered(site)

    def evaluated(self, round_: int, values: Mapping[str, float]) -> None:
        """Print the row of the model's round with its value."""
        if self._pending and self._pending[0].round == round_:
            self._print_pending(values)
            return
        self._print_pending()
        line = self._row.format(
            round=str(round_),
            seconds="-",
            replied="-",
            val=_spread(values),
            kept="-",
            down="-",
            up="-",
        )
        self._line(line)

    def round(self, row: RoundRow, kept: float | None = None) -> None:
        """Print the row before, and keep this one until its model is evaluated."""
        self._print_pending()
        self._pending = (row, kept)

    def _print_pending(self, values: Mapping[str, float] | None = None) -> None:
        """Print the newest row; those of round 3 begin with 3, 3.2, 3.3 if it has three exchanges.

        ``values``: of the model after the round; None where it is not evaluated.
        """
        if self._pending is None:
            return
        row, kept = self._pending
        self._pending = None
        if row.part and not self._has_named_exchanges:
            self._has_named_exchanges = True
            exchange = f"{row.round}.{row.part + 1}"
            self._wrapped(f"{exchange} is exchange {row.part + 1} of round {row.round}.", _INDENT)
        line = self._row.format(
            round=f"{row.round}.{row.part + 1}" if row.part else str(row.round),
            seconds=f"{row.seconds:.1f}",
            replied=f"{len(row.replied)}/{len(row.asked)}",
            val=_spread(values or {}),
            kept="-" if kept is None else f"{kept:.2f}",
            down=f"{row.bytes_down / 1e6:.1f}",
            up=f"{row.bytes_up / 1e6:.1f}",
        )
        self._line(line)
        # A reason that stays the same is printed once, and not in every round.
        new_reasons = {
            site: reason
            for site, reason in row.failed.items()
            if self._reasons_before.get(site) != reason
        }
        self._reasons_before = row.failed
        self._reasons(new_reasons)

    def waiting(self, sites: Mapping[str, str]) -> None:
        """Print which sites wait for approval, and of which job."""
        self._print_pending()
        for site in first_sites(sites):
            self._wrapped(f"waiting for approval: {site}, job {sites[site]}", indent=_INDENT)
        self._wrapped(more_sites(len(sites)), indent=_INDENT)
        if not sites:
            self._wrapped("no site waits for approval any more", indent=_INDENT)

    def reporting(self, reason: str | None) -> None:
        """Pass it on to the progress."""
        if reason is None:
            self._progress.reporting()
        else:
            self._progress.reporting(INTERRUPTED if reason == INTERRUPTED else "failed")

    def closing(self, folder: Path, summary: Summary, untrained: Sequence[str] = ()) -> None:
        """Print how the run ended, which round is best and why, its test value, and its files."""
        self._progress.end()
        self._print_pending()
        if summary.reason is not None:
            how = "" if summary.reason == INTERRUPTED else "failed: "
            self._wrapped(f"{how}{summary.reason}", most=6)
        else:
            self._wrapped(ending(folder, summary, untrained))
            self._wrapped(nothing_to_judge(untrained) or "")
        self._wrapped(nobody_asked(summary.enough_labels))
        self._wrapped(unanswered(open_questions(folder)))
        self._wrapped(no_head(summary.without_head))
        if summary.not_evaluated:
            sites = count(len(summary.not_evaluated), "site")
            self._wrapped(f"last model not evaluated at {sites}:")
            self._reasons(summary.not_evaluated)
        if summary.best_value is not None:
            why = f"highest mean validation {self._metric} over sites, {summary.best_value:.3f}"
            self._wrapped(f"best: round {summary.best_round} ({why})")
        test = outcome(folder, summary)
        if test:
            self._wrapped(value_line(test))
        elif summary.reason is None and not untrained and not summary.not_evaluated:
            self._not_measured(folder)
        self._files(folder, verdict_line(folder, test) if test else "")

    def _not_measured(self, folder: Path) -> None:
        """Print why a run has no test value, unless it is a survey."""
        if not (folder / "surveys.jsonl").exists():
            self._wrapped(
                "test: not measured, as no site reports test images (of five or more in a class)"
            )

    def _files(self, folder: Path, verdict: str) -> None:
        # The folder stays whole even if it is long: a path that was cut or wrapped cannot be used.
        self._line(f"folder: {folder}")
        present = [name for name in FILES if (folder / name).exists()]
        if present:
            self._wrapped(f"files: {', '.join(present)}")
        # The last two lines are what most readers look at.
        self._wrapped(verdict)
        report = report_line(folder)
        if report:
            self._line(report)

    def _reasons(self, failed: Mapping[str, str]) -> None:
        """Print why sites failed, in at most three lines each, or one for a site without images."""
        reasons = {site: failed[site] for site in sorted(failed, key=natural)}
        idle = [site for site, reason in reasons.items() if took_no_step(reason)]
        if len(idle) > _MOST_IDLE:
            self._wrapped(
                f"nothing to train on yet at {len(idle)} sites: {', '.join(idle)}",
                indent=_INDENT,
                most=2,
            )
            for site in idle:
                del reasons[site]
        for site, reason in list(reasons.items())[:MOST_SITES]:
            most = 1 if took_no_step(reason) else 3
            self._wrapped(f"{site}: {reason}", indent=_INDENT, most=most)
        self._wrapped(more_sites(len(reasons)), indent=_INDENT)

    def _wrapped(self, text: str, indent: str = "", most: int | None = None) -> None:
        """Print a text in at most ``most`` lines; nothing if it is empty."""
        wrapper = textwrap.TextWrapper(
            self._width, indent, indent + "  ", max_lines=most, placeholder=" ..."
        )
        # Control characters are escaped first, because the escapes are wider.
        for line in wrapper.wrap(printable(text)):
            self._line(line)


def _spread(values: Mapping[str, float]) -> str:
    if not values:
        return "-"
    mean = sum(values.values()) / len(values)
    return f"{mean:.3f} [{min(values.values()):.3f}, {max(values.values()):.3f}]"
