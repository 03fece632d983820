"""Divides the images of a pool among sites: evenly, by a Dirichlet law, or by a column.

Groups stay together. Validation and test images are those of the data set, or are set apart by
group. They are divided evenly by class among the sites, however the training images are divided:
each is at one site, so the mean over the sites, weighted by their images, is the mean over all
images. With a column, each image is at the site of its value.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from fedward.errors import ConfigError, did_you_mean, listed, option
from fedward.lab.partition.dirichlet import dirichlet
from fedward.lab.partition.left_out import LEFT_OUT_FILE
from fedward.lab.partition.pool import Cut, Pool, Rows
from fedward.labels import Labels, class_counts
from fedward.seeds import numpy_generator
from fedward.sites.data import SPLITS
from fedward.sites.label_texts import group_or_empty, undecided
from fedward.sites.site_file import ANY_SITE, NOT_SITE_FILES, Split
from fedward.sites.split import commonest_labels, group_split, parts_of_labelled_groups
from fedward.text import natural

_DISPLACED = "in a group that has more images at another site"
_MANY_DISPLACED = 0.1
"""Share of the images above which those that are displaced are no side issue."""
_MOST_NAMED = 5
"""Sites that a note names."""
_LONGEST_NAME = 200
"""Characters of a site's name: a file's may have 255, with its endings."""
AT_LEAST = 10
"""Training images that each site must have."""


class SetApart(NamedTuple):
    """Shares of the images of a data set without splits that are set apart.

    None: the default of site files, or the data set's own split.
    """

    val: float | None = None
    test: float | None = None


DEFAULT_SHARES = SetApart()


class TooFewImagesError(ConfigError):
    """A site would have fewer training images than each must have."""


def divide(
    pool: Pool,
    sites: int,
    gamma: float | None = None,
    seed: int = 0,
    apart: SetApart = DEFAULT_SHARES,
) -> Cut:
    """Divide a pool among ``site-1`` to ``site-N``.

    Args:
        pool: the images that are divided.
        sites: number of sites.
        gamma: concentration of the Dirichlet law by which each class of the training images is
            spread, see :func:`~fedward.lab.partition.dirichlet.dirichlet`; None: evenly, by class.
        seed: determines all divisions.
        apart: which shares of the images are for validation and testing.

    Raises:
        ConfigError: no sites; a gamma that is not above 0; a site would have fewer than 10 training
            images. Under the Dirichlet law single images are drawn again up to 1000 times until
            none has; groups, whose sizes differ, are drawn until each site has one.
    """
    if sites < 1:
        raise ConfigError(
            option("sites"), "Name a number above 0.", expected="at least 1", found=f"{sites}"
        )
    splits = splits_of_rows(pool, pool.kinds, seed, apart)
    rows = {split: np.flatnonzero(splits == split) for split in SPLITS}
    parts = {split: _even(pool, rows[split], sites, seed) for split in ("val", "test")}
    if gamma is None:
        parts["train"] = _even(pool, rows["train"], sites, seed)
    else:
        parts["train"] = _spread(pool, rows["train"], sites, gamma, seed)
    cut = {
        f"site-{index + 1}": {split: parts[split][index] for split in SPLITS}
        for index in range(sites)
    }
    check_size(pool, cut, _fewer_sites(gamma))
    return cut


def check_column(pool: Pool, column: str) -> None:
    """Raise ConfigError if a pool has no such column to be divided by."""
    if column not in pool.columns:
        raise ConfigError(
            option("by"),
            f"Name one of them, or give {option('sites')}.",
            expected=f"a column of the data ({', '.join(pool.columns) or 'there are none'})",
            found=f"{column}{did_you_mean(column, pool.columns)}",
        )


class ColumnSites(NamedTuple):
    """The sites that a column makes of N images: one for each of its values."""

    column: str
    values: Sequence[str]
    """(N,) value of each image; an empty text for none."""
    name_of: Mapping[str, str]
    """Value -> name of its site, in natural order of the values."""
    owner: Rows
    """(N,) place of each image's site among them; -1 for images left out."""


def column_sites(pool: Pool, column: str) -> ColumnSites:
    """Return the sites that a column makes, such as that of the hospitals' names.

    Sites are named by the values; images without a value are left out. A group that occurs at
    several sites stays where it has most images. Its other images are left out, because they may
    be from another camera.

    Raises:
        ConfigError: there is no such column or only one value, or a value cannot name a file.
    """
    check_column(pool, column)
    values = [group_or_empty(value) for value in pool.columns[column]]
    name_of = _site_names([value for value in values if value])
    return ColumnSites(column, values, name_of, _owners(pool.groups, values, list(name_of)))


