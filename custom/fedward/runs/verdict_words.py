"""The sentences of a verdict; every page and command has its sentences on a model from here."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.errors import listed
from fedward.evaluation.histograms import ConfidenceHistogram
from fedward.runs.choices import site_test_values
from fedward.runs.measured import Measured
from fedward.runs.run import Run
from fedward.runs.sentences import in_brackets, leaked, named
from fedward.runs.verdict import FOUND_ENOUGH, RIGHT_ENOUGH, UNNAMED, Against, Finding, Verdict
from fedward.text import count

_MOST_IN_LEAD = 5
"""Classes up to which their names are listed rather than counted."""
_LONGEST_IN_LEAD = 60
"""Characters of a list of names in the first sentence."""
_MOST_CHAINED = 2
"""Exceptions up to which "and" joins them."""
_MOST_GROUPS = 6
"""Groups without numbers that are named."""
MOST_COMPARED = 5
"""Other runs that get a sentence each, at most."""
_MOST_UNCERTAIN = 14
"""Classes up to which those with few test images are named: the findings of a chest X-ray."""
_MOST_FOUND_LEAST = 4
"""Classes named with the share of their images that the model finds."""
_CLOSE = 0.05
"""Largest calibration error, and half of an interval's width, at which confidence is trusted."""
_CERTAIN = 30
"""Test images of a class below which its numbers are called uncertain."""


def percent(share: float) -> str:
    """Return a share in per cent, with one decimal."""
    return f"{share * 100:.1f}"


def of_hundred(share: float) -> str:
    """Return a share as a whole number of 100; only all and none are 100 and 0."""
    number = round(share * 100)
    if number == 100 and share < 1:
        return ">99"
    if number == 0 and share > 0:
        return "<1"
    return str(number)


def without_verdict(run: Run, round_: int | None) -> str:
    """Return why a run's model has no verdict, for a run without one.

    Args:
        run: the run.
        round_: of the model; None: no model was evaluated.
    """
    first_metric = run.label_kind.metric_names[0]
    if round_ is not None and site_test_values(run, first_metric, round_):
        return "No class has five test images at a site, so the quality of the model is unknown."
    return "It was not measured on test images, so its quality is unknown."


def lead(verdict: Verdict) -> str:
    """Return the verdict in one sentence or two: the answer, and what keeps it from being clear."""
    exceptions = _exceptions(verdict)
    answer = _answer(verdict)
    if exceptions:
        # The answer about a mixed model below the baseline has a "but" of its own.
        has_but = verdict.level == "mixed" and not verdict.is_above_baseline
        joint = ", and " if verdict.level == "poor" or has_but else ", but "
        # A long chain of "and" is not read to its end.
        between = ", and " if len(exceptions) <= _MOST_CHAINED else "; "
        answer += joint + between.join(exceptions)
    return f"{answer}."


def _answer(verdict: Verdict) -> str:
    """Return how the model compares with a constant answer or with guessing."""
    always = "guessing"
    if verdict.exclusive and verdict.common:
        always = f"always answering “{verdict.common.name}”"
    if verdict.is_above_baseline:
        return f"Better than {always}"
    if verdict.level == "mixed":
        if verdict.is_below_baseline:
            return f"It tells classes apart, but is right less often than {always}"
        return f"It tells classes apart, but is not shown to be right more often than {always}"
    if verdict.is_below_baseline:
        return f"Of no use: worse than {always}"
    return f"Not shown to be better than {always}"


def _exceptions(verdict: Verdict) -> list[str]:
    """Return what is wrong or missing, the worst first."""
    worse = [one.other for one in verdict.compared if one.is_worse]
    exceptions = [*_failures(verdict), *_gaps(verdict)]
    if worse:
        exceptions.append(f"it is worse than {named(worse, 'compared run')}")
    return exceptions


