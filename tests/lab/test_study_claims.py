"""What a study may conclude: its claims, and what is refused to who would cheat."""

import gc
import json
import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from fedward.cli import main
from fedward.digests import digest
from fedward.errors import ConfigError
from fedward.lab.bench.bounds import own_bounds_refusal, upper_bound
from fedward.lab.bench.claims import claims_digest, holm, p_value, require_as_recorded
from fedward.lab.bench.convergence import unconverged
from fedward.lab.bench.evidence import bounds_refusal, bounds_unknown, regime_refusal
from fedward.lab.bench.in_short import in_short
from fedward.lab.bench.labels_seen import same_labels
from fedward.lab.bench.notes import notes
from fedward.lab.bench.records import Curve, ImageDigests, Record, add_records
from fedward.lab.bench.reference import Reference, references_on
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell
from fedward.lab.bench.tables import further_tables, value_table
from fedward.lab.bench.verdicts import claim_test, sentences
from recorded import (
    LEVEL,
    OWN,
    RAW_PIXELS,
    ROWS,
    SEEDS,
    SITES,
    line,
    lines_of,
    reference,
    results_of,
    study_of,
    with_test,
)

BETTER = {"row": "ssfl", "than": "lower", "metric": "accuracy", "direction": "higher"}
CLAIMED = study_of(claims=[BETTER])


def said(study: Study, lines: dict[Cell, Record]) -> str:
    """Return what is said of a study's only claim, alone on its page."""
    results = results_of(study, lines)
    (sentence,) = sentences(results, [results])
    return sentence


def changed(lines: dict[Cell, Record], row: str, **changes: Any) -> dict[Cell, Record]:
    """Return the lines with other fields in each repetition of a row, not in those doubled."""
    return {
        cell: replace(record, **changes) if record.row == row and not record.doubled else record
        for cell, record in lines.items()
    }


def test_p_values_are_those_of_scipy() -> None:
    ours = [LEVEL["ssfl"] + value for value in OWN["ssfl"]]
    theirs = [0.699, 0.694, 0.701, 0.7, 0.69]
    assert p_value(ours, theirs) == pytest.approx(stats.ttest_rel(ours, theirs).pvalue, rel=1e-9)
    assert p_value(theirs, ours) == p_value(ours, theirs)
    assert p_value([0.9, 0.9], [0.1, 0.1]) == 1.0, "no spread to test against"
    assert p_value([0.7, 0.8, 0.9], [0.4, 0.5, 0.6]) == 1.0, "0.3 each, but for rounding"
    assert p_value([0.9], [0.1]) == 1.0


def test_overlapping_divisions_enlarge_the_variance_of_the_mean() -> None:
    """By the ratio of test to training images beside 1/n: here 5/12 beside 1/5, worked by hand."""
    ours, theirs = [0.02, 0.01, 0.03, 0.02, 0.02], [0.0] * 5
    t = 0.02 / (stats.tstd(ours) * math.sqrt(1 / 5 + 5 / 12))
    expected = 2 * stats.t.sf(t, 4)
    assert p_value(ours, theirs, test_train_ratio=5 / 12) == pytest.approx(expected, rel=1e-9)
    rows = {name: {**row, "sites": "few"} for name, row in ROWS.items()}
    study = study_of(partition="images.npz --sites 2 --resplit", sites={}, rows=rows)
    assert study.test_train_ratio("all", "ssfl") == pytest.approx(5 / 12)
    shares = "images.npz --sites 2 --val 0.1 --test 0.3"
    wider = study_of(partition=shares, sites={}, rows=rows)
    assert wider.test_train_ratio("all", "ssfl") == pytest.approx(0.5)
    cuts = {"few/{seed}": "images.npz --sites 2 --seed {seed}", "all/{seed}": f"{shares} --seed 1"}
    several = study_of(sites=cuts)
    assert several.test_train_ratio("all", "ssfl") == pytest.approx(5 / 12)
    assert several.test_train_ratio("all", "upper") == pytest.approx(0.5)
    assert study_of(sites={}).test_train_ratio("all", "ssfl") is None, "cut by hand"
    drawn = {name: {**row, "sites": ""} for name, row in ROWS.items()}
    assert study_of(sites={}, rows=drawn).test_train_ratio("all", "ssfl") == 0, "drawn anew"
    with pytest.raises(ValueError, match="--val and --test below 1 together, not 1"):
        study_of(partition="images.npz --sites 2 --val 0.5 --test 0.5", sites={}, rows=rows)
    with pytest.raises(ValueError, match="unrecognized arguments: --labelled-s"):
        study_of(partition="images.npz --sites 2 --labelled-s 1", sites={}, rows=rows)


