"""The head in one round: its equations, what a site sends, and what the server makes of it."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor, nn

from fedward.config import Experiment
from fedward.errors import ConfigError, RunError
from fedward.flare.privacy import privatise
from fedward.methods.local import Batch, Measurement
from fedward.methods.oneshot.algorithm import OneShot, OneShotSettings
from fedward.methods.oneshot.discriminant import SHRINKAGES, chosen_shrinkage, discriminant
from fedward.methods.oneshot.moments import Moments, add_moments, packed, unpacked
from fedward.methods.workflow import ClientUpdate, Exchange, Federation
from fedward.model_state import State
from fedward.protocol.array_checks import check_moments
from fedward.protocol.fields import RefusedError
from tiny import tiny

K = 4
D = 6
METHOD = OneShot(OneShotSettings(shrinkage=0.2))


def features(images: int, seed: int = 0, classes: int = K, width: int = D) -> tuple[Tensor, Tensor]:
    """Return correlated features, all above 0 as after a ReLU, whose mean depends on the class."""
    draw = np.random.default_rng(seed)
    labels = draw.permutation(np.arange(images) % classes)
    noise = draw.normal(size=(images, width)) @ draw.normal(size=(width, width))
    x = noise + 2 * np.eye(classes, width)[labels] + 5
    return torch.tensor(np.abs(x)).half().double(), torch.tensor(labels)


def network(classes: int = K, width: int = D) -> nn.Module:
    net = nn.Module()
    net.classifier = nn.Linear(width, classes)
    add_moments(net)
    return net


def measured(
    x: Tensor, y: Tensor, batch: int = 16, net: nn.Module | None = None
) -> dict[str, Tensor]:
    """Return what a site with these features sends."""
    net = net or network(width=x.shape[1])
    (phase,) = METHOD.phases("measure", 1, len(y))
    assert isinstance(phase.objective, Measurement)
    parts = zip(x.float().split(batch), y.split(batch), strict=True)
    phase.objective.measure(net, [Batch(labelled=a, labels=b) for a, b in parts])
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def statistics(x: Tensor, y: Tensor, classes: int = K) -> tuple[Tensor, Tensor, Tensor]:
    """Return the arguments of ``discriminant``, in float64, added up image by image."""
    shares = torch.zeros(classes, dtype=torch.float64)
    sums = torch.zeros(classes, x.shape[1], dtype=torch.float64)
    products = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for features_, label in zip(x, y, strict=True):
        shares[label] += 1 / len(y)
        sums[label] += features_ / len(y)
        products += torch.outer(features_, features_) / len(y)
    return shares, sums, products


Changes = dict[str, np.ndarray]


def federated(
    sites: Sequence[tuple[Tensor, Tensor]],
    method: OneShot = METHOD,
    filtered: Callable[[Changes], Changes] = lambda changes: changes,
) -> tuple[State, list[Exchange]]:
    """Return the model after a run, and its exchanges; float32 differences travel."""
    names = [f"site-{number}" for number in range(1, len(sites) + 1)]
    net = network(width=sites[0][0].shape[1])
    state = method.start({name: tensor.clone() for name, tensor in net.state_dict().items()})
    rounds = method.rounds(state, Federation(names, 1, {}))
    exchanges = []
    exchange = next(rounds)
    try:
        while True:
            exchanges.append(exchange)
            updates = []
            for name, (x, y) in zip(names, sites, strict=True):
                sent = measured(x, y) if len(y) else exchange.model
                changes = filtered({key: (sent[key] - exchange.model[key]).numpy() for key in sent})
                model = {key: exchange.model[key] + torch.from_numpy(changes[key]) for key in sent}
                updates.append(ClientUpdate(name, model, len(y), 3, math.ceil(len(y) / 16)))
            exchange = rounds.send(updates)
    except StopIteration:
        return state.model, exchanges


def head(model: State) -> tuple[Tensor, Tensor]:
    return model["classifier.weight"], model["classifier.bias"]


def logits(classifier: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    return x.to(classifier[0].dtype) @ classifier[0].T + classifier[1]


def cuts(x: Tensor, y: Tensor, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(x.split(list(sizes)), y.split(list(sizes)), strict=True))


# --- the equations


def test_two_classes_by_hand() -> None:
    """Classes at 0 and 4, variance 1, three times as many in the first: b is ln 3 at the middle."""
    shares = torch.tensor([0.75, 0.25])
    sums = torch.tensor([[0.0], [1.0]])
    products = torch.tensor([[0.75 * 1 + 0.25 * 17]])  # 0.75 (1 + 0^2) + 0.25 (1 + 4^2)
    weight, bias = discriminant(shares, sums, products, 0.5)  # one feature: nothing to shrink
    assert weight.flatten().tolist() == pytest.approx([-2.0, 2.0])
    difference = (weight[1] - weight[0]).item(), (bias[1] - bias[0]).item()
    assert difference == pytest.approx((4.0, -8.0 - math.log(3)))
    assert bias.sum().item() == pytest.approx(0.0)


def test_equal_to_a_naive_loop() -> None:
    x, y = features(60)
    means = torch.stack([x[y == c].mean(dim=0) for c in range(K)])
    covariance = torch.zeros(D, D, dtype=torch.float64)
    for row, label in zip(x, y, strict=True):
        covariance += torch.outer(row - means[label], row - means[label]) / len(y)
    shrunk = 0.7 * covariance + 0.3 * covariance.trace() / D * torch.eye(D, dtype=torch.float64)
    scores = torch.empty(len(y), K, dtype=torch.float64)
    for row in range(len(y)):
        for c in range(K):
            far = x[row] - means[c]
            log_share = math.log((y == c).double().mean())
            scores[row, c] = -0.5 * far @ shrunk.inverse() @ far + log_share
    computed = logits(discriminant(*statistics(x, y), 0.3), x)
    torch.testing.assert_close(
        computed.log_softmax(dim=1), scores.log_softmax(dim=1), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("shrinkage", [1e-12, 0.2, 1.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_equal_to_scikit_learn(classes: int, shrinkage: float) -> None:
    """Its solver lsqr has the same covariance, divided by the images, and the same prior."""
    x, y = features(200, classes=classes)
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
    oracle.fit(x.numpy(), y.numpy())
    classifier = discriminant(*statistics(x, y, classes), shrinkage)
    log_probabilities = logits(classifier, x).log_softmax(dim=1).numpy()
    np.testing.assert_allclose(log_probabilities, oracle.predict_log_proba(x.numpy()), atol=1e-6)


@pytest.mark.parametrize(("count", "width"), [(30, D), (200, 20), (40, 60), (400, 60)])
def test_the_chosen_shrinkage_is_that_of_a_ridge_regression(count: int, width: int) -> None:
    """GCV by hand, with the hat matrix of all images and no sums; it chooses 0.02 to 0.95."""
    x, y = features(count, width=width)
    shares, sums, products = statistics(x, y)
    hot = torch.nn.functional.one_hot(y, K).double()
    centred = x - x.mean(dim=0)
    means = torch.stack([x[y == c].mean(dim=0) for c in range(K)])
    mean_variance = (x - means[y]).square().sum() / count / width
    errors = []
    for shrinkage in SHRINKAGES:
        ridge = shrinkage / (1 - shrinkage) * mean_variance * count
        gram = centred.T @ centred + ridge * torch.eye(width, dtype=torch.float64)
        hat = centred @ torch.linalg.solve(gram, centred.T) + 1 / count
        residuals = (hot - hat @ hot).square().sum(dim=0) / count / shares
        errors.append(float(residuals.sum() / (1 - hat.trace() / count) ** 2))
    assert chosen_shrinkage(shares, sums, products, count) == SHRINKAGES[int(np.argmin(errors))]


def test_fewer_images_choose_more_shrinkage() -> None:
    x, y = features(2000, width=60)
    few = chosen_shrinkage(*statistics(x[:40], y[:40]), 40)
    many = chosen_shrinkage(*statistics(x, y), 2000)
    assert many < few
    assert chosen_shrinkage(*statistics(x[:9], torch.full((9,), 2)), 9) == SHRINKAGES[-1]


def test_absent_classes_and_a_common_factor_choose_the_same_shrinkage() -> None:
    """Noise leaves shares that are below 0, or do not add up to 1."""
    x, y = features(200, width=20)
    moments = statistics(x, y)
    chosen = chosen_shrinkage(*moments, 200)
    assert SHRINKAGES[0] < chosen < SHRINKAGES[-1], "neither end, where numbers may be any"
    assert chosen_shrinkage(*(1.25 * moment for moment in moments), 200) == chosen
    shares, sums, products = statistics(x, y, K + 2)
    shares[K] = -0.01
    assert chosen_shrinkage(shares, sums, products, 200) == chosen


def test_fewer_images_than_features_give_finite_heads() -> None:
    x, y = features(12, width=40)
    for shrinkage in (0.2, 1e-3):
        weight, bias = discriminant(*statistics(x, y), shrinkage)
        assert weight.isfinite().all()
        assert bias.isfinite().all()
        assert torch.equal(logits((weight, bias), x).argmax(dim=1), y)


@given(st.integers(0, 2**31), st.integers(0, K - 1))
@settings(max_examples=25, deadline=None)
def test_an_absent_class_is_never_the_likeliest(seed: int, absent: int) -> None:
    x, y = features(60, seed)
    keep = y != absent
    weight, bias = discriminant(*statistics(x[keep], y[keep]), 0.2)
    assert weight[absent].abs().sum() == 0
    far = 50 * torch.tensor(np.random.default_rng(seed).normal(size=(100, D)))
    probabilities = logits((weight, bias), far).softmax(dim=1)
    assert float(probabilities[:, absent].max()) < 1e-8
    others = [c for c in range(K) if c != absent]
    renamed = torch.searchsorted(torch.tensor(others), y[keep])
    alone = discriminant(*statistics(x[keep], renamed, K - 1), 0.2)
    torch.testing.assert_close(weight[others], alone[0])
    torch.testing.assert_close(bias[others], alone[1])


def test_one_class_alone_is_always_the_answer() -> None:
    x, _ = features(20)
    weight, bias = discriminant(*statistics(x, torch.full((20,), 2)), 0.2)
    assert not weight.any()
    assert bias.argmax() == 2


def test_noise_leaves_a_finite_head() -> None:
    """Shares below 0, and a covariance with eigenvalues below 0, as a filter's noise makes them."""
    shares, sums, products = statistics(*features(60))
    draw = torch.Generator().manual_seed(1)
    noise = torch.randn(D, D, generator=draw, dtype=torch.float64)
    shares[1] = -0.1
    weight, bias = discriminant(shares, sums, products + 20 * (noise + noise.T), 0.2)
    assert weight.isfinite().all()
    assert bias.isfinite().all()
    assert not weight[1].any()


