"""Figures of studies: which lines they have, and where their points lie."""

import re
from dataclasses import replace
from pathlib import Path

from fedward.lab.bench.notes import caption
from fedward.lab.bench.pictures import draw
from fedward.lab.bench.records import Curve, Record
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import Cell, Study
from recorded import bare

ROWS = {name: {"title": name, "job": "fedavg"} for name in ("few", "own", "all")}


def result(cell: Cell, curve: Curve, test: float) -> Record:
    values = {"accuracy": test, "f1_macro": test, "pooled": test}
    protocols = {"global": values, "last": values}
    return replace(bare(cell), curve=curve, test=protocols)


def drawn(study: Study, records: list[Record], file: Path) -> str:
    """Return the curves as text, with single spaces."""
    results = Results(study, {record.cell: record for record in records})
    draw(results, file.with_suffix(".forest.svg"), file, caption(results))
    return re.sub(r"\s+", " ", file.read_text())


def test_equal_results_are_drawn_alike(tmp_path: Path) -> None:
    """The title says what the bands do not cover."""
    rows = {name: {**row, "sites": "few"} for name, row in ROWS.items()}
    study = Study.model_validate({"title": "t", "rows": rows, "own": "own", "seeds": (1, 2)})
    rounds = tuple(range(1, 9))
    level = Curve(rounds, (0.5,) * 8, {}, ())
    records = [result(cell, level, 0.5) for cell in study.cells() if cell.row != "all"]
    first = drawn(study, records, tmp_path / "a.svg")
    assert first == drawn(study, records, tmp_path / "b.svg")
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
    text = drawn(study, records, tmp_path / "a.svg")
    assert "labelled training images, %" in text


def test_bought_labels_are_drawn_over_their_number(tmp_path: Path) -> None:
    study = Study.model_validate({"title": "t", "rows": ROWS, "seeds": (1, 2)})
    rounds = tuple(range(1, 11))
    test = {"accuracy": (0.2, *(0.5,) * 9)}
    bought = Curve(rounds, (0.2, *(0.5,) * 9), test, (10, *(30,) * 9))
    every = Curve(rounds, (0.6,) * 10, {"accuracy": (0.6,) * 10}, ())
    records = [result(cell, every if cell.row == "all" else bought, 0.5) for cell in study.cells()]
    text = drawn(study, records, tmp_path / "a.svg")
    assert "labels at all sites" in text
    assert "<title>t: few, own, all." in text


def test_axes_of_scores_end_where_scores_do(tmp_path: Path) -> None:
    """Also where an interval of two seeds reaches beyond."""
    study = Study.model_validate({"title": "t", "rows": ROWS, "seeds": (1, 2)})
    level = {
        1: Curve(tuple(range(1, 9)), (0.9,) * 8, {}, ()),
        2: Curve(tuple(range(1, 9)), (1.0,) * 8, {}, ()),
    }
    text = drawn(
        study, [result(cell, level[cell.seed], 0.5) for cell in study.cells()], tmp_path / "a.svg"
    )
    ticks = [float(tick) for tick in re.findall(r">(-?\d\.\d+)</text>", text)]
    assert max(ticks) == 1.0
    assert min(ticks) >= 0


def test_figures_have_the_colours_of_reports(tmp_path: Path) -> None:
    """All that they use, in light and in dark."""
    study = Study.model_validate({"title": "t", "rows": ROWS, "seeds": (1, 2)})
    level = Curve(tuple(range(1, 9)), (0.5,) * 8, {}, ())
    text = drawn(study, [result(cell, level, 0.5) for cell in study.cells()], tmp_path / "a.svg")
    light, dark = re.findall(r":root { ([^}]*) }", text)
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= set(re.findall(r"(--[\w-]+):", light))
    assert "--ink: #1b2430" in light
    assert "--ink: #e6ebf1" in dark
    assert text.index("@media (prefers-color-scheme: dark)") < text.index(dark)
