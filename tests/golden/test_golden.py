"""Two rounds of every method on three or four synthetic sites: the numbers must be those of
traces.json.

They pin what no other test sees, such as the order of random draws. Where a change is meant to move
them, write them anew, look at the difference, and give the reason in the commit as well:

    FEDWARD_BLESS="strong views are drawn before weak ones" python -m pytest tests/golden

All traces are made in one process of their own, whose kernels every x86 machine of the last ten
years has. Where rounding follows the machine, one pseudo-label that changes with it moves all
numbers behind it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from fedward.config import Experiment, SyntheticData
from fedward.methods.groups import GroupedState
from fedward.registry import METHODS
from fedward.storage.model_files import StoredState
from fedward.storage.run_folder import RunFolder
from running import run_local
from starting import initial_model
from tiny import tiny

SITES = ["site-1", "site-6", "site-9"]
"""Two communities and a loner."""
GROUPS = ["site-1", "site-2", "site-6", "site-9"]
"""Sites of methods with two groups: sites 1 and 9 have all their labels, the others have none.

The second round comes after the warm-up.
"""
TRACES = Path(__file__).with_name("traces.json")
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""Kernels that ATen, oneDNN, MKL, NumPy (which draws the images) and its OpenBLAS use."""
RELATIVE = 1e-4
"""Tolerance: machines may still differ in the last digits of a sum."""
ABSOLUTE = 1e-6
"""Tolerance for the difference of two entropies of about 2."""


def trace(method: str, folder: Path) -> list[dict[str, Any]]:
    """Run two rounds, and return the trace of each; a method of one round runs that one.

    A trace has the training losses of each site, the peers, and the norms of the model and of its
    change; with groups of sites also their weights.
    """
    grouped = METHODS[method].state_type is GroupedState
    sites = GROUPS if grouped else SITES
    run = run_local(experiment_of(method, grouped), folder, sites=sites)
    metric_rows = rows(run / "metrics.jsonl")
    peer_rows = {row["round"]: row["chosen"] for row in reversed(rows(run / "peers.jsonl"))}
    group_rows = rows(run / "groups.jsonl")
    round_traces = []
    before = model_after(run, 0)
    for round_ in (1,) if method == "oneshot" else (1, 2):
        after = model_after(run, round_)
        round_trace: dict[str, Any] = {
            "losses": {site: losses_of(metric_rows, round_, site) for site in sites},
            "peers": peer_rows.get(round_, {}),
            "norm": norms(after),
            "moved": norms({key: after[key] - before[key] for key in before}),
        }
        if grouped:
            round_trace["groups"] = [row for row in group_rows if row["round"] == round_]
        round_traces.append(round_trace)
        before = after
    return round_traces


def experiment_of(method: str, grouped: bool) -> Experiment:
    """Return a small experiment of a method."""
    changes: dict[str, Any] = {"net": "small_cnn_gn"}
    options: dict[str, Any] = {"rounds": 2, "participants": 3}
    if grouped:
        options = {"rounds": 2}
        changes["synthetic"] = SyntheticData(images=40, labelled=1.0, isolated=True)
    elif method == "oneshot":
        options = {"shrinkage": 0.2}
    elif method == "selffed":
        # One round of each phase: the server would contrast between two rounds of the second.
        options |= {"warm_up": 0, "contrastive": "client"}
        del changes["net"]
    return tiny(method, **changes, options=options)


def losses_of(metric_rows: list[dict[str, Any]], round_: int, site: str) -> dict[str, float]:
    """Return name -> value of a site's training losses in a round."""
    losses = {}
    for row in metric_rows:
        in_training = (row["round"], row["site"], row["split"]) == (round_, site, "train")
        if in_training and row["name"].startswith(("loss", "kept")):
            losses[row["name"]] = row["value"]
    return losses


