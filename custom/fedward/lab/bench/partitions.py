"""How a study cuts its images: by ``fedward partition``, again for each repetition."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, NoReturn

from fedward.lab.partition.arguments import FEDPERL_SHARE, add_arguments
from fedward.sites.site_file import Split

CENTRALISED = "centralised"
CUTS = ("few", "all", CENTRALISED)
"""What a row may train on: few labels, all labels, or all labels at one site."""
_OUT = "--out"
"""Argument that a study gives itself, wherever it says how images are cut."""
_OF_REPETITIONS = ("--seed", "--pooled")
"""Arguments that a study gives itself where it cuts its images again for each repetition."""
_OF_LABELS = ("--labelled", "--labelled-sites")


class _Parser(argparse.ArgumentParser):
    """A parser whose faults are those of a study's file."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"partition with arguments of fedward partition: {message}")


@dataclass(frozen=True)
class Partition:
    """One cut of a study's images."""

    arguments: tuple[str, ...]
    """Arguments of ``fedward partition``, without ``--out``. The first is below the data folder."""
    folder: str = ""
    """Folder of its site files, below the study's."""

    @classmethod
    @cache
    def parse(cls, text: str) -> "Partition":
        """Return the cut that a study describes; ValueError as :func:`arguments_of`."""
        arguments = arguments_of(text)
        given = [name for name in _OF_REPETITIONS if _is_given(name, arguments)]
        if given:
            raise ValueError(
                f"partition without {', '.join(given)}: seeds are those of the study, and a row "
                "names all, few or centralised"
            )
        return cls(arguments)

    def of(self, cut: str, seed: int, labelled: float | None) -> "Partition":
        """Return the cut of a repetition.

        Args:
            cut: one of :data:`CUTS`.
            seed: of the repetition.
            labelled: share of the training labels in the cut ``few``; None: the study's.
        """
        without_labels = _without(self.arguments, _OF_LABELS)
        name = cut
        arguments = [*without_labels, "--labelled", "1"]
        if cut == CENTRALISED:
            arguments.append("--pooled")
        elif cut == "few" and labelled is None:
            arguments = list(self.arguments)
        elif cut == "few":
            arguments = [*_without(self.arguments, _OF_LABELS[:1]), "--labelled", f"{labelled}"]
            name = f"few-{labelled}"
        return replace(
            self, arguments=(*arguments, "--seed", f"{seed}"), folder=f"seed-{seed}/{name}"
        )

    def below(self, name: str) -> "Partition":
        """Return the same cut with its site files in a folder of another name."""
        return replace(self, folder=f"{name}/{self.folder}")


class CutKey(NamedTuple):
    """What is equal for cuts that differ in their seed alone, however they are written."""

    division: str
    """How images are divided among sites and splits, and which labels are left.

    Of site files that no study cuts, it is the name of their folder.
    """
    pooled: bool
    """Whether one site has the training images of all, for a centralised training."""


def cut_key(arguments: Sequence[str]) -> CutKey:
    """Return the key of the cut that ``fedward partition`` makes by some arguments.

    It does not depend on the order of the options, on how numbers are written, on the seed, or on
    whether a default is named. Shares of validation and test images that a data set has count as
    the defaults.

    Args:
        arguments: of ``fedward partition``, without ``--out``.

    Raises:
        ValueError: as :func:`arguments_of`.
    """
    options = dict(vars(_options_of(arguments)))
    for name in ("seed", "out"):
        del options[name]
    pooled = bool(options.pop("pooled"))
    if options["labelled"] is None:
        has_fedperls_sites = options["sites"] is None and options["by"] is None
        options["labelled"] = FEDPERL_SHARE if has_fedperls_sites else 1.0
    return CutKey(repr(sorted(options.items())), pooled)


def test_train_ratio(arguments: Sequence[str]) -> float:
    """Return how many test images there are for each training image, above 0.

    Args:
        arguments: of ``fedward partition``, without ``--out``.

    Raises:
        ValueError: as :func:`arguments_of`.
    """
    options = _options_of(arguments)
    return float(options.test / (1 - options.val - options.test))


def arguments_of(text: str) -> tuple[str, ...]:
    """Return the arguments of ``fedward partition`` that a study writes.

    Raises:
        ValueError: a quotation is not closed, the first one is no data set, there is no such
            option or value, ``--out`` is among them, or no image is left for training.
    """
    arguments = tuple(shlex.split(text))
    if not arguments or arguments[0].startswith("-"):
        raise ValueError(f"partition that begins with a path below the data folder, not {text!r}")
    if _is_given(_OUT, arguments):
        raise ValueError(f"partition without {_OUT}: the study names the folder of its site files")
    _options_of(arguments)
    return arguments


def _is_given(option: str, arguments: Sequence[str]) -> bool:
    """Return whether an option is among arguments, with its value in the same word or not."""
    return any(word == option or word.startswith(f"{option}=") for word in arguments)


def _options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a cut, with the shares that are set apart.

    Raises:
        ValueError: there is no such option or value, or no image is left for training.
    """
    options = _parser().parse_args([*arguments, _OUT, "."])
    default = Split()
    options.test = default.test if options.test is None else options.test
    options.val = default.val if options.val is None else options.val
    apart = options.val + options.test
    if apart >= 1:
        raise ValueError(f"partition with --val and --test below 1 together, not {apart:g}")
    return options


@cache
def _parser() -> _Parser:
    """Return the parser of ``fedward partition``; a study is read with it thousands of times."""
    # Abbreviated, an option of labels would not be found where it has to be taken out.
    parser = _Parser("fedward partition", add_help=False, allow_abbrev=False)
    add_arguments(parser)
    return parser


def _without(arguments: tuple[str, ...], options: tuple[str, ...]) -> list[str]:
    """Return the arguments without some options and their values."""
    kept: list[str] = []
    skipped = False
    for argument in arguments:
        if skipped:
            skipped = False
        elif argument in options:
            skipped = True
        elif not argument.startswith(tuple(f"{option}=" for option in options)):
            kept.append(argument)
    return kept
