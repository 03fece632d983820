"""What ``fedward bench`` does: it cuts the site files, runs what is missing, and shows or checks
the results.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedward.errors import ConfigError
from fedward.jobs import key_and_value
from fedward.lab.bench.page import check_page, write_page
from fedward.lab.bench.recording import check_records
from fedward.lab.bench.records import read_records
from fedward.lab.bench.runs import Bench, Engine
from fedward.lab.bench.study import Cell, Study, read_study
from fedward.lab.bench.tables import Results, tables
from fedward.lab.partition.command import add_partition


def bench(options: argparse.Namespace, engine: Engine) -> int:
    """Run, show or check a study, as the options of ``fedward bench`` say; return 0."""
    study = read_study(options.study)
    study = (
        study.model_copy(update={"seeds": tuple(dict.fromkeys(options.seeds))})
        if options.seeds
        else study
    )
    variants = _known("--variants", options.variants, study.variants)
    rows = _known("--rows", options.rows, study.rows)
    cells = study.cells(variants, rows)
    out = options.out or Path("runs") / "bench" / options.study.stem
    file = options.results or out / "results.jsonl"
    site_files = options.site_files or out / "sites"
    work = Bench(study, out, site_files, file, dict(map(key_and_value, options.set)), engine)
    if options.verify:
        print(verified(work, options.study, options.page))
        return 0
    if not options.show and not options.page:
        if options.workers < 1:
            raise ConfigError(
                "--workers",
                expected="1 or more",
                found=f"{options.workers}",
                remedy="Name one above 0.",
            )
        cut(study, cells, site_files, options.data)
        work.run(cells, options.workers)
    results = Results(study, read_records(file))
    if options.page:
        write_page(options.page, options.study, results)
        print(f"{options.page}: tables and figure of {options.study.stem}")
    else:
        print(tables(results))
    return 0


def cut(study: Study, cells: Sequence[Cell], site_files: Path, data: Path | None) -> None:
    """Write the site files that a study cuts itself and that do not lie there yet, as ``fedward
    partition`` does.

    Raises ConfigError: some are missing, and no data folder is named or the study does not say how
    to cut them.
    """
    missing = [
        (folder, words)
        for folder, words in study.partitions(cells).items()
        if not (site_files / folder).exists()
    ]
    if missing and data is None:
        remedy = "Name the folder with --data or FEDWARD_DATA, or site files of your own with --site-files."
        raise ConfigError(
            "fedward bench", expected="a folder of data sets", found="none", remedy=remedy
        )
    partition = argparse.ArgumentParser("fedward partition")
    add_partition(partition)
    for folder, (source, *arguments) in missing:
        assert data is not None
        words = partition.parse_args(
            [str(data / source), "--out", str(site_files / folder), *arguments]
        )
        words.command(words)
    for folder in {name for cell in cells if (name := study.folder(cell))}:
        if not (site_files / folder).is_dir():
            expected = f"site files in {site_files / folder}"
            remedy = "Write them, or name their parent folder."
            raise ConfigError(
                "--site-files", expected=expected, found="no such folder", remedy=remedy
            )


def verified(work: Bench, study: Path, page: Path | None) -> str:
    """Compare the results with the study's settings, the run folders that lie here, and a page;
    return what was found.

    Raises:
        ConfigError: a result has other settings than the study says, or the page says something
            else.
        RunError: a run folder says something else than the result, or was changed.
    """
    records = read_records(work.file)
    for cell, result in records.items():
        if cell.variant not in work.study.variants or cell.row not in work.study.rows:
            remedy = "Remove the line, or put the row back."
            raise ConfigError(
                f"{work.file}, {cell}", expected="a row of the study", found="none", remedy=remedy
            )
        if not result.is_of(work.experiment(cell)):
            expected = "the settings of the study"
            remedy = "Run the cell again."
            raise ConfigError(
                f"{work.file}, {cell}", expected=expected, found="others", remedy=remedy
            )
    compared = check_records(work.file, work.finished)
    if page:
        check_page(page, study, Results(work.study, records))
    said = f"{len(records)} results have the study's settings, {len(compared)} are those of runs in {work.out}"
    return f"{said}; {page} says what they say" if page else said


def _known(option: str, named: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return what an option names, once each; raise ConfigError for a name that the study has not."""
    unknown = [name for name in dict.fromkeys(named) if name not in known]
    if unknown:
        expected = f"some of {', '.join(known)}"
        found = ", ".join(unknown)
        remedy = "Name what the study has, or change its file."
        raise ConfigError(f"fedward bench {option}", expected=expected, found=found, remedy=remedy)
    return list(dict.fromkeys(named))
