"""The labels that a site has bought in a run."""

from pathlib import Path
from types import SimpleNamespace

from fedward.client.labels import SiteLabels
from fedward.labels import Label


def bought_labels(memory: Path, run: str) -> dict[str, Label]:
    """Return the labels by id that annotators gave a site, from the site's memory of a run."""
    annotators = SimpleNamespace(labels_at_start={})
    return SiteLabels("site", annotators, memory, run).before(99, 0)  # type: ignore[arg-type]
