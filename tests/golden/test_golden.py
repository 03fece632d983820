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

from fedward.config import SyntheticData
from fedward.lab.local import run_local
from fedward.methods import METHODS
from fedward.methods.groups import GroupedState
from fedward.storage.checkpoint import StoredState
from fedward.storage.run_folder import RunFolder
from starting import initial_model
from tiny import TRAINING, tiny

SITES = ["site-1", "site-6", "site-9"]
"""Two communities and a loner."""
GROUPS = ["site-1", "site-2", "site-6", "site-9"]
"""For methods whose sites have all their labels, as 1 and 9 here, or none; the second round is
behind the warm-up.
"""
TRACES = Path(__file__).with_name("traces.json")
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""Which kernels ATen, oneDNN, MKL, NumPy and its OpenBLAS use. NumPy draws the images."""
RELATIVE = 1e-4
"""Machines may still differ in the last digits of a sum."""
ABSOLUTE = 1e-6
"""And of the difference of two entropies of about 2."""


def trace(method: str, folder: Path) -> list[dict[str, Any]]:
    """Run two rounds and return each one's training losses by site, peers, and the size and change
    of the model.

    A method of one round runs that. With groups of sites, also their weights.
    """
    grouped = METHODS[method].state_type is GroupedState
    sites = GROUPS if grouped else SITES
    changes: dict[str, Any] = (
        {"options": {"rounds": 2}} if grouped else {"options": {"rounds": 2, "participants": 3}}
    )
    if grouped:
        changes["synthetic"] = SyntheticData(images=40, labelled=1.0, isolated=True)
    rounds = (1,) if method == "oneshot" else (1, 2)
    if method == "oneshot":
        changes["options"] = {}
    if (
        method == "selffed"
    ):  # one round of each phase; the server would contrast between two rounds of the second
        changes["options"] |= {"warm_up": 0, "contrastive": "client"}
    else:
        changes["net"] = "small_cnn_gn"
    run = run_local(tiny(method, **changes), folder, sites=sites)
    losses, peers, groups = (rows(run / f"{log}.jsonl") for log in ("metrics", "peers", "groups"))
    models = [model_after(run, round_) for round_ in (0, *rounds)]
    return [
        {
            "losses": {
                site: {
                    row["name"]: row["value"]
                    for row in losses
                    if (row["round"], row["site"], row["split"]) == (round_, site, "train")
                    and row["name"].startswith(("loss", "kept"))
                }
                for site in sites
            },
            "peers": next((row["chosen"] for row in peers if row["round"] == round_), {}),
            "norm": norms(models[round_]),
            "moved": norms(
                {key: models[round_][key] - models[round_ - 1][key] for key in models[0]}
            ),
        }
        | ({"groups": [row for row in groups if row["round"] == round_]} if grouped else {})
        for round_ in rounds
    ]


def rows(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def model_after(run: Path, round_: int) -> dict[str, Tensor]:
    """Return the global model after a round; the one before the first is not kept, but follows from
    the seed.
    """
    if round_ == 0:
        return dict(initial_model(RunFolder.reopen(run).experiment)[0])
    stored = StoredState(run / "rounds" / f"{round_:05d}" / "state.safetensors")
    return {key.removeprefix("model/"): stored[key] for key in stored if key.startswith("model/")}


def norms(state: dict[str, Tensor]) -> dict[str, float]:
    """Return the Euclidean norms of four parts of a model, by kind of tensor; of a masked Swin, by
    module.
    """
    if "mask_token" in state:
        return {
            part: float(
                torch.cat(
                    [state[key].double().flatten() for key in state if key.split(".")[0] == part]
                ).norm()
            )
            for part in dict.fromkeys(key.split(".")[0] for key in state)
        }
    state = {
        key: tensor for key, tensor in state.items() if not key.startswith("moments.")
    }  # no rounds change them
    parts: dict[str, list[Tensor]] = {
        "convolutions": [],
        "normalisation": [],
        "statistics": [],
        "classifier": [],
    }
    for key, tensor in state.items():
        if "running" in key:
            parts["statistics"].append(tensor)
        elif tensor.dim() == 4:
            parts["convolutions"].append(tensor)
        elif key.startswith(list(state)[-1].rsplit(".", 1)[0]):
            parts["classifier"].append(tensor)
        elif tensor.is_floating_point():
            parts["normalisation"].append(tensor)
    return {
        name: float(torch.cat([tensor.double().flatten() for tensor in tensors]).norm())
        for name, tensors in parts.items()
        if tensors
    }


def bless(method: str, found: list[dict[str, Any]], reason: str) -> None:
    content = json.loads(TRACES.read_text()) if TRACES.exists() else {}
    content[method] = {"reason": reason, "rounds": found}
    TRACES.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def differences(found: Any, expected: Any, where: str = "") -> list[str]:
    """Return where two traces differ, and by how much."""
    if (
        isinstance(expected, dict | list)
        and type(found) is type(expected)
        and len(found) == len(expected)
    ):
        keys = list(expected) if isinstance(expected, dict) else range(len(expected))
        if isinstance(expected, list) or set(found) == set(expected):
            return [
                text
                for key in keys
                for text in differences(found[key], expected[key], f"{where}/{key}")
            ]
    close = isinstance(found, float) and found == pytest.approx(
        expected, rel=RELATIVE, abs=ABSOLUTE
    )
    return [] if close or found == expected else [f"{where}: {found}, expected {expected}"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Make the traces of all methods."""
    folder = tmp_path_factory.mktemp("golden")
    environment = {**os.environ, **PORTABLE, "PYTHONPATH": str(TRACES.parents[1] / "support")}
    subprocess.run([sys.executable, __file__, str(folder)], env=environment, check=True)
    return {method: json.loads((folder / f"{method}.json").read_text()) for method in TRAINING}


