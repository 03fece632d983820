"""The report's findings as sentences a clinician can read; every number comes from the tables."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from fedward.errors import listed
from fedward.evaluation.intervals import proportion_interval
from fedward.report.groups import GroupLine
from fedward.runs.choices import Choices, tested_values
from fedward.runs.exchanges import took_no_step
from fedward.runs.run import Run
from fedward.runs.sentences import network_parts, nothing_to_judge
from fedward.runs.site_lines import SiteLine
from fedward.runs.titles import title_of
from fedward.text import count

_CLOSE = 0.05
"""Half of an interval within which it does not matter which round is selected."""
_NAMED = 6
"""So many sites are named one by one; more are counted."""
_LISTED = 5
"""So many sites are listed, each with what is missing there; more are counted."""


def banner(run: Run) -> str | None:
    """Return what a reader must know first about a run that did not end well; None for one that
    did.
    """
    if run.info.status == "finished":
        return None
    rounds = max((row.round for row in run.rounds), default=0)
    done = f"{count(rounds, 'round')} on record"
    if run.info.status == "failed":
        return (
            f"This run failed, with {done}: {run.info.summary.reason or 'no reason was recorded'}"
        )
    return f"This run has not finished, with {done}: it is still going on, or it was killed. Numbers are provisional."


def findings(run: Run, choices: Choices, sites: Sequence[SiteLine]) -> list[str]:
    """Return what else there is to know of the results, most important first; fewer where less was
    measured.
    """
    found = [
        nothing_to_judge(run.info.untrained),
        _ranking(run, choices),
        _key_metric(run, choices),
        kept_at_sites(run),
        _protocols(choices),
        _selected_by_luck(choices, sum(line.val for line in sites), run.unit),
        _one_class(run, sites),
        _last(run, choices),
        _not_evaluated(run),
        _coverage(sites, run.unit),
        _small(sites, run.unit),
        _missing(run),
    ]
    return [sentence for sentence in found if sentence]


def _ranking(run: Run, choices: Choices) -> str | None:
    values = tested_values(run, "auroc_macro", choices.reported)
    if not values:
        return None
    average = fmean(values.values())
    pair = run.label_kind.ranked_pair
    before = _before(run, "auroc_macro") if choices.shared.metric == "auroc_macro" else ""
    return (
        f"On average over {count(len(values), 'site')}, the selected model (round {choices.reported}) has a macro "
        f"AUROC of {average:.3f} on test {run.unit}s ({spread(values)}){before}. Shown one {run.unit} {pair}, it "
        f"ranks the right one higher in {average * 100:.0f} of 100 such pairs; guessing would in 50."
    )


def _key_metric(run: Run, choices: Choices) -> str | None:
    metric = choices.shared.metric
    values = tested_values(run, metric, choices.reported)
    if not values or metric == "auroc_macro":  # of which the sentence on ranking tells
        return None
    average = fmean(values.values())
    return f"Its test {title_of(metric)} is {average:.3f} on average ({spread(values)}){_before(run, metric)}."


def _before(run: Run, metric: str) -> str:
    start = tested_values(run, metric, 0)
    return f"; before training it was {fmean(start.values()):.3f}" if start else ""


def kept_at_sites(run: Run) -> str | None:
    """Return which tensors each site trained for itself, and what that means for the numbers; None
    without any.
    """
    if not run.info.private or run.info.untrained:
        return None
    what = network_parts(run.info.private)
    return (
        f"Each site trained a {what} of its own and kept it: all numbers are of the common model with the site's own "
        f"{what}. The {what} in model.safetensors and best.safetensors is untrained."
    )


def _protocols(choices: Choices) -> str | None:
    shared = choices.shared
    own = choices.own
    if shared.round is None or shared.test is None or own.test is None or shared.val is None:
        return None
    untrained = (
        " It is the model before training: no round improved on it." if shared.round == 0 else ""
    )
    return (
        f"Round {shared.round} was selected because its mean validation {title_of(shared.metric)} is the highest "
        f"({shared.val:.3f}). Were each site to keep the round best on its own validation data, as some papers "
        f"report, the mean test value would be {own.test:.3f}.{untrained}"
    )


def _selected_by_luck(choices: Choices, images: int, unit: str) -> str | None:
    """Return that no or few validation images choose a round; None where there are enough to tell
    rounds apart.
    """
    if not images and choices.last.round is not None:
        return f"No site reports validation {unit}s, of five or more in a class, so no round was chosen by them."
    if (
        not images
        or choices.shared.round is None
        or (half := 0.5 - proportion_interval(0.5, images)[0]) <= _CLOSE
    ):
        return None
    return (
        f"There are {count(images, f'validation {unit}')} to select a round by: an accuracy on so few may be off by "
        f"{half:.2f}, and rounds that are closer cannot be told apart."
    )


def _one_class(run: Run, sites: Sequence[SiteLine]) -> str | None:
    """Name the sites whose validation images show a single class; None without such a site, or in a
    multi-label job.
    """
    found = [line.site for line in sites if line.val_classes == 1]
    if not found or not run.label_kind.exclusive:
        return None
    where = named(found) if len(found) <= _NAMED else count(len(found), "site")
    return (
        f"{where}: the validation {run.unit}s that are reported show one class, so a model that always names it "
        "looks perfect there. Such a site can choose a round by luck; the last rounds do not depend on the choice."
    )


def _last(run: Run, choices: Choices) -> str | None:
    last = choices.last
    if last.test is None or last.round is None:
        return None
    auroc = tested_values(run, "auroc_macro", last.round) if last.metric != "auroc_macro" else {}
    ranking = f" and a macro AUROC of {fmean(auroc.values()):.3f}" if auroc else ""
    same = " It is the selected model." if last.round == choices.reported else ""
    final = run.info.status == "finished" and last.round == (run.info.summary.rounds or last.round)
    which = "final model" if final else "newest measured model"
    return f"The {which} (round {last.round}) has a test {title_of(last.metric)} of {last.test:.3f}{ranking}.{same}"


def _not_evaluated(run: Run) -> str | None:
    not_evaluated = run.info.summary.not_evaluated
    if not not_evaluated:
        return None
    where = f"{len(not_evaluated)} of {count(len(run.info.sites), 'site')} ({named(list(not_evaluated))})"
    return f"The final model was not evaluated at {where}, which its numbers leave out."


def _coverage(sites: Sequence[SiteLine], unit: str) -> str | None:
    absent = {line.site: line.absent for line in sites if line.absent}
    untold = {line.site: line.untold for line in sites if line.untold}
    lack = "lacks" if len(absent) == 1 else "lack"
    has = "has" if len(untold) == 1 else "have"
    told = (
        (absent, f"{lack} test {unit}s of some classes, which their averages leave out"),
        (untold, f"{has} none of some classes, or too few to tell their number"),
    )
    parts = []
    for classes, what in told:
        if classes:
            each = "; ".join(f"{site}: {listed(names)}" for site, names in classes.items())
            where = f" ({each})" if len(classes) <= _LISTED else "; the results per class say which"
            parts.append(f"{count(len(classes), 'site')} {what}{where}.")
    return " ".join(parts)


def _small(sites: Sequence[SiteLine], unit: str) -> str | None:
    small = [f"{line.site} ({line.test})" for line in sites if line.test and line.few]
    named = ", ".join(small) if len(small) <= _LISTED else f"at {len(small)} sites"
    return f"Too few test {unit}s for a reliable number: {named}." if small else None


def _missing(run: Run) -> str | None:
    rounds = {row.round for row in run.rounds}
    if not rounds:
        return None
    reasons = [(row.round, *failure) for row in run.rounds for failure in row.failed.items()]
    idle = [site for _, site, reason in reasons if took_no_step(reason)]
    failed = [round_ for round_, _, reason in reasons if not took_no_step(reason)]
    said = "Every site that was asked replied in every round."
    if failed:
        of = f"{len(set(failed))} of {count(len(rounds), 'round')}"
        said = f"{count(len(failed), 'answer')} failed or came too late, in {of}."
    if idle:
        said += f" {count(len(idle), 'answer')} brought no training, for want of images to train on ({named(idle)})."
    return said


def grouping(run: Run, lines: Sequence[GroupLine]) -> str:
    """Return who was averaged with whom, in a run with groups."""
    kinds = {row.group for row in run.groups}
    inside = {site for row in run.groups for site in row.sites}
    labelled, unlabelled = (
        named(
            [line.site.site for line in lines if line.group == group and line.site.site in inside]
        )
        for group in ("labelled", "unlabelled")
    )
    most = max(Counter(row.round for row in run.groups).values())
    passes = (
        f" A round's model is the mean of up to {most} such averages, each over some of the sites."
        * (most > 1)
    )
    if all(line.group == "labelled" for line in lines):
        return f"All sites have labels ({labelled}) and were averaged together.{passes}"
    if "all" in kinds:
        return f"Sites with labels ({labelled}) and sites without ({unlabelled}) were averaged together.{passes}"
    if len(kinds) > 1:
        return (
            f"Sites with labels ({labelled}) were averaged among themselves, and so were sites without ({unlabelled}); "
            "the two groups were never mixed."
        )
    if kinds == {"labelled"}:
        return f"Only sites with labels ({labelled}) were averaged; the others contributed nothing."
    return f"Only sites without labels ({unlabelled}) were averaged so far."


def warm_up(run: Run) -> str:
    """Return what is different in the first rounds; empty for a run without such rounds."""
    if not run.warm_up:
        return ""
    what = "only sites with labels trained" if run.groups else "sites trained without peers"
    return f"In the warm-up ({count(run.warm_up, 'round')}), {what}."


def named(sites: Sequence[str]) -> str:
    """Return the sites' names, each once; of many only how many they are."""
    unique = dict.fromkeys(sites)
    return f"{len(unique)} of them" if len(unique) > _NAMED else ", ".join(unique) or "none"


def spread(values: dict[str, float]) -> str:
    """Return the lowest and highest value with their sites."""
    low = min(values, key=values.__getitem__)
    high = max(values, key=values.__getitem__)
    if f"{values[low]:.3f}" == f"{values[high]:.3f}":
        return f"{values[low]:.3f} at each"
    return f"lowest {values[low]:.3f} at {low}, highest {values[high]:.3f} at {high}"
