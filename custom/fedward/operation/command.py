"""``fedward doctor``, ``survey``, ``status``, ``report``, ``audit``, ``runs``, ``prune``,
``revoke``.

Imports nothing heavy before it runs.
"""

import argparse
import json
import re
from pathlib import Path

from fedward.errors import ConfigError, DataError, FedwardError
from fedward.terminal import complain, one_line, subcommand


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``doctor``."""
    from fedward.config import DataSpec

    add = subcommand(parser, _doctor)
    add(
        "subject",
        type=Path,
        metavar="SITE_FILE|KIT",
        help="the file that describes a site's data, or a kit's folder",
    )
    job = "with a site file: what this job would do there; "
    job += "with a kit: whether it would run this exported job (a folder)"
    add("--job", metavar="JOB", help=job)
    data = DataSpec()
    beside = "default: of data.json beside it, or"
    image_size = f"height and width in pixels that the job asks for ({beside} {data.image_size})"
    add("--image-size", type=int, metavar="PIXELS", help=f"with a site file: {image_size}")
    classes = f"the job's classes, in its order ({beside} {' '.join(data.classes)})"
    add("--classes", nargs="+", metavar="CLASS", help=f"with a site file: {classes}")
    out = "with a site file: folder for the contact sheet (default: this one)"
    add("--out", type=Path, default=Path(), metavar="FOLDER", help=out)


def add_survey(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``survey``."""
    add = subcommand(parser, _survey)
    add(
        "files",
        type=Path,
        nargs="+",
        metavar="SITE_FILE",
        help="files that describe sites' data, or a folder of them",
    )
    out = "folder for survey.html and survey.json (default: survey)"
    add("--out", type=Path, default=Path("survey"), metavar="FOLDER", help=out)
    size = "height and width in pixels at which images are measured (default: of data.json, or 32)"
    add("--image-size", type=int, metavar="PIXELS", help=size)
    classes = "the job's classes, in its order (default: of data.json, or eight of skin lesions)"
    add("--classes", nargs="+", metavar="CLASS", help=classes)
    pictures = (
        "show images of each class in the page, which then must stay at the site; of one site alone"
    )
    add("--pictures", action="store_true", help=pictures)


