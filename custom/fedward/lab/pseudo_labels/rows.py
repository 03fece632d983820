"""The file in which a site notes for itself how good its pseudo-labels are; see
:mod:`fedward.lab.pseudo_labels.watching`.
"""

from pathlib import Path

from fedward.storage.disk import PRIVATE, append, make_folder
from fedward.storage.rows import PseudoLabelRow, read_rows, written

_FOLDER = "pseudo_labels"


def note(site_folder: Path, run: str, row: PseudoLabelRow) -> None:
    """Add a row to what a site, in its own folder, notes of a run."""
    path = site_folder / _FOLDER / f"{run}.jsonl"
    make_folder(path.parent, PRIVATE)
    append(path, written(row).encode())


def noted(run_folder: Path, run: str) -> dict[str, list[PseudoLabelRow]]:
    """Return site -> its rows by round, where the sites' folders lie in the run folder; of a
    repeated round the last.

    Raises RunError where a file is broken.
    """
    found: dict[str, list[PseudoLabelRow]] = {}
    for path in sorted(run_folder.glob(f"sites/*/{_FOLDER}/{run}.jsonl")):
        by_exchange = {(row.round, row.part): row for row in read_rows(path, PseudoLabelRow, [])}
        found[path.parent.parent.name] = [by_exchange[exchange] for exchange in sorted(by_exchange)]
    return found
