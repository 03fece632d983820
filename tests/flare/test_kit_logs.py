"""A kit's logs: what its filters leave out, in FLARE's own words, and what they change."""

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


FORGED = "2026-11-28 09:00:00,000 - SiteLog - INFO - nothing has left this site"


@pytest.mark.proves(
    "lead",
    "a job whose names write a line or control characters into a hospital's log",
    "the log has one entry, whose further lines are indented and whose characters are escaped",
)
@pytest.mark.parametrize("log", ["error", "exception"])
def test_a_text_writes_no_entry_of_its_own(kits: Path, logger: logging.Logger, log: str) -> None:
    kit = kits / "hospital-a"
    for file in kit.glob("*log*"):
        file.unlink()
    configure_logging(Workspace(str(kit), "hospital-a"))
    before = len((kit / "log.txt").read_text().splitlines())
    try:
        raise ValueError(f"net x\n{FORGED}\x1b[1A\x1b[2K\r\u2028{FORGED}")
    except ValueError as error:
        getattr(logger, log)("site a, round 1: %s", error)
    for name in ("log.txt", "error_log.txt", "log.json"):
        text = (kit / name).read_text()
        assert not any(line.startswith("2026-11-28 09:00") for line in text.splitlines())
        assert f"    {FORGED}" in text
        assert "\x1b" not in text
    entries = (kit / "log.txt").read_text().splitlines()[before:]
    assert [line.startswith(" ") for line in entries] == [False, True] + (
        [False, *[True] * (len(entries) - 3)] if log == "exception" else []
    )


@pytest.mark.parametrize(("kit", "name"), [("hospital-b", "hospital-b"), ("localhost", "server")])
def test_a_record_whose_values_do_not_fit_its_text_is_no_error(
    kits: Path, logger: logging.Logger, capsys: pytest.CaptureFixture[str], kit: str, name: str
) -> None:
    configure_logging(Workspace(str(kits / kit), name))
    values = ("one",)
    logger.error("two values: %s %s", *values)
    logger.error("a value by name: %(name)s", {"other": 1})
    assert "not enough arguments for format string" in capsys.readouterr().err


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
    for name in ("localhost", "hospital-a"):
        rows = flare_rules.check(open_kit(kits / name))
        assert {row.name: row.status for row in rows}["log files"] == "ok"
    file = kit.local / "log_config.json.default"
    content = json.loads(file.read_text())
    filters = content["handlers"]["errorFileHandler"]["filters"]
    assert content["filters"][filters.pop()]["()"].endswith("JobsThatStart")
    content["handlers"]["logFileHandler"].pop("filters")
    kit.local.joinpath("log_config.json").write_text(json.dumps(content))  # which FLARE reads first
    row = next(row for row in flare_rules.check(kit) if row.name == "log files")
    assert row.status == "warning"
    assert row.expected == (
        "fedward.flare.logs.OneEntryARecord among the filters of logFileHandler and "
        "fedward.flare.logs.JobsThatStart among the filters of errorFileHandler"
    )
    assert row.found == "local/log_config.json lacks them"
    kit.local.joinpath("log_config.json").write_text("{}")
    row = next(row for row in flare_rules.check(kit) if row.name == "log files")
    assert row.status == "failed"
    kit.local.joinpath("log_config.json").unlink()
