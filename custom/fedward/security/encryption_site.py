"""A site's half of secure aggregation: it encrypts answers and decrypts the sum of an exchange."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedward.config import Experiment
from fedward.disk import PRIVATE, make_folder, save_json
from fedward.errors import ConfigError, UnreadableJsonError, WireError
from fedward.json_text import read_json_file
from fedward.methods.site_weights import SiteWeight
from fedward.protocol import answer_checks, wire
from fedward.protocol.array_checks import check_ciphers
from fedward.protocol.requests import DecryptRequest
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey, mean_digest, mean_of
from fedward.storage.lock import locked

_ROUNDING = 1 + 1e-9
"""Factor within which two numbers count as equal: they may differ by the rounding of floats."""


def require_key(key: SiteKey | None) -> SiteKey:
    """Return the key; raise ConfigError if a site that must encrypt has none."""
    if key is None:
        raise ConfigError(
            "secure_aggregation: this site has no key",
            "Run the job with `fedward run`, or on kits that were provisioned with HEBuilder.",
        )
    return key


def seal(answer: Message, task: str, weight: SiteWeight, key: SiteKey | None) -> Message:
    """Return an answer with ciphertexts of its update, times its weight, in place of the update.

    An answer without an update stays as it is.

    Args:
        answer: the site's answer.
        task: what it answers.
        weight: the algorithm's rule for what a site counts.
        key: the sites' key.

    Raises:
        ConfigError: there is no key.
        RefusedError: as :meth:`SiteKey.encrypt` does.
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
    """Return the answer to a request for decryption: the weighted mean of the updates.

    For one exchange of one run this site gives away only one mean, ever: from the means of A, B and
    C and of A and B, the server could compute the update of C. A run that is resumed may ask again,
    and is given the same mean only. Other sites keep records of their own.

    Args:
        request: how many updates were added, and their weight.
        sums: ``sum/<number>``, the ciphertexts.
        site: this site's name.
        experiment: the job's settings, which must ask for secure aggregation.
        key: the sites' key.
        model: name -> shape of the tensors that travel, in the model's order.
        folder: where the site records what it gave away.
        own: the weight of this site's update in the sum.

    Returns:
        ``mean/<tensor>`` as float32.

    Raises:
        WireError: there are fewer updates than a mean needs; their weights are too unequal, by the
            server's word or by this site's own weight; it is a second mean for one exchange; or it
            is not a sum of this key.
    """
    if request.sites < experiment.smallest_sum:
        raise _refused(f"sites of {experiment.smallest_sum} or more", f"{request.sites}")
    if not experiment.secure_aggregation:
        raise _refused("a job with secure aggregation", "one without")
    _check_weights(request, own, experiment.effective_replies)
    check_ciphers(f"sum for {site}", "sum", sums, model)
    ciphers = wire.ciphers_in_order("sum", sums)
    numbers = require_key(key).decrypt(ciphers, request.sites)
    mean = dict(mean_of(numbers, request.weight, model))
    record = folder / request.run / f"{site}-{request.round:05d}-{request.part:03d}.json"
    _keep(record, mean_digest(mean))
    arrays = {f"mean/{name}": array for name, array in mean.items()}
    answer = Message({"site": site, "round": request.round}, arrays)
    answer_checks.check_mean(answer, site, request.round, model)
    return answer


def _check_weights(request: DecryptRequest, own: int, least: float) -> None:
    """Raise WireError if the sum is worth too few equally weighted updates.

    This site knows only the sum of the others' weights. The sum of all updates is worth most if the
    others' weights are equal, so the server may not say more than that.

    Args:
        request: the request, with the worth that the server states.
        own: the weight of this site's update.
        least: how many equally weighted updates the sum must be worth.
    """
    if not least <= request.effective * _ROUNDING:
        expected = f"updates worth {least:.3g} equally weighted ones"
        raise _refused(expected, f"{request.effective:.3g}")
    own_share = own / request.weight
    share_of_each_other = (1 - own_share) / max(request.sites - 1, 1)
    sum_of_squares = own_share**2 + max(request.sites - 1, 1) * share_of_each_other**2
    most = 1 / sum_of_squares
    if not (own_share < 1 and request.effective <= most * _ROUNDING):
        raise _refused(
            f"at most {most:.3g} beside this site's own weight {own}",
            f"{request.effective:.3g} of {request.sites} updates, weight {request.weight}",
        )


def _keep(path: Path, digest: str) -> None:
    """Record a mean before it is given away; raise WireError if another one was recorded."""
    make_folder(path.parent, PRIVATE)
    with locked(path):
        if not path.exists():
            save_json(path, {"mean": digest})
        elif digest != _recorded_mean(path):
            raise _refused(
                "one mean for each exchange of a run",
                "another one for an exchange this site has decrypted",
            )


def _recorded_mean(path: Path) -> str | None:
    """Return the digest of the mean that was given away; None if the record is damaged."""
    try:
        return str(read_json_file(path)["mean"])
    except (UnreadableJsonError, KeyError, TypeError):
        return None


def _refused(expected: str, found: str) -> WireError:
    return WireError(
        "request to decrypt", "Nothing was decrypted for it.", expected=expected, found=found
    )
