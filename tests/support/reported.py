"""What a federation says of a job that runs."""

from typing import Any

from nvflare.fuel.flare_api.flare_api import Session

from fedward.flare.jobs.status import job_progress
from waiting import appears


def progress_with(field: str, flare: Session, job_id: str) -> dict[str, Any]:
    """Return the progress of a job once it has this field."""

    def look() -> dict[str, Any] | None:
        state = job_progress(flare, job_id)
        return state if state and state[field] else None

    state = appears(look)
    assert state, f"job {job_id} has no {field}"
    return state
