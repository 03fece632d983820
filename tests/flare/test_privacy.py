"""The noise filter: what it adds, what it refuses, and what it says it spent."""

import json
import math
import sys

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.filter import FilterContextKey, FilterSource
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.private.privacy_manager import Scope
from scipy import stats

from fedward.errors import ConfigError, WireError
from fedward.flare.privacy import GaussianUpdateFilter, privatise
from fedward.flare.shareables import pack_answer, pack_request, unpack
from fedward.protocol.norms import norm
from fedward.protocol.wire import Message, encode_update
from fedward.security.privacy_budget import epsilon

DELTA = 1e-5
META = {
    "site": "site-1",
    "round": 4,
    "labelled": 3,
    "unlabelled": 5,
    "steps": 7,
    "train": {"loss": 0.5},
}
DRAWS = 200_000
TAIL = 1e-6


class Engine:
    """As much of FLARE's engine as a filter asks for: a workspace with a root."""

    def __init__(self, root):
        self.root = root

    def get_workspace(self):
        return self

    def get_root_dir(self):
        return str(self.root)


@pytest.fixture
def context(tmp_path):
    fl_ctx = FLContext()
    fl_ctx.set_prop(ReservedKey.ENGINE, Engine(tmp_path), private=True)
    fl_ctx.set_prop(ReservedKey.RUN_NUM, "job-1", private=False)
    fl_ctx.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=False)
    return fl_ctx


@pytest.fixture
def ledger(tmp_path):
    file = tmp_path / "fedward" / "privacy-site-1.jsonl"
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


def update(scale=1.0):
    generator = np.random.default_rng(1)
    return {
        "diff/weight": (scale * generator.standard_normal((3, 4))).astype(np.float32),
        "diff/bias": np.float32([3.0]),
    }


def answer(**changes):
    shareable = pack_answer({**META, **changes}, update())
    shareable.set_header(ReservedHeaderKey.PEER_CTX, FLContext())  # as FLARE does before it filters
    return shareable


def noise_filter(clip=1.0, noise_multiplier=2.0, max_epsilon=20.0):
    scope = Scope()
    scope.add_task_result_filter(
        GaussianUpdateFilter(clip, noise_multiplier, DELTA, max_epsilon), "out"
    )
    return scope.task_result_filters["out"][0]  # as one of privacy.json


# --- clipping and noise


def test_clipping_is_over_all_tensors_together():
    """|(3, 4)| = 5 over two tensors: clipped to 1 they are 0.6 and 0.8; a smaller norm stays."""
    arrays = {"a": np.float64([3.0]), "b": np.float64([[4.0]])}
    assert norm(arrays) == 5.0
    clipped = privatise(arrays, 1.0, 1e-300)
    assert clipped["a"] == pytest.approx([0.6], rel=1e-15)
    assert clipped["b"] == pytest.approx(np.array([[0.8]]), rel=1e-15)
    for clip in (5.0, 7.0):
        assert all(
            np.array_equal(privatise(arrays, clip, 1e-300)[name], arrays[name]) for name in arrays
        )


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_the_norm_neither_overflows_nor_vanishes(size):
    arrays = {"a": np.full(4, size, np.float32), "b": np.full((2, 6), size, np.float32)}
    assert norm(arrays) == pytest.approx(4 * size, rel=1e-6)
    assert norm(privatise(arrays, size, 1e-300)) == pytest.approx(size, rel=1e-6)


def test_an_update_of_zeros_and_odd_shapes():
    arrays = {
        "a": np.zeros((2, 3), np.float32),
        "scalar": np.float32(0).reshape(()),
        "empty": np.zeros((0, 2), np.float16),
    }
    noisy = privatise(arrays, 1.0, 1.0)
    assert {name: (array.shape, array.dtype) for name, array in noisy.items()} == {
        name: (array.shape, array.dtype) for name, array in arrays.items()
    }
    assert np.all(noisy["a"] != 0)


def accepts(noise, sigma):
    """Return whether noise of mean 0 may have this sigma.

    The sum of (x / sigma)^2 is chi-square with one degree of freedom for each draw.
    """
    statistic = np.square(noise / sigma).sum()
    return stats.chi2.ppf(TAIL / 2, len(noise)) <= statistic <= stats.chi2.isf(TAIL / 2, len(noise))


