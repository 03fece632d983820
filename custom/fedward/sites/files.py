"""Image files in a folder: which files are images, of what kind, and whether paths stay inside."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedward.errors import reason_of_system
from fedward.sites.decoding import ENDINGS, BadRow
from fedward.sites.dicom_header import begins_as_dicom, object_without_picture
from fedward.terminal import on_one_line
from fedward.text import count, natural

DICOM_ENDINGS = (".dcm", ".dicom", ".ima")
"""Endings of DICOM files' names, in lower case, where they have any."""
VOLUME_ENDINGS = (".nii", ".nii.gz")
"""Endings of the names of NIfTI volumes, in lower case."""
_OF_MACHINES = frozenset(
    {
        "__macosx",
        "@eadir",
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "system volume information",
        "lost+found",
    }
)
"""Folders, in lower case, in which storage and systems keep copies and thumbnails."""
_KINDS = 5
"""Kinds of files that a note names at most."""
_OTHER_VOLUMES = (
    *(".mgz", ".mgh", ".mgh.gz", ".img", ".img.gz", ".hdr"),
    *(".nrrd", ".nhdr", ".mha", ".mhd"),
)
"""Endings of volumes that are not read."""
_OTHER_PICTURES = {
    ".gif": "GIF",
    ".webp": "WebP",
    ".heic": "HEIC",
    ".heif": "HEIC",
    ".avif": "AVIF",
    ".jp2": "JPEG 2000",
    ".j2k": "JPEG 2000",
    ".jxl": "JPEG XL",
    ".eps": "EPS",
}
"""Ending of pictures that are not read -> their format."""


