"""One data set cut into sites and written: what ``fedward partition`` does."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedward.errors import (
    ConfigError,
    did_you_mean_file,
    in_shell,
    listed,
    most_like,
    option,
    option_words,
)
from fedward.evaluation.evaluated_images import fewest_measured
from fedward.lab.partition.csv_pool import CsvOptions, read_csv
from fedward.lab.partition.divide import (
    ColumnSites,
    SetApart,
    TooFewImagesError,
    check_column,
    check_size,
    column_sites,
    divide,
    divide_by,
    leaking_copies,
    lost_classes_note,
    renamed_note,
    split_off_server,
    unused,
    without_rows,
)
from fedward.lab.partition.faults import Decision, Faults
from fedward.lab.partition.folder_pool import read_folder
from fedward.lab.partition.label_choices import NO_CHOICES, LabelChoices
from fedward.lab.partition.left_out import LEFT_OUT_FILE, is_left_out_table, left_out_table
from fedward.lab.partition.npz_pool import read_npz
from fedward.lab.partition.opened_images import Contradicting, with_usable_images
from fedward.lab.partition.pool import Cut, Pool, Rows
from fedward.lab.partition.subgroup_columns import subgroup_words
from fedward.lab.partition.summary import compares_classes, measured_somewhere, summary
from fedward.lab.partition.write import (
    POOLED,
    another_cut,
    refuse_another_cut,
    require_writable,
    site_texts,
    write_files,
)
from fedward.sites.data_file import DATA_FILE, MEASURING_CUT
from fedward.sites.files import conversion, conversions, is_image
from fedward.sites.hiding_windows import window_words
from fedward.sites.rendering import PLAIN, Frames, Rendering
from fedward.sites.site_file import SERVER, site_files
from fedward.terminal import column_with_names

EVALUATION = "evaluation"
"""Name of the site that has the validation and test images of all, and trains nothing."""
_EVALUATED = ("val", "test")
"""Splits that give numbers."""
_LARGER_SHARES = (
    (0.15, 0.25),
    (0.2, 0.25),
    (0.25, 0.25),
    (0.25, 0.3),
    (0.3, 0.3),
    (0.3, 0.4),
    (0.0, 0.4),
    (0.0, 0.45),
    (0.0, 0.5),
)
"""Shares of validation and test images that are tried, in this order."""
_OPTIONS = {
    "sites": "sites",
    "by": "by",
    "gamma": "dirichlet",
    "labelled": "labelled",
    "labelled_sites": "labelled-sites",
    "oracle": "oracle",
    "images": "images",
    "prefix": "prefix",
    "val": "val",
    "test": "test",
    "evaluate_together": "evaluate-together",
    "server": "server",
    "pooled": "pooled",
    "resplit": "resplit",
    "seed": "seed",
    "classes": "classes",
    "contradicting": "contradicting",
}
"""Field of :class:`Wanted` -> its option."""


@dataclass(frozen=True)
class Wanted:
    """How a data set is to be cut."""

    sites: int | None = None
    by: str | None = None
    """Column with a site for each of its values."""
    gamma: float | None = None
    """Concentration of the Dirichlet law; None: evenly."""
    labelled: float = 1.0
    """Share of its training labels that a site sees."""
    labelled_sites: int | None = None
    """Number of sites that see labels; None: all."""
    oracle: bool = False
    """Whether the data's own labels answer a job that asks for labels."""
    seed: int = 0
    classes: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of a CSV; see :class:`fedward.lab.partition.csv_pool.CsvOptions`."""
    findings: Sequence[str] = ()
    """Columns of a CSV, each of which is a finding."""
    subgroups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Column of a CSV by which right answers are counted -> its groups; none: its values."""
    images: Path | None = None
    """Folder of the images that a CSV lists; None: the CSV's own."""
    choices: LabelChoices = NO_CHOICES
    """What labels mean that could mean several things."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Class -> what it stands for on pages."""
    prefix: str = ""
    """Start of the paths in a CSV that stands for the folder of images; empty: none does."""
    rendering: Rendering = PLAIN
    """How files become images."""
    pooled: bool = False
    """Whether one site trains on the images of all, which the sites only evaluate then."""
    resplit: bool = False
    """Whether validation and test images are set apart again where the data set has splits."""
    val: float | None = None
    """Share of the images that is set apart for validation; None: the default of site files."""
    test: float | None = None
    """Likewise, for testing."""
    contradicting: Contradicting | None = None
    """What becomes of pictures with several labels; None: they are refused."""
    unopened: bool = False
    """Whether the images are not opened, and all are cut: a study takes a data set as it is."""
    evaluate_together: bool = False
    """Whether a site of its own has the validation and test images of all sites."""
    server: float = 0.0
    """Share of the training images of each class at each site that the server has instead, as far
    as whole images or groups allow; they are public images."""


