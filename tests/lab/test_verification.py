"""What ``--verify`` refuses to who would change recorded lines, or the study behind them."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from fedward.digests import digest
from fedward.errors import ConfigError, RunError
from fedward.lab.bench.claims import require_as_recorded
from fedward.lab.bench.records import (
    ImageDigests,
    Record,
    add_records,
    read_records,
    values_of_sites,
)
from fedward.lab.bench.reference import Labels, references_on
from fedward.lab.bench.reference_runs import missing_references, reference_cells
from fedward.lab.bench.results import Results
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell
from fedward.lab.bench.tables import value_table
from fedward.lab.bench.verification import verified_records
from recorded import (
    RAW_PIXELS,
    ROWS,
    SEEDS,
    bare,
    flat,
    line,
    lines_of,
    reference,
    results_of,
    study_of,
    with_test,
)

STUDY = study_of()
SHARES = {
    "whole": {"title": "all labels", "labelled": 1.0, "rows": ["lower", "upper"]},
    "tenth": {"title": "10 %", "labelled": 0.1},
}
SPLIT = {
    "partition": "images.npz --sites 3 --labelled 0.1",
    "sites": {},
    "rows": {
        name: {**row, "sites": "all" if name == "upper" else "few"} for name, row in ROWS.items()
    },
}
"""A study that cuts its images, so that variants may differ by their share of labels."""


def all_lines(study: Study, label_sets: tuple[Labels, ...] = ("few", "all")) -> dict[Cell, Record]:
    """Return the lines of a study with each reference on pixels, in its first variant."""
    lines = lines_of(study)
    for kind in references_on("pixels", label_sets):
        lines |= reference(study, [0.4] * len(SEEDS), kind)
    return lines


def work_of(study: Study, lines: Mapping[Cell, Record], folder: Path) -> Bench:
    """Return a study's bench, whose kept results are some lines."""
    work = Bench(study, folder, folder / "sites", folder / "results.jsonl", {})
    add_records(work.file, lines.values())
    return work


def older(lines: Mapping[Cell, Record]) -> dict[Cell, Record]:
    """Return the lines as they were before they kept what the study was judged by."""
    return {cell: replace(record, judged_by="") for cell, record in lines.items()}


def verify(study: Study, lines: Mapping[Cell, Record], folder: Path) -> str:
    return verified_records(work_of(study, lines, folder))


