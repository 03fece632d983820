"""Right answers by subgroup: their numbers, and what an outsider can learn of a small group."""

import hashlib
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom, binomtest  # type: ignore[import-untyped,unused-ignore]

from fedward.errors import ConfigError
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.clusters import ClusterCounts
from fedward.evaluation.intervals import joint_interval, proportion_interval
from fedward.evaluation.subgroups import LEFT_OUT, SubgroupCounts, subgroup_counts
from fedward.runs.subgroups import Subgroups

SEX = {"sex": ("F", "M")}
GROUPS = ("F", "M", "not stated")


def counted(
    groups: list[str],
    labels: np.ndarray | None = None,
    answers: np.ndarray | None = None,
    owners: list[str] | None = None,
    classes: int = 1,
) -> SubgroupCounts:
    """Count images of one column; by default all are of one class and rightly answered."""
    labels = np.zeros(len(groups), int) if labels is None else labels
    answers = labels if answers is None else answers
    inside = labels[:, None] == np.arange(classes)
    is_right = answers[:, None] == np.arange(classes)
    names = [f"image-{number}" for number in range(len(groups))]
    rows = [(group,) for group in groups]
    return subgroup_counts(SEX, rows, names, owners or names, inside, is_right)[0]


def of_sizes(*sizes: int) -> tuple[int, ...]:
    """Return the reported images of groups of these sizes."""
    groups = [group for group, size in zip(GROUPS, sizes, strict=True) for _ in range(size)]
    return tuple(counted(groups).images[0].tolist())


def test_numbers_by_hand():
    # One group is small: 4 images are missing in all, whatever groups the first ones are of.
    assert sum(of_sizes(10, 20, 1)) == 27
    assert of_sizes(10, 20, 1)[2] == 0
    # No group is small: nothing is left out.
    assert of_sizes(10, 20, 5) == (10, 20, 5)
    # A group of five keeps its images.
    assert of_sizes(5, 20, 1) == (5, 17, 0)
    # Two are small: 8 images are missing.
    assert of_sizes(4, 20, 3) == (0, 19, 0)
    # Too few are left: the class has no numbers.
    assert of_sizes(6, 7, 0) == (0, 0, 0)
    assert of_sizes(4, 4, 4) == (0, 0, 0)


def test_the_first_images_are_left_out_of_all_columns():
    names = sorted((f"{number}" for number in range(40)), key=_digest)
    rows = [(("F", "M")[number % 2], "0-39") for number in range(40)]
    everything = np.ones((40, 1), bool)
    is_last = np.arange(40)[:, None] >= 12
    columns = {"sex": ("F", "M"), "age": ("0-39", "40+")}
    # Small are both groups of those not stated, and one of age: 12 images are missing.
    sex, age = subgroup_counts(columns, rows, names, names, everything, is_last)
    assert sex.images.tolist() == sex.right.tolist() == [[14, 14, 0]]
    assert age.images.tolist() == age.right.tolist() == [[28, 0, 0]]


@pytest.mark.parametrize(
    ("ages", "by_sex"),
    [
        (["40+"] * 3 + ["0-39"] * 5, [5, 11, 0]),
        (["40+"] * 3 + ["0-39"] * 4, [0, 0, 0]),
        (["40+"] * 3 + ["not stated"] * 3, [0, 0, 0]),
    ],
)
def test_a_class_with_a_group_of_five_only_by_small_ones_has_no_numbers(
    ages: list[str], by_sex: list[int]
) -> None:
    """Small are two groups of ages and one of sexes. Of all images 12 are left out for them."""
    columns = {"sex": ("F", "M"), "age": ("0-39", "40+")}
    rows = [("F", age) for age in ages] + [("M", "0-39")] * 20
    names = [f"{number}" for number in range(len(rows))]
    everything = np.ones((len(rows), 1), bool)
    sex, age = subgroup_counts(columns, rows, names, names, everything, everything)
    assert sex.images.tolist() == [by_sex]
    assert age.images.tolist() == [[sum(by_sex), 0, 0]]


