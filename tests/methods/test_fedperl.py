"""Equations of fedward.methods.fedperl and its policies."""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.anonymous_peers import anonymise
from fedward.methods.fedperl.peer_policies import (
    gated_similarity_policy,
    gated_validation_policy,
    validation_policy,
)
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective, committee_mean, consistency
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fedperl.similarity import layer_moments, similarity
from fedward.methods.local import Batch, RoundInputs
from fedward.methods.peer_choice import random_peers, top_peers
from fedward.methods.pseudo_labels.threshold import pseudo_label

NAN = math.nan
INF = math.inf
grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(2, 5), st.integers(0, 10_000))
"""P peers, N images, K classes, and a seed."""


def random_moments(models: int, features: int, seed: int) -> Tensor:
    return torch.randn(
        models, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def random_probabilities(peers: int, images: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return probabilities of the site (N, K) and of its peers (P, N, K)."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(peers + 1, images, classes, generator=draw, dtype=torch.float64)
    probabilities = logits.softmax(dim=2)
    return probabilities[0], probabilities[1:]


def random_similarity(sites: int, seed: int) -> Tensor:
    """Return a few coarse values, which make ties common.

    They are not symmetric, so that rows and columns cannot be confused.
    """
    return (
        torch.randint(-3, 4, (sites, sites), generator=torch.Generator().manual_seed(seed)).double()
        / 4
    )


class Recorded(Mapping[str, Tensor]):
    """A state that records which tensors are read."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state
        self.read: list[str] = []

    def __getitem__(self, key: str) -> Tensor:
        self.read.append(key)
        return self.state[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.state)

    def __len__(self) -> int:
        return len(self.state)


# --- layer_moments


def test_moments_by_hand() -> None:
    """a = (2) has mean 2, deviation 0; b = (1, 3, 5, 7) has mean 4, deviation sqrt(20/4)."""
    state = {
        "b": torch.tensor([[1.0, 3.0], [5.0, 7.0]]),
        "num_batches_tracked": torch.tensor([100, 300]),
        "a": torch.tensor(2.0),
    }
    moments = layer_moments(state)
    assert moments.dtype == torch.float64
    assert moments.tolist() == pytest.approx([2, 0, 4, math.sqrt(5)], rel=1e-15)


@grid
@given(
    values=st.dictionaries(
        st.text("abc.", min_size=1, max_size=3),
        st.lists(st.floats(-1e3, 1e3, width=16), min_size=1, max_size=8),
        min_size=1,
        max_size=4,
    ),
    dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]),
)
def test_moments_equal_a_loop(values: dict[str, list[float]], dtype: torch.dtype) -> None:
    expected = []
    for key in sorted(values):
        mean = math.fsum(values[key]) / len(values[key])
        variance = math.fsum((value - mean) ** 2 for value in values[key]) / len(values[key])
        expected += [mean, math.sqrt(variance)]
    moments = layer_moments(
        {key: torch.tensor(value, dtype=dtype) for key, value in values.items()}
    )
    assert moments.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-11)


def test_moments_are_computed_in_float64() -> None:
    """(2^24, 2^24 + 2, ...): deviation 1, and a mean of 2^24 + 1, which float32 cannot hold.

    Half precision must not overflow.
    """
    moments = layer_moments({"w": torch.tensor([2.0**24, 2.0**24 + 2]).repeat(50)})
    assert moments.tolist() == [2.0**24 + 1, 1.0]
    assert layer_moments({"w": torch.full((100,), 60000.0).half()}).tolist() == [60000.0, 0.0]


def test_moments_of_a_net_include_batchnorm_statistics() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = layer_moments(net.state_dict())
    assert before.shape == (2 * 6,)  # weight, bias, weight, bias, running_mean, running_var
    assert not layer_moments(dict(net.named_parameters())).requires_grad
    net(10 + torch.randn(8, 3))
    assert not torch.equal(layer_moments(net.state_dict()), before)


@grid
@given(
    seed=st.integers(0, 1000),
    factor=st.sampled_from([-3.0, 0.5, 8.0]),
    shift=st.sampled_from([-5.0, 0.0, 2.0]),
)
def test_moments_follow_scale_and_shift_and_ignore_order(
    seed: int, factor: float, shift: float
) -> None:
    state = {"a": random_moments(3, 4, seed), "b": random_moments(1, 5, seed + 1)}
    moments = layer_moments(state)
    scaled = layer_moments({name: factor * value + shift for name, value in state.items()})
    torch.testing.assert_close(scaled[0::2], factor * moments[0::2] + shift)
    torch.testing.assert_close(scaled[1::2], abs(factor) * moments[1::2])
    # Another order of names, and of elements.
    mixed = {"b": state["b"].flip(1), "a": state["a"].T.reshape(2, 6)}
    torch.testing.assert_close(layer_moments(mixed), moments)


def test_moments_leave_out_empty_tensors_and_pass_nan_on() -> None:
    state = {
        "a": torch.empty(0),
        "b": torch.tensor([1.0, NAN]),
        "c": torch.ones(2),
        "d": torch.tensor([INF, 0.0]),
    }
    moments = layer_moments(state)
    assert moments[:2].isnan().all()
    assert moments[2:4].tolist() == [1, 0]
    assert not moments[4:].isfinite().any()
    assert moments.shape == (6,)


@pytest.mark.parametrize("state", [{}, {"n": torch.tensor([1, 2])}, {"e": torch.empty(0)}])
def test_moments_of_nothing_are_refused(state: dict[str, Tensor]) -> None:
    with pytest.raises(ConfigError, match="floating-point tensors"):
        layer_moments(state)


def test_moments_read_each_tensor_once() -> None:
    state = Recorded({"b": torch.ones(2), "n": torch.tensor(1), "a": torch.ones(3)})
    layer_moments(state)
    assert state.read == ["a", "b", "n"]


# --- similarity


def test_similarity_by_hand() -> None:
    """Scaled rows (0, 0, 1), (1/2, 1, 1), (1, 0, 1) have norms 1, 3/2, sqrt 2.

    Their inner products are 1, 1, 3/2. The third feature is constant and so becomes 1:
    ω01 = 1/(3/2) = 2/3, ω02 = 1/sqrt 2, ω12 = (3/2)/(3/2 sqrt 2).
    """
    moments = torch.tensor([[0.0, 10.0, 7.0], [5.0, 20.0, 7.0], [10.0, 10.0, 7.0]])
    root = 1 / math.sqrt(2)
    expected = torch.tensor(
        [[1, 2 / 3, root], [2 / 3, 1, root], [root, root, 1]], dtype=torch.float64
    )
    for matrix in (similarity(moments), similarity(moments, scale="minmax")):
        assert matrix.dtype == torch.float64
        torch.testing.assert_close(matrix, expected, rtol=1e-14, atol=0)


def test_unscaled_similarity_by_hand() -> None:
    """(3, 4)·(4, 3) = 24 with norms 5 and 5; the opposite of a model has -1."""
    matrix = similarity(torch.tensor([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0]]), scale="none")
    assert matrix[0].tolist() == pytest.approx([1, 0.96, -1], rel=1e-15)
    assert matrix[1].tolist() == pytest.approx([0.96, 1, -0.96], rel=1e-15)


def loop_similarity(rows: list[list[float]], scale: str) -> list[list[float]]:
    if scale == "minmax":
        columns = []
        for column in zip(*rows, strict=True):
            low = min(column)
            high = max(column)
            columns.append(
                [1.0 if high == low else (value - low) / (high - low) for value in column]
            )
        rows = [list(row) for row in zip(*columns, strict=True)]
    matrix = [[1.0] * len(rows) for _ in rows]
    for m, k in itertools.permutations(range(len(rows)), 2):
        norms = math.hypot(*rows[m]) * math.hypot(*rows[k])
        inner = math.fsum(a * b for a, b in zip(rows[m], rows[k], strict=True))
        matrix[m][k] = inner / norms if norms else float(rows[m] == rows[k])
    return matrix


@grid
@given(
    models=st.integers(1, 6),
    features=st.integers(1, 7),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from(["minmax", "none"]),
    coarse=st.booleans(),
)
def test_similarity_equals_a_loop_and_keeps_its_promises(
    models: int, features: int, seed: int, scale: str, coarse: bool
) -> None:
    moments = random_moments(models, features, seed)
    if coarse:  # constant features, equal rows and zero rows become common
        moments = moments.round()
    matrix = similarity(moments, scale)
    torch.testing.assert_close(
        matrix,
        torch.tensor(loop_similarity(moments.tolist(), scale), dtype=torch.float64),
        rtol=1e-12,
        atol=1e-13,
    )
    assert torch.equal(matrix, matrix.T)
    assert matrix.diagonal().tolist() == [1.0] * models
    assert matrix.abs().max() <= 1
    if scale == "minmax":
        assert matrix.min() >= 0


def test_similarity_degenerate() -> None:
    assert similarity(torch.tensor([[2.0, -1.0]])).tolist() == [[1.0]]
    assert similarity(torch.tensor([[0.0, 0.0]]), scale="none").tolist() == [[1.0]]
    # equal models: all features are constant
    torch.testing.assert_close(
        similarity(torch.tensor([[0.0, 5.0]] * 3)), torch.ones(3, 3, dtype=torch.float64)
    )
    # the lowest in every feature becomes the zero vector, which is similar to no model
    assert similarity(torch.tensor([[0.0, 0.0], [1.0, 2.0]])).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert similarity(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), scale="none").tolist() == [
        [1.0, 0.0],
        [0.0, 1.0],
    ]


@pytest.mark.parametrize("scale", ["minmax", "none"])
def test_equal_models_without_direction_resemble_each_other(scale: str) -> None:
    """Rows 0 and 2 are zero, with minmax because they are the lowest in every feature."""
    matrix = similarity(torch.tensor([[0.0, 0.0], [1.0, 2.0], [-0.0, 0.0]]), scale)
    assert matrix.tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    assert top_peers(matrix[2], 2, 1, [0, 1, 2]) == [0]
    assert top_peers(matrix[0], 0, 1, [0, 1, 2]) == [2]


@grid
@given(seed=st.integers(0, 10_000), order=st.permutations(range(5)))
def test_similarity_follows_the_sites_and_ignores_units(seed: int, order: list[int]) -> None:
    moments = random_moments(5, 6, seed)
    for scale in ("minmax", "none"):
        one = similarity(moments, scale)
        torch.testing.assert_close(
            similarity(moments[order], scale), one[order][:, order], rtol=1e-12, atol=1e-14
        )
    units = torch.tensor([1e-3, 1, 7, 1e4, 0.5, 2])
    origins = random_moments(1, 6, seed + 1)
    torch.testing.assert_close(
        similarity(moments * units + origins), similarity(moments), rtol=1e-9, atol=1e-9
    )
    lengths = torch.tensor([[1e-3], [1], [7], [1e4], [0.5]], dtype=torch.float64)
    torch.testing.assert_close(similarity(moments * lengths, "none"), similarity(moments, "none"))


@pytest.mark.parametrize("scale", ["minmax", "none"])
@pytest.mark.parametrize("seed", range(4))
def test_equal_models_are_equally_similar_to_the_last_bit(seed: int, scale: str) -> None:
    """Ties are then broken by index, on every machine; and rounding lifts no similarity above 1."""
    moments = random_moments(4, 622, seed)
    matrix = similarity(moments[[0, 1, 0, 2, 0, 3, 0]], scale)
    for other in (1, 3, 5):
        assert len(set(matrix[other, [0, 2, 4, 6]].tolist())) == 1
    assert matrix.max() == 1
    opposite = similarity(torch.cat([moments, -moments]), "none")
    assert opposite.min() >= -1


def test_similarity_has_no_gradient_and_leaves_moments_alone() -> None:
    moments = random_moments(3, 4, 0).requires_grad_()
    before = moments.detach().clone()
    assert not similarity(moments).requires_grad
    assert torch.equal(moments.detach(), before)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_similarity_names_the_broken_model(value: float) -> None:
    moments = torch.ones(4, 3)
    moments[2, 1] = value
    with pytest.raises(ConfigError, match="row 2"):
        similarity(moments)


@pytest.mark.parametrize("shape", [(3,), (0, 4), (4, 0), (2, 2, 2)])
def test_similarity_refuses_wrong_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="shape"):
        similarity(torch.ones(shape))


def test_similarity_refuses_unknown_scales() -> None:
    with pytest.raises(ConfigError, match="'zscore'"):
        similarity(torch.ones(2, 2), scale="zscore")  # type: ignore[arg-type]


@grid
@given(
    sites=st.integers(1, 9),
    seed=st.integers(0, 1000),
    scale=st.sampled_from(["none", "minmax"]),
    data=st.data(),
)
def test_rows_of_similarities_are_those_of_the_matrix(
    sites: int, seed: int, scale: Any, data: st.DataObject
) -> None:
    """They are, to the last bit, in the order asked for; two models are equal, one is all zero."""
    moments = random_moments(sites, 6, seed)[[0, *range(sites - 1)]]
    moments[torch.arange(sites) == 3] = 0
    rows = data.draw(st.lists(st.integers(0, sites - 1), max_size=5))
    assert torch.equal(similarity(moments, scale, rows), similarity(moments, scale)[rows])


# --- top_peers


MATRIX = torch.tensor(
    [
        [1.0, 0.2, 0.9, 0.9, -0.5],
        [0.2, 1.0, 0.3, 0.8, 0.1],
        [0.9, 0.3, 1.0, 0.4, 0.6],
        [0.9, 0.8, 0.4, 1.0, 0.7],
        [-0.5, 0.1, 0.6, 0.7, 1.0],
    ]
)


@pytest.mark.parametrize(
    ("site", "committee", "seen", "peers"),
    [
        (0, 2, [0, 1, 2, 3, 4], [2, 3]),  # 0.9 twice: the lower index first
        (0, 1, [4, 3, 2, 1], [2]),
        (0, 3, [0, 1, 2, 3, 4], [2, 3, 1]),
        (0, 9, [0, 1, 2, 3, 4], [2, 3, 1, 4]),  # a negative similarity still counts
        (0, 2, [0, 1, 4], [1, 4]),  # the best ones have not trained yet
        (1, 2, [0, 1, 2, 3, 4], [3, 2]),
        (4, 2, {1, 3, 4}, [3, 1]),
        (4, 2, {3: "model", 0: "model"}, [3, 0]),
        (0, 2, [2, 2, 2, 1], [2, 1]),
        (0, 2, [0], []),
        (0, 2, [], []),
        (0, 0, [1, 2], []),
    ],
)
def test_top_peers_by_hand(
    site: int, committee: int, seen: Collection[int], peers: list[int]
) -> None:
    assert top_peers(MATRIX[site], site, committee, seen) == peers


@grid
@given(
    sites=st.integers(1, 7),
    seed=st.integers(0, 10_000),
    committee=st.integers(0, 8),
    data=st.data(),
)
def test_top_peers_equal_a_loop(sites: int, seed: int, committee: int, data: st.DataObject) -> None:
    matrix = random_similarity(sites, seed)
    site = data.draw(st.integers(0, sites - 1))
    seen = data.draw(st.lists(st.integers(0, sites - 1), unique=True))
    remaining = set(seen) - {site}
    expected = []
    while remaining and len(expected) < committee:
        best = None
        for index in range(sites):
            if index in remaining and (best is None or matrix[site, index] > matrix[site, best]):
                best = index
        assert best is not None
        expected.append(best)
        remaining.remove(best)
    assert top_peers(matrix[site], site, committee, seen) == expected
    assert top_peers(matrix[site], site, committee, seen[::-1]) == expected


@grid
@given(seed=st.integers(0, 10_000), order=st.permutations(range(6)))
def test_top_peers_follow_the_names_of_the_sites(seed: int, order: list[int]) -> None:
    matrix = similarity(random_moments(6, 8, seed), "none")
    peers = top_peers(matrix[order[0]][order], 0, 3, range(6))
    assert [order[peer] for peer in peers] == top_peers(matrix[order[0]], order[0], 3, range(6))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_top_peers_refuse_a_broken_similarity_of_candidates(value: float) -> None:
    row = MATRIX[0].clone()
    row[3] = value
    with pytest.raises(ConfigError, match="sites 0 and 3"):
        top_peers(row, 0, 2, [1, 3])
    assert top_peers(row, 0, 2, [1, 2]) == [2, 1]


@pytest.mark.parametrize(
    ("site", "committee", "seen"),
    [
        (-1, 2, [1]),
        (5, 2, [1]),
        (0, -1, [1]),
        (0, 2, [5]),
        (0, 2, [-1]),
        (0, 2, [True, False, True]),
    ],
)
def test_top_peers_refuse_indices_of_no_site(site: int, committee: int, seen: list[int]) -> None:
    with pytest.raises(ConfigError):
        top_peers(MATRIX[0], site, committee, seen)


# --- random_peers


def test_random_peers_are_uniform_over_ordered_pairs_of_others() -> None:
    """3 others seen give 6 ordered pairs, each 200 times of 1200 (standard deviation 13)."""
    draws = Counter(
        tuple(random_peers(1, 2, [0, 1, 4, 7], torch.Generator().manual_seed(seed)))
        for seed in range(1200)
    )
    assert set(draws) == set(itertools.permutations([0, 4, 7], 2))
    assert all(abs(count - 200) < 65 for count in draws.values())


@pytest.mark.parametrize(
    ("committee", "seen", "count"),
    [(2, [], 0), (2, [3], 0), (0, [1, 2], 0), (2, [1, 3], 1), (5, [0, 1, 2, 3], 3)],
)
def test_random_peers_are_as_many_as_there_are(committee: int, seen: list[int], count: int) -> None:
    peers = random_peers(3, committee, seen, torch.Generator().manual_seed(0))
    assert len(peers) == len(set(peers)) == count
    assert set(peers) <= set(seen) - {3}


def test_random_peers_depend_on_the_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one = random_peers(0, 3, [9, 1, 5, 7, 3], torch.Generator().manual_seed(4))
    assert random_peers(0, 3, {1, 3, 5, 7, 9}, torch.Generator().manual_seed(4)) == one
    assert torch.equal(torch.get_rng_state(), before)
    generator = torch.Generator().manual_seed(4)
    assert len({tuple(random_peers(0, 3, [9, 1, 5, 7, 3], generator)) for _ in range(20)}) > 5


@pytest.mark.parametrize(
    ("site", "committee", "seen"), [(-1, 2, [1]), (0, -1, [1]), (0, 2, [-1]), (0, 2, [True])]
)
def test_random_peers_refuse_indices_of_no_site(site: int, committee: int, seen: list[int]) -> None:
    with pytest.raises(ConfigError):
        random_peers(site, committee, seen, torch.Generator())


# --- anonymise


def test_anonymise_by_hand() -> None:
    """(1 + 2 + 6) / 3 = 3; the count of batches is the first one's."""
    states = [
        {
            "w": torch.tensor([value]),
            "running_var": torch.tensor(value),
            "n": torch.tensor(int(value)),
        }
        for value in (1.0, 2.0, 6.0)
    ]
    peer = anonymise(states)
    assert peer["w"].tolist() == [3.0]
    assert peer["running_var"].item() == 3.0
    assert peer["n"].item() == 1
    assert peer["n"].dtype == torch.int64


def test_one_peer_is_copied_exactly() -> None:
    state = nn.BatchNorm1d(3).state_dict()
    peer = anonymise([state])
    assert all(torch.equal(peer[key], state[key]) for key in state)
    assert peer["weight"].data_ptr() != state["weight"].data_ptr()


def test_the_average_is_one_of_parameters_not_of_predictions() -> None:
    """relu(x) and relu(-x) average to the net 0, but to the prediction |x| / 2."""
    nets = [nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU()) for _ in range(3)]
    for net, weight in zip(nets, (1.0, -1.0), strict=False):
        nn.init.constant_(net[0].weight, weight)
    nets[2].load_state_dict(anonymise([net.state_dict() for net in nets[:2]]))
    assert nets[2](torch.tensor([[2.0]])).item() == 0


# --- pseudo-labels


def label(
    local: Tensor, peers: Tensor, threshold: float, combine: str = "mean"
) -> tuple[Tensor, Tensor]:
    """Return the labels that a site makes with its peers, and which of them it keeps."""
    options = {"threshold": threshold, "combine": combine}
    objective = FedPerlObjective(FedPerlSettings.model_validate(options))
    inputs = RoundInputs(class_weights=torch.ones(local.shape[1]))
    made = objective.label(local, Batch(peers=peers), inputs)
    return made.labels, made.keep


def test_labels_by_hand() -> None:
    """Means of (3/4, 1/4), (0, 1), (0, 1) are (1/4, 3/4).

    Those of (1, 0), (1/2, 1/2), (3/8, 5/8) are (5/8, 3/8).
    """
    local = torch.tensor([[0.75, 0.25], [1.0, 0.0]])
    peers = torch.tensor([[[0.0, 1.0], [0.5, 0.5]], [[0.0, 1.0], [0.375, 0.625]]])
    labels, keep = label(local, peers, 0.75)
    assert labels.tolist() == [1, 0]
    assert keep.tolist() == [True, False]
    assert label(local, peers, 0.625)[1].tolist() == [True, True]


def test_labels_by_the_printed_sum_by_hand() -> None:
    """The sums are (7/8, 1/4, 1/2, 3/8) and (1/2, 3/8, 3/8, 3/4)."""
    local = torch.tensor([[3 / 8, 1 / 8, 1 / 4, 1 / 4], [1 / 4, 1 / 4, 1 / 4, 1 / 4]])
    peers = torch.tensor([[[1 / 2, 1 / 8, 1 / 4, 1 / 8], [1 / 4, 1 / 8, 1 / 8, 1 / 2]]])
    labels, keep = label(local, peers, 7 / 8, "sum")
    assert labels.tolist() == [0, 3]
    assert keep.tolist() == [True, False]
    assert label(local, peers, 3 / 4, "sum")[1].tolist() == [True, True]


def test_the_printed_sum_keeps_labels_that_no_model_is_sure_of() -> None:
    """8 classes, 5 uniform models: the sum is 5/8 >= 0.6 everywhere, the mean is 1/8."""
    local = torch.full((2, 8), 1 / 8)
    peers = torch.full((4, 2, 8), 1 / 8)
    assert label(local, peers, 0.6, "sum")[1].all()
    assert not label(local, peers, 0.6)[1].any()


@grid
@given(size=sizes, threshold=st.floats(0, 1), combine=st.sampled_from(["mean", "sum"]))
def test_labels_equal_a_loop(
    size: tuple[int, int, int, int], threshold: float, combine: str
) -> None:
    local, peers = random_probabilities(*size)
    labels, keep = label(local, peers, threshold, combine)
    for image in range(len(local)):
        scores = [0.0] * size[2]
        for model in [local, *peers]:
            for index, value in enumerate(model[image].tolist()):
                scores[index] += value if combine == "sum" else value / (len(peers) + 1)
        if abs(max(scores) - threshold) > 1e-9:
            assert keep[image].item() == (max(scores) > threshold)
        assert scores[labels[image]] == pytest.approx(max(scores), abs=1e-12)


@grid
@given(size=sizes, threshold=st.floats(0, 1), combine=st.sampled_from(["mean", "sum"]))
def test_without_peers_it_is_fixmatch(
    size: tuple[int, int, int, int], threshold: float, combine: str
) -> None:
    local, _ = random_probabilities(*size)
    labels_and_keep = label(local, local.new_empty(0, *local.shape), threshold, combine)
    expected = pseudo_label(local, threshold)
    assert torch.equal(labels_and_keep[0], expected[0])
    assert torch.equal(labels_and_keep[1], expected[1])


@grid
@given(size=sizes, data=st.data())
def test_labels_follow_images_and_classes_not_order_of_peers(
    size: tuple[int, int, int, int], data: st.DataObject
) -> None:
    local, peers = random_probabilities(*size)
    order, rows, names = (
        torch.tensor(data.draw(st.permutations(range(n))), dtype=torch.int64) for n in size[:3]
    )
    before = label(local, peers, 0.5)
    after = label(local[rows][:, names], peers[order][:, rows][:, :, names], 0.5)
    assert torch.equal(names[after[0]], before[0][rows])
    assert torch.equal(after[1], before[1][rows])
    # the site is a member of the committee like any peer
    if len(peers):
        swapped = label(peers[0], torch.cat([local.unsqueeze(0), peers[1:]]), 0.5)
        assert torch.equal(swapped[0], before[0])


def test_equal_peers_add_nothing() -> None:
    local, _ = random_probabilities(0, 6, 4, 1)
    labels_and_keep = label(local, local.expand(3, -1, -1), 0.5)
    expected = pseudo_label(local, 0.5)
    assert torch.equal(labels_and_keep[0], expected[0])
    assert torch.equal(labels_and_keep[1], expected[1])


def test_labels_carry_no_gradient() -> None:
    local, peers = random_probabilities(2, 3, 4, 0)
    labels, keep = label(local.requires_grad_(), peers.requires_grad_(), 0.5)
    assert not labels.requires_grad
    assert not keep.requires_grad


def test_a_broken_peer_cannot_label() -> None:
    local = torch.tensor([[0.9, 0.1], [0.9, 0.1]])
    peers = torch.tensor([[[NAN, NAN], [0.9, 0.1]]])
    assert label(local, peers, 0.5)[1].tolist() == [False, True]


def test_labels_of_no_images() -> None:
    labels, keep = label(torch.empty(0, 4), torch.empty(2, 0, 4), 0.5)
    assert labels.shape == keep.shape == (0,)


@pytest.mark.parametrize(
    ("local", "peers"),
    [
        ((3, 2), (3, 2)),
        ((3, 2), (1, 2, 2)),
        ((3, 2), (1, 1, 2)),
        ((3, 2), (1, 3, 1)),
        ((2,), (3, 2)),
        ((3, 2), (0,)),
    ],
)
def test_predictions_of_other_images_are_refused(
    local: tuple[int, ...], peers: tuple[int, ...]
) -> None:
    with pytest.raises(ConfigError, match=r"\(P, N, K\)"):
        committee_mean(torch.ones(local), torch.ones(peers))
    with pytest.raises(ConfigError, match=r"\(P, N, K\)"):
        consistency(torch.ones(local), torch.ones(peers))


# --- consistency


def test_consistency_by_hand() -> None:
    """Squared distances of (1, 0) to (0, 1) and (1/2, 1/2): MSE 1 and 1/4, mean 5/8.

    Gradient 2/(P N K) Σ_t (p_loc - p_t): 2/4 (1 + 1/2) = 3/4 and its opposite.
    """
    local = torch.tensor([[1.0, 0.0]], requires_grad=True)
    peers = torch.tensor([[[0.0, 1.0]], [[0.5, 0.5]]], requires_grad=True)
    loss = consistency(local, peers)
    loss.backward()
    assert loss.item() == 0.625
    assert local.grad is not None
    assert local.grad.tolist() == [[0.75, -0.75]]
    assert peers.grad is None


@grid
@given(size=sizes)
def test_consistency_equals_a_loop(size: tuple[int, int, int, int]) -> None:
    local, peers = random_probabilities(*size)
    total = 0.0
    for peer in peers.tolist():
        squares = [
            (a - b) ** 2
            for row, other in zip(local.tolist(), peer, strict=True)
            for a, b in zip(row, other, strict=True)
        ]
        total += sum(squares) / len(squares) / len(peers)
    assert consistency(local, peers).item() == pytest.approx(total, rel=1e-12, abs=1e-15)


@grid
@given(size=sizes, data=st.data())
def test_consistency_invariances(size: tuple[int, int, int, int], data: st.DataObject) -> None:
    local, peers = random_probabilities(*size)
    order, rows, names = (
        torch.tensor(data.draw(st.permutations(range(n))), dtype=torch.int64) for n in size[:3]
    )
    loss = consistency(local, peers)
    torch.testing.assert_close(
        consistency(local[rows][:, names], peers[order][:, rows][:, :, names]), loss
    )
    torch.testing.assert_close(consistency(local, peers.repeat(3, 1, 1)), loss)
    assert 0 <= loss.item() <= 1


def test_consistency_of_a_single_number_is_its_squared_distance() -> None:
    assert consistency(torch.tensor([[0.25]]), torch.tensor([[[0.75]]])).item() == 0.25


def test_consistency_with_oneself_is_zero() -> None:
    local, _ = random_probabilities(0, 5, 3, 2)
    assert consistency(local, local.expand(2, -1, -1)).item() == 0


@pytest.mark.parametrize(("peers", "images"), [(0, 3), (2, 0), (0, 0)])
def test_consistency_without_peers_or_images_and_its_gradient_are_zero(
    peers: int, images: int
) -> None:
    local = torch.rand(images, 4, requires_grad=True)
    loss = consistency(local, torch.rand(peers, images, 4))
    loss.backward()
    assert loss.item() == 0
    assert local.grad is not None
    assert torch.equal(local.grad, torch.zeros(images, 4))


def test_consistency_gradient_by_finite_differences() -> None:
    local, peers = random_probabilities(3, 4, 5, 7)
    assert torch.autograd.gradcheck(
        lambda x: consistency(x.softmax(dim=1), peers), local.requires_grad_()
    )


def test_consistency_gradient_reaches_the_local_net_only() -> None:
    local = nn.Linear(3, 2)
    peer = nn.Linear(3, 2)
    images = torch.randn(4, 3)
    consistency(local(images).softmax(dim=1), peer(images).softmax(dim=1).unsqueeze(0)).backward()
    assert local.weight.grad is not None
    assert local.weight.grad.abs().sum() > 0
    assert peer.weight.grad is None


@pytest.mark.parametrize("value", [NAN, INF])
def test_consistency_notices_a_broken_net(value: float) -> None:
    local, peers = random_probabilities(2, 3, 4, 0)
    peers[1, 2, 3] = value
    assert not consistency(local, peers).isfinite()


def test_no_step_waits_for_the_device() -> None:
    """A meta tensor has no values: reading one, or a shape that depends on one, would raise."""
    local = torch.rand(5, 3, device="meta", requires_grad=True)
    peers = torch.rand(2, 5, 3, device="meta")
    consistency(local, peers).backward()
    assert local.grad is not None
    labels, _ = label(local, peers, 0.6)
    assert labels.device == local.device


# --- policies


ACCURACY = dict(enumerate([0.70, 0.75, 0.85, 0.70, 0.60]))


@pytest.mark.parametrize(
    ("peers", "site", "kept"),
    [
        ([1, 4, 2], 0, [1, 2]),
        ([2, 1], 0, [2, 1]),
        ([3], 0, [3]),
        ([0, 1, 3, 4], 2, []),
        ([0], 4, [0]),
        ([], 0, []),
    ],
)
def test_validation_policy_keeps_peers_at_least_as_good(
    peers: list[int], site: int, kept: list[int]
) -> None:
    assert validation_policy(peers, ACCURACY, site) == kept


@pytest.mark.parametrize(
    ("peers", "threshold", "kept"),
    [
        ([4, 2, 1, 0], 0.75, [2, 1]),
        ([1, 2], 0.85, [2]),
        ([1, 2], 0.95, []),
        ([4, 0], 0.0, [4, 0]),
        ([], 0.5, []),
    ],
)
def test_gated_validation_policy_keeps_peers_at_the_gate(
    peers: list[int], threshold: float, kept: list[int]
) -> None:
    assert gated_validation_policy(peers, ACCURACY, threshold) == kept


@pytest.mark.parametrize(
    ("peers", "site", "threshold", "kept"),
    [
        ([2, 3, 1], 0, 0.75, [2, 3]),
        ([3, 1, 2], 0, 0.25, [3, 2]),
        ([4, 1], 0, -0.5, [4, 1]),  # -0.5 is exactly at the gate
        ([0, 2], 3, 0.95, []),
        ([], 0, 0.5, []),
    ],
)
def test_gated_similarity_policy_keeps_peers_at_the_gate(
    peers: list[int], site: int, threshold: float, kept: list[int]
) -> None:
    assert gated_similarity_policy(peers, MATRIX[site], site, threshold) == kept


@grid
@given(
    seed=st.integers(0, 10_000),
    site=st.integers(0, 5),
    threshold=st.sampled_from([-0.5, 0.0, 0.25, 0.75]),
)
def test_gated_similarity_looks_along_the_row_of_the_site(
    seed: int, site: int, threshold: float
) -> None:
    row = random_similarity(6, seed)[site]
    peers = top_peers(row, site, 4, range(6))
    kept = gated_similarity_policy(peers, row, site, threshold)
    assert kept == [peer for peer in peers if row[peer].item() >= threshold]
    assert kept == peers[: len(kept)]  # top peers come by falling similarity, so a gate cuts a tail


def test_policies_drop_nan() -> None:
    accuracy = {0: 0.5, 1: NAN, 2: 0.6}
    assert validation_policy([1, 2], accuracy, 0) == [2]
    assert validation_policy([0, 2], accuracy, 1) == []
    assert gated_validation_policy([0, 1, 2], accuracy, 0.0) == [0, 2]
    assert gated_similarity_policy([1, 2], torch.tensor([1.0, NAN, 0.5]), 0, -1.0) == [2]


@pytest.mark.parametrize("unknown", [3, -1])
def test_validation_policies_refuse_unknown_sites(unknown: int) -> None:
    accuracy = {0: 0.5, 1: 0.6, 2: 0.7}
    with pytest.raises(ConfigError, match=f"site {unknown}"):
        validation_policy([1, unknown], accuracy, 0)
    with pytest.raises(ConfigError, match=f"site {unknown}"):
        validation_policy([1], accuracy, unknown)
    with pytest.raises(ConfigError, match=f"site {unknown}"):
        gated_validation_policy([1, unknown], accuracy, 0.5)


@pytest.mark.parametrize(("peers", "site"), [([1, 5], 0), ([1, -1], 0), ([1], 5), ([1], -1)])
def test_gated_similarity_refuses_unknown_sites(peers: list[int], site: int) -> None:
    with pytest.raises(ConfigError, match="known site"):
        gated_similarity_policy(peers, MATRIX[0], site, 0.5)


def test_policies_leave_the_peers_alone() -> None:
    peers = (2, 1)
    assert validation_policy(peers, ACCURACY, 1) == [2, 1]
    assert peers == (2, 1)