def _failures(verdict: Verdict) -> list[str]:
    """Return where the model fails."""
    failures = _failures_of_training(verdict)
    if verdict.never:
        never = "the sites' own models never answer" if verdict.own_models else "it never answers"
        if not verdict.exclusive:
            never = "it never finds"
        failures.append(f"{never} {_few_names(verdict.never)}")
    if verdict.missed:
        failures.append(
            f"it recognises none of the test {verdict.unit}s of {_few_names(list(verdict.missed))}"
        )
    if verdict.weak:
        failures.append(
            f"it finds fewer than half of the {verdict.unit}s of "
            f"{_few_names([f'{one.name} ({one.right} of {one.n})' for one in verdict.weak])}"
        )
    failures += _failures_in_subgroups(verdict)
    if verdict.guessed:
        failures.append(f"it only guesses about {_few_names(verdict.guessed)}")
    if verdict.alarms:
        them = "it" if len(verdict.alarms) == 1 else "them"
        failures.append(
            f"it sees {_few_names(verdict.alarms)} in more than half of the {verdict.unit}s "
            f"without {them}"
        )
    return failures


def _failures_of_training(verdict: Verdict) -> list[str]:
    """Return how training failed, or made the test worthless."""
    failures = []
    if verdict.unimproved:
        failures.append("no round of training improved it")
    if verdict.tested_on_training:
        what = " and ".join(f"{name}s" for name in verdict.tested_on_training)
        failures.append(f"some of the test {what} are also in training")
    return failures


def _failures_in_subgroups(verdict: Verdict) -> list[str]:
    """Return in which groups the model is worse, in one clause."""
    if not verdict.low_subgroups:
        return []
    worse = "is right less often for" if verdict.exclusive else "finds less in"
    return [f"it {worse} {_few_names([one.title for one in verdict.low_subgroups])}"]


def _gaps(verdict: Verdict) -> list[str]:
    """Return what was left out."""
    gaps = []
    if verdict.tested.untested:
        gaps.append(f"it was not tested for {_few_names(verdict.tested.untested)}")
    elif not verdict.tested.all_classes:
        gaps.append("not every class was tested at every site")
    if verdict.tested.not_trained:
        gaps.append("not every site trained it")
    if verdict.tested.not_evaluated:
        gaps.append("it was not tested at every site")
    return gaps


def subject(verdict: Verdict) -> str:
    """Return what is judged."""
    if verdict.own_models:
        return f"Each site's own model (round {verdict.round})"
    return f"The selected model (round {verdict.round})"


def numbers(verdict: Verdict) -> str:
    """Return the numbers from which the verdict follows."""
    sites = count(len(verdict.tested.evaluated), "site")
    if verdict.overall is None:
        return _ranking(verdict, sites)
    common = ""
    if verdict.common:
        common = (
            f" Always answering “{verdict.common.name}” would be right for "
            f"{percent(verdict.common.value)}\u00a0%."
        )
    return (
        f"{subject(verdict)} classifies {percent(verdict.overall.value)}\u00a0% of the "
        f"{count(verdict.overall.n, f'test {verdict.unit}')} of {sites} correctly "
        f"({interval(verdict.overall)}).{common}"
    )


def _ranking(verdict: Verdict, sites: str) -> str:
    auroc = verdict.auroc
    if auroc is None:
        return ""
    ends = f" ({auroc.ends()})" if auroc.has_width else ""
    return (
        f"The macro AUROC of {subject(verdict)[0].lower()}{subject(verdict)[1:]} is "
        f"{auroc.mean:.3f} on average over {sites}{ends}. Guessing would give 0.5."
    )


def interval(measured: Measured) -> str:
    """Return a share's 95 % interval in per cent."""
    if measured.low is None or measured.high is None:
        return ""
    return f"95 % interval {percent(measured.low)} to {percent(measured.high)}\u00a0%"