def test_images_of_a_patient_are_left_out_together():
    """So are these patients where the same site counts patients."""

    def left_out(owners: list[str]) -> set[str]:
        groups = [("F", "M")[int(owner) % 2] for owner in owners]
        without_numbers = set()
        for patient in owners:
            answers = np.array([owner != patient for owner in owners], int)
            right = counted(groups, np.zeros(len(owners), int), answers, owners).right.sum()
            assert right in (0, owners.count(patient))
            if not right:
                without_numbers.add(patient)
        return without_numbers

    patients = [f"{number}" for number in range(20)]
    by_image = left_out(sorted([*patients, *patients]))
    by_patient = left_out(patients)
    assert (len(by_image), len(by_patient)) == (2, 4)
    assert by_image < by_patient


def test_right_answers_are_of_the_kept_images():
    rng = np.random.default_rng(1)
    groups = ["F"] * 30 + ["M"] * 40 + ["not stated"] * 2
    labels = rng.integers(0, 2, 72)
    answers = rng.integers(0, 2, 72)
    result = counted(groups, labels, answers, classes=2)
    for place in range(2):
        members = np.flatnonzero(labels == place)
        right = (answers[members] == place).sum()
        missing = len(members) - result.images[place].sum()
        assert missing == LEFT_OUT
        assert right - missing <= result.right[place].sum() <= right
    # Models do not change which images are counted.
    other = counted(groups, labels, 1 - answers, classes=2)
    assert (other.images == result.images).all()
    assert (other.right == result.images - result.right).all()


@pytest.mark.proves(
    "lead",
    "the number of a small group: the total minus the other groups, by the rule itself, for all "
    "sizes of groups that give the same message",
    "any of 0 to 4 images is possible, or a range of five where a class has no numbers",
)
def test_no_size_of_a_small_group_follows_from_the_message():
    possible = dict[tuple[int, ...], list[tuple[int, ...]]]()
    for sizes in product(range(18), repeat=3):
        if 5 <= sum(sizes) <= 17:
            # The outsider knows the class's total, too.
            possible.setdefault((sum(sizes), *of_sizes(*sizes)), []).append(sizes)
    assert len(possible) > 40
    for (_, *message), sites in possible.items():
        for place in range(3):
            sizes = {site[place] for site in sites}
            if any(message):
                assert message[place] or sizes == set(range(5))
            elif min(sizes) < 5:
                assert len(sizes) >= 5
                assert max(sizes) - min(sizes) >= 4


@pytest.mark.proves(
    "lead",
    "a small group as the difference of two columns, one of which refines the other",
    "columns are counted on the same images, and fit 0 to 4 images of the group",
)
def test_a_column_that_refines_another_does_not_reveal_a_small_group():
    columns = {"model": ("A", "B", "Z"), "maker": ("Canon", "Zeiss")}
    names = sorted((f"{number}" for number in range(40)), key=_digest)
    everything = np.ones((40, 1), bool)
    rows = [("Z", "Zeiss"), ("A", "Canon")] * 20
    messages = []
    for small in range(LEFT_OUT + 1):
        rows[:small] = [("B", "Canon")] * small
        sent = subgroup_counts(columns, rows, names, names, everything, everything)
        messages.append([column.to_wire() for column in sent])
    by_model, by_maker = (column["images"] for column in messages[0])
    assert (by_model, by_maker) == ([[14, 0, 14, 0]], [[14, 14, 0]])
    assert all(message == messages[0] for message in messages)


