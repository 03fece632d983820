"""Does joining pay? Each site's own model, trained alone, beside the federation's, on the site's own test images."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedward.evaluation.intervals import Interval, paired_difference
from fedward.evaluation.selection import Selection, last_rounds
from fedward.report.run import Run
from fedward.report.tables import title_of
from fedward.report.words import count, named


@dataclass(frozen=True)
class AloneLine:
    """One site's test key metric over the last rounds, with both models."""

    site: str
    images: int
    alone: float
    """Mean of the site's own runs."""
    joined: float

    @property
    def gain(self) -> float:
        """What joining brings; below 0 where the site's own model is better."""
        return self.joined - self.alone


@dataclass(frozen=True)
class Alone:
    """All sites that have a run of their own."""

    metric: str
    lines: Sequence[AloneLine]
    gain: Interval
    """Mean over sites, paired, with its 95 % t interval."""

    @property
    def sentence(self) -> str:
        """Return whether joining pays, and where it does not."""
        found, better = self.gain, [line for line in self.lines if line.gain > 0]
        worse = [line.site for line in self.lines if line.gain < 0]
        interval = "" if found.low is None else f" (95 % interval {found.low:+.3f} to {found.high:+.3f})"
        lost = f" It costs at {named(worse)}." if worse else ""
        return (
            f"Joining pays at {len(better)} of {count(len(self.lines), 'site')}: from a site's own model to the "
            f"federation's, test {title_of(self.metric)} changes by {found.mean:+.3f}{interval}.{lost}"
        )


def split(run: Run, others: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return (runs of one site of this run alone, all others); a run of one site has no such runs."""
    sites = set(run.info.sites)
    alone = [
        other
        for other in others
        if len(sites) > 1 and len(other.info.sites) == 1 and sites.issuperset(other.info.sites)
    ]
    return alone, [other for other in others if other not in alone]


def compared(run: Run, own: Sequence[Run]) -> Alone | None:
    """Return what joining brings to the sites with a run of their own; None where none can be paired.

    A site whose own run has another number of test images is left out: its images would be others.
    """
    metric = run.key_metric
    joined = last_rounds(run.metrics.named(metric), metric)
    values: dict[str, list[float]] = {}
    for other in own:
        for site, value in _same_images(joined, last_rounds(other.metrics.named(metric), metric)).items():
            values.setdefault(site, []).append(value)
    lines = [
        AloneLine(choice.site, choice.images, fmean(values[choice.site]), choice.test)
        for choice in sorted(joined.sites, key=lambda choice: run.info.sites.index(choice.site))
        if choice.site in values and choice.test is not None
    ]
    if not lines:
        return None
    return Alone(metric, lines, paired_difference([line.joined for line in lines], [line.alone for line in lines]))


def _same_images(joined: Selection, alone: Selection) -> dict[str, float]:
    images = {choice.site: choice.images for choice in joined.sites}
    return {c.site: c.test for c in alone.sites if c.test is not None and images.get(c.site) == c.images}
