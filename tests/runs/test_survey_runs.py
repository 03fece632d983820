"""Surveys as jobs: both engines tell the same, each site decides, and no model comes of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asking import survey_requests
from clients import new_client
from fedward.client.admission import Admission
from fedward.config import Experiment
from fedward.digests import file_digest
from fedward.errors import RunError
from fedward.lab.local import LocalTransport, Sites
from fedward.methods import job_of
from fedward.operation.audit_check import verify
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.security.policy import OPEN, Policy
from forged import Rows, log_of, rewrite
from running import resume_local, run_experiment, run_local
from surveyed import SPEC, Held, write_hospital
from tiny import clinical, tiny

SITES = ["site-1", "site-2", "site-3"]


def hospitals(folder: Path) -> list[Path]:
    """Write three sites: one without melanomas, one that is dark, one with a class of its own."""
    held: dict[str, list[Held]] = {
        "site-1": [("NV", "train", 30, 160, "a*", "X"), ("NV", "test", 10, 160, "b*", "X")],
        "site-2": [("NV", "train", 20, 40, "a*", "X"), ("MEL", "train", 20, 40, "m*", "X")],
        "site-3": [("MEL", "train", 20, 160, "a*", "Y"), ("DF", "train", 25, 160, "d*", "Y")],
    }
    files = [
        write_hospital(folder / site, rows, survey_columns=["camera"])
        for site, rows in held.items()
    ]
    for file in files:
        _name_images_by_absolute_path(file)
    return [file.rename(folder / file.name) for file in files]


def _name_images_by_absolute_path(file: Path) -> None:
    file.write_text(file.read_text().replace("folder: images", f"folder: {file.parent / 'images'}"))


def experiment(**changes: object) -> Experiment:
    return tiny("survey", data=SPEC, synthetic=None, minimum_replies=2, timeout=60, **changes)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hospitals(tmp_path_factory.mktemp("sites"))[0].parent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Path:
    return run_local(
        experiment(), tmp_path_factory.mktemp("survey") / "run", sites=SITES, site_folders=[files]
    )


ATTACKS: dict[str, Callable[[Rows], Rows]] = {
    "changed": lambda rows: [
        {**row, "grey": row["grey"] + 5} if row["site"] == "site-2" else row for row in rows
    ],
    "removed": lambda rows: [row for row in rows if row["site"] != "site-2"],
    "of another site": lambda rows: [
        {**rows[0], "site": "site-2"},
        *(row for row in rows if row["site"] != "site-2"),
    ],
}


@pytest.mark.proves(
    "server",
    "models, metrics, counts, surveys or the order of lines are changed, with all "
    "hashes computed again",
    "found by `fedward audit verify` with the log of any one site, or of the one concerned",
)
@pytest.mark.parametrize("attack", ATTACKS)
def test_forged_surveys_fail_against_their_site(run: Path, tmp_path: Path, attack: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    file = folder / "surveys.jsonl"
    rows = ATTACKS[attack]([json.loads(line) for line in file.read_text().splitlines()])
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    audit = log_of(folder)
    (ended,) = [row for row in audit if row["event"] == "ended"]
    ended["details"]["files"]["surveys.jsonl"] = file_digest(file)
    rewrite(folder, audit)
    one, two = (
        next((folder / "sites" / site / "answers").glob("*.jsonl")) for site in ("site-1", "site-2")
    )
    assert verify(folder, [one])
    with pytest.raises(
        RunError, match=r"surveys\.jsonl, site-2: expected the numbers that the site gave"
    ):
        verify(folder, [one, two])


@pytest.mark.proves(
    "server",
    "results contradict the run's own records: made-up or repeated rows, another last or best "
    "round, other facts of the run's beginning; with all hashes computed again",
    "found by `fedward audit verify` with the run alone",
)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"labelled": [9000, 0, 0]}, "expected each row once, found another for site site-1"),
        ({"site": "site-4"}, "expected only rows that audit.jsonl accounts for"),
    ],
)
def test_a_second_or_made_up_survey_is_named(
    run: Path, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    file = folder / "surveys.jsonl"
    lines = file.read_text()
    row = json.loads(lines.splitlines()[0]) | change
    file.write_text(json.dumps(row) + "\n" + lines)
    audit = log_of(folder)
    (ended,) = [row for row in audit if row["event"] == "ended"]
    ended["details"]["files"]["surveys.jsonl"] = file_digest(file)
    rewrite(folder, audit)
    with pytest.raises(RunError, match=reason):
        verify(folder)


def test_a_run_leaves_counts_a_page_and_no_model(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "surveys.jsonl").read_text().splitlines()]
    assert [(row["site"], row["labelled"], row["test"]) for row in rows] == [
        ("site-1", [0, 30, 0], [0, 10, 0]),
        ("site-2", [20, 20, 0], [0, 0, 0]),
        ("site-3", [20, 0, 25], [0, 0, 0]),
    ]
    info = json.loads((run / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["summary"] == {"rounds": 1}
    assert info["synthetic"] == dict.fromkeys(SITES, False)
    assert not list(run.glob("*.safetensors"))
    logs = [next((run / "sites" / site / "answers").glob("*.jsonl")) for site in SITES]
    assert "3 lines of sites' logs" in str(verify(run, logs))


def test_the_page_says_what_follows(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "site-1 has no MEL or DF" in page
    assert "Only site-3 has labelled training images of DF" in page
    assert "site-2&#39;s images are darker than the median of all sites: 0.17 against 0.68" in page
    told = "No test images, or fewer than five patients of each class: site-2 and site-3."
    assert told in page
    assert "data:image" not in page
    assert not (run / "clinician.html").exists()


def test_a_run_that_was_killed_asks_again(files: Path, tmp_path: Path, run: Path) -> None:
    class Killed(LocalTransport):
        def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
            super().exchange(requests, timeout, lambda *_: None)
            raise KeyboardInterrupt

    job = experiment()
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(job, folder, Killed(Sites(job, folder / "sites", [files]), SITES))
    resume_local(folder, site_folders=[files])
    assert (folder / "surveys.jsonl").read_text() == (run / "surveys.jsonl").read_text()


# --- policies


def client_of(
    folder: Path, files: Path, site: str, policy: Policy, job: Experiment
) -> Callable[[Message], Message]:
    admission = Admission(site, job, job_of(job), folder, lambda: policy)
    client = new_client(site, job, folder, [files], admission=admission)
    handle: Callable[[Message], Message] = client.handle
    return handle


@pytest.mark.proves(
    "lead",
    "a survey where the policy does not mention surveys or the job trains, or training in a survey",
    "refused; no image is read",
)
def test_a_survey_needs_the_sites_word(files: Path, tmp_path: Path) -> None:
    job = clinical("survey", data=SPEC)
    message = survey_requests(job)["site-1"]
    message = Message({**message.meta, "members": 3}, message.arrays)
    without_surveys = [
        Policy(),
        Policy(methods="any"),
        OPEN.model_copy(update={"surveys": False}),
    ]
    for number, policy in enumerate(without_surveys):
        refused = client_of(tmp_path / f"{number}", files, "site-1", policy, job)(message).meta
        assert refused["refused"]
        assert "surveys: none, the job asks what this site's images are" in refused["error"]
    allowed = client_of(tmp_path / "allowed", files, "site-1", Policy(surveys=True), job)(
        message
    ).meta
    assert allowed["survey"]["labelled"] == [0, 30, 0]


@pytest.mark.proves(
    "server",
    "more than a survey in a survey: training, evaluation, labels, pictures, smaller "
    "counts, a second round",
    "refused before anything is read",
)
@pytest.mark.parametrize(
    "more",
    [
        {"round": 2},
        {"part": 1},
        {"evaluate": True},
        {"task": "train"},
        {"task": "train", "evaluate": False},
        {"task": "idle"},
        {"labels": 5},
        {"task": "idle", "round": 2, "evaluate": True},
        {"pictures": True},
        {"smallest_count": 1},
    ],
)
def test_a_survey_is_all_that_a_server_gets(
    more: dict[str, object], files: Path, tmp_path: Path
) -> None:
    job = clinical("survey", data=SPEC)
    message = survey_requests(job)["site-1"]
    asked = {**message.meta, "members": 3}
    site = client_of(tmp_path, files, "site-1", Policy(surveys=True), job)
    assert "survey" in site(Message(asked, message.arrays)).meta
    answer = site(Message({**asked, **more}, message.arrays))
    assert set(answer.meta) <= {"site", "round", "error", "refused"}
    assert not answer.arrays


class Choosy(LocalTransport):
    """The in-process engine, with sites that do not want to be surveyed."""

    def __init__(self, job: Experiment, folder: Path, files: Path, unwilling: set[str]) -> None:
        super().__init__(Sites(job, folder, [files]), SITES)
        policy = {site: Policy(surveys=site not in unwilling, minimum_replies=2) for site in SITES}
        self.client = lambda site: new_client(  # type: ignore[method-assign,assignment]
            site,
            job,
            folder / site,
            [files],
            admission=Admission(site, job, job_of(job), folder / site, lambda: policy[site]),
        )


def test_who_refuses_is_named_and_told_of_nowhere(files: Path, tmp_path: Path) -> None:
    job = experiment()
    run_experiment(job, tmp_path / "run", Choosy(job, tmp_path / "sites", files, {"site-2"}))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Sites that did not answer" in page
    assert "policy of site-2: expected what its rules allow, found surveys: none" in page
    rows = (tmp_path / "run" / "surveys.jsonl").read_text().splitlines()
    assert [json.loads(row)["site"] for row in rows] == ["site-1", "site-3"]


def test_too_few_answers_are_not_used(files: Path, tmp_path: Path) -> None:
    job = experiment()
    transport = Choosy(job, tmp_path / "sites", files, {"site-2", "site-3"})
    with pytest.raises(RunError, match="surveys: none"):
        run_experiment(job, tmp_path / "run", transport)
    assert not (tmp_path / "run" / "surveys.jsonl").read_text()
    assert "failed" in (tmp_path / "run" / "report.html").read_text()
