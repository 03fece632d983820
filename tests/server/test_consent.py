"""The server and sites' policies: whom a run goes on without, waits for, and when it ends."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from asking import rules_of
from fedward.client.admission import Admission
from fedward.config import Experiment
from fedward.errors import WireError
from fedward.lab.local import Sites, local_transport
from fedward.methods import method_of
from fedward.protocol import answer_checks
from fedward.protocol.wire import Message
from fedward.security.approvals import Approvals
from fedward.security.policy import Policy
from fedward.server import consent
from fedward.server.consent import Consent, RunRefusedError
from fedward.server.run_status import lines, progress
from fedward.storage.info import Summary
from hospital import hospital, request
from run_files import rows
from running import run_experiment

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-3"]
LAST = SITES[-1]
STRICT = Policy(minimum_replies=4)
ASKING = Policy(approval="required", draws="seed")
TWO = Policy(minimum_replies=2, minimum_effective_replies=1.5)
BY_SEED = Policy(draws="seed")
"""A policy by which runs in two folders, each with a secret of its own, have equal weights."""


class Hospitals:
    """Three hospitals or more with synthetic images.

    All from the third one on have ``policy``; ``approvals`` are those of the third.
    """

    def __init__(
        self,
        folder: Path,
        experiment: Experiment,
        policy: Policy,
        others: Policy | None = None,
        sites: Sequence[str] = SITES,
    ) -> None:
        self.folder = folder
        self.experiment = experiment
        self.transport = local_transport(
            Sites(experiment, folder / "run" / "sites"),
            sites,
            method_of(experiment),
            folder / "run",
        ).__enter__()
        self.asked: Counter[str] = Counter()
        inner = getattr(self.transport, "_inner", self.transport)
        algorithm = method_of(experiment)
        for name in inner.sites():
            site = inner.client(name)
            rules = (others or BY_SEED) if name in SITES[:2] else policy
            site.admission = Admission(
                name, experiment, algorithm, site.source.folder, lambda rules=rules: rules
            )
            site.handle = self._counting(name, site.handle)
        self.approvals = Approvals(inner.client(LAST).source.folder / "approvals")

    def _counting(self, name: str, handle: Callable[..., Message]) -> Callable[..., Message]:
        def counted(message: Message) -> Message:
            self.asked[name] += 1
            return handle(message)

        return counted

    def run(self, resume: bool = False) -> Path:
        folder = self.folder / "run" / "run"
        return run_experiment(self.experiment, folder, self.transport, resume=resume)

    @property
    def info(self) -> dict:
        return json.loads((self.folder / "run" / "run" / "run.json").read_text())


def meanwhile(monkeypatch, *events: Callable[[], object]) -> list[float]:
    """Run one event in each pause of the server, in turn; return the pauses in seconds."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        events[len(pauses) - 1]()

    monkeypatch.setattr(consent, "sleep", sleep)
    return pauses


# --- refused

TOLD = (
    "policy of site-3: expected what its rules allow, found minimum_replies: at least 4, the job "
    "says "
)


@pytest.mark.proves(
    "faults",
    "so many policies forbid a job that too few sites are left",
    "the run ends with its first exchange; run.json and the round name site and rule",
)
def test_a_run_that_too_few_sites_accept_ends_at_once(tmp_path, capsys):
    hospitals = Hospitals(tmp_path, hospital(), STRICT)
    with pytest.raises(RunRefusedError, match="at least 3 sites that accept the job"):
        hospitals.run()
    assert hospitals.asked == Counter(SITES)
    assert f"site-3 refuses: {TOLD}3" in hospitals.info["summary"]["reason"]
    assert hospitals.info["summary"]["refused"] == [LAST]
    (row,) = rows(tmp_path / "run" / "run", "rounds")
    assert row["failed"][LAST].startswith(TOLD)
    assert "site-3 refuses" in " ".join(capsys.readouterr().out.split())


def test_a_run_waits_for_no_approval_that_cannot_be_enough(tmp_path, monkeypatch):
    """All three sites are needed and one refuses, so the approval of the others changes nothing."""
    pauses = meanwhile(monkeypatch)
    hospitals = Hospitals(tmp_path, hospital(), STRICT, ASKING)
    with pytest.raises(RunRefusedError, match="at least 3 sites that accept the job"):
        hospitals.run()
    assert pauses == []
    assert hospitals.asked == Counter(SITES)


def test_a_run_needs_only_enough_consenting_sites(tmp_path):
    experiment = hospital(minimum_replies=2, options={"rounds": 2})
    hospitals = Hospitals(tmp_path, experiment, TWO.model_copy(update={"minimum_batch": 9}), TWO)
    folder = hospitals.run()
    assert hospitals.info["status"] == "finished"
    assert all(
        "minimum_batch: at least 9, the job says 8" in row["failed"][LAST]
        for row in rows(folder, "rounds")
    )


