"""Run a paper's experiments again, in this process: the same tables and figures, beside the paper's numbers.

python benchmarks/paper.py {isofed,fedal,selffed} [--help]
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedward.errors import ConfigError, FedwardError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark; 0 done, 1 a run or its data failed, 2 wrong use, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="paper.py", description="Run a paper's experiments again.")
    papers = parser.add_subparsers(required=True, metavar="PAPER")
    for add in (_add_isofed, _add_fedal, _add_selffed):
        add(papers)
    options = parser.parse_args(arguments)
    try:
        options.command(options)
    except FedwardError as error:
        print(f"paper.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print("paper.py: interrupted; finished runs are kept", file=sys.stderr)
        return 130
    return 0


class _Unique(argparse.Action):
    """Stores each value once, in the order of first mention: a table would count a repeated run twice."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, list(dict.fromkeys(values or ())))


_SEVERAL: dict[str, Any] = {"nargs": "+", "action": _Unique}


def _add_selffed(papers: Any) -> None:
    selffed = papers.add_parser(
        "selffed", help="SelfFed's Figures 3 and 6, its ablations, and FedPerl from its encoder"
    )
    selffed.add_argument("--fig", type=int, choices=(3, 6), **_SEVERAL, default=[], help="written to --out as SVG")
    selffed.add_argument("--ablation", action="store_true", help="weights, contrast and participation")
    selffed.add_argument("--init", action="store_true", help="FedPerl from scratch and from a pre-trained encoder")
    selffed.add_argument("--scale", choices=("tiny", "small", "paper"), default="small", help="paper: needs a GPU")
    selffed.add_argument("--methods", **_SEVERAL, help="rows (default: those of what is asked for)")
    selffed.add_argument("--data", type=Path, help="folder with medmnist/ and skin/ (default: $FEDWARD_DATA)")
    _add_common(selffed, "runs/bench/selffed", seeds=[1, 2])
    selffed.set_defaults(command=_selffed)


def _add_fedal(papers: Any) -> None:
    fedal = papers.add_parser("fedal", help="FedAL's Tables 3 and 4 and Figures 2 and 3, on four hospitals' images")
    fedal.add_argument("--table", type=int, choices=(3, 4), **_SEVERAL, default=[], help="default: all, all figures")
    fedal.add_argument("--fig", type=int, choices=(2, 3), **_SEVERAL, default=[], help="written to --out as SVG")
    fedal.add_argument("--split", choices=("images", "lesions"), **_SEVERAL, default=["images", "lesions"])
    fedal.add_argument("--scale", choices=("tiny", "small", "paper"), default="small", help="paper: needs a GPU")
    fedal.add_argument("--methods", **_SEVERAL, help="rows (default: those of the tables and figures asked for)")
    fedal.add_argument("--data", type=Path, help="folder with manifest.csv (default: $FEDWARD_DATA/skin)")
    _add_common(fedal, "runs/bench/fedal", seeds=[1, 2, 3])
    fedal.set_defaults(command=_fedal)


def _add_isofed(papers: Any) -> None:
    isofed = papers.add_parser("isofed", help="IsoFed's Tables 1 and 2, on MedMNIST")
    asked = isofed.add_mutually_exclusive_group()
    asked.add_argument("--table", type=int, choices=(1, 2), help="all data sets and settings of a table")
    datasets = ("blood", "path", "pneumonia", "organa")
    asked.add_argument("--dataset", choices=datasets, **_SEVERAL, metavar="NAME", help=", ".join(datasets))
    isofed.add_argument("--gamma", type=float, choices=(0.8, 0.5), **_SEVERAL, default=[0.8, 0.5])
    isofed.add_argument("--labelled", type=int, choices=(3, 2, 1), **_SEVERAL, default=[3, 2, 1], help="of four sites")
    isofed.add_argument("--methods", **_SEVERAL, help="rows of the table (default: the paper's)")
    isofed.add_argument("--passes", type=int, default=200, help="passes of each site through its images (default: 200)")
    isofed.add_argument("--images-at-most", type=int, metavar="N", help="a pass ends after N images (default: never)")
    isofed.add_argument("--data", type=Path, help="folder with MedMNIST files (default: $FEDWARD_DATA/medmnist)")
    _add_common(isofed, "runs/bench/isofed", seeds=[1, 2])
    isofed.set_defaults(command=_isofed)


