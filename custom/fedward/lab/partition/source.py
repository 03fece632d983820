"""Reads a data set, of whatever kind it is, as a pool."""

from pathlib import Path

from fedward.errors import ConfigError, did_you_mean_file, option
from fedward.lab.partition.csv_pool import CsvOptions, read_csv
from fedward.lab.partition.faults import Faults
from fedward.lab.partition.folder_pool import read_folder
from fedward.lab.partition.npz_pool import read_npz
from fedward.lab.partition.pool import Pool
from fedward.lab.partition.wanted import Wanted
from fedward.sites.files import conversion, conversions, is_image, no_file
from fedward.sites.rendering import PLAIN


def require_source(source: Path, wanted: Wanted) -> None:
    """Raise ConfigError if there is no data set, or no folder of its images."""
    found = no_file(source)
    if found or not source.exists():
        raise ConfigError(
            f"{source}",
            "Name what there is.",
            expected="an npz file, a CSV, or a folder of images",
            found=found or f"nothing there{did_you_mean_file(source)}",
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


def table_of(source: Path) -> Path | None:
    """Return the CSV that lists the images; None: the data set is a folder of classes or an npz."""
    if source.is_dir():
        manifest = source / "manifest.csv"
        return manifest if manifest.exists() else None
    return None if source.suffix.lower() == ".npz" else source


def read_source(source: Path, wanted: Wanted, faults: Faults) -> Pool:
    """Read the data set, of whatever kind it is; what must be decided is noted."""
    table = table_of(source)
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
