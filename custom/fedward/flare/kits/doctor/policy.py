"""Checks of a site's own policy, alone and against a job, rule by rule."""

import shlex
import stat
from pathlib import Path
from typing import Any

from nvflare.apis.job_def import ALL_SITES

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.flare.jobs.configurations import SERVER, described_in, experiment_in
from fedward.flare.kits.doctor.job import app_for, deployed
from fedward.flare.kits.doctor.rows import Row, broken, done, failed, skipped, unnamed, warning
from fedward.flare.kits.kit import Kit
from fedward.flare.kits.reading import read_json, reading
from fedward.flare.kits.scopes import read_scopes
from fedward.flare.privacy import adds_noise, default_scope
from fedward.methods import job_of, method_of
from fedward.nets.weights import find_file
from fedward.registry import extensions
from fedward.security.approvals import APPROVALS_FOLDER, Approvals
from fedward.security.policy import POLICY_FILE, Policy, read_policy
from fedward.security.policy_rules import (
    AppliedRule,
    Circumstances,
    applied_extension_rule,
    applied_rules,
)
from fedward.security.secret import SECRET_FILE, site_secret
from fedward.starting_model import Weights, first_model

POLICY_IN_KIT = f"local/{POLICY_FILE}"
"""A site's policy, within its kit."""


def check(kit: Kit, job_folder: Path | None) -> list[Row]:
    """Check a site's policy and, rule by rule, a job; a server's kit has no policy.

    Args:
        kit: the kit.
        job_folder: the job; None to look at the policy alone.
    """
    if kit.role != "site":
        return []
    file = kit.local / POLICY_FILE
    try:
        policy = read_policy(file)
    except ConfigError as error:
        return [broken("policy", error)]
    rows = [_policy_file(file, policy), _draws(kit, policy)]
    if job_folder:
        try:
            rows += _job(kit, policy, job_folder)
        except ConfigError as error:
            rows.append(broken("rules", error))
    return rows


def row_of(rule: AppliedRule) -> Row:
    """Return the row of one rule for a job."""
    if rule.kept:
        return done(rule.name, f"{rule.allowed}, {rule.asked}")
    return failed(
        rule.name,
        expected=rule.allowed,
        found=rule.asked,
        remedy=(
            f"The job is refused here. Ask for another one, or change the rule in {POLICY_IN_KIT}."
        ),
    )


def approvals(kit: Kit) -> Approvals:
    """Return what the site's administrator has approved.

    Raises:
        ConfigError: jobs run in containers, and nothing names the folder that the site keeps.
    """
    return Approvals(kit.state / APPROVALS_FOLDER)


def _policy_file(file: Path, policy: Policy) -> Row:
    """Check the file alone: that it is there, and who may change it."""
    if not file.exists():
        return warning(
            "policy",
            expected=POLICY_IN_KIT,
            found="no such file: the default of each rule holds",
            remedy="Copy the file from another kit, so that the rules can be seen here.",
        )
    mode = file.stat().st_mode
    if mode & stat.S_IWGRP:
        return warning(
            "policy",
            expected="a file that only its owner may write to",
            found=f"mode {stat.S_IMODE(mode):04o}: a group may change it",
            remedy=(
                f"chmod g-w {POLICY_IN_KIT}, unless all of the group may say what jobs run here."
            ),
        )
    default = Policy()
    changed = sorted(name for name, value in policy if value != getattr(default, name))
    if changed:
        return done("policy", f"{POLICY_IN_KIT}; not the default: {', '.join(changed)}")
    return done("policy", f"{POLICY_IN_KIT}; all rules as by default")


