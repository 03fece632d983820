"""A site's training in several processes: what each is told, what it does, and what comes back.

    python -m torch.distributed.run --nproc_per_node=2 -m fedward.client.ranks FOLDER

Every process takes the job's batch size: N processes are one process with N times the batch, draw for draw and, up to
rounding, weight for weight (dropout apart, whose masks are each process's own). They take an N-th of the steps, with
the job's learning rate, on as many images.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fedward.client.site import Site
from fedward.config import Experiment
from fedward.errors import ConfigError, DataError
from fedward.methods.local import Phase, RoundInputs
from fedward.methods.settings import Settings
from fedward.methods.workflow import State
from fedward.nets import build
from fedward.seeds import derive
from fedward.sites import SiteData
from fedward.storage.checkpoint import StoredState, by_role, flat, save_json, save_model
from fedward.training.batches import RoundBatches, batch_sizes
from fedward.training.distributed.launch import launch, private_folder, work
from fedward.training.distributed.sharing import SharedObjective, group, has_batch_norm, parallel, share

if TYPE_CHECKING:
    from fedward.training.trainer import Trained

Models = Mapping[str, State]
"""Models by role."""


class RankSite(Site):
    """One process's share of a site's training; it answers no request.

    Args:
        rank: this process's number, from 0.
        processes: how many share a batch.
        device: where this one computes.
    """

    def __init__(
        self,
        name: str,
        experiment: Experiment,
        folder: Path,
        site_folders: Sequence[Path],
        *,
        cache: Path | None = None,
        rank: int,
        processes: int,
        device: torch.device,
    ) -> None:
        super().__init__(name, experiment, folder, site_folders, cache=cache)
        self._rank, self._processes, self.device = rank, processes, device

    @property
    def _settings(self) -> Settings:
        """The job's with the batch of all processes."""
        # A copy is not checked: the images of a round may be no multiple of the larger batch, the last is smaller then.
        job = super()._settings
        return job.model_copy(update={"batch": self._processes * job.batch})

    def _network(self) -> nn.Module:
        return share(super()._network())

    @cached_property
    def _step(self) -> DistributedDataParallel:
        spec = self.experiment.data
        return parallel(self._net, torch.zeros(1, spec.channels, spec.image_size, spec.image_size, device=self.device))

    def _train(
        self, net: nn.Module, batches: RoundBatches, phase: Phase, inputs: RoundInputs, aborted: Callable[[], bool]
    ) -> "Trained":
        # Site.train has forked the generator (fork_rng); rows of different processes get different dropout.
        torch.manual_seed(derive(torch.initial_seed(), "rank", self._rank))
        shared = replace(phase, objective=SharedObjective(phase.objective, self._step))
        trained = super()._train(net, batches, shared, inputs, aborted)
        # As large a share of the steps that one process would take as it is of those that all take together.
        whole = len(batch_sizes(batches.images, super()._settings.batch))
        return replace(trained, steps=-(-whole * trained.steps // len(batches)))


class Processes:
    """The processes that train at a site together: one for each GPU or, without any, on the CPU.

    Args:
        site: whose training it is.
        count: how many, as the site's own file says.
    """

    def __init__(self, site: Site, count: int) -> None:
        self._site, self._count = site, count

    def train(
        self,
        model: State,
        peers: Sequence[State],
        round_: int,
        *,
        task: str,
        part: int,
        memory: MutableMapping[str, State],
        aborted: Callable[[], bool],
    ) -> tuple[State, int, dict[str, float]]:
        """Train as :meth:`Site.train` does in one process with so many times the job's batch.

        Steps are larger and fewer then, at the job's learning rate. They are counted in batches of the job's size all
        the same: a site's weight in an average by steps must not depend on its machine.

        Raises:
            ConfigError: a network with BatchNorm on the CPU, where torch cannot take statistics over processes.
            DataError: fewer GPUs than processes, or the site's data has changed since this process read it.
            RunError: aborted, a process died, or the loss is no longer finite.
        """
        site, started = self._site, time.perf_counter()
        _check(site, self._count)
        with private_folder(site.folder) as folder:
            models = {"model": model, **{f"peer{index}": peer for index, peer in enumerate(peers)}}
            _save(folder / "models.safetensors", models)
            _save(folder / "memory.safetensors", memory)
            request = {
                "site": site.name,
                "experiment": site.experiment.model_dump(mode="json"),
                "folder": str(site.folder.resolve()),
                "cache": str(site.cache.resolve()),
                "site_folders": [str(path.resolve()) for path in site.site_folders],
                "labels": site.labels,
                "data": _digest(site.data),
                "exchange": {"round_": round_, "task": task, "part": part},
            }
            save_json(folder / "request.json", request)
            launch(__name__, folder, self._count, site.name, aborted)
            answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
            memory.update(_load(folder / "remembered.safetensors"))
            trained = _load(folder / "trained.safetensors").get("model", model)
        return trained, answer["steps"], {**answer["means"], "seconds": time.perf_counter() - started}


def _check(site: Site, processes: int) -> None:
    spec, where = site.experiment, f"site {site.name}, processes"
    if reason := site.needs_one_process:
        raise ConfigError(
            where,
            expected=f"1, as {reason}",
            found=f"{processes}",
            remedy="Lower `processes` in the site file, or let the job train something else.",
        )
    if site.device.type == "cuda":
        if processes > (gpus := torch.cuda.device_count()):
            remedy = "Lower `processes` in the site file."
            raise DataError(where, expected=f"at most one for each of {gpus} GPUs", found=f"{processes}", remedy=remedy)
    elif has_batch_norm(build(spec.net, len(spec.data.classes), spec.data.channels)):
        raise ConfigError(
            where,
            expected=f"1 without a GPU: {spec.net} has BatchNorm, and each process would see its own batch",
            found=f"{processes}",
            remedy="Lower `processes` in the site file, or let the job use a network without BatchNorm.",
        )


def _digest(data: SiteData) -> str:
    """Return a digest of which images a site trains on, and of their labels."""
    parts = ((images.ids, images.labels.tolist()) for images in (data.labelled, data.unlabelled))
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()


def _save(path: Path, models: Models) -> None:
    save_model(path, flat(models))


def _load(path: Path) -> dict[str, dict[str, torch.Tensor]]:
    return by_role(StoredState(path))


def _train_share(folder: Path, rank: int, processes: int) -> None:
    """Train one process's share of the request in a folder; the first process writes the answer."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    experiment = Experiment.parse(request["experiment"], "request.json")
    place = Path(request["folder"]), [Path(path) for path in request["site_folders"]]
    with group(folder, rank, processes) as device:
        cache = Path(request["cache"])
        site = RankSite(request["site"], experiment, *place, cache=cache, rank=rank, processes=processes, device=device)
        if request["labels"] is not None:
            site.use_labels(request["labels"])
        if _digest(site.data) != request["data"]:
            raise DataError(
                f"site {site.name}",
                expected="the images and labels the job began with",
                found="others",
                remedy="Change a site's data between jobs, not during one.",
            )
        models = _load(folder / "models.safetensors")
        model, peers = models.pop("model"), [models[role] for role in sorted(models, key=lambda role: int(role[4:]))]
        memory: dict[str, State] = {**_load(folder / "memory.safetensors")}
        trained, steps, means = site.train(model, peers, memory=memory, **request["exchange"])
    if rank == 0:
        _save(folder / "trained.safetensors", {"model": trained} if steps else {})
        _save(folder / "remembered.safetensors", memory)
        save_json(folder / "answer.json", {"steps": steps, "means": means})


if __name__ == "__main__":
    work(Path(sys.argv[1]), partial(_train_share, Path(sys.argv[1])))
