"""Does joining pay? The federation's model beside those that a site trained alone, from fresh
weights or from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedward.digests import file_digest
from fedward.evaluation.intervals import Interval, paired_difference
from fedward.evaluation.selection import Selection, last_rounds
from fedward.report.words import named
from fedward.runs.run import Run
from fedward.runs.titles import title_of
from fedward.text import count


@dataclass(frozen=True)
class AloneLine:
    """One site's test key metric over the last rounds, on its own test images."""

    site: str
    images: int
    alone: float | None
    """Mean of the models that the site trained alone; None without one."""
    joined: float
    """Of the federation's model."""
    tuned: float | None
    """Mean of the models that the site alone trained on from the federation's; None without one."""

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
        """What joining brings: mean over sites, paired, with its 95 % t interval; None where no
        site trained alone.
        """
        return _mean(self.lines, lambda line: line.gain)

    @property
    def tuning(self) -> Interval | None:
        """What fine-tuning brings, likewise; None where no site did."""
        return _mean(self.lines, lambda line: line.tuning)

    @property
    def sentences(self) -> list[str]:
        """Return whether joining and fine-tuning pay, and where they do not."""
        name = title_of(self.metric)
        joining = _judgement(
            "Joining",
            "a site's own model",
            "the federation's",
            name,
            self.lines,
            lambda line: line.gain,
        )
        last = "the one that a site trained on from it"
        tuning = _judgement(
            "Fine-tuning",
            "the federation's model",
            last,
            name,
            self.lines,
            lambda line: line.tuning,
        )
        return [*joining, *tuning]


Change = Callable[[AloneLine], float | None]


def _mean(lines: Sequence[AloneLine], change: Change) -> Interval | None:
    found = [value for line in lines if (value := change(line)) is not None]
    return paired_difference(found, [0.0] * len(found)) if found else None


def _judgement(
    what: str, before: str, after: str, metric: str, lines: Sequence[AloneLine], change: Change
) -> list[str]:
    """Return a sentence on one change, or none where no site has both models."""
    changes = {line.site: value for line in lines if (value := change(line)) is not None}
    found = _mean(lines, change)
    if found is None:
        return []
    better = sum(value > 0 for value in changes.values())
    worse = [site for site, value in changes.items() if value < 0]
    interval = (
        "" if found.low is None else f" (95 % interval {found.low:+.3f} to {found.high:+.3f})"
    )
    lost = f" It costs at {named(worse)}." if worse else ""
    return [
        f"{what} pays at {better} of {count(len(changes), 'site')}: from {before} to {after}, test {metric} changes by "
        f"{found.mean:+.3f}{interval}.{lost}"
    ]


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
    """Return what joining and fine-tuning bring to the sites with runs of their own; None where
    none can be paired.

    A run is fine-tuning if it began with this run's last model. A site whose own run has another
    number of test images is left out: its images would be others.
    """
    metric = run.key_metric
    joined = last_rounds(run.metrics.named(metric), metric)
    model = run.folder / "model.safetensors"
    weights = file_digest(model) if own and model.exists() else None
    tuned = [other for other in own if weights and (other.info.init or {}).get("sha256") == weights]
    alone, tuned_values = (
        _by_site(joined, runs, metric)
        for runs in ([other for other in own if other not in tuned], tuned)
    )
    lines = [
        AloneLine(
            choice.site,
            choice.images,
            alone.get(choice.site),
            choice.test,
            tuned_values.get(choice.site),
        )
        for choice in sorted(joined.sites, key=lambda choice: run.info.sites.index(choice.site))
        if choice.site in {*alone, *tuned_values} and choice.test is not None
    ]
    return Alone(metric, lines) if lines else None


def _by_site(joined: Selection, runs: Sequence[Run], metric: str) -> dict[str, float]:
    """Return site -> test value, mean of its runs, of those with as many test images as the site
    has in ``joined``.
    """
    images = {choice.site: choice.images for choice in joined.sites}
    values: dict[str, list[float]] = {}
    for run in runs:
        for choice in last_rounds(run.metrics.named(metric), metric).sites:
            if choice.test is not None and images.get(choice.site) == choice.images:
                values.setdefault(choice.site, []).append(choice.test)
    return {site: fmean(each) for site, each in values.items()}
