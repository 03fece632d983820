"""``fedward jobs``, ``submit`` and ``approve``. Imports nothing heavy before it runs."""

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.jobs import JOBS, SETTING_HELP, is_shipped, load_experiment
from fedward.terminal import complain

Enter: TypeAlias = Callable[[Experiment, Path], list[str]]
"""Opens the images of site files for an experiment, and returns the sites that can take part."""

_PATIENCE = 600.0
"""Seconds for which a supervised job waits for a server that cannot be reached."""


def add_jobs(parser: argparse.ArgumentParser, enter: Enter) -> None:
    """Add the arguments of ``jobs``.

    Args:
        parser: of the command.
        enter: called for a simulation on site files, with its experiment and their folder; returns
            the names of the sites.
    """
    parser.set_defaults(command=_jobs, written="folder", enter=enter)
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="where each job gets a folder of its own name",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="fail if an exported job is stale, and write nothing (default: export)",
    )
    parser.add_argument(
        "--only",
        metavar="JOB",
        help=f"one job: {', '.join(sorted(JOBS))}, any method's name, or a JSON file with an "
        "experiment (default: all that have a name here)",
    )
    parser.add_argument(
        "--clinical",
        action="store_true",
        help="for hospitals: no code, no synthetic images; "
        "fedward is installed there (default: for simulations)",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help=SETTING_HELP
    )
    parser.add_argument(
        "--site-files",
        type=Path,
        metavar="FOLDER",
        help="folder of site files: the job is for images as its data.json describes them, and "
        "goes to these sites (default: synthetic images)",
    )
    parser.add_argument(
        "--sites",
        nargs="+",
        default=[],
        metavar="NAME",
        help="sites that the job goes to (default: those of the simulation; "
        "with --clinical all that are connected)",
    )
    parser.add_argument(
        "--init",
        type=Path,
        metavar="RUN_FOLDER",
        help="start from the last model of this finished run, which the job carries "
        "(default: fresh weights)",
    )
    parser.add_argument(
        "--gpus",
        type=int,
        metavar="N",
        help="GPUs that FLARE reserves at each site; sites with fewer are left out (default: none)",
    )


def add_submit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``submit``."""
    parser.set_defaults(command=_submit)
    parser.add_argument(
        "kit", type=Path, metavar="KIT", help="startup kit of a lead or a project admin"
    )
    parser.add_argument(
        "job",
        type=Path,
        metavar="JOB",
        help="folder of a job that `fedward jobs --clinical` exported",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="folder for the results (default: runs)"
    )
    parser.add_argument(
        "--supervise",
        action="store_true",
        help="if the run breaks off, send the job again to go on from its last round "
        "(default: send it once)",
    )
    parser.add_argument(
        "--continue",
        dest="run",
        type=_run_id,
        metavar="RUN",
        help="id of an interrupted run to go on with (default: a new run)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to wait for the run, but not with --supervise (default: for ever)",
    )


def add_approve(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``approve``."""
    parser.set_defaults(command=_approve)
    parser.add_argument("kit", type=Path, metavar="KIT", help="startup kit of the site")
    parser.add_argument(
        "digest",
        nargs="?",
        metavar="DIGEST",
        help="the job's, from the list (default: list the jobs that wait)",
    )
    parser.add_argument(
        "--withdraw", action="store_true", help="take the approval back (default: give it)"
    )
    parser.add_argument(
        "--scope",
        metavar="NAME",
        help="the job's scope of privacy.json (default: the site's default scope, or its only one)",
    )


