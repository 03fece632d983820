"""A site's own policy: the jobs and requests that it refuses before it reads data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from broken_rules import refused_by_default
from clients import new_client
from fedward.client.admission import Admission
from fedward.client.client import Client
from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.errors import ConfigError
from fedward.jobs import JOBS, load_experiment
from fedward.methods import job_of, method_of, settings_of
from fedward.methods.aggregation import mean_of
from fedward.methods.class_weights import class_weights
from fedward.methods.steps import batch_sizes, fewest_different, step_count
from fedward.methods.workflow import ClientUpdate
from fedward.model_state import State
from fedward.protocol import wire
from fedward.protocol.update_size import check_update_size
from fedward.protocol.wire import Message
from fedward.registry import METHODS
from fedward.security.policy import OPEN, POLICY_FILE, Policy, PolicyError, read_policy
from fedward.security.policy_rules import Circumstances, applied_rules
from fedward.sites import Rejected
from fedward.sites.sampling import virtual_client
from hospital import HERE, fresh, hospital, request
from installed import install

SHIPPED = Path(wire.__file__).parents[1] / "flare" / "kits" / "templates" / POLICY_FILE


def site(
    folder: Path,
    experiment: Experiment,
    policy: Policy | None = None,
    noise: bool = False,
    data: str = HERE,
) -> Client:
    rules = policy or Policy()
    admission = Admission(HERE, experiment, method_of(experiment), folder, lambda: rules, noise)
    return new_client(data, experiment, folder, admission=admission)


def refusal(here: Client, message: Message, reads_data: bool = False) -> str:
    """Return the text of a refusal, which came before any data were read."""
    answer = here.handle(message)
    assert set(answer.meta) <= {"site", "round", "error", "refused"}
    assert not answer.arrays
    assert reads_data or "data" not in vars(here)
    return str(answer.meta["error"])


def test_a_job_that_the_default_policy_allows_is_trained(tmp_path):
    experiment = hospital()
    answer = site(tmp_path, experiment).handle(request(experiment))
    assert answer.meta["steps"] == 4
    assert answer.arrays


def test_the_shipped_file_says_what_holds_without_it(tmp_path):
    assert read_policy(SHIPPED) == read_policy(tmp_path / "none") == Policy()
    text = SHIPPED.read_text()
    assert all(f"\n{rule}: " in text for rule in Policy.model_fields)


def test_clinical_exports_of_shipped_jobs_are_allowed():
    refused = {name: refused_by_default(load_experiment(name, clinical=True)) for name in JOBS}
    assert {name: [row.name for row in rules] for name, rules in refused.items() if rules} == {
        "survey": ["surveys"],
        "fedmatch_peers": ["lone_peers"],
    }


def test_what_is_set_knowingly_stays_as_it_is():
    experiment = load_experiment("fedavg", ["minimum_replies=1", "batch=4"], clinical=True)
    assert [row.name for row in refused_by_default(experiment)] == [
        "minimum_replies",
        "minimum_batch",
    ]
    assert load_experiment("fedavg").minimum_replies == 1


# --- jobs

ONE_IMAGE = {"images_per_round": 1, "batch": 1, "optimizer": "sgd"}
JOBS_REFUSED = [
    pytest.param(
        {"options": ONE_IMAGE},
        "minimum_images: at least 32, the job says 1; minimum_steps: at least 4, the job says 1; "
        "minimum_batch: at least 8, the job says 1",
        id="one image",
    ),
    pytest.param(
        {"options": {"images_per_round": None, "images_at_most": 24}},
        "minimum_images: at least 32, the job says 24; minimum_steps: at least 4, the job says 3",
        id="images at most",
    ),
    pytest.param(
        {"options": {"images_per_round": 128, "batch": 128}},
        "minimum_steps: at least 4, the job says 1",
        id="one step",
    ),
    pytest.param(
        {"minimum_replies": 1}, "minimum_replies: at least 3, the job says 1", id="one reply"
    ),
    pytest.param(
        {"options": {"participants": 1}},
        "minimum_participants: at least 3, the job says 1",
        id="one participant",
    ),
    pytest.param(
        {"options": {"rounds": 1001}},
        "maximum_rounds: at most 1000, the job says 1001",
        id="rounds",
    ),
    pytest.param(
        {"options": {"images_per_round": 8_000_000_000}},
        "maximum_images: at most 1000000, the job says 8000000000",
        id="images of a round",
    ),
    pytest.param(
        {"method": "rscfed", "options": {"images_per_round": 32, "passes": 10**9}},
        "maximum_images: at most 1000000, the job says 32000000000",
        id="exchanges of a round",
    ),
    pytest.param(
        {"data": DataSpec(image_size=513)},
        "maximum_image_size: at most 512, the job says 513",
        id="size of images",
    ),
    pytest.param({"net": "vgg11"}, "the job says vgg11", id="net"),
    pytest.param(
        {"method": "fedperl", "options": {"anonymise": False}},
        "the job says anonymise = false",
        id="named peers",
    ),
]


@pytest.mark.proves(
    "lead",
    "settings that let few images, steps, replies or sites decide an update, hand on "
    "one hospital's model, or never end",
    "refused before data are read; the lead reads the rule",
)
@pytest.mark.parametrize(("changes", "reason"), JOBS_REFUSED)
def test_a_job_that_breaks_a_rule_is_refused_by_name(tmp_path, changes, reason):
    experiment = hospital(**{"method": "fedavg", **changes})
    message = request(hospital())  # of a small network; the job's own is not built
    message.meta["experiment"] = experiment.digest
    message.meta["task"] = min(job_of(experiment).requirements.tasks)
    here = site(tmp_path, experiment)
    text = refusal(here, message)
    assert text.startswith(f"policy of {HERE}: expected what its rules allow, found ")
    assert reason in text
    assert here.handle(message).meta["refused"] is True


SGD = {"optimizer": "sgd", "momentum": 0.5}
STEPS_REFUSED = [
    pytest.param(
        "fedavg",
        {**SGD, "learning_rate": 0.3},
        "learning_rate: at most 0.5, {} learning_rate makes 0.6",
    ),
    pytest.param(
        "fedavg",
        {**SGD, "learning_rate": 0.2500625},
        "learning_rate: at most 0.5, {} learning_rate makes 0.500125",
        id="more digits where three would keep the rule",
    ),
    pytest.param(
        "fedavg", {**SGD, "momentum": 1.0}, "learning_rate: at most 0.5, {} learning_rate makes inf"
    ),
    pytest.param(
        "fedavg", {"learning_rate": 0.02}, "adam_rate: at most 0.01, {} learning_rate makes 0.02"
    ),
    pytest.param(
        "mt_wfedavg",
        {**SGD, "unlabelled_learning_rate": 0.3},
        "learning_rate: at most 0.5, {} unlabelled_learning_rate makes 0.6",
    ),
    pytest.param(
        "isofed",
        {**SGD, "adaptation_rate": 10.0},
        "learning_rate: at most 0.5, {} adaptation_rate makes 0.6",
    ),
    pytest.param(
        "selffed",
        {"pretraining_rate": 0.02},
        "adam_rate: at most 0.01, {} pretraining_rate makes 0.02",
    ),
    pytest.param(
        "selffed",
        {"contrastive": "client", "contrastive_rate": 0.02},
        "adam_rate: at most 0.01, {} contrastive_rate makes 0.02",
    ),
    pytest.param(
        "fedal",
        {**SGD, "learning_rate": 0.1, "sampler": "mcdal"},
        "adam_rate: at most 0.01, {} learning_rate of the heads makes 0.1",
    ),
    pytest.param(
        "fedprox",
        {**SGD, "learning_rate": 0.03, "proximal_weight": 2.0, "weight_decay": 0.0},
        "forgetting: at most 0.1, {} learning_rate makes 0.12",
    ),
    pytest.param(
        "fedprox",
        {"optimizer": "adam", "learning_rate": 1e-3, "proximal_weight": 0.2, "weight_decay": 0.0},
        "forgetting: at most 0.1, {} learning_rate makes 0.2",
    ),
    pytest.param(
        "ssfl",
        {"optimizer": "adamw", "learning_rate": 1e-3, "proximal_weight": 0.2},
        "forgetting: at most 0.1, {} learning_rate makes 0.2",
    ),
    pytest.param(
        "fedperl",
        {"optimizer": "adam", "learning_rate": 1e-3, "proximal_weight": 0.2},
        "forgetting: at most 0.1, {} learning_rate makes 0.2",
    ),
    pytest.param(
        "fedavg",
        {**SGD, "learning_rate": 0.1, "weight_decay": 1.0},
        "forgetting: at most 0.1, {} learning_rate makes 0.2",
    ),
    pytest.param(
        "fedavg",
        {"optimizer": "adam", "learning_rate": 1e-3, "weight_decay": 0.2},
        "forgetting: at most 0.1, {} learning_rate makes 0.2",
    ),
    pytest.param(
        "selffed",
        {"pretraining_rate": 1e-3, "weight_decay": 150.0},
        "forgetting: at most 0.1, {} pretraining_rate makes 0.15",
    ),
    pytest.param(
        "fedavg", {"clip_gradient": None}, "clip: at most 100, the job says clip_gradient=null"
    ),
    pytest.param(
        "fedavg", {"clip_gradient": 101.0}, "clip: at most 100, the job says clip_gradient=101"
    ),
    pytest.param(
        "fedavg", {"clip_gradient": 100.25}, "clip: at most 100, the job says clip_gradient=100.25"
    ),
    pytest.param(
        "ssfl", {"unlabelled_weight": 1.5}, "loss_weight: at most 1, {} unlabelled_weight makes 1.5"
    ),
    pytest.param(
        "fedperl",
        {"consistency_weight": 2.0},
        "loss_weight: at most 1, {} consistency_weight makes 2",
    ),
    pytest.param(
        "mt_wfedavg",
        {"unlabelled_weight": 2.0},
        "loss_weight: at most 1, {} unlabelled_weight makes 2",
    ),
    pytest.param(
        "fedavg",
        {"class_weighting": "median_frequency"},
        "image_share: at most 0.5, class_weighting=median_frequency makes 0.877 with batch=8",
    ),
]


@pytest.mark.proves(
    "lead",
    "settings that let few images, steps, replies or sites decide an update, hand on "
    "one hospital's model, or never end",
    "refused before data are read; the lead reads the rule",
)
@pytest.mark.parametrize(("method", "options", "rule"), STEPS_REFUSED)
def test_steps_that_outweigh_others_are_refused_by_name(method, options, rule):
    broken = [str(row) for row in refused_by_default(hospital(method, options=options))]
    assert broken == ["maximum_" + rule.format("the job's")]


def test_every_rate_and_loss_weight_is_under_a_rule():
    """A method with another one has to say so, in its settings."""
    ruled = {
        "learning_rate",
        "unlabelled_learning_rate",
        "pretraining_rate",
        "contrastive_rate",
        "adaptation_rate",
        "unlabelled_weight",
        "consistency_weight",
        "relation_weight",
        "l1_weight",
        "l2_weight",
        "proximal_weight",
        "weight_decay",
    }
    # The server's rate is for images of its own, about which a site's policy says nothing.
    others = {"class_weighting", "server_learning_rate"}
    setting_names = {
        name for method in METHODS for name in METHODS[method].settings_type.model_fields
    }
    assert {
        name for name in setting_names if "rate" in name or "weight" in name or "decay" in name
    } == (ruled | others | {"average_decay", "ema_decay", "target_decay"})


@pytest.mark.parametrize("method", METHODS)
def test_every_weight_of_a_loss_is_among_those_under_the_rule(method):
    """The proximal term's alone is under another rule: it pulls, and learns nothing of images."""
    fields = METHODS[method].settings_type.model_fields
    names = {name for name in fields if name.endswith("_weight")} - {"proximal_weight"}
    weights = {name: 0.1 + 0.1 * place for place, name in enumerate(sorted(names))}
    assert settings_of(method, weights).loss_weights == weights


