"""The fields of a request beside its arrays.

The server writes these types, and a site reads them before anything else.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationError

from fedward.errors import WireError
from fedward.protocol.fields import (
    Expected,
    Few,
    Number,
    Part,
    RefusedError,
    RunId,
    Said,
    Sha256,
    Text,
    Whole,
    parse,
)

DECRYPT = "decrypt"
"""The task of a request that carries a sum of ciphertexts."""
SURVEY = "survey"
"""The task of a request for counts of a site's images."""

_Name: TypeAlias = Annotated[
    Text, Field(max_length=100), Expected("a text of at most 100 characters")
]
_AtLeastOne: TypeAlias = Annotated[int, Field(ge=1, le=2**53), Expected("a count of 1 or more")]


class _Request(Part):
    """The fields that every request has."""

    task: _Name
    round: Whole
    part: Whole
    """The number of the exchange in the round, from 0."""
    run: RunId
    """The run's id, under which a site keeps its state."""
    experiment: Sha256
    """SHA-256 of the job's settings."""
    versions: Annotated[dict[_Name, _Name], Few, Expected("versions by package")]
    """The versions of the server's packages."""
    last_hash: Sha256
    """The last hash of the server's audit log when it sent the request."""
    members: _AtLeastOne
    """The number of sites in the run."""


class _ModelRequest(_Request):
    """A request in a run that trains a model."""

    task: _Name
    """Name of the site's task; ``idle`` for a site that only evaluates the model."""
    evaluate: Annotated[bool, Expected("true or false")]
    """Whether the site evaluates the model that it receives."""
    weights: Annotated[Sha256 | None, Said] = None
    """SHA-256 of the model that the run began with; None for a fresh one."""
    base: Annotated[Sha256 | None, Said] = None
    """SHA-256 of the frozen part of the network.

    Each end makes that part itself, and it must be the same.
    """


class TaskRequest(_ModelRequest):
    """Asks a site to train, to evaluate the model, or both."""


class DecryptRequest(_ModelRequest):
    """Asks a site to decrypt the sum of an exchange's updates."""

    task: Literal["decrypt"]
    sites: _AtLeastOne
    """The number of updates in the sum."""
    weight: _AtLeastOne
    """The sum of the weights of the updates."""
    effective: Number
    """The number of equally weighted updates that the sum is worth.

    It is the squared sum of the weights over the sum of the squared weights.
    """
    trained: _Name
    """The task in which the sites made the updates."""


class SurveyRequest(_Request):
    """Asks a site for counts of its images. It carries no model, and a run has only one."""

    task: Literal["survey"]
    round: Literal[1]
    part: Literal[0]


Request: TypeAlias = TaskRequest | DecryptRequest | SurveyRequest


def read_request(meta: Mapping[str, Any]) -> Request:
    """Return a request as the type of its task.

    Raises:
        WireError: it is malformed. The text quotes what the server sent, and no data of the site.
    """
    try:
        return parse(_kind(meta), meta, "request")
    except RefusedError as error:
        refused = error
    raise WireError(
        refused.problem,
        "Server and sites must run the same job and the same version of fedward.",
        expected=refused.expected,
        found=refused.found,
    )


def readable(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid fields of a request, which a log may quote."""
    kind = _kind(meta)
    invalid_names: set[int | str] = set()
    try:
        kind.model_validate(meta)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_context=False, include_input=False):
            place = fault["loc"]
            if not place:
                # The fault is the request's as a whole: it has no fields, or too many.
                return {}
            invalid_names.add(place[0])
    names = [name for name in kind.model_fields if name in meta and name not in invalid_names]
    return {name: meta[name] for name in names}


def _kind(
    meta: Mapping[str, Any],
) -> type[TaskRequest] | type[DecryptRequest] | type[SurveyRequest]:
    """Return the type of a request, by its task."""
    task = meta.get("task")
    if not isinstance(task, str):
        return TaskRequest
    if task == DECRYPT:
        return DecryptRequest
    if task == SURVEY:
        return SurveyRequest
    return TaskRequest