def test_whole_results_are_accepted(tmp_path: Path) -> None:
    lines = all_lines(STUDY)
    assert verify(STUDY, lines, tmp_path).startswith(f"{len(lines)} results have the study's")


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": [1, 2, 4, 5]},
        {"doubled": []},
        {"rows": {name: ROWS[name] for name in ("lower", "upper")}, "own": "lower"},
    ],
    ids=["seed", "doubled seed", "row"],
)
def test_what_is_taken_out_of_a_study_after_it_ran_is_noticed(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """It may speak against a claim; or be a reference that is still compared."""
    with pytest.raises(ConfigError, match="found one of a run that it does not have"):
        verify(study_of(**changes), older(all_lines(STUDY)), tmp_path)


def test_a_reference_of_a_seed_that_the_study_lacks_is_noticed_and_never_compared(
    tmp_path: Path,
) -> None:
    fewer = study_of(seeds=[1, 2, 4, 5])
    lines = {
        cell: record
        for cell, record in older(all_lines(STUDY)).items()
        if cell.seed != 3 or record.reference
    }
    for by_seed in results_of(fewer, lines).references("all").values():
        assert list(by_seed) == [1, 2, 4, 5]
    with pytest.raises(ConfigError, match=r"reference .* seed 3: .* of a run that it does not"):
        verify(fewer, lines, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"lower": "ssfl"},
        {"upper": "ssfl"},
        {"seeds": [*SEEDS, 6]},
        {"doubled": [2]},
        {"metrics": ["accuracy"]},
        {"metrics": ["f1_macro", "accuracy"]},
        {"rows": {**ROWS, "upper": {**ROWS["upper"], "sites": "few/{seed}"}}},
        {"rows": {**ROWS, "ssfl": {**ROWS["ssfl"], "alone": True}}},
        {"rows": {**ROWS, "ssfl": {**ROWS["ssfl"], "init": "lower"}}},
        {"rows": {**ROWS, "ssfl": {**ROWS["ssfl"], "labels": "lower"}}},
        {"sites": {"few/{seed}": "images.npz --labelled 0.5"}},
        {"communities": {"north": ["site-1", "site-3"]}},
        {"variants": {"all": {"title": "", "rows": ["ssfl"]}}},
        {"variants": {"all": {"title": "", "labelled": 0.5}}},
    ],
)
def test_what_judges_a_study_stays_as_it_was_when_its_lines_were_recorded(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    lines = lines_of(STUDY)
    require_as_recorded(study_of(title="Another title"), tmp_path, lines)
    require_as_recorded(study_of(seeds=SEEDS[::-1]), tmp_path, lines)
    retold = {name: {**ROWS[name], "title": f"Row {name}"} for name in reversed(ROWS)}
    require_as_recorded(study_of(rows=retold), tmp_path, lines)
    require_as_recorded(study_of(**changes), tmp_path, older(lines))
    with pytest.raises(ConfigError, match="recorded under the bounds, seeds, metrics, rows, var"):
        require_as_recorded(study_of(**changes), tmp_path, lines)


@pytest.mark.parametrize("part", ["rows", "variants"])
def test_titles_that_rows_or_variants_exchange_are_noticed(part: str, tmp_path: Path) -> None:
    """Tables would show the values of one as those of the other."""
    parts: dict[str, dict[str, Any]] = {"rows": SPLIT["rows"], "variants": SHARES}
    lines = lines_of(study_of(**{**SPLIT, **parts}))
    first, second, *_ = parts[part].items()
    exchanged = {
        **parts[part],
        first[0]: {**first[1], "title": second[1]["title"]},
        second[0]: {**second[1], "title": first[1]["title"]},
    }
    study = study_of(**{**SPLIT, **parts, part: exchanged})
    with pytest.raises(ConfigError, match="to be the title of this row, as when it was recorded"):
        require_as_recorded(study, tmp_path, lines)
    require_as_recorded(study, tmp_path, {cell: replace(lines[cell], title="") for cell in lines})


def test_the_variant_that_a_claim_without_one_is_on_stays_the_first(tmp_path: Path) -> None:
    """It is that of the first place, so another order would be another claim."""
    claim = {"row": "upper", "than": "lower", "metric": "accuracy", "direction": "higher"}
    study = study_of(variants=SHARES, claims=[claim], **SPLIT)
    turned = study_of(variants=dict(reversed(SHARES.items())), claims=[claim], **SPLIT)
    lines = lines_of(study)
    require_as_recorded(study, tmp_path, lines)
    with pytest.raises(ConfigError, match="under the bounds, seeds, metrics, rows, variants"):
        require_as_recorded(turned, tmp_path, lines)


def test_lines_from_before_rows_were_covered_are_accepted_beside_others(tmp_path: Path) -> None:
    fields = {"lower": "lower", "upper": "upper", "metrics": ["accuracy", "f1_macro"]}
    before_rows = digest({**fields, "seeds": [1, 2, 3, 4, 5], "doubled": [1]})
    lines = lines_of(STUDY)
    for cell, record in lines.items():
        if cell.seed in (1, 2):
            lines[cell] = replace(record, judged_by=before_rows)
    require_as_recorded(STUDY, tmp_path, lines)
    first = STUDY.cells()[0]
    with pytest.raises(ConfigError, match=r"all lower seed 1: .* found one recorded under others"):
        require_as_recorded(study_of(upper="ssfl"), tmp_path, {first: lines[first]})


@pytest.mark.parametrize(
    ("row", "sites", "other"), [("upper", "few", "lower"), ("ssfl", "all", "ssfl")]
)
def test_a_row_that_is_moved_to_other_site_files_after_it_ran_is_noticed(
    row: str, sites: str, other: str, tmp_path: Path
) -> None:
    """Lines of all labels would count as those of few, or the reverse."""
    study = study_of(**SPLIT)
    lines = older(all_lines(study))
    for cell, record in lines.items():
        if cell.row == "upper":
            labels = f"all labels {cell.seed}"
            lines[cell] = replace(record, cut=replace(record.cut, labels=labels))
    assert verify(study, lines, tmp_path).startswith(f"{len(lines)} results have")
    rows = {**SPLIT["rows"], row: {**SPLIT["rows"][row], "sites": sites}}
    found = f"expected the images and labels of all {other} seed 1, which has the same site files"
    with pytest.raises(ConfigError, match=found):
        verify(study_of(**{**SPLIT, "rows": rows}), lines, tmp_path)


def test_lines_say_what_the_studys_file_says_whichever_seeds_run(tmp_path: Path) -> None:
    one_seed = STUDY.model_copy(update={"seeds": (7,)})
    work = Bench(one_seed, tmp_path, tmp_path, tmp_path / "results.jsonl", {}, STUDY)
    (cell,) = reference_cells(one_seed, [Cell("all", "ssfl", 7)])
    made = line(work.as_written, cell, 0.5)
    require_as_recorded(STUDY, work.file, {cell: made})
    assert made.judged_by != line(one_seed, cell, 0.5).judged_by


def test_values_of_sites_are_means_over_those_that_have_one() -> None:
    """Accuracy over all test images counts each image alike."""
    sites = {
        "one": {"images": 30.0, "accuracy": 0.5, "f1_macro": 0.4},
        "two": {"images": 10.0, "accuracy": 0.9},
        "untested": {"images": 0.0},
    }
    assert values_of_sites(sites) == {"accuracy": 0.7, "f1_macro": 0.4, "pooled": 0.6}
    assert values_of_sites({}) == {}


def without_sites(record: Record) -> Record:
    return replace(record, sites={})


def of_better_images(record: Record) -> Record:
    better = {**record.test["global"], "pooled": record.test["global"]["pooled"] + 0.01}
    return replace(record, test={"global": better, "last": better})


@pytest.mark.parametrize("row", ["ssfl", "reference pixels svm pooled all"])
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (without_sites, "no value without sites"),
        (of_better_images, "expected pooled to be the mean of its sites"),
    ],
)
def test_values_are_those_that_the_sites_give(
    row: str, change: Any, found: str, tmp_path: Path
) -> None:
    """Those of references, too, and the accuracy over all test images."""
    lines = all_lines(STUDY)
    cell = Cell("all", row, 2)
    with pytest.raises(ConfigError, match=found):
        verify(STUDY, {**lines, cell: change(lines[cell])}, tmp_path)


