"""Does joining pay? The federation's model beside those that single sites trained alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedward.digests import file_digest
from fedward.evaluation.intervals import Interval, paired_difference
from fedward.evaluation.selection import Selection, last_rounds
from fedward.report import comparison
from fedward.runs.run import Run
from fedward.runs.sentences import named
from fedward.runs.titles import title_of
from fedward.runs.verdict import Against
from fedward.text import count


@dataclass(frozen=True)
class AloneLine:
    """One site's test key metric over the last rounds, on its own test images."""

    site: str
    images: int
    alone: float | None
    """Mean of the models that the site trained alone from fresh weights; None without one."""
    joined: float
    """Value of the federation's model."""
    tuned: float | None
    """Mean of the models that the site trained alone from the federation's; None without one."""

    @property
    def gain(self) -> float | None:
        """What joining brings; below 0 where the site's own model is better."""
        return None if self.alone is None else self.joined - self.alone

    @property
    def tuning(self) -> float | None:
        """What fine-tuning at the site brings; below 0 where the federation's model is better."""
        return None if self.tuned is None else self.tuned - self.joined


@dataclass(frozen=True)
class Alone:
    """All sites that have a run of their own."""

    metric: str
    lines: Sequence[AloneLine]

    @property
    def gain(self) -> Interval | None:
        """What joining brings: mean over sites, paired; None where no site trained alone."""
        return _mean(self.lines, lambda line: line.gain)

    @property
    def tuning(self) -> Interval | None:
        """What fine-tuning brings: mean over sites, paired; None where no site did."""
        return _mean(self.lines, lambda line: line.tuning)

    @property
    def against(self) -> list[Against]:
        """The federation's model beside those that sites trained alone."""
        if self.gain is None:
            return []
        return [Against("what sites train alone", title_of(self.metric), self.gain)]

    @property
    def sentences(self) -> list[str]:
        """Whether joining and fine-tuning pay, and where they do not."""
        metric = title_of(self.metric)
        joining = _judgement(
            f"Joining pays at {{}}: from a site's own model to the federation's, test {metric}",
            self.lines,
            lambda line: line.gain,
        )
        tuning = _judgement(
            "Fine-tuning pays at {}: from the federation's model to the one that a site trained "
            f"on from it, test {metric}",
            self.lines,
            lambda line: line.tuning,
        )
        return [*joining, *tuning]


Change = Callable[[AloneLine], float | None]
"""A change of the test value at one site; None where the site has only one of both models."""


def _changes(lines: Sequence[AloneLine], change: Change) -> dict[str, float]:
    changes = {line.site: change(line) for line in lines}
    return {site: value for site, value in changes.items() if value is not None}


def _mean(lines: Sequence[AloneLine], change: Change) -> Interval | None:
    changes = list(_changes(lines, change).values())
    return paired_difference(changes, [0.0] * len(changes)) if changes else None


def _judgement(beginning: str, lines: Sequence[AloneLine], change: Change) -> list[str]:
    """Return a sentence on one change, or none where no site has both models.

    Args:
        beginning: of the sentence, with ``{}`` for the sites where the change pays.
        lines: of all sites.
        change: what is judged.
    """
    changes = _changes(lines, change)
    mean = _mean(lines, change)
    if mean is None:
        return []
    better = sum(value > 0 for value in changes.values())
    sentence = beginning.format(f"{better} of {count(len(changes), 'site')}")
    sentence += f" changes by {mean.mean:+.3f}"
    if mean.low is not None:
        sentence += f" (95 % interval {mean.low:+.3f} to {mean.high:+.3f})"
    sentence += "."
    worse = [site for site, value in changes.items() if value < 0]
    if worse:
        sentence += f" It costs at {named(worse)}."
    return [sentence]


def split(run: Run, others: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return (runs of one site of this run alone, all other runs)."""
    sites = set(run.info.sites)
    of_one_site = []
    remaining = []
    for other in others:
        if len(sites) > 1 and len(other.info.sites) == 1 and sites.issuperset(other.info.sites):
            of_one_site.append(other)
        else:
            remaining.append(other)
    return of_one_site, remaining


def compared(run: Run, single_site_runs: Sequence[Run]) -> Alone | None:
    """Return what joining and fine-tuning bring; None where no site can be paired.

    A run is fine-tuning if it began with this run's last model. A site whose own run has another
    number of test images is omitted, because it was tested on other images.
    """
    metric = run.key_metric
    joined = last_rounds(run.metrics.named(metric), metric)
    tuned_runs = _started_from(run, single_site_runs)
    fresh_runs = [other for other in single_site_runs if other not in tuned_runs]
    alone = _by_site(joined, fresh_runs, metric)
    tuned = _by_site(joined, tuned_runs, metric)
    lines = []
    for choice in sorted(joined.sites, key=lambda choice: run.info.sites.index(choice.site)):
        site = choice.site
        if choice.test is not None and (site in alone or site in tuned):
            line = AloneLine(site, choice.images, alone.get(site), choice.test, tuned.get(site))
            lines.append(line)
    return Alone(metric, lines) if lines else None


def _started_from(run: Run, others: Sequence[Run]) -> list[Run]:
    """Return the runs that began with a run's last model."""
    model = run.folder / "model.safetensors"
    if not others or not model.exists():
        return []
    weights = file_digest(model)
    return [other for other in others if (other.info.init or {}).get("sha256") == weights]


def _by_site(joined: Selection, runs: Sequence[Run], metric: str) -> dict[str, float]:
    """Return site -> mean test value of its runs with as many test images as in ``joined``."""
    images = {choice.site: choice.images for choice in joined.sites}
    values: dict[str, list[float]] = {}
    for run in runs:
        for choice in last_rounds(run.metrics.named(metric), metric).sites:
            if choice.test is not None and images.get(choice.site) == choice.images:
                values.setdefault(choice.site, []).append(choice.test)
    return {site: fmean(site_values) for site, site_values in values.items()}


def against_all(run: Run, others: Sequence[Run]) -> list[Against]:
    """Return a run beside the others with which it shares test images."""
    single_site_runs, whole_runs = split(run, others)
    found = comparison.against(
        comparison.compared_runs([run, *whole_runs], run.key_metric), run.key_metric
    )
    joining = compared(run, single_site_runs)
    return found + joining.against if joining else found
