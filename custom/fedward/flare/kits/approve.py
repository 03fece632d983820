"""What a site's administrator does about jobs that wait: looks at them, approves them, takes an
approval back.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any

from fedward.config import DataSpec, Experiment
from fedward.flare.kits.doctor.site_rules import approvals, row_of
from fedward.flare.kits.kit import open_kit
from fedward.methods import method_of, settings_of
from fedward.security.approvals import FOLDER, Entry
from fedward.security.policy import FILE, Circumstances, Policy, findings, read_policy
from fedward.terminal import printable

_OF_A_REQUEST = ("minimum_sites", "noise", "starting_weights")
"""Rules that a job's settings say nothing of; the site has checked them before it asked for
approval.
"""

_WIDTH = 80
_LONGEST_NAME = 26
"""Characters of a setting's name in the table; a longer one goes on in the next line."""


def listed(folder: Path) -> Iterator[str]:
    """Yield the lines that tell of all jobs a site's kit knows: since when, their settings, and
    what each rule says.
    """
    kit = open_kit(folder, "site")
    policy = read_policy(kit.local / FILE)
    entries = approvals(kit).entries()
    for entry in entries:
        yield from _lines(entry, policy)
    if not entries:
        yield "no job is waiting or approved"


def approve(folder: Path, digest: str) -> str:
    """Approve a job at a site, and say so."""
    entry = approvals(open_kit(folder, "site")).approve(digest)
    return f"job {digest} is approved" + (
        "" if entry.asked else " in advance: it has not asked to run here yet"
    )


def withdraw(folder: Path, digest: str) -> str:
    """Take an approval back, and say so."""
    approvals(open_kit(folder, "site")).withdraw(digest)
    return f"job {digest} is no longer approved; it stops at its next request"


def _lines(entry: Entry, policy: Policy) -> Iterator[str]:
    yield f"job {entry.digest}"
    yield f"  approved {entry.approved}" if entry.approved else f"  waits since {entry.asked}"
    if entry.experiment is None:
        return
    experiment = Experiment.parse(entry.experiment, f"job {entry.digest}")
    yield f"  method {experiment.method}, and what is not as by default:"
    yield from _table(differences(experiment))
    yield f"  all settings: {FOLDER}/{entry.digest}.json, in the site's own folder"
    for found in findings(policy, experiment, method_of(experiment), Circumstances()):
        if found.rule not in _OF_A_REQUEST:
            yield from row_of(found).lines()


def differences(experiment: Experiment) -> list[tuple[str, str, str]]:
    """Return each setting of a clinical job that is not the default, as (name, value, default).

    Names are those that ``--set`` takes. Values are JSON, as one line. A default is that of the
    experiment or, for a setting of the method, the method's. It is empty where there is none, as
    for an entry of a mapping.
    """
    asked = _flat(experiment)
    default = _flat(_usual(experiment))
    default |= dict(
        _leaves({name: Experiment.model_fields[name].default for name in ("net", "trainable")})
    )
    default |= dict(_leaves({"data": DataSpec().model_dump(mode="json")}))
    names = [name for name in asked if asked[name] != default.get(name)]
    return [(name, asked[name], default.get(name, "")) for name in names]


def _usual(experiment: Experiment) -> Experiment:
    """Return the method with all defaults on such images and such a network, on which some of the
    defaults hang.
    """
    given = experiment.model_dump(include={"method", "data", "net", "trainable"})
    return Experiment(**given, synthetic=None)  # of which a clinical job has none


def _flat(experiment: Experiment) -> dict[str, str]:
    """Return all settings by the names that ``--set`` takes, the method's own last."""
    settings = experiment.model_dump(mode="json", exclude={"options", "method"})
    options = settings_of(experiment.method, experiment.options).model_dump(mode="json")
    return dict(_leaves(settings)) | dict(_leaves(options))


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, ensure_ascii=False)


def _table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the lines of three columns, 80 characters wide, with control characters written out."""
    cells = [tuple(map(printable, row)) for row in [("setting", "this job", "default"), *rows]]
    first = min(max(len(name) for name, *_ in cells), _LONGEST_NAME)
    other = (_WIDTH - len("    ") - first - 2 * len("  ")) // 2
    for row in cells:
        columns = [
            wrap(cell, width) for cell, width in zip(row, (first, other, other), strict=True)
        ]
        for name, value, default in zip_longest(*columns, fillvalue=""):
            yield f"    {name:<{first}}  {value:<{other}}  {default}".rstrip()
