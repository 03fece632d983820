"""The named controllers: typed arguments that come from the methods' settings, and clear errors."""

import inspect

import pytest
from nvflare.fuel.utils.class_loader import load_class

from fedward.errors import ConfigError
from fedward.flare.classes import ALLOWED, AVERAGING, CONTROLLERS
from fedward.flare.jobs.configurations import controller
from fedward.flare.workflows import AveragingController, FedPerlController
from fedward.methods import METHODS, settings_of
from tiny import tiny


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_an_admitted_controller(method):
    path, arguments = controller(tiny(method))
    assert path in ALLOWED["server"]
    assert load_class(path)(**arguments).experiment.method == method


@pytest.mark.parametrize(("method", "path"), CONTROLLERS.items())
def test_a_controllers_arguments_are_the_settings_of_its_method(method, path):
    settings = settings_of(method, {})
    found = inspect.signature(load_class(path)).parameters
    assert list(found) == [*type(settings).model_fields, "experiment", "init"]
    assert {name: found[name].default for name in type(settings).model_fields} == dict(settings)
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in found.values())


def test_averaging_names_the_methods_without_own_controllers():
    annotation = inspect.signature(AveragingController).parameters["method"].annotation
    assert set(annotation.__args__) == set(METHODS) - set(CONTROLLERS)
    assert controller(tiny("fedprox"))[0] == AVERAGING


@pytest.mark.parametrize(
    ("arguments", "told"),
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
def test_wrong_arguments_are_refused_by_name(arguments, told):
    with pytest.raises(ConfigError) as error:
        FedPerlController(**arguments)
    assert str(error.value).startswith("arguments of FedPerlController: expected ")
    assert told in str(error.value)


def test_averaging_refuses_a_method_that_is_none():
    with pytest.raises(ConfigError, match="expected one of fedavg, "):
        AveragingController("nonsense")
    with pytest.raises(ConfigError, match="committee: unknown"):
        AveragingController("fedavg", committee=2)
