"""The audit log: its content, its survival of crashes, and that no line changes unnoticed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedward.cli import main
from fedward.digests import arrays_digest, digest, file_digest
from fedward.disk import save_json
from fedward.errors import ConfigError, RunError
from fedward.flare.places import put_into_results
from fedward.inference.model import load_model
from fedward.lab.local import LocalTransport, Sites
from fedward.methods import method_of
from fedward.operation.audit_check import verify
from fedward.protocol import wire
from fedward.protocol.wire import Message
from fedward.report import rewriting
from fedward.report.rewriting import rewrite_report
from fedward.starting_model import initial_model
from fedward.storage import chain
from fedward.storage.audit import LOG, AuditLog
from fedward.storage.info import Summary, read_info
from fedward.storage.model_files import StoredState, save_model
from fedward.storage.outputs import outputs
from fedward.storage.run_folder import RunFolder, beginning_digest, info_digest
from fedward.terminal import LONGEST_REASON
from finished_run import new_run
from forged import Rows, canonical, chained, lines_of, log_of, rewrite, write
from running import resume_local, run_experiment, run_local
from tiny import tiny

SITES = ["site-1", "site-2", "site-9"]
RUN = "0123456789abcdef" * 2


def site_logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("sites/*/answers/*.jsonl"))


def number_of(folder: Path, event: str, round_: int) -> int:
    """Return the number of the line of an event in a round, counted from 1."""
    return next(
        row["seq"]
        for row in log_of(folder)
        if row["event"] == event and row["details"]["round"] == round_
    )


def refusal(folder: Path, *logs: Path) -> str:
    """Return the text of the error by which the check of a run refuses it."""
    with pytest.raises(RunError) as error:
        verify(folder, logs)
    return str(error.value)


def run(folder: Path, stop: int = 0, resume: bool = False, **changes: Any) -> Path:
    """Run the tiny FedPerl, or interrupt its exchange ``stop`` after one site's answer."""
    experiment = tiny("fedperl", **changes)
    transport = LocalTransport(Sites(experiment, folder / "sites"), SITES)
    whole = transport.exchange
    exchanges = iter(range(1, 99))

    def exchange(requests: Any, timeout: int, deliver: Any) -> None:
        if next(exchanges) == stop:
            whole(dict(sorted(requests.items())[:1]), timeout, deliver)
            raise KeyboardInterrupt
        whole(requests, timeout, deliver)

    transport.exchange = exchange  # type: ignore[method-assign]
    run_folder = folder / "run"
    try:
        run_experiment(experiment, run_folder, transport, resume=resume)
    except KeyboardInterrupt:
        assert stop
    return run_folder


def report(folder: Path) -> None:
    """Write a placeholder, as drawing the real report takes longer than such a short run."""
    (folder / "report.html").write_text("<html>")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of three rounds, in which its sites' folders lie."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.lab.simulation.write_report", report)
        return run_local(tiny("fedperl"), tmp_path_factory.mktemp("whole") / "run", sites=SITES)


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished run, which a test may change."""
    return shutil.copytree(whole, tmp_path / "run")


# --- what is written


def test_a_run_leaves_its_decisions_in_order(whole):
    events = [(row["event"], row["details"].get("round")) for row in log_of(whole)]
    rounds = [
        (event, number) for number in (1, 2, 3) for event in ("asked", "answered", "committed")
    ]
    end = [("asked", 4), ("answered", 4), ("ended", None), ("reported", None)]
    assert events == [("begun", None), ("committed", 0), *rounds, *end]


def test_lines_tell_requests_answers_and_decisions(whole):
    rows = log_of(whole)
    info = json.loads((whole / "run.json").read_text())
    begun = rows[0]["details"]
    assert begun["experiment"] == digest(info["experiment"])
    assert begun["sites"] == SITES
    assert begun["seed"] == info["seed"]
    assert begun["versions"] == info["versions"]
    rounds = [json.loads(line) for line in (whole / "rounds.jsonl").read_text().splitlines()]
    peers = [json.loads(line) for line in (whole / "peers.jsonl").read_text().splitlines()]
    for row in rounds:
        asked, answered = (
            rows[number_of(whole, event, row["round"]) - 1]["details"]
            for event in ("asked", "answered")
        )
        assert sorted(asked["tasks"]) == row["asked"]
        assert asked["evaluate"] == SITES
        assert answered["evaluated"] == SITES
        assert answered["replied"] == row["replied"]
        assert answered["failed"] == row["failed"]
    for row in peers:
        decided = rows[number_of(whole, "asked", row["round"]) - 1]["details"]["decisions"]["peers"]
        assert decided["chosen"] == row["chosen"]
        assert decided["similarity"] == {"sha256": digest(row["similarity"])}


def test_states_and_results_are_named_by_their_hash(whole):
    rows = log_of(whole)
    ended, reported = (row["details"] for row in rows[-2:])
    assert ended["status"] == "finished"
    assert ended["reason"] is None
    assert ended["run"] == info_digest(read_info(whole))
    result_files = [
        f"{name}.{kind}" for name in ("best", "model") for kind in ("json", "safetensors")
    ]
    result_files += [
        f"{name}.jsonl" for name in ("metrics", "rounds", "peers", "binned", "queries", "bytes")
    ]
    assert ended["files"] == {name: file_digest(whole / name) for name in result_files}
    assert reported == {"report": file_digest(whole / "report.html")}
    state = file_digest(whole / "rounds" / "00003" / "state.safetensors")
    assert rows[number_of(whole, "committed", 3) - 1]["details"] == {"round": 3, "state": state}
    assert read_info(whole).audit == {"lines": len(rows), "last_hash": rows[-1]["hash"]}


def test_what_was_sent_and_what_came_are_named_by_their_hash(whole):
    """The first model sent to a site is the state saved before; updates are in the sites' logs."""
    rows = log_of(whole)
    asked, answered = (
        rows[number_of(whole, event, 3) - 1]["details"] for event in ("asked", "answered")
    )
    final = rows[number_of(whole, "asked", 4) - 1]["details"]
    model = StoredState(whole / "model.safetensors")
    assert final["model"] == arrays_digest(wire.flatten("model", model)) != asked["model"]
    assert set(asked["peers"]) == {site for site, task in asked["tasks"].items()}
    updates_given = {
        row["site"]: row["gave"]
        for path in site_logs(whole)
        for row in lines_of(path)
        if row["round"] == 3
    }
    assert answered["updates"] == {site: updates_given[site] for site in answered["replied"]}


def test_who_is_refused_is_in_the_log_with_the_reason(tmp_path):
    """The answer of site-2 carries a field that no answer may have."""
    experiment = tiny("ssfl", options={"rounds": 1, "participants": 3})
    transport = LocalTransport(Sites(experiment, tmp_path / "sites"), SITES)
    exchange = transport.exchange

    def talkative(requests: Any, timeout: int, deliver: Callable[..., None]) -> None:
        def change(site: str, answer: Any) -> None:
            if site == "site-2":
                answer.meta["patients"] = ["a name"]
            deliver(site, answer)

        exchange(requests, timeout, change)

    transport.exchange = talkative  # type: ignore[method-assign]
    folder = run_experiment(experiment, tmp_path / "run", transport)
    answered = log_of(folder)[number_of(folder, "answered", 1) - 1]["details"]
    assert answered["replied"] == ["site-1", "site-9"]
    assert "found 'patients'" in answered["failed"]["site-2"]


def emptied(value: Any) -> Any:
    """Return counts of no images."""
    return [emptied(entry) for entry in value] if isinstance(value, list) else 0


@pytest.mark.parametrize("round_", [1, 2])
def test_a_site_that_sends_counts_unasked_does_not_spoil_the_record(tmp_path, monkeypatch, round_):
    """Counts of no images are let in without metrics where an evaluation was asked for.

    The audit log then names no evaluation. In other rounds they are refused.
    """
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    experiment = tiny("fedavg", evaluate_every=3)
    transport = LocalTransport(Sites(experiment, tmp_path / "sites"), SITES)
    exchange = transport.exchange
    seen: dict[str, Any] = {}

    def talkative(requests: Any, timeout: int, deliver: Callable[..., None]) -> None:
        def change(site: str, answer: Message) -> None:
            counts = answer.meta.get("binned") or {}
            seen.update({name: counts[name] for name in counts.keys() - {"subgroups", "clusters"}})
            if answer.meta["round"] == round_ and site == "site-2":
                if round_ == 1:
                    answer.meta["metrics"] = []
                answer.meta["binned"] = {
                    name: [] if name == "cells" else emptied(value) for name, value in seen.items()
                }
            deliver(site, answer)

        exchange(requests, timeout, change)

    transport.exchange = talkative  # type: ignore[method-assign]
    folder = run_experiment(experiment, tmp_path / "run", transport)
    failed = log_of(folder)[number_of(folder, "answered", round_) - 1]["details"]["failed"]
    if round_ == 1:
        assert not failed
    else:
        assert "expected none where no evaluation was asked for" in failed.pop("site-2")
        assert not failed
    assert verify(folder)


