"""Whether kept results are those of a study and of its runs."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import ConfigError
from fedward.lab.bench.agreement import require_agreement
from fedward.lab.bench.claims import require_as_recorded
from fedward.lab.bench.recording import check_records
from fedward.lab.bench.records import Record, read_records
from fedward.lab.bench.reference_runs import (
    kept_references,
    reference_cells,
    reference_settings,
)
from fedward.lab.bench.results import chosen_value, last_value
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell
from fedward.methods import method_of
from fedward.text import count

if TYPE_CHECKING:
    from fedward.lab.bench.runs import Bench


def verified_records(work: "Bench") -> str:
    """Compare the kept results with the study, with each other, and with the run folders here.

    Returns:
        What was compared, for a person to read.

    Raises:
        ConfigError: results are missing, are not of the study, are twice of one run, have other
            settings, claims, bounds or images than the study, other rounds than their settings, no
            value of a metric of the study, or values that do not follow from those of their sites
            or curves.
        RunError: a result differs from its run folder, or the run folder was changed.
    """
    records = read_records(work.file)
    require_as_recorded(work.as_written, work.file, records)
    _require_all(work.study, work.file, records)
    _require_no_others(work.study, work.file, records)
    _require_all_references(work, records)
    _require_own_runs(work.file, records)
    _require_varied(work.file, records)
    _require_one_cut(work, records)
    for record in records.values():
        _require_current(work, record)
        _require_rounds(work, record)
        _require_metrics(work.study, record)
        alone = not record.reference and work.study.rows[record.row].alone
        require_agreement(work.file, record, alone=alone)
    compared = check_records(work.file, work.finished_runs)
    return (
        f"{len(records)} results have the study's settings, "
        f"{len(compared)} are those of runs in {work.out}"
    )


def _require_all(study: Study, file: Path, records: Mapping[Cell, Record]) -> None:
    """Raise ConfigError if a run of the study has no result.

    A repetition that is left out may be the one that speaks against a claim.
    """
    missing = [cell for cell in study.cells() if cell not in records]
    if missing:
        raise ConfigError(
            f"{file}",
            "Run the study, or take the rows and seeds that did not run out of it.",
            expected="a result of every run of the study",
            found=f"none of {count(len(missing), 'run')}, such as {missing[0]}",
        )


def _require_no_others(study: Study, file: Path, records: Mapping[Cell, Record]) -> None:
    """Raise ConfigError if a result is of no run of the study, or of no reference to its images.

    A row or seed that was taken out after it ran may be the one that speaks against a claim.
    """
    cells = set(study.cells())
    repetitions = {(cell.variant, cell.seed) for cell in reference_cells(study, study.cells())}
    for cell, record in records.items():
        is_of_study = cell in cells
        if record.reference:
            is_named = cell.row == str(record.reference) and not cell.doubled
            is_of_study = is_named and (cell.variant, cell.seed) in repetitions
        if not is_of_study:
            raise ConfigError(
                f"{file}, {cell}",
                "Put the row, seed or doubled seed back, or run the study again.",
                expected="a result of a run of the study",
                found="one of a run that it does not have",
            )


def _require_all_references(work: "Bench", records: Mapping[Cell, Record]) -> None:
    """Raise ConfigError if a repetition lacks a reference.

    A study without any is not refused, as nothing is concluded from it.
    """
    if not any(record.reference for record in records.values()):
        return
    for cell, references in kept_references(work, work.study.cells(), records).items():
        if references.missing:
            raise ConfigError(
                f"{work.file}, {cell.variant} seed {cell.seed}",
                "Run the study: it fits what is missing.",
                expected=f"{count(len(references.whole), 'reference')} of the study's images",
                found=f"{len(references.kept)}, without {min(map(str, references.missing))}",
            )


def _require_own_runs(file: Path, records: Mapping[Cell, Record]) -> None:
    """Raise ConfigError if two lines are of one run: no two audit logs end alike."""
    first_of: dict[str, Cell] = {}
    for cell, record in records.items():
        if record.reference:
            continue
        other = first_of.setdefault(record.audit, cell)
        if other != cell:
            raise ConfigError(
                f"{file}, {cell}",
                "Delete its line and run the study again.",
                expected=f"another run than that of {other}",
                found="the same one",
            )


def _require_varied(file: Path, records: Mapping[Cell, Record]) -> None:
    """Raise ConfigError if seeds are said to differ in images or labels, and do not."""
    first_with: dict[tuple[str, str, bool, str, str], Cell] = {}
    for cell, record in records.items():
        if record.repetition == "weights":
            continue
        for part, part_digest in asdict(record.cut).items():
            of_row = (cell.variant, cell.row, cell.doubled)
            other = first_with.setdefault((*of_row, part, part_digest), cell)
            if other != cell:
                raise ConfigError(
                    f"{file}, {cell}",
                    "Delete both lines and run the study again.",
                    expected=f"other images and labels than those of seed {other.seed}",
                    found=f"the same {part}",
                )


def _require_one_cut(work: "Bench", records: Mapping[Cell, Record]) -> None:
    """Raise ConfigError if lines of the same site files are of different images or labels.

    Whoever moves a row to other site files in the study leaves its lines with the old images.
    """
    first_of: dict[str, Record] = {}
    for cell, record in records.items():
        folder = record.settings["sites"] if record.reference else work.study.folder(cell)
        other = first_of.setdefault(folder or f"synthetic images of seed {cell.seed}", record)
        if other.cut != record.cut:
            raise ConfigError(
                f"{work.file}, {cell}",
                "Put back the sites of both rows as they were recorded, or delete both lines and "
                "run the study again.",
                expected=f"the images and labels of {other.cell}, which has the same site files",
                found="others",
            )


def _require_current(work: "Bench", record: Record) -> None:
    """Raise ConfigError if a result has other settings than its run would have now.

    A reference may be of other images or another encoder.
    """
    if record.reference:
        (cell,) = reference_cells(work.study, [record.cell])
        is_current = record.settings == reference_settings(work, cell)
        remedy = "Run the study again: it fits its references again."
    else:
        is_current = work.is_current(record)
        remedy = "Run the cell again."
    if not is_current:
        raise ConfigError(
            f"{work.file}, {record.cell}",
            remedy,
            expected="the settings of the study",
            found="others",
        )


def _require_metrics(study: Study, record: Record) -> None:
    """Raise ConfigError if a result lacks a value that a page shows."""
    for metric in study.metrics:
        chosen_value(record, metric)
        last_value(record, metric)


def _require_rounds(work: "Bench", record: Record) -> None:
    """Raise ConfigError if a result has another number of rounds than its settings, or than one.

    A single round needs no convergence. A reference has one.
    """
    rounds = 1
    if not record.reference:
        removed = work.study.rows[record.row].removed_settings
        rounds = method_of(record.without(removed)).settings.rounds
    if record.rounds != rounds:
        raise ConfigError(
            f"{work.file}, {record.cell}",
            "Run the study again; fit a reference again by deleting its line.",
            expected=count(rounds, "round"),
            found=f"{record.rounds}",
        )
