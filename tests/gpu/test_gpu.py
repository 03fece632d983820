"""What only a CUDA device can show.

It has the CPU's numbers within what bfloat16 allows, and no step waits for it.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from clients import new_client
from fedward.client.ranks import Processes
from fedward.config import DataSpec, SyntheticData
from fedward.errors import DataError
from fedward.lab.synthetic import synthetic_site
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs
from fedward.methods.supervised import Supervised
from fedward.model_state import State
from fedward.nets import build
from fedward.seeds import Draws
from fedward.sites import Images
from fedward.training.batches import Pixels, RoundBatches
from fedward.training.device_data import DeviceData
from fedward.training.evaluation import predict
from fedward.training.machine import described, device_of, has_bfloat16
from fedward.training.trainer import train
from fedward.views import VIEWS
from fedward.views.strong import OPERATIONS, Draw, apply
from isolated import CLASSES as CLASSES_OF_FILES
from isolated import write_sites
from running import run_local
from tiny import batch_norm_net, tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CPU = torch.device("cpu")
CUDA = torch.device("cuda")
CLASSES = 8
STEPS = 4
SITES = ["site-1", "site-2", "site-3"]
SETTINGS = FedPerlSettings(
    images_per_round=8 * STEPS, batch=8, threshold=0.13, consistency_weight=1.0, clip_gradient=1.0
)
BFLOAT16 = 0.02
"""Relative; a number in bfloat16 has eight bits, and a loss comes from a few such numbers in a row.
"""


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def photo(count: int = 32, side: int = 32) -> Tensor:
    """Return images of whole levels, as a site's are, with structure at every scale."""
    noise = torch.rand(count, 3, side, side, generator=seeded(9))
    ramp = torch.linspace(0, 1, side).view(1, 1, 1, side)
    return (255 * (0.1 + 0.35 * noise + 0.5 * ramp)).round() / 255


def pictures(count: int = 20, seed: int = 0) -> Images:
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 256, (count, 16, 16, 3), np.uint8)
    return Images(tuple(map(str, range(count))), pixels, draw.integers(0, CLASSES, count))


def make_net(seed: int = 5) -> nn.Module:
    return batch_norm_net(seed, CLASSES).to(CUDA, memory_format=torch.channels_last)


def make_batches(peers: list[nn.Module]) -> RoundBatches:
    labelled = Pixels.of(pictures(20), CUDA)
    unlabelled = Pixels.of(pictures(30, 1), CUDA)
    return RoundBatches(labelled, unlabelled, peers, SETTINGS, Draws(3), ("site-1", 1))


# --- views


