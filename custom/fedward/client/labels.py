"""Which labels a site may use in a run of active learning, and how it gets more of them.

For each exchange a site saves a record in its own folder: the images it asked about, and the labels
it had. The record is written before anybody is asked, and again with the answers. So a repeated
round has the labels that it had, a question is asked once, and a killed process loses neither. Of
several jobs that name one run at the same time, one chooses the images, and all have its answers.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

from fedward.annotation.queue import Queue, queue_of
from fedward.annotation.records import REFUSED, Decision
from fedward.annotation.rules import Rules
from fedward.client.askable import never_asked
from fedward.client.memory import site_records
from fedward.errors import WorkError, listed
from fedward.label_kinds import kind_of_labels
from fedward.labels import Label
from fedward.security.questions import Query
from fedward.sites import SiteData
from fedward.text import count

_log = logging.getLogger(__name__)

_NO_RECORD = (
    "site %s, round %d: no record of earlier questions of this run, so questions start again. "
    "If the site has taken part in it before, its folder was replaced: put the former one in its "
    "place."
)
_FEWER_GRANTED = (
    "site %s, round %d: the run wants %s, and people are asked for %d: the site's policy allows no "
    "more questions of all runs together (maximum_questions_in_all)."
)
_LABELS_GONE = (
    "site %s, round %d: the site no longer has %s that the run used before. If nobody took any "
    "back, the queue's file or images were replaced: put the former ones in their place."
)
_MOST_SHOWN = 5
"""The most unusable answers that a line of the log shows."""

Choose = Callable[[Sequence[str], int], Sequence[str]]
"""Maps ids and a number to that many of the ids, the most wanted first."""


@dataclass(frozen=True)
class Answers:
    """What annotators have answered about the images that a site asked about."""

    labels: dict[str, Label] = field(default_factory=dict)
    """Usable labels, by id."""
    cannot_tell: frozenset[str] = frozenset()
    """Images that somebody looked at without giving a class."""
    refused: frozenset[str] = frozenset()
    """Images among ``cannot_tell`` that must not be trained on: unusable, or of no class."""
    shared: int = 0
    """Number of images answered together with another one of the same lesion, at no extra cost."""
    unusable: int = 0
    """Number of answers with classes that are not the job's, or about images not trained on."""
    why_unusable: tuple[str, ...] = ()
    """Sentences on them for the site's log."""
    unasked: int = 0
    """Number of answers about unlabelled training images that this run has not asked about."""


@dataclass(frozen=True)
class Annotators:
    """Who gives labels."""

    labels_at_start: dict[str, Label]
    """Labels that the site has before it asks, by id."""
    pool: Sequence[str]
    """Ids of the training images that have a label or may get one."""
    answers: Callable[[Collection[str]], Answers] = lambda asked: Answers()
    """Returns what has been answered so far about the images asked about."""
    ask: Callable[[str, int, str, Sequence[str]], None] = lambda run, round_, strategy, ids: None
    """Asks, for a run, round and strategy, about images, the most wanted first.

    Asking about the same images again changes nothing. It is called in each exchange, even with no
    images, because the queue withdraws the questions of a run that no longer calls.
    """


def oracle_of(data: SiteData) -> Annotators:
    """Return annotators that reveal the data's own labels, each once it is asked for."""
    hidden_labels = labels_in(data)

    def answers(asked: Collection[str]) -> Answers:
        # An image asked about may be gone from the site, or not be readable at the moment.
        return Answers({name: hidden_labels[name] for name in asked if name in hidden_labels})

    return Annotators({}, list(hidden_labels), answers)


def nobody_of(data: SiteData) -> Annotators:
    """Return annotators that give no label beyond those in the data."""
    labels = labels_in(data)
    return Annotators(labels, list(labels))


def people_of(data: SiteData, queue: Queue) -> Annotators:
    """Return the clinicians at a site, who answer through its queue.

    The site has the labels in its data before it asks them.
    """
    labels_at_start = labels_in(data)
    train_ids = [*data.labelled.ids, *data.unlabelled.ids]
    pool = [name for name in train_ids if name not in data.cannot_tell]

    def ask(run: str, round_: int, strategy: str, ids: Sequence[str]) -> None:
        # The queue shows the highest score first, and ``ids`` begin with the most wanted image.
        scores = [float(len(ids) - rank) for rank in range(len(ids))]
        new_questions = queue.request(run, round_, strategy, ids, scores)
        if new_questions:
            images = count(new_questions, "image")
            _log.info("site %s, round %d: people are asked about %s", data.site, round_, images)

    def answers(asked: Collection[str]) -> Answers:
        return _answers_in(queue, data, asked, frozenset(train_ids), labels_at_start.keys())

    return Annotators(labels_at_start, pool, answers, ask)