def divide_by(pool: Pool, by: ColumnSites, seed: int = 0, apart: SetApart = DEFAULT_SHARES) -> Cut:
    """Divide a pool among the sites of a column.

    Validation and test images are set apart at each site, by class.

    Raises:
        ConfigError: a site has fewer than 10 training images.
    """
    owner = by.owner
    site_names = list(by.name_of.values())
    remedy = (
        f"Give the images of these sites no value in {by.column}, to leave them out, or name "
        "another column."
    )
    # A column of names or numbers has a value for each image: refused before much is computed.
    check_size(pool, _unsplit(pool, owner, site_names), remedy)
    # Each class at each site is a stratum of its own. With K classes a kind is 0 to K: images of a
    # multi-label pool that show no class are of kind K.
    strata = owner * (len(pool.classes) + 1) + pool.kinds
    strata = np.where((pool.kinds < 0) | (owner < 0), -1, strata)
    splits = splits_of_rows(pool, strata, seed, apart)
    cut = {}
    for index, name in enumerate(site_names):
        cut[name] = {
            split: np.flatnonzero((owner == index) & (splits == split)) for split in SPLITS
        }
    check_size(pool, cut, remedy)
    return cut


def _unsplit(pool: Pool, owner: Rows, sites: Sequence[str]) -> Cut:
    """Return the images that each site may train on, before any are set apart.

    Args:
        pool: N images.
        owner: (N,) place of each image's site in ``sites``; -1 for images left out.
        sites: their names.
    """
    rows = np.flatnonzero((owner >= 0) & (np.array(pool.splits) == "train"))
    rows = rows[np.argsort(owner[rows], kind="stable")]
    ends = np.cumsum(np.bincount(owner[rows], minlength=len(sites)))
    parts = np.split(rows, ends[:-1])
    return {site: {"train": part} for site, part in zip(sites, parts, strict=True)}


def split_off_server(
    pool: Pool, cut: Cut, share: float, seed: int = 0
) -> tuple[Cut, dict[str, Rows]]:
    """Give the server a share of the sites' training images, of each class at each site.

    Whole images or groups make up the share as closely as they can: what is left over of a class at
    one site counts at the next. Four fifths of the server's images are for training, the others for
    validation.

    Args:
        pool: what is cut.
        cut: its sites; none shares a group with another.
        share: of the training images, above 0 and up to 1.
        seed: determines which images these are.

    Returns:
        The sites without these images, and the server's rows of each split; none are for testing.

    Raises:
        ConfigError: the server would get no image, or a site would keep fewer than 10 training
            images.
    """
    rows = np.concatenate([site_rows["train"] for site_rows in cut.values()])
    site_of_row = np.repeat(np.arange(len(cut)), [len(site["train"]) for site in cut.values()])
    public = np.sort(rows[_rows_of_server(pool, rows, site_of_row, share, seed)])
    if not len(public):
        raise ConfigError(
            option("server", share),
            "Give the server a larger share.",
            expected="an image or a group of some class for the server",
            found=f"none in {share:g} of each class, of {len(rows)} training images",
        )
    kept: dict[str, Mapping[str, Rows]] = {}
    for site, site_rows in cut.items():
        train = site_rows["train"]
        kept[site] = {**site_rows, "train": train[~np.isin(train, public)]}
    check_size(pool, kept, f"Give the server a smaller share ({option('server')}).")
    groups = [pool.groups[row] for row in public]
    part = parts_of_labelled_groups(groups, pool.kinds[public], [0.8, 0.2], seed)
    can_be_evaluated = pool.kinds[public] >= 0
    return kept, {
        "train": public[part == 0],
        "val": public[(part == 1) & can_be_evaluated],
        "test": np.zeros(0, np.int64),
    }


