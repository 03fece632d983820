"""The sentences of a verdict, word by word, on verdicts whose numbers are made by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedward.evaluation.histograms import ConfidenceHistogram
from fedward.evaluation.intervals import Interval
from fedward.report.forest import Forest
from fedward.runs import verdict as verdicts
from fedward.runs.measured import Measured
from fedward.runs.over_sites import over_sites
from fedward.runs.subgroups import Subgroup
from fedward.runs.verdict import UNNAMED, Against, Finding, Verdict
from fedward.runs.verdict_words import (
    advice,
    comparisons,
    coverage,
    findings,
    for_clinicians,
    in_percent,
    in_short,
)
from fedward.runs.verdict_words.failures import failures, few_names
from fedward.runs.verdict_words.reasons import why_ask_always
from fedward.runs.verdict_words.shares import of_hundred

SITES = ("north", "south", "west")
TESTED = verdicts.Tested(
    images=400,
    classes=("A", "B"),
    untested=(),
    partly=(),
    unnamed=0,
    sites=SITES,
    trained=SITES,
    evaluated=SITES,
)
SOUND = Verdict(
    level="good",
    round=3,
    unit="image",
    own_models=False,
    exclusive=True,
    tested=TESTED,
    overall=Measured.of_counts("", 360, 400),
    auroc=None,
    luck=0.0,
    common=Measured.of_counts("A", 240, 400),
    classes=(Measured.of_counts("B", 130, 160), Measured.of_counts("A", 230, 240)),
    unnamed=None,
    sites=(Measured.of_counts("north", 160, 200), Measured.of_counts("south", 200, 200)),
    never=(),
    missed={},
    guessed=(),
    alarms=(),
    unimproved=False,
    tells_apart=True,
    confidence=ConfidenceHistogram.of_answers(np.full(400, 0.97), np.arange(400) < 360),
    design_effect=1.0,
    findings=(),
    subgroups=(),
    untested_subgroups=(),
    clustered_sites=(),
    classes_of_few_patients=(),
    leaks={},
    compared=(),
)
"""A verdict that finds nothing wrong."""
WOMEN = Subgroup("sex", Measured.of_counts("women", 60, 100), 0.8, (), ())
BETTER_RUN = Against("fedavg", "accuracy", Interval(-0.2, 0.04, -0.3, -0.1, 3))


def all_but(**changes: Any) -> verdicts.Tested:
    """Return what was tested, which is all but for the changes."""
    return replace(TESTED, **changes)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0"), (0.004, "<1"), (0.5, "50"), (0.994, "99"), (0.996, ">99"), (1, "100")],
)
def test_only_all_and_none_are_called_so(share: float, words: str) -> None:
    assert of_hundred(share) == words


# --- how good it is


def test_the_weakest_class_site_and_group_have_their_numbers() -> None:
    verdict = replace(SOUND, subgroups=(WOMEN,))
    assert for_clinicians.weakest(verdict) == (
        "Worst class: of 100 images of B it finds 81 (95 % interval 74 to 87, 160 tested). "
        "By site: it is right for 80 of 100 images at north, the lowest (95 % interval 74 to 85, "
        "200 tested), to 100 at south (200 tested). "
        "Worst group: of 100 images of women (sex) it classifies 60 correctly (95 % interval 50 to "
        "69, 100 tested), and 80 of 100 of all of the same classes and sites."
    )
    assert in_percent.weakest(verdict).replace("\u00a0", " ") == (
        "Lowest class: it finds 81.2 % of the 160 test images of B (95 % interval 74.5 to 86.5 %). "
        "Lowest site: right for 80.0 % of the 200 test images of north (95 % interval 73.9 to "
        "85.0 %). "
        "Group with the largest shortfall: right for 60.0 % of the 100 test images of women (sex) "
        "(95 % interval 50.2 to 69.1 %); for all of the same classes and sites it would be 80.0 %."
    )
    assert in_short.line(verdict) == (
        "Right for 90.0 % of 400 test images. Lowest: B 81.2 % of 160, north 80.0 % of 200, women "
        "(sex) 60.0 % of 100."
    )


def test_the_class_that_is_found_most_is_not_among_those_found_least() -> None:
    def found(**values: float) -> str:
        classes = tuple(Measured(name, value, 0.0, 1.0, 50) for name, value in values.items())
        return for_clinicians.found_least(replace(SOUND, classes=classes))

    assert found(A=0.4, B=0.6, C=0.9) == (
        "Classes that it finds least often: A (40 of 100 images), B (60)."
    )
    assert found(A=0.4, B=1.0, C=1.0) == "Class that it finds least often: A (40 of 100 images)."
    assert found(A=1.0, B=1.0) == ""
    assert found(A=0.4) == ""


def test_rare_classes_are_named_together_on_the_line_of_a_terminal() -> None:
    rare = Measured(UNNAMED, 0.2, 0.1, 0.4, 29)
    verdict = replace(SOUND, classes=(rare, *SOUND.classes), subgroups=())
    assert "Lowest: classes too rare to name 20.0 % of 29, " in in_short.line(verdict)


def test_a_group_that_may_be_as_well_off_is_not_called_the_worst() -> None:
    women = replace(WOMEN, expected=0.65)
    verdict = replace(SOUND, subgroups=(women,))
    assert "women" not in for_clinicians.weakest(verdict) + in_short.line(verdict)
    assert "60.0\u00a0% of the 100 test images of women (sex)" in in_percent.weakest(verdict)


def test_of_a_group_it_is_findings_that_are_found() -> None:
    verdict = replace(SOUND, subgroups=(WOMEN,), exclusive=False, classes=(), sites=())
    assert for_clinicians.weakest(verdict).startswith(
        "Worst group: of 100 findings of women (sex) it finds 60 (95 % interval 50 to 69"
    )
    assert ": it finds 60.0\u00a0% of the 100 findings of women" in in_percent.weakest(verdict)


def test_classes_too_rare_to_name_may_be_the_worst_together() -> None:
    verdict = replace(SOUND, unnamed=Measured.of_counts(UNNAMED, 5, 20), sites=())
    assert for_clinicians.weakest(verdict) == (
        "Worst for rare classes together: of 100 such images it classifies 25 correctly (95 % "
        "interval 11 to 47, 20 tested)."
    )
    assert in_percent.weakest(verdict).startswith(
        "Lowest by class: right for 25.0\u00a0% of the 20 test images of classes too rare to name ("
    )


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        (
            (Measured.of_counts("north", 900, 1000), Measured.of_counts("south", 901, 1000)),
            "At each site it is right for 90 of 100 images.",
        ),
        (
            (Measured("north", 0.7, None, None, 9), Measured("south", 0.8, None, None, 9)),
            "By site: it ranks the right one higher in 70 of 100 pairs at north, the lowest, to 80 "
            "at south.",
        ),
        (
            (Measured("north", 0.9, None, None, 9), Measured("south", 0.901, None, None, 9)),
            "At each site it ranks the right one higher in 90 of 100 pairs.",
        ),
    ],
)
def test_sites_that_are_equal_of_a_hundred_have_no_lowest(
    sites: tuple[Measured, ...], words: str
) -> None:
    assert for_clinicians.weakest(replace(SOUND, classes=(), sites=sites)) == words


def test_of_few_sites_the_rank_has_the_lowest_and_the_highest() -> None:
    auroc = over_sites([0.6, 0.8, 0.7], "auroc_macro")
    verdict = replace(SOUND, overall=None, exclusive=False, auroc=auroc)
    assert "in 70 of 100 such pairs (60 to 80 at 3 sites). Guessing" in for_clinicians.numbers(
        verdict
    )
    assert in_percent.numbers(verdict) == (
        "The macro AUROC of the selected model (round 3) is 0.700 on average over 3 sites (0.600 "
        "to 0.800 at 3 sites). Guessing would give 0.5."
    )


def test_a_difference_without_an_interval_shows_nothing() -> None:
    one = Against("fedavg", "accuracy", Interval(0.1, None, None, None, 1))
    assert comparisons.sentences(replace(SOUND, compared=(one,))) == [
        "Not shown to be better than fedavg: +0.100 in test accuracy, paired over 1 site."
    ]


# --- what is wrong with it


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"never": ("A", "B")}, "it never answers A, B"),
        ({"never": ("A",), "own_models": True}, "the sites' own models never answer A"),
        ({"never": ("A",), "exclusive": False}, "it never finds A"),
        ({"guessed": ("B",)}, "it only guesses about B"),
        ({"alarms": ("A", "B")}, "it sees A, B in more than half of the images without them"),
        (
            {"classes": (Measured.of_counts("A", 4, 9), Measured.of_counts("B", 5, 10))},
            "it finds fewer than half of the images of A (4 of 9)",
        ),
        ({"subgroups": (WOMEN,)}, "it is right less often for women (sex)"),
    ],
)
def test_a_failure_is_a_clause(changes: dict[str, Any], words: str) -> None:
    assert failures(replace(SOUND, **changes)) == [words]


def test_long_lists_say_how_many_names_they_leave_out() -> None:
    assert few_names(["a" * 29, "b" * 29]) == f"{'a' * 29}, {'b' * 29}"
    assert few_names(["a" * 29, "b" * 30, "c"]) == f"{'a' * 29} and 2 more"
    assert few_names(["a" * 99]) == "a" * 99


ALWAYS = "always answering “A”"
HALF = Measured.of_counts("", 200, 400)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, f"Better than {ALWAYS}."),
        (
            {"level": "mixed", "never": ("B",), "unimproved": True},
            f"Better than {ALWAYS}, but no round of training improved it, and it never answers B.",
        ),
        (
            {"level": "mixed", "never": ("B",), "unimproved": True, "compared": (BETTER_RUN,)},
            f"Better than {ALWAYS}, but no round of training improved it; it never answers B; it "
            "is worse than fedavg.",
        ),
        (
            {"level": "mixed", "overall": HALF, "unimproved": True},
            f"It tells classes apart, but is right less often than {ALWAYS}, and no round of "
            "training improved it.",
        ),
        (
            {"level": "poor", "overall": HALF, "unimproved": True},
            f"Of no use: worse than {ALWAYS}, and no round of training improved it.",
        ),
        (
            {"level": "mixed", "tested": all_but(partly=("A",))},
            f"Better than {ALWAYS}, but not every class was tested at every site.",
        ),
    ],
)
def test_the_first_sentence_joins_answer_and_exceptions(
    changes: dict[str, Any], words: str
) -> None:
    assert in_short.lead(replace(SOUND, **changes)) == words


# --- when to ask a human


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"level": "poor", "overall": HALF}, "it is not shown to be of use"),
        ({"level": "poor", "exclusive": False}, "it is not shown to be better than guessing"),
        ({"tested": all_but(untested=("C",))}, "it was not tested for C"),
        (
            {"tested": all_but(partly=("A",))},
            "some classes were tested on too few images, or not at every site",
        ),
        (
            {"tested": all_but(unnamed=3)},
            "some classes were tested on too few images, or not at every site",
        ),
        ({"tested": all_but(evaluated=SITES[:2])}, "it was not tested at every site"),
        ({"tested": all_but(trained=SITES[:2])}, "not every site trained it"),
        ({"compared": (BETTER_RUN,)}, "it is worse than fedavg"),
        (
            {"level": "mixed", "overall": HALF},
            f"it is not shown to be right more often than {ALWAYS}",
        ),
        ({"confidence": None}, "its confidence was not counted for all test images"),
    ],
)
def test_a_human_reads_everything_for_a_reason(changes: dict[str, Any], reason: str) -> None:
    # All answers are right, so nothing else speaks for a human.
    answers = ConfidenceHistogram.of_answers(np.full(400, 0.97), np.ones(400, bool))
    classes = tuple(Measured.of_counts(name, 200, 200) for name in "AB")
    right = replace(
        SOUND, overall=Measured.of_counts("", 400, 400), confidence=answers, classes=classes
    )
    verdict = replace(right, **changes)
    assert why_ask_always(verdict) == reason
    if verdict.exclusive:
        needs_none = "Images like the tested ones need no human: it is right for 95 of 100."
        every = f"Ask a human about every image: {reason}."
        assert advice.ask_human(verdict) == (every if reason else needs_none)


@pytest.mark.parametrize(
    ("right_of_the_surest", "advised", "others"),
    [
        (
            740,
            "Ask a human about the 20 of 100 images that it is least sure about: it is right for "
            "at least 90 of 100 of the others.",
            [
                "No number of images that a human reads is shown to be enough for 95 right answers "
                "of 100 to the others."
            ],
        ),
        (
            790,
            "Ask a human about the 20 of 100 images that it is least sure about: it is right for "
            "at least 95 of 100 of the others.",
            [
                "If a human reads the 10 of 100 images that it is least sure about, it is right "
                "for at least 90 of 100 of the others."
            ],
        ),
    ],
)
def test_the_most_right_answers_that_a_referral_reaches_are_advised(
    right_of_the_surest: int, advised: str, others: list[str]
) -> None:
    """Of 1000 images it is sure of 800, less sure of 100, and of 100 only a little."""
    sure = np.repeat([0.97, 0.72, 0.52], [800, 100, 100])
    is_right = np.concatenate(
        [np.arange(800) < right_of_the_surest, np.arange(100) < 50, np.arange(100) < 20]
    )
    right = int(is_right.sum())
    answers = ConfidenceHistogram.of_answers(sure, is_right)
    verdict = replace(SOUND, overall=Measured.of_counts("", right, 1000), confidence=answers)
    assert advice.ask_human(verdict) == advised
    assert advice.other_referrals(verdict) == others


ENOUGH = Measured.of_counts("", 490, 500)


def finding(
    name: str, share: float | None, found: Measured = ENOUGH, right: Measured = ENOUGH
) -> Finding:
    return Finding(name, right, found, (0.0, share))


FREE = finding("Mass", 0.0)
RARE = finding("Hernia", 0.0, found=Measured.of_counts("", 10, 10))
DOUBTED = finding("Fibrosis", 0.0, right=Measured.of_counts("", 96, 100))
DOUBTFUL = finding("Edema", 0.12, found=Measured.of_counts("", 90, 100))
MORE_DOUBTFUL = finding("Nodule", 0.3)
MISSED = finding("Effusion", 0.0, found=Measured.of_counts("", 89, 100))
NEVER_SURE = finding("Pneumonia", None)


@pytest.mark.parametrize(
    ("of_model", "advised"),
    [
        ([FREE], "Images like the tested ones need no human."),
        (
            [FREE, DOUBTFUL, MORE_DOUBTFUL],
            "Ask a human about the images that it is least sure of, up to 30 of 100 for Nodule.",
        ),
        (
            [DOUBTFUL, NEVER_SURE, RARE, MISSED],
            "Ask a human about every image for Effusion, Pneumonia, Hernia. For Edema, about those "
            "that it is least sure of.",
        ),
        ([FREE, MISSED], "Ask a human about every image for Effusion."),
        (
            [RARE, DOUBTED],
            "Ask a human about every image: it is not shown to find 90 of 100 of any finding.",
        ),
    ],
)
def test_what_a_human_reads_follows_from_all_findings(
    of_model: list[Finding], advised: str
) -> None:
    verdict = replace(SOUND, exclusive=False, findings=tuple(of_model))
    assert advice.ask_human(verdict) == advised


def test_each_finding_has_its_reason() -> None:
    of_model = (FREE, RARE, DOUBTFUL, MORE_DOUBTFUL, MISSED, NEVER_SURE)
    verdict = replace(SOUND, exclusive=False, findings=of_model)
    reasons = findings.reasons_by_finding(verdict, [one.name for one in of_model])
    right = "its answer, yes or no, is right for 95 of 100 images or more"
    assert reasons[:-1] == [
        f"Mass: {right} without a human.",
        f"Hernia: {right}, but it is not shown to find 90 of 100.",
        "For 95 right answers of 100 to the others, a human has to read of the images that it is "
        "least sure of: 12 of 100 for Edema, 30 of 100 for Nodule.",
        "Effusion: it finds fewer than 90 of 100, however often its “no” is right.",
        "Pneumonia: not even its surest answers are shown to be right for 95 of 100 images.",
    ]
    assert reasons[-1].startswith("For a rare finding, most correct answers are simply “no”.")
    assert findings.reasons_by_finding(verdict, ["Mass"])[:-1] == reasons[:1]


# --- what was tested


@pytest.mark.parametrize(
    ("right", "direction"), [(1, ", so numbers by class look better than practice"), (3, "")]
)
def test_rare_classes_say_which_way_they_move_the_numbers(right: int, direction: str) -> None:
    verdict = replace(
        SOUND, tested=all_but(unnamed=3), unnamed=Measured.of_counts(UNNAMED, right, 3)
    )
    assert coverage.not_tested(verdict) == (
        f"Classes with fewer than five images at a site: 3 images, {right} classified correctly. "
        f"They count in the total, but in no class{direction}."
    )


@pytest.mark.parametrize(
    ("changes", "which"),
    [
        ({"tested": all_but(partly=tuple("ABCDE"))}, "of A, B, C, D, E, which are not counted"),
        (
            {"tested": all_but(classes=tuple("ABCDEFGH"), partly=tuple("ABCDEF"))},
            "of 6 of 8 classes, which are not counted",
        ),
        (
            {"tested": all_but(partly=("A",)), "exclusive": False},
            "with or without A, which are not counted there",
        ),
    ],
)
def test_classes_that_some_sites_lack_are_named_or_counted(
    changes: dict[str, Any], which: str
) -> None:
    assert coverage.not_tested(replace(SOUND, **changes)) == (
        f"Some sites have fewer than five test images {which}: it may be worse there."
    )


def test_of_many_groups_without_numbers_six_are_named() -> None:
    groups = [f"g{number} (age)" for number in range(8)]
    beginning = "Groups without numbers, as sites have too few: "
    for number, words in ((6, ""), (8, " and 2 more")):
        verdict = replace(SOUND, untested_subgroups=tuple(groups[:number]))
        assert coverage.not_tested(verdict) == f"{beginning}{', '.join(groups[:6])}{words}."


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        (("west",), "1 of 3 sites only evaluates the model (west): it has no training images."),
        (
            ("south", "west"),
            "2 of 3 sites only evaluate the model (south, west): they have no training images.",
        ),
    ],
)
def test_sites_without_training_images_are_no_absent_ones(
    sites: tuple[str, ...], words: str
) -> None:
    trained = tuple(site for site in SITES if site not in sites)
    verdict = replace(SOUND, tested=all_but(trained=trained, without_training_images=sites))
    assert coverage.took_no_part(verdict) == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "at the sites that trained it"),
        ({"unimproved": True}, "at the sites of its run alone"),
        # As of a run that keeps no record of rounds.
        ({"tested": all_but(trained=())}, "at the sites that trained it"),
        (
            {"tested": all_but(trained=(), trains_at_sites=False)},
            "at 3 sites, and no site trained it",
        ),
        ({"tested": all_but(trained=SITES[:2])}, "at 3 sites, 1 of which did not train it"),
        (
            {"tested": all_but(trained=SITES[:2], evaluated=SITES[2:])},
            "at 1 site that did not train it",
        ),
    ],
)
def test_it_is_said_whether_those_who_tested_it_trained_it(
    changes: dict[str, Any], words: str
) -> None:
    assert coverage.where_tested(replace(SOUND, **changes)) == f"It was tested {words}."


@pytest.mark.parametrize(
    ("clustered", "words"),
    [
        (
            (),
            "Images are counted as independent, so intervals are too narrow where a patient has "
            "several.",
        ),
        (
            SITES[:1],
            "They allow for patients and lesions with several images at 1 of 3 sites; elsewhere "
            "images are counted as independent.",
        ),
        (SITES, "They allow for patients and lesions with several images."),
    ],
)
def test_it_is_said_at_how_many_sites_intervals_allow_for_patients(
    clustered: tuple[str, ...], words: str
) -> None:
    verdict = replace(SOUND, clustered_sites=clustered)
    assert coverage.about_images(verdict) == words
    assert coverage.about_images(replace(verdict, unit="patient")) == ""


def test_classes_of_few_images_are_called_uncertain() -> None:
    few = tuple(Measured.of_counts(f"c{number}", 20, 29) for number in range(15))
    enough = Measured.of_counts("B", 20, 30)
    for classes, which in (
        ((few[0], enough), "c0 (29)"),
        (few[:14], ", ".join(f"c{number} (29)" for number in range(14))),
        ((*few, enough), "15 of the 16 tested classes"),
    ):
        assert coverage.uncertain_classes(replace(SOUND, classes=classes)) == (
            f"Numbers for {which} rest on few test images and may be far off."
        )
    assert coverage.uncertain_classes(replace(SOUND, classes=(enough,))) == ""


# --- the picture


def test_the_picture_has_words_for_those_who_cannot_see_it() -> None:
    forest = Forest.of(replace(SOUND, subgroups=(WOMEN,)), "the model")
    assert forest
    assert forest.title == "Right answers by class, site and group"
    assert (
        "Right answers, the lowest first: all: 90.0 % of 400 images; by class; B: 81.2 % of 160 "
        "images; A: 95.8 % of 240 images; by site; north: 80.0 % of 200 images; south: 100.0 % of "
        "200 images; by group; women (sex): 60.0 % of 100 images"
    ) in forest.picture
    assert forest.caption.startswith(
        "Right answers of the model: of all test images; of each class (its sensitivity); of each "
        "site; of each group. The lowest are on top. The dashed line at the top is always "
        "answering A. A group leaves out"
    )


def test_the_picture_counts_findings_of_a_model_that_names_several() -> None:
    """An image of a woman with two findings counts twice in her group."""
    verdict = replace(SOUND, exclusive=False, overall=None, common=None, subgroups=(WOMEN,))
    forest = Forest.of(verdict, "the model")
    assert forest
    assert forest.title == "Sensitivity by finding and group"
    assert (
        "Sensitivity, the lowest first: by finding; B: 81.2 % of 160 findings; A: 95.8 % of 240 "
        "findings; by group; women (sex): 60.0 % of 100 findings"
    ) in forest.picture


def test_the_picture_of_many_classes_has_the_lowest_and_the_highest() -> None:
    classes = tuple(Measured.of_counts(f"c{number}", number, 20) for number in range(14))
    forest = Forest.of(replace(SOUND, classes=classes, sites=()), "the model")
    assert forest
    assert "c10: 50.0 % of 20 images; … 2 more; c13: 65.0 % of 20 images" in forest.picture
    assert "of 12 of 14 classes, the lowest 11 and the highest (its sensitivity)" in forest.caption
