"""``fedward jobs``, ``submit`` and ``approve``. Imports nothing heavy before it runs."""

import argparse
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.jobs import JOBS, SETTING_HELP, load_experiment

_PATIENCE = 600.0
"""Seconds for which a supervised job waits for a server that cannot be reached."""


def add_flare(commands: Any) -> None:
    """Add ``jobs``, ``submit`` and ``approve`` to the ``fedward`` command."""
    jobs = commands.add_parser("jobs", help="export the jobs, or check that exported ones are fresh")
    jobs.add_argument("folder", type=Path, help="gets a folder for each job")
    jobs.add_argument("--check", action="store_true", help="change nothing; fail if a job is stale")
    jobs.add_argument("--only", choices=sorted(JOBS), metavar="JOB", help=f"one job only: {', '.join(sorted(JOBS))}")
    jobs.add_argument("--clinical", action="store_true", help="without own code: the package is installed at the sites")
    jobs.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=SETTING_HELP)
    jobs.add_argument("--sites", nargs="+", default=[], metavar="NAME", help="default: the job's; clinical: all")
    jobs.add_argument("--init", type=Path, metavar="RUN_FOLDER", help="carry the last model of a finished run")
    jobs.set_defaults(command=_jobs)

    submit = commands.add_parser("submit", help="send a clinical job to a running federation, wait, fetch its run")
    submit.add_argument("kit", type=Path, help="startup kit of a lead or a project admin")
    submit.add_argument("job", type=Path, help="exported job; see `fedward jobs --clinical`")
    submit.add_argument("--out", type=Path, default=Path("runs"), help="folder for the results (default: runs)")
    submit.add_argument("--supervise", action="store_true", help="send it again, from its last round, if it breaks off")
    submit.add_argument("--continue", dest="run", type=_run_id, metavar="RUN", help="go on with an interrupted run")
    submit.add_argument(
        "--timeout", type=float, default=0.0, metavar="SECONDS", help="default: wait for ever; not with --supervise"
    )
    submit.set_defaults(command=_submit)

    approve = commands.add_parser("approve", help="let a job run at a site whose policy asks for approval")
    approve.add_argument("kit", type=Path, help="startup kit of the site")
    approve.add_argument("digest", nargs="?", help="of the job; without it: list the jobs that wait")
    approve.add_argument("--withdraw", action="store_true", help="take the approval back")
    approve.set_defaults(command=_approve)


def _run_id(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise argparse.ArgumentTypeError(f"a run is named by 32 hexadecimal digits, not {text!r}")
    return text


def _jobs(options: argparse.Namespace) -> int:
    from fedward.flare.jobs.export import export_job, stale_jobs

    if options.check:
        if options.only or options.clinical or options.set or options.sites or options.init:
            found = "--only, --clinical, --set, --sites or --init"
            remedy = "Leave them away: what is checked are the jobs as the package ships them."
            raise ConfigError("fedward jobs --check", expected="the folder alone", found=found, remedy=remedy)
        stale = stale_jobs(options.folder)
        for name in stale:
            print(f"fedward: job {name} is stale; export it with `make jobs`", file=sys.stderr)
        return 1 if stale else 0
    if options.init and not options.only:
        remedy = "Name it with --only: their networks differ, and so would the weights."
        raise ConfigError("fedward jobs --init", expected="one job", found="all of them", remedy=remedy)
    options.out = options.folder
    for name in [options.only] if options.only else JOBS:
        experiment = load_experiment(name, options.set, options.clinical)
        export_job(experiment, options.folder / name, options.clinical, options.sites, options.init)
        print(options.folder / name)
        if options.clinical:
            _tell_policy(name, experiment, options)
    return 0


def _tell_policy(name: str, experiment: Experiment, options: argparse.Namespace) -> None:
    """Say what of a clinical job sites with the default policy refuse, and by which SHA-256 they allow its weights."""
    from fedward.security.policy import refused_by_default
    from fedward.storage.initial import Weights, first_model

    weights = first_model(experiment, Weights.of(options.init)) if options.init else None
    if weights:
        print(f"starting_weights: [{weights}]")
    for finding in refused_by_default(experiment, options.sites, weights):
        print(f"fedward: warning: {name}: sites with the default policy refuse it; {finding}", file=sys.stderr)


def _submit(options: argparse.Namespace) -> int:
    from fedward.flare.jobs.submit import fetch, session, submit, wait

    name = options.run or uuid4().hex
    print(f"run {name}; Ctrl-C ends the waiting, not the job. If it breaks off: --continue {name}", flush=True)
    if options.supervise:
        return _supervise(options, name)
    with session(options.kit) as flare:
        job_id = submit(flare, options.job, name)
        print(f"job {job_id} is submitted", flush=True)
        run = fetch(flare, wait(flare, job_id, options.timeout), options.out)
    print(run / "report.html")
    return 0


def _supervise(options: argparse.Namespace, name: str) -> int:
    from fedward.flare.jobs.supervise import Supervisor

    if options.timeout:
        found = f"--timeout {options.timeout:g}"
        remedy = "A supervised run goes on until it has finished, or three attempts in a row bring no round."
        raise ConfigError("fedward submit --supervise", expected="no --timeout", found=found, remedy=remedy)
    say = partial(print, flush=True)
    print(Supervisor(options.kit, options.job, name, _PATIENCE, say).finish(options.out) / "report.html")
    return 0


def _approve(options: argparse.Namespace) -> int:
    from fedward.flare.kits import approve

    if options.digest is None and options.withdraw:
        remedy = "Copy it whole from `fedward approve KIT`."
        raise ConfigError("fedward approve --withdraw", expected="the digest of a job", found="none", remedy=remedy)
    if options.digest is None:
        print("\n".join(approve.listed(options.kit)))
    else:
        print((approve.withdraw if options.withdraw else approve.approve)(options.kit, options.digest))
    return 0
