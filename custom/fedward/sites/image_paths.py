"""Which image files the cells of a CSV name, however another machine or program wrote the paths.

A path belongs to an image only if all of it agrees: from its end on, each of its parts is a part of
the image's own path. Only a bare file name is looked for in every folder. So a row of
``patient-9/left.png`` never gets the ``left.png`` of patient 7.
"""

import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

from fedward.sites.decoding import ENDINGS, BadRow
from fedward.sites.files import (
    DICOM_ENDINGS,
    VOLUME_ENDINGS,
    LeftOut,
    is_image,
    locate,
    resolved,
    series_files,
)
from fedward.terminal import on_one_line

_DRIVE = re.compile(r"^[A-Za-z]:")
_QUERY = re.compile(r"(https?://[^?#]*)[?#].*")
"""A web address with a query, which names no file."""
ALL_ENDINGS = (*sorted(ENDINGS), *DICOM_ENDINGS, *VOLUME_ENDINGS)
"""Endings of images, DICOM files and volumes, which a CSV may leave out.

UIDs and dates have dots, too, which are parts of a name.
"""
_HINTS = 100
"""Cells without an image for which others of their name are looked for at most."""
_SHOWN = 3
"""Candidates that a message names."""


class NoImage(BadRow):
    """A row names no image, or several."""


class _Image(NamedTuple):
    """An image below the folder, or the folder of a DICOM series."""

    path: str
    """Relative, with slashes."""
    parts: tuple[str, ...]
    """The folder's own path and this one, spelt as :func:`_spelling` does."""


class _Match(NamedTuple):
    """The image that a cell names."""

    path: str
    """Relative, with slashes."""
    rule: str = ""
    """How it was found, for a note; empty where the cell is its relative path."""