def of_rounds(record: Record, rounds: int) -> Record:
    return replace(record, rounds=rounds, curve=flat(record.curve.val[0], rounds))


@pytest.mark.parametrize("row", ["ssfl", "reference pixels svm pooled all"])
def test_rounds_are_those_of_the_settings(row: str, tmp_path: Path) -> None:
    """A row of a single round would need no run of twice the rounds to have converged."""
    lines = all_lines(STUDY)
    cell = Cell("all", row, 2)
    rounds = 8 if row == "ssfl" else 1
    lines[cell] = of_rounds(lines[cell], 9 - rounds)
    found = rf"{row} seed 2: expected {rounds} rounds?, found {9 - rounds}\."
    with pytest.raises(ConfigError, match=found):
        verify(STUDY, lines, tmp_path)


def test_rounds_of_a_removed_row_are_those_of_its_recorded_settings(tmp_path: Path) -> None:
    rows = {name: dict(row) for name, row in ROWS.items()}
    rows["ssfl"] |= {"settings": {"gone": 1}, "removed": "0123456"}
    study = study_of(rows=rows)
    lines = all_lines(study)
    for cell, record in lines.items():
        if cell.row == "ssfl":
            options = {**record.settings["options"], "gone": 1}
            lines[cell] = replace(record, settings={**record.settings, "options": options})
    assert verify(study, lines, tmp_path).startswith(f"{len(lines)} results have")
    cell = Cell("all", "ssfl", 2)
    with pytest.raises(ConfigError, match="expected 8 rounds, found 1"):
        verify(study, {**lines, cell: of_rounds(lines[cell], 1)}, tmp_path)


def with_best_round(record: Record, round_: int = 5, **changes: Any) -> Record:
    """Return a line that names a round of its flat curve."""
    best_val = record.curve.val[0]
    return replace(record, best_round={"site-1": round_}, best_val=best_val, **changes)


def of_better_last_rounds(record: Record) -> Record:
    last = {**record.test["last"], "f1_macro": record.test["last"]["f1_macro"] + 0.01}
    return replace(record, test={**record.test, "last": last})


def of_no_test_curve(record: Record) -> Record:
    return replace(record, curve=replace(record.curve, test={}))


def of_a_round_that_was_not_evaluated(record: Record) -> Record:
    return with_best_round(record, 9)


def of_better_validation(record: Record) -> Record:
    return replace(with_best_round(record), best_val=record.curve.val[0] + 0.01)


def of_no_validation(record: Record) -> Record:
    return replace(with_best_round(record), best_val=None)


