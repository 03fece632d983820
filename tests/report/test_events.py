"""What other programs are told of a run."""

import json
from dataclasses import replace

import pytest
from run_folders import SITES, write_run

from fedward.config import Experiment
from fedward.console.events import ClosingLine, Events
from fedward.console.listener import Start
from fedward.storage.info import Summary
from fedward.storage.rows import RoundRow

ROW = RoundRow(
    round=4,
    seconds=12.34,
    asked=("a", "b"),
    replied=("a",),
    failed={"b": "no answer within 60 s"},
    bytes_down=12,
    bytes_up=3,
    peer_models=0,
)


@pytest.fixture
def events(capsys):
    """A function that returns what the steps with an ``Events`` print."""

    def printed(*steps):
        for step in steps:
            step(Events())
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return printed


def test_each_event_is_a_line_with_its_keys(events, tmp_path):
    folder = write_run(tmp_path / "run", rounds=5)
    experiment = Experiment(method="fedperl", seed=7)
    started, evaluated, round_, waiting, end = events(
        lambda told: told.header(
            Start(experiment, ["a", "b"], rounds=20, resumed_after=3, synthetic=True)
        ),
        lambda told: (told.evaluated(3, {"a": 0.5}), told.round(ROW, 0.25)),
        lambda told: told.waiting({"b": "0" * 64}),
        lambda told: told.closing(folder, Summary(rounds=5, best_round=3, best_value=0.5)),
    )
    about = {
        "job": "",
        "method": "fedperl",
        "data": "dermoscopy",
        "synthetic": True,
        "image_size": 32,
        "net": "small_cnn",
        "seed": 7,
    }
    start = {
        "key_metric": "accuracy",
        "sites": ["a", "b"],
        "rounds": 20,
        "resumed_after": 3,
        "init": None,
    }
    assert started == {"event": "started", **about, **start}
    assert evaluated == {"event": "evaluated", "round": 3, "validation": {"a": 0.5}}
    assert round_ == {
        "event": "round",
        "round": 4,
        "part": 0,
        "seconds": 12.34,
        "asked": ["a", "b"],
        "replied": ["a"],
        "failed": {"b": "no answer within 60 s"},
        "validation": {"a": 0.5},
        "pseudo_labels_kept": 0.25,
        "bytes_down": 12,
        "bytes_up": 3,
    }
    assert waiting == {"event": "waiting", "sites": {"b": "0" * 64}}
    assert (end["event"], end["rounds"], end["best_round"], end["best_validation"]) == (
        "finished",
        5,
        3,
        0.5,
    )
    assert (end["test"]["round"], end["test"]["sites"]) == (3, len(SITES))
    assert (end["reason"], end["not_evaluated"], end["folder"]) == (None, {}, str(folder))
    assert list(end) == [
        "event",
        "rounds",
        "best_round",
        "best_validation",
        "test",
        "reason",
        "not_evaluated",
        "folder",
        "report",
    ]


def test_values_are_those_of_the_exchange_that_brought_them(events):
    later = replace(ROW, part=1)
    _, first, second = events(
        lambda told: (told.evaluated(3, {"a": 0.5}), told.round(ROW), told.round(later))
    )
    assert (first["part"], first["validation"]) == (0, {"a": 0.5})
    assert (second["part"], second["validation"]) == (1, {})


def test_a_failure_is_an_event_with_its_reason(events, tmp_path):
    (end,) = events(lambda told: told.closing(tmp_path, Summary(reason="no replies")))
    assert (end["event"], end["reason"], end["test"], end["report"]) == (
        "failed",
        "no replies",
        None,
        None,
    )


def test_the_closing_line_is_all_and_a_failure_is_the_commands(tmp_path, capsys):
    folder = write_run(tmp_path / "run", rounds=5)
    told = ClosingLine()
    told.header(Start(Experiment(method="fedavg"), ["a"]))
    told.round(ROW)
    told.closing(folder, Summary(reason="no replies"))
    assert capsys.readouterr().out == ""
    told.closing(folder, Summary(rounds=5, best_round=3))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("finished after 5 rounds, test ")
    assert line.endswith(f" images: {folder}")
