"""Run folders without a run: one that begins, and what a finished run leaves."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from fedward.config import Experiment
from fedward.methods import job_of
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
