"""Noise on a site's uploads: a FLARE result filter that clips an update, adds Gaussian noise, and
keeps account of it.

What is accounted is the release of a site's whole clipped update, one for each answer that carries
an update (one a round in most methods), with noise added at the site: whoever reads all of them
learns little about which updates of norm <= clip the site made. That is no example-level privacy,
as DP-SGD would give, and it says nothing about the counts and metrics beside the update, which pass
as they are. Numbers are floating point, as in every common library: attacks on their last bits are
not accounted for.
"""

import json
import math
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.filter import Filter, FilterContextKey, FilterSource
from nvflare.apis.fl_constant import FilterKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.utils.fl_context_utils import add_job_audit_event
from nvflare.private.privacy_manager import Scope

from fedward.errors import WireError
from fedward.flare.places import state_folder
from fedward.flare.shareables import pack_answer, unpack
from fedward.security.ledger import BudgetUsedError, Rule, enter, ledger_file

_DXO_KEYS = frozenset(DXO(DataKind.METRICS, data={}).to_shareable())


class GaussianUpdateFilter(Filter):  # type: ignore[misc]
    """Clips the L2 norm of a whole update to ``clip`` and adds Gaussian noise of ``clip *
    noise_multiplier``.

    Goes into ``task_result_filters`` of a site's ``privacy.json``, by its full path. It fails
    closed: what is not a difference of finite float arrays raises, and the server counts a failed
    site. Answers without arrays pass as they are. In place of an update that would spend more than
    ``max_epsilon`` the server is sent an error, which says so. It is no ``DXOFilter``, since that
    base passes on whatever it does not know.

    Args:
        clip: largest L2 norm of an update, over all its tensors together; in (0, 1e6].
        noise_multiplier: standard deviation of the noise, in units of ``clip``; at most 1e6, and so
            large that one release costs no more than ``max_epsilon``.
        delta: for which epsilon is computed; in (0, 1e-4], and below one over the site's number of
            training images.
        max_epsilon: what all releases of this site together may spend, over all jobs; in (0, 20].

    Raises:
        ConfigError: a number out of its range, or the package dp-accounting is missing.
    """

    def __init__(
        self, clip: float, noise_multiplier: float, delta: float, max_epsilon: float
    ) -> None:
        super().__init__()
        self.rule = Rule(clip, noise_multiplier, delta, max_epsilon)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the answer with a noisy update; the release is in the ledger before it can leave.

        Raises:
            WireError: the answer is not what this filter can make safe, or a job brought the
                filter.
            DataError: the ledger is not what was written.
        """
        if self.get_prop(FilterContextKey.SOURCE) != FilterSource.SITE:
            _refuse(
                "a filter of the site's privacy.json", "one of the job"
            )  # it could use up the site's budget
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return make_reply(code)  # whatever else an error answer carries stays here
        dxo = _open(shareable)
        if not dxo.data:
            return shareable
        update = _checked(dxo)
        rule = self.rule
        site = fl_ctx.get_identity_name()
        meta, _ = unpack(shareable)
        round_ = meta.get("round")
        images = meta.get("labelled", 0) + meta.get("unlabelled", 0)
        if images * rule.delta >= 1:
            _refuse(f"delta below one over {images} images", f"{rule.delta:g}")
        ledger = ledger_file(
            state_folder(Path(fl_ctx.get_engine().get_workspace().get_root_dir())), site
        )
        release = {"job": fl_ctx.get_job_id(), "round": round_, "steps": meta.get("steps")}
        release["norm"] = norm(
            update
        )  # for the site's choice of clip; never logged, as FLARE can send logs away
        try:
            row = enter(ledger, release, rule)
        except BudgetUsedError as error:
            self.log_error(fl_ctx, f"round {round_}: {error}", fire_event=False)
            return pack_answer({"site": site, "round": round_, "error": error.public}, {})
        dxo.data = privatise(update, rule.clip, rule.noise_multiplier)
        dxo.add_filter_history(type(self).__name__)
        spent = f"epsilon {row['epsilon']:.4g} at delta {rule.delta:g} after {row['releases']} releases of this site"
        self.log_info(
            fl_ctx, f"round {round_}: clipped, noise of sigma {row['sigma']:g} added; {spent}"
        )
        add_job_audit_event(fl_ctx, msg=f"applied filter: {type(self).__name__}, {spent}")
        return dxo.update_shareable(shareable)


def adds_noise(scope: Scope | None) -> bool:
    """Return whether a privacy scope of a site adds noise to updates."""
    filters = scope.task_result_filters[FilterKey.OUT] if scope else ()
    return any(isinstance(each, GaussianUpdateFilter) for each in filters)


def norm(arrays: Mapping[str, np.ndarray]) -> float:
    """Return the L2 norm over all elements of all arrays, in float64."""
    return math.hypot(
        *(float(np.linalg.norm(array.astype(np.float64).ravel())) for array in arrays.values())
    )


def privatise(
    arrays: Mapping[str, np.ndarray], clip: float, noise_multiplier: float
) -> dict[str, np.ndarray]:
    """Return ``u min(1, clip / |u|) + N(0, (clip * noise_multiplier)^2)``, in the dtypes and shapes
    of ``arrays``.

    Clipped and added in float64, before rounding, so that rounding is part of what may be done to a
    release.
    """
    length = norm(arrays)
    stream = _random_stream()
    scale = clip / length if length > clip else 1.0
    sigma = clip * noise_multiplier
    noisy = {}
    for name, array in arrays.items():
        noise = sigma * _normal(array.size, stream).reshape(array.shape)
        noisy[name] = (array.astype(np.float64) * scale + noise).astype(array.dtype)
    return noisy


def _open(shareable: Shareable) -> DXO:
    """Return an answer's DXO, if nothing but FLARE's headers is beside it, and no arrays are in its
    meta.
    """
    try:
        dxo = from_shareable(shareable)
    except ValueError as error:
        _refuse("a DXO", str(error))
    strangers = sorted(map(str, set(shareable) - _DXO_KEYS))
    if strangers:
        _refuse("a DXO and headers only", f"also {', '.join(strangers)}")
    try:
        json.dumps(dxo.meta)
    except (TypeError, ValueError) as error:
        _refuse("plain numbers and texts beside the update", str(error))
    return dxo


def _checked(dxo: DXO) -> dict[str, np.ndarray]:
    if dxo.data_kind != DataKind.WEIGHT_DIFF:
        _refuse("data of kind WEIGHT_DIFF", str(getattr(dxo.data_kind, "value", dxo.data_kind)))
    for name, array in dxo.data.items():
        if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.floating):
            _refuse(
                "float arrays", f"{name} of type {getattr(array, 'dtype', type(array).__name__)}"
            )
        if not np.isfinite(array).all():
            _refuse("finite numbers", f"NaN or infinity in {name}")
    return dict(dxo.data)


def _refuse(expected: str, found: str) -> NoReturn:
    remedy = (
        "Nothing was sent. Run jobs whose sites answer with differences, or without this scope."
    )
    raise WireError("GaussianUpdateFilter", expected=expected, found=found, remedy=remedy)


def _random_stream() -> CipherContext:
    """Return a keystream that nobody can continue.

    An update is exactly 0 where a weight is not trained: there the server sees the noise itself,
    and from the outputs of a common generator it could compute the rest.
    """
    return Cipher(algorithms.AES(secrets.token_bytes(32)), modes.CTR(bytes(16))).encryptor()


def _normal(count: int, stream: CipherContext) -> np.ndarray:
    """Return standard normal numbers in float64, by Box and Muller, from 53 bits for each."""
    pairs = (count + 1) // 2
    bits = np.frombuffer(stream.update(bytes(16 * pairs)), dtype="<u8") >> np.uint64(11)
    radius_of, angle_of = ((bits + np.uint64(1)) * 2.0**-53).reshape(2, pairs)  # in (0, 1]
    radius = np.sqrt(-2 * np.log(radius_of))
    angle = 2 * np.pi * angle_of
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
