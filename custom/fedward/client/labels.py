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
from fedward.security.questions import Query
from fedward.sites import SiteData
from fedward.sites.data import Label

_log = logging.getLogger(__name__)

_NO_RECORD = (
    "site %s, round %d: no record of earlier questions of this run, so they begin anew. If the site has "
    "taken part in it before, its folder was replaced: put the former one in its place."
)
_FEWER = (
    "site %s, round %d: %d labels are due, and people are asked for %d: the site's policy allows no more questions of "
    "all runs together (maximum_questions_in_all)."
)
Choose = Callable[[Sequence[str], int], Sequence[str]]
"""(ids, number) -> so many of the ids, the most wanted first."""


@dataclass(frozen=True)
class Answers:
    """What came back for the images a site asked about."""

    labels: dict[str, Label] = field(default_factory=dict)
    cannot_tell: frozenset[str] = frozenset()
    """Images that were looked at and got no class."""
    refused: frozenset[str] = frozenset()
    """Of these, the ones not to be trained on: unusable, or of none of the classes."""
    shared: int = 0
    """Images whose answer was given for another one too, of the same lesion: what they cost is
    counted there.
    """
    unusable: int = 0
    """Answers that are no class of the job, or about images that are none of the site's training
    images.
    """
    unasked: int = 0
    """Answers about training images without a label of their own that this run has not asked about.
    """


@dataclass(frozen=True)
class Annotators:
    """Who gives labels."""

    known: dict[str, Label]
    """Labels that need no asking, by id."""
    pool: Sequence[str]
    """Ids of the training images that have a label or may get one."""
    answers: Callable[[Collection[str]], Answers] = lambda asked: Answers()
    """Returns what is known by now of the images asked about."""
    ask: Callable[[str, int, str, Sequence[str]], None] = lambda run, round_, strategy, ids: None
    """Asks, for a run, round and strategy, about images, the most wanted first; asking again
    changes nothing. Called in each exchange, also with no images: a run that asks is not over."""


def oracle_of(data: SiteData) -> Annotators:
    """Return the data's own labels, each of which is seen once it is asked for."""
    truth = labels_in(data)
    return Annotators({}, list(truth), lambda asked: Answers({name: truth[name] for name in asked}))


def nobody_of(data: SiteData) -> Annotators:
    """Return the labels that the data hold, to which nobody adds."""
    known = labels_in(data)
    return Annotators(known, list(known))


def people_of(data: SiteData, queue: Queue) -> Annotators:
    """Return the clinicians at a site, who answer through its queue; its data's own labels are
    known beforehand.
    """
    rules = queue.rules
    known = labels_in(data)
    pool = [*data.labelled.ids, *data.unlabelled.ids]

    def ask(run: str, round_: int, strategy: str, ids: Sequence[str]) -> None:
        scores = [float(len(ids) - rank) for rank in range(len(ids))]
        new = queue.request(run, round_, strategy, ids, scores)
        if new:
            _log.info("site %s, round %d: %d images wait for an answer", data.site, round_, new)

    def label_of(text: str) -> Label:
        return rules.label_kind.encode(rules.label_kind.split(text), data.classes)

    def answers(asked: Collection[str]) -> Answers:
        """Return the usable labels; others are counted and logged."""
        verdicts = queue.verdicts(data.classes)
        anyhow = queue.labels()
        given = {name: verdicts[name] for name in asked if name in verdicts}
        labels = {
            name: label_of(said.label) for name, said in given.items() if said.label is not None
        }
        others = {
            label
            for name in asked
            if (label := anyhow.get(name)) and not rules.findings(label) <= {*data.classes}
        }
        strange = sorted(others)
        unusable = sum(anyhow.get(name) in strange for name in asked)
        foreign = len(set(anyhow) - set(pool))
        if strange:
            text = "site %s: %d answers are not used: %s, where the job's classes are %s. Answer these images again."
            _log.warning(
                text, data.site, unusable, ", ".join(map(repr, strange[:5])), listed(data.classes)
            )
        if foreign:
            text = "site %s: %d answers are not used: their images are no training images of the site file."
            _log.warning(text, data.site, foreign)
        unasked = len(set(anyhow) & set(pool) - set(asked) - set(known))
        refused = frozenset(name for name, said in given.items() if said.kind in REFUSED)
        shared = len(given) - len({rules.together(name) for name in given})
        return Answers(
            labels, frozenset(given) - set(labels), refused, shared, unusable + foreign, unasked
        )

    return Annotators(known, pool, answers, ask)


def annotators_of(data: SiteData, site_file: Path | None) -> Annotators:
    """Return who answers at a site, as its file says."""
    if data.annotation == "oracle":
        return oracle_of(data)
    if data.annotation == "queue" and site_file is not None:
        return people_of(data, queue_of(site_file, kind_of_labels(data.labelled.labels)))
    if len(data.unlabelled):
        text = "site %s: nobody is asked for the %d labels it lacks. Set `annotation: queue` in its file to ask people."
        _log.warning(text, data.site, len(data.unlabelled))
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
    """How many of them in this exchange, at the end."""
    labels: dict[str, Label] = field(default_factory=dict)
    cannot_tell: int = 0
    refused: tuple[str, ...] = ()
    """Images of these that are not to be trained on."""
    shared: int = 0
    unusable: int = 0
    done: bool = False
    """Whether the answers are in."""

    @classmethod
    def of(cls, raw: Any) -> "_Record":
        return (
            cls(**{**raw, "asked": tuple(raw["asked"]), "refused": tuple(raw.get("refused", ()))})
            if raw
            else cls()
        )


