"""The methods and their baselines with the settings that their papers print.

A job of a paper is called ``NAME_paper`` wherever a job is named; ``fedward run NAME --paper`` is
the same. It needs site files with images like the paper's: results on synthetic images could not
be compared with the paper's.

FedMatch with its own losses has the settings of its released code. Four baselines have no such job:
FedPerl's Table 1 quotes UDA, FixMatch with FedProx, and FedProx from FedMatch (Jeong et al., ICLR
2021), and prints none of their settings.
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
    """Key, as ``fedward run --set`` takes it -> value where the paper differs from the default."""
    unprinted: str
    """What the paper leaves open or is not built here, and which values are taken instead."""


@dataclass(frozen=True)
class Work:
    """How much a run computes, in passes of images through the network."""

    images: int
    """Images of one kind that all sites of a round train with together, as in the paper."""
    training: float
    """Number of passes of each image forwards and backwards; a fraction if not all images pass."""
    forward: float = 0.0
    """Number of passes of each image forwards alone."""

    def passes(self, rounds: int) -> tuple[float, float]:
        """Return a run's passes of images: forwards and backwards, and forwards alone."""
        return rounds * self.images * self.training, rounds * self.images * self.forward


@dataclass(frozen=True)
class PaperJob:
    """A method as its paper ran it."""

    method: str
    """Name of the method whose defaults are changed."""
    paper: Paper
    work: Work
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changes in addition to those for all methods of the paper."""
    further_unprinted: str = ""
    """What the paper leaves open for this job, besides what it leaves open for all."""

    @property
    def unprinted(self) -> str:
        """All that the paper leaves open, and which values are taken instead."""
        if not self.further_unprinted:
            return self.paper.unprinted
        return f"{self.paper.unprinted}; {self.further_unprinted}"

    @property
    def all_changes(self) -> dict[str, Any]:
        """Key -> value: the changes for all methods of the paper, and those for this job."""
        return {**self.paper.changes, **self.changes}


FEDPERL = Paper(
    citation="Bdair, Navab, Albarqouni, MELBA 2022",
    images=("skin images of eight classes from four public sets at ten sites, ImageNet's weights"),
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
"""FedPerl and its baselines: section 3 of the paper, "Implementation Details"."""

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
    images=(
        "dermoscopic images of three classes at four hospitals, cut to their central square"
        " (fit: crop in the site files), ImageNet's weights"
    ),
    machine="an NVIDIA A100; no time is reported",
    changes={
        "net": "resnet101",
        "pretrained": True,
        "data.image_size": 224,
        "data.views": "filtered",
        "round_warm_up": 0.0,
        "largest_share": 1.0,
    },
    unprinted="a batch of 32 and labels of a tenth of the images at the start",
)
"""FedAL and its baselines: the paper's section on implementation."""

SELFFED = Paper(
    citation="Khowaja, Dev, Anwar, Linguraru, arXiv 2307.01514, 2023",
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
        "predicted_pixels": "raw",
    },
    unprinted=(
        "the size of Swin (tiny), the queue, the temperature and the base of the weights by"
        " participation"
    ),
)
"""SelfFed and its baselines: the paper's sections IV-B and IV-C."""

FEDMATCH = Paper(
    citation="Jeong, Yoon, Yang, Hwang, ICLR 2021",
    images="CIFAR-10 at a hundred sites, each with five labels of each class",
    machine="not reported here",
    changes={
        "net": "small_cnn",
        "data.image_size": 32,
        "participants": 5,
        "images_per_round": None,
        "batch": 10,
        "schedule": "constant",
        "round_warm_up": 0.0,
        "largest_share": 1.0,
        "synthetic.sites": 100,
    },
    unprinted=(
        "all values are those of the released code. Its ResNet-9 without BatchNorm is not built,"
        " and small_cnn, which has no BatchNorm either, takes its place; unlabelled batches are as"
        " large as labelled ones; the rate is constant, where the code lowers it without progress"
    ),
)
"""FedMatch with its own losses, whose results FedPerl's Table 1 quotes."""

