"""From run folders to the results that a repository keeps, and back: what a folder says must be
what was kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

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
from fedward.lab.bench.records import Curve, Record, read_records
from fedward.lab.bench.study import Cell
from fedward.operation.audit_check import verify
from fedward.runs.pseudo_labels import last_rows, quality
from fedward.runs.run import Run
from fedward.text import natural

METRICS = ("accuracy", "f1_weighted", "f1_macro", "auroc_macro")
PROTOCOLS: Mapping[str, Callable[..., Selection]] = {
    "last": last_rounds,
    "global": best_global,
    "sites": best_per_site,
}
"""Name in the file -> how rounds are chosen."""
CURVES = ("accuracy", "f1_macro")
"""Test metrics of which every evaluation is kept, to be drawn; none chooses anything."""


def record(cell: Cell, runs: Sequence[Run]) -> Record:
    """Return what finished run folders say: one, or one for each site that is alone.

    Raises RunError: an audit log does not agree with the files of its folder.
    """
    experiment = Experiment.parse(runs[0].info.experiment, str(runs[0].folder))
    audits = [verify(run.folder).last_hash for run in runs]
    models = [file_digest(run.folder / "model.safetensors") for run in runs]
    seconds = [row.value or 0.0 for row in _named(runs, "seconds") if row.split == "train"]
    return Record(
        *cell,
        settings=experiment.model_dump(mode="json"),
        audit=_one(audits),
        model=_one(models),
        rounds=max(run.info.summary.rounds or 0 for run in runs),
        trainings=len(seconds),
        seconds=round(sum(seconds), 1),
        megabytes=round(sum(row.down + row.up for run in runs for row in run.bytes) / 1e6, 2),
        curve=_curve(runs, experiment.key_metric),
        test={name: _values(runs, choose) for name, choose in PROTOCOLS.items()},
        pseudo_labels=_pseudo_labels(runs),
        sites=_sites(runs),
    )


def _pseudo_labels(runs: Sequence[Run]) -> dict[str, float]:
    rows = [row for run in runs for row in last_rows(run)]
    found = quality(rows)._asdict() if rows else {}
    return {name: round(value, 5) for name, value in found.items() if value is not None}


def _one(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else digest(list(hashes))


def _named(runs: Sequence[Run], metric: str) -> list[MetricRow]:
    return [row for run in runs for row in run.metrics.named(metric)]


def _curve(runs: Sequence[Run], key_metric: str) -> Curve:
    val = {
        round_: value
        for round_, value in mean_over_sites(_named(runs, key_metric), key_metric).items()
        if round_
    }
    lines = {name: mean_over_sites(_named(runs, name), name, "test") for name in CURVES}
    test = {
        name: tuple(round(line[round_], 5) for round_ in val if round_ in line)
        for name, line in lines.items()
    }
    labels: dict[int, int] = {}
    for run in runs:
        for row in run.queries:
            labels[row.round] = labels.get(row.round, 0) + row.labelled
    known = tuple(labels[max(r for r in labels if r <= round_)] for round_ in val) if labels else ()
    return Curve(tuple(val), tuple(round(value, 5) for value in val.values()), test, known)


def _values(runs: Sequence[Run], choose: Callable[..., Selection]) -> dict[str, float]:
    values = {metric: choose(_named(runs, metric), metric).test for metric in METRICS}
    values["pooled"] = choose(_named(runs, "accuracy"), "accuracy").pooled
    return {name: round(value, 5) for name, value in values.items() if value is not None}


def _sites(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for metric in METRICS:
        for choice in last_rounds(_named(runs, metric), metric).sites:
            if choice.test is not None:
                found.setdefault(choice.site, {"images": choice.images})[metric] = round(
                    choice.test, 5
                )
    return {site: found[site] for site in sorted(found, key=natural)}


def check_records(file: Path, runs_of: Callable[[Cell], Sequence[Run]]) -> list[Cell]:
    """Compare kept results with their run folders, where these lie; return the cells that were
    compared.

    Args:
        file: the results.
        runs_of: cell -> its finished runs, none where they do not lie here.

    Raises RunError: a folder's audit log does not agree with its files, or the result with the
    folder.
    """
    compared = []
    for cell, result in read_records(file).items():
        runs = runs_of(cell)
        if not runs:
            continue
        found = record(cell, runs)
        found = found if result.sites else replace(found, sites={})
        if found != result:
            wrong = [name for name, value in asdict(result).items() if asdict(found)[name] != value]
            where = f"{file}, {cell}"
            expected = f"what {runs[0].folder} says"
            remedy = "Record the run again, and write the page anew."
            raise RunError(
                where, expected=expected, found=f"other {', '.join(wrong)}", remedy=remedy
            )
        compared.append(cell)
    return compared
