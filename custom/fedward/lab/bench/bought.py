"""Site files that name the labels which a run has bought."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedward.client.labels import bought_labels
from fedward.runs.run import Run
from fedward.sites import SERVER, named_sites
from fedward.sites.data_file import DATA_FILE
from fedward.yaml_text import read_yaml_file, write_yaml

_PATH_FIELDS = ("folder", "manifest", "file")


def files_with_bought_labels(files: Path, run: Run) -> Mapping[str, str]:
    """Return name -> text of files by which sites use the labels of a run, and no others.

    Args:
        files: folder of the site files that the run used; its sites know no label beforehand
            (``annotation: oracle``).
        run: the finished run that bought the labels, with the sites' own folders in its folder.
    """
    texts = {}
    next_round = (run.info.summary.rounds or 0) + 1
    for site in named_sites(files):
        content = _with_absolute_paths(files, site)
        memory = run.folder / "sites" / site / "memory"
        content["labelled"] = sorted(bought_labels(memory, run.info.id, next_round))
        texts[f"{site}.yaml"] = write_yaml(content, sort_keys=False, allow_unicode=True)
    if (files / f"{SERVER}.yaml").exists():
        server = _with_absolute_paths(files, SERVER)
        texts[f"{SERVER}.yaml"] = write_yaml(server, sort_keys=False, allow_unicode=True)
    if (files / DATA_FILE).exists():
        texts[DATA_FILE] = (files / DATA_FILE).read_text(encoding="utf-8")
    return texts


def _with_absolute_paths(files: Path, site: str) -> dict[str, Any]:
    """Return the content of a site file, which may then lie in another folder."""
    content = dict(read_yaml_file(files / f"{site}.yaml"))
    for field in _PATH_FIELDS:
        if field in content:
            content[field] = str((files / content[field]).resolve())
    return content
