"""Runs over any transport, told and reported as those of ``fedward run``."""

from pathlib import Path
from typing import Any

from fedward.config import Experiment
from fedward.console.console import Console
from fedward.lab import local
from fedward.lab.synthetic import SyntheticSites
from fedward.methods import job_of
from fedward.protocol.transport import Transport
from fedward.server import loop


def run_experiment(
    experiment: Experiment, folder: Path, transport: Transport, **options: Any
) -> Path:
    """Run as :func:`fedward.server.loop.run_experiment`, with the experiment's own method."""
    # Looked up now: a test that needs no report replaces what writes it.
    defaults = {
        "console": Console(),
        "report": local.write_report,
        "synthetic": SyntheticSites(),
    }
    algorithm = job_of(experiment)
    return loop.run_experiment(experiment, algorithm, folder, transport, **{**defaults, **options})
