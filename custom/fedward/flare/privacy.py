"""Noise on a site's updates: a FLARE result filter that clips them, adds noise, and keeps account.

The account is of releases of a site's whole clipped update, one for each answer that carries an
update (one per round in most methods), with noise added at the site: a reader of all of them learns
little about which updates of norm <= clip the site made. This is not example-level privacy, as
DP-SGD would give, and it does not cover the counts and metrics beside the update, which pass
unchanged. Numbers are floating point, as in every common library: attacks on their last bits are
not accounted for.
"""

import json
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
from nvflare.private.privacy_manager import PrivacyManager, Scope

from fedward.errors import WireError
from fedward.flare.places import state_folder
from fedward.flare.shareables import pack_answer, unpack
from fedward.protocol.norms import norm
from fedward.security.noise_rule import Rule
from fedward.security.privacy_ledger import PRIVACY, BudgetUsedError, enter
from fedward.text import count

_PLAIN_KEYS = frozenset(DXO(DataKind.METRICS, data={}).to_shareable())


class GaussianUpdateFilter(Filter):  # type: ignore[misc]
    """Clips the L2 norm of a whole update, and adds Gaussian noise to it.

    A site names it, by its full path, in ``task_result_filters`` of its ``privacy.json``. It fails
    closed: an answer that is not a difference of finite float arrays raises, and the server counts
    a failed site. Answers without arrays pass unchanged. If an update would spend more than
    ``max_epsilon``, the server gets an error instead, which says so. The base is not FLARE's
    ``DXOFilter``, because that one passes everything on that it does not know.

    Args:
        clip: largest L2 norm of an update, over all its tensors together; in (0, 1e6].
        noise_multiplier: standard deviation of the noise, in units of ``clip``; at most 1e6, and so
            large that one release costs no more than ``max_epsilon``.
        delta: the delta for which epsilon is computed; in (0, 1e-4], and less than one divided by
            the site's number of training images.
        max_epsilon: the epsilon that all releases of this site together may spend, over all jobs;
            in (0, 20].

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
            WireError: this filter cannot make the answer safe, or a job brought the filter.
            DataError: the ledger is not what was written.
        """
        # A filter of the job could use up the site's budget.
        if self.get_prop(FilterContextKey.SOURCE) != FilterSource.SITE:
            _refuse("a filter of the site's privacy.json", "one of the job")
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return make_reply(code)  # Nothing else that an error answer carries leaves.
        dxo = _plain_dxo(shareable)
        if not dxo.data:
            return shareable
        update = _checked_update(dxo)
        rule = self.rule
        site = fl_ctx.get_identity_name()
        meta, _ = unpack(shareable)
        round_ = meta.get("round")
        images = meta.get("labelled", 0) + meta.get("unlabelled", 0)
        if images * rule.delta >= 1:
            _refuse(f"delta below one over {count(images, 'image')}", f"{rule.delta:g}")
        kit = Path(fl_ctx.get_engine().get_workspace().get_root_dir())
        ledger = PRIVACY.file(state_folder(kit), site)
        release = {
            "job": fl_ctx.get_job_id(),
            "round": round_,
            "steps": meta.get("steps"),
            # For the site's choice of clip. It is never logged, because FLARE can send logs away.
            "norm": norm(update),
        }
        try:
            row = enter(ledger, release, rule)
        except BudgetUsedError as error:
            self.log_error(fl_ctx, f"round {round_}: {error}", fire_event=False)
            return pack_answer({"site": site, "round": round_, "error": error.public}, {})
        dxo.data = privatise(update, rule.clip, rule.noise_multiplier)
        dxo.add_filter_history(type(self).__name__)
        spent = (
            f"epsilon {row['epsilon']:.4g} at delta {rule.delta:g} "
            f"after {count(row['releases'], 'release')} of this site"
        )
        noise = f"clipped, noise of sigma {row['sigma']:g} added"
        self.log_info(fl_ctx, f"round {round_}: {noise}; {spent}")
        add_job_audit_event(fl_ctx, msg=f"applied filter: {type(self).__name__}, {spent}")
        return dxo.update_shareable(shareable)


