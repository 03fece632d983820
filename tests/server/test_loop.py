"""The server's loop: who counts, what is written, and that a resumed run ends the same."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from fedward.console.console import Console
from fedward.console.progress import Progress
from fedward.errors import ConfigError, RunError
from fedward.lab.local import LocalTransport, Sites
from fedward.lab.synthetic import SyntheticSites
from fedward.methods.fedavg import FedAvg, federated_averaging
from fedward.methods.requirements import Requirements, Sends
from fedward.methods.ssfl import SSFL
from fedward.methods.workflow import ClientUpdate, Exchange, Federation
from fedward.nets import build
from fedward.protocol.wire import Message
from fedward.report import write_report
from fedward.storage.model_files import SiteModels, StoredState, save_state
from fedward.storage.run_folder import RunFolder
from isolated import SITES as ISOLATED
from isolated import isolated, write_sites
from run_files import assert_equal, in_vain, rows, weights
from running import resume_local, run_experiment, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-9"]


def listen(
    monkeypatch,
    heard: list[tuple[Exchange, list[ClientUpdate]]],
    also: Callable[[Federation], None] | None = None,
) -> None:
    """Let a test see the exchanges of federated averaging and their updates.

    ``also`` sees the federation after each answer.
    """

    def rounds(self, state, federation):
        inner = federated_averaging(state, federation, self.settings, self.weight)
        exchange = next(inner)
        while exchange is not None:
            replies = yield exchange
            heard.append((exchange, replies))
            if also:
                also(federation)
            try:
                exchange = inner.send(replies)
            except StopIteration:
                exchange = None

    for kind in (FedAvg, SSFL):
        monkeypatch.setattr(kind, "rounds", rounds)


def idle(answer: Message) -> Message:
    """Return the answer of a site that holds nothing for its task."""
    return Message({**answer.meta, "steps": 0, "train": {}, "labelled": 0, "unlabelled": 7})


NAMED = "the round names the site and goes on without it"


class Tampering(LocalTransport):
    """Lets a test change what a site answers."""

    def __init__(self, experiment, folder, tamper: Callable[[str, Message], list[Message]]):
        super().__init__(Sites(experiment, folder), SITES)
        self.tamper = tamper

    def exchange(self, requests, timeout, deliver):
        def change(site, answer):
            for message in self.tamper(site, answer):
                deliver(site, message)

        super().exchange(requests, timeout, change)


def run_tampered(tmp_path, tamper, name="run", **changes):
    experiment = tiny("ssfl", **changes)
    transport = Tampering(experiment, tmp_path / "cache", tamper)
    run_experiment(experiment, tmp_path / name, transport)
    return tmp_path / name


def test_a_run_leaves_the_files_readers_need(tmp_path, monkeypatch):
    monkeypatch.setattr("fedward.lab.simulation.write_report", write_report)
    folder = run_local(tiny(), tmp_path / "run", sites=SITES)
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["sites"] == SITES
    assert info["method"] == "fedperl"
    rounds = rows(folder, "rounds")
    assert [row["round"] for row in rounds] == [1, 2, 3]
    for row in rounds:
        assert len(row["replied"]) == 2
        assert not row["failed"]
    evaluated = {
        (row["round"], row["site"]) for row in rows(folder, "metrics") if row["split"] == "test"
    }
    assert evaluated == {(round_, site) for round_ in range(4) for site in SITES}
    assert (folder / "report.html").exists()
    assert json.loads((folder / "best.json").read_text())["round"] in range(4)
    assert info["summary"]["not_evaluated"] == {}


def test_peers_travel_after_the_warm_up_only_and_are_counted(tmp_path):
    experiment = tiny(options={"rounds": 6, "participants": 3})
    folder = run_local(experiment, tmp_path / "run", sites=SITES)
    counted = {row["round"]: row["peer_models"] for row in rows(folder, "rounds")}
    assert counted[1] == 0
    for round_ in range(2, 7):
        assert counted[round_] == 3, "three sites, one anonymous peer each"
    chosen = [row["chosen"] for row in rows(folder, "peers")]
    assert all(site not in peers for row in chosen for site, peers in row.items())
    model = sum(row["down"] for row in rows(folder, "bytes") if row["round"] == 1) // 3
    assert all(
        model < row["down"] < 1.25 * model for row in rows(folder, "bytes") if row["round"] == 2
    )


def test_equal_seeds_give_equal_weights_and_other_seeds_others(tmp_path):
    folders = [
        run_local(tiny(seed=seed), tmp_path / f"{i}", sites=SITES)
        for i, seed in enumerate((3, 3, 4))
    ]
    assert_equal(weights(folders[0]), weights(folders[1]))
    assert any(
        not torch.equal(a, b)
        for a, b in zip(weights(folders[0]).values(), weights(folders[2]).values(), strict=True)
    )


def die_in_exchange(monkeypatch, number: int, answered: int = 1) -> None:
    """Let the server die in an exchange, counted from 1, after some sites have answered."""
    exchanges = 0
    whole = LocalTransport.exchange

    def breaks(self, requests, timeout, deliver):
        nonlocal exchanges
        exchanges += 1
        if exchanges == number:
            whole(self, dict(sorted(requests.items())[:answered]), timeout, deliver)
            raise KeyboardInterrupt
        whole(self, requests, timeout, deliver)

    monkeypatch.setattr(LocalTransport, "exchange", breaks)


@pytest.mark.parametrize("interrupt_after", [1, 2])
@pytest.mark.parametrize("method", ["fedavg", "fedperl"])
def test_an_interrupted_run_resumes_bit_identically(tmp_path, method, interrupt_after, monkeypatch):
    experiment = tiny(method, options={"rounds": 4})
    straight = run_local(experiment, tmp_path / "straight", sites=SITES)
    with monkeypatch.context() as patch:
        die_in_exchange(patch, interrupt_after + 1)
        with pytest.raises(KeyboardInterrupt):
            run_local(experiment, tmp_path / "broken", sites=SITES)
    assert json.loads((tmp_path / "broken" / "run.json").read_text())["status"] == "failed"
    resumed = resume_local(tmp_path / "broken")
    assert_equal(weights(straight), weights(resumed))
    for log in ("metrics", "peers", "bytes"):
        logged = [
            [row for row in rows(folder, log) if row.get("name") != "seconds"]
            for folder in (straight, resumed)
        ]
        assert logged[0] == logged[1]


@pytest.mark.proves(
    "faults",
    "a run in one process is killed within a round",
    "`--resume` gives an undisturbed run's weights and rows",
)
def test_sigkill_in_the_middle_of_a_round_loses_nothing(tmp_path):
    """A real process gets a real SIGKILL while round 2 is under way.

    Resumed, it ends with the weights of an undisturbed run.
    """
    experiment = tiny(options={"rounds": 4})
    straight = run_local(experiment, tmp_path / "straight", sites=SITES)
    folder = tmp_path / "killed"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from fedward.config import Experiment\n"
        "from fedward.lab.simulation import Simulation\n"
        "from fedward.client.client import Client\n"
        "work = Client._work\n"
        "def slow(self, asked, request, aborted):\n"
        "    if asked.round == 2 and self.name != 'site-1':\n"
        "        Path(sys.argv[2], 'in-round-2').touch()\n"
        "        time.sleep(600)\n"
        "    return work(self, asked, request, aborted)\n"
        "Client._work = slow\n"
        "experiment = Experiment.model_validate_json(sys.stdin.read())\n"
        f"Simulation(experiment, Path(sys.argv[1]), {SITES!r}).run()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, folder, tmp_path], stdin=subprocess.PIPE
    )
    process.stdin.write(experiment.model_dump_json().encode())
    process.stdin.close()
    while not (tmp_path / "in-round-2").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    resumed = resume_local(folder)
    assert_equal(weights(straight), weights(resumed))
    assert [row["round"] for row in rows(resumed, "rounds")] == [1, 2, 3, 4]


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    folder = run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    resume_local(folder)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_results_are_never_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="new or empty"):
        run_local(tiny("fedavg"), tmp_path, sites=SITES)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_one_site_is_local_training(tmp_path, monkeypatch):
    """Federated averaging of a single site returns that site's weights."""
    monkeypatch.setattr(SiteModels, "clear", lambda self: None)
    experiment = tiny("fedavg", options={"rounds": 1, "participants": 1})
    folder = run_local(experiment, tmp_path / "run", sites=["site-1"])
    final = weights(folder)
    uploaded = StoredState(folder / "models" / "site-1" / "00001.safetensors")
    for key, value in final.items():
        assert torch.equal(value, uploaded[key]), key


