"""The report's section on a run beside others: results of each, and how the first differs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from fedward.evaluation.intervals import Interval, paired_difference, percent_more
from fedward.evaluation.selection import Selection, mean
from fedward.report import figures
from fedward.report.figures import mean_line
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.run import Run
from fedward.runs.titles import title_of
from fedward.runs.verdict_words.comparisons import MOST_COMPARED
from fedward.text import count


@dataclass(frozen=True)
class ComparedRun:
    """One run beside the others."""

    name: str
    run: Run
    choices: Choices
    auroc: float | None
    """Macro AUROC on test at the best single round, mean over sites."""
    megabytes: float
    """Data moved between the server and all sites."""
    difference: Interval | None
    """The first run minus this one: test metric over the last rounds, paired over sites."""
    paired: int
    """Sites in that difference: those with the same number of test images in both runs."""
    relative_improvement: float | None
    """That difference in percent of this run's value at the same sites."""
    additional_cost: float | None
    """Data that the first run moved beyond this one's, in percent of this one's."""


@dataclass(frozen=True)
class Comparison:
    """What the section shows."""

    lines: Sequence[ComparedRun]
    """The run of the report first."""
    figure: Markup | None
    """Mean validation metric by round; None if no run has one."""

    @classmethod
    def of(cls, lines: Sequence[ComparedRun]) -> "Comparison | None":
        """Return the section; None without other runs. The first line is of the report's run."""
        if len(lines) < 2:
            return None
        run, *others = [line.run for line in lines]
        metric = run.key_metric
        means = lines_by_run(run, others, lambda one: mean_line(one.series("val", metric)))
        return cls(lines, figures.comparison(means, title_of(metric)) if means else None)


def compared_runs(runs: Sequence[Run], metric: str) -> list[ComparedRun]:
    """Return one line per run; each is compared with the first, whose report it is."""
    lines: list[ComparedRun] = []
    for run, name in zip(runs, names(runs), strict=True):
        choices = Choices.of(run, metric)
        pairs = _pairs(lines[0].choices.end, choices.end) if lines else []
        megabytes = sum(row.down + row.up for row in run.bytes) / 1e6
        improvement = None
        cost = None
        if lines:
            improvement = percent_more([ours for ours, _ in pairs], [other for _, other in pairs])
            cost = percent_more([lines[0].megabytes], [megabytes])
        line = ComparedRun(
            name=name,
            run=run,
            choices=choices,
            auroc=mean(site_test_values(run, "auroc_macro", choices.reported).values()),
            megabytes=megabytes,
            difference=paired_difference(*zip(*pairs, strict=True)) if pairs else None,
            paired=len(pairs),
            relative_improvement=improvement,
            additional_cost=cost,
        )
        lines.append(line)
    return lines


def notes(lines: Sequence[ComparedRun]) -> list[str]:
    """Return sentences on other runs that cannot be paired, or are of another length."""
    measured = [line for line in lines[1:] if line.choices.end.test is not None]
    sentences = []
    for line in measured[:MOST_COMPARED]:
        if line.difference is None:
            sentences.append(
                f"{lines[0].name} and {line.name} have no site with the same test images, so their "
                "difference is not known."
            )
        else:
            sentences.append(_lengths(lines[0], line))
    return [sentence for sentence in sentences if sentence]


def _lengths(own: ComparedRun, other: ComparedRun) -> str:
    """Return a sentence on runs of different lengths; empty if their lengths are the same."""
    last_rounds = {}
    for line in (own, other):
        if line.choices.end.rounds:
            last_rounds[line.name] = line.choices.end.rounds[-1]
    if len(set(last_rounds.values())) < 2:
        return ""
    lengths = [f"{name} has {count(rounds, 'round')}" for name, rounds in last_rounds.items()]
    return f"Their lengths differ: {' and '.join(lengths)}."


def _pairs(first: Selection, second: Selection) -> list[tuple[float, float]]:
    """Return both values of each site that has the same number of test images in both runs.

    Another number means that the models were not measured on the same images.
    """
    second_values = {(choice.site, choice.images): choice.test for choice in second.sites}
    pairs = []
    for choice in first.sites:
        value = second_values.get((choice.site, choice.images))
        if choice.test is not None and value is not None:
            pairs.append((choice.test, value))
    return pairs


def lines_by_run(
    run: Run, others: Sequence[Run], line_of: Callable[[Run], Mapping[int, float]]
) -> dict[str, Mapping[int, float]]:
    """Return name of a run -> its line, for the runs whose line is not empty."""
    runs = [run, *others]
    lines = {name: line_of(one) for name, one in zip(names(runs), runs, strict=True)}
    return {name: line for name, line in lines.items() if line}


def names(runs: Sequence[Run]) -> list[str]:
    """Return a short name per run, all different: its title, if need be with part of its folder."""
    folders: dict[str, list[Path]] = {}
    for run in runs:
        folders.setdefault(run.title, []).append(run.folder)
    suffixes = {title: iter(_suffixes(alike)) for title, alike in folders.items()}
    return [run.title + next(suffixes[run.title]) for run in runs]


def _suffixes(folders: Sequence[Path]) -> list[str]:
    """Return, in brackets, as much of the paths' ends as tells all folders apart.

    A single folder needs nothing. Numbers stand for folders of which one is named twice.
    """
    if len(folders) == 1:
        return [""]
    paths = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, paths)) + 1):
        ends = [str(Path(*parts[-length:])) for parts in paths]
        if len(set(ends)) == len(ends):
            return [f" ({end})" for end in ends]
    return [f" ({number})" for number in range(1, len(paths) + 1)]
