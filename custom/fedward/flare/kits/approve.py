"""What a site's administrator does about jobs that wait: looks at them, approves them, takes an approval back."""

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from fedward.config import Experiment
from fedward.flare.kits.doctor.site_rules import approvals, row_of
from fedward.flare.kits.kit import open_kit
from fedward.methods import method_of
from fedward.security.approvals import Entry
from fedward.security.policy import FILE, Circumstances, Policy, findings, read_policy

_OF_A_REQUEST = ("minimum_sites", "noise", "starting_weights")
"""Rules that a job's settings say nothing of; the site has checked them before it asked for approval."""


def listed(folder: Path) -> Iterator[str]:
    """Yield the lines that tell of all jobs a site's kit knows: since when, their settings, and what each rule says."""
    kit = open_kit(folder, "site")
    policy, entries = read_policy(kit.local / FILE), approvals(kit).entries()
    for entry in entries:
        yield from _lines(entry, policy)
    if not entries:
        yield "no job is waiting or approved"


def approve(folder: Path, digest: str) -> str:
    """Approve a job at a site, and say so."""
    entry = approvals(open_kit(folder, "site")).approve(digest)
    return f"job {digest} is approved" + ("" if entry.asked else " in advance: it has not asked to run here yet")


def withdraw(folder: Path, digest: str) -> str:
    """Take an approval back, and say so."""
    approvals(open_kit(folder, "site")).withdraw(digest)
    return f"job {digest} is no longer approved; it stops at its next request"


def _lines(entry: Entry, policy: Policy) -> Iterator[str]:
    yield f"job {entry.digest}"
    yield f"  approved {entry.approved}" if entry.approved else f"  waits since {entry.asked}"
    if entry.experiment is None:
        return
    # As JSON, which shows control characters instead of sending them to a terminal.
    yield from wrap(json.dumps(entry.experiment), 80, initial_indent="  ", subsequent_indent="  ")
    experiment = Experiment.parse(entry.experiment, f"job {entry.digest}")
    for found in findings(policy, experiment, method_of(experiment), Circumstances()):
        if found.rule not in _OF_A_REQUEST:
            yield from row_of(found).lines()
