"""Questions that a run has put to clinicians and that have no answer yet."""

from pathlib import Path

from fedward.storage.rows import QueryRow, read_rows


def open_questions(folder: Path) -> dict[str, int]:
    """Return site -> images that it has asked about and that have no label yet.

    A site counts them at the end of each round that asks, so answers given since then are not
    known. An image whose class nobody could tell has an answer. Sites without such images are left
    out, and so are all sites of a run that buys no labels.

    Args:
        folder: of a run, whatever its status.

    Raises:
        RunError: a line of the folder's log of questions is broken.
    """
    waiting = {row.site: row.waiting for row in read_rows(folder / "queries.jsonl", QueryRow, [])}
    return {site: images for site, images in sorted(waiting.items()) if images}
