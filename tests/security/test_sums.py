"""The ledger of sums: what oneshot and surveys revealed of nearly the same images."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asking import requests, survey_requests
from clients import new_client
from drawn_sites import write_site
from fedward.client.admission import Admission
from fedward.client.site_data import DataSource
from fedward.client.survey import counted_images, surveyed
from fedward.config import DataSpec, Experiment
from fedward.errors import DataError
from fedward.methods import job_of
from fedward.methods.workflow import ClientTask, Exchange
from fedward.protocol.wire import Message
from fedward.security.kept_chain import last_hashes
from fedward.security.policy import OPEN, Policy
from fedward.security.sums import (
    SUMS,
    CountedImage,
    ImageSet,
    grant,
    image_set,
    recorded_sums,
)
from fedward.sites.data import SPLITS
from fedward.storage.chain import Chain
from starting import initial_model
from tiny import clinical, tiny

SITE = "site-1"
CLASSES = ("A", "B")
RUNS = [letter * 32 for letter in "abcdef"]
DEFAULT = Policy(surveys=True)
REFUSED = "minimum_images: sums of images as before, or of a set that differs in 32 or more, and "
REFUSED += "in none or 5 or more of each class in each split, this site's images differ in fewer"


# --- sets of images


def images(*numbers: int, cell: str = "train A", prefix: str = "") -> ImageSet:
    return image_set(
        CountedImage(cell, f"{prefix}{number}", b"pixels of %d" % number) for number in numbers
    )


def counted(cells: Mapping[str, Iterable[int]]) -> ImageSet:
    """Return images of several classes; equal numbers are equal images."""
    return image_set(
        CountedImage(f"train {name}", f"{number}", b"%d" % number)
        for name, numbers in cells.items()
        for number in numbers
    )


def test_images_are_known_by_names_and_by_pixels() -> None:
    some = images(*range(50))
    assert not some.is_near(images(*range(49, -1, -1)), 32), "a set has no order"
    assert some.is_near(images(*range(51)), 2)
    assert not some.is_near(images(*range(51)), 1)
    assert some.is_near(images(*range(51), prefix="renamed"), 2)
    assert not some.is_near(images(*range(50), prefix="renamed"), 100), (
        "the numbers are the same, as nothing is new"
    )
    other_size = image_set(
        CountedImage("train A", str(number), b"other pixels of %d" % number) for number in range(51)
    )
    assert some.is_near(other_size, 2)
    replaced = image_set(
        CountedImage("train A", str(number), b"pixels of %d" % max(number, 1))
        for number in range(50)
    )
    assert some.is_near(replaced, 2), "the pixels of one image are those of another one now"


def test_classes_are_compared_one_by_one() -> None:
    """A job may leave out a class, and new images of one class may hide one of another."""
    before = counted({"A": range(40), "B": range(100, 140)})
    assert before.is_near(counted({"A": range(41)}), 32)
    assert not before.is_near(counted({"A": range(40)}), 32)
    assert before.is_near(counted({"A": range(41), "B": range(100, 180)}), 32)
    assert before.is_near(counted({"A": range(44), "B": range(100, 180)}), 32)
    assert not before.is_near(counted({"A": range(45), "B": range(100, 180)}), 32)
    assert before.is_near(counted({"A": range(39), "B": range(100, 140)}), 32)
    assert before.is_near(counted({"A": range(39), "B": [39, *range(100, 140)]}), 32), (
        "the label of one image has changed"
    )
    assert before.is_near(counted({"A": range(40), "B": range(100, 140), "C": range(900, 905)}), 32)


COUNTS = st.dictionaries(st.sampled_from("AB"), st.integers(0, 60), min_size=1)


@settings(deadline=None, max_examples=100)
@given(st.lists(COUNTS, min_size=1, max_size=8), st.integers(1, 20))
def test_no_two_sets_that_were_told_of_are_near(
    tmp_path_factory: pytest.TempPathFactory, requests: list[dict[str, int]], fewest: int
) -> None:
    """In any order of requests for any classes, answered sums are equal or of enough images."""
    path = SUMS.file(tmp_path_factory.mktemp("ledger"), SITE)
    answered = list[dict[str, set[int]]]()
    for place, counts in enumerate(requests):
        first = {"A": 0, "B": 1000}
        cells = {name: {first[name] + number for number in range(counts[name])} for name in counts}
        if grant(path, f"{place:032x}", "oneshot", counted(cells), fewest, None) is None:
            answered.append(cells)
    assert answered, "the first request is answered"
    for place, one in enumerate(answered):
        for other in answered[:place]:
            total = len(set().union(*one.values()) ^ set().union(*other.values()))
            assert total == 0 or total >= fewest
            for name in {name for name in one if one[name]} & {n for n in other if other[n]}:
                difference = len(one[name] ^ other[name])
                assert difference == 0 or difference >= min(fewest, 5)


# --- the ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return SUMS.file(tmp_path, SITE)


def test_the_same_images_are_told_again_and_near_ones_are_not(path):
    assert grant(path, RUNS[0], "oneshot", images(*range(100)), 32, 3) is None
    assert grant(path, RUNS[0], "oneshot", images(*range(100)), 32, 3) is None, (
        "a run that is continued"
    )
    assert len(path.read_text().splitlines()) == 1
    assert grant(path, RUNS[1], "oneshot", images(*range(100)), 32, 3) is None
    for near in (range(101), range(1, 100), range(131), range(5, 105)):
        applied = grant(path, RUNS[2], "oneshot", images(*near), 32, 3)
        assert applied is not None
        assert applied.name == "minimum_images"
        assert applied.kept is False
    assert grant(path, RUNS[2], "survey", images(*range(101)), 32, 3) is None, (
        "counts and sums are no difference"
    )
    assert recorded_sums(path).runs == set(RUNS[:3])
    assert path.stat().st_mode & 0o777 == 0o600


def test_enough_further_images_are_told(path):
    assert grant(path, RUNS[0], "oneshot", images(*range(100)), 32, None) is None
    assert grant(path, RUNS[1], "oneshot", images(*range(132)), 32, None) is None
    applied = grant(path, RUNS[2], "oneshot", images(*range(101)), 32, None)
    assert applied is not None, "it is near to the first, not to the last"


def test_runs_are_counted_over_all_jobs(path):
    for run in RUNS[:2]:
        assert grant(path, run, "oneshot", images(*range(100)), 32, 2) is None
    applied = grant(path, RUNS[2], "oneshot", images(*range(100)), 32, 2)
    assert str(applied) == "maximum_sums: at most 2 runs, this one would be one more"
    assert grant(path, RUNS[0], "oneshot", images(*range(100)), 32, 2) is None
    assert grant(path, RUNS[2], "oneshot", images(*range(100)), 32, None) is None


@pytest.mark.proves(
    "files",
    "lines of a ledger of sums are changed, moved or taken out; the ledger or its end is removed",
    "no sums leave until both are restored",
)
@pytest.mark.parametrize(
    "attack",
    [
        lambda lines: [lines[0].replace('"kind":"oneshot"', '"kind":"survey"'), *lines[1:]],
        lambda lines: lines[1:],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: lines[:2],
        lambda lines: [],
    ],
)
def test_a_forged_ledger_tells_nothing(path, attack):
    for place, run in enumerate(RUNS[:3]):
        new_images = images(*range(100 * place, 100 * place + 100))
        assert grant(path, run, "oneshot", new_images, 32, None) is None
    path.write_text("\n".join(attack(path.read_text().splitlines())) + "\n")
    with pytest.raises(DataError, match="No sums are sent"):
        grant(path, RUNS[3], "oneshot", images(*range(1000, 1100)), 32, None)


@pytest.mark.proves(
    "files",
    "lines of a ledger of sums are changed, moved or taken out; the ledger or its end is removed",
    "no sums leave until both are restored",
)
def test_a_ledger_that_is_removed_with_its_end_tells_nothing(path: Path) -> None:
    """The site's log of answers knows what it held."""
    assert grant(path, RUNS[0], "oneshot", images(*range(100)), 32, None) is None
    log = path.parent / "answers" / f"{RUNS[0]}.jsonl"
    log.parent.mkdir()
    Chain(log, RUNS[0]).add(
        {"site": SITE, "event": "answered", "sums": last_hashes({SUMS: path})[SUMS]}
    )
    assert grant(path, RUNS[0], "oneshot", images(*range(100)), 32, None) is None
    path.with_suffix(".end.json").unlink()
    with pytest.raises(DataError, match=f"sums-{SITE}.end.json.* No sums are sent"):
        grant(path, RUNS[1], "oneshot", images(*range(101)), 32, None)
    path.unlink()
    with pytest.raises(DataError, match="No sums are sent"):
        grant(path, RUNS[1], "oneshot", images(*range(101)), 32, None)


