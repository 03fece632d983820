"""Applies the rules of a site's policy to a job, each by itself."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedward.config import Experiment
from fedward.methods.algorithm import Algorithm
from fedward.methods.class_weights import LARGEST_RATIO
from fedward.methods.settings import Settings, StepSize
from fedward.methods.steps import step_count
from fedward.methods.survey import Survey
from fedward.registry import Extension
from fedward.security.policy import AllowedNames, AllowedWeights, Policy, PolicyError


class AppliedRule(NamedTuple):
    """One rule of a policy, applied to a job."""

    name: str
    """The name of the rule."""
    allowed: str
    """What the rule allows."""
    asked: str
    """What the job asks for."""
    kept: bool
    """Whether the job keeps the rule."""

    def __str__(self) -> str:
        return f"{self.name}: {self.allowed}, {self.asked}"


@dataclass(frozen=True)
class Circumstances:
    """What rules need to know besides a job's settings."""

    sites: int | None = None
    """The number of sites in the run; None if it is not known yet."""
    noise: bool = False
    """Whether the job's privacy scope at this site adds noise."""
    weights: str | None = None
    """SHA-256 of the first model, if the run starts from given weights; None if from fresh ones."""


def applied_rules(
    policy: Policy,
    experiment: Experiment,
    algorithm: Algorithm[Any] | Survey,
    circumstances: Circumstances,
) -> list[AppliedRule]:
    """Apply the rules that a job's settings can break.

    While a site works, it checks some of them again on its own images, and the rules on questions
    and sums.
    """
    settings = algorithm.settings
    if isinstance(algorithm, Survey):
        of_kind = _of_survey(policy)
    else:
        of_kind = _of_training(policy, experiment)
    rows = [
        of_kind.methods,
        _nets(policy, experiment),
        of_kind.surveys,
        applied_extension_rule(policy, experiment.extensions),
        _minimum_sites(policy, circumstances),
        _at_least("minimum_replies", policy.minimum_replies, experiment.minimum_replies),
        of_kind.effective_replies,
        _minimum_participants(policy, settings),
        at_most("maximum_share", policy.maximum_share, settings.largest_share),
        _minimum_images(policy, settings),
        _minimum_steps(policy, settings),
        _at_least("minimum_batch", policy.minimum_batch, settings.batch),
    ]
    rows += applied_step_rules(policy, settings, settings.step_sizes)
    rows += [
        _largest("maximum_loss_weight", policy.maximum_loss_weight, settings.loss_weights),
        _image_share(policy, settings),
        _lone_peers(policy, algorithm),
        at_most("maximum_rounds", policy.maximum_rounds, settings.rounds),
        _most_images(policy, algorithm),
        _image_size(policy, experiment),
        _noise(policy, experiment, algorithm, circumstances.noise),
        _starting_weights(policy, circumstances),
        _weights_files(policy, experiment),
    ]
    return rows


def refused_by_default(
    experiment: Experiment,
    algorithm: Algorithm[Any] | Survey,
    sites: Sequence[str] = (),
    weights: str | None = None,
) -> list[AppliedRule]:
    """Return the rules of the default policy that a job breaks.

    Args:
        experiment: the job's settings.
        algorithm: its method.
        sites: the names of the sites that the job goes to; empty for all.
        weights: SHA-256 of the first model, if the run starts from given weights.
    """
    circumstances = Circumstances(len(sites) or None, weights=weights)
    rows = applied_rules(Policy(), experiment, algorithm, circumstances)
    return [row for row in rows if not row.kept]


def refuse_unless(
    site: str, rules: Sequence[AppliedRule], error: type[PolicyError] = PolicyError
) -> None:
    """Raise an error that names each broken rule, unless all rules are kept."""
    broken_rules = [str(rule) for rule in rules if not rule.kept]
    if broken_rules:
        raise error(
            f"policy of {site}",
            "Change the job, or ask the site's administrator.",
            expected="what its rules allow",
            found="; ".join(broken_rules),
        )


def at_most(rule: str, limit: float | None, number: float, asked: str = "") -> AppliedRule:
    """Apply a rule that sets a largest number.

    Args:
        rule: its name.
        limit: the largest number; None: there is none.
        number: the job's.
        asked: what the job asks for, where its number must not be named.
    """
    allowed = "any number" if limit is None else f"at most {limit}"
    kept = limit is None or number <= limit
    return AppliedRule(rule, allowed, asked or f"the job says {number}", kept)


def applied_extension_rule(policy: Policy, used: Sequence[Extension]) -> AppliedRule:
    """Apply the rule to what a job takes from other packages, without importing any of them."""
    rule = policy.extensions
    asked = ", ".join(f"{extension.kind} {extension}" for extension in used) or "none"
    kept = all(_is_allowed(extension, rule) for extension in used)
    return AppliedRule("extensions", _listed(rule), f"the job needs {asked}", kept)


