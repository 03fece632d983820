"""One page for clinicians: what the model does, how good it is, when to ask a human, its limits."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedward.errors import quoted
from fedward.report import verdict, words
from fedward.report.clinical import WANTED, Answers, ClassRates, Clinical, Referral
from fedward.report.template import template
from fedward.report.verdict import Origin, Verdict
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.run import Run
from fedward.runs.sentences import nothing_to_judge
from fedward.runs.site_lines import SiteLine, site_lines

_LINES = 12
"""Number of classes that fit the page, those with the most test images."""
_CERTAIN = 30
"""Test images of a class below which its numbers are called uncertain."""
_NAMED = 6
"""Number of classes that a sentence names."""


@dataclass(frozen=True)
class Findings:
    """The findings of a multi-label model by what a human has to read."""

    wanted: float
    """The share of right answers to reach."""
    alone: Sequence[str]
    """Findings where nobody has to read an image."""
    some: Mapping[str, float]
    """Finding -> share of images to read."""
    all: Sequence[str]
    """Findings where no share is enough."""


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
    """The classes."""
    sites: Sequence[SiteLine]
    trained_with: str
    """Whose images it was trained with."""
    labelled: int
    """Labelled images of the sites that report them, or of the server if the labels are there."""
    unlabelled: int
    """Unlabelled images of the sites that report them.

    If the labels are at the server, only those of sites that trained."""
    verdict: Verdict | None
    clinical: Clinical | None
    """None for a run without clinical numbers."""
    lines: Sequence[ClassRates]
    """The classes that fit the page, in the job's order."""
    left_out: int
    """Number of other classes."""
    referred: Sequence[Referral]
    """When to ask a human, if one of the classes is right."""
    findings: Findings | None
    """When to ask a human, for a multi-label model."""
    differ: str | None
    """At which sites the model is worst and best."""
    limits: Sequence[str]
    """What the model must not be trusted with."""


def render_sheet(run: Run) -> str:
    """Return the page as HTML; for a run without clinical numbers it says that they are missing."""
    return template("sheet.html").render(vars(_sheet(run)))


def _sheet(run: Run) -> Sheet:
    choices = Choices.of(run, run.key_metric)
    sites = site_lines(run)
    clinical = Clinical.of(run, choices.reported)
    classes: Sequence[ClassRates] = ()
    referred: Sequence[Referral] = ()
    findings = None
    never_predicted: Sequence[str] = ()
    if clinical:
        classes = clinical.pooled.lines
        referred = [referral for referral in clinical.pooled.referred if referral.share is not None]
        never_predicted = clinical.pooled.never
    shown = sorted(classes, key=lambda line: -line.images)[:_LINES]
    if clinical and not run.label_kind.exclusive:
        findings = _findings(clinical.pooled, [line.name for line in shown])
    return Sheet(
        run=run,
        banner=words.banner(run),
        origin=verdict.origin(run),
        unit=verdict.unit(run),
        round=choices.reported,
        named=_list([quoted(name) for name in run.classes]),
        sites=sites,
        trained_with=_trained_with(run, sites),
        labelled=run.server_labels or sum(line.labelled or 0 for line in sites),
        unlabelled=sum(line.unlabelled or 0 for line in _learners(run, sites)),
        verdict=verdict.verdict(run, choices, verdict.baseline(run, choices), never_predicted),
        clinical=clinical,
        lines=[line for line in classes if line in shown],
        left_out=len(classes) - len(shown),
        referred=referred,
        findings=findings,
        differ=_differ(run, choices.reported, clinical.sites if clinical else ()),
        limits=_limits(run, clinical),
    )


def _learners(run: Run, sites: Sequence[SiteLine]) -> Sequence[SiteLine]:
    """Return the sites that the model learned from; if the labels are at the server, maybe none."""
    return [line for line in sites if line.trained or not run.server_labels]


def _trained_with(run: Run, sites: Sequence[SiteLine]) -> str:
    learners = _learners(run, sites)
    if run.info.models_stay_at_sites:
        return f"images of one site alone: each of {len(learners)} sites has a model of its own"
    of_sites = f"images of {len(learners)} sites, which stayed where they were"
    if not run.server_labels:
        return of_sites
    of_server = "labelled images of the server's own"
    return f"{of_server}, and without labels with {of_sites}" if learners else of_server


def _findings(answers: Answers, shown: Collection[str]) -> Findings:
    share = {line.name: line.refer[-1] for line in answers.trust if line.name in shown}
    return Findings(
        wanted=WANTED[-1],
        alone=[name for name in share if share[name] == 0],
        some={name: part for name, part in share.items() if part},
        all=[name for name in share if share[name] is None],
    )


def _differ(run: Run, round_: int | None, sites: Sequence[Answers]) -> str | None:
    """Return at which sites the model is worst and best; None for fewer than two sites."""
    if run.label_kind.exclusive:
        shares = {answers.name: answers.accuracy.value for answers in sites if answers.accuracy}
        success = "it is right"
        whole = f"100 {run.unit}s"
    else:
        shares = site_test_values(run, "auroc_macro", round_)
        success = "it ranks the right one higher"
        whole = "100 pairs"
    if len(shares) < 2:
        return None
    worst = min(shares, key=shares.__getitem__)
    best = max(shares, key=shares.__getitem__)
    low = f"{shares[worst] * 100:.0f}"
    high = f"{shares[best] * 100:.0f}"
    if low == high:
        return f"Sites are alike: {success} for {low} of {whole} at each."
    return f"Sites differ: {success} for {low} of {whole} at {worst} and for {high} at {best}."


def _limits(run: Run, clinical: Clinical | None) -> list[str]:
    """Return what the model must not be trusted with, each in a sentence."""
    limits = _limits_of_classes(run, clinical.pooled) if clinical else []
    for sentence in (nothing_to_judge(run.info.untrained), words.kept_at_sites(run)):
        if sentence:
            limits.append(sentence)
    limits.append(
        "It was tested at the sites that trained it. At another hospital, with other cameras or "
        "patients, it may be worse."
    )
    limits.append(run.label_kind.limit)
    limits.append("It was trained once. Another training of the same kind may give other numbers.")
    return limits


def _limits_of_classes(run: Run, answers: Answers) -> list[str]:
    """Return sentences on classes that are never predicted, not tested, or tested on few images."""
    limits = []
    never_predicted = [f"“{name}”" for name in answers.never]
    if never_predicted:
        limits.append(f"It never answers {_list(never_predicted)}: it will miss every such image.")
    tested = {line.name for line in answers.lines}
    untested = [quoted(name) for name in run.classes if name not in tested]
    if untested:
        limits.append(
            f"How good it is for {_list(untested)} is not known: no site had enough test "
            f"{run.unit}s."
        )
    few = [
        f"{quoted(line.name)} ({line.images})" for line in answers.lines if line.images < _CERTAIN
    ]
    if few:
        limits.append(f"Numbers for {_list(few)} rest on few test {run.unit}s and may be far off.")
    return limits


def _list(names: Sequence[str]) -> str:
    text = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        text += f" and {len(names) - _NAMED} more"
    return text