def of_better_sites_and_best_round(record: Record) -> Record:
    return with_test(with_best_round(record), f1_macro=record.test["global"]["f1_macro"] + 0.01)


def of_a_round_that_is_best_on_test_images(record: Record) -> Record:
    """Return a line whose round 3 has better test values, and worse validation values."""
    curve = record.curve
    better = record.test["global"]["f1_macro"] + 0.1
    values = {metric: (*line[:2], better, *line[3:]) for metric, line in curve.test.items()}
    val = (*curve.val[:2], curve.val[2] - 0.1, *curve.val[3:])
    chosen = with_best_round(replace(record, curve=replace(curve, val=val, test=values)), 3)
    return replace(
        with_test(chosen, **dict.fromkeys(record.sites["site-1"].keys() - {"images"}, better)),
        best_val=val[2],
    )


def of_a_start_that_is_not_best(record: Record) -> Record:
    return replace(with_best_round(record, 0), best_val=record.curve.val[0] - 0.01)


def of_two_best_rounds(record: Record) -> Record:
    return replace(of_better_sites_and_best_round(record), best_round={"site-1": 4, "site-2": 5})


def of_no_best_round(record: Record) -> Record:
    return replace(of_better_sites_and_best_round(record), best_round={})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (of_a_round_that_is_best_on_test_images, "best on validation images, .* found round 3, w"),
        (of_a_start_that_is_not_best, "best on validation images, with 0.6.* found round 0, with"),
        (of_two_best_rounds, "expected one best round of all sites, found 4, 5"),
        (of_no_best_round, "expected one best round of all sites, found none"),
        (of_better_last_rounds, "expected f1_macro of the last rounds to be that of the curve, 0."),
        (of_no_test_curve, "accuracy of the last rounds to be that of the curve, none, found 0."),
        (of_a_round_that_was_not_evaluated, "value of round 9 to be that of the curve, none"),
        (of_better_validation, "the validation value of round 5 to be that of the curve, 0."),
        (of_no_validation, "the validation value of round 5 to be that .* found none"),
        (of_better_sites_and_best_round, "expected f1_macro of round 5 to be that of the curve"),
    ],
)
def test_values_of_a_run_are_on_its_curve(change: Any, found: str, tmp_path: Path) -> None:
    lines = all_lines(STUDY)
    cell = Cell("all", "ssfl", 2)
    for honest in (lines[cell], with_best_round(lines[cell]), with_best_round(lines[cell], 0)):
        (tmp_path / "results.jsonl").unlink(missing_ok=True)
        verify(STUDY, {**lines, cell: honest}, tmp_path)
    with pytest.raises(ConfigError, match=found):
        verify(STUDY, {**lines, cell: change(lines[cell])}, tmp_path)


def test_sites_alone_have_each_its_own_best_round(tmp_path: Path) -> None:
    """Their curve is a mean, of which no single round need be the best."""
    rows = {**ROWS, "alone": {**ROWS["lower"], "title": "alone", "alone": True}}
    study = study_of(rows=rows)
    lines = lines_of(study, {"alone": 0.6})
    for kind in references_on("pixels", ("few", "all")):
        lines |= reference(study, [0.4] * len(SEEDS), kind)
    cell = Cell("all", "alone", 2)
    lines[cell] = of_two_best_rounds(lines[cell])
    assert verify(study, lines, tmp_path).startswith(f"{len(lines)} results have")


def test_a_reference_has_no_last_rounds_of_its_own(tmp_path: Path) -> None:
    lines = all_lines(STUDY)
    cell = Cell("all", "reference pixels svm pooled all", 2)
    last = {**lines[cell].test["last"], "accuracy": 0.1}
    several = replace(lines[cell], test={**lines[cell].test, "last": last})
    for changed in (several, replace(lines[cell], best_val=0.9)):
        with pytest.raises(ConfigError, match="a reference with one value of each metric"):
            verify(STUDY, {**lines, cell: changed}, tmp_path)


def test_a_reference_has_one_line_in_a_repetition(tmp_path: Path) -> None:
    """A second one under another name would take its place."""
    lines = all_lines(STUDY)
    strong = lines[Cell("all", "reference pixels svm pooled all", 2)]
    second = replace(strong, row="zzz")
    with pytest.raises(ConfigError, match=r"all zzz seed 2: .* of a run that it does not have"):
        verify(STUDY, {**lines, second.cell: second}, tmp_path)


