"""The report's sections on results: what to know first, convergence, and results per site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from fedward.evaluation.selection import POOLED, SiteChoice
from fedward.report import figures, multiples, origin, words
from fedward.report.forest import Forest
from fedward.report.judgement import Judgement
from fedward.report.origin import Origin
from fedward.report.other_runs import OtherRuns
from fedward.report.sites import Sites
from fedward.runs.about import spelled_out
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.judge import judge
from fedward.runs.measured import Measured
from fedward.runs.run import Run
from fedward.runs.sentences import lowest_and_highest
from fedward.runs.site_lines import SiteLine
from fedward.runs.titles import METRIC_TITLES, title_of
from fedward.runs.verdict import UNNAMED, Verdict
from fedward.runs.verdict_words import comparisons, coverage, in_percent
from fedward.runs.verdict_words.shares import percent
from fedward.text import count

_MOST_WARNINGS = 3
"""Number of warnings below the verdict; others are among the folded findings."""


class Tile(NamedTuple):
    """One number of the judged model, with its interval and what it is of."""

    id: str
    title: str
    value: str
    detail: str
    """Interval and number of images; may be empty."""


@dataclass(frozen=True)
class KeyResults:
    """What a reader sees first: how the run ended, on which images, and what its model is worth."""

    banner: str | None
    """What to know of a run that did not end well."""
    origin: Origin
    """Where the images came from."""
    unit: str
    """What the numbers are of, unless it is single images."""
    judgement: Judgement | None
    """None for a model that was not measured or not trained."""
    numbers: str
    """The numbers that it follows from, and the lowest class and site; may be empty."""
    spelled_out: str
    """The classes that the first screen names, with their titles; may be empty."""
    not_tested: str
    """What was not tested; may be empty."""
    warnings: Sequence[str]
    """What a reader must know before all else: at most three sentences, and where it was tested."""
    tiles: Sequence[Tile]
    forest: Forest | None
    findings: Sequence[str]
    """Further sentences; empty if nothing has been measured yet."""

    @classmethod
    def of(
        cls,
        run: Run,
        choices: Choices,
        sites: Sites,
        others: OtherRuns,
    ) -> "KeyResults":
        """Collect the first screen from the report's other sections."""
        verdict = judge(run, choices.reported, others.against)
        warnings = _warnings(run, choices, sites, verdict)
        findings = words.headline(choices, run.unit)
        if verdict:
            compared = comparisons.sentences(verdict)
            findings += [sentence for sentence in compared if sentence not in warnings]
        findings += others.notes
        findings += words.findings(run, choices, sites.all)
        judgement = Judgement.of(verdict) if verdict else None
        sentences = judgement.sentences if judgement else ()
        first_warnings = [*warnings[:_MOST_WARNINGS], *_elsewhere(verdict)]
        return cls(
            banner=words.banner(run),
            origin=origin.origin(run),
            unit=origin.unit(run),
            judgement=judgement,
            numbers=_numbers(verdict) if verdict else "",
            spelled_out=spelled_out(run, *sentences, *first_warnings),
            not_tested=coverage.not_tested(verdict) if verdict else "",
            warnings=first_warnings,
            tiles=_tiles(verdict) if verdict else (),
            forest=Forest.of(verdict, words.described_model(run)) if verdict else None,
            findings=[*warnings[_MOST_WARNINGS:], *findings],
        )


def _numbers(verdict: Verdict) -> str:
    return f"{in_percent.numbers(verdict)} {in_percent.weakest(verdict)}".strip()


def _warnings(run: Run, choices: Choices, sites: Sites, verdict: Verdict | None) -> list[str]:
    """Return what limits all that follows, the worst first."""
    warnings: list[str | None] = []
    if verdict:
        warnings += [coverage.not_tested(verdict), coverage.took_no_part(verdict)]
        warnings += [
            sentence
            for sentence, one in zip(comparisons.sentences(verdict), verdict.compared, strict=False)
            if not one.is_better
        ]
    validation_images = sum(line.val for line in sites.all)
    warnings += [
        words.validated_on_one_class(run, sites.all),
        words.selected_by_luck(choices, validation_images, run.unit),
    ]
    return list(dict.fromkeys(warning for warning in warnings if warning))


def _elsewhere(verdict: Verdict | None) -> list[str]:
    """Return where the model was tested, as a limit; none without a verdict."""
    if not verdict:
        return []
    return [f"{coverage.where_tested(verdict)} Elsewhere it may be worse."]


