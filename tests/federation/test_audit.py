"""The audit log: what it holds, that it survives a crash, and that no line of it can be changed without a trace."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedward.cli import main
from fedward.digests import digest, file_digest
from fedward.errors import RunError, WireError
from fedward.federation.audit import LOG, AuditLog
from fedward.federation.audit_check import verify
from fedward.federation.driver import run_experiment
from fedward.federation.local import LocalTransport, run_local
from fedward.federation.run_folder import RunFolder
from fedward.federation.witness import keep_head
from tiny import tiny

SITES = ["site-1", "site-2", "site-9"]
RUN = "0123456789abcdef" * 2
Rows = list[dict[str, Any]]


def log_of(folder: Path) -> Rows:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def write(folder: Path, rows: Rows) -> None:
    (folder / LOG).write_text("".join(canonical(row) + "\n" for row in rows))


def canonical(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def chained(rows: Rows, run: str) -> Rows:
    """What a server writes that makes up another history with all its hashes."""
    previous, found = run, []
    for seq, row in enumerate(rows, 1):
        rest = {key: value for key, value in row.items() if key != "hash"} | {"seq": seq, "previous": previous}
        found.append({**rest, "hash": digest(rest)})
        previous = found[-1]["hash"]
    return found


def witnesses(folder: Path) -> list[Path]:
    return sorted(folder.glob("sites/*/witness/*.jsonl"))


def number_of(folder: Path, event: str, round_: int) -> int:
    """The line of an event in a round, from 1."""
    return next(row["seq"] for row in log_of(folder) if row["event"] == event and row["details"]["round"] == round_)


def said(folder: Path, *witness: Path) -> str:
    with pytest.raises(RunError) as error:
        verify(folder, witness)
    return str(error.value)


def run(folder: Path, stop: int = 0, resume: bool = False, **changes: Any) -> Path:
    """Run the tiny FedPerl, or interrupt it in its exchange number ``stop``, after one site's answer."""
    experiment = tiny("fedperl", **changes)
    transport = LocalTransport(experiment, SITES, folder / "sites")
    whole, exchanges = transport.exchange, iter(range(1, 99))

    def exchange(requests: Any, timeout: int, deliver: Any) -> None:
        if next(exchanges) == stop:
            whole(dict(sorted(requests.items())[:1]), timeout, deliver)
            raise KeyboardInterrupt
        whole(requests, timeout, deliver)

    transport.exchange = exchange  # type: ignore[method-assign]
    run_folder = folder / "run"
    try:
        run_experiment(experiment, run_folder, transport, engine="local", resume=resume)
    except KeyboardInterrupt:
        assert stop
    return run_folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three rounds; its sites' folders lie in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.federation.driver.write_report", lambda path: None)
        return run_local(tiny("fedperl"), tmp_path_factory.mktemp("whole") / "run", sites=SITES)


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be changed."""
    return shutil.copytree(whole, tmp_path / "run")


# --- what is written


def test_a_run_leaves_its_decisions_in_order(whole):
    events = [(row["event"], row["details"].get("round")) for row in log_of(whole)]
    rounds = [(event, number) for number in (1, 2, 3) for event in ("asked", "answered", "committed")]
    assert events == [("begun", None), ("committed", 0), *rounds, ("asked", 4), ("answered", 4), ("ended", None)]


def test_lines_say_who_was_asked_who_answered_and_what_was_decided(whole):
    rows, info = log_of(whole), json.loads((whole / "run.json").read_text())
    begun = rows[0]["details"]
    assert begun["experiment"] == digest(info["experiment"])
    assert (begun["sites"], begun["seed"], begun["versions"]) == (SITES, info["seed"], info["versions"])
    rounds = [json.loads(line) for line in (whole / "rounds.jsonl").read_text().splitlines()]
    peers = [json.loads(line) for line in (whole / "peers.jsonl").read_text().splitlines()]
    for row in rounds:
        asked, answered = (
            rows[number_of(whole, event, row["round"]) - 1]["details"] for event in ("asked", "answered")
        )
        assert sorted(asked["work"]) == row["asked"]
        assert (asked["evaluate"], answered["evaluated"]) == (SITES, SITES)
        assert (answered["replied"], answered["failed"]) == (row["replied"], row["failed"])
    for row in peers:
        decided = rows[number_of(whole, "asked", row["round"]) - 1]["details"]["decisions"]["peers"]
        assert decided["chosen"] == row["chosen"]
        assert decided["similarity"] == {"sha256": digest(row["similarity"])}


def test_states_and_the_final_model_are_named_by_their_hash(whole):
    rows = log_of(whole)
    assert rows[-1]["details"] == {
        "status": "finished",
        "reason": None,
        "model": file_digest(whole / "model.safetensors"),
    }
    state = file_digest(whole / "rounds" / "00003" / "state.safetensors")
    assert rows[number_of(whole, "committed", 3) - 1]["details"] == {"round": 3, "state": state}
    assert json.loads((whole / "run.json").read_text())["audit"] == {"lines": len(rows), "head": rows[-1]["hash"]}


def test_who_is_refused_is_in_the_log_with_the_reason(tmp_path):
    """The hand that answers for site-2 says what no site may say."""
    experiment = tiny("ssfl", options={"rounds": 1, "participants": 3})
    transport = LocalTransport(experiment, SITES, tmp_path / "sites")
    exchange = transport.exchange

    def talkative(requests: Any, timeout: int, deliver: Callable[..., None]) -> None:
        def change(site: str, answer: Any) -> None:
            if site == "site-2":
                answer.meta["patients"] = ["a name"]
            deliver(site, answer)

        exchange(requests, timeout, change)

    transport.exchange = talkative  # type: ignore[method-assign]
    folder = run_experiment(experiment, tmp_path / "run", transport, engine="local")
    answered = log_of(folder)[number_of(folder, "answered", 1) - 1]["details"]
    assert answered["replied"] == ["site-1", "site-9"]
    assert "also patients" in answered["failed"]["site-2"]


def test_lines_of_equal_content_have_hashes_that_nobody_can_guess(tmp_path):
    one, two = (AuditLog(tmp_path / name, RUN).add("asked", round=1) for name in ("one", "two"))
    assert one != two


def test_a_methods_notes_are_decisions(tmp_path):
    folder = RunFolder.create(tmp_path / "run", tiny(), SITES, "local")
    folder.note("groups", {"round": 1, "weights": [0.25, 0.75], "distances": [[1.0, 2.0]]})
    row = {"round": 1, "weights": [0.25, 0.75], "distances": {"sha256": digest([[1.0, 2.0]])}}
    assert log_of(tmp_path / "run")[-1]["details"] == {"log": "groups", "row": row}


# --- interruptions


def test_what_an_interrupted_round_decided_stays_and_the_other_logs_are_as_if_nothing_was(tmp_path, whole, monkeypatch):
    monkeypatch.setattr("fedward.federation.driver.write_report", lambda path: None)
    folder = run(tmp_path, stop=2)
    before = (folder / LOG).read_bytes()
    state = file_digest(folder / "rounds" / "00001" / "state.safetensors")
    run(tmp_path, resume=True)
    assert (folder / LOG).read_bytes().startswith(before)
    rows = log_of(folder)[before.count(b"\n") - 2 :]
    assert [row["event"] for row in rows[:5]] == ["asked", "ended", "resumed", "asked", "answered"]
    assert rows[1]["details"] == {"status": "failed", "reason": "KeyboardInterrupt", "model": None}
    assert rows[2]["details"] == {"round": 1, "state": state}
    assert rows[0]["details"] == rows[3]["details"]
    found = verify(folder, sorted(tmp_path.glob("sites/*/witness/*.jsonl")))
    assert found.entries == 4 * len(SITES) + 1  # one site was asked in the interrupted round too
    for log in ("peers.jsonl", "bytes.jsonl", "groups.jsonl"):
        assert (folder / log).read_bytes() == (whole / log).read_bytes()


def test_a_run_killed_before_its_first_commit_says_so_too(tmp_path):
    folder = RunFolder.create(tmp_path / "run", tiny(), SITES, "local").path
    RunFolder.reopen(folder).restore(object)
    assert log_of(folder)[-1]["event"] == "resumed"
    assert log_of(folder)[-1]["details"] == {"round": 0, "state": None}


@pytest.mark.parametrize("rest", [b'{"details":{"rou', b"\x00\x00\xff", b"x"])
def test_half_a_line_is_quoted_in_the_next_and_refused_until_then(folder, rest):
    with (folder / LOG).open("ab") as file:
        file.write(rest)
    number = len(log_of_bytes(folder)) + 1
    assert f"line {number}: expected a whole line, found half a line" in said(folder)
    info = json.loads((folder / "run.json").read_text())
    log = AuditLog(folder / LOG, info["id"], info["audit"])
    log.add("resumed", round=3, state=None)
    torn, resumed = log_of(folder)[-2:]
    assert torn["event"] == "torn"
    assert torn["details"]["text"].encode("latin-1").decode("unicode_escape") == rest.decode("latin-1")
    assert resumed["seq"] == log.end["lines"] == number + 1
    assert not list(folder.glob("*.partial"))


def log_of_bytes(folder: Path) -> list[bytes]:
    return (folder / LOG).read_bytes().split(b"\n")[:-1]


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (lambda rows: [{**rows[0], "time": "never"}, *rows[1:]], "line 1: expected what its hash"),
        (lambda rows: rows[:-2], "run.json tells, found 12: the log was cut"),
        (lambda rows: [], "the log was cut"),
    ],
)
def test_a_log_found_damaged_goes_on_and_never_passes_again(folder, harm, found):
    info = json.loads((folder / "run.json").read_text())
    write(folder, harm(log_of(folder)))
    log = AuditLog(folder / LOG, info["id"], info["audit"])
    assert found in log_of(folder)[-1]["details"]["found"]
    (folder / "run.json").write_text(json.dumps({**info, "status": "running", "audit": log.end}))
    assert found in said(folder)


def test_opening_a_sound_log_writes_nothing(folder):
    before, info = (folder / LOG).read_bytes(), json.loads((folder / "run.json").read_text())
    assert AuditLog(folder / LOG, info["id"], info["audit"]).end == info["audit"]
    assert (folder / LOG).read_bytes() == before


# --- what is found out


def test_a_sound_log_passes_with_and_without_witnesses(whole):
    head = log_of(whole)[-1]["hash"]
    assert str(verify(whole)) == f"audit.jsonl: 14 lines, head {head}, 0 witnessed"
    assert str(verify(whole, witnesses(whole))) == f"audit.jsonl: 14 lines, head {head}, 12 witnessed"


@pytest.mark.parametrize("number", [1, 2, 5, 14])
@pytest.mark.parametrize("change", ["details", "time", "event", "salt", "layout", "field", "text"])
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
    assert f"audit.jsonl, line {number}: " in said(folder)
    assert "the line was changed" in said(folder)


@pytest.mark.parametrize("number", [1, 2, 5, 13])
def test_a_line_changed_with_its_own_hash_is_named(folder, number):
    rows = log_of(folder)
    rest = {key: value for key, value in rows[number - 1].items() if key != "hash"} | {"time": "never"}
    rows[number - 1] = {**rest, "hash": digest(rest)}
    write(folder, rows)
    assert f"line {number}: expected the line that line {number + 1} follows" in said(folder)


def test_the_last_line_changed_with_its_own_hash_is_what_run_json_knows(folder):
    rows = log_of(folder)
    write(folder, chained([*rows[:-1], {**rows[-1], "time": "never"}], rows[0]["previous"]))
    assert "line 14: expected the hash" in said(folder)


@pytest.mark.parametrize("number", [1, 2, 5, 13])
def test_a_removed_line_is_named(folder, number):
    rows = log_of(folder)
    write(folder, [row for row in rows if row["seq"] != number])
    assert f"line {number}: " in said(folder)
    assert f"found line {number + 1}: lines were removed" in said(folder)


@pytest.mark.parametrize("number", [2, 5, 14])
def test_an_inserted_line_is_named(folder, number):
    rows = log_of(folder)
    rest = {key: value for key, value in rows[number - 1].items() if key != "hash"} | {"event": "noted"}
    write(folder, [*rows[: number - 1], {**rest, "hash": digest(rest)}, *rows[number - 1 :]])
    assert f"line {number + 1}: " in said(folder)
    assert f"a second line {number}: one was inserted" in said(folder)


@pytest.mark.parametrize(("one", "two"), [(1, 2), (4, 5), (3, 9), (13, 14)])
def test_lines_in_another_order_are_named(folder, one, two):
    rows = log_of(folder)
    rows[one - 1], rows[two - 1] = rows[two - 1], rows[one - 1]
    write(folder, rows)
    assert f"line {one}: " in said(folder)
    assert f"found line {two}: lines were put in another order" in said(folder)


@pytest.mark.parametrize("kept", [0, 1, 6, 13])
def test_a_log_cut_at_the_end_is_named_by_what_run_json_knows(folder, kept):
    write(folder, log_of(folder)[:kept])
    assert f"line {kept + 1}: expected 14 lines, as run.json tells, found {kept}" in said(folder)


def test_a_log_of_another_run_is_named(folder):
    write(folder, chained(log_of(folder), RUN))
    assert "line 1: expected the first line of this run, found one of another run" in said(folder)


def test_a_line_after_the_end_is_named(folder):
    rows = log_of(folder)
    write(folder, chained([*rows, {**rows[-1], "event": "noted"}], rows[0]["previous"]))
    assert "line 15: expected nothing after the end of the run" in said(folder)


@pytest.mark.parametrize(("file", "number"), [("model.safetensors", 14), ("rounds/00003/state.safetensors", 11)])
def test_a_model_that_is_not_the_one_written_is_named(folder, file, number):
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert f"line {number}: expected {file} with SHA-256" in said(folder)


def test_a_final_model_that_is_gone_is_named_and_old_states_may_be(folder):
    shutil.rmtree(folder / "rounds")
    assert verify(folder).lines == 14
    (folder / "model.safetensors").unlink()
    assert "line 14: expected model.safetensors with SHA-256" in said(folder)
    assert "found no such file" in said(folder)


def rewrite(folder: Path, rows: Rows) -> None:
    """Make up a history as the one who runs the server can: all hashes, and run.json too."""
    info = json.loads((folder / "run.json").read_text())
    found = chained(rows, info["id"])
    write(folder, found)
    end = {"lines": len(found), "head": found[-1]["hash"]}
    (folder / "run.json").write_text(json.dumps({**info, "audit": end}))


def test_a_history_made_up_anew_passes_alone_and_fails_against_any_site(folder):
    """Round 2 is told otherwise: site-9 was never asked."""
    rows = log_of(folder)
    asked = number_of(folder, "asked", 2)
    rows[asked - 1]["details"]["work"].pop("site-9")
    rewrite(folder, rows)
    assert verify(folder).lines == len(rows)
    for witness in witnesses(folder):
        text = said(folder, witness)
        assert f"line {asked}: expected the hash " in text
        assert "in round 2, part 0, found another: this line or one before it was written anew" in text
        assert str(witness) in text


def test_a_history_cut_and_ended_anew_fails_against_any_site(folder):
    rows = log_of(folder)
    rewrite(folder, [*rows[: number_of(folder, "committed", 2)], rows[-1]])
    assert verify(folder).lines == 9
    assert "line 10: expected the hash" in said(folder, witnesses(folder)[0])
    assert "in round 3, part 0, found the end of the log: it was cut" in said(folder, witnesses(folder)[0])


def test_a_round_taken_out_fails_against_any_site(folder):
    rows = [row for row in log_of(folder) if row["details"].get("round") != 2]
    rewrite(folder, rows)
    assert verify(folder).lines == 11
    number = number_of(folder, "asked", 3)
    assert f"line {number}: " in said(folder, witnesses(folder)[0])
    assert "found a later round: lines before this one were removed" in said(folder, witnesses(folder)[0])


def test_a_reply_in_the_name_of_a_site_that_was_not_asked_fails_against_it(folder):
    """Also where the server wrote it at the time, so that every hash is the one the others were shown."""
    witness = next(path for path in witnesses(folder) if "site-9" in str(path))
    lines = witness.read_text().splitlines(keepends=True)
    witness.write_text("".join(line for line in lines if json.loads(line)["round"] != 2))
    number = number_of(folder, "answered", 2)
    assert f"line {number}: expected only answers to requests that site-9's witness knows" in said(folder, witness)


def test_a_copy_of_a_witness_taken_during_the_run_is_enough_for_what_it_holds(folder):
    witness = witnesses(folder)[0]
    witness.write_text("".join(witness.read_text().splitlines(keepends=True)[:2]))
    assert verify(folder, [witness]).entries == 2


# --- witnesses


def request(**changes: Any) -> dict[str, Any]:
    return {"run": RUN, "head": "ab" * 32, "round": 2, "part": 1, **changes}


def test_a_site_keeps_what_it_was_shown(tmp_path):
    keep_head(tmp_path / "witness", "site-1", request())
    keep_head(tmp_path / "witness", "site-1", request(round=3))
    rows = [json.loads(line) for line in (tmp_path / "witness" / f"{RUN}.jsonl").read_text().splitlines()]
    assert [(row["run"], row["site"], row["round"], row["part"], row["head"]) for row in rows] == [
        (RUN, "site-1", 2, 1, "ab" * 32),
        (RUN, "site-1", 3, 1, "ab" * 32),
    ]


def test_half_a_line_of_a_witness_costs_no_other(tmp_path, folder):
    witness = witnesses(folder)[0]
    with witness.open("ab") as file:
        file.write(b'{"head":"12')
    rows = log_of(folder)
    asked = rows[number_of(folder, "asked", 3) - 1]
    keep_head(witness.parent, "site-1", {"run": rows[0]["previous"], "head": asked["hash"], "round": 3, "part": 0})
    found = verify(folder, [witness])
    assert (found.entries, found.unreadable) == (5, 1)
    assert str(found).endswith("5 witnessed, 1 unreadable lines in witnesses")


@pytest.mark.parametrize(
    "changes",
    [{"run": "../" + RUN}, {"run": RUN[:-1]}, {"run": 3}, {"head": "AB" * 32}, {"head": "ab"}, {"head": None}],
)
def test_ids_and_heads_that_are_none_are_refused(tmp_path, changes):
    with pytest.raises(WireError, match="hexadecimal digits"):
        keep_head(tmp_path / "witness", "site-1", request(**changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, "", "half a li", canonical({**request(), "site": "site-1"})])
def test_a_witness_that_says_nothing_of_this_run_is_named(tmp_path, whole, content):
    path = tmp_path / "witness.jsonl"
    if content is not None:
        path.write_text(content)
    assert f"witness {path}: expected entries of this run" in said(whole, path)


# --- the command


def test_the_command_says_yes_or_names_the_line(folder, capsys):
    command = ["audit", "verify", str(folder), "--witness", *map(str, witnesses(folder))]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("audit.jsonl: 14 lines, head ")
    write(folder, log_of(folder)[:-1])
    assert main(command) == 1
    assert capsys.readouterr().err.startswith("fedward: audit.jsonl, line 14: expected 14 lines")