def adds_noise(scope: Scope | None) -> bool:
    """Return whether a privacy scope of a site adds noise to updates."""
    if scope is None:
        return False
    filters = scope.task_result_filters[FilterKey.OUT]
    return any(isinstance(result_filter, GaussianUpdateFilter) for result_filter in filters)


def default_scope(manager: PrivacyManager | None) -> str | None:
    """Return the name of a site's default privacy scope, or of its only one; None without either.

    Args:
        manager: the site's scopes; None without any.
    """
    if manager is None:
        return None
    if manager.default_scope:
        return str(manager.default_scope.name)
    names = list(manager.name_to_scopes)
    return str(names[0]) if len(names) == 1 else None


def privatise(
    arrays: Mapping[str, np.ndarray], clip: float, noise_multiplier: float
) -> dict[str, np.ndarray]:
    """Return ``u min(1, clip / |u|) + N(0, (clip * noise_multiplier)^2)``.

    Clipping and addition are in float64, and rounding comes last: what is done to a release after
    the noise was added costs no privacy.

    Args:
        arrays: the update u, by the names of its tensors.
        clip: largest L2 norm.
        noise_multiplier: standard deviation of the noise, in units of ``clip``.

    Returns:
        Arrays of the same names, dtypes and shapes.
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


def _plain_dxo(shareable: Shareable) -> DXO:
    """Return an answer's DXO; refuse an answer that could carry anything beside the update.

    That is anything but FLARE's headers beside the DXO, and arrays in its meta.
    """
    try:
        dxo = from_shareable(shareable)
    except ValueError as error:
        _refuse("a DXO", str(error))
    strangers = sorted(map(str, set(shareable) - _PLAIN_KEYS))
    if strangers:
        _refuse("a DXO and headers only", f"also {', '.join(strangers)}")
    try:
        json.dumps(dxo.meta)
    except (TypeError, ValueError) as error:
        _refuse("plain numbers and texts beside the update", str(error))
    return dxo


def _checked_update(dxo: DXO) -> dict[str, np.ndarray]:
    """Return the update in a DXO; refuse all but a difference of finite float arrays."""
    if dxo.data_kind != DataKind.WEIGHT_DIFF:
        _refuse("data of kind WEIGHT_DIFF", str(getattr(dxo.data_kind, "value", dxo.data_kind)))
    for name, array in dxo.data.items():
        if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.floating):
            kind = getattr(array, "dtype", type(array).__name__)
            _refuse("float arrays", f"{name} of type {kind}")
        if not np.isfinite(array).all():
            _refuse("finite numbers", f"NaN or infinity in {name}")
    return dict(dxo.data)


def _refuse(expected: str, found: str) -> NoReturn:
    remedy = (
        "Nothing was sent. Run jobs whose sites answer with differences, or without this scope."
    )
    raise WireError("GaussianUpdateFilter", expected=expected, found=found, remedy=remedy)


def _random_stream() -> CipherContext:
    """Return a keystream that nobody can predict from what was seen of it.

    An update is exactly 0 where a weight is not trained: there the server sees the noise itself,
    and from the outputs of a common generator it could compute the rest.
    """
    key = secrets.token_bytes(32)
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _normal(count: int, stream: CipherContext) -> np.ndarray:
    """Return standard normal numbers by the method of Box and Muller.

    Args:
        count: how many.
        stream: source of random bits, 53 for each number.

    Returns:
        float64 array of shape (count,).
    """
    pairs = (count + 1) // 2
    words = np.frombuffer(stream.update(bytes(16 * pairs)), dtype="<u8")
    bits = words >> np.uint64(11)
    # Uniform in (0, 1]: the logarithm of 0 would be infinite.
    uniform = (bits + np.uint64(1)) * 2.0**-53
    first, second = uniform.reshape(2, pairs)
    radius = np.sqrt(-2 * np.log(first))
    angle = 2 * np.pi * second
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
