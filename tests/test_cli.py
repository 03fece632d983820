"""The command: what it leaves behind, its exit codes, and that wrong use ends in a sentence, never
in a traceback.
"""

import argparse
import csv
import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from safetensors import SafetensorError

from fedward import cli
from fedward.code_version import code_version
from fedward.config import DERMOSCOPY, DataSpec, Experiment
from fedward.errors import ConfigError
from fedward.flare.jobs.configurations import experiment_in
from fedward.jobs import JOBS, load_experiment, site_names
from fedward.lab.fedward_run import _exceptions, _one_interruption
from fedward.lab.local import LocalTransport
from fedward.lab.partition.fedperl import FEDPERL_SOURCES
from fedward.paper_jobs import PAPER_JOBS
from fedward.storage.info import INTERRUPTED
from fedward.storage.run_folder import RunFolder
from run_files import assert_equal, weights

TINY = [
    "rounds=2",
    "participants=2",
    "images_per_round=8",
    "batch=4",
    "seed=5",
    "net=small_cnn",
    "evaluate_every=2",
    "data.image_size=16",
    "synthetic.images=40",
    "synthetic.labelled=0.5",
]
SET = [word for change in TINY for word in ("--set", change)]


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def info(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return content


def refused(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    """Return the one message on stderr of a command that ends with ``code``."""
    capsys.readouterr()
    assert run(*arguments) == code
    text = capsys.readouterr().err
    assert text.startswith("fedward: ")
    assert "Traceback" not in text
    return text


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert run("run", "fedperl", "--out", folder, "--sites", 2, *SET, "--set", "warm_up=1") == 0
    return folder


# --- run


def test_a_job_runs_with_changed_settings(finished: Path) -> None:
    about = info(finished)
    experiment = Experiment.parse(about["experiment"], "test")
    assert (about["status"], about["engine"], about["sites"]) == (
        "finished",
        "local",
        ["site-1", "site-2"],
    )
    assert (experiment.method, experiment.seed, experiment.data.image_size) == ("fedperl", 5, 16)
    assert experiment.options["rounds"] == 2
    assert experiment.synthetic is not None
    assert experiment.synthetic.images == 40
    assert (finished / "model.safetensors").exists()


def test_the_folder_is_named_after_the_job_if_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = tmp_path / "mine.json"
    job.write_text(load_experiment("fedavg", TINY).model_dump_json())
    assert run("run", job, "--sites", 2, "--set", "rounds=1") == 0
    assert info(tmp_path / "runs" / "mine")["experiment"]["options"]["rounds"] == 1


def test_results_are_never_overwritten(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    text = refused(capsys, 1, "run", "fedavg", "--out", finished, *SET)
    assert str(finished) in text
    assert "new or empty folder" in text
    assert before == {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "expected a job"),
        (["nope"], "job nope"),
        (["fedpearl"], "There is no job fedpearl (did you mean fedperl?). Correct the name."),
        (["fedavg", "--set", "rounds"], "expected KEY=VALUE, found rounds"),
        (["fedavg", "--set", "rounds=0"], "rounds: "),
        (["fedavg", "--set", "rounds=many"], "rounds: "),
        (["fedavg", "--set", "roundz=3"], "roundz: unknown (did you mean rounds?)"),
        (["fedavg", "--set", "=3"], "expected KEY=VALUE, found =3"),
        (["fedavg", "--set", "rounds=["], "--set rounds"),
        (["fedavg", "--set", "net.depth=3"], "net.depth: net has none"),
        (["fedavg", "--set", "method=fedmagic"], "fedmagic"),
        (["fedavg", "--set", "data.image_size=2"], "data.image_size: "),
        (["fedavg", "--set", "data={image_size: 2}"], "data.image_size: "),
        (["fedperl", "--set", "committee=1"], "committee=1"),
        (["fedavg", "--sites", "0"], "at least 1 site"),
        (
            ["fedavg", "--init", "x"],
            "expected model.safetensors and model.json",
        ),
        (["fedavg", "--init", "no/such/run"], "expected model.safetensors and model.json"),
    ],
)
def test_wrong_use_is_a_sentence_and_exit_code_2(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in refused(capsys, 2, "run", *arguments, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "content", ["[]", "{", "3", '{"method": "ssfl", "options": null}', '{"method": "ssfl", "x": 1}']
)
def test_a_broken_job_file_is_a_sentence(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.json"
    job.write_text(content)
    for changes in ([], ["--set", "rounds=3"]):
        assert str(job) in refused(capsys, 2, "run", job, "--out", tmp_path / "run", *changes)


@pytest.mark.parametrize(
    "arguments",
    [
        ["dance"],
        ["run", "fedavg", "--sites", "x"],
        ["partition"],
    ],
)
def test_what_the_parser_refuses_has_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("fedward")
    assert text.endswith(" --help` says what there is.\n")
    assert text.count("\n") == 1


def test_an_unknown_command_is_told_what_may_be_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("rnu", "fedavg")
    assert "there is no command rnu (did you mean run?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "command", "named"),
    [
        (
            ["run", "fedavg", "--sett", "rounds=3"],
            "fedward run",
            "--sett (did you mean --set?)",
        ),
        (
            ["audit", "verify", "a", "--sites", "b"],
            "fedward audit verify",
            "--sites (did you mean --site?)",
        ),
        (
            ["run", "fedavg", "--site-file", "sites"],
            "fedward run",
            "--site-file (did you mean --site-files?)",
        ),
        (
            ["run", "fedavg", "--resu=runs/a"],
            "fedward run",
            "--resu (did you mean --resume?)",
        ),
        (
            ["doctor", "sites", "--im", "28"],
            "fedward doctor",
            "--im (did you mean --image-size?)",
        ),
        (
            ["partition", "images", "--ou", "sites"],
            "fedward partition",
            "--ou (did you mean --out?)",
        ),
        (
            ["run", "fedavg", "--site", "3"],
            "fedward run",
            "--site (did you mean --sites or --site-files?)",
        ),
    ],
)
def test_an_unknown_option_is_refused_by_its_subcommand(
    arguments: list[str], command: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(*arguments)
    text = capsys.readouterr().err
    assert text == f"{command}: no such argument: {named}. `{command} --help` says what there is.\n"


def test_without_a_word_the_command_lists_its_subcommands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        run()
    assert {"run", "doctor", "annotate"} <= set(capsys.readouterr().err.split())


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"fedward {code_version()}\n"


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_a_run_tells_only_what_is_wanted(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert run("run", "fedavg", option, "--out", folder, "--sites", 2, *SET) == 0
    lines = capsys.readouterr().out.splitlines()
    if option == "--quiet":
        assert len(lines) == 1
        assert lines[0].endswith(f": {folder}")
    else:
        assert [json.loads(line)["event"] for line in lines] == [
            "started",
            "evaluated",
            "round",
            "round",
            "evaluated",
            "finished",
        ]
    assert run("run", "--resume", folder, option) == 0
    assert capsys.readouterr().out.splitlines() == lines[-1:]


# --- site files


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """A folder with the files of two sites that are not called site-1 and site-2."""
    folder = tmp_path / "hospitals"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (16, 16, 16, 3), np.uint8)
    labels = np.arange(16) % 2
    arrays = {}
    for split in ("train", "val", "test"):
        arrays |= {f"{split}_images": images, f"{split}_labels": labels}
    np.savez(folder / "images.npz", **arrays)
    known = json.dumps(dict(enumerate(DERMOSCOPY)))
    for name in ("hospital-a", "hospital-b"):
        (folder / f"{name}.yaml").write_text(f"{{kind: npz, file: images.npz, labels: {known}}}")
    return folder


def test_missing_site_files_do_not_become_synthetic_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--out",
        tmp_path / "run",
        "--site-files",
        tmp_path / "typo",
        "--sites",
        2,
        *SET,
    ]
    assert f"site files {tmp_path / 'typo'}: " in refused(capsys, 2, "run", "fedavg", *arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("named", ["option", "variable"])
def test_the_sites_are_those_that_have_files(
    named: str, hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named == "variable":
        monkeypatch.setenv("FEDWARD_SITES", str(hospitals))
    files = ["--site-files", hospitals] if named == "option" else []
    assert run("run", "fedavg", "--out", tmp_path / "run", *files, *SET, "--set", "rounds=1") == 0
    assert info(tmp_path / "run")["sites"] == ["hospital-a", "hospital-b"]
    (row,) = [
        json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    ]
    assert row["replied"] == ["hospital-a", "hospital-b"]


def test_a_run_without_a_site_is_one_in_which_its_file_is_absent(
    hospitals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(hospitals / "hospital-b.yaml", hospitals / "hospital-c.yaml")
    arguments = ["run", "fedavg", "--site-files", hospitals, *SET, "--out"]
    text = refused(capsys, 2, *arguments, tmp_path / "run", "--without", "hospital-d")
    assert "--without hospital-d: expected one of hospital-a, hospital-b, hospital-c" in text
    names = ("hospital-a", "hospital-b", "hospital-c")
    nobody = [argument for name in names for argument in ("--without", name)]
    assert "--without: expected a site that is left" in refused(
        capsys, 2, *arguments, tmp_path / "run", *nobody
    )
    assert run(*arguments, tmp_path / "without", "--without", "hospital-b") == 0
    (hospitals / "hospital-b.yaml").unlink()
    assert run(*arguments, tmp_path / "absent") == 0
    assert info(tmp_path / "without")["sites"] == ["hospital-a", "hospital-c"]
    assert_equal(weights(tmp_path / "without"), weights(tmp_path / "absent"))


# --- changes of settings


def test_changes_go_to_the_experiment_or_to_the_method() -> None:
    changes = [
        "rounds=7",
        "learning_rate=2e-3",
        "options.batch=8",
        "net=resnet18",
        "synthetic=null",
        "data.channels=1",
    ]
    experiment = load_experiment("fedperl", changes)
    assert experiment.options["rounds"] == 7
    assert float(experiment.options["learning_rate"]) == 2e-3
    assert experiment.options["batch"] == 8
    assert (experiment.net, experiment.synthetic, experiment.data.channels) == ("resnet18", None, 1)
    assert experiment.data.image_size == JOBS["fedperl"]().data.image_size


def test_off_and_no_are_words_and_true_is_not() -> None:
    experiment = load_experiment(
        "selffed", ["contrastive=off", "data.classes=[NO, yes]", "pretrained=true"]
    )
    assert experiment.options["contrastive"] == "off"
    assert experiment.data.classes == ("NO", "yes")
    assert experiment.pretrained is True


def test_later_changes_win_and_shipped_jobs_stay_as_they_are() -> None:
    before = {name: job().model_dump_json() for name, job in JOBS.items()}
    experiment = load_experiment(
        "ssfl", ["rounds=7", "rounds=9", "synthetic=null", "synthetic.labelled=0.3"]
    )
    assert experiment.options["rounds"] == 9
    assert experiment.synthetic is not None
    assert experiment.synthetic.labelled == 0.3
    again = ["synthetic.labelled=0.1", "synthetic=null", "synthetic.labelled=0.3"]
    again += ["data={image_size: 64}", "data.channels=1"]
    fields = {"channels": 3, "image_size": 128}
    experiment = load_experiment("ssfl", again, data=fields)
    assert experiment.synthetic is not None
    assert experiment.synthetic.labelled == 0.3
    assert (experiment.data.image_size, experiment.data.channels) == (64, 1)
    assert before == {name: job().model_dump_json() for name, job in JOBS.items()}


def test_other_classes_are_of_another_data_set(tmp_path: Path) -> None:
    change = ["data.classes=[normal, pneumonia]"]
    assert load_experiment("fedavg", change).data.name == "images"
    assert load_experiment("fedavg", [*change, "data.name=chest"]).data.name == "chest"
    whole = "data={classes: [normal, pneumonia], multi_label: true}"
    assert load_experiment("fedavg", [whole]).data.name == "images"
    assert load_experiment("fedavg", [whole]).key_metric == "auroc_macro"
    assert load_experiment("fedavg", ["data.name=chest", whole]).data.name == "images"
    assert load_experiment("fedavg", [whole, "data.name=chest"]).data.name == "chest"
    assert load_experiment("fedavg", ["data.image_size=64"]).data.name == "dermoscopy"
    job = tmp_path / "chest.json"
    job.write_text(load_experiment("fedavg", [*change, "data.name=chest"]).model_dump_json())
    assert load_experiment(str(job), ["data.classes=[a, b]"]).data.name == "chest"


@pytest.mark.parametrize("job", ["fedavg", "fedperl_paper", "wfedavg"])
def test_the_same_classes_are_of_the_same_data_set(job: str) -> None:
    classes = list(load_experiment(job).data.classes)
    written = ", ".join(reversed(classes))
    for changes in ([f"data.classes=[{written}]"], [f"data={{classes: [{written}]}}"]):
        assert load_experiment(job, changes).data.name == "dermoscopy"
    assert load_experiment(job, data={"classes": classes}).data.name == "dermoscopy"
    assert load_experiment(job, data={"classes": classes[1:]}).data.name == "images"
    with pytest.raises(ConfigError, match=r"data\.classes"):
        load_experiment(job, ["data.classes=3"])


def test_what_data_json_does_not_decide_is_named_with_its_source() -> None:
    fields = {"classes": ["a", "b", "c"], "image_size": 32, "channels": 1}
    same = DataSpec.model_validate(fields)
    paper = PAPER_JOBS["fedperl"]
    assert _exceptions(["rounds=2"], None, fields, same) == ""
    other = same.model_copy(update={"classes": ("a", "b"), "image_size": 224})
    assert _exceptions(["data.classes=[a, b]"], paper, fields, other) == (
        ", but classes by --set and image_size by the paper"
    )
    whole = ["data={classes: [a, b], image_size: 224}"]
    assert _exceptions(whole, paper, fields, other) == ", but classes, image_size by --set"


def test_what_data_json_writes_otherwise_than_the_job_holds_all_the_same() -> None:
    fields = {
        "classes": ["Na\u0308vus", "other"],
        "titles": {"Na\u0308vus": "mole", "other": "all else"},
        "card": {"contact": "Dr  A"},
        "image_size": "32",
    }
    data = load_experiment("fedavg", data=fields).data
    assert data.classes == ("N\u00e4vus", "other")
    assert _exceptions([], None, fields, data) == ""
    of_paper = load_experiment("fedperl_paper", data=fields).data
    exceptions = _exceptions([], PAPER_JOBS["fedperl"], fields, of_paper)
    assert exceptions == ", but image_size by the paper"
    changes = ["data.card.contact=Dr B"]
    changed = load_experiment("fedavg", changes, data=fields).data
    assert changed.card == {"contact": "Dr B"}
    assert fields["card"] == {"contact": "Dr  A"}, "as the file has it"
    assert _exceptions(changes, None, fields, changed) == ", but card by --set"


def test_no_change_gives_the_shipped_job() -> None:
    assert all(load_experiment(name) == job() for name, job in JOBS.items())


def test_sites_have_flares_names() -> None:
    assert site_names(3) == ["site-1", "site-2", "site-3"]
    with pytest.raises(ConfigError, match="at least 1 site"):
        site_names(-1)


# --- resume


@pytest.mark.parametrize("error_of_library", [None, RuntimeError, ConfigError])
def test_an_interrupted_run_says_how_to_go_on_and_does(
    error_of_library: Callable[[str], Exception] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A library may take Ctrl-C for a fault of its own, and raise another error."""
    exchange = LocalTransport.exchange
    calls = []

    def interrupted(self: LocalTransport, requests: Any, timeout: int, deliver: Any) -> None:
        calls.append(requests)
        if len(calls) == 2:
            if error_of_library is None:
                raise KeyboardInterrupt
            raise error_of_library("no serializer") from KeyboardInterrupt()
        exchange(self, requests, timeout, deliver)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(LocalTransport, "exchange", interrupted)
        text = refused(capsys, 130, "run", "fedavg", "--out", folder, "--sites", 2, *SET)
    command = shlex.split(text.splitlines()[-1])
    assert command == ["fedward", "run", "--resume", str(folder)]
    assert info(folder)["status"] == "failed"
    assert info(folder)["summary"] == {"reason": INTERRUPTED}
    assert run(*command[1:]) == 0
    assert info(folder)["status"] == "finished"
    rounds = [
        json.loads(line)["round"] for line in (folder / "rounds.jsonl").read_text().splitlines()
    ]
    assert rounds == [1, 2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_that_comes_twice_ends_a_run_as_one(
    number: int,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C, and SIGTERM of ``kill`` or systemd."""
    report = RunFolder.report

    def interrupted(self: LocalTransport, requests: Any, timeout: int, deliver: Any) -> None:
        signal.raise_signal(number)

    def impatient(self: RunFolder, write: Any) -> None:
        signal.raise_signal(number)
        report(self, write)

    monkeypatch.setattr(LocalTransport, "exchange", interrupted)
    monkeypatch.setattr(RunFolder, "report", impatient)
    folder = tmp_path / "run"
    handler = signal.getsignal(number)
    assert run("run", "fedavg", "--out", folder, "--sites", 2, *SET) == code
    out, err = capsys.readouterr()
    assert f"folder: {folder}\n" in out
    assert err.splitlines() == [
        "fedward: interrupted; finished rounds are kept. Continue with",
        f"fedward run --resume {folder}",
    ]
    assert info(folder)["summary"] == {"reason": INTERRUPTED}
    assert signal.getsignal(number) is handler


def test_a_run_that_ends_before_its_first_round_has_trained_nothing_and_says_so(
    hospitals: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"

    def interrupted(*_: object) -> None:
        (folder / "sites" / "hospital-a" / "cache").mkdir(parents=True)
        raise KeyboardInterrupt

    words = ["run", "fedavg", "--out", folder, "--site-files", hospitals, "--unmeasured", *SET]
    with monkeypatch.context() as patch:
        patch.setattr("fedward.lab.run_check._say_what_is_odd", interrupted)
        text = refused(capsys, 130, *words)
    again = "Start it again with the same command."
    assert text == (
        f"fedward: interrupted; nothing was trained. {again} It will use the copies of images in "
        f"{folder / 'sites'}; otherwise remove them.\n"
    )
    text = refused(capsys, 1, "run", "--resume", folder, "--site-files", hospitals)
    assert text == (
        f"fedward: run folder {folder}: the run ended before its first round. "
        f"Nothing was trained. {again}\n"
    )
    assert run(*words) == 0


def test_what_never_began_cannot_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    for name in ("absent", "empty", "broken"):
        text = refused(capsys, 1, "run", "--resume", tmp_path / name)
        assert str(tmp_path / name) in text
        assert "run.json" in text
    assert not (tmp_path / "absent").exists()


def test_the_hint_to_go_on_names_the_site_files(
    hospitals: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    exchange = LocalTransport.exchange

    def interrupted(self: LocalTransport, requests: Any, timeout: int, deliver: Any) -> None:
        exchange(self, requests, timeout, deliver)
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalTransport, "exchange", interrupted)
    text = refused(
        capsys, 130, "run", "fedavg", "--out", tmp_path / "a run", "--site-files", hospitals, *SET
    )
    resume = ["fedward", "run", "--resume", str(tmp_path / "a run"), "--site-files", str(hospitals)]
    assert shlex.split(text.splitlines()[-1]) == resume
    assert run("status", tmp_path / "a run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fedavg: stopped, round 0 of 2, 2 sites"
    assert "reason" not in "".join(lines)
    assert lines[-1] == f"Next: {shlex.join(resume)}"
    text = refused(capsys, 2, "run", "--resume", tmp_path / "a run")
    assert "expected the site files with which this run began, found none." in text
    assert shlex.split(text.splitlines()[-1]) == resume


@pytest.mark.parametrize(
    "option", [["--paper"], ["--sites", "5"], ["--sites", "0"], ["--out", "elsewhere"]]
)
def test_resume_ignores_no_option(
    option: list[str], finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(capsys, 2, "run", "--resume", finished, *option)
    assert f"expected neither a job nor an option of a new run, found {option[0]}." in text


def test_a_finished_run_is_left_as_it_is(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (
        (finished / "model.safetensors").read_bytes(),
        (finished / "metrics.jsonl").read_bytes(),
    )
    assert run("run", "--resume", finished) == 0
    first, test, *_, link = capsys.readouterr().out.splitlines()
    assert first == "finished already"
    assert test.startswith("test: ")
    assert link == f"report: {(finished / 'report.html').as_uri()}"
    assert before == (
        (finished / "model.safetensors").read_bytes(),
        (finished / "metrics.jsonl").read_bytes(),
    )


# --- report


def copied(finished: Path, folder: Path, **data: Any) -> Path:
    """Return a copy of a run that passes for another, whose data have these fields."""
    shutil.copytree(finished, folder)
    content = info(folder)
    content["id"] = folder.name.encode().hex().zfill(32)
    content["experiment"]["data"] |= data
    (folder / "run.json").write_text(json.dumps(content))
    return folder


def test_a_report_is_written_and_can_compare(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished / "report.html").unlink(missing_ok=True)
    other = copied(finished, tmp_path / "other")
    reordered = info(finished)["experiment"]["data"]["classes"][::-1]
    alike = copied(finished, tmp_path / "alike", classes=reordered)
    assert run("report", finished, "--compare", other, alike) == 0
    out, err = capsys.readouterr()
    assert (out.strip(), err) == (str(finished / "report.html"), "")
    page = (finished / "report.html").read_text()
    assert "<html" in page
    assert "(alike)" in page


def test_a_report_compares_with_no_run_of_other_classes(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = copied(finished, tmp_path / "unlike", classes=["benign", "malignant"])
    assert run("report", finished, "--compare", other) == 0
    assert capsys.readouterr().err == (
        f"fedward: {other} is left out of the report: its model distinguishes other classes than "
        f"that of {finished}, so their numbers cannot be compared\n"
    )
    assert "(unlike)" not in (finished / "report.html").read_text()


def test_a_report_does_not_compare_a_run_with_itself(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "found the run whose report is written" in refused(
        capsys, 2, "report", finished, "--compare", finished
    )


def test_no_report_of_what_is_no_run(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert str(tmp_path / "absent") in refused(capsys, 1, "report", tmp_path / "absent")
    assert str(tmp_path) in refused(capsys, 1, "report", finished, "--compare", tmp_path)


# --- jobs


def test_exported_jobs_are_fresh_until_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "jobs"
    assert run("jobs", folder) == 0
    assert capsys.readouterr().out.split() == [str(folder / name) for name in JOBS]
    assert run("jobs", folder, "--check") == 0
    assert capsys.readouterr().err == ""

    config = folder / "ssfl" / "app" / "config" / "config_fed_server.json"
    config.write_text(config.read_text().replace('"rounds": ', '"rounds": 1'))
    (folder / "old").mkdir()
    text = refused(capsys, 1, "jobs", folder, "--check")
    assert [line.split()[2] for line in text.splitlines()] == ["old", "ssfl"]
    assert (folder / "old").exists(), "a check changes nothing"


@pytest.mark.parametrize(
    "option", [["--only", "ssfl"], ["--clinical"], ["--init", "x"], ["--set", "rounds=3"]]
)
def test_a_check_ignores_no_option(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "takes no other options" in refused(capsys, 2, "jobs", tmp_path, "--check", *option)


def test_jobs_never_exported_are_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, 1, "jobs", tmp_path / "absent", "--check")
    assert all(f"job {name} is stale" in text for name in JOBS)
    assert not (tmp_path / "absent").exists()


def test_one_job_can_be_exported_changed_and_without_code(tmp_path: Path) -> None:
    assert run("jobs", tmp_path, "--only", "fedperl", "--clinical", "--set", "rounds=77") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["fedperl"]
    assert not (tmp_path / "fedperl" / "app" / "custom").exists()
    experiment = experiment_in(tmp_path / "fedperl" / "app" / "config")
    assert experiment.options["rounds"] == 77
    assert experiment.synthetic is None


def test_a_wrong_change_exports_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "rounds: " in refused(capsys, 2, "jobs", tmp_path / "jobs", "--set", "rounds=0")
    assert not (tmp_path / "jobs").exists()


# --- partition and doctor


def picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 20, 3), np.uint8)).save(path)


def table(path: Path, *rows: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture(scope="module")
def skin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images of six lesions from each source that FedPerl's ten sites are made of."""
    folder = tmp_path_factory.mktemp("skin")
    sources = [source for part in FEDPERL_SOURCES.values() for source in part[0]]
    rows = [["sample_id", "image", "diagnosis", "lesion_id", "source"]]
    for source in sources:
        for index in range(12):
            name = f"{source}-{index}"
            picture(folder / "images" / f"{name}.png", len(rows))
            label = ("NV", "MEL", "BCC")[index // 4]
            rows.append([name, f"images/{name}.png", label, f"{source}-{index // 2}", source])
    table(folder / "manifest.csv", *rows)
    return folder


def test_partition_writes_ten_sites_and_a_server(
    skin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("partition", skin, "--out", tmp_path / "sites", "--labelled", 0.5) == 0
    names = [*site_names(10), "server"]
    assert capsys.readouterr().out.splitlines() == [
        *[str(tmp_path / "sites" / f"{name}.yaml") for name in names],
        "",
        f"Next: fedward run fedperl --site-files {tmp_path / 'sites'}",
    ]
    content = yaml.safe_load((tmp_path / "sites" / "site-9.yaml").read_text())
    assert content["labelled"] == 0.5
    written = [
        row["sample_id"]
        for name in names
        for row in csv.DictReader((tmp_path / "sites" / f"{name}.csv").open(encoding="utf-8"))
    ]
    assert len(written) == len(set(written)) == 12 * 7


def test_partitioned_sites_can_be_examined_and_trained(skin: Path, tmp_path: Path) -> None:
    """From a manifest to a run: the sites use their own files, not the synthetic images."""
    assert run("partition", skin, "--out", tmp_path / "sites", "--labelled", 1.0) == 0
    assert (
        run(
            "doctor",
            tmp_path / "sites" / "site-9.yaml",
            "--image-size",
            16,
            "--out",
            tmp_path / "sheets",
        )
        == 0
    )
    assert (tmp_path / "sheets" / "site-9-contact-sheet.png").exists()
    arguments = [
        "--site-files",
        tmp_path / "sites",
        "--sites",
        2,
        *SET,
        "--set",
        "synthetic=null",
        "--set",
        "rounds=1",
        "--unmeasured",
    ]
    assert run("run", "fedavg", "--out", tmp_path / "run", *arguments) == 0
    (row,) = [
        json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    ]
    assert row["replied"] == ["site-1", "site-2"]


def test_partition_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, 1, "partition", tmp_path / "absent", "--out", tmp_path / "sites")
    assert "manifest.csv" in text
    assert not (tmp_path / "sites").exists()


def site(folder: Path, same: bool) -> Path:
    """Write a site of twenty lesions, with one picture for all of them or one for each."""
    rows = [["sample_id", "image", "label", "group"]]
    for index in range(20):
        picture(folder / f"{index}.png", 0 if same else index)
        rows.append([f"s{index}", f"{index}.png", ("MEL", "NV")[index % 2], f"g{index}"])
    table(folder / "manifest.csv", *rows)
    (folder / "site-1.yaml").write_text("kind: manifest\nfolder: .\n")
    return folder / "site-1.yaml"


def test_doctor_passes_a_clean_site_and_stops_a_leak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--image-size", 16, "--classes", "MEL", "NV", "--out", tmp_path / "sheets"]
    assert run("doctor", site(tmp_path / "clean", same=False), *options) == 0
    assert "LEAKS" not in capsys.readouterr().out
    assert run("doctor", site(tmp_path / "leaky", same=True), *options) == 1
    text = capsys.readouterr().out
    assert "LEAKS" in text
    assert "CONTRADICTIONS (decide which label is right)\n  - one image, several labels: s" in text


def test_doctor_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.yaml").write_text("kind: [")
    (tmp_path / "strange.yaml").write_text("kind: magic\n")
    for name in ("absent.yaml", "broken.yaml", "strange.yaml"):
        assert run("doctor", tmp_path / name, "--out", tmp_path) == 1
        assert name in capsys.readouterr().out.replace("\n", " ")
    unknown = site(tmp_path / "site", same=False)
    assert run("doctor", unknown, "--classes", "A", "B", "--out", tmp_path) == 1
    assert "Not usable" in capsys.readouterr().out


def test_the_contact_sheet_goes_here_if_no_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run(
            "doctor",
            site(tmp_path / "site", same=False),
            "--image-size",
            16,
            "--classes",
            "MEL",
            "NV",
        )
        == 0
    )
    assert (tmp_path / "site-1-contact-sheet.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--image-size", "2"], "image_size: "), (["--classes", "MEL"], "classes: ")],
)
def test_impossible_expectations_of_a_site(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site_file = site(tmp_path, same=False)
    assert named in refused(capsys, 2, "doctor", site_file, *arguments, "--out", tmp_path)


def test_resume_takes_no_other_settings(tmp_path, capsys):
    assert cli.main(["run", "--resume", str(tmp_path), "--set", "rounds=3", "--sites", "0"]) == 2
    error = capsys.readouterr().err
    assert "settings it was started with" in error
    assert "found --set and --sites." in error


def test_a_run_starts_from_the_last_model_of_another(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("run", "fedavg", "--init", finished, "--out", tmp_path / "run", "--sites", 2, *SET) == 0
    )
    about = info(tmp_path / "run")["init"]
    assert (about["folder"], about["new"], about["unused"]) == (str(finished), [], [])
    assert f"weights of {finished}\ntensors taken: " in capsys.readouterr().out


def test_an_exported_job_carries_weights_to_named_sites(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "jobs",
        tmp_path / "jobs",
        "--only",
        "fedavg",
        "--clinical",
        *SET,
        "--init",
        finished,
    ]
    assert "Name them with --sites" in refused(capsys, 2, *arguments)
    assert "one job" in refused(capsys, 2, "jobs", tmp_path / "jobs", "--init", finished)
    assert not (tmp_path / "jobs").exists()
    assert run(*arguments, "--sites", "hospital-a", "hospital-b") == 0
    meta = json.loads((tmp_path / "jobs" / "fedavg" / "meta.json").read_text())
    assert meta["deploy_map"] == {"app_server": ["server"], "app": ["hospital-a", "hospital-b"]}
    assert (tmp_path / "jobs" / "fedavg" / "app_server" / "config" / "model.json").is_file()


def test_resume_takes_no_other_weights(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--init" in refused(capsys, 2, "run", "--resume", finished, "--init", finished)


@pytest.mark.parametrize("share", ["3", "-0.1", "some"])
def test_a_share_of_labels_is_between_0_and_1(share, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["partition", str(tmp_path), "--out", str(tmp_path), "--labelled", share])
    assert stop.value.code == 2
    assert "--labelled" in capsys.readouterr().err


COMMAND = [
    sys.executable,
    "-c",
    "import sys; from fedward.cli import main; sys.exit(main(sys.argv[1:]))",
]


# --- what the operating system refuses


def test_a_file_where_a_folder_is_to_be_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run"
    file.write_text("a file")
    for folder in (file, file / "below"):
        text = refused(capsys, 1, "jobs", folder, "--only", "fedavg")
        assert text == (
            f"fedward: {file}: expected a folder, or a place for one, found a file of that name. "
            "Name a folder, or rename the file.\n"
        )


@pytest.mark.parametrize("command", [["status"], ["report"], ["run", "fedavg", "--out"]])
def test_a_name_that_no_disk_takes_is_one_line(capsys, tmp_path, command):
    assert run(*command, tmp_path / (300 * "x")) != 0
    err = capsys.readouterr().err
    assert err.startswith("fedward: ")
    assert "Traceback" not in err


def test_a_run_in_the_background_goes_on_ignoring_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _one_interruption():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt), _one_interruption():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_ends_any_command_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def terminated(*_: object) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr("fedward.operation.settings_command._settings", terminated)
    assert refused(capsys, 143, "settings") == "fedward: interrupted\n"
    assert signal.signal(signal.SIGTERM, signal.SIG_IGN) is signal.SIG_DFL
    try:
        assert run("settings") == 0, "a process that ignores the signal still does"
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def full_for_safetensors(*_: object, **__: object) -> None:
    raise SafetensorError("Error while serializing: I/O error: No space left (os error 28)")


@pytest.mark.parametrize(
    ("target", "failure"),
    [
        ("fedward.storage.run_folder.save_state", full),
        ("fedward.storage.model_files.save_file", full_for_safetensors),
    ],
)
def test_a_disk_that_fills_during_a_run_is_one_message_with_the_command_to_go_on(
    target: str,
    failure: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The report finds no room, either."""
    folder = tmp_path / "run"
    monkeypatch.setattr(target, failure)
    monkeypatch.setattr(RunFolder, "report", full)
    text = refused(capsys, 1, "run", "fedavg", "--out", folder, "--sites", 2, *SET)
    message, command = text.splitlines()
    assert message.startswith(f"fedward: {folder}")
    assert message.endswith(
        ": expected a place that can be read and written, found no space left on device. "
        "Make room there; finished rounds are kept. Continue with"
    )
    assert command == f"fedward run --resume {folder}"
    assert [record for record in caplog.records if record.exc_info] == []
    assert info(folder)["status"] == "failed"
    assert "Errno" not in info(folder)["summary"]["reason"]


@pytest.mark.parametrize(
    ("name", "found"), [("file", "not a directory"), ("link", "no such file or directory")]
)
def test_a_place_within_what_is_no_folder_takes_no_run(
    name: str, found: str, hospitals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("of somebody")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    folder = tmp_path / name / "run"
    for more in ([], ["--site-files", hospitals]):
        text = refused(capsys, 1, "run", "fedavg", "--out", folder, *more, *SET)
        assert text == (
            f"fedward: run folder {folder}: expected a place that can be written, found {found}. "
            "Name another folder with --out.\n"
        )


@pytest.mark.parametrize(
    ("number", "found"),
    [
        (errno.EROFS, "read-only file system"),
        (errno.ENOSPC, "no room on the disk"),
        (errno.EACCES, "permission denied"),
    ],
)
def test_a_place_that_takes_no_run_is_said_once_before_any_image_is_opened(
    number: int,
    found: str,
    hospitals: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fedward.storage.run_folder.TemporaryFile", refuses)
    folder = tmp_path / "new" / "run"
    for more in ([], ["--site-files", hospitals]):
        text = refused(capsys, 1, "run", "fedavg", "--out", folder, *more, *SET)
        assert text == (
            f"fedward: run folder {folder}: expected a place that can be written, found {found}. "
            "Name another folder with --out.\n"
        )
    assert not folder.parent.exists()


def test_an_error_of_no_file_is_not_told_as_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lost(path: Path) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr("fedward.server.run_status.progress", lost)
    with pytest.raises(ConnectionResetError):
        run("status", tmp_path)


def test_output_that_has_no_room_is_a_sentence(finished: Path, tmp_path: Path) -> None:
    """As in ``fedward status RUN > FILE`` on a full disk; here no file may hold a byte."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); " + COMMAND[-1]
    command = [*COMMAND[:-1], code, "status", str(finished)]
    with (tmp_path / "status.txt").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("fedward: standard output: ")
    assert len(done.stderr.splitlines()) == 1


# --- a closed pipe


def test_a_run_whose_reader_has_left_goes_on_to_its_end(tmp_path: Path) -> None:
    """As in ``fedward run ... | head -1``."""
    arguments = ["run", "fedavg", "--out", str(tmp_path / "run"), "--sites", "2", *SET]
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert info(tmp_path / "run")["status"] == "finished"


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    """As in ``fedward jobs FOLDER | true``."""
    command = [COMMAND[0], "-u", *COMMAND[1:], "jobs", str(tmp_path / "jobs")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


# --- the command's start


def test_python_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fedward", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"fedward {code_version()}\n"


def test_an_interruption_of_its_imports_is_one_line() -> None:
    code = """if True:
        import os, signal
        from fedward import cli
        cli.resolve_name = lambda target: lambda parser: os.kill(os.getpid(), signal.SIGINT)
        cli.main(["run"])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fedward: interrupted\n")


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("--version", set()),
        ("--help", set()),
        *((f"{name} --help", set()) for name in ("status", "runs", "audit verify")),
        *((f"{name} --help", {"numpy", "pydantic", "yaml"}) for name in ("run", "jobs", "doctor")),
    ],
)
def test_what_only_tells_imports_little(words: str, allowed: set[str]) -> None:
    code = """if True:
        import sys
        from fedward.cli import main
        try:
            main(sys.argv[1:])
        finally:
            print(*{name.split(".")[0] for name in sys.modules})
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=True
    )
    said, modules = done.stdout.strip().rsplit("\n", 1)
    heavy = {
        "PIL",
        "matplotlib",
        "monai",
        "numpy",
        "nvflare",
        "pydantic",
        "scipy",
        "sklearn",
        "timm",
        "torch",
        "yaml",
    }
    assert said.startswith(
        f"fedward {code_version()}" if words == "--version" else "usage: fedward"
    )
    assert heavy & set(modules.split()) <= allowed


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    below = [
        each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for each in action.choices.values()
    ]
    return [parser, *(further for each in below for further in parsers(each))]


def test_help_fits_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = [
        line
        for name in cli._COMMANDS
        for parser in parsers(cli._parser([name]))
        for line in parser.format_help().splitlines()
    ]
    assert len(lines) > 100
    assert not [line for line in lines if len(line) > 80]
