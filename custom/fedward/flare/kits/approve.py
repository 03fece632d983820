"""Approval of jobs by a site's administrator: list those that wait, approve one, withdraw it."""

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any

from nvflare.private.privacy_manager import PrivacyManager

from fedward.config import DataSpec, Experiment
from fedward.errors import ConfigError, together
from fedward.flare.kits.doctor.policy import approvals, row_of
from fedward.flare.kits.kit import open_kit
from fedward.flare.kits.scopes import SCOPES, read_scopes
from fedward.flare.privacy import default_scope
from fedward.methods import job_of
from fedward.runs.settings import all_settings, by_dotted_name
from fedward.security.approvals import APPROVALS_FOLDER, Entry
from fedward.security.policy import POLICY_FILE, Policy, read_policy
from fedward.security.policy_rules import Circumstances, applied_rules
from fedward.terminal import printable

_RULES_OF_A_REQUEST = ("minimum_sites", "noise", "starting_weights")
"""Rules that do not depend on a job's settings; a site checks them before it asks for approval."""

_WIDTH = 80
"""Columns of the table of settings."""

_INDENT = "    "
_GAP = "  "

_LONGEST_NAME = 26
"""Characters of a setting's name in the table; a longer one continues in the next line."""


def listed(folder: Path) -> Iterator[str]:
    """Yield lines about all jobs that a site's kit knows: age, settings, and result per rule.

    Raises:
        ConfigError: an entry is not trusted, which is said after the lines about the others; or the
            kit, its policy or the folder with the entries cannot be used.
    """
    kit = open_kit(folder, "site")
    policy = read_policy(kit.local / POLICY_FILE)
    entries, untrusted = approvals(kit).entries()
    for entry in entries:
        yield from _lines(entry, kit.state / APPROVALS_FOLDER / entry.file, policy)
    if untrusted:
        raise together(untrusted)
    if not entries:
        yield "no job is waiting or approved"


def approve(folder: Path, digest: str, scope: str | None = None) -> str:
    """Approve a job at a site under one of its privacy scopes; return a line that says so.

    Args:
        folder: the site's kit.
        digest: the job's.
        scope: name of the scope; by default the site's default scope, or its only one.

    Raises:
        ConfigError: the site has no such scope, or several and no default.
    """
    kit = open_kit(folder, "site")
    chosen_scope = _chosen(read_scopes(kit), scope)
    entry = approvals(kit).approve(digest, chosen_scope)
    under = f" under the privacy scope {printable(chosen_scope)}" if chosen_scope else ""
    if entry.asked:
        return f"job {digest} is approved{under}"
    return f"job {digest} is approved{under} in advance: it has not asked to run here yet"


def withdraw(folder: Path, digest: str, scope: str | None = None) -> str:
    """Withdraw an approval; return a line that says so. The arguments are those of approve."""
    kit = open_kit(folder, "site")
    chosen_scope = _chosen(read_scopes(kit), scope)
    approvals(kit).withdraw(digest, chosen_scope)
    under = f" under the privacy scope {printable(chosen_scope)}" if chosen_scope else ""
    return f"job {digest} is no longer approved{under}; it stops at its next request"


def _chosen(scopes: PrivacyManager, name: str | None) -> str:
    """Return the scope that an administrator names, or means by naming none; empty for none.

    What waits at the moment does not decide it: a lead could send the job again under another scope
    while the administrator reads the list.
    """
    names = list(scopes.name_to_scopes)
    if name is not None and name not in names:
        raise ConfigError(
            f"privacy scope {name!r:.80}",
            "Name the scope that `fedward approve KIT` shows for the job.",
            expected=f"one of {SCOPES}: {', '.join(names) or 'none is there'}",
            found="no such scope",
        )
    if name is None:
        name = default_scope(scopes)
    if name is None and names:
        raise ConfigError(
            f"privacy scope of the job: {SCOPES} has several and no default",
            f"Add --scope with the one that `fedward approve KIT` shows: {', '.join(names)}.",
        )
    return name or ""


def _lines(entry: Entry, file: Path, policy: Policy) -> Iterator[str]:
    yield f"job {entry.digest}"
    yield f"  approved {entry.approved}" if entry.approved else f"  waits since {entry.asked}"
    yield f"  privacy scope {printable(entry.scope)}" if entry.scope else "  no privacy scope"
    if entry.experiment is None:
        return
    try:
        experiment = Experiment.parse(entry.experiment, f"job {entry.digest}")
    except ConfigError:
        yield "  settings that this version of fedward does not have: the job cannot run here"
        return
    yield f"  method {experiment.method}, and what is not as by default:"
    yield from _table(differences(experiment))
    yield f"  all settings: {file}"
    for rule in applied_rules(policy, experiment, job_of(experiment), Circumstances()):
        if rule.name not in _RULES_OF_A_REQUEST:
            yield from row_of(rule).lines()


def differences(experiment: Experiment) -> list[tuple[str, str, str]]:
    """Return each setting of a clinical job that is not the default, as (name, value, default).

    Names are those that ``--set`` takes. Values are JSON, as one line. The default is that of the
    experiment or, for a setting of the method, the method's. It is empty where there is none, as
    for an entry of a mapping.
    """
    settings = _as_json(all_settings(experiment))
    defaults = _as_json(all_settings(_default_experiment(experiment)))
    fields = Experiment.model_fields
    defaults |= _as_json({name: fields[name].default for name in ("net", "trainable")})
    defaults |= _as_json(by_dotted_name({"data": DataSpec().model_dump(mode="json")}))
    return [
        (name, value, defaults.get(name, ""))
        for name, value in settings.items()
        if value != defaults.get(name)
    ]


def _default_experiment(experiment: Experiment) -> Experiment:
    """Return the method with all defaults for such images and such a network.

    Some of the defaults depend on images and network, so these are taken over.
    """
    given = experiment.model_dump(include={"method", "data", "net", "trainable"})
    return Experiment(**given, synthetic=None)  # A clinical job has no synthetic images.


def _as_json(values: Mapping[str, Any]) -> dict[str, str]:
    """Return name -> JSON of a value."""
    return {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}


def _table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the lines of three columns, 80 characters wide, with control characters written out."""
    header = ("setting", "this job", "default")
    cells = [tuple(map(printable, row)) for row in [header, *rows]]
    first = min(max(len(name) for name, *_ in cells), _LONGEST_NAME)
    other = (_WIDTH - len(_INDENT) - first - 2 * len(_GAP)) // 2
    widths = (first, other, other)
    for row in cells:
        columns = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for name, value, default in zip_longest(*columns, fillvalue=""):
            line = f"{_INDENT}{name:<{first}}{_GAP}{value:<{other}}{_GAP}{default}"
            yield line.rstrip()