def short(verdict: Verdict) -> str:
    """Return the accuracy, and the lowest class and site, for a line of a terminal."""
    sentences = []
    if verdict.overall:
        sentences.append(
            f"Right for {percent(verdict.overall.value)} % of "
            f"{count(verdict.overall.n, f'test {verdict.unit}')}."
        )
    lowest = []
    for one in (verdict.worst_class, verdict.worst_site):
        if one and one.low is not None:
            lowest.append(f"{one.name} {percent(one.value)} % of {one.n}")
    group = verdict.worst_subgroup
    if group and group.is_below:
        lowest.append(f"{group.title} {percent(group.measured.value)} % of {group.measured.n}")
    if lowest:
        sentences.append(f"Lowest: {', '.join(lowest)}.")
    return " ".join(sentences)


def weakest(verdict: Verdict) -> str:
    """Return where the model is weakest: its worst class and its worst site."""
    sentences = []
    worst = verdict.worst_class
    if worst and worst.name == UNNAMED:
        sentences.append(
            f"Lowest by class: right for {percent(worst.value)}\u00a0% of the "
            f"{count(worst.n, f'test {verdict.unit}')} of classes too rare to name "
            f"({interval(worst)})."
        )
    elif worst:
        sentences.append(
            f"Lowest class: it finds {percent(worst.value)}\u00a0% of the "
            f"{count(worst.n, f'test {verdict.unit}')} of {worst.name} ({interval(worst)})."
        )
    site = verdict.worst_site
    if site and site.low is None:
        sentences.append(
            f"Lowest site: macro AUROC {site.value:.3f} at {site.name} "
            f"({count(site.n, f'test {verdict.unit}')})."
        )
    elif site:
        sentences.append(
            f"Lowest site: right for {percent(site.value)}\u00a0% of the "
            f"{count(site.n, f'test {verdict.unit}')} of {site.name} ({interval(site)})."
        )
    sentences.append(_weakest_group(verdict))
    return " ".join(sentence for sentence in sentences if sentence)


def _weakest_group(verdict: Verdict) -> str:
    """Return the subgroup that is furthest below what is expected; empty if none is below."""
    group = verdict.worst_subgroup
    if group is None:
        return ""
    share = group.measured
    right = "right for" if verdict.exclusive else "it finds"
    what = count(share.n, f"test {verdict.unit}" if verdict.exclusive else "finding")
    return (
        f"Group with the largest shortfall: {right} {percent(share.value)}\u00a0% of the "
        f"{what} of {group.title} ({interval(share)}); for all of the same classes and "
        f"sites it would be {percent(group.expected)}\u00a0%."
    )


def numbers_of_hundred(verdict: Verdict) -> str:
    """Return the same numbers for clinicians, counted of 100 images."""
    unit = verdict.unit
    if verdict.overall is None:
        auroc = verdict.auroc
        if auroc is None:
            return ""
        low, high = of_hundred(auroc.low), of_hundred(auroc.high)
        ends = ""
        if auroc.has_width and auroc.is_interval:
            ends = f" (95 % interval over sites {low} to {high})"
        elif auroc.has_width:
            ends = f" ({low} to {high} at {auroc.sites} sites)"
        return (
            "Shown one image with a finding and one without it, it ranks the right one higher in "
            f"{of_hundred(auroc.mean)} of 100 such pairs{ends}. Guessing would give 50."
        )
    overall = verdict.overall
    common = ""
    if verdict.common:
        common = (
            f" Always answering “{verdict.common.name}” would be right for "
            f"{of_hundred(verdict.common.value)}."
        )
    return (
        f"Of 100 test {unit}s it classifies {of_hundred(overall.value)} correctly "
        f"({_interval_of_hundred(overall)}, {overall.n} tested).{common}"
    )


def _interval_of_hundred(measured: Measured) -> str:
    if measured.low is None or measured.high is None:
        return ""
    return f"95 % interval {of_hundred(measured.low)} to {of_hundred(measured.high)}"


