"""References of a study: which are missing, and their lines among its results."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from fedward.config import Experiment
from fedward.evaluation.selection import mean
from fedward.lab.bench.by_group import deviations
from fedward.lab.bench.claims import claims_digest
from fedward.lab.bench.records import (
    DIGITS,
    METRICS,
    Curve,
    Drawn,
    Record,
    add_records,
    read_records,
    rounded,
)
from fedward.lab.bench.reference_images import ReferenceImages
from fedward.lab.bench.references import Fits, Outcome, Reference
from fedward.lab.bench.study import Cell, Settings, Study

_DEPENDS_ON = {"data", "synthetic", "net", "pretrained", "trainable", "key_metric", "seed"}
"""Fields of an experiment on which references depend."""


class Repetitions(Protocol):
    """A study whose repetitions have references; see :class:`fedward.lab.bench.runs.Bench`."""

    study: Study
    out: Path
    file: Path

    def experiment(self, cell: Cell) -> Experiment:
        """Return what a cell runs."""

    def files_of(self, cell: Cell) -> Path | None:
        """Return the folder of a cell's site files."""

    def sites_of(self, cell: Cell) -> list[str]:
        """Return the sites of a cell, with labels or without."""

    def drawn(self, cell: Cell) -> Drawn:
        """Return which images a cell uses, and what differs between seeds."""


def reference_cells(study: Study, cells: Sequence[Cell]) -> list[Cell]:
    """Return a cell of each repetition of some cells, whose images the references see.

    It is that of the study's first row. A variant without a share of labels or a cut of its own has
    the references of the first variant.
    """
    wanted: dict[Cell, None] = {}
    for cell in cells:
        variant = cell.variant
        has_own_images = study.variants[variant].labelled is not None
        if not has_own_images and not study.variants[variant].partition:
            variant = study.first_variant
        wanted[Cell(variant, study.rows_of(variant)[0], cell.seed)] = None
    return list(wanted)


def missing_references(work: Repetitions, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of :func:`reference_cells` without kept references of the same settings.

    They come variant by variant: a later one need not fit the references with all labels again.
    """
    kept = [result for result in read_records(work.file).values() if result.reference]
    missing = []
    for cell in reference_cells(work.study, cells):
        wanted = (cell.variant, cell.seed, reference_settings(work, cell))
        if not any((line.variant, line.seed, line.settings) == wanted for line in kept):
            missing.append(cell)
    variants = list(work.study.variants)
    return sorted(missing, key=lambda cell: variants.index(cell.variant))


def reference_settings(work: Repetitions, cell: Cell) -> Settings:
    """Return what the references of a cell's repetition depend on, as their lines keep it."""
    settings = work.experiment(cell).model_dump(mode="json", include=_DEPENDS_ON)
    partition = work.study.partition_of(cell.variant)
    return {**settings, "partition": partition, "sites": work.study.folder(cell)}


def run_references(work: Repetitions, cell: Cell) -> str:
    """Fit the references of a cell's repetition, keep them, and return their values for a person.

    Raises:
        DataError: the site files, or what they name, cannot be used.
    """
    experiment = work.experiment(cell)
    files = work.files_of(cell)
    images = ReferenceImages(experiment, work.sites_of(cell), files, work.out / "cache")
    fits = Fits(images.by_site(), experiment, images.inputs())
    results = _with_all_labels(work, cell)
    fitted = [Reference(**result.reference) for result in results]
    texts = []
    started = time.perf_counter()
    for reference, outcome in fits.all(fitted):
        seconds = time.perf_counter() - started
        result = _record(work, cell, reference, outcome, seconds)
        results.append(result)
        value = result.test["global"].get(experiment.key_metric)
        if value is not None:
            texts.append(f"{' '.join(reference)} {value:.3f}")
        started = time.perf_counter()
    add_records(work.file, results)
    return f"{experiment.key_metric}: {', '.join(texts)}"


def _with_all_labels(work: Repetitions, cell: Cell) -> list[Record]:
    """Return the lines of a repetition's references that another variant has fitted already.

    Variants that differ in their share of labels alone have the same images at the same sites, so
    that references with all labels are the same.
    """
    settings = reference_settings(work, cell)
    drawn = work.drawn(cell)
    lines: dict[str, Record] = {}
    for line in read_records(work.file).values():
        # The folder of site files has the share of labels in its name.
        in_this_folder = {**line.settings, "sites": settings["sites"]}
        same_images = (
            line.seed == cell.seed
            and line.cut.test == drawn.cut.test
            and in_this_folder == settings
        )
        if same_images and line.reference.get("labels") == "all":
            lines[line.row] = replace(
                line,
                variant=cell.variant,
                settings=settings,
                cut=drawn.cut,
                repetition=drawn.repetition,
            )
    return list(lines.values())


def _record(
    work: Repetitions, cell: Cell, reference: Reference, outcome: Outcome, seconds: float
) -> Record:
    """Return the line of a reference. It has no rounds: one value is that of each protocol."""
    drawn = work.drawn(cell)
    experiment = work.experiment(cell)
    sites: dict[str, dict[str, float]] = {}
    for site, values in outcome.sites.items():
        sites[site] = rounded({name: values.get(name) for name in ("images", *METRICS)})
    test = _test_values(outcome.sites)
    curve = Curve((), (), {}, ())
    if outcome.validation is not None:
        curve = Curve((1,), (round(outcome.validation, DIGITS),), {}, ())
    return Record(
        variant=cell.variant,
        row=str(reference),
        seed=cell.seed,
        settings=reference_settings(work, cell),
        audit="",
        model="",
        rounds=1,
        trainings=0,
        seconds=round(seconds, 1),
        megabytes=0.0,
        curve=curve,
        test={"last": test, "global": test},
        pseudo_labels={},
        sites=sites,
        picks={},
        metric=experiment.key_metric,
        repetition=drawn.repetition,
        cut=drawn.cut,
        reference=reference._asdict(),
        chosen=outcome.chosen,
        by_group=deviations(outcome.answers, len(experiment.data.classes)),
        claims=claims_digest(work.study),
    )


def _test_values(sites: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return metric -> mean over the sites that have it, and the accuracy of all images."""
    means = {metric: mean([values.get(metric) for values in sites.values()]) for metric in METRICS}
    tested = [values for values in sites.values() if "accuracy" in values]
    images = sum(values["images"] for values in tested)
    if images:
        right = sum(values["images"] * values["accuracy"] for values in tested)
        means["pooled"] = right / images
    return rounded(means)
