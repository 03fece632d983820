"""Answers that people gave before a run began: they count in it like labels of the site's data.

So labels that were bought in one job teach all later ones. A site notes them once for each run. A
run that is resumed therefore has the labels with which it began, and so have all processes that
train for it. What is answered later counts in the run that asked, and in later runs.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedward.client.labels import annotators_of, labels_in
from fedward.client.memory import site_answers
from fedward.client.site_data import DataSource
from fedward.sites import SiteData

_log = logging.getLogger(__name__)

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
        noted = _noted(data, site_file, source.folder / "memory", run)
        return _with_answers(data, noted, hidden_labels)

    return source.read(class_totals=class_totals, hidden_labels=hidden_labels, completed=completed)


def with_present_answers(data: SiteData, site_file: Path) -> SiteData:
    """Return a site's data as a run that begins now would read them.

    Raises:
        DataError: the queue cannot be read.
    """
    if data.annotation != "queue":
        return data
    return _with_answers(data, _present(data, site_file), hidden_labels=False)


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


def _noted(data: SiteData, site_file: Path, memory: Path, run: str) -> dict[str, Any]:
    """Return the answers that count in a run, and note them if the run has just begun."""
    records = site_answers(memory, run)
    with records.held():
        noted: dict[str, Any] | None = records.at(*_BEGINNING)
        if noted is None:
            noted = _present(data, site_file)
            if noted["labels"]:
                _log.info(
                    "site %s: %d answers that people gave before this run count as labels",
                    data.site,
                    len(noted["labels"]),
                )
            records.save(*_BEGINNING, noted)
    return noted


def _present(data: SiteData, site_file: Path) -> dict[str, Any]:
    """Return the answers of now to images without a label; log which cannot be used."""
    answers = annotators_of(data, site_file).answers(data.unlabelled.ids)
    for reason in answers.why_unusable:
        _log.warning("site %s: %s", data.site, reason)
    return {
        "labels": answers.labels,
        "refused": sorted(answers.refused),
        "cannot_tell": sorted(answers.cannot_tell),
    }
