"""The methods and their baselines with the settings that the four papers print.

A job of a paper is called ``NAME_paper`` wherever a job is named; ``fedward run NAME --paper`` is
the same. It needs site files with images like the paper's, because on synthetic images its results
would say nothing about the paper's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SUFFIX = "_paper"
"""End of the name of a paper's job."""


@dataclass(frozen=True)
class Paper:
    """What a paper's experiments have in common."""

    citation: str
    """Authors, place and year."""
    images: str
    """The paper's images, and how they were cut into sites."""
    machine: str
    """The machine and the time that the paper reports."""
    changes: Mapping[str, Any]
    """Key, as of ``fedward run --set`` -> value, as far as the paper differs from the defaults."""
    unprinted: str
    """What the paper leaves open, and how it is set here."""


@dataclass(frozen=True)
class Work:
    """How much a run computes, in passes of images through the network."""

    images: int
    """Images of one kind that all sites of a round train with together, as in the paper."""
    training: float
    """Passes of each image forwards and backwards."""
    forward: float = 0.0
    """Passes of each image forwards alone."""

    def passes(self, rounds: int) -> tuple[float, float]:
        """Return how many images pass in a run: forwards and backwards, and forwards alone."""
        return rounds * self.images * self.training, rounds * self.images * self.forward


@dataclass(frozen=True)
class PaperJob:
    """A method as its paper ran it."""

    method: str
    """The method whose defaults are changed."""
    paper: Paper
    work: Work
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changes besides those that all methods of the paper have."""

    @property
    def all_changes(self) -> dict[str, Any]:
        """Key -> value of all changes."""
        return {**self.paper.changes, **self.changes}


FEDPERL = Paper(
    citation="Bdair, Navab, Albarqouni, MELBA 2022",
    images=(
        "dermoscopic images of eight classes from five public sets at ten sites, ImageNet's weights"
    ),
    machine="one Titan Xp with 12 GB; about 6 hours a run",
    changes={
        "net": "tf_efficientnet_b0",
        "pretrained": True,
        "data.image_size": 224,
        "key_metric": "f1_weighted",
        "schedule": "constant",
        "round_warm_up": 0.0,
        "largest_share": 1.0,
    },
    unprinted=(
        "the size of EfficientNet is that of the authors' code, B0; the number of images in a"
        " round, 416, is about that of their smallest site; class weights, which the code has and"
        " the paper does not print, are off"
    ),
)
"""FedPerl and its baselines: the paper's section 3, Implementation Details."""

ISOFED = Paper(
    citation="Saha, Mishra, Noble, MICCAI 2023",
    images="one MedMNIST set of 28 pixels, cut into four sites by a Dirichlet draw of 0.8 or 0.5",
    machine="not reported",
    changes={
        "net": "small_cnn",
        "data.image_size": 28,
        "schedule": "constant",
        "round_warm_up": 0.0,
        "largest_share": 1.0,
    },
    unprinted=(
        "rates, weights, decay, batch and clipping are those of RSCFed's code, which the paper"
        " builds on; 200 rounds, where the paper gives none, and RSCFed ran up to 1,000"
    ),
)
"""IsoFed and its baselines: the paper's sections 3.1 and 3.2."""

FEDAL = Paper(
    citation="Deng, Yang, Suzuki, arXiv 2406.11310, 2024",
    images="dermoscopic images of three classes at four hospitals, ImageNet's weights",
    machine="not reported",
    changes={
        "net": "resnet101",
        "pretrained": True,
        "data.image_size": 224,
        "round_warm_up": 0.0,
        "largest_share": 1.0,
    },
    unprinted="a batch of 32 and labels of a tenth of the images at the start",
)
"""FedAL and its baselines: the paper's section on implementation."""

SELFFED = Paper(
    citation="Khowaja, Dev, Anwar, Linguraru, SelfFed",
    images="chest X-rays of three classes at twelve sites (COVID-FL), cut by a Dirichlet draw",
    machine="several GPUs (DistributedDataParallel); no time is reported",
    changes={
        "net": "masked_swin_224",
        "data.image_size": 224,
        "round_warm_up": 0.0,
        "largest_share": 1.0,
        "batch": 64,
        "learning_rate": 3e-3,
        "pretraining_warm_up": 5.0,
    },
    unprinted=(
        "the size of Swin (tiny), the queue, the temperature and the base of the weights by"
        " participation"
    ),
)
"""SelfFed and its baselines: the paper's sections IV-B and IV-C."""

