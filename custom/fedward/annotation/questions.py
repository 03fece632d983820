"""A queue by question: what one answer is about, what readers say of it, and which of their answers
counts.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations

from fedward.annotation.records import CANNOT_TELL, DECISION, Agreement, Conflict, Decision, Request
from fedward.annotation.rules import Rules


@dataclass(frozen=True)
class Question:
    """One image, or the images of one lesion."""

    rules: Rules
    requests: tuple[Request, ...]
    """The newest request of each of its images that was asked for, the most wanted first; withdrawn
    ones too.
    """
    decisions: tuple[Decision, ...]
    """What each reader says at present, the newest first."""

    @property
    def open(self) -> tuple[Request, ...]:
        """Its requests that are not withdrawn."""
        return tuple(request for request in self.requests if not request.withdrawn)

    @property
    def ids(self) -> list[str]:
        """Its images that were asked for or answered."""
        asked = [request.sample_id for request in self.requests]
        return list(dict.fromkeys(asked + [decision.sample_id for decision in self.decisions]))

    @property
    def firm(self) -> list[Decision]:
        """The decisions of those who could tell, but for an adjudicator's."""
        return [
            each for each in self.decisions if each.kind != CANNOT_TELL and not each.adjudicates
        ]

    @property
    def differ(self) -> bool:
        """Whether those who could tell say different things."""
        return len({each.text for each in self.firm}) > 1

    @property
    def standing(self) -> Decision | None:
        """The decision that counts; None while too few have decided, or readers differ and nobody
        has adjudicated.

        With one reader the newest counts. Who cannot tell abstains, unless all do.
        """
        counting = [each for each in self.decisions if each.adjudicates]
        if len(self.decisions) >= self.rules.readers and not self.disputed:
            counting += self.firm or self.decisions
        return counting[0] if counting else None

    @property
    def disputed(self) -> bool:
        """Whether several readers are wanted, enough of them have decided, and they differ."""
        return 1 < self.rules.readers <= len(self.decisions) and self.differ

    def by(self, annotator: str) -> Decision | None:
        """Return what an annotator says of it at present."""
        return next((each for each in self.decisions if each.annotator == annotator), None)

    def adjudicated_by(self, annotator: str) -> bool:
        """Return whether an answer of this annotator would decide between readers."""
        own = self.by(annotator)
        if own:
            return own.adjudicates
        return self.disputed and (
            not self.rules.adjudicators or annotator in self.rules.adjudicators
        )

    def waits_for(self, annotator: str) -> bool:
        """Return whether it is to be put to this annotator."""
        if not self.open or self.standing or self.by(annotator):
            return False
        return (
            self.adjudicated_by(annotator)
            if self.disputed
            else annotator not in self.rules.adjudicators
        )


def questions(
    database: sqlite3.Connection, rules: Rules, classes: Collection[str] | None = None
) -> list[Question]:
    """Return all questions that were asked or answered, the most wanted first: newest requests,
    then by falling score.

    With ``classes``, a decision that names another class is none.
    """
    requests: dict[str, list[Request]] = defaultdict(list)
    decisions: dict[str, dict[str, Decision]] = defaultdict(dict)
    for request in asked(database).values():
        requests[rules.together(request.sample_id)[0]].append(request)
    for row in database.execute(
        f"SELECT {DECISION} FROM decisions ORDER BY time DESC, answer DESC"
    ):
        decision = Decision(*row)
        if (
            classes is None
            or decision.label is None
            or rules.findings(decision.label) <= {*classes}
        ):
            decisions[rules.together(decision.sample_id)[0]].setdefault(
                decision.annotator, decision
            )
    return [
        Question(rules, tuple(requests.get(name, ())), tuple(decisions.get(name, {}).values()))
        for name in dict.fromkeys([*requests, *decisions])
    ]


def asked(database: sqlite3.Connection) -> dict[str, Request]:
    """Return the newest request of each image asked for, withdrawn ones too, the most wanted first."""
    rows = database.execute(
        "SELECT * FROM asked ORDER BY time DESC, score DESC NULLS LAST, sample_id"
    )
    names = [field.name for field in fields(Request) if field.name != "withdrawn"]
    return {
        row["sample_id"]: Request(
            **{name: row[name] for name in names}, withdrawn=bool(row["withdrawn"])
        )
        for row in rows
    }


def decisions_by_image(asked_or_answered: Iterable[Question]) -> list[Decision]:
    """Return what each reader says of each image, by sample id, the newest first: of a lesion, one
    for each image.
    """
    made = [
        replace(decision, sample_id=name)
        for each in asked_or_answered
        for name in each.ids
        for decision in each.decisions
    ]
    return sorted(made, key=lambda decision: decision.sample_id)


def agreement(asked_or_answered: Iterable[Question]) -> Agreement:
    """Return how far readers agree over the questions that two or more could decide."""
    twice = [each for each in asked_or_answered if len(each.firm) > 1]
    disputed = []
    for each in twice:
        if each.differ:
            kept = each.standing or each.firm[0]
            others = tuple(other for other in each.firm if other.text != kept.text)
            disputed.append(Conflict(kept.sample_id, kept, others))
    kappa = _kappa(twice, lambda decision: decision.text)
    return Agreement(
        len(twice), len(twice) - len(disputed), kappa, tuple(disputed), _by_finding(twice)
    )


def _by_finding(twice: Sequence[Question]) -> dict[str, float | None]:
    """Return the kappa of each finding that a reader named, over the questions that readers gave
    findings for.
    """
    if all(each.rules.label_kind.exclusive for each in twice):
        return {}
    given = [
        replace(each, decisions=tuple(one for one in each.firm if one.label is not None))
        for each in twice
    ]
    rules = twice[0].rules
    names = sorted(
        {name for each in given for one in each.firm for name in rules.findings(one.label or "")}
    )

    def says(name: str, decision: Decision) -> bool:
        return name in rules.findings(decision.label or "")

    return {name: _kappa(given, partial(says, name)) for name in names}


def _kappa(twice: Sequence[Question], said_in: Callable[[Decision], Hashable]) -> float | None:
    """Return the mean over pairs of readers of Cohen's kappa of what their decisions say."""
    said: dict[tuple[str, str], list[tuple[Hashable, Hashable]]] = defaultdict(list)
    for each in twice:
        ordered = sorted(each.firm, key=lambda decision: decision.annotator)
        for one, other in combinations(ordered, 2):
            said[one.annotator, other.annotator].append((said_in(one), said_in(other)))
    known = [kappa for pairs in said.values() if (kappa := cohens_kappa(pairs)) is not None]
    return sum(known) / len(known) if known else None


def cohens_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Return (p_o - p_e) / (1 - p_e): agreement of two readers beyond chance (Cohen, 1960).

    Args:
        pairs: what the first and the second said of the same thing.

    Returns:
        At most 1, 0 for chance; None where both always give the same single answer, and chance
        cannot be told from agreement.
    """
    first = Counter(one for one, _ in pairs)
    second = Counter(other for _, other in pairs)
    observed = sum(one == other for one, other in pairs) / max(len(pairs), 1)
    expected = sum(first[answer] * second[answer] for answer in first) / max(len(pairs), 1) ** 2
    return (observed - expected) / (1 - expected) if len({*first, *second}) > 1 else None
