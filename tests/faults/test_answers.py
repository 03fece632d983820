"""Clinicians answer a run's questions in a browser, while page and job processes die."""

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml
from faults import FaultyFederation, job_process

from chromium import Server, Tab, start_browser
from fedward.annotation import Queue, queue_folder
from fedward.config import DERMOSCOPY
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from local_federation import HOSPITALS, LEAD
from tiny import tiny
from waiting import appears

pytestmark = [pytest.mark.secure, pytest.mark.browser]

HERE = "hospital-b"


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[FaultyFederation]:
    """Clinicians answer at one hospital, without a time limit; the others have an oracle."""
    with FaultyFederation(tmp_path / "federation") as running:
        for name in HOSPITALS:
            file = running.kit(name) / "local" / "fedward_site.yaml"
            people = {"labelled": 0.0, "annotation": "queue", "wait_for_labels": 280}
            answers = people if name == HERE else {"labelled": 1.0, "annotation": "oracle"}
            file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | answers))
        yield running


def job_processes(federation: FaultyFederation) -> list[psutil.Process]:
    """Return the site's job process, in a list; none while it is being started again."""
    found = []
    for process in federation.processes(HERE):
        with suppress(psutil.NoSuchProcess):  # a zombie too
            if re.search(job_process(HERE), " ".join(process.cmdline())):
                found.append(process)
    return found


@pytest.mark.proves(
    "faults",
    "the page and the site's job process are killed between two answers of a clinician",
    "both start again, and every answer is kept",
)
def test_no_answer_is_lost_when_page_and_job_process_die(federation, tmp_path):
    """Two queries, of a tenth of the images each; after the first answer to each, both die."""
    schedule = {
        "rounds": 2,
        "query_every": 1,
        "steps": 1,
        "initial_fraction": 0.1,
        "target_fraction": 0.2,
    }
    export_job(
        tiny("fedal", timeout=600, synthetic=None, options=schedule),
        tmp_path / "job",
        clinical=True,
    )
    site_file = federation.kit(HERE) / "local" / "fedward_site.yaml"
    queue = Queue(queue_folder(site_file))
    given = {}
    browser = start_browser()
    server = Server(site_file, DERMOSCOPY)
    try:
        with session(federation.kit(LEAD)) as flare:
            job = submit(flare, tmp_path / "job")
            for _ in ("the first labels", "a query"):
                assert appears(queue.pending)
                tab = Tab(browser, browser.current_window_handle).open(server.address)
                number = len(queue.pending())
                assert number > 1
                given[tab.answer("1")] = DERMOSCOPY[0]
                server.end(signal.SIGKILL)
                (killed,) = job_processes(federation)
                killed.kill()
                assert appears(lambda gone=killed: set(job_processes(federation)) - {gone})
                server = Server(site_file, DERMOSCOPY, server.port)
                for _ in range(number - 1):
                    tab.wait_for_image()
                    given[tab.answer("2")] = DERMOSCOPY[1]
            run = fetch(flare, wait(flare, job, 300), tmp_path / "out")
    finally:
        browser.quit()
        server.process.kill()
    assert queue.labels() == given
    rows = [json.loads(line) for line in (run / "queries.jsonl").read_text().splitlines()]
    last = {row["site"]: row for row in rows}[HERE]
    assert last["bought"] == len(given)
    assert last["waiting"] == 0
    assert last["labelled"] == len(given)
    exchanges = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert Counter(row["restarts"].get(HERE) for row in exchanges) == {1: 1, 2: 1}
    assert all(HERE in row["replied"] for row in exchanges)
