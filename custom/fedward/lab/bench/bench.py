"""What ``fedward bench`` does: cut site files, run what is missing, show or check the results."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedward.errors import ConfigError
from fedward.jobs import key_and_value
from fedward.lab.bench.page import check_page, write_page
from fedward.lab.bench.recording import check_records
from fedward.lab.bench.records import read_records
from fedward.lab.bench.results import Results
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Cell, Study, read_study
from fedward.lab.bench.tables import tables
from fedward.lab.partition.command import add_partition


def bench(options: argparse.Namespace) -> int:
    """Run, show or check a study, as the options of ``fedward bench`` say; return 0."""
    study = read_study(options.study)
    if options.seeds:
        study = study.model_copy(update={"seeds": tuple(dict.fromkeys(options.seeds))})
    variants = _require_known("--variants", options.variants, study.variants)
    rows = _require_known("--rows", options.rows, study.rows)
    cells = study.cells(variants, rows)
    out = options.out or Path("runs") / "bench" / options.study.stem
    results_file = options.results or out / "results.jsonl"
    site_files = options.site_files or out / "sites"
    changes = dict(map(key_and_value, options.set))
    work = Bench(study, out, site_files, results_file, changes)
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
        cut(study, cells, site_files, options.data)
        work.run(cells, options.workers)
    results = Results(study, read_records(results_file))
    if options.page:
        write_page(options.page, options.study, results)
        print(f"{options.page}: tables and figure of {options.study.stem}")
    else:
        print(tables(results))
    return 0


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
        if (site_files / folder).exists():
            continue
        if data is None:
            raise ConfigError(
                "fedward bench needs a folder of data sets",
                "Name it with --data or FEDWARD_DATA, or name site files of your own with "
                "--site-files.",
            )
        options = parser.parse_args(
            [str(data / source), "--out", str(site_files / folder), *arguments]
        )
        options.command(options)
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
        ConfigError: a result has other settings than the study, or the page shows other results.
        RunError: a result differs from its run folder, or the run folder was changed.
    """
    records = read_records(work.file)
    for cell, record in records.items():
        if cell.variant not in work.study.variants or cell.row not in work.study.rows:
            raise ConfigError(
                f"{work.file}, {cell}",
                "Remove the line, or put the row back.",
                expected="a row of the study",
                found="none",
            )
        if not record.is_of(work.experiment(cell)):
            raise ConfigError(
                f"{work.file}, {cell}",
                "Run the cell again.",
                expected="the settings of the study",
                found="others",
            )
    compared = check_records(work.file, work.finished)
    text = (
        f"{len(records)} results have the study's settings, "
        f"{len(compared)} are those of runs in {work.out}"
    )
    if page:
        check_page(page, study, Results(work.study, records))
        text = f"{text}; {page} says what they say"
    return text


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
