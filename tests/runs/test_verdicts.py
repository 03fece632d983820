"""The verdict on random federations: no statement of a page contradicts another."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import Linear

from fedward.config import DataSpec
from fedward.evaluation import classification_metrics
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.clusters import ClusterCounts
from fedward.evaluation.histograms import ConfidenceHistogram
from fedward.evaluation.intervals import Interval, mean_and_interval, proportion_interval
from fedward.evaluation.small_counts import common_classes, withhold_small_counts
from fedward.evaluation.subgroups import subgroup_counts
from fedward.inference.card import ModelCard
from fedward.inference.model import TrainedModel
from fedward.label_kinds import ONE_LABEL
from fedward.report.forest import Forest
from fedward.report.sheet import render_sheet
from fedward.runs.judge import _level, judge
from fedward.runs.measured import Measured
from fedward.runs.over_sites import over_sites
from fedward.runs.run import Run
from fedward.runs.site_counts import SiteCounts
from fedward.runs.subgroups import Subgroup
from fedward.runs.verdict import Against, Level, Verdict
from fedward.runs.verdict_words import (
    advice,
    coverage,
    for_clinicians,
    in_percent,
    in_short,
    reasons,
    trust,
)
from fedward.runs.verdict_words.shares import of_hundred
from fedward.storage.info import Leaks
from fedward.storage.rows import BinnedRow
from tiny import tiny

CLASSES = ("A", "B", "C", "D")


class Federation(NamedTuple):
    """A federation's test images and how well its model does on them."""

    images: list[list[int]]
    """For each site its images of each class."""
    skill: float
    """How much larger the logit of the true class is."""
    synthetic: bool
    lazy: int
    """Number of sites that never train."""
    absent: int
    """Number of sites that do not evaluate."""
    seed: int
    leaks: int = 0
    """Patients in several splits."""
    tested_leaks: int = 0
    """Those of them in training and test."""
    round: int = 1
    """The round that is judged; 0 is the model before training."""
    external: bool = False
    """Whether sites that never train have no training images."""
    images_of_a_patient: int = 1
    """Test images of each patient; sites name patients only if it is above 1."""
    women: float | None = None
    """Share of women among the images, at sites that count by sex; None: no site does."""
    fewer_women: float = 0.0
    """Share of the women's images whose answer is another one."""


COUNTS = st.lists(st.sampled_from([0, 0, 2, 4, 5, 9, 40]), min_size=4, max_size=4)
FEDERATIONS = st.builds(
    Federation,
    images=st.lists(COUNTS, min_size=1, max_size=7),
    skill=st.sampled_from([-1.0, 0.0, 2.0, 4.0, 9.0]),
    synthetic=st.booleans(),
    lazy=st.integers(0, 2),
    absent=st.integers(0, 2),
    seed=st.integers(0, 99),
    leaks=st.sampled_from([0, 0, 3]),
    tested_leaks=st.sampled_from([0, 1, 2]),
    round=st.sampled_from([1, 1, 0]),
    external=st.booleans(),
    images_of_a_patient=st.sampled_from([1, 3]),
    women=st.sampled_from([None, 0.5, 0.1, 1.0]),
    fewer_women=st.sampled_from([0.0, 0.9]),
)


