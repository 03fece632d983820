"""A site's own policy: what a job may ask of the site, rule by rule.

The site checks each request against it before it reads data; see :mod:`fedward.client.admission`.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedward import private
from fedward.errors import ConfigError, WorkError, reason_of
from fedward.faults import explain, names_in
from fedward.registry import METHODS, NETWORKS
from fedward.yaml_text import read_yaml_file

POLICY_FILE = "fedward_policy.yaml"
"""The policy's name in the folder ``local`` of a site's kit."""

AllowedNames = Literal["any"] | Annotated[tuple[str, ...], Field(strict=False)]
"""Names that a rule allows, or all of them."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256, in hexadecimal digits."""
AllowedWeights = Literal["none", "any"] | Annotated[tuple[Sha256, ...], Field(strict=False)]
"""The SHA-256 of weights that a rule allows, all weights or none."""

_LITE = tuple(f"tf_efficientnet_lite{number}" for number in range(3))
"""Networks of timm that the default policy allows, besides two ResNets."""


class PolicyError(WorkError):
    """A site's policy forbids what a job asks for. The server may read the text."""

    final = False
    """Whether the same job would be refused again, whatever its next request asks for."""


class JobRefusedError(PolicyError):
    """The policy forbids the job itself."""

    final = True


class Policy(BaseModel):
    """What a site lets jobs ask of it. Each field is a rule; docs/policy.md gives its reason."""

    # Strict, because `true` would otherwise be the limit 1.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    methods: AllowedNames = tuple(METHODS.builtin)
    """Methods that may train; ``any``: all methods of fedward."""
    nets: AllowedNames = (*NETWORKS.builtin, *_LITE, "resnet18", "resnet50")
    """Networks that may be trained; ``any``: all networks of fedward, timm and MONAI."""
    extensions: AllowedNames = ()
    """Methods, networks, samplers, views and metrics that jobs may take from other packages.

    They are named as ``package:name`` or ``package==version:name``; ``any``: all that are
    installed. Nothing is imported from a package that is not named here.
    """
    minimum_sites: int = Field(3, ge=1)
    """The fewest sites that the run must have, as the server reports them."""
    minimum_replies: int = Field(3, ge=1)
    """The fewest updates that the server must have before it may use any of them."""
    minimum_effective_replies: float = Field(2.5, ge=1)
    """The fewest equally weighted updates that each average must be worth.

    It is worth 1 / Σ w_k², where w_k is the share of site k in the average.
    """
    minimum_participants: int = Field(3, ge=1)
    """The fewest sites that must be asked in each round."""
    maximum_share: float = Field(0.5, gt=0, le=1)
    """The largest share of one site in an average of three sites or more."""
    minimum_images: int = Field(32, ge=1)
    """The fewest images of each kind, labelled and unlabelled, that a round here must learn from.

    Both the job's settings and the different images that this site holds must reach it.
    """
    minimum_steps: int = Field(4, ge=1)
    """The fewest optimiser steps that a round here must take."""
    minimum_batch: int = Field(8, ge=1)
    """The fewest different images in one step, of each kind that can make its loss alone.

    These are labelled images, and images with a pseudo-label where a site has no others.
    """
    maximum_learning_rate: float | None = Field(0.5, gt=0)
    """The largest learning rate of SGD, divided by 1 - momentum; None: any."""
    maximum_adam_rate: float | None = Field(0.01, gt=0)
    """The largest learning rate of Adam and AdamW; None: any."""
    maximum_forgetting: float | None = Field(0.1, gt=0, lt=1)
    """The largest share of the changes of earlier steps that one step may take back; None: any.

    Weight decay and a proximal term take them back.
    """
    maximum_clip: float | None = Field(100.0, gt=0)
    """The largest norm to which the gradient of each step is clipped; None: any norm, or none."""
    maximum_loss_weight: float | None = Field(1.0, gt=0)
    """The largest weight of a loss on unlabelled images; None: any.

    The loss on labelled images has the weight 1.
    """
    maximum_image_share: float = Field(0.5, gt=0, le=1)
    """The largest share of a batch's loss that class weights may give to one image.

    It holds where the batch has the image once. One across the end of a pass may have it again.
    """
    lone_peers: bool = False
    """Whether the server may send the model of one site alone to another site."""
    maximum_rounds: int | None = Field(1000, ge=1)
    """The most rounds of a job; None: any number."""
    maximum_images: int | None = Field(1_000_000, ge=1)
    """The most images that the training of one round may go through here; None: any number.

    An image counts each time it is used.
    """
    maximum_image_size: int | None = Field(512, ge=16)
    """The largest height and width of decoded images, in pixels; None: any that a job may have."""
    maximum_questions: int | None = Field(500, ge=0)
    """The most labels that one run may ask for here in active learning; None: any number.

    The labels at the start count too.
    """
    maximum_questions_in_all: int | None = Field(None, ge=0)
    """The most labels that all runs of all jobs together may ask for here; None: any number."""
    maximum_sums: int | None = Field(100, ge=0)
    """The most runs, over all jobs, that may receive sums of this site's images; None: any number.

    ``oneshot``, ``fedirm`` and surveys ask for such sums.
    """
    surveys: bool = False
    """Whether a ``survey`` may ask about this site's images: their classes, how bright they are."""
    card: bool = False
    """Whether what this site's card says leaves it with its answers (``card`` of the site file)."""
    subgroups: bool = False
    """Whether right answers are also counted by the columns that ``subgroups`` of the site file
    names."""
    draws: Literal["secret", "seed"] = "secret"
    """What decides which images a step uses.

    ``secret``: the job's seed and a secret of this site. ``seed``: the job's seed alone, for tests
    that compare two engines.
    """
    noise: Literal["optional", "required"] = "optional"
    """Whether the privacy scope of the job must add noise to updates (``GaussianUpdateFilter``)."""
    starting_weights: AllowedWeights = "none"
    """Weights that a run may start from: none but fresh ones, any, or those with these SHA-256."""
    weights_files: AllowedWeights = "none"
    """Files of weights that networks may begin with (``pretrained`` of a job), by their SHA-256.

    ``any``: all files at this site.
    """
    approval: Literal["none", "required"] = "none"
    """Whether each job waits until this site's administrator has approved its digest."""


