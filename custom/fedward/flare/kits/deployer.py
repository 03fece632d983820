"""The deployment of a job's app at a participant, and what the server checks at its submission.

The app is unpacked in a staging folder, checked there as a whole, and only then moved to the folder
from which it runs.

FLARE 2.9 unpacks an app where it will run, checks it there, and deletes it if a check refuses it.
If a step raises an exception, nothing is deleted, and a stranger's files stay on a path from which
FLARE's processes import.

What a job asks of resource managers is checked when the server receives the job, so that its lead
reads a refusal at once, and again at the deployment.
"""

import copy
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.fl_constant import AdminCommandNames, SiteType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace
from nvflare.fuel.sec.authz import AuthorizationService, AuthzContext, Person
from nvflare.fuel.utils.zip_utils import unzip_all_from_bytes
from nvflare.lighter.utils import verify_folder_signature_and_get_signers
from nvflare.private.defs import TrainingTopic
from nvflare.private.fed.server.job_cmds import CLONED_META_KEYS
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.private.fed.utils.app_deployer import AppDeployer
from nvflare.private.privacy_manager import PrivacyService

from fedward.errors import ConfigError
from fedward.flare.gate.names import is_job_id
from fedward.flare.gate.refusals import refusals
from fedward.flare.kits.app_check import check_archive, refused
from fedward.flare.kits.resource_check import check_job

_STAGING_PREFIX = ".deploy-"
"""Beginning of the names of folders in which apps are unpacked."""

_ID_LENGTH = len(str(UUID(int=0)))
"""Characters of a job's id.

The name of a staging folder has the same length. A path that is short enough for the system in one
of the two folders is then short enough in the other."""

_SUBMITTER_ROLES = {"lead", "project_admin"}
"""Roles of the people who may sign a job's app."""

_deployment_lock = threading.Lock()
"""Held during a deployment, because each one removes all staging folders that it finds."""


_ORIGINAL_VALIDATE_RESOURCE = JobMetaValidator._validate_resource
"""FLARE's own function, which :func:`install` replaces and the replacement calls."""


def install() -> None:
    """Replace what FLARE calls to deploy an app, and to check the resources of a submitted job.

    It deploys apps at the server and the sites, and checks submitted jobs at the server. A copy
    that ``clone_job`` makes of a job keeps its privacy scope, without which every site refuses it.
    """
    AppDeployer.deploy = deploy
    JobMetaValidator._validate_resource = staticmethod(_validate_resource)
    CLONED_META_KEYS.add(JobMetaKey.SCOPE.value)


def _validate_resource(job_name: str, meta: dict[str, Any]) -> None:
    """Replace ``JobMetaValidator._validate_resource``, which leaves memory and more unchecked.

    Raises:
        ValueError: the job asks for resources that no site accepts. FLARE shows it to the lead.
    """
    try:
        check_job(meta)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    _ORIGINAL_VALIDATE_RESOURCE(job_name, meta)


def deploy(
    _: AppDeployer,
    workspace: Workspace,
    job_id: str,
    job_meta: dict[str, Any],
    app_name: str,
    app_data: bytes,
    fl_ctx: FLContext,
) -> str:
    """Replace ``AppDeployer.deploy``: put a job's app in place, or return why it is refused.

    Whatever goes wrong, no file of the app is left. A refusal is written into the audit log, with
    the job's submitter. Of an unexpected error only the kind is returned: the server and the lead
    read it, and its text may name folders of this participant.

    Args:
        workspace: the participant's workspace.
        job_id: the job's id. A job whose folder exists already is refused.
        job_meta: what FLARE knows about the job.
        app_name: the name that the job gives to the app.
        app_data: the app, zipped and signed by a lead or a project admin.
        fl_ctx: not used.

    Returns:
        Why the app is refused; empty if it is in place.
    """
    try:
        with _deployment_lock:
            _put_in_place(workspace, job_id, job_meta, app_name, app_data)
    except (ConfigError, _RefusedByFlareError) as error:
        problem = answer = str(error)
    except Exception as error:
        kind = type(error).__name__
        problem = f"app: {kind}: {error}"
        answer = f"app: {kind}; the details are in the audit log of {workspace.site_name}"
    else:
        return ""
    # The caller's meta may be malformed too: that must not keep the refusal out of the audit log.
    submitter = job_meta.get(JobMetaKey.SUBMITTER_NAME) if isinstance(job_meta, dict) else None
    refusals.note("server", TrainingTopic.DEPLOY, problem, str(submitter or "nobody"))
    return answer