def write(folder: Path, federation: Federation) -> tuple[Run, int, int]:
    """Write a run folder; return it, and how many of how many evaluated images are right."""
    draw = np.random.default_rng(federation.seed)
    sites = [f"s{number}" for number in range(len(federation.images))]
    metrics: list[dict[str, Any]] = []
    counts = []
    right = 0
    evaluated = 0
    for place, (site, images) in enumerate(zip(sites, federation.images, strict=True)):
        labels = np.repeat(np.arange(len(CLASSES)), images)
        if not federation.synthetic:
            labels = labels[common_classes(labels, len(CLASSES))[labels]]
        if place < federation.absent:
            continue
        logits = draw.normal(0, 1, (len(labels), len(CLASSES)))
        logits[np.arange(len(labels)), labels] += federation.skill
        is_woman = draw.random(len(labels)) < (federation.women or 0.0)
        is_wrong = is_woman & (draw.random(len(labels)) < federation.fewer_women)
        logits[is_wrong, (labels[is_wrong] + 1) % len(CLASSES)] += 20
        odds = np.exp(logits)
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        right += int((probabilities.argmax(axis=1) == labels).sum())
        evaluated += len(labels)
        rows = classification_metrics(probabilities, labels, CLASSES)
        told = withhold_small_counts([{**row, "split": "test"} for row in rows])
        metrics += [{"round": federation.round, "site": site, **row} for row in told]
        found = AnswerCounts.of_one_answer(probabilities, labels)
        if found:
            further = _further_counts(federation, probabilities, labels, is_woman)
            counts.append({"round": federation.round, "site": site, **found.to_wire(), **further})
    trained = sites[federation.lazy :]
    if federation.external:
        none = {"round": 1, "split": "train", "value": 0, "n": 0}
        metrics += [
            {**none, "site": site, "name": name}
            for site in sites[: federation.lazy]
            for name in ("labelled", "unlabelled")
        ]
    exchange = {"round": 1, "seconds": 1.0, "asked": sites, "replied": trained, "failed": {}}
    exchange |= {"bytes_down": 0, "bytes_up": 0, "peer_models": 0}
    head = {"format": 3, "id": "0" * 32, "method": "fedavg", "engine": "local", "seed": 1}
    head |= {"sites": sites, "started": "2026-11-21", "status": "finished", "versions": {}}
    data = {"name": "letters", "classes": CLASSES, "image_size": 32, "channels": 3}
    head["experiment"] = {"method": "fedavg", "data": data, "key_metric": "accuracy"}
    if federation.leaks:
        leaks = {
            "in_several_splits": federation.leaks,
            "in_training_and_test": federation.tested_leaks,
        }
        head["leaks"] = {"patient": leaks}
    head["synthetic"] = dict.fromkeys(sites, federation.synthetic)
    (folder / "run.json").write_text(json.dumps(head))
    logs = {"metrics": metrics, "binned": counts, "rounds": [exchange]}
    for name, rows in logs.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return Run.load(folder), right, evaluated


def _further_counts(
    federation: Federation,
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    is_woman: NDArray[np.bool_],
) -> dict[str, Any]:
    """Return what a site sends of sexes and patients, if it names them."""
    inside, is_right = ONE_LABEL.right_by_class(probabilities, labels)
    names = [f"{number}" for number in range(len(labels))]
    owners = [f"{number // federation.images_of_a_patient}" for number in range(len(labels))]
    counts: dict[str, Any] = {}
    if federation.women is not None:
        sexes = [("women",) if woman else ("men",) for woman in is_woman]
        columns = {"sex": ("women", "men", "diverse")}
        by_sex = subgroup_counts(columns, sexes, names, owners, inside, is_right)
        counts["subgroups"] = [column.to_wire() for column in by_sex]
    if federation.images_of_a_patient > 1:
        clusters = ClusterCounts.of_answers(owners, inside, is_right, exclusive=True)
        counts["clusters"] = clusters.to_wire()
    return counts


def _card(run: Run, round_: int) -> str:
    """Return the model card of the round that is judged."""
    run.folder.joinpath("audit.jsonl").write_text("{}\n")
    data = DataSpec(name="letters", classes=CLASSES, titles={})
    model = TrainedModel(Linear(1, 1), tiny("fedavg", data=data), "0" * 64)
    return ModelCard(model, run, round_).text()


def _counted(images: int) -> str:
    """Return a number of images as a model card has it."""
    return f"{images}" if images >= 5 else "fewer than 5"


