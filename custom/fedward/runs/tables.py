"""The report's tables as plain values: no HTML, no figures, every number straight from a run's
rows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedward.evaluation.names import overall
from fedward.evaluation.selection import (
    MetricRow,
    Selection,
    best_global,
    best_per_site,
    kept_round,
    last_round,
    last_rounds,
    mean,
)
from fedward.runs.run import Run
from fedward.storage.rows import RoundRow

FEW = 10
"""Below so many images a number is shown grey and marked: one image more or less changes it by a
tenth or more.
"""

OVERALL = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1_weighted": "weighted F1",
    "f1_macro": "macro F1",
    "precision_weighted": "weighted precision",
    "recall_weighted": "weighted recall",
    "auroc_macro": "macro AUROC",
    "auprc_macro": "macro AUPRC",
    "hamming_accuracy": "Hamming accuracy",
    "exact_match": "exact match",
}
"""Metric -> how a person calls it, of all jobs."""


def title_of(metric: str) -> str:
    """Return a metric's name in words."""
    return OVERALL.get(metric, metric.replace("_", " "))


@dataclass(frozen=True)
class Choices:
    """The protocols for one metric, in the order in which they are shown, and the last round."""

    end: Selection
    """Mean of the last rounds."""
    shared: Selection
    """Best single round."""
    own: Selection
    """Best round of each site."""
    last: Selection

    @classmethod
    def of(cls, run: Run, metric: str) -> "Choices":
        """Select rounds from a run's rows; the best single one of a finished run is that of its
        best.safetensors.
        """
        relevant = list(run.metrics.named(metric))
        if metric == run.key_metric and "best_round" in run.info.summary.model_fields_set:
            shared = kept_round(relevant, metric, run.info.summary.best_round)
        else:
            shared = best_global(relevant, metric, run.info.sites)
        own = best_per_site(relevant, metric)
        return cls(last_rounds(relevant, metric), shared, own, last_round(relevant, metric))

    @property
    def reported(self) -> int | None:
        """The round whose model the report describes in detail: the best single one, else the last."""
        return self.last.round if self.shared.round is None else self.shared.round


@dataclass(frozen=True)
class SiteLine:
    """What one site brought to the run."""

    site: str
    labelled: int | None
    unlabelled: int | None
    val: int
    val_classes: int
    """Classes of which it reports validation images."""
    test: int
    trained: int
    """Rounds in which its training was used."""
    failures: int
    """Answers that failed or never came, that to the last evaluation included."""
    present: tuple[str, ...]
    absent: tuple[str, ...]
    """Classes without a test image, in the data set's order; empty when nothing was measured."""
    untold: tuple[str, ...]
    """Classes the site reports nothing about: it has no test image of them, or too few."""

    @property
    def few(self) -> bool:
        """Whether the site's test numbers rest on too few images."""
        return self.test < FEW


def site_lines(run: Run) -> list[SiteLine]:
    """Return one line per site, in the run's order."""
    trained = Counter(site for row in merged_rounds(run) for site in row.replied)
    failed = Counter(
        site
        for row in run.rounds
        for site, reason in row.failed.items()
        if not took_no_step(reason)
    )
    failed.update(run.info.summary.not_evaluated.keys())
    newest = [run.metrics.newest("train", name) for name in ("labelled", "unlabelled")]
    newest += [run.metrics.newest(split, overall(run.multi_label)[0]) for split in ("val", "test")]
    absent = {name: _none_of(run, name) for name in run.classes}
    lines = []
    for site in run.info.sites:
        labelled, unlabelled, val, test = (rows.get(site) for rows in newest)
        others = [name for name in run.classes if name not in test.classes] if test else []
        line = SiteLine(
            site=site,
            labelled=_whole(labelled),
            unlabelled=_whole(unlabelled),
            val=val.n if val else 0,
            val_classes=len(val.classes) if val else 0,
            test=test.n if test else 0,
            trained=trained[site],
            failures=failed[site],
            present=test.classes if test else (),
            absent=tuple(name for name in others if site in absent[name]),
            untold=tuple(name for name in others if site not in absent[name]),
        )
        lines.append(line)
    return lines


def _none_of(run: Run, name: str) -> set[str]:
    """Return the sites that report to have no test image of a class."""
    return {
        site
        for site, row in run.metrics.newest("test", f"support/{name}").items()
        if row.value == 0
    }


def took_no_step(reason: str) -> bool:
    """Return whether the reason of a failure only says that a site had nothing to train on."""
    return reason.startswith("took no step")