def test_a_repetition_that_lacks_a_reference_fits_it_again(tmp_path: Path) -> None:
    """What ``--verify`` misses is what a run of the study makes."""
    lines = all_lines(STUDY)
    del lines[Cell("all", "reference pixels logistic alone few", 4)]
    work = work_of(STUDY, lines, tmp_path)
    with pytest.raises(ConfigError, match=r"seed 4: expected 8 references .* found 7, without"):
        verified_records(work)
    assert missing_references(work, STUDY.cells()) == [Cell("all", "lower", 4)]


def test_a_study_that_hides_labels_misses_all_references_with_few(tmp_path: Path) -> None:
    """Without any of them nothing says how good a pooled classifier is on the same labels."""
    lines = all_lines(STUDY, ("all",))
    whole = Cell("all", "upper", 1)
    lines[whole] = replace(lines[whole], cut=ImageDigests("test 1", "all labels of 1"))
    with pytest.raises(ConfigError, match=r"seed 1: expected 8 references .* found 4, without"):
        verify(STUDY, lines, tmp_path)


@pytest.mark.parametrize(
    "kind", [{"input": "pixels"}, {**asdict(RAW_PIXELS), "model": "forest"}, ["pixels"]], ids=str
)
def test_a_line_of_a_reference_that_fedward_does_not_know_is_refused(
    kind: object, tmp_path: Path
) -> None:
    made = next(iter(reference(STUDY, [0.5] * len(SEEDS)).values()))
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps({**asdict(made), "reference": kind}), encoding="utf-8")
    with pytest.raises(RunError, match=r"results\.jsonl, line 1: expected a result, found "):
        read_records(file)


def test_an_older_line_of_a_run_names_an_empty_reference(tmp_path: Path) -> None:
    kept = bare(Cell("all", "ssfl", 1))
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps({**asdict(kept), "reference": {}}), encoding="utf-8")
    assert read_records(file) == {kept.cell: kept}


def lines_of_shares(study: Study) -> dict[Cell, Record]:
    """Return lines whose references with few labels are those of the second variant alone."""
    lines = lines_of(study)
    lines = {cell: record for cell, record in lines.items() if not record.reference}
    for variant, label_sets in (("whole", ("all",)), ("tenth", ("few", "all"))):
        for kind in references_on("pixels", label_sets):
            for seed in SEEDS:
                (seen,) = reference_cells(study, [Cell(variant, "lower", seed)])
                (made,) = (
                    record
                    for record in reference(study, [0.4] * 5, kind).values()
                    if record.seed == seed
                )
                settings = {**made.settings, "sites": study.folder(seen)}
                moved = replace(made, variant=variant, settings=settings)
                lines[moved.cell] = moved
    return lines


def test_a_variant_of_all_labels_has_no_reference_with_few(tmp_path: Path) -> None:
    study = study_of(variants=SHARES, **SPLIT)
    lines = lines_of_shares(study)
    assert verify(study, lines, tmp_path).startswith(f"{len(lines)} results have")
    work = Bench(study, tmp_path, tmp_path / "sites", tmp_path / "results.jsonl", {})
    assert missing_references(work, study.cells()) == []


def test_a_variant_with_its_own_labels_never_has_the_references_of_another(tmp_path: Path) -> None:
    study = study_of(variants=SHARES, **SPLIT)
    lines = {
        cell: record
        for cell, record in lines_of_shares(study).items()
        if not record.reference or cell.variant != "tenth"
    }
    assert Results(study, lines).references("whole")
    assert Results(study, lines).references("tenth") == {}
    with pytest.raises(ConfigError, match=r"tenth seed 1: expected 4 references .* found 0, with"):
        verify(study, lines, tmp_path)


def test_references_see_the_images_of_few_labels_wherever_that_row_stands() -> None:
    rows = {name: SPLIT["rows"][name] for name in ("upper", "ssfl", "lower")}
    study = study_of(**{**SPLIT, "rows": rows})
    cells = reference_cells(study, [Cell("all", "upper", 3)])
    assert [study.folder(cell) for cell in cells] == ["seed-3/few"]


def test_two_lines_of_one_run_are_noticed(tmp_path: Path) -> None:
    """A repetition that went well would count as several."""
    lines = all_lines(STUDY)
    first, second = (lines[Cell("all", "ssfl", seed)] for seed in (1, 2))
    copied = replace(first, seed=2, settings=second.settings, cut=second.cut)
    found = "all ssfl seed 2: expected another run than that of all ssfl seed 1, found the same"
    with pytest.raises(ConfigError, match=found):
        verify(STUDY, {**lines, copied.cell: copied}, tmp_path)


