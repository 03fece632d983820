"""Errors that name the site, what was expected, what was found and what to do."""

from collections.abc import Callable
from functools import partial


class FedwardError(Exception):
    """Base of every error this package raises on purpose.

    The text always has the same four parts, so that a log line can be acted on without the code.
    """

    def __init__(self, where: str, *, expected: str, found: str, remedy: str) -> None:
        self.where, self.expected, self.found, self.remedy = where, expected, found, remedy
        super().__init__(f"{where}: expected {expected}, found {found}. {remedy}")

    def __reduce__(self) -> tuple[Callable[[str], "FedwardError"], tuple[str]]:
        """Say how it is made again in another process: an exception's own way knows no keywords."""
        return partial(type(self), expected=self.expected, found=self.found, remedy=self.remedy), (self.where,)


class ConfigError(FedwardError):
    """A job, method or command asks for something that cannot be."""


class DataError(FedwardError):
    """A site's data cannot be used as it is."""


class WireError(FedwardError):
    """A message between a site and the server is not what the wire list allows."""


class RunError(FedwardError):
    """A federated run cannot go on."""


class WorkError(RunError):
    """A site's work was stopped or failed. The text names no file and no image: the server may read it."""
