"""Jobs as FLARE reads them: written from the experiments, never edited by hand."""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.flare.jobs.configurations import (
    CLIENT,
    SERVER,
    WEIGHTS,
    Tracking,
    client_config,
    controller,
    receiver,
    server_config,
)
from fedward.jobs import JOBS, simulated_sites

POLLING = 0.1
CLINICAL_POLLING = 1.0
"""Seconds for which an idle site waits before it asks for work again. Hospitals' rounds take
minutes.
"""

SCRIPT = "job.py"
"""Runs a shipped job as a FLARE recipe. It is not part of the job and never sent."""

_SCRIPT = '''"""Runs job {name} as a FLARE recipe: in the simulator, with --poc, or --kit KIT."""

from fedward.flare.jobs.recipes import main
from fedward.lab.simulation import entered_sites

if __name__ == "__main__":
    main("{name}", entered_sites)
'''

_APP = "app"
"""The app of the server and of all sites."""
_SERVER_APP = "app_server"
"""The app of the server alone, where it has one of its own."""
_ALL_SITES = "@default"
"""FLARE's name, in a job's ``resource_spec``, for what holds for all sites."""

MARKER = Path(__file__).with_name("custom") / "README.txt"
"""One file of "own code". Without it FLARE's class allow list refuses the installed package."""


def job_files(
    experiment: Experiment,
    name: str,
    clinical: bool = False,
    sites: Sequence[str] = (),
    init: Mapping[str, str] | None = None,
    tracking: Tracking = "tensorboard",
    gpus: int | None = None,
) -> dict[str, str]:
    """Return a job as {path inside the job folder: text}; equal arguments give equal bytes.

    The research flavour names its sites, because only then does the simulator start that many by
    itself. That of a shipped job has the script ``job.py``, which runs it as a FLARE recipe. The
    clinical flavour goes to every connected site, carries no code and no synthetic images, and asks
    for the privacy scope ``clinical``.

    A job that starts from a finished run has two apps, because FLARE would send weights in an app
    for all to every site. The server's has the weights (:func:`export_job`). The sites' has a copy
    of the server's file, in which their executor reads the experiment. Such a job names its sites:
    FLARE has no name for all sites without the server.

    Args:
        experiment: what to run.
        name: the job's name.
        clinical: the flavour.
        sites: where the job goes; by default to all that are connected, or to those of the
            simulation.
        init: ``folder`` and ``sha256`` of the weights it starts from; see
            :class:`fedward.starting_model.Weights`.
        tracking: who receives the sites' scalars at the server.
        gpus: how many GPUs FLARE reserves at each site; a site without as many is left out. By
            default none, and each site uses the device that its own file names.

    Raises:
        ConfigError: a clinical job with weights names no sites, or its tracking is not TensorBoard.
    """
    if clinical and tracking != "tensorboard":
        raise ConfigError(
            "tracking of a clinical job",
            "A kit admits no other receiver; use it in simulations.",
            expected="tensorboard",
            found=tracking,
        )
    if clinical:
        experiment = experiment.model_copy(update={"synthetic": None})
    elif not sites:
        sites = simulated_sites(experiment)
    interval = CLINICAL_POLLING if clinical else POLLING
    server = _SERVER_APP if init else _APP
    path, args = controller(experiment)
    scalars = receiver(tracking, name)
    synthetic = experiment.synthetic is not None
    meta = {
        "name": name,
        "min_clients": experiment.minimum_replies,
        "mandatory_clients": [],
        "resource_spec": _resources(clinical, gpus),
        "deploy_map": _deploy_map(server, sites),
    }
    if clinical:
        meta["scope"] = "clinical"
    files = {
        "meta.json": meta,
        f"{_APP}/config/{SERVER}": server_config(
            path, args, interval, scalars, synthetic=synthetic
        ),
        f"{_APP}/config/{CLIENT}": client_config(interval, synthetic=synthetic),
    }
    if init:
        with_weights = {**args, "init": dict(init)}
        files[f"{server}/config/{SERVER}"] = server_config(
            path, with_weights, interval, scalars, synthetic=synthetic
        )
    texts = {file: json.dumps(content, indent=2) + "\n" for file, content in files.items()}
    if not clinical:
        marker = MARKER.read_text(encoding="utf-8")
        for app in (_APP, server):
            texts[f"{app}/custom/{MARKER.name}"] = marker
        if name in JOBS and experiment == JOBS[name]():
            texts[SCRIPT] = _SCRIPT.format(name=name)
    return texts


