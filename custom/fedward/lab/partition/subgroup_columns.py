"""Columns of a CSV by which the sites of a cut count right answers, and their groups."""

from collections.abc import Mapping, Sequence

from fedward.errors import ConfigError, did_you_mean, listed, most_like, option, quoted
from fedward.lab.partition.faults import PLACEHOLDER, Faults
from fedward.sites.any_csv import column_names
from fedward.sites.label_texts import known_or_empty
from fedward.sites.subgroups import (
    LONGEST_NAME,
    MOST_COLUMNS,
    MOST_GROUPS,
    NOT_STATED,
    check_columns,
    is_band,
    is_left_over,
    same_as,
    states_something,
    subgroup_of,
)
from fedward.terminal import shortened
from fedward.text import natural

WRITTEN_COLUMNS = ("sample_id", "image", "label", "group", "split")
"""Columns of the CSV that is written for each site, before those of subgroups."""

_OPTION = "subgroups"
_SHOWN = 12
"""Values of a column that a text shows at most."""


def counted_columns(
    wanted: Mapping[str, Sequence[str]],
    header: Sequence[str],
    column_of: Mapping[str, str],
    faults: Faults,
) -> dict[str, Sequence[str]]:
    """Return the columns of subgroups that can be counted by.

    Args:
        wanted: column -> its groups.
        header: names of all columns.
        column_of: purpose of a column, such as ``group`` -> its name.
        faults: gets columns that the CSV does not have, that name images or patients, or whose name
            the sites' CSVs need for another one; and too many columns.
    """
    identifying = {column_of[purpose] for purpose in ("sample_id", "image", "group")}
    missing = [name for name in wanted if name not in header]
    refused = [name for name in wanted if name in identifying]
    taken = [name for name in wanted if name in WRITTEN_COLUMNS and name not in identifying]
    likely = {name: most_like(name, header) or PLACEHOLDER for name in missing}
    decided: dict[str, Sequence[str]] = {
        likely.get(name, name): groups for name, groups in wanted.items() if name not in refused
    }
    if missing:
        error = ConfigError(
            option(_OPTION),
            "Name some of them.",
            expected=f"columns of the CSV ({column_names(header)})",
            found=", ".join(f"{name}{did_you_mean(name, header)}" for name in missing),
        )
        faults.note(error, subgroups=subgroup_words(decided))
    if refused:
        verb = "names" if len(refused) == 1 else "name"
        error = ConfigError(
            option(_OPTION),
            "Name other columns.",
            expected="columns that say nothing of a single patient",
            found=f"{listed(refused)}, which {verb} images or patients",
        )
        faults.note(error, subgroups=subgroup_words(decided))
    if taken:
        error = ConfigError(
            option(_OPTION),
            "Rename the column in the CSV.",
            expected=f"other names than {', '.join(WRITTEN_COLUMNS)}, which the sites' CSVs have",
            found=listed(taken),
        )
        faults.note(error)
    if len(wanted) > MOST_COLUMNS:
        error = ConfigError(
            option(_OPTION),
            "Name fewer.",
            expected=f"at most {MOST_COLUMNS} columns",
            found=f"{len(wanted)}",
        )
        faults.note(error)
    return {
        name: groups for name, groups in wanted.items() if name not in (*missing, *refused, *taken)
    }


def groups_of(
    wanted: Mapping[str, Sequence[str]], cells: Mapping[str, Sequence[str]], faults: Faults
) -> dict[str, list[str]]:
    """Return the groups of each column: those that are wanted, or else its values.

    All sites get the same ones, as counts are compared and added by their names.

    Args:
        wanted: column -> its groups, texts or bands such as ``40-64``; no group: its values.
        cells: column -> the cells of all images.
        faults: gets each column that has too many values, or none; whose groups overlap, or have no
            image, or a name that cannot be used. It is not returned.
    """
    groups: dict[str, list[str]] = {}
    for name, named in wanted.items():
        with faults.noted():
            groups[name] = _groups_of_column(name, named, cells[name])
    return groups


