"""The parts of a study: rows, variants and claims, and the cells in which rows have results."""

from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fedward.evaluation.names import OF_ANSWERS
from fedward.lab.bench.reference import TITLE_BEGIN

Settings: TypeAlias = dict[str, Any]
"""Key, as of ``fedward run --set`` -> value."""
RowOfVariant: TypeAlias = tuple[str, str]
"""A variant and a row: where a value stands in the tables of a study."""
METRICS = (*OF_ANSWERS, "auroc_macro")
"""Metrics that a study may show, and that may choose its rounds.

Each recorded line has those that are defined on its images.
"""

_MARKUP = "|*`<>[]"


def _of_words(title: str) -> str:
    """Return a title; ValueError if pages would show it as something else, such as another row."""
    if not title.isprintable() or any(mark in title for mark in _MARKUP):
        raise ValueError(
            f"one line without {' '.join(_MARKUP)}, which pages show as more than text"
        )
    if title.startswith(TITLE_BEGIN):
        raise ValueError(
            f"text that does not begin with {TITLE_BEGIN!r}, as those of references do"
        )
    return title


Title: TypeAlias = Annotated[str, AfterValidator(_of_words)]
"""What pages call a study, a row, a variant or a community: words on one line, without markup."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Part):
    """One method."""

    title: Annotated[Title, Field(min_length=1)]
    job: str
    """A shipped job or a method."""
    settings: Settings = {}
    sites: str = ""
    """Folder of the site files, below the study's folder of site files.

    ``{seed}`` is replaced by the seed. Empty: the images are synthetic. Where the study has a
    partition, it is ``few``, ``all`` or ``centralised``: the labels that its share leaves, all
    labels, or one site that trains on the images of all.
    """
    alone: bool = False
    """Whether each site with labels trains alone; the result is the mean over these sites."""
    init: str = ""
    """Row whose finished run of the same variant and seed gives the first weights."""
    labels: str = ""
    """Row whose finished run of the same variant and seed bought the labels that this row uses."""
    removed: str = Field("", pattern="^([0-9a-f]{7,40})?$")
    """Commit up to which fedward had the row's settings; empty: it still has them.

    The lines of such a row count as all others, and it does not run again.
    """

    @property
    def removed_settings(self) -> Settings:
        """The settings that fedward no longer has."""
        return self.settings if self.removed else {}

    @property
    def needs(self) -> tuple[str, ...]:
        """Rows that must have run before this one."""
        return tuple(name for name in (self.init, self.labels) if name)


class Variant(_Part):
    """One way of training all rows, or some."""

    title: Title
    settings: Settings = {}
    """Settings of its rows; a row ignores those that its method does not have."""
    rows: tuple[str, ...] = ()
    """Rows that it changes; empty: all."""
    labelled: float | None = None
    """Share of the training labels that it uses, if variants differ by this share.

    The figure then has labels on its axis.
    """
    partition: str = ""
    """How its images are cut, if other than the study's; as :attr:`Study.partition`."""


class Claim(_Part):
    """What a study expects before it runs: the only kind of sentence that its page prints."""

    row: str
    than: str
    """Row that ``row`` is compared with, paired by repetition."""
    metric: str
    """One of the study's metrics."""
    direction: Literal["higher", "lower"]
    """Where ``row`` is expected in this metric."""
    variant: str = ""
    """Variant of ``row``; empty: the first one."""
    than_variant: str = ""
    """Variant of ``than``; empty: that of ``row``."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the value of ``than`` that ``row`` is compared with: 0.99 claims 99 % of it."""
    mean_over: tuple[str, ...] = ()
    """Variants whose mean is a repetition's value, in place of one variant, in any order.

    It is a claim on a whole grid, which has more power than one on each of its cells.
    """

    @model_validator(mode="after")
    def _one_variant_or_a_mean(self) -> "Claim":
        if self.mean_over and (self.variant or self.than_variant):
            raise ValueError("mean_over beside variant or than_variant, whose place it takes")
        if len(set(self.mean_over)) < len(self.mean_over) or len(self.mean_over) == 1:
            raise ValueError("mean_over that does not name two or more variants, each of them once")
        return self

    def places(self, first_variant: str) -> list[tuple[RowOfVariant, RowOfVariant]]:
        """Return where the values of both rows stand, for each variant whose mean is compared.

        Args:
            first_variant: the study's, which a claim means that names none.
        """
        if self.mean_over:
            return [((name, self.row), (name, self.than)) for name in self.mean_over]
        variant = self.variant or first_variant
        return [((variant, self.row), (self.than_variant or variant, self.than))]


class Cell(NamedTuple):
    """One result: of one run or, if sites are alone, of one run for each site."""

    variant: str
    row: str
    seed: int
    doubled: bool = False
    """Whether it trains for twice the rounds, to show convergence."""

    def __str__(self) -> str:
        """Return the cell as a console names it."""
        name = f"{self.variant} {self.row} seed {self.seed}"
        return f"{name}, twice the rounds" if self.doubled else name
