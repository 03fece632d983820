"""``fedward doctor`` and ``survey``, the commands for a site's data.

Imports nothing heavy before it runs.
"""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import ConfigError, DataError, offering
from fedward.operation.folders import is_kit
from fedward.terminal import fold

if TYPE_CHECKING:
    from fedward.config import DataSpec
    from fedward.operation.measured import Unmeasured
    from fedward.sites.leaks import Seen


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``doctor``."""
    from fedward.config import DataSpec

    default = DataSpec()
    parser.set_defaults(command=_doctor)
    parser.add_argument(
        "subject",
        type=Path,
        metavar="SITE_FILE|FOLDER|KIT",
        help="the file that describes a site's data, a folder of such files, or a kit's folder",
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
    files = _files_of(options.subject)
    if options.job and (options.image_size or options.classes):
        raise ConfigError(
            "fedward doctor --job takes neither --image-size nor --classes: the job names both",
            "Remove these options.",
        )
    with offering(*([] if options.job else ["classes"])):
        return _examined(options, files)


def _examined(options: argparse.Namespace, files: Sequence[Path]) -> int:
    """Examine site files, print what was found, and return the exit status."""
    from fedward.sites.leaks import Seen

    status = 0
    seen = Seen([], [], [])
    for file in files:
        examine = _examine_for_job if options.job else _examine
        status = max(status, examine(options, file, seen), _check_device(file))
        if len(files) > 1:
            print()
    status = max(status, _check_between(seen))
    for line in _next_lines(options, status, files, seen):
        print("\n".join(fold(line)) if not line.startswith("Next: ") else line)
    return status


def _files_of(subject: Path) -> list[Path]:
    """Return the site files that a doctor is asked about; ConfigError for a folder without any."""
    if not subject.is_dir():
        return [subject]
    from fedward.sites import named_sites
    from fedward.text import natural

    return [subject / f"{site}.yaml" for site in sorted(named_sites(subject), key=natural)]


def _check_between(seen: "Seen") -> int:
    """Print what several sites have together that is wrong; return 1 if they leak.

    Images and patients may be in several splits of different sites, and images may have several
    labels.
    """
    from fedward.sites.leaks import contradiction_notes, contradictions, leak_notes, leaks_between

    if len({place.site for _, place in seen.pictures}) < 2:
        return 0
    notes = leak_notes(leaks_between(seen.pictures, seen.dicom))
    for note in (*contradiction_notes(contradictions(seen.pictures)), *notes):
        print("\n".join(fold(f"All sites together: {note}.")))
    return 1 if notes else 0


def _examine(options: argparse.Namespace, file: Path, seen: "Seen") -> int:
    """Print what is to be said of a site's images; return 1 if it cannot join, else 0."""
    from fedward.sites.doctor import run

    return run(file, _spec(options), options.out, seen=seen)


def _spec(options: argparse.Namespace) -> "DataSpec":
    """Return what the images are, by the options and by data.json beside the site file."""
    from fedward.operation.data_spec import data_spec

    subject = options.subject
    folder = subject if subject.is_dir() else subject.parent
    return data_spec(
        folder, "fedward doctor", classes=options.classes, image_size=options.image_size
    )


def _examine_for_job(options: argparse.Namespace, file: Path, seen: "Seen") -> int:
    """Examine a site's images as a job would use them."""
    if not file.is_file():  # A job imports torch, which a missing file should not wait for.
        return _examine(options, file, seen)
    from fedward.operation.site_job import job_at, job_notes
    from fedward.sites.doctor import run

    experiment = job_at(options.job, file)
    about = f"In the job {options.job}", lambda data: job_notes(experiment, data, file)
    return run(file, experiment.data, options.out, about, seen)


def _next_lines(
    options: argparse.Namespace, status: int, files: Sequence[Path], seen: "Seen"
) -> list[str]:
    """Return what to do after the doctor, which has examined these files."""
    from fedward.operation.next_step import next_after_doctor

    if status:
        # Without the options of this call: they may be what is wrong.
        return ["Next: mend the faults above, and call fedward doctor again."]
    run = ""
    if options.job:
        from fedward.operation.site_job import job_at, run_of

        spec = job_at(options.job, files[0]).data
        run = run_of(options.job, files[0].parent)
    else:
        spec = _spec(options)
    further = ""
    if options.classes:
        classes = json.dumps(options.classes, ensure_ascii=False)
        further += f" --set {shlex.quote(f'data.classes={classes}')}"
    if options.image_size:
        further += f" --set data.image_size={options.image_size}"
    nothing = _unmeasured(spec, files, seen)
    return next_after_doctor(options.subject, spec, further, nothing, run, _same_options(options))


def _same_options(options: argparse.Namespace) -> str:
    """Return the options of this call that say how images are used, for the doctor's next call."""
    words = []
    if options.job:
        words += ["--job", options.job]
    if options.classes:
        words += ["--classes", *options.classes]
    if options.image_size:
        words += ["--image-size", f"{options.image_size}"]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _unmeasured(spec: "DataSpec", files: Sequence[Path], seen: "Seen") -> "Unmeasured | None":
    """Return why a run on these files would say nothing about its model; None if it would."""
    from fedward.operation.measured import measured_by, unmeasured
    from fedward.sites import load_site

    tests = [measured_by(spec, labels, groups) for labels, groups in seen.tests]
    return unmeasured(
        spec,
        tests,
        files[0].parent,
        lambda: (load_site(file, spec, labelled=1.0) for file in files),
    )


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
    from fedward.sites.doctor import SHOWS_PATIENTS

    files = named_files(options.files)
    with offering("classes"):
        page = survey(
            files, options.out, options.classes, options.image_size, pictures=options.pictures
        )
    print(page)
    if options.pictures:
        print(SHOWS_PATIENTS)
    return 0
