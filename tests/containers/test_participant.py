"""The image's entry point, started without an engine: what it refuses, and what it runs."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fedward.flare.job_process import MODULES, guarded

ROOT = Path(__file__).parents[2]
ENTRY = ROOT / "provisioning" / "containers" / "participant"
ACCOUNT = 10001
AS_ACCOUNT = {"user": ACCOUNT, "group": ACCOUNT, "extra_groups": []} if os.getuid() == 0 else {}
"""For Popen: the image's account, where the tests may change it."""


@pytest.fixture
def image() -> Iterator[Path]:
    """A folder in place of the image: entry point, fake tini, and a kit that records its start."""
    with TemporaryDirectory() as folder:  # the account cannot enter pytest's own
        Path(folder).chmod(0o755)
        yield filled(Path(folder))


def filled(image: Path) -> Path:
    shutil.copy(ENTRY, image)
    write(image / "tini", '#!/bin/sh\n[ "$1 $2" = "-s --" ] && shift 2 && exec "$@"\n')
    kit = image / "kit"
    for folder in ("startup", "local"):
        (kit / folder).mkdir(parents=True)
    (kit / "local" / "fedward_policy.yaml").write_text("approval: required")
    write(kit / "startup" / "sub_start.sh", '#!/bin/sh\necho started "$@" with umask "$(umask)"\n')
    (kit / "startup" / "client.key").write_text("secret")
    (kit / "startup" / "client.key").chmod(0o600)
    for path in (kit, *kit.rglob("*")):
        if AS_ACCOUNT:
            os.chown(path, ACCOUNT, ACCOUNT)
    for path in (*(kit / "startup").iterdir(), *(kit / "local").iterdir()):
        path.chmod(0o400 if path.suffix == ".key" else 0o500)
    for folder in ("startup", "local"):
        (kit / folder).chmod(0o500)
    return image


def write(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


def start(image: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{image}:{os.environ['PATH']}",
        "FEDWARD_KIT": str(image / "kit"),
        "HOME": "/nonexistent",
    }
    return subprocess.run(
        [image / "participant", *arguments],
        env=environment,
        cwd="/",
        text=True,
        capture_output=True,
        check=False,
        **AS_ACCOUNT,
    )


def refusal(image: Path) -> str:
    done = start(image)
    assert done.returncode == 78
    assert not done.stdout
    return done.stderr


def test_a_kit_is_started_in_the_foreground(image):
    assert start(image).stdout == "started --once with umask 0077\n"


def test_flares_launchers_give_a_command_or_options_of_python(image):
    assert start(image, "sh", "-c", "umask").stdout == "0077\n"
    assert start(image, "-c", "print('run by Python')").stdout == "run by Python\n"


@pytest.mark.parametrize("module", MODULES)
def test_a_jobs_process_starts_as_the_kits_launchers_start_it(image, module):
    command = ["printf", "%s\\n", "-u", "-m", module, "--set", "a b", "-n", "job"]
    assert start(image, *command).stdout.splitlines() == guarded(command)[2:]


@pytest.mark.proves(
    "files",
    "a container that starts as root, or whose private key others can read",
    "refused by its entry point",
)
def test_root_is_refused(image):
    write(image / "id", "#!/bin/sh\necho 0\n")
    assert "found root" in refusal(image)
    assert start(image, "sh", "-c", "true").returncode == 78


@pytest.mark.proves(
    "files",
    "a container that starts as root, or whose private key others can read",
    "refused by its entry point",
)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_an_open_key_is_refused(image, mode):
    (image / "kit" / "startup" / "client.key").chmod(mode)
    assert "client.key readable by others" in refusal(image)


@pytest.mark.proves(
    "lead",
    "start scripts, certificates or rules that a container's account can write",
    "refused by the entry point",
)
@pytest.mark.parametrize("folder", ["startup", "local"])
def test_writable_rules_are_refused(image, folder):
    (image / "kit" / folder).chmod(0o700)
    assert f"expected {folder}/ read-only" in refusal(image)


@pytest.mark.parametrize(
    "file", ["startup/client.key", "startup/sub_start.sh", "local/fedward_policy.yaml"]
)
def test_a_single_writable_file_is_refused(image, file):
    """The folder is not writable, so no file can be added or removed; this one can be changed."""
    path = image / "kit" / file
    path.chmod(path.stat().st_mode | 0o200)
    assert f"found {path}, which is writable" in refusal(image)


def test_the_folder_of_answers_may_be_written(image):
    """`annotation: queue` keeps them beside the site file, in a mount of its own."""
    local = image / "kit" / "local"
    local.chmod(0o700)
    (local / "annotation").mkdir()
    (local / "annotation" / "queue.sqlite").touch()
    for path in (local / "annotation", local / "annotation" / "queue.sqlite") if AS_ACCOUNT else ():
        os.chown(path, ACCOUNT, ACCOUNT)
    local.chmod(0o500)
    assert start(image).returncode == 0


def test_without_a_kit_it_says_so(image):
    (image / "kit" / "startup" / "sub_start.sh").rename(image / "kit" / "startup" / "other.sh")
    assert "expected a startup kit" in refusal(image)
