"""Checks of a kit that ``nvflare deploy prepare`` made from another for Docker, Kubernetes or Slurm."""

from pathlib import Path

from nvflare.apis.fl_constant import WorkspaceConstants

from fedward.flare.kit_doctor.kit import Kit
from fedward.flare.kit_doctor.rows import Row, done, warning
from fedward.flare.site_policy import RESOURCES

STARTS = ("startup/start_docker.sh", "startup/start_slurm.sh", "helm_chart/Chart.yaml")
"""What such a kit is started by; it has no ``start.sh``."""

_KEPT = "fedward"
"""Folder in a kit with what a site keeps: the privacy ledger, what it answered, labels, memory of runs."""


def check(kit: Kit) -> list[Row]:
    """Look for what was copied from a kit that is in use; nothing for a kit that was not prepared."""
    if not is_prepared(kit):
        return []
    written = (kit.local / RESOURCES).stat().st_mtime
    copied = sorted(path.name for path in kit.folder.iterdir() if _is_used(path) and _oldest(path) < written)
    if not copied:
        return [done("prepared kit", "made from one that was not in use")]
    return [
        warning(
            "prepared kit",
            expected="no records of jobs from before it was made",
            found=f"copies of {', '.join(copied)}",
            remedy="FLARE copies the whole kit. Use this kit alone from now on: two would each count their own privacy "
            "budget. Remove folders of jobs, which may hold models.",
        )
    ]


def is_prepared(kit: Kit) -> bool:
    """Return whether a kit has been prepared."""
    return any((kit.folder / name).is_file() for name in STARTS)


def _is_used(path: Path) -> bool:
    return path.is_dir() and (path.name == _KEPT or (path / WorkspaceConstants.JOB_META_FILE).is_file())


def _oldest(path: Path) -> float:
    return min((file.stat().st_mtime for file in path.rglob("*") if file.is_file()), default=float("inf"))
