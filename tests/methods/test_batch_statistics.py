"""Which views move BatchNorm's running statistics, in each of the two settings."""

import copy

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, nn

from fedward.methods.fedperl.pseudo_labels import FedPerlObjective
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import (
    Batch,
    Objective,
    Phase,
    RoundInputs,
    batch_norms,
    statistics_kept,
    strong_pass,
)
from fedward.methods.mean_teacher import MeanTeacher, MeanTeacherSettings
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.settings import Settings
from fedward.training.trainer import train
from tiny import batch_norm_net

IMAGES = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
INPUTS = RoundInputs(torch.ones(8))
MODES = ["weak_views", "all_views"]


def statistics(net: nn.Module) -> list[Tensor]:
    """Return running means and variances, and how many batches were seen."""
    return [buffer.clone() for norm in batch_norms(net) for buffer in norm.buffers()]


def equal(actual: list[Tensor], expected: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


def seen(net: nn.Module) -> nn.Module:
    """Return the net with statistics unlike those of the images."""
    for norm in batch_norms(net):
        norm.running_mean.sub_(0.3)
        norm.running_var.mul_(1.7)
    return net


@pytest.mark.parametrize("mode", MODES)
def test_strong_views_move_statistics_only_if_all_are_to(mode: str) -> None:
    settings = Settings(batch_statistics=mode)
    net = seen(batch_norm_net(1))
    before = statistics(net)
    strong_pass(net, IMAGES, settings)
    assert equal(statistics(net), before) == (mode != "all_views")


def test_strong_views_are_normalised_by_their_batch() -> None:
    """Both settings give the logits and gradients of a pass in training mode, to the last bit."""
    logits_and_gradients = {}
    for mode in MODES:
        settings = Settings(batch_statistics=mode)
        net = seen(batch_norm_net(1))
        logits = strong_pass(net, IMAGES, settings)
        logits.square().sum().backward()
        logits_and_gradients[mode] = [
            logits.detach(),
            *(parameter.grad for parameter in net.parameters()),
        ]
    assert equal(logits_and_gradients["weak_views"], logits_and_gradients["all_views"])
    in_training_mode = seen(batch_norm_net(1)).train()(IMAGES)
    assert torch.equal(logits_and_gradients["all_views"][0], in_training_mode)


def test_kept_statistics_move_again_afterwards() -> None:
    net = batch_norm_net(1)
    before = statistics(net)
    with statistics_kept(net):
        net(IMAGES)
    assert equal(statistics(net), before)
    net(IMAGES)
    assert not equal(statistics(net), before)


def test_a_pass_that_fails_keeps_nothing() -> None:
    net = batch_norm_net(1)
    with pytest.raises(RuntimeError), statistics_kept(net):
        net(torch.rand(2, 1, 1, 1))
    assert all(norm.track_running_stats for norm in batch_norms(net))


def test_a_layer_without_statistics_stays_without() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    with statistics_kept(net):
        net(IMAGES)
    assert not net[0].track_running_stats


def test_images_that_are_no_numbers_do_not_reach_the_statistics() -> None:
    """A momentum of 0 instead would keep 1 times the old ones, and add 0 times NaN."""
    net = batch_norm_net(1)
    before = statistics(net)
    strong_pass(net, torch.full_like(IMAGES, torch.nan), Settings())
    assert equal(statistics(net), before)


def test_timms_batchnorm_is_one() -> None:
    net = nn.Sequential(BatchNormAct2d(3)).train()
    before = statistics(net)
    strong_pass(net, IMAGES, Settings())
    assert equal(statistics(net), before)
    net(IMAGES)
    assert not equal(statistics(net), before)


# --- in the methods


def batch() -> Batch:
    draw = torch.Generator().manual_seed(1)
    views = [torch.rand(6, 3, 16, 16, generator=draw) for _ in range(3)]
    opinions = torch.softmax(torch.randn(2, 6, 8, generator=draw), dim=2)
    return Batch(views[0], torch.arange(6), views[1], views[2], opinions)


def objectives(mode: str) -> dict[str, tuple[Objective, Settings]]:
    fixmatch = FixMatchSettings(threshold=0.0, batch_statistics=mode)
    fedperl = FedPerlSettings(threshold=0.0, batch_statistics=mode)
    teacher = MeanTeacherSettings(batch_statistics=mode)
    return {
        "fixmatch": (FixMatchObjective(fixmatch), fixmatch),
        "fedperl": (FedPerlObjective(fedperl), fedperl),
        "teacher": (MeanTeacher(teacher), teacher),
        "lasting teacher": (MeanTeacher(teacher, lasting=True), teacher),
    }


def after_a_step(objective: Objective, settings: Settings, images: Batch) -> nn.Module:
    net = seen(batch_norm_net(1))
    phase = Phase(objective, 1e-3)
    train(net, [images], phase, INPUTS, settings, device=torch.device("cpu"), aborted=lambda: False)
    return net


@pytest.mark.parametrize("method", ["fixmatch", "fedperl"])
def test_statistics_are_those_of_labelled_views(method: str) -> None:
    """As after a pass of these alone; with all views, after one of the strong views, too."""
    images = batch()
    twin = seen(batch_norm_net(1))
    twin(images.labelled)
    assert equal(
        statistics(after_a_step(*objectives("weak_views")[method], images)), statistics(twin)
    )
    twin(images.strong)
    assert equal(
        statistics(after_a_step(*objectives("all_views")[method], images)), statistics(twin)
    )


def test_a_students_statistics_are_those_of_its_weak_views() -> None:
    """RSCFed's student sees a second weak view; other students see strong ones, and keep theirs."""
    images = batch()
    twin = seen(batch_norm_net(1))
    nets = {
        mode: {name: after_a_step(*each, images) for name, each in objectives(mode).items()}
        for mode in MODES
    }
    received = statistics(twin)
    assert equal(statistics(nets["weak_views"]["teacher"]), received)
    twin(images.strong)
    assert equal(statistics(nets["weak_views"]["lasting teacher"]), statistics(twin))
    assert equal(statistics(nets["all_views"]["teacher"]), statistics(twin))


@pytest.mark.parametrize("mode", MODES)
def test_a_net_without_batchnorm_is_trained_alike(mode: str) -> None:
    settings = Settings(batch_statistics=mode)
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 2), nn.Dropout(0.5))
    twin = copy.deepcopy(net)
    torch.manual_seed(0)
    logits = strong_pass(net, IMAGES, settings)
    torch.manual_seed(0)
    assert torch.equal(logits, twin(IMAGES))


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_statistics"):
        Settings(batch_statistics="none")
