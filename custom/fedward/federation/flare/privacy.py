"""Noise on a site's uploads: a FLARE result filter that clips an update, adds Gaussian noise, and keeps account of it.

What is accounted is the release of a site's whole clipped update, one for each answer that carries an update (one a
round in most methods), with noise added at the site: whoever reads all of them learns little about which updates of
norm <= clip the site made. That is no example-level privacy, as DP-SGD would give, and it says nothing about the counts
and metrics beside the update, which pass as they are. Numbers are floating point, as in every common library: attacks
on their last bits are not accounted for.
"""

import fcntl
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.utils.fl_context_utils import add_job_audit_event
from nvflare.app_common.app_constant import AppConstants

from fedward.errors import ConfigError, DataError, WireError
from fedward.federation.flare.places import site_state

LEDGER = "privacy-{site}.jsonl"
"""File in the site's own folder, which the simulator's sites share: a line for each release, over all jobs."""

_DXO_KEYS = frozenset(DXO(DataKind.METRICS, data={}).to_shareable())


class GaussianUpdateFilter(Filter):  # type: ignore[misc]
    """Clips the L2 norm of a whole update to ``clip`` and adds Gaussian noise of ``clip * noise_multiplier``.

    Goes into ``task_result_filters`` of a site's ``privacy.json``, by its full path. It fails closed: what is not a
    difference of finite float arrays raises, and FLARE then answers ``TASK_RESULT_FILTER_ERROR`` in its place, which
    the server counts as a failed site. Answers without arrays pass as they are.

    It is a ``Filter`` and not a ``DXOFilter``, because that base lets pass whatever it does not know.

    Args:
        clip: largest L2 norm of an update, over all its tensors together; > 0.
        noise_multiplier: standard deviation of the noise, in units of ``clip``; > 0.
        delta: for which epsilon is computed; in (0, 1), well below one over the number of records.

    Raises:
        ConfigError: a number out of its range, or the package dp-accounting is missing.
    """

    def __init__(self, clip: float, noise_multiplier: float, delta: float) -> None:
        super().__init__()
        for name, value, highest in (
            ("clip", clip, math.inf),
            ("noise_multiplier", noise_multiplier, math.inf),
            ("delta", delta, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < highest:
                raise ConfigError(
                    f"GaussianUpdateFilter, {name}",
                    expected="a finite number > 0" if highest == math.inf else "a number between 0 and 1",
                    found=repr(value),
                    remedy="Correct the filter's args in the site's privacy.json.",
                )
        self.clip, self.noise_multiplier, self.delta = clip, noise_multiplier, delta
        epsilon([noise_multiplier], delta)  # without the accountant no job starts, instead of failing in its round 1

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the answer with a noisy update; the release is in the ledger before it can leave.

        Raises:
            WireError: the answer is not what this filter can make safe.
            DataError: the ledger is damaged.
        """
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return make_reply(code)  # whatever else an error answer carries stays here
        dxo = _open(shareable)
        if not dxo.data:
            return shareable
        update = _checked(dxo)
        round_ = shareable.get_header(AppConstants.CURRENT_ROUND)
        row = enter(
            site_state(fl_ctx.get_engine().get_workspace()) / LEDGER.format(site=fl_ctx.get_identity_name()),
            {
                "job": fl_ctx.get_job_id(),
                "round": round_,
                "steps": (dxo.meta.get("fedward") or {}).get("steps"),
                "clip": self.clip,
                "norm": norm(update),  # for the site's choice of clip; never logged, as FLARE can send logs away
            },
            self.noise_multiplier,
            self.delta,
        )
        dxo.data = privatise(update, self.clip, self.noise_multiplier)
        dxo.add_filter_history(type(self).__name__)
        told = f"epsilon {row['epsilon']:.4g} at delta {self.delta:g} after {row['releases']} releases of this site"
        self.log_info(fl_ctx, f"round {round_}: clipped, noise of sigma {row['sigma']:g} added; {told}")
        add_job_audit_event(fl_ctx, msg=f"applied filter: {type(self).__name__}, {told}")
        return dxo.update_shareable(shareable)


def norm(arrays: Mapping[str, np.ndarray]) -> float:
    """Return the L2 norm over all elements of all arrays, in float64."""
    return math.hypot(*(float(np.linalg.norm(array.astype(np.float64).ravel())) for array in arrays.values()))


def privatise(arrays: Mapping[str, np.ndarray], clip: float, noise_multiplier: float) -> dict[str, np.ndarray]:
    """Return ``u min(1, clip / |u|) + N(0, (clip * noise_multiplier)^2)``, in the dtypes and shapes of ``arrays``.

    Clipped and added in float64, before rounding, so that rounding is part of what may be done to a release.
    """
    length = norm(arrays)
    scale = clip / length if length > clip else 1.0
    stream = _random_stream()
    return {
        name: (
            array.astype(np.float64) * scale
            + clip * noise_multiplier * _normal(array.size, stream).reshape(array.shape)
        ).astype(array.dtype)
        for name, array in arrays.items()
    }


def epsilon(noise_multipliers: Sequence[float], delta: float) -> float:
    """Return the epsilon of releases with these noise multipliers, each of any update of norm <= clip.

    Two such updates differ by up to 2 clip, so a release is a Gaussian mechanism with multiplier ``z / 2``; releases
    compose to one with ``(sum (2 / z)^2)^(-1/2)``, also when a release depends on those before.

    Raises:
        ConfigError: the package dp-accounting is missing.
    """
    try:
        from dp_accounting import get_epsilon_gaussian
    except ImportError as error:
        raise ConfigError(
            "GaussianUpdateFilter",
            expected="the package dp-accounting",
            found=str(error),
            remedy="Install it at this site: pip install 'fedward[privacy]'.",
        ) from error
    return float(get_epsilon_gaussian(1 / math.hypot(*(2 / z for z in noise_multipliers)), delta))


def enter(path: Path, release: Mapping[str, Any], noise_multiplier: float, delta: float) -> dict[str, Any]:
    """Append a release to a site's ledger, and return its line: ``release``, and what all of them spent so far.

    Raises:
        DataError: a line of the ledger cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two jobs may run at one site
        spent = [*_multipliers(file, path), noise_multiplier]
        row = {
            **release,
            "noise_multiplier": noise_multiplier,
            "sigma": release["clip"] * noise_multiplier,
            "delta": delta,
            "releases": len(spent),
            "epsilon": epsilon(spent, delta),
        }
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return row


def _multipliers(file: IO[str], path: Path) -> list[float]:
    file.seek(0)
    spent = []
    for number, line in enumerate(file, 1):
        try:
            spent.append(float(json.loads(line)["noise_multiplier"]))
            if not (0 < spent[-1] < math.inf and line.endswith("\n")):
                raise ValueError("not a whole line with a multiplier > 0")
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"privacy ledger {path}, line {number}",
                expected="a release",
                found=str(error),
                remedy="Restore the file from a backup; what was released cannot be accounted for without it.",
            ) from error
    return spent


def _open(shareable: Shareable) -> DXO:
    """Return an answer's DXO, if nothing but FLARE's headers is beside it, and no arrays are in its meta."""
    try:
        dxo = from_shareable(shareable)
    except ValueError as error:
        _refuse("a DXO", str(error))
    if strangers := sorted(map(str, set(shareable) - _DXO_KEYS)):
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
            kind = str(array.dtype) if isinstance(array, np.ndarray) else type(array).__name__
            _refuse("float arrays", f"{name} of type {kind}")
        if not np.isfinite(array).all():
            _refuse("finite numbers", f"NaN or infinity in {name}")
    return dict(dxo.data)


def _refuse(expected: str, found: str) -> NoReturn:
    raise WireError(
        "GaussianUpdateFilter",
        expected=expected,
        found=found,
        remedy="Nothing was sent. Run jobs whose sites answer with differences, or without this scope.",
    )


def _random_stream() -> CipherContext:
    """Return a keystream that nobody can continue.

    An update is exactly 0 where a weight is not trained: there the server sees the noise itself, and from the outputs
    of a common generator it could compute the rest.
    """
    return Cipher(algorithms.AES(secrets.token_bytes(32)), modes.CTR(bytes(16))).encryptor()


def _normal(count: int, stream: CipherContext) -> np.ndarray:
    """Return standard normal numbers in float64, by Box and Muller, from 53 bits for each."""
    pairs = (count + 1) // 2
    bits = np.frombuffer(stream.update(bytes(16 * pairs)), dtype="<u8") >> np.uint64(11)
    radius_of, angle_of = ((bits + np.uint64(1)) * 2.0**-53).reshape(2, pairs)  # in (0, 1]
    radius, angle = np.sqrt(-2 * np.log(radius_of)), 2 * np.pi * angle_of
    normal: np.ndarray = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
    return normal