def _is_allowed(extension: Extension, rule: AllowedNames) -> bool:
    """Return whether a rule names an extension, with or without its version."""
    without_version = f"{extension.package}:{extension.name}"
    return rule == "any" or str(extension) in rule or without_version in rule


def _listed(names: AllowedNames) -> str:
    """Return the names that a rule allows, as one text."""
    return "any" if names == "any" else ", ".join(names) or "none"


class _RulesOfKind(NamedTuple):
    """The rules that ask of a survey something else than of a training, applied."""

    methods: AppliedRule
    surveys: AppliedRule
    effective_replies: AppliedRule


def _of_training(policy: Policy, experiment: Experiment) -> _RulesOfKind:
    """Apply these rules to a training."""
    asked = "the job does not ask what this site's images are"
    return _RulesOfKind(
        methods=_methods(policy, experiment),
        surveys=AppliedRule("surveys", _surveys_allowed(policy), asked, kept=True),
        effective_replies=_effective_replies(policy, experiment),
    )


def _of_survey(policy: Policy) -> _RulesOfKind:
    """Apply these rules to a survey, which has no method and averages nothing."""
    asked = "the job asks what this site's images are"
    allowed = f"at least {policy.minimum_effective_replies:g}"
    return _RulesOfKind(
        methods=AppliedRule(
            "methods", _listed(policy.methods), "survey trains nothing, see surveys", kept=True
        ),
        surveys=AppliedRule("surveys", _surveys_allowed(policy), asked, kept=policy.surveys),
        effective_replies=AppliedRule(
            "minimum_effective_replies", allowed, "the job averages nothing", kept=True
        ),
    )


def _surveys_allowed(policy: Policy) -> str:
    return "allowed" if policy.surveys else "none"


def _methods(policy: Policy, experiment: Experiment) -> AppliedRule:
    """Apply the rule to the method, if it is built in."""
    name = experiment.method
    if _is_extension(experiment, "method"):
        return _of_another_package("methods", policy.methods, name)
    return _named("methods", policy.methods, name)


def _nets(policy: Policy, experiment: Experiment) -> AppliedRule:
    """Apply the rule to the network, unless another package brings it."""
    if _is_extension(experiment, "network"):
        return _of_another_package("nets", policy.nets, experiment.net)
    return _named("nets", policy.nets, experiment.net)


def _is_extension(experiment: Experiment, kind: str) -> bool:
    """Return whether the job takes its method or its network from another package."""
    return any(extension.kind == kind for extension in experiment.extensions)


def _of_another_package(rule: str, names: AllowedNames, name: str) -> AppliedRule:
    """Return the rule as kept: the rule ``extensions`` decides about this name."""
    asked = f"{name} is of another package, see extensions"
    return AppliedRule(rule, _listed(names), asked, kept=True)


def _named(rule: str, names: AllowedNames, name: str) -> AppliedRule:
    """Apply a rule that lists the allowed names."""
    is_allowed = names == "any" or name in names
    # The name is the job's, so its length is limited before it is shown or logged.
    return AppliedRule(rule, _listed(names), f"the job says {name[:100]}", is_allowed)


def _at_least(rule: str, limit: int, number: int) -> AppliedRule:
    """Apply a rule that sets a smallest number."""
    return AppliedRule(rule, f"at least {limit}", f"the job says {number}", number >= limit)


def _at_least_or_all(rule: str, limit: int, number: int | None, whole: str) -> AppliedRule:
    """Apply a rule that sets a smallest number to a job that may take all there is.

    Args:
        rule: its name.
        limit: the smallest number that it allows.
        number: what the job says; None: all there is, which always keeps the rule.
        whole: all there is, in words.
    """
    if number is None:
        return AppliedRule(rule, f"at least {limit}", f"the job says {whole}", kept=True)
    return _at_least(rule, limit, number)


def _minimum_sites(policy: Policy, circumstances: Circumstances) -> AppliedRule:
    limit = policy.minimum_sites
    sites = circumstances.sites
    number = "all that are connected" if sites is None else str(sites)
    is_kept = sites is None or sites >= limit
    return AppliedRule("minimum_sites", f"at least {limit}", f"the run has {number}", is_kept)


def _minimum_participants(policy: Policy, settings: Settings) -> AppliedRule:
    limit = policy.minimum_participants
    return _at_least_or_all("minimum_participants", limit, settings.participants, "all sites")


def _image_count(settings: Settings) -> int | None:
    """Return how many images a round uses, or at most uses; None if the site's images decide."""
    return settings.images_per_round or settings.images_at_most


