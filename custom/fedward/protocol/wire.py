"""The wire list: exactly what may pass between a site and the server, in both engines.

A request carries ``model/<tensor>``, which is the global model in float32. For each peer it carries
``<role>``, the peer's difference to the global model with matrices in int8
(:mod:`fedward.protocol.encoding`).

An answer carries ``diff/<tensor>``, which is the trained minus the received model in float32; or
``diff``, if the job's updates are float16. It also carries the numbers that
:mod:`fedward.protocol.messages` names. Of its training it has those that the algorithm declares
(:class:`~fedward.methods.algorithm.Requirements`).

Everything else is refused by the sender, and again by the receiver
(:mod:`fedward.protocol.answer_checks`). Integer buffers do not travel. Tensors that a task does not
train, or that are private to the sites, are sent to the sites with the model and do not come back.

In secure aggregation an answer carries ``cipher/<number>`` in place of the differences, and the
fingerprint of the key. A second request carries ``sum/<number>``, and its answer ``mean/<tensor>``.
Ciphertexts are bytes, as uint8.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

from fedward.digests import arrays_digest
from fedward.errors import WireError
from fedward.model_state import State
from fedward.protocol.encoding import decode, encode
from fedward.protocol.fields import refusal, refuse_other_names

UNTRAINED = ("idle",)
"""Tasks after which a site has no update."""
KEY = "key"
"""Field of an encrypted answer: the fingerprint of the key that made its ciphertexts."""
CIPHER_VALUES = 4096
"""Numbers of an update in one ciphertext."""
LARGEST_CIPHER = 270_000
"""The most bytes of one ciphertext.

It has two polynomials of 8192 coefficients, in two residues of 8 bytes, and headers.
"""
_VARIANCE = "running_var"
"""End of the names of BatchNorm's variances; below 0 they would make every output NaN."""
UPDATE = "diff"
"""Name of the one array of an update in float16."""
_SAME_NETWORK = "Server and sites must run the same network and the same version of fedward."

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Name -> array. The mapping of a request may read an array from the disk at each access."""


@dataclass
class Message:
    """A request or an answer."""

    meta: dict[str, Any]
    """Its fields, which JSON can hold."""
    arrays: Arrays = field(default_factory=dict)
    """Its arrays, which are float32 or bytes."""
    further: int = 0
    """Bytes that travelled beside the arrays, such as those that encryption adds.

    It is below 0 if the arrays were decoded.
    """
    received: str | None = None
    """SHA-256 of the arrays that a site sent, if ``arrays`` were decrypted or decoded from them."""

    @property
    def nbytes(self) -> int:
        """Bytes that travelled; the meta part is a few kilobytes and does not count."""
        return sum(array.nbytes for array in self.arrays.values()) + self.further


def cipher_name(role: str, number: int) -> str:
    """Return the name of a ciphertext of an update: five digits, and more from 100,000 on.

    Args:
        role: ``cipher`` or ``sum``.
        number: of the ciphertext, from 0.
    """
    return f"{role}/{number:05d}"


def ciphers_in_order(role: str, arrays: Arrays) -> list[np.ndarray]:
    """Return the ciphertexts of an update by number.

    ``arrays`` has passed :func:`~fedward.protocol.array_checks.check_ciphers`. Its names do not
    sort by number where there are more than 100,000.
    """
    return [arrays[cipher_name(role, number)] for number in range(len(arrays))]


def travelling(state: State, withheld: tuple[str, ...] = ()) -> list[str]:
    """Return the names of the tensors that travel, in the model's order.

    They are the floating-point tensors whose names do not begin as one in ``withheld``.
    """
    return [key for key in state if state[key].is_floating_point() and not key.startswith(withheld)]


def flatten(role: str, state: State) -> dict[str, np.ndarray]:
    """Return a model's floating-point tensors as float32 arrays named ``<role>/<tensor>``."""
    arrays = {}
    for key, tensor in state.items():
        if tensor.is_floating_point():
            arrays[f"{role}/{key}"] = tensor.to(torch.float32).numpy()
    return arrays


def model_digest(arrays: Arrays) -> str:
    """Return the SHA-256 of the global model that a message carries."""
    return arrays_digest({name: arrays[name] for name in arrays if name.startswith("model/")})


def peers_digest(arrays: Arrays) -> str | None:
    """Return the SHA-256 of all encoded peers of a request together; None without peers."""
    peers = {name: arrays[name] for name in arrays if not name.startswith(("model/", "sum/"))}
    return arrays_digest(peers) if peers else None


