"""How a study cuts its images: by ``fedward partition``, again for each repetition."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NoReturn

from fedward.lab.partition.arguments import add_arguments
from fedward.sites.site_file import Split

CENTRALISED = "centralised"
CUTS = ("few", "all", CENTRALISED)
"""What a row may train on: few labels, all labels, or all labels at one site."""
_OF_REPETITIONS = ("--seed", "--out", "--pooled")
"""Arguments that a study gives itself."""
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
        """Return the cut that a study describes; ValueError if there is no such argument."""
        arguments = shlex.split(text)
        given = [name for name in _OF_REPETITIONS if name in arguments]
        if given:
            raise ValueError(
                f"partition without {', '.join(given)}: seeds are those of the study, and a row "
                "names all, few or centralised"
            )
        _options_of(arguments)
        return cls(tuple(arguments))

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


def test_per_training(arguments: Sequence[str]) -> float:
    """Return how many test images there are for each training image.

    Args:
        arguments: of ``fedward partition``, without ``--out``.

    Raises:
        ValueError: there is no such argument, or no image is left for training.
    """
    options = _options_of(arguments)
    return float(options.test / (1 - options.val - options.test))


def _options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a cut, with the shares that are set apart.

    Raises:
        ValueError: as :func:`test_per_training`.
    """
    options = _parser().parse_args([*arguments, "--out", "."])
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
