"""What a request says beside its arrays: the server writes these types, and a site reads them
before anything else.
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
"""The task of a request for counts of what a site's images are."""

_Name: TypeAlias = Annotated[
    Text, Field(max_length=100), Expected("a text of at most 100 characters")
]
_AtLeastOne: TypeAlias = Annotated[int, Field(ge=1, le=2**53), Expected("a count of 1 or more")]


class _Request(Part):
    task: _Name
    round: Whole
    part: Whole
    """Which exchange of the round, from 0."""
    run: RunId
    """By which a site finds what it remembers of the run."""
    experiment: Sha256
    """Of the job's settings."""
    versions: Annotated[dict[_Name, _Name], Few, Expected("versions by package")]
    """Of the server's packages."""
    last_hash: Sha256
    """Of the server's audit log, when it asked."""
    members: _AtLeastOne
    """Sites that the run has."""


class _ModelRequest(_Request):
    """A request in a run that trains a model."""

    task: _Name
    """Name of the site's task; ``idle`` of a site that only evaluates the model."""
    evaluate: Annotated[bool, Expected("true or false")]
    """Whether the site evaluates the model it is sent."""
    weights: Annotated[Sha256 | None, Said] = None
    """SHA-256 of the model that the run began with, where it was not a fresh one."""
    base: Annotated[Sha256 | None, Said] = None
    """SHA-256 of what is frozen in the network: each end makes it anew, and it must be the same."""


class TaskRequest(_ModelRequest):
    """Asks a site to train, to evaluate the model, or both."""


class DecryptRequest(_ModelRequest):
    """Asks a site to decrypt the sum of an exchange's updates."""

    task: Literal["decrypt"]
    sites: _AtLeastOne
    """How many updates were added."""
    weight: _AtLeastOne
    """Sum of the weights of the updates."""
    effective: Number
    """Of how many equally weighted updates the sum is worth: its weight squared over the sum of the
    squared weights.
    """
    trained: _Name
    """The task that the updates are of."""


class SurveyRequest(_Request):
    """Asks a site to count what its images are. It carries no model, and a run has only one."""

    task: Literal["survey"]
    round: Literal[1]
    part: Literal[0]


Request: TypeAlias = TaskRequest | DecryptRequest | SurveyRequest


def read_request(meta: Mapping[str, Any]) -> Request:
    """Return what a request asks.

    Raises:
        WireError: it is malformed. The text quotes what the server sent, and no data.
    """
    try:
        return parse(_kind(meta), meta, "request")
    except RefusedError as error:
        refused = error
    remedy = "Server and sites must run the same job and the same version of fedward."
    raise WireError(refused.problem, expected=refused.expected, found=refused.found, remedy=remedy)


def readable(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that are what they must be, whatever the others are: a log may
    quote them.
    """
    kind = _kind(meta)
    wrong = set[tuple[int | str, ...]]()
    try:
        kind.model_validate(meta)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        wrong = {fault["loc"][:1] for fault in faults}
    if () in wrong:  # no fields at all, or too many
        return {}
    return {name: meta[name] for name in kind.model_fields if name in meta and (name,) not in wrong}


def _kind(
    meta: Mapping[str, Any],
) -> type[TaskRequest] | type[DecryptRequest] | type[SurveyRequest]:
    kinds: dict[Any, type[DecryptRequest] | type[SurveyRequest]] = {
        DECRYPT: DecryptRequest,
        SURVEY: SurveyRequest,
    }
    task = meta.get("task")
    return kinds.get(task, TaskRequest) if isinstance(task, str) else TaskRequest
