"""Commands as functions: their options are keyword arguments, and errors name these."""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from fedward.errors import ConfigError, FedwardError, did_you_mean

_COMMAND = re.compile(r"(`fedward [^`]*`)")
_RESUME = re.compile(r"`fedward run --resume (\S+)[^`]*`")
_PAIR = re.compile(r"--(columns|labels) (\w+)=(\w+)")
_SET = re.compile(r"--set (?:\"([^\"]*)\"|(?=[\w.]+=))")
_VALUED = re.compile(r"--([a-z]+(?:-[a-z]+)*) (?=[A-Z0-9/.]|\S*/)")
_BARE = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_NAMES = {"out": "folder", "resume": "resume=True"}
"""Option -> argument, where the names differ."""


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Let errors of the ``with`` block speak of arguments, as ``rounds=``, and not of options.

    The package raises them for its commands as well, so they name options such as ``--init``.
    Whole commands in backticks stay: they can be typed.
    """
    try:
        yield
    except FedwardError as error:
        error.args = tuple(in_arguments(str(text)) for text in error.args)
        error.problem = in_arguments(error.problem)
        error.remedy = in_arguments(error.remedy)
        raise


def in_arguments(text: str) -> str:
    """Return an error's text with Python's arguments in place of a command's options."""
    text = _RESUME.sub(r"`fedward.run(experiment, \1, resume=True)`", text)
    parts = _COMMAND.split(text)
    # Every second part is a command.
    parts[::2] = [_without_options(part) for part in parts[::2]]
    return "".join(parts)


def _without_options(text: str) -> str:
    text = _PAIR.sub(r'\1={"\2": "\3"}', text)
    text = _SET.sub(lambda match: match[1] or "", text)
    text = text.replace("--set", "a setting")
    text = _VALUED.sub(lambda match: f"{_argument(match[1])} ".replace("= ", "="), text)
    return _BARE.sub(lambda match: _argument(match[1]), text)


def _argument(option: str) -> str:
    name = _NAMES.get(option, option.replace("-", "_"))
    return name if "=" in name else f"{name}="


class _Parser(argparse.ArgumentParser):
    """Raises an error in place of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "), "Correct the argument.")


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
    parser = _Parser(add_help=False)
    parser.set_defaults(written="out", hint="")
    add_arguments(parser)
    option_names = [option for action in parser._actions for option in action.option_strings]
    options: list[str] = []
    for name, value in arguments.items():
        option = f"--{name.replace('_', '-')}"
        if option not in option_names:
            names = [other.removeprefix("--").replace("-", "_") for other in option_names]
            raise ConfigError(
                f"there is no argument {name}{did_you_mean(name, names)}", "Correct the name."
            )
        options += _words(option, value)
    return parser.parse_args([*words, *options])


def _words(option: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, Mapping):
        return [option, *(f"{key}={content}" for key, content in value.items())]
    if isinstance(value, list | tuple):
        return [option, *map(str, value)] if value else []
    return [f"{option}={value}"]