def test_a_finished_run_holds_no_single_sites_model(tmp_path):
    """Nobody who fetches the run may get these models, but a run that goes on needs them."""
    folder = run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    assert not (folder / "models").exists()
    transport = LocalTransport(Sites(tiny("fedavg"), tmp_path / "sites"), SITES)
    answer = transport.exchange
    calls = iter(range(9))

    def stop(*arguments):
        if next(calls) == 2:
            raise KeyboardInterrupt
        answer(*arguments)

    transport.exchange = stop
    with pytest.raises(KeyboardInterrupt):
        run_experiment(tiny("fedavg"), tmp_path / "stopped", transport)
    assert list((tmp_path / "stopped" / "models").glob("*/*.safetensors"))


@pytest.mark.proves("faults", "a site sends NaN", NAMED)
def test_a_broken_site_is_named_and_the_others_go_on(tmp_path):
    def nan(site, answer):
        if site == "site-2":
            for array in answer.arrays.values():
                array[...] = np.nan
        return [answer]

    folder = run_tampered(tmp_path, nan, options={"participants": 3})
    for row in rows(folder, "rounds"):
        assert row["replied"] == ["site-1", "site-9"]
        assert "site-2" in row["failed"]["site-2"]
        assert "NaN" in row["failed"]["site-2"]
    sizes = {row["site"]: row["up"] for row in rows(folder, "bytes") if row["round"] == 1}
    assert sizes["site-2"] == sizes["site-1"] > 0, "what came and was refused has travelled too"
    assert all(torch.isfinite(value).all() for value in weights(folder).values())


