"""What a study shows first: differences, curves and sentences, and what is withheld."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedward.lab.bench.curves import shown_rows
from fedward.lab.bench.forest import baseline_of, draw_forest, groups_of
from fedward.lab.bench.in_short import in_short
from fedward.lab.bench.notes import notes
from fedward.lab.bench.records import Record
from fedward.lab.bench.reference import Reference
from fedward.lab.bench.shortcomings import shortcomings
from fedward.lab.bench.study_parts import Cell
from fedward.lab.bench.summary import Page, summary_table
from recorded import OWN, flat, lines_of, reference, results_of, study_of, with_test

CLAIM = {"row": "ssfl", "than": "lower", "metric": "accuracy", "direction": "higher"}
STUDY = study_of(claims=[CLAIM])


def weights_only(lines: dict[Cell, Record]) -> dict[Cell, Record]:
    return {
        cell: line if line.reference else replace(line, repetition="weights")
        for cell, line in lines.items()
    }


def test_rows_and_references_are_compared_with_few_labels_by_repetition() -> None:
    results = results_of(STUDY)
    (group,) = groups_of(results, "accuracy")
    ssfl, upper, pixels = group.differences
    assert baseline_of(results) == "lower"
    assert (ssfl.title, upper.title) == ("SSFL", "FedAvg, all labels")
    assert ssfl.gap.mean == pytest.approx(0.1 + np.mean(OWN["ssfl"]))
    assert ssfl.gap.sd == pytest.approx(np.std(OWN["ssfl"], ddof=1))
    assert ssfl.gap.n == 5
    assert ssfl.is_own
    assert not upper.is_own
    assert pixels.is_reference
    assert pixels.gap.mean == pytest.approx(-0.1)
    assert not any(difference.withheld for difference in group.differences)


def test_what_no_rule_lets_one_judge_is_hollow_and_grey() -> None:
    results = results_of(STUDY, weights_only(lines_of(STUDY)))
    (group,) = groups_of(results, "accuracy")
    assert all(difference.withheld for difference in group.differences)


def test_no_text_is_cut_off_in_a_study_of_twenty_repetitions() -> None:
    lines = lines_of(STUDY)
    for cell, record in list(lines.items()):
        if not record.doubled:
            for more in (10, 20, 30):
                seed = cell.seed + more
                lines[cell._replace(seed=seed)] = replace(record, seed=seed)
    seeds = sorted({cell.seed for cell in lines})
    figure = draw_forest(results_of(study_of(seeds=seeds), lines))
    figure.canvas.draw()
    texts = figure.axes[0].texts
    assert any(text.get_text().endswith("n = 20") for text in texts)
    for text in texts:
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1, text.get_text()


def test_a_refused_metric_has_no_number() -> None:
    results = results_of(STUDY, lines_of(STUDY, {"upper": 0.6}))
    (group,) = groups_of(results, "accuracy")
    assert not group.differences
    assert group.refusal.startswith("all labels are not shown to beat few, ")
    texts = {text.get_text() for text in draw_forest(results).axes[0].texts}
    assert not any(re.search(r"n = \d", text) for text in texts)
    assert "0.600" not in in_short(results, [results])


def test_numbers_stand_beside_their_marks() -> None:
    figure = draw_forest(results_of(STUDY))
    places = {text.get_text(): text.get_position()[1] for text in figure.axes[0].texts}
    (number,) = (text for text in places if text.startswith("+0.100 ["))
    assert number.endswith("n = 5")
    assert places[number] == places["SSFL"]
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert marks[0].get_xydata()[0] == pytest.approx([0.1, places["SSFL"]])


def test_at_most_four_rows_have_curves() -> None:
    rows = {name: {"title": name, "job": "fedavg", "sites": "few/{seed}"} for name in "abcdefg"}
    changes = {"rows": rows, "own": "e", "lower": "g", "upper": "f", "claims": []}
    study = study_of(compare=[["b", "a"], ["e", "c"]], **changes)
    level = dict.fromkeys(rows, 0.5)
    assert shown_rows(results_of(study, lines_of(study, level))) == ["c", "e", "f", "g"]


@pytest.mark.parametrize(
    ("ssfl", "sentence"),
    [
        (
            0.7,
            "The only claim is shown. **What is shown:**\n\n"
            "- Accuracy with *SSFL* is higher than with *FedAvg, few labels*, +0.1",
        ),
        (
            0.5,
            "The only claim has its opposite shown. **What is shown:**\n\n"
            "- Accuracy with *SSFL* is lower than with *FedAvg, few labels*, -0.1",
        ),
        (0.601, "**No difference between methods is shown.** The only claim is not shown."),
    ],
)
def test_the_first_sentence_says_what_became_of_the_claims(ssfl: float, sentence: str) -> None:
    results = results_of(STUDY, lines_of(STUDY, {"ssfl": ssfl}))
    text = in_short(results, [results])
    assert text.startswith(sentence)
    assert "(5 repetitions) is 0.600 [" in text
    assert f"] with *FedAvg, few labels*, {ssfl:.3f} [" in text
    assert text.endswith("] with *FedAvg, all labels*.")


def test_without_claims_nothing_is_shown() -> None:
    study = study_of()
    results = results_of(study, lines_of(study))
    text = in_short(results, [results])
    assert text.startswith("**No difference between methods is shown**, as the study stated no ")


def test_the_table_of_all_studies_marks_what_may_be_concluded() -> None:
    """Bold where the interval excludes 0, plain where it does not, italics where withheld.

    No site trains alone in these studies, so that they have no such column.
    """
    logistic = Reference("pixels", "logistic", "pooled", "few")
    lines = lines_of(STUDY, {"ssfl": 0.601})
    lines |= reference(STUDY, [0.55, 0.54, 0.56, 0.55, 0.55], logistic)
    judged = results_of(STUDY, lines)
    withheld = results_of(STUDY, weights_only(lines))
    refused = results_of(STUDY, lines_of(STUDY, {"upper": 0.6}))
    table = summary_table([Page(judged, "a.md"), Page(withheld, "b.md"), Page(refused, "c.md")])
    rows = [row.split(" | ") for row in table.splitlines()[2:]]
    assert "each site alone" not in table
    assert rows[0][0] == "| [Three rows](a.md)"
    assert rows[0][1].startswith("Accuracy 0.600 [")
    assert rows[0][2].startswith("SSFL: +0.001 [-")
    assert rows[0][3].startswith("**+0.200 [+0.1")
    assert rows[0][4].startswith("**-0.050 [-0.")
    assert rows[1][3].startswith("*+0.200 [")
    assert rows[2][1] == "Accuracy withheld"


def test_validation_chooses_the_best_reference_and_test_images_do_not() -> None:
    machine = Reference("pixels", "svm", "pooled", "few")
    regression = Reference("pixels", "logistic", "pooled", "few")
    lucky = reference(STUDY, [0.64, 0.66, 0.65, 0.65, 0.64], machine)
    valid = reference(STUDY, [0.55, 0.56, 0.57, 0.55, 0.54], regression)
    valid = {cell: replace(record, curve=flat(0.9, 1)) for cell, record in valid.items()}
    results = results_of(STUDY, {**lines_of(STUDY), **lucky, **valid})
    assert in_short(results, [results]).endswith(
        "The reference with few labels that is best on validation images is *logistic regression "
        "on raw pixels, pooled, few labels*. Its Accuracy on test images is 0.554 [0.540, 0.568]."
    )
    cells = summary_table([Page(results, "a.md")]).splitlines()[2].split(" | ")
    assert cells[-1].startswith("**-0.04")


def test_a_note_names_rows_whose_best_model_is_the_start() -> None:
    lines = {
        cell: replace(record, best_round={"site-1": 0 if cell.seed < 3 else 4, "site-2": 0})
        if cell.row == "ssfl"
        else record
        for cell, record in lines_of(STUDY).items()
    }
    results = results_of(STUDY, lines)
    text = notes(results, [results])
    assert "whose values are shown, for *SSFL* (2 of 5 repetitions)." in text
    assert "**Start**" not in notes(results_of(STUDY), [results_of(STUDY)])


def test_a_page_says_where_its_rows_fail() -> None:
    """Sites of a repetition are compared with each other, whatever their names in others."""
    study = study_of(metrics=["accuracy", "f1_macro"], claims=[CLAIM])
    lines = lines_of(study, {"ssfl": 0.55})
    for cell, record in lines.items():
        lowest = "A" if cell.seed == 1 else "B"
        sites = {name: {"accuracy": 0.9} for name in "AB"} | {lowest: {"accuracy": cell.seed / 10}}
        accuracy = record.test["global"]["accuracy"]
        apart = with_test(record, f1_macro=accuracy - 0.2, balanced_accuracy=accuracy - 0.1)
        lines[cell] = replace(apart, sites=sites)
    sites_line, classes, below = shortcomings(results_of(study, lines)).splitlines()[2:]
    assert below.startswith(
        "- Lower in Accuracy than *FedAvg, few labels*, with the whole interval below 0: *SSFL*"
    )
    assert "-0.050 [-0.0" in below
    assert "No conclusion" not in below
    assert sites_line == (
        "- Sites with *SSFL*: Accuracy is 0.300 at the lowest, and 0.900 at the highest (means of "
        "5 repetitions)."
    )
    assert classes == (
        "- Rare classes with *SSFL*: Macro F1, which counts classes alike, is 0.350; Accuracy, "
        "which counts images alike, is 0.550. In the mean over classes 0.450 of the images are "
        "recognised, so rare classes are recognised less often."
    )
    variants = {"10 %": {"title": "10 % of the labels"}, "5 %": {"title": "5 % of the labels"}}
    several = study.model_copy(update={"variants": study_of(variants=variants).variants})
    of_first = {
        cell._replace(variant="10 %"): replace(record, variant="10 %")
        for cell, record in lines.items()
    }
    named = shortcomings(results_of(several, of_first))
    assert "- Sites with *10 % of the labels: SSFL*: Accuracy is 0.300 at the lowest" in named
    assert "- Rare classes with *10 % of the labels: SSFL*: Macro F1" in named
    withheld = shortcomings(results_of(study, weights_only(lines)))
    assert "No conclusion may be drawn from it." in withheld


def test_a_page_names_no_row_that_is_not_below() -> None:
    text = shortcomings(results_of(STUDY))
    assert (
        "No row that trains is lower in Accuracy than *FedAvg, few labels* with the whole interval "
        "below 0."
    ) in text
    assert (
        "- Rare classes with *SSFL*: Macro F1, which counts classes alike, is 0.700; "
        "Accuracy, which counts images alike, is 0.700.\n" in text
    )
