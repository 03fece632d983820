"""Public functions beside commands: their arguments are checked, and errors name these."""

import argparse
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedward.config import Experiment
from fedward.errors import ConfigError, did_you_mean, naming_arguments, option, option_words
from fedward.terminal import read_numbers

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_IN_WORDS: dict[Any, str] = {
    Experiment: "an experiment, from fedward.experiment()",
    Path | str: "a path",
    Path | str | None: "a path",
    Sequence[str] | None: "a list of names",
    bool: "True or False",
    int: "a whole number",
    str: "a text",
}
"""Type of an argument -> what must be given, in words."""


def public(
    **renamed: str,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate a public function: its arguments are checked, and its errors speak of arguments.

    Args:
        renamed: option of the command that does the same -> argument, where its name differs.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with naming_arguments(**renamed):
                _check(function.__name__, signature, args, kwargs, renamed)
                return function(*args, **kwargs)

        return checked

    return decorate


def _check(
    function: str,
    signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    renamed: Mapping[str, str],
) -> None:
    """Raise ConfigError if a function cannot be called with these arguments."""
    for name, argument in renamed.items():
        if name in kwargs and argument in signature.parameters:
            raise ConfigError(
                f"there is no argument {name} of fedward.{function}",
                f"It is called {argument} here.",
            )
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        names = [*signature.parameters]
        hints = [did_you_mean(name, names) for name in kwargs if name not in names]
        raise ConfigError(
            f"fedward.{function}: {error}{''.join(hints[:1])}",
            f"Its arguments are {', '.join(names)}.",
        ) from None
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        in_words = _IN_WORDS.get(parameter.annotation)
        if in_words is None or parameter.kind is parameter.VAR_KEYWORD:
            continue
        try:
            TypeAdapter(parameter.annotation).validate_python(value, strict=True)
        except ValidationError:
            raise ConfigError(
                option(name),
                "Correct the argument.",
                expected=in_words,
                found=f"{value!r:.200}",
            ) from None


class _Parser(argparse.ArgumentParser):
    """Raises errors in place of ending the process."""

    def __init__(self) -> None:
        super().__init__(add_help=False, exit_on_error=False)
        read_numbers(self)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, "Correct the arguments.")


def options_of(
    add_arguments: Callable[[argparse.ArgumentParser], None],
    words: Sequence[str],
    arguments: Mapping[str, Any],
) -> argparse.Namespace:
    """Return the options of a command, with its own checks and defaults.

    Args:
        add_arguments: adds the command's arguments to a parser.
        words: the command's words without a name.
        arguments: name of an option, with ``_`` for ``-`` -> value. A list is several words, a
            mapping words ``KEY=VALUE``, True an option without a value; None is the default.

    Raises:
        ConfigError: no such argument, or a value that the command refuses.
    """
    parser = _Parser()
    parser.set_defaults(written="out", hint=lambda: "")
    add_arguments(parser)
    option_names = [name for action in parser._actions for name in action.option_strings]
    options: list[str] = []
    for name, value in arguments.items():
        option_name = name.replace("_", "-")
        if f"--{option_name}" not in option_names:
            names = [other.removeprefix("--").replace("-", "_") for other in option_names]
            raise ConfigError(
                f"there is no argument {name}{did_you_mean(name, names)}", "Correct the name."
            )
        options += _words(option_name, value)
    try:
        return parser.parse_args([*words, *options])
    except argparse.ArgumentError as error:
        name = (error.argument_name or "").removeprefix("--")
        raise ConfigError(f"{option(name)}: {error.message}", "Correct the argument.") from None


def _words(name: str, value: Any) -> list[str]:
    """Return the words of a command line that give an option a value."""
    if value is None or value is False:
        return []
    if value is True or isinstance(value, Mapping):
        return option_words(name, value)
    if isinstance(value, list | tuple):
        return option_words(name, *value) if value else []
    return [f"--{name}={value}"]
