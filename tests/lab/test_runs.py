"""What a study asks of its runs: the settings and weights asked for, and every site at work."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedward.config import Experiment
from fedward.digests import file_digest
from fedward.errors import ConfigError, RunError
from fedward.lab.bench.runs import Bench, complete_run, note_images, require_same, run_or_resume
from fedward.lab.bench.study import Study
from running import run_local
from tiny import tiny

SITES = ["site-1", "site-2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, without_report: None) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_local(tiny("fedavg", options={"rounds": 1}), folder, sites=SITES)
    return folder


def test_a_kill_while_the_images_are_noted_leaves_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, *_: object, **__: object) -> None:
        path.touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            note_images(tmp_path / "runs", tmp_path / "sites")
    note_images(tmp_path / "runs", tmp_path / "sites")
    with pytest.raises(ConfigError, match=r"expected \.\./sites, found \.\./others\."):
        note_images(tmp_path / "runs", tmp_path / "others")


@pytest.mark.parametrize(
    ("first_weights", "waited_for"),
    [
        ({}, ["all lower seed 1"]),
        ({"lower": "other"}, ["all lower seed 1"]),
        ({"ssfl": "other", "lower": "other"}, ["all other seed 1", "all lower seed 1"]),
        ({"lower": "ssfl"}, []),
        ({"lower": "other", "other": "ssfl"}, []),
    ],
)
def test_a_row_waits_for_the_rows_that_its_report_shows_unless_they_need_it(
    first_weights: dict[str, str],
    waited_for: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = {}
    for row in ("ssfl", "lower", "other"):
        rows[row] = {"title": row, "job": "ssfl", "init": first_weights.get(row, "")}
    study = Study.model_validate(
        {"title": "Tiny", "rows": rows, "own": "ssfl", "lower": "lower", "seeds": [1]}
    )
    noted: dict[str, list[str]] = {}

    def note(
        calls: Mapping[str, partial[str]], workers: int, after: Mapping[str, list[str]]
    ) -> None:
        noted.update(after)

    monkeypatch.setattr("fedward.lab.bench.runs.run_all", note)
    bench = Bench(study, tmp_path, tmp_path / "sites", tmp_path / "results.jsonl", {})
    bench.run(study.cells(), 1)
    assert noted["all ssfl seed 1"] == waited_for


def experiment_of(rate: float) -> Experiment:
    return tiny("fedavg", options={"rounds": 1, "learning_rate": rate})


def test_a_run_is_not_continued_with_other_settings(whole: Path, tmp_path: Path) -> None:
    before = (whole / "run.json").read_bytes()
    found = r"settings: expected options\.learning_rate=0\.002, found options\.learning_rate="
    with pytest.raises(ConfigError, match=f"{found}.*--out"):
        run_or_resume(experiment_of(2e-3), whole, SITES, None, tmp_path)
    assert (whole / "run.json").read_bytes() == before


def copied(whole: Path, to: Path) -> Path:
    """Return a copy of the finished run's folder, without its states."""
    to.mkdir()
    for file in whole.glob("*.json*"):
        (to / file.name).write_bytes(file.read_bytes())
    return to


def changed(file: Path, **values: Any) -> None:
    """Change some values of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_site_that_did_not_train_is_named(whole: Path, tmp_path: Path) -> None:
    assert complete_run(whole).folder == whole
    broken = copied(whole, tmp_path / "run")
    row = json.loads((broken / "rounds.jsonl").read_text().splitlines()[0])
    (broken / "rounds.jsonl").write_text(
        json.dumps({**row, "failed": {"site-2": "no finite loss"}}) + "\n"
    )
    found = "round 1: expected all sites to train, found site-2: no finite loss"
    with pytest.raises(RunError, match=found):
        complete_run(broken)


def test_a_site_without_anything_to_train_on_has_not_failed(whole: Path, tmp_path: Path) -> None:
    broken = copied(whole, tmp_path / "run")
    row = json.loads((broken / "rounds.jsonl").read_text().splitlines()[0])
    declined = {"site-2": "took no training step: 0 labelled, 20 unlabelled images"}
    (broken / "rounds.jsonl").write_text(json.dumps({**row, "failed": declined}) + "\n")
    assert complete_run(broken).folder == broken


def test_a_site_that_did_not_judge_the_last_model_is_named(whole: Path, tmp_path: Path) -> None:
    broken = copied(whole, tmp_path / "run")
    summary = json.loads((broken / "run.json").read_text())["summary"]
    changed(broken / "run.json", summary={**summary, "not_evaluated": {}})
    assert complete_run(broken).folder == broken
    changed(broken / "run.json", summary={**summary, "not_evaluated": {"site-2": "out of memory"}})
    with pytest.raises(RunError, match=r"last evaluation: .* found site-2: out of memory"):
        complete_run(broken)


def test_a_run_that_has_not_finished_is_no_whole_one(whole: Path, tmp_path: Path) -> None:
    changed(copied(whole, tmp_path / "run") / "run.json", status="failed")
    with pytest.raises(RunError, match="expected one that has finished, found failed"):
        complete_run(tmp_path / "run")


def test_a_run_of_another_version_or_a_damaged_one_is_told(whole: Path, tmp_path: Path) -> None:
    experiment = experiment_of(1e-3)
    file = copied(whole, tmp_path / "run") / "run.json"
    require_same(file.parent, experiment)
    content = file.read_text()
    changed(file, format=99)
    with pytest.raises(
        RunError, match=r"run\.json: expected format 3, found format 99\. .* version that wrote it"
    ):
        require_same(file.parent, experiment)
    file.write_text(content)
    changed(file, experiment={**json.loads(content)["experiment"], "gone": 1})
    with pytest.raises(ConfigError, match=f"run folder {file.parent}: .* found gone"):
        require_same(file.parent, experiment)
    file.write_text("{")
    with pytest.raises(RunError, match=r"expected a readable run\.json"):
        require_same(file.parent, experiment)


def test_a_run_that_began_with_other_weights_is_refused(whole: Path, tmp_path: Path) -> None:
    experiment = experiment_of(1e-3)
    run = copied(whole, tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"expected one from the weights in .*, found one from fresh weights"
    ):
        require_same(run, experiment, whole)
    changed(run / "run.json", init={"folder": "elsewhere", "sha256": "0" * 64})
    for init in (None, whole):
        with pytest.raises(ConfigError, match="found one from others, SHA-256 0000"):
            require_same(run, experiment, init)
    require_same(run, experiment, tmp_path / "not there yet")
    changed(run / "run.json", init={"sha256": file_digest(whole / "model.safetensors")})
    require_same(run, experiment, whole)