def weakest_of_hundred(verdict: Verdict) -> str:
    """Return the worst class and the worst site for clinicians."""
    unit = verdict.unit
    sentences = []
    worst = verdict.worst_class
    if worst and worst.name == UNNAMED:
        sentences.append(
            f"Worst for rare classes together: of 100 such {unit}s it classifies "
            f"{of_hundred(worst.value)} correctly ({_interval_of_hundred(worst)}, "
            f"{worst.n} tested)."
        )
    elif worst:
        sentences.append(
            f"Worst class: of 100 {unit}s of {worst.name} it finds {of_hundred(worst.value)} "
            f"({_interval_of_hundred(worst)}, {worst.n} tested)."
        )
    site = verdict.worst_site
    best = verdict.sites[-1] if verdict.sites else None
    if site and best and site.low is None:
        sentences.append(
            f"By site: it ranks the right one higher in {of_hundred(site.value)} of 100 pairs at "
            f"{site.name}, the lowest, to {of_hundred(best.value)} at {best.name}."
        )
    elif site and best and of_hundred(site.value) == of_hundred(best.value):
        sentences.append(f"At each site it is right for {of_hundred(site.value)} of 100 {unit}s.")
    elif site and best:
        sentences.append(
            f"By site: it is right for {of_hundred(site.value)} of 100 {unit}s at {site.name}, the "
            f"lowest ({_interval_of_hundred(site)}, {site.n} tested), to {of_hundred(best.value)} "
            f"at {best.name} ({best.n} tested)."
        )
    elif len(verdict.sites) > 1:
        sentences.append("All sites have the same share.")
    group = verdict.worst_subgroup
    if group and group.is_below:
        right = "it classifies" if verdict.exclusive else "it finds"
        of_what = f"{unit}s" if verdict.exclusive else "findings"
        correctly = " correctly" if verdict.exclusive else ""
        sentences.append(
            f"Worst group: of 100 {of_what} of {group.title} {right} "
            f"{of_hundred(group.measured.value)}{correctly} "
            f"({_interval_of_hundred(group.measured)}, {group.measured.n} tested), and "
            f"{of_hundred(group.expected)} of 100 of all of the same classes and sites."
        )
    return " ".join(sentences)


def not_tested(verdict: Verdict) -> str:
    """Return what was not tested, and which way leaving it out moves the numbers; else empty."""
    tested = verdict.tested
    unit = verdict.unit
    sentences = []
    total = len(tested.classes) + len(tested.untested)
    if tested.untested:
        classes = f"{listed(tested.untested)} ({len(tested.untested)} of {total} classes)"
        sentences.append(f"Not tested: {classes}.")
    if tested.unnamed:
        sentences.append(_unnamed(verdict))
    elif tested.untested:
        this_class = "this class" if len(tested.untested) == 1 else "these classes"
        if verdict.exclusive:
            sentences.append(
                f"{unit.capitalize()}s of {this_class} are in no number, so practice is probably "
                "worse than the numbers."
            )
        else:
            # Such images are tested all the same, for the other classes.
            sentences.append(f"No number says how often it finds {this_class}.")
    if tested.partly and not tested.unnamed:
        classes = listed(tested.partly)
        if len(tested.partly) > _MOST_IN_LEAD:
            classes = f"{len(tested.partly)} of {total} classes"
        what = f"of {classes}, which are not counted"
        if not verdict.exclusive:
            what = f"with or without {classes}, which are not counted there"
        sentences.append(
            f"Some sites have fewer than five test {unit}s {what}: it may be worse there."
        )
    if verdict.untested_subgroups:
        groups = listed(verdict.untested_subgroups[:_MOST_GROUPS])
        more = len(verdict.untested_subgroups) - _MOST_GROUPS
        further = f" and {more} more" if more > 0 else ""
        sentences.append(f"Groups without numbers, as sites have too few: {groups}{further}.")
    return " ".join(sentences)


def about_images(verdict: Verdict) -> str:
    """Return whether intervals allow for images of one patient; empty where patients count."""
    if verdict.unit != "image":
        return ""
    clustered = len(verdict.clustered_sites)
    if not clustered:
        return (
            "Images are counted as independent, so intervals are too narrow where a patient has "
            "several."
        )
    text = "They allow for patients and lesions with several images."
    if clustered < len(verdict.tested.evaluated):
        text = (
            f"They allow for patients and lesions with several images at {clustered} of "
            f"{count(len(verdict.tested.evaluated), 'site')}; elsewhere images are counted as "
            "independent."
        )
    if verdict.classes_of_few_patients:
        text += (
            " They are wide where a site tested fewer than five patients of a class, whose images "
            f"count as one: {listed(verdict.classes_of_few_patients)}."
        )
    return text


