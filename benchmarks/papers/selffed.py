"""SelfFed's Figures 3 and 6 (Khowaja et al., arXiv 2307.01514) and its ablations: what pre-training is worth.

Sites pre-train without labels, then fine-tune on the few they have. Rows of a seed share the split, the initial model,
and how many images a site sees in a round of each phase; what differs is how the encoder was pre-trained, and what
SelfFed adds to the fine-tuning. Pre-training is a run of its own, which all fine-tunings that begin with it share
(``--init``). Validation images choose the round; accuracy is that of all test images.

Not all work is equal. Contrast comes on top of the fine-tuning: at the server, on public images that no other row sees,
or at the sites. Where few sites of a round take part, that is so in the fine-tuning alone, which is then less work.
Pre-training on pooled images takes the steps one after the other that five sites take side by side, and bounds masked
pre-training, not what contrast adds. FedPerl's rows are to be compared with each other: their schedule is its own.

The paper gives no table, and no numbers of its figures in its text.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fedward.config import Experiment
from papers.isofed import DATASETS
from papers.selffed_sites import SITES

CHOOSES = "accuracy"
"""Validation metric that chooses a round, over all images."""
Start = Literal["none", "imagenet", "masked", "contrastive", "pooled"]
"""What a fine-tuning begins with: nothing, weights that timm has, or a pre-training: federated and masked, federated
and contrastive, or masked on the images of all sites in one place."""


class Row(NamedTuple):
    """A method as the tables name it."""

    title: str
    start: Start
    options: dict[str, Any]
    against: str = "mae"
    """The row that differs in one thing, which it is compared with."""
    method: str = "selffed"
    long: bool = False
    """Whether it fine-tunes for as long as others train in both phases."""


_PLAIN = {"contrastive": "off", "beta": 1.0}
_FEW = 3
"""Sites of a round, of five, where not all take part: 60 %."""
ROWS = {
    "scratch": Row("no pre-training", "none", _PLAIN),
    "scratch_long": Row("no pre-training, as long as both phases", "none", _PLAIN, long=True),
    "imagenet": Row("ImageNet weights", "imagenet", _PLAIN),
    "moco": Row("federated MoCo", "contrastive", _PLAIN),
    "mae": Row("federated MAE", "masked", _PLAIN),
    "mae_long": Row("federated MAE, fine-tuned as long", "masked", _PLAIN, "scratch_long", long=True),
    "selffed": Row("SelfFed", "masked", {}),
    "pooled": Row("MAE on pooled images (upper bound)", "pooled", _PLAIN),
    "client": Row("contrast at the sites", "masked", {"contrastive": "client"}),
    **{
        f"{contrastive}_{_FEW}_beta_{beta}": Row(
            f"{_FEW} of {SITES} sites, contrast {contrastive}, β = {beta}",
            "masked",
            {"contrastive": contrastive, "beta": beta, "participants": _FEW},
            "mae" if (contrastive, beta) == ("off", 1.0) else f"{contrastive if beta < 1 else 'off'}_{_FEW}_beta_1.0",
        )
        for contrastive in ("off", "server", "client")
        for beta in (1.0, 0.9)
    },
    "encoder": Row("SelfFed, classifiers stay at the sites", "masked", {"upload": "encoder"}, "selffed"),
    "fedperl": Row("FedPerl, no pre-training", "none", {}, "fedperl", "fedperl"),
    "fedperl_masked": Row("FedPerl from a SelfFed encoder", "masked", {}, "fedperl", "fedperl"),
}
COMPARED = ("scratch", "mae", "selffed", "pooled")
OTHER_ROWS: dict[int | str, tuple[str, ...]] = {
    "ablation": (
        *("scratch", "scratch_long", "moco", "mae", "mae_long", "selffed", "client"),
        *(row for row in ROWS if "_beta_" in row),
        "encoder",
    ),
    "init": ("fedperl", "fedperl_masked"),
}
"""Rows of what the paper does not show. With all sites β changes nothing, so those rows have it once."""
GAMMAS = (100.0, 1.0, 0.5)
"""Concentration of the paper's Splits 1 to 3: as good as equal sites, moderate, severe."""
SHARES = (0.1, 0.3, 0.7)
"""Labelled share of each site's training images."""
USUAL_GAMMA, USUAL_SHARE = 1.0, 0.1
"""Where the other one is varied."""


class Scale(NamedTuple):
    """How large the images, the network and the work are."""

    data: str
    """A MedMNIST set, or ``skin``."""
    image_size: int
    pretraining_rounds: int
    rounds: int
    """Of the fine-tuning."""
    batch: int = 64
    pretraining_images: int | None = None
    """Of a site in a round of phase 1, and of the pool so many for each site; None: all they have."""
    images: int | None = None
    """The same in the fine-tuning, so that more labels are not more work; of each phase of a round."""
    queue: int = 4096
    """Earlier keys to tell an image from."""
    pretraining_rate: float = 3.75e-4
    learning_rate: float = 7.5e-4

    @property
    def rounds_of_both(self) -> int:
        """Rounds of fine-tuning in which a site sees as many images as in both phases, where their number is fixed."""
        same = self.pretraining_images / self.images if self.pretraining_images and self.images else 1
        return self.rounds + round(self.pretraining_rounds * same)


