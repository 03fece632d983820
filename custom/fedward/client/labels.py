"""Which labels a site may use in a run of active learning, and how it gets further ones.

For each exchange a site saves a record in its own folder: the images it asked about, and the labels
it had. The record is written before anybody is asked and again with the answers. So a round asked
for again has the labels it had, questions are asked once, and a killed process loses neither.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

from fedward.annotation import Queue, queue_of
from fedward.annotation.records import REFUSED
from fedward.client.memory import site_records
from fedward.errors import WorkError, listed
from fedward.label_kinds import kind_of_labels
from fedward.labels import Label
from fedward.security.questions import Query
from fedward.sites import SiteData

_log = logging.getLogger(__name__)

_NO_RECORD = (
    "site %s, round %d: no record of earlier questions of this run, so questions start again. "
    "If the site has taken part in it before, its folder was replaced: put the former one in its "
    "place."
)
_FEWER = (
    "site %s, round %d: %d labels are due, and people are asked for %d: the site's policy allows "
    "no more questions of all runs together (maximum_questions_in_all)."
)
_GONE = (
    "site %s, round %d: %d labels that it had before are gone from the queue, and train no more. "
    "If nobody took them back, the queue's file was replaced: put the former one in its place."
)
_MOST_SHOWN = 5
"""Unusable answers that a line of the log shows."""

Choose = Callable[[Sequence[str], int], Sequence[str]]
"""Maps ids and a number to that many of the ids, the most wanted first."""


@dataclass(frozen=True)
class Answers:
    """What came back for the images a site asked about."""

    labels: dict[str, Label] = field(default_factory=dict)
    """Usable labels, by id."""
    cannot_tell: frozenset[str] = frozenset()
    """Images that were looked at and got no class."""
    refused: frozenset[str] = frozenset()
    """Images among ``cannot_tell`` not to be trained on: unusable, or of none of the classes."""
    shared: int = 0
    """Images that got their answer with another image of the same lesion, at no further cost."""
    unusable: int = 0
    """Answers that are not a class of the job, or about images the site does not train on."""
    unasked: int = 0
    """Answers about unlabelled training images that this run has not asked about."""


@dataclass(frozen=True)
class Annotators:
    """Who gives labels."""

    known: dict[str, Label]
    """Labels that need no asking, by id."""
    pool: Sequence[str]
    """Ids of the training images that have a label or may get one."""
    answers: Callable[[Collection[str]], Answers] = lambda asked: Answers()
    """Returns what has been answered so far about the images asked about."""
    ask: Callable[[str, int, str, Sequence[str]], None] = lambda run, round_, strategy, ids: None
    """Asks, for a run, round and strategy, about images, the most wanted first.

    Asking for the same again changes nothing. It is called in each exchange, also without images: a
    run that asks is not over.
    """


def oracle_of(data: SiteData) -> Annotators:
    """Return the data's own labels, each of which is seen once it is asked for."""
    truth = labels_in(data)

    def answers(asked: Collection[str]) -> Answers:
        return Answers({name: truth[name] for name in asked})

    return Annotators({}, list(truth), answers)


def nobody_of(data: SiteData) -> Annotators:
    """Return the labels that the data hold; nobody adds to them."""
    labels = labels_in(data)
    return Annotators(labels, list(labels))


def people_of(data: SiteData, queue: Queue) -> Annotators:
    """Return the clinicians at a site, who answer through its queue.

    The labels in the site's data are known beforehand.
    """
    known_labels = labels_in(data)
    pool = [*data.labelled.ids, *data.unlabelled.ids]

    def ask(run: str, round_: int, strategy: str, ids: Sequence[str]) -> None:
        scores = [float(len(ids) - rank) for rank in range(len(ids))]
        new = queue.request(run, round_, strategy, ids, scores)
        if new:
            _log.info("site %s, round %d: %d images wait for an answer", data.site, round_, new)

    def answers(asked: Collection[str]) -> Answers:
        return _answers_in(queue, data, asked, frozenset(pool), known_labels.keys())

    return Annotators(known_labels, pool, answers, ask)