@pytest.mark.proves(
    "site",
    "an error text of 5 MB or with control characters",
    "at most 500 printable characters reach logs and console",
)
def test_error_texts_are_short_and_printable_in_all_logs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    experiment = tiny("ssfl", options={"rounds": 1, "participants": 3})
    transport = LocalTransport(Sites(experiment, tmp_path / "sites"), SITES)
    exchange = transport.exchange
    texts = {"site-1": "x" * 5_000_000, "site-2": "\x1b[2J\x1b]0;mine\x07\nround 9\u202e"}

    def talkative(requests: Any, timeout: int, deliver: Callable[..., None]) -> None:
        def change(site: str, answer: Message) -> None:
            error = {"site": site, "round": answer.meta["round"], "error": texts.get(site)}
            deliver(site, Message(error) if site in texts else answer)

        exchange(requests, timeout, change)

    transport.exchange = talkative  # type: ignore[method-assign]
    folder = run_experiment(experiment, tmp_path / "run", transport)
    answered = log_of(folder)[number_of(folder, "answered", 1) - 1]["details"]["failed"]
    (row,) = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert row["failed"] == answered
    assert len(answered["site-1"]) == LONGEST_REASON
    assert answered["site-2"] == "\\x1b[2J\\x1b]0;mine\\x07 round 9\\u202e"
    assert (folder / LOG).stat().st_size < 20_000
    assert "\x1b" not in capsys.readouterr().out


def test_equal_lines_have_hashes_that_nobody_can_guess(tmp_path):
    one, two = (AuditLog(tmp_path / name, RUN).add("asked", round=1) for name in ("one", "two"))
    assert one != two


def test_a_methods_notes_are_decisions(tmp_path):
    folder = new_run(tmp_path / "run", tiny(), SITES, "local")
    lists = {"nearest": [["b", "c"], ["a"]], "similarity": [[1.0, 0.5], [0.5]]}
    row = {"round": 1, "sites": ["a", "b"], **lists, "chosen": {}, "anonymised": True}
    row["features"] = 24
    folder.record("peers", row)
    logged_row = {**row, **{name: {"sha256": digest(value)} for name, value in lists.items()}}
    assert log_of(tmp_path / "run")[-1]["details"] == {"log": "peers", "row": logged_row}


@pytest.mark.parametrize(
    "wrong",
    [
        {"weights": [0.5]},
        {"group": "some"},
        {"part": "0"},
        {"part": True},
        {"weights": ["1", "2"]},
        {"extra": 1},
    ],
)
def test_a_note_that_no_reader_accepts_is_refused(tmp_path, wrong):
    folder = new_run(tmp_path / "run", tiny("isofed"), SITES, "local")
    row = {
        "round": 1,
        "part": 0,
        "group": "all",
        "sites": ["a", "b"],
        "weights": [0.5, 0.5],
        "distances": [1.0, 2.0],
    }
    with pytest.raises(ValueError, match=next(iter(wrong))):
        folder.record("groups", row | wrong)
    assert [line["event"] for line in log_of(tmp_path / "run")] == ["begun"]


# --- interruptions


def test_an_interrupted_round_stays_in_the_audit_log_alone(tmp_path, whole, monkeypatch):
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    folder = run(tmp_path, stop=2)
    before = (folder / LOG).read_bytes()
    state = file_digest(folder / "rounds" / "00001" / "state.safetensors")
    run(tmp_path, resume=True)
    assert (folder / LOG).read_bytes().startswith(before)
    rows = log_of(folder)[before.count(b"\n") - 3 :]
    assert [row["event"] for row in rows[:6]] == [
        "asked",
        "ended",
        "reported",
        "resumed",
        "asked",
        "answered",
    ]
    assert rows[1]["details"]["status"] == "failed"
    assert rows[1]["details"]["reason"] == "interrupted"
    assert rows[3]["details"] == {"round": 1, "state": state}
    assert rows[0]["details"] == rows[4]["details"]
    verification = verify(folder, sorted(tmp_path.glob("sites/*/answers/*.jsonl")))
    # One site was asked in the interrupted round too.
    assert verification.answers == 4 * len(SITES) + 1
    for log in ("peers.jsonl", "bytes.jsonl"):
        assert (folder / log).read_bytes() == (whole / log).read_bytes()


def test_a_run_killed_before_the_first_line_of_its_log_begins_it_when_it_goes_on(
    tmp_path, monkeypatch
):
    def killed(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("fedward.storage.audit.AuditLog.add", killed)
        with pytest.raises(KeyboardInterrupt):
            new_run(folder, tiny(), SITES, "local")
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    run = RunFolder.reopen(folder, sites=[*SITES, "late"])
    run.restore(object)
    run.set_status("failed", Summary(reason="of this test"))
    assert [row["event"] for row in log_of(folder)] == ["begun", "joined", "resumed", "ended"]
    assert log_of(folder)[0]["details"]["sites"] == SITES
    assert verify(folder)


def test_a_run_killed_within_the_first_line_of_its_log_begins_it_again(tmp_path, monkeypatch):
    """It is killed again between the line that quotes the half line and its own."""
    append = chain.append

    def half(path: Path, content: bytes, mode: int) -> None:
        append(path, content[:100], mode)
        raise KeyboardInterrupt

    def none(path: Path, content: bytes, mode: int) -> None:
        if path.name == LOG:
            raise KeyboardInterrupt
        append(path, content, mode)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(chain, "append", half)
        with pytest.raises(KeyboardInterrupt):
            new_run(folder, tiny(), SITES, "local")
        patch.setattr(chain, "append", none)
        with pytest.raises(KeyboardInterrupt):
            RunFolder.reopen(folder).restore(object)
    assert [row["event"] for row in log_of(folder)] == ["torn"]
    run = RunFolder.reopen(folder)
    run.restore(object)
    run.set_status("failed", Summary(reason="of this test"))
    assert [row["event"] for row in log_of(folder)] == ["torn", "begun", "resumed", "ended"]
    assert verify(folder)


def test_a_run_killed_before_its_first_commit_says_so_too(tmp_path):
    folder = new_run(tmp_path / "run", tiny(), SITES, "local").path
    RunFolder.reopen(folder).restore(object)
    assert log_of(folder)[-1]["event"] == "resumed"
    assert log_of(folder)[-1]["details"] == {"round": 0, "state": None}


@pytest.mark.parametrize("rest", [b'{"details":{"rou', b"\x00\x00\xff", b"x"])
def test_half_a_line_is_refused_until_the_next_quotes_it(folder, rest):
    with (folder / LOG).open("ab") as file:
        file.write(rest)
    number = len(log_of_bytes(folder)) + 1
    assert f"line {number}: expected a whole line, found half a line" in refusal(folder)
    info = json.loads((folder / "run.json").read_text())
    log = AuditLog(folder / LOG, info["id"], info["audit"])
    log.add("resumed", round=3, state=None)
    torn, resumed = log_of(folder)[-2:]
    assert torn["event"] == "torn"
    assert torn["details"]["text"].encode("latin-1").decode("unicode_escape") == rest.decode(
        "latin-1"
    )
    assert resumed["seq"] == log.end["lines"] == number + 1
    assert not list(folder.glob("*.partial"))


def log_of_bytes(folder: Path) -> list[bytes]:
    return (folder / LOG).read_bytes().split(b"\n")[:-1]


@pytest.mark.parametrize(
    ("harm", "damage"),
    [
        (lambda rows: [{**rows[0], "time": "never"}, *rows[1:]], "line 1: expected what its hash"),
        (lambda rows: rows[:-2], "run.json says, found 13: the log was cut"),
        (lambda rows: [], "the log was cut"),
    ],
)
def test_a_log_found_damaged_goes_on_and_never_passes_again(folder, harm, damage):
    info = json.loads((folder / "run.json").read_text())
    write(folder, harm(log_of(folder)))
    log = AuditLog(folder / LOG, info["id"], info["audit"])
    assert damage in log_of(folder)[-1]["details"]["found"]
    (folder / "run.json").write_text(json.dumps({**info, "status": "running", "audit": log.end}))
    assert damage in refusal(folder)


def test_opening_a_sound_log_writes_nothing(folder):
    before = (folder / LOG).read_bytes()
    info = json.loads((folder / "run.json").read_text())
    assert AuditLog(folder / LOG, info["id"], info["audit"]).end == info["audit"]
    assert (folder / LOG).read_bytes() == before


# --- what is found out


def test_a_sound_run_passes_with_and_without_sites_logs(whole):
    numbers = f"audit.jsonl: 15 lines, last hash {log_of(whole)[-1]['hash']}; 10 files"
    assert str(verify(whole)).splitlines() == [
        "Nothing was changed, as far as the run alone can tell.",
        numbers,
    ]
    logs = site_logs(whole)
    assert str(verify(whole, logs)).splitlines() == [
        f"Nothing was changed, as far as the run and the logs of {len(logs)} sites can tell.",
        f"{numbers}; 12 lines of sites' logs",
    ]
    first_line = str(verify(whole, logs[:1])).splitlines()[0]
    assert first_line == ("Nothing was changed, as far as the run and the log of 1 site can tell.")


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (1, "details"),
        (2, "time"),
        (5, "event"),
        (5, "salt"),
        (14, "layout"),
        (14, "field"),
        (1, "text"),
    ],
)
def test_a_changed_line_is_named(folder, number, change):
    lines = log_of_bytes(folder)
    row = json.loads(lines[number - 1])
    lines[number - 1] = {
        "details": canonical({**row, "details": {**row["details"], "round": 99}}),
        "time": canonical({**row, "time": "2001-01-01T00:00:00+00:00"}),
        "event": canonical({**row, "event": "begun " + row["event"]}),
        "salt": canonical({**row, "salt": "0" * 32}),
        "layout": json.dumps(row),
        "field": canonical({**row, "more": 1}),
        "text": "not JSON",
    }[change].encode()
    (folder / LOG).write_bytes(b"\n".join([*lines, b""]))
    assert f"audit.jsonl, line {number}: " in refusal(folder)
    assert "the line was changed" in refusal(folder)


