"""``fedward partition``. Imports nothing heavy before it runs."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import ConfigError
from fedward.terminal import named_column

if TYPE_CHECKING:
    from fedward.sites.rendering import Rendering

_FEDPERL_SHARE = 0.1


def add_partition(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``partition``."""
    parser.set_defaults(command=_partition)
    add = parser.add_argument
    source = "an npz file (MedMNIST), a CSV of images, or a folder with manifest.csv or one folder for each class"
    add("source", type=Path, metavar="SOURCE", help=source)
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder for the site files")
    add(
        "--sites",
        type=int,
        metavar="N",
        help="cut into site-1 to site-N (default: FedPerl's ten, of skin images)",
    )
    add("--by", metavar="COLUMN", help="a site for each value of a column, such as hospital")
    gamma = "spread each class by a Dirichlet law: 0.1 is very uneven, 100 nearly even (default: evenly)"
    add("--dirichlet", type=float, metavar="GAMMA", help=gamma)
    share = f"share of its training labels that a site sees (default: 1, with FedPerl's ten sites {_FEDPERL_SHARE})"
    add("--labelled", type=_share, metavar="SHARE", help=share)
    add(
        "--labelled-sites",
        type=int,
        metavar="N",
        help="only the first N sites have labels (default: all)",
    )
    oracle = "the data's own labels answer a job that asks for labels, as in a simulation of active learning"
    add("--oracle", action="store_true", help=oracle)
    columns = (
        "a CSV's: what its columns are for, image, label, group, split or sample_id (default: by known names). label "
        "several times: columns of 0 and 1, each of a finding"
    )
    add("--columns", nargs="+", default=[], type=named_column, metavar="label=NAME", help=columns)
    add(
        "--images",
        type=Path,
        metavar="FOLDER",
        help="folder of the images that a CSV lists (default: the CSV's)",
    )
    classes = "an npz file's: the names of labels 0, 1, ...; else the classes to use (default: all, in natural order)"
    add("--classes", nargs="+", default=[], metavar="NAME", help=classes)
    frames = "DICOM files of several frames: use so many of each, evenly spaced, or all (default: they are refused)"
    add("--frames", type=_count_or_all, metavar="N", help=frames)
    volumes = "volumes (NIfTI, or a folder for each DICOM series)"
    slices = f"{volumes}: use so many slices of each, evenly spaced (default: volumes are refused)"
    add("--slices", type=_count, metavar="N", help=slices)
    add("--axis", choices=("axial", "coronal", "sagittal"), help="of the slices (default: axial)")
    window = "centre and width of grey DICOM files and volumes, as 40 400 for Hounsfield units (default: the files')"
    add("--window", type=float, nargs=2, metavar=("CENTRE", "WIDTH"), help=window)
    add("--seed", type=int, default=0, help="of all that is drawn (default: 0)")


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"a share is between 0 and 1, not {text}")
    return value


def _partition(options: argparse.Namespace) -> int:
    if options.sites is None and options.by is None:
        return _fedperl(options)
    from fedward.lab.partition.cut import Wanted, partition

    labels = [name for purpose, name in options.columns if purpose == "label"]
    wanted = Wanted(
        sites=options.sites,
        by=options.by,
        gamma=options.dirichlet,
        labelled=1.0 if options.labelled is None else options.labelled,
        labelled_sites=options.labelled_sites,
        oracle=options.oracle,
        seed=options.seed,
        classes=options.classes,
        columns=dict(options.columns),
        findings=labels if len(labels) > 1 else (),
        images=options.images,
        rendering=_rendering(options),
    )
    print(partition(options.source, options.out, wanted))
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text}")
    return int(text)


def _count_or_all(text: str) -> int | str:
    return text if text == "all" else _count(text)


def _rendering(options: argparse.Namespace) -> "Rendering":
    """Return how files become images."""
    from fedward.sites.rendering import Frames, Rendering, Slices

    if options.axis and not options.slices:
        remedy = "Say how many slices of a volume become images, as in --slices 16."
        raise ConfigError("--axis", expected="--slices besides", found="none", remedy=remedy)
    window = tuple(options.window) if options.window else None
    if window and not (math.isfinite(sum(window)) and window[1] > 0):
        found = " ".join(map(str, window))
        raise ConfigError(
            "--window", expected="a width above 0", found=found, remedy="Write for example 40 400."
        )
    return Rendering(
        window=window,
        frames=Frames(at_most=None if options.frames == "all" else options.frames)
        if options.frames
        else None,
        slices=Slices(axis=options.axis or "axial", at_most=options.slices)
        if options.slices
        else None,
    )


def _fedperl(options: argparse.Namespace) -> int:
    from fedward.lab.partition.fedperl import fedperl_layout, read_skin, write_site_files

    others = ("dirichlet", "labelled_sites", "oracle", "columns", "images", "classes", "seed")
    shown = ("frames", "slices", "axis", "window")
    given = [f"--{name.replace('_', '-')}" for name in (*others, *shown) if getattr(options, name)]
    if given or (options.source.exists() and not (options.source / "manifest.csv").exists()):
        found = " and ".join(given) or f"{options.source}"
        remedy = "Say into how many sites, as in --sites 4."
        raise ConfigError(
            "fedward partition", expected="--sites or --by", found=found, remedy=remedy
        )
    layout = fedperl_layout(read_skin(options.source / "manifest.csv"))
    labelled = _FEDPERL_SHARE if options.labelled is None else options.labelled
    for path in write_site_files(layout, options.source, options.out, labelled=labelled):
        print(path)
    return 0