def unflatten(role: str, arrays: Arrays, template: State) -> dict[str, torch.Tensor]:
    """Return the model that a message carries as ``<role>/<tensor>``.

    Integer buffers and dtypes are the template's.

    Raises:
        WireError: a tensor is missing, has another shape than in the template, or is not in it.
    """
    template_names = {f"{role}/{key}" for key in template}
    unknown_names = [
        name
        for name in sorted(arrays)
        if name.startswith(f"{role}/") and name not in template_names
    ]
    if unknown_names:
        raise WireError(
            f"tensors of {role}",
            _SAME_NETWORK,
            expected="those that train",
            found=", ".join(unknown_names)[:200],
        )
    state = {}
    for key, reference in template.items():
        if not reference.is_floating_point():
            state[key] = reference
            continue
        array = arrays.get(f"{role}/{key}")
        if array is None or array.shape != tuple(reference.shape):
            raise WireError(
                f"tensor {role}/{key}",
                _SAME_NETWORK,
                expected=f"shape {tuple(reference.shape)}",
                found="nothing" if array is None else f"shape {array.shape}",
            )
        state[key] = torch.from_numpy(np.array(array, dtype=np.float32)).to(reference.dtype)
    return state


def encode_peer(peer: State, model: State) -> np.ndarray:
    """Return a peer as it travels: its encoded difference to the global model of the request.

    Raises:
        DivergedUpdateError: the difference is not finite, or beyond 2^100.
    """
    names = sorted(travelling(model))
    return encode((_difference(peer, model, name) for name in names), int8=True)


def decode_peer(role: str, arrays: Arrays, template: State) -> dict[str, torch.Tensor]:
    """Return the peer that a request carries under ``role``.

    Integer buffers and dtypes are the template's.

    Raises:
        WireError: it is not the encoding of finite tensors as in the template.
    """
    names = sorted(travelling(template))
    tensor_shapes = [tuple(template[name].shape) for name in names]
    differences = decode(f"peer {role}", arrays[role], tensor_shapes, int8=True)
    peer = {}
    # Sums that overflow are infinite, and refused below.
    with np.errstate(over="ignore"):
        for name, array in zip(names, differences, strict=True):
            tensor = arrays[f"model/{name}"] + array
            peer[f"{role}/{name}"] = np.maximum(tensor, 0) if name.endswith(_VARIANCE) else tensor
    if not all(np.isfinite(array).all() for array in peer.values()):
        raise refusal(f"peer {role}", "a model of finite numbers", "others")
    return unflatten(role, peer, template)


def roles(arrays: Arrays) -> list[str]:
    """Return the roles of a request's arrays except ``model``, sorted."""
    return sorted({name.split("/", 1)[0] for name in arrays} - {"model"})


def difference(
    trained: State, received: State, withheld: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Return a site's update: ``diff/<tensor>`` = trained - received, in float32."""
    names = travelling(received, withheld)
    return {f"diff/{name}": _difference(trained, received, name) for name in names}


def _difference(state: State, received: State, key: str) -> np.ndarray:
    return (state[key].float() - received[key].float()).numpy()


def encode_update(answer: Message) -> Message:
    """Return an answer with its update in float16, as the one array ``diff``.

    An answer without an update is returned as it is.
    """
    if not answer.arrays:
        return answer
    tensors = (answer.arrays[name] for name in sorted(answer.arrays))
    return Message(answer.meta, {UPDATE: encode(tensors, int8=False)})


def decode_update(answer: Message, model: Mapping[str, tuple[int, ...]]) -> Message:
    """Return an answer with its update in float32, as ``diff/<tensor>``.

    An answer without an update is returned as it is.

    Args:
        answer: the answer, whose update is in float16.
        model: name -> shape of the tensors that were trained.

    Raises:
        RefusedError: the answer has other arrays than ``diff``, or that is not their encoding.
    """
    if not answer.arrays:
        return answer
    refuse_other_names("arrays of an update in float16", answer.arrays, {UPDATE})
    names = sorted(model)
    tensors = decode("update", answer.arrays[UPDATE], [model[name] for name in names], int8=False)
    arrays = {f"diff/{name}": array for name, array in zip(names, tensors, strict=True)}
    further = answer.nbytes - sum(array.nbytes for array in arrays.values())
    return Message(answer.meta, arrays, further, arrays_digest(answer.arrays))


def rebuild(model: State, answer: Message) -> dict[str, torch.Tensor]:
    """Return the model that a site has trained: the model sent to it plus its difference.

    Tensors that the site did not send are those of the model. Variances below 0 become 0, as a
    difference in float16 may round one there.
    """
    uploaded_part = {name: model[name] for name in uploaded_names(answer)}
    differences = unflatten("diff", answer.arrays, uploaded_part)
    trained = {}
    for name, tensor in model.items():
        trained[name] = tensor + differences[name] if name in differences else tensor
        if name in differences and name.endswith(_VARIANCE):
            trained[name] = trained[name].clamp(min=0)
    return trained


def uploaded_names(answer: Message) -> list[str]:
    """Return the names of the tensors whose differences an answer carries."""
    return [name.removeprefix("diff/") for name in answer.arrays]


def shapes(request: Message, withheld: tuple[str, ...] = ()) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that a site sends after it has trained a request's model.

    They are in the model's order.
    """
    shape_of = {}
    for array_name in request.arrays:
        name = array_name.removeprefix("model/")
        if array_name.startswith("model/") and not name.startswith(withheld):
            shape_of[name] = request.arrays[array_name].shape
    return shape_of
