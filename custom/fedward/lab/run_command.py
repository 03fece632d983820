"""``fedward run``: a job in this process or in FLARE's simulator. Imports nothing heavy before it
runs.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fedward.config import Experiment
from fedward.errors import ConfigError, DataError
from fedward.jobs import (
    JOBS,
    SETTING_HELP,
    is_shipped,
    load_experiment,
    simulated_sites,
    site_names,
)

if TYPE_CHECKING:
    from fedward.console.listener import Listener


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run``."""
    parser.set_defaults(command=_run)
    add = parser.add_argument
    job = f"{', '.join(JOBS)}, any method's name, or a JSON file with an experiment"
    add("job", nargs="?", metavar="JOB", help=job)
    add("--out", type=Path, metavar="FOLDER", help="new run folder (default: runs/JOB)")
    engine = "this process, or FLARE's simulator (default: local)"
    add("--engine", choices=("local", "simulator"), default="local", help=engine)
    sites = "number of sites, site-1 to site-N (default: those of --site-files, or the job's)"
    add("--sites", type=int, metavar="N", help=sites)
    files = (
        "folder with a file SITE.yaml for each site, with data of its own (default: $FEDWARD_SITES)"
    )
    add(
        "--site-files",
        type=Path,
        default=os.environ.get("FEDWARD_SITES") or None,
        metavar="FOLDER",
        help=files,
    )
    missing = "go on without sites whose files cannot be used (default: tell what is wrong with each, and end)"
    add("--allow-missing", action="store_true", help=missing)
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=SETTING_HELP)
    workers = "processes in which the sites of a round work at the same time (default: 1; see docs/running.md)"
    add("--workers", type=int, default=1, metavar="N", help=workers)
    init = "start from the last model of this finished run (default: fresh weights)"
    add("--init", type=Path, metavar="RUN_FOLDER", help=init)
    told = parser.add_mutually_exclusive_group()
    told.add_argument("--quiet", action="store_true", help="print errors, and one line at the end")
    told.add_argument(
        "--json",
        action="store_true",
        help="print each event as a line of JSON; see docs/running.md",
    )
    add(
        "--resume",
        type=Path,
        metavar="RUN_FOLDER",
        help="continue this interrupted run (default: start a new one)",
    )


def _run(options: argparse.Namespace) -> int:
    if options.resume:
        return _resume(options)
    if options.job is None:
        raise ConfigError(
            "fedward run", expected="a job", found="none", remedy=f"Name one of {', '.join(JOBS)}."
        )
    if options.engine == "simulator":
        _refuse_local(options)
    from fedward.sites import named_sites

    folders = [options.site_files] if options.site_files else []
    named = [
        name for folder in folders for name in named_sites(folder)
    ]  # before the experiment, which imports torch
    experiment = _experiment(options)
    options.out = options.out or Path("runs") / Path(options.job).stem
    if not experiment.data.label_kind.exclusive and not folders:
        found = "data.multi_label=true, and synthetic images show one class each"
        remedy = "Name the sites' files."
        raise ConfigError("fedward run", expected="--site-files FOLDER", found=found, remedy=remedy)
    sites = (
        (named or simulated_sites(experiment))
        if options.sites is None
        else site_names(options.sites)
    )
    if folders:
        sites = _usable(options, experiment, sites)
    if options.engine == "simulator":
        return _simulate(options, experiment, sites)
    return _run_here(options, experiment, sites=sites, site_folders=folders, init=options.init)


def _refuse_local(options: argparse.Namespace) -> None:
    """Refuse options that only the local engine has."""
    local = {"--workers": options.workers != 1, "--quiet": options.quiet, "--json": options.json}
    given = [name for name, is_given in local.items() if is_given]
    if given:
        remedy = f"Leave {given[0]} away: the simulator gives each site a process, and each prints for itself."
        raise ConfigError(
            given[0], expected="the local engine", found="--engine simulator", remedy=remedy
        )


def _run_here(options: argparse.Namespace, experiment: Experiment | None, **choices: Any) -> int:
    """Run or resume in this process, and tell of it as the options say."""
    from fedward.console.console import Console
    from fedward.console.live_line import live_line
    from fedward.console.progress import Progress
    from fedward.lab.local import run_local

    options.hint = _hint(options)
    workers = options.workers
    listener = _listener(options)
    if listener:
        run_local(experiment, options.out, workers=workers, console=listener, **choices)
        return 0
    progress = Progress(workers)
    with live_line(progress):
        run_local(
            experiment, options.out, workers=workers, console=Console(progress=progress), **choices
        )
    return 0


def _listener(options: argparse.Namespace) -> "Listener | None":
    """Return what tells of a run to other programs; None where people read."""
    from fedward.console.events import ClosingLine, Events

    return Events() if options.json else ClosingLine() if options.quiet else None