class _Division(NamedTuple):
    """The rows of all sites."""

    cut: Cut
    public: Cut
    """The server's, where it has a share of the images."""
    copies: frozenset[int]
    """Rows that are left out, as a copy of them is in another split."""
    by: ColumnSites | None
    """The sites of a column; None: the images are divided otherwise."""
    lost: Sequence[str] = ()
    """A note of the classes that lose all their training images by that; empty without any."""


def partition(source: Path, out: Path, wanted: Wanted) -> str:
    """Write the site files of a data set, and ``data.json`` with what jobs should know of it.

    Returns:
        What was written, for a person to read.

    Raises:
        ConfigError: the data set cannot be cut so, or the folder cannot be written or holds files
            of another cut.
        DataError: the data set cannot be used.
    """
    _require_source(source, wanted)
    require_writable(out)
    _refuse_another_cut(source, out, wanted)
    faults = Faults(partial(_decided_command, source, out, wanted) if in_shell() else None)
    pool = _read(source, wanted, faults)
    if not wanted.unopened:
        pool = with_usable_images(pool, f"{source}", wanted.contradicting, faults)
    likely_column = most_like(wanted.by, pool.columns) if wanted.by else ""
    if wanted.by and likely_column:
        with faults.noted(by=likely_column):
            check_column(pool, wanted.by)
        wanted = replace(wanted, by=likely_column)
    division: _Division | None = None
    shares: list[float] = []
    with faults.noted_unless(TooFewImagesError):
        division, shares = _all_sites(pool, wanted)
    faults.refuse()
    assert division is not None, "its error was noted, or follows from one that was"
    written = {**division.cut, **division.public}
    left_over = unused(pool, written, division.by, division.copies)
    pool = pool.leaving_out(left_over.reasons)
    pool = replace(pool, doubts=(*pool.doubts, *left_over.displaced))
    pool = pool.noting(division.lost)
    if division.by:
        pool = pool.noting(renamed_note(division.by))
    texts = site_texts(pool, written, shares, out, wanted.seed, wanted.oracle)
    _refuse_other_sites(texts, out)
    _refuse_server_of_another_cut(texts, out)
    spec = pool.data_spec()
    if wanted.titles:
        spec["titles"] = _titles(pool, wanted)
    texts[out / DATA_FILE] = f"{json.dumps(spec, indent=2, ensure_ascii=False)}\n"
    left_out = left_out_table(pool)
    if left_out:
        texts[out / LEFT_OUT_FILE] = left_out
    better_command = ""
    better = _better_cut(pool, division, wanted)
    if better:
        better_out = _measured_folder(out)
        better_command = command_of(source, better_out, better)
        # Doctor and run say it, too, and they may be called in another folder.
        images = better.images and better.images.absolute()
        command_anywhere = command_of(
            source.absolute(), better_out.absolute(), replace(better, images=images)
        )
        texts[out / MEASURING_CUT] = f"{command_anywhere}\n"
    write_files(texts)
    # An earlier cut into this folder may have left files that this one does not have.
    if not better:
        (out / MEASURING_CUT).unlink(missing_ok=True)
    if not left_out and is_left_out_table(out / LEFT_OUT_FILE):
        (out / LEFT_OUT_FILE).unlink()
    return summary(pool, written, shares, out, better_command)


