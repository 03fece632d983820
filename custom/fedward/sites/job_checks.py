"""Whether a job can use a site file: by its labels, and by how many of its rows are unusable."""

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fedward.errors import DataError, listed, offered, option, setting
from fedward.labels import NO_FINDING, SEPARATOR
from fedward.sites.data import Rejected
from fedward.sites.site_file import ManifestSite, NpzSite
from fedward.text import count
from fedward.yaml_text import write_yaml

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind

_QUOTED = re.compile(r"""(?<!\w)(?:'(?:\\.|[^'\\])*'|"[^"]*'[^"]*")""")
"""A text as Python writes it: in single quotes, or in double ones where it has an apostrophe."""
_MOST_REASONS = 5


def check_labels(file: ManifestSite | NpzSite, classes: Sequence[str]) -> None:
    """Refuse a site file whose labels are not classes of the job, or whose numbers have no names.

    Raises:
        DataError: it is refused; the text names what does not fit.
    """
    if isinstance(file, NpzSite) and not file.labels:
        numbered = ", ".join(f"{number}: {name}" for number, name in enumerate(classes))
        raise DataError(
            f"site {file.site}, field labels",
            f"If they are numbered as in the job, write labels: {{{numbered}}}.",
            expected="the class of each number in the file",
            found="nothing",
        )
    unknown = sorted(set(file.labels.values()) - {"", *classes})
    if unknown:
        raise DataError(
            f"site {file.site}, field labels",
            f"Map the labels to these{_alternative(file, unknown)}.",
            expected=f"classes of the job ({listed(classes)})",
            found=listed(unknown),
        )


def _alternative(file: ManifestSite | NpzSite, unknown: Collection[str]) -> str:
    """Return how the caller's command works on the classes of a site file; empty if it cannot."""
    names = dict.fromkeys(file.labels.values())
    classes = [name for name in names if name not in ("", NO_FINDING)]
    if offered("set"):
        return f", or train on the site's own ({_settings(classes, unknown)})"
    if offered("classes") and NO_FINDING not in unknown:
        return f", or name the site's own ({option('classes', *classes)})"
    return ""


def _settings(classes: list[str], unknown: Collection[str]) -> str:
    """Return the settings of a run that trains on classes."""
    written = write_yaml(classes, default_flow_style=True, width=10**6, allow_unicode=True).strip()
    settings = setting("data.classes", classes, written)
    if NO_FINDING in unknown:
        settings += f" {setting('data.multi_label', True, 'true')}"
    return settings


def check_label_fields(
    file: ManifestSite | NpzSite, classes: Sequence[str], label_kind: "LabelKind"
) -> None:
    """Refuse a site file whose labels are not classes of the job.

    In a multi-label job a site file is also refused if its columns leave a class out.

    Raises:
        DataError: it is refused; the text names what does not fit.
    """
    if label_kind.exclusive:
        check_labels(file, classes)
        return
    _check_names(classes)
    if isinstance(file, NpzSite):
        check_labels(file, classes)
        _check_columns(file, file.labels.values(), classes)
        return
    check_labels(file, [*classes, NO_FINDING])
    if isinstance(file.columns.label, tuple):
        columns = [file.labels.get(name, name) for name in file.columns.label]
        _check_columns(file, columns, classes)


def _check_names(classes: Collection[str]) -> None:
    """Refuse names of classes that mean something else in a multi-label job."""
    reserved = [name for name in classes if name == NO_FINDING or SEPARATOR in name]
    if reserved:
        raise DataError(
            "field data.classes of the job",
            f"Rename or drop it: {NO_FINDING} says that an image shows none, and {SEPARATOR} "
            "separates several.",
            expected=f"no class {NO_FINDING} and no {SEPARATOR} in its name",
            found=", ".join(reserved),
        )


def _check_columns(
    file: ManifestSite | NpzSite, columns: Collection[str], classes: Sequence[str]
) -> None:
    """Refuse a site file without a column for each class; ``columns`` are the classes they show."""
    missing = [name for name in classes if name not in columns]
    if missing:
        raise DataError(
            f"site {file.site}, field labels",
            "Map a column to each class. Without one, every image would count as one that does "
            "not show it.",
            expected=f"a column for each of {listed(classes)}",
            found=f"none for {', '.join(missing)}",
        )


class TooManyRejectedError(DataError):
    """More rows of a site cannot be used than its file allows."""

    rejected: tuple[Rejected, ...] = ()
    """The rows; empty for an error that comes from another process."""


def check_rejected(file: ManifestSite | NpzSite, rejected: Sequence[Rejected], total: int) -> None:
    """Refuse a site with too many rejected rows.

    Raises:
        TooManyRejectedError: more than ``max_rejected`` of the ``total`` rows are rejected, not
            counting those that are not ``counted``; the text lists the commonest reasons.
    """
    counted = [row for row in rejected if row.counted]
    if len(counted) <= file.max_rejected * total:
        return
    path = file.manifest if isinstance(file, ManifestSite) else file.file
    classes = option("classes") if offered("classes") else "the job's data.classes"
    error = TooManyRejectedError(
        f"site {file.site}, {path}",
        f"Fix the rows, the site's labels or {classes}, or raise max_rejected in the site file.",
        expected=f"at most {file.max_rejected:.0%} of {count(total, 'row')} unusable",
        found=f"{len(counted)}: {by_reason(counted)}",
    )
    error.rejected = tuple(counted)
    raise error


def kind_of_reason(reason: str) -> str:
    """Return what reasons of one kind share: the first sentence, without what it quotes.

    Reasons quote cells and names of files. Further sentences are hints on one image.
    """
    return _QUOTED.sub("", reason).partition(". ")[0]


def by_reason(rejected: Sequence[Rejected]) -> str:
    """Return the commonest reasons, each with the number of its rows and the first of them.

    Reasons are alike if they are of one kind (:func:`kind_of_reason`).
    """
    rows_of = defaultdict[str, list[Rejected]](list)
    for row in rejected:
        rows_of[kind_of_reason(row.reason)].append(row)
    groups = sorted(rows_of.values(), key=len, reverse=True)
    parts = []
    for rows in groups[:_MOST_REASONS]:
        first = rows[0]
        number = f"{len(rows)} like " if len(rows) > 1 else ""
        parts.append(f"{number}row {first.row} ({first.sample_id}): {first.reason}")
    if len(groups) > _MOST_REASONS:
        others = sum(map(len, groups[_MOST_REASONS:]))
        parts.append(f"{others} for other reasons")
    return "; ".join(parts)