def _tiles(verdict: Verdict) -> list[Tile]:
    """Return tiles that are all of the judged model on test images."""
    unit = verdict.unit
    tiles = []
    if verdict.overall and verdict.common:
        tiles.append(_tile("accuracy", "Right answers", verdict.overall, unit))
        share = f"{percent(verdict.common.value)} %"
        title = f"Always answering {verdict.common.name}"
        tiles.append(Tile("baseline", title, share, count(verdict.overall.n, unit)))
    if verdict.worst_class:
        rare = verdict.worst_class.name == UNNAMED
        title = f"{'Lowest' if rare else 'Least found'}: {verdict.worst_class.name}"
        tiles.append(_tile("class", title, verdict.worst_class, unit))
    if verdict.worst_site:
        what = "Lowest site" if verdict.overall else "Macro AUROC, lowest site"
        title = f"{what}: {verdict.worst_site.name}"
        tiles.append(_tile("worst", title, verdict.worst_site, unit))
    if verdict.auroc:
        ends = verdict.auroc.ends() or count(verdict.auroc.sites, "site")
        tiles.append(Tile("auroc", "Macro AUROC, mean", f"{verdict.auroc.mean:.3f}", ends))
    return tiles


def _tile(id_: str, title: str, measured: Measured, unit: str) -> Tile:
    images = count(measured.n, unit)
    if measured.low is None or measured.high is None:
        return Tile(id_, title, f"{measured.value:.3f}", images)
    ends = f"{percent(measured.low)} to {percent(measured.high)} %"
    return Tile(id_, title, f"{percent(measured.value)} %", f"{ends}, {images}")


class SiteCurve(NamedTuple):
    """A site's validation curve."""

    site: str
    best_round: int | None
    highest: float
    figure: Markup


@dataclass(frozen=True)
class Convergence:
    """The section on validation values by round."""

    figure: Markup
    sites: int
    """Sites with a curve in the figure."""
    each_drawn: bool
    """Whether the figure has a line for each of them."""
    ends: str
    """The lowest and the highest value at the end, in a sentence."""
    curves: Sequence[SiteCurve]
    """Those of the shown sites."""

    @classmethod
    def of(cls, run: Run, choices: Choices, sites: Sites) -> "Convergence | None":
        """Return the section; None if nothing was evaluated."""
        lines = run.series("val", run.key_metric)
        if not lines:
            return None
        best = {choice.site: choice.round for choice in choices.own.sites}
        shown = {site: lines[site] for site in sites.names if site in lines}
        pictures = multiples.validation_curves(shown, figures.mean_line(lines), best)
        metric = title_of(run.key_metric)
        last = max(map(max, lines.values()))
        at_end = {site: line[last] for site, line in lines.items() if last in line}
        return cls(
            figure=figures.convergence(lines, metric, run.warm_up, choices.shared.round),
            sites=len(lines),
            each_drawn=len(lines) <= figures.MOST_LINES,
            ends=f"After round {last}: {lowest_and_highest(at_end)}.",
            curves=[
                SiteCurve(site, best[site], max(line.values()), pictures[site])
                for site, line in shown.items()
            ],
        )


class ProtocolLine(NamedTuple):
    """A site's test value under each protocol; None where it was not measured."""

    site: SiteLine
    end: SiteChoice | None
    shared: SiteChoice | None
    own: SiteChoice | None


@dataclass(frozen=True)
class PerSite:
    """The section on results per site."""

    protocols: Sequence[ProtocolLine]
    pooled: bool
    """Whether the key metric can also be computed over the images of all sites."""
    titles: Sequence[str]
    """Titles of the metrics that describe a whole model."""
    values: Sequence[Mapping[str, float]]
    """For each of these metrics: site -> test value of the selected model."""

    @classmethod
    def of(cls, run: Run, choices: Choices, sites: Sites) -> "PerSite":
        """Return the section."""
        end = {choice.site: choice for choice in choices.end.sites}
        shared = {choice.site: choice for choice in choices.shared.sites}
        own = {choice.site: choice for choice in choices.own.sites}
        metrics = run.label_kind.metric_names
        return cls(
            protocols=[
                ProtocolLine(line, end.get(line.site), shared.get(line.site), own.get(line.site))
                for line in sites.shown
            ],
            pooled=run.key_metric in POOLED,
            titles=[METRIC_TITLES[name] for name in metrics],
            values=[site_test_values(run, name, choices.reported) for name in metrics],
        )

    @property
    def measured(self) -> bool:
        """Whether some site has a test value."""
        return any(self.values)
