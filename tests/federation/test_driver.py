"""The server's loop: who counts, what is written, and that a resumed run ends with the weights of a straight one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedward.errors import RunError
from fedward.federation.driver import run_experiment
from fedward.federation.local import LocalTransport, run_local
from fedward.federation.store import StoredState
from fedward.federation.wire import Message
from fedward.nets import build
from tiny import tiny

SITES = ["site-1", "site-2", "site-9"]


def rows(folder: Path, log: str) -> list[dict]:
    return [json.loads(line) for line in (folder / f"{log}.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(StoredState(folder / "model.safetensors"))


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert list(a) == list(b)
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


class Tampering(LocalTransport):
    """Lets a test change what a site answers."""

    def __init__(self, experiment, folder, tamper: Callable[[str, Message], list[Message]]):
        super().__init__(experiment, SITES, folder)
        self.tamper = tamper

    def exchange(self, requests, timeout, deliver):
        def change(site, answer):
            for message in self.tamper(site, answer):
                deliver(site, message)

        super().exchange(requests, timeout, change)


def run_tampered(tmp_path, tamper, name="run", **changes):
    experiment = tiny("ssfl", **changes)
    transport = Tampering(experiment, tmp_path / "cache", tamper)
    run_experiment(experiment, tmp_path / name, transport, engine="local")
    return tmp_path / name


def test_a_run_leaves_the_files_readers_need(tmp_path):
    folder = run_local(tiny(), tmp_path / "run", sites=SITES)
    info = json.loads((folder / "run.json").read_text())
    assert (info["status"], info["sites"], info["method"]) == ("finished", SITES, "fedperl")
    rounds = rows(folder, "rounds")
    assert [row["round"] for row in rounds] == [1, 2, 3]
    assert all(len(row["replied"]) == 2 and not row["failed"] for row in rounds)
    evaluated = {(row["round"], row["site"]) for row in rows(folder, "metrics") if row["split"] == "test"}
    assert evaluated == {(round_, site) for round_ in range(4) for site in SITES}
    assert (folder / "report.html").exists()
    assert json.loads((folder / "best.json").read_text())["round"] in range(4)


def test_peers_travel_after_the_warm_up_only_and_are_counted(tmp_path):
    experiment = tiny(options={"rounds": 6, "participants": 3})
    folder = run_local(experiment, tmp_path / "run", sites=SITES)
    counted = {row["round"]: row["peer_models"] for row in rows(folder, "rounds")}
    assert counted[1] == 0
    assert all(counted[round_] == 3 for round_ in range(2, 7))  # three sites, one anonymous peer each
    chosen = [row["chosen"] for row in rows(folder, "peers")]
    assert all(site not in peers for row in chosen for site, peers in row.items())
    model = sum(row["down"] for row in rows(folder, "bytes") if row["round"] == 1) // 3
    assert all(row["down"] == 2 * model for row in rows(folder, "bytes") if row["round"] == 2)


def test_equal_seeds_give_equal_weights_and_other_seeds_others(tmp_path):
    folders = [run_local(tiny(seed=seed), tmp_path / f"{i}", sites=SITES) for i, seed in enumerate((3, 3, 4))]
    assert_equal(weights(folders[0]), weights(folders[1]))
    assert any(
        not torch.equal(a, b) for a, b in zip(weights(folders[0]).values(), weights(folders[2]).values(), strict=True)
    )


@pytest.mark.parametrize("interrupt_after", [1, 2])
@pytest.mark.parametrize("method", ["fedavg", "fedperl"])
def test_an_interrupted_run_resumes_to_the_same_weights_and_rows(tmp_path, method, interrupt_after, monkeypatch):
    experiment = tiny(method, options={"rounds": 4})
    straight = run_local(experiment, tmp_path / "straight", sites=SITES)

    exchanges = 0
    whole = LocalTransport.exchange

    def breaks(self, requests, timeout, deliver):
        nonlocal exchanges
        exchanges += 1
        if exchanges == interrupt_after + 1:
            # One site of the round has answered already when the server dies.
            first = min(requests)
            whole(self, {first: requests[first]}, timeout, deliver)
            raise KeyboardInterrupt
        whole(self, requests, timeout, deliver)

    with monkeypatch.context() as patch:
        patch.setattr(LocalTransport, "exchange", breaks)
        with pytest.raises(KeyboardInterrupt):
            run_local(experiment, tmp_path / "broken", sites=SITES)
    assert json.loads((tmp_path / "broken" / "run.json").read_text())["status"] == "failed"
    resumed = run_local(None, tmp_path / "broken", resume=True)
    assert_equal(weights(straight), weights(resumed))
    for log in ("metrics", "peers", "bytes"):
        kept = [[row for row in rows(folder, log) if row.get("name") != "seconds"] for folder in (straight, resumed)]
        assert kept[0] == kept[1]


def test_sigkill_in_the_middle_of_a_round_loses_nothing(tmp_path):
    """A real process, a real SIGKILL while round 2 is under way, then the same weights as an undisturbed run."""
    experiment = tiny(options={"rounds": 4})
    straight = run_local(experiment, tmp_path / "straight", sites=SITES)
    folder = tmp_path / "killed"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from fedward.config import Experiment\n"
        "from fedward.federation import local\n"
        "from fedward.federation.site import Site\n"
        "work = Site._work\n"
        "def slow(self, request, aborted):\n"
        "    if request.meta['round'] == 2 and self.name != 'site-1':\n"
        "        Path(sys.argv[2], 'in-round-2').touch()\n"
        "        time.sleep(600)\n"
        "    return work(self, request, aborted)\n"
        "Site._work = slow\n"
        "experiment = Experiment.model_validate_json(sys.stdin.read())\n"
        f"local.run_local(experiment, Path(sys.argv[1]), sites={SITES!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, folder, tmp_path], stdin=subprocess.PIPE)
    process.stdin.write(experiment.model_dump_json().encode())
    process.stdin.close()
    while not (tmp_path / "in-round-2").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    resumed = run_local(None, folder, resume=True)
    assert_equal(weights(straight), weights(resumed))
    assert [row["round"] for row in rows(resumed, "rounds")] == [1, 2, 3, 4]


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    folder = run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    run_local(None, folder, resume=True)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_results_are_never_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="new or empty"):
        run_local(tiny("fedavg"), tmp_path, sites=SITES)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_one_site_is_local_training(tmp_path):
    """Federated averaging of a single site returns that site's weights."""
    experiment = tiny("fedavg", options={"rounds": 1, "participants": 1})
    folder = run_local(experiment, tmp_path / "run", sites=["site-1"])
    final = weights(folder)
    uploaded = StoredState(folder / "models" / "site-1" / "00001.safetensors")
    for key, value in final.items():
        assert torch.equal(value, uploaded[key]), key


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
    assert all(torch.isfinite(value).all() for value in weights(folder).values())


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (lambda site, a: [], "no answer within"),
        (lambda site, a: [Message({**a.meta, "round": 0}, a.arrays)], "round 0"),
        (lambda site, a: [Message(a.meta, dict(list(a.arrays.items())[1:]))], "nothing"),
        (lambda site, a: [Message(a.meta, {n: v.reshape(1, -1) for n, v in a.arrays.items()})], "shape"),
        (lambda site, a: [Message({"site": site, "round": a.meta["round"], "error": "boom"})], "boom"),
    ],
    ids=["vanished", "stale", "missing key", "wrong shape", "error"],
)
def test_unusable_answers_are_refused_by_name(tmp_path, tamper, reason):
    folder = run_tampered(
        tmp_path, lambda site, a: tamper(site, a) if site == "site-1" else [a], options={"participants": 3, "rounds": 1}
    )
    (row,) = rows(folder, "rounds")
    assert row["replied"] == ["site-2", "site-9"]
    assert reason in row["failed"]["site-1"]


