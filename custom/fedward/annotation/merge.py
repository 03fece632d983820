"""How a hand-over file's answers join those of the queue: nothing twice, nothing dropped, differences reported."""

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import replace

from fedward.annotation import times
from fedward.annotation.records import (
    CANNOT_TELL,
    NO_FORMULA,
    Conflict,
    Decision,
    Imported,
    Refused,
    Return,
    Returned,
    is_formula,
)


def merge(
    database: sqlite3.Connection,
    returned: Return,
    words: Mapping[str, str],
    known_ids: Collection[str],
    *,
    source: str,
    moment: str,
    nobody: str,
) -> Imported:
    """Add the answers of a file to the queue, inside the caller's transaction.

    Args:
        database: in a writing transaction.
        returned: the file's content.
        words: what may stand for a class -> the class.
        known_ids: the ids of the site's images.
        source: kept with each answer.
        moment: when the file was written; the time of answers that give none.
        nobody: the annotator of answers that name none.

    Returns:
        What was added, and all that was not; conflicts concern the images of added answers only.
    """
    refused, added = list(returned.refused), list[Decision]()
    unknown, known = set[str](), 0
    for answer in returned.answers:
        try:
            decision = _understood(answer, words, source, nobody)
        except ValueError as problem:
            refused.append(Refused(answer.where, answer.sample_id, str(problem)))
            continue
        if decision.sample_id not in known_ids:
            unknown.add(decision.sample_id)
        if _is_known(database, decision, moment):
            known += 1
            continue
        decision = replace(decision, time=decision.time or moment)
        _add(database, decision)
        added.append(decision)
    return Imported(
        source,
        added=len(added),
        known=known,
        open=returned.open,
        unknown_ids=tuple(sorted(unknown)),
        refused=tuple(refused),
        conflicts=_conflicts(database, {decision.sample_id for decision in added}),
    )


def _understood(answer: Returned, words: Mapping[str, str], source: str, nobody: str) -> Decision:
    if not answer.sample_id:
        raise ValueError("expected a sample_id, found none")
    if is_formula(answer.annotator):
        raise ValueError(f"expected {NO_FORMULA}, found {answer.annotator!r:.80}")
    cannot = answer.label.casefold() == CANNOT_TELL
    if not cannot and answer.label not in words:
        raise ValueError(f"expected {', '.join(words)} or {CANNOT_TELL}, found {answer.label!r:.80}")
    return Decision(
        sample_id=answer.sample_id,
        annotator=answer.annotator or nobody,
        label=None if cannot else words[answer.label],
        time=times.parse(answer.time) if answer.time else "",
        source=source,
    )


def _is_known(database: sqlite3.Connection, decision: Decision, moment: str) -> bool:
    """Return whether the queue has the answer; one without a time is known too if its annotator says the same now."""
    same = "sample_id = ? AND annotator = ? AND kind IN ('label', 'cannot tell') AND label IS ?"
    values = [decision.sample_id, decision.annotator, decision.label]
    ever = f"SELECT 1 FROM answers WHERE {same} AND time = ?"
    if database.execute(ever, [*values, decision.time or moment]).fetchone() is not None:
        return True
    return (
        not decision.time and database.execute(f"SELECT 1 FROM decisions WHERE {same}", values).fetchone() is not None
    )


def _add(database: sqlite3.Connection, decision: Decision) -> None:
    kind = CANNOT_TELL if decision.label is None else "label"
    database.execute(
        "INSERT INTO answers (sample_id, annotator, kind, label, time, recorded, source) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (decision.sample_id, decision.annotator, kind, decision.label, decision.time, times.now(), decision.source),
    )


def _conflicts(database: sqlite3.Connection, sample_ids: Collection[str]) -> tuple[Conflict, ...]:
    """Return the images of which the answers ever given, undone ones left out, do not all say the same."""
    columns = "sample_id, annotator, label, time, source"
    conflicts = []
    for sample_id in sorted(sample_ids):
        now = database.execute(
            f"SELECT {columns} FROM decisions WHERE sample_id = ? ORDER BY label IS NULL, time DESC, answer DESC",
            [sample_id],
        )
        kept = Decision(*now.fetchone())
        ever = database.execute(
            f"SELECT {columns} FROM standing WHERE sample_id = ? AND kind != 'skip' ORDER BY time DESC, answer DESC",
            [sample_id],
        )
        others = tuple(other for other in (Decision(*row) for row in ever) if other.label != kept.label)
        if others:
            conflicts.append(Conflict(sample_id, kept, others))
    return tuple(conflicts)
