"""The questions of a queue: their images, the answers of readers, and the answer that counts."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from fedward.annotation.records import CANNOT_TELL, DECISION, Agreement, Conflict, Decision, Request
from fedward.annotation.rules import Rules


@dataclass(frozen=True)
class Question:
    """What one answer is about: an image, or the images of one lesion."""

    rules: Rules
    requests: tuple[Request, ...]
    """The newest request of each of its images that was asked for, the most wanted first.

    Withdrawn requests are among them.
    """
    decisions: tuple[Decision, ...]
    """The present decision of each reader, the newest first."""

    @property
    def open(self) -> tuple[Request, ...]:
        """Its requests that are not withdrawn."""
        return tuple(request for request in self.requests if not request.withdrawn)

    @property
    def images(self) -> tuple[str, ...]:
        """All images that an answer to it is about, asked for or not, sorted."""
        return self.rules.together(self.ids[0])

    @property
    def ids(self) -> list[str]:
        """Its images that were asked for or answered."""
        asked_ids = [request.sample_id for request in self.requests]
        answered_ids = [decision.sample_id for decision in self.decisions]
        return list(dict.fromkeys(asked_ids + answered_ids))

    @property
    def firm(self) -> list[Decision]:
        """The decisions of readers who could tell, without an adjudicator's."""
        return [
            decision
            for decision in self.decisions
            if decision.kind != CANNOT_TELL and not decision.adjudicates
        ]

    @property
    def differ(self) -> bool:
        """Whether the readers who could tell give different answers."""
        return len({decision.text for decision in self.firm}) > 1

    @property
    def standing(self) -> Decision | None:
        """The decision that counts.

        An adjudicator's comes first. Without one it is None while too few readers have decided, or
        if they differ. With one reader the newest decision counts. A reader who cannot tell
        abstains, unless all of them do.
        """
        for decision in self.decisions:
            if decision.adjudicates:
                return decision
        if len(self.decisions) < self.rules.readers or self.disputed:
            return None
        counting = self.firm or self.decisions
        return counting[0] if counting else None

    @property
    def disputed(self) -> bool:
        """Whether several readers are wanted, enough of them have decided, and they differ."""
        return 1 < self.rules.readers <= len(self.decisions) and self.differ

    def by(self, annotator: str) -> Decision | None:
        """Return the present decision of an annotator; None without one."""
        for decision in self.decisions:
            if decision.annotator == annotator:
                return decision
        return None

    def adjudicated_by(self, annotator: str) -> bool:
        """Return whether an answer of this annotator would decide between readers.

        A named adjudicator may have answered before readers differed, or in a returned file. They
        decide all the same, because nobody else may.
        """
        decision = self.by(annotator)
        if decision is not None and decision.adjudicates:
            return True
        if self.rules.adjudicators:
            return self.disputed and annotator in self.rules.adjudicators
        return self.disputed and decision is None

    def waits_for(self, annotator: str) -> bool:
        """Return whether this annotator is to be asked."""
        if not self.open or self.standing:
            return False
        if self.disputed:
            return self.adjudicated_by(annotator)
        return self.by(annotator) is None and annotator not in self.rules.adjudicators


def questions(
    database: sqlite3.Connection, rules: Rules, classes: Collection[str] | None = None
) -> list[Question]:
    """Return all questions that were asked or answered, the most wanted first.

    The newest requests are the most wanted, and of these the ones with the highest scores.

    Args:
        database: in a transaction.
        rules: the rules of the queue.
        classes: the job's classes; decisions that name another class are left out. None: any.
    """
    requests: dict[str, list[Request]] = defaultdict(list)
    decisions: dict[str, dict[str, Decision]] = defaultdict(dict)
    for request in asked(database).values():
        requests[rules.together(request.sample_id)[0]].append(request)
    newest_first = f"SELECT {DECISION} FROM decisions ORDER BY time DESC, answer DESC"
    for row in database.execute(newest_first):
        decision = Decision(*row)
        if names_only(decision, classes, rules):
            first_id = rules.together(decision.sample_id)[0]
            decisions[first_id].setdefault(decision.annotator, decision)
    asked_or_answered = []
    for first_id in dict.fromkeys([*requests, *decisions]):
        requests_of_question = tuple(requests.get(first_id, ()))
        decisions_of_question = tuple(decisions.get(first_id, {}).values())
        asked_or_answered.append(Question(rules, requests_of_question, decisions_of_question))
    return asked_or_answered


