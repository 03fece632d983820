"""What a survey means for a training, in sentences."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedward.errors import quoted
from fedward.evaluation.in_fives import BRIGHTNESS, CONTRAST, SIDES
from fedward.runs.sentences import MOST_NAMED
from fedward.storage.rows import SurveyRow
from fedward.text import count

_SCARCE = 20
"""Labelled images of a class at all sites below which it is called scarce."""


def conclusions(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return what the sites hold together; empty where no site has answered."""
    if not rows:
        return []
    by_class = _labelled(rows)
    labelled = sum(by_class)
    images = labelled + sum(row.unlabelled for row in rows)
    val = sum(sum(row.val) for row in rows)
    test = sum(sum(row.test) for row in rows)
    sentences = [
        f"{count(len(rows), 'site')} {'reports' if len(rows) == 1 else 'report'} about {images:,} "
        f"training images, {labelled:,} of them with a label ({_percent(labelled, images)}), "
        f"{val:,} for validation and {test:,} for testing. Labels of a class with fewer than five "
        "patients in a split of a site are in none of these numbers."
    ]
    if labelled:
        commonest = int(np.argmax(by_class))
        share = _percent(by_class[commonest], labelled)
        sentences.append(
            f"{classes[commonest]} is the commonest class, with {share} of the labels: a model "
            "must beat that."
        )
    return sentences


