"""Which data a site works on: what its own file names, else synthetic ones, if the job allows it."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedward.config import Experiment
from fedward.errors import ConfigError, DataError
from fedward.evaluation.small_counts import SMALLEST_COUNT, reportable
from fedward.security.policy import FILE
from fedward.sites import SERVER, SiteData, find_site_file, load_site, synthetic_site
from fedward.storage.checkpoint import save_json

_log = logging.getLogger(__name__)


def site_data(name: str, experiment: Experiment, cache: Path, site_folders: Sequence[Path]) -> SiteData:
    """Return the data of a site; of its own file without the validation and test images of rare classes.

    Raises:
        ConfigError: the site has no file, and the job no synthetic images, or the folders hold files of other sites:
            real and synthetic images would train one model.
        DataError: the file's data cannot be used.
    """
    file = find_site_file(name, site_folders)
    if file is not None:
        data = load_site(file, experiment.data, cache=cache)
        return data if name == SERVER else _reportable(data)
    folders = ", ".join(map(str, site_folders)) or "no folder"
    if experiment.synthetic is None:
        raise ConfigError(
            f"site {name}",
            expected=f"a file {name}.yaml in one of {folders}",
            found="none, and this job has no synthetic images",
            remedy="Write the site's file; `fedward doctor FILE` checks it.",
        )
    if others := site_files(site_folders):
        raise ConfigError(
            f"site {name}",
            expected=f"a file {name}.yaml in one of {folders}, or no site's file at all",
            found=", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else ""),
            remedy="Name files as the sites are named; without any, all sites work on the synthetic images.",
        )
    return replace(synthetic_site(name, experiment.data, experiment.synthetic, experiment.seed), annotation="oracle")


def _reportable(data: SiteData) -> SiteData:
    """Return a site's data with the validation and test images that may be evaluated; log how many may not."""
    fewer = replace(data, val=reportable(data.val), test=reportable(data.test))
    for split in ("val", "test"):
        if lost := len(getattr(data, split)) - len(getattr(fewer, split)):
            text = "site %s: %d of %d %s images are not evaluated: their classes have fewer than %d there"
            _log.info(text, data.site, lost, len(getattr(data, split)), split, SMALLEST_COUNT)
    return fewer


def site_files(folders: Sequence[Path]) -> list[str]:
    """Return the names of all sites' files in the folders; the server's is no site's, and a policy none of data."""
    others = (f"{SERVER}.yaml", FILE)
    return sorted(path.name for folder in folders for path in folder.glob("*.yaml") if path.name not in others)


def named_sites(folder: Path) -> list[str]:
    """Return the names of the sites that a folder holds files of, sorted; none of ``fedward_site.yaml``, of any site.

    Raises:
        ConfigError: it is no folder, or holds no site's file: the sites would train on the synthetic images instead.
    """
    if files := site_files([folder]):
        return [Path(file).stem for file in files if file != "fedward_site.yaml"]
    unread = ", ".join(sorted(path.name for path in folder.glob("*.yml")))
    there = f"only {unread}" if unread else "no such file in it"
    raise ConfigError(
        f"site files {folder}",
        expected="a folder with a file SITE.yaml for each site",
        found=there if folder.is_dir() else "a file" if folder.exists() else "no such folder",
        remedy="Rename them from .yml to .yaml." if unread else "Name the folder with the sites' files.",
    )


def require_same_source(name: str, site_folders: Sequence[Path], folder: Path, run: str) -> None:
    """Refuse to go on with a run on the synthetic images that began on the site's own images, or the other way round.

    Args:
        name: of the site.
        site_folders: where its file may lie now; it may have moved.
        folder: of the site, where :func:`note_source` has noted the run.
        run: the run's id, 32 hexadecimal digits.

    Raises:
        DataError: it began with a file and there is none now, or without and there is one.
    """
    words = {True: "the site's own file", False: "no site file"}
    note, found = _note(folder, run), find_site_file(name, site_folders) is not None
    if note.exists() and (began := bool(json.loads(note.read_text(encoding="utf-8"))["site_file"])) != found:
        raise DataError(
            f"site {name}",
            expected=f"{words[began]}, as when this run began",
            found=f"{words[found]} in {', '.join(map(str, site_folders)) or 'no folder'}",
            remedy="Give it the same site files again (--site-files, FEDWARD_SITES or local/), or start a new run.",
        )


def note_source(name: str, site_folders: Sequence[Path], folder: Path, run: str) -> None:
    """Note once for each run whether the site has a file; arguments as of :func:`require_same_source`."""
    if not (note := _note(folder, run)).exists():
        save_json(note, {"site_file": find_site_file(name, site_folders) is not None})


def _note(folder: Path, run: str) -> Path:
    return folder / "sources" / f"{run}.json"