@pytest.mark.parametrize("number", [1, 2, 5, 13])
def test_a_line_changed_with_its_own_hash_is_named(folder, number):
    rows = log_of(folder)
    rest = {key: value for key, value in rows[number - 1].items() if key != "hash"} | {
        "time": "never"
    }
    rows[number - 1] = {**rest, "hash": digest(rest)}
    write(folder, rows)
    assert f"line {number}: expected the line that line {number + 1} follows" in refusal(folder)


def test_run_json_reveals_a_changed_last_line(folder):
    rows = log_of(folder)
    write(folder, chained([*rows[:-1], {**rows[-1], "time": "never"}], rows[0]["previous"]))
    assert "line 15: expected the hash" in refusal(folder)


@pytest.mark.parametrize("number", [1, 2, 5, 13])
def test_a_removed_line_is_named(folder, number):
    rows = log_of(folder)
    write(folder, [row for row in rows if row["seq"] != number])
    assert f"line {number}: " in refusal(folder)
    assert f"found line {number + 1}: lines were removed" in refusal(folder)


@pytest.mark.parametrize("number", [2, 5, 14])
def test_an_inserted_line_is_named(folder, number):
    rows = log_of(folder)
    rest = {key: value for key, value in rows[number - 1].items() if key != "hash"} | {
        "event": "recorded"
    }
    write(folder, [*rows[: number - 1], {**rest, "hash": digest(rest)}, *rows[number - 1 :]])
    assert f"line {number + 1}: " in refusal(folder)
    assert f"a second line {number}: one was inserted" in refusal(folder)


@pytest.mark.parametrize(("one", "two"), [(1, 2), (4, 5), (3, 9), (13, 14)])
def test_lines_in_another_order_are_named(folder, one, two):
    rows = log_of(folder)
    rows[one - 1], rows[two - 1] = rows[two - 1], rows[one - 1]
    write(folder, rows)
    assert f"line {one}: " in refusal(folder)
    assert f"found line {two}: lines were put in another order" in refusal(folder)


@pytest.mark.parametrize("kept", [0, 1, 6, 14])
def test_a_log_cut_at_the_end_is_named_by_what_run_json_knows(folder, kept):
    write(folder, log_of(folder)[:kept])
    assert f"line {kept + 1}: expected 15 lines, as run.json says, found {kept}" in refusal(folder)


def test_a_log_of_another_run_is_named(folder):
    write(folder, chained(log_of(folder), RUN))
    assert "line 1: expected the first line of this run, found one of another run" in refusal(
        folder
    )


@pytest.mark.parametrize("event", ["recorded", "joined"])
def test_a_line_after_the_end_is_named(folder, event):
    rows = log_of(folder)
    added = {**rows[-1], "event": event, "details": {"sites": ["site-new"]}}
    write(folder, chained([*rows, added], rows[0]["previous"]))
    assert "line 16: expected nothing after the end of the run" in refusal(folder)


def test_a_state_that_is_not_the_one_written_is_named(folder):
    flip(folder, "rounds/00003/state.safetensors")
    assert "line 11: expected rounds/00003/state.safetensors with SHA-256" in refusal(folder)


def test_old_states_may_be_gone(folder):
    shutil.rmtree(folder / "rounds")
    assert verify(folder).lines == 15


def change(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


def edit(folder: Path, name: str, **changes: Any) -> None:
    (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))