def _run_id(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise argparse.ArgumentTypeError(f"a run is named by 32 hexadecimal digits, not {text!r}")
    return text


def _jobs(options: argparse.Namespace) -> int:
    from fedward.flare.jobs.export import export_job

    folder = options.folder
    if options.check:
        return _check_jobs(options)
    if options.init and not options.only:
        raise ConfigError(
            "fedward jobs --init needs one job, because the weights of one network fit no other",
            "Name the job with --only.",
        )
    data = None
    if options.site_files:
        from fedward.sites.data_file import read_data_file

        if not options.only:
            raise ConfigError(
                "fedward jobs --site-files needs one job, because not every job can use every "
                "site's images",
                "Name the job with --only.",
            )
        data = read_data_file(options.site_files)
    for job in [options.only] if options.only else JOBS:
        experiment = load_experiment(job, options.set, options.clinical, data)
        name = job if is_shipped(job) else Path(job).stem
        sites = options.sites
        # A clinical job goes to the sites that are connected, whose images are not here.
        if options.site_files and not options.clinical:
            sites = sites or options.enter(experiment, options.site_files)
        export_job(
            experiment,
            folder / name,
            options.clinical,
            sites,
            options.init,
            gpus=options.gpus,
        )
        print(folder / name)
        if options.clinical:
            _report_needs(name, experiment, options)
    return 0


def _check_jobs(options: argparse.Namespace) -> int:
    """Complain about exported jobs that are stale; return 1 if there are any, else 0."""
    from fedward.flare.jobs.export import stale_jobs

    others = (options.only, options.clinical, options.set, options.sites, options.init)
    if any(others) or options.site_files or options.gpus:
        raise ConfigError(
            "fedward jobs --check takes no other options, because it checks the shipped jobs",
            "Remove --only, --clinical, --set, --site-files, --sites, --init and --gpus.",
        )
    stale = stale_jobs(options.folder)
    for name in stale:
        complain(f"job {name} is stale; export it with `make jobs`")
    return 1 if stale else 0


def _report_needs(name: str, experiment: Experiment, options: argparse.Namespace) -> None:
    """Print what participants need for a clinical job: rules that allow it, weights, images."""
    from fedward.methods import job_of, method_of
    from fedward.security.policy_rules import refused_by_default
    from fedward.starting_model import Weights, first_model

    algorithm = job_of(experiment)
    weights = None
    if options.init:
        weights = first_model(experiment, method_of(experiment), Weights.of(options.init))
        print(f"starting_weights: [{weights}]")
    for rule in refused_by_default(experiment, algorithm, options.sites, weights):
        complain(f"warning: {name}: sites with the default policy refuse it; {rule}")
    # Reconstructions of the server's pictures are shown if there are any.
    needed_images = algorithm.requirements.server.images - {"pictures"}
    if needed_images:
        kind = "labelled images" if "labels" in needed_images else "images"
        complain(
            f"warning: {name}: the server needs {kind} of its own, "
            "named in local/server.yaml of its kit"
        )


def _submit(options: argparse.Namespace) -> int:
    from fedward.console.run_end import last_lines
    from fedward.flare.jobs.reporter import Reporter
    from fedward.flare.jobs.submit import fetch, session, submit, wait
    from fedward.flare.jobs.supervise import Supervisor
    from fedward.flare.kits.kit import open_kit
    from fedward.flare.places import new_run
    from fedward.report.rewriting import rewrite_report
    from fedward.runs.open_questions import open_questions
    from fedward.runs.sentences import nobody_asked, unanswered
    from fedward.runs.standing import continuing
    from fedward.storage.info import read_info

    user = open_kit(options.kit, "user").name
    say = partial(print, flush=True)
    name = options.run or new_run(user)
    say(f"run {name}")
    say("Ctrl-C ends the waiting, not the job. If it breaks off:")
    say(f"  {continuing(name, str(options.kit), str(options.job))}")
    if options.supervise:
        if options.timeout:
            raise ConfigError(
                "fedward submit --supervise takes no --timeout: it goes on until the run has "
                "finished, or three attempts in a row bring no round",
                "Remove --timeout.",
            )
        run = Supervisor(options.kit, options.job, name, _PATIENCE, say).finish(options.out)
    else:
        reporter = Reporter(say)
        with session(options.kit) as flare:
            job_id = submit(flare, options.job, name)
            say(f"job {job_id} is submitted")
            meta = wait(flare, job_id, options.timeout, reporter)
            run = fetch(flare, meta, options.out, reporter.lost_sites)
    for sentence in (
        nobody_asked(read_info(run).summary.enough_labels),
        unanswered(open_questions(run)),
    ):
        if sentence:
            say(sentence)
    say(f"run folder {run}")
    # The pages that came are the server's; these are made here from the run's files.
    rewrite_report(run)
    for line in last_lines(run):
        say(line)
    return 0


def _approve(options: argparse.Namespace) -> int:
    from fedward.flare.kits import approve

    if options.digest is None:
        if options.withdraw or options.scope is not None:
            raise ConfigError(
                "fedward approve with --withdraw or --scope needs the digest of a job",
                "Copy it whole from `fedward approve KIT`.",
            )
        for line in approve.listed(options.kit):
            print(line)
    elif options.withdraw:
        print(approve.withdraw(options.kit, options.digest, options.scope))
    else:
        print(approve.approve(options.kit, options.digest, options.scope))
    return 0
