"""Labels that nobody may see change no weight, in any method and scenario."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from fedward.config import Experiment
from fedward.jobs import simulated_sites
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.study_parts import Cell
from fedward.methods import method_of
from fedward.registry import METHODS
from fedward.sites.assemble import divide
from fedward.sites.data import Row, SiteData
from fedward.sites.site_file import SERVER
from fedward.storage.model_files import StoredState
from run_files import assert_equal
from running import run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report", "narrow_swin")

STUDY = read_study(Path(__file__).parents[2] / "benchmarks" / "studies" / "papers.json")

PAPER_ROWS = {
    "fedperl": (
        "fedavg_lower",
        "fedavg_fixmatch",
        "fedprox_uda",
        "fedmatch",
        "fedmatch_plus",
        "local_lower",
        "local_fixmatch",
        "validation",
        "server_fedavg_fixmatch",
        "server_fedmatch_plus",
        "server_validation",
        "few_fedirm_100",
        "few_fedperl_100",
    ),
    "isofed": ("mt_wfedavg_2_2", "rscfed_2_2", "isofed_2_2"),
    "fedal": ("fedal_mcdal", "fedal_fedal"),
    "selffed": ("selffed_30",),
}
"""Variant of the study -> its rows, one for each method and scenario with hidden labels."""

SHORTER = {
    "selffed": {
        "rounds": 2,
        "pretraining_rounds": 1,
        "pretraining_warm_up": 0,
        "warm_up": 0,
        "batch": 8,
    }
}
"""Method -> options by which its row runs in less time, with both phases."""


def of_paper(variant: str, row: str) -> Experiment:
    """Return the experiment of a row; sites show half of their labels if the server has its own."""
    experiment = STUDY.experiment(Cell(variant, row, 1))
    options = {**experiment.options, **SHORTER.get(experiment.method, {})}
    changes: dict[str, Any] = {"options": options}
    if experiment.options.get("server_labels"):
        assert experiment.synthetic is not None
        changes["synthetic"] = experiment.synthetic.model_copy(update={"labelled": 0.5})
    return experiment.model_copy(update=changes)


EXPERIMENTS = {
    row: of_paper(variant, row) for variant, names in PAPER_ROWS.items() for row in names
}
EXPERIMENTS |= {
    method: tiny(method, options={} if method == "oneshot" else {"rounds": 1})
    for method in ("fedprox", "wfedavg", "oneshot")
}
EXPERIMENTS["server_alone"] = tiny("fedavg", options={"rounds": 1, "server_labels": True})


class Labels:
    """The labels of synthetic training images, some of which are changed.

    The first class becomes the last, the second the last but one, and so on: of an even number of
    classes none stays, and images sorted by their labels come in another order.
    """

    def __init__(self) -> None:
        self.visible: set[str] = set()
        """Ids of the training images whose labels were visible in some run."""
        self.hidden: set[str] = set()
        """Ids of the other training images."""
        self.changed: set[str] = set()
        """Ids of the images of which the next run has other labels."""

    def divide(
        self,
        site: str,
        classes: Sequence[str],
        rows: Sequence[Row],
        pixels: np.ndarray,
        labelled: float,
        rng: np.random.Generator,
    ) -> SiteData:
        """Return the images of a site, of which the same ones as ever show a label."""
        data = divide(site, classes, rows, pixels, labelled, rng)
        self.visible |= set(data.labelled.ids)
        self.hidden |= set(data.unlabelled.ids)
        relabelled = [
            row._replace(label=len(classes) - 1 - row.label)
            if row.sample_id in self.changed
            else row
            for row in rows
        ]
        return divide(site, classes, relabelled, pixels, data.labelled.ids, rng)


def bought(folder: Path) -> set[str]:
    """Return the ids of the images whose labels the sites of a run have asked for."""
    ids: set[str] = set()
    for record in folder.glob("sites/*/memory/*/*.json"):
        ids |= set(json.loads(record.read_text())["asked"])
    return ids


def all_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a run: those of each round, and those that sites keep."""
    run_id = json.loads((folder / "run.json").read_text())["id"]
    tensors = {}
    for file in sorted(folder.rglob("*.safetensors")):
        name = str(file.relative_to(folder)).replace(run_id, "run")
        tensors |= {f"{name}: {key}": tensor for key, tensor in StoredState(file).items()}
    return tensors


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
@pytest.mark.proves(
    "lead",
    "labels that a site hides, or that a job with labels at the server does not use, in any method",
    "other labels in their place change no weight of the server or of a site",
)
def test_hidden_labels_change_no_weight_and_visible_ones_do(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = Labels()
    monkeypatch.setattr("fedward.lab.synthetic.divide", labels.divide)
    sites = simulated_sites(experiment)[:4]

    def run(name: str) -> dict[str, Tensor]:
        return all_weights(run_local(experiment, tmp_path / name, sites=sites))

    weights = run("as they are")
    visible = labels.visible - labels.hidden
    if method_of(experiment).active is not None:
        visible = bought(tmp_path / "as they are")
    if method_of(experiment).requirements.hidden_labels:
        assert {name.rsplit("-", 1)[0] for name in visible} == {SERVER}
    labels.changed = (labels.visible | labels.hidden) - visible
    assert labels.changed
    assert_equal(run("hidden labels changed"), weights)
    labels.changed = visible
    other_weights = run("visible labels changed")
    assert any(not weights[key].equal(other_weights[key]) for key in weights)


def test_every_method_is_tested() -> None:
    assert {experiment.method for experiment in EXPERIMENTS.values()} == set(METHODS.builtin)
