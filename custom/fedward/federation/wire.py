"""The wire list: exactly what may pass between a site and the server, in both engines.

A request carries ``model/<tensor>`` (the global model) and, for peers, ``<role>/<tensor>``. An answer carries
``diff/<tensor>`` (trained minus received) and the numbers listed in :data:`ANSWER_FIELDS` and :data:`METRICS`.
Arrays are float32. Labels, ids, paths and pixels have no name here, so they cannot leave a site: whatever is not
listed is refused by the sender, and again by the receiver. Integer buffers do not travel.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedward.errors import WireError
from fedward.evaluation.names import OVERALL
from fedward.methods.workflow import Ask, State

SMALLEST_COUNT = 5
"""Per-class numbers on fewer images than this stay at the site; a rare disease must not point at a patient."""

ANSWER_FIELDS = frozenset({"site", "round", "labelled", "unlabelled", "steps", "train", "metrics", "error"})
TRAIN_FIELDS = frozenset(
    {
        *("loss", "loss_supervised", "loss_pseudo", "loss_consistency", "loss_information", "loss_proximal"),
        *("kept", "seconds"),
    }
)
METRICS = frozenset(OVERALL)
CLASS_METRICS = frozenset({"f1", "auroc", "auprc", "support"})
_ROW_FIELDS = frozenset({"split", "name", "value", "n", "classes"})


@dataclass
class Message:
    """What travels: JSON-able ``meta`` and flat float32 ``arrays``."""

    meta: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; the meta part is a few kilobytes."""
        return sum(array.nbytes for array in self.arrays.values())


def travelling(state: State) -> list[str]:
    """Return the names of a model's tensors that travel: the floating-point ones, in the model's order."""
    return [key for key in state if state[key].is_floating_point()]


def flatten(role: str, state: State) -> dict[str, np.ndarray]:
    """Return a model's floating-point tensors as float32 arrays named ``<role>/<tensor>``."""
    return {
        f"{role}/{key}": tensor.to(torch.float32).numpy() for key, tensor in state.items() if tensor.is_floating_point()
    }


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
            raise WireError(
                f"tensor {role}/{key}",
                expected=f"shape {tuple(reference.shape)}",
                found="nothing" if array is None else f"shape {array.shape}",
                remedy="Server and sites must run the same network and the same version of fedward.",
            )
        state[key] = torch.from_numpy(np.array(array, dtype=np.float32)).to(reference.dtype)
    return state


def requests(ask: Ask, evaluate: Iterable[str], run: str) -> dict[str, Message]:
    """Return one request per site that works or evaluates; the global model's arrays are shared, never copied.

    ``run`` is the run's id, under which a site finds what it remembers of it.
    """
    model = flatten("model", ask.model)
    evaluating = set(evaluate)
    messages = {}
    for site in sorted(evaluating | set(ask.work)):
        work = ask.work.get(site)
        arrays = dict(model)
        for role, state in work.models.items() if work else ():
            arrays |= flatten(role, state)
        meta = {"task": work.task if work else "idle", "evaluate": site in evaluating, "round": ask.round}
        messages[site] = Message(meta | {"part": ask.part, "run": run}, arrays)
    return messages


def roles(request: Message) -> list[str]:
    """Return the roles of the extra models a request carries, sorted, ``model`` left out."""
    return sorted({name.split("/", 1)[0] for name in request.arrays} - {"model"})


def difference(trained: State, received: State) -> dict[str, np.ndarray]:
    """Return ``diff/<tensor>`` = trained - received in float32, what a site uploads."""
    return {f"diff/{key}": (trained[key].float() - received[key].float()).numpy() for key in travelling(received)}


def rebuild(model: State, answer: Message) -> dict[str, torch.Tensor]:
    """Return the site's trained model = sent model + uploaded difference."""
    uploaded = unflatten("diff", answer.arrays, model)
    return {key: model[key] + uploaded[key] if model[key].is_floating_point() else model[key] for key in model}


