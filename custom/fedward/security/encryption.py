"""Updates as CKKS ciphertexts, which can be added without the key, and sums decrypted exactly.

Cheon, Kim, Kim, Song: *Homomorphic encryption for arithmetic of approximate numbers*, ASIACRYPT
2017, as computed by TenSEAL on Microsoft SEAL, with the contexts that NVIDIA FLARE's ``HEBuilder``
puts into startup kits.

CKKS answers with a small error. Somebody who sees both a ciphertext and the error of its decryption
can compute the key (Li and Micciancio, *On the security of homomorphic encryption on approximate
numbers*, EUROCRYPT 2021). The server sees both. So the numbers that are encrypted here are whole
numbers ``round(weight * update * 2^20)``, and a decrypted sum is rounded to whole numbers again.
The error is far below a half, so it is gone before anything leaves. A sum is exact, whatever the
order of its terms, and equal at every site.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedward.errors import ConfigError, WireError
from fedward.protocol.fields import RefusedError
from fedward.protocol.wire import (
    CIPHER_VALUES,
    LARGEST_CIPHER,
    cipher_name,
    ciphers_in_order,
)

FRACTION_BITS = 20
"""Bits after the binary point of an encrypted number.

A number of a mean is off by at most ``2^-21`` divided by the sites' mean weight, and by one float32
rounding.
"""
LARGEST_NUMBER = 2**41
"""Largest whole number of a site: an update times its weight stays below 2^21.

The numbers of 64 such sites still add up exactly.
"""
_LARGEST_ERROR = 0.25
"""Largest distance of a decrypted number from a whole one. Honest sums stay far below it."""
_DEGREE = 2 * CIPHER_VALUES
_COEFFICIENTS = (60, 40, 40)
_SCALE = 2.0**40
"""``HEBuilder``'s defaults: more than 128 bits of security (homomorphicencryption.org, 2018)."""
_INSTALL = "Install it at the server and all sites: pip install 'fedward[he]'."
SAME_CONTEXT = "Give every site the client_context.tenseal of the same provisioning."
_PROVISION = (
    "Provision with HEBuilder, as docs/encryption.md says, and hand out the contexts it makes."
)


class SiteKey:
    """The key that the sites share and the server must not have.

    It encrypts updates and decrypts sums of them.

    Args:
        content: a serialised TenSEAL context with its secret key, ``client_context.tenseal``.

    Raises:
        ConfigError: TenSEAL is missing, or the context does not decrypt exactly.
    """

    def __init__(self, content: bytes) -> None:
        self._context = _load(content, "client_context.tenseal")
        self.fingerprint = hashlib.sha256(content).hexdigest()
        if not self._context.has_secret_key():
            raise _unfit("client_context.tenseal", "a secret key", "none")
        if not self._is_exact():
            expected = f"degree {_DEGREE} and coefficients of {_COEFFICIENTS} bits"
            raise _unfit("client_context.tenseal", expected, "others")

    def encrypt(self, update: Mapping[str, np.ndarray], weight: int) -> dict[str, np.ndarray]:
        """Return ``weight * update`` as ciphertexts of 4096 numbers each.

        Args:
            update: finite float32 arrays. Their order is that of the numbers.
            weight: how often the update counts in the sum, >= 0.

        Returns:
            ``cipher/00000`` and so on: bytes as uint8.

        Raises:
            RefusedError: a number's product with the weight is 2^21 or more. The server may read
                the place of the error and not the number.
        """
        flat = np.concatenate([array.ravel() for array in update.values()]).astype(np.float64)
        numbers = np.rint(flat * weight * 2.0**FRACTION_BITS)
        if not bool((np.abs(numbers) <= LARGEST_NUMBER).all()):
            limit = LARGEST_NUMBER >> FRACTION_BITS
            raise RefusedError(
                "update to be encrypted",
                "Train with a smaller learning rate or fewer images a round, "
                "or a network without BatchNorm.",
                expected=f"numbers whose product with the weight {weight} is below {limit}",
                found=f"one of {np.abs(flat).max():.4g}",
            )
        padded = np.pad(numbers, (0, -len(numbers) % CIPHER_VALUES)).reshape(-1, CIPHER_VALUES)
        return {
            cipher_name("cipher", number): self._encrypt(row) for number, row in enumerate(padded)
        }

    def decrypt(self, ciphers: Sequence[np.ndarray], terms: int) -> np.ndarray:
        """Return a sum's whole numbers as int64, 4096 a ciphertext.

        Args:
            ciphers: the ciphertexts of the sum, in their order.
            terms: how many updates were added.

        Raises:
            WireError: a ciphertext is damaged or of another key, or more updates were added.
        """
        return np.concatenate([self._decrypt(cipher, terms * LARGEST_NUMBER) for cipher in ciphers])

    def _is_exact(self) -> bool:
        """Return whether ciphertexts of an allowed size can hold the largest numbers exactly."""
        probe = np.where(np.arange(CIPHER_VALUES) % 3, LARGEST_NUMBER, -LARGEST_NUMBER)
        try:
            cipher = self._encrypt(probe)
            return cipher.size <= LARGEST_CIPHER and np.array_equal(
                self._decrypt(cipher, LARGEST_NUMBER), probe
            )
        except (RuntimeError, ValueError, WireError):
            return False

    def _encrypt(self, numbers: np.ndarray) -> np.ndarray:
        vector = _tenseal().ckks_vector(self._context, numbers.astype(np.float64), scale=_SCALE)
        return np.frombuffer(vector.serialize(), np.uint8)

    def _decrypt(self, cipher: np.ndarray, largest: int) -> np.ndarray:
        numbers = np.array(_vector(self._context, cipher, "sum of ciphertexts").decrypt())
        whole: np.ndarray = np.rint(numbers)
        # Written so that NaN is refused too.
        is_small = np.abs(whole) <= largest
        is_exact = np.abs(numbers - whole) <= _LARGEST_ERROR
        if not bool((is_small & is_exact).all()):
            raise WireError(
                "sum of ciphertexts",
                SAME_CONTEXT,
                expected="whole numbers of the size of updates",
                found="others: a ciphertext is damaged, or made with another key",
            )
        return np.asarray(whole, dtype=np.int64)


