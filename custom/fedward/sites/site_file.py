"""The file in which a site describes its data: its fields, and how it is found and checked."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from fedward.cards import SITE_ITEMS, card
from fedward.errors import (
    ConfigError,
    DataError,
    UnreadableJsonError,
    command,
    did_you_mean,
    did_you_mean_file,
    option,
    reason_of,
)
from fedward.faults import faults, names_in
from fedward.json_text import read_json_file
from fedward.sites.data import SPLITS, Annotation
from fedward.sites.decoding import Fit
from fedward.sites.files import resolved
from fedward.sites.rendering import Frames, Rendering, Slices
from fedward.sites.subgroups import cells_by_group, check_columns
from fedward.sites.written import CellRules, CountsAs
from fedward.text import composed
from fedward.yaml_text import read_yaml_file

SERVER = "server"
"""Name of the site file that describes the server's own images, without ``.yaml``."""
ANY_SITE = "fedward_site.yaml"
"""Name of a site file that does not name its site."""
NOT_SITE_FILES = (f"{SERVER}.yaml", "fedward_policy.yaml")
"""YAML files beside site files that describe no site: the server's images, and a site's policy."""


# The texts of the ValueErrors below say which value is expected: fedward.faults shows them so.


def _not_empty(value: object) -> object:
    if value in (None, ""):
        raise ValueError("a path")
    return value


