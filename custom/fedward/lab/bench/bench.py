"""What ``fedward bench`` does: cut site files, run what is missing, show or check the results."""

import argparse
import io
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from fedward.errors import ConfigError
from fedward.jobs import key_and_value
from fedward.lab.bench.claims import require_claims
from fedward.lab.bench.cost import cost
from fedward.lab.bench.neighbours import neighbours, results_on_page
from fedward.lab.bench.notes import notes
from fedward.lab.bench.page import check_page, write_page
from fedward.lab.bench.recording import check_records
from fedward.lab.bench.records import Record, read_records
from fedward.lab.bench.reference_runs import reference_cells, reference_settings
from fedward.lab.bench.references import Reference, references_on
from fedward.lab.bench.results import Results
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Cell, Study, read_study
from fedward.lab.bench.tables import tables
from fedward.lab.partition.command import add_partition
from fedward.text import count

CUT_DONE = "cut.done"
"""File that is written once all site files of a repetition are."""

_ROUNDING = 2e-5
"""By how much a mean of recorded values may differ from a recorded mean."""


def bench(options: argparse.Namespace) -> int:
    """Run, show or check a study, as the options of ``fedward bench`` say; return 0."""
    study = read_study(options.study)
    seeds_in_file = study.seeds
    if options.seeds:
        study = study.model_copy(update={"seeds": tuple(dict.fromkeys(options.seeds))})
    variants = _require_known("--variants", options.variants, study.variants)
    rows = _require_known("--rows", options.rows, study.rows)
    cells = study.cells(variants, rows)
    out = options.out or Path("runs") / "bench" / options.study.stem
    results_file = options.results or out / "results.jsonl"
    site_files = options.site_files or out / "sites"
    changes = dict(map(key_and_value, options.set))
    require_claims(study, results_file, read_records(results_file))
    work = Bench(
        study, out, site_files, results_file, changes, compared_seeds(study, seeds_in_file)
    )
    if options.verify:
        print(verified(work, options.study, options.page))
        return 0
    if not options.show and not options.page:
        if options.workers < 1:
            raise ConfigError(
                "--workers",
                "Name one above 0.",
                expected="1 or more",
                found=f"{options.workers}",
            )
        compared = [cell._replace(seed=seed) for cell in cells for seed in work.seeds]
        needed = [*cells, *compared]
        # References are of the study's first row, whether it runs or not.
        needed += reference_cells(study, needed)
        cut(study, needed, site_files, options.data)
        if options.cost:
            work.require_known_changes()
            print(cost(work, cells, options.workers))
            return 0
        work.run(cells, options.workers)
    records = read_records(results_file)
    others = neighbours(options.study, results_file)
    results = Results(study, records, tuple(others.values()))
    if options.page:
        on_page = results_on_page(options.page, options.study, results, others)
        write_page(options.page, options.study, results, on_page)
        print(f"{options.page}: tables and figures of {options.study.stem}")
    else:
        print(f"{tables(results)}\n\n{notes(results, [results])}")
    return 0


def compared_seeds(study: Study, seeds_in_file: Sequence[int]) -> tuple[int, ...]:
    """Return seeds whose images those of a study's seeds are compared with.

    A single seed needs another one: of the study's file or, where images are cut for any seed, the
    next number. Without a partition the files of another seed may not be there.
    """
    if len(study.seeds) > 1 or not study.partition:
        return study.seeds
    (seed,) = study.seeds
    others = [other for other in seeds_in_file if other != seed]
    return (seed, others[0] if others else seed + 1)


def cut(study: Study, cells: Sequence[Cell], site_files: Path, data: Path | None) -> None:
    """Write the site files that are missing, as ``fedward partition`` does.

    Args:
        study: says how its folders of site files are made.
        cells: need some of them.
        site_files: folder in which the folders lie.
        data: folder of the data sets.

    Raises:
        ConfigError: some are missing, and no data folder is named or the study does not say how
            they are made.
    """
    parser = argparse.ArgumentParser("fedward partition")
    add_partition(parser)
    for folder, (source, *arguments) in study.partitions(cells).items():
        place = site_files / folder
        # Folders named in ``sites`` may have been written by hand: that they exist is enough.
        done = place / CUT_DONE if study.partition else place
        if done.exists():
            continue
        if data is None:
            raise ConfigError(
                "fedward bench needs a folder of data sets",
                "Name it with --data or FEDWARD_DATA, or name site files of your own with "
                "--site-files.",
            )
        options = parser.parse_args([str(data / source), "--out", str(place), *arguments])
        # Looking for copies is quick in an npz alone; files are opened by each run.
        options.unopened = options.source.suffix != ".npz"
        if not options.unopened:
            # A study takes the labels of a data set as they are.
            options.contradicting = options.contradicting or "kept"
        if not study.partition:
            options.command(options)
            continue
        # A process that was killed here may have left a part of the files.
        shutil.rmtree(place, ignore_errors=True)
        with redirect_stdout(io.StringIO()):
            options.command(options)
        done.touch()
    for cell in cells:
        folder = study.folder(cell)
        if folder and not (site_files / folder).is_dir():
            raise ConfigError(
                "--site-files",
                "Write them, or name their parent folder.",
                expected=f"site files in {site_files / folder}",
                found="no such folder",
            )


