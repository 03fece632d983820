"""The records that go into the queue and come out of it.

Times are UTC, as text that sorts; see :mod:`fedward.annotation.times`.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from fedward.terminal import one_line
from fedward.text import count

CANNOT_TELL = "cannot tell"
"""The answer in place of a class for an image whose class the reader cannot see."""
UNUSABLE = "unusable"
"""The answer in place of a class for an image that shows nothing of use: black, cut, blurred."""
NONE_OF_THESE = "none of these"
"""The answer in place of a class for a good image of another class, or of another task."""
REFUSED = (UNUSABLE, NONE_OF_THESE)
"""The answers about images that are not to be trained on."""
NO_CLASS = (CANNOT_TELL, *REFUSED)
"""All answers that are not classes."""
Purpose: TypeAlias = Literal["question", "repeat", "known"]
"""Why an image was shown: a run asks about it; or to check the reader, see :mod:`.checks`."""
LONGEST_COMMENT = 300
"""The most letters of a reader's comment."""
LONGEST_NAME = 80
"""The most letters of a reader's name."""
NOBODY = "unknown"
"""The annotator of an answer whose file names none."""
NO_FORMULA = "a reader's name that does not begin with = + - @"
"""The text that refuses a name for which :func:`fedward.spreadsheet.is_formula` holds."""


def plain_name(name: str) -> str:
    """Return a reader's name in one spelling, whichever way it was typed.

    Raises:
        ValueError: the name is empty, longer than 80 letters, or has letters that are not visible;
            the message says what was expected.
    """
    name = " ".join(unicodedata.normalize("NFC", name).split())
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValueError(f"a reader's name of 1 to {LONGEST_NAME} visible letters")
    return name


def plain_comment(text: str) -> str:
    """Return a comment on one line, without invisible letters."""
    words = " ".join(unicodedata.normalize("NFC", text).split())
    return "".join(letter for letter in words if letter.isprintable())[:LONGEST_COMMENT]


@dataclass(frozen=True)
class Request:
    """One image that the federation asks about, by its newest request."""

    sample_id: str
    run: str
    round: int
    strategy: str
    score: float | None
    """The strategy's score: a higher one is asked first. None: the strategy gives none."""
    time: str
    withdrawn: bool
    """Whether only runs that are over asked for it, so that readers are not asked any more."""


@dataclass(frozen=True)
class Remark:
    """What a reader adds to an answer. No run sees it, and it changes no label."""

    unsure: bool = False
    """Whether the reader is unsure of the answer."""
    discuss: bool = False
    """Whether the reader wants to discuss the image with others."""
    comment: str = ""
    """What there is to discuss, in the reader's words."""


@dataclass(frozen=True)
class Decision:
    """The present answer of one annotator about one image."""

    sample_id: str
    annotator: str
    kind: str
    """``label``, or one of :data:`NO_CLASS`."""
    label: str | None
    time: str
    source: str
    """``page``, or the format and name of the file it came in."""
    adjudicates: bool = False
    """Whether readers differed, and this was to decide between them."""
    unsure: bool = False
    discuss: bool = False
    comment: str = ""
    """These three are the fields of :class:`Remark`."""
    seconds: float | None = None
    """How long the image was looked at; None without the page."""

    @property
    def remark(self) -> Remark:
        """What the reader added to the answer."""
        return Remark(bool(self.unsure), bool(self.discuss), self.comment)

    @property
    def text(self) -> str:
        """The class, or the answer in its place."""
        return self.kind if self.label is None else self.label


DECISION = ", ".join(field.name for field in fields(Decision))
"""The columns of a decision, in SQL."""


@dataclass(frozen=True)
class Returned:
    """One answer as a returned file words it."""

    where: str
    """Its place in the file, such as ``line 3``."""
    sample_id: str
    label: str
    annotator: str
    time: str
    """The time of the decision, as the file writes it; empty for none."""


@dataclass(frozen=True)
class Refused:
    """An entry of a file that cannot be used, and the reason."""

    where: str
    sample_id: str
    reason: str


@dataclass(frozen=True)
class Return:
    """The content of a returned file."""

    form: str
    """The name of its format."""
    answers: Sequence[Returned]
    refused: Sequence[Refused] = ()
    open: int = 0
    """The number of images that it leaves without an answer."""


@dataclass(frozen=True)
class Conflict:
    """An image for which annotators, or a file and the queue, give different answers."""

    sample_id: str
    kept: Decision | None
    """The decision that counts; None while too few readers have decided, or while they differ."""
    others: tuple[Decision, ...]
    """The decisions that differ from it, the newest first; all of them where none counts."""


@dataclass(frozen=True)
class Imported:
    """The result of importing a returned file."""

    source: str
    """The format and the name of the file."""
    added: int
    """The number of new answers."""
    known: int
    """The number of answers that the queue had already."""
    open: int
    """The number of entries without an answer yet."""
    unknown_ids: tuple[str, ...]
    """Ids that are not among the site's images.

    Their answers are stored, and count once the site file names the images.
    """
    refused: tuple[Refused, ...]
    conflicts: tuple[Conflict, ...]

    def text(self) -> str:
        """Return the account for a console, with every unknown id, refused entry and conflict."""
        refused = [
            f"{entry.where} ({entry.sample_id or 'no id'}): {entry.reason}"
            for entry in self.refused
        ]
        conflicts = [_conflict_text(conflict) for conflict in self.conflicts]
        lines = [
            f"{self.source}: {count(self.added, 'new answer')}, {self.known} known already, "
            f"{self.open} without an answer"
        ]
        lines += _section("Unknown ids (kept; the site file names no such image)", self.unknown_ids)
        lines += _section("Not understood", refused)
        lines += _section("Conflicts", conflicts)
        return "\n".join(lines)


def _section(title: str, items: Sequence[str]) -> list[str]:
    """Return the lines of one part of the account; none without items."""
    if not items:
        return []
    lines = ["", f"{title}: {len(items)}"]
    # No item can pass for several lines of the account.
    lines += [f"  - {one_line(item)}" for item in items]
    return lines


def _conflict_text(conflict: Conflict) -> str:
    others = ", ".join(_decision_text(decision) for decision in conflict.others)
    if conflict.kept is None:
        return f"{conflict.sample_id}: no answer counts yet of {others}"
    return f"{conflict.sample_id}: {_decision_text(conflict.kept)} counts; not {others}"


def _decision_text(decision: Decision) -> str:
    return f"{decision.text} ({decision.annotator}, {decision.time}, {decision.source})"


@dataclass(frozen=True)
class Agreement:
    """How often annotators agree before adjudication.

    It is over the questions that at least two of them could decide.
    """

    read_twice: int
    """The number of these questions."""
    unanimous: int
    """The number of these questions on which all readers agree."""
    kappa: float | None
    """Cohen's kappa, the mean over pairs of readers; None where no pair used two different answers.
    """
    disputed: tuple[Conflict, ...]
    """The other questions; ``kept`` is the adjudicator's decision, or the newest without one."""
    kappas: Mapping[str, float | None] = field(default_factory=dict)
    """Finding that a reader named -> the kappa of naming it, where an answer may name several."""
