"""Metrics and the global model in a job's results, in the files that FLARE's tools look for.

One of these tools is ``nvflare job download``.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from fedward.evaluation.selection import MetricRow
from fedward.storage.rows import read_rows

_SCHEMA_VERSION = "1"
"""Version of FLARE's schemas for these files."""


def write_artifacts(run: Path) -> None:
    """Write the files that FLARE's tools read beside a run, in the results of its job.

    ``metrics/round_metrics.jsonl`` has a row for each round in which sites evaluated the model, and
    ``metrics/metrics_summary.json`` the last of them, as FLARE's ``MetricsArtifactWriter`` would
    write them. An aggregated metric is the mean over the sites that have it, each with the same
    weight. ``artifact_manifest.json`` says where the last model is, if there is one.

    Args:
        run: the run's folder in the results.
    """
    if (run / "model.safetensors").is_file():
        manifest = {
            "schema_version": _SCHEMA_VERSION,
            "artifacts": {"global_model": f"{run.name}/model.safetensors"},
        }
        (run.parent / "artifact_manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    # round -> site -> name of a metric -> value
    table: dict[int, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_rows(run / "metrics.jsonl", MetricRow, []):
        is_of_one_class = "/" in row.name
        if row.split != "train" and not is_of_one_class and row.value is not None:
            table[row.round][row.site][f"{row.split}/{row.name}"] = row.value
    if not table:
        return
    rounds = [_round_row(round_, sites) for round_, sites in sorted(table.items())]
    folder = run.parent / "metrics"
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{json.dumps(row)}\n" for row in rounds)
    (folder / "round_metrics.jsonl").write_text(lines, encoding="utf-8")
    summary = {
        "schema_version": _SCHEMA_VERSION,
        "status": "metrics_reported",
        "final_round": rounds[-1]["round"],
        "final_aggregated_metrics": rounds[-1]["aggregated_metrics"],
        "round_metrics_file": "round_metrics.jsonl",
        "notes": ["Means over the sites that have the metric, each with the same weight."],
    }
    (folder / "metrics_summary.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")


def _round_row(round_: int, sites: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the row of one round, from the metrics of each site."""
    values_by_name: dict[str, list[float]] = defaultdict(list)
    for metrics in sites.values():
        for name, value in metrics.items():
            values_by_name[name].append(value)
    means = {name: fmean(values) for name, values in values_by_name.items()}
    site_rows = [
        {"name": site, "metrics": _metric_list(metrics)} for site, metrics in sorted(sites.items())
    ]
    return {
        "round": round_,
        "aggregated_metrics": _metric_list(means),
        "sites": site_rows,
        "skipped_metrics": [],
    }


def _metric_list(values: dict[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]