def verified(work: Bench, study: Path, page: Path | None) -> str:
    """Compare the results with the study's settings, the run folders here, and a page.

    Returns:
        What was compared, for a person to read.

    Raises:
        ConfigError: a result has other settings or claims than the study, or the page shows other
            results.
        RunError: a result differs from its run folder, or the run folder was changed.
    """
    records = read_records(work.file)
    require_claims(work.study, work.file, records)
    _require_all(work.study, work.file, records)
    _require_all_references(work.study, work.file, records)
    _require_varied(work.file, records)
    for cell, record in records.items():
        if record.reference and cell.variant in work.study.variants:
            _require_current(work, record)
            continue
        if cell.variant not in work.study.variants or cell.row not in work.study.rows:
            raise ConfigError(
                f"{work.file}, {cell}",
                "Remove the line, or put the row back.",
                expected="a row of the study",
                found="none",
            )
        if not work.is_current(record):
            raise ConfigError(
                f"{work.file}, {cell}",
                "Run the cell again.",
                expected="the settings of the study",
                found="others",
            )
        _require_mean_of_sites(work.file, record)
    compared = check_records(work.file, work.finished_runs)
    text = (
        f"{len(records)} results have the study's settings, "
        f"{len(compared)} are those of runs in {work.out}"
    )
    if page:
        others = neighbours(study, work.file)
        results = Results(work.study, records, tuple(others.values()))
        on_page = results_on_page(page, study, results, others)
        check_page(page, study, results, on_page)
        text = f"{text}; {page} says what they say"
    return text


def _require_current(work: Bench, record: Record) -> None:
    """Raise ConfigError if a reference is of other images or another encoder than the study's."""
    (cell,) = reference_cells(work.study, [record.cell])
    if record.settings != reference_settings(work, cell):
        raise ConfigError(
            f"{work.file}, {record.cell}",
            "Run the study again: it fits its references again.",
            expected="a reference on the study's images",
            found="one of other settings",
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


def _require_all_references(study: Study, file: Path, records: Mapping[Cell, Record]) -> None:
    """Raise ConfigError if a repetition lacks some of the references that the others have."""
    kept = [record for record in records.values() if record.reference]
    found: dict[tuple[str, int], set[Reference]] = {}
    for record in kept:
        of_repetition = found.setdefault((record.variant, record.seed), set())
        of_repetition.add(Reference(**record.reference))
    label_counts = sorted({record.reference["labels"] for record in kept})
    expected: set[Reference] = set()
    for input_name in {record.reference["input"] for record in kept}:
        expected.update(references_on(input_name, label_counts))
    for variant in dict.fromkeys(record.variant for record in kept):
        for seed in study.seeds:
            missing = expected - found.get((variant, seed), set())
            if missing:
                raise ConfigError(
                    f"{file}, {variant} seed {seed}",
                    "Run the study: it fits what is missing.",
                    expected=count(len(expected), "reference"),
                    found=f"{len(expected) - len(missing)}, without {min(map(str, missing))}",
                )


def _require_mean_of_sites(file: Path, record: Record) -> None:
    """Raise ConfigError if the test values of a result are not the means of its sites'."""
    for metric, value in record.test["global"].items():
        of_sites = record.of_sites(metric)
        mean = fmean(of_sites.values()) if of_sites else value
        if abs(mean - value) > _ROUNDING:
            raise ConfigError(
                f"{file}, {record.cell}",
                "Run the cell again.",
                expected=f"{metric} to be the mean of its sites, {mean:.5f}",
                found=f"{value:.5f}",
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


def _require_known(option: str, named: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the names given with an option, each once; ConfigError if the study lacks one."""
    names = list(dict.fromkeys(named))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"fedward bench {option}",
            "Name what the study has, or change its file.",
            expected=f"some of {', '.join(known)}",
            found=", ".join(unknown),
        )
    return names
