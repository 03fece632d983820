"""What FLARE's tools, such as ``nvflare job download``, look for in a job's results: metrics and
the global model.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from fedward.evaluation.selection import MetricRow
from fedward.storage.rows import read_rows

_VERSION = "1"
"""Of FLARE's schemas."""


def write_artifacts(run: Path) -> None:
    """Write beside a run, in the results of its job, what FLARE's tools read.

    ``metrics/round_metrics.jsonl`` has a row for each round in which sites evaluated the model, and
    ``metrics/metrics_summary.json`` the last of them, as FLARE's ``MetricsArtifactWriter`` would
    write them. An aggregated metric is the mean over the sites that have it, each with the same
    weight. ``artifact_manifest.json`` says where the last model is, if there is one.

    Args:
        run: the run's folder in the results.
    """
    if (run / "model.safetensors").is_file():
        manifest = {
            "schema_version": _VERSION,
            "artifacts": {"global_model": f"{run.name}/model.safetensors"},
        }
        (run.parent / "artifact_manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    table: dict[int, dict[str, dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )  # round, site, metric
    for row in read_rows(run / "metrics.jsonl", MetricRow, []):
        if (
            row.split != "train" and "/" not in row.name and row.value is not None
        ):  # no class's own metric
            table[row.round][row.site][f"{row.split}/{row.name}"] = row.value
    if not table:
        return
    rounds = [_row(round_, sites) for round_, sites in sorted(table.items())]
    folder = run.parent / "metrics"
    folder.mkdir(exist_ok=True)
    (folder / "round_metrics.jsonl").write_text(
        "".join(f"{json.dumps(row)}\n" for row in rounds), encoding="utf-8"
    )
    summary = {
        "schema_version": _VERSION,
        "status": "metrics_reported",
        "final_round": rounds[-1]["round"],
        "final_aggregated_metrics": rounds[-1]["aggregated_metrics"],
        "round_metrics_file": "round_metrics.jsonl",
        "notes": ["Means over the sites that have the metric, each with the same weight."],
    }
    (folder / "metrics_summary.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")


def _row(round_: int, sites: dict[str, dict[str, float]]) -> dict[str, Any]:
    names = {name for values in sites.values() for name in values}
    means = {
        name: fmean(values[name] for values in sites.values() if name in values) for name in names
    }
    return {
        "round": round_,
        "aggregated_metrics": _list(means),
        "sites": [
            {"name": site, "metrics": _list(values)} for site, values in sorted(sites.items())
        ],
        "skipped_metrics": [],
    }


def _list(values: dict[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]
