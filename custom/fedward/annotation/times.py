"""Moments as text: UTC, ISO 8601, always six digits of a second, so that they sort as text."""

import re
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from fedward.errors import DataError

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
_MOMENT = TypeAdapter(datetime)


def now() -> str:
    """Return the present moment."""
    return _text(datetime.now(UTC))


def from_seconds(seconds: float) -> str:
    """Return a moment given in seconds since 1970, such as a file's modification time."""
    return _text(datetime.fromtimestamp(seconds, UTC))


def parse(text: str) -> str:
    """Return a moment given in ISO 8601; without a zone it is this machine's local time.

    Raises:
        ValueError: it is not a moment, or lies more than a day ahead, where it would outdate every
            answer to come.
    """
    try:
        # Pydantic would take a bare number for seconds.
        if not re.match(r"\d{4}-\d\d-\d\d", text):
            raise ValueError
        moment = _MOMENT.validate_python(text).astimezone(UTC)
    except (ValidationError, ValueError, OverflowError):
        raise ValueError(
            f"expected a time such as 2026-01-31T09:30:00Z, found {text!r:.80}"
        ) from None
    if moment > datetime.now(UTC) + timedelta(days=1):
        raise ValueError(f"expected a time in the past, found {text!r:.80}")
    return _text(moment)


def now_after(newest: str | None) -> str:
    """Return the present moment.

    If the clock was set back, it is the next distinguishable moment after the newest one on record,
    so that what is recorded later is newer. None: nothing is on record.

    Raises:
        DataError: the newest one is no moment, because its record is damaged.
    """
    present = now()
    if newest is None or newest < present:
        return present
    try:
        parsed = datetime.strptime(newest, _FORMAT).replace(tzinfo=UTC)
        return _text(parsed + timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise DataError(
            "newest time in the annotation queue",
            "The queue is damaged: put back a backup, and keep the damaged file.",
            expected=f"one such as {present}",
            found=f"{newest!r:.80}",
        ) from None


def _text(moment: datetime) -> str:
    # %Y alone leaves a year before 1000 short, which would not sort.
    return moment.strftime(_FORMAT).rjust(27, "0")
