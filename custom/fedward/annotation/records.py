"""What goes into the queue and what comes out of it; times are UTC as text that sorts (see
``times``).
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

CANNOT_TELL = "cannot tell"
"""What a file says where a class would stand, for an image in which nobody can see one."""
UNUSABLE = "unusable"
"""The same for an image that shows nothing of use: black, cut, out of focus."""
NONE_OF_THESE = "none of these"
"""The same for a good image that shows none of the classes, or that is not of this task."""
REFUSED = (UNUSABLE, NONE_OF_THESE)
"""What is said of images that are not to be trained on."""
NO_CLASS = (CANNOT_TELL, *REFUSED)
LONGEST_NAME = 80
"""Letters of a reader's name."""
NOBODY = "unknown"
"""The annotator of an answer whose file names none."""
NO_FORMULA = "a reader's name that does not begin with = + - @ or a control character"
"""What is expected where :func:`is_formula`."""


def plain_name(name: str) -> str:
    """Return a reader's name in one spelling, whichever way it was typed.

    Raises:
        ValueError: it is empty, longer than 80 letters, or holds what nobody can see; the text is
            what was expected.
    """
    name = " ".join(unicodedata.normalize("NFC", name).split())
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValueError(f"a reader's name of 1 to {LONGEST_NAME} visible letters")
    return name


def is_formula(name: str) -> bool:
    """Return whether a spreadsheet that opens an exported CSV may take a name for a formula."""
    return name[:1] in tuple("=+-@") or not name[:1].isprintable()


@dataclass(frozen=True)
class Request:
    """One image the federation asks about, by its newest request."""

    sample_id: str
    run: str
    round: int
    strategy: str
    score: float | None
    """As the strategy gave it: higher is asked first. None: the strategy gives none."""
    time: str
    withdrawn: bool
    """Whether only runs that are over have asked, so that nobody is asked any more."""


@dataclass(frozen=True)
class Decision:
    """What one annotator says of one image at present."""

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

    @property
    def text(self) -> str:
        """Return the class, or what is said in its place."""
        return self.kind if self.label is None else self.label


DECISION = ", ".join(field.name for field in fields(Decision))
"""The columns of one, in SQL."""


@dataclass(frozen=True)
class Returned:
    """One answer as a hand-over file words it; an empty ``time`` means none, ``where`` is its place
    in the file.
    """

    where: str
    sample_id: str
    label: str
    annotator: str
    time: str


@dataclass(frozen=True)
class Refused:
    """An entry of a file that is no answer, and why."""

    where: str
    sample_id: str
    reason: str


@dataclass(frozen=True)
class Return:
    """All that a hand-over file holds: answers, entries that are none, and images it leaves open."""

    form: str
    answers: Sequence[Returned]
    refused: Sequence[Refused] = ()
    open: int = 0


@dataclass(frozen=True)
class Conflict:
    """An image of which annotators, or a file and the queue, say different things."""

    sample_id: str
    kept: Decision
    others: tuple[Decision, ...]


@dataclass(frozen=True)
class Imported:
    """What became of a hand-over file."""

    source: str
    added: int
    known: int
    """Answers the queue had already."""
    open: int
    """Entries without an answer yet."""
    unknown_ids: tuple[str, ...]
    """Not among the site's images. Their answers are kept, and count once the site file names the
    images.
    """
    refused: tuple[Refused, ...]
    conflicts: tuple[Conflict, ...]

    def text(self) -> str:
        """Return the account for a console, every unknown id, refused entry and conflict listed."""
        lines = [
            f"{self.source}: {self.added} new answers, {self.known} known already, {self.open} without an answer"
        ]
        sections = (
            ("Unknown ids (kept; the site file names no such image)", self.unknown_ids),
            (
                "Not understood",
                [
                    f"{item.where} ({item.sample_id or 'no id'}): {item.reason}"
                    for item in self.refused
                ],
            ),
            ("Conflicts (the newest answer stands)", [_conflict(item) for item in self.conflicts]),
        )
        for title, items in sections:
            if items:
                lines += [
                    "",
                    f"{title}: {len(items)}",
                    *(f"  - {_one_line(item)}" for item in items),
                ]
        return "\n".join(lines)


def _one_line(text: str) -> str:
    """Return a text that cannot pass for several lines of the account."""
    return " ".join(text.split())


def _conflict(conflict: Conflict) -> str:
    def said(decision: Decision) -> str:
        return f"{decision.text} ({decision.annotator}, {decision.time}, {decision.source})"

    return (
        f"{conflict.sample_id}: {said(conflict.kept)}; not {', '.join(map(said, conflict.others))}"
    )


@dataclass(frozen=True)
class Agreement:
    """How often annotators agree, over the questions that at least two of them could decide, before
    adjudication.
    """

    read_twice: int
    unanimous: int
    kappa: float | None
    """Cohen's kappa, the mean over pairs of readers; None where no pair has used two different
    answers.
    """
    disputed: tuple[Conflict, ...]
    """Of each, ``kept`` is the adjudicator's decision; the newest where there is none."""
    kappas: Mapping[str, float | None] = field(default_factory=dict)
    """Finding -> the kappa of saying it or not, where an answer may name several; of those that a
    reader named.
    """
