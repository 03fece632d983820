"""The ``fedward`` command."""

import argparse
import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from safetensors import SafetensorError

from fedward import __version__
from fedward.annotation.command import add_annotate
from fedward.bench.commands import add_bench
from fedward.config import DataSpec, Experiment, explain
from fedward.errors import ConfigError, FedwardError
from fedward.jobs import JOBS, load_experiment, simulated_sites, site_names
from fedward.operation.command import add_operation
from fedward.terminal import printing_safely

_PATIENCE = 600.0
"""Seconds for which a supervised job waits for a server that cannot be reached."""
_SETTING = "such as rounds=5 or data.image_size=64; may be repeated. A run's run.json lists all"
"""Help of ``--set``."""
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""What the operating system says of a disk without naming a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 done, 1 the run or its data failed, 2 wrong use, 130 interrupted."""
    with printing_safely():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    code = 1
    try:
        code = command(options)
        sys.stdout.flush()  # here, since what fails at the interpreter's end is told in its words
    except FedwardError as error:
        print(f"fedward: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print(f"fedward: interrupted{options.hint}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has seen enough, as in `fedward doctor KIT | head`
        _drop_output()
    except (OSError, SafetensorError) as error:
        if not _of_files(error):
            raise
        print(f"fedward: {_explained(error, options)}", file=sys.stderr)
        return 1
    return code


def _of_files(error: OSError | SafetensorError) -> bool:
    """Return whether the operating system refused a file; a network's refusal is another matter."""
    if isinstance(error, OSError):
        return error.filename is not None or error.errno in _DISK
    return "os error" in str(error)  # safetensors hands on what the system said, in its own words


def _explained(error: OSError | SafetensorError, options: argparse.Namespace) -> FedwardError:
    """Return what was refused and where: a file, or the folder or stream that the command writes."""
    where = getattr(error, "filename", None) or getattr(options, "out", None) or "standard output"
    try:
        sys.stdout.flush()
    except OSError:
        where = "standard output"
        _drop_output()
    return FedwardError(
        str(where),
        expected="a place that can be read and written",
        found=getattr(error, "strerror", None) or str(error),
        remedy="Make room there, or name another folder.",
    )