@pytest.mark.parametrize("multiplier", [0.01, 0.05])
def test_filtered_answers_make_a_finite_head(multiplier: float) -> None:
    parts = cuts(*features(90), [30, 30, 30])
    model, _ = federated(parts, filtered=lambda changes: privatise(changes, 1.0, multiplier))
    assert all(tensor.isfinite().all() for tensor in head(model))


@pytest.mark.parametrize("shrinkage", [0.0, -1.0, 1.5, math.nan])
def test_a_shrinkage_out_of_range_is_refused(shrinkage: float) -> None:
    message = r"oneshot.discriminant: expected .* a shrinkage in \(0, 1\]"
    with pytest.raises(ConfigError, match=message):
        discriminant(*statistics(*features(20)), shrinkage)


@pytest.mark.parametrize("place", [0, 2])
def test_statistics_that_do_not_fit_are_refused(place: int) -> None:
    arguments = list(statistics(*features(20)))
    arguments[place] = torch.ones(2, 3)
    message = r"oneshot.discriminant: expected shares \(K,\), sums \(K, D\)"
    with pytest.raises(ConfigError, match=message):
        discriminant(*arguments, 0.2)


def test_statistics_that_tell_nothing_end_the_run() -> None:
    with pytest.raises(RunError, match="features that differ within a class, found equal ones"):
        discriminant(*statistics(torch.ones(8, D, dtype=torch.float64), torch.arange(8) % K), 0.2)
    with pytest.raises(RunError, match="a class with images, found none"):
        discriminant(torch.zeros(K), torch.zeros(K, D), torch.eye(D), 0.2)


