"""A site's own log: what a server cannot ask, what is written, and what a line holds."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asking import LAST_HASH, RUN, requests
from clients import new_client
from fedward.client.client import Client
from fedward.client.site_log import SiteLog
from fedward.config import Experiment
from fedward.digests import arrays_digest, digest
from fedward.errors import RunError, WireError
from fedward.methods import method_of
from fedward.methods.workflow import ClientTask, Exchange
from fedward.model_state import State
from fedward.nets import build
from fedward.operation.site_record import read_site_log
from fedward.protocol import wire
from fedward.protocol.norms import norm
from fedward.protocol.requests import DECRYPT, read_request
from fedward.protocol.versions import versions
from fedward.protocol.wire import Message
from fedward.security import kept_chain
from fedward.security.kept_chain import KeptChain
from fedward.security.privacy_ledger import PRIVACY
from fedward.security.questions import QUESTIONS
from fedward.security.sums import SUMS
from fedward.storage import chain
from fedward.terminal import LONGEST_REASON
from tiny import tiny

EXPERIMENT = tiny("fedperl")


def model(seed: int = 3) -> State:
    return build(EXPERIMENT.net, len(EXPERIMENT.data.classes), seed=seed).state_dict()


def request(
    round_: Any = 1, task: str = "train", seed: int = 3, peers: tuple[int, ...] = (), **meta: Any
) -> Message:
    peer_models = {f"peer{number}": model(peer) for number, peer in enumerate(peers)}
    tasks = {} if task == "idle" else {"s": ClientTask(str(task), models=peer_models)}
    asked = requests(EXPERIMENT, Exchange(round_, model(seed), tasks), ["s"])["s"]
    sum_fields: dict[str, Any] = {}
    if task == DECRYPT:
        sum_fields = {"sites": 3, "weight": 9, "effective": 3.0, "trained": "train"}
    return Message({**asked.meta, "task": task, **sum_fields, **meta}, asked.arrays)


class Quick(Client):
    """Answers with a made-up update, and counts how often it would have read its data."""

    worked = 0
    fails = False

    def _work(self, asked: Any, request: Message, aborted: Any) -> Message:
        self.worked += 1
        if self.fails:
            raise OSError("/data/patient-0017.png is gone")
        counts = {
            "labelled": 3,
            "unlabelled": 4,
            "steps": 2 if request.meta["task"] != "idle" else 0,
        }
        arrays = {"diff/w": np.full(4, 0.5, np.float32)} if counts["steps"] else {}
        rows = [{"split": "val", "name": "accuracy", "value": 0.5, "n": 9, "classes": []}]
        return Message(
            {"site": "s", "round": request.meta["round"], **counts, "train": {}, "metrics": rows},
            arrays,
        )


@pytest.fixture
def site(tmp_path: Path) -> Quick:
    return new_client("s", EXPERIMENT, tmp_path, kind=Quick)


def lines(site: Client) -> list[dict[str, Any]]:
    path = site.source.folder / "answers" / f"{RUN}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def refusal(site: Quick, asked: Message) -> str:
    """Return why a request is refused, which reads nothing and is noted in the log."""
    worked = site.worked
    answer = site.handle(asked)
    assert not answer.arrays
    assert site.worked == worked
    assert [row["event"] for row in lines(site)][-1:] == ["refused"]
    assert lines(site)[-1]["error"] == answer.meta["error"]
    return str(answer.meta["error"])


# --- what a line holds


def test_a_line_holds_what_was_asked_and_what_was_given(site):
    asked = request(2, peers=(7,))
    answer = site.handle(asked)
    (row,) = lines(site)
    assert row["event"] == "answered"
    assert row["site"] == "s"
    assert row["round"] == 2
    assert row["part"] == 0
    assert row["task"] == "train"
    assert row["last_hash"] == LAST_HASH
    assert row["model"] == wire.model_digest(asked.arrays)
    assert row["model"] == arrays_digest(wire.flatten("model", model()))
    assert row["peers"] == arrays_digest({"peer0": wire.encode_peer(model(7), model(3))})
    assert row["experiment"] == EXPERIMENT.digest
    assert row["versions"] == {"server": versions(), "site": versions()}
    assert row["gave"] == arrays_digest(answer.arrays)
    assert row["norm"] == 1.0
    assert row["labelled"] == 3
    assert row["unlabelled"] == 4
    assert row["steps"] == 2
    assert row["metrics"] == digest(answer.meta["metrics"])
    assert read_site_log(site.source.folder / "answers" / f"{RUN}.jsonl").sites == ["s"]


def test_the_norm_of_a_float16_update_is_what_the_server_reads(site, tmp_path):
    experiment = EXPERIMENT.model_copy(update={"update_dtype": "float16"})
    client = new_client("site-1", experiment, tmp_path / "halved")
    exchange = Exchange(1, model(), {"site-1": ClientTask()})
    asked = requests(experiment, exchange)["site-1"]
    answer = client.handle(asked)
    (row,) = lines(client)
    assert row["dtype"] == "float16"
    assert row["gave"] == arrays_digest(answer.arrays)
    assert row["norm"] == norm(wire.decode_update(answer, wire.shapes(asked)).arrays) > 0
    site.handle(request())
    assert [row["dtype"] for row in lines(site)] == ["float32"]


def test_an_error_is_in_the_log_as_it_left(site):
    site.fails = True
    answer = site.handle(request())
    (row,) = lines(site)
    assert row["event"] == "failed"
    assert row["error"] == answer.meta["error"]
    assert row["gave"] is None
    assert "patient" not in json.dumps(row)


def test_the_log_is_the_sites_alone_and_survives_its_process(site, tmp_path):
    site.handle(request(1))
    new_client("s", EXPERIMENT, tmp_path, kind=Quick).handle(request(2))
    assert [row["round"] for row in lines(site)] == [1, 2]
    (path,) = (tmp_path / "answers").glob("*.jsonl")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_written_does_not_leave(site, monkeypatch):
    def full(self: SiteLog, answer: Message) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(SiteLog, "add", full)
    answer = site.handle(request())
    assert answer.arrays == {}
    assert set(answer.meta) == {"site", "round", "error"}


def test_a_log_that_somebody_changed_ends_the_answers(site):
    site.handle(request(1))
    path = site.source.folder / "answers" / f"{RUN}.jsonl"
    path.write_text(path.read_text().replace('"norm":1.0', '"norm":2.0'))
    before = path.read_bytes()
    answer = site.handle(request(2))
    assert (
        answer.meta["error"]
        == "RunError: what it keeps of the run; the details are in the site's own log"
    )
    assert path.read_bytes() == before
    path.rename(path.with_suffix(".kept"))  # as the site's administrator may
    assert site.handle(request(1)).arrays
    path.unlink()
    path.with_suffix(".kept").rename(path)
    with pytest.raises(RunError, match=r"line 1: .* the line was changed"):
        read_site_log(path)


def test_reading_a_log_looks_at_each_line_a_few_times_however_long_it_is(site, monkeypatch):
    site.handle(request(1))
    path = site.source.folder / "answers" / f"{RUN}.jsonl"
    (row,) = lines(site)
    content = {name: row[name] for name in row if name not in ("seq", "previous", "hash")}
    log = chain.Chain(path, RUN)
    for round_ in range(2, 41):
        log.add({**content, "round": round_})
    looks = []

    class Line(dict):
        def __getitem__(self, name):
            looks.append(name)
            return super().__getitem__(name)

    original = chain.checked
    monkeypatch.setattr(chain, "checked", lambda *given: map(Line, original(*given)))
    whole = path.read_text().splitlines(keepends=True)
    work = {}
    for length in (20, 40):
        path.write_text("".join(whole[:length]))
        looks.clear()
        assert len(read_site_log(path).rows) == length
        work[length] = len(looks)
    assert work[40] == 2 * work[20]


def test_half_a_line_costs_no_answer(site):
    site.handle(request(1))
    path = site.source.folder / "answers" / f"{RUN}.jsonl"
    with path.open("ab") as file:
        file.write(b'{"event":"answered"')
    assert site.handle(request(2)).arrays
    assert [row.get("round") for row in lines(site)] == [1, None, 2]
    assert len(read_site_log(path).rows) == 2


def ledgers_of(site: Client) -> dict[str, str]:
    """Give a site each kind of ledger, with one line; return the lines' hashes by their field."""
    hashes = {}
    for kind in (PRIVACY, QUESTIONS, SUMS):
        row = KeptChain(kind.file(site.source.folder, "s"), kind).add({"number": 1})
        hashes[kind.field] = row["hash"]
    return hashes


