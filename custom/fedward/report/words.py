"""The report's findings as sentences a clinician can read; every number comes from the tables."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedward.errors import listed
from fedward.evaluation.intervals import proportion_interval
from fedward.evaluation.selection import Selection, is_above, mean_over_sites
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.exchanges import took_no_step
from fedward.runs.over_sites import over_sites
from fedward.runs.run import Run
from fedward.runs.sentences import (
    in_brackets,
    lowest_and_highest,
    named,
    network_parts,
    no_head,
    nothing_to_judge,
)
from fedward.runs.site_lines import SiteLine
from fedward.runs.titles import title_of
from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words import coverage
from fedward.runs.verdict_words.shares import of_hundred
from fedward.storage.info import INTERRUPTED
from fedward.text import count

_CLOSE = 0.05
"""Half-width of an accuracy's 95 % interval up to which validation images suffice to select by."""
_MOST_DETAILED = 5
"""Number of sites that a sentence lists at most if it adds a detail to each."""


def banner(run: Run) -> str | None:
    """Return a sentence on a run that has failed or not finished; None for a finished one."""
    if run.info.status == "finished":
        return None
    rounds = max((row.round for row in run.rounds), default=0)
    recorded = f"{count(rounds, 'round')} on record"
    if run.info.status == "failed" and run.info.summary.reason == INTERRUPTED:
        return (
            f"This run was stopped by a person, with {recorded}. In a terminal, fedward status "
            "FOLDER names the command that continues it."
        )
    if run.info.status == "failed":
        reason = run.info.summary.reason or "no reason was recorded"
        return f"This run failed, with {recorded}: {reason}"
    return (
        f"This run has not finished, with {recorded}: it is still going on, or it was killed. "
        "Numbers are provisional."
    )


def findings(run: Run, choices: Choices, sites: Sequence[SiteLine]) -> list[str]:
    """Return sentences on a run's results and their limits, the most important first."""
    sentences = [
        nothing_to_judge(run.info.untrained),
        _ranking(run, choices),
        _key_metric(run, choices),
        kept_at_sites(run),
        _labels_at_server(run),
        _selection(run, choices),
        _last_model(run, choices),
        _not_evaluated(run),
        no_head(run.info.summary.without_head),
        _unreported_classes(run, sites),
        _few_test_images(sites, run.unit),
        _missing_replies(run),
    ]
    return [sentence for sentence in sentences if sentence]


def headline(choices: Choices, unit: str) -> list[str]:
    """Return a sentence on the key metric over the last rounds; none if it was not measured."""
    end = choices.end
    values = [choice.test for choice in end.sites if choice.test is not None]
    mean = over_sites(values, end.metric)
    if mean is None:
        return []
    rounds = ", ".join(map(str, end.rounds))
    when = f"After round {rounds}"
    if len(end.rounds) > 1:
        when = f"Over the last evaluations (rounds {rounds})"
    where = "on average over sites" if mean.sites > 1 else "at the only site that measured it"
    result = f"{when}, test {title_of(end.metric)} is {mean.mean:.3f} {where}"
    if mean.has_width:
        result += f" ({mean.ends()})"
    if end.pooled is not None:
        result += f", and {end.pooled:.3f} where each {unit} of all sites counts once"
    return [f"{result}."]


def _ranking(run: Run, choices: Choices) -> str | None:
    """Return sentences on the selected model's macro AUROC; None where it is not measured."""
    values = site_test_values(run, "auroc_macro", choices.reported)
    if not values:
        return None
    average = fmean(values.values())
    before = ""
    if choices.shared.metric == "auroc_macro":
        before = _before_training(run, "auroc_macro")
    where = f"On average over {count(len(values), 'site')}"
    if len(values) == 1:
        where = "At the only site that measured it"
    return (
        f"{where}, {described_model(run)} "
        f"(round {choices.reported}) has a macro AUROC of {average:.3f} on test {run.unit}s "
        f"({lowest_and_highest(values)}){before}. Shown one {run.unit} "
        f"{run.label_kind.ranked_pair}, it ranks the right one higher in {of_hundred(average)} of "
        "100 such pairs; guessing would give 50."
    )


def described_model(run: Run) -> str:
    """Return what the numbers of one round are of."""
    if run.info.models_stay_at_sites:
        return "each site's own model"
    return "the selected model"