def test_a_rate_that_a_method_does_not_declare_is_refused(tmp_path, monkeypatch):
    experiment = hospital()
    algorithm = method_of(experiment)
    faster = [replace(phase, learning_rate=0.5) for phase in algorithm.phases("train", 1, 120)]
    monkeypatch.setattr(type(algorithm), "phases", lambda *_: faster)
    text = refusal(site(tmp_path, experiment), request(experiment), reads_data=True)
    assert "maximum_adam_rate: at most 0.01, the job's phase makes 0.5" in text


@pytest.mark.proves(
    "lead",
    "few images in each batch, or few pseudo-labels that decide an update",
    "refused or skipped, by number or weight: minimum_batch counts different images",
)
def test_a_batch_of_the_same_images_is_refused(tmp_path):
    experiment = hospital("ssfl", options={"batch": 12, "images_per_round": 48})
    experiment = experiment.model_copy(
        update={"synthetic": SyntheticData(images=180, labelled=0.03)}
    )
    here = site(tmp_path, experiment, Policy(minimum_images=1, minimum_batch=9))
    text = refusal(here, request(experiment), reads_data=True)
    assert len(here.data.labelled) == 8
    assert (
        "minimum_batch: at least 9 different labelled images in a step, the round would take some "
        "on fewer" in text
    )
    eight = site(tmp_path / "eight", experiment, Policy(minimum_images=1))
    assert eight.handle(request(experiment)).arrays