TAMPERINGS = [
    pytest.param(
        tamper, reason, id=case, marks=pytest.mark.proves("faults", f"a site {case}", NAMED)
    )
    for case, tamper, reason in [
        ("does not answer", lambda site, a: [], "no answer within"),
        (
            "sends a stale answer",
            lambda site, a: [Message({**a.meta, "round": 0}, a.arrays)],
            "round 0",
        ),
        (
            "leaves out a tensor",
            lambda site, a: [Message(a.meta, dict(list(a.arrays.items())[1:]))],
            "nothing",
        ),
        (
            "renames a tensor",
            lambda site, a: [Message(a.meta, {f"{n}_": v for n, v in a.arrays.items()})],
            "also diff/",
        ),
        (
            "sends a wrong shape",
            lambda site, a: [Message(a.meta, {n: v.ravel() for n, v in a.arrays.items()})],
            "shape",
        ),
        (
            "sends a huge update",
            lambda site, a: [Message(a.meta, {n: v * 1e6 for n, v in a.arrays.items()})],
            "norm",
        ),
        (
            "sends an error",
            lambda site, a: [Message({"site": site, "round": 1, "error": "boom"})],
            "boom",
        ),
    ]
]


@pytest.mark.parametrize(("tamper", "reason"), TAMPERINGS)
def test_unusable_answers_are_refused_by_name(tmp_path, tamper, reason):
    folder = run_tampered(
        tmp_path,
        lambda site, a: tamper(site, a) if site == "site-1" else [a],
        options={"participants": 3, "rounds": 1},
    )
    (row,) = rows(folder, "rounds")
    assert row["replied"] == ["site-2", "site-9"]
    assert reason in row["failed"]["site-1"]


ROW = {"split": "val", "name": "accuracy", "value": 0.5, "n": 9, "classes": ["MEL"]}


