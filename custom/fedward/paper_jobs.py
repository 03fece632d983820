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
class PaperJob:
    """A method as its paper ran it."""

    method: str
    """Name of the method whose defaults are changed."""
    paper: Paper
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
        "images_at_most": 50,
        "batch": 10,
        "schedule": "constant",
        "round_warm_up": 0.0,
        "largest_share": 1.0,
        "synthetic.sites": 100,
    },
    unprinted=(
        "all values are those of the released code. Its ResNet-9 without BatchNorm is not built,"
        " and small_cnn, which has no BatchNorm either, takes its place; a round has the code's"
        " five steps, on 50 unlabelled images instead of all, because unlabelled batches are as"
        " large as labelled ones; the rate is constant, where the code lowers it without progress"
    ),
)
"""FedMatch with its own losses, whose results FedPerl's Table 1 quotes."""

_SERVER: dict[str, Any] = {"server_labels": True, "synthetic.labelled": 0.0}
_SERVER_UNPRINTED = "the server trains after each average, on as many images as a site"
_FEW_SITES: dict[str, Any] = {
    "synthetic.labelled": 1.0,
    "synthetic.sites": 10,
    "synthetic.places": None,
    "synthetic.labelled_sites": [2, 10],
}
"""The paper's clients 1 and 9, counted from 0, have labels: the second and the tenth site."""
_ALONE: dict[str, Any] = {"images_per_round": None}
"""A site that trains alone passes through all its images, as in the authors' code."""

PAPER_JOBS: dict[str, PaperJob] = {
    "fedperl": PaperJob("fedperl", FEDPERL),
    "fedmatch_peers": PaperJob("fedperl", FEDPERL, {"similarity": "answers", "anonymise": False}),
    "fedmatch_plus": PaperJob("fedperl", FEDPERL, {"similarity": "answers"}),
    "ssfl": PaperJob("ssfl", FEDPERL),
    "fedavg": PaperJob("fedavg", FEDPERL),
    "fedavg_full": PaperJob("fedavg", FEDPERL, {"synthetic.labelled": 1.0}),
    "local_lower": PaperJob("alone", FEDPERL, _ALONE),
    "local_upper": PaperJob("alone", FEDPERL, {**_ALONE, "synthetic.labelled": 1.0}),
    "local_fixmatch": PaperJob("alone", FEDPERL, {**_ALONE, "learns_from": "all_images"}),
    "fedmatch": PaperJob("fedmatch", FEDMATCH),
    "fedperl_server": PaperJob("fedperl", FEDPERL, _SERVER, _SERVER_UNPRINTED),
    "ssfl_server": PaperJob("ssfl", FEDPERL, _SERVER, _SERVER_UNPRINTED),
    "server_alone": PaperJob("fedavg", FEDPERL, _SERVER, _SERVER_UNPRINTED),
    "fedperl_few_sites": PaperJob("fedperl", FEDPERL, _FEW_SITES),
    "fedperl_few_sites_all": PaperJob("fedperl", FEDPERL, {**_FEW_SITES, "participants": None}),
    "fedirm": PaperJob(
        "fedirm",
        FEDPERL,
        {
            **_FEW_SITES,
            "rounds": 500,
            "participants": 3,
            "images_per_round": 416,
            "batch": 16,
            "learning_rate": 5e-5,
            "unlabelled_learning_rate": 5e-5,
            "weight_decay": 0.0,
        },
        "network, rounds, sites, batch and rate are FedPerl's own, and all else is as in FedIRM's"
        " code",
    ),
    "isofed": PaperJob("isofed", ISOFED),
    "rscfed": PaperJob("rscfed", ISOFED),
    "mt_wfedavg": PaperJob("mt_wfedavg", ISOFED),
    "wfedavg": PaperJob("wfedavg", ISOFED),
    "fedal": PaperJob("fedal", FEDAL),
    "fedal_random": PaperJob("fedal", FEDAL, {"sampler": "random"}),
    "selffed": PaperJob("selffed", SELFFED),
    # The paper trains a network without pre-training for a thousand rounds, by labels alone.
    "selffed_scratch": PaperJob(
        "selffed",
        SELFFED,
        {"rounds": 1000, "pretraining_rounds": 0, "contrastive": "off", "beta": 1.0},
    ),
}
"""Name of a shipped job -> the same method as its paper ran it."""
