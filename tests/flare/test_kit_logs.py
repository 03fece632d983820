"""The server's log of errors: what it leaves out, in FLARE's own words, and what it keeps."""

import json
import logging
from pathlib import Path

import pytest
from nvflare.apis.workspace import Workspace
from nvflare.fuel.utils.log_utils import configure_logging

from fedward.flare.kits.doctor import flare_rules
from fedward.flare.kits.kit import open_kit
from provisioned import provisioned

JOB = "d7b914ca-3e43-48f3-b3d7-a2fd166e8dc0"


def core_cell(topic: str, target: str = f"server.{JOB}", error: str = "target_unreachable") -> str:
    """Return what FLARE's cell logs of a message that cannot be sent."""
    route = "ME=server O=server D=server.:66e8dc0 CH=sm__STREAM TP=sm__DATA"
    context = f"{route} SCH=server_command STP={topic} SEQ=0"
    return f"[{context}] cannot send to '{target}': {error}"


NONE = [core_cell("get_run_info"), core_cell("show_stats"), core_cell("get_errors")]
ERRORS = [
    core_cell("abort"),
    core_cell("get_run_info", target="hospital-a"),
    core_cell("get_run_info", error="comm_error"),
    "Failed to start the app",
]


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("workspace"))


@pytest.fixture
def logger():
    """Restore the root logger, which FLARE configures again."""
    root = logging.getLogger()
    before = root.handlers[:]
    level = root.level
    yield logging.getLogger("CoreCell")
    for handler in set(root.handlers) - set(before):
        handler.close()
    root.handlers = before
    root.level = level
    logging.captureWarnings(False)


def test_questions_to_a_job_that_starts_are_no_errors(kits, logger):
    kit = kits / "localhost"
    configure_logging(Workspace(str(kit), "server"))
    for text in [*NONE, *ERRORS]:
        logger.error(text)
    lines = (kit / "error_log.txt").read_text().splitlines()
    assert [line.split(" - ")[-1] for line in lines] == ERRORS
    everything = (kit / "log.txt").read_text()
    assert all(text in everything for text in [*NONE, *ERRORS])


@pytest.mark.parametrize("name", ["localhost", "hospital-a"])
def test_each_log_is_rotated(kits, name):
    handlers = json.loads((kits / name / "local" / "log_config.json.default").read_text())[
        "handlers"
    ]
    files = {handler["filename"]: handler for handler in handlers.values() if "filename" in handler}
    assert set(files) == {"log.txt", "log.json", "error_log.txt", "log_fl.txt"}
    assert {(handler["maxBytes"], handler["backupCount"]) for handler in files.values()} == {
        (20 * 2**20, 10)
    }
    assert all(
        handler["class"] == "logging.handlers.RotatingFileHandler" for handler in files.values()
    )


def test_the_doctor_asks_for_the_file_of_a_new_kit(kits):
    kit = open_kit(kits / "localhost")
    assert {row.name: row.status for row in flare_rules.check(kit)}["error log"] == "ok"
    assert "error log" not in {row.name for row in flare_rules.check(open_kit(kits / "hospital-a"))}
    file = kit.local / "log_config.json.default"
    content = json.loads(file.read_text())
    content["handlers"]["errorFileHandler"].pop("filters")
    kit.local.joinpath("log_config.json").write_text(json.dumps(content))  # which FLARE reads first
    row = next(row for row in flare_rules.check(kit) if row.name == "error log")
    assert row.status == "warning"
    assert row.found == "local/log_config.json without it"
    kit.local.joinpath("log_config.json").write_text("{}")
    row = next(row for row in flare_rules.check(kit) if row.name == "error log")
    assert row.status == "failed"
    kit.local.joinpath("log_config.json").unlink()