def test_a_batch_of_two_passes_may_repeat_images_and_is_refused(tmp_path):
    """Eight images may be five, three of them twice, where a pass ends within their batch."""
    options = {"batch": 8, "images_per_round": 48}
    experiment = hospital("fedavg", options=options)
    images = SyntheticData(images=120, labelled=0.5)
    experiment = experiment.model_copy(update={"synthetic": images})
    here = site(tmp_path, experiment, Policy(minimum_images=8))
    assert len(here.data.labelled) == 37
    text = refusal(here, request(experiment), reads_data=True)
    assert "minimum_batch: at least 8 different labelled images in a step" in text
    five = site(tmp_path / "five", experiment, Policy(minimum_images=8, minimum_batch=5))
    assert five.handle(request(experiment)).arrays


def test_images_that_people_refused_are_not_counted(tmp_path):
    """They are unlabelled ones, so the counts stay the same and no step trains on them."""
    experiment = hospital("ssfl")
    here = site(tmp_path, experiment)
    held = here.data
    phases = here.algorithm.phases("train", 1, len(held.labelled))
    here.admission.check_training(phases, held)
    left_out = replace(held, refused=frozenset(held.unlabelled.ids[: len(held.unlabelled) - 31]))
    with pytest.raises(PolicyError, match="at least 32 different unlabelled images"):
        here.admission.check_training(phases, left_out)


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(1, 70))
def test_no_batch_is_smaller_than_asked_for(images, batch):
    sizes = batch_sizes(images, batch)
    assert sum(sizes) == images
    assert len(sizes) == step_count(images, batch)
    assert all(size >= min(batch, images) for size in sizes)
    assert all(size < 2 * batch for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1


draws_of_a_phase = (st.integers(1, 30), st.integers(1, 400), st.integers(1, 70))


@given(*draws_of_a_phase, st.integers(0, 5))
def test_every_batch_has_as_many_different_images(pool, images, batch, seed):
    drawn = virtual_client(pool, images, torch.Generator().manual_seed(seed))
    found = [len(part.unique()) for part in drawn.split(batch_sizes(images, batch))]
    assert min(found) >= fewest_different(pool, images, batch)


@given(*draws_of_a_phase)
def test_some_orders_have_no_more_different_images(pool, images, batch):
    """Each pass begins with the images with which the last one ended."""
    forwards = torch.arange(pool)
    passes = [forwards, forwards.flip(0)] * (images // pool + 1)
    parts = torch.cat(passes)[:images].split(batch_sizes(images, batch))
    assert min(len(part.unique()) for part in parts) == fewest_different(pool, images, batch)


def test_a_batch_across_two_passes_may_repeat_its_shorter_part():
    assert fewest_different(36, 72, 8) == 4, "the fifth batch is of two passes, four of each"
    assert fewest_different(36, 72, 9) == 9
    assert fewest_different(36, 72, 16) == 18
    assert fewest_different(36, 64, 16) == 12
    assert fewest_different(8, 48, 12) == 8
    assert fewest_different(7, 10**15, 8) == 4


@pytest.mark.proves(
    "lead",
    "class weights in batches across the end of a pass, which hold a rare image twice",
    "**not covered**: `maximum_image_share` is of an image that a batch holds once",
)
def test_an_image_that_a_batch_holds_twice_has_more_than_its_share():
    """One image of a rare class and 59 of another, in batches of 51."""
    options = {"class_weighting": "median_frequency", "batch": 51, "images_per_round": 204}
    assert refused_by_default(hospital(options=options)) == []
    weights = class_weights(torch.tensor([59, 1]))
    shares = []
    for seed in range(20):
        drawn = virtual_client(60, 204, torch.Generator().manual_seed(seed))
        for batch in drawn.split(51):
            is_rare = batch == 0
            loss = weights[is_rare.long()]
            shares.append(float(loss[is_rare].sum() / loss.sum()))
    assert max(shares) == pytest.approx(100 / 149)


def test_a_method_that_is_not_listed_is_refused(tmp_path):
    experiment = hospital("ssfl")
    text = refusal(
        site(tmp_path, experiment, Policy(methods=("fedavg", "fedperl"))), request(experiment)
    )
    assert "methods: fedavg, fedperl, the job says ssfl" in text


@pytest.mark.parametrize(
    ("rules", "changes", "broken"),
    [
        ({"extensions": ("ours:our_net",)}, {"net": "our_net"}, []),
        (
            {"extensions": ("ours:our_net",)},
            {"net": "our_net", "metrics": ("our_metric",)},
            ["extensions"],
        ),
        (
            {"extensions": ("ours:our_metric",)},
            {"net": "vgg11", "metrics": ("our_metric",)},
            ["nets"],
        ),
        (
            {"extensions": ("ours:our_metric",), "methods": ("ssfl",)},
            {"metrics": ("our_metric",)},
            ["methods"],
        ),
    ],
)
def test_an_extension_that_is_allowed_lets_in_nothing_else(
    tmp_path, monkeypatch, rules, changes, broken
):
    code = """
from fedward.nets import SmallCNN as Net
def metric(probabilities, labels):
    return 0.5
"""
    points = {"network": {"our_net": "ours:Net"}, "metric": {"our_metric": "ours:metric"}}
    install(tmp_path, monkeypatch, "ours", "ours", code, **points)
    experiment = hospital(**changes)
    rows = applied_rules(Policy(**rules), experiment, method_of(experiment), Circumstances())
    assert [row.name for row in rows if not row.kept] == broken


def test_no_peers_and_means_of_two_are_allowed():
    for options in ({}, {"committee": 0}, {"committee": 3}):
        assert refused_by_default(hospital("fedperl", options=options)) == []


@pytest.mark.proves(
    "lead",
    "updates without noise, or in float16, at a site that adds noise",
    "refused",
)
def test_noise_is_asked_of_the_sites_own_scope(tmp_path):
    experiment = hospital()
    policy = Policy(noise="required")
    text = refusal(site(tmp_path / "without", experiment, policy), request(experiment))
    assert "noise: required, this site's privacy scope adds none" in text
    noisy = site(tmp_path / "with", experiment, policy, noise=True)
    assert "error" not in noisy.handle(request(experiment)).meta


@pytest.mark.proves(
    "lead",
    "updates without noise, or in float16, at a site that adds noise",
    "refused",
)
@pytest.mark.parametrize(
    ("rule", "noise"), [("required", True), ("required", False), ("optional", True)]
)
def test_noise_is_not_for_updates_in_float16(tmp_path, rule, noise):
    experiment = hospital(update_dtype="float16")
    text = refusal(site(tmp_path, experiment, Policy(noise=rule), noise=noise), request(experiment))
    assert f"noise: {rule}, to float32 alone, the job says float16" in text


@pytest.mark.parametrize(("rule", "noise"), [("required", False), ("optional", True)])
def test_noise_is_not_for_encrypted_updates(tmp_path, rule, noise):
    experiment = hospital(secure_aggregation=True, minimum_replies=3)
    policy = Policy(noise=rule)
    text = refusal(site(tmp_path, experiment, policy, noise=noise), request(experiment))
    assert f"noise: {rule}, not to encrypted updates, the job says secure_aggregation=true" in text


def test_encrypted_updates_need_no_permission_without_noise():
    experiment = hospital(secure_aggregation=True, minimum_replies=3)
    assert refused_by_default(experiment) == []


@pytest.mark.parametrize(("rule", "noise"), [("required", False), ("optional", True)])
def test_noise_is_not_for_rows_of_probabilities(tmp_path, rule, noise):
    options = {"unlabelled_weight": 1.0, "relation_weight": 1.0}
    experiment = hospital("fedirm", options=options)
    message = request(experiment, task="supervised")
    text = refusal(site(tmp_path, experiment, Policy(noise=rule), noise=noise), message)
    assert f"noise: {rule}, not to probabilities, updates of fedirm hold some" in text


def test_updates_in_float16_need_no_permission_without_noise(tmp_path):
    experiment = hospital(update_dtype="float16")
    answer = site(tmp_path, experiment, Policy()).handle(request(experiment))
    assert list(answer.arrays) == ["diff"]


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.proves(
    "lead",
    "settings that let few images, steps, replies or sites decide an update, hand on "
    "one hospital's model, or never end",
    "refused before data are read; the lead reads the rule",
)
def test_a_run_of_too_few_sites_is_refused(tmp_path, members):
    experiment = hospital()
    text = refusal(site(tmp_path, experiment), request(experiment, members=members))
    assert "minimum_sites: at least 3, the run has" in text


# --- requests of a dishonest server


@pytest.mark.proves(
    "server",
    "peers in a job without peers, or several where the job has one mean",
    "refused. **Not covered**: a site cannot see whose models a mean is made of",
)
@pytest.mark.parametrize(
    ("method", "roles", "most"),
    [
        ("fedavg", ["peer0"], "0 peers"),
        ("fedperl", ["peer0", "peer1"], "1 peer"),
        ("fedperl", ["other"], "1 peer"),
    ],
)
def test_models_that_the_job_has_no_place_for_are_refused(tmp_path, method, roles, most):
    experiment = hospital(method)
    message = request(experiment)
    model = fresh(experiment)
    message.arrays = {**message.arrays, **{role: wire.encode_peer(model, model) for role in roles}}
    assert (
        f"peers of the request: expected at most {most} in this job, numbered from 0, found {roles}"
    ) in refusal(site(tmp_path, experiment), message)


@pytest.mark.proves(
    "lead",
    "a committee of a million million peers, or as many helpers, at a site that allows single ones",
    "checked as any other number: nothing is made for each of them",
)
@pytest.mark.parametrize(("method", "setting"), [("fedperl", "committee"), ("fedmatch", "helpers")])
def test_a_committee_larger_than_any_federation_takes_no_memory(tmp_path, method, setting):
    options = {setting: 10**12, "anonymise": False}
    experiment = hospital(method, options=options)
    here = site(tmp_path, experiment, Policy(lone_peers=True, maximum_forgetting=None))
    message = request(experiment)
    model = fresh(experiment)
    message.arrays = {**message.arrays, "peer1": wire.encode_peer(model, model)}
    assert "numbered from 0, found ['peer1']" in refusal(here, message)


def test_more_than_ten_single_peers_are_accepted_where_they_are_allowed(tmp_path):
    experiment = hospital("fedperl", options={"committee": 11, "anonymise": False})
    message = request(experiment)
    model = fresh(experiment)
    peers = {f"peer{number}": wire.encode_peer(model, model) for number in range(11)}
    message.arrays = {**message.arrays, **peers}
    here = site(tmp_path, experiment, Policy(lone_peers=True))
    assert "error" not in here.handle(message).meta


@pytest.mark.parametrize(
    ("replies", "rules", "broken_rules"),
    [
        (2, {}, "minimum_replies: at least 3, the job says 2"),
        (
            2,
            {"minimum_replies": 2},
            "minimum_effective_replies: at least 2.5, the job's minimum_replies of 2 make 1.67",
        ),
        (2, {"minimum_replies": 2, "minimum_effective_replies": 1.5}, ""),
        (3, {}, ""),
        (
            2,
            {"minimum_replies": 2, "minimum_effective_replies": 1.67},
            "minimum_effective_replies: at least 1.67, "
            "the job's minimum_replies of 2 make 1.6666666666666667",
        ),
        (
            3,
            {"minimum_effective_replies": 3},
            "minimum_effective_replies: at least 3, the job's minimum_replies of 3 make 2.5",
        ),
        (4, {"minimum_effective_replies": 3}, ""),
    ],
)
def test_a_job_is_told_one_rule_of_its_averages(replies, rules, broken_rules):
    experiment = hospital(minimum_replies=replies)
    rows = applied_rules(Policy(**rules), experiment, method_of(experiment), Circumstances(sites=4))
    assert "; ".join(str(rule) for rule in rows if not rule.kept) == broken_rules


def test_a_site_without_annotators_allows_no_questions(tmp_path):
    experiment = hospital("fedal")
    policy = Policy(maximum_questions=0)
    text = refusal(
        site(tmp_path, experiment, policy), request(experiment, task="query"), reads_data=True
    )
    assert "at most 0, the run would ask for more here" in text


def test_a_run_above_the_label_limit_asks_for_none(tmp_path):
    """Half of the 72 images that the hospital has labelled, which the text must not reveal."""
    experiment = hospital("fedal")
    few, enough = (
        site(tmp_path / str(most), experiment, Policy(maximum_questions=most)) for most in (35, 36)
    )
    text = refusal(few, request(experiment), reads_data=True)
    assert "maximum_questions: at most 35, the run would ask for more here" in text
    assert "36" not in text
    assert "maximum_questions" not in refusal(enough, request(experiment), reads_data=True)


@pytest.mark.proves(
    "server",
    "another job's settings in a request",
    "refused",
)
def test_settings_in_a_request_are_refused(tmp_path):
    experiment = hospital()
    other = hospital(options=ONE_IMAGE).model_dump(mode="json")
    settings = ({"options": other["options"]}, {"images_per_round": 1}, {"batch": 1}, {"labels": 9})
    for forged in settings:
        text = refusal(site(tmp_path, experiment), request(experiment, **forged))
        assert f"request: expected no further name, found {next(iter(forged))!r}" in text


# --- starting weights


def crafted(experiment: Experiment) -> dict[str, Tensor]:
    """With a classifier of zeros, an update reveals the features of an image and its label."""
    state = fresh(experiment)
    return {
        name: tensor * 0 if name.startswith("classifier") else tensor
        for name, tensor in state.items()
    }


def digest(model: State) -> str:
    return wire.model_digest(wire.flatten("model", model))


@pytest.mark.proves(
    "server",
    "crafted weights in round 1 of a run that starts from fresh ones",
    "refused: the site makes the fresh ones itself. **Not covered**: weights in a later round",
)
def test_crafted_weights_without_a_word_are_refused(tmp_path):
    experiment = hospital()
    text = refusal(site(tmp_path, experiment), request(experiment, crafted(experiment)))
    assert "starting_weights: fresh ones of the job's seed, others were sent" in text


@pytest.mark.proves(
    "lead",
    "crafted starting weights, or weights that are not on a site's list",
    "refused in every round",
)
@pytest.mark.parametrize("round_", [1, 2])
def test_given_weights_are_refused_in_every_round(tmp_path, round_):
    experiment = hospital()
    model = crafted(experiment)
    message = request(experiment, model, round_, weights=digest(model))
    text = refusal(site(tmp_path, experiment), message)
    assert f"starting_weights: none, the run starts from {digest(model)}" in text


@pytest.mark.proves(
    "lead",
    "crafted starting weights, or weights that are not on a site's list",
    "refused in every round",
)
def test_weights_on_the_list_are_used_and_no_others(tmp_path):
    experiment = hospital()
    allowed = crafted(experiment)
    other = {name: tensor + 1 for name, tensor in fresh(experiment).items()}
    policy = Policy(starting_weights=(digest(allowed),))

    def sent(name: str, model: State, weights: Any) -> str:
        named = {"weights": weights} if weights else {}
        message = request(experiment, model, **named)
        return str(site(tmp_path / name, experiment, policy).handle(message).meta.get("error"))

    assert sent("allowed", allowed, digest(allowed)) == "None"
    assert sent("fresh", fresh(experiment), None) == "None"
    assert "one of " in sent("not on it", other, digest(other))
    assert "those that the request names, others were sent" in sent(
        "another", other, digest(allowed)
    )
    assert "fresh ones of the job's seed, others were sent" in sent("without a word", allowed, None)
    assert "request, weights: expected 64 hexadecimal" in sent(
        "a prefix", allowed, digest(allowed)[:63]
    )


@pytest.mark.proves(
    "lead",
    "crafted weights as the mean of round 1, by the answer of the lead's own site",
    "**not covered**: the limit is on the site's share, not on its update; `robust = "
    "median` stops one such site",
)
def test_one_site_can_set_weights_a_run_may_not_start_from(tmp_path):
    """It does not need to know what the others answer, who change the model a little."""
    plain = hospital()
    start = fresh(plain)
    target = crafted(plain)
    honest = {
        name: tensor + 1e-4 if tensor.is_floating_point() else tensor
        for name, tensor in start.items()
    }
    evil = {name: start[name] + 3 * (target[name] - start[name]) for name in start}
    check_update_size(
        "site-3", Message({}, wire.difference(evil, start)), start, plain.largest_update
    )
    replies = [
        ClientUpdate(name, state, 72, 0, 4)
        for name, state in (("a", honest), ("b", honest), ("c", evil))
    ]

    def far_from_target(experiment: Experiment) -> float:
        algorithm = method_of(experiment)
        mean = mean_of(
            replies,
            "train",
            algorithm.weight,
            algorithm.settings,
            start,
            experiment.effective_replies,
        )
        second = site(tmp_path / experiment.digest, experiment).handle(request(experiment, mean, 2))
        assert "error" not in second.meta
        return max(float((mean[name] - target[name]).abs().max()) for name in target)

    assert far_from_target(plain) < 1e-3
    assert far_from_target(hospital(options={"robust": "median"})) > 1e-2


@pytest.mark.proves(
    "server",
    "crafted weights in round 1 of a job whose server trains first, on labels of its own",
    "**not covered** where the run starts from fresh weights, as in any later round; given weights "
    "are refused as in other jobs",
)
def test_a_model_that_the_server_has_trained_cannot_be_compared(tmp_path):
    experiment = hospital("ssfl", options={"server_labels": True})
    trained = crafted(experiment)
    named = digest(fresh(experiment))
    policies = {
        "trained": (request(experiment, trained), Policy()),
        "given": (request(experiment, trained, weights=digest(trained)), Policy()),
        "other": (request(experiment, trained, weights=named), Policy(starting_weights=(named,))),
    }
    errors = {
        name: str(site(tmp_path / name, experiment, policy).handle(message).meta.get("error"))
        for name, (message, policy) in policies.items()
    }
    assert errors["trained"] == "None"
    assert f"starting_weights: none, the run starts from {digest(trained)}" in errors["given"]
    assert "those that the request names, others were sent" in errors["other"]


def test_another_processors_rounding_is_no_other_model(tmp_path):
    experiment = hospital()
    for change, is_accepted in ((1e-7, True), (9e-6, True), (1e-4, False), (float("nan"), False)):
        model = {
            name: tensor * (1 + change) if tensor.is_floating_point() else tensor
            for name, tensor in fresh(experiment).items()
        }
        answer = site(tmp_path / str(change), experiment).handle(request(experiment, model)).meta
        assert ("starting_weights" not in str(answer.get("error"))) is is_accepted


# --- what the site itself holds


@pytest.mark.proves(
    "lead",
    "few images in each batch, or few pseudo-labels that decide an update",
    "refused or skipped, by number or weight: minimum_batch counts different images",
)
@pytest.mark.parametrize(
    ("method", "options", "kind"),
    [
        ("fedavg", {}, "labelled"),
        ("ssfl", {"threshold": 1.0}, "labelled"),
        ("ssfl", {"unlabelled_weight": 1.0}, "unlabelled"),
    ],
)
def test_a_round_on_few_images_is_refused(tmp_path, method, options, kind):
    """Many images of the other kind do not help, because the job gives them no weight."""
    experiment = hospital(method, options=options)
    few = 0.1 if kind == "labelled" else 0.9
    experiment = experiment.model_copy(
        update={"synthetic": SyntheticData(images=240, labelled=few)}
    )
    text = refusal(site(tmp_path, experiment), request(experiment), reads_data=True)
    assert (
        f"minimum_images: at least 32 different {kind} images, the round would use fewer of this "
        "site's" in text
    )
    assert "14" not in text


def test_few_images_end_no_run_since_there_may_be_more_later(tmp_path):
    experiment = hospital(images=60)
    assert "refused" not in site(tmp_path, experiment).handle(request(experiment)).meta


def test_too_few_steps_at_a_site_that_passes_through_its_images(tmp_path):
    """A pass through 72 images in batches of 32 takes two steps."""
    experiment = hospital(options={"images_per_round": None, "batch": 32})
    assert refused_by_default(experiment) == []
    text = refusal(site(tmp_path, experiment), request(experiment), reads_data=True)
    assert "minimum_steps: at least 4, the round would take fewer here" in text


def test_what_a_round_measures_after_its_training_is_no_step(tmp_path):
    """Images in three batches of 40 or a few more: three steps, then three batches without one."""
    options = {"batch": 40, "unlabelled_weight": 1.0, "relation_weight": 1.0}
    experiment = hospital("fedirm", options=options)
    experiment = experiment.model_copy(
        update={"synthetic": SyntheticData(images=240, labelled=1.0)}
    )
    assert refused_by_default(experiment) == []
    message = request(experiment, task="supervised")
    text = refusal(site(tmp_path, experiment), message, reads_data=True)
    assert "minimum_steps: at least 4, the round would take fewer here" in text
    three = site(tmp_path / "three", experiment, Policy(minimum_steps=3))
    assert three.handle(message).meta["steps"] == 6


def unlabelled(threshold: float, **options: Any) -> Experiment:
    """Return a job whose pseudo-labels teach a site without labels, in four batches."""
    experiment = hospital("ssfl", options={"threshold": threshold, **options})
    return experiment.model_copy(update={"synthetic": SyntheticData(images=240, labelled=0.0)})


def threshold_of_few_steps(folder: Path) -> float:
    """Return the threshold by which a lead who knows the kept share leaves 1 to 3 batches."""
    low = 0.0
    high = 1.0
    for number in range(40):
        threshold = (low + high) / 2
        experiment = unlabelled(threshold)
        answer = site(folder / str(number), experiment, OPEN).handle(request(experiment))
        steps = answer.meta["steps"]
        if 0 < steps < 4:
            return threshold
        if steps:
            low = threshold
        else:
            high = threshold
    raise AssertionError("no such threshold")


def test_a_threshold_that_leaves_few_steps_gets_no_update(tmp_path):
    """The job's settings make four steps, but batches without a pseudo-label are none."""
    threshold = threshold_of_few_steps(tmp_path / "lead")
    experiment = unlabelled(threshold)
    assert refused_by_default(experiment) == []
    lone = Policy(minimum_batch=1, draws="seed")
    here = site(tmp_path / "site", experiment, lone)
    text = refusal(here, request(experiment), reads_data=True)
    assert "minimum_steps: at least 4, the round took fewer here" in text
    assert "refused" not in here.handle(request(experiment)).meta, "another round may take more"
    none = unlabelled(1.0)
    all_ = unlabelled(0.0)
    assert site(tmp_path / "none", none).handle(request(none)).meta["steps"] == 0
    assert site(tmp_path / "all", all_).handle(request(all_)).meta["steps"] == 4


@pytest.mark.proves(
    "lead",
    "few images in each batch, or few pseudo-labels that decide an update",
    "refused or skipped, by number or weight: minimum_batch counts different images",
)
def test_few_pseudo_labels_alone_are_no_step(tmp_path):
    """Of eight images in each of four batches some are kept, but not all."""
    low = 0.0
    high = 1.0
    for number in range(30):
        threshold = (low + high) / 2
        experiment = unlabelled(threshold)
        lone = Policy(minimum_batch=1, draws="seed")
        answer = site(tmp_path / str(number), experiment, lone).handle(request(experiment))
        kept_share = answer.meta["train"]["kept"] if answer.arrays else 0.0
        if 0 < kept_share < 1:
            break
        if kept_share:
            low = threshold
        else:
            high = threshold
    assert 0 < kept_share < 1
    assert answer.meta["steps"] == 4
    careful = site(tmp_path / "careful", experiment, Policy(draws="seed"))
    assert not careful.handle(request(experiment)).arrays


@pytest.mark.proves(
    "lead",
    "few images in each batch, or few pseudo-labels that decide an update",
    "refused or skipped, by number or weight: minimum_batch counts different images",
)
def test_pseudo_labels_cannot_outweigh_labels(tmp_path):
    crafted = {"unlabelled_weight": 1e9, "optimizer": "sgd", "learning_rate": 1e-10}
    experiment = hospital("ssfl", options=crafted)
    assert [row.name for row in refused_by_default(experiment)] == ["maximum_loss_weight"]
    text = refusal(site(tmp_path, experiment), request(experiment))
    assert "maximum_loss_weight: at most 1, the job's unlabelled_weight makes 1e+09" in text


ENDLESS = {"images_per_round": None, "images_at_most": None, "local_epochs": 10**9}


@pytest.mark.proves(
    "lead",
    "settings that let few images, steps, replies or sites decide an update, hand on "
    "one hospital's model, or never end",
    "refused before data are read; the lead reads the rule",
)
@pytest.mark.parametrize(
    ("method", "labelled", "changes"),
    [(name, 0.5, {"task": "train"}) for name in ("fedavg", "ssfl", "fedperl", "fedal")]
    + [
        (name, 1.0, {"task": "supervised"})
        for name in ("wfedavg", "fedprox", "mt_wfedavg", "rscfed", "isofed")
    ]
    + [
        (name, 0.0, {"task": "unsupervised", "round_": 3})
        for name in ("mt_wfedavg", "rscfed", "isofed")
    ]
    + [
        ("selffed", 0.5, {"task": task, "round_": 2 - (task == "pretrain")})
        for task in ("pretrain", "train")
    ]
    + [("fedal", 0.5, {"task": "query", "round_": 2})],
)
def test_a_round_that_would_not_end_is_refused(tmp_path, method, labelled, changes):
    experiment = hospital(method, options=ENDLESS)
    experiment = experiment.model_copy(
        update={"synthetic": SyntheticData(images=240, labelled=labelled)}
    )
    assert "maximum_images" not in [row.name for row in refused_by_default(experiment)]
    text = refusal(site(tmp_path, experiment), request(experiment, **changes), reads_data=True)
    assert "maximum_images: at most 1000000, the round would go through more here" in text


def test_an_image_limit_counts_every_image_once(tmp_path):
    """72 labelled images, 72 without labels, three epochs of each; a site may lift the limit.

    A round of IsoFed has two exchanges, in each of which a site may be asked to train.
    """
    for method, task, seen in (
        ("fedavg", "train", 3 * 72),
        ("ssfl", "train", 6 * 72),
        ("isofed", "supervised", 2 * 3 * 72),
    ):
        experiment = hospital(
            method, options={"images_per_round": None, "local_epochs": 3, "batch": 36}
        )
        for most, is_allowed in ((seen - 1, False), (seen, True), (None, True)):
            here = site(tmp_path / f"{method}-{most}", experiment, Policy(maximum_images=most))
            asked = request(experiment, task=task)
            assert ("error" not in here.handle(asked).meta) is is_allowed


# --- the file


def from_file(folder: Path, experiment: Experiment, file: Path) -> Client:
    admission = Admission(
        HERE, experiment, method_of(experiment), folder, lambda: read_policy(file)
    )
    return new_client(HERE, experiment, folder, admission=admission)


SPOILT = {
    "no YAML": "minimum_replies: [3",
    "an unknown rule": "minimum_answers: 3",
    "a rule twice as large as text": "minimum_replies: many",
    "no rules": "- minimum_replies",
    "a secret": "starting_weights: [/data/patients/secret]",
    "a rule twice": "approval: required\nminimum_sites: 3\napproval: none",
    "true for a number, which is 1": "minimum_images: true",
    "true for a share, which is 1": "maximum_share: true",
    "a number of YAML 1.1, which is 26": "minimum_images: 032",
    "1 for true": "surveys: 1",
    "code": "methods: !!python/object/apply:os.system [false]",
    "itself": "methods: &all [*all]",
}


@pytest.mark.proves(
    "files",
    "a policy that is unreadable, wrong, ambiguous or open to everybody",
    "every job is refused; only the site's log says why",
)
@pytest.mark.parametrize(
    "spoilt", [*SPOILT, "written by anybody", "a folder", "binary", "a link to nowhere"]
)
def test_a_policy_that_cannot_be_used_refuses_everything(tmp_path, caplog, spoilt):
    file = tmp_path / POLICY_FILE
    if spoilt == "a folder":
        file.mkdir()
    elif spoilt == "a link to nowhere":  # such as to a disk that is not there
        file.symlink_to(tmp_path / "nowhere")
    else:
        file.write_bytes(
            b"\xff\xfe" if spoilt == "binary" else SPOILT.get(spoilt, "approval: none").encode()
        )
    if file.exists():
        file.chmod(0o646 if spoilt == "written by anybody" else 0o644)
    experiment = hospital()
    text = refusal(from_file(tmp_path, experiment, file), request(experiment))
    assert text == (
        f"policy of {HERE}: expected a file with the site's rules, found one that cannot be used. "
        "It refuses every job; its administrator finds the reason in the site's own log."
    )
    assert str(file) in caplog.text


def test_an_empty_policy_has_all_defaults(tmp_path):
    (tmp_path / POLICY_FILE).write_text("# nothing\n")
    assert read_policy(tmp_path / POLICY_FILE) == Policy()


def test_a_changed_policy_counts_from_the_next_request(tmp_path):
    file = tmp_path / POLICY_FILE
    experiment = hospital()
    here = from_file(tmp_path, experiment, file)
    assert "error" not in here.handle(request(experiment)).meta
    file.write_text("minimum_replies: 4")
    error = here.handle(request(experiment)).meta["error"]
    assert "minimum_replies: at least 4, the job says 3" in error


def test_a_link_to_a_policy_is_followed_to_who_may_change_it(tmp_path):
    """As a cluster mounts it."""
    target = tmp_path / "data"
    target.write_text("minimum_replies: 5")
    (tmp_path / POLICY_FILE).symlink_to(target)
    assert read_policy(tmp_path / POLICY_FILE).minimum_replies == 5
    target.chmod(0o666)
    with pytest.raises(ConfigError, match="not everybody may write to, found mode 0666"):
        read_policy(tmp_path / POLICY_FILE)


def test_the_policy_of_one_user_with_all_data_forbids_nothing(tmp_path):
    experiment = hospital("fedperl", minimum_replies=1, options={**ONE_IMAGE, "anonymise": False})
    message = request(experiment, crafted(experiment), members=1)
    assert site(tmp_path, experiment, OPEN).handle(message).meta["steps"] == 1


@pytest.mark.proves(
    "server",
    "a site's card, which its file has and its policy does not let out",
    "the card stays at the site; refused rows leave in fives, with the card alone",
)
@pytest.mark.parametrize("allowed", [False, True])
def test_a_card_leaves_only_if_the_policy_lets_it(tmp_path, allowed):
    experiment = hospital()
    here = site(tmp_path, experiment, Policy(card=allowed))
    rejected = tuple(Rejected(row, f"image-{row}", "unreadable") for row in range(9))
    texts = {"devices": "one camera"}
    here.data = replace(here.data, card=texts, rejected=rejected)
    card = here.handle(request(experiment)).meta.get("card")
    assert card == ({"texts": texts, "unusable": 5} if allowed else None)


@pytest.mark.proves(
    "server",
    "right answers by the columns that a site's file names, which its policy does not let out",
    "no number of a group leaves; with them, 4 images are missing for each small group",
)
@pytest.mark.parametrize("allowed", [False, True])
def test_subgroups_leave_only_if_the_policy_lets_them(tmp_path, allowed):
    experiment = hospital()
    here = site(tmp_path, experiment, Policy(subgroups=allowed))
    images = len(here.data.test)
    groups = tuple((("F", "M")[number % 2],) for number in range(images))
    test = replace(here.data.test, subgroups=groups, patients=here.data.test.ids)
    here.data = replace(here.data, test=test, subgroups={"sex": ("F", "M")})
    binned = here.handle(request(experiment, evaluate=True)).meta["binned"]
    assert ("subgroups" in binned) == allowed
    # Patients with one image each are as good as images.
    assert binned["clusters"]["effective"] == binned["images"]
    if allowed:
        (column,) = binned["subgroups"]
        assert column["groups"] == ["F", "M", "not stated"]
        for of_class, by_group in zip(binned["images"], column["images"], strict=True):
            assert not any(by_group) or of_class - sum(by_group) == 4
        assert np.sum(column["images"]) > 0