def test_a_server_with_labels_of_its_own_waits_for_no_approval(tmp_path, monkeypatch):
    """The others have nothing to learn from, so their updates never become enough."""
    options = {"server_labels": True, "rounds": 2}
    experiment = hospital(minimum_replies=2, options=options)
    asking = TWO.model_copy(update={"approval": "required"})
    pauses = meanwhile(monkeypatch)
    hospitals = Hospitals(tmp_path, experiment, asking, TWO)
    folder = hospitals.run()
    assert hospitals.info["status"] == "finished"
    assert not pauses
    for row in rows(folder, "rounds"):
        assert row["failed"][LAST].startswith("waiting for approval of job")


def test_a_run_that_ends_for_another_reason_was_not_refused(tmp_path, monkeypatch):
    """A supervised run would not be sent again if sites' policies had ended it."""
    experiment = hospital(minimum_replies=2, options={"rounds": 2})
    hospitals = Hospitals(tmp_path, experiment, TWO.model_copy(update={"minimum_batch": 9}), TWO)
    whole = hospitals.transport.exchange

    def lost_in_round_two(requests, timeout, deliver):
        if any(request.meta["round"] == 2 for request in requests.values()):
            raise RuntimeError("the process died")
        whole(requests, timeout, deliver)

    monkeypatch.setattr(hospitals.transport, "exchange", lost_in_round_two)
    with pytest.raises(RuntimeError):
        hospitals.run()
    assert hospitals.info["status"] == "failed"
    assert "refused" not in hospitals.info["summary"]


def test_a_site_that_has_changed_its_mind_is_counted_again():
    info = SimpleNamespace(summary=Summary())
    experiment = SimpleNamespace(minimum_replies=1)
    run = SimpleNamespace(sites=SITES, experiment=experiment, info=info)
    watched = Consent(run, None)  # type: ignore[arg-type]
    watched.require(1, [], {"site-1": "no", "site-2": "no"})
    watched.require(2, ["site-1"], {"site-3": "no"})
    assert watched.refused == {"refused": ["site-2", "site-3"]}


# --- waiting


def test_a_site_that_was_not_asked_still_waits():
    """Others train in a round, and nobody has asked the site again."""
    info = SimpleNamespace(summary=Summary())
    reported = list[dict[str, str]]()

    def set_status(status: str, summary: Summary) -> None:
        info.summary = summary

    run = SimpleNamespace(
        sites=SITES,
        experiment=SimpleNamespace(minimum_replies=1),
        info=info,
        set_status=set_status,
    )
    consent = Consent(run, SimpleNamespace(waiting=reported.append))  # type: ignore[arg-type]
    consent.report(SITES, {LAST: "abc"})
    consent.report(["site-1"], {})
    assert info.summary.waiting == {LAST: "abc"}
    consent.report(["site-1"], {"site-1": "abc"})
    consent.report([LAST], {})
    assert reported == [{LAST: "abc"}, {"site-1": "abc", LAST: "abc"}, {"site-1": "abc"}]


@pytest.mark.proves(
    "faults",
    "a site's administrator approves a job days late",
    "the run waits in round 1, says for whom, and goes on with all",
)
def test_a_run_waits_for_approval_where_replies_are_too_few(tmp_path, monkeypatch, capsys):
    hospitals = Hospitals(tmp_path, hospital(options={"rounds": 2}), ASKING)
    digest = hospitals.experiment.digest
    shown = []

    def look() -> None:
        shown.append(hospitals.info)
        shown.append(progress(tmp_path / "run" / "run"))

    pauses = meanwhile(monkeypatch, look, lambda: None, lambda: hospitals.approvals.approve(digest))
    folder = hospitals.run()
    assert pauses == [1, 2, 4]
    assert shown[0]["status"] == "running"
    assert shown[0]["summary"] == {"waiting": {LAST: digest}}
    assert f"  waiting   for approval: {LAST}, job" in "\n".join(lines(shown[1]))
    assert hospitals.asked == {"site-1": 3, "site-2": 3, LAST: 6}, (
        "two rounds and the last evaluation"
    )
    assert [row["replied"] for row in rows(folder, "rounds")] == [SITES] * 2
    assert hospitals.info["summary"].get("waiting") is None
    out = " ".join(capsys.readouterr().out.split())
    assert f"waiting for approval: {LAST}, job {digest}" in out
    assert "no site waits for approval any more" in out


