"""One data set cut into sites and written: what ``fedward partition`` does."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedward.config import EXPECTED_TITLE, is_title
from fedward.errors import ConfigError, in_shell, listed, most_like, option
from fedward.lab.partition.all_sites import Division, all_sites
from fedward.lab.partition.better_cut import better_cut
from fedward.lab.partition.divide import TooFewImagesError, check_column, renamed_note, unused
from fedward.lab.partition.faults import Faults
from fedward.lab.partition.left_out import LEFT_OUT_FILE, left_out_table
from fedward.lab.partition.opened_images import with_usable_images
from fedward.lab.partition.out_folder import (
    refuse_another_cut,
    refuse_other_sites,
    refuse_server_of_another_cut,
    remove_what_is_left,
    require_writable,
)
from fedward.lab.partition.pool import Pool
from fedward.lab.partition.source import read_source, require_source
from fedward.lab.partition.summary import summary
from fedward.lab.partition.wanted import Wanted, command_of, decided_command
from fedward.lab.partition.write import site_texts, write_files
from fedward.sites.data_file import DATA_FILE, MEASURING_CUT


def partition(source: Path, out: Path, wanted: Wanted) -> str:
    """Write the site files of a data set, and ``data.json`` with what jobs should know of it.

    Returns:
        What was written, for a person to read.

    Raises:
        ConfigError: the data set cannot be cut so, or the folder cannot be written or holds files
            of another cut.
        DataError: the data set cannot be used.
    """
    require_source(source, wanted)
    require_writable(out)
    refuse_another_cut(source, out, wanted)
    faults = Faults(partial(decided_command, source, out, wanted) if in_shell() else None)
    pool = read_source(source, wanted, faults)
    if not wanted.unopened:
        pool = with_usable_images(pool, f"{source}", wanted.contradicting, faults)
    likely_column = most_like(wanted.by, pool.columns) if wanted.by else ""
    if wanted.by and likely_column:
        with faults.noted(by=likely_column):
            check_column(pool, wanted.by)
        wanted = replace(wanted, by=likely_column)
    division: Division | None = None
    shares: list[float] = []
    with faults.noted_unless(TooFewImagesError):
        division, shares = all_sites(pool, wanted)
    faults.refuse()
    assert division is not None, "its error was noted, or follows from one that was"
    written = {**division.cut, **division.public}
    pool = _with_left_over(pool, division)
    texts = site_texts(pool, written, shares, out, wanted.seed, wanted.oracle)
    refuse_other_sites(texts, out)
    refuse_server_of_another_cut(texts, out)
    texts[out / DATA_FILE] = _data_file(pool, wanted)
    left_out = left_out_table(pool)
    if left_out:
        texts[out / LEFT_OUT_FILE] = left_out
    better = better_cut(pool, division, wanted)
    better_command = ""
    if better:
        better_out = _measured_folder(out)
        better_command = command_of(source, better_out, better)
        texts[out / MEASURING_CUT] = f"{_command_anywhere(source, better_out, better)}\n"
    write_files(texts)
    remove_what_is_left(texts, out)
    return summary(pool, written, shares, out, better_command)


def _with_left_over(pool: Pool, division: Division) -> Pool:
    """Return a pool with a word on all its images that are at no site, and on the sites' names."""
    written = {**division.cut, **division.public}
    left_over = unused(pool, written, division.by, division.copies)
    pool = pool.leaving_out(left_over.reasons)
    pool = replace(pool, doubts=(*pool.doubts, *left_over.displaced))
    pool = pool.noting(division.lost)
    return pool.noting(renamed_note(division.by)) if division.by else pool


def _data_file(pool: Pool, wanted: Wanted) -> str:
    """Return the content of ``data.json``; ConfigError as :func:`_titles`."""
    spec = pool.data_spec()
    if wanted.titles:
        spec["titles"] = _titles(pool, wanted)
    return f"{json.dumps(spec, indent=2, ensure_ascii=False)}\n"


def _command_anywhere(source: Path, out: Path, wanted: Wanted) -> str:
    """Return the command line of a cut with absolute paths.

    Doctor and run say it, too, and they may be called in another folder.
    """
    images = wanted.images and wanted.images.absolute()
    return command_of(source.absolute(), out.absolute(), replace(wanted, images=images))


def _titles(pool: Pool, wanted: Wanted) -> dict[str, str]:
    """Return the titles of classes; ConfigError if a class is not there, or a title no title."""
    unknown = [name for name in wanted.titles if name not in pool.classes]
    if unknown:
        raise ConfigError(
            option("titles"),
            "Name classes as in data.json.",
            expected=f"classes ({listed(pool.classes)})",
            found=", ".join(unknown),
        )
    for title in wanted.titles.values():
        if not is_title(title):
            raise ConfigError(
                option("titles"),
                "Write for example MEL=melanoma.",
                expected=f"titles of {EXPECTED_TITLE}",
                found=f"{title!r:.100}",
            )
    return dict(wanted.titles)


def _measured_folder(out: Path) -> Path:
    """Return the folder that is proposed for a cut that measures more."""
    if out.name in ("", ".."):  # Such as `.`, which has no name of its own.
        out = out.resolve()
    return out.parent / f"{out.name}-measured"
