"""The federation's model beside those that its sites trained alone or fine-tuned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedward.digests import file_digest
from fedward.evaluation.intervals import Interval, paired_difference
from fedward.evaluation.selection import Selection, last_rounds
from fedward.report.sites import MANY
from fedward.runs.run import Run
from fedward.runs.sentences import lowest_and_highest, named
from fedward.runs.titles import title_of
from fedward.text import count


@dataclass(frozen=True)
class JoiningLine:
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


Change = Callable[[JoiningLine], float | None]
"""Returns a change of the test value at one site; None where the site has one model alone."""


@dataclass(frozen=True)
class Joining:
    """All sites that have a run of their own."""

    metric: str
    lines: Sequence[JoiningLine]

    @classmethod
    def of(cls, run: Run, single_site_runs: Sequence[Run]) -> "Joining | None":
        """Return what joining and fine-tuning bring; None where no site can be paired.

        A run is fine-tuning if it began with this run's last model. A site whose own run has
        another number of test images is omitted, because it was tested on other images.
        """
        metric = run.key_metric
        joined = last_rounds(run.metrics.named(metric), metric)
        tuned_runs = _started_from(run, single_site_runs)
        fresh_runs = [other for other in single_site_runs if other not in tuned_runs]
        alone = _by_site(joined, fresh_runs, metric)
        tuned = _by_site(joined, tuned_runs, metric)
        lines = []
        place_of = {site: place for place, site in enumerate(run.info.sites)}
        # Rows may name a site that run.json does not, where somebody has changed one of them.
        for choice in sorted(
            joined.sites, key=lambda choice: place_of.get(choice.site, len(place_of))
        ):
            site = choice.site
            if choice.test is not None and (site in alone or site in tuned):
                lines.append(
                    JoiningLine(site, choice.images, alone.get(site), choice.test, tuned.get(site))
                )
        return cls(metric, lines) if lines else None

    @property
    def many(self) -> bool:
        """Whether there are too many sites to show each at once."""
        return len(self.lines) > MANY

    @property
    def gain(self) -> Interval | None:
        """What joining brings: mean over sites, paired; None where no site trained alone."""
        return self._mean(lambda line: line.gain)

    @property
    def tuning(self) -> Interval | None:
        """What fine-tuning brings: mean over sites, paired; None where no site did."""
        return self._mean(lambda line: line.tuning)

    @property
    def sentences(self) -> list[str]:
        """At how many sites either model is better, and by how much on average."""
        about_gain = self._compared(
            "the federation's model", "the one that the site trained alone", lambda line: line.gain
        )
        return [*about_gain, *self.about_tuning]

    @property
    def about_tuning(self) -> list[str]:
        """A sentence or two on fine-tuning; empty where no site did it."""
        return self._compared(
            "the model that the site fine-tuned", "the federation's", lambda line: line.tuning
        )

    def _compared(self, model: str, other: str, change: Change) -> list[str]:
        """Return sentences on two models of each site; empty where no site has both.

        Args:
            model: the one that is compared.
            other: what it is compared with.
            change: how much better the first one is.
        """
        changes = self._changes(change)
        mean = self._mean(change)
        if mean is None:
            return []
        better = sum(value > 0 for value in changes.values())
        sites = count(len(changes), "site")
        value = f"test {title_of(self.metric)}"
        sentences = [f"At {better} of {sites}, {model} has a higher {value} than {other}."]
        worse = [site for site, value in changes.items() if value < 0]
        if worse:
            sentences.append(f"It is lower at {named(worse)}.")
        difference = f"The mean difference is {mean.mean:+.3f}"
        if mean.low is None or mean.high is None:
            difference += ", of one site and without an interval"
        else:
            difference += f" (95 % interval over sites {mean.low:+.3f} to {mean.high:+.3f}"
            difference += ", which includes 0)" if mean.low <= 0 <= mean.high else ")"
        if len(changes) > 1:
            difference += f": {lowest_and_highest(changes, '+.3f')}"
        return [*sentences, f"{difference}."]

    def _changes(self, change: Change) -> dict[str, float]:
        """Return site -> its change, for the sites that have both models."""
        changes = {line.site: change(line) for line in self.lines}
        return {site: value for site, value in changes.items() if value is not None}

    def _mean(self, change: Change) -> Interval | None:
        changes = list(self._changes(change).values())
        return paired_difference(changes, [0.0] * len(changes)) if changes else None


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
