"""A site's training in several processes: what each is given, does and returns.

    python -m torch.distributed.run --nproc_per_node=2 -m fedward.client.ranks FOLDER

Every process takes the job's batch size. N processes are one process with N times the batch, draw
for draw and, up to rounding, weight for weight. Only dropout differs, as each process draws masks
of its own. N processes take an N-th of the steps, with the job's learning rate, on as many images.
"""

import json
import sys
import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import TypeAdapter

from fedward.client.labels import labels_in
from fedward.client.site_data import DataSource
from fedward.config import Experiment
from fedward.digests import digest
from fedward.errors import ConfigError, DataError
from fedward.labels import Label
from fedward.methods import method_of
from fedward.methods.requirements import Feature
from fedward.methods.steps import batch_sizes
from fedward.methods.workflow import State
from fedward.security.secret import site_secret
from fedward.seeds import Draws, derive
from fedward.sites import SiteData
from fedward.storage.model_files import StoredState, by_role, flat, save_json, save_model
from fedward.training.device_data import DeviceData
from fedward.training.distributed.launch import launch, private_folder, work
from fedward.training.distributed.sharing import group, has_batch_norm, parallel, share
from fedward.training.learner import Aborted, Learner, LocalUpdate, PhaseRequest, train_phase
from fedward.training.machine import limit_threads
from fedward.training.networks import Networks

if TYPE_CHECKING:
    from fedward.training.trainer import Trained


@dataclass(frozen=True)
class _Request:
    """What each process is given besides the models."""

    source: DataSource
    labels: dict[str, Label] | None
    """Under active learning the labels that may be used, by id."""
    class_totals: bool
    """Whether labelled images of rare classes are left out; see ``DataSource.read``."""
    refused: frozenset[str]
    """Images that are not to be trained on."""
    digest: str
    """Digest of the images and labels."""
    round: int
    """Round of the exchange, from 1."""
    task: str
    """What the server asks for."""
    part: int
    """Number of the exchange in the round, from 0."""
    device: str
    """``cpu``, or ``cuda`` for a GPU each."""
    secret: bool
    """Whether draws depend on the site's secret, which each process reads for itself."""
    smallest_batch: int
    """As in :class:`~fedward.training.learner.Learner`."""


_REQUEST = TypeAdapter(_Request)
_LOWER = "Lower `processes` in the site file"


class Processes:
    """The ``count`` processes that train at a site together, on a GPU each or on the CPU."""

    def __init__(self, source: DataSource, learner: Learner, count: int) -> None:
        self._source = source
        self._learner = learner
        self._count = count

    def train(
        self,
        model: State,
        peers: Sequence[State],
        round_: int,
        *,
        task: str,
        part: int,
        memory: MutableMapping[str, State],
        aborted: Aborted,
    ) -> LocalUpdate:
        """Train as :meth:`Learner.train` does in one process with ``count`` times the job's batch.

        Steps are counted in batches of the job's size: a site's weight in an average must not
        depend on its machine.

        Raises:
            ConfigError: a network with BatchNorm on the CPU, where torch cannot take statistics
                over processes.
            DataError: fewer GPUs than processes, or the site's data has changed since this process
                read it.
            WorkError: aborted, a process died, or the loss is no longer finite.
        """
        source = self._source
        learner = self._learner
        started = time.perf_counter()
        data = learner.images.data
        check_processes(learner, self._count)
        with private_folder(source.folder) as folder:
            models = {"model": model}
            for index, peer in enumerate(peers):
                models[f"peer{index}"] = peer
            save_model(folder / "models.safetensors", flat(models))
            save_model(folder / "memory.safetensors", flat(memory))
            request = _Request(
                # Sites without files, which synthetic images are for, use one process.
                source=replace(source.resolved(), synthetic=None),
                labels=labels_in(data) if learner.algorithm.active else None,
                class_totals=learner.algorithm.requirements.sends.class_totals,
                refused=data.refused,
                digest=_digest(data),
                round=round_,
                task=task,
                part=part,
                device=learner.networks.device.type,
                secret=bool(learner.draws.secret),
                smallest_batch=learner.smallest_batch,
            )
            (folder / "request.json").write_bytes(_REQUEST.dump_json(request))
            launch(__name__, folder, self._count, source.site, aborted)
            answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
            memory.update(by_role(StoredState(folder / "remembered.safetensors")))
            trained = by_role(StoredState(folder / "trained.safetensors")).get("model", model)
        seconds = time.perf_counter() - started
        return LocalUpdate(trained, answer["steps"], {**answer["means"], "seconds": seconds})


