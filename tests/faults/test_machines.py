"""Processes and machines of a federation that die, hang, come late or run out of disk."""

import errno
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from faults import POINTS, Fault, FaultyFederation, fault, job_process, parent_process, site_files
from safetensors.torch import load_file

from fedward.config import Experiment
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.flare.jobs.supervise import Supervisor
from local_federation import HOSPITALS, LEAD, SERVER
from running import run_local
from tiny import tiny

pytestmark = pytest.mark.secure

SEED = 7
"""Of the choice of sites, of the order of points, and of the calls at which a fault happens."""

EVERYONE = sorted(HOSPITALS)
KILLED = "killed while work is sent, trained, uploaded, aggregated and saved:"
RESTARTED = "started again by site, server or supervisor"
SAME = "the run ends as if undisturbed"


def experiment(timeout: int = 600, **options: Any) -> Experiment:
    options = {"rounds": 3, "participants": None, "images_per_round": 16, **options}
    return tiny("fedavg", timeout=timeout, synthetic=None, options=options)


LONG = experiment(rounds=2 * len(POINTS) + 1)

A_ROUND = {"send": len(EVERYONE), "train": 2, "upload": 1, "aggregate": 1, "save": 4}
"""Point -> how often a round passes it. A supervisor gives up a run whose machines die in one and
the same round.
"""


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyFederation]:
    with FaultyFederation(tmp_path_factory.mktemp("faulty")) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(
    federation: FaultyFederation, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    """Assert that a run has the weights that the same sites reach undisturbed in one process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    sites = site_files(federation, folder / "sites")

    def check(run: Path, plan: Experiment) -> None:
        plain = folder / str(plan.options["rounds"])
        if not plain.exists():
            run_local(plan, plain, sites=EVERYONE, site_folders=[sites])
        weights = load_file(run / "model.safetensors")
        for key, value in load_file(plain / "model.safetensors").items():
            torch.testing.assert_close(weights[key], value, rtol=0, atol=1e-6)

    return check


def supervised(
    federation: FaultyFederation, plan: Experiment, folder: Path
) -> tuple[Path, list[str]]:
    """Return the run folder of a supervised run, and what the supervisor said."""
    export_job(plan, folder / "job", clinical=True)
    said: list[str] = []
    supervisor = Supervisor(
        federation.kit(LEAD), folder / "job", uuid4().hex, patience=60, say=said.append
    )
    return supervisor.finish(folder / "out"), said


def plainly(federation: FaultyFederation, plan: Experiment, folder: Path) -> Path:
    """Return the run folder of a run that nobody supervises."""
    export_job(plan, folder / "job", clinical=True)
    with session(federation.kit(LEAD)) as flare:
        return fetch(flare, wait(flare, submit(flare, folder / "job"), 300), folder / "out")


def rounds(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def log(federation: FaultyFederation, name: str) -> str:
    """Return what a participant and its jobs have logged."""
    return "".join(path.read_text() for path in federation.kit(name).rglob("log.txt"))


# --- killed, at every point of a round

VICTIMS = [
    pytest.param(
        victim,
        sign,
        marks=pytest.mark.proves("faults", f"{KILLED} {victim}", f"{RESTARTED}; {SAME}"),
    )
    for victim, sign in [
        ("a site's job process", "was killed by SIGKILL; restart"),
        ("the server's job process", "was killed by SIGKILL; restart"),
        ("a whole site", "to go on with {name}"),
        ("the whole server", "lost with the server"),
    ]
]


@pytest.mark.parametrize(("victim", "sign"), VICTIMS)
def test_a_run_survives_kills_at_every_point_of_a_round(
    federation, undisturbed, tmp_path, victim, sign
):
    """One run with a kill in each round, at another point; machines die in every second round."""
    draw = random.Random(f"{SEED} {victim}")
    points = draw.sample(sorted(POINTS), len(POINTS))
    site = draw.choice(EVERYONE)
    name = site if "site" in victim else SERVER
    whole = "whole" in victim
    victims = [job_process(name)]
    if whole:
        victims.append(parent_process(name))
    calls = {point: draw.randint(1, 2) + (A_ROUND[point] if whole else 0) for point in points}
    # A round is shorter here than the two seconds between two looks of the supervisor.
    delay = 5.0 if whole else 0.0
    federation.plan(
        [fault(point, victims, site, call, delay=delay) for point, call in calls.items()]
    )
    with federation.kept_alive() as revived:
        run, said = supervised(federation, LONG, tmp_path)
    assert federation.happened() == len(POINTS)
    assert revived == ([name] * len(POINTS) if whole else [])
    assert sign.format(name=name) in ("\n".join(said) if whole else log(federation, name))
    undisturbed(run, LONG)
    if victim == "a site's job process":
        assert any(name in row["restarts"] for row in rounds(run))
    assert [row["round"] for row in rounds(run)] == list(range(1, LONG.options["rounds"] + 1))
    assert all(row["replied"] == EVERYONE for row in rounds(run))


# --- away, hanging, late


def hospital_b_dies() -> Fault:
    """Return the death of a whole site, job process and parent, while it trains first."""
    processes = [job_process("hospital-b"), parent_process("hospital-b")]
    return fault("train", processes, "hospital-b", 1)


@pytest.mark.proves(
    "faults",
    "a site hangs (SIGSTOP) or is killed, unsupervised",
    "each round waits for `timeout` at most, names the site and goes on without it",
)
def test_a_site_that_hangs_is_named_and_the_others_go_on(federation, tmp_path):
    federation.plan([fault("train", [job_process("hospital-b")], "hospital-b", 1, "hang")])
    run, _ = supervised(federation, experiment(timeout=30, rounds=2), tmp_path)
    for row in rounds(run):
        assert row["replied"] == ["hospital-a", "hospital-c"]
        assert row["failed"] == {"hospital-b": "no answer within 30 s"}


@pytest.mark.proves(
    "faults",
    "a site hangs (SIGSTOP) or is killed, unsupervised",
    "each round waits for `timeout` at most, names the site and goes on without it",
)
def test_a_site_that_stays_away_is_named_and_the_others_go_on(federation, tmp_path):
    federation.plan([hospital_b_dies()])
    try:
        run = plainly(federation, experiment(timeout=30, rounds=2), tmp_path)
    finally:
        federation.revive()
        federation.wait_until_ready()
    for row in rounds(run):
        assert row["replied"] == ["hospital-a", "hospital-c"]
        assert list(row["failed"]) == ["hospital-b"]


@pytest.mark.proves(
    "faults",
    "a site is killed and started again at once, unsupervised",
    "its rounds end long before `timeout`, name the site and go on without it",
)
def test_nobody_waits_for_a_site_that_was_started_again(federation, tmp_path):
    """The timeout is longer than the patience with the run."""
    federation.plan([hospital_b_dies()])
    with federation.kept_alive() as revived:
        run = plainly(federation, experiment(timeout=600, rounds=2), tmp_path)
    assert revived == ["hospital-b"]
    for row in rounds(run):
        assert row["replied"] == ["hospital-a", "hospital-c"]
        assert row["failed"] == {
            "hospital-b": "it has left the job: stopped, started again, shut out or cut off"
        }


@pytest.mark.proves(
    "faults",
    "a site joins late",
    "the supervisor starts the job again, and the site takes part from then on",
)
def test_a_site_that_joins_late_takes_part(federation, tmp_path):
    federation.stop_one("hospital-c")
    # The first round ends, the second one waits.
    federation.plan([fault("aggregate", [], "", 2, "wait")])
    with federation.started_once_it_happened("hospital-c"):
        run, said = supervised(federation, experiment(), tmp_path)
    assert "the job was stopped, to go on with hospital-c" in said
    assert [row["replied"] for row in rounds(run)] == [
        ["hospital-a", "hospital-b"],
        EVERYONE,
        EVERYONE,
    ]
    assert json.loads((run / "run.json").read_text())["sites"] == EVERYONE
    audit = [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]
    assert [row["details"]["sites"] for row in audit if row["event"] == "joined"] == [
        ["hospital-c"]
    ]


# --- full disks


@pytest.mark.proves(
    "faults",
    "the server's disk is full while it saves a round",
    f"the run fails and says so. Once continued, {SAME}",
)
def test_a_run_resumes_when_the_servers_disk_has_room_again(federation, undisturbed, tmp_path):
    federation.plan([fault("save", [], "", 8, "error", errno.ENOSPC)])
    run, said = supervised(federation, experiment(), tmp_path)
    assert federation.happened() == 1
    assert any("No space left on device" in text for text in said)
    undisturbed(run, experiment())


@pytest.mark.proves(
    "faults",
    "a site's disk is full",
    "the round names the site and goes on without it; the next has it again",
)
def test_a_site_whose_disk_is_full_is_named_and_comes_back(federation, tmp_path):
    federation.plan([fault("train", [], "hospital-b", 1, "error", errno.ENOSPC)])
    run = plainly(federation, experiment(), tmp_path)
    first, *others = rounds(run)
    assert first["replied"] == ["hospital-a", "hospital-c"]
    assert first["failed"]["hospital-b"].startswith("OSError")
    assert "No space left on device" in log(federation, "hospital-b")
    assert all(row["replied"] == EVERYONE for row in others)