def test_a_waiting_site_holds_up_no_run_with_enough_replies(tmp_path, monkeypatch):
    experiment = hospital(minimum_replies=2, options={"rounds": 2})
    hospitals = Hospitals(
        tmp_path, experiment, TWO.model_copy(update={"approval": "required"}), TWO
    )
    pauses = meanwhile(monkeypatch)
    folder = hospitals.run()
    assert pauses == []
    digest = hospitals.experiment.digest
    reason = f"waiting for approval of job {digest} by the site's administrator"
    assert [row["failed"] for row in rows(folder, "rounds")] == [{LAST: reason}] * 2
    assert hospitals.info["summary"]["not_evaluated"] == {LAST: reason}


def test_a_withdrawn_approval_stops_the_site_at_once(tmp_path, monkeypatch):
    hospitals = Hospitals(tmp_path, hospital(options={"rounds": 2}), ASKING)
    digest = hospitals.experiment.digest
    hospitals.approvals.approve(digest)
    site = hospitals.transport.client(LAST)  # type: ignore[attr-defined]
    answers = []

    def handle(message: Message, handle: Callable[..., Message] = site.handle) -> Message:
        answers.append(handle(message))
        if len(answers) == 1:
            hospitals.approvals.withdraw(digest)
        return answers[-1]

    site.handle = handle
    meanwhile(monkeypatch, lambda: hospitals.approvals.approve(digest))
    folder = hospitals.run()
    assert ["waiting" in answer.meta for answer in answers] == [False, True, False, False]
    assert [row["replied"] for row in rows(folder, "rounds")] == [SITES] * 2


def test_a_run_stopped_while_waiting_resumes_bit_identically(tmp_path, monkeypatch):
    def stop() -> None:
        raise KeyboardInterrupt

    hospitals = Hospitals(tmp_path / "stopped", hospital(options={"rounds": 2}), ASKING)
    plain = Hospitals(tmp_path / "plain", hospitals.experiment, BY_SEED)
    meanwhile(monkeypatch, stop)
    with pytest.raises(KeyboardInterrupt):
        hospitals.run()
    hospitals.approvals.approve(hospitals.experiment.digest)
    models = [run / "model.safetensors" for run in (hospitals.run(resume=True), plain.run())]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_encrypted_updates_wait_too(tmp_path, monkeypatch):
    """Two updates of the first exchange are too few for a sum.

    All sites are asked again, and there is a sum.
    """
    pytest.importorskip("tenseal")
    hospitals = Hospitals(
        tmp_path, hospital(secure_aggregation=True, options={"rounds": 1}), ASKING
    )
    meanwhile(monkeypatch, lambda: hospitals.approvals.approve(hospitals.experiment.digest))
    folder = hospitals.run()
    assert [row["replied"] for row in rows(folder, "rounds")] == [SITES]


def test_a_site_that_never_approves_holds_up_no_encrypted_run_of_enough(tmp_path, monkeypatch):
    """Neither the two updates of the first sites are a sum of three, nor that of the third alone.

    What travels more than once counts so often.
    """
    pytest.importorskip("tenseal")
    never = "site-4"
    hospitals = Hospitals(
        tmp_path,
        hospital(secure_aggregation=True, options={"rounds": 1}),
        ASKING,
        sites=[*SITES, never],
    )
    digest = hospitals.experiment.digest
    pauses = meanwhile(monkeypatch, lambda: None, lambda: hospitals.approvals.approve(digest))
    folder = hospitals.run()
    assert pauses == [1, 2]
    (row,) = rows(folder, "rounds")
    assert row["replied"] == SITES
    assert row["failed"] == {
        never: f"waiting for approval of job {digest} by the site's administrator"
    }
    # Each is asked once more after the last round. A sum to decrypt comes to the three as well.
    assert hospitals.asked == {"site-1": 4, "site-2": 4, LAST: 6, never: 4}
    down = {row["site"]: row["down"] for row in rows(folder, "bytes") if row["round"] == 1}
    model = down[never] // 3
    assert down[never] == 3 * model
    assert down[LAST] - down["site-1"] == 2 * model
    assert down["site-1"] == down["site-2"] > 2 * model


# --- what a site may say of it


@pytest.mark.parametrize(
    "meta",
    [
        {"waiting": "x" * 64},
        {"waiting": ["0" * 64]},
        {"waiting": "0" * 64, "error": "no"},
        {"waiting": "0" * 64, "steps": 4},
        {"error": "no", "refused": "yes"},
        {"error": "no", "refused": False},
        {"error": "no", "diverged": "yes"},
        {"error": "no", "diverged": False},
        {"diverged": True},
        {"refused": True},
    ],
)
@pytest.mark.proves(
    "site",
    "own texts or numbers in place of a refusal",
    "refused",
)
def test_a_site_says_that_it_waits_or_refuses_and_nothing_else(meta):
    answer = Message({"site": "site-1", "round": 1, **meta})
    with pytest.raises(WireError):
        answer_checks.check_answer(answer, "site-1", request(hospital()), rules_of())
