"""Shares of images as a verdict words them: in per cent, or of 100 images for clinicians."""

from fedward.runs.measured import Measured


def percent(share: float) -> str:
    """Return a share in per cent, with one decimal."""
    return f"{share * 100:.1f}"


def interval_in_percent(measured: Measured) -> str:
    """Return a share's 95 % interval in per cent; empty without one."""
    if measured.low is None or measured.high is None:
        return ""
    return f"95 % interval {percent(measured.low)} to {percent(measured.high)}\u00a0%"


def of_hundred(share: float) -> str:
    """Return a share as a whole number of 100; only all and none are 100 and 0."""
    number = round(share * 100)
    if number == 100 and share < 1:
        return ">99"
    if number == 0 and share > 0:
        return "<1"
    return str(number)


def interval_of_hundred(measured: Measured) -> str:
    """Return a share's 95 % interval in whole numbers of 100; empty without one."""
    if measured.low is None or measured.high is None:
        return ""
    return f"95 % interval {of_hundred(measured.low)} to {of_hundred(measured.high)}"