def _whole(row: MetricRow | None) -> int | None:
    return None if row is None or row.value is None else round(row.value)


_UNTOLD = "absent or withheld"
"""Small counts do not leave a site; from outside they look like none."""
_MARKS = {"absent": "–", _UNTOLD: "·", "only class": "○", "not measured": "?"}


@dataclass(frozen=True)
class ClassAtSite:
    """One class at one site."""

    auroc: float | None
    support: int | None
    """Test images of the class; None where the site does not report it."""
    why: str
    """Why there is no AUROC; empty where there is one."""

    @property
    def mark(self) -> str:
        """One sign for that, which a table's caption explains."""
        return _MARKS.get(self.why, "")


@dataclass(frozen=True)
class ClassLine:
    """One class at one round: test values per site and their mean over the sites that report
    theirs.
    """

    name: str
    support: int
    """Test images of the class over the sites that report it."""
    sites: int
    """Sites that report how many."""
    untold: int
    """Sites that do not report whether they have any."""
    f1: float | None
    auroc: float | None
    auprc: float | None
    by_site: tuple[ClassAtSite, ...]


def class_lines(run: Run, round_: int | None) -> list[ClassLine]:
    """Return one line per class for the model after ``round_`` rounds."""
    return [_class_line(run, name, round_) for name in run.classes]


def _class_line(run: Run, name: str, round_: int | None) -> ClassLine:
    kinds = ("support", "f1", "auroc", "auprc")
    values = {kind: run.metrics.values("test", f"{kind}/{name}", round_) for kind in kinds}
    at = tuple(
        _class_at_site(values["auroc"].get(site), values["support"], site)
        for site in run.info.sites
    )
    f1, auroc, auprc = (mean(values[kind].values()) for kind in kinds[1:])
    told = sum(bool(here.support) for here in at)
    untold = sum(here.why == _UNTOLD for here in at)
    return ClassLine(
        name, sum(here.support or 0 for here in at), told, untold, f1, auroc, auprc, at
    )


def _class_at_site(
    auroc: float | None, supports: Mapping[str, float | None], site: str
) -> ClassAtSite:
    if site not in supports:
        return ClassAtSite(auroc, None, "not measured")
    count = supports[site]
    if count is None:
        return ClassAtSite(None, None, _UNTOLD)
    if not count:
        return ClassAtSite(None, 0, "absent")
    return ClassAtSite(auroc, round(count), "only class" if auroc is None else "")


def test_values(run: Run, metric: str, round_: int | None) -> dict[str, float]:
    """Return site -> test value of the model after ``round_`` rounds, where defined."""
    values = run.metrics.values("test", metric, round_)
    found = {site: values.get(site) for site in run.info.sites}
    return {site: value for site, value in found.items() if value is not None}


def merged_rounds(run: Run) -> list[RoundRow]:
    """Return one row per round: exchanges of one round are added up."""
    by_round: dict[int, list[RoundRow]] = {}
    for row in run.rounds:
        by_round.setdefault(row.round, []).append(row)
    return [_merge(rows) for _, rows in sorted(by_round.items())]


def _merge(rows: Sequence[RoundRow]) -> RoundRow:
    added = ("seconds", "bytes_down", "bytes_up", "peer_models")
    return RoundRow(
        round=rows[0].round,
        asked=tuple(dict.fromkeys(site for row in rows for site in row.asked)),
        replied=tuple(dict.fromkeys(site for row in rows for site in row.replied)),
        failed={site: reason for row in rows for site, reason in row.failed.items()},
        **{name: sum(getattr(row, name) for row in rows) for name in added},
    )


def bytes_by_site(run: Run) -> dict[str, tuple[int, int, int]]:
    """Return site -> (bytes down, bytes up, peer models) over the whole run."""
    total = dict.fromkeys(run.info.sites, (0, 0, 0))
    for row in run.bytes:
        down, up, peers = total.get(row.site, (0, 0, 0))
        total[row.site] = (down + row.down, up + row.up, peers + row.peer_models)
    return total


def failures(run: Run) -> list[tuple[int | str, str, str]]:
    """Return (round, site, reason); first those of the last evaluation, which no other table tells
    of.
    """
    last = [
        ("last evaluation", site, reason) for site, reason in run.info.summary.not_evaluated.items()
    ]
    return [
        *last,
        *((row.round, site, reason) for row in run.rounds for site, reason in row.failed.items()),
    ]
