"""The wire list: exactly what may pass between a site and the server, in both engines.

A request carries ``model/<tensor>`` (the global model) and, for peers, ``<role>/<tensor>``. An answer carries
``diff/<tensor>`` (trained minus received) and the numbers named in :mod:`fedward.protocol.messages`, of its training
those that the algorithm declares (:class:`~fedward.methods.algorithm.Requirements`). Arrays are float32. What is not
listed is refused by the sender, and again by the receiver (:mod:`fedward.protocol.wire_checks`). Integer buffers do not
travel. Tensors that a task does not train, or that are private to the sites, come down with the model and stay there.

Under secure aggregation an answer carries ``cipher/<number>`` in place of the differences, and the fingerprint of the
key. A second request carries ``sum/<number>``, and its answer ``mean/<tensor>``. Ciphertexts are bytes, as uint8.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedward.digests import arrays_digest
from fedward.errors import WireError
from fedward.methods.workflow import SCORE, Exchange, State
from fedward.protocol.requests import TaskRequest

UNTRAINED = ("idle", SCORE)
"""Tasks after which a site has no update."""
KEY = "key"
"""Field of an encrypted answer: the fingerprint of the key its ciphertexts were made with."""
CIPHER_VALUES = 4096
"""Numbers of an update in one ciphertext."""
LARGEST_CIPHER = 270_000
"""Bytes of one ciphertext at most: two polynomials of 8192 coefficients, in two residues of 8 bytes, and headers."""


@dataclass
class Message:
    """What travels: JSON-able ``meta`` and flat ``arrays``, float32 or bytes of ciphertexts."""

    meta: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    further: int = 0
    """Bytes that travelled for this message besides its arrays, as encryption makes them."""
    received: str | None = None
    """SHA-256 of the arrays that a site sent, where others stand in their place: the ciphertexts of its update."""

    @property
    def nbytes(self) -> int:
        """Bytes that travelled; the meta part is a few kilobytes and does not count."""
        return sum(array.nbytes for array in self.arrays.values()) + self.further


def travelling(state: State, withheld: tuple[str, ...] = ()) -> list[str]:
    """Return the names of the floating-point tensors, in the model's order, that do not begin as in ``withheld``."""
    return [key for key in state if state[key].is_floating_point() and not key.startswith(withheld)]


def flatten(role: str, state: State) -> dict[str, np.ndarray]:
    """Return a model's floating-point tensors as float32 arrays named ``<role>/<tensor>``."""
    return {
        f"{role}/{key}": tensor.to(torch.float32).numpy() for key, tensor in state.items() if tensor.is_floating_point()
    }


def model_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of the global model that a message carries."""
    return arrays_digest({name: array for name, array in arrays.items() if name.startswith("model/")})


def peers_digest(arrays: Mapping[str, np.ndarray]) -> str | None:
    """Return the SHA-256 of all other models that a request carries, together; None if it carries none."""
    peers = {name: array for name, array in arrays.items() if not name.startswith(("model/", "sum/"))}
    return arrays_digest(peers) if peers else None


def sent(arrays: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Any]:
    """Return what the requests of an exchange carry: the SHA-256 of the model of all, and site -> that of its peers."""
    first = next(iter(arrays.values()), None)
    peers = {site: peers_digest(models) for site, models in arrays.items()}
    return {
        "model": model_digest(first) if first else None,
        "peers": {site: found for site, found in peers.items() if found},
    }


def norm(arrays: Mapping[str, np.ndarray]) -> float:
    """Return the L2 norm over all elements of all arrays, in float64."""
    return math.hypot(*(float(np.linalg.norm(array.ravel().astype(np.float64))) for array in arrays.values()))


def unflatten(role: str, arrays: Mapping[str, np.ndarray], template: State) -> dict[str, torch.Tensor]:
    """Return the model a message carries under ``role``; integer buffers and dtypes are the template's.

    Raises WireError when a tensor is missing or has another shape than in the template.
    """
    state = {}
    for key, reference in template.items():
        if not reference.is_floating_point():
            state[key] = reference
            continue
        array = arrays.get(f"{role}/{key}")
        if array is None or array.shape != tuple(reference.shape):
            found = "nothing" if array is None else f"shape {array.shape}"
            remedy = "Server and sites must run the same network and the same version of fedward."
            expected = f"shape {tuple(reference.shape)}"
            raise WireError(f"tensor {role}/{key}", expected=expected, found=found, remedy=remedy)
        state[key] = torch.from_numpy(np.array(array, dtype=np.float32)).to(reference.dtype)
    return state


def models(exchange: Exchange, evaluate: Iterable[str]) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays for each site with a task or in ``evaluate``; those of the global model are not copied."""
    arrays = {}
    model = flatten("model", exchange.model)
    for site in sorted({*evaluate, *exchange.tasks}):
        own = exchange.tasks[site].models if site in exchange.tasks else {}
        arrays[site] = model | {name: array for role in own for name, array in flatten(role, own[role]).items()}
    return arrays


def requests(
    exchange: Exchange, arrays: Mapping[str, dict[str, np.ndarray]], evaluate: Iterable[str], facts: Mapping[str, Any]
) -> dict[str, Message]:
    """Return the request to each site.

    ``arrays``: of :func:`models`. ``evaluate``: sites that evaluate the global model. ``facts``: fields of a
    :class:`~fedward.protocol.requests.TaskRequest` that are the same for all sites.
    """
    evaluating = set(evaluate)
    messages = {}
    for site in arrays:
        task = exchange.tasks.get(site)
        fields = {"task": task.name if task else "idle", "evaluate": site in evaluating, **facts}
        if task and task.labels is not None:
            fields["labels"] = task.labels
        request = TaskRequest(round=exchange.round, part=exchange.part, **fields)
        messages[site] = Message(request.model_dump(exclude_unset=True), arrays[site])
    return messages


def roles(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return the roles of the extra models a request carries, sorted, ``model`` left out."""
    return sorted({name.split("/", 1)[0] for name in arrays} - {"model"})


def difference(trained: State, received: State, withheld: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Return ``diff/<tensor>`` = trained - received in float32, what a site uploads."""
    names = travelling(received, withheld)
    return {f"diff/{key}": (trained[key].float() - received[key].float()).numpy() for key in names}


def rebuild(model: State, answer: Message) -> dict[str, torch.Tensor]:
    """Return the site's trained model = sent model + uploaded difference; what it did not send is as it was sent."""
    names = uploaded_names(answer)
    uploaded = unflatten("diff", answer.arrays, {key: model[key] for key in names})
    return {key: model[key] + uploaded[key] if key in uploaded else model[key] for key in model}


def uploaded_names(answer: Message) -> list[str]:
    """Return the names of the tensors of which an answer carries a difference."""
    return [name.removeprefix("diff/") for name in answer.arrays]


def shapes(request: Message, withheld: tuple[str, ...] = ()) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that a site sends after training a request's model, in the model's order."""
    model = {name.split("/", 1)[1]: array.shape for name, array in request.arrays.items() if name.startswith("model/")}
    return {name: shape for name, shape in model.items() if not name.startswith(withheld)}
