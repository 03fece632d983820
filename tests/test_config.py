"""An experiment: what is refused and how, what is filled in, and that it survives JSON."""

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedward.config import DERMOSCOPY, DataSpec, Experiment, SyntheticData
from fedward.errors import ConfigError
from fedward.jobs import JOBS, changed_experiment, load_experiment, simulated_sites
from fedward.label_kinds import SEVERAL_LABELS
from fedward.methods import method_of, methods_supporting, settings_of
from fedward.methods.fedavg import FedAvg
from fedward.methods.requirements import Feature
from fedward.methods.settings import Settings
from fedward.methods.steps import most_steps
from fedward.registry import METHODS


def refusal(raw: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Experiment.parse(raw, "job test")
    return str(caught.value)


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({}, "method: missing"),
        ([], "value: "),
        (None, "value: "),
        ({"method": "ssfl", "nett": "x"}, "nett: unknown (did you mean net?)"),
        ({"method": "ssfl", "seed": -1}, "seed: "),
        ({"method": "ssfl", "evaluate_every": 0}, "evaluate_every: "),
        ({"method": "ssfl", "minimum_replies": 0}, "minimum_replies: "),
        ({"method": "ssfl", "timeout": 0}, "timeout: "),
        ({"method": "ssfl", "threads": 1}, "threads: unknown"),
        ({"method": "ssfl", "options": {"threads": 2}}, "threads: unknown"),
        ({"method": "ssfl", "options": 3}, "options: "),
        ({"method": "ssfl", "largest_update": math.inf}, "largest_update: "),
        ({"method": "ssfl", "options": {"learning_rate": math.inf}}, "learning_rate"),
        ({"method": "ssfl", "options": {"unlabelled_weight": math.inf}}, "unlabelled_weight"),
        ({"method": "ssfl", "data": {"image_size": 8}}, "data.image_size: "),
        ({"method": "ssfl", "data": {"channels": 2}}, "data.channels: "),
        ({"method": "ssfl", "data": {"classes": ["MEL"]}}, "data.classes: "),
        ({"method": "ssfl", "data": {"folder": "x"}}, "data.folder: unknown"),
        ({"method": "ssfl", "synthetic": {"labelled": 1.1}}, "synthetic.labelled: "),
        ({"method": "ssfl", "synthetic": {"images": 15}}, "synthetic.images: "),
        (
            {"method": "ssfl", "synthetic": {"labelled_sites": [2, 11]}},
            "labelled_sites=[2, 11] must be numbers from 1 to synthetic.sites=10",
        ),
        ({"method": "ssfl", "synthetic": {"labelled_sites": []}}, "must be numbers from 1"),
        ({"method": "ssfl", "synthetic": {"places": []}}, "places=[] must be numbers from 1 to 10"),
        (
            {
                "method": "ssfl",
                "data": {"classes": ["é", "b"], "titles": {"é": "x", "e\u0301": "y"}},
            },
            "data.titles: a class has two titles",
        ),
        (
            {"method": "ssfl", "synthetic": {"labelled_sites": [2], "isolated": True}},
            "both choose the sites with labels",
        ),
    ],
)
def test_wrong_fields_are_named(raw: Any, named: str) -> None:
    text = refusal(raw)
    assert named in text
    assert text.startswith("job test: expected valid settings, found ")


def test_every_wrong_field_is_named_with_what_was_found() -> None:
    text = refusal({"method": "ssfl", "seed": -1, "timeout": "soon"})
    assert "seed: -1, not 0 or more" in text
    assert "timeout: 'soon', not a whole number" in text


def test_an_unknown_method_is_told_which_there_are() -> None:
    text = refusal({"method": "fedmagic"})
    assert "'fedmagic'" in text
    assert all(name in text for name in METHODS)


def test_long_input_is_cut_in_the_message() -> None:
    assert len(refusal({"method": "ssfl", "seed": "x" * 5000})) < 400


def test_what_is_absent_is_filled_in() -> None:
    experiment = Experiment.parse({"method": "fedperl"}, "job test")
    assert experiment.data == DataSpec()
    assert experiment.data.classes == DERMOSCOPY
    assert experiment.synthetic == SyntheticData()
    assert method_of(experiment).settings.rounds == 500


def test_clinical_jobs_have_no_synthetic_images() -> None:
    assert Experiment.parse({"method": "ssfl", "synthetic": None}, "job test").synthetic is None


def test_an_experiment_cannot_be_changed() -> None:
    experiment = Experiment(method="ssfl")
    with pytest.raises(ValueError, match="frozen"):
        experiment.seed = 4  # type: ignore[misc]