def _refuse_other_sites(texts: Mapping[Path, str], out: Path) -> None:
    """Raise ConfigError if the folder has site files of another cut.

    Args:
        texts: the files of this cut.
        out: folder they are for.
    """
    other_files = [name for name in site_files([out]) if out / name not in texts]
    if other_files:
        raise another_cut(out, ", ".join(other_files))


def _refuse_server_of_another_cut(texts: Mapping[Path, str], out: Path) -> None:
    """Raise ConfigError if the folder has a server's file that may hold images of these sites.

    A file that was added to a finished cut stays: then the sites' files are already there, as they
    would be written.

    Args:
        texts: the files of the sites, and of the server if it has a share.
        out: folder they are for.
    """
    server_file = out / f"{SERVER}.yaml"
    if server_file in texts or not server_file.exists():
        return
    if all(path.exists() and path.read_bytes() == text.encode() for path, text in texts.items()):
        return
    raise ConfigError(
        f"{server_file}",
        "Delete it if it is of an earlier cut, or name another folder. If you wrote it yourself, "
        "add it after the sites are cut.",
        expected="no images of the server, as this cut gives it none",
        found="a file, whose images may be those of a site now",
    )


def _decided_command(
    source: Path, out: Path, wanted: Wanted, decisions: Mapping[str, Decision]
) -> str:
    """Return the command line that was typed, with these decisions besides."""
    changes: dict[str, Any] = dict(decisions)
    choices: dict[str, Any] = {
        name: changes.pop(name) for name in LabelChoices._fields if name in changes
    }
    if "labels" in changes:
        choices["meanings"] = {**wanted.choices.meanings, **changes.pop("labels")}
    if "label_kind" in changes:
        choices["kind"] = changes.pop("label_kind")
    if "columns" in changes:
        changes["columns"] = {**wanted.columns, **changes["columns"]}
    if "subgroups" in changes:
        changes["subgroups"] = dict(map(column_with_names, changes["subgroups"]))
    if "frames" in changes:
        changes["rendering"] = wanted.rendering._replace(frames=Frames(at_most=None))
        del changes["frames"]
    if "window" in changes:
        words = changes.pop("window")
        window = (float(words[0]), float(words[1])) if words else None
        rendering = changes.get("rendering", wanted.rendering)
        changes["rendering"] = rendering._replace(window=window)
    changes["choices"] = wanted.choices._replace(**choices)
    return command_of(source, out, replace(wanted, **changes))


def _all_sites(pool: Pool, wanted: Wanted) -> tuple[_Division, list[float]]:
    """Return the rows of all sites, and the share of its training labels that each sees.

    Sites that options add are among them; the server is the last.
    """
    by = _column_sites(pool, wanted)
    division = _divided(pool, wanted, by)
    cut = _centralised(division.cut) if wanted.pooled else division.cut
    shares = _shares(cut, wanted)
    if wanted.evaluate_together:
        cut = _evaluated_together(cut, wanted)
        shares.append(1.0)
    shares += [1.0] * len(division.public)
    return division._replace(cut=cut), shares


def _column_sites(pool: Pool, wanted: Wanted) -> ColumnSites | None:
    """Return the sites of the column that is named; None: none is."""
    if wanted.by is None:
        return None
    if wanted.sites is not None or wanted.gamma is not None:
        raise ConfigError(
            option("by"),
            f"Remove {option('by')}, or the others.",
            expected=f"no {option('sites')} or {option('dirichlet')}",
            found="both",
        )
    return column_sites(pool, wanted.by)


def _divided(pool: Pool, wanted: Wanted, by: ColumnSites | None) -> _Division:
    """Return the sites, and the server where it has a share of the images.

    ``by``: the sites of the column that is named; None: none is.
    """
    apart = SetApart(wanted.val, wanted.test)
    if by:
        cut = divide_by(pool, by, wanted.seed, apart)
    else:
        cut = divide(pool, wanted.sites or 0, wanted.gamma, wanted.seed, apart)
    public: Cut = {}
    if wanted.server:
        cut, server_rows = split_off_server(pool, cut, wanted.server, wanted.seed)
        public = {SERVER: server_rows}
    copies = leaking_copies(pool, {**cut, **public})
    if not copies:
        return _Division(cut, public, copies, by)
    kept = without_rows(cut, copies)
    check_size(pool, kept, "Name fewer sites, or leave copies of pictures out of the data.")
    kept_public = without_rows(public, copies)
    lost = lost_classes_note(pool, {**cut, **public}, {**kept, **kept_public})
    return _Division(kept, kept_public, copies, by, lost)