def no_file(path: Path) -> str:
    """Return what is at a path that is there and is neither a file nor a folder; else empty.

    Whoever opened it would wait for a pipe, or read a device without an end.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # ValueError: no file can have that name.
        return ""
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "a pipe or a device"


def read_content(path: Path) -> bytes:
    """Return the content of a file that somebody else may have put there.

    Raises:
        OSError: it cannot be read, or is a pipe or a device.
    """
    what = no_file(path)
    if what:
        raise OSError(errno.ENOTSUP, what, str(path))
    return path.read_bytes()


def is_dicom(path: Path) -> bool:
    """Return whether a readable file begins as DICOM files do, whatever its ending."""
    try:
        if no_file(path):
            return False
        with path.open("rb") as file:
            return begins_as_dicom(file.read(132))
    except OSError:
        return False


def series_files(folder: Path) -> list[Path]:
    """Return the DICOM files directly in a folder, by name; empty for anything but a folder.

    Hidden ones are left out.
    """
    return [path for path in _visible(folder) if is_dicom(path)]


def is_series(path: Path) -> bool:
    """Return whether a path is a folder with a DICOM file directly in it."""
    return any(map(is_dicom, _visible(path)))


def _visible(folder: Path) -> list[Path]:
    """Return what is directly in a folder and not hidden; empty for anything but a folder."""
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if not is_hidden(path)]


def resolved(path: Path) -> Path:
    """Return an absolute path without links; a link that leads in a circle stays as it is.

    ``Path.resolve`` fails on such links.
    """
    return Path(os.path.realpath(path))


def is_volume(path: Path) -> bool:
    """Return whether a path is a NIfTI volume, by its ending, or the folder of a series."""
    return path.name.lower().endswith(VOLUME_ENDINGS) or path.is_dir()


def is_file_or_unreachable(path: Path) -> bool:
    """Return whether a path is a file, perhaps one that cannot be reached now.

    So it is with a link whose file is not there, as on storage that is not connected. Folders,
    pipes and devices are no files.
    """
    return os.path.isfile(path) or not os.path.exists(path)


def locate(folder: Path, name: str) -> Path:
    """Return the file a row names, or the folder of a DICOM series, if it lies in the folder.

    Raises:
        BadRow: the path is absolute, leaves the folder (``..`` or a link), or is neither; or it is
            a link whose file cannot be reached.
    """
    if not name or "\0" in name:
        raise BadRow(f"expected the path of an image, found {name!r}")
    root = resolved(folder)
    if Path(name).is_absolute():
        raise BadRow(f"expected a path relative to {folder}, found {name!r}")
    try:
        path = resolved(root / name)
        if os.path.islink(root / name) and not os.path.exists(path):
            raise BadRow(
                f"expected an image file, found a link at {name!r} whose file cannot be reached: "
                "connect the storage that has it, or remove the link"
            )
        if not path.is_relative_to(root):
            raise BadRow(f"expected a path inside {folder}, found {name!r}, which leaves it")
        if not path.is_file() and not is_series(path):
            found = "a folder without DICOM files" if path.is_dir() else "none"
            raise BadRow(f"expected an image file, found {found} at {name!r}")
    except OSError as error:
        reason = reason_of_system(error)
        raise BadRow(f"expected an image file at {name!r}, found {reason}") from None
    return path


def is_image(path: Path) -> bool:
    """Return whether a path is an image, a volume or the folder of a series.

    Images and volumes are recognised by their endings, DICOM files also by their content: a file
    that ends in ``.dcm`` and does not begin as DICOM does is a damaged image. DICOM objects without
    a picture are none, such as reports.
    """
    return LeftOut().images([path]) == [path]


def conversion(path: Path) -> str:
    """Return how a picture or volume that is not read, by its ending, is converted; else empty."""
    name = path.name.lower()
    if name.endswith(_OTHER_VOLUMES):
        return "volumes of other formats must be converted to NIfTI (.nii.gz)"
    picture = _OTHER_PICTURES.get(path.suffix.lower())
    return f"{picture}: convert to PNG" if picture else ""


def conversions(paths: Iterable[Path]) -> str:
    """Return a sentence for each :func:`conversion` of files; empty without any."""
    ways = dict.fromkeys(filter(None, map(conversion, paths)))
    return " ".join(f"{way[0].upper()}{way[1:]}." for way in ways)


class LeftOut:
    """Notes what is left out of a folder, to report it once: files, and whole folders."""

    def __init__(self) -> None:
        self.reasons: dict[Path, str] = {}
        """File that was left out -> why."""
        self._objects = Counter[str]()
        self._endings = Counter[str]()
        self._unreadable: list[Path] = []
        """Folders whose content cannot be read."""
        self._linked: list[Path] = []
        """Links to folders."""
        self._no_files: list[Path] = []
        """Pipes, sockets and devices."""

    @property
    def total(self) -> int:
        """The number of files that were left out, without those in folders that were."""
        return self._objects.total() + self._endings.total()

    def files_below(self, folder: Path) -> list[Path]:
        """Return all files in a folder and its sub-folders, in natural order.

        Those that are hidden (:func:`is_hidden`), or lie in a hidden folder below, are left out.
        Folders that cannot be read, links to folders, which may lead in a circle, and pipes,
        sockets and devices are counted. Files that cannot be reached are returned as all others:
        reading them gives the reason.
        """

        def note(error: OSError) -> None:
            self._unreadable.append(Path(error.filename))

        files: list[Path] = []
        for above, folders, names in os.walk(folder, onerror=note):
            inside = [Path(above, name) for name in folders if not is_hidden(Path(name))]
            self._linked += [path for path in inside if path.is_symlink()]
            folders[:] = [path.name for path in inside]
            visible = [Path(above, name) for name in names if not is_hidden(Path(name))]
            for path in visible:
                kind = files if is_file_or_unreachable(path) else self._no_files
                kind.append(path)
        return sorted(files, key=lambda path: natural(path.as_posix()))

    def images(self, paths: Iterable[Path]) -> list[Path]:
        """Return the paths that :func:`is_image` takes for images; the others are counted."""
        images = []
        for path in paths:
            if self.add_object(path):
                continue
            has_ending = path.suffix.lower() in (*ENDINGS, *DICOM_ENDINGS)
            if has_ending or is_volume(path) or is_dicom(path):
                images.append(path)
            else:
                ending = on_one_line(path.suffix.lower() or path.name)
                self._endings[ending] += 1
                reason = f"{ending} is no ending of an image"
                if not path.suffix:
                    reason = "a name without an ending: if it is an image, add one such as .jpg"
                self.reasons[path] = conversion(path) or reason
        return images

    def add_object(self, path: Path) -> bool:
        """Count a file if it is a DICOM object without a picture; return whether it is."""
        kind = object_without_picture(path)
        if kind:
            self._objects[kind] += 1
            self.reasons[path] = f"a DICOM object without a picture: {kind}"
        return bool(kind)

    def notes(self) -> list[str]:
        """Return a line each on DICOM objects, other files, and folders; none without any."""
        notes = []
        if self._objects:
            notes.append(
                f"Left out: {count(self._objects.total(), 'DICOM object')} without a picture "
                f"({_most_common(self._objects)})."
            )
        if self._endings:
            note = (
                "Left out by their endings, which are not those of images: "
                f"{count(self._endings.total(), 'file')} ({_most_common(self._endings)})."
            )
            notes.append(f"{note} {conversions(self.reasons)}".rstrip())
        return notes + self.folder_notes()

    def folder_notes(self) -> list[str]:
        """Return a line each on unreadable folders, links to folders, and pipes and devices."""
        notes = []
        if self._unreadable:
            notes.append(
                f"Left out: {count(len(self._unreadable), 'folder')} whose content cannot be read, "
                f"such as {on_one_line(str(self._unreadable[0]))}."
            )
        if self._linked:
            notes.append(
                f"Left out: {count(len(self._linked), 'link')} to folders, such as "
                f"{on_one_line(str(self._linked[0]))}."
            )
        if self._no_files:
            what = count(len(self._no_files), "name")
            first = on_one_line(str(self._no_files[0]))
            notes.append(f"Left out: {what} of pipes, sockets or devices, such as {first}.")
        return notes


def _most_common(counts: Counter[str]) -> str:
    """Return the commonest kinds with their counts, and how many other kinds there are."""
    kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))
    shown = [f"{kind} {counts[kind]}" for kind in kinds[:_KINDS]]
    if len(counts) > _KINDS:
        shown.append(f"and {len(counts) - _KINDS} other kinds")
    return ", ".join(shown)


def is_hidden(path: Path) -> bool:
    """Return whether a file or folder is hidden, or one of a machine, such as ``@eaDir``."""
    return path.name.startswith(".") or path.name.lower() in _OF_MACHINES


def files_below(folder: Path) -> list[Path]:
    """Return the files in a folder and its sub-folders as :meth:`LeftOut.files_below` does."""
    return LeftOut().files_below(folder)


def volumes_in(files: Sequence[Path], single_images: Path | None = None) -> list[Path]:
    """Return the files, with each series replaced by its folder.

    A folder that directly holds two or more DICOM files with a picture is a series, unless it is
    the folder ``single_images``. DICOM objects without a picture stay files of their own.
    """
    objects = {path for path in files if object_without_picture(path)}
    pictures = Counter(path.parent for path in files if path not in objects and is_dicom(path))
    volumes = []
    for path in files:
        folder = path.parent
        in_series = pictures[folder] > 1 and folder != single_images and path not in objects
        volumes.append(folder if in_series else path)
    return list(dict.fromkeys(volumes))
