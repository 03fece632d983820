"""All that must be fixed or decided before a data set can be cut, in one message."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from fedward.errors import FedwardError, together

Decision: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""Value of an option of the command."""


PLACEHOLDER = "NAME"
"""Stands in a decision for the name of a column that only a person knows.

No command is proposed then: it would be refused for this column again.
"""


class Faults:
    """Errors that are collected, so that a person learns of all of them at once.

    Where a person must decide something, reading goes on with the likeliest decision, in order to
    find what else is wrong. Nothing is written then.

    Args:
        command: returns the command to type with these decisions, or an empty text; None: the
            error names none.
    """

    def __init__(self, command: Callable[[Mapping[str, Decision]], str] | None = None) -> None:
        self._command = command
        self._errors: list[FedwardError] = []
        self._decisions: dict[str, Decision] = {}
        self._undecidable = 0

    @contextmanager
    def noted(self, **decisions: Decision) -> Iterator[None]:
        """Note an error of the ``with`` block, which ends there; decisions as in :meth:`note`."""
        try:
            yield
        except FedwardError as error:
            self.note(error, **decisions)

    @contextmanager
    def noted_unless(self, consequence: type[FedwardError]) -> Iterator[None]:
        """Note an error of the ``with`` block, unless it may only follow from an earlier one.

        Args:
            consequence: errors that need not be there once the others are fixed. Where all of these
                can be decided, reading has gone on as if they were, and it is an error of its own.
        """
        try:
            yield
        except consequence as error:
            if not self._undecidable:
                self.note(error)
        except FedwardError as error:
            self.note(error)

    def note(self, error: FedwardError, **decisions: Decision) -> None:
        """Note an error.

        Args:
            error: says what must be fixed or decided.
            decisions: option, with ``_`` for ``-`` -> the likeliest value by which a person may
                decide it. Of an option that is decided twice, texts are joined.
        """
        self._errors.append(error)
        self._undecidable += not decisions
        for name, value in decisions.items():
            earlier = self._decisions.get(name)
            if isinstance(earlier, Mapping) and isinstance(value, Mapping):
                self._decisions[name] = {**earlier, **value}
            else:
                self._decisions[name] = value

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
        error = together(self._errors, "must be fixed or decided")
        if not self._command:
            return error
        unknown = [
            name for option, value in self._decisions.items() for name in _unknown(option, value)
        ]
        if unknown:
            # Any command would be refused again.
            for_ = ", ".join(unknown)
            which = f"No column is the likeliest for {for_}, so no command is proposed."
            return type(error)(f"{error}", f"\n{which}")
        command = self._command(self._decisions) if self._decisions else ""
        if not command:
            return error
        which = "With the likeliest decision of each:"
        if self._undecidable:
            which = "Once the rest is fixed, with the likeliest decisions:"
        return type(error)(f"{error}", f"\n{which}\n{command}")


def _unknown(option: str, decision: Decision) -> list[str]:
    """Return what only a person can name: purposes of columns, or the option itself."""
    if isinstance(decision, str):
        return [option] if decision == PLACEHOLDER else []
    if isinstance(decision, Mapping):
        return [purpose for purpose, name in decision.items() if name == PLACEHOLDER]
    # A column of subgroups is followed by its groups.
    return [option] if any(text.partition("=")[0] == PLACEHOLDER for text in decision) else []