def _answers_in(
    queue: Queue,
    data: SiteData,
    asked: Collection[str],
    train_ids: Collection[str],
    labelled: Collection[str],
) -> Answers:
    """Return the answers that a queue holds.

    Args:
        queue: the site's queue.
        data: the site's data.
        asked: ids of the images that this run has asked about.
        train_ids: ids of all training images.
        labelled: ids of the training images that have a label in the site's data.
    """
    classes = data.classes
    rules = queue.rules
    verdicts = queue.verdicts(classes)
    verdicts_asked_for = verdicts_on(asked, verdicts, rules)
    labels = labels_of(verdicts_asked_for, rules, classes)
    refused = {name for name, verdict in verdicts_asked_for.items() if verdict.kind in REFUSED}
    # Images of one lesion that are answered together are one question.
    questions = {rules.together(name) for name in verdicts_asked_for}

    texts = queue.labels()
    with_other_classes = []
    for name in asked:
        label = texts.get(name)
        if label and not rules.findings(label) <= set(classes):
            with_other_classes.append(label)
    not_trained_on = texts.keys() - train_ids
    usable = {name for name, verdict in verdicts.items() if verdict.label is not None}
    may_be_asked = set(train_ids).difference(asked, labelled)
    return Answers(
        labels,
        cannot_tell=frozenset(verdicts_asked_for) - labels.keys(),
        refused=frozenset(refused),
        shared=len(verdicts_asked_for) - len(questions),
        unusable=len(with_other_classes) + len(not_trained_on),
        why_unusable=_why_unusable(with_other_classes, classes, len(not_trained_on)),
        unasked=len(usable & may_be_asked),
    )


def _why_unusable(
    with_other_classes: Sequence[str], classes: Sequence[str], not_trained_on: int
) -> tuple[str, ...]:
    """Return the sentences of :attr:`Answers.why_unusable`.

    Args:
        with_other_classes: the answers with classes that are not the job's.
        classes: the job's.
        not_trained_on: number of the answers about images that are not trained on.
    """
    sentences = []
    if with_other_classes:
        shown = sorted(set(with_other_classes))[:_MOST_SHOWN]
        sentences.append(
            f"{count(len(with_other_classes), 'answer')} cannot be used: "
            f"{', '.join(map(repr, shown))}, where the job's classes are "
            f"{listed(classes)}. Answer with these instead."
        )
    if not_trained_on:
        sentences.append(
            f"{count(not_trained_on, 'answer')} cannot be used: the site file names no such "
            "training image."
        )
    return tuple(sentences)


def verdicts_on(
    images: Collection[str], verdicts: Mapping[str, Decision], rules: Rules
) -> dict[str, Decision]:
    """Return image -> the decision that counts, for those of some images that have one.

    A decision is about all images of its lesion, also those that nobody has asked about.

    Args:
        images: ids.
        verdicts: the queue's decisions (:meth:`~fedward.annotation.Queue.verdicts`).
        rules: the queue's.
    """
    verdict_of = {}
    for name in images:
        for image_of_lesion in rules.together(name):
            if image_of_lesion in verdicts:
                verdict_of[name] = verdicts[image_of_lesion]
    return verdict_of


def labels_of(
    verdicts: Mapping[str, Decision], rules: Rules, classes: Sequence[str]
) -> dict[str, Label]:
    """Return image -> its label as a number or a list, for decisions that are labels."""
    labels = {}
    for name, verdict in verdicts.items():
        if verdict.label is not None:
            class_names = rules.label_kind.split(verdict.label)
            labels[name] = rules.label_kind.encode(class_names, classes)
    return labels


def annotators_of(data: SiteData, site_file: Path | None) -> Annotators:
    """Return the annotators that a site's file names."""
    if data.annotation == "oracle":
        return oracle_of(data)
    if data.annotation == "queue" and site_file is not None:
        return people_of(data, queue_of(site_file, kind_of_labels(data.labelled.labels)))
    return nobody_of(data)


def warn_of_nobody(data: SiteData) -> None:
    """Log a warning where a site's file names nobody who gives the labels it lacks."""
    if data.annotation == "none" and len(data.unlabelled):
        _log.warning(
            "site %s: nobody is asked for the %s it lacks. "
            "Set `annotation: queue` in its file to ask people.",
            data.site,
            count(len(data.unlabelled), "label"),
        )


def labels_in(data: SiteData) -> dict[str, Label]:
    """Return the labels of the training images by id, as numbers or lists that JSON can hold."""
    return dict(zip(data.labelled.ids, data.labelled.labels.tolist(), strict=True))