def _add_common(parser: argparse.ArgumentParser, out: str, seeds: list[int]) -> None:
    parser.add_argument("--seeds", type=int, **_SEVERAL, default=seeds)
    parser.add_argument("--out", type=Path, default=Path(out), help=f"runs; finished ones are kept (default: {out})")
    parser.add_argument("--workers", type=_workers, default=2, help="runs at once (default: 2)")
    parser.add_argument("--show", action="store_true", help="run nothing, print what is finished")


def _workers(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text}")
    return int(text)


def _isofed(options: argparse.Namespace) -> None:
    from papers import isofed
    from papers.isofed_table import adaptation, table
    from papers.runs import read_results

    datasets = options.dataset or isofed.TABLES.get(options.table)
    rows = _rows(options, isofed.ROWS, isofed.TABLE_ROWS)
    if not datasets:
        raise ConfigError(
            "paper.py isofed",
            expected="a table or a data set",
            found="neither --table nor --dataset",
            remedy="Write for example: paper.py isofed --dataset blood --gamma 0.8 --labelled 2",
        )
    cells = isofed.cells(datasets, options.gamma, options.labelled, rows, options.seeds)
    if not options.show:
        data = options.data or _data_folder("medmnist")
        isofed.run(cells, isofed.Budget(options.passes, options.images_at_most), data, options.out, options.workers)
    print(table(read_results(cells, partial(isofed.result_file, options.out))))
    print(adaptation(options.out, cells))


def _fedal(options: argparse.Namespace) -> None:
    from papers import fedal
    from papers.fedal_figure import curves, draw, numbers
    from papers.fedal_table import bought_table, curve_table, table_3, table_4
    from papers.runs import read_results

    everything = not options.table and not options.fig
    tables = list(fedal.TABLES) if everything else options.table
    figures = list(fedal.FIGURES) if everything else options.fig
    asked = {*(row for n in tables for row in fedal.TABLES[n]), *(row for n in figures for row in fedal.FIGURES[n])}
    rows = _rows(options, fedal.ROWS, [row for row in fedal.ROWS if row in asked])
    todo = fedal.cells(options.scale, options.split, rows, options.seeds)
    if not options.show:
        fedal.run(todo, options.data or _data_folder("skin"), options.out, options.workers)
    results = read_results(todo, partial(fedal.result_file, options.out))
    for split in options.split:
        for table in tables:
            print({3: table_3, 4: table_4}[table](results, split))
        if tables:
            print(bought_table(results, split))
        if figures:
            print(curve_table(results, split))
        for figure in figures:
            drawn = options.methods or fedal.FIGURES[figure]
            found = curves([result for result in results if result["row"] in drawn], split)
            picture = options.out / options.scale / split / f"figure-{figure}.svg"
            if found:
                draw(found, picture)
            print(f"\n### Figure {figure}, split by {split}: {picture}\n{numbers(found)}")


def _selffed(options: argparse.Namespace) -> None:
    from papers import selffed
    from papers.runs import read_results
    from papers.selffed_runs import result_file, run
    from papers.selffed_table import draw, figure_table, rows_table

    named: list[int | str] = [*options.fig, *["ablation"] * options.ablation, *["init"] * options.init]
    asked = named or [3, 6, "ablation", "init"]
    rows = _rows(options, selffed.ROWS, []) or None
    todo = selffed.cells(options.scale, asked, rows, options.seeds)
    if not options.show:
        run(todo, options.data or _data_folder("."), options.out, options.workers)
    results = read_results(todo, partial(result_file, options.out))
    for part in asked:
        own = [result for result in results if result["row"] in (rows or selffed.rows_of(part, options.scale))]
        if isinstance(part, int):
            picture = options.out / options.scale / f"figure-{part}.svg"
            draw(own, part, picture)
            print(f"{figure_table(own, part)}\n\n{picture}")
        else:
            print(rows_table(own, {"ablation": "Ablations", "init": "FedPerl"}[part]))


def _data_folder(name: str) -> Path:
    """Return a folder of the real data, where the environment says it lies."""
    return Path(os.environ.get("FEDWARD_DATA", ".")) / name


def _rows(options: argparse.Namespace, known: Iterable[str], default: Sequence[str]) -> list[str]:
    return _known("--methods", options.methods, known) or list(default)


def _known(option: str, named: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """Return what an option names; raise ConfigError for a name that is not ``known``."""
    if unknown := sorted(set(named or ()) - set(known)):
        expected, found = f"some of {', '.join(known)}", ", ".join(unknown)
        raise ConfigError(
            f"paper.py {option}", expected=expected, found=found, remedy="Name rows of this page's table."
        )
    return list(named or ())


if __name__ == "__main__":
    sys.exit(main())