def test_a_second_answer_changes_nothing(tmp_path):
    def twice(site, answer):
        louder = Message(answer.meta, {name: array * 100 for name, array in answer.arrays.items()})
        return [answer, louder]

    plain = run_tampered(tmp_path, lambda site, a: [a], "plain")
    assert_equal(weights(plain), weights(run_tampered(tmp_path, twice, "twice")))


def test_a_run_without_any_reply_gives_up_and_can_be_resumed(tmp_path):
    with pytest.raises(RunError, match="3 exchanges in a row"):
        run_tampered(tmp_path, lambda site, a: [], options={"rounds": 9})
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["status"] == "failed"
    assert "3 exchanges" in info["summary"]["reason"]


def test_fewer_than_the_minimum_leaves_the_model_as_it_was(tmp_path):
    folder = run_tampered(
        tmp_path,
        lambda site, a: [a] if site == "site-1" else [],
        options={"participants": 3, "rounds": 1},
        minimum_replies=2,
    )
    assert_equal(dict(build("small_cnn", 8, 3, seed=3).state_dict()), weights(folder))


def test_a_site_without_labels_takes_no_supervised_step_and_weighs_nothing(tmp_path):
    experiment = tiny("fedavg", stand_in={"images": 40, "labelled": 0.0}, options={"rounds": 2})
    folder = run_local(experiment, tmp_path / "run", sites=SITES)
    assert all("no labelled image" in reason for row in rows(folder, "rounds") for reason in row["failed"].values())
    assert all(row["replied"] == [] for row in rows(folder, "rounds"))


def test_a_site_without_labels_learns_from_its_pseudo_labels(tmp_path):
    experiment = tiny("ssfl", stand_in={"images": 40, "labelled": 0.0}, options={"rounds": 2})
    folder = run_local(experiment, tmp_path / "run", sites=SITES)
    assert all(len(row["replied"]) == 2 for row in rows(folder, "rounds"))


def test_resume_with_other_settings_is_refused(tmp_path):
    folder = run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    other = tiny("fedavg", seed=9)
    with pytest.raises(RunError, match="other settings"):
        run_experiment(other, folder, LocalTransport(other, SITES, tmp_path), engine="local", resume=True)


@pytest.mark.parametrize("policy", ["validation", "gated_validation"])
def test_validation_policies_judge_models_on_the_servers_own_images(tmp_path, policy):
    """With a gate of 0 every peer passes, so both policies may only drop peers, never add some."""
    options = {"rounds": 4, "participants": 3, "policy": policy, "gate": 0.0, "allow_single_peer": True}
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
