"""Checks that Python imports nothing from the kit or from the folders of jobs: ``PYTHONSAFEPATH``
says so to it.
"""

import re
from pathlib import Path
from typing import Any

from nvflare.apis.job_def import DEFAULT_STUDY
from nvflare.app_opt.job_launcher.study_runtime import (
    STUDY_RUNTIME_FILE,
    StudyRuntime,
    load_study_runtime_file,
)

from fedward.errors import ConfigError
from fedward.flare.kits.builder import SAFE_IMPORTS
from fedward.flare.kits.doctor.rows import Row, done, failed, skipped, warning
from fedward.flare.kits.kit import Kit, read_json
from fedward.terminal import one_line

_SCRIPT = "startup/sub_start.sh"
_VARIABLE = "PYTHONSAFEPATH"
_TOUCHES = re.compile(r"PYTHON(SAFEPATH|PATH|HOME)|sys\.path")
_STARTS = re.compile(r"python3?[\d.]*\s.*-m\s+nvflare\.private")
_AS_FLARE = re.compile(
    r"\s*exec python3 -u -m nvflare\.private\.fed\.app\.(client\.client|server\.server)_train -m [^;&|]*"
)
_SETS = re.compile(rf"export\s+{_VARIABLE}=['\"]?\w+['\"]?")
_RUNTIMES = {"docker_launcher": "docker", "k8s_launcher": "k8s", "slurm_launcher": "slurm"}


def check(kit: Kit) -> list[Row]:
    """Look at what starts a participant and, where FLARE's own launcher starts jobs, at what starts
    those.
    """
    try:
        components = read_json(kit.resources).get("components", [])
    except ConfigError:
        return []  # the row of the allow list says it
    prepared = [
        part for part in components if part.get("id") in _RUNTIMES and not part.get("disabled")
    ]
    if not prepared:
        return [_script(kit.folder / _SCRIPT)]
    runtime = _RUNTIMES[prepared[0]["id"]]
    args = prepared[0].get("args") or {}
    if runtime == "slurm":
        participant = _script(kit.folder / _SCRIPT)
    else:  # the command that starts the participant names no environment
        participant = skipped(
            "start script", f"{runtime}'s image must set {_VARIABLE}, as fedward's does"
        )
    return [participant, _jobs(kit, runtime, args)]


def _script(file: Path) -> Row:
    """Compare the lines that decide what is imported with those that provisioning wrote."""
    lines = (
        file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    )
    paths = [line for line in lines if _TOUCHES.search(line) and not line.startswith("echo ")]
    starts = [line for line in lines if _STARTS.search(line)]
    wrong = [line for line in paths if line != SAFE_IMPORTS]
    wrong += [line for line in starts if not _AS_FLARE.fullmatch(line)]
    if (
        paths == [SAFE_IMPORTS]
        and starts
        and not wrong
        and lines.index(paths[0]) < lines.index(starts[0])
    ):
        return done("start script", "imports nothing from the kit")
    found = "; ".join(map(one_line, wrong)) or ("the line, elsewhere" if paths else "no such line")
    expected = f"{_SCRIPT} as provisioning writes it: {SAFE_IMPORTS}"
    remedy = "Restore the script from the kit as it was handed out. As it is, files in the kit may run as code."
    return failed("start script", expected=expected, found=found, remedy=remedy)


def _jobs(kit: Kit, runtime: str, args: dict[str, Any]) -> Row:
    """Look at the environment of the jobs that a launcher of FLARE's starts in the folder of their
    files.
    """
    file = kit.folder / STUDY_RUNTIME_FILE
    try:
        studies = load_study_runtime_file(str(file), runtime) if file.is_file() else {}
    except ValueError as error:
        expected = f"a {STUDY_RUNTIME_FILE} that FLARE can read"
        found = one_line(str(error))
        remedy = "Correct it: FLARE refuses every job with such a file."
        return failed("job imports", expected=expected, found=found, remedy=remedy)
    known = {DEFAULT_STUDY: StudyRuntime(DEFAULT_STUDY), **studies}
    lacking = [study for study, each in known.items() if not _is_safe(runtime, args, each)]
    if not lacking:
        return done("job imports", f"{_VARIABLE} is set: nothing from the folders of jobs")
    expected = f"{_VARIABLE} in the environment of each job"
    found = f"none for the study {', '.join(lacking)}"
    if runtime == "slurm":
        remedy = f"Write export {_VARIABLE}=1 into setup of slurm.yaml and prepare the kit again."
        return failed("job imports", expected=expected, found=found, remedy=remedy)
    remedy = f'Write {_VARIABLE}: "1" into env of {STUDY_RUNTIME_FILE}. Without it only the image decides.'
    return warning("job imports", expected=expected, found=found, remedy=remedy)


def _is_safe(runtime: str, args: dict[str, Any], study: StudyRuntime) -> bool:
    """Return whether a study's jobs get the variable, which counts unless it is empty."""
    environment = {**(args.get("default_job_env") or {}), **study.env}
    if _VARIABLE in environment or runtime != "slurm":
        return bool(environment.get(_VARIABLE))
    setup = str(study.slurm.get("setup", args.get("setup") or ""))
    lines = [line.strip() for line in setup.splitlines() if _VARIABLE in line]
    return bool(lines) and all(_SETS.fullmatch(line) for line in lines)