# --- what a site sends


def test_moments_are_those_of_a_loop() -> None:
    x, y = features(45)
    shares, sums, products = statistics(x, y)
    moments = measured(x, y)
    torch.testing.assert_close(moments["moments.shares"].double(), shares, rtol=1e-7, atol=0)
    torch.testing.assert_close(moments["moments.sums"].double(), sums, rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(
        unpacked(moments["moments.products"], D).double(), products, rtol=1e-7, atol=1e-12
    )


@pytest.mark.proves(
    "server",
    "features of single images in a one-shot answer",
    "it holds sums whose sizes do not depend on the number of images",
)
def test_no_size_depends_on_the_images() -> None:
    net = network()
    few = measured(*features(8), net=net)
    many = measured(*features(90), net=net)
    assert set(few) == set(many)
    assert all(few[name].shape == many[name].shape for name in many)
    changed = [name for name in many if not torch.equal(few[name], many[name])]
    assert changed == ["moments.shares", "moments.sums", "moments.products"]


def test_batches_and_their_order_change_nothing() -> None:
    x, y = features(50)
    first = measured(x, y)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(2))
    for other in (measured(x, y, batch=7), measured(x[order], y[order])):
        for name in ("moments.shares", "moments.sums", "moments.products"):
            torch.testing.assert_close(other[name], first[name], rtol=2e-7, atol=1e-7)


