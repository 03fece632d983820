"""One page for clinicians: what the model does, on whose images, how good it is, when to ask a
human, its limits.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedward.errors import quoted
from fedward.report import verdict, words
from fedward.report.clinical import WANTED, Answers, ClassRates, Clinical
from fedward.report.template import template
from fedward.runs.choices import Choices, tested_values
from fedward.runs.run import Run
from fedward.runs.sentences import nothing_to_judge
from fedward.runs.site_lines import site_lines

_LINES = 12
"""So many classes fit the page, those with the most test images first."""
_CERTAIN = 30
"""Test images of a class below which its numbers are called uncertain."""
_NAMED = 6
"""So many classes are named one by one in a sentence."""


def render_sheet(run: Run) -> str:
    """Return the page as HTML; of a run without clinical numbers it says that they are missing."""
    return template("sheet.html").render(_content(run))


def _content(run: Run) -> dict[str, Any]:
    choices = Choices.of(run, run.key_metric)
    sites = site_lines(run)
    found = Clinical.of(run, choices.reported)
    (synthetic, origin) = verdict.origin(run)
    every = found.pooled.lines if found else []
    shown = sorted(every, key=lambda line: -line.images)[:_LINES]
    return {
        "run": run,
        "banner": words.banner(run),
        "synthetic": synthetic,
        "origin": origin,
        "unit": verdict.unit(run),
        "round": choices.reported,
        "named": _list([*map(quoted, run.classes)]),
        "sites": sites,
        "labelled": sum(line.labelled or 0 for line in sites),
        "unlabelled": sum(line.unlabelled or 0 for line in sites),
        "verdict": verdict.verdict(
            run, choices, verdict.baseline(run, choices), found.pooled.never if found else ()
        ),
        "clinical": found,
        "referred": {share: wanted for wanted, share in found.pooled.referred if share is not None}
        if found
        else {},
        "findings": _findings(found.pooled, [line.name for line in shown])
        if found and not run.label_kind.exclusive
        else None,
        "lines": [line for line in every if line in shown],
        "left_out": len(every) - len(shown),
        "differ": _differ(run, choices.reported, found.sites if found else ()),
        "limits": _limits(run, found),
    }


@dataclass(frozen=True)
class Findings:
    """The findings of a multi-label model by what a human has to read, so that ``wanted`` of its
    answers are right.
    """

    wanted: float
    alone: Sequence[str]
    """Those where nobody has to read an image."""
    some: Mapping[str, float]
    """Share of images to read."""
    all: Sequence[str]
    """Those where no share is enough."""


def _findings(answers: Answers, shown: Collection[str]) -> Findings:
    refer = {line.name: line.refer[-1] for line in answers.trust if line.name in shown}
    return Findings(
        WANTED[-1],
        [name for name, share in refer.items() if share == 0],
        {name: share for name, share in refer.items() if share},
        [name for name, share in refer.items() if share is None],
    )


def _differ(run: Run, round_: int | None, sites: Sequence[Answers]) -> str | None:
    """Return at which sites the model is worst and best, of 100 answers or pairs; None for fewer
    than two sites.
    """
    shares = {answers.name: answers.accuracy.value for answers in sites if answers.accuracy}
    what = "it is right"
    of = f"100 {run.unit}s"
    if not run.label_kind.exclusive:
        shares = tested_values(run, "auroc_macro", round_)
        what = "it ranks the right one higher"
        of = "100 pairs"
    if len(shares) < 2:
        return None
    worst = min(shares, key=shares.__getitem__)
    best = max(shares, key=shares.__getitem__)
    low, high = (f"{shares[site] * 100:.0f}" for site in (worst, best))
    if low == high:
        return f"Sites are alike: {what} for {low} of {of} at each."
    return f"Sites differ: {what} for {low} of {of} at {worst} and for {high} at {best}."


def _limits(run: Run, found: Clinical | None) -> list[str]:
    """Return what the model must not be trusted with, each in a sentence."""
    lines: Sequence[ClassRates] = found.pooled.lines if found else ()
    tested = {line.name for line in lines}
    never = found.pooled.never if found else []
    untested = [quoted(name) for name in run.classes if name not in tested] if found else []
    few = [f"{quoted(line.name)} ({line.images})" for line in lines if line.images < _CERTAIN]
    told = [
        ([f"“{name}”" for name in never], "It never answers {}: it will miss every such image."),
        (untested, f"How good it is for {{}} is not known: no site had enough test {run.unit}s."),
        (few, f"Numbers for {{}} rest on few test {run.unit}s and may be far off."),
    ]
    always = [
        *filter(None, (nothing_to_judge(run.info.untrained), words.kept_at_sites(run))),
        "It was tested at the sites that trained it. At another hospital, with other cameras or patients, it may be "
        "worse.",
        run.label_kind.limit,
        "It was trained once. Another training of the same kind may give other numbers.",
    ]
    return [sentence.format(_list(names)) for names, sentence in told if names] + always


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
