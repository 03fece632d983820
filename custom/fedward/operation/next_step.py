"""What to do next with a folder of site files: the command that can work with what is there."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.operation.measured import Unmeasured
from fedward.sites.site_csv import read_rows
from fedward.sites.site_file import (
    SERVER,
    ManifestSite,
    kit_site,
    named_sites,
    read_site_file,
)
from fedward.terminal import fold

NO_LABELS = (
    "No site shows a label, so no job can train a classifier. Show some (labelled in the site "
    "files; `fedward partition --labelled 0.2` writes it), let people answer for them (annotation "
    "in the site files), or give the server labelled images of its own (server.yaml)."
)


class Training(NamedTuple):
    """What a site can train on."""

    labelled: bool
    """Whether it shows labels of training images."""
    unlabelled: bool
    """Whether it has training images whose labels are missing or hidden."""
    asks: bool = False
    """Whether somebody answers a job that asks for labels."""


def training_of(site_file: Path, spec: DataSpec) -> Training:
    """Return what a site can train on, as far as its files say without an image being opened.

    Raises:
        DataError: the files cannot be read.
    """
    file = read_site_file(site_file)
    shows_some = file.labelled not in (0.0, ())
    hides_some = file.labelled != 1.0
    asks = file.annotation != "none"
    if not isinstance(file, ManifestSite):
        if file.indices is not None and not file.indices.get("train"):
            return Training(labelled=False, unlabelled=False)
        return Training(shows_some, hides_some, asks)
    entries = read_rows(file, spec.classes, spec.label_kind).entries
    training = [entry for entry in entries if entry.split in ("", "train")]
    labelled = [entry for entry in training if entry.labelled]
    return Training(
        labelled=shows_some and bool(labelled),
        unlabelled=len(labelled) < len(training) or (hides_some and bool(labelled)),
        asks=asks,
    )


def proposed_job(sites: Sequence[Training], spec: DataSpec, *, server_labels: bool) -> str | None:
    """Return the shipped job that can work with what sites have; None if none can train.

    Args:
        sites: what each site can train on. Those without training images are left out.
        spec: what the images are.
        server_labels: whether the server has images of its own.
    """
    training = [site for site in sites if site.labelled or site.unlabelled]
    if any(site.asks for site in training):
        return "fedal"
    if not any(site.labelled for site in training):
        return "fedperl_server" if server_labels and training else None
    # Without unlabelled images there is nothing to guess.
    if not any(site.unlabelled for site in training):
        return "fedavg"
    # One site has no peers.
    if len(training) == 1:
        return "ssfl"
    # IsoFed has a role for sites without labels, but takes one label an image.
    if spec.label_kind.exclusive and not all(site.labelled for site in training):
        return "isofed"
    return "fedperl"


def next_lines(job: str | None, folder: Path, spec: DataSpec, options: str) -> list[str]:
    """Return what to do with the site files in a folder once they are checked.

    Args:
        job: of :func:`proposed_job`.
        folder: of the site files.
        spec: what the images are.
        options: further options of ``fedward run``.
    """
    where = shlex.quote(f"{folder}")
    if job:
        return [f"Next: fedward run {job} --site-files {where}{options}"]
    # A survey takes one label an image.
    survey = [f"Next: fedward survey {where}"] if spec.label_kind.exclusive else []
    return [NO_LABELS, *survey]


def next_after_doctor(
    site_file: Path,
    spec: DataSpec,
    options: str = "",
    nothing: Unmeasured | None = None,
    run: str = "",
    doctor_options: str = "",
) -> list[str]:
    """Return what to do after the doctor has found a site file usable.

    ``fedward run`` would say the same of these files.

    Args:
        site_file: the file, or a folder of several.
        spec: what the images are.
        options: further options of ``fedward run``.
        nothing: why a run on what was examined would say nothing about its model.
        run: the command that runs the job that was asked about; empty: a job is proposed that can
            work with the files.
        doctor_options: further options of ``fedward doctor``, where other files need it.
    """
    folder = site_file if site_file.is_dir() else site_file.parent
    if kit_site(site_file):
        return [f"Next: fedward doctor {shlex.quote(f'{folder.parent}')}"]
    doctor_of_all = f"Next: fedward doctor {shlex.quote(f'{folder}')}{doctor_options}"
    try:
        sites = [training_of(folder / f"{name}.yaml", spec) for name in named_sites(folder)]
    except (ConfigError, DataError):
        # Other files of the folder are missing or wrong.
        return [doctor_of_all]
    if folder != site_file and len(sites) > 1:
        # What is measured, and what leaks, shows at all sites together.
        return [doctor_of_all]
    server_labels = (folder / f"{SERVER}.yaml").exists()
    job = proposed_job(sites, spec, server_labels=server_labels)
    if nothing and (run or job):
        return _measuring_lines(nothing)
    if run:
        return [f"Next: {run}"]
    trial: list[str] = []
    if folder != site_file and job:
        # `.` would not say whose folder it is.
        folder = folder.resolve()
        trial = [f"{site_file.name} is the only site file in {folder}: the run is a trial of it."]
    return trial + next_lines(job, folder, spec, options)


def _measuring_lines(nothing: Unmeasured) -> list[str]:
    """Return what to do where a run would say nothing about its model, as the run says it."""
    if nothing.command:
        return [f"{nothing.problem}.", f"Next: {nothing.command}"]
    instruction = f"Next: {nothing.cure[0].lower()}{nothing.cure[1:]}"
    # In contrast to a command, nobody copies it in one piece.
    return [f"{nothing.problem}.", "\n".join(fold(instruction))]
