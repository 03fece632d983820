"""The data a site works on: what its own file names or, in a simulation, synthetic images."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import ConfigDict

from fedward.config import Experiment
from fedward.errors import ConfigError, DataError
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.evaluation.units import reportable
from fedward.sites import SERVER, SiteData, find_site_file, load_site, site_files
from fedward.sites.caches import Cache
from fedward.storage.checkpoint import save_json

_log = logging.getLogger(__name__)


@runtime_checkable
class SyntheticSource(Protocol):
    """Makes the data of sites without files; only an engine that simulates sites has one."""

    def data(self, site: str, experiment: Experiment, *, all_labels: bool) -> SiteData:
        """Return a site's images as the experiment's ``synthetic`` describes them.

        With ``all_labels`` the labels that the experiment hides are visible too.
        """


@dataclass(frozen=True)
class DataSource:
    """Where the images of a site come from."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)
    """Sources without ``synthetic`` are sent to other processes as JSON."""

    site: str
    """The site's name, or ``server``."""
    experiment: Experiment
    folder: Path
    """The site's own folder."""
    site_folders: Sequence[Path] = ()
    """Where the site's file may lie. It may move between two starts of a run."""
    cache: Path | None = None
    """For decoded images, which can be made again; by default a folder in ``folder``."""
    shared: Cache | None = None
    """For features of a frozen encoder, where sites on one machine share them; by default a folder
    in the cache.
    """
    synthetic: SyntheticSource | None = None
    """Makes the images of a site without a file; None: every site must have one."""

    def resolved(self) -> "DataSource":
        """Return the same source with absolute paths."""
        folders = [path.resolve() for path in self.site_folders]
        cache = self.cache and self.cache.resolve()
        shared = self.shared and self.shared._replace(folder=self.shared.folder.resolve())
        return replace(
            self, folder=self.folder.resolve(), site_folders=folders, cache=cache, shared=shared
        )

    @property
    def file(self) -> Path | None:
        """The site's own file, None if it has none."""
        return find_site_file(self.site, self.site_folders)

    @property
    def cached(self) -> Path:
        """Folder for decoded images."""
        return self.cache or self.folder / "cache"

    @property
    def features(self) -> Cache:
        """Where features of a frozen encoder are kept."""
        return self.shared or Cache(self.cached / "features")

    def read(self, *, class_totals: bool) -> SiteData:
        """Return the data of the site. Of its own file the validation and test images of rare
        classes are left out.

        With ``class_totals`` so are its labelled training images of rare classes: the method's
        updates hold sums over the images of single classes.

        Raises:
            ConfigError: the site has no file, and the job or the engine has no synthetic images or
                the folders hold files of other sites. Real and synthetic images would train one
                model then.
            DataError: the data that the file names cannot be used.
        """
        data = self._load()
        if self.file is None or self.site == SERVER:
            return data
        learned = ["labelled"] if class_totals else []
        return _reportable(data, ["val", "test", *learned])

    def whole(self) -> SiteData:
        """Return all images of the site with every label that it has, also those that a run hides;
        raises as read.
        """
        return self._load(all_labels=True)

    def _load(self, all_labels: bool = False) -> SiteData:
        experiment = self.experiment
        file = self.file
        if file is not None:
            labelled = 1.0 if all_labels else None
            return load_site(file, experiment.data, self.cached, labelled)
        where = f"site {self.site}"
        folders = ", ".join(map(str, self.site_folders)) or "no folder"
        wanted = f"a file {self.site}.yaml in one of {folders}"
        if experiment.synthetic is None or self.synthetic is None:
            who = "job" if experiment.synthetic is None else "engine"
            found = f"none, and this {who} has no synthetic images"
            remedy = "Write it; `fedward doctor FILE` checks it."
            raise ConfigError(where, expected=wanted, found=found, remedy=remedy)
        others = site_files(self.site_folders)
        if others:
            found = ", ".join(others[:5]) + (
                f" and {len(others) - 5} more" if len(others) > 5 else ""
            )
            remedy = "Name files as the sites are named; without any, all sites work on the synthetic images."
            raise ConfigError(
                where, expected=f"{wanted}, or no site's file at all", found=found, remedy=remedy
            )
        return self.synthetic.data(self.site, experiment, all_labels=all_labels)

    def require_same(self, run: str) -> None:
        """Raise DataError if the run began with a site file that is missing now, or without the one
        found now.

        Args:
            run: the run's id, 32 hexadecimal digits.
        """
        words = {True: "the site's own file", False: "no site file"}
        record = self._record(run)
        found = self.file is not None
        if (
            record.exists()
            and (began := bool(json.loads(record.read_text(encoding="utf-8"))["site_file"]))
            != found
        ):
            expected = f"{words[began]}, as when this run began"
            there = f"{words[found]} in {', '.join(map(str, self.site_folders)) or 'no folder'}"
            remedy = "Give it the same site files again (--site-files, FEDWARD_SITES or local/), or start a new run."
            raise DataError(f"site {self.site}", expected=expected, found=there, remedy=remedy)

    def record(self, run: str, device: str) -> None:
        """Record once for each run whether the site has a file, and on which device it works."""
        record = self._record(run)
        if not record.exists():
            save_json(record, {"site_file": self.file is not None, "device": device})

    def _record(self, run: str) -> Path:
        return self.folder / "sources" / f"{run}.json"


def _reportable(data: SiteData, parts: Sequence[str]) -> SiteData:
    """Return a site's data, in these parts without images of classes that are rare there; log how
    many that are.
    """
    kept: dict[str, Any] = {part: reportable(getattr(data, part)) for part in parts}
    fewer = replace(data, **kept)
    for part in parts:
        lost = len(getattr(data, part)) - len(getattr(fewer, part))
        if lost:
            text = (
                "site %s: %d of %d %s images are not used: their classes have fewer than %d there"
            )
            _log.info(text, data.site, lost, len(getattr(data, part)), part, SMALLEST_COUNT)
    return fewer