def _check_card(verdict: Verdict, card: str) -> None:
    """All shares of the card's tables are the verdict's, in the verdict's order."""
    assert in_short.lead(verdict) in card
    rows = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    overall = verdict.overall
    assert overall
    expected = [("all", overall)]
    expected += [(f"class {one.name}", one) for one in verdict.parts]
    expected += [(f"site {one.name}", one) for one in verdict.sites]
    expected += [(f"group {group.title}", group.measured) for group in verdict.subgroups]
    start = next(place for place, row in enumerate(rows) if row[0] == "all")
    for (name, share), row in zip(expected, rows[start:], strict=False):
        assert share.low is not None
        assert share.high is not None
        ends = f"{100 * share.low:.1f} to {100 * share.high:.1f} %"
        assert row[:4] == [name, _counted(share.n), f"{100 * share.value:.1f} %", ends]
    assert ("not tested | not tested" in card) == (not verdict.subgroups)
    # The other tables have the same images and the same values by site.
    sites = {site.name: site for site in verdict.sites}
    images = {row[0]: row[4] for row in rows[:start] if row[0] in sites and len(row) == 5}
    values = {row[0]: row[1] for row in rows[start:] if row[0] in sites}
    assert images == {name: _counted(site.n) for name, site in sites.items()}
    assert values == {name: f"{site.value:.3f}" for name, site in sites.items()}


def against(low: float, high: float) -> Against:
    """Return a difference from another run, with its interval."""
    return Against("other", "accuracy", Interval((low + high) / 2, 0.1, low, high, 5))


def women(expected: float) -> Subgroup:
    """Return a group of which 50 to 70 of 100 are right, with what is expected of it."""
    return Subgroup("sex", Measured("women", 0.6, 0.5, 0.7, 90), expected, (), ("s0",))


@given(FEDERATIONS)
@example(Federation([[40, 40, 40, 40]], 9.0, synthetic=False, lazy=0, absent=0, seed=0))
@example(Federation([[200, 200, 200, 5]], 9.0, synthetic=False, lazy=0, absent=0, seed=0))
@example(Federation([[40, 40, 40, 0]], 9.0, synthetic=False, lazy=0, absent=0, seed=0))
@example(Federation([[0, 0, 0, 2]], 9.0, synthetic=True, lazy=0, absent=0, seed=0))
@example(Federation([[0, 0, 0, 2]], 9.0, synthetic=True, lazy=0, absent=0, seed=0, round=0))
@example(Federation([[40] * 4] * 2, 9.0, synthetic=False, lazy=1, absent=0, seed=0, external=True))
@example(Federation([[40] * 4] * 2, 9.0, synthetic=False, lazy=0, absent=0, seed=0, round=0))
@example(Federation([[90] * 4] * 2, 9.0, False, 0, 0, 0, women=0.5, fewer_women=0.9))
@settings(max_examples=15, deadline=None)
def test_no_two_statements_contradict(federation: Federation) -> None:
    with TemporaryDirectory() as folder:
        run, right, evaluated = write(Path(folder), federation)
        verdict = judge(run)
        page = re.sub("<style>.*?</style>|<.*?>", " ", render_sheet(run), flags=re.DOTALL)
        sheet = html.unescape(" ".join(page.split()))
        card = _card(run, federation.round)
    if verdict is None:
        # Images of a class with fewer than five are evaluated, and not told.
        why = "It was not measured on test images"
        if evaluated:
            why = "No class has five test images at a site"
        assert why in sheet
        assert why in card
        return
    overall = verdict.overall
    assert overall is not None
    # All statements are of the same images.
    assert (overall.right, overall.n, verdict.tested.images) == (right, evaluated, evaluated)
    for parts in (verdict.parts, verdict.sites):
        assert sum(part.n for part in parts) == evaluated
        assert sum(part.right for part in parts) == right
        assert parts[0].value <= overall.value + 1e-12
        assert parts[-1].value >= overall.value - 1e-12
    assert verdict.confidence is not None or any(
        sum(images) and max(images) < 5 for images in federation.images
    )
    if verdict.confidence:
        assert (verdict.confidence.total, verdict.confidence.right.sum()) == (evaluated, right)
    _check_levels(verdict)
    _check_subgroups(federation, verdict, sheet)
    _check_sheet(verdict, sheet)
    _check_card(verdict, card)
    assert ("model before training with fedavg, which no round improved" in card) == (
        federation.round == 0
    )


def verdict_of(federation: Federation) -> Verdict:
    with TemporaryDirectory() as folder:
        run, _, _ = write(Path(folder), federation)
        verdict = judge(run)
    assert verdict is not None
    return verdict