@pytest.mark.parametrize(
    "malformed",
    [
        {"train": None},
        {"train": {"loss": 10**400}},
        {"metrics": None},
        {"metrics": [{name: value for name, value in ROW.items() if name != "name"}]},
        {"metrics": [{**ROW, "value": 1e308}]},
        {"metrics": [{**ROW, "split": "patient Mueller"}]},
        {"label_counts": {"asked": 1}},
        {"labelled": 10**400},
        {"steps": True},
        {7: "an answer's fields have names"},
    ],
)
def test_a_malformed_answer_costs_its_site_alone(tmp_path, malformed):
    def tamper(site, answer):
        return [
            Message({**answer.meta, **malformed}, answer.arrays) if site == "site-1" else answer
        ]

    folder = run_tampered(tmp_path, tamper, options={"participants": 3, "rounds": 1})
    (row,) = rows(folder, "rounds")
    assert row["replied"] == ["site-2", "site-9"]
    assert list(row["failed"]) == ["site-1"]
    assert {row["site"] for row in rows(folder, "metrics")} == {"site-2", "site-9"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
def test_an_array_without_a_name_costs_its_site_alone(tmp_path, dtype, others):
    def tamper(site, answer):
        arrays = {**(answer.arrays if others else {}), 7: np.zeros(3, np.float32)}
        return [Message(answer.meta, arrays) if site == "site-1" else answer]

    options = {"participants": 3, "rounds": 1}
    folder = run_tampered(tmp_path, tamper, options=options, update_dtype=dtype)
    (row,) = rows(folder, "rounds")
    assert row["replied"] == ["site-2", "site-9"]
    assert list(row["failed"]) == ["site-1"]


def test_an_answer_without_its_parts_costs_its_site_alone(tmp_path):
    def tamper(site, answer):
        meta = {
            name: value for name, value in answer.meta.items() if name not in ("train", "metrics")
        }
        return [Message(meta, answer.arrays) if site == "site-1" else answer]

    folder = run_tampered(tmp_path, tamper, options={"participants": 3, "rounds": 1})
    assert [list(row["failed"]) for row in rows(folder, "rounds")] == [["site-1"]]


@pytest.mark.proves("faults", "a site answers twice", "the first answer stands")
def test_a_second_answer_changes_nothing(tmp_path):
    def twice(site, answer):
        louder = Message(answer.meta, {name: array * 100 for name, array in answer.arrays.items()})
        return [answer, louder]

    plain = run_tampered(tmp_path, lambda site, a: [a], "plain")
    assert_equal(weights(plain), weights(run_tampered(tmp_path, twice, "twice")))


def test_a_round_without_a_reply_ends_no_run_of_several_exchanges_a_round(tmp_path):
    experiment = tiny("rscfed", options={"rounds": 4, "warm_up": 0, "participants": 2})

    def silent_in_round_two(site, answer):
        return [] if answer.meta["round"] == 2 else [answer]

    transport = Tampering(experiment, tmp_path / "cache", silent_in_round_two)
    run_experiment(experiment, tmp_path / "run", transport)
    silent = [row for row in rows(tmp_path / "run", "rounds") if row["round"] == 2]
    assert len(silent) == 3
    assert not any(row["replied"] for row in silent)


@pytest.mark.proves(
    "faults",
    "no site answers",
    "after three exchanges the run ends, says so, and can be resumed",
)
def test_a_run_without_any_reply_gives_up_and_can_be_resumed(tmp_path):
    with pytest.raises(RunError, match="3 exchanges in a row"):
        run_tampered(tmp_path, lambda site, a: [], options={"rounds": 9})
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["status"] == "failed"
    assert "3 exchanges" in info["summary"]["reason"]


@pytest.mark.proves(
    "faults",
    "fewer sites answer than `minimum_replies`",
    "the model stays as it was, and the round says so",
)
def test_fewer_than_the_minimum_leaves_the_model_as_it_was(tmp_path):
    folder = tmp_path / "run"
    with in_vain():
        run_tampered(
            tmp_path,
            lambda site, a: [a] if site == "site-1" else [],
            options={"participants": 3, "rounds": 1},
            minimum_replies=2,
        )
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert_equal(dict(build("small_cnn", 8, 3, seed=3).state_dict()), weights(folder))
    (row,) = rows(folder, "rounds")
    assert row["replied"] == []
    assert row["failed"]["site-1"] == "not used: minimum_replies is 2, came 1"
    answered = [line["details"] for line in rows(folder, "audit") if line["event"] == "answered"]
    assert answered
    assert not any(details["updates"] for details in answered), "the log names those that are used"


@pytest.mark.proves(
    "lead",
    "a method in which sites reply and count for nothing",
    "not counted as replies; with too few others the model stays",
)
def test_replies_without_weight_make_no_average_of_three(tmp_path, monkeypatch):
    """A method that weights by unlabelled images, of which two of the three sites have none."""

    def without_unlabelled(site, answer):
        if site == "site-9" or not answer.meta["steps"]:
            return [answer]
        images = answer.meta["labelled"] + answer.meta["unlabelled"]
        return [Message({**answer.meta, "labelled": images, "unlabelled": 0}, answer.arrays)]

    def unlabelled_images(task, labelled, unlabelled, steps):
        return unlabelled

    monkeypatch.setattr("fedward.methods.fedavg.steps_taken", unlabelled_images)
    with in_vain():
        experiment = tiny("fedavg", options={"participants": 3, "rounds": 2}, minimum_replies=3)
        transport = Tampering(experiment, tmp_path / "cache", without_unlabelled)
        run_experiment(experiment, tmp_path / "run", transport)
    for row in rows(tmp_path / "run", "rounds"):
        assert row["replied"] == []
        assert set(row["failed"].values()) == {"not used: minimum_replies is 3, came 1"}


def test_a_model_that_was_not_used_is_nobodys_peer(tmp_path, monkeypatch):
    """Site 1 alone answers in round 2: after it, its newest model is still that of round 1."""
    newest: list[dict[str, torch.Tensor]] = []
    listen(monkeypatch, [], lambda federation: newest.append(dict(federation.models["site-1"])))
    run_tampered(
        tmp_path,
        lambda site, a: [] if site != "site-1" and a.meta["round"] == 2 else [a],
        options={"participants": 3, "rounds": 3},
        minimum_replies=2,
    )
    first, second, third = newest
    assert_equal(first, second)
    assert any(not torch.equal(value, third[key]) for key, value in second.items())


def test_a_site_without_labels_takes_no_supervised_step(tmp_path):
    experiment = tiny("fedavg", synthetic={"images": 40, "labelled": 0.0}, options={"rounds": 2})
    folder = tmp_path / "run"
    with in_vain():
        run_local(experiment, folder, sites=SITES)
    held = {site: len(SyntheticSites().data(site, experiment).unlabelled) for site in SITES}
    for row in rows(folder, "rounds"):
        assert row["replied"] == []
        assert row["failed"] == {
            site: f"took no training step: 0 labelled, {held[site]} unlabelled images"
            for site in row["asked"]
        }
    assert_equal(dict(build("small_cnn", 8, 3, seed=3).state_dict()), weights(folder))
    assert not (folder / "models").exists()


def test_a_site_without_labels_learns_from_its_pseudo_labels(tmp_path):
    experiment = tiny("ssfl", synthetic={"images": 40, "labelled": 0.0}, options={"rounds": 2})
    folder = run_local(experiment, tmp_path / "run", sites=SITES)
    assert all(len(row["replied"]) == 2 for row in rows(folder, "rounds"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"net": "foo"}, "foo"), ({"minimum_replies": 4}, "at most the number of sites, 3, found 4")],
)
def test_settings_that_cannot_work_leave_no_folder(tmp_path, changes, reason):
    """The run can be started again with other settings, under the same name."""
    with pytest.raises(ConfigError, match=reason):
        run_local(tiny("fedavg", **changes), tmp_path / "run", sites=SITES)
    assert not (tmp_path / "run").exists()