def test_a_difference_that_the_overlap_may_explain_is_said_to_be_of_these_images_only() -> None:
    sites = {"lower": "few", "ssfl": "few", "upper": "all"}
    rows = {name: {**row, "sites": sites[name]} for name, row in ROWS.items()}
    cut = {"partition": "images.npz --sites 2 --labelled 0.1", "sites": {}, "rows": rows}
    study = study_of(claims=[BETTER], **cut)
    only = "It is shown only for divisions of these images: with allowance for overlap, p = 0.111."
    for level, is_only in ((0.612, True), (0.65, False)):
        results = results_of(study, lines_of(study, {"ssfl": level}))
        (sentence,) = sentences(results, [results])
        assert "**shown**" in sentence
        assert "; with allowance for overlapping divisions p = 0." in sentence
        assert (only in in_short(results, [results])) == is_only


def test_an_overlap_that_is_not_known_is_never_allowed_for() -> None:
    """Site files that were cut by hand may divide the same images in each repetition."""
    by_hand = {"few/{seed}": SITES["few/{seed}"]}
    claim = {**BETTER, "than": "upper", "direction": "lower"}
    for cuts in ({}, by_hand):
        study = study_of(claims=[claim], sites=cuts)
        results = results_of(study)
        (sentence,) = sentences(results, [results])
        assert "**shown**" in sentence
        assert sentence.endswith("; how far the divisions of its images overlap is unknown.")
        only = "It is shown only for divisions of these images, whose overlap is unknown."
        assert only in in_short(results, [results])
        assert claim_test(results, study.claims[0]).p_overlapping == 1


def test_holm_corrects_by_hand() -> None:
    """Of 0.01, 0.02, 0.03, 0.9: 4 x 0.01, 3 x 0.02, 2 x 0.03, 1 x 0.9."""
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.01, 0.011]) == pytest.approx([0.02, 0.02]), "never below a smaller one"
    assert holm([0.8, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (BETTER, "**shown**, +0.100 ["),
        ({**BETTER, "direction": "lower"}, "**opposite shown**, +0.100 ["),
        ({**BETTER, "row": "lower", "than": "ssfl", "direction": "lower"}, "**shown**, -0.100 ["),
    ],
)
def test_a_claim_has_a_sentence(claim: dict[str, str], verdict: str) -> None:
    study = study_of(claims=[claim])
    assert verdict in said(study, lines_of(study))


def test_a_claim_on_a_share_is_tested_against_that_share() -> None:
    """0.7 is 87.5 % of 0.8: more than 85 % of it, and not 90 %. Other shares are other claims."""
    gaps = {}
    for share in (0.85, 0.9, 1.0):
        study = study_of(claims=[{**BETTER, "than": "upper", "share": share}])
        lines = lines_of(study)
        gap = claim_test(results_of(study, lines), study.claims[0]).gap
        assert gap is not None
        gaps[share] = gap.mean
        if share == 0.85:
            sentence = "is higher than 85 % of that of *FedAvg, all labels*: **shown**, +0.020 ["
            assert sentence in said(study, lines)
        elif share == 0.9:
            assert "**opposite shown**" in said(study, lines)
    assert gaps == pytest.approx({0.85: 0.7 - 0.68, 0.9: 0.7 - 0.72, 1.0: -0.1})
    whole = study_of(claims=[{**BETTER, "share": 1.0}])
    assert claims_digest(whole) == claims_digest(CLAIMED)
    assert claims_digest(study_of(claims=[{**BETTER, "share": 0.9}])) != claims_digest(CLAIMED)


GRID = {"a": {"title": "3-1"}, "b": {"title": "1-3", "labelled": 0.1}}
"""The second variant has references of its own, as it has its own share of labels."""
MEAN = {**BETTER, "mean_over": ["a", "b"]}


def lines_of_grid(study: Study) -> dict[Cell, Record]:
    """Return lines whose SSFL is 0.1 above few labels in one variant, and 0.06 in the other."""
    lines = {}
    for level, variant in ((0.7, "a"), (0.66, "b")):
        for cell, record in lines_of(study, {"ssfl": level}).items():
            if cell.variant == variant or record.reference:
                moved = cell._replace(variant=variant)
                lines[moved] = replace(record, variant=variant)
    return lines


def test_a_claim_on_a_grid_is_tested_on_the_mean_of_its_cells() -> None:
    study = study_of(variants=GRID, claims=[MEAN])
    lines = lines_of_grid(study)
    sentence = said(study, lines)
    assert (
        "of *SSFL* is higher than that of *FedAvg, few labels*, in the mean of all variants: "
        "**shown**, +0.080 ["
    ) in sentence
    one_sided = [cell for cell in lines if cell.variant == "b" and cell.seed > 1]
    pairs = {cell: record for cell, record in lines.items() if cell not in one_sided}
    assert "**not judged**, too few repetitions" in said(study, pairs)


