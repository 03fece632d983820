"""A site's training in several processes: the request to them, each one's share, the answer.

    python -m torch.distributed.run --nproc_per_node=2 -m fedward.client.ranks FOLDER

Every process takes the job's batch size. N processes draw the same images as one
process with N times the batch, and up to rounding they reach the same weights. Only dropout
differs, because each process draws its own masks. Compared with one process and the job's batch,
N processes take an N-th of the steps on the same number of images, at the same learning rate.
"""

import json
import math
import sys
import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import TypeAdapter

from fedward.client.earlier_answers import read_for_run
from fedward.client.labels import labels_in
from fedward.client.site_data import DataSource
from fedward.config import Experiment
from fedward.digests import digest
from fedward.disk import save_json
from fedward.errors import ConfigError, DataError
from fedward.labels import Label
from fedward.methods import method_of
from fedward.methods.requirements import Feature
from fedward.methods.steps import batch_sizes
from fedward.model_state import State
from fedward.security.secret import site_secret
from fedward.seeds import Draws, derive
from fedward.sites import SiteData
from fedward.storage.model_files import StoredState, by_role, flat, save_model
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
    """What each process receives besides the models."""

    source: DataSource
    run: str
    """The run's id."""
    labels: dict[str, Label] | None
    """Under active learning the labels that may be used, by id; None in other jobs."""
    class_totals: bool
    """Whether labelled images of rare classes are left out; see ``DataSource.read``."""
    hidden_labels: bool
    """Whether no training image has a label; see ``DataSource.read``."""
    refused: frozenset[str]
    """Ids of images that must not be trained on."""
    digest: str
    """Digest of the images and labels, which each process compares with those it reads."""
    round: int
    """Round of the exchange, from 1."""
    task: str
    """Name of the task that the server asks for."""
    part: int
    """Number of the exchange in the round, from 0."""
    device: str
    """``cpu``, or ``cuda`` for one GPU for each process."""
    secret: bool
    """Whether draws depend on the site's secret, which each process reads from its own file."""
    smallest_batch: int
    """As in :class:`~fedward.training.learner.Learner`."""


_REQUEST = TypeAdapter(_Request)
_LOWER_PROCESSES = "Lower `processes` in the site file"


class Processes:
    """The processes that train together at a site, each on its own GPU or all on the CPU.

    Args:
        source: gives each process the site's data.
        run: the run's id.
        learner: the site's learner, which says what to train on.
        count: the number of processes.
    """

    def __init__(self, source: DataSource, run: str, learner: Learner, count: int) -> None:
        self._source = source
        self._run = run
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

        Steps are counted in batches of the job's size, because a site's weight in an average must
        not depend on its machine.

        Raises:
            ConfigError: the method trains in one process only, or the network has BatchNorm and
                runs on the CPU, where torch cannot take statistics over several processes.
            DataError: there are fewer GPUs than processes, or the site's data have changed since
                this process read them.
            WorkError: the run was aborted, a process died, or the loss is no longer finite.
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
                # Synthetic images are for sites without files, and these use one process.
                source=replace(source.resolved(), synthetic=None),
                run=self._run,
                labels=labels_in(data) if learner.algorithm.active else None,
                class_totals=learner.algorithm.requirements.sends.class_totals,
                hidden_labels=learner.algorithm.requirements.hidden_labels,
                refused=data.refused,
                digest=_images_digest(data),
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
        site: the site's name.
        experiment: the job's settings.
        data: the site's data.
        rank: number of the process, from 0.
        processes: the number of processes.
        device: where this process computes.
        secret: the site's secret, if draws depend on it.
        smallest_batch: as in :class:`~fedward.training.learner.Learner`.
    """
    algorithm = method_of(experiment)
    data_spec = experiment.data
    networks = Networks(experiment, algorithm, device, share)
    job_batch = algorithm.settings.batch
    size = data_spec.image_size
    example = torch.zeros(1, data_spec.channels, size, size, device=device)
    shared_losses = parallel(networks[0], example)

    def train_share(request: PhaseRequest) -> "Trained":
        # Rows of different processes get different dropout. The learner has forked the generator
        # (fork_rng), so this seed does not outlast the phase.
        torch.manual_seed(derive(torch.initial_seed(), "rank", rank))
        trained = train_phase(request, shared=shared_losses)
        # A step may be skipped, for example without any pseudo-label. The share of steps taken is
        # applied to the steps that one process with the job's batch would have, rounded up.
        steps_of_one_process = len(batch_sizes(request.batches.images, job_batch))
        steps = math.ceil(Fraction(steps_of_one_process * trained.steps, len(request.batches)))
        return replace(trained, steps=steps)

    images = DeviceData(data, device)
    draws = Draws(experiment.seed, secret)
    return Learner(
        site,
        experiment,
        algorithm,
        networks,
        images,
        draws,
        batch=processes * job_batch,
        smallest_batch=smallest_batch,
        run_phase=train_share,
    )


def check_processes(learner: Learner, processes: int) -> None:
    """Raise ConfigError or DataError if this many processes cannot share the training.

    :meth:`Processes.train` gives the reasons.
    """
    where = f"site {learner.name}, processes"
    reason = learner.algorithm.requirements.reason_against(Feature.SEVERAL_PROCESSES)
    if reason:
        raise ConfigError(
            where,
            f"{_LOWER_PROCESSES}, or let the job train something else.",
            expected=f"1, as {reason}",
            found=f"{processes}",
        )
    if learner.networks.device.type == "cuda":
        gpus = torch.cuda.device_count()
        if processes > gpus:
            raise DataError(
                where,
                f"{_LOWER_PROCESSES}.",
                expected=f"at most one for each of {gpus} GPUs",
                found=f"{processes}",
            )
    elif has_batch_norm(learner.networks[0]):
        net = learner.experiment.net
        raise ConfigError(
            where,
            f"{_LOWER_PROCESSES}, or let the job use a network without BatchNorm.",
            expected=f"1 without a GPU: {net} has BatchNorm, and each process would see its own "
            "batch",
            found=f"{processes}",
        )


def _images_digest(data: SiteData) -> str:
    """Return a digest of the ids of a site's training images and of their labels."""
    ids_and_labels = []
    for images in (data.labelled, data.unlabelled):
        ids_and_labels.append([list(images.ids), images.labels.tolist()])
    return digest(ids_and_labels)


def _read_data(request: _Request) -> SiteData:
    """Return the site's data with the labels of a request.

    Raises:
        DataError: the images or labels are not those that the request was made for.
    """
    data = read_for_run(
        request.source,
        request.run,
        class_totals=request.class_totals,
        hidden_labels=request.hidden_labels,
    )
    if request.labels is not None:
        data = data.with_labels(request.labels)
    if _images_digest(data) != request.digest:
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
    data = _read_data(request)
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
        # The other roles are peer0, peer1 and so on.
        peers = [models[f"peer{index}"] for index in range(len(models))]
        memory: dict[str, State] = {**by_role(StoredState(folder / "memory.safetensors"))}
        trained, steps, means = learner.train(
            model, peers, request.round, task=request.task, part=request.part, memory=memory
        )
    if rank == 0:
        # Without a step the model is unchanged, and the caller keeps the one that it has.
        save_model(folder / "trained.safetensors", flat({"model": trained} if steps else {}))
        save_model(folder / "remembered.safetensors", flat(memory))
        save_json(folder / "answer.json", {"steps": steps, "means": means})


if __name__ == "__main__":
    work(Path(sys.argv[1]), partial(_train_share, Path(sys.argv[1])))
