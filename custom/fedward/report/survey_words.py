"""What a survey means for a training, in sentences: what the sites hold together, and what to look
at first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from fedward.errors import quoted
from fedward.evaluation.in_fives import BRIGHTNESS, CONTRAST, SIDES
from fedward.storage.rows import SurveyRow
from fedward.text import count

_SCARCE = 20
"""Labelled images of a class at all sites below which it is called scarce."""
_DARK = 0.1
_FLAT = 0.03
_SMALL = 2.0
"""How far a site's median may be from that of others: in brightness, contrast, and doublings of the
shorter side.
"""
_NAMED = 6
"""So many names stand in a sentence."""


def conclusions(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return what the sites hold together; nothing where no site has answered."""
    if not rows:
        return []
    by_class = _labelled(rows)
    labelled = sum(_labelled(rows))
    images = labelled + sum(row.unlabelled for row in rows)
    val, test = (sum(sum(getattr(row, name)) for row in rows) for name in ("val", "test"))
    found = [
        f"{count(len(rows), 'site')} {'tells' if len(rows) == 1 else 'tell'} of {images:,} training images, "
        f"{labelled:,} of them with a label ({_percent(labelled, images)}), {val:,} for validation and {test:,} for "
        f"testing."
    ]
    if labelled:
        most = int(np.argmax(by_class))
        share = _percent(by_class[most], labelled)
        found.append(
            f"{classes[most]} is the commonest class, with {share} of the labels: a model must beat that."
        )
    return found


def flags(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return what may spoil a training or its numbers, most important first."""
    several = [*_unlike(rows), *_lonely(rows, classes)] if len(rows) > 1 else []
    return [
        *_scarce(rows, classes),
        *_missing(rows, classes),
        *_repeated(rows),
        *_parts(rows),
        *several,
    ]


def median(counts: Sequence[int], edges: Sequence[float]) -> float:
    """Return the median of what is counted in intervals, as if evenly spread in each; counts are
    not all 0.
    """
    sums = np.cumsum([0, *counts])
    return float(np.interp(sums[-1] / 2, sums, edges))


def _labelled(rows: Sequence[SurveyRow]) -> list[int]:
    return [sum(counts) for counts in zip(*(row.labelled for row in rows), strict=True)]


def _scarce(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    if not rows:
        return []
    counts = dict(zip(classes, _labelled(rows), strict=True))
    held = _held(rows, classes)
    nowhere = [name for name in classes if name not in held]
    unlabelled = [name for name, number in counts.items() if not number and name in held]
    scarce = [f"{name} ({number})" for name, number in counts.items() if 0 < number < _SCARCE]
    told = [
        (
            nowhere,
            "No site tells of images of {}: leave such classes out of the job, or have some labelled.",
        ),
        (
            unlabelled,
            "No site tells of labelled training images of {}: no labels, or fewer than five patients at each.",
        ),
        (scarce, f"Labels are scarce, fewer than {_SCARCE} at all sites together: {{}}."),
        (
            [row.site for row in rows if not any(row.labelled)],
            "No labels, or of each class fewer than five patients: {}. Such sites may join where others have labels.",
        ),
    ]
    return [sentence.format(_list(names)) for names, sentence in told if names]


def _held(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return the classes that some site has with a label in some split."""
    counts = np.sum([[row.labelled, row.val, row.test] for row in rows], axis=(0, 1))
    return [name for name, number in zip(classes, counts, strict=True) if number]


def _missing(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return which classes a site has in no split, a sentence for each set of sites that lack the
    same.
    """
    lacking: dict[tuple[str, ...], list[str]] = {}
    known = _held(rows, classes) if rows else []
    for row in rows:
        names = tuple(name for name in known if name not in _held([row], classes))
        if names:
            lacking.setdefault(names, []).append(row.site)
    return [
        f"{_list(sites)} {_has(sites)} no {_list(names, 'or')}: no labels, or fewer than five patients in each split."
        for names, sites in lacking.items()
    ]


def _lonely(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    found: dict[str, list[str]] = {}
    for place, name in enumerate(classes):
        holders = [row.site for row in rows if row.labelled[place]]
        if len(holders) == 1:
            found.setdefault(holders[0], []).append(name)
    return [
        f"Only {site} has labelled training images of {_list(names)}: a model may learn this site's cameras with them."
        for site, names in found.items()
    ]


def _unlike(rows: Sequence[SurveyRow]) -> list[str]:
    """Return which sites' images differ from those of the others."""
    sides = np.log2(SIDES).tolist()
    found = [
        *_far(
            rows,
            lambda row: row.brightness,
            BRIGHTNESS,
            _DARK,
            "darker",
            "brighter",
            lambda at: f"{at:.2f}",
        ),
        *_far(
            rows,
            lambda row: row.contrast,
            CONTRAST,
            _FLAT,
            "of less contrast",
            "of more contrast",
            lambda at: f"{at:.2f}",
        ),
        *_far(
            rows,
            lambda row: row.sides,
            sides,
            _SMALL,
            "smaller",
            "larger",
            lambda at: f"about {2**at:.0f} pixels",
        ),
    ]
    grey = [row.site for row in rows if row.grey > row.colour]
    if grey and len(grey) < len(rows):
        found.append(
            f"Most images of {_list(grey)} are grey, those of the other sites are in colour."
        )
    return found


def _far(
    rows: Sequence[SurveyRow],
    counts_of: Callable[[SurveyRow], Sequence[int]],
    edges: Sequence[float],
    limit: float,
    less: str,
    more: str,
    told: Callable[[float], str],
) -> Iterator[str]:
    """Yield a sentence for each site whose median is ``limit`` or more from the middle site's; of
    two, the other's.
    """
    medians = {row.site: median(counts_of(row), edges) for row in rows if any(counts_of(row))}
    for site, here in medians.items():
        compared = [value for other, value in medians.items() if len(medians) > 2 or other != site]
        if compared and abs(here - (there := float(np.median(compared)))) >= limit:
            how = more if here > there else less
            whom = "most sites" if len(medians) > 2 else "the other site"
            yield f"{site}'s images are {how} than those of {whom}: median {told(here)} against {told(there)}."


def _repeated(rows: Sequence[SurveyRow]) -> list[str]:
    return [
        f"At {row.site} at least {row.repeated} validation or test images are also in another split, pixel by pixel. "
        f"Results on known images say nothing about new ones; `fedward doctor` lists them."
        for row in rows
        if row.repeated
    ]


def _parts(rows: Sequence[SurveyRow]) -> list[str]:
    told = [
        (
            [row.site for row in rows if not any(row.val)],
            "Without validation images: {}. They help to choose no round.",
        ),
        (
            [row.site for row in rows if not any(row.test)],
            "Without test images: {}. Nobody will know how good the model is there.",
        ),
    ]
    return [sentence.format(_list(sites)) for sites, sentence in told if sites]


def _list(names: Iterable[str], joint: str = "and") -> str:
    known = list(map(quoted, names))
    shown = known[:_NAMED] if len(known) > _NAMED else known[:-1]
    last = f"{len(known) - _NAMED} more" if len(known) > _NAMED else known[-1]
    return f"{', '.join(shown)} {joint} {last}" if shown else last


def _has(sites: Sequence[str]) -> str:
    return "has" if len(sites) == 1 else "have"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"
