"""``fedward jobs``, ``submit`` and ``approve``. Imports nothing heavy before it runs."""

import argparse
import re
from functools import partial
from pathlib import Path

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.jobs import JOBS, SETTING_HELP, load_experiment
from fedward.terminal import complain, subcommand

_PATIENCE = 600.0
"""Seconds for which a supervised job waits for a server that cannot be reached."""


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``jobs``."""
    add = subcommand(parser, _jobs)
    add("folder", type=Path, metavar="FOLDER", help="where each job gets a folder of its own name")
    add(
        "--check",
        action="store_true",
        help="fail if an exported job is stale, and write nothing (default: export)",
    )
    add(
        "--only",
        choices=sorted(JOBS),
        metavar="JOB",
        help=f"one job (default: all): {', '.join(sorted(JOBS))}",
    )
    clinical = "for hospitals: no code, no synthetic images; fedward is installed there (default: for simulations)"
    add("--clinical", action="store_true", help=clinical)
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=SETTING_HELP)
    sites = "sites that the job goes to (default: those of the simulation; with --clinical all that are connected)"
    add("--sites", nargs="+", default=[], metavar="NAME", help=sites)
    init = "start from the last model of this finished run, which the job carries (default: fresh weights)"
    add("--init", type=Path, metavar="RUN_FOLDER", help=init)


def add_submit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``submit``."""
    add = subcommand(parser, _submit)
    add("kit", type=Path, metavar="KIT", help="startup kit of a lead or a project admin")
    add(
        "job",
        type=Path,
        metavar="JOB",
        help="folder of a job that `fedward jobs --clinical` exported",
    )
    add("--out", type=Path, default=Path("runs"), help="folder for the results (default: runs)")
    supervise = "if the run breaks off, send the job again to go on from its last round (default: send it once)"
    add("--supervise", action="store_true", help=supervise)
    run = "id of an interrupted run to go on with (default: a new run)"
    add("--continue", dest="run", type=_run_id, metavar="RUN", help=run)
    timeout = "how long to wait for the run, but not with --supervise (default: for ever)"
    add("--timeout", type=float, default=0.0, metavar="SECONDS", help=timeout)


def add_approve(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``approve``."""
    add = subcommand(parser, _approve)
    add("kit", type=Path, metavar="KIT", help="startup kit of the site")
    add(
        "digest",
        nargs="?",
        metavar="DIGEST",
        help="the job's, from the list (default: list the jobs that wait)",
    )
    add("--withdraw", action="store_true", help="take the approval back (default: give it)")


def _run_id(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise argparse.ArgumentTypeError(f"a run is named by 32 hexadecimal digits, not {text!r}")
    return text


def _jobs(options: argparse.Namespace) -> int:
    from fedward.flare.jobs.export import export_job, stale_jobs

    folder = options.out = options.folder
    if options.check:
        if options.only or options.clinical or options.set or options.sites or options.init:
            found = "--only, --clinical, --set, --sites or --init"
            remedy = "Leave them away: what is checked are the jobs as the package ships them."
            raise ConfigError(
                "fedward jobs --check", expected="the folder alone", found=found, remedy=remedy
            )
        stale = stale_jobs(folder)
        for name in stale:
            complain(f"job {name} is stale; export it with `make jobs`")
        return 1 if stale else 0
    if options.init and not options.only:
        remedy = "Name it with --only: their networks differ, and so would the weights."
        raise ConfigError(
            "fedward jobs --init", expected="one job", found="all of them", remedy=remedy
        )
    for name in [options.only] if options.only else JOBS:
        experiment = load_experiment(name, options.set, options.clinical)
        export_job(experiment, folder / name, options.clinical, options.sites, options.init)
        print(folder / name)
        if options.clinical:
            _tell_policy(name, experiment, options)
    return 0


def _tell_policy(name: str, experiment: Experiment, options: argparse.Namespace) -> None:
    """Say what a clinical job needs at its participants: rules that allow it and its weights, the
    server's images.
    """
    from fedward.methods import method_of
    from fedward.security.policy import refused_by_default
    from fedward.starting_model import Weights, first_model

    weights = first_model(experiment, Weights.of(options.init)) if options.init else None
    if weights:
        print(f"starting_weights: [{weights}]")
    for finding in refused_by_default(experiment, options.sites, weights):
        complain(f"warning: {name}: sites with the default policy refuse it; {finding}")
    if method_of(experiment).requirements.server.images - {
        "pictures"
    }:  # these are shown if there are any
        complain(
            f"warning: {name}: the server needs images of its own, named in local/server.yaml of its kit"
        )


def _submit(options: argparse.Namespace) -> int:
    from fedward.flare.jobs.submit import fetch, session, submit, wait
    from fedward.flare.jobs.told import Told
    from fedward.flare.kits.kit import open_kit
    from fedward.flare.places import new_run
    from fedward.runs.sentences import nobody_asked
    from fedward.storage.info import read_info

    user = open_kit(options.kit, "user").name
    say = partial(print, flush=True)
    name = options.run or new_run(user)
    say(
        f"run {name}\nCtrl-C ends the waiting, not the job. If it breaks off:\n  fedward submit --continue {name}"
    )
    if options.supervise:
        from fedward.flare.jobs.supervise import Supervisor

        if options.timeout:
            found = f"--timeout {options.timeout:g}"
            remedy = "A supervised run goes on until it has finished, or three attempts in a row bring no round."
            raise ConfigError(
                "fedward submit --supervise", expected="no --timeout", found=found, remedy=remedy
            )
        run = Supervisor(options.kit, options.job, name, _PATIENCE, say).finish(options.out)
    else:
        told = Told(say)
        with session(options.kit) as flare:
            job_id = submit(flare, options.job, name)
            say(f"job {job_id} is submitted")
            meta = wait(flare, job_id, options.timeout, told)
            run = fetch(flare, meta, options.out, told.lost)
    nobody = nobody_asked(read_info(run).summary.enough_labels)
    if nobody:
        say(nobody)
    print(run / "report.html")
    return 0


def _approve(options: argparse.Namespace) -> int:
    from fedward.flare.kits import approve

    if options.digest is not None:
        print(
            (approve.withdraw if options.withdraw else approve.approve)(options.kit, options.digest)
        )
    elif options.withdraw:
        remedy = "Copy it whole from `fedward approve KIT`."
        raise ConfigError(
            "fedward approve --withdraw",
            expected="the digest of a job",
            found="none",
            remedy=remedy,
        )
    else:
        print("\n".join(approve.listed(options.kit)))
    return 0