def test_an_answer_reads_the_logs_of_answers_once_for_all_ledgers(site, monkeypatch):
    site.handle(request(1))
    hashes = ledgers_of(site)
    site.handle(request(2))
    read = kept_chain.read
    logs = []

    def noted(path: Path) -> tuple[list[bytes], bytes]:
        if path.parent.name == "answers":
            logs.append(path.stem)
        return read(path)

    monkeypatch.setattr(kept_chain, "read", noted)
    site.handle(request(3))
    assert logs == [RUN]
    assert {field: lines(site)[-1][field] for field in hashes} == hashes


@pytest.mark.parametrize("kind", [PRIVACY, QUESTIONS, SUMS])
def test_a_damaged_line_about_one_ledger_leaves_the_hashes_of_the_others(site, kind):
    site.handle(request(1))
    hashes = ledgers_of(site)
    damaged = site.source.folder / "answers" / f"{'1' * 32}.jsonl"
    damaged.write_text(f'{{"{kind.field}":"a half\n')
    site.handle(request(2))
    expected = {**hashes, kind.field: None}
    assert {field: lines(site)[-1][field] for field in hashes} == expected


def test_lines_that_tell_of_no_answer_are_bounded(site, monkeypatch):
    monkeypatch.setattr("fedward.client.site_log._MOST_ERRORS", 3)
    for _ in range(9):
        site.handle(request(0))
    site.handle(request(1))
    rows = lines(site)
    assert [row["event"] for row in rows] == ["refused"] * 3 + ["answered"]
    assert [row.get("note") for row in rows] == [
        None,
        None,
        "further requests without an answer are not written",
        None,
    ]


