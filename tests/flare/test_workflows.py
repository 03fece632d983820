"""The controllers that jobs name: typed arguments, clear errors, and what each round is for."""

import inspect

import pytest
from nvflare.fuel.utils.class_loader import load_class

from fedward.errors import ConfigError
from fedward.flare.classes import ALLOWED, CONTROLLERS, METHOD_CONTROLLER
from fedward.flare.jobs.configurations import controller
from fedward.flare.workflows import (
    AloneController,
    FedALController,
    FedIRMController,
    FedMatchController,
    FedPerlController,
    IsoFedController,
    MethodController,
    SelfFedController,
)
from fedward.methods import method_of, settings_of
from fedward.methods.workflow import QUERY
from fedward.registry import METHODS
from tiny import tiny


@pytest.mark.parametrize("method", [*METHODS, "survey"])
def test_every_method_has_an_admitted_controller(method):
    path, arguments = controller(tiny(method))
    assert path in ALLOWED["server"]
    assert load_class(path)(**arguments).experiment.method == method


@pytest.mark.parametrize(("method", "path"), CONTROLLERS.items())
def test_a_controllers_arguments_are_the_settings_of_its_method(method, path):
    settings = settings_of(method, {})
    parameters = inspect.signature(load_class(path)).parameters
    names = list(type(settings).model_fields)
    assert list(parameters) == [*names, "experiment", "init"]
    assert {name: parameters[name].default for name in names} == dict(settings)
    for parameter in parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(CONTROLLERS)))
def test_methods_without_a_controller_of_their_own_share_one(method):
    path, arguments = controller(tiny(method))
    assert path == METHOD_CONTROLLER
    assert arguments["method"] == method


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"commitee": 3}, "commitee: unknown (did you mean committee?)"),
        ({"rounds": 0}, "rounds: 0, not 1 or more"),
        ({"participants": "few"}, "participants: 'few', not a whole number"),
        ({"experiment": {"net": "small_cnn", "colour": 1}}, "colour: unknown"),
        ({"experiment": {"method": "fedavg"}}, "without method and options"),
        ({"experiment": {"options": {"rounds": 1}}}, "without method and options"),
        ({"experiment": ["net"]}, "expected an argument experiment that is a mapping"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments, text):
    problem = FedPerlController(**arguments).problem
    assert isinstance(problem, ConfigError)
    assert str(problem).startswith("arguments of FedPerlController: expected ")
    assert text in str(problem)


def test_the_shared_controller_refuses_an_unknown_method_and_another_methods_setting():
    assert "method: expected one of fedavg, " in str(MethodController("nonsense").problem)
    assert "committee: unknown" in str(MethodController("fedavg", committee=2).problem)
    assert MethodController("fedavg").problem is None


# --- what a round is for


def test_fedperl_has_peers_after_the_warm_up():
    federation = FedPerlController(rounds=4, warm_up=2, committee=3)
    assert federation.round_purpose(2) == "warm-up without peers, until round 2"
    assert federation.round_purpose(3) == (
        "participants train with at most 3 peers each: the models most like their own"
    )
    fedmatch = FedPerlController(rounds=4, warm_up=2, similarity="answers")
    assert fedmatch.round_purpose(3).endswith(
        "at most 2 peers each: the models that answer an image of noise most like their own"
    )
    drawn = FedPerlController(rounds=4, warm_up=2, committee=3, peers="random")
    assert drawn.round_purpose(3).endswith("at most 3 peers each: models drawn at random")
    alone = FedPerlController(rounds=4, warm_up=2, committee=0)
    assert alone.round_purpose(3) == "participants train, without peers"


def test_isofed_asks_the_unlabelled_group_first():
    federation = IsoFedController(rounds=3, warm_up=1)
    assert federation.round_purpose(1) == "warm-up of sites with labels alone, until round 1"
    assert federation.round_purpose(2) == "sites without labels, then sites with labels"
    exchanges = method_of(federation.experiment).requirements.server.exchanges
    assert len(IsoFedController.GROUPS) == exchanges


