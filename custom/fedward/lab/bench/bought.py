"""Site files that name the labels which a run has bought."""

from pathlib import Path
from shutil import copyfile

from fedward.client.labels import bought_labels
from fedward.runs.run import Run
from fedward.sites import named_sites
from fedward.sites.data_file import DATA_FILE
from fedward.storage.disk import make_folder
from fedward.yaml_text import read_yaml_file, write_yaml

_PATH_FIELDS = ("folder", "manifest", "file")


def write_bought(files: Path, run: Run, out: Path) -> None:
    """Write site files by which sites use the labels that a finished run has bought, and no others.

    Args:
        files: folder of the site files that the run used; its sites know no label beforehand
            (``annotation: oracle``).
        run: the run, with the sites' own folders in its folder.
        out: the folder to write; files in it are replaced.
    """
    make_folder(out)
    next_round = (run.info.summary.rounds or 0) + 1
    for site in named_sites(files):
        content = read_yaml_file(files / f"{site}.yaml")
        for field in _PATH_FIELDS:
            if field in content:
                content[field] = str((files / content[field]).resolve())
        memory = run.folder / "sites" / site / "memory"
        content["labelled"] = sorted(bought_labels(memory, run.info.id, next_round))
        text = write_yaml(content, sort_keys=False, allow_unicode=True)
        (out / f"{site}.yaml").write_text(text, encoding="utf-8")
    if (files / DATA_FILE).exists():
        copyfile(files / DATA_FILE, out / DATA_FILE)
