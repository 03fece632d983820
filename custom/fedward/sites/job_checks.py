"""Whether a job can use a site file: its labels are classes of the job, and few of its rows are
unusable.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fedward.errors import DataError, listed
from fedward.sites.data import Rejected
from fedward.sites.labels import NO_FINDING, SEPARATOR
from fedward.sites.site_file import ManifestSite, NpzSite
from fedward.yaml_text import write_yaml

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind


def check_labels(file: ManifestSite | NpzSite, classes: Sequence[str]) -> None:
    """Refuse a site file that maps labels to classes which the job has not, or that does not say
    what numbers mean.

    Raises:
        DataError: it does; names them.
    """
    if isinstance(file, NpzSite) and not file.labels:
        where = f"site {file.site}, field labels"
        expected = "the class of each number in the file"
        numbered = ", ".join(f"{number}: {name}" for number, name in enumerate(classes))
        remedy = f"If they are numbered as in the job, write labels: {{{numbered}}}."
        raise DataError(where, expected=expected, found="nothing", remedy=remedy)
    unknown = sorted(set(file.labels.values()) - {"", *classes})
    if unknown:
        own = [name for name in dict.fromkeys(file.labels.values()) if name not in ("", NO_FINDING)]
        named = write_yaml(own, default_flow_style=True, width=10**6, allow_unicode=True).strip()
        several = " --set data.multi_label=true" if NO_FINDING in unknown else ""
        expected = f"classes of the job ({listed(classes)})"
        found = listed(unknown)
        own_classes = f'fedward run JOB --set "data.classes={named}"{several}'
        remedy = f"Map the labels to these, or train on the site's own ({own_classes})."
        raise DataError(
            f"site {file.site}, field labels", expected=expected, found=found, remedy=remedy
        )


def check_label_fields(
    file: ManifestSite | NpzSite, classes: Sequence[str], label_kind: "LabelKind"
) -> None:
    """Refuse a site file whose labels are of other classes; in a multi-label job also one whose
    columns leave one out.

    Raises:
        DataError: it is; names what does not fit.
    """
    if label_kind.exclusive:
        check_labels(file, classes)
        return
    _check_names(classes)
    check_labels(file, classes if isinstance(file, NpzSite) else [*classes, NO_FINDING])
    if isinstance(file, NpzSite):
        _check_columns(file, file.labels.values(), classes)
    elif isinstance(file.columns.label, tuple):
        _check_columns(file, [file.labels.get(name, name) for name in file.columns.label], classes)


def _check_names(classes: Collection[str]) -> None:
    taken = [name for name in classes if name == NO_FINDING or SEPARATOR in name]
    if taken:
        where = "field data.classes of the job"
        expected = f"no class {NO_FINDING} and no {SEPARATOR} in its name"
        remedy = f"Rename or drop it: {NO_FINDING} says that an image shows none, {SEPARATOR} stands between several."
        raise DataError(where, expected=expected, found=", ".join(taken), remedy=remedy)


def _check_columns(
    file: ManifestSite | NpzSite, told: Collection[str], classes: Sequence[str]
) -> None:
    missing = [name for name in classes if name not in told]
    if missing:
        where = f"site {file.site}, field labels"
        expected = f"a column for each of {listed(classes)}"
        remedy = "Map a column to each class. Without one, every image would count as one that does not show it."
        raise DataError(
            where, expected=expected, found=f"none for {', '.join(missing)}", remedy=remedy
        )


def check_rejected(file: ManifestSite | NpzSite, rejected: Sequence[Rejected], total: int) -> None:
    """Refuse a site with too many rejected rows.

    Raises:
        DataError: more than ``max_rejected`` of the ``total`` rows, not counting those that are not
            ``counted``; lists the first five.
    """
    counted = [row for row in rejected if row.counted]
    if len(counted) > file.max_rejected * total:
        first = "; ".join(f"row {row.row} ({row.sample_id}): {row.reason}" for row in counted[:5])
        where = (
            f"site {file.site}, {file.manifest if isinstance(file, ManifestSite) else file.file}"
        )
        expected = f"at most {file.max_rejected:.0%} of {total} rows unusable"
        remedy = "Fix the rows, the site's labels or the job's data.classes, or raise max_rejected in the site file."
        raise DataError(
            where, expected=expected, found=f"{len(counted)}, the first: {first}", remedy=remedy
        )
