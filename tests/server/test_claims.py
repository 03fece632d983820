"""Counts that cannot be, or that change in the middle of a run, are refused by name."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedward.config import Experiment
from fedward.errors import WireError
from fedward.lab.local import LocalTransport, Sites
from fedward.methods import settings_of
from fedward.methods.local import Uses
from fedward.methods.settings import Settings
from fedward.methods.steps import most_steps
from fedward.protocol.messages import Answer, LabelCounts
from fedward.protocol.wire import Message
from fedward.registry import METHODS
from fedward.runs.run import Run
from fedward.seeds import Draws
from fedward.server.claims import Claims
from fedward.storage.run_folder import RunFolder
from fedward.training.batches import Pixels, RoundBatches
from running import run_experiment
from tiny import tiny

SITES = ["site-1", "site-2", "site-6"]
KINDS = [
    Uses(),
    Uses(unlabelled="unlabelled"),
    Uses(labelled=False, unlabelled="all"),
    Uses(unlabelled="unlabelled", pace="labelled"),
]


def claims(method: str = "fedavg", **options: Any) -> Claims:
    return Claims(METHODS[method](settings_of(method, options)))


def answer(site: str, labelled: int, unlabelled: int, steps: int = 0, **meta: Any) -> Answer:
    counts = {"labelled": labelled, "unlabelled": unlabelled, "steps": steps}
    return Answer(site=site, round=1, train={}, metrics=[], **counts, **meta)


def request(task: str = "train", round_: int = 1) -> dict[str, Any]:
    return {"task": task, "round": round_}


# --- steps


@settings(deadline=None, max_examples=60)
@given(
    labelled=st.integers(0, 40),
    unlabelled=st.integers(0, 40),
    batch=st.integers(1, 9),
    epochs=st.integers(1, 3),
    most=st.one_of(st.none(), st.integers(1, 50)),
    rounds=st.one_of(st.none(), st.integers(1, 5)),
    uses=st.sampled_from(KINDS),
)
def test_most_steps_are_the_batches_of_a_phase(
    labelled, unlabelled, batch, epochs, most, rounds, uses
):
    chosen = Settings(
        batch=batch,
        local_epochs=epochs,
        images_at_most=most,
        images_per_round=None if rounds is None else rounds * batch,
    )

    def pixels(count: int) -> Pixels:
        return Pixels(
            torch.zeros(count, 3, 1, 1, dtype=torch.uint8), torch.zeros(count, dtype=torch.int64)
        )

    kinds = {"none": None, "unlabelled": pixels(unlabelled), "all": pixels(labelled + unlabelled)}
    batches = RoundBatches(
        pixels(labelled) if uses.labelled else None,
        kinds[uses.unlabelled],
        [],
        chosen,
        Draws(0),
        ("s", 1),
        uses=uses,
    )
    assert most_steps(uses, chosen, labelled, unlabelled) == len(batches)


def test_steps_by_hand():
    job = claims("fedavg", images_per_round=None, batch=16, local_epochs=2)
    job.check(answer("a", 24, 7, steps=3), request())  # 48 images
    with pytest.raises(WireError, match="steps of b: expected at most 3, found 4"):
        job.check(answer("b", 24, 7, steps=4), request())
    with pytest.raises(WireError, match="steps of c: expected at most 0, found 1"):
        claims("isofed").check(answer("c", 0, 30, steps=1), request("supervised"))
    claims("fedavg", images_per_round=None).check(answer("d", 10_000_000, 0), request())


# --- counts from answer to answer


def test_counts_may_drift_by_a_tenth_and_no_further():
    job = claims("fedprox")
    job.check(answer("a", 60, 40), request("idle"))
    for labelled, unlabelled in ((70, 40), (50, 40), (66, 44), (54, 36)):
        job.check(answer("a", labelled, unlabelled), request("idle"))
    for labelled, unlabelled in ((60, 51), (60, 29), (71, 39), (80, 20), (0, 100)):
        with pytest.raises(WireError, match="images of a: expected about"):
            job.check(answer("a", labelled, unlabelled), request("idle"))
    job.check(answer("b", 0, 100), request("idle"))


def counts(bought: int, **others: int) -> LabelCounts:
    named = {"asked": 0, "waiting": 0, "cannot_tell": 0, "unusable": 0, **others}
    return LabelCounts(bought=bought, **named)


def test_labels_grow_as_far_as_queries_ask():
    """A tenth of 100 at first, a half after two queries: 30 after the first, in round 2."""
    job = claims("fedal", rounds=3, query_every=1, steps=2)
    job.check(answer("a", 10, 90, label_counts=counts(10)), request("train", 1))
    job.check(answer("a", 10, 90), request("idle", 1))
    job.check(answer("a", 30, 70, label_counts=counts(30)), request("query", 2))
    with pytest.raises(WireError, match="labelled images of a: expected at most 30, found 31"):
        job.check(answer("a", 31, 69, label_counts=counts(31)), request("query", 2))
    with pytest.raises(WireError, match="labelled images of a: expected about 0"):
        job.check(answer("a", 50, 50, label_counts=counts(10)), request("query", 3))
    with pytest.raises(WireError, match="bought: expected at most 30"):
        job.check(answer("a", 30, 70, label_counts=counts(31)), request("query", 2))
    for name in ("asked", "waiting", "cannot_tell"):
        job.check(answer("a", 30, 70, label_counts=counts(30, **{name: 100})), request("query", 2))
        one_more = counts(30, **{name: 101})
        with pytest.raises(WireError, match=f"{name}: expected at most 100, found 101"):
            job.check(answer("a", 30, 70, label_counts=one_more), request("query", 2))


def test_a_site_gains_no_weight_by_leaving_out_its_label_counts():
    """Without them, nobody could tell 90 own labels from bought ones."""
    job = claims("fedal", rounds=3, query_every=1, steps=2)
    job.check(answer("a", 10, 90, label_counts=counts(10)), request("train", 1))
    for task, round_ in (("train", 1), ("query", 2)):
        with pytest.raises(WireError, match=r"label counts of a: expected those .*, found none"):
            job.check(answer("a", 90, 10), request(task, round_))


def test_label_counts_have_no_place_where_no_label_is_bought():
    for job, task in ((claims("fedavg"), "train"), (claims("fedal"), "idle")):
        with pytest.raises(WireError, match=r"label counts of a: expected none.*, found some"):
            job.check(answer("a", 10, 90, label_counts=counts(0)), request(task))


# --- in a run


class Lying(LocalTransport):
    """Site 6 says other counts than it has from a round on."""

    def __init__(
        self, experiment: Experiment, folder: Path, lies: dict[str, Any], since: int
    ) -> None:
        super().__init__(Sites(experiment, folder), SITES)
        self._lies = lies
        self._since = since

    def exchange(self, requests: Any, timeout: int, deliver: Any) -> None:
        def forward(site: str, message: Message) -> None:
            if (
                site == "site-6"
                and requests[site].meta["round"] >= self._since
                and "error" not in message.meta
            ):
                message.meta |= self._lies
            deliver(site, message)

        super().exchange(requests, timeout, forward)


@pytest.mark.parametrize(
    ("method", "lies", "since", "named"),
    [
        pytest.param(
            "fedavg",
            {"steps": 2**53 // 10**9},
            1,
            "steps of site-6",
            marks=pytest.mark.proves(
                "site",
                "more steps than the job has, or 2^40 images",
                "refused by the server, by name",
            ),
        ),
        pytest.param(
            "fedprox",
            {"labelled": 5_000_000},
            2,
            "images of site-6",
            marks=pytest.mark.proves(
                "lead",
                "a number of images that jumps between rounds, to gain weight",
                "refused by the server, by name",
            ),
        ),
        pytest.param(
            "fedprox",
            {"labelled": 2**40},
            1,
            "labelled",
            marks=pytest.mark.proves(
                "site",
                "more steps than the job has, or 2^40 images",
                "refused by the server, by name",
            ),
        ),
    ],
)
def test_a_site_lying_about_counts_is_named_and_left_out(tmp_path, method, lies, since, named):
    changes = {"participants": None} if method == "fedavg" else {"warm_up": 0}
    experiment = tiny(method, options={"rounds": 2, **changes})
    run_experiment(experiment, tmp_path / "run", Lying(experiment, tmp_path, lies, since))
    rounds = Run.load(tmp_path / "run").rounds
    for row in rounds:
        assert ("site-6" in row.failed) == (row.round >= since)
        assert row.replied == tuple(site for site in SITES if row.round < since or site != "site-6")
        assert named in row.failed.get("site-6", named)


@pytest.mark.proves(
    "site",
    "more images than a site has, reported from its first answer on",
    "**not covered**: nobody else can count them; the site counts for half of an average at most",
)
def test_a_lie_from_the_first_answer_on_is_believed(tmp_path):
    experiment = tiny("fedprox", options={"rounds": 1, "warm_up": 0})
    lies = {"labelled": 5_000_000}
    run_experiment(experiment, tmp_path / "run", Lying(experiment, tmp_path, lies, 1))
    (row,) = Run.load(tmp_path / "run").groups
    assert row.weights[row.sites.index("site-6")] == pytest.approx(0.5)


@pytest.mark.proves(
    "site",
    "the largest losses that pass the checks",
    "model, best round and report do not depend on them",
)
def test_huge_losses_harm_nothing(tmp_path):
    experiment = tiny("ssfl", options={"rounds": 1, "participants": None})
    for name, lies in (
        ("honest", {}),
        ("lying", {"train": {"loss": 3e38, "kept": -3e38, "seconds": 3e38}}),
    ):
        run_experiment(
            experiment,
            tmp_path / name,
            Lying(experiment, tmp_path / f"{name}-own", lies, 1),
        )
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("honest", "lying")]
    assert models[0] == models[1]
    assert (tmp_path / "lying/report.html").exists()
    assert Run.load(tmp_path / "lying").info.summary == Run.load(tmp_path / "honest").info.summary


def test_a_resumed_run_takes_counts_as_they_are_now(tmp_path):
    experiment = tiny("fedprox", options={"rounds": 2, "warm_up": 0})

    class Interrupted(LocalTransport):
        def exchange(self, requests: Any, timeout: int, deliver: Any) -> None:
            if any(message.meta["round"] == 2 for message in requests.values()):
                raise KeyboardInterrupt
            super().exchange(requests, timeout, deliver)

    with pytest.raises(KeyboardInterrupt):
        run_experiment(
            experiment, tmp_path / "run", Interrupted(Sites(experiment, tmp_path), SITES)
        )
    growing = Lying(experiment, tmp_path, {"labelled": 5_000_000}, 1)
    run_experiment(experiment, tmp_path / "run", growing, resume=True)
    assert Run.load(tmp_path / "run").rounds[-1].failed == {}
    assert RunFolder.reopen(tmp_path / "run").finished


def test_the_last_evaluation_is_after_the_last_round():
    """The method has no task and no learning rate any more by then."""
    claims("selffed", rounds=2, pretraining_rounds=1, pretraining_warm_up=0, warm_up=0).check(
        answer("a", 10, 10), request("idle", 3)
    )
