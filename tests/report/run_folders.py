"""Made-up run folders, drawn from a seed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.small_counts import common_classes

CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
SITES = tuple(f"site-{number}" for number in range(1, 11))
COMMUNITY = (0, 0, 0, 0, 0, 1, 1, 1, 2, 3)
ABSENT = {
    "site-6": ("SCC",),
    "site-7": ("SCC", "AK"),
    "site-9": ("DF", "VASC"),
    "site-10": ("AK", "DF", "SCC"),
}
OVERALL = (
    "accuracy",
    "balanced_accuracy",
    "f1_weighted",
    "f1_macro",
    "precision_weighted",
    "recall_weighted",
)
SHIFTS = {"f1": 0.0, "auroc": 0.17, "auprc": 0.02}
"""Metric of a class -> how much higher it is than the others."""
MODEL_BYTES = 412_000


def write_run(
    folder: Path,
    *,
    method: str = "fedperl",
    rounds: int = 12,
    warm_up: int = 3,
    sites: tuple[str, ...] = SITES,
    seed: int = 1,
    status: str = "finished",
    gain: float = 0.45,
    unlabelled: tuple[str, ...] = (),
    groups: Sequence[dict[str, Any]] = (),
    synthetic: tuple[str, ...] | None = None,
) -> Path:
    """Write a plausible run into a folder, and return the folder.

    Its curves rise. It has two communities and two lone sites, a tiny site, and a few failures.

    Args:
        unlabelled: sites without labels.
        groups: rows of groups.jsonl; such a method keeps no pseudo-labels.
        synthetic: sites that report synthetic images; None: the run does not record it.
    """
    folder.mkdir(parents=True)
    draw = np.random.default_rng(seed)
    offsets = draw.normal(0, 0.05, len(sites))
    if len(sites) > 8:
        offsets[8] -= 0.12  # a hard site
    metrics = []
    round_rows = []
    peers = []
    sizes = []
    for round_ in range(rounds + 1):
        level = 0.3 + gain * (1 - np.exp(-3 * round_ / rounds))
        for place, site in enumerate(sites):
            for split in ("val", "test"):
                metrics += _measured(draw, round_, site, split, place, level + offsets[place])
    for round_ in range(1, rounds + 1):
        asked = sorted(draw.choice(sites, min(3, len(sites)), replace=False).tolist())
        failed = {asked[0]: "no answer within 3600 s"} if round_ % 5 == 0 else {}
        replied = [site for site in asked if site not in failed]
        helped = 1 if method == "fedperl" and round_ > warm_up else 0
        round_sizes = [_sizes(round_, site, asked, replied, helped) for site in sites]
        sizes += round_sizes
        seconds = 9 + 3 * draw.random()
        round_rows.append(_round(round_, seconds, asked, replied, failed, round_sizes))
        for site in replied:
            labelled = 0 if site in unlabelled else 16
            metrics += _trained(draw, round_, site, rounds, labelled)
        if helped:
            peers.append(_peers(draw, round_, sites, asked))
    if groups:
        metrics = [row for row in metrics if row["name"] != "kept"]
    head = _head(method, rounds, sites, seed, status)
    if synthetic is not None:
        head["synthetic"] = {site: site in synthetic for site in sites}
    (folder / "run.json").write_text(json.dumps(head), encoding="utf-8")
    logs = {"metrics": metrics, "rounds": round_rows, "bytes": sizes, "peers": peers}
    logs["groups"] = list(groups)
    _write_logs(folder, logs)
    return folder


def _sizes(
    round_: int, site: str, asked: list[str], replied: list[str], helped: int
) -> dict[str, Any]:
    """Return a row of bytes.jsonl; ``helped`` are the peer models in a request."""
    peer_models = helped if site in asked else 0
    return {
        "round": round_,
        "site": site,
        "down": MODEL_BYTES * (1 + peer_models),
        "up": MODEL_BYTES if site in replied else 0,
        "peer_models": peer_models,
    }


def _head(
    method: str, rounds: int, sites: tuple[str, ...], seed: int, status: str
) -> dict[str, Any]:
    """Return the content of run.json."""
    return {
        "format": 3,
        "id": "0123456789abcdef" * 2,
        "method": method,
        "engine": "local",
        "seed": seed,
        "sites": list(sites),
        "started": "2026-11-21T08:00:00+00:00",
        "status": status,
        "versions": {"fedward": "0.1.0", "nvflare": "2.9.0", "torch": "2.13.0"},
        "experiment": {
            "method": method,
            "options": {"rounds": rounds, "participants": 3},
            "data": {
                "name": "dermoscopy",
                "classes": list(CLASSES),
                "image_size": 32,
                "channels": 3,
            },
            "net": "small_cnn",
            "synthetic": {"labelled": 0.1, "images": 240},
            "key_metric": "balanced_accuracy",
            "seed": seed,
        },
        "summary": {"reason": "round 12: too few replies"} if status == "failed" else {},
    }


def _write_logs(folder: Path, logs: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Write the logs that have rows."""
    for name, rows in logs.items():
        if rows:
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def add_answers(
    folder: Path, rounds: int, sites: Sequence[str] = SITES, never: int = 7
) -> dict[str, Any]:
    """Write the counts of a run's answers; return those after the last round.

    As at a hospital, images of rare classes are not evaluated. The run's metrics of right answers
    become those of these answers.

    Args:
        never: place of a class that is never predicted.

    Returns:
        Site -> (probabilities, labels).
    """
    draw = np.random.default_rng(5)
    answers = {}
    values = {}
    with (folder / "binned.jsonl").open("w", encoding="utf-8") as file:
        for round_ in range(rounds + 1):
            for place, site in enumerate(sites):
                labels = np.repeat(np.arange(len(CLASSES)), [40, 60, 20, 12, 9, place, 3, 8])
                labels = labels[common_classes(labels, len(CLASSES))[labels]]
                logits = draw.normal(0, 1, (len(labels), len(CLASSES)))
                logits[np.arange(len(labels)), labels] += 2.5 * round_ / rounds
                logits[:, never] -= 9
                odds = np.exp(logits)
                answers[site] = odds / odds.sum(axis=1, keepdims=True), labels
                counts = AnswerCounts.of_one_answer(*answers[site])
                row = {"round": round_, "site": site, **counts.to_wire()}
                file.write(json.dumps(row) + "\n")
                values[round_, site] = _of_answers(counts)
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        new = values.get((row["round"], row["site"]))
        if row["split"] == "test" and new:
            row["n"] = len(answers[row["site"]][1])
            row["value"] = new.get(row["name"], row["value"])
            if "classes" in row:
                row["classes"] = [name for name in CLASSES if new[f"support/{name}"]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return answers


def _of_answers(counts: AnswerCounts) -> dict[str, float | None]:
    """Return the metrics of right answers, with nothing of classes too rare to report."""
    confusion = counts.confusion
    values: dict[str, float | None] = {"accuracy": confusion.accuracy.value}
    for place, name in enumerate(CLASSES):
        images = float(confusion.images[place])
        values[f"support/{name}"] = images or None
        values[f"f1/{name}"] = float(confusion.f1[place]) if images else None
        if not images:
            values |= {f"auroc/{name}": None, f"auprc/{name}": None}
    return values


def _measured(
    draw: Any, round_: int, site: str, split: str, place: int, level: float
) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl of one site and split."""
    present = [name for name in CLASSES if name not in ABSENT.get(site, ())]
    supports = {name: int(max(1, 150 / (1 + index) ** 1.3)) for index, name in enumerate(present)}
    if place == 9:
        supports = {"MEL": 3, "NV": 4, "BCC": 1}
        present = list(supports)
    n = sum(supports.values())

    def noisy(shift: float) -> float:
        noise = draw.normal(0, 0.015 if n > 9 else 0.06)
        return round(float(np.clip(level + shift + noise, 0, 1)), 6)

    values: dict[str, float | None] = {
        name: noisy(0.02 * index - 0.05) for index, name in enumerate(OVERALL)
    }
    values |= {"auroc_macro": noisy(0.18), "auprc_macro": noisy(0.0)}
    values["precision_macro"] = round(level / 2, 6)
    values |= {"ece_adaptive": 0.05, "mce_adaptive": 0.1 + place / 100, "aurc": 0.2}
    for name in CLASSES:
        for kind, shift in SHIFTS.items():
            values[f"{kind}/{name}"] = noisy(shift) if name in supports else None
        values[f"support/{name}"] = float(supports[name]) if name in supports else None
    where = {"round": round_, "site": site, "split": split}
    rows = [where | {"name": name, "value": value, "n": n} for name, value in values.items()]
    return [rows[0] | {"classes": present}, *rows[1:]]


def average(round_: int, part: int, group: str, **members: tuple[float, float]) -> dict[str, Any]:
    """Return a row of groups.jsonl; members are site -> (weight, distance)."""
    weights, distances = zip(*members.values(), strict=True)
    row = {"round": round_, "part": part, "group": group, "sites": list(members)}
    return row | {"weights": list(weights), "distances": list(distances)}


def _trained(draw: Any, round_: int, site: str, rounds: int, labelled: int) -> list[dict[str, Any]]:
    progress = round_ / rounds
    values = {"loss": 2.1 - progress, "kept": 0.2 + 0.6 * progress, "seconds": 3.0}
    values = {name: value + 0.03 * draw.random() for name, value in values.items()}
    values |= {"labelled": float(labelled), "unlabelled": 144.0}
    where = {"round": round_, "site": site, "split": "train", "n": 160}
    return [where | {"name": name, "value": value} for name, value in values.items()]


def _peers(draw: Any, round_: int, sites: tuple[str, ...], asked: list[str]) -> dict[str, Any]:
    groups = np.array(COMMUNITY[: len(sites)])
    matrix = np.where(groups[:, None] == groups[None, :], 0.85, 0.45) + draw.normal(
        0, 0.04, (len(sites), len(sites))
    )
    matrix = np.clip((matrix + matrix.T) / 2, 0, 1)
    np.fill_diagonal(matrix, 1)
    nearest = []
    similarity = []
    for place in map(sites.index, asked):
        order = [i for i in np.argsort(-matrix[place]) if i != place][:30]
        nearest.append([sites[i] for i in order])
        similarity.append(matrix[place, order].round(6).tolist())
    chosen = {site: near[:2] for site, near in zip(asked, nearest, strict=True)}
    row = {"round": round_, "sites": asked, "nearest": nearest, "similarity": similarity}
    return row | {"chosen": chosen, "anonymised": True, "features": 24}


def _round(
    round_: int,
    seconds: float,
    asked: list[str],
    replied: list[str],
    failed: dict[str, str],
    sizes: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return a row of rounds.jsonl; ``sizes`` are the round's rows of bytes.jsonl."""
    return {
        "round": round_,
        "seconds": round(seconds, 3),
        "asked": asked,
        "replied": replied,
        "failed": failed,
        "bytes_down": sum(row["down"] for row in sizes),
        "bytes_up": sum(row["up"] for row in sizes),
        "peer_models": sum(row["peer_models"] for row in sizes),
    }
