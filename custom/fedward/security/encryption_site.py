"""A site's half of secure aggregation: seals its answer, and opens the one sum of each exchange."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedward.config import Experiment
from fedward.errors import ConfigError, WireError
from fedward.methods.algorithm import Weight
from fedward.protocol import wire, wire_checks
from fedward.protocol.requests import DecryptRequest
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey, mean_of
from fedward.storage.checkpoint import save_json

_EXACT = 1 + 1e-9
"""Numbers that differ by their rounding alone are equal."""


def require_key(key: SiteKey | None) -> SiteKey:
    """Return the key; ConfigError where a site that shall encrypt was given none."""
    if key is None:
        remedy = "Run the job with `fedward run`, or on kits that were provisioned with HEBuilder."
        raise ConfigError(
            "secure_aggregation", expected="a site with a key", found="none", remedy=remedy
        )
    return key


def seal(answer: Message, task: str, weight: Weight, key: SiteKey | None) -> Message:
    """Return an answer to a task with ciphertexts of its update, times its weight, in place of the
    update.

    An answer without an update stays as it is. Raises as :meth:`SiteKey.encrypt` does.
    """
    if not answer.arrays:
        return answer
    key = require_key(key)
    meta = answer.meta
    times = weight(task, meta["labelled"], meta["unlabelled"], meta["steps"])
    return Message({**meta, wire.KEY: key.fingerprint}, key.encrypt(answer.arrays, times))


def open_sum(
    request: DecryptRequest,
    sums: Mapping[str, np.ndarray],
    site: str,
    experiment: Experiment,
    key: SiteKey | None,
    *,
    model: Mapping[str, tuple[int, ...]],
    folder: Path,
    own: int,
) -> Message:
    """Return the answer to a request for decryption: ``mean/<tensor>``, the weighted mean of the
    updates.

    For one exchange of one run a site gives away one mean, ever: with the means of A, B and C, and
    of A and B, the server could compute the update of C. A resumed run may ask again; only the same
    mean is given again.

    Args:
        request: how many updates were added, and their weight.
        sums: ``sum/<number>``, the ciphertexts.
        site: this site's name.
        experiment: what the job says; it must ask for secure aggregation.
        key: the sites' key.
        model: name -> shape of the tensors that travel, in the model's order.
        folder: where the site keeps what it gave away.
        own: the weight of this site's update in the sum.

    Raises:
        WireError: fewer updates than a mean needs, updates whose weights are too unequal by the
            server's word or by this site's own weight, a second mean for one exchange, or no sum of
            this key.
    """
    if request.sites < experiment.smallest_sum:
        raise _refused(f"sites of {experiment.smallest_sum} or more", f"{request.sites}")
    if not experiment.secure_aggregation:
        raise _refused("a job with secure aggregation", "one without")
    _check_weights(request, own, experiment.effective_replies)
    wire_checks.check_ciphers(f"sum for {site}", "sum", sums, model)
    numbers = require_key(key).decrypt([sums[name] for name in sorted(sums)], request.sites)
    mean = dict(mean_of(numbers, request.weight, model))
    _keep(
        folder / request.run / f"{site}-{request.round:05d}-{request.part:03d}.json",
        mean_digest(mean),
    )
    arrays = {f"mean/{name}": array for name, array in mean.items()}
    answer = Message({"site": site, "round": request.round}, arrays)
    wire_checks.check_mean(answer, site, request.round, model)
    return answer


def _check_weights(request: DecryptRequest, own: int, least: float) -> None:
    """Raise WireError where the sum is worth fewer equally weighted updates than ``least``, or than
    the server says.

    Of the others' weights this site knows the sum alone: the sum of all is worth most where these
    are equal.
    """
    share = own / request.weight
    most = 1 / (share**2 + (1 - share) ** 2 / max(request.sites - 1, 1))
    if not least <= request.effective * _EXACT:
        raise _refused(
            f"updates worth {least:.3g} equally weighted ones", f"{request.effective:.3g}"
        )
    if not (share < 1 and request.effective <= most * _EXACT):
        fits = f"at most {most:.3g} beside this site's own weight {own}"
        raise _refused(
            fits, f"{request.effective:.3g} of {request.sites} updates, weight {request.weight}"
        )


def mean_digest(mean: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a mean's numbers in their order, 64 hexadecimal digits."""
    total = hashlib.sha256()
    for array in mean.values():
        total.update(array.tobytes())
    return total.hexdigest()


def _keep(path: Path, digest: str) -> None:
    """Note what is given away before it is, or refuse where that was something else before."""
    if not path.exists():
        save_json(path, {"mean": digest})
    elif digest not in path.read_text(encoding="utf-8"):  # a damaged note refuses too
        raise _refused(
            "one mean for each exchange of a run",
            "another one for an exchange this site has decrypted",
        )


def _refused(expected: str, found: str) -> WireError:
    return WireError(
        "request to decrypt", expected=expected, found=found, remedy="Nothing was decrypted for it."
    )
