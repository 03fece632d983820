"""``fedward run``: a job in this process, without FLARE.

Imports nothing heavy before it runs.
"""

import argparse
import json
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from fedward.config import DataSpec, Experiment
from fedward.errors import ConfigError, RunError, did_you_mean, terminated
from fedward.jobs import (
    JOBS,
    SETTING_HELP,
    is_shipped,
    load_experiment,
    paper_job,
    simulated_sites,
    site_names,
    written_out,
)
from fedward.paper_jobs import PAPER_JOBS, SUFFIX
from fedward.terminal import fold

if TYPE_CHECKING:
    from fedward.console.events import ClosingLine, Events
    from fedward.lab.simulation import Simulation
    from fedward.paper_jobs import PaperJob
    from fedward.storage.run_folder import RunFolder

_NOTHING_TRAINED = "Nothing was trained. Start it again with the same command."
_PATIENCE = 10.0
"""Seconds after an interruption in which another means the same."""
_HANDLERS: Mapping[int, Callable[[int, FrameType | None], object]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: terminated,
}
"""Signal -> its usual handler in a command."""
_FOR_NEW_RUNS = (
    "out",
    "set",
    "init",
    "allow_missing",
    "paper",
    "sites",
    "without",
    "unmeasured",
    "show",
)
"""Options that a run which goes on does not take."""


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run``."""
    parser.set_defaults(command=_run)
    add = parser.add_argument
    add(
        "job",
        nargs="?",
        metavar="JOB",
        help=f"{', '.join(JOBS)}, any method's name, or a JSON file with an experiment",
    )
    add(
        "--paper",
        action="store_true",
        help="with the network, image size, rounds and rates that the method's paper prints "
        "(default: a demonstration that fits a laptop); says first what it needs and how long it "
        "takes",
    )
    add("--out", type=Path, metavar="FOLDER", help="new run folder (default: runs/JOB)")
    add(
        "--sites",
        type=int,
        metavar="N",
        help="number of sites, site-1 to site-N (default: those of --site-files, or the job's)",
    )
    add(
        "--without",
        action="append",
        default=[],
        metavar="SITE",
        help="leave out a site, such as site-9; may be repeated (default: no site)",
    )
    add(
        "--site-files",
        type=Path,
        default=os.environ.get("FEDWARD_SITES") or None,
        metavar="FOLDER",
        help="folder with a file SITE.yaml for each site, with data of its own "
        "(default: $FEDWARD_SITES)",
    )
    add(
        "--allow-missing",
        action="store_true",
        help="go on without sites whose files cannot be used "
        "(default: say what is wrong with each, and stop)",
    )
    add(
        "--unmeasured",
        action="store_true",
        help="train even if no test image is evaluated "
        "(default: say what would give the run numbers, and end)",
    )
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=SETTING_HELP)
    add(
        "--show",
        action="store_true",
        help="print the whole experiment that would run, as a JSON file for JOB, and end",
    )
    add(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes in which the sites of a round work at the same time "
        "(default: 1; see docs/running.md)",
    )
    add(
        "--init",
        type=Path,
        metavar="RUN_FOLDER",
        help="start from the last model of this finished run (default: fresh weights)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--quiet", action="store_true", help="print errors, and one line at the end"
    )
    output.add_argument(
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
    options.job = _job(options)
    from fedward.sites import named_sites

    # Site files are looked at before the experiment, which imports torch.
    sites = named_sites(options.site_files) if options.site_files else []
    experiment = _experiment(options)
    if options.show:
        print(json.dumps(written_out(experiment), indent=2))
        return 0
    options.out = options.out or Path("runs") / Path(options.job).stem
    if not experiment.data.label_kind.exclusive and not options.site_files:
        raise ConfigError(
            "fedward run",
            "Name the sites' files.",
            expected="--site-files FOLDER",
            found="data.multi_label=true, and synthetic images show one class each",
        )
    if options.sites is not None:
        sites = site_names(options.sites)
    elif not sites:
        sites = simulated_sites(experiment)
    sites = _without(sites, options.without)
    from fedward.lab.simulation import Simulation

    options.hint = lambda: _hint(options)
    simulation = Simulation(
        experiment,
        options.out,
        sites,
        site_files=options.site_files,
        init=options.init,
        workers=options.workers,
        job=Path(options.job).stem,
    )
    from fedward.lab.run_check import folded

    entered = simulation.entered(
        lambda paragraph: _note(options, folded(paragraph)),
        allow_missing=options.allow_missing,
        unmeasured=options.unmeasured,
    )
    return _run_here(options, entered)


def _job(options: argparse.Namespace) -> str:
    """Return the name of the job, or of that with its paper's settings.

    Raises ConfigError: no job is named, or no paper has the job.
    """
    if options.job is None:
        raise ConfigError(
            "fedward run", f"Name one of {', '.join(JOBS)}.", expected="a job", found="none"
        )
    if not options.paper:
        return str(options.job)
    if options.job not in PAPER_JOBS:
        raise ConfigError(
            f"--paper: no paper prints settings of {options.job}",
            f"Name one of {', '.join(PAPER_JOBS)}, or remove --paper.",
        )
    return f"{options.job}{SUFFIX}"


def _needs(job: "PaperJob", experiment: Experiment, synthetic: bool) -> str:
    """Return what a paper's run needs, and what the paper leaves open."""
    images = job.paper.images
    if synthetic:
        images += (
            ". This run has synthetic images, whose results say nothing about the paper's: name"
            " your own with --site-files"
        )
    facts = {
        "paper": job.paper.citation,
        "images": images,
        "network": f"{experiment.net} at {experiment.data.image_size} pixels",
        "left open": job.unprinted,
        "machine": f"in the paper: {job.paper.machine}",
    }
    lines: list[str] = []
    for name, fact in facts.items():
        lines += fold(f"{name:10}{fact}", others=10 * " ")
    return "\n".join(lines)


