"""References of a study: which are missing, and their lines among its results."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fedward.lab.bench.by_group import bootstrap_standard_errors
from fedward.lab.bench.claims import recorded_under
from fedward.lab.bench.records import (
    DIGITS,
    Curve,
    Record,
    add_records,
    read_records,
    rounded,
    values_of_sites,
)
from fedward.lab.bench.reference import Labels, Reference, references_on
from fedward.lab.bench.reference_images import ReferenceImages, input_names
from fedward.lab.bench.references import Fits, FittedReference
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import METRICS, Cell, Settings

if TYPE_CHECKING:
    from fedward.lab.bench.runs import Bench

_DEPENDS_ON = {"data", "synthetic", "net", "pretrained", "trainable", "key_metric", "seed"}
"""Fields of an experiment on which references depend."""


class KeptReferences(NamedTuple):
    """The references of a repetition."""

    whole: frozenset[Reference]
    """All that it must have."""
    kept: frozenset[Reference]
    """Those that have a line of the same images and settings."""

    @property
    def missing(self) -> frozenset[Reference]:
        """Those without such a line."""
        return self.whole - self.kept


def reference_cells(study: Study, cells: Sequence[Cell]) -> list[Cell]:
    """Return a cell of each repetition of some cells, whose images the references see.

    It is that of the row of few labels, so that there are references with as few; without such a
    row it is the first one of the variant. Variants are those of
    :meth:`~fedward.lab.bench.study.Study.variant_of_references`.
    """
    wanted: dict[Cell, None] = {}
    for cell in cells:
        variant = study.variant_of_references(cell.variant)
        wanted[Cell(variant, study.lower or study.rows_of(variant)[0], cell.seed)] = None
    return list(wanted)


def kept_references(
    work: "Bench", cells: Sequence[Cell], records: Mapping[Cell, Record]
) -> dict[Cell, KeptReferences]:
    """Return the references of each repetition of some cells, by its :func:`reference_cells`.

    A repetition must have all that are fitted on its inputs. Those with few labels are among them
    if any repetition of the variant has one, or if the lines of the variant say that the row of few
    labels sees fewer than that of all labels. A study that hides no labels has no such references.

    Args:
        work: the study.
        cells: some of its cells.
        records: the kept results.
    """
    asked = reference_cells(work.study, cells)
    kept = {}
    for cell in dict.fromkeys([*asked, *reference_cells(work.study, work.study.cells())]):
        wanted = (cell.variant, cell.seed, reference_settings(work, cell))
        kept[cell] = frozenset(
            line.reference
            for line in records.values()
            if line.reference and (line.variant, line.seed, line.settings) == wanted
        )
    found = {}
    for cell in asked:
        of_variant = [refs for other, refs in kept.items() if other.variant == cell.variant]
        has_few = any(reference.labels == "few" for refs in of_variant for reference in refs)
        some_are_hidden = has_few or _hides_labels(work.study, cell.variant, records)
        label_counts: tuple[Labels, ...] = ("few", "all") if some_are_hidden else ("all",)
        whole: set[Reference] = set()
        for input_name in input_names(work.experiment(cell)):
            whole.update(references_on(input_name, label_counts))
        found[cell] = KeptReferences(frozenset(whole), kept[cell])
    return found


def _hides_labels(study: Study, variant: str, records: Mapping[Cell, Record]) -> bool:
    """Return whether the row of few labels saw others than that of all, as far as lines say."""
    for seed in study.seeds:
        few = records.get(Cell(variant, study.lower, seed))
        whole = records.get(Cell(variant, study.upper, seed))
        if few and whole and few.cut.labels != whole.cut.labels:
            return True
    return False


def missing_references(work: "Bench", cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of :func:`reference_cells` that lack a reference.

    They come variant by variant: a later one need not fit the references with all labels again.
    """
    kept = kept_references(work, cells, read_records(work.file))
    variants = list(work.study.variants)
    missing = [cell for cell, references in kept.items() if references.missing]
    return sorted(missing, key=lambda cell: variants.index(cell.variant))


def reference_settings(work: "Bench", cell: Cell) -> Settings:
    """Return what the references of a cell's repetition depend on, as their lines keep it."""
    settings = work.experiment(cell).model_dump(mode="json", include=_DEPENDS_ON)
    partition = work.study.partition_of(cell.variant)
    return {**settings, "partition": partition, "sites": work.study.folder(cell)}


def run_references(work: "Bench", cell: Cell) -> str:
    """Fit the references of a cell's repetition, keep them, and return their values for a person.

    Raises:
        DataError: the site files, or what they name, cannot be used.
    """
    experiment = work.experiment(cell)
    files = work.files_of(cell)
    images = ReferenceImages(experiment, work.sites_of(cell), files, work.out / "cache")
    fits = Fits(images.by_site(), experiment, images.inputs())
    results = _with_all_labels(work, cell)
    known = [result.reference for result in results if result.reference]
    texts = []
    started = time.perf_counter()
    for reference, fitted in fits.all(known):
        seconds = time.perf_counter() - started
        result = _record(work, cell, reference, fitted, seconds)
        results.append(result)
        value = result.test["global"].get(experiment.key_metric)
        if value is not None:
            texts.append(f"{reference} {value:.3f}")
        started = time.perf_counter()
    add_records(work.file, results)
    return f"{experiment.key_metric}: {', '.join(texts)}"


def _with_all_labels(work: "Bench", cell: Cell) -> list[Record]:
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
        if same_images and line.reference and line.reference.labels == "all":
            lines[line.row] = replace(
                line,
                variant=cell.variant,
                settings=settings,
                cut=drawn.cut,
                repetition=drawn.repetition,
            )
    return list(lines.values())


def _record(
    work: "Bench", cell: Cell, reference: Reference, fitted: FittedReference, seconds: float
) -> Record:
    """Return the line of a reference. It has no rounds: one value is that of each protocol."""
    drawn = work.drawn(cell)
    experiment = work.experiment(cell)
    sites: dict[str, dict[str, float]] = {}
    for site, values in fitted.sites.items():
        sites[site] = rounded({name: values.get(name) for name in ("images", *METRICS)})
    test = values_of_sites(fitted.sites)
    curve = Curve((), (), {}, ())
    if fitted.validation is not None:
        curve = Curve((1,), (round(fitted.validation, DIGITS),), {}, ())
    result = Record(
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
        reference=reference,
        chosen=fitted.chosen,
        by_group=bootstrap_standard_errors(fitted.answers, len(experiment.data.classes)),
    )
    return recorded_under(work.as_written, result)