def test_resume_with_other_settings_is_refused(tmp_path):
    folder = run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    other = tiny("fedavg", seed=9)
    with pytest.raises(RunError, match="other settings"):
        run_experiment(other, folder, LocalTransport(Sites(other, tmp_path), SITES), resume=True)


@pytest.mark.parametrize("policy", ["validation", "gated_validation"])
def test_validation_policies_use_the_servers_own_images(tmp_path, policy):
    """With a gate of 0 every peer passes, so both policies may only drop peers, never add some."""
    options = {
        "rounds": 4,
        "participants": 3,
        "policy": policy,
        "gate": 0.0,
        "anonymise": False,
    }
    folder = run_local(tiny(options=options), tmp_path / "run", sites=SITES)
    state = max((folder / "rounds").glob("?????/state.json"))
    accuracy = json.loads(state.read_text())["numbers"]["accuracy"]
    assert sorted(accuracy) == SITES
    assert all(0 <= value <= 1 for value in accuracy.values())
    sent = {row["round"]: row["chosen"] for row in rows(folder, "peers")}
    if policy == "gated_validation":
        assert all(len(peers) == 2 for chosen in sent.values() for peers in chosen.values())
    else:
        assert all(len(peers) <= 2 for chosen in sent.values() for peers in chosen.values())
        assert any(peers for chosen in sent.values() for peers in chosen.values())


# --- answers without a step


def test_a_site_without_a_step_keeps_the_model_it_was_sent(tmp_path, monkeypatch):
    heard: list[tuple[Exchange, list[ClientUpdate]]] = []
    listen(monkeypatch, heard)
    experiment = tiny("ssfl", options={"participants": 3, "rounds": 2})
    transport = Tampering(
        experiment, tmp_path / "cache", lambda site, a: [idle(a) if site == "site-2" else a]
    )
    folder = run_experiment(experiment, tmp_path / "run", transport)
    assert len(heard) == 2
    for exchange, replies in heard:
        assert [reply.site for reply in replies] == SITES
        assert [reply.steps for reply in replies] == [2, 0, 2]
        silent = replies[1]
        assert silent.state is exchange.model
        assert silent.labelled == 0
        assert silent.unlabelled == 7
    for row in rows(folder, "rounds"):
        assert row["asked"] == SITES
        assert row["replied"] == ["site-1", "site-9"]
        reason = "took no training step: 0 labelled, 7 unlabelled images"
        assert row["failed"] == {"site-2": reason}
    assert not (folder / "models" / "site-2").exists()
    sent = {(row["round"], row["site"]): row["up"] for row in rows(folder, "bytes")}
    assert sent[1, "site-2"] == 0 < sent[1, "site-1"]


def test_a_site_that_only_evaluated_is_heard_without_steps(tmp_path, monkeypatch):
    heard: list[tuple[Exchange, list[ClientUpdate]]] = []
    listen(monkeypatch, heard)
    run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    assert len(heard) == 3
    for exchange, replies in heard:
        assert [reply.site for reply in replies] == SITES
        assert {reply.site for reply in replies if reply.steps} == set(exchange.tasks) != set(SITES)
        assert all(reply.state is exchange.model for reply in replies if not reply.steps)


@pytest.mark.parametrize(
    ("minimum", "steps_heard"),
    [(1, {"site-1": 2, "site-2": 0}), (2, {"site-2": 0}), (3, {"site-2": 0})],
)
def test_too_few_replies_with_steps_are_not_averaged(tmp_path, monkeypatch, minimum, steps_heard):
    """Of three sites one trains, one has nothing to learn from, and one is silent."""
    heard: list[tuple[Exchange, list[ClientUpdate]]] = []
    listen(monkeypatch, heard)
    deliveries = {"site-1": lambda a: [a], "site-2": lambda a: [idle(a)], "site-9": lambda a: []}
    options = {"participants": 3, "rounds": 2}
    folder = tmp_path / "run"
    with in_vain() if minimum > 1 else nullcontext():
        run_tampered(
            tmp_path, lambda site, a: deliveries[site](a), options=options, minimum_replies=minimum
        )
    assert [{reply.site: reply.steps for reply in replies} for _, replies in heard] == [
        steps_heard
    ] * 2
    unmoved = all(
        torch.equal(value, weights(folder)[key])
        for key, value in build("small_cnn", 8, 3, seed=3).state_dict().items()
    )
    assert unmoved == (minimum > 1)


