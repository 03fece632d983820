"""Messages as FLARE moves them: an FLModel's parameters for the arrays, one entry of its meta for
the rest.

Requests are full weights and answers differences, so that a site's own privacy filters apply to
what they were made for. An answer without arrays travels as metrics, which those filters leave
alone; several of them fail on no weights. This module knows dictionaries and arrays only, because
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
"""Name of the one FLARE task; the request says what the site does."""

_META = "fedward"


def pack_request(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Shareable:
    """Return the shareable of a request: the arrays are full weights. They are shared, not copied."""
    return _pack(meta, arrays, ParamsType.FULL)


def pack_answer(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Shareable:
    """Return the shareable of an answer: the arrays are differences; there may be none."""
    return _pack(meta, arrays, ParamsType.DIFF)


def unpack(shareable: Shareable) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return (meta, arrays) of a request or an answer.

    Raises WireError when it is not one of ours; what the meta and the arrays may hold is checked by
    the wire list.
    """
    try:
        dxo = from_shareable(shareable)
    except ValueError as error:
        raise _foreign(str(error)) from error
    meta = (dxo.meta or {}).get(_META)
    arrays = dxo.data or {}
    if not isinstance(meta, dict):
        raise _foreign("a message without one")
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise _foreign("parameters other than numpy arrays")
    return meta, {} if dxo.data_kind == DataKind.METRICS else dict(arrays)


def _pack(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kind: ParamsType) -> Shareable:
    content = {"params": dict(arrays), "params_type": kind} if arrays else {"metrics": {}}
    round_ = meta.get("round")
    known = round_ if isinstance(round_, int) and round_ >= 0 else None  # FLARE takes no other
    return FLModelUtils.to_shareable(
        FLModel(**content, current_round=known, meta={_META: dict(meta)})
    )


def _foreign(found: str) -> WireError:
    expected = f"weights, differences or metrics with a meta entry {_META!r}"
    remedy = "Server and sites must run the same version of fedward."
    return WireError("FLARE message", expected=expected, found=found, remedy=remedy)
