"""The report's findings as sentences a clinician can read; every number comes from the tables."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedward.errors import listed
from fedward.evaluation.intervals import proportion_interval
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.exchanges import took_no_step
from fedward.runs.run import Run
from fedward.runs.sentences import network_parts, nothing_to_judge
from fedward.runs.site_lines import SiteLine
from fedward.runs.titles import title_of
from fedward.text import count

_CLOSE = 0.05
"""Half of a 95 % interval of an accuracy, below which there are enough images to select a round."""
_NAMED = 6
"""Number of sites that a sentence names; of more it gives the number."""
_DETAILED = 5
"""Number of sites that a sentence lists with a detail of each."""


def banner(run: Run) -> str | None:
    """Return what to know first about a run that did not end well; None for one that did."""
    if run.info.status == "finished":
        return None
    rounds = max((row.round for row in run.rounds), default=0)
    recorded = f"{count(rounds, 'round')} on record"
    if run.info.status == "failed":
        reason = run.info.summary.reason or "no reason was recorded"
        return f"This run failed, with {recorded}: {reason}"
    return (
        f"This run has not finished, with {recorded}: it is still going on, or it was killed. "
        "Numbers are provisional."
    )


def findings(run: Run, choices: Choices, sites: Sequence[SiteLine]) -> list[str]:
    """Return what else there is to know of the results, the most important first."""
    validation_images = sum(line.val for line in sites)
    sentences = [
        nothing_to_judge(run.info.untrained),
        _ranking(run, choices),
        _key_metric(run, choices),
        kept_at_sites(run),
        _protocols(choices),
        _selected_by_luck(choices, validation_images, run.unit),
        _one_class(run, sites),
        _last(run, choices),
        _not_evaluated(run),
        _absent_classes(sites, run.unit),
        _untold_classes(sites),
        _small(sites, run.unit),
        _missing(run),
    ]
    return [sentence for sentence in sentences if sentence]


def _ranking(run: Run, choices: Choices) -> str | None:
    values = site_test_values(run, "auroc_macro", choices.reported)
    if not values:
        return None
    average = fmean(values.values())
    before = ""
    if choices.shared.metric == "auroc_macro":
        before = _before_training(run, "auroc_macro")
    return (
        f"On average over {count(len(values), 'site')}, the selected model "
        f"(round {choices.reported}) has a macro AUROC of {average:.3f} on test {run.unit}s "
        f"({spread(values)}){before}. Shown one {run.unit} {run.label_kind.ranked_pair}, it ranks "
        f"the right one higher in {average * 100:.0f} of 100 such pairs; guessing would in 50."
    )


def _key_metric(run: Run, choices: Choices) -> str | None:
    metric = choices.shared.metric
    values = site_test_values(run, metric, choices.reported)
    if not values or metric == "auroc_macro":  # the sentence on ranking gives the AUROC
        return None
    average = fmean(values.values())
    before = _before_training(run, metric)
    return f"Its test {title_of(metric)} is {average:.3f} on average ({spread(values)}){before}."


def _before_training(run: Run, metric: str) -> str:
    start = site_test_values(run, metric, 0)
    return f"; before training it was {fmean(start.values()):.3f}" if start else ""


def kept_at_sites(run: Run) -> str | None:
    """Return which tensors each site trained for itself, and what that means for the numbers."""
    if not run.info.private or run.info.untrained:
        return None
    parts = network_parts(run.info.private)
    return (
        f"Each site trained a {parts} of its own and kept it: all numbers are of the common model "
        f"with the site's own {parts}. The {parts} in model.safetensors and best.safetensors is "
        "untrained."
    )


def _protocols(choices: Choices) -> str | None:
    shared = choices.shared
    own = choices.own
    if shared.round is None or shared.test is None or own.test is None or shared.val is None:
        return None
    sentences = (
        f"Round {shared.round} was selected because its mean validation "
        f"{title_of(shared.metric)} is the highest ({shared.val:.3f}). Were each site to keep the "
        "round best on its own validation data, as some papers report, the mean test value would "
        f"be {own.test:.3f}."
    )
    if shared.round == 0:
        sentences += " It is the model before training: no round improved on it."
    return sentences


def _selected_by_luck(choices: Choices, images: int, unit: str) -> str | None:
    """Return that too few validation images select a round; None where there are enough."""
    if not images:
        if choices.last.round is None:
            return None
        return (
            f"No site reports validation {unit}s, of five or more in a class, so no round was "
            "chosen by them."
        )
    half = 0.5 - proportion_interval(0.5, images)[0]
    if choices.shared.round is None or half <= _CLOSE:
        return None
    return (
        f"There are {count(images, f'validation {unit}')} to select a round by: an accuracy on so "
        f"few may be off by {half:.2f}, and rounds that are closer cannot be told apart."
    )


def _one_class(run: Run, sites: Sequence[SiteLine]) -> str | None:
    """Name the sites whose validation images show a single class; None in a multi-label job."""
    affected = [line.site for line in sites if line.val_classes == 1]
    if not run.label_kind.exclusive or not affected:
        return None
    where = named(affected) if len(affected) <= _NAMED else count(len(affected), "site")
    return (
        f"{where}: the validation {run.unit}s that are reported show one class, so a model that "
        "always names it looks perfect there. Such a site can choose a round by luck; the last "
        "rounds do not depend on the choice."
    )


def _last(run: Run, choices: Choices) -> str | None:
    last = choices.last
    if last.test is None or last.round is None:
        return None
    final = run.info.status == "finished" and last.round == (run.info.summary.rounds or last.round)
    sentences = (
        f"The {'final model' if final else 'newest measured model'} (round {last.round}) has a "
        f"test {title_of(last.metric)} of {last.test:.3f}"
    )
    auroc = site_test_values(run, "auroc_macro", last.round)
    if auroc and last.metric != "auroc_macro":
        sentences += f" and a macro AUROC of {fmean(auroc.values()):.3f}"
    sentences += "."
    if last.round == choices.reported:
        sentences += " It is the selected model."
    return sentences


def _not_evaluated(run: Run) -> str | None:
    sites = list(run.info.summary.not_evaluated)
    if not sites:
        return None
    where = f"{len(sites)} of {count(len(run.info.sites), 'site')} ({named(sites)})"
    return f"The final model was not evaluated at {where}, which its numbers leave out."


def _absent_classes(sites: Sequence[SiteLine], unit: str) -> str | None:
    absent = {line.site: line.absent for line in sites if line.absent}
    if not absent:
        return None
    lack = "lacks" if len(absent) == 1 else "lack"
    return (
        f"{count(len(absent), 'site')} {lack} test {unit}s of some classes, which their averages "
        f"leave out{_classes_of(absent)}."
    )


def _untold_classes(sites: Sequence[SiteLine]) -> str | None:
    untold = {line.site: line.untold for line in sites if line.untold}
    if not untold:
        return None
    have = "has" if len(untold) == 1 else "have"
    return (
        f"{count(len(untold), 'site')} {have} none of some classes, or too few to tell their "
        f"number{_classes_of(untold)}."
    )


def _classes_of(by_site: Mapping[str, Sequence[str]]) -> str:
    """Return each site's classes in brackets; of many sites where to find them."""
    if len(by_site) > _DETAILED:
        return "; the results per class say which"
    classes = "; ".join(f"{site}: {listed(names)}" for site, names in by_site.items())
    return f" ({classes})"


