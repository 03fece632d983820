"""What the page sends to the desk of a clinician, and what the desk shows on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedward.annotation.checks import OwnAgreement
from fedward.annotation.records import Remark, Request


class Stale(Exception):  # noqa: N818 - not an error of the program: the page reloads its view
    """The page answered from a view that is no longer true. Nothing was written."""

    def __init__(self, annotator: str, text: str) -> None:
        super().__init__(text)
        self.annotator = annotator


@dataclass(frozen=True)
class SentAnswer:
    """An answer as the page sends it."""

    annotator: str
    sample_id: str
    kind: str
    """``label``, one of ``records.NO_CLASS``, or ``skip``."""
    label: str | None
    key: str
    """A name that the page gives to this message alone: if it arrives twice, it is one answer."""
    seen: int
    """The number of the annotator's newest answer about the image when the page showed it.

    It is 0 without one. Another tab may have been faster, and its answer has a higher number.
    """
    seconds: float | None = None
    """How long the image was looked at."""
    remark: Remark = field(default_factory=Remark)
    """What the reader added."""
    again: bool = False
    """Whether the page showed the annotator's own earlier answer, which this one replaces.

    It counts only if the annotator has answered that question.
    """


@dataclass(frozen=True)
class Last:
    """The annotator's newest answer at the page: Undo takes it back."""

    answer: int
    """Its number."""
    sample_id: str
    kind: str
    """``label``, one of ``records.NO_CLASS``, or ``skip``."""
    text: str
    """The class, or the answer in its place."""
    before: str | None
    """The annotator's answer before it, which then counts again; None without one."""
    shown_again: bool
    """Whether the image is then shown, to be answered again."""


@dataclass(frozen=True)
class Given:
    """The present answer of an annotator to a question."""

    sample_id: str
    """The image that the annotator answered."""
    text: str
    """The answer in words."""
    time: str
    adjudicates: bool
    remark: Remark
    seconds: float | None
    """How long the image was looked at; None without the page."""


@dataclass(frozen=True)
class Tally:
    """What all readers together have decided, in numbers of questions."""

    decided: int
    """The questions with an answer that counts."""
    total: int
    """All questions."""
    undecidable: int
    """The questions whose answer that counts is not a class."""
    disputed: int
    """The questions on which readers differ, and that are not adjudicated."""
    read_twice: int
    """The questions that two or more readers could decide."""
    unanimous: int
    """The questions of these on which all readers agree."""
    kappa: float | None
    """Cohen's kappa; see :class:`fedward.annotation.records.Agreement`."""
    kappas: Mapping[str, float | None]
    """Finding -> kappa, where an answer may name several."""


@dataclass(frozen=True)
class View:
    """The content of the page for one annotator.

    An answer to a check changes it exactly as an answer to a question does: otherwise the annotator
    would learn which answers were checks, and could take them back.
    """

    image: Request | None
    """The image to answer; None if no image waits."""
    together: tuple[str, ...]
    """The images that an answer counts for."""
    own: str | None
    """The annotator's present answer about the image; None for a question that comes again."""
    remark: Remark
    """What the annotator added to it."""
    adjudicates: bool
    """Whether readers differ here, so that this annotator's answer decides."""
    seen: int
    """The number of the annotator's newest answer about the image; 0 without one."""
    waiting: int
    """The number of questions and checks that wait for this annotator."""
    skipped: int
    """Those of them that the annotator has skipped."""
    mine: int
    """The number of questions and checks that this annotator has answered."""
    tally: Tally | None
    """What all readers have decided; None while an annotator who is checked looks at an image."""
    last: Last | None
    """The answer that can be taken back."""
    own_agreement: OwnAgreement | None
    """How often the annotator agrees with themselves; None while they look at an image."""
