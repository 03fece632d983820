"""``fedward jobs``, which opens the images of a simulation first. Imports nothing heavy."""

import argparse
from pathlib import Path

from fedward.config import Experiment
from fedward.flare import job_commands


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``jobs``."""
    job_commands.add_jobs(parser, _enter)


def _enter(experiment: Experiment, site_files: Path) -> list[str]:
    """Open all images, say what is to be known, and return the sites that can take part."""
    from fedward.lab.simulation import entered_sites

    return entered_sites(experiment, site_files)