class Renewed(NamedTuple):
    """What a site may use after it has asked."""

    labels: dict[str, Label]
    """By id, the ones known beforehand among them."""
    counts: dict[str, int]
    """What is reported: the fields of ``messages.LabelCounts``."""
    refused: tuple[str, ...]
    """Images that are not to be trained on."""
    answers: int
    """How many answers it took: one for all images of a lesion."""


def bought(folder: Path, run: str, round_: int) -> dict[str, Label]:
    """Return the labels, by id, that a site bought in a run before a round; arguments as of Memory."""
    return _Record.of(site_records(folder, run).before(round_, 0)).labels


class SiteLabels:
    """The labels one site may use in one run.

    ``folder`` is for the records of all runs. An exchange waits at most ``wait`` seconds for
    answers. ``grant`` says for how many of its labels a query may ask, before anybody is asked.
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
        return {**self.annotators.known, **_Record.of(self._records.before(round_, part)).labels}

    def refused_before(self, round_: int, part: int) -> tuple[str, ...]:
        """Return the images that were not to be trained on before an exchange."""
        return _Record.of(self._records.before(round_, part)).refused

    def taken_before(self, round_: int, part: int) -> int:
        """Return for how many images the site had a label, or had asked for one, before an
        exchange.
        """
        return len(self.annotators.known) + len(
            _Record.of(self._records.before(round_, part)).asked
        )

    def free(self, round_: int, part: int) -> list[str]:
        """Return ids of the pool that had no label and had not been asked about before an exchange."""
        return self._free(_Record.of(self._records.before(round_, part)))

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
            wanted: labels the site is to have or have asked for by now, those before the run among
                them.
            strategy: how they are chosen, in a word.
            choose: called with what has not been asked about, unless the exchange was carried out
                before.
            aborted: asked while waiting.

        Raises:
            WorkError: aborted while waiting.
        """
        saved = self._records.at(round_, part)
        earlier = saved or self._records.before(round_, part)
        record = _Record.of(earlier)
        if saved is None:
            if round_ > 1 and earlier is None:
                _log.warning(_NO_RECORD, self._site, round_)
            free = self._free(record)
            taken = len(self.annotators.known) + len(record.asked)
            budget = min(len(free), max(0, wanted - taken))
            chosen = choose(free, budget) if budget else ()
            may = self._grant(Query(self._run, round_, part), len(chosen))
            if may < len(chosen):
                _log.warning(_FEWER, self._site, round_, len(chosen), may)
                chosen = chosen[:may]
            record = replace(record, asked=(*record.asked, *chosen), new=len(chosen), done=False)
            self._records.save(round_, part, asdict(record))
        if not record.done:
            new = record.asked[len(record.asked) - record.new :]
            self.annotators.ask(self._run, round_, strategy, new)
            answers = self._answers(record, set(new), aborted)
            self._log_unused(round_, record, answers)
            undecided = len(answers.cannot_tell)
            unusable = answers.unusable
            record = replace(
                record, labels=answers.labels, cannot_tell=undecided, unusable=unusable, done=True
            )
            record = replace(record, refused=tuple(sorted(answers.refused)), shared=answers.shared)
            self._records.save(round_, part, asdict(record))
        counts = {"asked": record.new, "bought": len(record.labels)}
        counts |= {"cannot_tell": record.cannot_tell, "unusable": record.unusable}
        counts["waiting"] = max(0, len(record.asked) - len(record.labels) - record.cannot_tell)
        given = len(record.labels) + record.cannot_tell - record.shared
        return Renewed({**self.annotators.known, **record.labels}, counts, record.refused, given)

    def _answers(self, record: _Record, new: set[str], aborted: Callable[[], bool]) -> Answers:
        """Return what has been answered, once all that is new has been, or the time for waiting is
        over.
        """
        ends = monotonic() + self._wait * bool(new)
        while True:
            answers = self.annotators.answers(record.asked)
            if not new - set(answers.labels) - answers.cannot_tell or monotonic() >= ends:
                return answers
            if aborted():
                where = f"site {self._site}, waiting for labels"
                remedy = "Questions and answers are kept."
                raise WorkError(where, expected="answers", found="an abort", remedy=remedy)
            sleep(1.0)

    def _log_unused(self, round_: int, record: _Record, answers: Answers) -> None:
        """Log which labels do not train: those of the round before that are gone, and those of
        other runs.
        """
        gone = set(record.labels) - set(answers.labels) - answers.cannot_tell
        if gone:
            _log.warning(
                "site %s, round %d: %d labels that it had before are gone from the queue, and train no more. "
                "If nobody took them back, the queue's file was replaced: put the former one in its place.",
                self._site,
                round_,
                len(gone),
            )
        if answers.unasked:
            text = "site %s, round %d: %d answers of earlier runs are not used by this one, unless it asks for them"
            _log.info(text, self._site, round_, answers.unasked)
