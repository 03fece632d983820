"""Checks of a site's own policy, alone and against a job, rule by rule."""

import stat
from pathlib import Path
from typing import Any

from nvflare.apis.job_def import ALL_SITES

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.flare.jobs.configurations import SERVER, described_in, experiment_in
from fedward.flare.kits.doctor.job import app_of
from fedward.flare.kits.doctor.policy import scopes
from fedward.flare.kits.doctor.rows import Row, broken, done, failed, skipped, warning
from fedward.flare.kits.kit import Kit, read_json, reading
from fedward.flare.privacy import adds_noise
from fedward.methods import method_of
from fedward.nets.weights import find_file
from fedward.registry import extensions
from fedward.security.approvals import FOLDER, Approvals
from fedward.security.policy import (
    FILE,
    Circumstances,
    Finding,
    Policy,
    extension_finding,
    findings,
    read_policy,
)
from fedward.security.secret import FILE as SECRET
from fedward.security.secret import site_secret
from fedward.starting_model import Weights, first_model

RULES = f"local/{FILE}"


def check(kit: Kit, job: Path | None) -> list[Row]:
    """Return what the policy says of itself and, rule by rule, of a job; nothing for a server's
    kit.
    """
    if kit.role != "site":
        return []
    rows = []
    try:
        policy = read_policy(kit.local / FILE)
        rows += [_file(kit.local / FILE, policy), _draws(kit, policy)]
        return rows + _job(kit, policy, job) if job else rows
    except ConfigError as error:
        return [*rows, broken("rules" if rows else "policy", error)]


def row_of(found: Finding) -> Row:
    """Return the row of one rule and a job."""
    if found.kept:
        return done(found.rule, f"{found.allowed}, {found.asked}")
    remedy = f"The job is refused here. Ask for another one, or change the rule in {RULES}."
    return failed(found.rule, expected=found.allowed, found=found.asked, remedy=remedy)


def approvals(kit: Kit) -> Approvals:
    """Return what the site's administrator has approved."""
    return Approvals(kit.state / FOLDER)


def _file(file: Path, policy: Policy) -> Row:
    own = sorted(name for name, value in policy if value != getattr(Policy(), name))
    if not file.exists():
        remedy = "Copy the file from another kit, so that the rules can be seen here."
        return warning(
            "policy",
            expected=RULES,
            found="no such file: the default of each rule holds",
            remedy=remedy,
        )
    if file.stat().st_mode & stat.S_IWGRP:
        remedy = f"chmod g-w {RULES}, unless all of the group may say what jobs run here."
        return warning(
            "policy",
            expected="a file of its owner",
            found="one that a group may change",
            remedy=remedy,
        )
    return done(
        "policy",
        f"{RULES}; {'not the default: ' + ', '.join(own) if own else 'all rules as by default'}",
    )


def _draws(kit: Kit, policy: Policy) -> Row:
    """Look at what chooses the images of a step; the secret is not made here."""
    if policy.draws == "seed":
        remedy = f"Set draws: secret in {RULES}, unless this is a test."
        found = "seed: whoever knows a job knows which images each step was of"
        return warning("draws", expected="secret", found=found, remedy=remedy)
    file = kit.state / SECRET
    if not file.is_symlink() and not file.exists():
        return done("draws", f"secret; {SECRET} is made at the first job")
    try:
        site_secret(kit.state)
    except ConfigError as error:
        return broken("draws", error)
    return done("draws", f"secret; {SECRET} is its owner's alone")


def _job(kit: Kit, policy: Policy, folder: Path) -> list[Row]:
    try:
        meta = read_json(folder / "meta.json")
        app = app_of(kit, meta)
        if app is None:
            return []  # said already
        noise = adds_noise(scopes(kit).get_scope(str(meta.get("scope") or "")))
    except ConfigError:
        return [skipped("rules", "job or scopes cannot be read, see above")]
    with reading(f"job {folder}", "an experiment", "Ask for a job as `fedward jobs` exports it."):
        asked = extension_finding(policy, extensions(described_in(folder / app / "config")))
        if not asked.kept:  # to look further would import what is refused
            return [
                row_of(asked),
                skipped("rules", "the others: they need what the policy does not let in"),
            ]
        experiment = experiment_in(folder / app / "config")
        named = {str(site) for places in meta["deploy_map"].values() for site in places}
        sites = None if ALL_SITES in named else len(named - {"server"})
        known = Circumstances(sites, noise, _weights(folder, meta, experiment))
    rules = findings(policy, experiment, method_of(experiment), known)
    return [*map(row_of, rules), *_weights_here(experiment), _approval(kit, policy, experiment)]


def _approval(kit: Kit, policy: Policy, experiment: Experiment) -> Row:
    digest = experiment.digest
    if policy.approval == "none":
        return done("approval", f"not asked for; the job's digest is {digest}")
    when = approvals(kit).entry(digest).approved
    if when:
        return done("approval", f"of job {digest}, {when}")
    remedy = f"The job waits until it is approved: fedward approve KIT {digest}"
    return warning("approval", expected=f"that of job {digest}", found="none", remedy=remedy)


def _weights_here(experiment: Experiment) -> list[Row]:
    """Look for the file of weights that a job's network begins with; nothing where it names none."""
    given = experiment.pretrained
    if isinstance(given, bool):
        return []
    try:
        return [
            done("weights", f"{find_file(given, f'weights {given.file}')}, as the job means it")
        ]
    except ConfigError as error:
        return [broken("weights", error)]


def _weights(folder: Path, meta: dict[str, Any], experiment: Experiment) -> str | None:
    """Return the SHA-256 of the first model that a job's weights make; None where it brings none."""
    for app in meta["deploy_map"]:
        file = folder / str(app) / "config" / SERVER
        if file.is_file() and (init := read_json(file)["workflows"][0]["args"].get("init")):
            return first_model(experiment, Weights.of(file.parent, init))
    return None
