"""The arguments of ``fedward partition``."""

import argparse
from pathlib import Path

from fedward.terminal import column_with_names, from_0_to_1, named_column
from fedward.text import composed

FEDPERL_SHARE = 0.1
"""Share of the labels with FedPerl's ten sites."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``fedward partition``."""
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
        help="cut into site-1 to site-N, each with ten training images or more (default: FedPerl's "
        "ten, of skin images)",
    )
    by = "a site for each value of a column, such as hospital"
    add("--by", type=composed, metavar="COLUMN", help=by)
    add(
        "--dirichlet",
        type=float,
        metavar="GAMMA",
        help="spread each class by a Dirichlet law: 0.1 is very uneven, 100 nearly even "
        "(default: evenly)",
    )
    add(
        "--labelled",
        type=from_0_to_1,
        metavar="SHARE",
        help="share of its training labels that a site sees, but at least one of each class that "
        f"it has (default: 1, with FedPerl's ten sites {FEDPERL_SHARE})",
    )
    add(
        "--labelled-sites",
        type=int,
        metavar="N",
        help="only the first N sites have labels (default: all)",
    )
    add(
        "--server",
        type=from_0_to_1,
        default=0.0,
        metavar="SHARE",
        help="share of the training images that the server has instead, with their labels: of each "
        "class at each site, as far as whole images or groups allow. They are public images, for "
        "methods whose server learns or judges models (default: 0)",
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
        "(default: by known names). label several times: columns of 0 and 1, each of a class or a "
        "finding",
    )
    add(
        "--subgroups",
        nargs="+",
        action="extend",
        default=[],
        type=_column_of_groups,
        metavar="COLUMN[=GROUP,GROUP]",
        help="a CSV's: columns by which the sites also count right answers, as in sex "
        "age=0-39,40-64,65+. Without groups each value is one",
    )
    _add_label_arguments(parser)
    add(
        "--images",
        type=Path,
        metavar="FOLDER",
        help="folder of the images that a CSV lists (default: the CSV's)",
    )
    add(
        "--prefix",
        default="",
        metavar="START",
        help="start of the paths in a CSV that stands for the folder of images, as D:\\study on "
        "another machine",
    )
    add(
        "--classes",
        nargs="+",
        default=[],
        type=composed,
        metavar="NAME",
        help="an npz file's: the names of labels 0, 1, ...; else the classes to use "
        "(default: all, in natural order)",
    )
    add(
        "--titles",
        nargs="+",
        default=[],
        type=_meaning,
        metavar="CLASS=TITLE",
        help="what classes stand for on pages, as in MEL=melanoma (default: their names)",
    )
    add(
        "--frames",
        type=_count_or_all,
        metavar="N",
        help="DICOM files of several frames, and TIFF files of several pages: use this many of "
        "each, evenly spaced, or all (default: they are refused)",
    )
    add(
        "--slices",
        type=_count,
        metavar="N",
        help="volumes (NIfTI, or a folder for each DICOM series): use this many slices of each, "
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
    add(
        "--val",
        type=from_0_to_1,
        metavar="SHARE",
        help="share of the images that is set apart for validation "
        "(default: 0.15, or those that the data set has)",
    )
    add(
        "--test",
        type=from_0_to_1,
        metavar="SHARE",
        help="share of the images that is set apart for testing "
        "(default: 0.25, or those that the data set has)",
    )
    add(
        "--evaluate-together",
        action="store_true",
        help="one more site, which trains nothing, has the validation and test images of all: "
        "for a simulation whose sites have too few each",
    )
    add(
        "--contradicting",
        choices=("left-out", "kept"),
        help="copies of a picture with several labels: leave them out, or keep them as they "
        "are (default: they are refused). Rows of a CSV that differ on one file are always refused",
    )
    add("--seed", type=int, default=0, help="of all that is drawn (default: 0)")


def _add_label_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that decide what labels mean."""
    add = parser.add_argument
    add(
        "--labels",
        nargs="+",
        action="extend",
        default=[],
        type=_meaning,
        metavar="LABEL=CLASS",
        help="what labels of a CSV, names of folders or numbers of an npz file mean: MEL=mel makes "
        "both one class, and unknown= is no label. Needed for NaN, -1 and ?, and for labels that "
        "differ in case alone",
    )
    add(
        "--label-kind",
        choices=("one", "several"),
        help="whether an image has one of the classes, or may show several or none (default: what "
        "the labels look like)",
    )
    add(
        "--uncertain",
        choices=("positive", "negative", "unlabelled"),
        help="columns of findings: what -1 counts as, as in CheXpert (default: it is refused). "
        "Empty cells beside others then count as negative",
    )
    add(
        "--blank",
        choices=("negative", "unlabelled"),
        help="columns of findings: what an empty cell beside others counts as (default: it is "
        "refused, unless --uncertain is given)",
    )
    add(
        "--no-finding",
        choices=("ignored", "unlabelled"),
        help="findings: rows with No Finding beside a finding, as a support device, either show "
        "the finding (ignored) or have no label (default: they are refused)",
    )


def _meaning(argument: str) -> tuple[str, str]:
    """Return a label and the class that it means, from an argument ``LABEL=CLASS``."""
    label, equals, name = argument.rpartition("=")
    if not equals or not label:
        raise argparse.ArgumentTypeError(f"write for example MEL=melanoma, not {argument}")
    return composed(label.strip()), composed(name.strip())


def _column_of_groups(argument: str) -> tuple[str, tuple[str, ...]]:
    """Return a column and its groups, none by default, from an argument ``COLUMN=GROUP,GROUP``."""
    name, named = column_with_names(composed(argument))
    if not name or "" in named:
        raise argparse.ArgumentTypeError(
            f"write for example sex or age=0-39,40-64,65+, not {argument}"
        )
    return name, named


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text}")
    return int(text)


def _count_or_all(text: str) -> int | str:
    return text if text == "all" else _count(text)
