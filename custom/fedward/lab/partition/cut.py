"""One data set cut into sites and written: what ``fedward partition`` does."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedward.errors import ConfigError, did_you_mean_file
from fedward.lab.partition.csv_pool import read_csv
from fedward.lab.partition.divide import divide, divide_by
from fedward.lab.partition.folder_pool import read_folder
from fedward.lab.partition.npz_pool import read_npz
from fedward.lab.partition.pool import Cut, Pool
from fedward.lab.partition.summary import summary
from fedward.lab.partition.write import site_texts, write_files
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
    labelled: float = 1.0
    labelled_sites: int | None = None
    oracle: bool = False
    """Whether the data's own labels answer a job that asks for labels."""
    seed: int = 0
    classes: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    """Of a CSV; see :func:`fedward.lab.partition.csv_pool.read_csv`."""
    findings: Sequence[str] = ()
    """Columns of a CSV, of which each is a finding."""
    images: Path | None = None
    """Folder of the images that a CSV lists; None: the CSV's own."""
    rendering: Rendering = PLAIN
    """How files become images."""


def partition(source: Path, out: Path, wanted: Wanted) -> str:
    """Write the site files of a data set and what jobs say of it, ``data.json``; return what the
    user should know.

    Raises:
        ConfigError: the cut cannot be, or the folder holds other files.
        DataError: the data set cannot be used.
    """
    pool = _read(source, wanted)
    cut = _divided(pool, wanted)
    count = len(cut) if wanted.labelled_sites is None else wanted.labelled_sites
    if not 0 <= count <= len(cut):
        expected = f"a number from 0 to {len(cut)}"
        found = f"{count}"
        raise ConfigError(
            "--labelled-sites", expected=expected, found=found, remedy="Name one of them."
        )
    shares = [wanted.labelled if index < count else 0.0 for index in range(len(cut))]
    texts = site_texts(pool, cut, shares, out, wanted.seed, wanted.oracle)
    others = [name for name in site_files([out]) if out / name not in texts]
    if others:
        expected = "no other site files, which a run would take for sites"
        found = f"{', '.join(others):.200}"
        raise ConfigError(
            f"{out}", expected=expected, found=found, remedy="Name another folder, or delete them."
        )
    write_files(
        {
            **texts,
            out / DATA_FILE: json.dumps(pool.data_spec(), indent=2, ensure_ascii=False) + "\n",
        }
    )
    return summary(pool, cut, shares, out, wanted.oracle)


def _read(source: Path, wanted: Wanted) -> Pool:
    if not source.exists():
        expected = "an npz file, a CSV, or a folder of images"
        remedy = "Name what there is."
        raise ConfigError(
            f"{source}",
            expected=expected,
            found="nothing there" + did_you_mean_file(source),
            remedy=remedy,
        )
    table = source / "manifest.csv" if source.is_dir() else source
    if table.exists() and table.suffix.lower() != ".npz":
        folder = wanted.images or table.parent
        classes = wanted.classes
        return read_csv(table, folder, classes, wanted.columns, wanted.rendering, wanted.findings)
    if wanted.columns or wanted.images:
        remedy = "Leave --columns and --images away, or name the CSV."
        raise ConfigError("--columns, --images", expected="a CSV", found=f"{source}", remedy=remedy)
    if source.is_dir():
        return read_folder(source, wanted.classes, wanted.rendering)
    if wanted.rendering != PLAIN:
        remedy = "Leave these options away."
        raise ConfigError(
            "--frames, --slices, --window", expected="image files", found=f"{source}", remedy=remedy
        )
    return read_npz(source, wanted.classes)


def _divided(pool: Pool, wanted: Wanted) -> Cut:
    if wanted.by is None:
        return divide(pool, wanted.sites or 0, wanted.gamma, wanted.seed)
    if wanted.sites is not None or wanted.gamma is not None:
        remedy = "Leave --by away, or the others."
        raise ConfigError("--by", expected="no --sites or --dirichlet", found="both", remedy=remedy)
    return divide_by(pool, wanted.by, wanted.seed)