def _titles(pool: Pool, wanted: Wanted) -> dict[str, str]:
    """Return the titles of classes, all of which the data set must have."""
    unknown = [name for name in wanted.titles if name not in pool.classes]
    if unknown:
        raise ConfigError(
            option("titles"),
            "Name classes as in data.json.",
            expected=f"classes ({listed(pool.classes)})",
            found=", ".join(unknown),
        )
    return dict(wanted.titles)


def _shares(cut: Cut, wanted: Wanted) -> list[float]:
    """Return the share of its training labels that each site sees."""
    if wanted.pooled and wanted.labelled_sites is not None:
        raise ConfigError(
            f"{option('pooled', True)}, {option('labelled-sites', wanted.labelled_sites)}",
            f"Remove {option('labelled-sites')}. {option('labelled')} limits the labels of the "
            "pooled site.",
            expected="one of the two",
            found="both, though only the pooled site trains",
        )
    sites_with_labels = len(cut) if wanted.labelled_sites is None else wanted.labelled_sites
    if not 0 <= sites_with_labels <= len(cut):
        raise ConfigError(
            option("labelled-sites"),
            "Name one of them.",
            expected=f"a number from 0 to {len(cut)}",
            found=f"{sites_with_labels}",
        )
    without_labels = len(cut) - sites_with_labels
    return [wanted.labelled] * sites_with_labels + [0.0] * without_labels


def _refuse_another_cut(source: Path, out: Path, wanted: Wanted) -> None:
    """Raise ConfigError if the folder has site files that cannot be of this cut.

    A site file does not say how its images were drawn: of a cut by other values of ``by``,
    ``gamma``, ``val`` or ``test`` only the new files tell, once all images are opened.
    """
    table = _table(source)
    shares = {wanted.labelled}
    if wanted.labelled_sites is not None:
        shares.add(0.0)
    if wanted.evaluate_together:
        shares.add(1.0)
    names: list[str] = []
    if wanted.by is None:
        names = [f"site-{number}" for number in range(1, (wanted.sites or 0) + 1)]
        names += [POOLED] if wanted.pooled else []
        names += [EVALUATION] if wanted.evaluate_together else []
    place = source
    if table:
        place = wanted.images or table.parent
    refuse_another_cut(out, place, wanted.seed, shares, names)


def _table(source: Path) -> Path | None:
    """Return the CSV that lists the images; None: the data set is a folder of classes or an npz."""
    if source.is_dir():
        manifest = source / "manifest.csv"
        return manifest if manifest.exists() else None
    return None if source.suffix.lower() == ".npz" else source


def _require_source(source: Path, wanted: Wanted) -> None:
    """Raise ConfigError if there is no data set, or no folder of its images."""
    if not source.exists():
        raise ConfigError(
            f"{source}",
            "Name what there is.",
            expected="an npz file, a CSV, or a folder of images",
            found=f"nothing there{did_you_mean_file(source)}",
        )
    if wanted.images and not wanted.images.is_dir():
        found = "a file" if wanted.images.exists() else "nothing there"
        raise ConfigError(
            option("images", wanted.images),
            "Name the folder of the images that the CSV lists.",
            expected="a folder",
            found=f"{found}{did_you_mean_file(wanted.images)}",
        )
    if source.is_file() and (conversion(source) or is_image(source)):
        raise ConfigError(
            f"{source}",
            f"{conversions([source])} Name the folder of the images, or a CSV.".lstrip(),
            expected="an npz file, a CSV, or a folder of images",
            found="one image" if is_image(source) else "a file of a kind that is not read",
        )