def _device(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", value):
        raise ValueError("auto, cpu, cuda, or one GPU as in cuda:1")
    return value


def _site_card(texts: dict[str, str]) -> dict[str, str]:
    return card(texts, SITE_ITEMS)


def _countable(columns: dict[str, dict[str, tuple[str, ...]]]) -> dict[str, Any]:
    check_columns(columns)
    return columns


def _plain_name(value: str) -> str:
    """Refuse a name that leads out of its folder as a file's name, or cannot be printed."""
    if value in (".", "..") or "/" in value or not value.isprintable():
        raise ValueError("a plain name, without / and control characters")
    return value


def _each_key_once(value: object, read: ValidatorFunctionWrapHandler) -> Any:
    """Refuse a mapping of which two keys are read as one, as 0 and 00: one value would be lost."""
    mapping = read(value)
    if isinstance(value, Mapping) and len(mapping) < len(value):
        raise ValueError("each key once, however it is written")
    return mapping


_EACH_KEY_ONCE = WrapValidator(_each_key_once)

_Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
"""A share of all, from 0 to 1."""
Word: TypeAlias = Annotated[str, AfterValidator(composed)]
"""A label, a class or the name of a column; files may have it in other letters."""
SplitName: TypeAlias = Annotated[str, Field(pattern=f"^({'|'.join(SPLITS)})$")]
Width: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Place: TypeAlias = Annotated[Path, BeforeValidator(_not_empty)]
"""A path; a relative one starts at the site file's own folder."""


class _Fields(BaseModel):
    """Fields of a site file; a field that does not exist is an error."""

    # YAML reads an unquoted 12 as a number, where a column or a class has that name.
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


class Columns(_Fields):
    """Names of the columns in the site's CSV."""

    sample_id: Word = "sample_id"
    image: Word = "image"
    label: Word | tuple[Word, ...] | None = "label"
    """The column of labels. None: the site has no labels.

    There may be several columns of 0 and 1: each for a finding in a multi-label job, and else each
    for a class, of which every image has one.
    """
    group: Word | None = "group"
    """Column of patients or lesions, whose images stay together.

    None: every image is a group of its own, as is one whose cell is empty.
    """
    split: Word | None = None
    """Column of train, val and test.

    Unset: the column ``split`` if there is one, else the shares of the field ``split``.
    """


class Split(_Fields):
    """Shares of the groups that are set apart for validation and test without a split column."""

    val: _Fraction = 0.15
    test: _Fraction = 0.25
    seed: int = 0

    @model_validator(mode="after")
    def _at_most_one(self) -> "Split":
        if self.val + self.test > 1:
            raise ValueError("val + test of at most 1")
        return self


class ClassWords(_Fields):
    """How a class is explained to readers."""

    title: str = ""
    """The class's name on the page; empty: its name in the job."""
    definition: str = ""
    examples: tuple[str, ...] = ()
    """Ids of images of the site that readers may look at as examples of the class."""


def _with_titles(columns: object) -> object:
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        return columns
    return dict.fromkeys(columns, "")


class Reading(_Fields):
    """How clinicians read the images that a job asks about (:mod:`fedward.annotation`)."""

    classes: Annotated[dict[Word, ClassWords], _EACH_KEY_ONCE] = {}
    """Class of the job -> its title and definition; other classes show their own name."""
    columns: Annotated[dict[Word, str], BeforeValidator(_with_titles), _EACH_KEY_ONCE] = {}
    """Columns of the CSV that are shown beside an image -> their titles; empty: the column's name.

    A list of columns is one without titles.
    """
    lesion: Word | None = None
    """Column of lesions, whose images of one ``group`` share an answer; unset: one per image."""
    readers: int = Field(1, ge=1)
    """How many people must decide before an answer counts."""
    adjudicators: tuple[str, ...] = ()
    """Names of people who decide where readers differ, and do nothing else.

    Unset: anyone who has not answered yet decides.
    """
    repeat: _Fraction = 0.0
    """The share of a reader's questions that come again, unannounced, to check the reader."""
    known: Annotated[dict[str, str], _EACH_KEY_ONCE] = {}
    """Image of known class -> its class; mixed in unannounced, to check readers.

    Several findings are written with ``|`` between them. No run trains on the answers.
    """

    @model_validator(mode="after")
    def _adjudicators_need_readers(self) -> "Reading":
        if self.adjudicators and self.readers == 1:
            raise ValueError("readers: 2 or more, where there are adjudicators")
        return self


class _SiteFile(_Fields):
    site: Annotated[str, AfterValidator(_plain_name)] = ""
    """The site's name in messages; unset: the file's name."""
    labelled: _Fraction | tuple[str, ...] = 1.0
    """Which of its training labels the site uses.

    Either their share, stratified by class, or the ids of the images whose labels are used.
    """
    max_rejected: _Fraction = 0.05
    """Largest share of unusable rows; above it the site is refused, as the file itself is wrong."""
    split: Split = Split()
    device: Annotated[str, BeforeValidator(_device)] = "auto"
    """Where the site works; ``auto``: on the first GPU, if there is one, else on the CPU."""
    threads: int = Field(1, ge=0)
    """CPU threads of the site's work, at most one for each core; 0: all that its process may use.

    Another number rounds sums differently, so results may differ in their last digits.
    """
    processes: int = Field(1, ge=1)
    """Processes that train here together, each on a GPU of its own or all on the CPU.

    Each uses the job's batch size.
    """
    fit: Fit = "squash"
    """How a picture becomes a square: squashed, or its central square cut out (``crop``)."""
    annotation: Annotation = "none"
    """Who answers a job that asks for labels."""
    minutes_per_label: float | None = Field(None, ge=0.0, le=10_000.0)
    """What an answer costs here, for the report; unset: not reported."""
    wait_for_labels: float = Field(0.0, ge=0.0)
    """Seconds that a round waits for labels it has just asked for.

    Labels that arrive later are used from the next round on.
    """
    reading: Reading = Reading()
    card: Annotated[dict[str, str], AfterValidator(_site_card)] = {}
    """What the site states about its images for reports: field -> text.

    :data:`fedward.cards.SITE_ITEMS` lists the fields. They leave the site only if its policy says
    ``card: true``.
    """

    @property
    def rendering(self) -> Rendering:
        """How its files become images."""
        return Rendering(fit=self.fit)

    @model_validator(mode="after")
    def _several_processes_choose_their_gpu(self) -> "_SiteFile":
        if self.processes > 1 and ":" in self.device:
            raise ValueError(
                "device: auto, cuda or cpu, as several processes choose their GPUs themselves"
            )
        return self


class ManifestSite(_SiteFile):
    """A CSV that lists images in a folder."""

    kind: Literal["manifest"]
    folder: Place
    """The folder that all images are in."""
    manifest: Place = Path()
    """The CSV; unset: ``manifest.csv`` in the folder."""
    columns: Columns = Columns()
    labels: Annotated[dict[Word, Word], _EACH_KEY_ONCE] = {}
    """The site's label -> the job's class; an empty class leaves the image unlabelled.

    A label that is not named here must be a class itself.
    """
    ignore_labels: tuple[Word, ...] = ()
    """The site's labels whose rows are not used."""
    uncertain: CountsAs | None = None
    """What -1 counts as in columns of findings; unset: such rows are rejected."""
    blank: Literal["negative", "unlabelled"] | None = None
    """What an empty cell counts as in columns of findings, beside cells that are not empty.

    Unset: negative where ``uncertain`` is set, else such rows are rejected.
    """
    prefix: str = ""
    """Start of the paths in the CSV that stands for the folder, as on another machine."""
    survey_columns: Annotated[tuple[Word, ...], Field(max_length=10)] = ()
    """Columns, such as the camera, for which a survey reports how many images have which value."""
    subgroups: Annotated[
        dict[Word, dict[str, tuple[str, ...]]],
        BeforeValidator(cells_by_group),
        AfterValidator(_countable),
        _EACH_KEY_ONCE,
    ] = {}
    """Column -> its groups, by which right answers to test images are counted.

    A group has a name and cells, or is a band of numbers such as ``40-64`` (see
    :mod:`fedward.sites.subgroups`). The counts leave the site only if its policy says
    ``subgroups: true``.
    """
    window: tuple[Annotated[float, Field(allow_inf_nan=False)], Width] | None = None
    """Centre and width for grey DICOM images and volumes, after the rescale.

    Unset: each file's own window, or percentiles.
    """
    frames: Frames | None = None
    """Which frames of DICOM files, or pages of TIFF files, become images.

    Unset: files of several are refused.
    """
    slices: Slices | None = None
    """Which slices of volumes become images; unset: volumes are refused."""

    @property
    def rendering(self) -> Rendering:
        """How its files become images."""
        return Rendering(self.window, self.frames, self.slices, self.fit)

    @property
    def cell_rules(self) -> CellRules:
        """How cells of findings are read that are neither 0 nor 1."""
        return CellRules(self.uncertain, self.blank)

    @model_validator(mode="after")
    def _no_lesions_of_slices(self) -> "ManifestSite":
        if self.reading.lesion and self.rendering.several:
            raise ValueError(
                "reading: no lesion, as with frames or slices an answer is of one slice"
            )
        return self

    @model_validator(mode="after")
    def _counted_columns_identify_nobody(self) -> "ManifestSite":
        identifying = {self.columns.sample_id, self.columns.image, self.columns.group or ""}
        for field, columns in (
            ("survey_columns", self.survey_columns),
            ("subgroups", self.subgroups),
        ):
            refused = sorted(identifying.intersection(columns))
            if refused:
                raise ValueError(
                    f"{field} without {', '.join(refused)}, which names images or patients"
                )
        return self


class NpzSite(_SiteFile):
    """A file in the MedMNIST layout: ``train_images``, ``train_labels``, ``val_images``."""

    kind: Literal["npz"]
    file: Place
    labels: Annotated[dict[int, Word], _EACH_KEY_ONCE] = {}
    """Number in the file -> the job's class; an empty class leaves the image unlabelled.

    It must be set, because numbers do not say what they mean.
    """
    indices: dict[SplitName, tuple[int, ...]] | None = None
    """Indices of the site's images in each split; unset: all images."""
    joined: bool = False
    """Whether ``indices`` count through the arrays of train, val and test one after the other.

    A site's splits are then other ones than the file's.
    """

    @model_validator(mode="after")
    def _joined_lists_indices(self) -> "NpzSite":
        if self.joined and self.indices is None:
            raise ValueError("indices, as joined says how they are counted")
        return self

    @model_validator(mode="after")
    def _reading_without_columns(self) -> "NpzSite":
        if self.reading.columns or self.reading.lesion:
            raise ValueError("reading: neither columns nor lesion, which only a CSV has")
        return self


_KINDS: dict[str, type[ManifestSite | NpzSite]] = {"manifest": ManifestSite, "npz": NpzSite}


_DATA_SETS = (".npz", ".csv", ".tsv", ".zip", ".xlsx")
"""Endings of data sets, which are no site files."""


def _unreadable(site_file: Path, where: str, error: OSError | ValueError) -> DataError:
    """Return the error for a site file that is not there, or is not one."""
    if isinstance(error, FileNotFoundError):
        return DataError(
            f"{where}: there is no such file{did_you_mean_file(site_file)}",
            "Name the file that describes a site's images, as `fedward partition` writes it.",
        )
    if site_file.suffix.lower() in _DATA_SETS:
        return DataError(
            where,
            f"Cut it into site files: {command('partition', option('sites', 2))}.",
            expected="a site file in YAML",
            found=f"a data set ({site_file.suffix})",
        )
    return DataError(
        where, "Write or repair it.", expected="a readable YAML file", found=reason_of(error)
    )


def read_site_file(site_file: Path) -> ManifestSite | NpzSite:
    """Read and check a site file.

    In the result the site's name is set and all paths are absolute.

    Raises:
        DataError: the file cannot be read, is not YAML, or a field is missing, unknown or out of
            bounds; the text names the field.
    """
    where = f"site {site_file.stem}, file {site_file}"
    try:
        content = read_yaml_file(site_file)
    except (OSError, ValueError) as error:
        raise _unreadable(site_file, where, error) from None
    file = _checked(content, where)
    base = site_file.parent
    site = file.site or site_file.stem
    if isinstance(file, NpzSite):
        return file.model_copy(update={"site": site, "file": resolved(base / file.file)})
    folder = resolved(base / file.folder)
    manifest = folder / "manifest.csv"
    if file.manifest.name:
        manifest = resolved(base / file.manifest)
    return file.model_copy(update={"site": site, "folder": folder, "manifest": manifest})


def check_places(file: ManifestSite | NpzSite) -> None:
    """Refuse a site file whose folder or files do not exist.

    Args:
        file: as :func:`read_site_file` returns it.

    Raises:
        DataError: one does not exist; the text names the field and the path that was tried.
    """
    if isinstance(file, NpzSite):
        _check_place(file, "file", file.file, "an npz file", file.file.is_file())
        return
    _check_place(file, "folder", file.folder, "a folder of images", file.folder.is_dir())
    _check_place(file, "manifest", file.manifest, "a CSV file", file.manifest.is_file())


def _check_place(
    file: ManifestSite | NpzSite, field: str, path: Path, kind: str, is_there: bool
) -> None:
    if is_there:
        return
    found = f"none at {path}{did_you_mean_file(path)}"
    if path.exists():
        found = f"another kind at {path}"
    raise DataError(
        f"site {file.site}, field {field}",
        "Fix the path, which starts at the site file's own folder if it is relative, or connect "
        "the disk.",
        expected=kind,
        found=found,
    )


def _checked(content: dict[str, Any] | None, where: str) -> ManifestSite | NpzSite:
    """Return the checked content of a site file; of several faults the error names the first."""
    remedy = "Fix this field of the site file."
    if content is None:
        raise DataError(
            where,
            "Write the fields of a site file (docs/site_files.md).",
            expected="fields with values, such as `kind: manifest`",
            found="nothing",
        )
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        found = f"{kind!r:.200}{did_you_mean(kind, _KINDS)}"
        if kind in (None, ""):
            found = "nothing"
        raise DataError(f"{where}, field kind", remedy, expected=" or ".join(_KINDS), found=found)
    try:
        return _KINDS[kind].model_validate(content)
    except ValidationError as error:
        first, *others = faults(error, content, names_in(_KINDS[kind]))
    expected = first.expected
    found = first.found
    if others:
        found += f" ({len(others)} more problems)"
    if not first.field:
        # Of the whole file, what was found says nothing.
        raise DataError(f"{where}: expected {expected}", "Fix the site file.")
    raise DataError(f"{where}, field {first.field}", remedy, expected=expected, found=found)


def find_site_file(site: str, folders: Sequence[Path]) -> Path | None:
    """Return the first ``SITE.yaml`` or ``fedward_site.yaml`` in the folders; None without one.

    For the server only ``server.yaml`` counts, because its images are public: a hospital's
    ``fedward_site.yaml`` never describes them.

    Raises:
        DataError: the name is not a plain file name, and could lead out of the folders.
    """
    if Path(site).name != site or site in ("", ".", ".."):
        raise DataError("site name", "Rename the site.", expected="a plain name", found=repr(site))
    names = [f"{site}.yaml"]
    if site != SERVER:
        names.append(ANY_SITE)
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    return None


def site_files(folders: Sequence[Path]) -> list[str]:
    """Return the sorted names of all site files in the folders, without those of no site.

    Hidden files, such as ``._site-1.yaml``, in which macOS keeps attributes, do not count. Nor do
    folders, whatever their names.
    """
    paths = [path for folder in folders for path in folder.glob("[!.]*.yaml") if not path.is_dir()]
    return sorted(path.name for path in paths if path.name not in NOT_SITE_FILES)


def kit_site(site_file: Path) -> str | None:
    """Return the name of the site whose startup kit has this file in ``local/``; None without."""
    kit = resolved(site_file).parent.parent / "startup" / "fed_client.json"
    try:
        qualified = read_json_file(kit)["client"]["fqsn"]
        # The names of relays come before the site's.
        name = qualified.rpartition(".")[-1]
    except (AttributeError, LookupError, OSError, TypeError, UnreadableJsonError):
        return None
    return name if name and name.isprintable() else None


def named_sites(folder: Path) -> list[str]:
    """Return the sorted names of the sites whose files are in a folder.

    ``fedward_site.yaml`` is allowed in it, but does not name its site and so adds no name.

    Raises:
        ConfigError: there is no such folder; it holds no site's file, so that sites would train on
            synthetic images instead; or a file in it ends in ``.yml`` or ``.YAML``, which nothing
            reads.
    """
    where = f"site files {folder}"
    expected = "a folder with a file SITE.yaml for each site"
    ignored_files = [
        path.name
        for path in folder.glob("[!.]*")
        if path.suffix != ".yaml" and path.suffix.lower() in (".yml", ".yaml") and not path.is_dir()
    ]
    if ignored_files:
        raise ConfigError(
            where,
            "Give each file the ending .yaml, or remove it: sites are read from such files alone.",
            expected=expected,
            found=", ".join(sorted(ignored_files)),
        )
    files = site_files([folder])
    if files:
        return [Path(file).stem for file in files if file != ANY_SITE]
    remedy = "Name the folder with the sites' files."
    if folder.is_dir():
        found = "no such file in it"
        if any(folder.iterdir()):
            remedy += f" Images become such files by {command('partition', option('sites', 2))}."
    elif folder.exists():
        found = "a file"
    else:
        found = f"no such folder{did_you_mean_file(folder)}"
    raise ConfigError(where, remedy, expected=expected, found=found)
