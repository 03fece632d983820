"""Columns of a CSV by which the sites of a cut count right answers, and their groups."""

from collections.abc import Mapping, Sequence

from fedward.errors import ConfigError, did_you_mean, listed, option
from fedward.lab.partition.faults import Faults
from fedward.sites.any_csv import column_names
from fedward.sites.label_texts import known_or_empty
from fedward.sites.subgroups import MOST_GROUPS, NOT_STATED, check_columns, group_of
from fedward.text import natural

WRITTEN_COLUMNS = ("sample_id", "image", "label", "group", "split")
"""Columns of the CSV that is written for each site, before those of subgroups."""

_OPTION = "subgroups"


def counted_columns(
    wanted: Mapping[str, Sequence[str]],
    header: Sequence[str],
    column_of: Mapping[str, str],
    faults: Faults,
) -> Mapping[str, Sequence[str]]:
    """Return the columns of subgroups; a fault, and none, if one of them cannot be counted by.

    Args:
        wanted: column -> its groups.
        header: names of all columns.
        column_of: purpose of a column, such as ``group`` -> its name.
        faults: gets what is wrong.
    """
    counted: Mapping[str, Sequence[str]] = {}
    with faults.noted():
        _require_columns(wanted, header, column_of)
        counted = wanted
    return counted


def _require_columns(
    wanted: Mapping[str, Sequence[str]], header: Sequence[str], column_of: Mapping[str, str]
) -> None:
    """Refuse columns of subgroups that a CSV does not have, or that name images or patients.

    Raises:
        ConfigError: there is such a column.
    """
    missing = [name for name in wanted if name not in header]
    if missing:
        raise ConfigError(
            option(_OPTION),
            "Name some of them.",
            expected=f"columns of the CSV ({column_names(header)})",
            found=", ".join(f"{name}{did_you_mean(name, header)}" for name in missing),
        )
    identifying = {column_of[purpose] for purpose in ("sample_id", "image", "group")}
    refused = [name for name in wanted if name in identifying]
    if refused:
        raise ConfigError(
            option(_OPTION),
            "Name other columns.",
            expected="columns that say nothing of a single patient",
            found=f"{listed(refused)}, which names images or patients",
        )
    taken = [name for name in wanted if name in WRITTEN_COLUMNS]
    if taken:
        raise ConfigError(
            option(_OPTION),
            "Rename the column in the CSV.",
            expected=f"other names than {', '.join(WRITTEN_COLUMNS)}, which the sites' CSVs have",
            found=listed(taken),
        )


def groups_of(
    wanted: Mapping[str, Sequence[str]], cells: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the groups of each column: those that are wanted, or else its values.

    All sites get the same ones, as counts are compared and added by their names.

    Args:
        wanted: column -> its groups, texts or bands such as ``40-64``; no group: its values.
        cells: column -> the cells of all images.

    Raises:
        ConfigError: a column has too many values, or none; a group has no image, or a name that
            cannot be used; or groups overlap.
    """
    groups = {name: list(named) or _values(name, cells[name]) for name, named in wanted.items()}
    try:
        check_columns({name: {group: [group] for group in of} for name, of in groups.items()})
    except ValueError as error:
        raise ConfigError(
            option(_OPTION),
            f"Name groups that can be told apart, as in {_example('age', [])}.",
            expected=str(error),
            found=" ".join(subgroup_words(groups)),
        ) from None
    for name, named in groups.items():
        cells_of = {group: [group] for group in named}
        present = {group_of(cell, cells_of) for cell in dict.fromkeys(cells[name])}
        empty = [group for group in named if group not in present]
        if empty:
            values = _different(cells[name])
            raise ConfigError(
                option(_OPTION),
                "Name groups as the cells have them, or bands of numbers.",
                expected=f"groups of {name} with an image (it has {listed(values):.300})",
                found=f"none of {listed(empty)}{did_you_mean(empty[0], values)}",
            )
    return groups


def _values(name: str, cells: Sequence[str]) -> list[str]:
    """Return the different values of a column; ConfigError if they are too many, or none."""
    values = _different(cells)
    if not 1 <= len(values) < MOST_GROUPS:
        raise ConfigError(
            option(_OPTION, name),
            f"Name its groups, as in {_example(name, values)}.",
            expected=f"a column of 1 to {MOST_GROUPS - 1} values",
            found=f"{len(values)}: {listed(values):.200}" if values else "none",
        )
    return values


def _different(cells: Sequence[str]) -> list[str]:
    """Return the different cells that state something, in natural order; case does not count."""
    first_of: dict[str, str] = {}
    for cell in cells:
        if known_or_empty(cell) and cell.casefold() != NOT_STATED:
            first_of.setdefault(cell.casefold(), cell)
    return sorted(first_of.values(), key=natural)


def _example(name: str, values: Sequence[str]) -> str:
    """Return the option with groups of a column: bands, or some of its values if they are words."""
    words = [value for value in values if not value.replace(".", "").isdigit()]
    return option(_OPTION, {name: ",".join(words[:3]) or "0-39,40-64,65+"})


def subgroup_words(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the words of the option that name columns and their groups."""
    words = []
    for name, groups in columns.items():
        words.append(f"{name}={','.join(groups)}" if groups else name)
    return words