def names_only(decision: Decision, classes: Collection[str] | None, rules: Rules) -> bool:
    """Return whether a decision names nothing but these classes; None: whatever it names."""
    if classes is None or decision.label is None:
        return True
    return rules.findings(decision.label).issubset(classes)


def asked(database: sqlite3.Connection) -> dict[str, Request]:
    """Return sample id -> its newest request, the most wanted first, withdrawn ones included."""
    rows = database.execute(
        "SELECT * FROM asked ORDER BY time DESC, score DESC NULLS LAST, sample_id"
    )
    requests = {}
    for row in rows:
        requests[row["sample_id"]] = Request(
            sample_id=row["sample_id"],
            run=row["run"],
            round=row["round"],
            strategy=row["strategy"],
            score=row["score"],
            time=row["time"],
            withdrawn=bool(row["withdrawn"]),
        )
    return requests


def decisions_by_image(asked_or_answered: Iterable[Question]) -> list[Decision]:
    """Return the decision of each reader on each image, by sample id, the newest first.

    A decision on a lesion is returned once for each of its images.
    """
    decisions = []
    for question in asked_or_answered:
        for sample_id in question.ids:
            decisions += [replace(decision, sample_id=sample_id) for decision in question.decisions]
    return sorted(decisions, key=lambda decision: decision.sample_id)


def agreement(asked_or_answered: Iterable[Question]) -> Agreement:
    """Return how far readers agree over the questions that two or more could decide."""
    read_twice = [question for question in asked_or_answered if len(question.firm) > 1]
    disputed = []
    for question in read_twice:
        if question.differ:
            counting = question.standing or question.firm[0]
            others = tuple(other for other in question.firm if other.text != counting.text)
            disputed.append(Conflict(counting.sample_id, counting, others))
    return Agreement(
        read_twice=len(read_twice),
        unanimous=len(read_twice) - len(disputed),
        kappa=_mean_kappa(read_twice, lambda decision: decision.text),
        disputed=tuple(disputed),
        kappas=_kappa_by_finding(read_twice),
    )


def _kappa_by_finding(read_twice: Sequence[Question]) -> dict[str, float | None]:
    """Return the kappa of each finding that a reader named.

    Only decisions that are labels count: those that name findings, or say that there are none.
    """
    if all(question.rules.label_kind.exclusive for question in read_twice):
        return {}
    rules = read_twice[0].rules
    labelled = []
    names: set[str] = set()
    for question in read_twice:
        decisions = tuple(decision for decision in question.firm if decision.label is not None)
        labelled.append(replace(question, decisions=decisions))
        for decision in decisions:
            names |= rules.findings(decision.label or "")

    def is_named(name: str, decision: Decision) -> bool:
        return name in rules.findings(decision.label or "")

    return {name: _mean_kappa(labelled, partial(is_named, name)) for name in sorted(names)}


def _mean_kappa(
    read_twice: Sequence[Question], answer_of: Callable[[Decision], Hashable]
) -> float | None:
    """Return the mean over pairs of readers of Cohen's kappa.

    Args:
        read_twice: the questions.
        answer_of: what to compare of a decision.

    Returns:
        None if no pair of readers has a kappa.
    """
    answers: dict[tuple[str, str], list[tuple[Hashable, Hashable]]] = defaultdict(list)
    for question in read_twice:
        by_reader = sorted(question.firm, key=lambda decision: decision.annotator)
        for first, second in combinations(by_reader, 2):
            pair = (answer_of(first), answer_of(second))
            answers[first.annotator, second.annotator].append(pair)
    kappas = []
    for pairs in answers.values():
        kappa = cohens_kappa(pairs)
        if kappa is not None:
            kappas.append(kappa)
    return sum(kappas) / len(kappas) if kappas else None


def cohens_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Return (p_o - p_e) / (1 - p_e): agreement of two readers beyond chance (Cohen, 1960).

    Args:
        pairs: the answers of the first and the second reader to each question.

    Returns:
        At most 1, and 0 for chance. None without pairs, or if both readers always give the same
        single answer, because agreement then cannot be distinguished from chance.
    """
    first_counts = Counter(first for first, _ in pairs)
    second_counts = Counter(second for _, second in pairs)
    if len({*first_counts, *second_counts}) <= 1:
        return None
    equal_count = sum(first == second for first, second in pairs)
    equal_by_chance = sum(first_counts[answer] * second_counts[answer] for answer in first_counts)
    observed = equal_count / len(pairs)
    expected = equal_by_chance / len(pairs) ** 2
    return (observed - expected) / (1 - expected)