def test_a_claim_on_a_grid_needs_every_cell_to_meet_the_rules() -> None:
    study = study_of(variants=GRID, claims=[MEAN])
    lines = lines_of_grid(study)
    undoubled = {
        cell: record for cell, record in lines.items() if not (cell.variant == "b" and cell.doubled)
    }
    assert "**not judged**, *1-3: SSFL*: convergence not shown." in said(study, undoubled)
    alike = {
        cell: with_test(record, accuracy=0.6) if cell[:2] == ("b", "upper") else record
        for cell, record in lines.items()
    }
    assert "**not judged**, *1-3*: " in said(study, alike)
    strong = {
        cell: with_test(record, f1_weighted=0.95) if record.reference and cell[0] == "b" else record
        for cell, record in lines.items()
    }
    results = results_of(study, strong)
    text = notes(results, [results])
    assert (
        "- **Regime**: nothing is concluded on methods in these variants:\n"
        "    - *1-3*: all labels in the federation are not shown to beat "
    ) in text
    assert "**not judged**, see **Regime**." in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"variant": "a"}, "mean_over beside variant or than_variant"),
        ({"mean_over": ["a", "a"]}, "each of them once"),
        ({"mean_over": ["a"]}, "two or more variants"),
        ({"mean_over": ["a", "c"]}, "row ssfl of c, which the study does not have"),
    ],
)
def test_a_claim_on_a_grid_names_cells_that_there_are(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        study_of(variants=GRID, claims=[{**MEAN, **change}])


def test_claims_without_a_mean_keep_their_digest() -> None:
    fields = {**BETTER, "variant": "", "than_variant": ""}
    assert claims_digest(CLAIMED) == digest([digest(fields)])
    mean = claims_digest(study_of(variants=GRID, claims=[MEAN]))
    assert mean != claims_digest(CLAIMED)
    turned = study_of(variants=GRID, claims=[{**MEAN, "mean_over": ["b", "a"]}])
    assert claims_digest(turned) == mean


def test_a_difference_within_chance_is_not_shown() -> None:
    assert "**not shown**, +0.001 [" in said(CLAIMED, lines_of(CLAIMED, {"ssfl": 0.601}))


def test_each_claim_of_a_page_counts() -> None:
    """A p-value of 0.02 is shown alone, and not beside two claims, though one is not judged."""
    lines = lines_of(CLAIMED, {"ssfl": 0.612})
    results = results_of(CLAIMED, lines)
    p = claim_test(results, CLAIMED.claims[0]).p
    assert 0.05 / 3 < p < 0.05
    assert "**shown**" in said(CLAIMED, lines)
    other = results_of(study_of(claims=[BETTER, {**BETTER, "direction": "lower"}]), {})
    (sentence,) = sentences(results, [other, results])
    assert "**not shown**" in sentence
    assert f"p = {3 * p:.3f} (by Holm among the page's 3)" in sentence


def test_twice_the_rounds_show_convergence_and_a_flat_curve_does_not() -> None:
    """A schedule flattens each curve at its end."""
    lines = lines_of(CLAIMED)
    undoubled = {cell: record for cell, record in lines.items() if not record.doubled}
    assert "*FedAvg" in said(CLAIMED, undoubled)
    assert "**not judged**, *SSFL*: convergence not shown." in said(CLAIMED, undoubled)


def test_a_single_repetition_is_not_said_to_lack_twice_the_rounds() -> None:
    one = {cell: record for cell, record in lines_of(CLAIMED).items() if cell.seed == 1}
    results = results_of(CLAIMED, one)
    lacking = "as none has both 5 repetitions or more and one of them with"
    assert lacking in notes(results, [results])
    undoubled = results_of(CLAIMED, {cell: r for cell, r in one.items() if not r.doubled})
    assert "as none ran with twice the rounds as well" in notes(undoubled, [undoubled])


@pytest.mark.parametrize(
    ("values", "with_doubled_rounds", "expected"),
    [
        # Half the interval of two seeds is 1.27, and that of three is 0.125.
        ((0.60, 0.80), 0.95, "convergence not shown"),
        ((0.60, 0.64, 0.70), 0.70, "convergence not shown"),
        ((0.60, 0.61, 0.60, 0.61), 0.60, "convergence not shown"),
        ((0.60, 0.61, 0.60, 0.61, 0.60), 0.601, ""),
        ((0.60, 0.61, 0.60), 0.70, "not converged: twice the rounds change it by 0.100, half"),
    ],
)
def test_few_repetitions_show_no_convergence(
    values: Sequence[float], with_doubled_rounds: float, expected: str
) -> None:
    """Their interval is too wide for a change to be too large, unless it is larger still."""
    cells = [Cell("all", "ssfl", seed) for seed in SEEDS[: len(values)]]
    records = [line(CLAIMED, cell, value) for cell, value in zip(cells, values, strict=True)]
    doubled = [line(CLAIMED, cells[0]._replace(doubled=True), with_doubled_rounds, rounds=16)]
    found = unconverged(records, doubled, "accuracy")
    assert found.startswith(expected) if expected else found == ""


@pytest.mark.parametrize("cheat", ["as many rounds", "another seed", "other values"])
def test_a_run_that_is_not_twice_as_long_shows_no_convergence(cheat: str) -> None:
    lines = lines_of(CLAIMED)
    (key,) = (cell for cell, record in lines.items() if record.doubled and record.row == "ssfl")
    doubled = lines[key]
    value = doubled.test["global"]["accuracy"]
    lines[key] = {
        "as many rounds": replace(doubled, rounds=15),
        "another seed": replace(doubled, seed=99),
        "other values": with_test(doubled, accuracy=value + 0.05),
    }[cheat]
    expected = "not converged: twice the rounds change it by 0.050, half the interval is 0.0"
    sentence = said(CLAIMED, lines)
    assert (expected if cheat == "other values" else "convergence not shown.") in sentence
    assert "**not judged**" in sentence


@pytest.mark.parametrize("other", [-0.05, 0.05])
def test_changes_of_several_seeds_count_by_their_mean(other: float) -> None:
    """A rise and a fall by as much leave the mean, on which the claim is, where it was."""
    study = study_of(claims=[BETTER], doubled=[1, 2])
    lines = lines_of(study)
    (first, _) = (cell for cell, record in lines.items() if record.doubled and record.row == "ssfl")
    for seed, change in ((1, 0.05), (2, other)):
        usual = lines[first._replace(seed=seed, doubled=False)]
        value = usual.test["global"]["accuracy"] + change
        longer = with_test(replace(usual, doubled=True, rounds=2 * usual.rounds), accuracy=value)
        lines[first._replace(seed=seed)] = longer
    sentence = said(study, lines)
    if other < 0:
        assert "**shown**" in sentence
    else:
        assert "not converged: twice the rounds change it by 0.050" in sentence


def test_a_table_says_of_how_many_seeds_twice_the_rounds_ran() -> None:
    """Not how many the study names."""
    study = study_of(doubled=[1, 2, 3])
    lines = lines_of(study)
    assert "convergence, by the mean of 3 seeds" in further_tables(results_of(study, lines))
    for cell in list(lines):
        if cell.doubled and (cell.seed == 3 or (cell.row == "ssfl" and cell.seed == 2)):
            del lines[cell]
    assert "convergence, by the mean of 1 to 2 seeds" in further_tables(results_of(study, lines))


def test_rows_that_have_not_shown_convergence_stand_in_a_line_for_each_variant() -> None:
    """Variants of the same rows share a line; a study without variants has one sentence."""
    lines = lines_of(CLAIMED)
    for cell in [cell for cell in lines if cell.doubled and cell.row != "upper"]:
        del lines[cell]
    results = results_of(CLAIMED, lines)
    rows = "*FedAvg, few labels*, *SSFL*."
    assert f"\n- **Convergence**: not shown for {rows}" in notes(results, [results])
    study = study_of(variants={**GRID, "c": {"title": "2-2"}})
    undoubled = {("a", "lower"), ("a", "ssfl"), ("b", "ssfl"), ("c", "lower"), ("c", "ssfl")}
    lines = {
        cell: record
        for cell, record in lines_of(study).items()
        if not (cell.doubled and cell[:2] in undoubled)
    }
    results = results_of(study, lines)
    assert (
        "\n- **Convergence**: not shown for these rows:\n"
        f"    - *3-1; 2-2*: {rows}\n"
        "    - *1-3*: *SSFL*."
    ) in notes(results, [results])


def test_twice_the_rounds_are_for_seeds_that_run() -> None:
    with pytest.raises(ValueError, match="doubled names 7, which the study's seeds lack"):
        study_of(doubled=[1, 7])


def test_only_the_metric_that_still_changes_gets_no_sentence() -> None:
    both = study_of(claims=[BETTER, {**BETTER, "metric": "f1_macro"}])
    lines = lines_of(both)
    (key,) = (cell for cell, record in lines.items() if record.doubled and record.row == "ssfl")
    lines[key] = with_test(lines[key], f1_macro=0.9)
    results = results_of(both, lines)
    accuracy, macro = sentences(results, [results])
    assert "**shown**" in accuracy
    assert "**not judged**, *SSFL*: not converged" in macro
    text = notes(results, [results])
    assert "**Values that have not converged.** Twice the rounds change them by half" in text
    assert (
        "\n| not converged | Accuracy | Macro F1 |\n|---|--:|--:|\n| SSFL |  | 0.180 (0.023) |"
        in text
    )
    assert "converged" not in notes(results_of(both), [results_of(both)])


def test_doubled_rounds_are_in_no_mean() -> None:
    lines = lines_of(CLAIMED)
    far = {cell: with_test(r, accuracy=0.99) if r.doubled else r for cell, r in lines.items()}
    assert value_table(results_of(CLAIMED, far)) == value_table(results_of(CLAIMED, lines))


@pytest.mark.parametrize(
    ("fields", "covered"),
    [
        ({"repetition": "weights"}, "repetitions that are not known to differ in all images"),
        (
            {"cut": ImageDigests("test 1", "labels 1")},
            "first weights only; the images and labels were the same",
        ),
    ],
    ids=["said so", "equal images"],
)
def test_equal_data_under_all_seeds_shows_no_difference(
    fields: dict[str, Any], covered: str
) -> None:
    """However large it is, and whatever the lines say."""
    lines = changed(lines_of(CLAIMED), "ssfl", **fields)
    sentence = said(CLAIMED, lines)
    assert "**not judged**" in sentence
    assert "*SSFL*: its repetitions are not of different images and labels" in sentence
    results = results_of(CLAIMED, lines)
    assert f"**Intervals** of SSFL are over {covered}" in notes(results, [results])
    assert "**Intervals**" not in notes(results_of(CLAIMED), [results_of(CLAIMED)])


@pytest.mark.parametrize(
    ("test", "labels", "covered"),
    [
        ("test", "labels {seed}", "labelled images only; the test images were the same"),
        ("test {seed}", "labels", "test images only; the labelled images were the same"),
    ],
)
def test_what_intervals_cover_is_said_of_the_images_that_lines_have(
    test: str, labels: str, covered: str
) -> None:
    """A cut by another seed may keep the data set's own split, or the same labels."""
    lines = lines_of(CLAIMED)
    for cell, record in lines.items():
        digests = ImageDigests(test.format(seed=cell.seed), labels.format(seed=cell.seed))
        lines[cell] = replace(record, cut=digests)
    results = results_of(CLAIMED, lines)
    assert f"**Intervals** are over first weights and {covered}. No" in notes(results, [results])


def test_a_federation_below_raw_pixels_is_no_regime() -> None:
    lines = {**lines_of(CLAIMED), **reference(CLAIMED, [0.8, 0.79, 0.81, 0.8, 0.8])}
    results = results_of(CLAIMED, lines)
    support_vectors = "*reference: support vector machine on raw pixels, pooled, all labels*"
    beaten_by = f"are not shown to beat {support_vectors} in Weighted F1, "
    regime = f"all labels in the federation {beaten_by}"
    assert regime_refusal(results, "all").startswith(regime)
    text = notes(results, [results])
    assert text.count(regime) == 1
    assert "**not judged**, see **Regime**." in text
    table = value_table(results_of(CLAIMED, lines))
    assert "| SSFL |" in table.replace("**", "")
    assert "| reference: support vector machine on raw pixels, pooled, all labels | 5 |" in table


def test_each_reference_on_raw_pixels_has_to_be_beaten() -> None:
    """A weak one beside a strong one does not help."""
    strong = reference(CLAIMED, [0.83, 0.8, 0.84, 0.82, 0.8], replace(RAW_PIXELS, model="logistic"))
    results = results_of(CLAIMED, {**lines_of(CLAIMED), **strong})
    assert "not shown to beat *reference: logistic" in regime_refusal(results, "all")


def test_sites_alone_and_pooled_training_are_no_federation() -> None:
    rows = {**ROWS, "pooled": {**ROWS["upper"], "title": "Pooled", "sites": "pooled/{seed}"}}
    rows["alone"] = {**ROWS["upper"], "title": "Alone", "alone": True}
    sites = {**SITES, "pooled/{seed}": "images.npz --sites 3 --seed {seed} --pooled"}
    study = study_of(rows=rows, sites=sites, claims=[BETTER])
    lines = lines_of(study, {"pooled": 0.95, "alone": 0.95, "upper": 0.5})
    results = results_of(study, {**lines, **reference(study, [0.6, 0.59, 0.6, 0.6, 0.61])})
    assert "are not shown to beat" in regime_refusal(results, "all")


def test_without_a_reference_nothing_is_concluded() -> None:
    lines = {cell: record for cell, record in lines_of(CLAIMED).items() if not record.reference}
    results = results_of(CLAIMED, lines)
    assert regime_refusal(results, "all") == "no reference on raw pixels was recorded"
    assert "**not judged**, see **Regime**." in said(CLAIMED, lines)


def test_references_are_not_said_to_lack_where_rows_to_judge_have_not_run() -> None:
    lines = {cell: r for cell, r in lines_of(CLAIMED).items() if r.row != "lower"}
    results = results_of(CLAIMED, lines)
    text = notes(results, [results])
    assert "**Regime**: rows of few and of all labels have not both run, so nothing is" in text


def test_synthetic_images_that_no_row_uses_do_not_tell_labels_apart() -> None:
    """Jobs have synthetic images of their own, which rows with site files never see."""
    lines = lines_of(CLAIMED)
    for cell, record in lines.items():
        if cell.row == "ssfl":
            settings = {**record.settings, "synthetic": {"sites": 77}}
            lines[cell] = replace(record, settings=settings)
    assert same_labels(results_of(CLAIMED, lines), "all", "lower", "ssfl")
    assert not same_labels(results_of(CLAIMED, lines), "all", "lower", "upper")


def test_a_row_that_begins_with_a_model_of_all_labels_sees_all_labels() -> None:
    """Directly or by way of another row; one that begins with few labels sees its own."""
    rows = {
        **ROWS,
        "tuned": {**ROWS["lower"], "title": "Tuned", "init": "upper"},
        "twice_tuned": {**ROWS["ssfl"], "title": "Tuned twice", "init": "tuned"},
        "longer": {**ROWS["ssfl"], "title": "Longer", "init": "lower"},
        "more_labels": {**ROWS["upper"], "title": "More labels", "init": "lower"},
    }
    study = study_of(rows=rows)
    levels = dict.fromkeys(("tuned", "twice_tuned", "longer", "more_labels"), 0.7)
    results = results_of(study, lines_of(study, levels))
    for row in ("tuned", "twice_tuned", "more_labels"):
        assert same_labels(results, "all", row, "upper")
        assert not same_labels(results, "all", row, "lower")
    assert same_labels(results, "all", "longer", "lower")
    assert not same_labels(results, "all", "longer", "upper")


def test_an_upper_row_below_a_reference_is_not_the_upper_bound() -> None:
    """The upper row does not beat the lower one; a reference does, and is the bound."""
    study = study_of(claims=[BETTER])
    weak = lines_of(study, {"upper": 0.6})
    refusal = own_bounds_refusal(results_of(study, weak), "all", "accuracy")
    assert refusal.startswith("all labels are not shown to beat few, ")
    kind = Reference("features", "lda", "pooled", "all")
    strong = {**weak, **reference(study, [0.9, 0.91, 0.89, 0.9, 0.9], kind)}
    best = upper_bound(results_of(study, strong), "all", "accuracy")
    title = "reference: linear discriminant analysis on the encoder's features, pooled, all labels"
    assert dict(best.chosen) == {title: 5}
    assert own_bounds_refusal(results_of(study, strong), "all", "accuracy") == ""


def test_a_lower_bound_of_all_labels_withholds_every_metric() -> None:
    """One that hardly trains is far below the upper bound, and says nothing of labels."""
    rows = {**ROWS, "once": {**ROWS["upper"], "title": "One round"}}
    study = study_of(rows=rows, lower="once")
    results = results_of(study, lines_of(study, {"once": 0.2}))
    for metric in ("accuracy", "f1_macro"):
        reason = bounds_refusal(results, "all", metric)
        assert reason == "the lower bound sees the labels of the upper one"
    assert "0.7" not in value_table(results)


def test_accuracy_that_is_withheld_is_not_shown_over_all_images_either() -> None:
    study = study_of(metrics=["f1_macro", "accuracy"])
    lines = lines_of(study)
    assert "accuracy of all test images" in further_tables(results_of(study, lines))
    for seed in SEEDS:
        cell = Cell("all", "upper", seed)
        lines[cell] = with_test(lines[cell], accuracy=0.6)
    results = results_of(study, lines)
    assert bounds_refusal(results, "all", "f1_macro") == ""
    assert "accuracy of all test images" not in further_tables(results)


def test_no_test_value_chooses_itself_as_the_upper_bound() -> None:
    lines = {cell: r for cell, r in lines_of(CLAIMED).items() if not r.reference}
    lucky = reference(CLAIMED, [0.99] * 5)
    lines |= {cell: replace(r, best_val=0.1) for cell, r in lucky.items()}
    best = upper_bound(results_of(CLAIMED, lines), "all", "accuracy")
    assert best.chosen == {"FedAvg, all labels": 5}
    assert best.values[1] == pytest.approx(LEVEL["upper"] + 0.01 + OWN["upper"][0])


def test_without_validation_nothing_chooses_an_upper_bound() -> None:
    lines = {cell: r for cell, r in lines_of(CLAIMED).items() if not r.reference}
    unseen = reference(CLAIMED, [0.9] * 5)
    no_curve = Curve((), (), {}, ())
    lines |= {cell: replace(r, curve=no_curve, best_val=None) for cell, r in unseen.items()}
    assert not upper_bound(results_of(CLAIMED, lines), "all", "accuracy").values


def test_a_falling_curve_is_named_in_its_row() -> None:
    curve = replace(lines_of(CLAIMED)[Cell("all", "ssfl", 1)].curve, val=(0.1, 0.9, *(0.5,) * 6))
    falling = changed(lines_of(CLAIMED), "ssfl", curve=curve, best_round={"site-1": 2})
    for cell, record in falling.items():
        if record.row == "ssfl":
            last = {name: value - 0.03 for name, value in record.test["global"].items()}
            falling[cell] = replace(record, test={**record.test, "last": last})
    (row,) = (r for r in value_table(results_of(CLAIMED, falling)).splitlines() if "SSFL" in r)
    assert row.endswith("| falls: Accuracy -0.030, Macro F1 -0.030 |")
    late = changed(
        falling,
        "ssfl",
        curve=replace(curve, val=(*(0.5,) * 7, 0.9)),
        best_round={"site-1": 8},
    )
    assert "falls" not in value_table(results_of(CLAIMED, late))


def test_a_metric_refused_elsewhere_is_refused_on_the_same_runs() -> None:
    """Also where a study has no upper row, and in its variants that share no run."""
    bounded = study_of(title="Bounded")
    lines = lines_of(bounded)
    for seed in SEEDS:
        cell = Cell("all", "upper", seed)
        lines[cell] = with_test(lines[cell], f1_macro=0.6)
    there = results_of(bounded, lines)
    variants = {
        "fixed": {"title": "fixed"},
        "soft": {"title": "soft", "settings": {"pseudo_labels": "soft"}},
    }
    rows = {name: ROWS[name] for name in ("lower", "ssfl")}
    loose = study_of(rows=rows, variants=variants, upper="", lower="", claims=[BETTER])
    ours = lines_of(loose)
    here = results_of(loose, ours, there)
    for variant in variants:
        refusal = bounds_refusal(here, variant, "f1_macro")
        assert refusal.endswith("in the same runs of *Bounded*")
        assert bounds_refusal(here, variant, "accuracy") == ""
    assert "| fixed | 5 | withheld | withheld |" in further_tables(here)
    text = notes(here, [here])
    assert "**Values that are withheld.** A number is the difference of all labels from few" in text
    assert "| withheld | Accuracy | Macro F1 |\n|---|--:|--:|\n| fixed |  | +0." in text
    spelt = {"few/{seed}": "images.npz --labelled=.10 --sites 3 --seed {seed}"}
    respelt = loose.model_copy(update={"sites": {**SITES, **spelt}})
    refusal = bounds_refusal(results_of(respelt, ours, there), "fixed", "f1_macro")
    assert refusal.endswith("in the same runs of *Bounded*"), "it is the same cut"
    other = loose.model_copy(update={"settings": {"learning_rate": 0.5}})
    apart = {cell: line(other, cell, 0.6) for cell in other.cells()}
    assert bounds_refusal(results_of(other, apart, there), "fixed", "f1_macro") == ""


def test_what_is_found_in_results_is_kept_no_longer_than_these() -> None:
    results = results_of(CLAIMED)
    assert bounds_refusal(results, "all", "accuracy") == ""
    assert regime_refusal(results, "all") == ""
    assert same_labels(results, "all", "lower", "ssfl")
    gone = weakref.ref(results)
    del results
    gc.collect()
    assert gone() is None


def test_a_study_without_bounds_says_nothing_of_unlabelled_images() -> None:
    loose = study_of(upper="", lower="", claims=[BETTER])
    not_run = "rows of few and of all labels have not both run"
    results = results_of(loose)
    assert claim_test(results, results.study.claims[0]).refusal == not_run
    worth = "nothing here says what unlabelled images are worth"
    assert f"**Bounds**: {not_run}, so {worth}." in notes(results, [results])
    bounded = results_of(study_of())
    shared = results_of(loose, lines_of(loose), bounded)
    (sentence,) = sentences(shared, [shared])
    assert "**shown**" in sentence, "the other study has the same runs and both bounds"


def test_a_variant_without_bounds_of_its_own_has_those_of_the_first() -> None:
    variants = {"first": {"title": "first"}, "other": {"title": "other", "rows": ["ssfl"]}}
    study = study_of(variants=variants)
    lines = lines_of(study)
    for seed in SEEDS:
        cell = Cell("first", "upper", seed)
        lines[cell] = with_test(lines[cell], f1_macro=0.6)
    results = results_of(study, lines)
    refusal = bounds_refusal(results, "other", "f1_macro")
    assert refusal.startswith("all labels are not shown to beat few, ")
    assert bounds_refusal(results, "other", "accuracy") == ""
    assert not bounds_unknown(results, "other")


def test_claims_added_after_the_run_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = study_of()
    lines = {Cell("all", "ssfl", 1): line(before, Cell("all", "ssfl", 1), 0.7)}
    require_as_recorded(before, tmp_path, lines)
    more = study_of(claims=[BETTER, {**BETTER, "metric": "f1_macro"}])
    turned = study_of(claims=tuple(reversed(more.claims)))
    assert claims_digest(more) == claims_digest(turned) != claims_digest(CLAIMED)
    with pytest.raises(ConfigError, match="found one without claims"):
        require_as_recorded(CLAIMED, tmp_path, lines)
    with pytest.raises(ConfigError, match="found one recorded under others"):
        require_as_recorded(more, tmp_path, lines_of(CLAIMED))
    with pytest.raises(ConfigError, match="found one recorded under others"):
        require_as_recorded(before, tmp_path, lines_of(CLAIMED))
    file = tmp_path / "study.json"
    file.write_text(json.dumps(CLAIMED.model_dump(mode="json")))
    add_records(tmp_path / "results.jsonl", lines.values())
    words = ["bench", str(file), "--results", str(tmp_path / "results.jsonl"), "--verify"]
    assert main(words) == 2
    assert "expected a result recorded under the claims of the study" in capsys.readouterr().err


def test_studies_on_a_page_are_judged_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their claims are corrected together, and a metric that one refuses is refused in both."""
    loose = study_of(title="Loose", upper="", lower="", claims=[{**BETTER, "metric": "f1_macro"}])
    page = tmp_path / "page.md"
    page.write_text(
        "".join(f"<!-- study {n} -->\n<!-- end {n} -->\n" for n in ("bounded", "loose"))
    )
    for name, study in (("bounded", CLAIMED), ("loose", loose)):
        write_study(tmp_path, name, study)
        add_records(tmp_path / f"{name}.jsonl", lines_of(study).values())
        add_records(tmp_path / f"{name}.jsonl", other_references(study).values())

    def called(name: str, *options: str) -> int:
        file = tmp_path / f"{name}.json"
        results = tmp_path / f"{name}.jsonl"
        words = ["--results", str(results), "--page", str(page), "--out", str(tmp_path / "out")]
        return main(["bench", str(file), *words, *options])

    for name in ("bounded", "loose"):
        assert called(name) == 0
        assert called(name, "--verify") == 0
    text = page.read_text()
    assert text.count("**shown**") == 2
    assert text.count("(by Holm among the page's 2)") == 2

    cells = [Cell("all", "upper", seed) for seed in SEEDS]
    lower = [with_test(lines_of(CLAIMED)[cell], f1_macro=0.6) for cell in cells]
    add_records(tmp_path / "bounded.jsonl", lower)
    assert called("loose", "--verify") == 2, "the page shows what the other study now refuses"
    assert called("loose") == 0
    assert "in the same runs of *Three rows*." in page.read_text()

    capsys.readouterr()
    add_records(tmp_path / "bounded.jsonl", lines_of(CLAIMED).values())
    write_study(tmp_path, "loose", study_of(title="Loose", upper="", lower=""))
    assert called("bounded", "--verify") == 2, "a claim fewer would soften the correction"
    assert "loose.jsonl, all lower seed 1: expected a result recorded" in capsys.readouterr().err


def other_references(study: Study) -> dict[Cell, Record]:
    """Return the lines of the references on raw pixels that ``lines_of`` leaves out."""
    lines = {}
    for kind in references_on("pixels", ("all",)):
        if kind != RAW_PIXELS:
            lines |= reference(study, [0.4] * 5, kind)
    return lines


@pytest.mark.parametrize("seeds", [(2,), SEEDS], ids=["one repetition", "all"])
def test_a_reference_that_is_left_out_is_noticed(
    seeds: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be the one by which nothing may be concluded."""
    file = tmp_path / "study.json"
    file.write_text(json.dumps(CLAIMED.model_dump(mode="json")))
    strong = reference(CLAIMED, [0.9] * 5)
    lines = {**lines_of(CLAIMED), **strong, **other_references(CLAIMED)}
    words = ["bench", str(file), "--results", str(tmp_path / "results.jsonl"), "--verify"]
    add_records(tmp_path / "results.jsonl", lines.values())
    assert main(words) == 0
    (tmp_path / "results.jsonl").unlink()
    left = [
        record for cell, record in lines.items() if cell not in strong or cell.seed not in seeds
    ]
    add_records(tmp_path / "results.jsonl", left)
    assert main(words) == 2
    missing = f"all seed {seeds[0]}: expected 4 references of the study's images, found 3, without "
    assert missing in capsys.readouterr().err


def write_study(folder: Path, name: str, study: Study) -> None:
    (folder / f"{name}.json").write_text(json.dumps(study.model_dump(mode="json")))


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({**BETTER, "row": "fedperl"}, "name the row fedperl"),
        ({**BETTER, "metric": "aurc"}, "name aurc"),
        ({**BETTER, "than": "ssfl"}, "compare the row ssfl with itself"),
    ],
)
def test_a_claim_names_what_the_study_shows(claim: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        study_of(claims=[claim])


def test_intervals_stand_beside_means() -> None:
    """Over repetitions by the t distribution, over test groups 1.96 times 0.01."""
    results = results_of(CLAIMED)
    values = list(results.test_values("all", "ssfl", "accuracy").values())
    low, high = stats.t.interval(0.95, 4, sum(values) / 5, stats.sem(values))
    assert f"0.700 [{low:.3f}, {high:.3f}] ± 0.020" in value_table(results)


def test_a_start_that_a_variant_does_not_change_is_that_of_the_first_variant() -> None:
    """A row that begins with weights of all labels sees all of them, also in a later variant."""
    rows = {
        **ROWS,
        "first": {**ROWS["upper"], "title": "first"},
        "warm": {**ROWS["ssfl"], "title": "warm", "init": "first"},
    }
    later = {"title": "B", "settings": {"rounds": 7}, "rows": ["lower", "upper", "warm"]}
    study = study_of(rows=rows, variants={"a": {"title": "A"}, "b": later})
    results = results_of(study, lines_of(study, {"first": 0.8, "warm": 0.7}))
    for variant in ("a", "b"):
        assert same_labels(results, variant, "warm", "upper")
        assert not same_labels(results, variant, "warm", "lower")