_IMAGES_OF_FEDPERL = 3 * 416
"""Three sites a round, each with 416 images of each kind."""
_SUPERVISED = Work(_IMAGES_OF_FEDPERL, training=1)
_FIXMATCH = Work(_IMAGES_OF_FEDPERL, training=2, forward=1)
"""A labelled image and a strong view are learned from; a weak view makes the label."""
_PEERS = Work(_IMAGES_OF_FEDPERL, training=3, forward=1)
"""As FixMatch; the weak view is learned from, too, and passes through the peers' average."""

_LABELLED_IN_FEDPERL = 4_085
_UNLABELLED_IN_FEDPERL = 12_175
"""About how many training images of each kind the paper's ten sites have together."""
_ALONE: dict[str, Any] = {"images_per_round": None}
"""A site alone passes through all its images, as in the authors' code. All ten train."""

_BLOOD_TRAINING = 11_959
"""Training images of BloodMNIST, at all sites together."""
_MEAN_TEACHER = Work(_BLOOD_TRAINING, training=1, forward=0.5)
"""Half of the sites have no labels; there the teacher sees each image, too."""

_LABELLED_IN_FEDAL = 5 * 2_200
"""Five passes through the labels, whose number rises to half of 7,343 training images."""

_COVID_TRAINING = 16_000
"""Training images of COVID-FL, at all sites together."""

PAPER_JOBS: dict[str, PaperJob] = {
    "fedperl": PaperJob("fedperl", FEDPERL, _PEERS),
    # The weak view passes through two peers.
    "fedmatch_peers": PaperJob(
        "fedperl",
        FEDPERL,
        Work(_IMAGES_OF_FEDPERL, training=3, forward=2),
        {"similarity": "answers", "anonymise": False},
    ),
    "fedmatch_plus": PaperJob("fedperl", FEDPERL, _PEERS, {"similarity": "answers"}),
    "ssfl": PaperJob("ssfl", FEDPERL, _FIXMATCH),
    "fedavg": PaperJob("fedavg", FEDPERL, _SUPERVISED),
    "fedavg_full": PaperJob("fedavg", FEDPERL, _SUPERVISED, {"synthetic.labelled": 1.0}),
    "local_lower": PaperJob("alone", FEDPERL, Work(_LABELLED_IN_FEDPERL, training=1), _ALONE),
    "local_upper": PaperJob(
        "alone",
        FEDPERL,
        Work(_LABELLED_IN_FEDPERL + _UNLABELLED_IN_FEDPERL, training=1),
        {**_ALONE, "synthetic.labelled": 1.0},
    ),
    "local_fixmatch": PaperJob(
        "alone",
        FEDPERL,
        Work(_UNLABELLED_IN_FEDPERL, training=2, forward=1),
        {**_ALONE, "learns_from": "all_images"},
    ),
    "isofed": PaperJob("isofed", ISOFED, _MEAN_TEACHER),
    "rscfed": PaperJob("rscfed", ISOFED, _MEAN_TEACHER),
    "mt_wfedavg": PaperJob("mt_wfedavg", ISOFED, _MEAN_TEACHER),
    "wfedavg": PaperJob("wfedavg", ISOFED, Work(_BLOOD_TRAINING, training=1)),
    "fedal": PaperJob("fedal", FEDAL, Work(_LABELLED_IN_FEDAL, training=1, forward=0.2)),
    "fedal_random": PaperJob(
        "fedal", FEDAL, Work(_LABELLED_IN_FEDAL, training=1), {"sampler": "random"}
    ),
    "selffed": PaperJob("selffed", SELFFED, Work(_COVID_TRAINING, training=1)),
    # The paper trains a network without pre-training for a thousand rounds.
    "selffed_scratch": PaperJob(
        "selffed",
        SELFFED,
        Work(_COVID_TRAINING, training=1),
        {"rounds": 1000, "pretraining_rounds": 0},
    ),
}
"""Name of a shipped job -> the same method as its paper ran it."""