def test_counts_that_a_site_lacks_change_no_baseline_and_blame_no_class() -> None:
    """The commonest class is that of all sites, and another site may recognise what one misses."""
    federation = Federation([[400, 40, 40, 40], [40, 40, 40, 40]], -0.2, False, 0, 0, seed=3)
    with TemporaryDirectory() as folder:
        run, _, images = write(Path(folder), federation)
        whole = judge(run)
        counts = run.folder / "binned.jsonl"
        first, second = map(json.loads, counts.read_text().splitlines())
        # As if no answer there named D.
        second["found"][3] = second["mistaken"][3] = 0
        counts.write_text(f"{json.dumps(second)}\n")
        partial = judge(Run.load(run.folder))
    assert first["site"] != second["site"]
    assert whole
    assert partial
    assert partial.common == whole.common == Measured.of_counts("A", 440, images)
    assert (partial.level, partial.tested) == (whole.level, whole.tested)
    assert partial.unnamed is None
    assert (partial.never, partial.missed) == ((), {})


GOOD = Federation([[90] * 4], 9.0, synthetic=False, lazy=0, absent=0, seed=0)


@pytest.mark.parametrize(
    ("level", "changes"),
    [
        ("mixed", {"never": ("A",)}),
        ("mixed", {"missed": {"A": 9}}),
        ("mixed", {"classes": (Measured.of_counts("A", 4, 9),)}),
        ("good", {"classes": (Measured.of_counts("A", 5, 10),)}),
        ("mixed", {"guessed": ("A",)}),
        ("mixed", {"alarms": ("A",)}),
        ("mixed", {"unimproved": True}),
        ("mixed", {"leaks": {"picture": Leaks(in_several_splits=2, in_training_and_test=1)}}),
        ("good", {"leaks": {"picture": Leaks(in_several_splits=2, in_training_and_test=0)}}),
        ("mixed", {"compared": (against(-0.3, -0.1),)}),
        ("good", {"compared": (against(-0.3, 0.1),)}),
        ("mixed", {"subgroups": (women(expected=0.9),)}),
        ("good", {"subgroups": (women(expected=0.6),)}),
        ("poor", {"exclusive": False, "auroc": over_sites([0.5], "auroc_macro")}),
    ],
)
def test_a_single_exception_makes_a_good_model_mixed(level: Level, changes: dict[str, Any]) -> None:
    good = verdict_of(GOOD)
    assert good.level == _level(good) == "good"
    assert _level(replace(good, **changes)) == level


@pytest.mark.parametrize(
    ("luck", "said"),
    [
        (0.05, "Of no use: worse than guessing"),
        (0.15, "Not shown to be better than guessing"),
    ],
)
def test_findings_are_worse_than_guessed_only_beyond_luck(luck: float, said: str) -> None:
    auroc = over_sites([0.4, 0.4], "auroc_macro")
    verdict = replace(verdict_of(GOOD), exclusive=False, level="poor", auroc=auroc, luck=luck)
    assert in_short.lead(verdict) == f"{said}."


def test_images_of_patients_are_worth_fewer_in_every_interval() -> None:
    """Of three images each, all of them right: 45 are worth 13, and 180 are worth 58."""
    images = [[45] * 4] * 2
    verdict = verdict_of(Federation(images, 9.0, False, 0, 0, 0, images_of_a_patient=3))
    for shares, n, worth in (
        ([verdict.overall], 360, 2 * 58),
        (verdict.sites, 180, 58),
        (verdict.classes, 90, 2 * 13),
    ):
        for share in shares:
            assert share
            assert (share.value, share.n) == (1, n)
            assert share.low == pytest.approx(proportion_interval(1.0, worth)[0])


def test_a_site_guesses_among_the_classes_that_it_has() -> None:
    """Right for two of five images: that is better than guessing among four, not among two."""
    two = verdict_of(Federation([[40, 40, 0, 0], [0, 0, 40, 40]] * 3, 0.6, False, 0, 0, 0))
    four = verdict_of(Federation([[40] * 4] * 6, 0.6, False, 0, 0, 0))
    for verdict in (two, four):
        assert all(1 / 4 < site.value < 1 / 2 for site in verdict.sites)
    assert (two.tells_apart, four.tells_apart) == (False, True)


