"""Whether the site files that the simulator is given fit its job."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import ConfigError
from fedward.flare.places import SITES, named_folder
from fedward.sites.check import site_problems

if TYPE_CHECKING:
    from fedward.config import DataSpec


def require_usable_site_files(
    job: str, sites: Sequence[str], folders: Sequence[Path], spec: "DataSpec"
) -> None:
    """Refuse a simulated job that cannot use the files that ``FEDWARD_SITES`` names.

    It comes before a site starts, so that one message says it, and not each site in each round.

    Args:
        job: the job's name.
        sites: names of its sites.
        folders: where their files may lie.
        spec: what the job says of the images.

    Raises:
        ConfigError: the variable is set, and a site has no file or one that the job cannot use. The
            text has the commands that run a job for these files.
    """
    folder = named_folder(SITES)
    if folder is None:
        return
    problems = site_problems(sites, folders, spec)
    if not problems:
        return
    first = min(problems)
    # The first sentence says what is wrong. What to do follows from the job here.
    problem = problems[first].split(". ")[0].removesuffix(".")
    raise ConfigError(
        f"Job {job} does not fit the site files of {SITES}, {folder}: {first}, {problem}",
        f"Export a job that does, `fedward jobs own --only {job} --site-files {folder}`, and run "
        f"own/{job}; or unset {SITES} to train on synthetic images.",
    )