def _draws(kit: Kit, policy: Policy) -> Row:
    """Check what chooses the images of a training step: the rule, and the secret that it needs.

    A missing secret is not made here.
    """
    if policy.draws == "seed":
        return warning(
            "draws",
            expected="secret",
            found="seed: whoever knows a job can tell which images each step used",
            remedy=f"Set draws: secret in {POLICY_IN_KIT}, unless this is a test.",
        )
    try:
        state = kit.state
    except ConfigError as error:
        return unnamed("draws", error)
    file = state / SECRET_FILE
    if not file.is_symlink() and not file.exists():
        return done("draws", f"secret; {SECRET_FILE} is made at the first job")
    try:
        site_secret(state)
    except ConfigError as error:
        return broken("draws", error)
    return done("draws", f"secret; {SECRET_FILE} is its owner's alone")


def _job(kit: Kit, policy: Policy, folder: Path) -> list[Row]:
    try:
        meta = read_json(folder / "meta.json")
        app = app_for(kit, meta)
        if app is None:
            return []  # The check of the job has reported it.
        scopes = read_scopes(kit)
        scope = scopes.get_scope(str(meta.get("scope") or ""))
    except ConfigError:
        return [skipped("rules", "job or scopes cannot be read, see above")]
    config = folder / app / "config"
    with reading(f"job {folder}", "an experiment", "Ask for a job as `fedward jobs` exports it."):
        extension_rule = applied_extension_rule(policy, extensions(described_in(config)))
        if not extension_rule.kept:
            # Reading the experiment would import the package that the policy does not admit.
            others = skipped("rules", "the others: they need what the policy does not let in")
            return [row_of(extension_rule), others]
        experiment = experiment_in(config)
        named = set[str]().union(*deployed(meta).values())
        site_count = None if ALL_SITES in named else len(named - {"server"})
        weights = _weights_digest(folder, meta, experiment)
        circumstances = Circumstances(site_count, adds_noise(scope), weights)
    rows = []
    for rule in applied_rules(policy, experiment, job_of(experiment), circumstances):
        rows.append(row_of(rule))
    rows += _pretrained_weights(experiment)
    is_default = scope is None or scope.name == default_scope(scopes)
    rows.append(_approval(kit, policy, experiment, scope.name if scope else "", is_default))
    return rows


def _approval(
    kit: Kit, policy: Policy, experiment: Experiment, scope: str, is_default: bool
) -> Row:
    """Check whether a job is approved under its privacy scope.

    Args:
        kit: the site's.
        policy: the site's.
        experiment: the job's settings.
        scope: name of the scope under which it would run; empty for none.
        is_default: whether `fedward approve` takes this scope where none is named.
    """
    digest = experiment.digest
    if policy.approval == "none":
        return done("approval", f"not asked for; the job's digest is {digest}")
    try:
        kept = approvals(kit)
    except ConfigError as error:
        return unnamed("approval", error)
    try:
        approved = kept.entry(digest, scope).approved
    except ConfigError as error:
        return broken("approval", error)
    if approved:
        return done("approval", f"of job {digest}, {approved}")
    option = "" if is_default else f" --scope {shlex.quote(scope)}"
    return warning(
        "approval",
        expected=f"that of job {digest}",
        found="none",
        remedy=f"The job waits until it is approved: fedward approve KIT {digest}{option}",
    )


def _pretrained_weights(experiment: Experiment) -> list[Row]:
    """Look for the file of weights that a job's network starts from, if it names one."""
    pretrained = experiment.pretrained
    if isinstance(pretrained, bool):
        return []
    try:
        path = find_file(pretrained, f"weights {pretrained.file}")
    except ConfigError as error:
        return [broken("weights", error)]
    return [done("weights", f"{path}, as the job means it")]


def _weights_digest(folder: Path, meta: dict[str, Any], experiment: Experiment) -> str | None:
    """Return the SHA-256 of the model that a job starts from; None where it brings no weights."""
    for app in meta["deploy_map"]:
        file = folder / str(app) / "config" / SERVER
        if not file.is_file():
            continue
        init = read_json(file)["workflows"][0]["args"].get("init")
        if init:
            return first_model(experiment, method_of(experiment), Weights.of(file.parent, init))
    return None
