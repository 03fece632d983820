"""What ``fedward bench`` does: cut site files, run what is missing, show or check the results."""

import argparse
import io
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from fedward.errors import ConfigError, option
from fedward.jobs import key_and_value
from fedward.lab.bench.claims import require_as_recorded
from fedward.lab.bench.cost import cost
from fedward.lab.bench.neighbours import neighbours, results_on_page
from fedward.lab.bench.notes import notes
from fedward.lab.bench.page import check_page, write_page
from fedward.lab.bench.prospects import hopeless_claims
from fedward.lab.bench.records import read_records
from fedward.lab.bench.reference_runs import reference_cells
from fedward.lab.bench.results import Results
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.study_parts import Cell
from fedward.lab.bench.tables import tables
from fedward.lab.bench.verification import verified_records
from fedward.lab.partition.command import add_partition
from fedward.lab.run_check import print_folded

CUT_BEGUN = ".begun"
"""End of the name of the file beside a folder of site files, while these are being written."""
_OF_RUNS = ("rows", "variants", "seeds", "set")
"""Options that change what runs."""
_USED_BESIDE = {"show": ("seeds",), "page": (), "verify": ("seeds", "set")}
"""Option with which nothing runs -> those of the options of runs that change something there."""


def bench(options: argparse.Namespace) -> int:
    """Run, show or check a study, as the options of ``fedward bench`` say; return 0."""
    _require_options_that_count(options)
    as_written = read_study(options.study)
    study = as_written
    if options.seeds:
        study = study.model_copy(update={"seeds": tuple(dict.fromkeys(options.seeds))})
    out = options.out or Path("runs") / "bench" / options.study.stem
    work = Bench(
        study,
        out,
        site_files=options.site_files or out / "sites",
        file=options.results or out / "results.jsonl",
        changes=dict(map(key_and_value, options.set)),
        as_written=as_written,
    )
    work.require_known_changes()
    require_as_recorded(as_written, work.file, read_records(work.file))
    if options.verify:
        print(verified(work, options.study, options.page))
    elif options.page:
        print(_written(work, options.study, options.page))
    elif options.show:
        print(_shown(work, options.study))
    else:
        warning = hopeless_claims(as_written)
        if warning:
            print_folded(warning)
        cells = _cut_cells(work, options)
        if options.cost:
            print(cost(work, cells, options.workers))
        else:
            work.run(cells, options.workers)
            print(_shown(work, options.study))
    return 0


def _require_options_that_count(options: argparse.Namespace) -> None:
    """Raise ConfigError if an option would have no effect beside the others."""
    asked = [name for name in ("cost", "show", "page", "verify") if getattr(options, name)]
    if len(asked) > 1 and asked != ["page", "verify"]:
        raise ConfigError(
            "fedward bench",
            "Call it once for each.",
            expected=f"one of {option('cost')}, {option('show')}, {option('page')} and "
            f"{option('verify')}, or the last two",
            found=" and ".join(map(option, asked)),
        )
    for name in asked:
        used = _USED_BESIDE.get(name, _OF_RUNS)
        unused = [other for other in _OF_RUNS if getattr(options, other) and other not in used]
        if unused:
            raise ConfigError(
                f"fedward bench {option(name)}",
                "Leave it out.",
                expected="no option that would change nothing",
                found=" and ".join(map(option, unused)),
            )


def _cut_cells(work: Bench, options: argparse.Namespace) -> list[Cell]:
    """Return the cells that the options ask for, once their site files are there."""
    study = work.study
    variants = _require_known("variants", options.variants, study.variants)
    rows = _require_known("rows", options.rows, study.rows)
    if options.workers < 1:
        raise ConfigError(
            option("workers"),
            "Name one above 0.",
            expected="1 or more",
            found=f"{options.workers}",
        )
    cells = study.cells(variants, rows)
    needed = [*cells, *(cell._replace(seed=seed) for cell in cells for seed in work.seeds)]
    # References may be of a row that does not run.
    needed += reference_cells(study, needed)
    cut(study, needed, work.site_files, options.data)
    return cells


def _results(work: Bench, study_file: Path) -> tuple[Results, dict[str, Results]]:
    """Return the results of a study, and name -> those of the studies beside it."""
    others = neighbours(study_file, work.file)
    return Results(work.study, read_records(work.file), tuple(others.values())), others


def _shown(work: Bench, study_file: Path) -> str:
    """Return the tables of a study, with what they support."""
    results, _ = _results(work, study_file)
    return f"{tables(results)}\n\n{notes(results, [results])}"


def _written(work: Bench, study_file: Path, page: Path) -> str:
    """Write a page, and return what it has now."""
    results, others = _results(work, study_file)
    write_page(page, study_file, results, results_on_page(page, study_file, results, others))
    return f"{page}: tables and figures of {study_file.stem}"


def verified(work: Bench, study_file: Path, page: Path | None) -> str:
    """Compare the kept results with the study, with the run folders here, and with a page.

    Returns:
        What was compared, for a person to read.

    Raises:
        ConfigError: as :func:`~fedward.lab.bench.verification.verified_records`, or the page shows
            other results.
        RunError: a result differs from its run folder, or the run folder was changed.
    """
    text = verified_records(work)
    if page:
        results, others = _results(work, study_file)
        check_page(page, study_file, results, results_on_page(page, study_file, results, others))
        text = f"{text}; {page} says what they say"
    return text


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
        begun = place.with_name(f"{place.name}{CUT_BEGUN}")
        if place.exists() and not begun.exists():
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
        if begun.exists():
            # A process that was killed here may have left a part of the files.
            shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        begun.touch()
        try:
            with redirect_stdout(io.StringIO() if study.partition else sys.stdout):
                options.command(options)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        finally:
            begun.unlink()
    for cell in cells:
        folder = study.folder(cell)
        if folder and not (site_files / folder).is_dir():
            raise ConfigError(
                "--site-files",
                "Write them, or name their parent folder.",
                expected=f"site files in {site_files / folder}",
                found="no such folder",
            )


def _require_known(name: str, named: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the names given with an option, each once; ConfigError if the study lacks one."""
    names = list(dict.fromkeys(named))
    unknown = [other for other in names if other not in known]
    if unknown:
        raise ConfigError(
            f"fedward bench {option(name)}",
            "Name what the study has, or change its file.",
            expected=f"some of {', '.join(known)}",
            found=", ".join(unknown),
        )
    return names