@pytest.mark.proves(
    "server",
    "one wrong request after the other, each naming another run, to fill a site's disk",
    "a job writes bounded logs of three runs at most",
)
def test_the_runs_that_a_job_writes_logs_of_are_bounded(tmp_path):
    log = SiteLog(tmp_path, "s", EXPERIMENT, method_of(EXPERIMENT), "job-1")
    site = new_client("s", EXPERIMENT, tmp_path, log=log, kind=Quick)
    for number in range(9):
        answer = site.handle(request(0, run=f"{number:032x}"))
        assert "error" in answer.meta
    assert "run of this job: expected one of 3 that it has named" in answer.meta["error"]
    assert len(list((tmp_path / "answers").glob("*.jsonl"))) == 3
    assert site.handle(request(1, run=f"{0:032x}")).arrays, "the runs that it has named go on"


# --- what a server cannot ask


@pytest.mark.proves(
    "server",
    "an unknown or earlier round, another run's, one without the log's last hash, or "
    "one again with another model or task",
    "refused before data are read; an equal request gets the same answer",
)
@pytest.mark.parametrize(
    ("meta", "named"),
    [
        ({"round": -5}, "round of a request: expected one from 1 to 3, as in the job, found -5"),
        ({"round": 0}, "found 0"),
        ({"round": 10**300}, "request, round: expected a whole number"),
        ({"round": 10**5000}, "a number of thousands of digits"),
        ({"round": 4}, "expected one from 1 to 3"),
        ({"round": 5, "task": "idle"}, "expected one from 1 to 4"),
        ({"round": True}, "found True"),
        ({"round": 1.0}, "found 1.0"),
        ({"round": "1"}, "found '1'"),
        ({"round": None}, "found None"),
        ({"part": 1}, "part of a request: expected one from 0 to 0"),
        ({"part": 1, "task": "idle"}, "part of a request: expected one from 0 to 0"),
        ({"part": -1}, "found -1"),
        ({"task": None}, "request, task: expected a text of at most 100 characters, found None"),
        ({"task": "other"}, "task of a request: expected one of idle, train, as in the job"),
    ],
)
def test_a_round_that_the_job_does_not_have_is_refused(site, meta, named):
    assert named in refusal(
        site, request(**{"round_": 1, **meta} if "round" not in meta else {**meta, "round_": 1})
    )