def test_one_site_tells_classes_apart_by_the_whole_interval() -> None:
    """The interval is that of Zou and Donner for the mean of the four sensitivities."""
    seen = set()
    for seed in range(12):
        verdict = verdict_of(Federation([[9] * 4], 0.3, False, 0, 0, seed))
        mean = sum(one.value for one in verdict.classes) / 4
        below = sum((one.value - (one.low or 0)) ** 2 for one in verdict.classes) ** 0.5 / 4
        assert verdict.tells_apart == (mean - below > 1 / 4)
        seen.add((mean > 1 / 4, verdict.tells_apart))
    assert seen >= {(True, True), (True, False)}


def test_several_sites_tell_classes_apart_by_the_interval_over_sites() -> None:
    """Sites have equally many images of each of four classes."""
    seen = set()
    for seed in range(12):
        verdict = verdict_of(Federation([[9] * 4] * 3, 0.3, False, 0, 0, seed))
        gain = mean_and_interval([site.value - 1 / 4 for site in verdict.sites])
        assert gain.low is not None
        assert verdict.tells_apart == (gain.low > 0)
        seen.add((gain.mean > 0, verdict.tells_apart))
    assert seen >= {(True, True), (True, False)}


def test_what_to_refer_allows_for_images_of_patients() -> None:
    """Of 1000 images 800 are answered rightly and surely.

    Their interval begins at 0.995, or where they are worth 40 at 0.912.
    """
    confidence = np.repeat([0.6, 0.97], [200, 800])
    answers = ConfidenceHistogram.of_answers(confidence, np.arange(1000) >= 100)
    for effect, shares in ((1.0, [0.2, 0.2]), (20.0, [0.2, None])):
        verdict = replace(verdict_of(GOOD), confidence=answers, design_effect=effect)
        assert [wanted for wanted, _ in verdict.referred] == [0.9, 0.95]
        for (_, share), expected in zip(verdict.referred, shares, strict=True):
            assert share == (expected and pytest.approx(expected))


def test_an_alarm_is_a_class_named_for_more_than_half_of_the_images_without_it() -> None:
    """A for 5 of 10 such images, and B for 6 of 10."""
    shown = np.zeros((20, 2), np.int64)
    shown[:10] = 1
    probabilities = np.full((20, 2), 0.9)
    probabilities[15:, 0] = probabilities[16:, 1] = 0.1
    counts = AnswerCounts.of_each_class(probabilities, shown)
    assert counts
    row = BinnedRow(round=1, site="a", **counts.to_wire())
    assert SiteCounts(("A", "B"), [row]).false_for_most == ("B",)


def test_one_image_is_in_the_singular() -> None:
    verdict = verdict_of(Federation([[90] * 4], 9.0, synthetic=False, lazy=0, absent=0, seed=0))
    image = Measured.of_counts("A", 1, 1)
    one = replace(verdict, overall=image, classes=(image,))
    assert in_short.line(one).startswith("Right for 100.0 % of 1 test image.")
    assert "it finds 100.0\u00a0% of the 1 test image of A " in in_percent.weakest(one)


@pytest.mark.parametrize(("right", "named"), [(880, 90), (920, 95)])
def test_the_surest_answers_are_right_for_no_fewer_than_all_answers(right: int, named: int) -> None:
    verdict = verdict_of(Federation([[90] * 4], 9.0, synthetic=False, lazy=0, absent=0, seed=0))
    # Nothing tells right answers from wrong ones, so no share of the surest ones is better.
    confidence = ConfidenceHistogram.of_answers(np.full(1000, 0.97), np.arange(1000) < right)
    overall = Measured.of_counts("", right, 1000)
    advised = advice.ask_human(replace(verdict, overall=overall, confidence=confidence))
    assert f"not even its surest answers are shown to be right for {named} of 100" in advised


