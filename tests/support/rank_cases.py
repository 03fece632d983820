"""Exchanges that one process trains with twice the batch, and two with the batch, alike.

    python -m torch.distributed.run ... -m rank_cases FOLDER

trains all of them in several processes that are started once; site files are in FOLDER/sites.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedward.client.ranks import rank_learner
from fedward.client.site_data import DataSource
from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.disk import save_json
from fedward.lab.synthetic import SyntheticSites
from fedward.model_state import State
from fedward.nets import build, image_size
from fedward.sites import SiteData
from fedward.storage.model_files import save_model
from fedward.training.distributed.launch import work
from fedward.training.distributed.sharing import group, parallel, share
from fedward.training.learner import Learner
from isolated import isolated
from tiny import Folded, tiny

OPTIONS = {"optimizer": "sgd", "learning_rate": 0.05, "schedule": "constant"}
"""Of Adam the first steps are as long where a gradient is but rounding: nothing could be compared.
"""


@dataclass(frozen=True)
class Case:
    """One exchange with a site."""

    experiment: Experiment
    site: str = "site-1"
    task: str = "train"
    peers: int = 0

    def train(
        self, make: Callable[[str, Experiment, SiteData], Learner], folder: Path, sites: Path
    ) -> tuple[State, dict[str, Tensor], tuple[int, dict[str, float]]]:
        """Return model, memory of the site, steps and mean losses after the third round."""
        experiment = self.experiment
        site_folders = () if experiment.synthetic else (sites,)
        source = DataSource(self.site, experiment, folder, site_folders, synthetic=SyntheticSites())
        learner = make(self.site, experiment, source.read(class_totals=False))
        shape = (experiment.net, len(experiment.data.classes))
        nets = (
            build(*shape, seed=seed, trainable=experiment.trainable)
            for seed in range(self.peers + 1)
        )
        model, *peers = (net.state_dict() for net in nets)
        memory: dict[str, State] = {}
        trained, steps, means = learner.train(model, peers, 3, task=self.task, memory=memory)
        flat = {
            f"{role}/{key}": tensor
            for role, state in memory.items()
            for key, tensor in state.items()
        }
        return (
            trained,
            flat,
            (steps, {name: value for name, value in means.items() if name != "seconds"}),
        )


def case(
    method: str,
    batch: int = 8,
    images: int = 24,
    labelled: float = 0.5,
    peers: int = 0,
    net: str = "small_cnn_gn",
    trainable: str = "all",
    **options: Any,
) -> Case:
    """A site with labelled and unlabelled images."""
    options = {**OPTIONS, "batch": batch, "images_per_round": images, **options}
    synthetic = SyntheticData(images=40, labelled=labelled)
    data = DataSpec(image_size=image_size(net) or 16)
    changes = {"net": net, "trainable": trainable, "data": data, "synthetic": synthetic}
    return Case(tiny(method, **changes, options=options), peers=peers)


def grouped(method: str, site: str, task: str, net: str = "small_cnn_gn", **options: Any) -> Case:
    """A site of the methods with two groups, after their warm-up; batches share a remainder."""
    options = {"learning_rate": 0.05, "schedule": "constant", "warm_up": 0, "batch": 4, **options}
    options = {"images_at_most": 17, **options}
    if task == "unsupervised":
        options |= {"unlabelled_learning_rate": 0.05, "unlabelled_weight": 1.0}
    return Case(isolated(method, net=net, options=options), site, task)


CASES = {
    "supervised": case("fedavg", batch=5, images=25),
    "weighted": case("fedavg", class_weighting="median_frequency"),
    "warmed_up": case("fedavg", batch=2, images=24, round_warm_up=0.7),
    "proximal": grouped("fedprox", "site-1", "supervised", proximal_weight=10.0),
    "fixmatch": case("ssfl", threshold=0.25),
    "soft": case("ssfl", labelled=0.0, pseudo_labels="soft", threshold=0.08),
    "nothing_kept": case("ssfl", labelled=0.0, threshold=1.0),
    "peers": case("fedperl", peers=2, threshold=0.19, consistency_weight=100.0),
    "peers_follow_batch": case(
        "fedperl", peers=1, threshold=0.17, batch_statistics_for_labels=True, batch=3, images=9
    ),
    "teacher": grouped("mt_wfedavg", "site-2", "unsupervised", net="small_cnn"),
    "lasting_teacher": grouped("rscfed", "site-2", "unsupervised"),
    "adapted": grouped("isofed", "site-1", "supervised"),
    "adapted_teacher": grouped("isofed", "site-2", "unsupervised"),
    "less_than_a_batch": grouped("isofed", "site-1", "supervised", batch=64, images_at_most=7),
    "one_image": grouped("wfedavg", "site-1", "supervised", images_at_most=1),
    "last_blocks": case("fedperl", peers=1, threshold=0.17, trainable="last:2"),
    "adapters": case(
        "ssfl", threshold=0.25, net="small_cnn", trainable="adapters", learning_rate=0.5
    ),
    "parts_unused": case("fedavg", net="masked_swin_28"),
    "parts_unused_in_several_passes": case(
        "fedperl", net="masked_swin_28", peers=1, threshold=0.17, batch=4
    ),
    "parts_unused_nothing_kept": case("ssfl", net="masked_swin_28", labelled=0.0, threshold=1.0),
}


def compute_one_image(folder: Path, rank: int) -> None:
    """One image for two processes, and a network that needs an image: outputs and gradients."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), Folded(), nn.Flatten(), nn.Linear(4 * 36, 2))
    for parameter in net.parameters():
        nn.init.constant_(parameter, 0.1)
    image = torch.arange(192.0).reshape(1, 3, 8, 8) / 192
    alone = net(image)
    expected = torch.autograd.grad(alone.square().sum(), list(net.parameters()))
    step = parallel(share(net), image)
    together = step(lambda shared: shared(image))
    together.square().sum().backward()
    torch.testing.assert_close(together, alone)
    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    (folder / f"equal-{rank}").touch()


def train_all(folder: Path, rank: int, processes: int) -> None:
    """Train every case in turn, and leave what came out in a folder of the case and the process."""
    with group(folder, rank, processes) as device:
        make = partial(rank_learner, rank=rank, processes=processes, device=device)
        for name, case_ in CASES.items():
            there = folder / name / str(rank)
            model, memory, (steps, means) = case_.train(make, there / "site", folder / "sites")
            save_model(there / "model.safetensors", model)
            save_model(there / "memory.safetensors", memory)
            imported = sorted({"torch._dynamo", "sympy"} & set(sys.modules))
            save_json(there / "answer.json", {"steps": steps, "means": means, "imported": imported})
        compute_one_image(folder, rank)


if __name__ == "__main__":
    work(Path(sys.argv[1]), partial(train_all, Path(sys.argv[1])))
