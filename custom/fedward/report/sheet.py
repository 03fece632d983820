"""One page for clinicians: what the model does, how good it is, when to ask a human, its limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedward.errors import listed
from fedward.report import origin, words
from fedward.report.clinical import ClassRates, Clinical
from fedward.report.judgement import Judgement
from fedward.report.origin import Origin
from fedward.report.other_runs import OtherRuns
from fedward.report.template import template
from fedward.runs.about import About, spelled_out, with_titles
from fedward.runs.choices import Choices
from fedward.runs.judge import judge
from fedward.runs.run import Run
from fedward.runs.sentences import leaked, nothing_to_judge
from fedward.runs.site_lines import SiteLine, site_lines
from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words import coverage, findings, for_clinicians
from fedward.text import count

_LINES = 10
"""Number of classes that fit the page, those with the most test images."""


@dataclass(frozen=True)
class Sheet:
    """What the page's template is given."""

    run: Run
    banner: str | None
    """What to know of a run that did not end well."""
    origin: Origin
    """Where the images came from."""
    unit: str
    """What the numbers are of, unless it is single images."""
    round: int | None
    """The round whose model is described."""
    named: str
    """The classes with their titles; the table names those that are not here."""
    about: Mapping[str, str]
    """What study and sites state about themselves: title -> text."""
    purpose: Mapping[str, str]
    """What the model is and is not intended for; empty for synthetic images."""
    trained_with: str
    """Whose images it was trained with."""
    learned_from: str
    """How many images it learned from; empty where no training improved it."""
    judgement: Judgement | None
    unjudged: str
    """Why there is no verdict, for a run without one."""
    spelled_out: str
    """The classes that verdict, advice and limits name, with their titles; may be empty."""
    numbers: str
    """The numbers of the verdict, of 100, with the worst class and the worst site; may be empty."""
    clinical: Clinical | None
    """None for a run without clinical numbers."""
    lines: Sequence[ClassRates]
    """The classes that fit the page, in the job's order."""
    left_out: int
    """Number of other classes."""
    independence: str
    """Whether intervals allow for images of one patient."""
    reasons: Sequence[str]
    """Reasons for the advice, for a model that may name several classes."""
    limits: Sequence[str]
    """What the model must not be trusted with."""


def render_sheet(run: Run, others: Sequence[Run] = ()) -> str:
    """Return the page as HTML; for a run without clinical numbers it says that they are missing.

    Its verdict is that of the report beside it, which compares the run with the ``others``.
    """
    return template("sheet.html").render(vars(_sheet(run, others)))


def _sheet(run: Run, others: Sequence[Run]) -> Sheet:
    choices = Choices.of(run, run.key_metric)
    sites = site_lines(run)
    clinical = Clinical.of(run, choices.reported)
    verdict = judge(run, choices.reported, OtherRuns.of(run, others).against)
    judgement = Judgement.of(verdict) if verdict else None
    classes: Sequence[ClassRates] = clinical.pooled.lines if clinical else ()
    shown = sorted(classes, key=lambda line: -line.images)[:_LINES]
    about = About.of(run, sites)
    source = origin.origin(run)
    limits = _limits(run, verdict)
    return Sheet(
        run=run,
        banner=words.banner(run),
        origin=source,
        unit=origin.unit(run),
        round=choices.reported,
        named=_named(run, [line.name for line in shown]),
        about=about.brief,
        purpose={} if source.warning else about.purpose,
        trained_with=_trained_with(run, sites, verdict),
        learned_from="" if verdict and verdict.unimproved else _learned_from(run, sites),
        unjudged=coverage.without_verdict(run, choices.reported),
        judgement=judgement,
        spelled_out=spelled_out(run, *(judgement.sentences if judgement else ()), *limits),
        numbers=_numbers(verdict) if verdict else "",
        clinical=clinical,
        lines=[line for line in classes if line in shown],
        left_out=len(classes) - len(shown),
        independence=coverage.about_images(verdict) if verdict else "",
        reasons=findings.reasons_by_finding(verdict, [line.name for line in shown])
        if verdict
        else (),
        limits=limits,
    )


