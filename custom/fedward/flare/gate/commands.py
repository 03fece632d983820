"""The commands that a site's process takes from its server, and the right that each needs."""

from collections.abc import Mapping
from typing import Any, Literal

from nvflare.apis.fl_constant import AdminCommandNames
from nvflare.fuel.sec.authz import AuthorizationService, AuthzContext, Person
from nvflare.private.admin_defs import Message as Command
from nvflare.private.defs import RequestHeader, TrainingTopic

from fedward.errors import ConfigError
from fedward.flare.gate.names import is_job_id
from fedward.flare.kits import resource_check
from fedward.flare.kits.app_check import check_archive

RIGHTS: Mapping[str, str | None] = {
    TrainingTopic.CHECK_RESOURCE: None,
    TrainingTopic.CANCEL_RESOURCE: None,
    TrainingTopic.DEPLOY: None,
    TrainingTopic.START_JOB: None,
    TrainingTopic.ABORT: None,
    TrainingTopic.NOTIFY_JOB_STATUS: None,
    TrainingTopic.CHECK_STATUS: AdminCommandNames.CHECK_STATUS,
    TrainingTopic.SHUTDOWN: AdminCommandNames.SHUTDOWN,
    TrainingTopic.RESTART: AdminCommandNames.RESTART,
}
"""Command to a site's process -> the right that its user needs in the site's authorization.json.

None means that no right is needed: the server gives the command by itself in the course of a job,
which the site has checked at its deployment. FLARE's other commands (a shell, deletion of folders,
logging, statistics of processes) do not exist at a site."""

_COMMAND_WITHOUT_JOB_ID = TrainingTopic.CANCEL_RESOURCE
"""The only command about a job that does not carry the job's id.

It releases what a check of resources has reserved, and names that check's token instead."""

_WITH_RESOURCES = frozenset(
    {TrainingTopic.CHECK_RESOURCE, TrainingTopic.CANCEL_RESOURCE, TrainingTopic.START_JOB}
)
"""Commands whose body FLARE hands to the site's resource manager."""


def command_refusal(command: Any) -> str:
    """Return why a site does not obey a command; empty if it does."""
    if not isinstance(command, Command) or command.topic not in RIGHTS:
        return "no such command exists at a site"
    right = RIGHTS[command.topic]
    if right is not None:
        return _right_refusal(command, right)
    if command.topic != _COMMAND_WITHOUT_JOB_ID and not is_job_id(
        command.get_header(RequestHeader.JOB_ID)
    ):
        return "it names no job"
    if command.topic == TrainingTopic.DEPLOY:
        return _app_refusal(command.body)
    if command.topic in _WITH_RESOURCES:
        return resource_check.problem_with(command.body)
    return ""


def _right_refusal(command: Command, right: str) -> str:
    """Return why a command's user does not have a right at this site; empty if the user has it."""
    user = person_of(command, "USER")
    context = AuthzContext(user=user, submitter=person_of(command, "SUBMITTER"), right=right)
    authorized, error = AuthorizationService.authorize(context)
    if error:
        return str(error)
    if not authorized:
        return f"this site's authorization.json does not give {user.name!r} the right to {right}"
    return ""


def _app_refusal(app: Any) -> str:
    """Return why an app's list of files is refused; empty if it is accepted.

    The list is checked here, because FLARE unpacks an app before it checks anything else.
    """
    try:
        check_archive(app, "site")
    except ConfigError as error:
        return str(error)
    return ""


def person_of(command: Command, kind: Literal["USER", "SUBMITTER"]) -> Person:
    """Return the user of a command, or the submitter of its job, as the server names them.

    The server has checked their certificates.
    """
    name = command.get_header(getattr(RequestHeader, f"{kind}_NAME"), "")
    org = command.get_header(getattr(RequestHeader, f"{kind}_ORG"), "")
    role = command.get_header(getattr(RequestHeader, f"{kind}_ROLE"), "")
    return Person(name, org, role)
