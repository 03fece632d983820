"""What ``fedward settings`` says of every key of ``--set``, and the suggestion for a wrong one."""

import json
from pathlib import Path

import pytest

from fedward import cli
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.jobs import JOBS, load_experiment, written_out
from fedward.operation.settings_command import SHOWN_WHOLE
from fedward.operation.settings_list import all_groups, groups_of
from fedward.registry import METHODS, SURVEY
from fedward.runs.settings import all_settings

NAMES = [*METHODS, SURVEY]


@pytest.mark.parametrize("method", NAMES)
def test_every_setting_is_listed_once_and_described(method: str) -> None:
    settings = [setting for group in groups_of(method) for setting in group.settings]
    keys = [setting.key for setting in settings]
    experiment = Experiment(method=method, trainable="head" if method == "oneshot" else "all")
    assert sorted(keys) == sorted(all_settings(experiment, SHOWN_WHOLE))
    assert [setting.key for setting in settings if not setting.about] == []


@pytest.mark.parametrize("method", NAMES)
def test_every_key_takes_its_default(method: str) -> None:
    trainable = "head" if method == "oneshot" else "all"
    settings = [setting for group in groups_of(method) for setting in group.settings]
    changes = {setting.key: setting.default for setting in settings}
    changes |= {"method": method, "trainable": trainable}
    changed = load_experiment(method, [f"{key}={value}" for key, value in changes.items()])
    assert written_out(changed) == written_out(Experiment(method=method, trainable=trainable))


def test_all_methods_settings_are_listed_once_together() -> None:
    groups = all_groups()
    listed = {setting.key for group in groups for setting in group.settings}
    assert listed == {
        setting.key for method in NAMES for group in groups_of(method) for setting in group.settings
    }
    titles = [group.title for group in groups]
    assert "FedPerl's settings. (fedperl)" in titles
    assert sum(title.endswith("All methods have them.") for title in titles) == 1


@pytest.mark.parametrize(
    ("key", "values", "default"),
    [
        ("rounds", "whole number, 1 or more", "25"),
        ("data.image_size", "whole number, 16 to 1024", "32"),
        ("data.channels", "one of 1, 3", "3"),
        ("data.multi_label", "true or false", "false"),
        ("largest_share", "number, above 0, at most 1", "0.5"),
        ("average_decay", "number, 0 or more, below 1", "0.0"),
        ("participants", "whole number, 1 or more; or null", "null"),
        ("pretrained", "true or false; or {file: ..., sha256: ...}", "false"),
        ("metrics", "list of values, each text", "[]"),
        ("method", "text", ""),
    ],
)
def test_types_ranges_and_defaults_are_those_of_the_models(
    key: str, values: str, default: str
) -> None:
    settings = {setting.key: setting for group in groups_of("fedal") for setting in group.settings}
    assert (settings[key].values, settings[key].default) == (values, default)


def test_a_job_says_where_it_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["settings", "fedperl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("  rounds: whole number, 1 or more; default 500; in this job 5")
    assert lines[place + 1] == "      R: communication rounds. Paper: 500."
    assert "  batch: whole number, 1 or more; default 16" in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("unknown", "suggested"),
    [
        ("lr", "learning_rate"),
        ("wd", "weight_decay"),
        ("epochs", "local_epochs"),
        ("batch_size", "batch"),
        ("optimiser", "optimizer"),
        ("data.imagesize", "data.image_size"),
        ("data.size", "data.image_size"),
        ("image_size", "data.image_size"),
        ("classes", "data.classes"),
        ("sites", "synthetic.sites"),
        ("synthetic.label", "synthetic.labelled"),
    ],
)
def test_a_wrong_key_gets_the_likely_one(unknown: str, suggested: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment("fedavg", [f"{unknown}=1"])
    assert f"found {unknown}: unknown (did you mean {suggested}?)." in str(caught.value)
    assert str(caught.value).endswith("`fedward settings` lists all.")


def test_a_key_like_no_other_gets_none() -> None:
    with pytest.raises(ConfigError, match=r"found qqq: unknown\."):
        load_experiment("fedavg", ["qqq=1"])


@pytest.mark.parametrize("job", ["fedperl", "selffed", "fedal"])
def test_what_would_run_is_a_job_of_the_same_settings(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", job, "--show", "--set", "seed=7", "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    file = tmp_path / "job.json"
    file.write_text(shown)
    experiment = load_experiment(str(file))
    assert experiment.seed == 7
    expected = all_settings(JOBS[job](), SHOWN_WHOLE) | {"seed": 7}
    assert all_settings(experiment, SHOWN_WHOLE) == expected
    assert json.loads(shown)["options"].keys() >= {"rounds", "learning_rate", "batch"}
    assert cli.main(["run", str(file), "--show"]) == 0
    assert capsys.readouterr().out == shown