def test_a_copy_of_an_experiment_cannot_change_it() -> None:
    """A site approves a job by its digest, which must stay that of what is run."""
    options = {"sampler": "aift", "sampler_options": {"majority": 0.5}}
    experiment = Experiment(method="fedal", options=options)
    digest = experiment.digest
    copied = experiment.model_copy()
    with pytest.raises(TypeError):
        copied.options["threshold"] = 0.5  # type: ignore[index]
    with pytest.raises(TypeError):
        copied.options["sampler_options"]["majority"] = 0.1
    options["sampler_options"] = {"majority": 0.1}
    dumped = experiment.model_dump()
    dumped["options"]["sampler_options"]["majority"] = 0.1
    assert experiment.digest == digest
    assert experiment.options["sampler_options"]["majority"] == 0.5


def test_options_survive_a_copy_to_another_process() -> None:
    experiment = JOBS["fedal"]()
    assert pickle.loads(pickle.dumps(experiment)).digest == experiment.digest


def test_an_experiment_without_options_is_read_only_too() -> None:
    with pytest.raises(TypeError):
        Experiment(method="ssfl").options["threshold"] = 0.5  # type: ignore[index]


def test_a_job_file_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    """One of the two values would get lost."""
    (tmp_path / "job.json").write_text('{"method": "fedavg", "seed": 3, "seed": 4}')
    with pytest.raises(ConfigError, match="found a key that comes twice: 'seed'"):
        load_experiment(str(tmp_path / "job.json"))


def test_a_job_file_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"a":' * 100_000)
    with pytest.raises(ConfigError, match="found text that is nested too deeply"):
        load_experiment(str(tmp_path / "job.json"))