def flip(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


CHANGES = {
    "best": (
        lambda run: flip(run, "best.safetensors"),
        "line 14: expected best.safetensors with SHA-256",
    ),
    "last": (
        lambda run: flip(run, "model.safetensors"),
        "line 14: expected model.safetensors with SHA-256",
    ),
    "gone": (lambda run: (run / "best.safetensors").unlink(), "best.safetensors with SHA-256"),
    "classes": (
        lambda run: change(run, "model.json", '"MEL",\n   "NV"', '"NV",\n   "MEL"'),
        "model.json with SHA-256",
    ),
    "round": (lambda run: edit(run, "best.json", round=9), "best.json with SHA-256"),
    "metrics": (
        lambda run: change(run, "metrics.jsonl", '"val"', '"test"'),
        "metrics.jsonl with SHA-256",
    ),
    "rounds": (
        lambda run: change(run, "rounds.jsonl", '"asked": ["', '"asked": ["site-7", "'),
        "rounds.jsonl with",
    ),
    "report": (
        lambda run: change(run, "report.html", "<html>", "<HTML>"),
        "line 15: expected report.html with SHA-256",
    ),
    "sheet": (
        lambda run: (run / "clinician.html").write_text("<html>"),
        "line 15: expected no file clinician.html",
    ),
    "experiment": (
        lambda run: change(run, "run.json", '"learning_rate": 0.001', '"learning_rate": 1e-9'),
        "experiment",
    ),
    "sites": (
        lambda run: edit(run, "run.json", sites=["site-1"]),
        "run.json with the sites site-1, site-2, site-9",
    ),
    "versions": (lambda run: edit(run, "run.json", versions={}), "run.json with versions"),
    "summary": (
        lambda run: edit(run, "run.json", summary={"best_round": 1}),
        "run.json as it was at the end of the run",
    ),
    "added": (lambda run: (run / "queries-2.jsonl").write_text(""), "no file queries-2.jsonl"),
    "picture": (
        lambda run: touch_in_new_folder(run / "reconstructions" / "1-filled.png"),
        "no file reconstructions/1-filled.png",
    ),
}


def touch_in_new_folder(path: Path) -> None:
    path.parent.mkdir()
    path.touch()


@pytest.mark.proves(
    "server",
    "files, run.json or audit log of a finished run are changed, cut or reordered",
    "found by `fedward audit verify` with the run alone",
)
@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_result_is_named(folder, case):
    tamper, named = CHANGES[case]
    tamper(folder)
    assert named in refusal(folder)


def test_a_copy_as_in_a_jobs_results_is_checked_too(whole, tmp_path):
    put_into_results(whole, tmp_path / "fedward")
    assert not (tmp_path / "fedward" / "rounds").exists()
    assert verify(tmp_path / "fedward").files == 10
    flip(tmp_path / "fedward", "best.safetensors")
    assert "best.safetensors" in refusal(tmp_path / "fedward")


def test_a_failed_run_is_checked_for_what_it_left(tmp_path, monkeypatch):
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    folder = run(tmp_path, stop=3)
    assert verify(folder).files == 8  # no last model and no sidecar of it
    flip(folder, "best.safetensors")
    assert "best.safetensors" in refusal(folder)


def test_a_failed_run_to_which_a_site_was_added_is_no_fault(tmp_path, monkeypatch):
    """The process was killed before run.json said that the run goes on."""
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    folder = run(tmp_path, stop=3)
    RunFolder.reopen(folder, sites=[*SITES, "site-new"])
    assert log_of(folder)[-1]["event"] == "joined"
    verified = verify(folder)
    assert verified.files is None
    assert "; 0 files. A site was added after the run had failed: until" in str(verified)


def test_a_report_written_again_after_a_crash_is_no_fault(folder, monkeypatch):
    """The crash has left half of the line about the first report."""
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    cut_in_mid_line_and_fitted(folder)
    resume_local(folder)
    events = [row["event"] for row in log_of(folder)]
    assert events[-3:] == ["ended", "torn", "reported"]
    assert verify(folder).files == 10
    (folder / "report.html").write_text("another")
    assert "line 16: expected report.html with SHA-256" in refusal(folder)


def test_a_report_written_again_is_on_record(folder):
    (folder / "report.html").write_text("another")
    assert "report.html with SHA-256" in refusal(folder)
    rewrite_report(folder)
    assert "<svg" in (folder / "report.html").read_text()
    assert verify(folder).lines == 16


def test_a_run_that_ends_while_its_report_is_written_has_the_report_of_its_end(folder, monkeypatch):
    finished = read_info(folder)
    going_on = finished.model_copy(update={"status": "running", "ended": None})
    known = iter([going_on, finished])
    monkeypatch.setattr(rewriting, "read_info", lambda _: next(known))
    pages = []

    def write(path, compare=()):
        pages.append(len(pages))
        (path / "report.html").write_text(f"page {len(pages)}")
        return path / "report.html"

    monkeypatch.setattr(rewriting, "write_report", write)
    rewrite_report(folder)
    assert (folder / "report.html").read_text() == "page 2"
    verify(folder)


def test_a_report_missing_in_the_record_is_written_again(folder, monkeypatch):
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    rewrite(folder, log_of(folder)[:-1])
    assert "line 15: expected a line with the hash of report.html" in refusal(folder)
    resume_local(folder)
    assert verify(folder).lines == 15


def test_a_crash_before_run_json_knows_of_the_end_is_no_fault(folder, monkeypatch):
    """The end is in the log; run.json still says that the run goes on, and it does."""
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    info = json.loads((folder / "run.json").read_text())
    before = {"lines": 13, "last_hash": log_of(folder)[12]["hash"]}
    edit(folder, "run.json", status="running", ended=None, summary={}, audit=before)
    write(folder, log_of(folder)[:14])
    (folder / "report.html").unlink()
    assert verify(folder).files == 10
    resume_local(folder)
    assert verify(folder, site_logs(folder)).answers == 5 * len(SITES)
    assert json.loads((folder / "run.json").read_text())["summary"] == info["summary"]


def first_line(folder: Path) -> dict[str, Any]:
    """Return what run.json says of a log of which it knows the first line alone."""
    return {"lines": 1, "last_hash": log_of(folder)[0]["hash"]}


LIES = {"summary": {"best_round": 1, "best_value": 0.99}, "synthetic": {}}


@pytest.mark.proves(
    "server",
    "files, run.json or audit log of a finished run are changed, cut or reordered",
    "found by `fedward audit verify` with the run alone",
)
@pytest.mark.parametrize(
    "end", [first_line, lambda folder: None, lambda folder: {"lines": 0, "last_hash": ""}]
)
def test_run_json_cannot_excuse_itself_from_the_check(folder, end):
    edit(folder, "run.json", **LIES, audit=end(folder))
    assert "line 14: expected run.json as it was at the end of the run" in refusal(folder)


@pytest.mark.proves(
    "server",
    "run.json claims a better model, and that the run goes on",
    "**not covered**: it looks like a crash at the end. `fedward audit verify` says "
    "that it is not checked, and no command uses its model",
)
def test_a_run_that_claims_to_go_on_is_told_as_such(folder):
    edit(folder, "run.json", **LIES, status="running", audit=first_line(folder))
    assert str(verify(folder)).endswith("what that file says of its end is not checked")
    with pytest.raises(ConfigError, match="one that has stopped"):
        load_model(folder)


def cut_at_a_line(folder: Path) -> None:
    write(folder, log_of(folder)[:-3])


def cut_in_mid_line(folder: Path) -> None:
    (folder / LOG).write_bytes((folder / LOG).read_bytes()[:-40])


def cut_in_mid_line_and_fitted(folder: Path) -> None:
    """run.json knows of the whole lines that are left."""
    cut_in_mid_line(folder)
    edit(
        folder, "run.json", audit={"lines": 14, "last_hash": log_of_whole_lines(folder)[-1]["hash"]}
    )


def log_of_whole_lines(folder: Path) -> Rows:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()[:-1]]


def cut_and_fitted(folder: Path) -> None:
    """All hashes fit, and metrics, report and models may be any."""
    rewrite(folder, log_of(folder)[:-2])
    (folder / "metrics.jsonl").write_text("")


def cut_and_called_failed(folder: Path) -> None:
    cut_and_fitted(folder)
    edit(folder, "run.json", status="failed")


def branch(folder: Path) -> None:
    """Two lines that follow the same one, each with a hash of its own that fits."""
    rows = log_of(folder)
    other = {key: value for key, value in {**rows[5], "salt": "0" * 32}.items() if key != "hash"}
    write(folder, [*rows[:6], {**other, "hash": digest(other)}, *rows[6:]])


def put_in_another_order(folder: Path) -> None:
    rows = log_of(folder)
    write(folder, [*rows[:4], rows[5], rows[4], *rows[6:]])


def go_on_after_the_end(folder: Path) -> None:
    rows = log_of(folder)
    rewrite(
        folder, [*rows, {**rows[-1], "event": "resumed", "details": {"round": 3, "state": None}}]
    )


def go_on_after_the_end_and_fail(folder: Path) -> None:
    go_on_after_the_end(folder)
    edit(folder, "run.json", status="failed")
    (folder / "metrics.jsonl").write_text("")


@pytest.mark.proves(
    "server",
    "files, run.json or audit log of a finished run are changed, cut or reordered",
    "found by `fedward audit verify` with the run alone",
)
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (
            cut_at_a_line,
            "line 13: expected 15 lines, as run.json says, found 12: the log was cut at the end",
        ),
        (cut_in_mid_line, "line 15: expected 15 lines, as run.json says, found 14"),
        (cut_in_mid_line_and_fitted, "line 15: expected a whole line, found half a line"),
        (
            cut_and_fitted,
            "line 14: expected a closing line, as the run is finished, found the end of the log",
        ),
        (
            cut_and_called_failed,
            "line 14: expected a closing line, as the run is failed, found the end of the log",
        ),
        (
            branch,
            "line 7: expected line 7, after the one before it, found a second line 6: one was "
            "inserted",
        ),
        (
            put_in_another_order,
            "line 5: expected line 5, after the one before it, found line 6: lines were put in",
        ),
        (go_on_after_the_end, "line 16: expected nothing after the end of the run but its report"),
        (
            go_on_after_the_end_and_fail,
            "line 16: expected nothing after the end of the run but its report",
        ),
    ],
)
def test_a_cut_or_forked_log_is_named(folder, harm, reason):
    harm(folder)
    assert reason in refusal(folder)


@pytest.mark.proves(
    "server",
    "files, run.json or audit log of a finished run are changed, cut or reordered",
    "found by `fedward audit verify` with the run alone",
)
@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ([0, 1, 2, 4, 3], "line 5: expected answers to the request before"),
        ([0, 1, 2, 3, 5, 4], "line 6: expected a commit of round 2 or later, found round 1"),
    ],
)
def test_another_order_with_all_hashes_is_named(folder, order, reason):
    rows = log_of(folder)
    rewrite(folder, [*(rows[place] for place in order), *rows[len(order) :]])
    assert reason in refusal(folder)


@pytest.mark.parametrize("name", ["model.json", "metrics.jsonl", "rounds.jsonl", "run.json", LOG])
def test_lists_without_end_are_named_and_not_followed(folder, name):
    deep = "[" * 100_000
    (folder / name).write_text(deep)
    rows = log_of(folder) if name != LOG else []
    if rows and name != "run.json":
        rows[-2]["details"]["files"][name] = file_digest(folder / name)
        rewrite(folder, rows)
    assert refusal(folder)


@pytest.mark.parametrize("name", ["rounds.jsonl", "metrics.jsonl"])
def test_half_a_line_in_a_log_of_a_finished_run_is_named(folder, name):
    """Only a run that was killed leaves one, and readers pass over it."""
    log = folder / name
    lines = log.read_text().count("\n")
    log.write_text(log.read_text() + '{"round": 3, "si')
    rows = log_of(folder)
    rows[-2]["details"]["files"][name] = file_digest(log)
    rewrite(folder, rows)
    half = f"line {lines + 1}: expected a whole line, as the run has finished, found half a line"
    assert f"{name}, {half}" in refusal(folder)


