"""``fedward settings``: a job's settings beside its method's defaults and its paper's."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from fedward.config import Experiment
from fedward.jobs import JOBS, load_experiment
from fedward.methods import settings_of
from fedward.paper_jobs import PAPER_JOBS, SUFFIX
from fedward.terminal import shortened

_WIDTH = 80
"""Characters of a line, at most."""
_NO_VALUE = "-"
"""Shown where the experiment of a column has no such setting."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``settings``."""
    parser.set_defaults(command=_settings)
    parser.add_argument(
        "job", metavar="JOB", help=f"{', '.join(JOBS)}, a method's name, or a JSON file"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also the settings that are equal in all columns (default: those that differ)",
    )


def _settings(options: argparse.Namespace) -> int:
    columns = _columns(options.job)
    names = [name for values in columns.values() for name in values]
    rows = []
    for name in dict.fromkeys(names):
        texts = [_text(values.get(name, _NO_VALUE)) for values in columns.values()]
        if options.all or len(set(texts)) > 1:
            rows.append([name, *texts])
    for line in _table(["setting", *columns], rows):
        print(line)
    paper_job = PAPER_JOBS.get(options.job)
    if paper_job is not None:
        note = f"{paper_job.paper.citation}. Left open there: {paper_job.unprinted}."
        print()
        print("\n".join(wrap(note, _WIDTH)))
    return 0


def _columns(job: str) -> dict[str, dict[str, Any]]:
    """Return setting -> value for each column: the job, the default, and the paper if any."""
    experiment = load_experiment(job)
    # Some methods only train the head, which is never the default of an experiment.
    default = Experiment(method=experiment.method, trainable=experiment.trainable)
    columns = {"job": _values(experiment), "default": _values(default)}
    if job in PAPER_JOBS:
        columns["paper"] = _values(load_experiment(f"{job}{SUFFIX}"))
    return columns


def _values(experiment: Experiment) -> dict[str, Any]:
    """Return all settings, named as ``--set`` takes them."""
    fields = experiment.model_dump(mode="json", exclude={"options"})
    values = dict(_flat(fields))
    values |= settings_of(experiment.method, experiment.options).model_dump(mode="json")
    return values


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, with names joined by dots."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str:
    """Return a value as it is written in YAML, which is how ``--set`` reads it."""
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, one for each row; long values are cut to fit the width."""
    name_width = max(len(row[0]) for row in [head, *rows])
    value_width = (_WIDTH - name_width) // (len(head) - 1) - 1
    lines = []
    for name, *texts in [head, *rows]:
        cells = [shortened(text, value_width).ljust(value_width) for text in texts]
        lines.append(" ".join([name.ljust(name_width), *cells]).rstrip())
    return lines