def _key_metric(run: Run, choices: Choices) -> str | None:
    """Return a sentence on the selected model's key metric; None where it is not measured."""
    metric = choices.shared.metric
    values = site_test_values(run, metric, choices.reported)
    # The sentences on ranking give the macro AUROC.
    if not values or metric == "auroc_macro":
        return None
    average = fmean(values.values())
    before = _before_training(run, metric)
    return (
        f"Its test {title_of(metric)} is {average:.3f} on average "
        f"({lowest_and_highest(values)}){before}."
    )


def _before_training(run: Run, metric: str) -> str:
    """Return the end of a sentence: a metric before training; empty where it is not measured."""
    start = site_test_values(run, metric, 0)
    if not start:
        return ""
    moment = "after the server's first training" if run.server_labels else "before training"
    return f"; {moment} it was {fmean(start.values()):.3f}"


def about_intervals(run: Run, verdict: Verdict | None) -> str:
    """Return what the intervals of a report say and do not say."""
    sentences = ""
    if run.label_kind.exclusive or (verdict and verdict.classes):
        sentences = f"Intervals of shares show which true shares fit these test {run.unit}s. "
        about_images = coverage.about_images(verdict) if verdict else ""
        if about_images:
            sentences += f"{about_images} "
    if verdict and verdict.subgroups:
        sentences += "Intervals of groups are wider, so that all of them hold at once. "
    return (
        f"{sentences}Intervals over sites are for the mean over all sites like these. One run "
        "cannot show how much another seed would change."
    )


def first_model(run: Run) -> str:
    """Return what the model of round 0 is."""
    if run.server_labels:
        return "the model that only the server has trained so far"
    return "the model before training"


def _labels_at_server(run: Run) -> str | None:
    """Return sentences on a run whose labels were at the server; None for any other run."""
    if not run.server_labels:
        return None
    return (
        f"The server alone had labels: it trained on {count(run.server_labels, 'labelled image')} "
        "of its own, before the first round and after each. The sites used no label for training."
    )


def kept_at_sites(run: Run) -> str | None:
    """Return sentences on the tensors that each site trained for itself; None without any."""
    if not run.info.private or run.info.untrained:
        return None
    if run.info.models_stay_at_sites:
        return (
            "Each site trained a model of its own and kept it: all numbers are of the sites' own "
            "models. model.safetensors and best.safetensors are the model before training."
        )
    parts = network_parts(run.info.private)
    return (
        f"Each site trained a {parts} of its own and kept it: all numbers are of the common model "
        f"with the site's own {parts}. The {parts} in model.safetensors and best.safetensors is "
        "untrained."
    )


def _selection(run: Run, choices: Choices) -> str | None:
    """Return sentences on how the round was selected, and how papers' selection would differ."""
    shared = choices.shared
    own = choices.own
    if shared.round is None or shared.test is None or own.test is None or shared.val is None:
        return None
    means = mean_over_sites(run.metrics, shared.metric)
    # Such a round was measured at too few of the sites (judged_by_most).
    is_passed_over = any(is_above(value, shared.val) for value in means.values())
    among = " of the rounds that most sites measured" if is_passed_over else ""
    sentences = (
        f"Round {shared.round} was selected because its mean validation "
        f"{title_of(shared.metric)} is the highest{among} ({shared.val:.3f}). If each site kept "
        f"its own best round, as in some papers, the mean test value would be {own.test:.3f}"
        f"{_at_fewer_sites(own, shared)}."
    )
    if shared.round == 0:
        sentences += f" It is {first_model(run)}: no round improved on it."
    return sentences


def _at_fewer_sites(own: Selection, shared: Selection) -> str:
    """Return what the selected round has at the sites that chose a round; empty if all did."""
    sites = {choice.site for choice in own.sites if choice.test is not None}
    values = {choice.site: choice.test for choice in shared.sites if choice.test is not None}
    if sites == set(values):
        return ""
    there = [value for site, value in values.items() if site in sites]
    if not there:
        return f" at {named(sorted(sites))}"
    return f" at {named(sorted(sites))}, where the selected round has {fmean(there):.3f}"


