"""What a job would do with a site's images, told before the site joins."""

from collections.abc import Sequence
from pathlib import Path

from fedward.config import Experiment
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.evaluation.units import reportable
from fedward.flare.jobs.configurations import experiment_in
from fedward.jobs import is_shipped, load_experiment
from fedward.methods import method_of
from fedward.methods.fedal.queries import ActiveSettings
from fedward.sites import Images, SiteData
from fedward.sites.data_file import read_data_file

_ANSWERS = {
    "none": "nobody answers",
    "oracle": "the data's own labels answer",
    "queue": "people answer",
}


def job_at(job: str, site_file: Path) -> Experiment:
    """Return the experiment that ``fedward run JOB`` would carry out with the site files beside
    this one.

    Args:
        job: name of a shipped job or method, a JSON file with an experiment, or the folder of an
            exported job.
        site_file: in its folder may lie what is said of the images of all sites, which a shipped
            job takes.

    Raises:
        ConfigError: there is no such job, or its settings are wrong.
        DataError: what is said of the images cannot be read.
    """
    if is_shipped(job):
        return load_experiment(job, data=read_data_file(site_file.parent))
    apps = [app for name in ("app_server", "app") if (app := Path(job) / name).is_dir()]
    return experiment_in(apps[0] / "config") if apps else load_experiment(job)


def job_notes(experiment: Experiment, data: SiteData) -> Sequence[str]:
    """Return sentences on what the job would train on, ask for and leave out at a site."""
    algorithm = method_of(experiment)
    train = len(data.labelled) + len(data.unlabelled)
    counts = [_used("val", data.val), _used("test", data.test)]
    if algorithm.requirements.sends.class_totals:
        counts.insert(0, _used("labelled", data.labelled))
    notes = [
        f"used, of classes with {SMALLEST_COUNT} images or more in a split: {', '.join(counts)}"
    ]
    if algorithm.requirements.plain_images and len(data.unlabelled):
        notes.append(f"the {len(data.unlabelled)} unlabelled images are not used")
    settings = algorithm.settings
    if isinstance(settings, ActiveSettings):
        first, all_ = (
            round(share * train) for share in (settings.initial_fraction, settings.target_fraction)
        )
        queries = (
            f"asks for {all_ - first} in {settings.steps} queries; {_ANSWERS[data.annotation]}"
        )
        notes.append(f"it begins with {first} labels and {queries}")
    return notes


def _used(split: str, images: Images) -> str:
    return f"{len(reportable(images))} of {len(images)} {split} images"
