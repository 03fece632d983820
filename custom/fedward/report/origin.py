"""Where the images of a run came from, and what its numbers are of."""

from typing import NamedTuple

from fedward.runs.run import Run
from fedward.runs.sentences import in_brackets
from fedward.text import count


class Origin(NamedTuple):
    """Where the images of a run came from; one of the two texts is empty."""

    warning: str
    """Says that images are synthetic, so that numbers from them say nothing about patients."""
    sentence: str
    """Says that all images are in files, or that it is unknown."""


def origin(run: Run) -> Origin:
    """Return where the images of a run came from, as far as its sites said."""
    by_site = run.info.synthetic
    if not by_site:
        return Origin("", "This run does not record whether its images were synthetic.")
    sites = count(len(by_site), "site")
    synthetic = [site for site, drawn in by_site.items() if drawn]
    if not synthetic:
        # Whether somebody drew the images before is not known here.
        sentence = f"Data: images in files of {sites}, as each site stated."
        return Origin("", sentence)
    which = f"{len(synthetic)} of {sites}{in_brackets(synthetic)}"
    if len(synthetic) == len(by_site):
        which = "the only site" if len(by_site) == 1 else f"all {sites}"
    warning = (
        f"Synthetic data: {which} worked on images that fedward draws. These numbers say how the "
        "software behaves. They say nothing about patients."
    )
    return Origin(warning, "")


def unit(run: Run) -> str:
    """Return sentences on how a run's images are grouped for evaluation; empty if they are not."""
    if run.unit == "image":
        return ""
    return (
        "Evaluated by patient: the answer is the mean of the probabilities of a patient's images. "
        "What a site's file calls a group counts as a patient, such as a volume."
    )
