"""``fedward doctor`` and ``survey``, the commands for a site's data.

Imports nothing heavy before it runs.
"""

import argparse
from pathlib import Path

from fedward.errors import ConfigError, DataError
from fedward.operation.folders import is_kit


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``doctor``."""
    from fedward.config import DataSpec

    default = DataSpec()
    parser.set_defaults(command=_doctor)
    parser.add_argument(
        "subject",
        type=Path,
        metavar="SITE_FILE|KIT",
        help="the file that describes a site's data, or a kit's folder",
    )
    parser.add_argument(
        "--job",
        metavar="JOB",
        help="with a site file: what this job would do there; "
        "with a kit: whether it would run this exported job (a folder)",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        metavar="PIXELS",
        help="with a site file: height and width in pixels that the job asks for "
        f"(default: of data.json beside it, or {default.image_size})",
    )
    parser.add_argument(
        "--classes",
        nargs="+",
        metavar="CLASS",
        help="with a site file: the job's classes, in its order "
        f"(default: of data.json beside it, or {' '.join(default.classes)})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="with a site file: folder for the contact sheet (default: this one)",
    )


def add_survey(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``survey``."""
    parser.set_defaults(command=_survey)
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="SITE_FILE",
        help="files that describe sites' data, or a folder of them",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("survey"),
        metavar="FOLDER",
        help="folder for survey.html and survey.json (default: survey)",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        metavar="PIXELS",
        help="height and width in pixels at which images are measured "
        "(default: of data.json, or 32)",
    )
    parser.add_argument(
        "--classes",
        nargs="+",
        metavar="CLASS",
        help="the job's classes, in its order (default: of data.json, or eight of skin lesions)",
    )
    parser.add_argument(
        "--pictures",
        action="store_true",
        help="show images of each class in the page, which then must stay at the site; "
        "of one site alone",
    )


def _doctor(options: argparse.Namespace) -> int:
    if is_kit(options.subject):
        from fedward.flare.kits import doctor

        return doctor.run(options.subject, Path(options.job) if options.job else None)
    # A job imports torch, which a site file that does not exist should not wait for.
    if options.job and options.subject.is_file():
        return _doctor_of_a_job(options)
    from fedward.operation.data_spec import data_spec
    from fedward.sites.doctor import run

    spec = data_spec(
        options.subject.parent,
        "fedward doctor",
        classes=options.classes,
        image_size=options.image_size,
    )
    status = run(options.subject, spec, options.out)
    return max(status, _check_device(options.subject))


def _doctor_of_a_job(options: argparse.Namespace) -> int:
    """Examine a site's images as a job would use them."""
    from fedward.operation.site_job import job_at, job_notes
    from fedward.sites.doctor import run

    if options.image_size or options.classes:
        raise ConfigError(
            "fedward doctor --job takes neither --image-size nor --classes: the job names both",
            "Remove these options.",
        )
    experiment = job_at(options.job, options.subject)
    about = f"In the job {options.job}", lambda data: job_notes(experiment, data)
    status = run(options.subject, experiment.data, options.out, about)
    return max(status, _check_device(options.subject))


def _check_device(site_file: Path) -> int:
    """Print the device on which a site trains; return 1 if it is missing, else 0.

    A site file that cannot be read has been reported already.
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


def _survey(options: argparse.Namespace) -> int:
    from fedward.operation.survey import named_files, survey

    files = named_files(options.files)
    page = survey(
        files, options.out, options.classes, options.image_size, pictures=options.pictures
    )
    print(page)
    return 0