def add_status(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``status``."""
    add = subcommand(parser, _status)
    add(
        "subject",
        type=Path,
        metavar="RUN_FOLDER|KIT",
        help="a run folder, or the startup kit of any user",
    )
    add(
        "job", nargs="?", metavar="JOB_ID", help="with a kit: only this job (default: all that run)"
    )


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``report``."""
    add = subcommand(parser, _report)
    add(
        "run",
        type=Path,
        metavar="RUN_FOLDER",
        help="the run, in whose folder report.html is written",
    )
    compare = (
        "other runs to set beside it; runs of single sites show what joining brings (default: none)"
    )
    add("--compare", type=Path, nargs="+", default=[], metavar="RUN_FOLDER", help=compare)


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``audit``, each with its arguments."""
    about = "check that a run is as it was written; if not, tell why and exit with 1"
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = subcommand(commands.add_parser("verify", help=about), _verify)
    add(
        "run",
        type=Path,
        nargs="?",
        metavar="RUN_FOLDER",
        help="the run to check (default: the sites' logs alone)",
    )
    add(
        "--site",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="sites' logs of their answers (default: none)",
    )


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``runs``."""
    add = subcommand(parser, _runs)
    add(
        "folders",
        type=Path,
        nargs="+",
        metavar="FOLDER",
        help="a run folder, or one with runs below it",
    )
    add(
        "--json",
        action="store_true",
        help="print all that is known of each run as JSON (default: a table)",
    )


def add_prune(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``prune``."""
    add = subcommand(parser, _prune)
    add(
        "folder", type=Path, metavar="FOLDER", help="a kit, a run folder, or one with runs below it"
    )
    age = "only what has not changed for so many days (default: 180d)"
    add("--older-than", type=_days, default=180, metavar="DAYS", help=age)
    models = (
        "also the models of old runs, whose audit logs then verify no longer (default: models stay)"
    )
    add("--models", action="store_true", help=models)
    add("--delete", action="store_true", help="remove what is listed (default: nothing is changed)")


def add_revoke(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``revoke``."""
    add = subcommand(parser, _revoke)
    add("kit", type=Path, metavar="KIT", help="the server's startup kit, where the rule is written")
    add(
        "names",
        nargs="+",
        metavar="USER",
        help="a user's name as in the certificate, such as lead@hospital-a.org",
    )


def _days(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}d", text):
        raise argparse.ArgumentTypeError(f"a number of days, such as 180d, not {text!r}")
    return int(text[:-1])


def _runs(options: argparse.Namespace) -> int:
    from fedward.operation.runs import runs, table

    found = runs(options.folders)
    print(json.dumps(found, indent=1) if options.json else "\n".join(table(found)))
    return 0


def _prune(options: argparse.Namespace) -> int:
    from fedward.operation.prune import find, remove

    found = find(options.folder, options.older_than, options.models)
    code = 0
    total = 0
    for item in found.items:
        _print(_size(item.bytes), item.about, options.folder, item.path)
        try:
            if options.delete:
                remove(item)
            total += item.bytes
        except (FedwardError, OSError) as error:
            code = 1
            complain(one_line(f"{item.path} stays: {error}"))
    for kept in found.kept:
        _print("stays", kept.reason, options.folder, kept.path)
    done = "removed" if options.delete else "could be removed; nothing was, add --delete"
    print(
        f"{_size(total)}  {done}"
        if found.items
        else f"nothing to remove is older than {options.older_than} days"
    )
    return code


def _revoke(options: argparse.Namespace) -> int:
    from fedward.operation.revoke import revoke

    print(f"{revoke(options.kit, options.names)} refuses them; restart the server now")
    return 0


def _print(first: str, about: str, folder: Path, path: Path) -> None:
    below = (
        path.relative_to(folder) if path.is_relative_to(folder) else path
    )  # the server's jobs lie elsewhere
    print(f"{first:>10}  {about}\n{'':12}{one_line(f'{below}')}")


def _size(count: int) -> str:
    return f"{count / 1e6:>7.1f} MB"


def _doctor(options: argparse.Namespace) -> int:
    if _is_kit(options.subject):
        from fedward.flare.kits import doctor

        return doctor.run(options.subject, Path(options.job) if options.job else None)
    from fedward.operation.data_spec import data_spec
    from fedward.sites.doctor import run

    if (
        options.job and options.subject.is_file()
    ):  # a job imports torch, which a missing file does not need
        return _with_job(options)
    spec = data_spec(
        options.subject.parent,
        "fedward doctor",
        classes=options.classes,
        image_size=options.image_size,
    )
    return max(run(options.subject, spec, options.out), _look_at_device(options.subject))


def _with_job(options: argparse.Namespace) -> int:
    """Look at a site's images as a job would."""
    from fedward.operation.site_job import job_at, job_notes
    from fedward.sites.doctor import run

    if options.image_size or options.classes:
        expected = "the job alone"
        remedy = "Leave away --image-size and --classes: the job says both."
        raise ConfigError(
            "fedward doctor --job",
            expected=expected,
            found="other settings beside it",
            remedy=remedy,
        )
    experiment = job_at(options.job, options.subject)
    about = f"In the job {options.job}", lambda data: job_notes(experiment, data)
    return max(
        run(options.subject, experiment.data, options.out, about), _look_at_device(options.subject)
    )


def _survey(options: argparse.Namespace) -> int:
    from fedward.operation.survey import named_files, survey

    files = named_files(options.files)
    print(
        survey(files, options.out, options.classes, options.image_size, pictures=options.pictures)
    )
    return 0


def _look_at_device(site_file: Path) -> int:
    """Print where a site works; return 1 if that is not there. A file that cannot be read has been
    reported.
    """
    from fedward.sites.site_file import read_site_file

    try:
        file = read_site_file(site_file)
    except DataError:
        return 0
    from fedward.training.machine import described, device_of

    try:
        print(f"Works on: {described(device_of(file.device, f'site {file.site}'))}")
    except DataError as error:
        print(f"Not usable. {error}")
        return 1
    return 0


def _status(options: argparse.Namespace) -> int:
    if _is_kit(options.subject):
        from fedward.flare.jobs import status
        from fedward.flare.jobs.remote import RemoteSession

        with RemoteSession(options.subject) as flare:
            found = status.describe(flare, options.job)
    elif options.job:
        expected = "a startup kit, a folder with startup/ in it"
        remedy = "Name the kit, or leave the job away."
        raise ConfigError(
            "fedward status", expected=expected, found=str(options.subject), remedy=remedy
        )
    else:
        from fedward.server.progress import lines, progress

        found = lines(progress(options.subject))
    print("\n".join(found))
    return 0


def _is_kit(folder: Path) -> bool:
    return (folder / "startup").is_dir()


def _report(options: argparse.Namespace) -> int:
    from fedward.operation.reports import rewrite_report

    options.out = options.run
    print(rewrite_report(options.run, options.compare))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from fedward.operation.audit_check import verify
    from fedward.operation.site_check import read_site_log

    if options.run:
        print(verify(options.run, options.site))
    elif options.site:
        print("\n".join(str(read_site_log(file)) for file in options.site))
    else:
        expected = "a run folder, --site with sites' logs, or both"
        remedy = "Name the folder of a run, or answers/<run id>.jsonl of a site's own folder."
        raise ConfigError("fedward audit verify", expected=expected, found="neither", remedy=remedy)
    return 0
