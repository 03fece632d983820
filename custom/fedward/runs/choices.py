"""Which rounds of a run its results are of, under each protocol of choosing them."""

from dataclasses import dataclass

from fedward.evaluation.selection import (
    Selection,
    best_global,
    best_per_site,
    kept_round,
    last_round,
    last_rounds,
)
from fedward.runs.run import Run


@dataclass(frozen=True)
class Choices:
    """Selections of rounds by one metric."""

    end: Selection
    """Mean of the last rounds."""
    shared: Selection
    """Best single round, the same for all sites."""
    own: Selection
    """Best round of each site."""
    last: Selection
    """The last evaluated round."""

    @classmethod
    def of(cls, run: Run, metric: str) -> "Choices":
        """Select rounds from a run's rows.

        The best single round of a finished run is the one whose model is in best.safetensors.
        """
        rows = list(run.metrics.named(metric))
        if metric == run.key_metric and "best_round" in run.info.summary.model_fields_set:
            shared = kept_round(rows, metric, run.info.summary.best_round)
        else:
            shared = best_global(rows, metric, run.info.sites)
        return cls(
            end=last_rounds(rows, metric),
            shared=shared,
            own=best_per_site(rows, metric),
            last=last_round(rows, metric),
        )

    @property
    def reported(self) -> int | None:
        """The round whose model is described in detail: the best single round, else the last."""
        return self.last.round if self.shared.round is None else self.shared.round


def site_test_values(run: Run, metric: str, round_: int | None) -> dict[str, float]:
    """Return site -> test value of the model after ``round_`` rounds, for sites that have one."""
    values = run.metrics.values("test", metric, round_)
    by_site = {site: values.get(site) for site in run.info.sites}
    return {site: value for site, value in by_site.items() if value is not None}