def test_a_line_does_not_tell_which_images_it_is_of(path: Path) -> None:
    other = path.with_name("sums-site-2.jsonl")
    for ledger in (path, other):
        assert grant(ledger, RUNS[0], "oneshot", images(*range(100)), 32, None) is None
    assert last_hashes({SUMS: path})[SUMS] != last_hashes({SUMS: other})[SUMS]
    rows = [json.loads(ledger.read_text()) for ledger in (path, other)]
    assert rows[0]["set"] == rows[1]["set"]
    assert rows[0]["salt"] != rows[1]["salt"]


def test_half_a_line_of_a_crash_is_no_answer(path):
    assert grant(path, RUNS[0], "oneshot", images(*range(100)), 32, None) is None
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    assert grant(path, RUNS[1], "oneshot", images(*range(200, 300)), 32, None) is None
    assert recorded_sums(path).runs == set(RUNS[:2])


# --- attacks on a site


def job(method: str, **changes: Any) -> Experiment:
    base = {"data": DataSpec(name="own", classes=CLASSES, image_size=16), "net": "small_cnn_gn"}
    return (
        clinical(method, **{**base, **changes})
        if method == "survey"
        else oneshot(**{**base, **changes})
    )


def oneshot(**changes: Any) -> Experiment:
    return tiny("oneshot", **{"synthetic": None, "minimum_replies": 3, **changes})


