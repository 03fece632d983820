"""``fedward partition``. Imports nothing heavy before it runs."""

import argparse
from pathlib import Path

from fedward.terminal import subcommand


def add_partition(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``partition``."""
    add = subcommand(parser, _partition)
    add("dataset", type=Path, help="folder with manifest.csv and images")
    add("--out", type=Path, required=True, help="folder for the site files")
    add("--labelled", type=_share, default=0.1, help="share of training labels in use (default: 0.1)")


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
