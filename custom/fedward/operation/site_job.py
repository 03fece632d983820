"""What a job would do with a site's images, for the doctor to say before the site joins."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedward.client.earlier_answers import with_present_answers
from fedward.config import Experiment
from fedward.errors import DataError
from fedward.evaluation.evaluated_images import images_of_common_classes
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.flare.jobs.configurations import experiment_in
from fedward.jobs import is_shipped, load_experiment
from fedward.methods import job_of
from fedward.methods.survey import Survey
from fedward.sites import Images, SiteData
from fedward.sites.data_file import read_data_file
from fedward.text import count

_ANSWERS = {
    "none": "nobody answers",
    "oracle": "the data's own labels answer",
    "queue": "people answer",
}
"""A site's kind of annotation -> who answers questions about labels."""


def job_at(job: str, site_file: Path) -> Experiment:
    """Return the experiment that a job would carry out with this site file.

    Args:
        job: name of a shipped job or method, a JSON file with an experiment, or the folder of an
            exported job.
        site_file: the site's; a shipped job uses a ``data.json`` beside it.

    Raises:
        ConfigError: there is no such job, or its settings are wrong.
        DataError: ``data.json`` cannot be read.
    """
    if is_shipped(job):
        return load_experiment(job, data=read_data_file(site_file.parent))
    for name in ("app_server", "app"):
        app = Path(job) / name
        if app.is_dir():
            return experiment_in(app / "config")
    return load_experiment(job)


def run_of(job: str, site_files: Path) -> str:
    """Return the command that runs a job, named as for :func:`job_at`, with these site files."""
    quoted = shlex.quote(job)
    if not is_shipped(job) and Path(job).is_dir():
        # FLARE starts the sites elsewhere, so the path must be absolute.
        return f"FEDWARD_SITES={shlex.quote(f'{site_files.resolve()}')} nvflare simulator {quoted}"
    return f"fedward run {quoted} --site-files {shlex.quote(f'{site_files}')}"


def job_notes(experiment: Experiment, data: SiteData, site_file: Path) -> Sequence[str]:
    """Return sentences about what the job would train on, ask for and omit at a site."""
    algorithm = job_of(experiment)
    labels_in_data = len(data.labelled)
    unread = []
    try:
        data = with_present_answers(data, site_file)
    except DataError as error:
        unread = [f"the answers of people cannot be read, and no job can begin: {error}"]
    counts = [_used("val", data.val), _used("test", data.test)]
    if algorithm.requirements.sends.class_totals:
        counts.insert(0, _used("labelled", data.labelled))
    notes = [
        f"used, of classes with {SMALLEST_COUNT} images or more in a split: {', '.join(counts)}"
    ]
    notes += unread
    answers = len(data.labelled) - labels_in_data
    if answers:
        notes.append(f"the labels include {count(answers, 'answer')} that people gave")
    if algorithm.requirements.plain_images and len(data.unlabelled):
        unlabelled = count(len(data.unlabelled), "unlabelled image")
        notes.append(f"the job does not use the {unlabelled}")
    if algorithm.requirements.hidden_labels and len(data.labelled):
        labelled = count(len(data.labelled), "labelled image")
        notes.append(f"the job does not use the labels of the {labelled}")
    active = None if isinstance(algorithm, Survey) else algorithm.active
    if active is not None:
        own = 0 if data.annotation == "oracle" else len(data.labelled)
        pool = len(data.labelled)
        if data.annotation == "queue":
            pool += len({*data.unlabelled.ids} - data.cannot_tell)
        # The first ones are asked for as well, where the site does not have them.
        first = max(active.initial_labels(pool), own)
        asked = active.labels_wanted(active.rounds, pool, first) - own
        labels = count(own, "label")
        notes.append(f"it has {labels} and asks for {asked}; {_ANSWERS[data.annotation]}")
    return notes


def _used(split: str, images: Images) -> str:
    used = len(images_of_common_classes(images))
    return f"{used} of {count(len(images), f'{split} image')}"