def _answers_in(
    queue: Queue,
    data: SiteData,
    asked: Collection[str],
    pool: Collection[str],
    labelled: Collection[str],
) -> Answers:
    """Return what a queue holds about images; answers that cannot be used are counted and logged.

    Args:
        queue: of the site.
        data: the site's.
        asked: images that this run has asked about.
        pool: all training images.
        labelled: training images with a label in the site's data.
    """
    rules = queue.rules
    verdicts = queue.verdicts(data.classes)
    given = {name: verdicts[name] for name in asked if name in verdicts}
    labels = dict[str, Label]()
    for name, verdict in given.items():
        if verdict.label is not None:
            names = rules.label_kind.split(verdict.label)
            labels[name] = rules.label_kind.encode(names, data.classes)
    all_labels = queue.labels()
    with_other_classes = []
    for name in asked:
        label = all_labels.get(name)
        if label and not rules.findings(label) <= {*data.classes}:
            with_other_classes.append(name)
    outside_pool = all_labels.keys() - pool
    if with_other_classes:
        texts = sorted({all_labels[name] for name in with_other_classes})
        _log.warning(
            "site %s: %d answers are not used: %s, where the job's classes are %s. "
            "Answer these images again.",
            data.site,
            len(with_other_classes),
            ", ".join(map(repr, texts[:_MOST_SHOWN])),
            listed(data.classes),
        )
    if outside_pool:
        _log.warning(
            "site %s: %d answers are not used: their images are no training images of the site "
            "file.",
            data.site,
            len(outside_pool),
        )
    questions = {rules.together(name) for name in given}
    return Answers(
        labels,
        cannot_tell=frozenset(given) - labels.keys(),
        refused=frozenset(name for name, verdict in given.items() if verdict.kind in REFUSED),
        shared=len(given) - len(questions),
        unusable=len(with_other_classes) + len(outside_pool),
        unasked=len((all_labels.keys() & pool) - set(asked) - set(labelled)),
    )


def annotators_of(data: SiteData, site_file: Path | None) -> Annotators:
    """Return who answers at a site, as its file says."""
    if data.annotation == "oracle":
        return oracle_of(data)
    if data.annotation == "queue" and site_file is not None:
        return people_of(data, queue_of(site_file, kind_of_labels(data.labelled.labels)))
    if len(data.unlabelled):
        _log.warning(
            "site %s: nobody is asked for the %d labels it lacks. "
            "Set `annotation: queue` in its file to ask people.",
            data.site,
            len(data.unlabelled),
        )
    return nobody_of(data)


def labels_in(data: SiteData) -> dict[str, Label]:
    """Return the labels of the training images by id, as JSON has them."""
    return dict(zip(data.labelled.ids, data.labelled.labels.tolist(), strict=True))


@dataclass(frozen=True)
class _Record:
    """What a site knows after an exchange, or in the middle of one."""

    asked: tuple[str, ...] = ()
    """All images asked about in the run, in order."""
    new: int = 0
    """Number of the last of them, those of this exchange."""
    labels: dict[str, Label] = field(default_factory=dict)
    """Labels that were answered, by id."""
    cannot_tell: int = 0
    """Number of images that were looked at and got no class."""
    refused: tuple[str, ...] = ()
    """Images that are not to be trained on."""
    shared: int = 0
    """As in :class:`Answers`."""
    unusable: int = 0
    """As in :class:`Answers`."""
    done: bool = False
    """Whether the answers have been taken."""

    @classmethod
    def read(cls, saved: Any) -> "_Record":
        """Return a record from its JSON; an empty one from None."""
        if not saved:
            return cls()
        asked = tuple(saved["asked"])
        refused = tuple(saved.get("refused", ()))
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
    """Labels by id, including those that were known beforehand."""
    counts: dict[str, int]
    """What is reported: the fields of :class:`~fedward.protocol.messages.LabelCounts`."""
    refused: tuple[str, ...]
    """Images that are not to be trained on."""
    answers: int
    """Number of answers that people gave: one for all images of a lesion."""


def bought(folder: Path, run: str, round_: int) -> dict[str, Label]:
    """Return the labels, by id, that a site bought in a run before a round.

    ``folder`` and ``run`` are as for :class:`~fedward.client.memory.Memory`.
    """
    return _Record.read(site_records(folder, run).before(round_, 0)).labels