def _rows_of_server(
    pool: Pool, rows: Rows, site_of_row: Rows, share: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Return which rows (N,) the server gets: of each class, a share at each site in turn.

    A group goes to the server if that brings the server's images of its class closer to the share
    of those visited so far.
    """
    group_of_row, group_labels = _groups(pool, rows)
    sizes = np.bincount(group_of_row)
    site_of_group = np.zeros(len(sizes), np.int64)
    site_of_group[group_of_row] = site_of_row
    is_of_server = np.zeros(len(sizes), np.bool_)
    order = numpy_generator(seed, "server").permutation(len(sizes))
    sites = int(site_of_row.max()) + 1
    for label in np.unique(group_labels):
        groups = order[group_labels[order] == label]
        # Each class starts from another site, so that rare classes are not taken from the same one.
        turns = (site_of_group[groups] + label) % sites
        visited = 0
        given = 0
        for group in groups[np.argsort(turns, kind="stable")]:
            visited += int(sizes[group])
            if share * visited - given > sizes[group] / 2:
                is_of_server[group] = True
                given += int(sizes[group])
    return is_of_server[group_of_row]


def _fewer_sites(gamma: float | None) -> str:
    """Return what to do where a site has too few images."""
    if gamma is None:
        return "Ask for fewer sites."
    return f"Ask for fewer sites, a larger {option('dirichlet')}, or another {option('seed')}."


def leaking_copies(pool: Pool, cut: Cut) -> frozenset[int]:
    """Return the rows that would be in another of training, validation and test than a copy.

    Of the rows of a picture those in the split of the first one are not returned, at whichever
    sites they are. A test image of which the training images have a copy would say nothing of new
    images. Splits that the data set has itself are left as they are: a row counts as a copy of
    those alone that were in the same split of the data set.
    """
    split_of = {
        row: split
        for site_rows in cut.values()
        for split, rows in site_rows.items()
        for row in rows.tolist()
    }
    leaking: set[int] = set()
    for same in pool.copies:
        first_split: dict[str, str] = {}
        for row in filter(split_of.__contains__, same):
            first = first_split.setdefault(pool.splits[row], split_of[row])
            if split_of[row] != first:
                leaking.add(row)
    return frozenset(leaking)


def without_rows(cut: Cut, rows: Collection[int]) -> Cut:
    """Return the cut without some rows."""
    left_out = list(rows)
    kept: dict[str, dict[str, Rows]] = {}
    for site, by_split in cut.items():
        kept[site] = {name: own[~np.isin(own, left_out)] for name, own in by_split.items()}
    return kept


def lost_classes_note(pool: Pool, cut: Cut, kept: Cut) -> list[str]:
    """Return a note of classes that lose all their training images; empty without any.

    Args:
        pool: the images.
        cut: the rows of each site, and of the server if it has any.
        kept: the same without copies of pictures.
    """
    before = _training_counts(pool, cut)
    left = _training_counts(pool, kept)
    lost = [name for place, name in enumerate(pool.classes) if before[place] and not left[place]]
    if not lost:
        return []
    others = [name for name in pool.classes if name not in lost]
    leave_out = f" leave it out ({option('classes', *others)})," if len(others) > 1 else ""
    return [
        f"No training image of {listed(lost)} is left, so that no model can learn it: all are "
        "copies of pictures in validation or test, and were left out. Add other pictures of it,"
        f"{leave_out} or draw the splits by another {option('seed')}."
    ]


def _training_counts(pool: Pool, cut: Cut) -> npt.NDArray[np.int64]:
    """Return how many training images of all sites and the server show each class, (K,)."""
    rows = np.concatenate([site_rows["train"] for site_rows in cut.values()])
    return class_counts(pool.labels[rows], len(pool.classes))


class Unused(NamedTuple):
    """What is to be said of the images of a pool that are at no site."""

    reasons: Mapping[int, str]
    """Row -> why it is at none."""
    displaced: Sequence[str]
    """A note of those whose group is at another site, if these are many; else empty."""


def unused(pool: Pool, cut: Cut, by: ColumnSites | None, copies: Collection[int]) -> Unused:
    """Return what is to be said of the images of a pool that are at no site.

    Args:
        pool: the images.
        cut: the rows of each site.
        by: the sites of :func:`divide_by`; None: the pool was divided evenly or by a law.
        copies: rows that were left out by :func:`without_rows`.
    """
    total = len(pool.labels)
    unused_rows = set(range(total))
    for site_rows in cut.values():
        unused_rows.difference_update(*(rows.tolist() for rows in site_rows.values()))
    reasons: dict[int, str] = {}
    for row in unused_rows:
        if row in copies:
            reasons[row] = "a copy of a picture in another of training, validation and test"
        elif by and not by.values[row]:
            reasons[row] = f"no value in {by.column}"
        elif by and by.owner[row] < 0:
            reasons[row] = _DISPLACED
        else:
            reasons[row] = "no label to be evaluated by"
    displaced = []
    displaced_rows = sum(reason == _DISPLACED for reason in reasons.values())
    if displaced_rows > _MANY_DISPLACED * total:
        displaced = [
            f"{displaced_rows} of {total} images are left out: they are {_DISPLACED}, and a "
            "group stays together. If the groups are wrong, name another column of groups "
            f"({option('columns', {'group': 'COLUMN'})}) or none "
            f"({option('columns', {'group': ''})})."
        ]
    return Unused(reasons, displaced)


def renamed_note(by: ColumnSites) -> list[str]:
    """Return which values of the column of sites are not the sites' names; empty if all are."""
    renamed = [f"{name} ({value})" for value, name in by.name_of.items() if name != value]
    if not renamed:
        return []
    if len(renamed) > _MOST_NAMED:
        renamed[_MOST_NAMED:] = [f"{len(renamed) - _MOST_NAMED} more"]
    return [
        f"Names of sites are values of {by.column} in letters that any file name may have: "
        f"{listed(renamed)}. `fedward run --without NAME` takes these names."
    ]


def _owners(
    groups: Sequence[str], values: Sequence[str], sites: Sequence[str]
) -> npt.NDArray[np.int64]:
    """Return the site of each row as its value's index in ``sites``; -1 for rows left out."""
    value_counts: dict[str, Counter[str]] = defaultdict(Counter)
    for group, value in zip(groups, values, strict=True):
        if value:
            value_counts[group][value] += 1
    home_of = {group: counts.most_common(1)[0][0] for group, counts in value_counts.items()}
    index_of = {value: index for index, value in enumerate(sites)}
    owners = [
        index_of[value] if value and home_of[group] == value else -1
        for group, value in zip(groups, values, strict=True)
    ]
    return np.array(owners, np.int64)


def splits_of_rows(pool: Pool, strata: Labels, seed: int, apart: SetApart) -> npt.NDArray[np.str_]:
    """Return each row's split; a pool without validation or test images has some set apart.

    Groups without any label are for training. The split is empty for an image that would be
    evaluated but has no label.

    Args:
        pool: a pool of N rows.
        strata: (N,) stratum of each row; images are set apart evenly from all strata.
        seed: determines which images are set apart.
        apart: their shares.

    Raises:
        ConfigError: a share is named although the data set has such a split, or both together are
            1 or more.
    """
    splits = np.array(pool.splits, "<U5")
    shares = _shares_apart(pool, apart)
    if shares:
        labelled_groups = {pool.groups[row] for row in np.flatnonzero(pool.kinds >= 0)}
        in_labelled_group = np.array([group in labelled_groups for group in pool.groups], np.bool_)
        rows = np.flatnonzero(in_labelled_group & (splits == "train"))
        groups = [pool.groups[row] for row in rows]
        # Training images come first, as part 0.
        split_names = np.array(["train", *shares])
        part_shares = [1 - sum(shares.values()), *shares.values()]
        splits[rows] = split_names[group_split(groups, strata[rows], part_shares, seed)]
    splits[(splits != "train") & (pool.kinds < 0)] = ""
    return splits


def _shares_apart(pool: Pool, apart: SetApart) -> dict[str, float]:
    """Return split -> the share to set apart, of those that the data set does not have.

    Raises:
        ConfigError: see :func:`splits_of_rows`.
    """
    default_shares = {"val": Split().val, "test": Split().test}
    shares = {}
    for split, named_share in apart._asdict().items():
        is_there = split in pool.splits
        if is_there and named_share is not None:
            raise ConfigError(
                f"{option(split)}: the data set has {split} images of its own",
                f"Remove it, or let new splits be made ({option('resplit', True)}).",
            )
        if not is_there:
            shares[split] = default_shares[split] if named_share is None else named_share
    if sum(shares.values()) >= 1:
        raise ConfigError(
            f"{_shares_text(shares, apart)} nothing to train on",
            "Name shares that sum to less than 1.",
        )
    return shares


def _shares_text(shares: Mapping[str, float], apart: SetApart) -> str:
    """Return the options of shares that leave nothing, with a word on those that nobody named."""
    named = apart._asdict()
    texts = []
    for split, share in shares.items():
        text = option(split, share)
        texts.append(text if named[split] is not None else f"{text} (the default)")
    verb = "leave" if len(texts) > 1 else "leaves"
    return f"{' and '.join(texts)} {verb}"


def _even(pool: Pool, rows: Rows, sites: int, seed: int) -> list[Rows]:
    """Divide rows evenly among sites, by class; return the rows of each site."""
    groups = [pool.groups[row] for row in rows]
    owner = group_split(groups, pool.kinds[rows], [1 / sites] * sites, seed)
    if pool.grouped:
        # Groups of a class seldom divide evenly, and the first sites get those that remain. So each
        # class starts from another site.
        group_of_row, group_labels = _groups(pool, rows)
        owner = (owner + group_labels[group_of_row]) % sites
    return [rows[owner == site] for site in range(sites)]


def _spread(pool: Pool, rows: Rows, sites: int, gamma: float, seed: int) -> list[Rows]:
    """Divide rows among sites by a Dirichlet law; return the rows of each site."""
    group_of_row, group_labels = _groups(pool, rows)
    # A group may have many images: divide() checks how many a site has in the end.
    least = 1 if pool.grouped else AT_LEAST
    parts = dirichlet(group_labels, sites, gamma, numpy_generator(seed, "dirichlet"), least)
    return [rows[np.isin(group_of_row, groups)] for groups in parts]


def _groups(pool: Pool, rows: Rows) -> tuple[npt.NDArray[np.int64], Labels]:
    """Return the number of each row's group, and the commonest class of each group.

    Groups are numbered from 0 in the order of their first rows.
    """
    number_of: dict[str, int] = {}
    numbers = []
    for row in rows:
        group = pool.groups[row]
        if group not in number_of:
            number_of[group] = len(number_of)
        numbers.append(number_of[group])
    group_of_row = np.array(numbers, np.int64)
    return group_of_row, commonest_labels(group_of_row, pool.kinds[rows], len(number_of))


def check_size(pool: Pool, cut: Cut, remedy: str) -> None:
    """Raise ConfigError if a site has too few training images."""
    sizes = {site: len(rows["train"]) for site, rows in cut.items()}
    small = [site for site, size in sizes.items() if size < AT_LEAST]
    if not small:
        return
    smallest = min(small, key=lambda site: sizes[site])
    found = f"{len(small)} of {len(cut)} with fewer, as {smallest} with {sizes[smallest]}"
    if pool.grouped:
        groups = {pool.groups[row] for row in cut[smallest]["train"]}
        found = f"{found} (groups, as patients: {len(groups)})"
    kind = "files, however many images each becomes," if pool.rendering.several else "images"
    raise TooFewImagesError(
        pool.name,
        remedy,
        expected=f"at least {AT_LEAST} training {kind} at each site",
        found=found,
    )


def _site_names(values: Collection[str]) -> dict[str, str]:
    """Return value -> site's name, in natural order of the values.

    Raises:
        ConfigError: there are fewer than two values, two of them differ in case alone or give the
            same name, or a name is empty, that of another kind of file, or too long for a file's.
    """
    _refuse_spellings_of_one(values)
    name_of = {value: _site_name(value) for value in sorted(set(values), key=natural)}
    _refuse_unusable_names(name_of)
    if len(name_of) < 2:
        raise ConfigError(
            option("by"),
            "Name another column.",
            expected="a column of two or more values",
            found=", ".join(map(repr, name_of)) or "none",
        )
    return name_of


def _site_name(value: str) -> str:
    """Return a value in ASCII, with hyphens for characters that file names should not have."""
    # NFKD separates letters from their accents, which ASCII then drops.
    ascii_text = normalize("NFKD", value).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_text).strip("-.")