def _unnamed(verdict: Verdict) -> str:
    """Return how the images of classes too rare to name are counted."""
    images = count(verdict.tested.unnamed, verdict.unit)
    together = verdict.unnamed
    right = f", {together.right} classified correctly" if together else ""
    direction = ""
    if together and verdict.overall and together.value < verdict.overall.value:
        direction = ", so numbers by class look better than practice"
    return (
        f"Classes with fewer than five {verdict.unit}s at a site: {images}{right}. They count in "
        f"the total, but in no class{direction}."
    )


def took_no_part(verdict: Verdict) -> str:
    """Return which sites did not train or were not evaluated; empty if all did and were."""
    tested = verdict.tested
    all_sites = count(len(tested.sites), "site")
    sentences = []
    if tested.not_trained:
        sites = tested.not_trained
        their = "its" if len(sites) == 1 else "their"
        sentences.append(
            f"{len(sites)} of {all_sites} never trained{in_brackets(sites)}: the model has seen "
            f"none of {their} images."
        )
    if tested.without_training_images:
        sites = tested.without_training_images
        is_one = len(sites) == 1
        only_evaluate = "only evaluates" if is_one else "only evaluate"
        they_have = "it has" if is_one else "they have"
        sentences.append(
            f"{len(sites)} of {all_sites} {only_evaluate} the model{in_brackets(sites)}: "
            f"{they_have} no training images."
        )
    if tested.not_evaluated:
        sites = tested.not_evaluated
        their = "its" if len(sites) == 1 else "their"
        sentences.append(
            f"{len(sites)} of {all_sites} did not evaluate the model{in_brackets(sites)}: "
            f"{their} images are in no number."
        )
    return " ".join(sentences)


def where_tested(verdict: Verdict) -> str:
    """Return a sentence on whether the sites that tested the model also trained it."""
    evaluated = verdict.tested.evaluated
    # A run that keeps no record of rounds says of no site that it trained.
    strangers = [site for site in evaluated if site not in verdict.tested.trained]
    if verdict.unimproved:
        return "It was tested at the sites of its run alone."
    sites = count(len(evaluated), "site")
    if not verdict.tested.trained and not verdict.tested.trains_at_sites:
        return f"It was tested at {sites}, and no site trained it."
    if not strangers or not verdict.tested.trained:
        return "It was tested at the sites that trained it."
    if len(strangers) == len(evaluated):
        return f"It was tested at {sites} that did not train it."
    return f"It was tested at {sites}, {len(strangers)} of which did not train it."


def comparisons(verdict: Verdict) -> list[str]:
    """Return a sentence on each other run that the model was compared with."""
    return [_comparison(one) for one in verdict.compared[:MOST_COMPARED]]


def _comparison(against: Against) -> str:
    difference = against.difference
    change = f"{difference.mean:+.3f}"
    if difference.low is not None and difference.high is not None:
        change += f" (95 % interval {difference.low:+.3f} to {difference.high:+.3f})"
    result = "Not shown to be better than"
    if against.is_better:
        result = "Better than"
    elif against.is_worse:
        result = "Worse than"
    return (
        f"{result} {against.other}: {change} in test {against.metric}, paired over "
        f"{count(difference.n, 'site')}."
    )


