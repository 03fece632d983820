"""The file in which a site says what its data is: read, checked, and turned into named errors."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from fedward.errors import ConfigError, DataError, did_you_mean, did_you_mean_file, reason_of
from fedward.faults import faults, names_in
from fedward.sites.data import SPLITS, Annotation
from fedward.sites.rendering import Frames, Rendering, Slices
from fedward.yaml_text import read_yaml_file

SERVER = "server"
"""The name under which the server's own images are found."""
ANY_SITE = "fedward_site.yaml"
NO_SITE = (f"{SERVER}.yaml", "fedward_policy.yaml")
"""What lies beside site files and is none: the server's, and a site's policy."""


def _not_empty(value: object) -> object:
    if value in (None, ""):
        raise ValueError("a path")
    return value


def _device(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", value):
        raise ValueError("auto, cpu, cuda, or one GPU as in cuda:1")
    return value


def _plain_name(value: str) -> str:
    """Refuse a name of a site that leads elsewhere as a file's name, or is none on a screen."""
    if value in (".", "..") or "/" in value or not value.isprintable():
        raise ValueError("a plain name, without / and control characters")
    return value


Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
SplitName: TypeAlias = Annotated[str, Field(pattern=f"^({'|'.join(SPLITS)})$")]
Width: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Place: TypeAlias = Annotated[Path, BeforeValidator(_not_empty)]
"""A path; relative ones start at the site file's own folder."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


class Columns(_Part):
    """What the site's CSV calls the columns."""

    sample_id: str = "sample_id"
    image: str = "image"
    label: str | tuple[str, ...] | None = "label"
    """None: the site has no labels. Several columns, in a multi-label job: each is a finding, 0 or
    1.
    """
    group: str | None = "group"
    """Patient or lesion, whose images stay together; None: every image stands alone. An empty cell:
    this one does.
    """
    split: str | None = None
    """Column of train/val/test; unset: the column ``split`` if there is one, else the site file's
    ``split`` shares.
    """


class Split(_Part):
    """Shares of the groups set apart for validation and test, where no column says it."""

    val: Share = 0.15
    test: Share = 0.25
    seed: int = 0

    @model_validator(mode="after")
    def _at_most_one(self) -> "Split":
        if self.val + self.test > 1:
            raise ValueError("val + test of at most 1")
        return self


class ClassWords(_Part):
    """How readers are told of a class."""

    title: str = ""
    definition: str = ""


class Reading(_Part):
    """How clinicians read the images that a job asks about (:mod:`fedward.annotation`)."""

    classes: dict[str, ClassWords] = {}
    """Class of the job -> its title and definition; a class that is not named here shows its own
    name.
    """
    columns: tuple[str, ...] = ()
    """Columns of the CSV that are shown beside an image."""
    lesion: str | None = None
    """Column of the lesions, whose images of one ``group`` share one answer; unset: each image has
    its own.
    """
    readers: int = Field(1, ge=1)
    """How many people must decide before an answer counts."""
    adjudicators: tuple[str, ...] = ()
    """Names of those who decide where readers differ, and nothing else; unset: anyone who has not
    answered.
    """

    @model_validator(mode="after")
    def _somebody_differs(self) -> "Reading":
        if self.adjudicators and self.readers == 1:
            raise ValueError("readers: 2 or more, where there are adjudicators")
        return self


class _SiteFile(_Part):
    site: Annotated[str, AfterValidator(_plain_name)] = ""
    """The site's name in messages; unset: the file's name."""
    labelled: Share | tuple[str, ...] = 1.0
    """Share of its training labels the site is willing to use, stratified by class; or the ids of
    the images whose labels it uses."""
    max_rejected: Share = 0.05
    """Above this share of unusable rows the site is refused: the file is wrong, not a row. Rows
    with too few or too many cells count only without ``where`` and ``share``: else they may be
    another's."""
    share: tuple[int, int] | None = None
    """(i, k): this site is the i-th of k group-disjoint parts of the rows, i from 1."""
    split: Split = Split()
    device: Annotated[str, BeforeValidator(_device)] = "auto"
    """Where the site works; ``auto``: on the first GPU, if there is one, else on the CPU."""
    threads: int = Field(1, ge=0)
    """CPU threads of the site's work, at most one for each core; 0: all cores. Other numbers round
    sums otherwise.
    """
    processes: int = Field(1, ge=1)
    """Processes that train here together, one for each GPU; each takes the job's batch size."""
    annotation: Annotation = "none"
    """Who answers a job that asks for labels."""
    minutes_per_label: float | None = Field(None, ge=0.0)
    """What an answer costs here, for the report; unset: not reported."""
    wait_for_labels: float = Field(0.0, ge=0.0)
    """Seconds a round waits at most for labels just asked for; later ones are used from the round
    after they came.
    """
    reading: Reading = Reading()

    @model_validator(mode="after")
    def _share_within(self) -> "_SiteFile":
        if self.share is not None and not 1 <= self.share[0] <= self.share[1]:
            raise ValueError("share: [i, k] with 1 <= i <= k")
        return self

    @model_validator(mode="after")
    def _one_gpu_each(self) -> "_SiteFile":
        if self.processes > 1 and ":" in self.device:
            raise ValueError(
                "device: cuda or auto, as each of several processes takes a GPU of its own"
            )
        return self


class ManifestSite(_SiteFile):
    """A CSV that lists images in a folder."""

    kind: Literal["manifest"]
    folder: Place
    """Images lie in here and nowhere else."""
    manifest: Place = Path()
    """The CSV; unset: ``manifest.csv`` in the folder."""
    columns: Columns = Columns()
    where: dict[str, tuple[str, ...]] = {}
    """Column -> values: only rows that have one of the values in each of the columns."""
    labels: dict[str, str] = {}
    """The site's label -> the job's class, empty for none; a label that is not named here must be a
    class itself.
    """
    ignore_labels: tuple[str, ...] = ()
    """The site's labels whose rows are not used at all."""
    survey_columns: Annotated[tuple[str, ...], Field(max_length=10)] = ()
    """Columns, such as the camera, of which a survey tells how many images have which value; by
    default none.
    """
    window: tuple[Annotated[float, Field(allow_inf_nan=False)], Width] | None = None
    """Centre and width for grey DICOM images and volumes, after the rescale; unset: each file's
    own, or percentiles.
    """
    frames: Frames | None = None
    """Which frames of DICOM files become images; unset: files of several are refused."""
    slices: Slices | None = None
    """Which slices of volumes become images; unset: volumes are refused."""

    @property
    def rendering(self) -> Rendering:
        """How its files become images."""
        return Rendering(self.window, self.frames, self.slices)

    @model_validator(mode="after")
    def _answers_of_slices(self) -> "ManifestSite":
        if self.reading.lesion and self.rendering.several:
            raise ValueError(
                "reading: no lesion, as with frames or slices an answer is of one slice"
            )
        return self

    @model_validator(mode="after")
    def _names_nobody(self) -> "ManifestSite":
        naming = {self.columns.sample_id, self.columns.image, self.columns.group or ""}
        told = sorted(naming & set(self.survey_columns))
        if told:
            raise ValueError(
                f"survey_columns without {', '.join(told)}, which names images or patients"
            )
        return self


class NpzSite(_SiteFile):
    """A file in the MedMNIST layout: ``train_images``, ``train_labels``, ``val_...``, ``test_...``."""

    kind: Literal["npz"]
    file: Place
    labels: dict[int, str] = {}
    """Number in the file -> the job's class, empty for none. It must be set: numbers do not say
    what they mean.
    """
    indices: dict[SplitName, tuple[int, ...]] | None = None
    """The site's images of each split; unset: all (or its ``share``)."""

    @model_validator(mode="after")
    def _no_columns(self) -> "NpzSite":
        if self.reading.columns or self.reading.lesion:
            raise ValueError("reading: neither columns nor lesion, which only a CSV has")
        return self


_KINDS: dict[str, type[ManifestSite | NpzSite]] = {"manifest": ManifestSite, "npz": NpzSite}


def read_site_file(site_file: Path) -> ManifestSite | NpzSite:
    """Read and check a site file; its site is set, and its paths are resolved: relative ones start
    at its own folder.

    Raises:
        DataError: the file cannot be read, is not YAML, or a field is missing, unknown or out of
            bounds (named).
    """
    where = f"site {site_file.stem}, file {site_file}"
    try:
        content = read_yaml_file(site_file)
    except (OSError, ValueError) as error:
        expected = "a readable YAML file"
        remedy = "Write or repair it."
        raise DataError(where, expected=expected, found=reason_of(error), remedy=remedy) from None
    read = _checked(content, where)
    base = site_file.parent
    site = read.site or site_file.stem
    if isinstance(read, NpzSite):
        return read.model_copy(update={"site": site, "file": _resolved(base / read.file)})
    folder = _resolved(base / read.folder)
    manifest = _resolved(base / read.manifest) if read.manifest.name else folder / "manifest.csv"
    return read.model_copy(update={"site": site, "folder": folder, "manifest": manifest})


def check_places(file: ManifestSite | NpzSite) -> None:
    """Refuse a site file that names a folder or a file which is not there.

    Args:
        file: as :func:`read_site_file` returns it.

    Raises:
        DataError: it does; with the field, and the place where one has looked.
    """
    if isinstance(file, NpzSite):
        places = [("file", file.file, "an npz file", file.file.is_file())]
    else:
        folder = ("folder", file.folder, "a folder of images", file.folder.is_dir())
        places = [folder, ("manifest", file.manifest, "a CSV file", file.manifest.is_file())]
    for field, path, expected, there in places:
        if not there:
            found = (
                f"another kind at {path}"
                if path.exists()
                else f"none at {path}{did_you_mean_file(path)}"
            )
            remedy = "Fix the path, which starts at the site file's own folder if it is relative, or connect the disk."
            raise DataError(
                f"site {file.site}, field {field}", expected=expected, found=found, remedy=remedy
            )


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike resolve(), also of links in a circle


def _checked(content: object, where: str) -> ManifestSite | NpzSite:
    """Return what a site file says; of several faults the error names the first."""
    remedy = "Fix this field of the site file."
    kind = content.get("kind") if isinstance(content, dict) else content
    if not isinstance(content, dict) or not isinstance(kind, str) or kind not in _KINDS:
        found = (
            "nothing"
            if kind in (None, "")
            else f"{kind!r:.200}{did_you_mean(kind, ('manifest', 'npz'))}"
        )
        raise DataError(
            f"{where}, field kind", expected="manifest or npz", found=found, remedy=remedy
        )
    try:
        return _KINDS[kind].model_validate(content)
    except ValidationError as error:
        first, *others = faults(error, content, names_in(_KINDS[kind]))
    expected = first.expected
    more = f" ({len(others)} more problems)" if others else ""
    if first.field == "max_set_aside":
        expected = "max_rejected, its new name"
        remedy = "Rename it in the site file."
    where = f"{where}, field {first.field or 'kind'}"
    raise DataError(where, expected=expected, found=first.found + more, remedy=remedy)


def find_site_file(site: str, folders: Sequence[Path]) -> Path | None:
    """Return the first ``<site>.yaml`` or ``fedward_site.yaml`` in the folders, in their order;
    None if there is none.

    The server's is ``server.yaml`` alone: what a hospital calls ``fedward_site.yaml`` is never
    public.

    Raises:
        DataError: the name is not a plain file name, and could lead out of the folders.
    """
    if Path(site).name != site or site in ("", ".", ".."):
        raise DataError(
            "site name", expected="a plain name", found=repr(site), remedy="Rename the site."
        )
    names = [f"{site}.yaml", *([] if site == SERVER else [ANY_SITE])]
    return next(
        (folder / name for folder in folders for name in names if (folder / name).is_file()), None
    )


def site_files(folders: Sequence[Path]) -> list[str]:
    """Return the names of all sites' files in the folders. The server's file and a policy are not
    sites' files.
    """
    return sorted(
        path.name
        for folder in folders
        for path in folder.glob("*.yaml")
        if path.name not in NO_SITE
    )


def kit_site(site_file: Path) -> str | None:
    """Return the name of the site whose startup kit holds a site file in ``local/``; None if no kit
    does.
    """
    kit = site_file.resolve().parent.parent / "startup" / "fed_client.json"
    try:
        name = json.loads(kit.read_text("utf-8"))["client"]["fqsn"].rpartition(".")[
            -1
        ]  # the last of a chain of relays
    except (AttributeError, LookupError, OSError, TypeError, ValueError):
        return None
    return name if isinstance(name, str) and name.isprintable() else None


def named_sites(folder: Path) -> list[str]:
    """Return the names of the sites that a folder holds files of, sorted. ``fedward_site.yaml``
    names no site.

    Raises:
        ConfigError: it is no folder, or holds no site's file: the sites would train on the
            synthetic images instead. Or a file in it ends in ``.yml``, which nothing reads.
    """
    where = f"site files {folder}"
    expected = "a folder with a file SITE.yaml for each site"
    unread = ", ".join(sorted(path.name for path in folder.glob("*.yml")))
    if unread:
        remedy = "Rename it from .yml to .yaml, or remove it: sites are read from .yaml alone."
        raise ConfigError(where, expected=expected, found=unread, remedy=remedy)
    files = site_files([folder])
    if files:
        return [Path(file).stem for file in files if file != ANY_SITE]
    found = (
        "no such file in it"
        if folder.is_dir()
        else "a file"
        if folder.exists()
        else "no such folder"
    )
    found = found + did_you_mean_file(folder)
    remedy = "Name the folder with the sites' files."
    raise ConfigError(where, expected=expected, found=found, remedy=remedy)
