"""The data a site works on: what its own file names or, in a simulation, synthetic images."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import ConfigDict

from fedward.config import Experiment
from fedward.disk import save_json
from fedward.errors import ConfigError, DataError, UnreadableJsonError, option, reason_of
from fedward.evaluation.evaluated_images import images_of_common_classes
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.json_text import read_json_file
from fedward.sites import SERVER, SiteData, find_site_file, load_site, site_files
from fedward.sites.caches import Cache

_SHOWN_FILES = 5
"""Names of site files in an error."""

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
    """The run's experiment."""
    folder: Path
    """The site's own folder."""
    site_folders: Sequence[Path] = ()
    """Where the site's file may lie. It may move between two starts of a run."""
    cache: Path | None = None
    """For decoded images, which can be made again; by default a folder in ``folder``."""
    shared: Cache | None = None
    """For features of a frozen encoder, where sites on one machine share them.

    By default it is a folder in the cache.
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

    def read(
        self,
        *,
        class_totals: bool,
        hidden_labels: bool = False,
        completed: Callable[[SiteData, Path], SiteData] | None = None,
    ) -> SiteData:
        """Return the data of the site, without evaluation images of rare classes.

        Synthetic images and those of the server are nobody's, and all are used.

        Args:
            class_totals: leave out labelled training images of rare classes, too, because the
                method's updates hold sums over the images of single classes.
            hidden_labels: return the training images as if none of them had a label. Those that the
                site is willing to use make no difference, not even to the order of the images.
            completed: adds labels that are not in the data, given them and the site's file, before
                images of rare classes are left out.

        Raises:
            ConfigError: the site has no file, and the job or the engine has no synthetic images or
                the folders hold files of other sites. Real and synthetic images would train one
                model then.
            DataError: the data that the file names cannot be used.
        """
        data = self._load(0.0 if hidden_labels else None)
        file = self.file
        if file is None or self.site == SERVER:
            return data
        if completed:
            data = completed(data, file)
        parts = ["val", "test"]
        if class_totals:
            parts.append("labelled")
        return _without_rare_classes(data, parts)

    def whole(self) -> SiteData:
        """Return all images of the site with all labels, also those that a run hides.

        Raises:
            ConfigError, DataError: as :meth:`read`.
        """
        return self._load(1.0)

    def _load(self, labelled: float | None = None) -> SiteData:
        """Return the site's data.

        ``labelled``: share of the training labels that are visible; None: as the site's file or
        the experiment says.
        """
        experiment = self.experiment
        file = self.file
        if file is not None:
            return load_site(file, experiment.data, self.cached, labelled)
        folders = ", ".join(map(str, self.site_folders)) or "no folder"
        wanted = f"a file {self.site}.yaml in one of {folders}"
        if experiment.synthetic is None or self.synthetic is None:
            who = "job" if experiment.synthetic is None else "engine"
            raise ConfigError(
                f"site {self.site}",
                "Write it; `fedward doctor FILE` checks it.",
                expected=wanted,
                found=f"none, and this {who} has no synthetic images",
            )
        other_files = site_files(self.site_folders)
        if other_files:
            shown = ", ".join(other_files[:_SHOWN_FILES])
            if len(other_files) > _SHOWN_FILES:
                shown += f" and {len(other_files) - _SHOWN_FILES} more"
            raise ConfigError(
                f"site {self.site}",
                "Name files as the sites are named; without any, all sites work on the synthetic "
                "images.",
                expected=f"{wanted}, or no site's file at all",
                found=shown,
            )
        if labelled == 0.0:
            images = experiment.synthetic.model_copy(update={"labelled": 0.0})
            experiment = experiment.model_copy(update={"synthetic": images})
        return self.synthetic.data(self.site, experiment, all_labels=labelled == 1.0)

    def require_same(self, run: str) -> None:
        """Raise DataError if the site had a file when a run began and has none now, or vice versa.

        Args:
            run: the run's id, 32 hexadecimal digits.
        """
        record = self._record(run)
        if not record.exists():
            return
        try:
            had_file = bool(read_json_file(record)["site_file"])
        except (UnreadableJsonError, KeyError, TypeError) as error:
            raise DataError(
                f"record {record}",
                "Put it back as it was, or start a new run.",
                expected="where the site's file lay when this run began",
                found=reason_of(error),
            ) from error
        has_file = self.file is not None
        if had_file != has_file:
            words = {True: "the site's own file", False: "no site file"}
            folders = ", ".join(map(str, self.site_folders))
            raise DataError(
                f"site {self.site}",
                f"Give it the same site files again ({option('site-files')}, FEDWARD_SITES or "
                "local/), or start a new run.",
                expected=f"{words[had_file]}, as when this run began",
                found=f"{words[has_file]}{f' in {folders}' if folders else ''}",
            )

    def record(self, run: str, device: str) -> None:
        """Record once for each run where the site's file lies, and on which device it works.

        The place is false for a site without a file.
        """
        record = self._record(run)
        if not record.exists():
            place = self.file is not None and str(self.file.absolute())
            save_json(record, {"site_file": place, "device": device})

    def has_taken_part(self, run: str) -> bool:
        """Return whether the site has answered a request of a run before."""
        return self._record(run).exists()

    def _record(self, run: str) -> Path:
        return self.folder / "sources" / f"{run}.json"


def _without_rare_classes(data: SiteData, parts: Sequence[str]) -> SiteData:
    """Return a site's data, in these parts without images of rare classes; log how many those are.

    ``parts``: names of fields such as ``val``.
    """
    kept: dict[str, Any] = {part: images_of_common_classes(getattr(data, part)) for part in parts}
    for part in parts:
        images = len(getattr(data, part))
        removed = images - len(kept[part])
        if removed:
            _log.info(
                "site %s: %d of %d %s images are not used: their classes have fewer than %d there",
                data.site,
                removed,
                images,
                part,
                SMALLEST_COUNT,
            )
    return replace(data, **kept)