class ImageFinder:
    """Finds the images that the cells of a CSV name, in a folder and below it.

    A cell is the first of these that exists:

    - the image's path, relative to the folder, or absolute and in the folder
    - the end of the image's path, from any of its folders on
    - a bare file name, of one image anywhere below the folder
    - a path that ends in the folder's own name and the image's path in it, as on another machine

    Backslashes count as slashes. Case, an absent ending, blanks, composed letters and ``%20`` may
    differ where only one image is left. The folder is searched once, when a cell needs it.

    Args:
        folder: of the images.
        prefixes: starts of paths in the CSV that stand for the folder.
    """

    def __init__(self, folder: Path, prefixes: Sequence[str] = ()) -> None:
        self.folder = folder
        self._root = resolved(folder)
        self._prefixes = [(prefix, spelt_parts(prefix)) for prefix in prefixes]
        self._rules: Counter[str] = Counter()
        """Rule by which cells were found -> their number."""
        self._examples: dict[str, str] = {}
        """Rule -> the first of these cells and its image."""
        self._matched: set[str] = set()
        self._foreign_start = ""
        """What comes before the folder's name in the first path of another machine."""
        self._missed_starts: Counter[str] = Counter()
        """Start of a cell that found nothing, and would with ``prefixes`` -> number of cells."""
        self._hints = 0
        """Cells without an image for which others of their name were looked for."""
        self._left_out = LeftOut()
        """The folders that are not searched, once the folder is."""
        self._tails: dict[int, dict[tuple[str, ...], list[_Image]]] = {}
        """Number of parts -> the last parts of a path, and images that end in them."""

    def find(self, cell: str) -> str:
        """Return the relative path of the image that a cell names.

        Raises:
            NoImage: there is none, there are several, or it lies outside of the folder.
        """
        match = self._find(cell)
        if match.rule:
            self._rules[match.rule] += 1
            self._examples.setdefault(match.rule, on_one_line(f"{cell} is {match.path}"))
        self._matched.add(match.path)
        return match.path

    def notes(self) -> list[str]:
        """Return how images were found whose paths are written otherwise, and what is not searched.

        Folders that are not searched are known once a cell, or :meth:`unlisted`, needed the search.
        """
        notes = []
        for rule, count in self._rules.items():
            notes.append(f"Images found by {rule}: {count}, the first: {self._examples[rule]}.")
        return notes + self._left_out.notes()

    def likely_prefix(self) -> str:
        """Return the start that most of the cells without an image share; empty without one."""
        if not self._missed_starts:
            return ""
        return self._missed_starts.most_common(1)[0][0]

    def unlisted_notes(self) -> list[str]:
        """Return a note of the images below the folder that no cell has named so far, or none."""
        paths = [image.path for image in self._all_images if not self._is_matched(image.path)]
        if not paths:
            return []
        first = on_one_line(min(paths))
        return [f"Images in {self.folder} that no row names: {len(paths)}, such as {first}."]

    def _is_matched(self, path: str) -> bool:
        """Return whether a cell names an image, or the series that it belongs to."""
        return path in self._matched or posixpath.dirname(path) in self._matched

    def _find(self, cell: str) -> _Match:
        name = cell
        for root in (self._root, self.folder.absolute()):
            if Path(name).is_relative_to(root):
                name = Path(name).relative_to(root).as_posix()
        try:
            image = locate(self.folder, name)
        except BadRow as problem:
            first_problem = problem
        else:
            return _Match(self._relative(name, image))
        name = _QUERY.sub(r"\1", name)
        for spelling in dict.fromkeys((name, unquote(name))):
            match = self._search(spelling)
            if match:
                self._check(match.path)
                return match
        raise NoImage(f"{first_problem}{self._hint(name)}")

    def _relative(self, name: str, image: Path) -> str:
        """Return the plain relative path of an image.

        Args:
            name: its path, relative to the folder, as it is written.
            image: the file that this path leads to.
        """
        if ".." in name.split("/"):
            # The path may lead out of the folder and in again. After a link, .. is the folder
            # above the one that the link leads to, so that parts must not be left out by name.
            path = image.as_posix()
        else:
            path = posixpath.normpath(posixpath.join(self._root.as_posix(), name))
        return posixpath.relpath(path, self._root.as_posix())

    def _check(self, path: str) -> None:
        """Raise NoImage if a path leads out of the folder, as a link may."""
        try:
            locate(self.folder, path)
        except BadRow as problem:
            raise NoImage(str(problem)) from None

    def _search(self, name: str) -> _Match | None:
        """Return the one image that a path may name; None without any."""
        parts = spelt_parts(name)
        for prefix, start in self._prefixes:
            if parts[: len(start)] == start:
                candidates = self._at(parts[len(start) :])
                return self._only(name, candidates, f"the prefix {prefix}")
        exact = self._at(parts)
        if exact:
            return self._only(name, exact, "another spelling or without their ending")
        candidates = self._ending_in(parts)
        if candidates:
            rule = "the end of their paths" if len(parts) > 1 else "their bare names"
            return self._only(name, candidates, rule)
        return self._of_another_machine(name, parts)

    def _of_another_machine(self, name: str, parts: tuple[str, ...]) -> _Match | None:
        """Return the image of a path that ends in the folder's name and the image's path in it."""
        candidates: list[_Image] = []
        for place, part in enumerate(parts[:-1]):
            if self._root_parts[-1:] == (part,):
                candidates += self._at(parts[place + 1 :])
        match = self._only(name, candidates, "the folder's name and what follows it")
        if match:
            start = _without_last_parts(name, len(spelt_parts(match.path)) + 1)
            self._foreign_start = self._foreign_start or start
            if start != self._foreign_start:
                raise NoImage(
                    f"expected a path that begins with {self._foreign_start}, as others do, found "
                    f"{name!r}"
                )
        return match

    def _only(self, name: str, candidates: Sequence[_Image], rule: str) -> _Match | None:
        """Return the candidate that a path names; None without any.

        Candidates that can be reached come before those that cannot. Of these, the first kind that
        there is counts: those whose path is written exactly so, those whose file name is, those
        with the same ending, and all.

        Args:
            name: the path.
            candidates: the images that it may name.
            rule: how they were found, for :attr:`_Match.rule`.

        Raises:
            NoImage: there are several of that kind.
        """
        if not candidates:
            return None
        reachable = [image for image in candidates if os.path.exists(self._root / image.path)]
        possible = reachable or candidates
        written_parts = name.replace("\\", "/").split("/")
        path = "/".join(part for part in written_parts if part not in ("", "."))
        file_name = posixpath.basename(path)
        preferred = (
            [image for image in possible if f"{self._root}/{image.path}".endswith(f"/{path}")],
            [image for image in possible if posixpath.basename(image.path) == file_name],
            [image for image in possible if image.parts[-1] == _spelling(file_name)],
            possible,
        )
        chosen = next(images for images in preferred if images)
        if len(chosen) > 1:
            paths = ", ".join(image.path for image in chosen[:_SHOWN])
            raise NoImage(f"expected one image at {name!r}, found {len(chosen)}. These are {paths}")
        return _Match(chosen[0].path, rule)

    def _hint(self, name: str) -> str:
        """Return what is known of the image that a cell could mean; empty if nothing is."""
        parts = spelt_parts(name)
        if not parts or self._hints == _HINTS:
            return ""
        self._hints += 1
        alike = sorted(
            self._ending_in(parts[-1:]), key=lambda image: -_shared_folders(image.parts, parts)
        )
        if alike:
            nearest = alike[0]
            inside = len(nearest.parts) - len(self._root_parts)
            """Parts of its path below the folder, the file name among them."""
            folders_agree = _shared_folders(nearest.parts, parts) >= inside - 1
            if inside < len(parts) and folders_agree:
                self._missed_starts[_without_last_parts(name, inside)] += 1
            paths = ", ".join(image.path for image in alike[:_SHOWN])
            return f". {len(alike)} of this name in other folders: {paths}"
        stem = posixpath.splitext(parts[-1])[0]
        others = [image.path for image in self._ending_in((stem,))]
        if others:
            return f". With another ending there is {', '.join(others[:_SHOWN])}"
        numbered = [image.path for image in self._images if _is_same_number(stem, image.parts[-1])]
        if numbered:
            return f". With zeros in front there is {', '.join(numbered[:_SHOWN])}"
        return ""

    def _at(self, parts: tuple[str, ...]) -> list[_Image]:
        """Return the images at a path that is relative to the folder."""
        whole = self._root_parts + parts
        return [image for image in self._ending_in(whole) if len(image.parts) == len(whole)]

    def _ending_in(self, parts: tuple[str, ...]) -> list[_Image]:
        """Return the images whose paths end in these parts; the last may lack its ending."""
        length = len(parts)
        if length not in self._tails:
            by_tail: dict[tuple[str, ...], list[_Image]] = defaultdict(list)
            for image in self._searched:
                if length <= len(image.parts):
                    *above, name = image.parts[-length:]
                    for written in {name, _without_ending(name)}:
                        by_tail[*above, written].append(image)
            self._tails[length] = by_tail
        return self._tails[length].get(parts, []) if parts else []

    @cached_property
    def _root_parts(self) -> tuple[str, ...]:
        return spelt_parts(self._root.as_posix())

    @cached_property
    def _images(self) -> list[_Image]:
        """The images below the folder that are searched, by path: those of printable names."""
        return [image for image in self._all_images if image.path.isprintable()]

    @cached_property
    def _all_images(self) -> list[_Image]:
        """All images below the folder, by path; hidden ones are none."""
        images = []
        for path in sorted(self._left_out.files_below(self._root)):
            with suppress(OSError):
                if is_image(path):
                    images.append(self._image(path.relative_to(self._root).as_posix()))
        return images

    def _image(self, path: str) -> _Image:
        return _Image(path, self._root_parts + spelt_parts(path))

    @cached_property
    def _searched(self) -> list[_Image]:
        """All images, and the folders that hold a DICOM series."""
        # Such files have any ending, or none.
        may_be_dicom = Counter(
            posixpath.dirname(image.path)
            for image in self._images
            if Path(image.path).suffix.lower() not in ENDINGS
        )
        series = []
        for folder, files in may_be_dicom.items():
            if folder and files > 1 and len(series_files(self._root / folder)) > 1:
                series.append(self._image(folder))
        return [*self._images, *series]


