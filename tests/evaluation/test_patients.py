"""Patients in place of images: mean probabilities, one label, and the small-count rule."""

from dataclasses import replace

import numpy as np
import pytest

from fedward.errors import DataError
from fedward.evaluation.evaluated_images import images_of_common_classes
from fedward.evaluation.patients import unit_answers, unit_labels, units_of
from fedward.sites.assemble import divide, require_one_label
from fedward.sites.data import Images, Row
from fedward.sites.subgroups import NOT_STATED


def images(groups, labels):
    count = len(labels)
    pixels = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1)
    return Images(
        tuple(f"i{index}" for index in range(count)),
        pixels,
        np.array(labels, np.int64),
        tuple(groups),
    )


def test_a_patients_answer_is_the_mean_of_its_images():
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.6, 0.4]], np.float32)
    found, labels = unit_answers(scores, images("abaa", [0, 1, 0, 0]))
    assert found == pytest.approx(np.array([[1.9 / 3, 1.1 / 3], [0.2, 0.8]]))
    assert labels.tolist() == [0, 1]


def test_a_loop_says_the_same_in_any_order():
    rng = np.random.default_rng(0)
    groups = rng.choice(list("abcdefg"), 40)
    label = dict(zip("abcdefg", (0, 1, 2, 0, 1, 2, 1), strict=True))
    scores = rng.dirichlet(np.ones(3), 40)
    for order in (np.arange(40), rng.permutation(40)):
        given = images(groups[order], [label[group] for group in groups[order]])
        found, labels = unit_answers(scores[order], given)
        for place, group in enumerate(sorted(set(groups))):
            naive = [scores[index] for index in range(40) if groups[index] == group]
            assert found[place] == pytest.approx(sum(naive) / len(naive))
            assert labels[place] == label[group]


def test_without_groups_each_image_is_one():
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 5).astype(np.float32)
    alone = images((), [0, 1, 2, 1, 0])
    found, labels = unit_answers(scores, alone)
    assert np.array_equal(found, scores)
    assert labels is alone.labels
    for groups in ((), ("a",) * 0):
        found, labels = unit_answers(np.empty((0, 3)), images(groups, []))
        assert (found.shape, len(labels)) == ((0, 3), 0)


def test_a_class_needs_five_patients_however_many_images():
    four = images("aaaabbbbccccddddvwxyz", [0] * 16 + [1] * 5)
    kept = images_of_common_classes(four)
    assert (kept.groups, kept.labels.tolist()) == (tuple("vwxyz"), [1] * 5)
    assert kept.ids == tuple(f"i{index}" for index in range(16, 21))
    assert kept.pixels.ravel().tolist() == [16, 17, 18, 19, 20]
    five = images("aaaabbbbccccddddevwxyz", [0] * 17 + [1] * 5)
    assert images_of_common_classes(five) is five
    assert len(unit_labels(images_of_common_classes(images("abcd", [0] * 4)))[1]) == 0


def test_training_images_of_one_patient_count_in_each_of_their_classes():
    """The fifth patient of class 0 has it in their second image, and class 1 has one patient."""
    mixed = images("abcdee", [0, 0, 0, 0, 1, 0])
    kept = images_of_common_classes(mixed)
    assert kept.ids == ("i0", "i1", "i2", "i3", "i5")
    none = images("aabbccddef", [0, 1] * 4 + [2, 2])
    assert images_of_common_classes(none).ids == ()


def test_a_patient_of_several_groups_is_in_the_one_that_is_not_stated():
    """Each column for itself, whichever image comes first."""
    shown = replace(
        images("baaab", [0] * 5),
        subgroups=(("F", "old"), ("M", "old"), ("M", "young"), ("M", "old"), ("F", "old")),
    )
    units = units_of(shown)
    assert units.names == units.patients == ("a", "b")
    assert units.subgroups == (("M", NOT_STATED), ("F", "old"))
    assert units_of(images("ab", [0, 0])).subgroups == ()
    alone = replace(images((), [0, 0]), patients=("p", "p"), subgroups=(("F", "old"),) * 2)
    assert units_of(alone) == (("i0", "i1"), ("p", "p"), (("F", "old"),) * 2)


def test_a_group_of_two_labels_is_no_patient():
    require_one_label("s", images("aab", [0, 0, 1]))
    require_one_label("s", images((), [0, 1]))
    with pytest.raises(DataError, match=r"1 with several, such as 'b'.*evaluate_by=image"):
        require_one_label("s", images("aabb", [0, 0, 0, 1]))


def test_a_site_has_groups_only_where_patients_are_evaluated():
    rows = [
        Row("x", 0, "train", "p"),
        Row("y", 0, "test", "p", ("#1", "#3")),
        Row("z", 1, "test", "q"),
        Row("w", 1, "val"),
    ]
    pixels = np.zeros((5, 1, 1, 1), np.uint8)
    plain, patients = (
        divide("s", ("A", "B"), rows, pixels, 1.0, np.random.default_rng(0), by_patient)
        for by_patient in (False, True)
    )
    assert plain.test.ids == patients.test.ids == ("y#1", "y#3", "z")
    assert (plain.test.groups, patients.test.groups) == ((), ("p", "p", "q"))
    assert patients.val.groups == ("w",)
    rows[2] = Row("z", 1, "test", "p")
    divide("s", ("A", "B"), rows, pixels, 1.0, np.random.default_rng(0))
    with pytest.raises(DataError, match="one label for each group"):
        divide("s", ("A", "B"), rows, pixels, 1.0, np.random.default_rng(0), by_patient=True)