def _without(sites: list[str], left_out: list[str]) -> list[str]:
    """Return the sites that are not left out.

    Raises ConfigError: a name is none of them, or no site is left.
    """
    unknown = sorted(set(left_out) - set(sites))
    if unknown:
        raise ConfigError(
            f"--without {unknown[0]}",
            "Correct the name.",
            expected=f"one of {', '.join(sites)}",
            found=f"{unknown[0]}{did_you_mean(unknown[0], sites)}",
        )
    remaining_sites = [site for site in sites if site not in left_out]
    if not remaining_sites:
        raise ConfigError(
            "--without", "Leave out fewer.", expected="a site that is left", found="none"
        )
    return remaining_sites


def _run_here(options: argparse.Namespace, simulation: "Simulation", resume: bool = False) -> int:
    """Run or resume in this process, and print what happens as the options say."""
    start = simulation.resume if resume else simulation.run
    listener = _program_listener(options)
    if listener:
        with _one_interruption():
            start(listener)
        return 0
    from fedward.console.console import Console
    from fedward.console.live_line import live_line
    from fedward.console.progress import Progress

    progress = Progress(options.workers)
    with _one_interruption(), live_line(progress):
        start(Console(progress=progress))
    return 0


@contextmanager
def _one_interruption() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM interrupt what is in the ``with`` block once, however often they come.

    The end of a run, with its report, takes seconds. After :data:`_PATIENCE` they interrupt that,
    too.
    """
    # A signal is ignored, as Ctrl-C is for a command in the background, or somebody else's.
    handlers = [
        (number, handler)
        for number, handler in _HANDLERS.items()
        if signal.getsignal(number) is handler
    ]
    last = -math.inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last > _PATIENCE:
            last = time.monotonic()
            _HANDLERS[number](number, frame)

    for number, _ in handlers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)


def _program_listener(options: argparse.Namespace) -> "Events | ClosingLine | None":
    """Return what prints a run for other programs; None if people read it."""
    from fedward.console.events import ClosingLine, Events

    if options.json:
        return Events()
    if options.quiet:
        return ClosingLine()
    return None


def _experiment(options: argparse.Namespace) -> Experiment:
    """Return the job's experiment. Prints what people should know of it first.

    A shipped job uses the images that a file beside the site files describes.
    """
    from fedward.sites.data_file import DATA_FILE, read_data_file

    data_fields = None
    if options.site_files and is_shipped(options.job):
        data_fields = read_data_file(options.site_files)
    experiment = load_experiment(options.job, options.set, data=data_fields)
    of_paper = paper_job(options.job)
    if of_paper is not None:
        _note(options, _needs(of_paper, experiment, synthetic=not options.site_files))
    if data_fields:
        exceptions = _exceptions(options.set, of_paper, data_fields, experiment.data)
        text = (
            f"images as in {options.site_files / DATA_FILE}{exceptions}: "
            f"{_described(experiment.data)}"
        )
        _note(options, "\n".join(fold(text)))
    return experiment


def _exceptions(
    changes: Sequence[str],
    of_paper: "PaperJob | None",
    data_fields: Mapping[str, Any],
    data: DataSpec,
) -> str:
    """Return which fields of data.json do not hold, and what holds in their place; may be empty.

    Args:
        changes: ``--set KEY=VALUE``.
        of_paper: the paper's settings that the job has; None: it has none.
        data_fields: of data.json.
        data: the job's.
    """
    keys = {change.partition("=")[0] for change in changes}
    in_job = data.model_dump(mode="json")
    names_by_source: dict[str, list[str]] = {"--set": [], "the paper": []}
    for name, value in data_fields.items():
        # A value that nothing has replaced may be written otherwise than the job has it.
        if in_job.get(name) == value:
            continue
        if any(_changes_field(key, name) for key in keys):
            names_by_source["--set"].append(name)
        elif of_paper and f"data.{name}" in of_paper.all_changes:
            names_by_source["the paper"].append(name)
    exceptions = [
        f"{', '.join(names)} by {source}" for source, names in names_by_source.items() if names
    ]
    return f", but {' and '.join(exceptions)}" if exceptions else ""


def _changes_field(key: str, name: str) -> bool:
    """Return whether a key of ``--set`` changes a field of the images, or a part of it."""
    return key in ("data", f"data.{name}") or key.startswith(f"data.{name}.")


def _described(data: DataSpec) -> str:
    """Return what a person should know of a job's images."""
    parts = [f"{len(data.classes)} classes"]
    if not data.label_kind.exclusive:
        parts.append("several or none an image")
    parts.append(f"{data.image_size} pixels")
    parts.append("grey" if data.channels == 1 else "RGB")
    parts.append(f"views {data.views}")
    if data.evaluate_by != "image":
        parts.append(f"evaluated by {data.evaluate_by}")
    return ", ".join(parts)