@pytest.mark.parametrize("recipe", VIEWS)
def test_weak_views_are_the_cpus(recipe: str) -> None:
    view = VIEWS[recipe].weak
    images = photo()
    torch.testing.assert_close(
        view(images.to(CUDA), seeded(6)).cpu(), view(images, seeded(6)), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("operation", range(len(OPERATIONS)), ids=OPERATIONS)
def test_every_operation_of_the_strong_view_is_the_cpus(operation: int) -> None:
    images = photo()
    strength = 2 * torch.rand(len(images), 1, generator=seeded(7)) - 1
    drawn = Draw(torch.full((len(images), 1), operation), strength)
    torch.testing.assert_close(
        apply(images.to(CUDA), drawn).cpu(), apply(images, drawn), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("recipe", VIEWS)
def test_strong_views_are_the_cpus_but_for_pixels_on_an_edge(recipe: str) -> None:
    """After a turn, rounding may move a pixel over a threshold.

    With a level of equalize, it moves all pixels that share it.
    """
    view = VIEWS[recipe].strong
    images = photo()
    off = (view(images.to(CUDA), seeded(6)).cpu() - view(images, seeded(6))).abs() > 1e-5
    assert off.float().mean() < 0.01


# --- one round at a site


def trained_on(device: torch.device, folder: Path) -> tuple[State, State, dict[str, float]]:
    """Return the model that a site with two peers gets, its trained model, and its mean losses."""
    site = new_client("site-1", tiny(net="small_cnn_gn"), folder / device.type, device=device.type)
    model, *peers = (build("small_cnn_gn", CLASSES, seed=seed).state_dict() for seed in (5, 1, 2))
    trained, steps, means = site.learner.train(model, peers, 2)
    assert steps == 2
    return model, trained, means


def test_a_round_of_training_moves_weights_and_stays_finite(tmp_path: Path) -> None:
    before, after, _ = trained_on(CUDA, tmp_path)
    for key, tensor in after.items():
        assert tensor.device == CPU
        assert tensor.dtype == before[key].dtype
        assert tensor.isfinite().all(), key
        assert not torch.equal(tensor, before[key]), f"{key} never moved"


def test_losses_of_a_round_are_the_cpus_up_to_bfloat16(tmp_path: Path) -> None:
    means, expected = (trained_on(device, tmp_path)[2] for device in (CUDA, CPU))
    assert (
        set(means)
        == set(expected)
        > {"loss", "loss_supervised", "loss_pseudo", "loss_consistency", "kept"}
    )
    for name in set(expected) - {"seconds"}:
        assert means[name] == pytest.approx(expected[name], rel=BFLOAT16), name


@pytest.mark.parametrize("net", ["small_cnn_gn", "tf_efficientnet_lite0"])
def test_a_process_per_gpu_equals_one_with_a_larger_batch(net: str, tmp_path: Path) -> None:
    """One net without BatchNorm, and one whose statistics are to be those of the whole batch."""
    count = torch.cuda.device_count()
    # Each process reads the site's files, so that the images cannot be synthetic.
    sites = write_sites(tmp_path / "sites")
    data = DataSpec(classes=CLASSES_OF_FILES, image_size=16)
    options = {"images_per_round": 16 * count}
    experiment = tiny("ssfl", net=net, data=data, synthetic=None, options=options)
    one = new_client("site-1", experiment, tmp_path / "one", [sites]).learner
    model = build(net, len(CLASSES_OF_FILES), seed=5).state_dict()
    whole = replace(one, batch=one.algorithm.settings.batch * count)
    _, steps, expected = whole.train(model, [], 2)
    many = new_client("site-1", experiment, tmp_path / "many", [sites])
    train_together = Processes(many.source, "", many.learner, count).train
    after, batches, means = train_together(
        model, [], 2, task="train", part=0, memory={}, aborted=lambda: False
    )
    assert (steps, batches) == (2, 2 * count)
    for name in set(expected) - {"seconds"}:
        assert means[name] == pytest.approx(expected[name], rel=BFLOAT16), name
    assert set(after) == set(model)
    assert all(tensor.isfinite().all() for tensor in after.values())
    assert any(not torch.equal(tensor, model[key]) for key, tensor in after.items())


def test_evaluation_is_in_float32() -> None:
    probabilities = predict(make_net(), Pixels.of(pictures(), CUDA))
    expected = predict(batch_norm_net(5, CLASSES), Pixels.of(pictures(), CPU))
    assert probabilities.device == CPU
    assert probabilities.dtype == torch.float32
    torch.testing.assert_close(probabilities, expected, rtol=0, atol=1e-3)


def test_two_rounds_with_peers_end_with_a_report(tmp_path: Path) -> None:
    run = run_local(tiny(options={"rounds": 2, "participants": 3}), tmp_path / "run", sites=SITES)
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert (run / "report.html").stat().st_size > 0
    rounds = [json.loads(row) for row in (run / "rounds.jsonl").read_text().splitlines()]
    assert [row["failed"] for row in rounds] == [{}, {}]
    assert rounds[1]["peer_models"] == 3


def test_two_processes_share_a_gpu(tmp_path: Path) -> None:
    """Both train on it at the same time, each with a context of its own, and no site fails."""
    experiment = tiny(options={"rounds": 2, "participants": 3})
    run = run_local(experiment, tmp_path / "run", sites=SITES, workers=2)
    rounds = [json.loads(row) for row in (run / "rounds.jsonl").read_text().splitlines()]
    assert [row["failed"] for row in rounds] == [{}, {}]
    assert [len(row["replied"]) for row in rounds] == [3, 3]


@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:0", f"cuda:{torch.cuda.device_count()}"])
def test_a_site_works_on_the_gpu_that_its_file_names(name: str, tmp_path: Path) -> None:
    """The last one is not there."""
    if name.endswith(str(torch.cuda.device_count())) and name != "auto":
        with pytest.raises(DataError, match=f"field device: expected {name}, found"):
            device_of(name, "site a")
        return
    device = device_of(name, "site a")
    assert device.type == "cuda"
    assert torch.cuda.get_device_name(device) in described(device)
    assert Pixels.of(pictures(), device).pixels.is_cuda


def test_bfloat16_is_the_gpus_own_or_not_used() -> None:
    assert has_bfloat16(CUDA) == torch.cuda.is_bf16_supported(including_emulation=False)


def test_all_images_lie_on_the_gpu_once() -> None:
    before = torch.cuda.memory_allocated()
    site = synthetic_site(
        "site-1", DataSpec(image_size=16), SyntheticData(images=40, labelled=0.5), 3
    )
    images = DeviceData(site, CUDA)
    whole = images["all"]
    assert images["labelled"].pixels.data_ptr() == whole.pixels.data_ptr()
    torch.cuda.synchronize()
    assert (
        torch.cuda.memory_allocated() - before
        < 1.5 * (whole.pixels.nbytes + whole.labels.nbytes) + 4096
    )


# --- one step


def test_predictions_of_peers_carry_no_gradient() -> None:
    net = make_net()
    peers = [make_net(seed).eval() for seed in (1, 2)]
    objective = FedPerlObjective(SETTINGS)
    inputs = RoundInputs(torch.ones(CLASSES, device=CUDA))
    for batch in make_batches(peers):
        assert batch.peers is not None
        assert batch.peers.device.type == CUDA.type
        assert batch.peers.dtype == torch.float32
        assert not batch.peers.requires_grad
        torch.stack(list(objective.losses(net, batch, inputs).terms.values())).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert all(parameter.grad is None for peer in peers for parameter in peer.parameters())


@pytest.fixture
def may_wait_afterwards() -> Iterator[None]:
    """Let a test that forbids waiting for the device fail alone."""
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("may_wait_afterwards")
def test_waiting_for_the_device_would_be_noticed() -> None:
    number = torch.ones((), device=CUDA)
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="synchroni"):
        number.item()


@pytest.mark.usefixtures("may_wait_afterwards")
@pytest.mark.parametrize(
    "objective",
    [Supervised(), FixMatchObjective(SETTINGS), FedPerlObjective(SETTINGS)],
    ids=["supervised", "fixmatch", "fedperl"],
)
def test_no_step_on_labelled_images_waits_for_the_device(
    objective: Objective[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the losses to the end of the optimiser's step; making batches may wait."""
    losses = objective.losses
    steps = []

    def forbid_waiting(*args: object) -> object:
        torch.cuda.set_sync_debug_mode("error")
        return losses(*args)

    def allow_waiting(net: nn.Module, batch: Batch, losses: Losses, state: object) -> object:
        torch.cuda.set_sync_debug_mode("default")
        steps.append(net)
        return state

    monkeypatch.setattr(objective, "losses", forbid_waiting)
    monkeypatch.setattr(objective, "after_step", allow_waiting)
    batches = make_batches([make_net(seed).eval() for seed in (1, 2)])
    inputs = RoundInputs(torch.ones(CLASSES, device=CUDA))
    train(
        make_net(),
        batches,
        Phase(objective, 1e-3),
        inputs,
        SETTINGS,
        device=CUDA,
        aborted=lambda: False,
    )
    assert len(steps) == STEPS