@pytest.mark.parametrize("method", TRAINING)
def test_two_rounds_give_the_golden_numbers(
    method: str, traces: dict[str, list[dict[str, Any]]]
) -> None:
    found = traces[method]
    reason = os.environ.get("FEDWARD_BLESS")
    if reason:
        bless(method, found, reason)
        pytest.skip(f"wrote {TRACES.name} anew: {reason}")
    assert differences(found, json.loads(TRACES.read_text())[method]["rounds"]) == []


def test_every_golden_trace_is_checked_and_has_a_reason() -> None:
    content = json.loads(TRACES.read_text())
    assert set(content) == set(TRAINING)
    assert all(trace["reason"].strip() for trace in content.values())


def test_golden_methods_differ_where_they_should() -> None:
    """SSFL adds pseudo-labels to FedAvg, FedPerl adds peers to SSFL, and those only after its
    warm-up.
    """
    fedavg, ssfl, fedperl = (
        json.loads(TRACES.read_text())[name]["rounds"] for name in ("fedavg", "ssfl", "fedperl")
    )
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
    behind = {name: second for name, (_, second) in traces.items()}
    assert behind["wfedavg"]["losses"]["site-2"] == {}
    assert set(behind["mt_wfedavg"]["losses"]["site-2"]) == {"loss", "loss_consistency"}
    assert set(behind["isofed"]["losses"]["site-1"]) == {
        "loss",
        "loss_information",
        "loss_supervised",
    }
    assert set(behind["isofed"]["losses"]["site-2"]) == {
        "loss",
        "loss_information",
        "loss_consistency",
    }
    assert [(row["part"], row["sites"]) for row in behind["isofed"]["groups"]] == [
        (0, GROUPS[1:3]),
        (1, GROUPS[::3]),
    ]
    assert [len(row["sites"]) for row in behind["rscfed"]["groups"]] == [3, 3, 3]
    fedprox = content["fedprox"]["rounds"]
    assert set(fedprox[0]["losses"]["site-1"]) == {"loss", "loss_supervised", "loss_proximal"}
    assert len({str(second["norm"]) for second in behind.values()}) == 4


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
    with mock.patch("fedward.lab.local.write_report"), mock.patch("os.fsync"):
        for name in TRAINING:
            made = trace(name, Path(sys.argv[1]) / name)
            Path(sys.argv[1], f"{name}.json").write_text(json.dumps(made))