@pytest.mark.parametrize(
    ("method", "task", "parts"),
    [
        ("fedavg", "train", 1),
        ("isofed", "supervised", 2),
        ("rscfed", "supervised", 3),
        ("fedal", "train", 1),
    ],
)
def test_a_round_has_as_many_parts_as_its_method(tmp_path, method, task, parts):
    experiment = tiny(method, options={"passes": 3} if method == "rscfed" else {})
    site = new_client("s", experiment, tmp_path, kind=Quick)
    net = build(experiment.net, len(experiment.data.classes)).state_dict()
    for part in range(parts + 1):
        asked = requests(experiment, Exchange(1, net, {"s": ClientTask(task)}, part=part))["s"]
        assert ("error" in site.handle(asked).meta) == (part == parts)


def test_an_average_is_evaluated_in_one_part_more_and_no_other(tmp_path):
    experiment = tiny("fedavg", options={"average_decay": 0.5})
    site = new_client("s", experiment, tmp_path, kind=Quick)
    for task, part, last in (("train", 0, 0), ("idle", 1, 1)):
        asked = {"task": task, "experiment": experiment.digest}
        assert "error" not in site.handle(request(1, **asked, part=part)).meta
        named = f"part of a request: expected one from 0 to {last}, as in the job"
        assert named in refusal(site, request(1, **asked, part=part + 1))


@pytest.mark.proves(
    "server",
    "an unknown or earlier round, another run's, one without the log's last hash, or "
    "one again with another model or task",
    "refused before data are read; an equal request gets the same answer",
)
@pytest.mark.parametrize("last_hash", [None, "", "ab", LAST_HASH.upper(), LAST_HASH + "\n", 7])
@pytest.mark.parametrize("task", ["train", "idle", DECRYPT])
def test_a_request_without_a_last_hash_is_refused(site, last_hash, task):
    assert "request, last_hash: expected 64 hexadecimal digits" in refusal(
        site, request(task=task, last_hash=last_hash)
    )


@pytest.mark.proves(
    "server",
    "an unknown or earlier round, another run's, one without the log's last hash, or "
    "one again with another model or task",
    "refused before data are read; an equal request gets the same answer",
)
@pytest.mark.parametrize(
    ("again", "named"),
    [
        ({"seed": 4}, "expected the model of the request that this site has answered, SHA-256"),
        ({"task": "idle", "seed": 4}, "expected the model of the request"),
        ({"peers": (8,)}, "expected the work of the request that this site has answered, train"),
        ({"peers": ()}, "expected the work"),
    ],
)
def test_an_exchange_is_for_one_request(site, again, named):
    first = request(2, peers=(7,))
    answer = site.handle(first)
    assert named in refusal(site, request(2, **again))
    repeated = site.handle(first)
    assert arrays_digest(repeated.arrays) == arrays_digest(answer.arrays)
    assert [row["event"] for row in lines(site)] == ["answered", "refused", "answered"]


def test_a_sum_without_an_update_of_the_site_is_not_decrypted(site):
    assert "error" not in site.handle(request(1, "idle")).meta, "it evaluates, and gives nothing"
    assert site.handle(request(2)).arrays
    for round_ in (1, 3):
        assert (
            f"round {round_}, part 0: expected a sum with an update of this site, "
            "found a round in which it gave none" in refusal(site, request(round_, DECRYPT))
        )
    assert "error" not in site.handle(request(2, DECRYPT)).meta


def test_an_update_weighs_in_a_sum_what_it_was_logged_with(site):
    site.handle(request(2))
    asked = read_request(request(2, DECRYPT).meta)

    def as_digits(task: str, labelled: int, unlabelled: int, steps: int) -> int:
        return 100 * labelled + 10 * unlabelled + steps

    assert site.log.weight(asked, as_digits) == 342
    for change in ({"round": 1}, {"part": 1}, {"trained": "pretrain"}):
        with pytest.raises(WireError, match="expected a sum with an update of this site for"):
            site.log.weight(asked.model_copy(update=change), as_digits)