def test_a_second_measurement_forgets_the_first() -> None:
    net = network()
    measured(*features(20, seed=5), net=net)
    again = measured(*features(30), net=net)
    afresh = measured(*features(30))
    for name in ("moments.shares", "moments.sums", "moments.products"):
        assert torch.equal(again[name], afresh[name])


def test_new_moments_are_of_standard_features() -> None:
    moments = Moments(4, 3)
    assert moments.shares.tolist() == [0.25] * 4
    assert not moments.sums.any()
    assert torch.equal(unpacked(moments.products, 3), torch.eye(3))
    assert not list(moments.parameters()), "nothing of them is trained"


def test_a_packed_matrix_comes_back() -> None:
    matrix = torch.arange(9.0).reshape(3, 3)
    matrix = matrix + matrix.T
    assert packed(matrix).tolist() == [0.0, 4.0, 8.0, 8.0, 12.0, 16.0]
    assert torch.equal(unpacked(packed(matrix), 3), matrix)


@pytest.mark.parametrize(
    "classifier", [nn.Linear(3, 2, bias=False), nn.Sequential(nn.Linear(3, 2)), None]
)
def test_only_linear_classifiers_are_measured(classifier: nn.Module | None) -> None:
    net = nn.Module()
    if classifier is not None:
        net.classifier = classifier
    with pytest.raises(
        ConfigError, match="expected a network whose classifier is a linear layer with a bias"
    ):
        add_moments(net)


def sent_moments(x: Tensor, y: Tensor) -> list[np.ndarray]:
    """Return shares, sums and products as a site sends them, in float64."""
    moments = measured(x, y)
    names = ("shares", "sums", "products")
    return [moments[f"moments.{name}"].double().numpy() for name in names]


@given(st.integers(0, 2**31), st.integers(1, 60), st.booleans())
@settings(max_examples=50, deadline=None)
def test_moments_of_images_are_possible(seed: int, images: int, is_one_class: bool) -> None:
    """Those of equal features of one class are at the limit: their squares are the products."""
    x, y = features(images, seed)
    if is_one_class:
        x, y = x[:1].expand(images, -1), torch.zeros_like(y)
    check_moments("sums", *sent_moments(x, y))
    check_moments("sums", *sent_moments(0 * x, y))


@pytest.mark.parametrize(
    ("shares", "sums", "products"), [(-5.0, 1, 1), (3.0, 1, 1), (1, 4.0, 1), (1, 1, -1.0)]
)
def test_impossible_moments_are_refused(shares: float, sums: float, products: float) -> None:
    factors = (shares, sums, products)
    moments = [
        array * factor for array, factor in zip(sent_moments(*features(40)), factors, strict=True)
    ]
    with pytest.raises(RefusedError, match="sums: expected shares, sums and products of features"):
        check_moments("sums", *moments)


