"""The wire list: exactly what may pass between a site and the server, in both engines.

A request carries ``model/<tensor>`` (the global model, float32) and ``<role>`` for each peer: its
difference to the global model, with matrices in int8 (:mod:`fedward.protocol.encoding`). An answer
carries ``diff/<tensor>`` (trained minus received, float32), or ``diff`` where the job's updates are
float16, and the numbers named in :mod:`fedward.protocol.messages`, of its training those that the
algorithm declares (:class:`~fedward.methods.algorithm.Requirements`). What is not listed is refused
by the sender, and again by the receiver (:mod:`fedward.protocol.wire_checks`). Integer buffers do
not travel. Tensors that a task does not train, or that are private to the sites, come down with the
model and stay there.

Under secure aggregation an answer carries ``cipher/<number>`` in place of the differences, and the
fingerprint of the key. A second request carries ``sum/<number>``, and its answer ``mean/<tensor>``.
Ciphertexts are bytes, as uint8.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

from fedward.digests import arrays_digest
from fedward.errors import WireError
from fedward.model_state import State
from fedward.protocol.encoding import decode, encode
from fedward.protocol.fields import refusal

UNTRAINED = ("idle",)
"""Tasks after which a site has no update."""
KEY = "key"
"""Field of an encrypted answer: the fingerprint of the key its ciphertexts were made with."""
CIPHER_VALUES = 4096
"""Numbers of an update in one ciphertext."""
LARGEST_CIPHER = 270_000
"""Bytes of one ciphertext at most: two polynomials of 8192 coefficients, in two residues of 8
bytes, and headers.
"""
UPDATE = "diff"
"""Name of the one array of an update in float16."""

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""By name. Those of a request may read one from the disk whenever it is asked for."""


@dataclass
class Message:
    """What travels: JSON-able ``meta`` and flat ``arrays``, float32 or bytes."""

    meta: dict[str, Any]
    arrays: Arrays = field(default_factory=dict)
    further: int = 0
    """Bytes that travelled for this message besides its arrays, as encryption makes them; below 0
    where the arrays were decoded."""
    received: str | None = None
    """SHA-256 of the arrays that a site sent, where others stand in their place: the ciphertexts of
    its update.
    """

    @property
    def nbytes(self) -> int:
        """Bytes that travelled; the meta part is a few kilobytes and does not count."""
        return sum(array.nbytes for array in self.arrays.values()) + self.further


def travelling(state: State, withheld: tuple[str, ...] = ()) -> list[str]:
    """Return the names of the floating-point tensors, in the model's order, that do not begin as in
    ``withheld``.
    """
    return [key for key in state if state[key].is_floating_point() and not key.startswith(withheld)]


def flatten(role: str, state: State) -> dict[str, np.ndarray]:
    """Return a model's floating-point tensors as float32 arrays named ``<role>/<tensor>``."""
    return {
        f"{role}/{key}": tensor.to(torch.float32).numpy()
        for key, tensor in state.items()
        if tensor.is_floating_point()
    }


def model_digest(arrays: Arrays) -> str:
    """Return the SHA-256 of the global model that a message carries."""
    return arrays_digest({name: arrays[name] for name in arrays if name.startswith("model/")})


def peers_digest(arrays: Arrays) -> str | None:
    """Return the SHA-256 of all peers that a request carries, together and encoded; None if it
    carries none.
    """
    peers = {name: arrays[name] for name in arrays if not name.startswith(("model/", "sum/"))}
    return arrays_digest(peers) if peers else None


def norm(arrays: Arrays) -> float:
    """Return the L2 norm over all elements of all arrays, in float64."""
    return math.hypot(
        *(float(np.linalg.norm(array.ravel().astype(np.float64))) for array in arrays.values())
    )


def unflatten(role: str, arrays: Arrays, template: State) -> dict[str, torch.Tensor]:
    """Return the model a message carries as ``<role>/<tensor>``; integer buffers and dtypes are the
    template's.

    Raises WireError when a tensor is missing, has another shape than in the template, or is not in
    it.
    """
    state = {}
    remedy = "Server and sites must run the same network and the same version of fedward."
    more = sorted(
        {name for name in arrays if name.startswith(f"{role}/")}
        - {f"{role}/{key}" for key in template}
    )
    if more:
        raise WireError(
            f"tensors of {role}",
            expected="those that train",
            found=", ".join(more)[:200],
            remedy=remedy,
        )
    for key, reference in template.items():
        if not reference.is_floating_point():
            state[key] = reference
            continue
        array = arrays.get(f"{role}/{key}")
        if array is None or array.shape != tuple(reference.shape):
            found = "nothing" if array is None else f"shape {array.shape}"
            expected = f"shape {tuple(reference.shape)}"
            raise WireError(f"tensor {role}/{key}", expected=expected, found=found, remedy=remedy)
        state[key] = torch.from_numpy(np.array(array, dtype=np.float32)).to(reference.dtype)
    return state


