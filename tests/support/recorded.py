"""Recorded lines of studies with known values, without a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedward.lab.bench.claims import recorded_under
from fedward.lab.bench.recording import CURVES
from fedward.lab.bench.records import Curve, ImageDigests, Record
from fedward.lab.bench.reference import Reference
from fedward.lab.bench.reference_runs import reference_cells, reference_settings
from fedward.lab.bench.results import Results
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell

SEEDS = (1, 2, 3, 4, 5)
ROWS = {
    "lower": {"title": "FedAvg, few labels", "job": "fedavg", "sites": "few/{seed}"},
    "ssfl": {"title": "SSFL", "job": "ssfl", "sites": "few/{seed}"},
    "upper": {"title": "FedAvg, all labels", "job": "fedavg", "sites": "all/{seed}"},
}
SITES = {
    "few/{seed}": "images.npz --sites 3 --seed {seed} --labelled 0.1",
    "all/{seed}": "images.npz --sites 3 --seed {seed}",
}
METRICS = ("accuracy", "balanced_accuracy", "f1_macro", "f1_weighted", "pooled")
LEVEL = {"lower": 0.6, "ssfl": 0.7, "upper": 0.8}
"""Row -> mean over seeds; each seed differs from it by a number of its own."""
SCATTER = (0.01, -0.02, 0.015, 0.0, -0.005)
OWN = {
    "lower": (0.0, 0.0, 0.0, 0.0, 0.0),
    "ssfl": (0.01, -0.004, 0.002, -0.01, 0.002),
    "upper": (-0.006, 0.004, 0.0, 0.008, -0.006),
}
"""Row -> what is added at each seed, so that paired differences vary."""


def study_of(**changes: Any) -> Study:
    """Return a study of three rows in which few and all labels are apart."""
    fields = {"title": "Three rows", "rows": ROWS, "sites": SITES, "seeds": SEEDS, "doubled": [1]}
    bounds = {"own": "ssfl", "lower": "lower", "upper": "upper"}
    return Study.model_validate({**fields, "settings": {"rounds": 8}, **bounds, **changes})


def flat(value: float, rounds: int = 8) -> Curve:
    """Return a curve whose validation and test values are all the same."""
    level = (value,) * rounds
    return Curve(tuple(range(1, rounds + 1)), level, dict.fromkeys(CURVES, level), ())


def bare(cell: Cell) -> Record:
    """Return a line without settings and values, of images that are the same at every seed."""
    return Record(
        variant=cell.variant,
        row=cell.row,
        seed=cell.seed,
        settings={},
        audit="",
        model="",
        rounds=1,
        trainings=1,
        seconds=1.0,
        megabytes=1.0,
        curve=flat(0.5, 1),
        test={"global": {}, "last": {}},
        pseudo_labels={},
        sites={},
        picks={},
        metric="accuracy",
        repetition="weights",
        cut=ImageDigests("test", "labels"),
        doubled=cell.doubled,
    )


def line(study: Study, cell: Cell, value: float, rounds: int = 8) -> Record:
    """Return a line of one site whose every metric has one value, of images that differ by seed."""
    values = dict.fromkeys(METRICS, value)
    settings = study.experiment(cell).model_dump(mode="json")
    made = replace(
        bare(cell),
        settings=settings,
        audit=f"end of the log of {cell}",
        metric=settings["key_metric"],
        rounds=rounds,
        curve=flat(value, rounds),
        test={"global": values, "last": values},
        sites={"site-1": {"images": 10.0, **dict.fromkeys(METRICS[:-1], value)}},
        repetition="data and weights",
        cut=ImageDigests(f"test {cell.seed}", f"labels {cell.seed}"),
        by_group={name: {"deviation": 0.01} for name in METRICS},
        best_round={"site-1": rounds},
        best_val=value,
    )
    return recorded_under(study, made)


RAW_PIXELS = Reference("pixels", "svm", "pooled", "all")


def reference(
    study: Study,
    values: Sequence[float],
    kind: Reference = RAW_PIXELS,
) -> dict[Cell, Record]:
    """Return the lines of a reference, one for each seed."""
    lines = {}
    for seed, value in zip(SEEDS, values, strict=True):
        cell = Cell(study.first_variant, str(kind), seed)
        (first,) = reference_cells(study, [cell])
        made = line(study, first, value, rounds=1)
        settings = reference_settings(Bench(study, Path(), Path(), Path(), {}), first)
        lines[cell] = replace(
            made,
            row=cell.row,
            reference=kind,
            settings=settings,
            audit="",
            title="",
            best_round={},
            best_val=None,
        )
    return lines


def lines_of(study: Study, level: Mapping[str, float] | None = None) -> dict[Cell, Record]:
    """Return the lines of a whole study that meets every rule of evidence.

    Each row has converged: at seed 1 twice the rounds give the same value. Raw pixels with all
    labels have 0.5.

    Args:
        study: one of :func:`study_of`.
        level: row -> its mean, where it is not that of ``LEVEL``.
    """
    means = {**LEVEL, **(level or {})}
    lines = reference(study, [0.5 + scatter for scatter in SCATTER])
    for cell in study.cells():
        at = SEEDS.index(cell.seed)
        value = means[cell.row] + SCATTER[at] + OWN.get(cell.row, OWN["lower"])[at]
        lines[cell] = line(study, cell, value, rounds=16 if cell.doubled else 8)
    return lines


def results_of(
    study: Study, lines: Mapping[Cell, Record] | None = None, *neighbours: Results
) -> Results:
    """Return the results of a study; by default those that meet every rule."""
    return Results(study, lines_of(study) if lines is None else lines, neighbours)


def with_test(record: Record, **values: float) -> Record:
    """Return a line with other test values in the best round, and as its site has them."""
    pooled = {"pooled": values["accuracy"]} if "accuracy" in values else {}
    best = {**record.test["global"], **values, **pooled}
    sites = {site: {**of_site, **values} for site, of_site in record.sites.items()}
    last = best if record.reference else record.test["last"]
    return replace(record, test={"global": best, "last": last}, sites=sites)
