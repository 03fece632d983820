"""Checks of readers: questions that come again, and images whose class is known.

They are mixed in between the questions of runs, unannounced. Their answers are in the audit trail
and nowhere else: no run trains on them, and no other reader's question depends on them.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from fedward.annotation.questions import Question
from fedward.annotation.records import Purpose
from fedward.annotation.rules import Rules

REPEAT_AFTER = 20
"""The answers that a reader gives before a question comes again."""
SKIPPED_AFTER = 5
"""The answers that a reader gives before a check that they skipped comes again."""
KNOWN_EVERY = 10
"""A reader sees one image of known class in as many answers, on average."""


_Key: TypeAlias = tuple[Purpose, tuple[str, ...]]
"""A check of a reader: its purpose, and the images of its question."""


class Check(NamedTuple):
    """A check that is due for a reader."""

    sample_id: str
    purpose: Purpose
    """``repeat`` or ``known``."""


@dataclass(frozen=True)
class OwnAgreement:
    """How often a reader agrees with their own earlier answers and with known classes."""

    repeated: int = 0
    """The number of questions that came again and were answered again."""
    same: int = 0
    """Those of them with the same answer."""
    known: int = 0
    """The number of images of known class that the reader has answered."""
    right: int = 0
    """Those of them with the known answer."""

    def text(self) -> str:
        """Return the sentences for the reader; empty without a check."""
        sentences = []
        if self.repeated:
            sentences.append(
                f"Images that came twice: {self.same} of {self.repeated} got the same answer."
            )
        if self.known:
            sentences.append(f"Images of known class: {self.right} of {self.known} got that class.")
        return " ".join(sentences)


class _Given(NamedTuple):
    """An answer of a reader at the page that is not taken back."""

    answer: int
    sample_id: str
    annotator: str
    kind: str
    text: str
    purpose: Purpose


def due(
    database: sqlite3.Connection,
    rules: Rules,
    annotator: str,
    shown: Sequence[Question],
    can_show: Callable[[str], bool],
) -> list[Check]:
    """Return the checks that are due for a reader, the longest due first.

    Which questions come again, and after how many answers an image of known class comes, depend on
    the reader's name and the image alone. So a page that is loaded again shows the same check. A
    check that the reader skips comes once more, after some answers.

    Args:
        database: in a transaction.
        rules: the rules of the queue.
        annotator: the reader's name. Adjudicators get no checks.
        shown: the questions asked at present that can be shown.
        can_show: whether the site has the image of an id.
    """
    if annotator in rules.adjudicators or not (rules.repeat or rules.known):
        return []
    given = list(_given(database, annotator))
    places = dict[tuple[str, ...], int]()
    """Images of a question -> how many questions the reader had answered then, itself included."""
    skipped = dict[_Key, int]()
    """A check that was skipped once -> how many questions the reader had answered then."""
    checked = set[_Key]()
    for row in given:
        key = (row.purpose, rules.together(row.sample_id))
        is_skip = row.kind == "skip"
        if row.purpose == "question" and not is_skip:
            places.setdefault(key[1], len(places) + 1)
        elif is_skip and key not in skipped:
            skipped[key] = len(places)
        else:
            checked.add(key)
    checks: list[tuple[int, Check]] = []
    asked_ids: set[str] = set()
    for question in shown:
        asked_ids.update(question.ids)
        place = places.get(rules.together(question.ids[0]))
        decision = question.by(annotator)
        if place is None or decision is None or decision.adjudicates:
            continue
        images = rules.together(decision.sample_id)
        is_drawn = _draw(annotator, images[0]) < rules.repeat
        if is_drawn and can_show(decision.sample_id):
            checks.append((place + REPEAT_AFTER, Check(decision.sample_id, "repeat")))
    checks += _known(rules, annotator, asked_ids, can_show)
    due_checks = []
    for first_turn, check in checks:
        key = (check.purpose, rules.together(check.sample_id))
        turn = skipped[key] + SKIPPED_AFTER if key in skipped else first_turn
        if turn <= len(places) and key not in checked:
            due_checks.append((turn, check))
    return [check for _, check in sorted(due_checks)]


def _known(
    rules: Rules, annotator: str, asked_ids: set[str], can_show: Callable[[str], bool]
) -> Iterator[tuple[int, Check]]:
    """Yield the images of known class, each with the number of answers after which it comes.

    An image that a run asks about is an ordinary question and not among them.
    """
    in_own_order = sorted(rules.known, key=lambda sample_id: _draw(annotator, sample_id))
    for number, sample_id in enumerate(in_own_order):
        if asked_ids.isdisjoint(rules.together(sample_id)) and can_show(sample_id):
            within = int(_draw(sample_id, annotator) * KNOWN_EVERY)
            yield number * KNOWN_EVERY + within + 1, Check(sample_id, "known")


def own_agreement(database: sqlite3.Connection, rules: Rules) -> dict[str, OwnAgreement]:
    """Return reader -> how often they agree with themselves and with known classes.

    A repeated answer is compared with the reader's newest one before it. Answers that were taken
    back and skipped images do not count. Readers without a check are left out.
    """
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row, expected in compared(database, rules):
        pair = ("repeated", "same") if row.purpose == "repeat" else ("known", "right")
        counts[row.annotator][pair[0]] += 1
        counts[row.annotator][pair[1]] += row.text == expected
    return {annotator: OwnAgreement(**numbers) for annotator, numbers in sorted(counts.items())}


def compared(database: sqlite3.Connection, rules: Rules) -> Iterator[tuple[_Given, str]]:
    """Yield each answer to a check, with the answer that was expected."""
    earlier = dict[tuple[str, tuple[str, ...]], str]()
    for row in _given(database):
        if row.kind == "skip":
            continue
        question = (row.annotator, rules.together(row.sample_id))
        if row.purpose == "question":
            earlier[question] = row.text
        elif row.purpose == "repeat" and question in earlier:
            yield row, earlier[question]
        elif row.purpose == "known" and row.sample_id in rules.known:
            yield row, rules.known[row.sample_id]


def _given(database: sqlite3.Connection, annotator: str | None = None) -> Iterator[_Given]:
    """Yield the answers at the page that nobody took back, in their order; None: of all readers."""
    rows = database.execute(
        "SELECT answer, sample_id, annotator, kind, coalesce(label, kind), purpose FROM given "
        "WHERE source = 'page' AND annotator = coalesce(?, annotator) ORDER BY answer",
        [annotator],
    )
    for row in rows:
        yield _Given(*row)


def _draw(*words: str) -> float:
    """Return a number from 0 to 1 (exclusive) that is always the same for the same words."""
    digest = sha256("\0".join(words).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56
