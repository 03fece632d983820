"""One data set cut into sites and written: what ``fedward partition`` does."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedward.errors import ConfigError, did_you_mean_file
from fedward.lab.partition.csv_pool import read_csv
from fedward.lab.partition.divide import divide, divide_by
from fedward.lab.partition.folder_pool import read_folder
from fedward.lab.partition.label_choices import NO_CHOICES, LabelChoices
from fedward.lab.partition.npz_pool import read_npz
from fedward.lab.partition.pool import Cut, Pool, Rows
from fedward.lab.partition.summary import summary
from fedward.lab.partition.write import POOLED, site_texts, write_files
from fedward.sites.data_file import DATA_FILE
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.site_file import site_files


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
    """Columns of a CSV; see :func:`fedward.lab.partition.csv_pool.read_csv`."""
    findings: Sequence[str] = ()
    """Columns of a CSV, each of which is a finding."""
    images: Path | None = None
    """Folder of the images that a CSV lists; None: the CSV's own."""
    choices: LabelChoices = NO_CHOICES
    """What labels mean that could mean several things."""
    prefix: str = ""
    """Start of the paths in a CSV that stands for the folder of images; empty: none does."""
    rendering: Rendering = PLAIN
    """How files become images."""
    pooled: bool = False
    """Whether one site trains on the images of all, which the sites only evaluate then."""
    resplit: bool = False
    """Whether validation and test images are set apart again where the data set has splits."""


def partition(source: Path, out: Path, wanted: Wanted) -> str:
    """Write the site files of a data set, and ``data.json`` with what jobs should know of it.

    Returns:
        What was written, for a person to read.

    Raises:
        ConfigError: the data set cannot be cut so, or the folder holds other files.
        DataError: the data set cannot be used.
    """
    pool = _read(source, wanted)
    if wanted.resplit:
        pool = replace(pool, splits=["train"] * len(pool.splits))
    cut = _divided(pool, wanted)
    if wanted.pooled:
        cut = _centralised(cut)
    sites_with_labels = len(cut) if wanted.labelled_sites is None else wanted.labelled_sites
    if not 0 <= sites_with_labels <= len(cut):
        raise ConfigError(
            "--labelled-sites",
            "Name one of them.",
            expected=f"a number from 0 to {len(cut)}",
            found=f"{sites_with_labels}",
        )
    without_labels = len(cut) - sites_with_labels
    shares = [wanted.labelled] * sites_with_labels + [0.0] * without_labels
    texts = site_texts(pool, cut, shares, out, wanted.seed, wanted.oracle)
    other_files = [name for name in site_files([out]) if out / name not in texts]
    if other_files:
        raise ConfigError(
            f"{out}",
            "Name another folder, or delete them.",
            expected="no other site files, which a run would take for sites",
            found=f"{', '.join(other_files):.200}",
        )
    texts[out / DATA_FILE] = f"{json.dumps(pool.data_spec(), indent=2, ensure_ascii=False)}\n"
    write_files(texts)
    return summary(pool, cut, shares, out, wanted.oracle)


def _read(source: Path, wanted: Wanted) -> Pool:
    """Read the data set, of whatever kind it is."""
    if not source.exists():
        raise ConfigError(
            f"{source}",
            "Name what there is.",
            expected="an npz file, a CSV, or a folder of images",
            found=f"nothing there{did_you_mean_file(source)}",
        )
    table = source / "manifest.csv" if source.is_dir() else source
    if table.exists() and table.suffix.lower() != ".npz":
        return read_csv(
            table,
            wanted.images or table.parent,
            wanted.classes,
            wanted.columns,
            wanted.rendering,
            wanted.findings,
            wanted.choices,
            wanted.prefix,
        )
    _refuse_options_of_tables(source, wanted)
    if source.is_dir():
        return read_folder(source, wanted.classes, wanted.rendering, wanted.choices)
    if wanted.rendering != PLAIN:
        given = [f"--{name}" for name in wanted.rendering.plain()]
        raise ConfigError(
            ", ".join(given),
            f"Remove {' and '.join(given)}.",
            expected="image files",
            found=f"{source}",
        )
    return read_npz(source, wanted.classes, joined=wanted.resplit)


def _centralised(cut: Cut) -> Cut:
    """Return a cut in which one site trains on the images of all sites.

    The others keep the images that they evaluate, so that a result is the mean over the same sites
    as without.
    """
    nothing = np.zeros(0, np.int64)
    train = np.sort(np.concatenate([rows["train"] for rows in cut.values()]))
    centralised: dict[str, Mapping[str, Rows]] = {
        site: {**rows, "train": nothing} for site, rows in cut.items()
    }
    centralised[POOLED] = {"train": train, "val": nothing, "test": nothing}
    return centralised


def _refuse_options_of_tables(source: Path, wanted: Wanted) -> None:
    """Raise ConfigError if options of a CSV are given with another data set."""
    if wanted.columns or wanted.images:
        raise ConfigError(
            "--columns, --images",
            "Remove --columns and --images, or name the CSV.",
            expected="a CSV",
            found=f"{source}",
        )
    given = wanted.choices.options()
    if source.is_dir():
        # The folders of classes have names, which may have to be decided as well.
        given = [option for option in given if option != "--labels"]
    if wanted.prefix:
        given.append("--prefix")
    if given:
        raise ConfigError(
            ", ".join(given),
            f"Remove {' and '.join(given)}, or name the CSV.",
            expected="a CSV",
            found=f"{source}",
        )


def _divided(pool: Pool, wanted: Wanted) -> Cut:
    if wanted.by is None:
        return divide(pool, wanted.sites or 0, wanted.gamma, wanted.seed)
    if wanted.sites is not None or wanted.gamma is not None:
        raise ConfigError(
            "--by",
            "Remove --by, or the others.",
            expected="no --sites or --dirichlet",
            found="both",
        )
    return divide_by(pool, wanted.by, wanted.seed)
