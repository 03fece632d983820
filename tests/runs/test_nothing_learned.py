"""Sites with nothing to learn from take no step and count for nothing.

A run of such sites alone fails.
"""

import json

import pytest
import torch

from clients import new_client
from fedward.config import SyntheticData
from fedward.errors import RunError
from fedward.methods.participants import draw_participants
from fedward.storage.model_files import StoredState
from fedward.storage.run_folder import RunFolder
from run_files import rows
from running import run_local
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-9"]
NO_LABELS = {"images": 40, "labelled": 0.0}
HALF_HAVE_LABELS = SyntheticData(images=40, labelled=1.0, isolated=True)
"""Site 2 shows none."""


@pytest.mark.parametrize(
    ("method", "options", "rounds", "reason"),
    [
        ("fedavg", {}, 2, "no site has labels"),
        ("ssfl", {"threshold": 1.0}, 4, "no site has labels"),
        ("fedperl", {"threshold": 1.0}, 4, "no site has labels"),
        ("isofed", {"warm_up": 0}, 4, "no site has labels"),
        ("selffed", {"warm_up": 0}, 2, "a site with labels that trained the classifier"),
        ("selffed", {"warm_up": 0}, 4, "no site has labels"),
    ],
)
def test_a_run_without_any_label_fails_and_says_so(tmp_path, method, options, rounds, reason):
    """Whether it ends before three rounds in a row were in vain, or by them."""
    run = tmp_path / "run"
    experiment = tiny(method, synthetic=NO_LABELS, options={"rounds": rounds, **options})
    with pytest.raises(RunError, match=reason):
        run_local(experiment, run, sites=SITES)
    info = json.loads((run / "run.json").read_text())
    assert info["status"] == "failed"
    assert "labels" in info["summary"]["reason"]


def test_a_site_with_labels_that_was_never_drawn_is_no_site_without_labels(tmp_path):
    """Sites 2 and 6 were drawn in phase 2, and site 1 alone has labels."""
    sites = ["site-1", "site-2", "site-6"]
    options = {"rounds": 3, "participants": 1, "warm_up": 0}
    seed = next(
        seed
        for seed in range(1000)
        if all(draw_participants(sites, 1, seed, round_) != ["site-1"] for round_ in (2, 3))
    )
    experiment = tiny("selffed", synthetic=HALF_HAVE_LABELS, options=options, seed=seed)
    with pytest.raises(RunError, match=r"let more sites take part in a round \(participants\)"):
        run_local(experiment, tmp_path / "run", sites=sites)


@pytest.mark.parametrize(
    ("steps", "named"), [({"images_per_round": 4, "batch": 4}, "largest_update"), ({}, "nan")]
)
def test_a_run_that_diverges_names_the_learning_rate(tmp_path, steps, named):
    """One step gives an update that is too large, several a loss that is no number."""
    options = {"rounds": 1, "optimizer": "sgd", "learning_rate": 1e9, **steps}
    labels = {"images": 40, "labelled": 1.0}
    experiment = tiny("fedavg", synthetic=labels, options=options)
    with pytest.raises(RunError) as caught:
        run_local(experiment, tmp_path / "run", sites=SITES[:2])
    assert named in str(caught.value)
    remedy = "lower the learning rate: training diverged at site-1, site-2"
    assert remedy in str(caught.value)
    assert ".." not in str(caught.value)


def test_rounds_of_sites_without_labels_end_no_run_that_others_can_teach(tmp_path):
    """One site a round, and the last one alone has labels: its turn comes after three others."""
    few_labels = SyntheticData(images=40, labelled=1.0, labelled_sites=(9,))
    options = {"rounds": 6, "participants": 1}
    sites = ["site-1", "site-2", "site-4", "site-9"]
    seed = next(
        seed
        for seed in range(1000)
        if all(draw_participants(sites, 1, seed, round_) != ["site-9"] for round_ in (1, 2, 3, 4))
        and draw_participants(sites, 1, seed, 5) == ["site-9"]
    )
    experiment = tiny("fedavg", synthetic=few_labels, options=options, seed=seed)
    run = run_local(experiment, tmp_path / "run", sites=sites)
    trained = [row["round"] for row in rows(run, "rounds") if row["replied"]]
    assert trained[0] == 5


def test_fedperl_as_it_ships_fails_without_labels(tmp_path):
    """At its own threshold a fresh network is sure of no image."""
    experiment = tiny(
        "fedperl",
        synthetic=NO_LABELS,
        options={"rounds": 2, "threshold": 0.6, "participants": None},
    )
    with pytest.raises(
        RunError,
        match="no site has labels; in the last exchange, site-1: took no training step: 0 labelled",
    ):
        run_local(experiment, tmp_path / "run", sites=SITES)
    for row in rows(tmp_path / "run", "rounds"):
        assert row["replied"] == []
        assert set(row["failed"]) == set(SITES)


def test_a_run_that_changed_no_weight_fails(tmp_path):
    """Their steps are so small that no float32 notices; the network has no running statistics."""
    options = {"rounds": 1, "learning_rate": 1e-60}
    experiment = tiny("fedprox", synthetic=HALF_HAVE_LABELS, net="small_cnn_gn", options=options)
    with pytest.raises(
        RunError, match="expected a model that some round changed, found the one it began with"
    ):
        run_local(experiment, tmp_path / "run", sites=SITES)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


def test_a_site_that_keeps_no_pseudo_label_takes_no_step(tmp_path):
    """BatchNorm's statistics moved with its images.

    It returns the model it was sent all the same.
    """
    experiment = tiny("ssfl", synthetic=HALF_HAVE_LABELS, options={"threshold": 1.0})
    model = initial_model(experiment)[0]
    state, steps, means = new_client("site-2", experiment, tmp_path).learner.train(model, [], 1)
    assert steps == 0
    assert means == {"loss": 0.0, "loss_pseudo": 0.0, "kept": 0.0}
    assert state is model
    _, steps, means = new_client(
        "site-2", tiny("ssfl", synthetic=HALF_HAVE_LABELS), tmp_path
    ).learner.train(model, [], 1)
    assert steps == 2
    assert means["kept"] == 1.0


@pytest.mark.parametrize("method", ["ssfl", "fedperl"])
def test_a_site_without_a_step_is_outside_mean_and_peers(tmp_path, method):
    """The mean of all is that of the others, bit for bit, BatchNorm's statistics included."""
    options = {"rounds": 3, "threshold": 1.0, "participants": None, "largest_share": 1.0}
    models = {}
    for name, sites in (("with", SITES), ("without", ["site-1", "site-9"])):
        run = run_local(
            tiny(method, synthetic=HALF_HAVE_LABELS, options=options), tmp_path / name, sites=sites
        )
        models[name] = StoredState(run / "model.safetensors")
    assert list(models["with"]) == list(models["without"])
    differ = [
        key
        for key, tensor in models["with"].items()
        if not torch.equal(tensor, models["without"][key])
    ]
    assert not differ
    for row in rows(tmp_path / "with", "rounds"):
        assert row["replied"] == ["site-1", "site-9"]
        assert row["failed"]["site-2"].startswith("took no training step: 0 labelled")
    for row in rows(tmp_path / "with", "peers"):
        assert row["sites"] == ["site-1", "site-9"]
        assert not any("site-2" in peers for peers in row["chosen"].values())
    shares_kept = [
        row
        for row in rows(tmp_path / "with", "metrics")
        if (row["site"], row["name"]) == ("site-2", "kept")
    ]
    assert [row["value"] for row in shares_kept] == [0.0] * 3, "its log says why"
    assert RunFolder.reopen(tmp_path / "with").finished