def export_job(
    experiment: Experiment,
    out: Path,
    clinical: bool = False,
    sites: Sequence[str] = (),
    init: Path | None = None,
    tracking: Tracking = "tensorboard",
    gpus: int | None = None,
) -> None:
    """Write an experiment as a job folder; the folder's name is the job's.

    The arguments are those of :func:`job_files`, except:

    Args:
        out: the job folder. What an earlier export left there is replaced.
        init: folder of a finished run. The job carries its last model, and does not need the folder
            afterwards.

    Raises:
        ConfigError: as :func:`job_files`, or the weights are missing, do not fit or lie in the job
            folder itself. Nothing is written or deleted then.
    """
    facts = None
    if init:
        # Imported here, because they import torch, which no other export needs.
        from fedward.methods import method_of
        from fedward.starting_model import Weights, initial_model

        if any((init / name).resolve().is_relative_to(out.resolve()) for name in WEIGHTS):
            raise ConfigError(
                f"--init {init}",
                "Export the job into another folder, or move the run's folder elsewhere first.",
                expected="a folder outside the job folder, whose files are replaced",
                found=f"one in {out}",
            )
        weights = Weights.of(init)
        initial_model(experiment, method_of(experiment), weights)
        facts = weights.facts
    texts = job_files(experiment, out.name, clinical, sites, facts, tracking, gpus)
    _clear(out)
    for path, text in texts.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8")
    if init:
        for name in WEIGHTS:
            shutil.copyfile(init / name, out / _SERVER_APP / "config" / name)


def stale_jobs(folder: Path) -> list[str]:
    """Return the shipped jobs that ``folder`` lacks or has differently, and jobs not shipped."""
    exported = set()
    if folder.is_dir():
        exported = {path.name for path in folder.iterdir() if path.is_dir()}
    fresh = set()
    for name, job in JOBS.items():
        if _read(folder / name) == job_files(job(), name):
            fresh.add(name)
    return sorted((exported | set(JOBS)) - fresh)


def _resources(clinical: bool, gpus: int | None) -> dict[str, dict[str, int]]:
    """Return FLARE's ``resource_spec``.

    A site that has not as many GPUs is never sent the job. So none are asked for by default. A
    research job says so. A clinical job says nothing, because at a site whose launcher starts
    containers, 0 would take away the GPU that the site gives to jobs.
    """
    if gpus is not None:
        return {_ALL_SITES: {"num_of_gpus": gpus}}
    return {} if clinical else {_ALL_SITES: {"num_of_gpus": 0}}


def _clear(job: Path) -> None:
    """Remove an earlier export.

    Empty folders go too, because FLARE takes even an empty ``custom`` for own code.
    """
    (job / SCRIPT).unlink(missing_ok=True)
    for app in (_APP, _SERVER_APP):
        for folder in (job / app / "config", job / app / "custom", job / app):
            for name in (SERVER, CLIENT, *WEIGHTS, MARKER.name):
                (folder / name).unlink(missing_ok=True)
            # It does not exist, or it holds files that are not an export's.
            with suppress(OSError):
                folder.rmdir()


def _read(job: Path) -> dict[str, str]:
    """Return the files of a job folder as :func:`job_files` does."""
    texts = {}
    for path in job.rglob("*"):
        # FLARE leaves such files where it signed a job that was submitted.
        is_signature = path.name.startswith(".__nvfl")
        if path.is_file() and not is_signature:
            # A job's weights are not text.
            text = path.read_text(encoding="utf-8", errors="replace")
            texts[path.relative_to(job).as_posix()] = text
    return texts


def _deploy_map(server: str, sites: Sequence[str]) -> dict[str, list[str]]:
    """Return FLARE's ``deploy_map``: which app goes where."""
    if server == _APP:
        return {_APP: ["server", *sites] if sites else ["@ALL"]}
    if sites:
        return {server: ["server"], _APP: list(sites)}
    raise ConfigError(
        "A clinical job with --init names no sites",
        "Name them with --sites: FLARE would send the weights in a job for all sites to each of "
        "them.",
    )