def ask_human(verdict: Verdict) -> str:
    """Return when a human has to read; "every image" unless all was tested.

    It is one sentence, or two where a model that may name several classes needs less for some.
    """
    if not verdict.exclusive:
        return _ask_about_findings(verdict)
    unit = verdict.unit
    reason = why_ask_always(verdict)
    if reason:
        return f"Ask a human about every {unit}: {reason}."
    if verdict.needs_no_human:
        return (
            f"{unit.capitalize()}s like the tested ones need no human: it is right for 95 of 100."
        )
    wanted, share = _advised(verdict)
    if share is not None:
        return (
            f"Ask a human about the {of_hundred(share)} of 100 {unit}s that it is least sure "
            f"about: it is right for at least {of_hundred(wanted)} of 100 of the others."
        )
    return f"Ask a human about every {unit}: it is not shown to be right for 95 of 100."


def _advised(verdict: Verdict) -> tuple[float, float | None]:
    """Return the largest share of right answers that a referral reaches, and the share to refer.

    The share to refer is None where no referral reaches any.
    """
    for wanted, share in reversed(verdict.referred):
        if share is not None:
            return wanted, share
    return RIGHT_ENOUGH, None


def why_ask_always(verdict: Verdict) -> str:
    """Return why a human has to read every image; empty where the surest answers may do.

    Where it is not empty, no page says how many images a human has to read.
    """
    tested = verdict.tested
    reasons = []
    if verdict.level == "poor":
        use = "of use" if verdict.exclusive else "better than guessing"
        reasons.append(f"it is not shown to be {use}")
    if verdict.exclusive:
        reasons += _failures(verdict)
    else:
        # Findings that it misses or only guesses are named one by one, with how many images of each
        # a human has to read.
        reasons += [*_failures_of_training(verdict), *_failures_in_subgroups(verdict)]
    if tested.untested:
        reasons.append(f"it was not tested for {_few_names(tested.untested)}")
    if tested.unnamed or tested.partly:
        reasons.append("some classes were tested on too few images, or not at every site")
    if tested.not_evaluated:
        reasons.append("it was not tested at every site")
    if tested.not_trained:
        reasons.append("not every site trained it")
    worse = [one.other for one in verdict.compared if one.is_worse]
    if worse:
        reasons.append(f"it is worse than {named(worse, 'compared run')}")
    if verdict.exclusive:
        reasons += _doubts_about_answers(verdict)
    return reasons[0] if reasons else ""


def _doubts_about_answers(verdict: Verdict) -> list[str]:
    """Return why the surest of its answers do not do without a human, where one is right."""
    doubts = []
    if not verdict.is_above_baseline and verdict.common:
        doubts.append(
            f"it is not shown to be right more often than always answering “{verdict.common.name}”"
        )
    if verdict.is_right_enough and verdict.doubtful:
        doubts.append(
            f"it is not shown to find {of_hundred(FOUND_ENOUGH)} of 100 {verdict.unit}s of "
            f"{_few_names([one.name for one in verdict.doubtful])}"
        )
    if verdict.confidence is None:
        doubts.append(f"its confidence was not counted for all test {verdict.unit}s")
    # The lowest share of right answers that all of its answers together are not shown to reach.
    for wanted, share in verdict.referred[:1]:
        if share is None:
            doubts.append(
                f"not even its surest answers are shown to be right for {of_hundred(wanted)} of 100"
            )
    return doubts


def _ask_about_findings(verdict: Verdict) -> str:
    """Return when a human has to read, for a model that may name several classes."""
    every = f"Ask a human about every {verdict.unit}"
    reason = why_ask_always(verdict)
    if reason:
        return f"{every}: {reason}."
    findings = findings_to_read(verdict, [one.name for one in verdict.findings])
    if len(findings.not_shown) == len(verdict.findings):
        return f"{every}: it is not shown to find {of_hundred(FOUND_ENOUGH)} of 100 of any finding."
    always = [one.name for one in (*findings.missed, *findings.never_sure, *findings.not_shown)]
    if always:
        others = ""
        if findings.least_sure:
            names = _few_names([finding.name for finding, _ in findings.least_sure])
            others = f" For {names}, about those that it is least sure of."
        return f"{every} for {_few_names(always)}.{others}"
    if findings.least_sure:
        most, share = max(findings.least_sure, key=lambda pair: pair[1])
        return (
            f"Ask a human about the {verdict.unit}s that it is least sure of, up to "
            f"{of_hundred(share)} of 100 for {most.name}."
        )
    return f"{verdict.unit.capitalize()}s like the tested ones need no human."


