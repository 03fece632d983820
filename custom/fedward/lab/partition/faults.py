"""All that must be mended or decided before a data set can be cut, in one message."""

from collections.abc import Iterator
from contextlib import contextmanager

from fedward.errors import ConfigError, DataError, FedwardError


class Faults:
    """Errors that are collected, so that a person learns of all of them at once.

    Where a person must decide something, reading goes on with the likeliest decision, in order to
    find what else is wrong. Nothing is written then.
    """

    def __init__(self) -> None:
        self._errors: list[FedwardError] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note an error of the ``with`` block, which ends there."""
        try:
            yield
        except FedwardError as error:
            self._errors.append(error)

    def note(self, error: FedwardError) -> None:
        """Note an error."""
        self._errors.append(error)

    def refuse(self) -> None:
        """Raise what was noted; nothing if there is nothing.

        Raises:
            ConfigError: only options of the command are wrong.
            DataError: something is wrong with the data set.
        """
        if self._errors:
            raise self.together()

    def together(self) -> FedwardError:
        """Return what was noted, at least one error, as one."""
        if len(self._errors) == 1:
            return self._errors[0]
        options_alone = all(isinstance(error, ConfigError) for error in self._errors)
        kind = ConfigError if options_alone else DataError
        items = [f"\n  {number}. {error}" for number, error in enumerate(self._errors, 1)]
        return kind(f"{len(items)} things must be mended or decided:{''.join(items)}")