@pytest.mark.proves(
    "lead",
    "small groups by the answers of models of its choice in many rounds, by two columns at once, "
    "and by all other counts",
    "messages are the same whether a small group has 0, 1, 2, 3 or 4 images",
)
@pytest.mark.parametrize("seed", range(5))
def test_all_messages_of_all_rounds_are_the_same_for_0_to_4_images(seed):
    rng = np.random.default_rng(seed)
    # Ids in the order in which images are left out, which no outsider knows.
    names = sorted((f"{seed}-{number}" for number in range(60)), key=_digest)
    labels = np.arange(60) % 2
    rounds = [rng.integers(0, 2, 60)[:, None] == [0, 1] for _ in range(6)]
    inside = labels[:, None] == [0, 1]
    kept = rng.choice(GROUPS[:2], 60, p=[0.3, 0.7]).astype(object)
    ages = rng.choice(["0-39", "40+", "not stated"], 60, p=[0.4, 0.55, 0.05])
    columns = {"sex": ("F", "M"), "age": ("0-39", "40+")}
    all_messages = []
    for small in product(range(LEFT_OUT + 1), repeat=2):
        sex = kept.copy()
        for place, number in enumerate(small):
            left_out = np.flatnonzero(labels == place)[:LEFT_OUT]
            sex[left_out] = "M"
            sex[left_out[:number]] = "not stated"
        rows = list(zip(sex.tolist(), ages.tolist(), strict=True))
        messages = []
        for is_right in rounds:
            by_column = subgroup_counts(columns, rows, names, names, inside, is_right)
            messages.append([one.to_wire() for one in by_column])
        all_messages.append(messages)
    assert np.array(all_messages[0][0][0]["images"]).any(axis=1).all()
    assert all(messages == all_messages[0] for messages in all_messages)


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@pytest.mark.proves(
    "lead",
    "a small cell of two crossed columns and two classes, by linear programming over all that is "
    "sent: the class's totals, both columns, and which groups are small",
    "its bounds are 0 and 4 images",
)
def test_linear_programming_bounds_a_small_group_by_0_and_4():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 120)
    names = [f"{number}" for number in range(120)]
    sex = np.array(["F", "M", "not stated"])[rng.choice(3, 120, p=[0.5, 0.47, 0.03])]
    age = np.array(["0-39", "40+", "not stated"])[rng.choice(3, 120, p=[0.5, 0.47, 0.03])]
    columns = {"sex": ("F", "M"), "age": ("0-39", "40+")}
    inside = labels[:, None] == [0, 1]
    rows = list(zip(sex.tolist(), age.tolist(), strict=True))
    sent = subgroup_counts(columns, rows, names, names, inside, inside)
    cells = np.arange(2 * 3 * 3).reshape(2, 3, 3)  # Variables: class, sex, age.
    equal, upper = [], []
    for place in range(2):
        equal.append((cells[place], int((labels == place).sum())))
        for axis, column in enumerate(sent):
            assert list(column.images[place] == 0) == [False, False, True]
            for group, reported in enumerate(column.images[place].tolist()):
                members = cells[place].take(group, axis)
                bound = reported + 2 * LEFT_OUT if reported else LEFT_OUT
                upper.append((members, 1, bound))
                if reported:
                    upper.append((members, -1, -reported))
    for place, axis in product(range(2), range(2)):
        small = cells[place].take(2, axis)
        assert _bounds(small, equal, upper) == (0, LEFT_OUT)


def _bounds(wanted, equal, upper) -> tuple[int, int]:
    """Return the least and the most that the wanted variables may sum to."""

    def row(variables, sign=1):
        coefficients = np.zeros(18)
        coefficients[np.ravel(variables)] = sign
        return coefficients

    known = {
        "A_eq": [row(variables) for variables, _ in equal],
        "b_eq": [total for _, total in equal],
        "A_ub": [row(variables, sign) for variables, sign, _ in upper],
        "b_ub": [bound for *_, bound in upper],
    }
    ends = [linprog(row(wanted, sign), **known, method="highs").fun * sign for sign in (1, -1)]
    return round(ends[0]), round(ends[1])


def test_a_group_of_few_patients_hides_the_class():
    groups = ["F"] * 20 + ["M"] * 20 + ["not stated"] * 5
    many = [f"patient-{number}" for number in range(45)]
    assert counted(groups, owners=many).images.any()
    few = [f"patient-{number % 4}" for number in range(20)] + many[20:]
    assert not counted(groups, owners=few).images.any()
    # Patients with several images are no reason, if there are five.
    enough = [f"patient-{number % 5}" for number in range(20)] + many[20:]
    assert counted(groups, owners=enough).images.any()


def test_the_order_of_images_changes_nothing():
    groups = ["F"] * 20 + ["M"] * 15 + ["not stated"] * 3
    answers = np.arange(38) % 2
    names = [f"{number}" for number in range(38)]
    labels = np.zeros(38, int)
    results = []
    for order in (np.arange(38), np.random.default_rng(0).permutation(38)):
        inside = (labels[:, None] == [0, 1])[order]
        is_right = (answers[:, None] == [0, 1])[order]
        rows = [(groups[place],) for place in order]
        ids = [names[place] for place in order]
        results.append(subgroup_counts(SEX, rows, ids, ids, inside, is_right)[0].to_wire())
    assert results[0] == results[1]
    assert SubgroupCounts.from_wire(results[0]).to_wire() == results[0]