def rank_learner(
    site: str,
    experiment: Experiment,
    data: SiteData,
    *,
    rank: int,
    processes: int,
    device: torch.device,
    secret: bytes = b"",
    smallest_batch: int = 1,
) -> Learner:
    """Return the learner of one process, which has all images and computes a share of each batch.

    Args:
        site: its name.
        experiment: the job's.
        data: the site's.
        rank: number of the process, from 0.
        processes: how many there are.
        device: where this one computes.
        secret: the site's, if draws depend on one.
        smallest_batch: as in :class:`~fedward.training.learner.Learner`.
    """
    algorithm = method_of(experiment)
    spec = experiment.data
    networks = Networks(experiment, algorithm, device, share)
    job_batch = algorithm.settings.batch
    example = torch.zeros(1, spec.channels, spec.image_size, spec.image_size, device=device)
    step = parallel(networks[0], example)

    def train_share(request: PhaseRequest) -> "Trained":
        # The learner has forked the generator (fork_rng). Rows of different processes get different
        # dropout.
        torch.manual_seed(derive(torch.initial_seed(), "rank", rank))
        trained = train_phase(request, shared=step)
        # As large a share of the steps that one process would take as it is of those that all take
        # together.
        whole = len(batch_sizes(request.batches.images, job_batch))
        return replace(trained, steps=-(-whole * trained.steps // len(request.batches)))

    images = DeviceData(data, device)
    draws = Draws(experiment.seed, secret)
    together = processes * job_batch
    return Learner(
        site, experiment, algorithm, networks, images, draws, together, smallest_batch, train_share
    )


def check_processes(learner: Learner, processes: int) -> None:
    """Raise ConfigError or DataError if this many processes cannot share the training.

    See :meth:`Processes.train`.
    """
    where = f"site {learner.name}, processes"
    reason = learner.algorithm.requirements.reason_against(Feature.SEVERAL_PROCESSES)
    if reason:
        raise ConfigError(
            where,
            f"{_LOWER}, or let the job train something else.",
            expected=f"1, as {reason}",
            found=f"{processes}",
        )
    if learner.networks.device.type == "cuda":
        gpus = torch.cuda.device_count()
        if processes > gpus:
            raise DataError(
                where,
                f"{_LOWER}.",
                expected=f"at most one for each of {gpus} GPUs",
                found=f"{processes}",
            )
    elif has_batch_norm(learner.networks[0]):
        net = learner.experiment.net
        raise ConfigError(
            where,
            f"{_LOWER}, or let the job use a network without BatchNorm.",
            expected=f"1 without a GPU: {net} has BatchNorm, and each process would see its own "
            "batch",
            found=f"{processes}",
        )


def _digest(data: SiteData) -> str:
    """Return a digest of which images a site trains on, and of their labels."""
    facts = []
    for images in (data.labelled, data.unlabelled):
        facts.append([list(images.ids), images.labels.tolist()])
    return digest(facts)


def _read(request: _Request) -> SiteData:
    """Return the site's data with the labels of a request.

    Raises:
        DataError: they are not those that the request was made for.
    """
    data = request.source.read(class_totals=request.class_totals)
    if request.labels is not None:
        data = data.with_labels(request.labels)
    if _digest(data) != request.digest:
        raise DataError(
            f"site {request.source.site}: its images or labels have changed during the job",
            "Change a site's data between jobs, not during one.",
        )
    return replace(data, refused=request.refused)


def _train_share(folder: Path, rank: int, processes: int) -> None:
    """Train one process's share of the request in a folder; the first process writes the answer."""
    request = _REQUEST.validate_json((folder / "request.json").read_bytes())
    source = request.source
    experiment = request.source.experiment
    data = _read(request)
    limit_threads(data.threads)
    with group(folder, rank, processes, request.device) as device:
        secret = site_secret(source.folder) if request.secret else b""
        learner = rank_learner(
            source.site,
            experiment,
            data,
            rank=rank,
            processes=processes,
            device=device,
            secret=secret,
            smallest_batch=request.smallest_batch,
        )
        models = by_role(StoredState(folder / "models.safetensors"))
        model = models.pop("model")
        peers = [models[role] for role in sorted(models, key=lambda role: int(role[4:]))]
        memory: dict[str, State] = {**by_role(StoredState(folder / "memory.safetensors"))}
        trained, steps, means = learner.train(
            model, peers, request.round, task=request.task, part=request.part, memory=memory
        )
    if rank == 0:
        save_model(folder / "trained.safetensors", flat({"model": trained} if steps else {}))
        save_model(folder / "remembered.safetensors", flat(memory))
        save_json(folder / "answer.json", {"steps": steps, "means": means})


if __name__ == "__main__":
    work(Path(sys.argv[1]), partial(_train_share, Path(sys.argv[1])))
