"""Run folders without a run: one that begins, and what a finished run leaves."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from fedward.config import Experiment
from fedward.methods import job_of
from fedward.nets import build
from fedward.protocol import wire
from fedward.storage.info import Summary
from fedward.storage.run_folder import NewRun, RunFolder


def new_run(
    folder: Path, experiment: Experiment, sites: Sequence[str], engine: str, base: str | None = None
) -> RunFolder:
    """Begin a run in a new folder."""
    return RunFolder.create(
        folder, experiment, job_of(experiment).requirements, list(sites), NewRun(engine), base=base
    )


def run_of_two_models(folder: Path, experiment: Experiment) -> Path:
    """Write the folder of a finished run of two rounds, of which the first has the best model."""
    run = new_run(folder, experiment, ["site-1"], "local")
    for round_, name in ((1, "best"), (2, "model")):
        state = build(experiment.net, len(experiment.data.classes), seed=round_).state_dict()
        run.save_global(name, state, {"round": round_, "value": 0.5})
    run.set_status("finished", Summary(rounds=2, best_round=1, best_value=0.5))
    return folder


def finished_run(
    folder: Path, experiment: Experiment, model: Mapping[str, Tensor], base: str | None = None
) -> Path:
    """Write the folder of a finished run with this model; ``base``: SHA-256 of a frozen base."""
    run = new_run(folder, experiment, ["site-1"], "local", base)
    run.save_global("model", model, {"round": 1})
    run.audit.add("committed", round=1, state=None)
    sent = {"model": wire.model_digest(wire.flatten("model", model)), "peers": {}}
    run.audit.add("asked", round=2, part=0, tasks={}, evaluate=["site-1"], decisions={}, **sent)
    run.set_status("finished", Summary(rounds=1))
    return folder
