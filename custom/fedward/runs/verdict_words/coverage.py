"""What a model was tested on, what it was not, and how far its numbers can be relied on."""

from fedward.errors import listed
from fedward.runs.choices import site_test_values
from fedward.runs.run import Run
from fedward.runs.sentences import in_brackets
from fedward.runs.verdict import Verdict
from fedward.text import count

_MOST_NAMED = 5
"""Classes up to which their names are listed rather than counted."""
_MOST_GROUPS = 6
"""Groups without numbers that are named."""
_MOST_UNCERTAIN = 14
"""Classes up to which those with few test images are named: the findings of a chest X-ray."""
_CERTAIN = 30
"""Test images of a class below which its numbers are called uncertain."""


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


def not_tested(verdict: Verdict) -> str:
    """Return what was not tested, and which way leaving it out moves the numbers; else empty."""
    sentences = [
        *_untested_classes(verdict),
        *_partly_tested_classes(verdict),
        *_untested_subgroups(verdict),
    ]
    return " ".join(sentences)


def _untested_classes(verdict: Verdict) -> list[str]:
    """Return which classes have no number, and what becomes of their images."""
    tested = verdict.tested
    sentences = []
    if tested.untested:
        total = len(tested.classes) + len(tested.untested)
        classes = f"{listed(tested.untested)} ({len(tested.untested)} of {total} classes)"
        sentences.append(f"Not tested: {classes}.")
    if tested.unnamed:
        return [*sentences, _unnamed(verdict)]
    if tested.untested:
        this_class = "this class" if len(tested.untested) == 1 else "these classes"
        if verdict.exclusive:
            sentences.append(
                f"{verdict.unit.capitalize()}s of {this_class} are in no number, so practice is "
                "probably worse than the numbers."
            )
        else:
            # Such images are tested all the same, for the other classes.
            sentences.append(f"No number says how often it finds {this_class}.")
    return sentences


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


def _partly_tested_classes(verdict: Verdict) -> list[str]:
    """Return of which tested classes some sites have too few images; see also _unnamed."""
    tested = verdict.tested
    if not tested.partly or tested.unnamed:
        return []
    classes = listed(tested.partly)
    if len(tested.partly) > _MOST_NAMED:
        total = len(tested.classes) + len(tested.untested)
        classes = f"{len(tested.partly)} of {total} classes"
    what = f"of {classes}, which are not counted"
    if not verdict.exclusive:
        what = f"with or without {classes}, which are not counted there"
    return [f"Some sites have fewer than five test {verdict.unit}s {what}: it may be worse there."]


def _untested_subgroups(verdict: Verdict) -> list[str]:
    """Return which groups have no number; none where all have one."""
    if not verdict.untested_subgroups:
        return []
    groups = listed(verdict.untested_subgroups[:_MOST_GROUPS])
    more = len(verdict.untested_subgroups) - _MOST_GROUPS
    further = f" and {more} more" if more > 0 else ""
    return [f"Groups without numbers, as sites have too few: {groups}{further}."]


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


def uncertain_classes(verdict: Verdict) -> str:
    """Return which classes have few test images; empty if none has."""
    few = [f"{one.name} ({one.n})" for one in verdict.classes if one.n < _CERTAIN]
    if not few:
        return ""
    which = listed(few)
    if len(few) > _MOST_UNCERTAIN:
        which = f"{len(few)} of the {len(verdict.classes)} tested classes"
    return f"Numbers for {which} rest on few test {verdict.unit}s and may be far off."