def _read(source: Path, wanted: Wanted, faults: Faults) -> Pool:
    """Read the data set, of whatever kind it is; what must be decided is noted."""
    table = _table(source)
    if table:
        # An empty name says that the CSV has no such column.
        without_splits = {"split": ""} if wanted.resplit else {}
        options = CsvOptions(
            classes=wanted.classes,
            columns={**wanted.columns, **without_splits},
            findings=wanted.findings,
            subgroups=wanted.subgroups,
            choices=wanted.choices,
            prefix=wanted.prefix,
            rendering=wanted.rendering,
        )
        return read_csv(table, wanted.images or table.parent, options, faults=faults)
    _refuse_options_of_tables(source, wanted)
    if source.is_dir():
        return read_folder(
            source,
            wanted.classes,
            wanted.rendering,
            wanted.choices,
            resplit=wanted.resplit,
            faults=faults,
        )
    if wanted.rendering != PLAIN:
        given = [option(name) for name in wanted.rendering.plain()]
        raise ConfigError(
            ", ".join(given),
            f"Remove {' and '.join(given)}.",
            expected="image files",
            found=f"{source}",
        )
    return read_npz(source, wanted.classes, wanted.choices, resplit=wanted.resplit, faults=faults)


def _centralised(cut: Cut) -> Cut:
    """Return a cut in which one site trains on the images of all sites.

    The others keep the images that they evaluate, so that a result is the mean over the same sites
    as without.

    Raises:
        ConfigError: a site has the name of that site.
    """
    _refuse_site_called(POOLED, cut, option("pooled", True))
    no_rows = np.zeros(0, np.int64)
    train = np.sort(np.concatenate([rows["train"] for rows in cut.values()]))
    centralised: dict[str, Mapping[str, Rows]] = {
        site: {**rows, "train": no_rows} for site, rows in cut.items()
    }
    centralised[POOLED] = {"train": train, "val": no_rows, "test": no_rows}
    return centralised


def _refuse_options_of_tables(source: Path, wanted: Wanted) -> None:
    """Raise ConfigError if options of a CSV are given with another data set."""
    # Names of folders and numbers may have to be decided as well.
    allowed = ("labels",) if source.is_dir() else ("labels", "label-kind")
    is_given: dict[str, object] = {
        "columns": wanted.columns or wanted.findings,
        "images": wanted.images,
        **{name: name not in allowed for name in wanted.choices.options()},
        "prefix": wanted.prefix,
        "subgroups": wanted.subgroups,
    }
    given = [name for name, value in is_given.items() if value]
    if given:
        options = [option(name) for name in given]
        raise ConfigError(
            ", ".join(options),
            f"Remove {' and '.join(options)}, or name the CSV.",
            expected="a CSV",
            found=f"{source}",
        )


def _refuse_site_called(name: str, cut: Cut, given: str) -> None:
    """Raise ConfigError if a site has a name that an option gives to a site of its own.

    Some file systems do not tell capital letters from small ones.

    Args:
        name: of the option's site, in small letters.
        cut: the sites.
        given: the option.
    """
    same_name = [site for site in cut if site.lower() == name]
    if same_name:
        raise ConfigError(
            given,
            f"Rename the value in the column, or remove {given}.",
            expected=f"no site called {name}, as this option makes one",
            found=same_name[0],
        )


def _evaluated_together(cut: Cut, wanted: Wanted) -> Cut:
    """Return the cut with all validation and test images at one more site, which trains nothing.

    Raises:
        ConfigError: a site has the name of that site, or one site trains on the images of all.
    """
    _refuse_site_called(EVALUATION, cut, option("evaluate-together", True))
    if wanted.pooled:
        raise ConfigError(
            option("evaluate-together", True),
            "Remove one of the two.",
            expected="sites that train on their own images",
            found=option("pooled", True),
        )
    no_rows = np.zeros(0, np.int64)
    sites: dict[str, Mapping[str, Rows]] = {}
    for site, rows in cut.items():
        sites[site] = {"train": rows["train"], "val": no_rows, "test": no_rows}
    of_all = {"train": no_rows}
    for split in _EVALUATED:
        of_all[split] = np.sort(np.concatenate([rows[split] for rows in cut.values()]))
    sites[EVALUATION] = of_all
    return sites