def _small(sites: Sequence[SiteLine], unit: str) -> str | None:
    small = [f"{line.site} ({line.test})" for line in sites if line.test and line.few]
    if not small:
        return None
    where = ", ".join(small) if len(small) <= _DETAILED else f"at {len(small)} sites"
    return f"Too few test {unit}s for a reliable number: {where}."


def _missing(run: Run) -> str | None:
    rounds = {row.round for row in run.rounds}
    if not rounds:
        return None
    idle_sites = []
    failed_rounds = []
    for row in run.rounds:
        for site, reason in row.failed.items():
            if took_no_step(reason):
                idle_sites.append(site)
            else:
                failed_rounds.append(row.round)
    sentences = ["Every site that was asked replied in every round."]
    if failed_rounds:
        affected = f"{len(set(failed_rounds))} of {count(len(rounds), 'round')}"
        answers = count(len(failed_rounds), "answer")
        sentences = [f"{answers} failed or came too late, in {affected}."]
    if idle_sites:
        answers = count(len(idle_sites), "answer")
        sentences.append(
            f"{answers} brought no training, for want of images to train on ({named(idle_sites)})."
        )
    return " ".join(sentences)


def named(sites: Sequence[str]) -> str:
    """Return the sites' names, each once; of many only how many they are."""
    unique = dict.fromkeys(sites)
    if len(unique) > _NAMED:
        return f"{len(unique)} of them"
    return ", ".join(unique) or "none"


def spread(values: Mapping[str, float]) -> str:
    """Return the lowest and highest value with their sites."""
    low = min(values, key=values.__getitem__)
    high = max(values, key=values.__getitem__)
    if f"{values[low]:.3f}" == f"{values[high]:.3f}":
        return f"{values[low]:.3f} at each"
    return f"lowest {values[low]:.3f} at {low}, highest {values[high]:.3f} at {high}"
