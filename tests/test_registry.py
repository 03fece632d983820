"""Names of other packages: when they are looked up, and errors where they clash or are broken."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from fedward.errors import ConfigError
from fedward.jobs import load_experiment
from fedward.nets import build
from fedward.registry import (
    KINDS,
    METHODS,
    METRICS,
    NETWORKS,
    SAMPLERS,
    VIEWS,
    Extension,
    extensions,
)
from installed import install
from tiny import tiny


def test_every_built_in_name_leads_to_something_of_its_kind():
    for registry in KINDS.values():
        for name in registry.builtin:
            registry._require(registry[name], name)
    assert METHODS["fedal"].__name__ == "FedAL"


def test_a_package_adds_one_name_of_each_kind(tmp_path, monkeypatch):
    code = """
        from fedward.methods.fedavg import FedAvg as Method
        from fedward.methods.samplers.base import Random as Sampler
        from fedward.nets import SmallCNN as Net
        from fedward.views.recipes import UPRIGHT
        def share_sure(probabilities, labels):
            return float((probabilities.max(axis=1) > 0.5).mean())
    """
    added = {
        "method": "Method",
        "network": "Net",
        "sampler": "Sampler",
        "view": "UPRIGHT",
        "metric": "share_sure",
    }
    points = {kind: {f"my_{kind}": f"mine:{target}"} for kind, target in added.items()}
    install(tmp_path, monkeypatch, "my-package", "mine", dedent(code), **points)
    for kind, registry in KINDS.items():
        name = f"my_{kind}"
        assert registry.extension(name) == Extension(kind, name, "my-package", "1.0")
        assert "mine" not in sys.modules or kind != "method", "a look at the name imports nothing"
        assert name in registry
        assert name not in list(registry), "a mapping of what is built in"
        assert registry[name] is getattr(sys.modules["mine"], added[kind])
    experiment = tiny("fedavg", net="my_network", metrics=("my_metric",), key_metric="my_metric")
    assert [str(found) for found in experiment.extensions] == [
        "my-package==1.0:my_network",
        "my-package==1.0:my_metric",
    ]


def test_a_name_that_is_built_in_is_refused_with_both(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "shadow", "shadow", "", method={"fedavg": "shadow:FedAvg"})
    with pytest.raises(
        ConfigError, match=r"method fedavg: .* found fedward itself and shadow==1.0:fedavg"
    ):
        METHODS["fedavg"]
    assert METHODS["fedprox"], "others are as they were"
    assert "shadow" not in sys.modules


def test_a_name_that_two_packages_offer_is_refused_with_both(tmp_path, monkeypatch):
    for package in ("one", "two"):
        install(
            tmp_path / package, monkeypatch, package, package, "", view={"odd": f"{package}:ODD"}
        )
    with pytest.raises(
        ConfigError, match=r"one==1.0:odd and two==1.0:odd|two==1.0:odd and one==1.0:odd"
    ):
        VIEWS["odd"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_module", "no_such_module"),
        ("", "has no attribute 'thing'"),
        ("thing = 3", "expected an object with __call__"),
    ],
)
def test_a_broken_package_is_named_and_breaks_no_other(tmp_path, monkeypatch, code, told):
    points = {"broken": "broken_module:thing"}
    install(tmp_path, monkeypatch, "broken", "broken_module", code, network=points)
    with pytest.raises(ConfigError, match=f"network.* broken==1.0:broken.*{told}"):
        NETWORKS["broken"]
    assert NETWORKS["small_cnn"](2, 1)


def test_an_unknown_name_is_told_with_those_there_are(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "more", "more", "", sampler={"oracle": "more:Oracle"})
    with pytest.raises(
        ConfigError,
        match=r"sampler: expected one of random, .*core_set, oracle, found 'orakel'",
    ):
        SAMPLERS["orakel"]


def test_names_of_packages_are_suggested(tmp_path, monkeypatch):
    points = {"method": {"scaffold": "more:Scaffold"}, "network": {"two_layers": "more:TwoLayers"}}
    install(tmp_path, monkeypatch, "more", "more", "", **points)
    with pytest.raises(ConfigError, match=r"no job scafold \(did you mean scaffold\?\)"):
        load_experiment("scafold")
    with pytest.raises(ConfigError, match=r"net two_layr: .*Perhaps: two_layers"):
        build("two_layr", 2)


def test_what_is_registered_can_be_replaced_and_shadows_nothing(monkeypatch):
    monkeypatch.setattr(METRICS, "registered", {})
    METRICS.register("zero", lambda probabilities, labels: 0.0)
    METRICS.register("zero", lambda probabilities, labels: None)
    assert METRICS["zero"](None, None) is None
    with pytest.raises(
        ConfigError, match="metric accuracy: expected a new name, found fedward itself"
    ):
        METRICS.register("accuracy", lambda probabilities, labels: 1.0)
    with pytest.raises(ConfigError, match="metric five: expected an object with __call__"):
        METRICS.register("five", 5)


@pytest.mark.parametrize(
    "raw", [{}, {"data": 3, "options": [], "metrics": "x"}, {"method": ["a"], "metrics": [3, {}]}]
)
def test_what_is_no_experiment_needs_nothing(raw):
    assert extensions(raw) == []


def test_files_that_are_not_installed_add_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "loose.py").write_text("Method = 1")
    with pytest.raises(ConfigError, match="found 'loose'"):
        METHODS["loose"]
