"""Random generators derived from a seed and a purpose, equal on every machine and in any order.

Importing this module does not import torch, which reading a site's files does not need.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


_TWISTER_WORDS = 624
"""Number of 32-bit words in the state of a Mersenne Twister."""

_WORDS_IN_STATE = slice(24, 24 + 8 * _TWISTER_WORDS)
"""Bytes of torch's generator state that hold these words, each in 64 bits."""


def derive(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose, such as ``derive(7, "views", "site-3", round)``.

    Equal arguments give equal seeds on every platform. Different purposes give unrelated streams,
    so that drawing more numbers for one purpose never shifts those of another.
    """
    return _seed_of(hashlib.sha256(_text(seed, *purpose)).digest())


def _text(*parts: str | int) -> bytes:
    return "\x1f".join(f"{type(part).__name__}:{part}" for part in parts).encode()


def _seed_of(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big") >> 1


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a numpy generator for one purpose (see :func:`derive`)."""
    return np.random.default_rng(derive(seed, *purpose))


def torch_generator(seed: int, *purpose: str | int) -> "torch.Generator":
    """Return a CPU torch generator for one purpose (see :func:`derive`).

    Always on the CPU: numbers drawn there and moved are equal whatever device trains.
    """
    import torch

    return torch.Generator().manual_seed(derive(seed, *purpose))


@dataclass(frozen=True)
class Draws:
    """Derives what one participant draws for itself, such as the order of its images.

    What both ends must agree on, such as first weights, is drawn with :func:`derive`, which uses no
    secret.
    """

    seed: int
    """The experiment's seed."""
    secret: bytes = field(default=b"", repr=False)
    """The participant's own 32 bytes, without which nobody can compute its draws.

    Empty: the seed alone decides."""

    def derive(self, *purpose: str | int) -> int:
        """Return a 63-bit seed for one purpose; without a secret it is that of :func:`derive`."""
        if not self.secret:
            return derive(self.seed, *purpose)
        return _seed_of(self._digest(*purpose))

    def torch_generator(self, *purpose: str | int) -> "torch.Generator":
        """Return a CPU torch generator for one purpose.

        Without a secret, torch uses 32 bits of the seed, which can be found by trying all. With a
        secret, the generator's whole state follows from a digest, which numpy's ``SeedSequence``
        mixes to 128 bits.
        """
        import torch

        if not self.secret:
            return torch_generator(self.seed, *purpose)
        entropy = np.random.SeedSequence(int.from_bytes(self._digest(*purpose), "big"))
        words = entropy.generate_state(_TWISTER_WORDS)
        generator = torch.Generator().manual_seed(0)
        state = generator.get_state()
        state[_WORDS_IN_STATE].view(torch.int64).copy_(torch.from_numpy(words.astype(np.int64)))
        return generator.set_state(state)

    def _digest(self, *purpose: str | int) -> bytes:
        return hmac.digest(self.secret, _text(self.seed, *purpose), "sha256")
