"""The requests that a server sends to its sites: which arrays each carries, and what each says."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from fedward.methods.workflow import Exchange
from fedward.protocol.requests import SurveyRequest, TaskRequest
from fedward.protocol.wire import Arrays, Message, encode_peer, flatten, model_digest, peers_digest

Keep: TypeAlias = Callable[[dict[str, np.ndarray]], Arrays]
"""Stores arrays, and returns them."""


class _Joined(Mapping[str, np.ndarray]):
    """The arrays that all sites share, and those of one site."""

    def __init__(self, shared: Arrays, own: Arrays) -> None:
        self._shared = shared
        self._own = own

    def __getitem__(self, name: str) -> np.ndarray:
        return self._own[name] if name in self._own else self._shared[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._shared
        yield from self._own

    def __len__(self) -> int:
        return len(self._shared) + len(self._own)


def models_by_site(exchange: Exchange, evaluate: Iterable[str], keep: Keep) -> dict[str, Arrays]:
    """Return the arrays for each site that has a task or evaluates the model.

    All sites share those of the global model. The peers of one site are encoded and given to
    ``keep`` before the next site's are made, so that the memory holds those of one site only.

    Args:
        exchange: the global model, and the tasks with the models of single sites.
        evaluate: sites that evaluate the global model.
        keep: stores the encoded peers of a site.
    """
    arrays: dict[str, Arrays] = {}
    model = flatten("model", exchange.model)
    for site in sorted({*evaluate, *exchange.tasks}):
        peers = exchange.tasks[site].models if site in exchange.tasks else {}
        encoded = {role: encode_peer(peer, exchange.model) for role, peer in peers.items()}
        arrays[site] = _Joined(model, keep(encoded))
    return arrays


def task_requests(
    exchange: Exchange,
    arrays: Mapping[str, Arrays],
    evaluate: Iterable[str],
    fields: Mapping[str, Any],
) -> dict[str, Message]:
    """Return the request to each site of an exchange.

    Args:
        exchange: round, part and tasks.
        arrays: site -> what its request carries, as from :func:`models_by_site`.
        evaluate: sites that evaluate the global model.
        fields: fields of a :class:`~fedward.protocol.requests.TaskRequest` that are the same for
            all sites.
    """
    evaluating = set(evaluate)
    requests = {}
    for site, site_arrays in arrays.items():
        task = exchange.tasks.get(site)
        request = TaskRequest(
            task=task.name if task else "idle",
            evaluate=site in evaluating,
            round=exchange.round,
            part=exchange.part,
            **fields,
        )
        requests[site] = Message(request.model_dump(exclude_unset=True), site_arrays)
    return requests


def survey_requests(sites: Iterable[str], fields: Mapping[str, Any]) -> dict[str, Message]:
    """Return the request to each site for a survey of its images.

    Args:
        sites: names of the sites.
        fields: fields of a :class:`~fedward.protocol.requests.SurveyRequest` that are the same for
            all sites.
    """
    request = SurveyRequest(task="survey", round=1, part=0, **fields)
    return {site: Message(request.model_dump(exclude_unset=True)) for site in sorted(sites)}


def sent_hashes(arrays: Mapping[str, Arrays]) -> dict[str, Any]:
    """Return hashes of what the requests of an exchange carry, for the audit log.

    Args:
        arrays: site -> what its request carries.

    Returns:
        ``model``: SHA-256 of the global model, None without a request. ``peers``: site -> SHA-256
        of its encoded peers, of sites that have any.
    """
    hashes = {site: peers_digest(site_arrays) for site, site_arrays in arrays.items()}
    first = next(iter(arrays.values()), None)
    return {
        "model": None if first is None else model_digest(first),
        "peers": {site: digest for site, digest in hashes.items() if digest},
    }