def answer_of(
    experiment: Experiment, site_folder: Path, files: Path, run: str, policy: Policy
) -> Message:
    """Return what a site with its own folder answers in a run of a job."""
    admission = Admission(SITE, experiment, job_of(experiment), site_folder, lambda: policy)
    client = new_client(SITE, experiment, site_folder, [files], admission=admission)
    if experiment.method == "survey":
        asked = survey_requests(experiment, [SITE], run=run)[SITE]
        return client.handle(Message({**asked.meta, "members": 3}, asked.arrays))
    first = initial_model(experiment)
    exchange = Exchange(1, first.state, {SITE: ClientTask("measure")})
    asked = requests(experiment, exchange, run=run)[SITE]
    return client.handle(Message({**asked.meta, "members": 3, "base": first.base}, asked.arrays))


def class_sums(experiment: Experiment, answer: Message) -> torch.Tensor:
    """Return the sums of features in each class, (K, D), as the server computes them."""
    start = initial_model(experiment).state["moments.sums"]
    mean = start + torch.from_numpy(answer.arrays["diff/moments.sums"].copy())
    return mean.double() * answer.meta["labelled"]


def last_features(experiment: Experiment, site_folder: Path, files: Path) -> torch.Tensor:
    """Return what the classifier is shown of a site's last image, (D,)."""
    part = new_client(SITE, experiment, site_folder, [files]).learner.images["labelled"]
    return part.take(torch.tensor([len(part.labels) - 1]))[0].double()


@pytest.fixture
def before_and_after(tmp_path: Path) -> tuple[Path, Path]:
    """Return a hospital's images before and after one more came."""
    first = write_site(tmp_path / "before", SITE, CLASSES, [range(40), range(40)], seed=None)
    return first, write_site(tmp_path / "after", SITE, CLASSES, [range(41), range(40)], seed=None)


@pytest.mark.proves(
    "lead",
    "sums or surveys before and after one new image",
    "the old answer or none, until the images differ in minimum_images",
)
def test_sums_before_and_after_one_image_are_not_told(tmp_path, before_and_after):
    """Without the rule, the difference is the features of the new image, up to float32 rounding."""
    before, after = before_and_after
    experiment = job("oneshot")
    one, other = (
        answer_of(experiment, tmp_path / "open", files, run, OPEN)
        for files, run in zip(before_and_after, RUNS[:2], strict=True)
    )
    stolen = class_sums(experiment, other) - class_sums(experiment, one)
    assert stolen[1].abs().max() < 1e-3
    assert torch.allclose(
        stolen[0], last_features(experiment, tmp_path / "probe", after), atol=1e-3
    )

    site_folder = tmp_path / "kit"
    assert "error" not in answer_of(experiment, site_folder, before, RUNS[0], DEFAULT).meta
    assert "error" not in answer_of(experiment, site_folder, before, RUNS[1], DEFAULT).meta
    answer = answer_of(experiment, site_folder, after, RUNS[2], DEFAULT)
    assert REFUSED in answer.meta["error"]
    assert not answer.arrays
    shuffled = write_site(tmp_path / "shuffled", SITE, CLASSES, [range(41), range(40)], seed=2)
    assert REFUSED in answer_of(experiment, site_folder, shuffled, RUNS[2], DEFAULT).meta["error"]
    larger = job("oneshot", data=DataSpec(name="own", classes=CLASSES, image_size=24))
    assert REFUSED in answer_of(larger, site_folder, after, RUNS[3], DEFAULT).meta["error"]
    for classes in (CLASSES[::-1], ("Z", *CLASSES)):
        other = job("oneshot", data=DataSpec(name="own", classes=classes, image_size=16))
        assert REFUSED in answer_of(other, site_folder, after, RUNS[3], DEFAULT).meta["error"]
    one_among_many = write_site(
        tmp_path / "one among many", SITE, CLASSES, [range(41), range(80)], seed=None
    )
    answer = answer_of(experiment, site_folder, one_among_many, RUNS[3], DEFAULT)
    assert REFUSED in answer.meta["error"]
    assert "error" not in answer_of(experiment, site_folder, before, RUNS[4], DEFAULT).meta
    limited = DEFAULT.model_copy(update={"maximum_sums": 3})
    error = answer_of(experiment, site_folder, before, RUNS[5], limited).meta["error"]
    assert "maximum_sums: at most 3 runs" in error