OPEN = Policy(
    methods="any",
    nets="any",
    extensions="any",
    minimum_sites=1,
    minimum_replies=1,
    minimum_effective_replies=1,
    minimum_participants=1,
    maximum_share=1,
    minimum_images=1,
    minimum_steps=1,
    minimum_batch=1,
    maximum_learning_rate=None,
    maximum_adam_rate=None,
    maximum_forgetting=None,
    maximum_clip=None,
    maximum_loss_weight=None,
    maximum_image_share=1,
    lone_peers=True,
    maximum_rounds=None,
    maximum_images=None,
    maximum_image_size=None,
    maximum_questions=None,
    maximum_sums=None,
    surveys=True,
    card=True,
    subgroups=True,
    draws="seed",
    starting_weights="any",
    weights_files="any",
)
"""The policy that forbids nothing.

It is for runs in one process and in FLARE's simulator, where one user has the data of all sites.
"""


def read_policy(file: Path) -> Policy:
    """Return a site's policy.

    A rule that the file does not name has its default, and so have all rules without a file.

    Raises:
        ConfigError: the file cannot be read, has an unknown or wrong rule, or does not meet
            :data:`fedward.private.RULES`.
    """
    try:
        # A link is followed: a cluster mounts its files as links.
        problem = private.fault(file.stat(), private.RULES)
        if problem:
            raise ConfigError(
                f"policy {file}",
                f"Look at its rules, then chmod o-w {file.name}.",
                expected=private.RULES.expected,
                found=problem,
            )
        content = read_yaml_file(file)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not file.is_symlink():
            return Policy()
        raise ConfigError(
            f"policy {file}",
            "Correct or restore it; until then this site refuses every job.",
            expected="readable YAML",
            found=reason_of(error),
        ) from error
    try:
        return Policy.model_validate({} if content is None else content)
    except ValidationError as error:
        raise explain(error, f"policy {file}", content, names_in(Policy)) from error