@pytest.mark.proves(
    "server",
    "a task that the method gives to no site, such as the contrast that SelfFed's server "
    "learns, after which tensors would leave that no task of a site trains",
    "refused before data are read",
)
@pytest.mark.parametrize(
    ("method", "task"),
    [("selffed", "contrast"), ("selffed", "any"), ("fedirm", "train"), ("fedavg", "at_server")],
)
def test_a_task_that_the_method_gives_to_no_site_is_refused(tmp_path, method, task):
    experiment = tiny(method)
    site = new_client("s", experiment, tmp_path, kind=Quick)
    asked = requests(experiment, Exchange(1, model(), {"s": ClientTask(task)}))["s"]
    assert "task of a request: expected one of idle, " in refusal(site, asked)


def test_an_exchange_is_for_one_task(tmp_path):
    experiment = tiny("fedal")
    site = new_client("s", experiment, tmp_path, kind=Quick)
    train, query = (
        requests(experiment, Exchange(1, model(), {"s": ClientTask(task)}))["s"]
        for task in ("train", "query")
    )
    assert "error" not in site.handle(train).meta
    assert "expected the work of the request that this site has answered, train" in refusal(
        site, query
    )


def test_lines_of_a_log_from_before_stay_readable(site):
    """They have a field that no request ever had."""
    first = request(2)
    site.handle(first)
    path = site.source.folder / "answers" / f"{RUN}.jsonl"
    (row,) = lines(site)
    assert "labels" not in row
    path.unlink()
    content = {name: row[name] for name in row if name not in ("seq", "previous", "hash")}
    chain.Chain(path, RUN).add({**content, "labels": None})
    assert site.handle(first).arrays
    assert "with other peers" in refusal(site, request(2, peers=(7,)))
    assert len(read_site_log(path).rows) == 3


def test_a_site_that_evaluated_a_model_may_train_from_it(site):
    """Sites that join a resumed run change who is drawn; the model of the round is the same."""
    for task in ("idle", "train", "idle"):
        assert "error" not in site.handle(request(2, task)).meta


def test_a_job_that_waits_for_approval_leaves_no_line(site, monkeypatch):
    """The server asks every few seconds, perhaps for days; nothing is read."""
    waiting = Message({"site": "s", "round": 1, "waiting": EXPERIMENT.digest})
    with monkeypatch.context() as patch:
        patch.setattr(site.admission, "waiting_answer", lambda request, arrays: waiting)
        assert site.handle(request(1)) is waiting
    assert lines(site) == []
    assert site.handle(request(1)).arrays


def test_a_request_that_failed_leaves_the_exchange_open(site):
    site.fails = True
    assert "error" in site.handle(request(2, seed=4)).meta
    site.fails = False
    assert "error" not in site.handle(request(2)).meta


@pytest.mark.proves(
    "server",
    "an unknown or earlier round, another run's, one without the log's last hash, or "
    "one again with another model or task",
    "refused before data are read; an equal request gets the same answer",
)
def test_rounds_go_forward(site):
    for round_ in (1, 2, 3):
        assert site.handle(request(round_)).arrays
    assert site.handle(request(4, "idle")).meta["metrics"]
    assert site.handle(request(3)).arrays
    for round_ in (1, 2):
        assert f"round {round_}, part 0: expected round 3 or later: round 4 is answered" in refusal(
            site, request(round_)
        )
    for round_ in (3, 4):
        assert "expected the model" in refusal(site, request(round_, "idle", seed=9))


@pytest.mark.proves(
    "server",
    "an unknown or earlier round, another run's, one without the log's last hash, or "
    "one again with another model or task",
    "refused before data are read; an equal request gets the same answer",
)
def test_a_job_works_on_one_run(tmp_path):
    def asked(run: str, job: str) -> Message:
        log = SiteLog(tmp_path, "s", EXPERIMENT, method_of(EXPERIMENT), job)
        return new_client("s", EXPERIMENT, tmp_path, log=log, kind=Quick).handle(
            request(1, run=run)
        )

    assert asked(RUN, "job-1").arrays
    assert asked(RUN, "job-2").arrays, "a run goes on in another job"
    assert f"run of this job: expected {RUN}" in asked("f" * 32, "job-1").meta["error"]
    answers = tmp_path / "answers"
    damaged = answers / f"{RUN}.jsonl"
    damaged.write_bytes(b"\xff\n" + damaged.read_bytes())
    (answers / f"._{RUN}.jsonl").write_bytes(b"\x00\x05\x16\x07\xb0")
    assert f"run of this job: expected {RUN}" in asked("f" * 32, "job-1").meta["error"]
    assert asked("f" * 32, "job-3").arrays, "neither a damaged line nor a foreign file shuts it out"


