"""Checks of a kit's files: are all there, and was it made from a kit in use by ``nvflare deploy
prepare``?
"""

from pathlib import Path

from nvflare.apis.fl_constant import WorkspaceConstants

from fedward.flare.kits.builder import RESOURCES
from fedward.flare.kits.doctor.rows import Row, done, failed, warning
from fedward.flare.kits.kit import STARTUP, UNPACK_AGAIN, Kit

STARTS = ("startup/start_docker.sh", "startup/start_slurm.sh", "helm_chart/Chart.yaml")
"""What such a kit is started by; it has no ``start.sh``."""

_KEPT = "fedward"
"""Folder in a kit with what a site keeps: the privacy ledger, what it answered, labels, memory of
runs.
"""


def complete(kit: Kit) -> Row:
    """Check that all files are there; a prepared kit has another start script."""
    wanted = [kit.key, kit.certificate, kit.root]
    if not is_prepared(kit):
        wanted.append(kit.startup / ("fl_admin.sh" if kit.role == "user" else "start.sh"))
    missing = [path.relative_to(kit.folder).as_posix() for path in wanted if not path.is_file()]
    missing += [] if kit.local.is_dir() else ["local/"]
    if not missing:
        return done("layout", f"{STARTUP}/ and local/ of a {kit.role}'s kit")
    expected = f"a whole kit of a {kit.role}"
    found = f"no {', '.join(missing)}"
    return failed("layout", expected=expected, found=found, remedy=UNPACK_AGAIN)


def check(kit: Kit) -> list[Row]:
    """Look for what was copied from a kit that is in use; nothing for a kit that was not prepared."""
    if not is_prepared(kit):
        return []
    written = (kit.local / RESOURCES).stat().st_mtime
    copied = sorted(
        path.name for path in kit.folder.iterdir() if _is_used(path) and _oldest(path) < written
    )
    if not copied:
        return [done("prepared kit", "made from one that was not in use")]
    expected = "no records of jobs from before it was made"
    found = f"copies of {', '.join(copied)}"
    alone = "Use this kit alone from now on: two would each count their own privacy budget."
    remedy = f"FLARE copies the whole kit. {alone} Remove folders of jobs, which may hold models."
    return [warning("prepared kit", expected=expected, found=found, remedy=remedy)]


def is_prepared(kit: Kit) -> bool:
    """Return whether a kit has been prepared."""
    return any((kit.folder / name).is_file() for name in STARTS)


def _is_used(path: Path) -> bool:
    return path.is_dir() and (
        path.name == _KEPT or (path / WorkspaceConstants.JOB_META_FILE).is_file()
    )


def _oldest(path: Path) -> float:
    return min(
        (file.stat().st_mtime for file in path.rglob("*") if file.is_file()), default=float("inf")
    )