def _drop_output() -> None:
    """Send what is still to be printed nowhere: the interpreter would fail over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fedward", description="Federated learning for hospitals that are short of labels."
    )
    parser.set_defaults(hint="")
    parser.add_argument("--version", action="version", version=f"fedward {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a job in this process or in the FLARE simulator, or resume a run")
    run.add_argument("job", nargs="?", help=f"{', '.join(JOBS)}, or a JSON file with an experiment")
    run.add_argument("--out", type=Path, help="new run folder (default: runs/JOB)")
    run.add_argument("--engine", choices=("local", "simulator"), default="local", help="default: local")
    run.add_argument(
        "--sites", type=int, help="number of sites, site-1 to site-N (default: those of --site-files, or the job's)"
    )
    run.add_argument(
        "--site-files",
        type=Path,
        default=os.environ.get("FEDWARD_SITES") or None,
        help="folder with a file SITE.yaml for each site, with data of its own (default: $FEDWARD_SITES)",
    )
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=_SETTING)
    run.add_argument("--init", type=Path, metavar="RUN_FOLDER", help="start from the last model of a finished run")
    run.add_argument("--resume", type=Path, metavar="RUN_FOLDER", help="continue an interrupted run")
    run.set_defaults(command=_run)

    partition = commands.add_parser("partition", help="write site files that cut a data set into ten sites")
    partition.add_argument("dataset", type=Path, help="folder with manifest.csv and images")
    partition.add_argument("--out", type=Path, required=True, help="folder for the site files")
    partition.add_argument(
        "--labelled", type=_share, default=0.1, help="share of training labels in use (default: 0.1)"
    )
    partition.set_defaults(command=_partition)

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

    report = commands.add_parser("report", help="write report.html of a run, compared with others if named")
    report.add_argument("run", type=Path, metavar="RUN_FOLDER", help="where report.html is written")
    report.add_argument("--compare", type=Path, nargs="+", default=[], metavar="RUN_FOLDER", help="drawn beside it")
    report.set_defaults(command=_report)
    for add in (_add_jobs, _add_doctor, _add_approve, add_annotate, _add_watching, add_operation, add_bench):
        add(commands)
    return parser


def _add_jobs(commands: Any) -> None:
    jobs = commands.add_parser("jobs", help="export the jobs, or check that exported ones are fresh")
    jobs.add_argument("folder", type=Path, help="gets a folder for each job")
    jobs.add_argument("--check", action="store_true", help="change nothing; fail if a job is stale")
    jobs.add_argument("--only", choices=sorted(JOBS), metavar="JOB", help=f"one job only: {', '.join(sorted(JOBS))}")
    jobs.add_argument("--clinical", action="store_true", help="without own code: the package is installed at the sites")
    jobs.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=_SETTING)
    jobs.add_argument("--sites", nargs="+", default=[], metavar="NAME", help="default: the job's; clinical: all")
    jobs.add_argument("--init", type=Path, metavar="RUN_FOLDER", help="carry the last model of a finished run")
    jobs.set_defaults(command=_jobs)


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser("doctor", help="check a site's data, or a FLARE startup kit, before it joins")
    doctor.add_argument("subject", type=Path, metavar="SITE_FILE|KIT", help="a site file, or the folder of a kit")
    doctor.add_argument("--job", type=Path, metavar="FOLDER", help="would this exported job run with the kit?")
    size, classes = DataSpec().image_size, DataSpec().classes
    doctor.add_argument("--image-size", type=int, default=size, help=f"the job's (default: {size} pixels)")
    doctor.add_argument(
        "--classes", nargs="+", default=list(classes), help=f"the job's (default: {', '.join(classes)})"
    )
    doctor.add_argument("--out", type=Path, default=Path(), help="folder for the contact sheet (default: this one)")
    doctor.set_defaults(command=_doctor)


def _add_approve(commands: Any) -> None:
    approve = commands.add_parser("approve", help="let a job run at a site whose policy asks for approval")
    approve.add_argument("kit", type=Path, help="startup kit of the site")
    approve.add_argument("digest", nargs="?", help="of the job; without it: list the jobs that wait")
    approve.add_argument("--withdraw", action="store_true", help="take the approval back")
    approve.set_defaults(command=_approve)


def _add_watching(commands: Any) -> None:
    status = commands.add_parser("status", help="how far a run is, or the jobs that run in a federation")
    status.add_argument("subject", type=Path, metavar="RUN_FOLDER|KIT", help="a run folder, or a user's startup kit")
    status.add_argument("job", nargs="?", metavar="JOB_ID", help="with a kit: this job only")
    status.set_defaults(command=_status)

    audit = commands.add_parser("audit", help="check a run's audit log")
    verify = audit.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "verify", help="check that a run is as it was written; exit code 1 and the first thing that is wrong, if not"
    )
    verify.add_argument("run", type=Path, nargs="?", metavar="RUN_FOLDER", help="default: the sites' logs alone")
    verify.add_argument("--site", type=Path, nargs="+", default=[], metavar="FILE", help="sites' logs of their answers")
    verify.set_defaults(command=_verify)


def _run_id(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise argparse.ArgumentTypeError(f"a run is named by 32 hexadecimal digits, not {text!r}")
    return text


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"a share is between 0 and 1, not {text}")
    return value


def _run(options: argparse.Namespace) -> int:
    if options.engine == "simulator":
        return _run_simulator(options)
    from fedward.local import run_local

    if options.resume:
        return _resume(options)
    experiment = load_experiment(_job(options), options.set)
    options.out = _new_folder(options)
    sites, folders = _sites(options, experiment), _site_folders(options)
    options.hint = _hint(options)
    run_local(experiment, options.out, sites=sites, site_folders=folders, init=options.init)
    return 0


def _resume(options: argparse.Namespace) -> int:
    from fedward.local import run_local
    from fedward.storage.run_folder import RunFolder

    if options.set or options.job or options.init or options.out or options.sites is not None:
        raise ConfigError(
            "fedward run --resume",
            expected="the run folder alone",
            found="a job, --sites, --out, --set or --init",
            remedy="A run goes on with the settings it was started with; start a new one for others.",
        )
    options.out = options.resume
    if RunFolder.reopen(options.out).finished:
        print(f"finished already: {options.out / 'report.html'}")
        return 0
    options.hint = _hint(options)
    run_local(None, options.out, resume=True, site_folders=_site_folders(options))
    return 0


def _hint(options: argparse.Namespace) -> str:
    """Return how to continue a run that is interrupted."""
    files = ["--site-files", str(options.site_files)] if options.site_files else []
    command = shlex.join(["fedward", "run", "--resume", str(options.out), *files])
    return f"; finished rounds are kept, continue with `{command}`"


def _run_simulator(options: argparse.Namespace) -> int:
    from fedward.flare.jobs.export import export_job
    from fedward.flare.launchers import ARENAS

    if options.resume:
        raise ConfigError(
            "fedward run --resume",
            expected="the local engine",
            found="--engine simulator",
            remedy="Leave --engine away; the weights are the same. A FLARE job resumes through its run folder.",
        )
    name, folder = Path(_job(options)).stem, _new_folder(options)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"folder {folder}", expected="a new or empty folder", found="files in it", remedy="Name another with --out."
        )
    job = folder / "job" / name
    experiment = load_experiment(_job(options), options.set)
    sites = _sites(options, experiment)
    export_job(experiment, job, sites=sites, init=options.init)
    environment = dict([ARENAS]) | os.environ
    if options.site_files:
        environment["FEDWARD_SITES"] = str(options.site_files.resolve())
    command = [
        sys.executable,
        "-m",
        "nvflare.cli",
        "simulator",
        str(job),
        "-w",
        str(folder / "workspace"),
        "-c",
        ",".join(sites),
        "-t",
        str(len(sites)),
    ]
    return subprocess.run(command, env=environment, check=False).returncode


def _doctor(options: argparse.Namespace) -> int:
    from fedward.sites.doctor import run

    if (options.subject / "startup").is_dir():
        from fedward.flare.kits import doctor

        return doctor.run(options.subject, options.job)
    if options.job:
        raise ConfigError(
            "fedward doctor --job",
            expected="a startup kit, a folder with startup/ in it",
            found=str(options.subject),
            remedy="Name the kit; a site file says nothing about jobs.",
        )
    try:
        spec = DataSpec(classes=tuple(options.classes), image_size=options.image_size)
    except ValidationError as error:
        raise explain(error, "fedward doctor") from error
    return run(options.subject, spec, options.out)


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


def _partition(options: argparse.Namespace) -> int:
    from fedward.sites.partition import fedperl_layout, read_skin, write_site_files

    layout = fedperl_layout(read_skin(options.dataset / "manifest.csv"))
    for path in write_site_files(layout, options.dataset, options.out, labelled=options.labelled):
        print(path)
    return 0


def _jobs(options: argparse.Namespace) -> int:
    from fedward.flare.jobs.export import export_job, stale_jobs

    if options.check:
        if options.only or options.clinical or options.set or options.sites or options.init:
            raise ConfigError(
                "fedward jobs --check",
                expected="the folder alone",
                found="--only, --clinical, --set, --sites or --init",
                remedy="Leave them away: what is checked are the jobs as the package ships them.",
            )
        stale = stale_jobs(options.folder)
        for name in stale:
            print(f"fedward: job {name} is stale; export it with `make jobs`", file=sys.stderr)
        return 1 if stale else 0
    if options.init and not options.only:
        raise ConfigError(
            "fedward jobs --init",
            expected="one job",
            found="all of them",
            remedy="Name it with --only: their networks differ, and so would the weights.",
        )
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
        raise ConfigError(
            "fedward submit --supervise",
            expected="no --timeout",
            found=f"--timeout {options.timeout:g}",
            remedy="A supervised run goes on until it has finished, or three attempts in a row bring no round.",
        )
    say = partial(print, flush=True)
    print(Supervisor(options.kit, options.job, name, _PATIENCE, say).finish(options.out) / "report.html")
    return 0


def _status(options: argparse.Namespace) -> int:
    if (options.subject / "startup").is_dir():
        from fedward.flare.jobs import status
        from fedward.flare.jobs.submit import session

        with redirect_stdout(sys.stderr), session(options.subject) as flare:  # FLARE prints that it connects
            found = status.describe(flare, options.job)
        print("\n".join(found))
        return 0
    if options.job:
        raise ConfigError(
            "fedward status",
            expected="a user's startup kit before a job's id, a folder with startup/ in it",
            found=str(options.subject),
            remedy="Name the kit; a run folder is one run.",
        )
    from fedward.server.progress import lines, progress

    print("\n".join(lines(progress(options.subject))))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from fedward.operation.audit_check import verify
    from fedward.operation.site_check import read_site_log

    if options.run:
        print(verify(options.run, options.site))
    elif options.site:
        print("\n".join(str(read_site_log(file)) for file in options.site))
    else:
        raise ConfigError(
            "fedward audit verify",
            expected="a run folder, --site with sites' logs, or both",
            found="neither",
            remedy="Name the folder of a run, or answers/<run id>.jsonl of a site's own folder.",
        )
    return 0


def _report(options: argparse.Namespace) -> int:
    from fedward.operation.reports import rewrite_report

    options.out = options.run
    print(rewrite_report(options.run, options.compare))
    return 0


def _job(options: argparse.Namespace) -> str:
    if options.job is None:
        raise ConfigError("fedward run", expected="a job", found="none", remedy=f"Name one of {', '.join(JOBS)}.")
    return str(options.job)


def _new_folder(options: argparse.Namespace) -> Path:
    folder: Path = options.out or Path("runs") / Path(_job(options)).stem
    return folder


def _sites(options: argparse.Namespace, experiment: Experiment) -> list[str]:
    """Return the sites' names: as many as asked for, else those that have files, else the job's."""
    from fedward.client.site_data import named_sites

    named = named_sites(options.site_files) if options.site_files else []
    return (named or simulated_sites(experiment)) if options.sites is None else site_names(options.sites)


def _site_folders(options: argparse.Namespace) -> list[Path]:
    return [options.site_files] if options.site_files else []