def selected_by_luck(choices: Choices, images: int, unit: str) -> str | None:
    """Return a sentence if too few validation images select a round; None if there are enough."""
    if not images:
        if choices.last.round is None:
            return None
        return (
            f"No site reports validation {unit}s, of five or more in a class, so no round was "
            "chosen by them."
        )
    # The interval is widest for a share of 0.5, so half of it bounds the error of any other.
    half_width = 0.5 - proportion_interval(0.5, images)[0]
    if choices.shared.round is None or half_width <= _CLOSE:
        return None
    return (
        f"There are {count(images, f'validation {unit}')} to select a round by. With so few, a "
        f"share of right answers may be off by {half_width:.2f}, so closer rounds cannot be told "
        "apart."
    )


def validated_on_one_class(run: Run, sites: Sequence[SiteLine]) -> str | None:
    """Return sentences on sites whose validation images show a single class; None without any.

    In a multi-label job such images are no problem, because each class is a question of its own.
    """
    affected = [line.site for line in sites if line.val_classes == 1]
    if not run.label_kind.exclusive or not affected:
        return None
    return (
        f"{named(affected)}: the validation {run.unit}s that are reported show one class, so a "
        "model that always names it looks perfect there. Such a site can choose a round by luck; "
        "the last rounds do not depend on the choice."
    )


def _last_model(run: Run, choices: Choices) -> str | None:
    """Return sentences on the newest model that was measured; None without one."""
    last = choices.last
    if last.test is None or last.round is None:
        return None
    # A summary may lack the number of rounds.
    last_round = run.info.summary.rounds or last.round
    model = "newest measured model"
    if run.info.status == "finished" and last.round == last_round:
        model = "final model"
    subject = f"The {model}"
    if run.info.models_stay_at_sites:
        subject = f"Each site's {model}"
    sentences = (
        f"{subject} (round {last.round}) has a test {title_of(last.metric)} of {last.test:.3f}"
    )
    if run.info.models_stay_at_sites:
        sentences += " on average over sites"
    auroc = site_test_values(run, "auroc_macro", last.round)
    if auroc and last.metric != "auroc_macro":
        sentences += f" and a macro AUROC of {fmean(auroc.values()):.3f}"
    sentences += "."
    if last.round == choices.reported:
        sentences += " It is the selected round."
    return sentences


def _not_evaluated(run: Run) -> str | None:
    """Return a sentence on sites that did not evaluate the final model; None without any."""
    sites = list(run.info.summary.not_evaluated)
    if not sites:
        return None
    them = "it is" if len(sites) == 1 else "they are"
    return (
        f"{len(sites)} of {count(len(run.info.sites), 'site')} did not evaluate the final "
        f"model{in_brackets(sites)}; {them} not in its numbers."
    )


def _unreported_classes(run: Run, sites: Sequence[SiteLine]) -> str | None:
    """Return a sentence on sites that report nothing about some classes; None without any."""
    untold = {line.site: line.untold for line in sites if line.untold}
    if not untold:
        return None
    rarity = f"some classes have fewer than five test {run.unit}s, or none"
    if not run.label_kind.exclusive:
        rarity = f"some classes have fewer than five test {run.unit}s with them, or without them"
    return f"At {count(len(untold), 'site')}, {rarity}, and are not measured{_classes_of(untold)}."


def _classes_of(by_site: Mapping[str, Sequence[str]]) -> str:
    """Return each site's classes in brackets; for many sites, where the report lists them."""
    if len(by_site) > _MOST_DETAILED:
        return " (see Results per class)"
    classes = "; ".join(f"{site}: {listed(names)}" for site, names in by_site.items())
    return f" ({classes})"


def _few_test_images(sites: Sequence[SiteLine], unit: str) -> str | None:
    """Return a sentence on sites whose numbers rest on too few test images; None without any."""
    small = [f"{line.site} ({line.test})" for line in sites if line.test and line.few]
    if not small:
        return None
    where = ", ".join(small) if len(small) <= _MOST_DETAILED else f"at {len(small)} sites"
    return f"Too few test {unit}s for a reliable number: {where}."


def _missing_replies(run: Run) -> str | None:
    """Return sentences on sites that did not reply or had nothing to train on; None if none ran."""
    rounds = {row.round for row in run.rounds}
    if not rounds:
        return None
    # One entry for each answer, so a site or a round may occur several times.
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
            f"{answers} brought no training, because the site had no image to learn from: none "
            f"with a label, or with a pseudo-label that is certain enough ({named(idle_sites)})."
        )
    return " ".join(sentences)