def _minimum_images(policy: Policy, settings: Settings) -> AppliedRule:
    whole = "all that this site has"
    return _at_least_or_all("minimum_images", policy.minimum_images, _image_count(settings), whole)


def _minimum_steps(policy: Policy, settings: Settings) -> AppliedRule:
    image_count = _image_count(settings)
    steps = None if image_count is None else step_count(image_count, settings.batch)
    whole = "as many as this site's images make"
    return _at_least_or_all("minimum_steps", policy.minimum_steps, steps, whole)


def _effective_replies(policy: Policy, experiment: Experiment) -> AppliedRule:
    """Apply the rule to the effective number of replies that the server's averages must reach.

    It follows from the job's ``minimum_replies``. If that is below the limit of its own rule, this
    rule counts as kept, so that one cause is reported once.
    """
    limit = policy.minimum_effective_replies
    effective = experiment.effective_replies
    replies = experiment.minimum_replies
    asked = f"the job's minimum_replies of {replies} make {_told_from(limit, effective)}"
    kept = effective >= limit or replies < policy.minimum_replies
    return AppliedRule("minimum_effective_replies", f"at least {limit:g}", asked, kept)


def applied_step_rules(
    policy: Policy, settings: Settings, steps: Sequence[StepSize]
) -> list[AppliedRule]:
    """Apply the rules on step sizes.

    They limit how far a step goes, and how much it takes back of the steps before it.
    """
    sgd_rates = {}
    adam_rates = {}
    for step in steps:
        if step.optimizer == "sgd":
            sgd_rates[step.setting] = _over_momentum(step.largest, settings)
        else:
            adam_rates[step.setting] = step.largest
    forgotten_shares = {step.setting: forgetting(step, settings) for step in steps}
    return [
        _largest("maximum_learning_rate", policy.maximum_learning_rate, sgd_rates),
        _largest("maximum_adam_rate", policy.maximum_adam_rate, adam_rates),
        _largest("maximum_forgetting", policy.maximum_forgetting, forgotten_shares),
        _clip(policy, settings, has_steps=bool(steps)),
    ]


def _clip(policy: Policy, settings: Settings, *, has_steps: bool) -> AppliedRule:
    """Apply the rule to the norm to which gradients are clipped; null breaks any limit."""
    limit = policy.maximum_clip
    allowed = "any, or none" if limit is None else f"at most {limit:g}"
    if not has_steps:
        return AppliedRule("maximum_clip", allowed, "the job has no steps", kept=True)
    clip = settings.clip_gradient
    if clip is None:
        return AppliedRule(
            "maximum_clip", allowed, "the job says clip_gradient=null", limit is None
        )
    asked = f"the job says clip_gradient={_told_from(limit, clip)}"
    return AppliedRule("maximum_clip", allowed, asked, limit is None or clip <= limit)


_SMALL_GRADIENT = 1e-3
"""The size of one weight's gradient by which Adam is assumed to divide.

The smaller it is, the more weight decay and a proximal term draw the weight back in Adam's steps.
"""


def forgetting(step: StepSize, settings: Settings) -> float:
    """Return the largest share of the changes made by earlier steps that one step may take back.

    A step of SGD keeps ``1 - η (λ + μ) / (1 - β)`` of them. Here η is the learning rate, λ the
    weight decay, μ the weight of a proximal term, and β the momentum. Adam divides the gradient,
    which has the decay and the proximal term in it, by its size, which is taken as
    ``_SMALL_GRADIENT``. AdamW's decay is outside of that division.
    """
    decay = settings.weight_decay
    pull = settings.pull
    if step.optimizer == "sgd":
        return _over_momentum(step.largest * (decay + pull), settings)
    if step.optimizer == "adamw":
        return step.largest * (pull / _SMALL_GRADIENT + decay)
    return step.largest * ((decay + pull) / _SMALL_GRADIENT)


def _over_momentum(rate: float, settings: Settings) -> float:
    """Return how far one gradient moves the weights over all steps in which momentum repeats it."""
    if rate == 0:
        return 0.0
    if settings.momentum < 1:
        return rate / (1 - settings.momentum)
    return math.inf


def _largest(rule: str, limit: float | None, numbers: Mapping[str, float]) -> AppliedRule:
    """Apply a rule that sets a largest number to the largest of several.

    Args:
        rule: its name.
        limit: the largest number that it allows; None: any.
        numbers: setting -> the number that follows from it.
    """
    allowed = "any number" if limit is None else f"at most {limit:g}"
    if not numbers:
        return AppliedRule(rule, allowed, "the job has none", kept=True)
    setting, number = max(numbers.items(), key=lambda item: item[1])
    asked = f"the job's {setting} makes {_told_from(limit, number)}"
    return AppliedRule(rule, allowed, asked, limit is None or number <= limit)


