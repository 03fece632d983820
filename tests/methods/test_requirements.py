"""What methods declare, and that the parts of the package they share name none of them."""

import ast
from pathlib import Path
from typing import Any

import pytest

import fedward
from fedward.config import DataSpec
from fedward.errors import ConfigError
from fedward.methods import job_of, method_of, methods_supporting
from fedward.methods.requirements import Feature, Requirements
from fedward.methods.survey import Survey
from fedward.registry import METHODS
from tiny import tiny

PACKAGE = Path(fedward.__file__).parent
SHARED = ("abilities", "algorithm", "local", "requirements", "settings", "steps", "workflow")
"""Modules below ``methods/`` that every method imports."""


def test_features_are_supported_unless_they_need_code_in_the_method() -> None:
    undeclared = Requirements()
    with_reason = {feature for feature in Feature if undeclared.reason_against(feature)}
    assert with_reason == {Feature.SEVERAL_LABELS}


def test_a_reason_of_its_own_replaces_the_default() -> None:
    requirements = Requirements(reasons_against={Feature.SEVERAL_LABELS: "loss=x is for one label"})
    assert requirements.reason_against(Feature.SEVERAL_LABELS) == "loss=x is for one label"


def test_an_empty_reason_declares_support() -> None:
    requirements = Requirements(reasons_against={Feature.SEVERAL_LABELS: ""})
    assert requirements.reason_against(Feature.SEVERAL_LABELS) == ""


def test_methods_are_found_by_what_they_declare() -> None:
    assert "fedavg" in methods_supporting([Feature.SEVERAL_LABELS, Feature.SECURE_AGGREGATION])
    assert "fedprox" not in methods_supporting([Feature.SEVERAL_LABELS])
    whole_or_head = methods_supporting([Feature.TRAIN_ALL, Feature.TRAIN_HEAD])
    assert set(METHODS) - set(whole_or_head) == {"fedmatch", "oneshot", "selffed"}


def test_a_survey_is_a_job_but_no_method() -> None:
    survey = tiny("survey")
    assert isinstance(job_of(survey), Survey)
    with pytest.raises(ConfigError, match="a survey trains nothing and has no model"):
        method_of(survey)
    assert "survey" not in METHODS
    with pytest.raises(ConfigError, match="found fedward itself"):
        METHODS.register("survey", METHODS["fedavg"])


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (
            {"data": DataSpec(multi_label=True)},
            "data.multi_label=true: it is written for one label an image. "
            "Set data.multi_label=false.",
        ),
        (
            {"trainable": "head"},
            "trainable=head: it has no model. Set trainable=all.",
        ),
    ],
)
def test_what_a_survey_cannot_do_is_no_reason_to_train(
    changes: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny("survey", **changes)
    assert str(caught.value) == f"survey cannot work with {refusal}"


@pytest.mark.parametrize("module", SHARED)
def test_what_methods_share_imports_none_of_them(module: str) -> None:
    tree = ast.parse((PACKAGE / "methods" / f"{module}.py").read_text(encoding="utf-8"))
    method_modules = {target.partition(":")[0] for target in METHODS.builtin.values()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for name in method_modules:
                assert not f"{node.module}.".startswith(f"{name}."), node.module


def test_the_check_of_an_experiment_names_no_method() -> None:
    tree = ast.parse((PACKAGE / "config.py").read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert not texts & set(METHODS)
