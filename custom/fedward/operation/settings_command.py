"""``fedward settings``: a job's settings beside its defaults and its paper's, and all there are."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from fedward.config import Experiment
from fedward.jobs import JOBS, load_experiment
from fedward.operation.settings_list import Group, all_groups, as_text, groups_of
from fedward.paper_jobs import PAPER_JOBS, SUFFIX
from fedward.runs.settings import all_settings
from fedward.terminal import columns, fold, shortened

_WIDTH = 80
"""Characters of a line, at most."""
_NO_VALUE = "-"
"""Shown where the experiment of a column has no such setting."""
SHOWN_WHOLE = ("data.titles", "data.card", "sampler_options")
"""Settings whose names are the user's own or a sampler's, so that each is one value."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``settings``."""
    parser.set_defaults(command=_settings)
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help=f"{', '.join(JOBS)}, a method's name, or a JSON file "
        "(default: describe the settings of all methods)",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="in the table, also the settings that are equal in all columns "
        "(default: those that differ)",
    )


def _settings(options: argparse.Namespace) -> int:
    if options.job is None:
        _describe(all_groups(), {})
        return 0
    _compare(options)
    experiment = load_experiment(options.job)
    print()
    texts = {key: as_text(value) for key, value in all_settings(experiment, SHOWN_WHOLE).items()}
    _describe(groups_of(experiment.method), texts)
    return 0


def _describe(groups: Sequence[Group], values: Mapping[str, str]) -> None:
    """Print every setting with its type, range, default and meaning.

    Args:
        groups: the settings.
        values: key -> the job's value, which is shown where it is not the default.
    """
    width = columns()
    for number, group in enumerate(groups):
        print("\n" * (number > 0) + "\n".join(fold(group.title, width)))
        for setting in group.settings:
            facts = [setting.values]
            if setting.default:
                facts.append(f"default {setting.default}")
            of_job = values.get(setting.key, setting.default)
            if of_job != setting.default:
                facts.append(f"in this job {of_job}")
            head = f"{setting.key}: {'; '.join(facts)}"
            print("\n".join(fold(head, width, "  ", 8 * " ")))
            for line in fold(setting.about, width - 6):
                print(f"      {line}")


def _compare(options: argparse.Namespace) -> None:
    """Print the table of the settings that differ, and what the paper leaves open."""
    experiments = _columns(options.job)
    names = [name for values in experiments.values() for name in values]
    rows = []
    for name in dict.fromkeys(names):
        texts = [as_text(values.get(name, _NO_VALUE)) for values in experiments.values()]
        if options.all or len(set(texts)) > 1:
            rows.append([name, *texts])
    for line in _table(["setting", *experiments], rows):
        print(line)
    paper_job = PAPER_JOBS.get(options.job)
    if paper_job is not None:
        note = f"{paper_job.paper.citation}. Left open there: {paper_job.unprinted}."
        print()
        print("\n".join(fold(note)))


def _columns(job: str) -> dict[str, dict[str, Any]]:
    """Return setting -> value for each column: the job, the default, and the paper if any."""
    experiment = load_experiment(job)
    # Some methods only train the head, which is never the default of an experiment.
    default = Experiment(method=experiment.method, trainable=experiment.trainable)
    columns = {
        "job": all_settings(experiment, SHOWN_WHOLE),
        "default": all_settings(default, SHOWN_WHOLE),
    }
    if job in PAPER_JOBS:
        columns["paper"] = all_settings(load_experiment(f"{job}{SUFFIX}"), SHOWN_WHOLE)
    return columns


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, one for each row; long values are cut to fit the width."""
    name_width = max(len(row[0]) for row in [head, *rows])
    value_width = (_WIDTH - name_width) // (len(head) - 1) - 1
    lines = []
    for name, *texts in [head, *rows]:
        cells = [shortened(text, value_width).ljust(value_width) for text in texts]
        lines.append(" ".join([name.ljust(name_width), *cells]).rstrip())
    return lines