@pytest.mark.proves(
    "lead",
    "sums or surveys before and after one new image",
    "the old answer or none, until the images differ in minimum_images",
)
def test_surveys_before_and_after_one_image_are_not_told(tmp_path, before_and_after):
    before, after = before_and_after
    many = write_site(tmp_path / "many", SITE, CLASSES, [range(80), range(40)], seed=None)
    experiment = job("survey")
    site_folder = tmp_path / "kit"
    first = answer_of(experiment, site_folder, before, RUNS[0], DEFAULT).meta
    assert first["survey"]["labelled"] == [40, 40]
    assert (
        answer_of(experiment, site_folder, before, RUNS[1], DEFAULT).meta["survey"]
        == first["survey"]
    )
    assert REFUSED in answer_of(experiment, site_folder, after, RUNS[2], DEFAULT).meta["error"]
    for classes in (CLASSES[::-1], ("Z", *CLASSES)):
        other = job("survey", data=DataSpec(name="own", classes=classes, image_size=16))
        assert REFUSED in answer_of(other, site_folder, after, RUNS[2], DEFAULT).meta["error"]
    assert answer_of(experiment, site_folder, many, RUNS[3], DEFAULT).meta["survey"][
        "labelled"
    ] == [80, 40]
    lines = [json.loads(line) for line in SUMS.file(site_folder, SITE).read_text().splitlines()]
    assert [(line["run"], "names" in line) for line in lines] == [
        (RUNS[0], True),
        (RUNS[1], False),
        (RUNS[3], True),
    ]


def test_a_survey_counts_the_images_that_its_ledger_holds(tmp_path, before_and_after, monkeypatch):
    """A hospital's files change while it is surveyed: they are read once."""
    before, after = before_and_after
    experiment = job("survey")
    read = [DataSource(SITE, experiment, tmp_path / "own", [at]).whole() for at in (before, after)]
    unread = iter(read)
    monkeypatch.setattr(DataSource, "whole", lambda source: next(unread))
    site_folder = tmp_path / "kit"
    answer = answer_of(experiment, site_folder, before, RUNS[0], DEFAULT)
    assert answer.meta["survey"]["labelled"] == [40, 40]
    (recorded,) = recorded_sums(SUMS.file(site_folder, SITE)).sets.values()
    assert recorded == surveyed(read[0])
    assert next(unread) is read[1]


def test_what_is_told_of_an_image_is_part_of_it(tmp_path):
    """Another label, another split: the sums of two classes differ by the one image."""
    experiment = job("survey")
    one = write_site(tmp_path / "one", SITE, CLASSES, [range(40), range(40)], seed=None)
    source = DataSource(SITE, experiment, tmp_path / "own", [one])
    data = source.whole()
    labelled = data.labelled
    one_set = image_set(counted_images(labelled, CLASSES))
    labels = labelled.labels.copy()
    labels[0] = 1 - labels[0]
    changed = type(labelled)(labelled.ids, labelled.pixels, labels, labelled.groups)
    assert one_set.is_near(image_set(counted_images(changed, CLASSES)), 32)
    owners = ("somebody else", *labelled.ids[1:])
    owned = replace(labelled, patients=owners)
    assert one_set.is_near(image_set(counted_images(owned, CLASSES)), 32)
    cells = surveyed(data).names
    assert cells.keys() == {f"{split} {name}" for split in SPLITS for name in CLASSES}
    images_in_all = len(labelled) + len(data.val) + len(data.test)
    assert sum(map(len, cells.values())) == images_in_all