def test_a_better_model_never_needs_more_of_a_human() -> None:
    """Of 1000 images it is less sure of 200, to which all its wrong answers belong."""
    verdict = verdict_of(Federation([[90] * 4], 9.0, synthetic=False, lazy=0, absent=0, seed=0))
    found = tuple(Measured.of_counts(name, 250, 250) for name in "ABCD")
    confidence = np.repeat([0.6, 0.97], [200, 800])
    to_read = []
    for right in range(900, 1001, 5):
        answers = ConfidenceHistogram.of_answers(confidence, np.arange(1000) >= 1000 - right)
        one = replace(
            verdict,
            level="good",
            classes=found,
            overall=Measured.of_counts("", right, 1000),
            confidence=answers,
            design_effect=1.0,
        )
        advised = advice.ask_human(one)
        share = re.match(r"Ask a human about the (\d+) of 100", advised)
        if advised.startswith("Ask a human about every"):
            to_read.append(100)
        else:
            to_read.append(int(share[1]) if share else 0)
    assert to_read == sorted(to_read, reverse=True)
    assert (to_read[0], to_read[-1]) == (20, 0)


def test_a_group_that_is_worse_off_is_named_beside_a_weak_finding() -> None:
    federation = Federation([[90] * 4] * 2, 9.0, False, 0, 0, 0, women=0.5, fewer_women=0.9)
    weak = Measured.of_counts("A", 3, 90)
    verdict = replace(verdict_of(federation), level="mixed", exclusive=False, classes=(weak,))
    assert [one.title for one in verdict.low_subgroups] == ["women (sex)"]
    assert reasons.why_ask_always(verdict) == "it finds less in women (sex)"
    assert "it finds fewer than half of the images of A (3 of 90)" in in_short.lead(verdict)


def test_the_picture_says_that_groups_leave_classes_out() -> None:
    """All groups may be right more often than the model is on all images."""
    without = Federation([[90] * 4] * 2, 9.0, False, 0, 0, 0)
    caption = "not with the other rows"
    for federation, has_groups in ((without, False), (without._replace(women=0.5), True)):
        forest = Forest.of(verdict_of(federation), "the model")
        assert forest
        assert (caption in forest.caption) == has_groups


def test_classes_of_few_patients_are_named_as_the_reason_for_wide_intervals() -> None:
    """Of three images each: 9 images are of three patients, 40 are of fourteen."""
    counts = [[9, 40, 40, 40], [40, 40, 9, 40]]
    federation = Federation(counts, 9.0, False, 0, 0, 0, images_of_a_patient=3)
    verdict = verdict_of(federation)
    assert verdict.classes_of_few_patients == ("A", "C")
    assert coverage.about_images(verdict) == (
        "They allow for patients and lesions with several images. They are wide where a site "
        "tested fewer than five patients of a class, whose images count as one: A, C."
    )
    many = verdict_of(federation._replace(images=[[40] * 4]))
    assert many.classes_of_few_patients == ()
    assert "count as one" not in coverage.about_images(many)


@pytest.mark.parametrize(
    ("level", "right", "images", "said"),
    [
        (
            "good",
            900,
            1000,
            "On the whole yes: on average it is 90\u00a0% sure, and is right for 90",
        ),
        ("good", 990, 1000, "No, it is right more often than it is sure: "),
        ("mixed", 700, 1000, "No, it is surer than it is right: "),
        ("mixed", 18, 20, "There are too few test images to say: on average it is 90\u00a0% sure"),
        # The interval is wider than 0.05, and not than 0.1.
        ("mixed", 216, 240, "On the whole yes: "),
        # A model that always answers one class is as sure as it is right.
        ("poor", 900, 1000, "No, as it is not shown to be of use: "),
    ],
)
def test_confidence_is_trusted_as_far_as_the_answers_show(
    level: Level, right: int, images: int, said: str
) -> None:
    verdict = verdict_of(Federation([[90] * 4], 9.0, synthetic=False, lazy=0, absent=0, seed=0))
    confidence = ConfidenceHistogram.of_answers(np.full(images, 0.9), np.arange(images) < right)
    overall = Measured.of_counts("", right, images)
    one = replace(verdict, level=level, overall=overall, confidence=confidence)
    assert trust.sentence(one).startswith(said)