def spelt_parts(path: str) -> tuple[str, ...]:
    r"""Return the parts of a path of any system, spelt alike; ``..`` stays where nothing is above.

    Windows paths, UNC paths (``\\server\share\a.png``) and ``file:`` addresses are understood.
    """
    path = path.strip().removeprefix("file://").replace("\\", "/")
    path = _DRIVE.sub(lambda drive: f"{drive[0]}/", path)
    parts: list[str] = []
    for part in path.split("/"):
        name = _spelling(part)
        if name == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif name not in ("", "."):
            parts.append(name)
    return tuple(parts)


def _spelling(name: str) -> str:
    """Return a name without case, blanks at its ends, and decomposed letters."""
    return normalize("NFC", normalize("NFC", name).strip().casefold())


def _without_ending(name: str) -> str:
    for ending in ALL_ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def _is_same_number(stem: str, name: str) -> bool:
    """Return whether a name is a number to which a spreadsheet has left no zeros in front."""
    written = _without_ending(name)
    return stem.isdecimal() and written.isdecimal() and int(stem) == int(written)


def _shared_folders(parts: Sequence[str], others: Sequence[str]) -> int:
    """Return how many folders two paths share, counted from the file names upwards."""
    shared = 0
    for one, other in zip(reversed(parts[:-1]), reversed(others[:-1]), strict=False):
        if one != other:
            break
        shared += 1
    return shared


def _without_last_parts(path: str, number: int) -> str:
    """Return a path as it is written, without so many of its last parts."""
    is_of_windows = "\\" in path and "/" not in path
    separator = "\\" if is_of_windows else "/"
    return separator.join(path.split(separator)[:-number])
