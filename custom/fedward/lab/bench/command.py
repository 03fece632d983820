"""``fedward bench``. Imports nothing heavy before it runs."""

import argparse
import os
from pathlib import Path


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench``."""
    parser.set_defaults(command=_bench)
    add = parser.add_argument
    add(
        "study",
        type=Path,
        metavar="STUDY",
        help="JSON file that says what is compared, such as benchmarks/studies/pneumonia.json",
    )
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="runs; finished ones are kept (default: runs/bench/STUDY)",
    )
    add(
        "--site-files",
        type=Path,
        metavar="FOLDER",
        help="with the folders of site files (default: OUT/sites)",
    )
    add(
        "--data",
        type=Path,
        default=os.environ.get("FEDWARD_DATA") or None,
        metavar="FOLDER",
        help="data sets, for studies that cut their site files themselves (default: $FEDWARD_DATA)",
    )
    add(
        "--results",
        type=Path,
        metavar="FILE",
        help="where results are kept (default: OUT/results.jsonl)",
    )
    add("--rows", nargs="+", default=[], metavar="ROW", help="run these rows alone (default: all)")
    add(
        "--variants",
        nargs="+",
        default=[],
        metavar="NAME",
        help="run these variants alone (default: all)",
    )
    add(
        "--seeds",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="in place of the study's seeds",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of all rows; may be repeated",
    )
    add("--workers", type=int, default=2, metavar="N", help="runs at once (default: 2)")
    add(
        "--cost",
        action="store_true",
        help="run three rounds of each row, and say how many runs are missing and how long they "
        "will take here",
    )
    add("--show", action="store_true", help="run nothing, print the tables of the results")
    add(
        "--page",
        type=Path,
        metavar="FILE",
        help="run nothing, write the tables into this page, the figure beside it",
    )
    add(
        "--verify",
        action="store_true",
        help="run nothing, compare the results with the settings of the study, the run folders "
        "in OUT and --page",
    )


def _bench(options: argparse.Namespace) -> int:
    from fedward.lab.bench.bench import bench

    options.hint = lambda: "; finished runs are kept, and begun ones go on: call the command again"
    return bench(options)
