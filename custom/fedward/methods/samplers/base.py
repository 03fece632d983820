"""The interface of all samplers, and the two kinds that need nothing but ids or scores."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.samplers.pool import Pool, PoolUses, checked
from fedward.methods.samplers.selection import select

T = TypeVar("T")


class SamplerSettings(BaseModel):
    """The settings of a sampler; most samplers have none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sampler:
    """Chooses the images of a pool that are to be labelled next."""

    settings_type: type[SamplerSettings] = SamplerSettings
    """What the ``sampler_options`` of a job are checked against."""
    name: str
    """The name by which the job asks for it, in errors and in the list of questions."""
    settings: SamplerSettings
    """The checked settings of the job."""
    uses: PoolUses = PoolUses()
    """What it looks at; a site computes nothing else for it."""

    def __init__(self, name: str, settings: SamplerSettings) -> None:
        self.name = name
        self.settings = settings

    @property
    def assumes_one_label(self) -> bool:
        """Whether it assumes that each image shows one class.

        A sampler that looks at no predictions does not.
        """
        return self.uses.members > 0

    def choose(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose images.

        Args:
            pool: the site's unlabelled images, with what :attr:`uses` names.
            budget: at least 0.
            generator: the only source of chance, of :func:`fedward.seeds.torch_generator`; many
                samplers need none.

        Returns:
            Exactly min(budget, N) distinct ids of the pool, the most wanted first. Equal pools and
            equal generators give equal ids, in whatever order the pool lists its images. Images
            that a sampler finds equal are taken by rising id.

        Raises:
            ConfigError: a negative budget.
            DataError: the pool is not what :attr:`uses` asks for, or holds NaN; see
                :func:`fedward.methods.samplers.pool.checked`.

        Edge cases: empty pool: nothing, whatever else is missing. budget 0: nothing, but the pool
        is checked.
        """
        if budget < 0:
            raise ConfigError(
                f"site {pool.site}, sampler {self.name}",
                "Ask for 0 or more labels.",
                expected="a budget >= 0",
                found=f"{budget}",
            )
        if not pool.ids:
            return []
        pool = checked(pool, self.uses, self.name)
        return self.pick(pool, budget, generator) if budget else []

    def pick(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose from a checked pool that is not empty; the budget, >= 1, may be larger than it."""
        raise NotImplementedError


class ScoreSampler(Sampler):
    """A sampler that takes the images with the highest scores."""

    def scores(self, probabilities: Tensor) -> Tensor:
        """Return the scores (N,) float64 of probabilities (T, N, K); high scores are wanted."""
        raise NotImplementedError

    @property
    def assumes_one_label(self) -> bool:
        """Whether it trains heads of its own, which tell one class from another."""
        return self.uses.heads

    def scores_of(self, pool: Pool) -> Tensor:
        """Return the scores (N,) of a checked pool's images.

        Each is the mean over the questions about the image. Where an image may show several
        classes, each class is a question with two answers, and
        ``s(x) = (1/K) Σ_c s(p_c(x), 1 - p_c(x))``.
        """
        questions = pool.outputs.questions(pool.probabilities)  # (T, N, questions, answers)
        images_and_questions = questions.shape[1:3]
        scores = self.scores(questions.flatten(1, 2))
        return scores.reshape(images_and_questions).mean(dim=1)

    def pick(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose the highest scores."""
        return select(self.scores_of(pool), pool.ids, budget)


class Random(Sampler):
    """Draws uniformly, without replacement: the baseline."""

    def pick(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose by chance. O(N)."""
        return shuffled(pool.ids, generator)[:budget]


def shuffled(items: Sequence[T], generator: torch.Generator) -> list[T]:
    """Return the items in an order drawn from the generator."""
    order: list[int] = torch.randperm(
        len(items), generator=generator, device=generator.device
    ).tolist()
    return [items[index] for index in order]