@dataclass(frozen=True)
class _Record:
    """What a site saves of an exchange, before anybody is asked and again with the answers.

    Its fields are the keys in the file.
    """

    asked: tuple[str, ...] = ()
    """Ids of all images asked about in the run, in order."""
    new: int = 0
    """How many of them, at the end, this exchange has asked about."""
    labels: dict[str, Label] = field(default_factory=dict)
    """Labels that annotators gave, by id."""
    cannot_tell: int = 0
    """Number of images that somebody looked at without giving a class."""
    refused: tuple[str, ...] = ()
    """Ids of images that must not be trained on."""
    shared: int = 0
    """As in :class:`Answers`."""
    unusable: int = 0
    """As in :class:`Answers`."""
    done: bool = False
    """Whether the exchange has taken the answers."""

    @classmethod
    def read(cls, saved: Any) -> "_Record":
        """Return a record from its JSON value; an empty record from None."""
        if not saved:
            return cls()
        asked = tuple(saved["asked"])
        refused = tuple(saved["refused"])
        return cls(**{**saved, "asked": asked, "refused": refused})

    @property
    def newly_asked(self) -> tuple[str, ...]:
        """Images asked about in this exchange."""
        return self.asked[len(self.asked) - self.new :]

    @property
    def counts(self) -> dict[str, int]:
        """What is reported: the fields of :class:`~fedward.protocol.messages.LabelCounts`."""
        answered = len(self.labels) + self.cannot_tell
        return {
            "asked": self.new,
            "bought": len(self.labels),
            "waiting": max(0, len(self.asked) - answered),
            "cannot_tell": self.cannot_tell,
            "unusable": self.unusable,
        }


class Renewed(NamedTuple):
    """What a site may use after it has asked."""

    labels: dict[str, Label]
    """Labels by id, including those that the site had before it asked."""
    counts: dict[str, int]
    """What is reported: the fields of :class:`~fedward.protocol.messages.LabelCounts`."""
    refused: tuple[str, ...]
    """Ids of images that must not be trained on."""
    answers: int
    """Number of answers that people gave. One answer counts for all images of a lesion."""


def asked_in(folder: Path, run: str) -> frozenset[str]:
    """Return the ids of the images that a site has asked about in a run so far.

    ``folder`` and ``run`` are as for :class:`~fedward.client.memory.Memory`.
    """
    return frozenset(_Record.read(site_records(folder, run).newest()).asked)


def bought_labels(folder: Path, run: str, round_: int) -> dict[str, Label]:
    """Return the labels, by id, that annotators gave a site in a run before a round.

    ``folder`` and ``run`` are as for :class:`~fedward.client.memory.Memory`.
    """
    return _Record.read(site_records(folder, run).before(round_, 0)).labels