def test_fedal_says_which_rounds_are_query_rounds():
    federation = FedALController(rounds=8, query_every=2, steps=2)
    purposes = [federation.round_purpose(round_) for round_ in range(1, 9)]
    assert purposes == [
        "sites train; the next query comes in round 3",
        "sites train; the next query comes in round 3",
        "query 1 of 2: sites ask for labels, then train",
        "sites train; the next query comes in round 5",
        "query 2 of 2: sites ask for labels, then train",
        *3 * ["sites train; those that missed a query ask for its labels"],
    ]


@pytest.mark.parametrize("query_every", [1, 2, 3])
def test_fedals_query_rounds_are_those_of_the_method(query_every):
    federation = FedALController(rounds=12, query_every=query_every, steps=3)
    queries = method_of(federation.experiment).active
    for round_ in range(1, 13):
        is_training_round = federation.round_purpose(round_).startswith("sites train; the next")
        assert is_training_round == (queries.task(round_) != QUERY)


def test_selffed_has_two_phases():
    experiment = {"net": "masked_swin_32", "data": {"image_size": 32}}
    federation = SelfFedController(
        experiment, rounds=5, pretraining_rounds=2, pretraining_warm_up=0, warm_up=0
    )
    purposes = [federation.round_purpose(round_) for round_ in range(1, 6)]
    assert purposes == [
        "phase 1, pre-training without labels: round 1 of 2",
        "phase 1, pre-training without labels: round 2 of 2",
        "phase 2, fine-tuning with labels: round 1 of 3",
        "phase 2, fine-tuning with labels: round 2 of 3",
        "phase 2, fine-tuning with labels: round 3 of 3",
    ]


def test_fedmatch_says_when_sites_have_helpers():
    federation = FedMatchController(rounds=5, helper_every=2)
    with_helpers = (
        "participants train with at most 2 helpers each: the sites whose models answer an image of "
        "noise most like their own"
    )
    assert [federation.round_purpose(round_) for round_ in range(1, 6)] == [
        "participants train; the next helpers come in round 2",
        with_helpers,
        "participants train; the next helpers come in round 4",
        with_helpers,
        "participants train, without helpers",
    ]
    assert FedMatchController(rounds=4, helper_every=1).round_purpose(4) == with_helpers
    with_one = FedMatchController(rounds=4, helper_every=1, helpers=1).round_purpose(4)
    assert with_one.startswith("participants train with at most 1 helper each: ")
    without = FedMatchController(rounds=4, helper_every=2, helpers=0)
    assert {without.round_purpose(round_) for round_ in (1, 2)} == {
        "participants train, without helpers"
    }


def test_fedirm_relates_classes_after_the_warm_up():
    federation = FedIRMController(rounds=3, warm_up=2)
    assert federation.round_purpose(2) == "warm-up of sites with labels alone, until round 2"
    assert federation.round_purpose(3) == (
        "sites with labels measure how classes relate, and sites without labels match it"
    )


def test_nothing_is_averaged_where_sites_train_alone():
    purpose = AloneController(rounds=2).round_purpose(1)
    assert purpose == "each site trains a model of its own; nothing is averaged"


def test_rounds_say_that_the_labels_are_at_the_server():
    then = "; then the server trains on its labelled images"
    fedperl = FedPerlController(rounds=4, warm_up=2, server_labels=True)
    assert fedperl.round_purpose(1) == f"warm-up without peers, until round 2{then}"
    assert fedperl.round_purpose(3) == (
        f"participants train with at most 2 peers each: the models most like their own{then}"
    )
    ssfl = MethodController("ssfl", rounds=2, server_labels=True)
    assert ssfl.round_purpose(1) == f"sites train without labels{then}"
    server_alone = MethodController("fedavg", rounds=2, server_labels=True)
    assert server_alone.round_purpose(1) == (
        "the server trains on its labelled images; sites have nothing to learn from"
    )


def test_rounds_of_other_methods_are_all_alike():
    assert MethodController("fedavg", rounds=2).round_purpose(1) == ""
