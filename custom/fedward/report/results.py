"""The report's sections on results: what to know first, convergence, and results per site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from fedward.evaluation.intervals import Interval
from fedward.evaluation.selection import POOLED, SiteChoice, mean
from fedward.report import figures, multiples, verdict, words
from fedward.report.alone import Alone
from fedward.report.clinical import Clinical
from fedward.report.comparison import ComparedRun
from fedward.report.sites import Sites
from fedward.report.verdict import Baseline, Origin, Verdict, WorstSite
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.run import Run
from fedward.runs.site_lines import SiteLine
from fedward.runs.titles import METRIC_TITLES, title_of


@dataclass(frozen=True)
class KeyResults:
    """What a reader sees first: how the run ended, on which images, and what its model is worth."""

    banner: str | None
    """What to know of a run that did not end well."""
    origin: Origin
    """Where the images came from."""
    unit: str
    """What the numbers are of, unless it is single images."""
    verdict: Verdict | None
    baseline: Baseline | None
    over_sites: Interval | None
    """Test key metric over the last rounds, mean over sites."""
    worst: WorstSite | None
    auroc: float | None
    """Macro AUROC of the selected model, mean over sites."""
    findings: Sequence[str]
    """Sentences; empty if nothing has been measured yet."""

    @classmethod
    def of(
        cls,
        run: Run,
        choices: Choices,
        sites: Sites,
        compared: Sequence[ComparedRun],
        joining: Alone | None,
        clinical: Clinical | None,
    ) -> "KeyResults":
        """Collect the first screen from the report's other sections."""
        baseline = verdict.baseline(run, choices)
        never_predicted = clinical.pooled.never if clinical else ()
        findings = verdict.headline(choices, compared, run.unit)
        if joining:
            findings += joining.sentences
        findings += words.findings(run, choices, sites.all)
        return cls(
            banner=words.banner(run),
            origin=verdict.origin(run),
            unit=verdict.unit(run),
            verdict=verdict.verdict(run, choices, baseline, never_predicted),
            baseline=baseline,
            over_sites=verdict.over_sites(choices.end),
            worst=verdict.worst(choices.end),
            auroc=mean(site_test_values(run, "auroc_macro", choices.reported).values()),
            findings=findings,
        )


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
        return cls(
            figure=figures.convergence(lines, metric, run.warm_up, choices.shared.round),
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