class SiteLabels:
    """The labels one site may use in one run.

    Args:
        site: its name.
        annotators: who gives labels.
        folder: holds the records of all runs.
        run: the run's id.
        wait: the most seconds that an exchange waits for answers.
        grant: called before anybody is asked, with the images that a query wants to ask about, the
            most wanted first; returns how many of them it may ask about.
    """

    def __init__(
        self,
        site: str,
        annotators: Annotators,
        folder: Path,
        run: str,
        wait: float = 0.0,
        grant: Callable[[Query, Sequence[str]], int] = lambda query, images: len(images),
    ) -> None:
        self.annotators = annotators
        self._site = site
        self._run = run
        self._wait = wait
        self._grant = grant
        self._records = site_records(folder, run)

    def is_first(self, round_: int, part: int) -> bool:
        """Return whether the site has no record of an exchange before this one of the run."""
        return not self._records.before(round_, part)

    def before(self, round_: int, part: int) -> dict[str, Label]:
        """Return the labels a site could use before an exchange."""
        return {**self.annotators.labels_at_start, **self._record_before(round_, part).labels}

    def refused_before(self, round_: int, part: int) -> tuple[str, ...]:
        """Return the ids of images that must not be trained on, as known before an exchange."""
        return self._record_before(round_, part).refused

    def taken_before(self, round_: int, part: int) -> int:
        """Return how many images had a label, or had been asked about, before an exchange."""
        return self._taken(self._record_before(round_, part))

    def askable_before(self, round_: int, part: int) -> list[str]:
        """Return the ids of the pool that had neither a label nor a question before an exchange."""
        return self._askable(self._record_before(round_, part))

    def _record_before(self, round_: int, part: int) -> _Record:
        return _Record.read(self._records.before(round_, part))

    def _taken(self, record: _Record) -> int:
        return len(self.annotators.labels_at_start) + len(record.asked)

    def _askable(self, record: _Record) -> list[str]:
        annotators = self.annotators
        return never_asked(annotators.pool, annotators.labels_at_start, record.asked)

    def renew(
        self,
        round_: int,
        part: int,
        wanted: int,
        strategy: str,
        choose: Choose,
        aborted: Callable[[], bool],
    ) -> Renewed:
        """Ask for labels until ``wanted`` have been asked for in all, and take the answers so far.

        Args:
            round_, part: the exchange.
            wanted: how many labels the site should have or have asked for after this exchange,
                including those that it had before the run.
            strategy: name of the sampler that chooses the images.
            choose: called with the images that have not been asked about, unless this exchange or
                a later one was carried out before. Other jobs of this run wait meanwhile.
            aborted: called while the site waits for answers; True ends the waiting.

        Raises:
            WorkError: aborted while waiting.
        """
        with self._records.held():
            saved = self._records.at(round_, part)
            if saved is None:
                record = self._with_questions(round_, part, wanted, choose)
                self._records.save(round_, part, asdict(record))
            else:
                record = _Record.read(saved)
        if not record.done:
            self.annotators.ask(self._run, round_, strategy, record.newly_asked)
            # People may need days. The records are not held while this job waits for them.
            answers = self._wait_for_answers(record, aborted)
            self._log_unused(round_, record, answers)
            record = self._with_answers(round_, part, record, answers)
        return Renewed(
            labels={**self.annotators.labels_at_start, **record.labels},
            counts=record.counts,
            refused=record.refused,
            answers=len(record.labels) + record.cannot_tell - record.shared,
        )

    def _with_answers(self, round_: int, part: int, record: _Record, answers: Answers) -> _Record:
        """Save an exchange's record with its answers, and return it.

        If another job of this run has saved answers in the meantime, those stand.
        """
        with self._records.held():
            saved = _Record.read(self._records.at(round_, part))
            if saved.done:
                return saved
            record = replace(
                record,
                labels=answers.labels,
                cannot_tell=len(answers.cannot_tell),
                refused=tuple(sorted(answers.refused)),
                shared=answers.shared,
                unusable=answers.unusable,
                done=True,
            )
            self._records.save(round_, part, asdict(record))
        return record

    def _with_questions(self, round_: int, part: int, wanted: int, choose: Choose) -> _Record:
        """Choose images to ask about, and return the earlier record with them added.

        An exchange before one that has a record asks about nothing new. It does not know what was
        asked after it, and would ask for more labels than the run may have.
        """
        earlier = self._records.before(round_, part)
        if round_ > 1 and earlier is None:
            _log.warning(_NO_RECORD, self._site, round_)
        record = _Record.read(earlier)
        askable = self._askable(record)
        number = min(len(askable), max(0, wanted - self._taken(record)))
        if not self._records.is_newest(round_, part):
            number = 0
        chosen = choose(askable, number) if number else ()
        granted = self._grant(Query(self._run, round_, part), chosen)
        if granted < len(chosen):
            wanted_labels = count(len(chosen), "label")
            _log.warning(_FEWER_GRANTED, self._site, round_, wanted_labels, granted)
            chosen = chosen[:granted]
        return replace(record, asked=(*record.asked, *chosen), new=len(chosen), done=False)

    def _wait_for_answers(self, record: _Record, aborted: Callable[[], bool]) -> Answers:
        """Wait until all new questions are answered or the time is over, and return all answers."""
        newly_asked = set(record.newly_asked)
        deadline = monotonic()
        if newly_asked:
            deadline += self._wait
        while True:
            answers = self.annotators.answers(record.asked)
            unanswered = newly_asked - answers.labels.keys() - answers.cannot_tell
            if not unanswered or monotonic() >= deadline:
                return answers
            if aborted():
                raise WorkError(
                    f"site {self._site}: the run was aborted while waiting for labels",
                    "Questions and answers are kept.",
                )
            sleep(1.0)

    def _log_unused(self, round_: int, record: _Record, answers: Answers) -> None:
        """Log which answers are not used: unusable ones, those gone, and new ones of other runs."""
        for reason in answers.why_unusable:
            _log.warning("site %s: %s", self._site, reason)
        labels_gone = record.labels.keys() - answers.labels.keys() - answers.cannot_tell
        if labels_gone:
            _log.warning(_LABELS_GONE, self._site, round_, count(len(labels_gone), "label"))
        if answers.unasked:
            _log.info(
                "site %s, round %d: %s came after this run had begun, to questions of "
                "other runs: it uses those that it asks for itself",
                self._site,
                round_,
                count(answers.unasked, "answer"),
            )
