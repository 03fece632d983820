"""No count that is hidden can be computed from those that are told."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator

import pytest

from fedward.federation.small_counts import SMALLEST_COUNT, hidden_classes
from fedward.federation.wire import withhold_small_counts

NAMES = "abcde"
Counts = tuple[int, ...]


def divisions(images: int, classes: int) -> Iterator[Counts]:
    """All ways to divide images among classes."""
    if classes == 1:
        yield (images,)
        return
    for first in range(images + 1):
        for rest in divisions(images - first, classes - 1):
            yield first, *rest


def hidden(counts: Counts) -> list[int]:
    """Which places of ``counts`` are hidden."""
    found = hidden_classes(dict(zip(NAMES, counts, strict=False)))
    return [place for place in range(len(counts)) if NAMES[place] in found]


def told(counts: Counts) -> Hashable:
    """What the server gets: the number of all images, and the count of each class that is not hidden."""
    return sum(counts), tuple(None if place in hidden(counts) else count for place, count in enumerate(counts))


def told_to_who_knows_more(counts: Counts) -> Hashable:
    """The same to a reader who knows besides which classes are present, and which of them are small."""
    return told(counts), tuple((count > 0, count < SMALLEST_COUNT) for count in counts)


def alike(message: Callable[[Counts], Hashable], most: int, classes: int) -> list[list[Counts]]:
    """All divisions of up to so many images, those together that give the same message."""
    groups: dict[Hashable, list[Counts]] = defaultdict(list)
    for images in range(most + 1):
        for counts in divisions(images, classes):
            groups[message(counts)].append(counts)
    return list(groups.values())


def candidates(group: list[Counts], place: int) -> set[int]:
    return {counts[place] for counts in group}


def secret(counts: Counts) -> bool:
    """Whether a class with 1 to 4 images is among the hidden ones; else those are all absent."""
    return any(counts[place] for place in hidden(counts))


@pytest.mark.parametrize(("classes", "most"), [(2, 40), (3, 32), (4, 23), (5, 16)])
def test_from_an_answer_alone_each_hidden_class_may_have_two_counts(classes, most):
    groups = [group for group in alike(told, most, classes) if secret(group[0])]
    assert groups
    for group in groups:
        for place in hidden(group[0]):
            assert len(candidates(group, place)) > 1, group


@pytest.mark.parametrize(("classes", "most"), [(2, 40), (3, 32), (4, 23), (5, 16)])
def test_so_it_may_to_who_knows_the_classes_that_are_present_and_the_small_ones(classes, most):
    """Unless no class is left that is told."""
    groups = [group for group in alike(told_to_who_knows_more, most, classes) if secret(group[0])]
    groups = [group for group in groups if len(hidden(group[0])) < classes]
    assert groups or classes == 2
    for group in groups:
        for place in hidden(group[0]):
            assert len(candidates(group, place)) > 1 or not group[0][place], group


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"MEL": 5, "NV": 50}, set()),
        ({"MEL": 0, "NV": 50, "BCC": 20}, {"MEL"}),  # no image is of it: nobody is hidden
        ({"MEL": 4}, {"MEL"}),
        ({"MEL": 4, "NV": 50, "BCC": 20}, {"MEL", "BCC"}),  # alone it would be all images minus the others
        ({"MEL": 3, "DF": 1, "NV": 50}, {"MEL", "DF"}),  # 4 may be 1 + 3, 2 + 2 or 3 + 1
        ({"MEL": 20, "NV": 40, "DF": 1, "VASC": 1}, {"DF", "VASC", "NV"}),  # 2 would be 1 + 1
        ({"MEL": 20, "NV": 40, "DF": 4, "VASC": 4}, {"DF", "VASC", "NV"}),  # 8 would be 4 + 4
        ({"A": 1, "D": 50, "C": 5}, {"A", "C", "D"}),  # 6 would be 1 + 5
        ({"A": 1, "D": 50, "C": 7}, {"A", "C"}),  # 8 may be 1 + 7, 2 + 6 or 3 + 5
        ({"MEL": 4, "BCC": 50, "NV": 50}, {"MEL", "NV"}),  # the last, not the smallest: that had at most 50
    ],
)
def test_what_is_hidden_worked_by_hand(counts, expected):
    assert hidden_classes(counts) == expected


def rows_of(split: str, counts: dict[str, int]) -> list[dict[str, object]]:
    common = {"split": split, "n": sum(counts.values()), "classes": [name for name, count in counts.items() if count]}
    rows = [{**common, "name": "accuracy", "value": 0.5}]
    for name, count in counts.items():
        rows += [{**common, "name": f"{kind}/{name}", "value": 0.5 if count else None} for kind in ("f1", "auroc")]
        rows.append({**common, "name": f"support/{name}", "value": float(count)})
    return rows


def test_no_row_tells_a_hidden_class_from_an_absent_one():
    """Each split for itself: on validation images nothing is hidden."""
    absent, small = {"A": 9, "B": 30, "C": 9, "D": 0, "E": 4}, {"A": 9, "B": 30, "C": 9, "D": 4, "E": 0}
    val = rows_of("val", {"A": 9, "B": 5})
    found, other = (withhold_small_counts([*val, *rows_of("test", counts)]) for counts in (absent, small))
    assert found == other
    assert found[: len(val)] == val
    for row in found[len(val) :]:
        assert row["classes"] == ["A", "B"]
        assert (row["value"] is None) == (str(row["name"])[-2:] in ("/C", "/D", "/E"))