@pytest.fixture(scope="module")
def noise():
    """Return what is added to zeros by clip 0.5 and multiplier 3, thus sigma 1.5.

    Half of the numbers are in each of two tensors.
    """
    arrays = {"a": np.zeros((DRAWS // 4, 2), np.float32), "b": np.zeros(DRAWS // 2, np.float32)}
    noisy = privatise(arrays, 0.5, 3.0)
    return np.concatenate([noisy["a"].ravel(), noisy["b"]]).astype(np.float64)


def test_the_noise_has_the_scale_that_is_accounted(noise):
    assert len(noise) == DRAWS
    assert accepts(noise, 1.5)
    assert not any(accepts(noise, 1.5 * factor) for factor in (0.5, 0.98, 1.02, 2.0))


def test_the_noise_is_gaussian_and_its_parts_are_independent(noise):
    assert stats.kstest(noise / 1.5, "norm").pvalue > TAIL
    assert abs(noise.mean()) / 1.5 < stats.norm.isf(TAIL / 2) / math.sqrt(DRAWS)
    first, second = noise.reshape(2, -1)
    quarters = noise.reshape(4, -1)  # within a tensor: the cosine and the sine half
    limit = stats.norm.isf(TAIL / 2)
    for one, other in (
        (first, second),
        (quarters[2], quarters[3]),
        (quarters[2] ** 2, quarters[3] ** 2),
    ):
        assert abs(np.corrcoef(one, other)[0, 1]) < limit / math.sqrt(len(one))


def test_two_filters_never_share_noise(context):
    one = noise_filter()
    other = noise_filter()
    seen = [unpack(each.process(answer(), context))[1]["diff/weight"] for each in (one, other, one)]
    np.random.seed(0)
    first = privatise(update(), 1.0, 1.0)["diff/weight"]
    np.random.seed(0)
    seen += [first, privatise(update(), 1.0, 1.0)["diff/weight"]]
    for index, array in enumerate(seen):
        assert not any(np.array_equal(array, earlier) for earlier in seen[:index])


# --- as a filter


def test_it_filters_what_a_site_answers(context, ledger):
    shareable = noise_filter(clip=0.5).process(answer(), context)
    meta, arrays = unpack(shareable)
    assert meta == META
    assert from_shareable(shareable).data_kind == DataKind.WEIGHT_DIFF
    assert from_shareable(shareable).get_filter_history() == ["GaussianUpdateFilter"]
    before = update()
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == {
        name: (array.shape, array.dtype) for name, array in before.items()
    }
    assert not any(np.array_equal(arrays[name], before[name]) for name in before)
    (row,) = ledger()
    assert row["job"] == "job-1"
    assert row["round"] == 4
    assert row["steps"] == 7
    assert row["releases"] == 1
    assert row["clip"] == 0.5
    assert row["noise_multiplier"] == 2.0
    assert row["sigma"] == 1.0
    assert row["delta"] == DELTA
    assert row["norm"] == pytest.approx(norm(before))


def test_each_site_of_a_simulator_has_a_ledger_of_its_own(context, ledger, tmp_path):
    noise_filter().process(answer(), context)
    context.set_prop(ReservedKey.IDENTITY_NAME, "site-2", private=False)
    noise_filter().process(answer(), context)
    assert len(ledger()) == 1
    assert sorted(path.name for path in (tmp_path / "fedward").glob("*.jsonl")) == [
        "privacy-site-1.jsonl",
        "privacy-site-2.jsonl",
    ]


def test_flare_applies_it_as_a_site_filter(context):
    scope = Scope()
    scope.add_task_result_filter(noise_filter(), "out")
    context.set_prop(FLContextKey.SCOPE_OBJECT, scope, private=True)
    result = apply_filters(Scope.TASK_RESULT_FILTERS_NAME, answer(), context, {}, "fedward", "out")
    assert not np.array_equal(unpack(result)[1]["diff/weight"], update()["diff/weight"])


def test_answers_without_arrays_pass_as_they_are(context, tmp_path):
    for meta in (META, {"site": "site-1", "round": 4, "error": "RunError"}):
        shareable = pack_answer(meta, {})
        assert noise_filter().process(shareable, context) is shareable
        assert unpack(shareable) == (meta, {})
    assert not (tmp_path / "fedward").exists()


def test_an_error_of_flares_passes_without_what_it_carries(context):
    broken = answer()
    broken.set_return_code(ReturnCode.EXECUTION_EXCEPTION)
    passed = noise_filter().process(broken, context)
    assert passed == make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert "DXO" not in passed


def hidden_array():
    shareable = answer()
    shareable["more"] = update()
    return shareable


def with_meta(value):
    return DXO(DataKind.WEIGHT_DIFF, update(), {"extra": value}).to_shareable()


def with_data(value, kind=DataKind.WEIGHT_DIFF):
    return DXO(kind, value, {}).to_shareable()


@pytest.mark.parametrize(
    ("shareable", "found"),
    [
        (pack_request(META, update()), "found WEIGHTS"),
        (with_data({"accuracy": 0.5}, DataKind.METRICS), "found METRICS"),
        (
            with_data({"site": DXO(DataKind.WEIGHT_DIFF, update())}, DataKind.COLLECTION),
            "found COLLECTION",
        ),
        (Shareable({"weights": update()}), "not a valid DXO"),
        (hidden_array(), "also more"),
        (with_meta(np.ones(3)), "not JSON serializable"),
        (with_data({"a": np.float32([1.0, np.nan])}), "NaN or infinity in a"),
        (with_data({"a": np.float32([-np.inf])}), "NaN or infinity in a"),
        (with_data({"a": np.int64([1])}), "a of type int64"),
        (with_data({"a": np.complex64([1])}), "a of type complex64"),
        (with_data({"a": [1.0, 2.0]}), "a of type list"),
        (pack_answer(META, encode_update(Message(META, update())).arrays), "diff of type uint8"),
        (with_data({"a": 1.0, **update()}), "a of type float"),
    ],
)
def test_it_fails_closed(shareable, found, context, tmp_path):
    with pytest.raises(WireError, match=found):
        noise_filter().process(shareable, context)
    assert not (tmp_path / "fedward").exists()


def test_nothing_leaves_if_the_ledger_cannot_be_written(context, tmp_path):
    (tmp_path / "fedward").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="fedward"):
        noise_filter().process(answer(), context)


def test_the_log_tells_epsilon_and_not_the_norm(context, caplog):
    with caplog.at_level("INFO"):
        noise_filter().process(answer(), context)
    assert f"epsilon {epsilon([2.0], DELTA):.4g} at delta 1e-05 after 1 release of" in caplog.text
    assert f"{norm(update()):.3f}"[:5] not in caplog.text


def test_without_the_accountant_no_filter_is_built(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedward\[privacy\]'"):
        noise_filter()


# --- when the budget is used up

TWO = {"noise_multiplier": 4.0, "max_epsilon": 3.5}
"""Noise and budget of which two releases are allowed."""


def errors(shareable):
    meta, arrays = unpack(shareable)
    assert not arrays
    return meta


@pytest.mark.proves(
    "lead",
    "several jobs, or a job's name that leads to another ledger, to spend a privacy budget twice",
    "one budget covers all jobs",
)
def test_the_budget_is_one_for_all_jobs(context, ledger):
    for job in ("job-1", "job-2"):
        context.set_prop(ReservedKey.RUN_NUM, job, private=False)
        assert unpack(noise_filter(**TWO).process(answer(), context))[1]
    for job in ("job-3", "job-4"):
        context.set_prop(ReservedKey.RUN_NUM, job, private=False)
        told = errors(noise_filter(**TWO).process(answer(), context))
        text = "privacy budget used up: epsilon 2.943 of 3.5 at delta 1e-05"
        assert told == {"site": "site-1", "round": 4, "error": text}
    assert [row["job"] for row in ledger()] == ["job-1", "job-2"]
    assert unpack(noise_filter(noise_multiplier=4.0, max_epsilon=8.0).process(answer(), context))[1]


def test_a_stopped_site_still_sends_its_metrics(context):
    noise_filter(**TWO).process(answer(), context)
    noise_filter(**TWO).process(answer(), context)
    metrics = pack_answer({**META, "steps": 0}, {})
    assert noise_filter(**TWO).process(metrics, context) is metrics


@pytest.mark.proves(
    "server",
    "the same round again and again",
    "each answer has new noise and is accounted for",
)
def test_an_answer_that_is_asked_for_again_costs_again(context, ledger):
    noise = noise_filter(**TWO)
    _, first = unpack(noise.process(answer(), context))
    _, second = unpack(noise.process(answer(), context))
    assert not np.array_equal(first["diff/weight"], second["diff/weight"])
    assert "error" in errors(noise.process(answer(), context))
    assert [row["releases"] for row in ledger()] == [1, 2]


@pytest.mark.proves(
    "lead",
    "several jobs, or a job's name that leads to another ledger, to spend a privacy budget twice",
    "one budget covers all jobs",
)
def test_a_job_has_no_say_in_where_the_ledger_is(context, ledger, tmp_path):
    for job in ("../privacy-site-2", "/tmp/x", "site-1.jsonl\x00", "a" * 1000):
        context.set_prop(ReservedKey.RUN_NUM, job, private=False)
        noise_filter().process(answer(), context)
    assert [row["releases"] for row in ledger()] == [1, 2, 3, 4]
    assert [path.name for path in (tmp_path / "fedward").glob("*.jsonl")] == [
        "privacy-site-1.jsonl"
    ]


@pytest.mark.proves(
    "lead",
    "a job that brings the noise filter itself",
    "refused; nothing is spent",
)
def test_a_jobs_own_filter_is_refused(context, tmp_path):
    brought = GaussianUpdateFilter(1.0, 4.0, DELTA, 20.0)
    brought.set_prop(FilterContextKey.SOURCE, FilterSource.JOB)
    with pytest.raises(WireError, match=r"a filter of the site's privacy\.json"):
        brought.process(answer(), context)
    assert not (tmp_path / "fedward").exists()


def test_delta_is_below_one_over_the_images(context):
    with pytest.raises(WireError, match="delta below one over 100000 images"):
        noise_filter().process(answer(labelled=99_000, unlabelled=1_000), context)
    noise_filter().process(answer(labelled=99_000, unlabelled=999), context)
