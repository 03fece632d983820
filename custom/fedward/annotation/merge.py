"""How a hand-over file's answers join those of the queue: nothing twice, nothing dropped, differences reported."""

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
)
from fedward.annotation.rules import Rules


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
        blank: an answer without image and class, with what holds where the file says nothing: annotator, time (when
            the file was written) and source.
        rules: what an answer may be, and which images share one.

    Returns:
        What was added, and all that was not; conflicts concern the images of added answers only.
    """
    refused, added = list(returned.refused), set[str]()
    unknown, known, count = set[str](), 0, 0
    for answer in returned.answers:
        try:
            decision = _understood(answer, words, blank, rules)
        except ValueError as problem:
            refused.append(Refused(answer.where, answer.sample_id, str(problem)))
            continue
        if decision.sample_id not in known_ids:
            unknown.add(decision.sample_id)
        if _is_known(database, decision, rules, timed=bool(answer.time)):
            known += 1
            continue
        add_answer(database, **asdict(decision))
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


def _understood(answer: Returned, words: Mapping[str, str], blank: Decision, rules: Rules) -> Decision:
    if not answer.sample_id:
        raise ValueError("expected a sample_id, found none")
    if is_formula(answer.annotator):
        raise ValueError(f"expected {NO_FORMULA}, found {answer.annotator!r:.80}")
    said = answer.label.casefold()
    kind, label = said, None
    if said not in rules.no_class:
        try:
            kind, label = "label", rules.label(said if said == NONE_OF_THESE else answer.label, words)
        except ValueError as expected:
            others = ", ".join(rules.no_class)
            raise ValueError(f"expected {expected}, {others}, found {answer.label!r:.80}") from None
    time = times.parse(answer.time) if answer.time else blank.time
    return Decision(answer.sample_id, answer.annotator or blank.annotator, kind, label, time, blank.source)


def _is_known(database: sqlite3.Connection, decision: Decision, rules: Rules, *, timed: bool) -> bool:
    """Return whether the queue has the answer; one without a time is known too if its annotator says the same now."""
    ids = rules.together(decision.sample_id)
    same = f"sample_id IN ({places(ids)}) AND annotator = ? AND kind = ? AND label IS ?"
    query = f"SELECT EXISTS (SELECT 1 FROM answers WHERE {same} AND time = ?)"
    now = f"SELECT EXISTS (SELECT 1 FROM decisions WHERE {same})"
    values = [*ids, decision.annotator, decision.kind, decision.label]
    ever = database.execute(query, [*values, decision.time]).fetchone()[0]
    return bool(ever or (not timed and database.execute(now, values).fetchone()[0]))


def _conflicts(database: sqlite3.Connection, sample_ids: Collection[str], rules: Rules) -> Iterator[Conflict]:
    """Yield the images of which the answers ever given, undone ones left out, do not all say the same."""
    for sample_id in sorted(sample_ids):
        ids = rules.together(sample_id)
        of, newest = f"WHERE sample_id IN ({places(ids)})", "time DESC, answer DESC"
        now = f"SELECT {DECISION} FROM decisions {of} ORDER BY adjudicates DESC, kind = 'cannot tell', {newest}"
        ever = f"SELECT {DECISION} FROM standing {of} AND kind != 'skip' ORDER BY {newest}"
        kept = Decision(*database.execute(now, ids).fetchone())
        given = [Decision(*row) for row in database.execute(ever, ids)]
        if others := tuple(other for other in given if other.text != kept.text):
            yield Conflict(sample_id, kept, others)