def test_answers_without_a_step_do_not_keep_a_run_alive(tmp_path):
    with pytest.raises(RunError, match=r"3 exchanges in a row.*took no training step"):
        run_tampered(tmp_path, lambda site, a: [idle(a)], options={"rounds": 9})


class Failing(LocalTransport):
    """Every site answers with the same error."""

    def __init__(self, experiment, folder, said: dict[str, object]):
        super().__init__(Sites(experiment, folder), SITES)
        self.said = said

    def exchange(self, requests, timeout, deliver):
        for site, request in requests.items():
            deliver(site, Message({"site": site, "round": request.meta["round"], **self.said}))


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ({"error": "diverged, see largest_update"}, "mend what the sites report, and start"),
        ({"error": "boom", "diverged": True}, "training diverged at site-1, site-2, site-9, and"),
    ],
)
def test_sites_say_by_a_field_that_training_diverged_and_by_no_text(tmp_path, said, remedy):
    experiment = tiny("fedavg", options={"rounds": 1, "participants": None})
    with pytest.raises(RunError, match=remedy):
        run_experiment(experiment, tmp_path / "run", Failing(experiment, tmp_path / "cache", said))


# --- what a workflow notes


def group_row(exchange, replies):
    sites = [reply.site for reply in replies if reply.steps]
    return {
        "round": exchange.round,
        "part": exchange.part,
        "group": "all",
        "sites": sites,
        "weights": [1.0] * len(sites),
        "distances": [0.0] * len(sites),
    }


def note_rounds(monkeypatch, folder: Path, on_disk: list[list[int]]) -> None:
    """Let FedAvg's workflow note every round's number when it has heard its replies."""
    declared = Requirements(
        sends=Sends(frozenset({"loss_supervised"}), records=frozenset({"groups"}))
    )
    begin = FedAvg.__init__

    def init(self, settings):
        begin(self, settings)
        self.requirements = declared

    monkeypatch.setattr(FedAvg, "__init__", init)

    def rounds(self, state, federation):
        inner = federated_averaging(state, federation, self.settings, self.weight)
        exchange = next(inner)
        while exchange is not None:
            replies = yield exchange
            federation.record("groups", group_row(exchange, replies))
            on_disk.append([row["round"] for row in rows(folder, "groups")])
            try:
                exchange = inner.send(replies)
            except StopIteration:
                exchange = None

    monkeypatch.setattr(FedAvg, "rounds", rounds)


def test_notes_reach_the_log_with_the_state_that_follows_them(tmp_path, monkeypatch):
    on_disk: list[list[int]] = []
    note_rounds(monkeypatch, tmp_path / "run", on_disk)
    folder = run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    assert on_disk == [[], [1], [1, 2]]
    assert [row["round"] for row in rows(folder, "groups")] == [1, 2, 3]
    assert all(
        row["sites"] == done["replied"]
        for row, done in zip(rows(folder, "groups"), rows(folder, "rounds"), strict=True)
    )


def test_notes_of_a_round_that_never_ended_are_not_kept(tmp_path, monkeypatch):
    on_disk: list[list[int]] = []
    note_rounds(monkeypatch, tmp_path / "run", on_disk)
    folder = tmp_path / "run"
    commit = RunFolder.commit

    def dies(self, round_, state):
        if round_ == 2:
            raise KeyboardInterrupt
        commit(self, round_, state)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            run_local(tiny("fedavg"), folder, sites=SITES)
    assert [row["round"] for row in rows(folder, "groups")] == [1]
    resume_local(folder)
    assert [row["round"] for row in rows(folder, "groups")] == [1, 2, 3]


def test_a_note_of_an_unfinished_round_is_cut_on_resume(tmp_path, monkeypatch):
    """The server dies after the rows of round 2 are on disk, and before its state is."""
    on_disk: list[list[int]] = []
    note_rounds(monkeypatch, tmp_path / "run", on_disk)
    folder = tmp_path / "run"

    def dies(path, state):
        if state.round == 2:
            raise KeyboardInterrupt
        save_state(path, state)

    with monkeypatch.context() as patch:
        patch.setattr("fedward.storage.run_folder.save_state", dies)
        with pytest.raises(KeyboardInterrupt):
            run_local(tiny("fedavg"), folder, sites=SITES)
    assert [row["round"] for row in rows(folder, "groups")] == [1, 2]
    resume_local(folder)
    assert [row["round"] for row in rows(folder, "groups")] == [1, 2, 3]


