"""The report of a run: one self-contained page, for which each section has an object."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedward.report import words
from fedward.report.class_lines import ClassLine, class_lines
from fedward.report.clinical import Clinical
from fedward.report.comparison import Comparison
from fedward.report.cost import Cost
from fedward.report.groups import Groups, warm_up
from fedward.report.joining import Joining
from fedward.report.labels import Labels
from fedward.report.model_file import ModelFile
from fedward.report.other_runs import OtherRuns
from fedward.report.peers import Peers
from fedward.report.pseudo_labels import PseudoLabels
from fedward.report.reconstructions import Reconstructions
from fedward.report.results import Convergence, KeyResults, PerSite
from fedward.report.sites import Sites
from fedward.report.template import template
from fedward.runs.about import About
from fedward.runs.choices import Choices
from fedward.runs.exchanges import Failure, failures
from fedward.runs.run import Run
from fedward.runs.settings import by_dotted_name
from fedward.runs.titles import title_of

_FAILURES_SHOWN = 50


@dataclass(frozen=True)
class Report:
    """The values that the page's template shows. A section that is None is omitted."""

    run: Run
    key: str
    """Title of the key metric."""
    choices: Choices
    """The rounds whose results are shown."""
    model: str
    """What the numbers of one round are of."""
    intervals_words: str
    """What the intervals say and do not say."""
    first_model: str
    """What the model of round 0 is."""
    warm_up: str
    """A sentence on what is different in the first rounds; empty without such rounds."""
    results: KeyResults
    model_file: ModelFile | None
    about: About
    comparison: Comparison | None
    joining: Joining | None
    sites: Sites
    convergence: Convergence | None
    per_site: PerSite
    clinical: Clinical | None
    classes: Sequence[ClassLine]
    peers: Peers | None
    groups: Groups | None
    labels: Labels | None
    reconstructions: Reconstructions | None
    pseudo_labels: PseudoLabels | None
    cost: Cost | None
    failures: Sequence[Failure]
    settings: Sequence[tuple[str, str]]
    """Dotted name and value of each setting of the experiment."""
    failures_shown: int = _FAILURES_SHOWN
    """Number of failures that the table shows at most."""


def render(run: Run, others: Sequence[Run] = ()) -> str:
    """Return the report of a run as HTML, which compares it with ``others`` if there are any.

    Runs of a single site of this run are compared with it site by site, all other runs as a whole.
    """
    choices = Choices.of(run, run.key_metric)
    other_runs = OtherRuns.of(run, others)
    clinical = Clinical.of(run, choices.reported)
    sites = Sites.of(run, choices)
    results = KeyResults.of(run, choices, sites, other_runs)
    verdict = results.judgement.verdict if results.judgement else None
    report = Report(
        run=run,
        key=title_of(run.key_metric),
        choices=choices,
        model=words.described_model(run),
        intervals_words=words.about_intervals(run, verdict),
        first_model=words.first_model(run),
        warm_up=warm_up(run),
        results=results,
        model_file=ModelFile.of(run),
        about=About.of(run, sites.all),
        comparison=Comparison.of(other_runs.lines),
        joining=other_runs.joining,
        sites=sites,
        convergence=Convergence.of(run, choices, sites),
        per_site=PerSite.of(run, choices, sites),
        clinical=clinical,
        classes=class_lines(run, choices.reported),
        peers=Peers.of(run),
        groups=Groups.of(run, sites.all, sites.shown),
        labels=Labels.of(run, other_runs.whole, sites.names),
        reconstructions=Reconstructions.load(run.folder),
        pseudo_labels=PseudoLabels.of(run),
        cost=Cost.of(run),
        failures=failures(run),
        settings=_settings(run),
    )
    return template("report.html").render(vars(report))


def _experiment(run: Run) -> Mapping[str, Any]:
    """Return the experiment, without settings of synthetic images if all sites had images."""
    experiment = dict(run.info.experiment)
    synthetic = run.info.synthetic
    if synthetic and not any(synthetic.values()):
        experiment.pop("synthetic", None)
    return experiment


def _settings(run: Run) -> list[tuple[str, str]]:
    """Return name and value of each setting; the method's defaults are called so."""
    chosen = by_dotted_name(_experiment(run))
    defaults = by_dotted_name({"options": run.info.settings}) if run.info.settings else {}
    stated = [(name, _in_words(value)) for name, value in chosen.items()]
    by_default = [
        (name, f"{_in_words(value)} (default)")
        for name, value in defaults.items()
        if name not in chosen
    ]
    return [*stated, *by_default]


def _in_words(value: Any) -> str:
    """Return a setting's value for people who do not know Python's words for it."""
    if value is None:
        return "not set"
    if value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