def _measured_folder(out: Path) -> Path:
    """Return the folder that is proposed for a cut that measures more."""
    if out.name in ("", ".."):  # Such as `.`, which has no name of its own.
        out = out.resolve()
    return out.parent / f"{out.name}-measured"


def _better_cut(pool: Pool, division: _Division, wanted: Wanted) -> Wanted | None:
    """Return a cut of the data that measures more; None without need, or if none does.

    There is need if the sites measure too few classes in validation or in test, or none of them
    measures enough to tell classes apart. Tried are cuts with larger shares, and with all sites'
    images evaluated together. The best one is that with the largest :class:`_Worth` of those that
    measure enough classes in test.
    """
    if wanted.pooled:  # It evaluates what the same cut evaluates without a pooled site.
        return None
    cut = division.cut
    needed = fewest_measured(pool.label_kind)
    measures_enough = all(
        len(measured_somewhere(pool, cut, split)) >= needed for split in _EVALUATED
    )
    best_worth = _worth(pool, cut)
    if measures_enough and best_worth.telling_splits == len(_EVALUATED):
        return None
    best: Wanted | None = None
    for together in (False, True):
        for val, test in [(wanted.val, wanted.test), *_LARGER_SHARES]:
            other = replace(wanted, val=val, test=test, evaluate_together=together)
            try:
                other_cut = _divided(pool, other, division.by).cut
                if together:
                    other_cut = _evaluated_together(other_cut, other)
            except ConfigError:  # Too few images are left for training, or splits are given.
                continue
            tested_classes = len(measured_somewhere(pool, other_cut, "test"))
            worth = _worth(pool, other_cut)
            if tested_classes >= needed and worth > best_worth:
                best_worth = worth
                best = other
    return best


class _Worth(NamedTuple):
    """What orders cuts by what they measure: the larger, the better."""

    telling_splits: int
    """Number of splits, of validation and test, in which some site can tell classes apart.

    A site that measures a single class says nothing of a model that always answers it.
    """
    classes: int
    """Number of classes measured in validation, and of those in test, together."""


def _worth(pool: Pool, cut: Cut) -> _Worth:
    return _Worth(
        telling_splits=sum(compares_classes(pool, cut, split) for split in _EVALUATED),
        classes=sum(len(measured_somewhere(pool, cut, split)) for split in _EVALUATED),
    )


def command_of(source: Path, out: Path, wanted: Wanted) -> str:
    """Return the command line that cuts a data set in this way."""
    words: list[object] = ["fedward", "partition", source]
    default = Wanted()
    for field_name, option_name in _OPTIONS.items():
        value = getattr(wanted, field_name)
        is_list = isinstance(value, list | tuple)
        if value == getattr(default, field_name) or (is_list and not value):
            continue
        words.append(f"--{option_name}")
        if is_list:
            words += value
        elif value is not True:
            words.append(value)
    columns = [f"label={name}" for name in wanted.findings]
    for purpose, name in wanted.columns.items():
        if purpose != "label" or not wanted.findings:
            columns.append(f"{purpose}={name}")
    if columns:
        words += ["--columns", *columns]
    of_subgroups = subgroup_words(wanted.subgroups)
    # What begins with a dash would be taken for an option.
    undashed = [word for word in of_subgroups if not word.startswith("-")]
    if undashed:
        words += ["--subgroups", *undashed]
    words += [f"--subgroups={word}" for word in of_subgroups if word.startswith("-")]
    words += wanted.choices.arguments()
    words += _rendering_words(wanted.rendering)
    if wanted.titles:
        words += option_words("titles", wanted.titles)
    return shlex.join(f"{word}" for word in [*words, "--out", out])


def _rendering_words(rendering: Rendering) -> list[object]:
    """Return the options by which files become images in this way."""
    words: list[object] = []
    if rendering.frames:
        words += ["--frames", rendering.frames.at_most or "all"]
    if rendering.slices:
        words += ["--slices", rendering.slices.at_most, "--axis", rendering.slices.axis]
    if rendering.window:
        words += ["--window", *window_words(rendering.window)]
    if rendering.fit != PLAIN.fit:
        words += ["--fit", rendering.fit]
    return words