def _refuse_spellings_of_one(values: Collection[str]) -> None:
    """Raise ConfigError if some values are one value in several spellings, as A and a."""
    alike = undecided(dict.fromkeys(values, 1), {}).alike
    if alike:
        raise ConfigError(
            option("by"),
            "Write them alike in the column.",
            expected="values that are each written in one way",
            found="; ".join(" beside ".join(texts) for texts in alike),
        )


def _refuse_unusable_names(name_of: Mapping[str, str]) -> None:
    """Raise ConfigError if the names of some values cannot name a site's file of its own."""
    # Some file systems do not tell capital letters from small ones.
    values_by_name = defaultdict[str, list[str]](list)
    for value, name in name_of.items():
        values_by_name[name.lower()].append(repr(value))
    other_files = (*NOT_SITE_FILES, ANY_SITE, LEFT_OUT_FILE)
    reserved = {"", *(Path(name).stem for name in other_files)}
    unusable = [
        " beside ".join(texts)
        for name, texts in values_by_name.items()
        if len(texts) > 1 or name in reserved or len(name) > _LONGEST_NAME
    ]
    if unusable:
        raise ConfigError(
            option("by"),
            "Rename the values, or name another column.",
            expected="values each of which can name a site of its own",
            found=f"{'; '.join(unusable):.300}",
        )
