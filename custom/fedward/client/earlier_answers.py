"""Answers that people gave before a run began: they count in it like labels of the site's data.

So labels that were bought in one job teach all later ones. A site notes them once for each run. A
run that is resumed therefore has the labels with which it began, and so have all processes that
train for it. What is answered later counts in the run that asked, and in later runs.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedward.annotation.queue import Queue, has_queue, queue_of
from fedward.annotation.records import REFUSED, UNUSABLE
from fedward.client.labels import asked_in, labels_in, labels_of, verdicts_on
from fedward.client.memory import site_answers
from fedward.client.site_data import DataSource
from fedward.label_kinds import LabelKind, kind_of_labels
from fedward.sites import SiteData
from fedward.text import count

_log = logging.getLogger(__name__)

_NO_NOTE = (
    "site %s: the answers that this run began with are not noted, so the present ones count. "
    "If the site's folder was replaced, put the former one in its place."
)
_BEGINNING = (0, 0)
"""Round and exchange under which answers are noted: before the first ones of a run."""


def read_for_run(
    source: DataSource, run: str, *, class_totals: bool, hidden_labels: bool
) -> SiteData:
    """Return a site's data with what people had answered when a run began.

    Args:
        source: where the data come from. If the site's file does not say ``annotation: queue``,
            nobody's answers count.
        run: the run's id, 32 hexadecimal digits; empty: answers do not count.
        class_totals: as of :meth:`DataSource.read`.
        hidden_labels: as of :meth:`DataSource.read`. Of the answers only those count then by which
            images must not be trained on.

    Raises:
        ConfigError: as :meth:`DataSource.read`.
        DataError: the data or the queue of answers cannot be used.
        WireError: the id has another form.
    """

    def completed(data: SiteData, site_file: Path) -> SiteData:
        if not run or data.annotation != "queue":
            return data
        noted = _noted(source, data, site_file, run, hidden_labels)
        return _with_answers(data, noted, hidden_labels)

    return source.read(class_totals=class_totals, hidden_labels=hidden_labels, completed=completed)


def with_present_answers(data: SiteData, site_file: Path) -> SiteData:
    """Return a site's data as a run that begins now would read them.

    Raises:
        DataError: the queue cannot be read.
    """
    if data.annotation != "queue":
        return data
    return _with_answers(data, _present(data, site_file, frozenset()), hidden_labels=False)


def _with_answers(data: SiteData, answers: Mapping[str, Any], hidden_labels: bool) -> SiteData:
    """Return a site's data with answers: those to images that have no label in it."""
    unlabelled = set(data.unlabelled.ids)
    labels = {name: label for name, label in answers["labels"].items() if name in unlabelled}
    if labels and not hidden_labels:
        data = data.with_labels({**labels_in(data), **labels})
    return replace(
        data,
        refused=frozenset(answers["refused"]) & unlabelled,
        cannot_tell=frozenset(answers["cannot_tell"]) & unlabelled,
    )


def _noted(
    source: DataSource, data: SiteData, site_file: Path, run: str, hidden_labels: bool
) -> dict[str, Any]:
    """Return the answers that count in a run, and note them if the run has just begun."""
    memory = source.folder / "memory"
    records = site_answers(memory, run)
    with records.held():
        noted: dict[str, Any] | None = records.at(*_BEGINNING)
        if noted is None:
            if source.has_taken_part(run):
                _log.warning(_NO_NOTE, data.site)
            noted = _present(data, site_file, asked_in(memory, run))
            if noted["labels"] and not hidden_labels:
                _log.info(
                    "site %s: the labels include %s that people gave before this run",
                    data.site,
                    count(len(noted["labels"]), "answer"),
                )
            records.save(*_BEGINNING, noted)
    return noted


def _present(data: SiteData, site_file: Path, asked_in_run: Collection[str]) -> dict[str, Any]:
    """Return the answers of now to images without a label.

    Args:
        data: the site's.
        site_file: beside it lies the queue, if anybody has asked or answered yet.
        asked_in_run: images whose answers the run knows by its own questions.
    """
    present: dict[str, Any] = {"labels": {}, "refused": [], "cannot_tell": []}
    if not has_queue(site_file):
        return present
    label_kind = kind_of_labels(data.labelled.labels)
    queue = queue_of(site_file, label_kind)
    images = [name for name in data.unlabelled.ids if name not in asked_in_run]
    verdicts = verdicts_on(images, queue.verdicts(data.classes), queue.rules)
    present["labels"] = labels_of(verdicts, queue.rules, data.classes)
    is_about_these_classes = _is_about(queue, data.classes, label_kind)
    for name, verdict in sorted(verdicts.items()):
        # An image that is of none of some other classes may be of one of these.
        if verdict.label is None and (is_about_these_classes or verdict.kind == UNUSABLE):
            present["cannot_tell"].append(name)
            if verdict.kind in REFUSED:
                present["refused"].append(name)
    return present


def _is_about(queue: Queue, classes: Sequence[str], label_kind: LabelKind) -> bool:
    """Return whether people were asked for these classes, as far as a queue tells.

    It does not keep the classes of a question. Its labels name no other class then, and the newest
    run has asked for labels of this kind.
    """
    if queue.kind_asked() not in (None, label_kind):
        return False
    named = set[str]().union(*map(queue.rules.findings, queue.labels().values()))
    return named <= {*classes}