def rows(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def model_after(run: Path, round_: int) -> dict[str, Tensor]:
    """Return the global model after a round; the first one follows from the seed."""
    if round_ == 0:
        return dict(initial_model(RunFolder.reopen(run).experiment)[0])
    stored = StoredState(run / "rounds" / f"{round_:05d}" / "state.safetensors")
    return {key.removeprefix("model/"): stored[key] for key in stored if key.startswith("model/")}


def norms(state: dict[str, Tensor]) -> dict[str, float]:
    """Return the Euclidean norms of a model's parts: kinds of tensors, or a Swin's modules."""
    part_of = module_of if "mask_token" in state else kind_of
    parts: dict[str, list[Tensor]] = {}
    for key, tensor in state.items():
        part = part_of(key, tensor, state)
        if part:
            parts.setdefault(part, []).append(tensor.double().flatten())
    return {part: float(torch.cat(tensors).norm()) for part, tensors in parts.items()}


def module_of(key: str, _tensor: Tensor, _state: dict[str, Tensor]) -> str:
    """Return the module that a tensor is in."""
    return key.split(".", maxsplit=1)[0]


def kind_of(key: str, tensor: Tensor, state: dict[str, Tensor]) -> str:
    """Return the kind of a tensor; empty for tensors that no round changes."""
    if key.startswith("moments."):
        return ""
    if "running" in key:
        return "statistics"
    if tensor.dim() == 4:
        return "convolutions"
    last_key = [name for name in state if not name.startswith("moments.")][-1]
    if key.startswith(last_key.rsplit(".", 1)[0]):
        return "classifier"
    return "normalisation" if tensor.is_floating_point() else ""


def bless(method: str, found: list[dict[str, Any]], reason: str) -> None:
    """Write a trace into the file of golden traces, with the reason for the change."""
    content = json.loads(TRACES.read_text()) if TRACES.exists() else {}
    content[method] = {"reason": reason, "rounds": found}
    TRACES.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def differences(found: Any, expected: Any, where: str = "") -> list[str]:
    """Return where two traces differ, and by how much."""
    if isinstance(expected, dict) and isinstance(found, dict) and set(found) == set(expected):
        pairs = {key: (found[key], expected[key]) for key in expected}
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = dict(enumerate(zip(found, expected, strict=True)))
    elif isinstance(found, float) and found == pytest.approx(expected, rel=RELATIVE, abs=ABSOLUTE):
        return []
    else:
        return [] if found == expected else [f"{where}: {found}, expected {expected}"]
    texts = []
    for key, (found_part, expected_part) in pairs.items():
        texts += differences(found_part, expected_part, f"{where}/{key}")
    return texts


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Make the traces of all methods."""
    folder = tmp_path_factory.mktemp("golden")
    environment = {**os.environ, **PORTABLE, "PYTHONPATH": str(TRACES.parents[1] / "support")}
    subprocess.run([sys.executable, __file__, str(folder)], env=environment, check=True)
    return {method: json.loads((folder / f"{method}.json").read_text()) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_two_rounds_give_the_golden_numbers(
    method: str, traces: dict[str, list[dict[str, Any]]]
) -> None:
    found = traces[method]
    reason = os.environ.get("FEDWARD_BLESS")
    if reason:
        bless(method, found, reason)
        pytest.skip(f"wrote {TRACES.name} again: {reason}")
    assert differences(found, json.loads(TRACES.read_text())[method]["rounds"]) == []


def test_every_golden_trace_is_checked_and_has_a_reason() -> None:
    content = json.loads(TRACES.read_text())
    assert set(content) == set(METHODS)
    assert all(trace["reason"].strip() for trace in content.values())


def test_golden_methods_differ_where_they_should() -> None:
    """SSFL adds pseudo-labels to FedAvg; FedPerl adds peers to SSFL, after its warm-up."""
    content = json.loads(TRACES.read_text())
    fedavg = content["fedavg"]["rounds"]
    ssfl = content["ssfl"]["rounds"]
    fedperl = content["fedperl"]["rounds"]
    assert set(fedavg[0]["losses"]["site-1"]) == {"loss", "loss_supervised"}
    assert differences(fedperl[0], ssfl[0]) == []
    assert differences(fedperl[1], ssfl[1])
    assert fedperl[1]["losses"]["site-1"]["loss_consistency"] > 0
    assert fedperl[1]["peers"]["site-1"] in (["site-6", "site-9"], ["site-9", "site-6"])


def test_golden_methods_differ_only_after_the_warm_up() -> None:
    content = json.loads(TRACES.read_text())
    traces = {
        name: content[name]["rounds"] for name in ("wfedavg", "mt_wfedavg", "rscfed", "isofed")
    }
    for name, (warm_up, _) in traces.items():
        assert differences(warm_up, traces["wfedavg"][0]) == [], name
    after_warm_up = {name: second for name, (_, second) in traces.items()}
    assert after_warm_up["wfedavg"]["losses"]["site-2"] == {}
    assert set(after_warm_up["mt_wfedavg"]["losses"]["site-2"]) == {"loss", "loss_consistency"}
    assert set(after_warm_up["isofed"]["losses"]["site-1"]) == {
        "loss",
        "loss_information",
        "loss_supervised",
    }
    assert set(after_warm_up["isofed"]["losses"]["site-2"]) == {
        "loss",
        "loss_information",
        "loss_consistency",
    }
    assert [(row["part"], row["sites"]) for row in after_warm_up["isofed"]["groups"]] == [
        (0, GROUPS[1:3]),
        (1, GROUPS[::3]),
    ]
    assert [len(row["sites"]) for row in after_warm_up["rscfed"]["groups"]] == [3, 3, 3]
    fedprox = content["fedprox"]["rounds"]
    assert set(fedprox[0]["losses"]["site-1"]) == {"loss", "loss_supervised", "loss_proximal"}
    assert len({str(second["norm"]) for second in after_warm_up.values()}) == 4


def test_golden_phases_of_selffed_move_only_what_they_train() -> None:
    pretraining, fine_tuning = json.loads(TRACES.read_text())["selffed"]["rounds"]
    for trace, losses, parts in (
        (pretraining, {"loss_reconstruction"}, {"encoder", "mask_token", "decoder"}),
        (
            fine_tuning,
            {"loss_supervised", "loss_contrastive"},
            {"encoder", "classifier", "projection"},
        ),
    ):
        assert set(trace["losses"]["site-1"]) == {"loss", *losses}
        assert {part for part, moved in trace["moved"].items() if moved} == parts


def test_a_difference_is_found_and_named() -> None:
    expected = {"losses": [{"a": 1.0, "b": 2.0}], "peers": {"x": ["y"]}}
    assert (
        differences({"losses": [{"a": 1.00005, "b": 2.0}], "peers": {"x": ["y"]}}, expected) == []
    )
    found = {"losses": [{"a": 1.001, "b": 2.0}], "peers": {"x": ["z"]}}
    assert [text.split(":")[0] for text in differences(found, expected)] == [
        "/losses/0/a",
        "/peers/x/0",
    ]
    assert differences({"losses": [{"a": 1.0}], "peers": {"x": ["y"]}}, expected)
    assert differences({"losses": [{"a": 1.0, "c": 2.0}], "peers": {"x": ["y"]}}, expected)


if __name__ == "__main__":
    with mock.patch("fedward.lab.simulation.write_report"), mock.patch("os.fsync"):
        for name in METHODS:
            round_traces = trace(name, Path(sys.argv[1]) / name)
            Path(sys.argv[1], f"{name}.json").write_text(json.dumps(round_traces))
