"""Messages as FLARE moves them.

The arrays are an FLModel's parameters, and one entry of its meta holds the rest. Requests are full
weights and answers are differences, as a site's own privacy filters expect. An answer without
arrays travels as metrics, which those filters leave alone; several of them fail on an update
without weights. This module uses dictionaries and arrays only, because
:mod:`fedward.protocol.wire` imports torch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedward.errors import WireError

TASK = "fedward"
"""Name of the one FLARE task; the request says what the site is to do."""

_META = "fedward"
"""Entry of an FLModel's meta that holds a message's meta."""


def pack_request(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Shareable:
    """Return the shareable of a request; its arrays are full weights, shared and not copied."""
    return _pack(meta, arrays, ParamsType.FULL)


def pack_answer(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Shareable:
    """Return the shareable of an answer; its arrays are differences, or there are none."""
    return _pack(meta, arrays, ParamsType.DIFF)


def unpack(shareable: Shareable) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return (meta, arrays) of a request or an answer.

    What meta and arrays may hold is checked later, by :mod:`fedward.protocol.wire`.

    Raises:
        WireError: the shareable is not a message of this package.
    """
    try:
        dxo = from_shareable(shareable)
    except ValueError as error:
        raise _foreign(str(error)) from error
    meta = (dxo.meta or {}).get(_META)
    arrays = dxo.data or {}
    if not isinstance(meta, dict):
        raise _foreign("a message without one")
    # FLARE also carries other names, such as numbers.
    if not all(isinstance(name, str) for name in arrays):
        raise _foreign("parameters whose names are no text")
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise _foreign("parameters other than numpy arrays")
    if dxo.data_kind == DataKind.METRICS:
        return meta, {}
    return meta, dict(arrays)


def _pack(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kind: ParamsType) -> Shareable:
    content: dict[str, Any] = {"metrics": {}}
    if arrays:
        content = {"params": dict(arrays), "params_type": kind}
    round_ = meta.get("round")
    if not isinstance(round_, int) or round_ < 0:
        round_ = None  # FLARE accepts no other round.
    model = FLModel(**content, current_round=round_, meta={_META: dict(meta)})
    return FLModelUtils.to_shareable(model)


def _foreign(found: str) -> WireError:
    return WireError(
        "FLARE message",
        expected=f"weights, differences or metrics with a meta entry {_META!r}",
        found=found,
        remedy="Server and sites must run the same version of fedward.",
    )