def flags(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return what may spoil a training or its numbers, the most important first."""
    sentences = [
        *_scarce(rows, classes),
        *_missing(rows, classes),
        *_repeated(rows),
        *_without_split(rows),
        *_one_class(rows, classes),
        *_nearly_black(rows),
    ]
    if len(rows) > 1:
        sentences += [*_unlike(rows), *_lonely(rows, classes)]
    return sentences


def median(counts: Sequence[int], edges: Sequence[float]) -> float:
    """Return the median of what is counted in intervals, as if evenly spread in each.

    Args:
        counts: of each interval, not all 0.
        edges: where intervals begin and end, one more than counts.
    """
    sums = np.cumsum([0, *counts])
    return float(np.interp(sums[-1] / 2, sums, edges))


def _labelled(rows: Sequence[SurveyRow]) -> list[int]:
    """Return the labelled training images of each class at all sites."""
    return [sum(counts) for counts in zip(*(row.labelled for row in rows), strict=True)]


def _scarce(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    if not rows:
        return []
    sentences = []
    labelled = dict(zip(classes, _labelled(rows), strict=True))
    present = _present(rows, classes)
    nowhere = [name for name in classes if name not in present]
    if nowhere:
        sentences.append(
            f"No site reports images of {_list(nowhere)}: no labels, or fewer than five patients "
            "in each split. `fedward doctor` tells a site which. Leave a class out of the job if "
            "no site has any, or have some labelled."
        )
    unlabelled = [name for name in present if not labelled[name]]
    if unlabelled:
        sentences.append(
            f"No site reports labelled training images of {_list(unlabelled)}: no labels, or "
            "fewer than five patients at each."
        )
    scarce = [f"{name} ({number})" for name, number in labelled.items() if 0 < number < _SCARCE]
    if scarce:
        sentences.append(
            f"Labels are scarce, fewer than {_SCARCE} at all sites together: {_list(scarce)}."
        )
    without_labels = [row.site for row in rows if not any(row.labelled)]
    if without_labels:
        sentences.append(
            f"No labels, or fewer than five patients of each class: {_list(without_labels)}. Such "
            "sites may join where others have labels."
        )
    return sentences


def _present(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return the classes that some site has with a label in some split."""
    counts = np.sum([[row.labelled, row.val, row.test] for row in rows], axis=(0, 1))
    return [name for name, number in zip(classes, counts, strict=True) if number]


def _missing(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return which classes a site has in no split, a sentence for sites that lack the same."""
    sites_by_missing: dict[tuple[str, ...], list[str]] = {}
    present = _present(rows, classes) if rows else []
    for row in rows:
        present_here = _present([row], classes)
        missing = tuple(name for name in present if name not in present_here)
        if missing:
            sites_by_missing.setdefault(missing, []).append(row.site)
    sentences = []
    for missing, sites in sites_by_missing.items():
        have = "has" if len(sites) == 1 else "have"
        sentences.append(
            f"{_list(sites)} {have} no {_list(missing, 'or')}: no labels, or fewer than five "
            "patients in each split."
        )
    return sentences


def _nearly_black(rows: Sequence[SurveyRow]) -> list[str]:
    """Return which sites have images that show next to nothing."""
    dark = {row.site: row.dark for row in rows if row.dark}
    advice = "look at them with `fedward doctor`. DICOM files may need a window in the site file."
    images = {row.site: sum(row.contrast) for row in rows}
    of_each = {
        site: f"{number} of {images[site]} images are nearly black or of one grey"
        for site, number in dark.items()
    }
    of_many = "some images are nearly black or of one grey"
    return [f"{sentence}: {advice}" for sentence in _at_sites(dark, of_each, of_many)]


def _lonely(rows: Sequence[SurveyRow], classes: Sequence[str]) -> list[str]:
    """Return which classes a single site has labelled training images of."""
    classes_by_site: dict[str, list[str]] = {}
    for place, name in enumerate(classes):
        sites = [row.site for row in rows if row.labelled[place]]
        if len(sites) == 1:
            classes_by_site.setdefault(sites[0], []).append(name)
    return [
        f"Only {site} has labelled training images of {_list(names)}: a model may learn this "
        "site's cameras with them."
        for site, names in classes_by_site.items()
    ]


@dataclass(frozen=True)
class _Property:
    """A property of images by which sites are compared."""

    counts_of: Callable[[SurveyRow], Sequence[int]]
    """Returns a site's counts of images in intervals of the property."""
    edges: Sequence[float]
    """Where the intervals begin and end."""
    limit: float
    """Distance of a site's median from that of most sites from which on it is reported."""
    less: str
    """How images below are called."""
    more: str
    """How images above are called."""
    written: Callable[[float], str]
    """Returns a value as text."""


_PROPERTIES = (
    _Property(
        counts_of=lambda row: row.brightness,
        edges=BRIGHTNESS,
        limit=0.1,
        less="darker",
        more="brighter",
        written=lambda value: f"{value:.2f}",
    ),
    _Property(
        counts_of=lambda row: row.contrast,
        edges=CONTRAST,
        limit=0.03,
        less="of less contrast",
        more="of more contrast",
        written=lambda value: f"{value:.2f}",
    ),
    # The shorter side in doublings.
    _Property(
        counts_of=lambda row: row.sides,
        edges=np.log2(SIDES).tolist(),
        limit=2.0,
        less="smaller",
        more="larger",
        written=lambda value: f"about {2**value:.0f} pixels",
    ),
)


def _unlike(rows: Sequence[SurveyRow]) -> list[str]:
    """Return which sites' images differ from those of the other sites."""
    sentences: list[str] = []
    for compared in _PROPERTIES:
        sentences += _far(rows, compared)
    grey = [row.site for row in rows if row.grey > row.colour]
    if grey and len(grey) < len(rows):
        sentences.append(
            f"Most images of {_list(grey)} are grey, those of the other sites are in colour."
        )
    return sentences


def _far(rows: Sequence[SurveyRow], compared: _Property) -> list[str]:
    """Return a sentence for each site whose median is far from the median of all sites' medians.

    Of two sites, each is compared with the other. Of too many to name, one sentence gives the
    number and the ends.
    """
    sentences = []
    below_and_above: dict[str, dict[str, float]] = {compared.less: {}, compared.more: {}}
    medians = {}
    for row in rows:
        counts = compared.counts_of(row)
        if any(counts):
            medians[row.site] = median(counts, compared.edges)
    two = len(medians) <= 2
    for site, here in medians.items():
        there = [value for other, value in medians.items() if not two or other != site]
        if not there:
            continue
        usual = float(np.median(there))
        if abs(here - usual) < compared.limit:
            continue
        how = compared.more if here > usual else compared.less
        below_and_above[how][site] = here
        whom = "those of the other site: median" if two else "the median of all sites:"
        sentences.append(
            f"{site}'s images are {how} than {whom} {compared.written(here)} against "
            f"{compared.written(usual)}."
        )
    if len(sentences) <= MOST_NAMED:
        return sentences
    usual = float(np.median(list(medians.values())))
    return [
        _far_together(compared, how, apart, usual)
        for how, apart in below_and_above.items()
        if apart
    ]


def _far_together(compared: _Property, how: str, medians: Mapping[str, float], usual: float) -> str:
    """Return a sentence on the sites whose images are all on one side of the usual ones.

    Args:
        compared: the property.
        how: how the images are called beside the usual ones.
        medians: site -> its median.
        usual: the median of all sites' medians.
    """
    low = min(medians, key=medians.__getitem__)
    high = max(medians, key=medians.__getitem__)
    return (
        f"Images of {count(len(medians), 'site')} are {how} than the median of all sites, "
        f"{compared.written(usual)}: lowest {compared.written(medians[low])} at {low}, highest "
        f"{compared.written(medians[high])} at {high}."
    )


def _repeated(rows: Sequence[SurveyRow]) -> list[str]:
    repeated = {row.site: row.repeated for row in rows if row.repeated}
    advice = "Results on known images say nothing about new ones; `fedward doctor` lists them."
    what = "validation or test images are also in another split, pixel by pixel"
    of_each = {site: f"{number} {what}" for site, number in repeated.items()}
    return [f"{sentence}. {advice}" for sentence in _at_sites(repeated, of_each, f"some {what}")]


def _at_sites(numbers: Mapping[str, int], of_each: Mapping[str, str], of_many: str) -> list[str]:
    """Return a sentence without its end for each site, or one for all of many sites.

    Args:
        numbers: site -> the least number of its images that something is said of.
        of_each: site -> what is said of it, from its number on.
        of_many: the same of many sites, in whose place the largest number is named.
    """
    if len(numbers) <= MOST_NAMED:
        return [f"At {site} at least {text}" for site, text in of_each.items()]
    most = max(numbers, key=numbers.__getitem__)
    return [
        f"At {len(numbers)} sites {of_many}, at least {numbers[most]} at {most}, which has the most"
    ]


def _without_split(rows: Sequence[SurveyRow]) -> list[str]:
    sentences = []
    without_validation = [row.site for row in rows if not any(row.val)]
    if without_validation:
        sentences.append(
            f"No validation images, or fewer than five patients of each class: "
            f"{_list(without_validation)}. A site without any cannot help to choose a round."
        )
    without_test = [row.site for row in rows if not any(row.test)]
    if without_test:
        sentences.append(
            f"No test images, or fewer than five patients of each class: {_list(without_test)}. "
            "Nobody will know how good the model is at a site without any."
        )
    return sentences


def _one_class(rows: Sequence[SurveyRow], classes: Sequence[str]) -> Iterator[str]:
    """Yield which sites evaluate on a single class, a sentence for each class and split."""
    for split, about in (("val", "validation"), ("test", "test")):
        sites_of: dict[str, list[str]] = {}
        for row in rows:
            counts: Sequence[int] = getattr(row, split)
            present = [name for name, number in zip(classes, counts, strict=True) if number]
            if len(present) == 1:
                sites_of.setdefault(present[0], []).append(row.site)
        for name, sites in sites_of.items():
            have = "has" if len(sites) == 1 else "have"
            yield (
                f"{_list(sites)} {have} {about} images of {quoted(name)} alone, in numbers that "
                "are counted: a model that always answers so is perfect there."
            )


def _list(names: Iterable[str], joint: str = "and") -> str:
    """Return names as one text; of many the first and how many more there are."""
    parts = [quoted(name) for name in names]
    if len(parts) > MOST_NAMED:
        parts = [*parts[:MOST_NAMED], f"{len(parts) - MOST_NAMED} more"]
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} {joint} {parts[-1]}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"