@pytest.mark.proves(
    "server",
    "a pipe or a device in a run folder",
    "refused and named",
)
@pytest.mark.parametrize("name", ["zz.jsonl", "report.html", "model.safetensors", LOG, "run.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_read(folder, name, kind, capsys):
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    assert f"found {name}, which is neither" in refusal(folder)
    with pytest.raises(RunError, match="which is neither"):
        load_model(folder)
    assert main(["runs", str(folder)]) == (
        2 if name == "run.json" else 0
    )  # without it, it is no run
    if name != "run.json":
        assert "which is neither" in " ".join(capsys.readouterr().out.split())


# --- against sites' logs


def test_a_forged_history_fails_against_any_site(folder):
    """Round 2 is told otherwise: other peers were chosen."""
    rows = log_of(folder)
    asked = number_of(folder, "asked", 2)
    rows[asked - 1]["details"]["decisions"]["peers"]["chosen"] = {}
    rewrite(folder, rows)
    assert verify(folder).lines == len(rows)
    for log in site_logs(folder):
        text = refusal(folder, log)
        assert f"line {asked}: expected the hash " in text
        assert "in round 2, part 0, found another: this line or one before it was changed" in text
        assert str(log) in text


@pytest.mark.proves(
    "server",
    "models, metrics, counts, surveys or the order of lines are changed, with all "
    "hashes computed again",
    "found by `fedward audit verify` with the log of any one site, or of the one concerned",
)
def test_models_replaced_by_the_server_fail_against_any_site(folder):
    """All hashes of the log are right, so it passes alone; sites hold the hash of their request."""
    rows = log_of(folder)
    last = json.loads((folder / "model.json").read_text())
    assert (
        json.loads((folder / "best.json").read_text())["round"] == last["round"]
    )  # one model in two files
    other = {key: tensor + 1 for key, tensor in StoredState(folder / "model.safetensors").items()}
    for file in ("best.safetensors", "model.safetensors"):
        save_model(folder / file, other)
        rows[-2]["details"]["files"][file] = file_digest(folder / file)
    rewrite(folder, rows)
    number = number_of(folder, "asked", last["round"] + 1)
    assert f"line {number}: expected model.safetensors with SHA-256" in refusal(folder)
    rows[number - 1]["details"]["model"] = arrays_digest(wire.flatten("model", other))
    rewrite(folder, rows)
    assert verify(folder)
    for log in site_logs(folder):
        assert f"line {number}: expected the hash" in refusal(folder, log)


@pytest.mark.proves(
    "server",
    "the end of the audit log is cut off, and run.json made to fit",
    "**not covered**: it looks like a run that goes on; states and models are still "
    "compared with what was sent",
)
def test_a_model_is_checked_without_the_end_of_the_run(folder):
    rewrite(folder, log_of(folder)[:-2])
    edit(folder, "run.json", status="running")
    assert verify(folder).files is None
    other = {key: tensor + 1 for key, tensor in StoredState(folder / "best.safetensors").items()}
    save_model(folder / "best.safetensors", other)
    assert "best.safetensors with SHA-256" in refusal(folder)
    edit(folder, "best.json", round=7)
    assert "a line that asks for round 8 with best.safetensors" in refusal(folder)


@pytest.mark.proves(
    "server",
    "the report and its line of the audit log are changed",
    "**not covered**: no site knows that line; models, metrics and settings are bound",
)
def test_a_report_changed_with_its_line_passes(folder):
    (folder / "report.html").write_text("another")
    rows = log_of(folder)
    rows[-1]["details"]["report"] = file_digest(folder / "report.html")
    rewrite(folder, rows)
    assert verify(folder, site_logs(folder)).answers == 12


@pytest.mark.proves(
    "server",
    "models, metrics, counts, surveys or the order of lines are changed, with all "
    "hashes computed again",
    "found by `fedward audit verify` with the log of any one site, or of the one concerned",
)
def test_forged_metrics_fail_against_their_site(folder):
    """The lines after the last request, which no site knows, are rewritten too."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    number, row = next(
        (number, row)
        for number, row in enumerate(map(json.loads, lines))
        if (row["site"], row["split"], row["name"], row["round"])
        == ("site-2", "test", "accuracy", 1)
    )
    lines[number] = json.dumps({**row, "value": 1.0})
    (folder / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    rows = log_of(folder)
    rows[-2]["details"]["files"]["metrics.jsonl"] = file_digest(folder / "metrics.jsonl")
    rewrite(folder, rows)
    one, two, _ = site_logs(folder)
    assert verify(folder, [one])
    assert "metrics.jsonl, round 1, site-2: expected the numbers that the site gave" in refusal(
        folder, one, two
    )


@pytest.mark.proves(
    "server",
    "models, metrics, counts, surveys or the order of lines are changed, with all "
    "hashes computed again",
    "found by `fedward audit verify` with the log of any one site, or of the one concerned",
)
@pytest.mark.parametrize("log", ["metrics", "binned"])
@pytest.mark.parametrize("only", [None, 2])
def test_removed_numbers_fail_against_their_site(folder, log, only):
    """All of them, or those of one model."""
    path = folder / f"{log}.jsonl"
    lines = path.read_text().splitlines(keepends=True)

    def goes(line: str) -> bool:
        row = json.loads(line)
        return row["site"] == "site-2" and only in (None, row["round"])

    path.write_text("".join(line for line in lines if not goes(line)))
    rows = log_of(folder)
    rows[-2]["details"]["files"][path.name] = file_digest(path)
    rewrite(folder, rows)
    one, two, _ = site_logs(folder)
    if log == "metrics":
        assert f"expected metrics of site-2 after round {only or 0}" in refusal(folder)
    else:
        assert verify(folder, [one])
        text = refusal(folder, one, two)
        assert f"binned.jsonl, round {only or 0}, site-2: expected the numbers" in text
        assert "found none" in text


@pytest.mark.parametrize("stop", [0, 3, 5])
def test_an_averaged_model_is_checked_against_sites_too(tmp_path, monkeypatch, stop):
    """It is evaluated in an exchange of its own after each round, also after an interruption."""
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    folder = run(tmp_path, stop, options={"average_decay": 0.5})
    logs = sorted(tmp_path.glob("sites/*/answers/*.jsonl"))
    assert verify(folder, logs).answers
    if stop:
        folder = run(tmp_path, resume=True, options={"average_decay": 0.5})
        assert verify(folder, logs).answers
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    remaining = [
        row for row in lines if (row["site"], row["round"], row["split"]) != ("site-1", 1, "val")
    ]
    assert len(remaining) < len(lines)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in remaining))
    rows = log_of(folder)
    rows[-2]["details"]["files"]["metrics.jsonl"] = file_digest(folder / "metrics.jsonl")
    rewrite(folder, rows)
    assert "metrics.jsonl, round 1, site-1: expected the numbers that the site gave" in refusal(
        folder, *logs
    )


@pytest.mark.proves(
    "server",
    "the card of a site is changed, removed or made up, with all hashes computed again",
    "found by `fedward audit verify` with the log of the site concerned",
)
def test_a_forged_card_fails_against_its_site(folder):
    """Whatever it gave is in run.json, and nothing else; a policy that keeps it in gives none."""
    card = {"texts": {"devices": "Dermatoscope D"}, "unusable": 5}
    log = site_logs(folder)[0]

    def record(cards: dict[str, Any]) -> None:
        info = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**info, "cards": cards}))
        rows = log_of(folder)
        rows[-2]["details"]["run"] = info_digest(read_info(folder))
        rewrite(folder, rows)

    assert verify(folder, [log])
    record({"site-1": card})
    assert "expected the card that the site gave" in refusal(folder, log)
    rows = lines_of(log)
    mended(log, [{**row, "card": digest(card)} for row in rows])
    record({"site-1": card})
    assert verify(folder, [log])
    record({"site-1": {**card, "texts": {"devices": "Dermatoscope E"}}})
    assert "found another one" in refusal(folder, log)
    record({})
    assert "card of site-1 in run.json: expected the card" in refusal(folder, log)


def test_forged_counts_fail_against_their_site(folder):
    """As metrics: of a site that finds one image more, with all hashes computed again."""
    lines = (folder / "binned.jsonl").read_text().splitlines()
    number, row = next(
        (number, row) for number, row in enumerate(map(json.loads, lines)) if row["round"] == 1
    )
    row["found"][0] += 1
    lines[number] = json.dumps(row)
    (folder / "binned.jsonl").write_text("\n".join([*lines, ""]))
    rows = log_of(folder)
    rows[-2]["details"]["files"]["binned.jsonl"] = file_digest(folder / "binned.jsonl")
    rewrite(folder, rows)
    assert verify(folder)
    expected_text = f"binned.jsonl, round 1, {row['site']}: expected the numbers that the site gave"
    assert expected_text in refusal(folder, *site_logs(folder))


def keep_rows(folder: Path, stays: Callable[[dict[str, Any]], bool]) -> None:
    """Leave some rows in the logs of a run."""
    for path in folder.glob("*.jsonl"):
        if path.name != LOG:
            kept = [row for row in lines_of(path) if stays(row)]
            path.write_text("".join(json.dumps(row) + "\n" for row in kept))


def test_a_history_cut_and_ended_anew_fails_against_any_site(folder):
    rows = log_of(folder)
    rewrite(folder, rows[: number_of(folder, "committed", 2)])
    edit(folder, "run.json", status="running")
    for model in folder.glob("*.safetensors"):
        model.unlink()
    assert "expected only rows that audit.jsonl accounts for" in refusal(folder)
    keep_rows(folder, lambda row: row["round"] <= (2 if row.get("split") == "train" else 1))
    assert verify(folder).lines == 8
    assert "line 9: expected the hash" in refusal(folder, site_logs(folder)[0])
    assert "in round 3, part 0, found the end of the log: it was cut" in refusal(
        folder, site_logs(folder)[0]
    )


@pytest.mark.proves(
    "server",
    "models, metrics, counts, surveys or the order of lines are changed, with all "
    "hashes computed again",
    "found by `fedward audit verify` with the log of any one site, or of the one concerned",
)
def test_a_round_taken_out_fails_against_any_site(folder):
    rows = [row for row in log_of(folder) if row["details"].get("round") != 2]
    rewrite(folder, rows)
    number = number_of(folder, "asked", 3)
    assert f"line {number}: " in refusal(folder, site_logs(folder)[0])
    assert "found a later round: lines before this one were removed" in refusal(
        folder, site_logs(folder)[0]
    )


def test_an_earlier_round_asked_without_a_resumption_is_named(folder):
    rows = log_of(folder)
    again = {**rows[number_of(folder, "asked", 2) - 1]}
    rewrite(folder, [*rows[:11], again, *rows[11:]])
    assert "line 12: expected an exchange after round 3, part 0, found round 2" in refusal(folder)


def mended(path: Path, rows: Rows) -> None:
    """Write a site's log anew, with all its hashes."""
    path.write_text("".join(canonical(row) + "\n" for row in chained(rows, path.stem)))


@pytest.mark.proves(
    "files",
    "a site's log is changed, with all its hashes",
    "found against the run, unless only its end is missing",
)
def test_a_sites_log_written_anew_does_not_fit_the_run(folder):
    log = site_logs(folder)[2]
    rows = lines_of(log)
    number = next(row["seq"] for row in rows if row["gave"])
    mended(log, [row for row in rows if row["seq"] != number])
    assert "expected only answers to requests that site-9's log knows" in refusal(folder, log)
    mended(log, [{**row, "gave": "a" * 64} if row["seq"] == number else row for row in rows])
    assert "expected the update that site-9 gave, SHA-256 aaaa" in refusal(folder, log)
    for name in ("model", "peers", "experiment", "task"):
        mended(log, [{**row, name: "a" * 64} if row["seq"] == number else row for row in rows])
        assert f"expected the {name} that site-9 was sent, aaaa" in refusal(folder, log)


@pytest.mark.parametrize(
    "harm", [lambda rows: [rows[0], *rows[2:]], lambda rows: [{**rows[0], "norm": 1.0}, *rows[1:]]]
)
def test_a_changed_line_of_a_sites_log_is_named(folder, harm):
    log = site_logs(folder)[0]
    log.write_text("".join(canonical(row) + "\n" for row in harm(lines_of(log))))
    assert f"{log}, line " in refusal(folder, log)


def test_a_concealed_request_fails_against_the_site(folder):
    """A site that was asked off the record has a line with another last hash, or with none."""
    log = site_logs(folder)[0]
    rows = lines_of(log)
    mended(log, [*rows, {**rows[-1], "event": "refused", "last_hash": None, "round": None}])
    assert "line 16: expected the hash None, which site-1 was shown" in refusal(folder, log)


@pytest.mark.proves(
    "files",
    "the end of a site's log is cut off",
    "**not covered**: an earlier copy looks the same; `fedward audit verify` counts "
    "the missing answers",
)
def test_a_partial_site_log_is_checked_for_what_it_holds(folder):
    log = site_logs(folder)[0]
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
    verification = verify(folder, [log])
    assert verification.answers == 2
    assert verification.later == 2
    assert str(verification).endswith("2 lines of sites' logs, 2 answers after their end")


def test_answers_that_the_server_left_out_are_counted(folder):
    """It may also have lost them on their way: nobody can tell which."""
    rows = log_of(folder)
    last = rows[number_of(folder, "answered", 4) - 1]["details"]
    last["evaluated"].remove("site-9")
    last["failed"]["site-9"] = "no answer within 60 s"
    write(folder, rows)
    change_rows(
        folder,
        lambda row: [] if is_of(row, 3, "site-9") else [row],
        "metrics",
        "binned",
    )
    name_best(folder, 3, 0.5)
    seal(folder)
    assert "1 answer in them that the server did not use" in str(verify(folder, site_logs(folder)))


def test_requests_that_no_site_has_answered_are_counted(folder):
    """A run may have been resumed at its end, or the server makes it look so."""
    rows = log_of(folder)
    asked, answered, *end = rows[-4:]
    nobody = {**answered["details"], "evaluated": [], "failed": dict.fromkeys(SITES, "no answer")}
    resumed = {**asked, "event": "resumed", "details": {"round": 3, "state": None}}
    again = [resumed, asked, {**answered, "details": nobody}]
    write(folder, [*rows[:-2], *again, *end])
    change_rows(
        folder,
        lambda row: [] if row["round"] == 3 and row.get("split") != "train" else [row],
        "metrics",
        "binned",
    )
    seal(folder)
    text = str(verify(folder, site_logs(folder)))
    assert ", 1 request after their end that these sites have not answered" in text
    assert text.endswith(". The run was resumed, and may have lost a better model than its best")


@pytest.mark.parametrize("content", [None, "", "half a li", "{}\n"])
def test_a_sites_log_that_says_nothing_of_this_run_is_named(tmp_path, whole, content):
    path = tmp_path / "log.jsonl"
    if content is not None:
        path.write_text(content)
    assert str(path) in refusal(whole, path)


def test_a_sites_log_of_another_run_is_named(tmp_path, whole):
    rows = lines_of(site_logs(whole)[0])
    path = tmp_path / "log.jsonl"
    path.write_text("".join(canonical(row) + "\n" for row in chained(rows, RUN)))
    assert f"found one of run {RUN}" in refusal(whole, path)


# --- results that the run's own records contradict


def seal(folder: Path) -> None:
    """Forge the end of a run: with the hashes of all files as they are now."""
    rows = log_of(folder)
    (ended,) = [row for row in rows if row["event"] == "ended"]
    ended["details"] |= {"files": outputs(folder), "run": info_digest(read_info(folder))}
    rewrite(folder, rows)


Line = dict[str, Any] | str


def change_rows(folder: Path, change: Callable[[dict[str, Any]], list[Line]], *logs: str) -> None:
    """Put rows, or lines as they are, in the place of each row of some logs."""
    for log in logs:
        path = folder / f"{log}.jsonl"
        lines = [line for row in lines_of(path) for line in change(row)]
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(f"{text}\n" for text in texts))


def name_best(folder: Path, round_: int, value: float) -> None:
    """Claim in all places that a model is the best."""
    edit(folder, "best.json", round=round_, value=value)
    summary = json.loads((folder / "run.json").read_text())["summary"]
    edit(folder, "run.json", summary={**summary, "best_round": round_, "best_value": value})


def is_of(row: dict[str, Any], round_: int, site: str = "site-2") -> bool:
    """Return whether a row is about a site's evaluation of a model."""
    return (row["site"], row["round"]) == (site, round_) and row.get("split") != "train"


def claim_another_round(folder: Path) -> None:
    """The numbers of a round that never was, and they are the best."""

    def with_another(row: dict[str, Any]) -> list[Line]:
        better = {"value": 1.0} if row.get("name") == "accuracy" else {}
        return [row, {**row, **better, "round": 4}] if is_of(row, 3, row["site"]) else [row]

    change_rows(folder, with_another, "metrics", "binned")


def claim_another_best_round(folder: Path) -> None:
    claim_another_round(folder)
    name_best(folder, 4, 1.0)


def claim_a_training(folder: Path) -> None:
    last = lines_of(folder / "metrics.jsonl")[-1]
    row = {**last, "round": 4, "split": "train", "name": "labelled"}
    change_rows(folder, lambda other: [other, row] if other == last else [other], "metrics")


def count_other_answers(folder: Path) -> None:
    """The counts of a site that did not evaluate, in its round."""
    rows = log_of(folder)
    rows[number_of(folder, "answered", 4) - 1]["details"]["evaluated"].remove("site-2")
    write(folder, rows)
    change_rows(folder, lambda row: [] if is_of(row, 3, "site-2") else [row], "metrics")


def twice(log: str, **changes: Any) -> Callable[[Path], None]:
    """Return the attack that adds a second row for the first one of a log, before it."""

    def attack(folder: Path) -> None:
        first = lines_of(folder / f"{log}.jsonl")[0]
        change_rows(folder, lambda row: [first | changes, row] if row == first else [row], log)

    return attack


def laid_out(
    write_row: Callable[[dict[str, Any]], str], log: str = "binned"
) -> Callable[[Path], None]:
    """Return the attack that lays the rows of round 3 out in another way."""

    def attack(folder: Path) -> None:
        change_rows(folder, lambda row: [write_row(row)] if row["round"] == 3 else [row], log)

    return attack


def claim_the_first_model(folder: Path) -> None:
    first = initial_model(tiny(), method_of(tiny())).state
    save_model(folder / "model.safetensors", first)
    edit(folder, "model.json", round=0)


def after_the_last_request(*lines: tuple[str, dict[str, Any]]) -> Callable[[Path], None]:
    """Return the attack that adds lines before the end, and takes the first model for the last."""

    def attack(folder: Path) -> None:
        rows = log_of(folder)
        added = [{**rows[-2], "event": event, "details": details} for event, details in lines]
        write(folder, [*rows[:-2], *added, *rows[-2:]])
        claim_the_first_model(folder)
        summary = json.loads((folder / "run.json").read_text())["summary"]
        edit(folder, "run.json", summary={**summary, "rounds": 0})

    return attack


def go_on_for_a_round(folder: Path) -> None:
    """A further round that no site was asked for, with the numbers of the last one."""
    rows = log_of(folder)
    asked, answered = (dict(row) for row in rows[-4:-2])
    committed = {**asked, "event": "committed", "details": {"round": 4, "state": None}}
    for row in (asked, answered):
        row["details"] = {**row["details"], "round": 5}
    write(folder, [*rows[:-2], committed, asked, answered, *rows[-2:]])
    claim_another_round(folder)
    edit(folder, "model.json", round=4)
    summarised(rounds=4)(folder)


def summarised(**changes: Any) -> Callable[[Path], None]:
    """Return the attack that changes the summary in run.json."""

    def attack(folder: Path) -> None:
        summary = json.loads((folder / "run.json").read_text())["summary"]
        edit(folder, "run.json", summary={**summary, **changes})

    return attack


def remove_best(folder: Path) -> None:
    for name in ("best.json", "best.safetensors"):
        (folder / name).unlink()
    summarised(best_round=None, best_value=None)(folder)


def join_at_the_end(folder: Path) -> None:
    rows = log_of(folder)
    write(
        folder,
        [*rows[:-2], {**rows[-2], "event": "joined", "details": {"sites": ["site-3"]}}, *rows[-2:]],
    )
    edit(folder, "run.json", sites=[*SITES, "site-3"])


def claim_an_earlier_best(folder: Path) -> None:
    first = initial_model(tiny(), method_of(tiny())).state
    save_model(folder / "best.safetensors", first)
    values = [
        row["value"]
        for row in lines_of(folder / "metrics.jsonl")
        if (row["round"], row["split"], row["name"]) == (0, "val", "accuracy")
    ]
    name_best(folder, 0, fmean(values))


def begin_without_a_digest(folder: Path) -> None:
    """The first line says nothing of the settings, which are then changed."""
    edit(folder, "run.json", settings={"rounds": 77})
    rows = log_of(folder)
    del rows[0]["details"]["beginning"]
    write(folder, rows)


NOT_NAMED = "expected only rows that audit.jsonl accounts for"
OTHER_LAYOUT = "expected a row as fedward writes it"


ONCE = "expected each row once"
FORGERIES = {
    "no digest of the beginning": (begin_without_a_digest, "beginning"),
    "an evaluation of another round": (claim_another_round, NOT_NAMED),
    "the best model of another round": (
        claim_another_best_round,
        "expected a line that asks for round 5 with best.safetensors",
    ),
    "a training in another round": (claim_a_training, NOT_NAMED),
    "counts of a site that gave none": (count_other_answers, NOT_NAMED),
    "two counts": (twice("binned"), ONCE),
    "two metrics": (twice("metrics", value=1.0), ONCE),
    "two rows of a training": (
        lambda folder: change_rows(
            folder, lambda row: [row, row] if row["split"] == "train" else [row], "metrics"
        ),
        ONCE,
    ),
    "two rows of an exchange": (twice("rounds"), ONCE),
    "two rows of bytes": (twice("bytes"), ONCE),
    "two rows of labels": (twice("peers"), ONCE),
    "another layout": (laid_out(canonical), OTHER_LAYOUT),
    "a field twice": (
        laid_out(lambda row: json.dumps(row)[:-1] + f', "site": "{row["site"]}"' + "}"),
        OTHER_LAYOUT,
    ),
    "a part twice": (
        laid_out(lambda row: json.dumps(row).replace("{", '{"round": 3, ', 1)),
        OTHER_LAYOUT,
    ),
    "a round with a point": (laid_out(lambda row: json.dumps({**row, "round": 3.0})), OTHER_LAYOUT),
    "another order of fields": (
        laid_out(lambda row: json.dumps(dict(reversed(row.items())))),
        OTHER_LAYOUT,
    ),
    "other white space": (laid_out(lambda row: json.dumps(row) + "\r"), OTHER_LAYOUT),
    "another layout of rounds": (laid_out(canonical, "rounds"), OTHER_LAYOUT),
    "no last line": (laid_out(lambda row: "half a li", "metrics"), OTHER_LAYOUT),
    "the first model as the last": (claim_the_first_model, "model.json, round: expected 3"),
    "a commit of round 0": (
        after_the_last_request(("committed", {"round": 0, "state": None})),
        "expected a commit of round 4 or later",
    ),
    "a resumption at round 0": (
        after_the_last_request(("resumed", {"round": 0, "state": None})),
        NOT_NAMED,
    ),
    "a resumption at round 3": (
        after_the_last_request(("resumed", {"round": 3, "state": None})),
        NOT_NAMED,
    ),
    "a round more": (go_on_for_a_round, "line 15: expected a request for at most round 4"),
    "another value of the best model": (
        lambda folder: name_best(folder, 3, 0.99),
        "best.json, value: expected 0.3333333333333333, by metrics.jsonl, found 0.99",
    ),
    "an earlier model as the best": (
        claim_an_earlier_best,
        "best.json, round: expected 3, by metrics.jsonl, found 0",
    ),
    "another metric of the best model": (
        lambda folder: edit(folder, "best.json", metric="mean over sites of val f1"),
        "line 1: expected best.json as this run writes it",
    ),
    "untrained tensors": (
        lambda folder: edit(folder, "model.json", untrained=["classifier.weight"]),
        "line 1: expected model.json as this run writes it",
    ),
    "a best model without its weights": (
        lambda folder: (folder / "best.safetensors").unlink(),
        "expected best.json and best.safetensors, found one of them",
    ),
    "a site that joins at the end": (
        join_at_the_end,
        "run.json, sites: expected ['site-1', 'site-2', 'site-9'], found",
    ),
    "no best model": (remove_best, "best.json: expected the model after round 3"),
    "another best round in the summary": (summarised(best_round=1), "expected (3, 0.3333"),
    "another best value in the summary": (summarised(best_value=0.9), "expected (3, 0.3333"),
    "other rounds in the summary": (summarised(rounds=9), "rounds of the summary: expected 3"),
    "another method": (
        lambda folder: edit(folder, "run.json", method="fedavg"),
        "line 1: expected run.json with the method fedperl",
    ),
} | {
    f"another {name}": (
        lambda folder, name=name, value=value: edit(folder, "run.json", **{name: value}),
        "line 1: expected run.json with method, job, settings and first model",
    )
    for name, value in {
        "job": "another",
        "settings": {"rounds": 77},
        "init": {"folder": "x", "sha256": "ab" * 32},
        "leaks": {"patient": {"in_several_splits": 3, "in_training_and_test": 0}},
        "private": ["classifier."],
        "untrained": ["classifier."],
    }.items()
}
FORGERIES |= {
    f"another {name}": (
        lambda folder, name=name, value=value: edit(folder, "run.json", **{name: value}),
        f"line 1: expected run.json with {name} ",
    )
    for name, value in {"engine": "flare", "seed": 7, "base": "ab" * 32}.items()
}


@pytest.mark.proves(
    "server",
    "results contradict the run's own records: made-up or repeated rows, another last or best "
    "round, other facts of the run's beginning; with all hashes computed again",
    "found by `fedward audit verify` with the run alone",
)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_results_that_the_records_contradict_are_named(folder, forgery):
    attack, reason = FORGERIES[forgery]
    attack(folder)
    seal(folder)
    assert reason in refusal(folder)
    assert reason in refusal(folder, *site_logs(folder))


def train_rows(**changes: Any) -> Callable[[Path], None]:
    """Return the attack that changes site-2's numbers of labelled images in round 2."""

    def changed(row: dict[str, Any]) -> list[Line]:
        found = (row["site"], row["round"], row["name"]) == ("site-2", 2, "labelled")
        return [row | changes] if found else [row]

    return lambda folder: change_rows(folder, changed, "metrics")


def leave_out_training(folder: Path) -> None:
    change_rows(
        folder,
        lambda row: [] if row["split"] == "train" and row["round"] == 2 else [row],
        "metrics",
    )


def validate_better(folder: Path) -> None:
    """Site-2 finds the first model best, and so it is the best of the run."""

    def better(row: dict[str, Any]) -> list[Line]:
        is_judged = is_of(row, 0) and (row["split"], row["name"]) == ("val", "accuracy")
        return [{**row, "value": 1.0}] if is_judged else [row]

    change_rows(folder, better, "metrics")
    claim_an_earlier_best(folder)


def begin_otherwise(folder: Path) -> None:
    """The first line of the audit log is made to fit, too."""
    edit(folder, "run.json", settings={"rounds": 77})
    rows = log_of(folder)
    rows[0]["details"]["beginning"] = beginning_digest(read_info(folder))
    write(folder, rows)


def synthetic(**changes: bool | None) -> Callable[[Path], None]:
    """Return the attack that changes what run.json says of sites' images; None removes it."""

    def attack(folder: Path) -> None:
        info = json.loads((folder / "run.json").read_text())
        said = {site.replace("_", "-"): value for site, value in changes.items()}
        kept = {
            site: value for site, value in (info["synthetic"] | said).items() if value is not None
        }
        edit(folder, "run.json", synthetic=kept)

    return attack


IMAGES = "metrics.jsonl, round 2, site-2, images of its training: expected the numbers"
FORGERIES_OF_SITES = {
    "labelled images": (train_rows(value=9999), IMAGES),
    "images of the training": (train_rows(n=9999), IMAGES),
    "no numbers of the training": (leave_out_training, IMAGES),
    "a value that makes another model the best": (
        validate_better,
        "metrics.jsonl, round 0, site-2: expected the numbers that the site gave",
    ),
    "another beginning": (begin_otherwise, "expected the hash"),
    "real images": (synthetic(site_2=False), "synthetic of site-2 in run.json: expected True"),
    "nothing said of images": (synthetic(site_2=None), "synthetic of site-2 in run.json"),
}


@pytest.mark.proves(
    "server",
    "a site's number of training images, what it says of their origin, or its validation are "
    "changed, so that another model is the best; with all hashes computed again",
    "found by `fedward audit verify` with the log of the site concerned",
)
@pytest.mark.parametrize("forgery", FORGERIES_OF_SITES)
def test_results_that_a_sites_log_contradicts_are_named(folder, forgery):
    attack, reason = FORGERIES_OF_SITES[forgery]
    attack(folder)
    seal(folder)
    assert verify(folder)
    assert reason in refusal(folder, site_logs(folder)[1])


@pytest.mark.parametrize(
    ("method", "average"),
    [
        ("fedavg", 0.0),
        ("fedperl", 0.5),
        ("isofed", 0.0),
        ("fedal", 0.0),
        ("fedmatch", 0.0),
        ("alone", 0.0),
        ("oneshot", 0.0),
        ("selffed", 0.0),
    ],
)
@pytest.mark.usefixtures("narrow_swin")
def test_a_run_passes_at_every_moment(tmp_path, monkeypatch, method, average):
    """While it goes on, its rows and models are written one after the other."""
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    moments = []

    def checking(name: str) -> None:
        act = getattr(RunFolder, name)

        def checked(self: RunFolder, *arguments: Any, **named: Any) -> Any:
            result = act(self, *arguments, **named)
            verify(self.path, sorted(tmp_path.glob("**/answers/*.jsonl")))
            moments.append(name)
            return result

        monkeypatch.setattr(RunFolder, name, checked)

    for name in ("flush", "_save_best", "commit", "save_global", "set_status", "report"):
        checking(name)
    options = {"average_decay": average} if average else {}
    folder = run_local(tiny(method, options=options), tmp_path / "run", sites=SITES)
    assert len(moments) > 8
    assert verify(folder, site_logs(folder)).best_of_all


@pytest.mark.parametrize(("average", "round_"), [(0.5, 1), (0.5, 2), (0.5, 3), (0.0, 2)])
@pytest.mark.parametrize("moment", ["save_json", "save_state", "add", "truncate"])
def test_a_run_killed_at_a_commit_or_while_it_resumes_passes(
    tmp_path, monkeypatch, average, round_, moment
):
    """Within the best model, or between it and the state, the state and its line, line and logs."""
    monkeypatch.setattr("fedward.lab.simulation.write_report", report)
    options = {"average_decay": average}

    def logs() -> list[Path]:
        return sorted(tmp_path.glob("sites/*/answers/*.jsonl"))

    def dies(*arguments: Any, **named: Any) -> Any:
        raise KeyboardInterrupt

    def dies_before_best_json(path: Path, value: Any) -> None:
        if path.name == "best.json":
            raise KeyboardInterrupt
        save_json(path, value)

    deaths = {
        "save_json": ("fedward.storage.run_folder.save_json", dies_before_best_json),
        "save_state": ("fedward.storage.run_folder.save_state", dies),
        "add": ("fedward.storage.saved_states.SavedStates.digest", dies),
    }
    with monkeypatch.context() as patch:
        commit = RunFolder.commit

        def killed(self: RunFolder, number: int, state: Any) -> None:
            if number == round_ and moment in deaths:
                patch.setattr(*deaths[moment])
            commit(self, number, state)

        patch.setattr(RunFolder, "commit", killed)
        # With an average most rounds have two exchanges; the model of the last has the next one.
        stop = min(2 * round_ + 1, 6) if average else round_ + 1
        folder = run(tmp_path, stop=stop, options=options)
    assert verify(folder, logs())
    if moment == "truncate":
        state = folder / "rounds" / f"{round_:05d}" / "state.safetensors"
        state.write_bytes(state.read_bytes()[:-1] + b"\x07")
        with monkeypatch.context() as patch:
            patch.setattr("fedward.storage.run_folder.os.truncate", dies)
            run(tmp_path, stop=99, resume=True, options=options)
        assert verify(folder, logs())
    run(tmp_path, resume=True, options=options)
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    assert verify(folder, logs())


# --- the command


def test_the_command_says_yes_or_names_the_line(folder, capsys):
    command = ["audit", "verify", str(folder), "--site", *map(str, site_logs(folder))]
    assert main(command) == 0
    verdict, numbers = capsys.readouterr().out.splitlines()
    assert verdict == "Nothing was changed, as far as the run and the logs of 3 sites can tell."
    assert numbers.startswith("audit.jsonl: 15 lines, last hash ")
    write(folder, log_of(folder)[:-1])
    assert main(command) == 1
    assert capsys.readouterr().err.startswith("fedward: audit.jsonl, line 15: expected 15 lines")


def test_the_command_reads_sites_logs_alone_too(folder, capsys):
    one, two, _ = site_logs(folder)
    assert main(["audit", "verify", "--site", str(one), str(two)]) == 0
    verdict, first, _ = capsys.readouterr().out.splitlines()
    assert verdict == "Nothing was changed, as far as each log alone can tell."
    assert first.startswith(
        f"{one}: site-1, run {log_of(folder)[0]['previous']}: 4 answered, 0 fail"
    )
    assert main(["audit", "verify"]) == 2
    assert "needs a run folder, --site with sites' logs, or both" in capsys.readouterr().err
