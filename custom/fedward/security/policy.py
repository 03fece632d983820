"""A site's own policy: what a job may ask of the site, rule by rule.

The site checks each request against it before it reads data; see :mod:`fedward.client.admission`.
"""

import math
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedward.config import Experiment
from fedward.errors import ConfigError, WorkError, reason_of
from fedward.faults import explain, names_in
from fedward.methods.algorithm import Algorithm
from fedward.methods.class_weights import LARGEST_RATIO
from fedward.methods.settings import Settings, StepSize
from fedward.methods.steps import step_count
from fedward.registry import METHODS, NETWORKS, Extension
from fedward.yaml_text import read_yaml_file

FILE = "fedward_policy.yaml"
"""The policy's name in the folder ``local`` of a site's kit."""

Names = Literal["any"] | Annotated[tuple[str, ...], Field(strict=False)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Weights = Literal["none", "any"] | Annotated[tuple[Sha256, ...], Field(strict=False)]


_LITE = tuple(f"tf_efficientnet_lite{number}" for number in range(3))
"""Networks of timm that the default allows beside ResNet."""


class PolicyError(WorkError):
    """A site's policy forbids what a job asks for. The text may be read by the server.

    ``final``: the same job would be refused again, whatever its next request asks for.
    """

    final = False


class JobRefusedError(PolicyError):
    """The policy forbids the job itself."""

    final = True


class Policy(BaseModel):
    """What a site lets jobs ask of it. Each field is a rule; docs/policy.md says why it is there."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True
    )  # or `true` would be the limit 1

    methods: Names = tuple(name for name in METHODS.builtin if name != "survey")
    """Methods that may train; ``any``: all of fedward's."""
    nets: Names = (*NETWORKS.builtin, *_LITE, "resnet18", "resnet50")
    """Networks that may be trained; ``any``: all of fedward's, timm's and MONAI's."""
    extensions: Names = ()
    """What jobs may take from other packages, as ``package:name`` or ``package==version:name``:
    methods, networks, samplers, views, metrics. ``any``: all that are installed. Without it nothing
    of such a package is imported."""
    minimum_sites: int = Field(3, ge=1)
    """Sites that the run must have, by the server's word."""
    minimum_replies: int = Field(3, ge=1)
    """Updates without which the server must not use any."""
    minimum_effective_replies: float = Field(2.5, ge=1)
    """Equally weighted updates that each average must be worth: 1 / Σ w_k² of the sites' shares of
    it.
    """
    minimum_participants: int = Field(3, ge=1)
    """Sites that must be asked in each round."""
    maximum_share: float = Field(0.5, gt=0, le=1)
    """What one site may count for in an average of three sites or more."""
    minimum_images: int = Field(32, ge=1)
    """Images of each kind, labelled and unlabelled, that a round here must learn from: by the job's
    settings, and different ones that this site holds."""
    minimum_steps: int = Field(4, ge=1)
    """Optimiser steps that a round here must take."""
    minimum_batch: int = Field(8, ge=1)
    """Different images in one step, of each kind that can make its loss alone: labelled, and those
    with a pseudo-label where a site has no others."""
    maximum_learning_rate: float | None = Field(0.5, gt=0)
    """Of SGD, divided by 1 - momentum; None: any."""
    maximum_adam_rate: float | None = Field(0.01, gt=0)
    """Learning rate of Adam and AdamW; None: any."""
    maximum_forgetting: float | None = Field(0.1, gt=0, lt=1)
    """Share of what earlier steps have changed that one step takes back, by weight decay and a
    proximal term; None: any share."""
    maximum_clip: float | None = Field(100.0, gt=0)
    """Norm to which the gradient of each step must be clipped; None: any, also none."""
    maximum_loss_weight: float | None = Field(1.0, gt=0)
    """Weight of a loss without labels, where that with labels has 1; None: any."""
    maximum_image_share: float = Field(0.5, gt=0, le=1)
    """What class weights may let one image be of its batch's loss."""
    maximum_server_rate: float | None = Field(10.0, gt=0)
    """Length of the server's step in units of the mean update, over all rounds that its momentum
    lasts. None: any."""
    lone_peers: bool = False
    """Whether another site may be sent the model of one site alone."""
    maximum_rounds: int | None = Field(1000, ge=1)
    """Rounds of a job; None: any number."""
    maximum_images: int | None = Field(1_000_000, ge=1)
    """Images that the training of one round may go through here, each as often as it comes; None:
    any number.
    """
    maximum_image_size: int | None = Field(512, ge=16)
    """Height and width in pixels of decoded images; None: any that a job may have."""
    maximum_questions: int | None = Field(500, ge=0)
    """Labels that one run may ask for here in active learning, the first ones among them; None: any
    number.
    """
    maximum_questions_in_all: int | None = Field(None, ge=0)
    """Labels that all runs together may ask for here, over all jobs; None: any number."""
    maximum_sums: int | None = Field(100, ge=0)
    """Runs in all, over all jobs, that may be told sums of this site's images by ``oneshot`` or a
    survey; None: any number."""
    surveys: bool = False
    """Whether jobs may ask what this site's images are (``survey``): how many there are of each
    class, how bright.
    """
    draws: Literal["secret", "seed"] = "secret"
    """What decides which images a step is of, besides the job's seed: this site's secret; or
    nothing, for tests that compare two engines."""
    noise: Literal["optional", "required"] = "optional"
    """Whether the privacy scope of the job must add noise to updates (``GaussianUpdateFilter``)."""
    starting_weights: Weights = "none"
    """Weights that a run may start from: none but fresh ones, any, or those with one of these
    SHA-256.
    """
    weights_files: Weights = "none"
    """Files of weights that networks may begin with (``pretrained`` of a job): none, any that is
    here, or those.
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
    maximum_server_rate=None,
    lone_peers=True,
    maximum_rounds=None,
    maximum_images=None,
    maximum_image_size=None,
    maximum_questions=None,
    maximum_sums=None,
    surveys=True,
    draws="seed",
    starting_weights="any",
    weights_files="any",
)
"""Forbids nothing: for runs in one process and in FLARE's simulator, where one user has the data of
all sites.
"""


def read_policy(file: Path) -> Policy:
    """Return a site's policy; the defaults for a rule that the file does not name, or if there is
    no file.

    Raises:
        ConfigError: the file cannot be read, has an unknown or wrong rule, or everybody may write
            to it.
    """
    where = f"policy {file}"
    try:
        if file.stat().st_mode & stat.S_IWOTH:
            remedy = f"Look at its rules, then chmod o-w {file.name}."
            raise ConfigError(
                where,
                expected="a file of its owner",
                found="one that anybody may change",
                remedy=remedy,
            )
        content = read_yaml_file(file)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not file.is_symlink():
            return Policy()
        remedy = "Correct or restore it; until then this site refuses every job."
        raise ConfigError(
            where, expected="readable YAML", found=reason_of(error), remedy=remedy
        ) from error
    try:
        return Policy.model_validate({} if content is None else content)
    except ValidationError as error:
        raise explain(error, where, content, names_in(Policy)) from error


_FOREIGN = "is of another package, see extensions"
_NO_METHOD = "trains nothing, see surveys"


class Finding(NamedTuple):
    """One rule and a job."""

    rule: str
    allowed: str
    asked: str
    kept: bool

    def __str__(self) -> str:
        return f"{self.rule}: {self.allowed}, {self.asked}"


@dataclass(frozen=True)
class Circumstances:
    """What rules need to know that a job's settings do not say."""

    sites: int | None = None
    """How many sites the run has; None: not known yet."""
    noise: bool = False
    """Whether the job's privacy scope at this site adds noise."""
    weights: str | None = None
    """SHA-256 of the first model, where the run starts from given weights."""


def findings(
    policy: Policy, experiment: Experiment, algorithm: Algorithm[Any], known: Circumstances
) -> list[Finding]:
    """Return what each rule says of a job, in the order of the rules; some are checked again by a
    site at work.
    """
    settings = algorithm.settings
    used = experiment.extensions
    foreign = {extension.kind for extension in used}
    images = settings.images_per_round or settings.images_at_most
    steps = None if images is None else step_count(images, settings.batch)
    lone = algorithm.requirements.server.lone_peers
    lone_allowed = "allowed" if policy.lone_peers else "no site's model to another site alone"
    file = None if isinstance(experiment.pretrained, bool) else experiment.pretrained.sha256
    lone_asked = f"the job says {lone}" if lone else "the job sends none"
    survey = experiment.is_survey
    foreign_method = _FOREIGN if "method" in foreign else ""
    foreign_net = _FOREIGN if "network" in foreign else ""
    return [
        _named(
            "methods", policy.methods, experiment.method, _NO_METHOD if survey else foreign_method
        ),
        _named("nets", policy.nets, experiment.net, foreign_net),
        _surveys(policy.surveys, survey),
        extension_finding(policy, used),
        _at_least(
            "minimum_sites",
            policy.minimum_sites,
            known.sites,
            "all that are connected",
            says="the run has",
        ),
        _at_least("minimum_replies", policy.minimum_replies, experiment.minimum_replies),
        _effective_replies(policy, experiment, survey),
        _at_least(
            "minimum_participants", policy.minimum_participants, settings.participants, "all sites"
        ),
        Finding("maximum_share", *at_most(policy.maximum_share, settings.largest_share)),
        _at_least("minimum_images", policy.minimum_images, images, "all that this site has"),
        _at_least(
            "minimum_steps", policy.minimum_steps, steps, "as many as this site's images make"
        ),
        _at_least("minimum_batch", policy.minimum_batch, settings.batch),
        *step_findings(policy, settings, settings.step_sizes),
        _largest("maximum_loss_weight", policy.maximum_loss_weight, settings.loss_weights),
        _image_share(policy, settings),
        _server_rate(policy, settings),
        Finding("lone_peers", lone_allowed, lone_asked, policy.lone_peers or not lone),
        Finding("maximum_rounds", *at_most(policy.maximum_rounds, settings.rounds)),
        _most_images(policy, algorithm),
        Finding(
            "maximum_image_size", *at_most(policy.maximum_image_size, experiment.data.image_size)
        ),
        _noise(policy, experiment, known.noise),
        _weights(
            "starting_weights",
            policy.starting_weights,
            known.weights,
            "the run starts from {}",
            "fresh ones",
        ),
        _weights("weights_files", policy.weights_files, file, "the job names {}", "no file"),
    ]


def refused_by_default(
    experiment: Experiment,
    algorithm: Algorithm[Any],
    sites: Sequence[str] = (),
    weights: str | None = None,
) -> list[Finding]:
    """Return the rules of the default policy that a job breaks.

    ``sites``: the names of those it goes to, if not to all. ``weights``: SHA-256 of the first model
    made of given ones.
    """
    known = Circumstances(len(sites) or None, weights=weights)
    return [found for found in findings(Policy(), experiment, algorithm, known) if not found.kept]


def refuse_unless(
    site: str, findings: Sequence[Finding], error: type[PolicyError] = PolicyError
) -> None:
    """Raise ``error``, which names each broken rule, unless all are kept."""
    broken = "; ".join(str(finding) for finding in findings if not finding.kept)
    if broken:
        remedy = "Change the job, or ask the site's administrator."
        raise error(
            f"policy of {site}", expected="what its rules allow", found=broken, remedy=remedy
        )


def at_most(limit: float | None, number: float) -> tuple[str, str, bool]:
    """Return what a rule of a largest number says of one, as the last fields of a :class:`Finding`."""
    allowed = "any number" if limit is None else f"at most {limit}"
    return allowed, f"the job says {number}", limit is None or number <= limit


def extension_finding(policy: Policy, used: Sequence[Extension]) -> Finding:
    """Return what the rule says of what a job takes from other packages; none of them needs to be
    imported for it.
    """
    rule = policy.extensions
    allowed = "any" if rule == "any" else ", ".join(rule) or "none"
    kept = rule == "any" or all({str(one), f"{one.package}:{one.name}"} & set(rule) for one in used)
    asked = ", ".join(f"{one.kind} {one}" for one in used) or "none"
    return Finding("extensions", allowed, f"the job needs {asked}", kept)


def _named(rule: str, names: Names, name: str, elsewhere: str) -> Finding:
    """Return what a rule of names says of one; ``elsewhere`` names the rule for those that this one
    is not about.
    """
    allowed = "any" if names == "any" else ", ".join(names) or "none"
    if elsewhere:
        return Finding(rule, allowed, f"{name} {elsewhere}", True)
    return Finding(rule, allowed, f"the job says {name[:100]}", names == "any" or name in names)


def _surveys(allowed: bool, asked: bool) -> Finding:
    said = f"the job {'asks' if asked else 'does not ask'} what this site's images are"
    return Finding("surveys", "allowed" if allowed else "none", said, allowed or not asked)


def _at_least(
    rule: str, limit: int, number: int | None, all_: str = "", says: str = "the job says"
) -> Finding:
    """Return what a rule of a smallest number says; ``all_`` stands for a number that nobody has
    set.
    """
    asked = all_ if number is None else str(number)
    return Finding(rule, f"at least {limit}", f"{says} {asked}", number is None or number >= limit)


def _effective_replies(policy: Policy, experiment: Experiment, survey: bool) -> Finding:
    """Return what the rule says; the job's ``minimum_replies`` decide to what worth the server
    levels its averages.

    A job with too few ``minimum_replies`` breaks that rule, and its lead is told of that rule
    alone.
    """
    limit = policy.minimum_effective_replies
    effective = experiment.effective_replies
    replies = experiment.minimum_replies
    kept = survey or effective >= limit or replies < policy.minimum_replies
    asked = (
        "the job averages nothing"
        if survey
        else f"the job's minimum_replies of {replies} make {effective:.3g}"
    )
    return Finding("minimum_effective_replies", f"at least {limit:g}", asked, kept)


def step_findings(policy: Policy, settings: Settings, steps: Sequence[StepSize]) -> list[Finding]:
    """Return what the rules say of how far steps go, and how much they leave of the steps before
    them.
    """
    plain = {
        step.setting: _over_momentum(step.largest, settings)
        for step in steps
        if step.optimizer == "sgd"
    }
    adaptive = {step.setting: step.largest for step in steps if step.optimizer != "sgd"}
    forgotten = {step.setting: forgetting(step, settings) for step in steps}
    clip = settings.clip_gradient
    limit = policy.maximum_clip
    clipped = limit is None or not steps or (clip is not None and clip <= limit)
    allowed = "any, or none" if limit is None else f"at most {limit:g}"
    asked = f"the job says clip_gradient={'null' if clip is None else f'{clip:g}'}"
    return [
        _largest("maximum_learning_rate", policy.maximum_learning_rate, plain),
        _largest("maximum_adam_rate", policy.maximum_adam_rate, adaptive),
        _largest("maximum_forgetting", policy.maximum_forgetting, forgotten),
        Finding("maximum_clip", allowed, asked if steps else "the job has no steps", clipped),
    ]


_SMALL_GRADIENT = 1e-3
"""Size of one weight's gradient by which Adam is taken to divide. The smaller it is, the more
strongly do weight decay and a proximal term draw the weight back in Adam's steps."""


def forgetting(step: StepSize, settings: Settings) -> float:
    """Return the largest share of what earlier steps have changed that one step may take back.

    A step of SGD leaves ``1 - η (λ + μ) / (1 - β)`` of it, with the learning rate η, weight decay
    λ, the weight μ of a proximal term and momentum β. Adam divides the gradient, with decay and
    proximal term in it, by its size, for which ``_SMALL_GRADIENT`` stands. AdamW's decay is outside
    of that division.
    """
    decay = settings.weight_decay
    pull = settings.pull
    if step.optimizer == "sgd":
        return _over_momentum(step.largest * (decay + pull), settings)
    scaled = pull if step.optimizer == "adamw" else decay + pull
    return step.largest * (scaled / _SMALL_GRADIENT + (decay if step.optimizer == "adamw" else 0.0))


def _over_momentum(rate: float, settings: Settings) -> float:
    """Return how far one gradient moves the weights in all steps, as momentum carries it on."""
    if settings.momentum < 1:
        return rate / (1 - settings.momentum)
    return math.inf if rate else 0.0


def _largest(rule: str, limit: float | None, numbers: Mapping[str, float]) -> Finding:
    """Return what a rule of a largest number says of the largest of several, each under its
    setting's name.
    """
    setting, number = max(numbers.items(), key=lambda item: item[1], default=("none of it", 0.0))
    allowed = "any number" if limit is None else f"at most {limit:g}"
    asked = f"the job's {setting} makes {number:.3g}" if numbers else "the job has none"
    return Finding(rule, allowed, asked, limit is None or number <= limit)


def _image_share(policy: Policy, settings: Settings) -> Finding:
    """Return what the rule says of a batch of one image with the heaviest class weight and others
    with the lightest.
    """
    weighted = settings.class_weighting != "none"
    heaviest = LARGEST_RATIO if weighted else 1.0
    share = heaviest / (heaviest + settings.batch - 1)
    asked = (
        f"class_weighting={settings.class_weighting} makes {share:.2g} with batch={settings.batch}"
    )
    kept = not weighted or share <= policy.maximum_image_share
    return Finding("maximum_image_share", f"at most {policy.maximum_image_share:g}", asked, kept)


def _server_rate(policy: Policy, settings: Settings) -> Finding:
    """Return what the rule says of the server's step, which gives sites the model of their next
    round.
    """
    rate = 1.0
    if settings.server_optimizer == "momentum":
        # Rounded, as 1 / (1 - 0.9) is a little more than 10.
        rate = round(1 / (1 - settings.server_momentum), 9)
    return _largest("maximum_server_rate", policy.maximum_server_rate, {"server_momentum": rate})


def _most_images(policy: Policy, algorithm: Algorithm[Any]) -> Finding:
    """Return what the rule says of a fixed number of images; it may come in each exchange of a
    round.
    """
    images = algorithm.settings.images_per_round
    allowed, asked, kept = at_most(
        policy.maximum_images, (images or 0) * algorithm.requirements.server.exchanges
    )
    return Finding(
        "maximum_images", allowed, asked if images else "as many as this site's images make", kept
    )


def _noise(policy: Policy, experiment: Experiment, added: bool) -> Finding:
    """Return what the rule says; noise is for plain numbers, and whoever must add it sends no
    others.
    """
    asked = f"this site's privacy scope adds {'some' if added else 'none'}"
    if (added or policy.noise == "required") and experiment.update_dtype != "float32":
        return Finding(
            "noise",
            f"{policy.noise}, to float32 alone",
            f"the job says {experiment.update_dtype}",
            False,
        )
    return Finding("noise", policy.noise, asked, added or policy.noise == "optional")


def _weights(
    rule: str, allowed: str | tuple[str, ...], weights: str | None, says: str, without: str
) -> Finding:
    """Return what a rule about weights says of those with a SHA-256; None: the job has none."""
    asked = says.format(weights or without)
    if isinstance(allowed, str):
        return Finding(rule, allowed, asked, weights is None or allowed == "any")
    return Finding(
        rule, f"one of {', '.join(allowed)}", asked, weights is None or weights in allowed
    )
