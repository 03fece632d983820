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
"""Seconds between two questions of an idle site for work; hospitals' rounds take minutes."""

SCRIPT = "job.py"
"""Runs a shipped job as a FLARE recipe; no part of the job, so that it is never sent."""

_APP = "app"
_SERVER_APP = "app_server"
"""The app of all, and that of the server alone where it has one of its own."""

MARKER = Path(__file__).with_name("custom") / "README.txt"
"""One file of "own code": without it FLARE's class allow list refuses the installed package."""


def job_files(
    experiment: Experiment,
    name: str,
    clinical: bool = False,
    sites: Sequence[str] = (),
    init: Mapping[str, str] | None = None,
    tracking: Tracking = "tensorboard",
) -> dict[str, str]:
    """Return a job as {path inside the job folder: text}; equal arguments give equal bytes.

    The research flavour names its sites, because only then does the simulator start that many by
    itself. That of a shipped job has the script ``job.py``, which runs it as a FLARE recipe. The
    clinical flavour goes to every connected site, carries no code and no synthetic images, and asks
    for the privacy scope ``clinical``.

    A job that starts from a finished run has two apps, since FLARE would send weights in an app for
    all to every site. The server's has the weights (:func:`export_job`), the sites' a copy of the
    server's file, in which their executor reads the experiment. Such a job names its sites: FLARE
    knows no app for all sites without the server.

    Args:
        experiment: what to run.
        name: the job's.
        clinical: the flavour.
        sites: where the job goes; by default to all that are connected, or those of the simulation.
        init: ``folder`` and ``sha256`` of the weights it starts from; see
            :mod:`fedward.starting_model`.
        tracking: who receives the sites' scalars at the server.

    Raises:
        ConfigError: a clinical job with weights names no sites, or its tracking is not TensorBoard.
    """
    if clinical and tracking != "tensorboard":
        remedy = "A kit admits no other receiver; use it in simulations."
        raise ConfigError(
            "tracking of a clinical job", expected="tensorboard", found=tracking, remedy=remedy
        )
    if clinical:
        experiment = experiment.model_copy(update={"synthetic": None})
    elif not sites:
        sites = simulated_sites(experiment)
    interval = CLINICAL_POLLING if clinical else POLLING
    server = _SERVER_APP if init else _APP
    path, args = controller(experiment)
    received = receiver(tracking, name)
    synthetic = experiment.synthetic is not None
    meta = {
        "name": name,
        "min_clients": experiment.minimum_replies,
        "mandatory_clients": [],
        "resource_spec": {},
        "deploy_map": _deploy_map(server, sites),
        **({"scope": "clinical"} if clinical else {}),
    }
    files = {
        "meta.json": meta,
        f"{_APP}/config/{SERVER}": server_config(
            path, args, interval, received, synthetic=synthetic
        ),
        f"{_APP}/config/{CLIENT}": client_config(interval, synthetic=synthetic),
    }
    if init:
        files[f"{server}/config/{SERVER}"] = server_config(
            path, {**args, "init": dict(init)}, interval, received, synthetic=synthetic
        )
    texts = {file: json.dumps(content, indent=2) + "\n" for file, content in files.items()}
    if not clinical:
        marker = MARKER.read_text(encoding="utf-8")
        texts |= {f"{app}/custom/{MARKER.name}": marker for app in (_APP, server)}
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
) -> None:
    """Write an experiment as a job folder; the folder's name is the job's.

    Args, where not as in :func:`job_files`:
        out: the job folder; what an earlier export left there is replaced.
        init: folder of a finished run. The job carries its last model, and needs the folder no
            more.

    Raises:
        ConfigError: as :func:`job_files`, or the weights are missing, do not fit or lie in the job
            folder itself; nothing is written or deleted then.
    """
    facts = None
    if init:
        # These import torch, which no other export needs.
        from fedward.methods import method_of
        from fedward.starting_model import Weights, initial_model

        if any((init / name).resolve().is_relative_to(out.resolve()) for name in WEIGHTS):
            expected = "a folder outside the job folder, whose files are replaced"
            remedy = "Export the job into another folder, or move the run's folder elsewhere first."
            raise ConfigError(
                f"--init {init}", expected=expected, found=f"one in {out}", remedy=remedy
            )
        weights = Weights.of(init)
        initial_model(experiment, method_of(experiment), weights)
        facts = weights.facts
    texts = job_files(experiment, out.name, clinical, sites, facts, tracking)
    _clear(out)
    for path, text in texts.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8")
    if init:
        for name in WEIGHTS:
            shutil.copyfile(init / name, out / _SERVER_APP / "config" / name)


def stale_jobs(folder: Path) -> list[str]:
    """Return the names of shipped jobs that ``folder`` lacks or has otherwise, and of jobs that are
    not shipped.
    """
    exported = (
        {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
    )
    fresh = {name for name, job in JOBS.items() if _read(folder / name) == job_files(job(), name)}
    return sorted((exported | set(JOBS)) - fresh)


def _clear(job: Path) -> None:
    """Remove an earlier export, its folders too: FLARE takes even an empty ``custom`` for own code."""
    (job / SCRIPT).unlink(missing_ok=True)
    for app in (_APP, _SERVER_APP):
        for folder in (job / app / "config", job / app / "custom", job / app):
            for name in (SERVER, CLIENT, *WEIGHTS, MARKER.name):
                (folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # there is none, or it holds something else
                folder.rmdir()


_SCRIPT = '''"""Job {name} as a recipe of NVIDIA FLARE: in its simulator, or with --poc or --kit KIT; see --help."""

from fedward.flare.jobs.recipes import FedwardRecipe, environment, execute, options
from fedward.jobs import load_experiment

if __name__ == "__main__":
    chosen = options()
    experiment = load_experiment("{name}", chosen.set, clinical=chosen.policy)
    recipe = FedwardRecipe(experiment, "{name}", chosen.tracking)
    print(execute(recipe, environment(chosen, experiment)) / "report.html")
'''


def _read(job: Path) -> dict[str, str]:
    return {
        path.relative_to(job).as_posix(): path.read_text(
            encoding="utf-8", errors="replace"
        )  # weights are no text
        for path in job.rglob("*")
        if path.is_file()
        and not path.name.startswith(".__nvfl")  # left behind where FLARE signed a submitted job
    }


def _deploy_map(server: str, sites: Sequence[str]) -> dict[str, list[str]]:
    if server == _APP:
        return {_APP: ["server", *sites] if sites else ["@ALL"]}
    if sites:
        return {server: ["server"], _APP: list(sites)}
    expected = "the names of the sites it goes to"
    found = "none"
    remedy = "Name them with --sites: FLARE would send the weights in a job for all sites to each of them."
    raise ConfigError("clinical job with --init", expected=expected, found=found, remedy=remedy)