@pytest.mark.parametrize("protocol", ["global", "last"])
@pytest.mark.parametrize("row", ["ssfl", "reference pixels svm pooled all"])
def test_a_line_without_a_metric_of_the_study_is_named(
    row: str, protocol: str, tmp_path: Path
) -> None:
    lines = all_lines(STUDY)
    cell = Cell("all", row, 2)
    values = dict(lines[cell].test[protocol])
    del values["f1_macro"]
    lines[cell] = replace(lines[cell], test={**lines[cell].test, protocol: values})
    found = f"result of {cell}: expected a test value of f1_macro, found none"
    with pytest.raises(ConfigError, match=found):
        verify(STUDY, lines, tmp_path)
    if protocol == "global":
        with pytest.raises(ConfigError, match=found):
            value_table(results_of(STUDY, lines))


def test_the_metric_that_chose_a_round_is_that_of_the_settings(tmp_path: Path) -> None:
    lines = all_lines(STUDY)
    cell = Cell("all", "ssfl", 2)
    lines[cell] = replace(lines[cell], metric="accuracy")
    with pytest.raises(ConfigError, match="chosen by f1_weighted, found one by accuracy"):
        verify(STUDY, lines, tmp_path)


@pytest.mark.parametrize(
    ("part", "value", "found"),
    [
        (("test", "global", "accuracy"), math.nan, "not a finite number"),
        (("by_group", "accuracy", "deviation"), math.inf, "not a finite number"),
        (("seconds",), math.nan, "not a finite number"),
        (("curve", "val"), [0.5, 0.5], "a curve with another number of values than of rounds"),
        (("curve", "labels"), [10, 20], "a curve with another number of values than of rounds"),
        (("curve", "test", "accuracy"), [0.5] * 9, "another number of values than of rounds"),
        (("curve", "round"), list(range(2, 10)), "a curve with other rounds than 1 to 8"),
        (("test",), {"global": {}}, "test values without last or global"),
        (("sites",), {"site-1": {"accuracy": 0.5}}, "a site without its number of images"),
        (("by_group",), {"accuracy": {}}, "groups of test images without a deviation"),
        (("curve", "val"), [1.5] * 8, "a value of a metric outside 0 to 1"),
        (("curve", "test", "accuracy"), [-0.5] * 8, "a value of a metric outside 0 to 1"),
        (("test", "last", "accuracy"), 1.5, "a value of a metric outside 0 to 1"),
        (("sites", "site-1", "accuracy"), 1.5, "a value of a metric outside 0 to 1"),
        (("by_group", "accuracy", "deviation"), -0.1, "a value of a metric outside 0 to 1"),
    ],
    ids=lambda given: ".".join(given) if isinstance(given, tuple) else None,
)
def test_a_line_that_no_table_could_show_is_refused(
    part: tuple[str, ...], value: object, found: str, tmp_path: Path
) -> None:
    fields = asdict(line(STUDY, Cell("all", "ssfl", 1), 0.5))
    parent = fields
    for name in part[:-1]:
        parent = parent[name]
    parent[part[-1]] = value
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(fields))
    with pytest.raises(RunError, match=rf"results\.jsonl, line 1: expected a result, .*{found}"):
        read_records(file)


def test_a_second_line_of_a_cell_is_refused(tmp_path: Path) -> None:
    """It would take the place of the first one."""
    kept = bare(Cell("all", "ssfl", 1))
    lines = [json.dumps(asdict(record)) for record in (kept, replace(kept, seconds=2.0))]
    file = tmp_path / "results.jsonl"
    file.write_text("\n".join(lines))
    with pytest.raises(RunError, match=r"line 2: .* found a second one of all ssfl seed 1"):
        read_records(file)


@pytest.mark.parametrize("part", [(), ("cut",), ("curve",)])
def test_a_field_that_would_get_lost_is_refused(part: tuple[str, ...], tmp_path: Path) -> None:
    fields = asdict(bare(Cell("all", "ssfl", 1)))
    changed = fields
    for name in part:
        changed = changed[name]
    changed["approved"] = True
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(fields))
    with pytest.raises(RunError, match="approved"):
        read_records(file)


def test_older_lines_can_be_read(tmp_path: Path) -> None:
    fields = asdict(bare(Cell("all", "ssfl", 1)))
    del fields["judged_by"]
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(fields))
    assert read_records(file)[Cell("all", "ssfl", 1)].judged_by == ""
