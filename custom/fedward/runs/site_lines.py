"""What each site brought to a run: images, classes, rounds."""

from collections import Counter
from dataclasses import dataclass

from fedward.evaluation.selection import MetricRow
from fedward.runs.exchanges import merged_rounds, took_no_step
from fedward.runs.run import Run

FEW = 10
"""Below this number of test images a result is marked: one image changes it by 0.1 or more."""


@dataclass(frozen=True)
class SiteLine:
    """What one site brought to the run."""

    site: str
    labelled: int | None
    """Labelled training images; None where the site does not report them."""
    unlabelled: int | None
    """Unlabelled training images; None where the site does not report them."""
    val: int
    """Validation images, or patients."""
    val_classes: int
    """Classes of which the site reports validation images."""
    test: int
    """Test images, or patients."""
    trained: int
    """Rounds in which the site's training was used."""
    failures: int
    """Answers that failed or never came, including the one to the last evaluation."""
    present: tuple[str, ...]
    """Classes of which the site reports test images."""
    untold: tuple[str, ...]
    """Classes the site reports nothing about, in the data set's order: it has no test image of
    them, or too few. Empty when nothing was measured."""

    @property
    def few(self) -> bool:
        """Whether the site's test numbers rest on too few images."""
        return self.test < FEW


def site_lines(run: Run) -> list[SiteLine]:
    """Return one line per site, in the run's order."""
    trained = Counter(site for row in merged_rounds(run) for site in row.replied)
    failed = _failed_answers(run)
    metric = run.label_kind.metric_names[0]
    labelled = run.metrics.newest("train", "labelled")
    unlabelled = run.metrics.newest("train", "unlabelled")
    validation = run.metrics.newest("val", metric)
    tested = run.metrics.newest("test", metric)
    lines = []
    for site in run.info.sites:
        val = validation.get(site)
        test = tested.get(site)
        line = SiteLine(
            site=site,
            labelled=_whole(labelled.get(site)),
            unlabelled=_whole(unlabelled.get(site)),
            val=val.n if val else 0,
            val_classes=len(val.classes) if val else 0,
            test=test.n if test else 0,
            trained=trained[site],
            failures=failed[site],
            present=test.classes if test else (),
            untold=tuple(name for name in run.classes if test and name not in test.classes),
        )
        lines.append(line)
    return lines


def _failed_answers(run: Run) -> Counter[str]:
    """Return site -> failed answers, without those of sites that had nothing to train on."""
    failed = Counter(run.info.summary.not_evaluated.keys())
    for row in run.rounds:
        failed.update(site for site, reason in row.failed.items() if not took_no_step(reason))
    return failed


def _whole(row: MetricRow | None) -> int | None:
    if row is None or row.value is None:
        return None
    return round(row.value)