def encode_peer(peer: State, model: State) -> np.ndarray:
    """Return a peer as it travels: its difference to the global model of the same request, encoded.

    Raises WireError where the difference is not finite, or beyond 2^100.
    """
    return encode((_difference(peer, model, key) for key in sorted(travelling(model))), int8=True)


def decode_peer(role: str, arrays: Arrays, template: State) -> dict[str, torch.Tensor]:
    """Return the peer that a request carries under ``role``; integer buffers and dtypes are the
    template's.

    Raises WireError unless it is the encoding of finite tensors as in the template.
    """
    names = sorted(travelling(template))
    where = f"peer {role}"
    differences = decode(
        where, arrays[role], [tuple(template[key].shape) for key in names], int8=True
    )
    with np.errstate(over="ignore"):
        peer = {
            f"{role}/{key}": arrays[f"model/{key}"] + array
            for key, array in zip(names, differences, strict=True)
        }
    if not all(np.isfinite(array).all() for array in peer.values()):
        raise refusal(where, "a model of finite numbers", "others")
    return unflatten(role, peer, template)


def roles(arrays: Arrays) -> list[str]:
    """Return the roles of the extra models a request carries, sorted, ``model`` left out."""
    return sorted({name.split("/", 1)[0] for name in arrays} - {"model"})


def difference(
    trained: State, received: State, withheld: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Return ``diff/<tensor>`` = trained - received in float32, what a site uploads."""
    return {
        f"diff/{key}": _difference(trained, received, key) for key in travelling(received, withheld)
    }


def _difference(state: State, received: State, key: str) -> np.ndarray:
    return (state[key].float() - received[key].float()).numpy()


def encode_update(answer: Message) -> Message:
    """Return an answer with its update in float16, as the one array ``diff``; one without an update
    as it is.
    """
    if not answer.arrays:
        return answer
    return Message(
        answer.meta,
        {UPDATE: encode((answer.arrays[name] for name in sorted(answer.arrays)), int8=False)},
    )


def decode_update(answer: Message, model: Mapping[str, tuple[int, ...]]) -> Message:
    """Return an answer with its update in float32, as ``diff/<tensor>``; one without an update as
    it is.

    ``model``: name -> shape of the tensors that were trained. Raises RefusedError unless the answer
    carries ``diff`` alone, and that is their encoding.
    """
    if not answer.arrays:
        return answer
    if set(answer.arrays) != {UPDATE}:
        raise refusal(
            "arrays of an update in float16", UPDATE, ", ".join(sorted(answer.arrays))[:200]
        )
    names = sorted(model)
    tensors = decode("update", answer.arrays[UPDATE], [model[name] for name in names], int8=False)
    arrays = {f"diff/{name}": array for name, array in zip(names, tensors, strict=True)}
    further = answer.nbytes - sum(array.nbytes for array in arrays.values())
    return Message(answer.meta, arrays, further, arrays_digest(answer.arrays))


def rebuild(model: State, answer: Message) -> dict[str, torch.Tensor]:
    """Return the site's trained model = sent model + uploaded difference; what it did not send is
    as it was sent.
    """
    names = uploaded_names(answer)
    uploaded = unflatten("diff", answer.arrays, {key: model[key] for key in names})
    return {key: model[key] + uploaded[key] if key in uploaded else model[key] for key in model}


def uploaded_names(answer: Message) -> list[str]:
    """Return the names of the tensors of which an answer carries a difference."""
    return [name.removeprefix("diff/") for name in answer.arrays]


def shapes(request: Message, withheld: tuple[str, ...] = ()) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that a site sends after training a request's model, in the
    model's order.
    """
    arrays = request.arrays
    model = {
        name.split("/", 1)[1]: arrays[name].shape for name in arrays if name.startswith("model/")
    }
    return {name: shape for name, shape in model.items() if not name.startswith(withheld)}
