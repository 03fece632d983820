"""Reads the results that a repository keeps from run folders, and checks kept results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeAlias

from fedward.config import Experiment
from fedward.digests import digest, file_digest
from fedward.errors import RunError
from fedward.evaluation import (
    MetricRow,
    Selection,
    best_global,
    best_per_site,
    last_rounds,
    mean_over_sites,
)
from fedward.evaluation.names import ERRORS
from fedward.lab.bench.records import Curve, Record, read_records
from fedward.lab.bench.study import Cell
from fedward.operation.audit_check import verify
from fedward.runs.communities import picks_of
from fedward.runs.pseudo_labels import last_rows, quality
from fedward.runs.run import Run
from fedward.text import natural

METRICS = (
    "accuracy",
    "balanced_accuracy",
    "f1_weighted",
    "f1_macro",
    "precision_weighted",
    "precision_macro",
    "auroc_macro",
)
"""Metrics that a line keeps of each protocol; lines that were written before have fewer.

Those of :data:`~fedward.evaluation.names.ERRORS` are kept of the last rounds, as the other
protocols would choose the round of the largest error.
"""
Protocol: TypeAlias = Callable[[Sequence[MetricRow], str], Selection]
"""Chooses the round whose test values count, by a metric."""
PROTOCOLS: Mapping[str, Protocol] = {
    "last": last_rounds,
    "global": best_global,
    "sites": best_per_site,
}
"""Protocols by their names in the file."""
CURVES = ("accuracy", "f1_macro")
"""Test metrics of which every evaluation is kept for figures; none chooses a round."""
_DIGITS = 5
"""Decimal places of kept values."""


def record(cell: Cell, runs: Sequence[Run]) -> Record:
    """Return the result of a cell from its finished run, or from its sites' runs if they are alone.

    Raises:
        RunError: an audit log does not agree with the files of its folder.
    """
    experiment = Experiment.parse(runs[0].info.experiment, str(runs[0].folder))
    seconds = [row.value or 0.0 for row in _rows(runs, "seconds") if row.split == "train"]
    transferred = sum(row.down + row.up for run in runs for row in run.bytes)
    return Record(
        variant=cell.variant,
        row=cell.row,
        seed=cell.seed,
        settings=experiment.model_dump(mode="json"),
        audit=_joint_hash([verify(run.folder).last_hash for run in runs]),
        model=_joint_hash([file_digest(run.folder / "model.safetensors") for run in runs]),
        rounds=max(run.info.summary.rounds or 0 for run in runs),
        trainings=len(seconds),
        seconds=round(sum(seconds), 1),
        megabytes=round(transferred / 1e6, 2),
        curve=_curve(runs, experiment.key_metric),
        test={name: _test_values(runs, protocol) for name, protocol in PROTOCOLS.items()},
        pseudo_labels=_pseudo_labels(runs),
        sites=_site_values(runs),
        picks=_picks(runs),
    )


def _joint_hash(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else digest(list(hashes))


def _rows(runs: Sequence[Run], metric: str) -> list[MetricRow]:
    return [row for run in runs for row in run.metrics.named(metric)]


def _rounded(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the values that are defined, rounded as they are kept."""
    return {name: round(value, _DIGITS) for name, value in values.items() if value is not None}


def _pseudo_labels(runs: Sequence[Run]) -> dict[str, float]:
    rows = [row for run in runs for row in last_rows(run)]
    return _rounded(quality(rows)._asdict()) if rows else {}


def _curve(runs: Sequence[Run], key_metric: str) -> Curve:
    """Return the evaluations of a cell by round."""
    val = mean_over_sites(_rows(runs, key_metric), key_metric)
    val.pop(0, None)
    test: dict[str, tuple[float, ...]] = {}
    for metric in CURVES:
        line = mean_over_sites(_rows(runs, metric), metric, "test")
        test[metric] = tuple(round(line[round_], _DIGITS) for round_ in val if round_ in line)
    return Curve(
        round=tuple(val),
        val=tuple(round(value, _DIGITS) for value in val.values()),
        test=test,
        labels=_known_labels(runs, val),
    )


def _known_labels(
    runs: Sequence[Run], rounds: Sequence[int] | Mapping[int, float]
) -> tuple[int, ...]:
    """Return the number of labels known in each round; empty if the runs ask for none."""
    known: dict[int, int] = {}
    for run in runs:
        for row in run.queries:
            known[row.round] = known.get(row.round, 0) + row.labelled
    if not known:
        return ()
    # Labels are counted in the rounds that ask for some; they stay known in later rounds.
    return tuple(known[max(asked for asked in known if asked <= round_)] for round_ in rounds)


def _test_values(runs: Sequence[Run], protocol: Protocol) -> dict[str, float]:
    """Return metric -> test value in the round that a protocol chooses."""
    metrics = (*METRICS, *ERRORS) if protocol is last_rounds else METRICS
    values = {metric: protocol(_rows(runs, metric), metric).test for metric in metrics}
    values["pooled"] = protocol(_rows(runs, "accuracy"), "accuracy").pooled
    return _rounded(values)


def _site_values(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return site -> metric -> test value of the last rounds, and its number of test images."""
    by_site: dict[str, dict[str, float]] = {}
    for metric in (*METRICS, *ERRORS):
        for choice in last_rounds(_rows(runs, metric), metric).sites:
            if choice.test is not None:
                values = by_site.setdefault(choice.site, {"images": choice.images})
                values[metric] = round(choice.test, _DIGITS)
    return {site: by_site[site] for site in sorted(by_site, key=natural)}


def _with_kept_metrics(found: Record, kept: Record) -> Record:
    """Return a result without the metrics, sites or peers that an older line does not keep."""
    test = {
        protocol: _common(values, kept.test.get(protocol, {}))
        for protocol, values in found.test.items()
    }
    sites: dict[str, dict[str, float]] = {}
    if kept.sites:
        sites = {
            site: _common(values, kept.sites.get(site, {})) for site, values in found.sites.items()
        }
    picks = found.picks if kept.picks else {}
    return replace(found, test=test, sites=sites, picks=picks)


def _common(values: Mapping[str, float], kept: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name in kept}


def _picks(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """Return how often each site was another site's peer; empty if no site had a peer."""
    picks = picks_of(runs[0].info.sites, [row for run in runs for row in run.peers])
    return picks if any(picks.values()) else {}


def check_records(file: Path, runs_of: Callable[[Cell], Sequence[Run]]) -> list[Cell]:
    """Compare kept results with the run folders that exist here; return the compared cells.

    Args:
        file: the kept results.
        runs_of: cell -> its finished runs; empty if they are not here.

    Raises:
        RunError: an audit log does not agree with the files of its folder, or a kept result
            differs from its folder.
    """
    compared = []
    for cell, kept in read_records(file).items():
        runs = runs_of(cell)
        if not runs:
            continue
        found = _with_kept_metrics(record(cell, runs), kept)
        if found != kept:
            found_fields = asdict(found)
            wrong = [name for name, value in asdict(kept).items() if found_fields[name] != value]
            raise RunError(
                f"{file}, {cell}",
                "Record the run again, and write the page again.",
                expected=f"what {runs[0].folder} says",
                found=f"other {', '.join(wrong)}",
            )
        compared.append(cell)
    return compared
