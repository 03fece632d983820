"""How a hand-over file's answers join those of the queue: nothing twice, nothing dropped,
differences reported.
"""

import sqlite3
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import asdict

from fedward.annotation import times
from fedward.annotation.database import add_answer, places
from fedward.annotation.records import (
    DECISION,
    NO_FORMULA,
    NONE_OF_THESE,
    Conflict,
    Decision,
    Imported,
    Refused,
    Return,
    Returned,
    is_formula,
    plain_name,
)
from fedward.annotation.rules import Rules

_LONGEST_ID = 500
"""Letters of an id that the site file does not name."""


def merge(
    database: sqlite3.Connection,
    returned: Return,
    words: Mapping[str, str],
    known_ids: Container[str],
    blank: Decision,
    rules: Rules,
) -> Imported:
    """Add the answers of a file to the queue, inside the caller's transaction.

    Args:
        database: in a writing transaction.
        returned: the file's content.
        words: what may stand for a class -> the class.
        known_ids: the ids of the site's images.
        blank: an answer without image and class, with what holds where the file says nothing:
            annotator, time (when the file was written) and source.
        rules: what an answer may be, and which images share one.

    Returns:
        What was added, and all that was not; conflicts concern the images of added answers only.
    """
    refused = list(returned.refused)
    added = set[str]()
    unknown = set[str]()
    known = 0
    count = 0
    before = _Before(database, rules)
    for answer in returned.answers:
        try:
            decision = _understood(answer, words, blank, rules)
        except ValueError as problem:
            refused.append(Refused(answer.where, answer.sample_id, str(problem)))
            continue
        if decision.sample_id not in known_ids:
            if len(decision.sample_id) > _LONGEST_ID or not decision.sample_id.isprintable():
                expected = f"an id of the site, or up to {_LONGEST_ID} visible letters"
                refused.append(
                    Refused(answer.where, f"{answer.sample_id:.80}", f"expected {expected}")
                )
                continue
            unknown.add(decision.sample_id)
        if before.has(decision, timed=bool(answer.time)):
            known += 1
            continue
        add_answer(database, **asdict(decision))
        before.add(decision)
        added.add(decision.sample_id)
        count += 1
    return Imported(
        blank.source,
        added=count,
        known=known,
        open=returned.open,
        unknown_ids=tuple(sorted(unknown)),
        refused=tuple(refused),
        conflicts=tuple(_conflicts(database, added, rules)),
    )


def _understood(
    answer: Returned, words: Mapping[str, str], blank: Decision, rules: Rules
) -> Decision:
    if not answer.sample_id:
        raise ValueError("expected a sample_id, found none")
    annotator = blank.annotator
    if answer.annotator:
        try:
            annotator = plain_name(answer.annotator)
        except ValueError as expected:
            raise ValueError(f"expected {expected}, found {answer.annotator!r:.80}") from None
    if is_formula(annotator):
        raise ValueError(f"expected {NO_FORMULA}, found {annotator!r:.80}")
    said = answer.label.casefold()
    kind = said
    label = None
    if said not in rules.no_class:
        try:
            kind = "label"
            label = rules.label(said if said == NONE_OF_THESE else answer.label, words)
        except ValueError as expected:
            others = ", ".join(rules.no_class)
            raise ValueError(f"expected {expected}, {others}, found {answer.label!r:.80}") from None
    time = times.parse(answer.time) if answer.time else blank.time
    return Decision(answer.sample_id, annotator, kind, label, time, blank.source)


class _Before:
    """The answers of the queue, those of the file so far among them.

    They are read once: a query for each answer of the file would search all those before it about
    the same image, and the queue is nobody else's meanwhile.
    """

    def __init__(self, database: sqlite3.Connection, rules: Rules) -> None:
        self._rules = rules
        self._ever: set[tuple[str | None, ...]] = set()
        self._now: dict[tuple[str, str], Decision] = {}
        """Image and annotator -> what they say at present."""
        for row in database.execute(f"SELECT {DECISION} FROM answers"):
            self._ever.add(self._name(Decision(*row)))
        for row in database.execute(f"SELECT {DECISION} FROM decisions"):
            self._now[row["sample_id"], row["annotator"]] = Decision(*row)

    def has(self, decision: Decision, *, timed: bool) -> bool:
        """Return whether an answer is known; one without a time is known too if its annotator says
        the same now.
        """
        if self._name(decision) in self._ever:
            return True
        now = [
            self._now.get((name, decision.annotator))
            for name in self._rules.together(decision.sample_id)
        ]
        same = (decision.kind, decision.label)
        return not timed and any(
            each is not None and (each.kind, each.label) == same for each in now
        )

    def add(self, decision: Decision) -> None:
        """Note an answer that was added."""
        self._ever.add(self._name(decision))
        now = self._now.get((decision.sample_id, decision.annotator))
        if now is None or decision.time >= now.time:
            self._now[decision.sample_id, decision.annotator] = decision

    def _name(self, decision: Decision) -> tuple[str | None, ...]:
        """Return what makes an answer the same as another, of whichever image of the lesion."""
        first = self._rules.together(decision.sample_id)[0]
        return first, decision.annotator, decision.kind, decision.label, decision.time


def _conflicts(
    database: sqlite3.Connection, sample_ids: Collection[str], rules: Rules
) -> Iterator[Conflict]:
    """Yield the images of which the answers ever given, undone ones left out, do not all say the
    same.
    """
    for sample_id in sorted(sample_ids):
        ids = rules.together(sample_id)
        of = f"WHERE sample_id IN ({places(ids)})"
        newest = "time DESC, answer DESC"
        now = f"SELECT {DECISION} FROM decisions {of} ORDER BY adjudicates DESC, kind = 'cannot tell', {newest}"
        ever = f"SELECT {DECISION} FROM standing {of} AND kind != 'skip' ORDER BY {newest}"
        kept = Decision(*database.execute(now, ids).fetchone())
        given = [Decision(*row) for row in database.execute(ever, ids)]
        others = tuple(other for other in given if other.text != kept.text)
        if others:
            yield Conflict(sample_id, kept, others)
