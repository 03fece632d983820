"""``fedward partition``. Imports nothing heavy before it runs."""

import argparse
from pathlib import Path
from typing import Any


def add_partition(commands: Any) -> None:
    """Add ``partition`` to the ``fedward`` command."""
    partition = commands.add_parser("partition", help="write site files that cut a data set into ten sites")
    partition.add_argument("dataset", type=Path, help="folder with manifest.csv and images")
    partition.add_argument("--out", type=Path, required=True, help="folder for the site files")
    partition.add_argument(
        "--labelled", type=_share, default=0.1, help="share of training labels in use (default: 0.1)"
    )
    partition.set_defaults(command=_partition)


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"a share is between 0 and 1, not {text}")
    return value


def _partition(options: argparse.Namespace) -> int:
    from fedward.sites.partition import fedperl_layout, read_skin, write_site_files

    layout = fedperl_layout(read_skin(options.dataset / "manifest.csv"))
    for path in write_site_files(layout, options.dataset, options.out, labelled=options.labelled):
        print(path)
    return 0