# --- the last evaluation, which is no round


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (
            [Message({"site": "site-9", "round": 2, "error": "DataError: a broken image"})],
            "DataError: a broken image",
        ),
        ([], "no answer within 3600 s"),
    ],
)
def test_a_site_lost_in_the_last_evaluation_is_in_the_summary(tmp_path, capsys, answers, reason):
    """No row of a round can name it.

    The last model's mean would silently be one over fewer sites.
    """

    def lost(site, answer):
        return answers if (site, answer.meta["round"]) == ("site-9", 2) else [answer]

    folder = run_tampered(tmp_path, lost, options={"rounds": 1})
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["summary"]["not_evaluated"] == {"site-9": reason}
    assert not any(row["failed"] for row in rows(folder, "rounds"))
    evaluated = {
        row["site"]
        for row in rows(folder, "metrics")
        if (row["round"], row["split"]) == (1, "test")
    }
    assert evaluated == {"site-1", "site-2"}
    assert (
        f"last model not evaluated at 1 site:\n       site-9: {reason}\n" in capsys.readouterr().out
    )


# --- a resume that is refused


def assert_resume_is_refused(folder: Path, error: type[Exception], reason: str) -> None:
    """Check that the folder then gives the reason, and does not say that the run still goes on."""
    with pytest.raises(error, match=reason):
        resume_local(folder)
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "failed"
    assert re.search(reason, info["summary"]["reason"])


def test_a_run_without_a_whole_state_is_not_left_running(tmp_path, monkeypatch):
    die_in_exchange(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    for state in (tmp_path / "run" / "rounds").glob("*/state.safetensors"):
        state.write_bytes(b"")
    assert_resume_is_refused(tmp_path / "run", RunError, "expected one that is whole")


def test_a_run_whose_first_weights_are_gone_is_not_left_running(tmp_path, monkeypatch):
    experiment = tiny("fedavg", options={"rounds": 1})
    source = run_local(experiment, tmp_path / "source", sites=SITES)

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run_local(experiment, tmp_path / "run", sites=SITES, init=source)
    (source / "model.safetensors").unlink()
    assert_resume_is_refused(tmp_path / "run", ConfigError, r"weights of .*source")


# --- an error of the report


@pytest.mark.parametrize("error", [ValueError("no ink"), OSError("disk full")])
def test_an_error_of_the_report_does_not_hide_that_of_the_run(tmp_path, monkeypatch, caplog, error):
    def broken(path):
        raise error

    monkeypatch.setattr("fedward.lab.simulation.write_report", broken)
    with caplog.at_level(logging.ERROR), pytest.raises(RunError, match="3 exchanges in a row"):
        run_tampered(tmp_path, lambda site, a: [], options={"rounds": 9})
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["status"] == "failed"
    assert "3 exchanges" in info["summary"]["reason"]
    (record,) = (
        record for record in caplog.records if "no report of the failed run" in record.message
    )
    assert record.exc_info[1] is error


@pytest.mark.parametrize("error", [ValueError("no ink"), KeyboardInterrupt("no ink")])
def test_a_run_has_finished_even_if_its_report_fails(tmp_path, monkeypatch, capsys, error):
    """The error is told, and resuming the run writes the report and nothing else."""

    def broken(path):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("fedward.lab.simulation.write_report", broken)
        with pytest.raises(type(error), match="no ink"):
            run_local(tiny("fedavg", options={"rounds": 1}), tmp_path / "run", sites=SITES)
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["summary"]["rounds"] == 1
    assert "reason" not in info["summary"]
    assert f"folder: {tmp_path / 'run'}" in capsys.readouterr().out
    model = (tmp_path / "run" / "model.safetensors").read_bytes()
    monkeypatch.setattr("fedward.lab.simulation.write_report", write_report)
    assert (resume_local(tmp_path / "run") / "report.html").exists()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == model


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt(), "interrupted, writes the report"),
        (OSError("no disk"), "failed, writes the report"),
        (None, "writes the report"),
    ],
)
def test_while_a_report_is_written_nobody_is_said_to_work(tmp_path, monkeypatch, error, words):
    progress = Progress()
    seen = []
    commit = RunFolder.commit

    def breaks(self, round_, state):
        if error and round_ == 1:
            raise error
        commit(self, round_, state)

    monkeypatch.setattr(RunFolder, "commit", breaks)
    monkeypatch.setattr(
        "fedward.lab.simulation.write_report", lambda _: seen.append(progress.state())
    )
    with pytest.raises(type(error)) if error else nullcontext():
        run_local(
            tiny("fedavg", options={"rounds": 2}),
            tmp_path / "run",
            sites=SITES,
            console=Console(progress=progress),
        )
    assert seen == [(words, None)]
    assert progress.state() == ("", None)


# --- rounds of several exchanges, and the run's id


def run_isolated(tmp_path, method: str, name: str = "run", **changes) -> Path:
    sites = tmp_path / "sites"
    experiment = isolated(method, **changes)
    folders = [sites if sites.exists() else write_sites(sites)]
    return run_local(experiment, tmp_path / name, sites=ISOLATED, site_folders=folders)