@pytest.mark.proves(
    "server",
    "the same round with two models, from two jobs at once",
    "one answer leaves the site",
)
def test_of_two_requests_at_once_one_is_answered(tmp_path):
    other = request(2, seed=4)

    class Slow(Quick):
        def _work(self, asked: Any, request: Message, aborted: Any) -> Message:
            if self.worked == 0:
                self.worked += 1
                assert new_client("s", EXPERIMENT, tmp_path, kind=Quick).handle(other).arrays
            return super()._work(asked, request, aborted)

    answer = new_client("s", EXPERIMENT, tmp_path, kind=Slow).handle(request(2))
    assert "expected the model of the request that this site has answered" in answer.meta["error"]
    assert not answer.arrays


@pytest.mark.proves(
    "server",
    "one signed job again and again, each time as a new run",
    "**not covered**: each is answered, and each has its own log at the site",
)
def test_the_same_job_sent_again_is_another_run(tmp_path):
    for number in (1, 2, 3):
        log = SiteLog(tmp_path, "s", EXPERIMENT, method_of(EXPERIMENT), f"job-{number}")
        assert (
            new_client("s", EXPERIMENT, tmp_path, log=log, kind=Quick)
            .handle(request(1, run=f"{number}" * 32))
            .arrays
        )
    assert len(list((tmp_path / "answers").glob("*.jsonl"))) == 3


# --- versions and settings


@pytest.mark.proves(
    "server",
    "other settings or another version than the sites have",
    "refused by every site, which names both",
)
@pytest.mark.parametrize("task", ["train", "idle", DECRYPT])
def test_other_settings_are_refused_with_both_named(site, task):
    other = tiny("fedperl", options={"learning_rate": 1e-9})
    text = refusal(site, request(task=task, experiment=other.digest))
    assert (
        f"expected SHA-256 {EXPERIMENT.digest}, as in this site's job, "
        f"found {other.digest} at the server" in text
    )


@pytest.mark.parametrize("theirs", [{"fedward": "0.0.1"}, {}, None, "1", {"fedward": 7}])
def test_another_version_is_refused_with_both_named(site, theirs):
    text = refusal(site, request(versions=theirs))
    server_version = (
        theirs.get("fedward")
        if isinstance(theirs, dict) and isinstance(theirs.get("fedward"), str)
        else "none"
    )
    assert (
        f"version of fedward: expected {versions()['fedward']}, as here, "
        f"found {server_version} at the server" in text
    )


def test_other_versions_of_other_packages_are_on_record(site):
    assert site.handle(request(versions={**versions(), "torch": "9.9"})).arrays
    (row,) = lines(site)
    assert row["versions"]["server"]["torch"] == "9.9"
    assert row["versions"]["site"] == versions()


def test_nothing_that_a_server_sends_makes_a_line_long(site):
    huge = "x" * 100_000
    wrong: list[dict[str, Any]] = [
        {"versions": dict.fromkeys(versions(), huge) | {huge: huge}},
        {"versions": versions(), "experiment": huge},
        {"last_hash": huge, "task": huge},
        {"part": 10**4000},
        {"round": 10**4000},
    ]
    for meta in wrong:
        site.handle(Message({**request().meta, **meta}, {}))
    assert len(lines(site)) == len(wrong)
    assert (
        max(map(len, (site.source.folder / "answers" / f"{RUN}.jsonl").read_text().splitlines()))
        < 3000
    )
    assert all(len(row["error"] or "") <= LONGEST_REASON for row in lines(site))


def test_what_a_run_in_one_process_asks_is_admitted(tmp_path):
    """The same experiment and version at both ends, of course."""
    experiment = Experiment.model_validate(json.loads(EXPERIMENT.model_dump_json()))
    assert new_client("s", experiment, tmp_path, kind=Quick).handle(request()).arrays