@pytest.mark.parametrize("name", JOBS)
def test_shipped_jobs_are_valid_and_survive_json(name: str) -> None:
    experiment = JOBS[name]()
    text = experiment.model_dump_json()
    assert Experiment.parse(json.loads(text), name) == experiment
    assert Experiment.parse(json.loads(text), name).model_dump_json() == text
    settings = settings_of(experiment.method, experiment.options)
    assert settings.rounds >= 1
    assert (settings.participants or 1) <= len(simulated_sites(experiment))
    assert experiment.synthetic is not None, "a shipped job runs without any data"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (["options=3", "rounds=3"], "rounds: options has none"),
        (["options=0", "rounds=3"], "rounds: options has none"),
        (["seed=2024-13-45"], "--set seed: expected a value in YAML, found month must be"),
        (
            [f"net={'[' * 5000}"],
            "--set net: expected a value in YAML, found text that is not valid YAML at line 1,"
            " column 22: more than 20",
        ),
    ],
)
def test_changes_that_cannot_be_are_told(changes: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_experiment("fedavg", changes)


@pytest.mark.parametrize(
    ("job", "change", "beside", "needed"),
    [
        # A site takes as many images as images_per_round says, however many passes these are.
        ("fedavg", "local_epochs=5", "images_per_round=800", "images_per_round=null"),
        ("fedavg", "images_at_most=32", "images_per_round=800", "images_per_round=null"),
        ("fedavg", "momentum=0.5", "optimizer=adam", "optimizer=sgd"),
        ("fedavg", "trim=0.4", "robust=no", "robust=trimmed_mean"),
        ("fedavg", "server_learning_rate=0.1", "server_labels=False", "server_labels=true"),
        ("ssfl", "temperature=0.1", "pseudo_labels=fixed", "pseudo_labels=soft"),
        ("local_lower", "threshold=0.1", "learns_from=labels", "learns_from=all_images"),
        ("fedperl", "gate=0.95", "policy=static", "policy=gated_validation"),
        ("fedmatch_plus", "similarity_scale=none", "similarity=answers", "similarity=moments"),
        ("selffed_scratch", "mask_ratio=0.5", "pretraining_rounds=0", "pretraining_rounds=4"),
        ("selffed_scratch", "queue=64", "contrastive=off", "contrastive=server"),
    ],
)
def test_a_setting_without_effect_is_refused(
    job: str, change: str, beside: str, needed: str
) -> None:
    found = rf"--set {change}: expected .* found {beside}, .* Add --set {needed}, or leave"
    for written in (change, f"options.{change}"):
        with pytest.raises(ConfigError, match=found):
            load_experiment(job, [written])
    name, value = change.split("=")
    with_effect = load_experiment(job, [change, needed])
    assert str(with_effect.options[name]) == value


@pytest.mark.parametrize(
    ("job", "changes", "needed"),
    [
        ("isofed", ["adapt=false", "adaptation_rate=0.5"], "adapt=true"),
        ("fedperl", ["committee=0", "anonymise=false"], "committee=2"),
        ("fedperl", ["committee=0", "consistency_weight=0.1"], "committee=2"),
        ("selffed", ["pretext=contrastive", "mask_ratio=0.5"], "pretext=masked"),
        ("selffed", ["contrastive=off", "contrastive_rate=0.1"], "contrastive=server"),
    ],
)
def test_a_setting_that_another_change_leaves_without_effect_is_refused(
    job: str, changes: list[str], needed: str
) -> None:
    with pytest.raises(ConfigError, match=rf"Add --set {needed}, or leave"):
        load_experiment(job, changes)


@pytest.mark.parametrize("job", ["wfedavg", "fedprox", "wfedavg_paper"])
def test_a_setting_without_effect_in_any_job_of_a_method_is_refused(job: str) -> None:
    """Only sites with labels train in every round, as in a warm-up."""
    method = job.removesuffix("_paper")
    found = (
        "--set warm_up=3: expected a setting that changes something in this job, "
        f"found one without effect in every job of {method}. Leave warm_up out."
    )
    for written in ("warm_up=3", "options.warm_up=3", "options={warm_up: 3}"):
        with pytest.raises(ConfigError) as caught:
            load_experiment(job, [written])
        assert str(caught.value) == found
    assert load_experiment("mt_wfedavg", ["warm_up=3"]).options["warm_up"] == 3


def test_a_setting_without_effect_is_refused_among_all_settings_too() -> None:
    changes = ["options={rounds: 3, images_per_round: 800, local_epochs: 5}"]
    with pytest.raises(ConfigError, match=r"--set local_epochs=5: .*images_per_round=800, beside"):
        load_experiment("fedavg", changes)


def test_contrast_as_the_pretext_has_a_queue_without_contrast_in_phase_2() -> None:
    changes = ["pretext=contrastive", "contrastive=off", "queue=64", "temperature=0.3"]
    experiment = load_experiment("selffed", changes)
    assert (experiment.options["queue"], experiment.options["temperature"]) == (64, 0.3)


@pytest.mark.parametrize(
    ("method", "options", "text"),
    [
        ("fedperl", {"rounds": 10, "warm_up": 10}, "warm_up=10 leaves none of 10 rounds"),
        ("isofed", {"rounds": 7}, "warm_up=7 leaves none of 7 rounds"),
        ("rscfed", {"rounds": 2}, "warm_up=7 leaves none of 2 rounds"),
        ("mt_wfedavg", {"rounds": 5}, "warm_up=7 leaves none of 5 rounds"),
        ("fedirm", {"rounds": 21}, "warm_up=21 leaves none of 21 rounds"),
        ("fedmatch", {"rounds": 5}, "helper_every=10 leaves none of 5 rounds"),
    ],
)
def test_a_run_without_one_round_of_its_method_is_refused(
    method: str, options: dict[str, Any], text: str
) -> None:
    """It would be a run of another method under this name."""
    assert text in refusal({"method": method, "options": options})


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedperl", {"rounds": 11}),
        ("fedperl", {"rounds": 10, "committee": 0}),
        ("isofed", {"rounds": 8}),
        ("wfedavg", {"rounds": 7}),
        ("fedmatch", {"rounds": 10}),
        ("fedmatch", {"rounds": 5, "helpers": 0}),
    ],
)
def test_one_round_of_a_method_is_enough(method: str, options: dict[str, Any]) -> None:
    assert Experiment(method=method, options=options).options == options


def test_the_baseline_without_pretraining_has_nothing_of_selffed() -> None:
    """It needs no images at the server, and averages as federated averaging does."""
    for job in ("selffed_scratch", "selffed_scratch_paper"):
        method = method_of(changed_experiment(job, {}))
        assert (method.settings.contrastive, method.settings.beta) == ("off", 1.0)
        assert not method.requirements.server.images


def test_the_papers_fedmatch_takes_the_five_steps_of_the_released_code() -> None:
    """With 50 labelled images at a site, in batches of ten."""
    method = method_of(changed_experiment("fedmatch_paper", {}))
    [phase] = method.phases("train", 1, 50)
    assert most_steps(phase.objective.uses, method.settings, labelled=50, unlabelled=510) == 5


def test_shipped_jobs_have_a_round_with_peers() -> None:
    settings = method_of(JOBS["fedperl"]()).settings.model_dump()
    assert settings["warm_up"] < settings["rounds"]


def test_each_method_has_a_job() -> None:
    assert {job().method for job in JOBS.values()} == {*METHODS, "survey"}


