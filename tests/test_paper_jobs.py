"""The papers' settings by name: what runs, what is said of it, and how settings are compared."""

import json
from pathlib import Path

import pytest

from fedward import cli
from fedward.jobs import JOBS, load_experiment
from fedward.methods import method_of
from fedward.paper_jobs import PAPER_JOBS

# Settings that make any paper's job small enough for a test, besides its number of rounds.
SMALL = {
    "net": "small_cnn",
    "pretrained": "false",
    "data.image_size": "16",
    "synthetic.images": "16",
    "synthetic.labelled": "1.0",
}


def test_every_job_of_a_paper_is_a_shipped_job_with_the_same_method() -> None:
    for name, job in PAPER_JOBS.items():
        assert JOBS[name]().method == job.method


def test_every_job_of_a_paper_has_settings_that_its_method_takes() -> None:
    for name, job in PAPER_JOBS.items():
        experiment = load_experiment(f"{name}_paper")
        settings = method_of(experiment).settings.model_dump()
        # What a paper changes in the method is a setting of the method.
        changed = {key for key in job.changes if "." not in key}
        assert changed <= settings.keys()


def test_fedmatch_has_the_settings_of_its_own_paper() -> None:
    settings = method_of(load_experiment("fedmatch_paper")).settings.model_dump()
    # ICLR 2021, released code: 200 rounds, 5 of 100 sites, B 10, SGD, helpers in every tenth round,
    # τ 0.75. Weights 10, 0.01, 0.01, 0.0001 and 10 with a rate of 0.001 are a tenth, at ten times
    # the rate.
    printed = {
        "rounds": 200,
        "participants": 5,
        "batch": 10,
        "optimizer": "sgd",
        "learning_rate": 10 * 1e-3,
        "helper_every": 10,
        "threshold": 0.75,
        "unlabelled_weight": 0.01 / 10,
        "consistency_weight": 0.01 / 10,
        "l1_weight": 1e-4 / 10,
        "l2_weight": 10 / 10,
    }
    assert {name: settings[name] for name in printed} == pytest.approx(printed)


def test_labels_at_the_server_and_at_few_sites_are_fedperls_otherwise() -> None:
    fedperl = load_experiment("fedperl_paper")
    server = load_experiment("fedperl_server_paper")
    few_sites = load_experiment("fedperl_few_sites_paper")
    assert server.options == {**fedperl.options, "server_labels": True}
    assert few_sites.options == fedperl.options
    assert few_sites.synthetic is not None
    assert few_sites.synthetic.labelled_sites == (2, 10)


def test_fedperl_is_the_papers() -> None:
    experiment = load_experiment("fedperl_paper")
    settings = method_of(experiment).settings
    assert (experiment.net, experiment.pretrained) == ("tf_efficientnet_b0", True)
    assert experiment.data.image_size == 224
    # MELBA 2022, Implementation Details: 500 rounds, 3 clients each, B 16, rate 0.00005, τ 0.6,
    # β 0.5, γ 0.01, T 2, ten rounds of warm-up.
    printed = {
        "rounds": 500,
        "participants": 3,
        "batch": 16,
        "learning_rate": 5e-5,
        "schedule": "constant",
        "round_warm_up": 0.0,
        "threshold": 0.6,
        "unlabelled_weight": 0.5,
        "consistency_weight": 0.01,
        "committee": 2,
        "warm_up": 10,
    }
    assert {name: getattr(settings, name) for name in printed} == printed


def test_local_fixmatch_is_the_papers() -> None:
    settings = method_of(load_experiment("local_fixmatch_paper")).settings.model_dump()
    # MELBA 2022, Implementation Details: τ 0.9 for the local models, 500 rounds, rate 0.00005.
    printed = {"rounds": 500, "learning_rate": 5e-5, "threshold": 0.9, "learns_from": "all_images"}
    assert {name: settings[name] for name in printed} == printed
    assert (settings["participants"], settings["images_per_round"]) == (None, None)


def test_selffed_is_the_papers() -> None:
    settings = method_of(load_experiment("selffed_paper")).settings.model_dump()
    # Section IV: 1,600 rounds of pre-training with a rate of 0.000375 and a warm-up of five epochs,
    # masks of 60 %, 100 rounds of fine-tuning with batches of 64 and a rate of 0.003. Eq. 3 has raw
    # pixels.
    printed = {
        "rounds": 1700,
        "pretraining_rounds": 1600,
        "pretraining_rate": 3.75e-4,
        "pretraining_warm_up": 5.0,
        "mask_ratio": 0.6,
        "predicted_pixels": "raw",
        "batch": 64,
        "learning_rate": 3e-3,
    }
    assert {name: settings[name] for name in printed} == printed


def test_a_papers_size_and_views_are_not_those_that_a_data_file_proposes() -> None:
    proposed = {"classes": ["NV", "BKL", "MEL"], "image_size": 150, "views": "mirrored"}
    data = load_experiment("fedal_paper", data=proposed).data
    assert data.classes == ("NV", "BKL", "MEL")
    assert (data.image_size, data.views) == (224, "filtered")
    changed = load_experiment("fedal_paper", ["data.image_size=64"], data=proposed).data
    assert changed.image_size == 64


def test_a_papers_job_says_what_it_needs_and_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = SMALL | {"rounds": "1", "warm_up": "0", "images_per_round": "16"}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    folder = tmp_path / "run"
    command = ["run", "fedperl", "--paper", "--sites", "2", "--out", str(folder), *words]
    assert cli.main(command) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "paper Bdair, Navab, Albarqouni, MELBA 2022" in printed
    assert "synthetic images, whose results say nothing about the paper's" in printed
    # What is not changed is the paper's.
    options = json.loads((folder / "run.json").read_text())["experiment"]["options"]
    assert (options["schedule"], options["round_warm_up"]) == ("constant", 0.0)


def test_a_job_without_a_paper_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "survey", "--paper"]) == 2
    assert "fedperl" in capsys.readouterr().err


def test_settings_are_shown_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["settings", "fedperl"]) == 0
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line}
    assert rows["setting"] == ["job", "default", "paper"]
    assert rows["rounds"] == ["5", "500", "500"]
    assert rows["net"] == ["small_cnn_gn", "small_cnn", "tf_efficientnet_b0"]
    assert "committee" not in rows  # It is 2 in all three.
    assert max(len(line) for line in printed.splitlines()) <= 80
    assert cli.main(["settings", "fedperl", "--all"]) == 0
    assert "committee" in capsys.readouterr().out


def test_a_job_without_a_paper_has_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["settings", "oneshot"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["setting", "job", "default"]