def test_confidence_that_is_right_on_average_alone_is_not_trusted() -> None:
    """Half of the answers are too sure by 0.2, and the others too unsure by 0.2."""
    verdict = verdict_of(Federation([[90] * 4], 9.0, synthetic=False, lazy=0, absent=0, seed=0))
    sure = np.repeat([0.95, 0.55], 1000)
    is_right = np.concatenate([np.arange(1000) < 750, np.arange(1000) < 750])
    confidence = ConfidenceHistogram.of_answers(sure, is_right)
    assert confidence.calibration_error == pytest.approx(0.2)
    overall = Measured.of_counts("", 1500, 2000)
    one = replace(verdict, level="mixed", overall=overall, confidence=confidence)
    assert trust.sentence(one).startswith("Only as a whole, ")


def test_one_class_and_one_site_are_in_the_singular() -> None:
    federation = Federation([[40, 40, 40, 0]] * 3, 9.0, False, lazy=1, absent=1, seed=0)
    one = verdict_of(federation)
    assert in_short.lead(one) == (
        "Better than always answering “A”, but it was not tested for D; not every site trained it; "
        "it was not tested at every site."
    )
    assert "Not tested: D (1 of 4 classes). Images of this class are in" in coverage.not_tested(one)
    assert coverage.took_no_part(one) == (
        "1 of 3 sites never trained (s0): the model has seen none of its images. 1 of 3 sites did "
        "not evaluate the model (s0): its images are in no number."
    )
    two = verdict_of(federation._replace(images=[[40, 40, 0, 0]] * 3, lazy=2, absent=2))
    assert "Images of these classes are in no number" in coverage.not_tested(two)
    assert "none of their images" in coverage.took_no_part(two)
    assert "(s0, s1): their images are in no number" in coverage.took_no_part(two)


def test_images_of_an_untested_finding_are_tested_for_the_others() -> None:
    federation = Federation([[40, 40, 40, 0]] * 2, 9.0, False, 0, 0, 0)
    verdict = replace(verdict_of(federation), exclusive=False)
    assert coverage.not_tested(verdict) == (
        "Not tested: D (1 of 4 classes). No number says how often it finds this class."
    )


def _check_levels(verdict: Verdict) -> None:
    """A good verdict leaves nothing out; a straddling interval shows nothing."""
    lead = in_short.lead(verdict)
    overall, common = verdict.overall, verdict.common
    assert overall
    assert common
    assert overall.low is not None
    assert overall.high is not None
    is_shown = not overall.low <= common.value <= overall.high
    assert ("ot shown to be" in lead) == (not is_shown)
    assert lead.startswith("Better than") == (overall.low > common.value)
    tested = verdict.tested
    if verdict.level == "good":
        assert tested.complete
        assert lead.startswith("Better than")
        assert ", but" not in lead
        assert min(part.value for part in verdict.parts) >= 0.5
        assert verdict.round > 0
    trained = {*tested.trained, *tested.without_training_images}
    assert tested.complete == (
        not (tested.untested or tested.partly or tested.unnamed)
        and len(trained) == len(tested.evaluated) == len(tested.sites)
    )


def _check_advice(verdict: Verdict, sheet: str) -> None:
    """A human reads every image unless all classes were tested and none is missed."""
    advised = advice.ask_human(verdict)
    assert advised in sheet
    always = advised.startswith("Ask a human about every image: ")
    fails = verdict.never or verdict.missed or verdict.weak or verdict.level == "poor"
    fails = fails or verdict.low_subgroups
    if fails or verdict.tested_on_training or not verdict.tested.all_classes:
        assert always
    at_most = re.search(r"surest answers are shown to be right for (\d+) of 100", advised)
    if at_most:
        assert verdict.overall
        assert (verdict.overall.low or 0) < int(at_most[1]) / 100
    # A number of images to read stands under no other advice.
    assert ("If a human reads the" in sheet) <= advised.startswith("Ask a human about the ")
    for wanted, share in verdict.referred if not reasons.why_ask_always(verdict) else ():
        if share is not None:
            part = of_hundred(share)
            right = f"it is right for at least {wanted * 100:.0f} of 100 of the others"
            advised = f"Ask a human about the {part} of 100 images that it is least sure about: "
            other = f"If a human reads the {part} of 100 images that it is least sure about, "
            # Each share is said once: in the advice, or below it.
            assert [f"{advised}{right}" in sheet, f"{other}{right}" in sheet].count(True) == 1
    if "not shown to be right for 95" in advised:
        assert verdict.overall
        assert (verdict.overall.low or 0) < 0.95
    assert advised.startswith("Images like the tested ones need no human") == verdict.needs_no_human
    # A few images of a rare class do not show that it is found.
    if verdict.is_right_enough:
        unsure = [one for one in verdict.classes if one.low is None or one.low < 0.9]
        assert verdict.needs_no_human == (not unsure)
        assert ("it is not shown to find 90 of 100 images of" in advised) == bool(unsure)