def _numbers(verdict: Verdict) -> str:
    numbers = for_clinicians.numbers(verdict)
    return f"{numbers} {for_clinicians.weakest(verdict)}".strip()


def _learners(run: Run, sites: Sequence[SiteLine]) -> Sequence[SiteLine]:
    """Return the sites that the model learned from; if the labels are at the server, maybe none.

    A run that keeps no record of rounds says of no site that it trained.
    """
    trained = [line for line in sites if line.trained]
    return trained if trained or run.server_labels else sites


def _learned_from(run: Run, sites: Sequence[SiteLine]) -> str:
    """Return how many images the model learned from, with labels and without."""
    learners = _learners(run, sites)
    labelled = run.server_labels or sum(line.labelled or 0 for line in learners)
    unlabelled = sum(line.unlabelled or 0 for line in learners)
    with_label = f"{count(labelled, 'image')} with a label"
    if run.server_labels:
        with_label += " at the server"
    if not unlabelled:
        return f"It learned from {with_label}."
    if run.learned_without_labels:
        return f"It learned from {with_label}, and from {count(unlabelled, 'image')} without."
    its_sites_hold = "Its site also holds" if len(learners) == 1 else "Its sites also hold"
    return (
        f"It learned from {with_label}. {its_sites_hold} {count(unlabelled, 'image')} without one, "
        "which it did not use."
    )


def _named(run: Run, in_table: Sequence[str]) -> str:
    """Return all classes with their titles; of many those that the table does not name."""
    others = [name for name in run.classes if name not in in_table]
    if not others or len(run.classes) <= _LINES:
        return listed(with_titles(run, run.classes))
    return listed([f"the {len(in_table)} in the table below", *with_titles(run, others)])


def _trained_with(run: Run, sites: Sequence[SiteLine], verdict: Verdict | None) -> str:
    """Return a sentence on where the model was trained."""
    learners = _learners(run, sites)
    if verdict and verdict.unimproved:
        return f"It is {words.first_model(run)}: no round of training improved it."
    if run.info.models_stay_at_sites:
        each = "One site" if len(learners) == 1 else f"Each of {len(learners)} sites"
        return f"{each} trained a model of its own, on its images."
    number = count(len(sites), "site")
    if len(learners) < len(sites):
        number = f"{len(learners)} of {number}"
    them = "it" if len(learners) == 1 else "them"
    sites_and_images = f"{number}; the images never left {them}."
    if run.info.simulated:
        sites_and_images = f"{number}, simulated on one machine."
    if run.server_labels and not learners:
        return "It was trained with labelled images of the server's own."
    if run.server_labels:
        return (
            "It was trained with labelled images of the server's own, and without labels at "
            f"{sites_and_images}"
        )
    return f"It was trained at {sites_and_images}"


def _limits(run: Run, verdict: Verdict | None) -> list[str]:
    """Return what the model must not be trusted with, the worst first."""
    limits: list[str | None] = []
    if verdict:
        limits += [coverage.not_tested(verdict), coverage.took_no_part(verdict)]
        limits += leaked(verdict.leaks)
    if verdict and verdict.never:
        never = listed(verdict.never)
        limits.append(
            f"It answers {never} for no test {run.unit}: expect it to miss every such {run.unit}."
        )
    uncertain = coverage.uncertain_classes(verdict) if verdict else ""
    limits += [uncertain, nothing_to_judge(run.info.untrained), words.kept_at_sites(run)]
    if verdict:
        limits.append(
            f"{coverage.where_tested(verdict)} At another hospital, with other cameras or "
            "patients, it may be worse."
        )
    limits.append(run.label_kind.limit)
    limits.append("It was trained once. Another training of the same kind may give other numbers.")
    return [limit for limit in limits if limit]