class SiteLabels:
    """The labels one site may use in one run.

    Args:
        site: its name.
        annotators: who gives labels.
        folder: for the records of all runs.
        run: the run's id.
        wait: seconds that an exchange waits for answers at most.
        grant: says for how many of its labels a query may ask, before anybody is asked.
    """

    def __init__(
        self,
        site: str,
        annotators: Annotators,
        folder: Path,
        run: str,
        wait: float = 0.0,
        grant: Callable[[Query, int], int] = lambda query, labels: labels,
    ) -> None:
        self.annotators = annotators
        self._site = site
        self._run = run
        self._wait = wait
        self._grant = grant
        self._records = site_records(folder, run)

    def before(self, round_: int, part: int) -> dict[str, Label]:
        """Return the labels a site could use before an exchange."""
        return {**self.annotators.known, **self._record_before(round_, part).labels}

    def refused_before(self, round_: int, part: int) -> tuple[str, ...]:
        """Return the images that were not to be trained on before an exchange."""
        return self._record_before(round_, part).refused

    def taken_before(self, round_: int, part: int) -> int:
        """Return how many images had a label, or had been asked about, before an exchange."""
        return self._taken(self._record_before(round_, part))

    def free(self, round_: int, part: int) -> list[str]:
        """Return the ids of the pool without a label or a question before an exchange."""
        return self._free(self._record_before(round_, part))

    def _record_before(self, round_: int, part: int) -> _Record:
        return _Record.read(self._records.before(round_, part))

    def _taken(self, record: _Record) -> int:
        return len(self.annotators.known) + len(record.asked)

    def _free(self, record: _Record) -> list[str]:
        taken = {*self.annotators.known, *record.asked}
        return [name for name in self.annotators.pool if name not in taken]

    def renew(
        self,
        round_: int,
        part: int,
        wanted: int,
        strategy: str,
        choose: Choose,
        aborted: Callable[[], bool],
    ) -> Renewed:
        """Ask for labels until ``wanted`` were asked for in all, and take what has been answered.

        Args:
            round_, part: the exchange.
            wanted: labels the site is to have or have asked for after this exchange, including
                those it had before the run.
            strategy: how they are chosen, in a word.
            choose: called with the images that have not been asked about, unless the exchange was
                carried out before.
            aborted: asked while waiting.

        Raises:
            WorkError: aborted while waiting.
        """
        saved = self._records.at(round_, part)
        if saved is None:
            record = self._with_questions(round_, part, wanted, choose)
            self._records.save(round_, part, asdict(record))
        else:
            record = _Record.read(saved)
        if not record.done:
            self.annotators.ask(self._run, round_, strategy, record.newly_asked)
            answers = self._wait_for_answers(record, aborted)
            self._log_unused(round_, record, answers)
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
        return Renewed(
            labels={**self.annotators.known, **record.labels},
            counts=record.counts,
            refused=record.refused,
            answers=len(record.labels) + record.cannot_tell - record.shared,
        )

    def _with_questions(self, round_: int, part: int, wanted: int, choose: Choose) -> _Record:
        """Return the record of earlier exchanges with the questions of this one."""
        earlier = self._records.before(round_, part)
        if round_ > 1 and earlier is None:
            _log.warning(_NO_RECORD, self._site, round_)
        record = _Record.read(earlier)
        free = self._free(record)
        number = min(len(free), max(0, wanted - self._taken(record)))
        chosen = choose(free, number) if number else ()
        granted = self._grant(Query(self._run, round_, part), len(chosen))
        if granted < len(chosen):
            _log.warning(_FEWER, self._site, round_, len(chosen), granted)
            chosen = chosen[:granted]
        return replace(record, asked=(*record.asked, *chosen), new=len(chosen), done=False)

    def _wait_for_answers(self, record: _Record, aborted: Callable[[], bool]) -> Answers:
        """Return what has been answered once all new questions are, or the time is over."""
        new = set(record.newly_asked)
        end = monotonic() + self._wait if new else monotonic()
        while True:
            answers = self.annotators.answers(record.asked)
            unanswered = new - answers.labels.keys() - answers.cannot_tell
            if not unanswered or monotonic() >= end:
                return answers
            if aborted():
                raise WorkError(
                    f"site {self._site}: the run was aborted while waiting for labels",
                    "Questions and answers are kept.",
                )
            sleep(1.0)

    def _log_unused(self, round_: int, record: _Record, answers: Answers) -> None:
        """Log the labels that do not train: those that have gone, and those of other runs."""
        gone = record.labels.keys() - answers.labels.keys() - answers.cannot_tell
        if gone:
            _log.warning(_GONE, self._site, round_, len(gone))
        if answers.unasked:
            _log.info(
                "site %s, round %d: %d answers of earlier runs are not used by this one, unless it "
                "asks for them",
                self._site,
                round_,
                answers.unasked,
            )
