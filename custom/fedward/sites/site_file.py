"""The file in which a site says what its data is: read, checked, and turned into named errors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from fedward.errors import DataError
from fedward.sites.data import Annotation
from fedward.yaml_text import read_yaml

SERVER = "server"
"""The name under which the server's own images are found."""

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


class Columns(_Part):
    """What the site's CSV calls the columns."""

    sample_id: str = "sample_id"
    image: str = "image"
    label: str | None = "label"
    """None: the site has no labels."""
    group: str | None = "group"
    """Patient or lesion, whose images stay together; None: every image stands alone. An empty cell: this one does."""
    split: str | None = None
    """Column of train/val/test; unset: the column ``split`` if there is one, else the site file's ``split`` shares."""


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


class _SiteFile(_Part):
    site: str | None = None
    """The site's name in messages; unset: the file's name."""
    labelled: Share = 1.0
    """Share of its training labels the site is willing to use, stratified by class."""
    max_set_aside: Share = 0.05
    """Above this share of unusable rows the site is refused: something is wrong with the file, not with a row.

    Rows of a CSV with too few or too many cells count only without ``where`` and ``share``: else they may be another's.
    """
    share: tuple[int, int] | None = None
    """(i, k): this site is the i-th of k group-disjoint parts of the rows, i from 1."""
    split: Split = Split()
    processes: int = Field(1, ge=1)
    """Processes that train here together, one for each GPU; each takes the job's batch size."""
    annotation: Annotation = "none"
    """Who answers a job that asks for labels."""
    minutes_per_label: float | None = Field(None, ge=0.0)
    """What a label costs here, for the report; unset: not reported."""
    wait_for_labels: float = Field(0.0, ge=0.0)
    """Seconds a round waits at most for labels just asked for; later ones are used from the round after they came."""

    @model_validator(mode="after")
    def _share_within(self) -> "_SiteFile":
        if self.share is not None and not 1 <= self.share[0] <= self.share[1]:
            raise ValueError("share: [i, k] with 1 <= i <= k")
        return self


class ManifestSite(_SiteFile):
    """A CSV that lists images in a folder."""

    kind: Literal["manifest"]
    folder: Path
    """Images lie in here and nowhere else."""
    manifest: Path | None = None
    """The CSV; unset: ``manifest.csv`` in the folder."""
    columns: Columns = Columns()
    where: dict[str, tuple[str, ...]] = {}
    """Column -> values: only rows that have one of the values in each of the columns."""
    labels: dict[str, str] = {}
    """The site's label -> the job's class; a label that is not named here must be a class itself."""
    ignore_labels: tuple[str, ...] = ()
    """The site's labels whose rows are not used at all."""


class Indices(_Part):
    """Which images of each npz split are the site's."""

    train: tuple[int, ...] = ()
    val: tuple[int, ...] = ()
    test: tuple[int, ...] = ()


class NpzSite(_SiteFile):
    """A file in the MedMNIST layout: ``train_images``, ``train_labels``, ``val_...``, ``test_...``."""

    kind: Literal["npz"]
    file: Path
    labels: dict[int, str] = {}
    """Number in the file -> the job's class; unset: number i is the job's i-th class."""
    indices: Indices | None = None
    """The site's images; unset: all (or its ``share``)."""


AnySite: TypeAlias = Annotated[ManifestSite | NpzSite, Field(discriminator="kind")]
_SITE: TypeAdapter[ManifestSite | NpzSite] = TypeAdapter(AnySite)


def read_site_file(site_file: Path) -> ManifestSite | NpzSite:
    """Read and check a site file; its relative paths become relative to the file's own folder, its site is set.

    Raises:
        DataError: the file cannot be read, is not YAML, or a field is missing, unknown or out of bounds (named).
    """
    where = f"site file {site_file}"
    try:
        content = read_yaml(site_file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            where, expected="a readable YAML file", found=str(error), remedy="Write or repair it."
        ) from None
    try:
        read = _SITE.validate_python(content)
    except ValidationError as error:
        raise _named(error, site_file) from None
    base = site_file.parent
    name = read.site or site_file.stem
    if isinstance(read, NpzSite):
        return read.model_copy(update={"site": name, "file": base / read.file})
    folder = base / read.folder
    manifest = base / read.manifest if read.manifest is not None else folder / "manifest.csv"
    return read.model_copy(update={"site": name, "folder": folder, "manifest": manifest})


def _named(error: ValidationError, site_file: Path) -> DataError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part not in ("manifest", "npz") or len(first["loc"]) == 1)
    others = f" ({error.error_count() - 1} more problems)" if error.error_count() > 1 else ""
    return DataError(
        f"site file {site_file}, field {field or 'kind'}",
        expected=first["msg"].removeprefix("Value error, "),
        found=f"{first['input']!r:.200}{others}",
        remedy="Fix this field of the site file.",
    )


def find_site_file(site: str, folders: Sequence[Path]) -> Path | None:
    """Return the first ``<site>.yaml`` or ``fedward_site.yaml`` in the folders, in their order; None if there is none.

    The server's is ``server.yaml`` alone: what a hospital calls ``fedward_site.yaml`` is never public.

    Raises:
        DataError: the name is not a plain file name, and could lead out of the folders.
    """
    if Path(site).name != site or site in ("", ".", ".."):
        raise DataError("site name", expected="a plain name", found=repr(site), remedy="Rename the site.")
    names = [f"{site}.yaml", *([] if site == SERVER else ["fedward_site.yaml"])]
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    return None