def _resume(options: argparse.Namespace) -> int:
    from fedward.lab.simulation import Simulation
    from fedward.runs.standing import resuming, site_files_of
    from fedward.storage.run_folder import RunFolder, is_unbegun

    _refuse_options_of_new_runs(options)
    options.out = options.resume
    if is_unbegun(options.out):
        raise RunError(
            f"run folder {options.out}: the run ended before its first round",
            _NOTHING_TRAINED,
        )
    run = RunFolder.reopen(options.out)
    options.hint = lambda: _hint(options)
    if run.finished:
        _print_end(options, run)
        return 0
    if not options.site_files and site_files_of(options.out, run.info) is not None:
        raise ConfigError(
            "fedward run --resume",
            f"Name their folder:\n{resuming(options.out, run.info)}",
            expected="the site files with which this run began",
            found="none",
        )
    simulation = Simulation(
        run.experiment,
        options.out,
        run.sites,
        site_files=options.site_files,
        workers=options.workers,
    )
    return _run_here(options, simulation, resume=True)


def _refuse_options_of_new_runs(options: argparse.Namespace) -> None:
    """Raise ConfigError if a run is to be resumed with options that only a new one takes."""
    given = ["a job"] if options.job else []
    for name in _FOR_NEW_RUNS:
        value = getattr(options, name)
        if value is not None and value is not False and value != []:
            given.append(f"--{name.replace('_', '-')}")
    if given:
        raise ConfigError(
            "fedward run --resume",
            "A run goes on with the settings it was started with; start a new one for others.",
            expected="neither a job nor an option of a new run",
            found=" and ".join(given),
        )


def _print_end(options: argparse.Namespace, run: "RunFolder") -> None:
    """Print the end of a run that has finished already."""
    from fedward.console.run_end import last_lines

    listener = _program_listener(options)
    if listener:
        listener.closing(options.out, run.info.summary)
    else:
        print("finished already")
        for line in last_lines(options.out):
            print(line)


def _note(options: argparse.Namespace, text: str) -> None:
    """Print a note for people where no program reads standard output."""
    for_programs = options.quiet or options.json or options.show
    print(text, file=sys.stderr if for_programs else sys.stdout)


def _hint(options: argparse.Namespace) -> str:
    """Return how to go on after a run that is interrupted; it continues a text."""
    # Path.exists raises where a name is too long.
    if not os.path.exists(options.out / "run.json"):
        hint = f"; {_NOTHING_TRAINED[0].lower()}{_NOTHING_TRAINED[1:]}"
        copies = options.out / "sites"
        if os.path.exists(copies):
            hint += f" It will use the copies of images in {copies}; otherwise remove them."
        return hint
    command = ["fedward", "run", "--resume", str(options.out)]
    if options.site_files:
        command += ["--site-files", str(options.site_files)]
    if options.workers != 1:
        command += ["--workers", str(options.workers)]
    # On a line of its own a command stays whole, however narrow the terminal is.
    return f"; finished rounds are kept. Continue with\n{shlex.join(command)}"