_IMAGES_OF_A_SITE = 416
"""Images of each kind that a site of FedPerl trains with in a round."""
_IMAGES_OF_FEDPERL = 3 * _IMAGES_OF_A_SITE
"""Three sites a round."""
_SUPERVISED = Work(_IMAGES_OF_FEDPERL, training=1)
_FIXMATCH = Work(_IMAGES_OF_FEDPERL, training=2, forward=1)
"""A labelled image and a strong view are learned from; a weak view gives the pseudo-label."""
_PEERS = Work(_IMAGES_OF_FEDPERL, training=3, forward=1)
"""As FixMatch, but the weak view is learned from, too, and passes through the peers' mean."""

_SERVER: dict[str, Any] = {"server_labels": True, "synthetic.labelled": 0.0}
# The server trains on as many images as one of the three sites: a third of a pass.
_SERVER_UNPRINTED = "the server trains after each average, on as many images as a site"
_FEW_SITES: dict[str, Any] = {
    "synthetic.labelled": 1.0,
    "synthetic.sites": 10,
    "synthetic.places": None,
    "synthetic.labelled_sites": [2, 10],
}
"""The paper's clients 1 and 9, counted from 0, have labels: the second and the tenth site."""
_FEW_SITES_TRAINING = 0.2 * 1 + 0.8 * 2
"""Two of ten sites learn from a labelled image, the others from a weak and from a strong view."""

_LABELLED_IN_FEDPERL = 4_085
_UNLABELLED_IN_FEDPERL = 12_175
"""About how many training images of each kind the paper's ten sites have together."""
_ALONE: dict[str, Any] = {"images_per_round": None}
"""A site that trains alone passes through all its images, as in the authors' code."""

_FEDMATCH = Work(5 * 510, training=2, forward=1.2)
"""Five sites a round, each with 510 unlabelled images.

In every tenth round they pass through two helpers, too: 0.2 passes a round on average.
"""

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
    # The weak view passes through two peers, not through their mean.
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
    "fedmatch": PaperJob("fedmatch", FEDMATCH, _FEDMATCH),
    # The sites have a weak and a strong view of each image, and the server has labelled images.
    "fedperl_server": PaperJob(
        "fedperl",
        FEDPERL,
        Work(_IMAGES_OF_FEDPERL, training=2 + 1 / 3, forward=1),
        _SERVER,
        _SERVER_UNPRINTED,
    ),
    "ssfl_server": PaperJob(
        "ssfl",
        FEDPERL,
        Work(_IMAGES_OF_FEDPERL, training=1 + 1 / 3, forward=1),
        _SERVER,
        _SERVER_UNPRINTED,
    ),
    "server_alone": PaperJob(
        "fedavg", FEDPERL, Work(_IMAGES_OF_A_SITE, training=1), _SERVER, _SERVER_UNPRINTED
    ),
    "fedperl_few_sites": PaperJob(
        "fedperl",
        FEDPERL,
        Work(_IMAGES_OF_FEDPERL, training=_FEW_SITES_TRAINING, forward=0.8),
        _FEW_SITES,
    ),
    "fedperl_few_sites_all": PaperJob(
        "fedperl",
        FEDPERL,
        Work(10 * _IMAGES_OF_A_SITE, training=_FEW_SITES_TRAINING, forward=0.8),
        {**_FEW_SITES, "participants": None},
    ),
    # The student and the teacher see each image of a site without labels. At a site with labels the
    # network sees each image again for the matrix of relations.
    "fedirm": PaperJob(
        "fedirm",
        FEDPERL,
        Work(_IMAGES_OF_FEDPERL, training=1, forward=1),
        {
            **_FEW_SITES,
            "rounds": 500,
            "participants": 3,
            "images_per_round": _IMAGES_OF_A_SITE,
            "batch": 16,
            "learning_rate": 5e-5,
            "unlabelled_learning_rate": 5e-5,
            "weight_decay": 0.0,
        },
        "network, rounds, sites, batch and rate are FedPerl's own, and all else is as in FedIRM's"
        " code",
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