def _put_in_place(
    workspace: Workspace, job_id: str, job_meta: dict[str, Any], app_name: str, app_data: bytes
) -> None:
    """Check a job's app and move it to the job's folder.

    Args:
        workspace: as in :func:`deploy`, like the other arguments.

    Raises:
        ConfigError: fedward refuses the app.
        _RefusedByFlareError: FLARE refuses the app.
    """
    if not is_job_id(job_id):
        raise refused("job", "an id as FLARE makes them", repr(job_id))
    scope = job_meta.get(JobMetaKey.SCOPE, "")
    if not PrivacyService.is_scope_allowed(scope):
        raise _RefusedByFlareError(f"privacy scope '{scope}' is not allowed")
    check_job(job_meta)
    check_archive(app_data, "server" if workspace.site_name == SiteType.SERVER else "site")
    job_folder = Path(workspace.get_run_dir(job_id))
    if job_folder.exists():
        raise refused(f"job {job_id}", "a new one", "one that is here already")
    with _staging_folder(Path(workspace.get_root_dir())) as staging:
        app_folder = staging / Path(workspace.get_app_dir(job_id)).relative_to(job_folder)
        app_folder.mkdir(parents=True)
        unzip_all_from_bytes(app_data, str(app_folder))
        meta = _checked_meta(workspace, app_folder, job_meta)
        (staging / "fl_app.txt").write_text(app_name, encoding="utf-8")
        meta_file = Path(workspace.get_job_meta_path(job_id)).relative_to(job_folder)
        (staging / meta_file).write_text(json.dumps(meta, indent=4), encoding="utf-8")
        os.rename(staging, job_folder)  # Fails if another process has filled that folder by then.


def _checked_meta(
    workspace: Workspace, app_folder: Path, job_meta: dict[str, Any]
) -> dict[str, Any]:
    """Check an app's signature, its content and its signers' rights.

    Returns:
        The job's meta, with which FLARE then runs the job.

    Raises:
        ConfigError: the app is not signed, or not by people who may submit jobs.
        _RefusedByFlareError: FLARE's own checks refuse the app or one of its signers.
    """
    root_certificate = workspace.get_file_path_in_startup("rootCA.pem")
    verified, signers = verify_folder_signature_and_get_signers(str(app_folder), root_certificate)
    if not verified or not signers:
        raise refused("app", "a valid signature of its submitter", "none")
    other_signers = [
        f"{name} ({role})" for name, _, role in signers if role not in _SUBMITTER_ROLES
    ]
    if other_signers:
        roles = " or ".join(sorted(_SUBMITTER_ROLES))
        raise refused("app", f"signed by a {roles}", ", ".join(other_signers))
    for signer in signers:
        _require_right_to_submit(Person(*signer))
    problem, properties = AppAuthzService.validate_app(str(app_folder))
    if problem:
        raise _RefusedByFlareError(problem)
    properties = AppAuthzService.derive_local_app_info(properties, job_meta, workspace.site_name)
    meta = copy.deepcopy(job_meta)
    # Whether the job brings its own code (BYOC) is what was found in the app, not what its sender
    # wrote into the meta.
    meta.pop(AppValidationKey.BYOC, None)
    if properties.get(AppValidationKey.BYOC, False):
        meta[AppValidationKey.BYOC] = True
    for name, org, role in signers:
        authorized, problem = AppAuthzService.authorize_app_info(
            app_info=properties,
            submitter_name=name,
            submitter_org=org,
            submitter_role=role,
            job_meta=meta,
        )
        if problem or not authorized:
            raise _RefusedByFlareError(problem or "not authorized")
    return meta


def _require_right_to_submit(signer: Person) -> None:
    """Raise ConfigError if a signer of an app may not submit jobs by the rules of this participant.

    The server has asked its own when the job was submitted. The job may have waited since then, and
    a site may have other rules.
    """
    right = AdminCommandNames.SUBMIT_JOB
    context = AuthzContext(user=signer, submitter=signer, right=right)
    authorized, problem = AuthorizationService.authorize(context)
    if problem or not authorized:
        raise ConfigError(
            "app",
            expected="signed by somebody who may submit jobs here",
            found=f"{signer.name} ({signer.role}), whom authorization.json refuses",
            remedy="Ask the administrator of this participant.",
        )


class _RefusedByFlareError(Exception):
    """FLARE refuses an app; the text is FLARE's own."""


@contextmanager
def _staging_folder(kit: Path) -> Iterator[Path]:
    """Make a staging folder in a kit, and remove it at the end unless it was moved.

    Staging folders that killed processes have left are removed first.
    """
    for abandoned in kit.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    name = f"{_STAGING_PREFIX}{uuid4().hex}"[:_ID_LENGTH]
    folder = kit / name
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