def other_referrals(verdict: Verdict) -> list[str]:
    """Return what referrals other than the advised one bring, where each image has one answer.

    Where a human has to read every image, no number of images stands beside that. Empty for several
    findings.
    """
    if verdict.overall is None or why_ask_always(verdict):
        return []
    advised = _advised(verdict)
    return [
        _referral(verdict, wanted, share)
        for wanted, share in verdict.referred
        if (wanted, share) != advised
    ]


def _referral(verdict: Verdict, wanted: float, share: float | None) -> str:
    """Return what a human has to read so that enough of the other answers are right."""
    unit = verdict.unit
    if share is None:
        return (
            f"No number of {unit}s that a human reads is shown to be enough for "
            f"{of_hundred(wanted)} right answers of 100 to the others."
        )
    return (
        f"If a human reads the {of_hundred(share)} of 100 {unit}s that it is least sure about, it "
        f"is right for at least {of_hundred(wanted)} of 100 of the others."
    )


def trust(verdict: Verdict) -> str:
    """Return whether its confidence can be trusted; empty for several findings."""
    if verdict.overall is None:
        return ""
    if verdict.confidence is None:
        return (
            f"The counts of this run do not cover all test {verdict.unit}s, so the page cannot say "
            "when to trust its confidence."
        )
    return (
        f"{_trust(verdict, verdict.confidence, verdict.overall)}: on average it is "
        f"{of_hundred(verdict.confidence.mean)}\u00a0% sure, and is right for "
        f"{of_hundred(verdict.overall.value)} of 100 {verdict.unit}s."
    )


def _trust(verdict: Verdict, confidence: ConfidenceHistogram, right: Measured) -> str:
    """Return whether confidence can be trusted, as far as these answers show."""
    low = right.low or 0.0
    high = 1.0 if right.high is None else right.high
    if verdict.level == "poor":
        # A model that always gives one answer may be as sure as it is right.
        return "No, as it is not shown to be of use"
    if confidence.mean > high:
        return "No, it is surer than it is right"
    if confidence.mean < low:
        return "No, it is right more often than it is sure"
    if high - low > 2 * _CLOSE:
        return f"There are too few test {verdict.unit}s to say"
    if (confidence.calibration_error or 0.0) > _CLOSE:
        return "Only as a whole, as some of its answers are right more or less often than it says"
    return "On the whole yes"


@dataclass(frozen=True)
class FindingsToRead:
    """The findings of a model that may name several, by the images that a human has to read."""

    no_image: tuple[Finding, ...]
    """Answers are right often enough without a human, and the finding is found as often."""
    least_sure: tuple[tuple[Finding, float], ...]
    """Findings with the share of images, the least certain ones, that a human has to read."""
    not_shown: tuple[Finding, ...]
    """Read all: answers were right, and the finding found, often enough on the tested images, but
    this is not shown for others."""
    missed: tuple[Finding, ...]
    """Read all: too many images with the finding are missed, whatever the share of right answers.
    """
    never_sure: tuple[Finding, ...]
    """Read all: even the surest answers are not right often enough."""


def findings_to_read(verdict: Verdict, names: Sequence[str]) -> FindingsToRead:
    """Divide the findings with these names by the images that a human has to read."""
    no_image = []
    least_sure = []
    not_shown = []
    missed = []
    never_sure = []
    is_whole = not why_ask_always(verdict)
    for finding in verdict.findings:
        if finding.name not in names:
            continue
        share = finding.referred[-1]
        if finding.found.value < FOUND_ENOUGH:
            missed.append(finding)
        elif share is None:
            never_sure.append(finding)
        elif share > 0:
            least_sure.append((finding, share))
        elif is_whole and _is_shown(finding):
            no_image.append(finding)
        else:
            not_shown.append(finding)
    return FindingsToRead(
        tuple(no_image), tuple(least_sure), tuple(not_shown), tuple(missed), tuple(never_sure)
    )