def _told_from(limit: float | None, number: float) -> str:
    """Return a number in three digits; in all, where three put it on another side of the limit."""
    rounded = f"{number:.3g}"
    if limit is None or _side(limit, float(rounded)) == _side(limit, number):
        return rounded
    return f"{number}"


def _side(limit: float, number: float) -> int:
    """Return 1 for a number above the limit, 0 for the limit itself, and -1 below it."""
    return (number > limit) - (number < limit)


def _image_share(policy: Policy, settings: Settings) -> AppliedRule:
    """Apply the rule to a batch of one image of the heaviest class, the rest of the lightest."""
    is_weighted = settings.class_weighting != "none"
    heaviest = LARGEST_RATIO if is_weighted else 1.0
    share = heaviest / (heaviest + settings.batch - 1)
    limit = policy.maximum_image_share
    asked = (
        f"class_weighting={settings.class_weighting} makes {_told_from(limit, share)} "
        f"with batch={settings.batch}"
    )
    kept = not is_weighted or share <= limit
    return AppliedRule("maximum_image_share", f"at most {limit:g}", asked, kept)


def _lone_peers(policy: Policy, algorithm: Algorithm[Any] | Survey) -> AppliedRule:
    """Apply the rule to methods that send one site's model to another site."""
    lone_peers = algorithm.requirements.server.lone_peers
    return AppliedRule(
        "lone_peers",
        "allowed" if policy.lone_peers else "no site's model to another site alone",
        f"the job says {lone_peers}" if lone_peers else "the job sends none",
        policy.lone_peers or not lone_peers,
    )


def _most_images(policy: Policy, algorithm: Algorithm[Any] | Survey) -> AppliedRule:
    """Apply the rule to a fixed number of images, which each exchange of a round goes through."""
    images = algorithm.settings.images_per_round
    if not images:
        # The site checks the number once it has read its images.
        limit = policy.maximum_images
        allowed = "any number" if limit is None else f"at most {limit}"
        return AppliedRule(
            "maximum_images", allowed, "as many as this site's images make", kept=True
        )
    exchanges = algorithm.requirements.server.exchanges
    return at_most("maximum_images", policy.maximum_images, images * exchanges)


def _image_size(policy: Policy, experiment: Experiment) -> AppliedRule:
    return at_most("maximum_image_size", policy.maximum_image_size, experiment.data.image_size)


def _noise(
    policy: Policy, experiment: Experiment, algorithm: Algorithm[Any] | Survey, is_added: bool
) -> AppliedRule:
    """Apply the rule on noise.

    It is for updates in float32, in clear and without rows of probabilities.
    """
    is_needed = is_added or policy.noise == "required"
    if is_needed and experiment.secure_aggregation:
        allowed = f"{policy.noise}, not to encrypted updates"
        return AppliedRule("noise", allowed, "the job says secure_aggregation=true", kept=False)
    if is_needed and experiment.update_dtype != "float32":
        allowed = f"{policy.noise}, to float32 alone"
        return AppliedRule("noise", allowed, f"the job says {experiment.update_dtype}", kept=False)
    if is_needed and algorithm.requirements.tensors.distributions:
        allowed = f"{policy.noise}, not to probabilities"
        asked = f"updates of {experiment.method} hold some"
        return AppliedRule("noise", allowed, asked, kept=False)
    asked = f"this site's privacy scope adds {'some' if is_added else 'none'}"
    return AppliedRule("noise", policy.noise, asked, is_added or policy.noise == "optional")


def _starting_weights(policy: Policy, circumstances: Circumstances) -> AppliedRule:
    weights = circumstances.weights
    asked = f"the run starts from {weights or 'fresh ones'}"
    return _weights("starting_weights", policy.starting_weights, weights, asked)


def _weights_files(policy: Policy, experiment: Experiment) -> AppliedRule:
    pretrained = experiment.pretrained
    weights = None if isinstance(pretrained, bool) else pretrained.sha256
    asked = f"the job names {weights or 'no file'}"
    return _weights("weights_files", policy.weights_files, weights, asked)


def _weights(rule: str, allowed: AllowedWeights, weights: str | None, asked: str) -> AppliedRule:
    """Apply a rule on weights to those with the SHA-256 ``weights``; None if the job has none."""
    if isinstance(allowed, str):
        return AppliedRule(rule, allowed, asked, weights is None or allowed == "any")
    allowed_text = f"one of {', '.join(allowed)}"
    return AppliedRule(rule, allowed_text, asked, weights is None or weights in allowed)