def _check_subgroups(federation: Federation, verdict: Verdict, sheet: str) -> None:
    """Groups are parts of what was evaluated, and the worst one is said if it is below."""
    groups = verdict.subgroups
    assert not groups or federation.women is not None
    assert sum(group.measured.n for group in groups) <= verdict.tested.images
    by_class = {one.name: one for one in verdict.classes}
    for group in groups:
        whole = group.measured
        assert (whole.n, whole.right) == (
            sum(one.n for one in group.classes),
            sum(one.right for one in group.classes),
        )
        assert group.classes[0].value <= whole.value <= group.classes[-1].value
        assert all(one.n <= by_class[one.name].n for one in group.classes)
        assert all(one.right <= by_class[one.name].right for one in group.classes)
        assert 0 <= group.expected <= 1
        assert whole.low is not None
        assert whole.high is not None
        assert whole.low <= whole.value <= whole.high
        assert group.is_below == (whole.high < group.expected)
    shortfalls = [group.shortfall for group in groups]
    assert shortfalls == sorted(shortfalls, reverse=True)
    named = {"women (sex)", "men (sex)", "diverse (sex)"} if federation.women is not None else set()
    has_counts = bool(verdict.classes)
    assert {*verdict.untested_subgroups} == (
        named - {group.title for group in groups} if has_counts else set()
    )
    if has_counts and named:
        assert "diverse (sex)" in sheet.partition("Groups without numbers")[2]
    worst = verdict.worst_subgroup
    is_below = bool(worst and worst.is_below)
    assert ("Worst group:" in sheet) == is_below
    assert ("is right less often for" in in_short.lead(verdict)) == bool(verdict.low_subgroups)
    assert not verdict.low_subgroups or verdict.level != "good"
    assert ("counted as independent" in sheet) == (
        len(verdict.clustered_sites) < len(verdict.tested.evaluated)
    )
    if federation.images_of_a_patient > 1 and has_counts:
        overall = verdict.overall
        assert overall
        independent = Measured.of_counts("", overall.right, overall.n)
        assert overall.low is not None
        assert independent.low is not None
        assert overall.low <= independent.low


def _check_sheet(verdict: Verdict, sheet: str) -> None:
    assert in_short.lead(verdict) in sheet
    assert for_clinicians.numbers(verdict) in sheet
    assert ("need no human" in sheet) == verdict.needs_no_human
    _check_advice(verdict, sheet)
    if verdict.tested_on_training or not verdict.tested.complete:
        assert verdict.level != "good"
        assert not verdict.needs_no_human
    is_trained = bool(verdict.tested_on_training)
    assert ("in both training and test: the numbers are too good" in sheet) == is_trained
    assert ("test patients are also in training" in in_short.lead(verdict)) == is_trained
    assert ("None is in both training and test" in sheet) == (bool(verdict.leaks) > is_trained)
    for name in verdict.tested.untested:
        assert name in sheet.partition("Not tested: ")[2].partition(".")[0]
    assert f"tested on {verdict.tested.images} images" in sheet
    trained = len(verdict.tested.trained)
    of_all = f" of {len(verdict.tested.sites)}" if trained < len(verdict.tested.sites) else ""
    is_trained = verdict.round > 0 and trained > 0
    assert not is_trained or f"It was trained at {trained}{of_all} site" in sheet
    assert ("no round of training improved it" in sheet) == (verdict.round == 0)
    strangers = set(verdict.tested.evaluated) - set(verdict.tested.trained)
    told = "tested at the sites that trained it" in sheet
    assert not is_trained or told == (not strangers)
