"""``fedward partition``. Imports nothing heavy before it runs."""

import argparse
import math
import shlex
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
    add(
        "source",
        type=Path,
        metavar="SOURCE",
        help="an npz file (MedMNIST), a CSV of images, or a folder with manifest.csv or one folder "
        "for each class",
    )
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder for the site files")
    add(
        "--sites",
        type=int,
        metavar="N",
        help="cut into site-1 to site-N (default: FedPerl's ten, of skin images)",
    )
    add("--by", metavar="COLUMN", help="a site for each value of a column, such as hospital")
    add(
        "--dirichlet",
        type=float,
        metavar="GAMMA",
        help="spread each class by a Dirichlet law: 0.1 is very uneven, 100 nearly even "
        "(default: evenly)",
    )
    add(
        "--labelled",
        type=_share,
        metavar="SHARE",
        help="share of its training labels that a site sees "
        f"(default: 1, with FedPerl's ten sites {_FEDPERL_SHARE})",
    )
    add(
        "--labelled-sites",
        type=int,
        metavar="N",
        help="only the first N sites have labels (default: all)",
    )
    add(
        "--oracle",
        action="store_true",
        help="the data's own labels answer a job that asks for labels, as in a simulation of "
        "active learning",
    )
    add(
        "--columns",
        nargs="+",
        default=[],
        type=named_column,
        metavar="label=NAME",
        help="a CSV's: what its columns are for, image, label, group, split or sample_id "
        "(default: by known names). label several times: columns of 0 and 1, each of a finding",
    )
    add(
        "--images",
        type=Path,
        metavar="FOLDER",
        help="folder of the images that a CSV lists (default: the CSV's)",
    )
    add(
        "--classes",
        nargs="+",
        default=[],
        metavar="NAME",
        help="an npz file's: the names of labels 0, 1, ...; else the classes to use "
        "(default: all, in natural order)",
    )
    add(
        "--frames",
        type=_count_or_all,
        metavar="N",
        help="DICOM files of several frames: use so many of each, evenly spaced, or all "
        "(default: they are refused)",
    )
    add(
        "--slices",
        type=_count,
        metavar="N",
        help="volumes (NIfTI, or a folder for each DICOM series): use so many slices of each, "
        "evenly spaced (default: volumes are refused)",
    )
    add("--axis", choices=("axial", "coronal", "sagittal"), help="of the slices (default: axial)")
    add(
        "--window",
        type=float,
        nargs=2,
        metavar=("CENTRE", "WIDTH"),
        help="centre and width of grey DICOM files and volumes, as 40 400 for Hounsfield units "
        "(default: the files')",
    )
    add(
        "--fit",
        choices=("squash", "crop"),
        help="make pictures square by squashing them, or by cutting out the central square "
        "(default: squash)",
    )
    add(
        "--pooled",
        action="store_true",
        help="one site with the training images of all sites, which only evaluate then: "
        "a centralised training",
    )
    add(
        "--resplit",
        action="store_true",
        help="set validation and test images apart by --seed, where the data set has splits of "
        "its own",
    )
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
        pooled=options.pooled,
        resplit=options.resplit,
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
    """Return how files become images, as the options say."""
    from fedward.sites.rendering import Frames, Rendering, Slices

    if options.axis and not options.slices:
        raise ConfigError(
            "--axis",
            "Say how many slices of a volume become images, as in --slices 16.",
            expected="--slices besides",
            found="none",
        )
    window = None
    if options.window:
        centre, width = options.window
        if not (math.isfinite(centre + width) and width > 0):
            raise ConfigError(
                "--window",
                "Write for example 40 400.",
                expected="a width above 0",
                found=f"{centre} {width}",
            )
        window = (centre, width)
    frames = None
    if options.frames:
        frames = Frames(at_most=None if options.frames == "all" else options.frames)
    slices = None
    if options.slices:
        slices = Slices(axis=options.axis or "axial", at_most=options.slices)
    return Rendering(window=window, frames=frames, slices=slices, fit=options.fit or "squash")


def _fedperl(options: argparse.Namespace) -> int:
    """Cut a pooled skin data set into FedPerl's ten sites."""
    from fedward.lab.partition.fedperl import (
        fedperl_layout,
        read_skin,
        write_centralised,
        write_site_files,
    )

    needs_sites = (
        "dirichlet",
        "labelled_sites",
        "oracle",
        "columns",
        "images",
        "classes",
        "frames",
        "slices",
        "axis",
        "window",
        "fit",
        "resplit",
    )
    given = [f"--{name.replace('_', '-')}" for name in needs_sites if getattr(options, name)]
    manifest = options.source / "manifest.csv"
    if given or (options.source.exists() and not manifest.exists()):
        raise ConfigError(
            "fedward partition",
            "Say into how many sites, as in --sites 4.",
            expected="--sites or --by",
            found=" and ".join(given) or f"{options.source}",
        )
    layout = fedperl_layout(read_skin(manifest), options.seed)
    labelled = _FEDPERL_SHARE if options.labelled is None else options.labelled
    write = write_centralised if options.pooled else write_site_files
    for path in write(layout, options.source, options.out, labelled, options.seed):
        print(path)
    print(f"\nNext: fedward run fedperl --site-files {shlex.quote(f'{options.out}')}")
    return 0