def _groups_of_column(name: str, named: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Return the groups of a column; ConfigError as :func:`groups_of` notes it."""
    values = _different(cells)
    if not values and not named:
        raise ConfigError(
            option(_OPTION, name),
            "Name another column.",
            expected="a column with values",
            found="empty cells, or words for an absent value",
        )
    if not named and len(values) >= MOST_GROUPS:
        raise ConfigError(
            option(_OPTION, name),
            f"Name its groups, as in {_example(name, values)}.",
            expected=f"a column of 1 to {MOST_GROUPS - 1} values",
            found=f"{len(values)}: {_some(values)}",
        )
    groups = list(named) or values
    cells_of = {group: [group] for group in groups}
    try:
        # Of groups that are the same, the mapping would have one alone.
        if len(cells_of) < len(groups):
            raise ValueError(f"{name}: cells that are in one group each")
        check_columns({name: cells_of})
    except ValueError as error:
        raise ConfigError(
            option(_OPTION),
            f"Name groups that can be told apart, as in {_example('age', [])}.",
            expected=str(error),
            found=f"{' '.join(subgroup_words({name: groups})):.200}",
        ) from None
    present = {subgroup_of(cell, cells_of) for cell in dict.fromkeys(cells)}
    empty = [group for group in groups if group not in present]
    if empty:
        stated = _different_texts([cell for cell in cells if states_something(cell)])
        has = f" (it has {_some(stated)})" if stated else ""
        guess = "" if is_band(empty[0]) else did_you_mean(empty[0], values)
        codes = [cell for cell in stated if not known_or_empty(cell)]
        why = ""
        if codes:
            why = f" {listed(codes)} may stand for no answer: a band must end to hold such numbers."
        raise ConfigError(
            option(_OPTION),
            "Name groups as the cells have them, or bands. A band, such as 0-39 or 65+, begins at "
            f"0 or above and holds cells that are numbers alone.{why}",
            expected=f"groups of {name} with an image{has}",
            found=f"none of {listed(empty)}{guess}",
        )
    return groups


def left_over_notes(
    groups: Mapping[str, Sequence[str]], cells: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return a note of each column with cells that state something and are in no group.

    Args:
        groups: column -> its groups.
        cells: column -> the cells of all images.
    """
    notes = []
    for name, named in groups.items():
        cells_of = {group: [group] for group in named}
        left_over = [cell for cell in cells[name] if is_left_over(cell, cells_of)]
        if left_over:
            notes.append(
                f"Images in no group of {name}, which count as {NOT_STATED}: {len(left_over)}, "
                f"with {_some(_different_texts(left_over))}."
            )
    return notes


def _different(cells: Sequence[str]) -> list[str]:
    """Return the different cells that state something, in natural order.

    Case does not count, and neither does whether a number is written as 2 or 2.0.
    """
    return _different_texts(
        [cell for cell in cells if known_or_empty(cell) and cell.casefold() != NOT_STATED]
    )


def _different_texts(cells: Sequence[str]) -> list[str]:
    """Return the first of the cells that are the same, in natural order."""
    first_of: dict[str, str] = {}
    for cell in cells:
        first_of.setdefault(same_as(cell), cell)
    return sorted(first_of.values(), key=natural)


def _some(values: Sequence[str]) -> str:
    """Return some of these values for a text, each cut short."""
    more = ", ..." if len(values) > _SHOWN else ""
    return f"{listed(shortened(value, LONGEST_NAME) for value in values[:_SHOWN])}{more}"


def _example(name: str, values: Sequence[str]) -> str:
    """Return the option with groups of a column: bands, or some of its values if they are words."""
    words = [value for value in values if not value.replace(".", "").isdigit()]
    return option(_OPTION, {name: ",".join(words[:3]) or "0-39,40-64,65+"})


def subgroup_words(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the words of the option that name columns and their groups."""
    words = []
    for name, groups in columns.items():
        words.append(f"{name}={','.join(map(quoted, groups))}" if groups else name)
    return words
