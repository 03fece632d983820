"""Site files by which sites use the labels that a run has bought, and no others."""

from pathlib import Path
from shutil import copyfile

from fedward.client.labels import bought
from fedward.runs.run import Run
from fedward.sites import named_sites
from fedward.sites.data_file import DATA_FILE
from fedward.storage.disk import make_folder
from fedward.yaml_text import read_yaml_file, write_yaml

_PATHS = ("folder", "manifest", "file")


def write_bought(files: Path, run: Run, out: Path) -> None:
    """Write a folder of site files that differ from those of a finished run in the labels that they
    name.

    Args:
        files: the site files that the run used, of sites that know no label beforehand
            (``annotation: oracle``).
        run: its sites' own folders lie in it.
        out: the folder; files that lie there are replaced.
    """
    make_folder(out)
    for site in named_sites(files):
        content = read_yaml_file(files / f"{site}.yaml")
        known = bought(
            run.folder / "sites" / site / "memory", run.info.id, (run.info.summary.rounds or 0) + 1
        )
        places = {
            name: str((files / content[name]).resolve()) for name in _PATHS if name in content
        }
        text = write_yaml(
            {**content, **places, "labelled": sorted(known)}, sort_keys=False, allow_unicode=True
        )
        (out / f"{site}.yaml").write_text(text, encoding="utf-8")
    if (files / DATA_FILE).exists():
        copyfile(files / DATA_FILE, out / DATA_FILE)