def withhold_small_counts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return metric rows with every per-class value on fewer than :data:`SMALLEST_COUNT` images set to None.

    Where that would hide one present class only, the next smallest is withheld too: the number of all images minus the
    others would give the hidden count away.
    """
    support: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["name"].startswith("support/"):
            support.setdefault(row["split"], {})[_class_of(row)] = row["value"] or 0
    hidden = {split: _hidden(counts) for split, counts in support.items()}
    return [
        {**row, "value": None} if "/" in row["name"] and _class_of(row) in hidden[row["split"]] else row for row in rows
    ]


def _hidden(counts: Mapping[str, float]) -> set[str]:
    small = {name for name, count in counts.items() if count < SMALLEST_COUNT}
    shown = sorted((count, name) for name, count in counts.items() if name not in small)
    if sum(counts[name] > 0 for name in small) == 1 and shown:
        small.add(shown[0][1])
    return small


def _class_of(row: Mapping[str, Any]) -> str:
    return str(row["name"].split("/", 1)[1])


def check_answer(answer: Message, site: str, request: Message) -> None:
    """Raise WireError unless the answer holds what the wire list allows and the request asked for.

    Called by the site before it sends and by the server before it uses anything.
    """
    meta = answer.meta
    _only(f"answer of {site}", set(meta), ANSWER_FIELDS)
    if meta.get("site") != site or meta.get("round") != request.meta["round"]:
        _refuse(
            f"answer of {site}",
            f"site {site}, round {request.meta['round']}",
            f"site {meta.get('site')}, round {meta.get('round')}",
        )
    if "error" in meta:
        return
    for name in ("labelled", "unlabelled", "steps"):
        if not (isinstance(meta.get(name), int) and meta[name] >= 0):
            _refuse(f"answer of {site}, {name}", "a count of 0 or more", repr(meta.get(name)))
    _check_numbers(site, meta)
    expected: dict[str, tuple[int, ...]] = {}
    if request.meta["task"] != "idle" and meta["steps"] > 0:
        expected = {
            f"diff/{name.split('/', 1)[1]}": array.shape
            for name, array in request.arrays.items()
            if name.startswith("model/")
        }
    _only(f"arrays of {site}", set(answer.arrays), frozenset(expected))
    for name, shape in sorted(expected.items()):
        _check_array(site, name, answer.arrays.get(name), shape)


def _check_numbers(site: str, meta: dict[str, Any]) -> None:
    train = meta.get("train", {})
    _only(f"training numbers of {site}", set(train), TRAIN_FIELDS)
    for name, value in train.items():
        if not _finite(value):
            _refuse(f"{name} of {site}", "a finite number", repr(value))
    for row in meta.get("metrics", []):
        _only(f"metric row of {site}", set(row), _ROW_FIELDS)
        kind = row["name"].split("/", 1)[0]
        if row["name"] not in METRICS and not ("/" in row["name"] and kind in CLASS_METRICS):
            _refuse(f"metric of {site}", f"one of {sorted(METRICS | CLASS_METRICS)}", repr(row["name"]))
        if row["value"] is not None and not _finite(row["value"]):
            _refuse(f"metric {row['name']} of {site}", "a finite number or nothing", repr(row["value"]))


def _check_array(site: str, name: str, array: np.ndarray | None, shape: tuple[int, ...]) -> None:
    where = f"array {name} of {site}"
    if array is None:
        _refuse(where, f"shape {shape}", "nothing")
    elif array.shape != shape or array.dtype != np.float32:
        _refuse(where, f"float32 of shape {shape}", f"{array.dtype} of shape {array.shape}")
    elif not np.isfinite(array).all():
        _refuse(where, "finite numbers", "NaN or infinity: the site's training diverged")


def _only(where: str, found: set[str], allowed: frozenset[str]) -> None:
    if extra := sorted(found - allowed):
        _refuse(where, f"only {', '.join(sorted(allowed)) or 'nothing'}", f"also {', '.join(extra)}")


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _refuse(where: str, expected: str, found: str) -> None:
    raise WireError(where, expected=expected, found=found, remedy="The answer is not used; see the wire list.")
