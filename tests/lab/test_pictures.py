"""Figures of studies: which lines they have, and where their points lie."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedward.lab.bench.curves import draw_curves, has_curves, has_level_lines, plotted
from fedward.lab.bench.notes import caption
from fedward.lab.bench.page import block
from fedward.lab.bench.pictures import figures, is_as_written, write_figure
from fedward.lab.bench.records import Curve, Record
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell
from recorded import SEEDS, bare, lines_of, results_of, study_of, with_test

ROWS = {name: {"title": name, "job": "fedavg"} for name in ("few", "own", "all")}


def result(cell: Cell, curve: Curve, test: float) -> Record:
    values = {"accuracy": test, "f1_macro": test, "pooled": test}
    protocols = {"global": values, "last": values}
    return replace(bare(cell), curve=curve, test=protocols)


def drawn(study: Study, records: list[Record], folder: Path) -> str:
    """Return the curves as text, with single spaces."""
    results = Results(study, {record.cell: record for record in records})
    _, curves = figures(results, folder / "page.md", "study", caption(results))
    write_figure(curves)
    return re.sub(r"\s+", " ", curves.file.read_text())


def test_equal_results_are_drawn_alike(tmp_path: Path) -> None:
    """The title says what the bands do not cover."""
    rows = {name: {**row, "sites": "few"} for name, row in ROWS.items()}
    study = Study.model_validate({"title": "t", "rows": rows, "own": "own", "seeds": (1, 2)})
    rounds = tuple(range(1, 9))
    level = Curve(rounds, (0.5,) * 8, {}, ())
    records = [result(cell, level, 0.5) for cell in study.cells() if cell.row != "all"]
    first = drawn(study, records, tmp_path)
    assert first == drawn(study, records, tmp_path / "again")
    covered = "Intervals are over first weights only; the images and labels were the same."
    assert f"<title>t: few, own. {covered} No difference is shown.</title>" in first
    assert "Weighted F1, validation" in first


def test_variants_by_labels_are_drawn_over_their_share(tmp_path: Path) -> None:
    variants = {
        "whole": {"title": "100 %", "labelled": 1.0},
        "tenth": {"title": "10 %", "labelled": 0.1},
    }
    study = Study.model_validate(
        {"title": "t", "rows": ROWS, "variants": variants, "seeds": (1, 2)}
    )
    level = Curve(tuple(range(1, 9)), (0.5,) * 8, {}, ())
    records = [
        result(cell, level, 0.5 if cell.variant == "whole" else 0.4) for cell in study.cells()
    ]
    text = drawn(study, records, tmp_path)
    assert "labelled training images, %" in text


def test_bought_labels_are_drawn_over_their_number(tmp_path: Path) -> None:
    study = Study.model_validate({"title": "t", "rows": ROWS, "seeds": (1, 2)})
    rounds = tuple(range(1, 11))
    test = {"accuracy": (0.2, *(0.5,) * 9)}
    bought = Curve(rounds, (0.2, *(0.5,) * 9), test, (10, *(30,) * 9))
    every = Curve(rounds, (0.6,) * 10, {"accuracy": (0.6,) * 10}, ())
    records = [result(cell, every if cell.row == "all" else bought, 0.5) for cell in study.cells()]
    text = drawn(study, records, tmp_path)
    results = Results(study, dict(zip(study.cells(), records, strict=True)))
    dashed = "A dashed line is a row that has a single value."
    assert dashed in block(Path("bought.json"), results, [results])
    assert "labels at all sites" in text
    assert "Accuracy, test" in text
    assert "<title>t: few, own, all." in text


def axes_of_bought(study: Study, by_seed: dict[int, Curve]) -> Any:
    """Return the axes of a study whose rows have the same curves."""
    records = {cell: result(cell, by_seed[cell.seed], 0.5) for cell in study.cells()}
    (axes,) = draw_curves(Results(study, records)).axes
    return axes


def test_repetitions_that_buy_at_other_times_are_compared_at_equal_labels() -> None:
    """Each has the value of its last number of labels until it has more."""
    study = Study.model_validate({"title": "t", "rows": {"own": ROWS["own"]}, "seeds": (1, 2)})
    twice = {"accuracy": (0.1, 0.2, 0.3, 0.3)}
    once = {"accuracy": (0.2, 0.2, 0.4, 0.5)}
    axes = axes_of_bought(
        study,
        {
            1: Curve((1, 2, 3, 4), (0.9,) * 4, twice, (10, 20, 30, 30)),
            2: Curve((1, 2, 3, 4), (0.9,) * 4, once, (12, 12, 12, 30)),
        },
    )
    (own,) = (drawn for drawn in axes.lines if len(drawn.get_xdata()) == 3)
    assert list(own.get_xdata()) == [12, 20, 30]
    assert list(own.get_ydata()) == pytest.approx([(0.1 + 0.4) / 2, (0.2 + 0.4) / 2, 0.4])


def test_a_metric_without_a_test_value_in_each_round_gives_way_to_validation() -> None:
    fields = {"title": "t", "rows": {"own": ROWS["own"]}, "seeds": (1, 2)}
    study = Study.model_validate({**fields, "metrics": ["balanced_accuracy"]})
    bought = Curve((1, 2), (0.2, 0.6), {"accuracy": (0.5, 0.5)}, (10, 20))
    axes = axes_of_bought(study, {1: bought, 2: bought})
    assert axes.get_ylabel() == "Weighted F1, validation"
    assert axes.get_xlabel() == "labels at all sites"
    gap = Curve((1, 2), (0.2, 0.6), {"accuracy": (0.5,)}, ())
    axes = axes_of_bought(Study.model_validate(fields), {1: gap, 2: gap})
    assert axes.get_ylabel() == "Weighted F1, validation"


def test_a_metric_that_is_withheld_has_no_curve() -> None:
    study = study_of(metrics=["f1_macro", "accuracy"], settings={"key_metric": "f1_macro"})
    lines = lines_of(study)
    assert has_curves(results_of(study, lines))
    assert not has_level_lines(results_of(study, lines))
    for seed in SEEDS:
        cell = Cell("all", "upper", seed)
        lines[cell] = with_test(lines[cell], f1_macro=0.6)
    assert not has_curves(results_of(study, lines))


def test_a_variant_whose_metric_is_withheld_has_no_place_on_the_curve() -> None:
    variants = {
        "tenth": {"title": "10 %", "labelled": 0.1},
        "half": {"title": "50 %", "labelled": 0.5},
    }
    study = study_of(variants=variants)
    lines = lines_of(study)
    for record in list(lines.values()):
        if record.reference:
            moved = replace(record, variant="half")
            lines[moved.cell] = moved
    (axes,) = draw_curves(results_of(study, lines)).axes
    assert {tuple(drawn.get_xdata()) for drawn in axes.lines} >= {(10, 50)}
    for seed in SEEDS:
        cell = Cell("half", "upper", seed)
        lines[cell] = with_test(lines[cell], accuracy=0.6)
    (axes,) = draw_curves(results_of(study, lines)).axes
    assert (10, 50) not in {tuple(drawn.get_xdata()) for drawn in axes.lines}


@pytest.mark.parametrize(
    ("shares", "places"),
    [((0.001, 0.004), (0.1, 0.4)), ((0.07, 0.29), (7, 29)), ((0.125, 1.0), (12.5, 100))],
)
def test_each_variant_has_its_place_on_the_curve_however_small_its_share(
    shares: tuple[float, float], places: tuple[float, float]
) -> None:
    variants = {f"{share}": {"title": f"{share}", "labelled": share} for share in shares}
    study = study_of(variants=variants)
    lines = lines_of(study)
    for record in list(lines.values()):
        if record.reference:
            moved = replace(record, variant=f"{shares[1]}")
            lines[moved.cell] = moved
    results = results_of(study, lines)
    (axes,) = draw_curves(results).axes
    assert places in {tuple(drawn.get_xdata()) for drawn in axes.lines}
    assert f": {places[0]:g}: 0." in plotted(results)[2]


def test_variants_of_one_share_are_not_drawn_over_it() -> None:
    """The second one would take the place of the first."""
    variants = {name: {"title": name, "labelled": 0.1} for name in ("one", "other")}
    study = study_of(variants=variants)
    (axes,) = draw_curves(results_of(study)).axes
    assert axes.get_xlabel() == "round"


def test_a_figure_is_there_exactly_if_there_is_something_to_show(tmp_path: Path) -> None:
    """Its file says what it shows, so that one of other results is noticed."""
    study = study_of()
    page = tmp_path / "page.md"
    before = figures(results_of(study), page, "study", "")
    for figure in before:
        assert not is_as_written(figure)
        write_figure(figure)
        assert is_as_written(figure)
    after = figures(results_of(study, lines_of(study, {"ssfl": 0.71})), page, "study", "")
    assert not is_as_written(after[0])
    assert is_as_written(after[1]) == (before[1].plotted == after[1].plotted)
    nothing = figures(results_of(study, {}), page, "study", "")
    for figure in nothing:
        assert not is_as_written(figure), "a figure of results that are no longer there"
        write_figure(figure)
        assert not figure.file.exists()
        assert is_as_written(figure)


def test_a_figure_that_puts_another_row_in_bold_is_noticed(tmp_path: Path) -> None:
    study = study_of()
    page = tmp_path / "page.md"
    for figure in figures(results_of(study), page, "study", ""):
        write_figure(figure)
    another = next(row for row in study.rows if row != study.own)
    about_another = study.model_copy(update={"own": another})
    for figure in figures(results_of(about_another), page, "study", ""):
        assert not is_as_written(figure)


def with_another_body(text: str) -> str:
    return text[: text.index("</metadata>")] + "</metadata><text>20 points better</text></svg>\n"


def with_a_moved_point(text: str) -> str:
    return re.sub(r"\d\.\d", "9.9", text[:-200]) + text[-200:]


def with_another_head(text: str) -> str:
    return text.replace('role="img"', 'role="img" width="1"')


def with_second_digests(text: str) -> str:
    (metadata,) = re.findall("<metadata>.*</metadata>", text)
    return text.replace(metadata, 2 * metadata)


def with_the_digest_of_what_it_shows_alone(text: str) -> str:
    return re.sub(" [0-9a-f]{64}</metadata>", "</metadata>", text)


@pytest.mark.parametrize(
    "change",
    [
        with_another_body,
        with_a_moved_point,
        with_another_head,
        with_second_digests,
        with_the_digest_of_what_it_shows_alone,
    ],
)
def test_an_edit_of_a_figures_file_is_noticed(change: Callable[[str], str], tmp_path: Path) -> None:
    figure, _ = figures(results_of(study_of()), tmp_path / "page.md", "study", "")
    write_figure(figure)
    assert is_as_written(figure)
    text = figure.file.read_text()
    assert change(text) != text
    figure.file.write_text(change(text))
    assert not is_as_written(figure)


def test_axes_of_scores_end_where_scores_do(tmp_path: Path) -> None:
    """Also where an interval of two seeds reaches beyond."""
    study = Study.model_validate({"title": "t", "rows": ROWS, "seeds": (1, 2)})
    level = {
        1: Curve(tuple(range(1, 9)), (0.9,) * 8, {}, ()),
        2: Curve(tuple(range(1, 9)), (1.0,) * 8, {}, ()),
    }
    text = drawn(study, [result(cell, level[cell.seed], 0.5) for cell in study.cells()], tmp_path)
    ticks = [float(tick) for tick in re.findall(r">(-?\d\.\d+)</text>", text)]
    assert max(ticks) == 1.0
    assert min(ticks) >= 0


def test_figures_have_the_colours_of_reports(tmp_path: Path) -> None:
    """All that they use, in light and in dark."""
    study = Study.model_validate({"title": "t", "rows": ROWS, "seeds": (1, 2)})
    level = Curve(tuple(range(1, 9)), (0.5,) * 8, {}, ())
    text = drawn(study, [result(cell, level, 0.5) for cell in study.cells()], tmp_path)
    light, dark = re.findall(r":root { ([^}]*) }", text)
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= set(re.findall(r"(--[\w-]+):", light))
    assert "--ink: #1b2430" in light
    assert "--ink: #e6ebf1" in dark
    assert text.index("@media (prefers-color-scheme: dark)") < text.index(dark)