SCALES = {
    "tiny": Scale("blood", 28, 2, 2, batch=16, pretraining_images=32, images=16, queue=16),
    "small": Scale("blood", 28, 40, 30, 32, pretraining_images=1024, images=256, queue=512, pretraining_rate=1e-3),
    "paper": Scale("skin", 224, pretraining_rounds=1600, rounds=100, queue=512),
}
"""``tiny`` shows in a minute that all fits together; ``paper`` has the paper's network and rounds, and needs a GPU."""
SKIN = ("AK", "BCC", "BKL", "DF", "MEL", "NV", "VASC")


@dataclass(frozen=True)
class Cell:
    """A row of the tables in one setting with one seed (of the split, the initial model and the training)."""

    scale: str
    gamma: float
    share: float
    row: str
    seed: int


class Pretraining(NamedTuple):
    """A run that fine-tunings begin with."""

    scale: str
    gamma: float
    start: Start
    seed: int


def cells(scale: str, figures: Iterable[int | str], rows: Sequence[str] | None, seeds: Iterable[int]) -> list[Cell]:
    """Return the cells of some figures seed by seed, each once.

    Args:
        scale: a key of :data:`SCALES`.
        figures: of 3, 6, ``ablation`` and ``init``.
        rows: instead of those of the figures.
        seeds: at least one.
    """
    wanted: list[tuple[float, float, str]] = []
    for figure in figures:
        gammas = GAMMAS if figure == 3 else (USUAL_GAMMA,)
        shares = SHARES if figure == 6 else (USUAL_SHARE,)
        named = rows_of(figure, scale) if rows is None else rows
        wanted += itertools.product(gammas, shares, named)
    return [Cell(scale, gamma, share, row, seed) for seed in seeds for gamma, share, row in dict.fromkeys(wanted)]


def rows_of(figure: int | str, scale: str) -> list[str]:
    """Return the rows of a figure; ImageNet weights there are for the network of ``paper`` alone."""
    return list(OTHER_ROWS.get(figure, (*COMPARED, "imagenet") if scale == "paper" else COMPARED))


def pretraining_of(cell: Cell) -> Pretraining | None:
    """Return what a cell's fine-tuning begins with; None for a fresh network or ready weights."""
    start = ROWS[cell.row].start
    gamma = USUAL_GAMMA if start == "pooled" else cell.gamma  # the pool is the same whoever would have its images
    return None if start in ("none", "imagenet") else Pretraining(cell.scale, gamma, start, cell.seed)


def pretraining_experiment(run: Pretraining) -> Experiment:
    """Return the experiment of a pre-training: phase 1 alone."""
    scale = SCALES[run.scale]
    each = SITES if run.start == "pooled" else 1
    options = {
        "rounds": scale.pretraining_rounds,
        "pretraining_rounds": scale.pretraining_rounds,
        "pretraining_warm_up": scale.pretraining_rounds / 40,
        "pretraining_rate": scale.pretraining_rate,
        "pretext": "contrastive" if run.start == "contrastive" else "masked",
        "images_per_round": scale.pretraining_images and each * scale.pretraining_images,
        "queue": scale.queue,
        "batch": scale.batch,
    }
    return _experiment("selffed", scale, options, run.seed, f"benchmark {run}")


def experiment_of(cell: Cell) -> Experiment:
    """Return a cell's experiment: phase 2 alone, or FedPerl."""
    scale, row = SCALES[cell.scale], ROWS[cell.row]
    rounds = scale.rounds_of_both if row.long else scale.rounds
    options = {"rounds": rounds, "batch": scale.batch, "learning_rate": scale.learning_rate, **row.options}
    if row.method == "selffed":
        options |= {
            "pretraining_rounds": 0,
            "images_per_round": scale.images,
            "queue": scale.queue,
            "warm_up": min(5, rounds // 6),
        }
    else:
        options |= {
            "participants": None,
            "images_per_round": scale.images or 8 * scale.batch,
            "warm_up": rounds // 3,
            "optimizer": "adamw",
            "weight_decay": 0.05,
            "class_weighting": "none",
        }
    return _experiment(row.method, scale, options, cell.seed, f"benchmark {cell}", row.start == "imagenet")


def _experiment(
    method: str, scale: Scale, options: dict[str, Any], seed: int, source: str, pretrained: bool = False
) -> Experiment:
    known = DATASETS.get(scale.data)
    net = f"{'masked_' if method == 'selffed' else ''}swin_{scale.image_size}"
    classes, views = (known.classes, known.views) if known else (SKIN, "rotation_invariant")
    raw = {
        "method": method,
        "options": options,
        "data": {"name": scale.data, "classes": classes, "image_size": scale.image_size, "views": views},
        "net": net,
        "pretrained": pretrained,
        "synthetic": None,
        "seed": seed,
        "evaluate_every": max(1, options["rounds"] // 6),
        "key_metric": CHOOSES,
    }
    return Experiment.parse(raw, source)


def describe(cell: Cell) -> str:
    """Return a cell in words."""
    return f"{cell.scale}, Dir({cell.gamma:g}), {cell.share:.0%} labelled, {cell.row} seed {cell.seed}"