class Adder:
    """The server's part, which adds ciphertexts and cannot read any.

    Args:
        content: a serialised TenSEAL context without secret key, ``server_context.tenseal``.

    Raises:
        ConfigError: TenSEAL is missing, the context cannot be read, or it holds the secret key.
    """

    def __init__(self, content: bytes) -> None:
        self._context = _load(content, "server_context.tenseal")
        if self._context.has_secret_key():
            raise _unfit(
                "server_context.tenseal", "no secret key: the server could read every update", "one"
            )

    def read(self, site: str, ciphers: Mapping[str, np.ndarray]) -> list[Any]:
        """Return a site's ciphertexts by number, for :meth:`add`.

        Raises:
            WireError: a ciphertext is damaged, as far as that can be seen without the key.
        """
        return [
            _vector(self._context, cipher, f"{cipher_name('cipher', number)} of {site}")
            for number, cipher in enumerate(ciphers_in_order("cipher", ciphers))
        ]

    @staticmethod
    def add(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
        """Return the sum, ciphertext by ciphertext, of two lists of the same length."""
        return [first + second for first, second in zip(one, other, strict=True)]

    @staticmethod
    def write(total: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return a sum as ``sum/00000`` and so on, bytes as uint8."""
        return {
            cipher_name("sum", number): np.frombuffer(vector.serialize(), np.uint8)
            for number, vector in enumerate(total)
        }


def mean_of(
    numbers: np.ndarray, weight: int, model: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, float32 array) of the weighted mean of updates.

    Args:
        numbers: int64, the decrypted sum, in the order of ``model``. Numbers after the last tensor
            are padding.
        weight: sum of the weights, > 0.
        model: name -> shape.
    """
    start = 0
    for name, shape in model.items():
        size = math.prod(shape)
        part = numbers[start : start + size] / (weight * 2.0**FRACTION_BITS)
        yield name, part.astype(np.float32).reshape(shape)
        start += size


def mean_digest(mean: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a mean's numbers in their order, 64 hexadecimal digits."""
    sha256 = hashlib.sha256()
    for array in mean.values():
        sha256.update(array.tobytes())
    return sha256.hexdigest()


def new_contexts() -> tuple[bytes, bytes]:
    """Return the server's and the sites' context of a new key, for a run in one process.

    Both are serialised as ``HEBuilder`` does it.
    """
    tenseal = _tenseal()
    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS,
        poly_modulus_degree=_DEGREE,
        coeff_mod_bit_sizes=list(_COEFFICIENTS),
        encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC,
    )
    context.global_scale = _SCALE
    parts = {"save_galois_keys": False, "save_relin_keys": False}
    server = context.serialize(save_public_key=False, save_secret_key=False, **parts)
    return server, context.serialize(save_public_key=True, save_secret_key=True, **parts)


def _tenseal() -> Any:
    """Return the optional package; raise ConfigError with the command that installs it."""
    try:
        import tenseal
    except ImportError as error:
        raise ConfigError(
            f"secure_aggregation needs the package tenseal: {error}", _INSTALL
        ) from error
    return tenseal


def _load(content: bytes, where: str) -> Any:
    tenseal = _tenseal()
    try:
        return tenseal.context_from(content)
    except (RuntimeError, TypeError, ValueError) as error:
        raise _unfit(where, "a TenSEAL context", str(error)) from error


def _vector(context: Any, cipher: np.ndarray, where: str) -> Any:
    """Return a ciphertext as TenSEAL's vector; raise WireError for anything else."""
    fault = ""
    try:
        vector = _tenseal().ckks_vector_from(context, cipher.tobytes())
        scales = [part.scale for part in vector.ciphertext()]
        if vector.size() != CIPHER_VALUES or scales != [_SCALE]:
            fault = f"{vector.size()}, scales {scales}"
    except (RuntimeError, ValueError) as error:
        fault = str(error)
    if fault:
        raise WireError(
            where,
            "It is not used. Server and sites need the contexts of the same provisioning.",
            expected=f"one ciphertext of {CIPHER_VALUES} numbers, scale {_SCALE}",
            found=fault,
        )
    return vector


def _unfit(where: str, expected: str, found: str) -> ConfigError:
    return ConfigError(where, _PROVISION, expected=expected, found=found)