def _experiment(options: argparse.Namespace) -> Experiment:
    """Return the job's experiment; a shipped one is on the images that a file beside the site files
    describes.
    """
    from fedward.sites.data_file import DATA_FILE, read_data_file

    known = (
        read_data_file(options.site_files)
        if options.site_files and is_shipped(options.job)
        else None
    )
    experiment = load_experiment(options.job, options.set, data=known)
    if known:
        data = experiment.data
        kind = "grey" if data.channels == 1 else "RGB"
        several = "" if data.label_kind.exclusive else "several or none an image, "
        about = f"{len(data.classes)} classes, {several}{data.image_size} pixels, {kind}, views {data.views}"
        about += "" if data.evaluate_by == "image" else f", evaluated by {data.evaluate_by}"
        text = (
            f"images as in {options.site_files / DATA_FILE}, unless --set says otherwise: {about}"
        )
        _note(options, "\n".join(wrap(text, 80, break_long_words=False, break_on_hyphens=False)))
    return experiment


def _usable(options: argparse.Namespace, experiment: Experiment, sites: list[str]) -> list[str]:
    """Return the sites whose files can be used; they must be all of them unless ``--allow-missing``
    is given.
    """
    from fedward.sites.check import site_problems

    problems = site_problems(sites, [options.site_files], experiment.data)
    alike: dict[str, list[str]] = {}
    for site, problem in problems.items():
        alike.setdefault(problem, []).append(site)
    listed = "".join(f"\n  {', '.join(those)}: {problem}" for problem, those in alike.items())
    found = f"{len(problems)} of {len(sites)} that cannot be used"
    if problems and (len(problems) == len(sites) or not options.allow_missing):
        remedy = f"Fix them, or go on without these sites (--allow-missing):{listed}"
        raise DataError(
            f"site files {options.site_files}",
            expected="one for each site",
            found=found,
            remedy=remedy,
        )
    if problems:
        _note(options, f"site files: {found}, the run goes on without these sites:{listed}")
    return [site for site in sites if site not in problems]


def _resume(options: argparse.Namespace) -> int:
    from fedward.storage.run_folder import RunFolder

    if options.engine == "simulator":
        expected = "the local engine"
        found = "--engine simulator"
        remedy = "Leave --engine away; the weights are the same. A FLARE job resumes through its run folder."
        raise ConfigError("fedward run --resume", expected=expected, found=found, remedy=remedy)
    if (
        options.set
        or options.job
        or options.init
        or options.out
        or options.allow_missing
        or options.sites is not None
    ):
        found = "a job, --sites, --out, --set, --init or --allow-missing"
        remedy = "A run goes on with the settings it was started with; start a new one for others."
        raise ConfigError(
            "fedward run --resume", expected="the run folder alone", found=found, remedy=remedy
        )
    options.out = options.resume
    run = RunFolder.reopen(options.out)
    if run.finished:
        listener = _listener(options)
        if listener:
            listener.closing(options.out, run.info.summary)
        else:
            print(f"finished already: {options.out / 'report.html'}")
        return 0
    folders = [options.site_files] if options.site_files else []
    return _run_here(options, None, resume=True, site_folders=folders)


def _note(options: argparse.Namespace, text: str) -> None:
    """Print what people want to know, where no program reads standard output."""
    print(text, file=sys.stderr if options.quiet or options.json else sys.stdout)


def _hint(options: argparse.Namespace) -> str:
    """Return how to continue a run that is interrupted."""
    files = ["--site-files", str(options.site_files)] if options.site_files else []
    workers = ["--workers", str(options.workers)] if options.workers != 1 else []
    command = shlex.join(["fedward", "run", "--resume", str(options.out), *files, *workers])
    return f"; finished rounds are kept, continue with `{command}`"


def _simulate(options: argparse.Namespace, experiment: Experiment, sites: list[str]) -> int:
    from fedward.flare.jobs.export import export_job
    from fedward.flare.launchers import ARENAS

    if options.out.exists() and any(options.out.iterdir()):
        where = f"folder {options.out}"
        remedy = "Name another with --out."
        raise ConfigError(
            where, expected="a new or empty folder", found="files in it", remedy=remedy
        )
    job = options.out / "job" / Path(options.job).stem
    export_job(experiment, job, sites=sites, init=options.init)
    environment = dict([ARENAS]) | os.environ
    if options.site_files:
        environment["FEDWARD_SITES"] = str(options.site_files.resolve())
    folder = ["-w", str(options.out / "workspace")]
    who = ["-c", ",".join(sites), "-t", str(len(sites))]
    quiet = ["-l", "warning"]  # else FLARE logs a few hundred lines of its own
    command = [
        sys.executable,
        "-P",
        "-m",
        "nvflare.cli",
        "simulator",
        str(job),
        *folder,
        *who,
        *quiet,
    ]
    return subprocess.run(command, env=environment, check=False).returncode
