"""Runs over any transport, told and reported as those of ``fedward run``."""

from pathlib import Path
from typing import Any

from fedward.console.console import Console
from fedward.lab import local
from fedward.lab.synthetic import SyntheticSites
from fedward.server import loop


def run_experiment(*args: Any, **options: Any) -> Path:
    """Run as :func:`fedward.server.loop.run_experiment`."""
    # Looked up now: a test that needs no report replaces what writes it.
    defaults = {
        "console": Console(),
        "report": local.write_report,
        "synthetic": SyntheticSites(),
    }
    return loop.run_experiment(*args, **{**defaults, **options})