def test_groups_of_sites_are_added_and_set_beside_their_classes():
    groups = ("women", "men", "diverse", "not stated")
    labels = np.repeat([0, 1], 20)
    half = np.where(np.arange(40) < 10, 1, labels)
    counts = {
        # At site a half of class A is right, and all of class B.
        "a": AnswerCounts.of_one_answer(np.eye(2)[half], labels),
        "b": AnswerCounts.of_one_answer(np.eye(2)[labels], labels),
    }
    of_a = np.array([[8, 8, 0, 0], [0, 8, 0, 0]]), np.array([[2, 6, 0, 0], [0, 8, 0, 0]])
    of_b = np.array([[6, 6, 0, 0], [0, 0, 0, 0]]), np.array([[6, 6, 0, 0], [0, 0, 0, 0]])
    columns = {
        "a": [SubgroupCounts("sex", groups, *of_a)],
        "b": [SubgroupCounts("sex", groups, *of_b)],
    }
    found = Subgroups(("A", "B"), counts, columns)
    women, men = found.measured()
    assert (women.title, women.measured.right, women.measured.n) == ("women (sex)", 8, 14)
    assert women.expected == pytest.approx((8 * 0.5 + 6) / 14)
    assert (men.title, men.measured.right, men.measured.n) == ("men (sex)", 20, 22)
    assert men.expected == pytest.approx((8 * 0.5 + 8 + 6) / 22)
    assert [(one.name, one.right, one.n) for one in men.classes] == [("A", 12, 14), ("B", 8, 8)]
    assert women.sites == men.sites == ("a", "b")
    low, high = joint_interval(8 / 14, 14, together=2)
    assert (women.measured.low, women.measured.high) == (low, high)
    assert women.is_below == (high < women.expected)
    assert found.untested == ("diverse (sex)",)


def test_a_groups_interval_allows_for_images_of_patients():
    """At site a an image is worth a quarter, at b it counts in full: 2.5 images for each one."""
    labels = np.repeat([0, 1], 20)
    counts = AnswerCounts.of_one_answer(np.eye(2)[labels], labels)
    patients = ClusterCounts(np.array([5, 5]), np.array([5, 5]), 10, 10)
    of_women = np.array([[10, 0], [0, 0]]), np.array([[8, 0], [0, 0]])
    column = SubgroupCounts("sex", ("women", "not stated"), *of_women)
    sites = {"a": counts.of_patients(patients), "b": counts}
    (women,) = Subgroups(("A", "B"), sites, {"a": [column], "b": [column]}).measured()
    assert (women.measured.n, women.measured.value) == (20, 0.8)
    ends = joint_interval(0.8, 20 / 2.5, together=1)
    assert (women.measured.low, women.measured.high) == ends
    (of_class,) = women.classes
    assert (of_class.low, of_class.high) == proportion_interval(0.8, 20 / 2.5)


@pytest.mark.parametrize("groups", [1, 2, 10, 25, 55])
@pytest.mark.parametrize("images", [5, 12, 40, 150])
def test_no_group_is_called_below_by_chance_in_more_than_one_run_of_forty(
    groups: int, images: int
) -> None:
    """Exactly, by binomial tails, for equally good groups of any share of right answers."""
    right = np.arange(images + 1)
    highs = np.array([joint_interval(number / images, images, groups)[1] for number in right])
    for share in np.linspace(0.01, 0.999, 60):
        below = binom.pmf(right, images, share)[highs < share].sum()
        assert 1 - (1 - below) ** groups <= 0.025


def test_a_joint_interval_is_the_exact_one_of_scipy() -> None:
    for right, images, together in ((0, 7, 3), (7, 7, 3), (8, 14, 2), (390, 400, 25)):
        expected = binomtest(right, images).proportion_ci(1 - 0.05 / together, method="exact")
        assert joint_interval(right / images, images, together) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "n", "together"),
    [(-0.1, 9, 1), (1.1, 9, 1), (np.nan, 9, 1), (0.5, 0.9, 1), (0.5, np.nan, 1), (0.5, 9, 0)],
)
def test_a_joint_interval_of_no_share_is_refused(share: float, n: float, together: int) -> None:
    with pytest.raises(ConfigError, match=r"expected (a share in \[0, 1\] of|one share or more)"):
        joint_interval(share, n, together)