def reasons_by_finding(verdict: Verdict, names: Sequence[str]) -> list[str]:
    """Return why a human has to read which images, of a model that may name several classes.

    Empty where a human has to read every image, and where each image has one answer.

    Args:
        verdict: on the model.
        names: of the findings to speak of.
    """
    if verdict.exclusive or why_ask_always(verdict):
        return []
    findings = findings_to_read(verdict, names)
    wanted = of_hundred(RIGHT_ENOUGH)
    found = of_hundred(FOUND_ENOUGH)
    right = f"its answer, yes or no, is right for {wanted} of 100 images or more"
    reasons = []
    if findings.no_image:
        reasons.append(f"{_names(findings.no_image)}: {right} without a human.")
    if findings.not_shown:
        reasons.append(
            f"{_names(findings.not_shown)}: {right}, but it is not shown to find {found} of 100."
        )
    if findings.least_sure:
        shares = [
            f"{of_hundred(share)} of 100 for {one.name}" for one, share in findings.least_sure
        ]
        reasons.append(
            f"For {wanted} right answers of 100 to the others, a human has to read of the images "
            f"that it is least sure of: {', '.join(shares)}."
        )
    if findings.missed:
        reasons.append(
            f"{_names(findings.missed)}: it finds fewer than {found} of 100, however often its "
            "“no” is right."
        )
    if findings.never_sure:
        reasons.append(
            f"{_names(findings.never_sure)}: not even its surest answers are shown to be right "
            f"for {wanted} of 100 images."
        )
    return [
        *reasons,
        "For a rare finding, most correct answers are simply “no”. Also check in the table how "
        "many it finds.",
    ]


def _names(findings: Sequence[Finding]) -> str:
    return listed([finding.name for finding in findings])


def _is_shown(finding: Finding) -> bool:
    """Return whether answers are right, and the finding is found, often enough by all intervals."""
    return (finding.right.low or 0) >= RIGHT_ENOUGH and (finding.found.low or 0) >= FOUND_ENOUGH


def uncertain_classes(verdict: Verdict) -> str:
    """Return which classes have few test images; empty if none has."""
    few = [f"{one.name} ({one.n})" for one in verdict.classes if one.n < _CERTAIN]
    if not few:
        return ""
    which = listed(few)
    if len(few) > _MOST_UNCERTAIN:
        which = f"{len(few)} of the {len(verdict.classes)} tested classes"
    return f"Numbers for {which} rest on few test {verdict.unit}s and may be far off."


def found_least(verdict: Verdict) -> str:
    """Return of 100 images how many it finds of each class that it finds least; may be empty."""
    if len(verdict.classes) < 2:
        return ""
    least, *others = verdict.classes[:_MOST_FOUND_LEAST]
    shares = [f"{least.name} ({of_hundred(least.value)} of 100 {verdict.unit}s)"]
    shares += [f"{one.name} ({of_hundred(one.value)})" for one in others]
    return f"Classes that it finds least often: {listed(shares)}."


def text(verdict: Verdict) -> str:
    """Return the verdict for a notebook or a model card, in a paragraph."""
    images = about_images(verdict)
    sentences = [
        lead(verdict),
        numbers(verdict),
        weakest(verdict),
        not_tested(verdict),
        took_no_part(verdict),
        *leaked(verdict.leaks),
        *comparisons(verdict),
        f"Intervals: {images[0].lower()}{images[1:]}" if images else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _few_names(names: Sequence[str]) -> str:
    """Return names as a list that says how many it leaves out, if it would be too long."""
    shown = list(names)
    while len(shown) > 1 and len(", ".join(shown)) > _LONGEST_IN_LEAD:
        shown.pop()
    names_shown = listed(shown)
    if len(names) > len(shown):
        return f"{names_shown} and {len(names) - len(shown)} more"
    return names_shown