def test_equal_settings_are_equal_experiments() -> None:
    """A list of classes is a tuple, a whole number a float."""
    one = Experiment.parse(
        {"method": "ssfl", "data": {"classes": ["A", "B"]}, "synthetic": {"labelled": 1}}, "one"
    )
    other = Experiment(
        method="ssfl", data=DataSpec(classes=("A", "B")), synthetic=SyntheticData(labelled=1.0)
    )
    assert one == other


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"key_metric": "precision"}, "key_metric"),
        ({"data": {"classes": ["MEL", "NV", "MEL"]}}, "named twice"),
        ({"data": {"classes": [*map(str, range(1001))]}}, "not 1000 entries or fewer"),
        ({"data": {"classes": ["MEL", "x" * 201]}}, "not text of 200 or fewer characters"),
        ({"net": "swin_64"}, "net swin_64: expected data.image_size = 64.* found 32"),
        (
            {"net": "masked_swin_28", "data": {"image_size": 64}},
            "net masked_swin_28: .*Set data.image_size=28",
        ),
    ],
)
def test_names_that_would_be_ignored_are_refused(change, text):
    with pytest.raises(ConfigError, match=text):
        Experiment.parse({"method": "fedavg", **change}, "job")


def test_several_labels_need_surer_pseudo_labels() -> None:
    several = ["data.multi_label=true", "data.classes=[A, B]"]
    for job in ("fedperl", "ssfl"):
        assert load_experiment(job, several).options["threshold"] == 0.95
        assert load_experiment(job, [*several, "threshold=0.7"]).options["threshold"] == 0.7
        assert load_experiment(job, several[1:]).options.get("threshold", 0.6) == 0.6
    assert "threshold" not in load_experiment("fedavg", several).options


def test_a_job_of_ones_own_has_the_threshold_of_shipped_ones(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"method": "ssfl", "data": {"multi_label": True}}))
    assert method_of(load_experiment(str(file))).settings.threshold == SEVERAL_LABELS.threshold
    assert load_experiment(str(file), ["threshold=0.6"]).options["threshold"] == 0.6
    assert (
        load_experiment("ssfl", ["data.multi_label=true"]).options["threshold"]
        == SEVERAL_LABELS.threshold
    )


# --- features that a method does not support

REASON = "it sorts the sites by their models"


class Sorting(FedAvg):
    """A method that is not the package's own, and cannot work with encrypted updates."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        reasons = {**self.requirements.reasons_against, Feature.SECURE_AGGREGATION: REASON}
        self.requirements = replace(self.requirements, reasons_against=reasons)


@pytest.fixture
def sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS.registered, "sorting", Sorting)


@pytest.mark.usefixtures("sorting")
def test_a_new_method_is_refused_by_its_own_reason() -> None:
    text = refusal({"method": "sorting", "secure_aggregation": True})
    assert text.startswith(f"sorting cannot work with secure_aggregation=true: {REASON}. ")
    assert "fedavg" in text
    assert "sorting," not in text
    assert "sorting with" not in text
    assert "Set secure_aggregation=false, or choose one of " in text
    assert Experiment(method="sorting").method == "sorting"


@pytest.mark.usefixtures("sorting")
def test_a_new_method_is_listed_where_it_supports_what_is_asked_for() -> None:
    robust = {"robust": "median"}
    assert "sorting" in refusal({"method": "isofed", "options": robust})
    assert "sorting" not in refusal({"method": "isofed", "secure_aggregation": True})


def test_alternatives_support_all_features_that_are_asked_for() -> None:
    """FedProx could encrypt its updates, but knows no images of several classes."""
    asked = {"secure_aggregation": True, "data": {"multi_label": True}}
    text = refusal({"method": "fedperl", **asked})
    assert "fedavg" in text
    assert "ssfl" in text
    assert "fedprox" not in text
    assert "fedprox" in refusal({"method": "fedperl", "secure_aggregation": True})


@pytest.mark.parametrize("feature", Feature)
def test_every_feature_has_a_method_that_supports_it(feature: Feature) -> None:
    assert methods_supporting([feature])


def test_each_part_of_a_network_is_a_feature_of_its_own() -> None:
    text = refusal({"method": "selffed", "trainable": "last:2"})
    assert text.startswith("selffed cannot work with trainable=last:2: ")
    assert "Set trainable=all, or choose one of " in text
    text = refusal({"method": "oneshot", "trainable": "last:2"})
    assert text.startswith("oneshot cannot work with trainable=last:2: ")
    assert "Set trainable=head, or choose one of " in text


def test_a_robust_mean_needs_models_that_nobody_sees_when_they_are_encrypted() -> None:
    text = refusal(
        {"method": "fedavg", "secure_aggregation": True, "options": {"robust": "median"}}
    )
    assert text.startswith("robust=median cannot be combined with secure_aggregation")