# --- the run


@pytest.mark.parametrize("sizes", [[240], [120, 120], [7, 3, 90, 80, 60], [24] * 10], ids=str)
@pytest.mark.parametrize("shrinkage", [0.02, 0.2])
def test_the_head_is_that_of_all_images(sizes: list[int], shrinkage: float) -> None:
    x, y = features(240, width=20)
    x = x[y.argsort(stable=True)]
    y = y.sort().values  # sites of few classes each
    expected = discriminant(*statistics(x, y), shrinkage)
    model, _ = federated(cuts(x, y, sizes), OneShot(OneShotSettings(shrinkage=shrinkage)))
    scale = float(expected[0].abs().max())
    torch.testing.assert_close(head(model)[0].double(), expected[0], rtol=0, atol=1e-4 * scale)
    torch.testing.assert_close(
        logits(head(model), x).double(), logits(expected, x), rtol=1e-4, atol=2e-2
    )
    torch.testing.assert_close(
        logits(head(model), x).softmax(dim=1).double(),
        logits(expected, x).softmax(dim=1),
        rtol=0,
        atol=1e-3,
    )


def test_the_order_of_sites_changes_nothing() -> None:
    x, y = features(100)
    parts = cuts(x, y, [10, 30, 20, 40])
    one = federated(parts)[0]
    other = federated(parts[::-1])[0]
    for a, b in zip(head(one), head(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_dominant_site_is_capped_unless_told() -> None:
    x, y = features(200)
    parts = cuts(x, y, [180, 10, 10])
    expected = discriminant(*statistics(x, y), 0.2)
    free = federated(parts, OneShot(OneShotSettings(largest_share=1.0, shrinkage=0.2)))[0]
    torch.testing.assert_close(head(free)[0].double(), expected[0], rtol=1e-3, atol=1e-3)
    capped = head(federated(parts)[0])[0].double()
    assert not torch.allclose(capped, expected[0], rtol=1e-2, atol=1e-2)


def test_moments_do_not_go_on() -> None:
    """What the sites send is in no model that others see."""
    model, exchanges = federated(cuts(*features(80), [40, 40]))
    assert len(exchanges) == 1
    fresh = network().state_dict()
    for name in ("moments.shares", "moments.sums", "moments.products"):
        assert torch.equal(model[name], fresh[name])


def test_sites_without_labels_count_for_nothing() -> None:
    x, y = features(80)
    alone, _ = federated(cuts(x, y, [40, 40]))
    beside, _ = federated([*cuts(x, y, [40, 40]), (x[:0], y[:0])])
    assert all(torch.equal(a, b) for a, b in zip(head(alone), head(beside), strict=True))
    assert not METHOD.phases("measure", 1, 0)


def test_without_replies_the_model_stays() -> None:
    x, y = features(4)
    model, (exchange,) = federated([(x[:0], y[:0])])
    assert model is exchange.model
    assert model["moments.shares"].tolist() == [0.25] * 4


# --- settings


@pytest.mark.parametrize("trainable", ["all", "last:1", "adapters"])
def test_only_a_head_is_computed(trainable: str) -> None:
    message = (
        rf"oneshot cannot work with trainable={trainable}: it computes the head alone"
        r"\. Set trainable=head, or "
    )
    with pytest.raises(ConfigError, match=message):
        tiny("oneshot", trainable=trainable)


@pytest.mark.parametrize(
    "options",
    [
        {"rounds": 2},
        {"images_per_round": 16},
        {"images_at_most": 8},
        {"shrinkage": 0.0},
        {"shrinkage": 1.1},
    ],
)
def test_settings_that_would_do_harm_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Experiment.parse({"method": "oneshot", "trainable": "head", "options": options}, "test")


def test_no_sums_in_float16() -> None:
    message = (
        "oneshot cannot work with update_dtype=float16:"
        " its covariance is a difference of nearly equal sums"
    )
    with pytest.raises(ConfigError, match=message):
        tiny("oneshot", update_dtype="float16")


def test_no_median_of_sums() -> None:
    with pytest.raises(ConfigError, match="its classifier is made of sums over all sites"):
        tiny("oneshot", options={"robust": "median"})