def test_every_exchange_of_a_round_is_a_row(tmp_path):
    folder = run_isolated(tmp_path, "isofed", options={"rounds": 3})
    exchanges = [
        (row["round"], row["part"], row["asked"], row["replied"]) for row in rows(folder, "rounds")
    ]
    hidden = ["site-2", "site-3"]
    assert exchanges == [
        (1, 0, ISOLATED, ["site-1"]),  # nobody knows yet who has labels
        (2, 0, hidden, hidden),
        (2, 1, ["site-1"], ["site-1"]),
        (3, 0, hidden, hidden),
        (3, 1, ["site-1"], ["site-1"]),
    ]
    evaluated = [
        (row["round"], row["site"])
        for row in rows(folder, "metrics")
        if (row["split"], row["name"]) == ("val", "accuracy")
    ]
    assert sorted(evaluated) == [(round_, site) for round_ in range(4) for site in ISOLATED], (
        "once a round, not once a part"
    )
    assert [(row["round"], row["part"], row["sites"]) for row in rows(folder, "groups")] == [
        (round_, part, [site for site in asked if site in replied])
        for round_, part, asked, replied in exchanges
    ]


def test_rounds_of_one_exchange_are_part_0(tmp_path):
    folder = run_local(tiny(), tmp_path / "run", sites=SITES)
    assert [(row["round"], row["part"]) for row in rows(folder, "rounds")] == [
        (1, 0),
        (2, 0),
        (3, 0),
    ]


@pytest.mark.parametrize(
    ("method", "exchange", "answered"),
    [
        ("wfedavg", 2, 1),
        ("mt_wfedavg", 3, 2),
        ("isofed", 3, 1),
        ("rscfed", 5, 3),
    ],
)
def test_a_run_of_several_exchanges_resumes_bit_identically(
    tmp_path, monkeypatch, method, exchange, answered
):
    """In RSCFed every site takes part in all three passes, and its teacher goes on in each."""
    folders = [write_sites(tmp_path / "sites")]
    experiment = isolated(method)
    straight = run_local(experiment, tmp_path / "straight", sites=ISOLATED, site_folders=folders)
    with monkeypatch.context() as patch:
        die_in_exchange(patch, exchange, answered)
        with pytest.raises(KeyboardInterrupt):
            run_local(experiment, tmp_path / "broken", sites=ISOLATED, site_folders=folders)
    resumed = resume_local(tmp_path / "broken", site_folders=folders)
    assert_equal(weights(straight), weights(resumed))
    for log in ("metrics", "groups", "bytes"):
        logged = [
            [row for row in rows(folder, log) if row.get("name") != "seconds"]
            for folder in (straight, resumed)
        ]
        assert logged[0] == logged[1]


class Listening(LocalTransport):
    """Notes the run ids that requests to the sites carry."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.runs: set[str] = set()

    def exchange(self, requests, timeout, deliver):
        self.runs |= {request.meta["run"] for request in requests.values()}
        super().exchange(requests, timeout, deliver)


def test_a_run_keeps_its_id_and_tells_it_to_the_sites(tmp_path, monkeypatch):
    experiment = tiny("fedavg")
    folder = tmp_path / "run"
    transport = Listening(Sites(experiment, tmp_path / "sites"), SITES)
    with monkeypatch.context() as patch:
        die_in_exchange(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, folder, transport)
    before = json.loads((folder / "run.json").read_text())
    assert re.fullmatch("[0-9a-f]{32}", before["id"])
    run_experiment(experiment, folder, transport, resume=True)
    after = json.loads((folder / "run.json").read_text())
    assert before["status"] == "failed"
    assert after["status"] == "finished"
    assert transport.runs == {before["id"]} == {after["id"]}
    assert RunFolder.reopen(folder).info.id == before["id"]


def test_every_run_has_an_id_of_its_own(tmp_path):
    runs = [
        run_local(tiny("fedavg", options={"rounds": 1}), tmp_path / name, sites=SITES)
        for name in "ab"
    ]
    assert RunFolder.reopen(runs[0]).info.id != RunFolder.reopen(runs[1]).info.id
    assert_equal(weights(runs[0]), weights(runs[1]))


def test_runs_that_share_a_cache_of_images_share_no_memory(tmp_path):
    """They end alike, as if each had its sites for itself."""
    folders = [write_sites(tmp_path / "sites")]
    runs = [
        run_local(
            isolated("rscfed"),
            tmp_path / name,
            sites=ISOLATED,
            site_folders=folders,
            cache=tmp_path / "shared",
        )
        for name in "ab"
    ]
    alone = run_local(isolated("rscfed"), tmp_path / "c", sites=ISOLATED, site_folders=folders)
    for folder in runs:
        assert_equal(weights(folder), weights(alone))
    ids = sorted(RunFolder.reopen(folder).info.id for folder in runs)
    for site in ("site-2", "site-3"):
        memories = [
            path.name for folder in runs for path in (folder / "sites" / site / "memory").iterdir()
        ]
        assert sorted(memories) == ids
        assert not (tmp_path / "shared" / site / "memory").exists()
    assert not (runs[0] / "sites" / "site-1" / "memory").exists()
