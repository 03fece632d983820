"""FedIRM's losses at a site without labels: a mean teacher, and a comparison of relations."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.fedirm.relations import (
    class_relations,
    mean_relation,
    relation_loss,
    relation_of,
    uncertainty,
)
from fedward.methods.fedirm.settings import FedIRMSettings
from fedward.methods.local import Batch, Losses, RoundInputs, logits_and_features
from fedward.methods.mean_teacher import MeanTeacher, TeacherState, sharpen
from fedward.methods.pseudo_labels.threshold import pseudo_label


def ramp_up(finished: int, rounds: int) -> float:
    """Return the factor on the losses of unlabelled images, which grows at the start of a run.

    ``λ(r) = exp(-5 (1 - min(r, R) / R)²)``, from 0.0067 at r = 0 to 1 from r = R on.
    Source: Liu et al., MICCAI 2021; Laine and Aila, *Temporal ensembling*, ICLR 2017.

    Args:
        finished: r >= 0, rounds of the run that are over, including those of the warm-up.
        rounds: R >= 0; with 0 the factor is always 1.

    Raises ConfigError: a number below 0.
    """
    if finished < 0 or rounds < 0:
        raise ConfigError(
            "fedirm.ramp_up", expected="numbers of rounds >= 0", found=f"{finished}, {rounds}"
        )
    if finished >= rounds:
        return 1.0
    return math.exp(-5 * (1 - finished / rounds) ** 2)


class FedIRMObjective(MeanTeacher):
    """``L_u = λ(r) (λ_c L_c + λ_m L_IRM)``, on weak views.

    L_c is the squared distance of the student to its teacher, which the site keeps from round to
    round. L_IRM compares the relation matrix of the batch's pseudo-labels with the server's
    (:func:`~fedward.methods.fedirm.relations.relation_loss`). An image has a pseudo-label if the
    student is confident of it, and still certain when parts of its features are missing.
    Source: Liu et al., MICCAI 2021.

    Args:
        settings: the job's settings.
        factor: λ(r) of the round, :func:`ramp_up`.

    Edge cases: L_IRM is 0, and L_c remains, where fewer images than the site's smallest batch have
    a pseudo-label of a class for which the server's matrix has a row. Rows of the server's matrix
    that are not distributions are repaired, or left out, as
    :func:`~fedward.methods.fedirm.relations.mean_relation` does with those of sites.
    """

    settings: FedIRMSettings

    def __init__(self, settings: FedIRMSettings, factor: float) -> None:
        super().__init__(settings, lasting=True)
        self._factor = factor

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: TeacherState
    ) -> Losses:
        """Return ``λ(r) λ_c L_c`` and ``λ(r) λ_m L_IRM``; nothing without unlabelled images.

        The logged value ``kept`` is the share of images that have a pseudo-label; 0 where these are
        too few for L_IRM.
        """
        if batch.weak is None or batch.strong is None:
            return Losses({})
        settings = self.settings
        with torch.no_grad():
            predicted = torch.softmax(state.teacher(batch.weak).float(), dim=1)
            teacher_target = sharpen(predicted, settings.temperature)
        # ``strong`` is the second view's place. Here it is a weak view, too, drawn independently.
        logits, features = logits_and_features(net, batch.strong)
        logits = logits.float()
        probabilities = torch.softmax(logits, dim=1)
        distance = (probabilities - teacher_target).square().sum(dim=1).mean()

        members = self._members(net, probabilities.detach(), features.detach(), inputs)
        rows = class_relations(logits, members, settings.relation_temperature)
        # The site does not trust the server's matrix: rows that are not distributions could
        # outweigh all other losses. The mean of one matrix is that matrix with such rows repaired.
        server_rows = mean_relation([relation_of(net).rows], 1)
        relation = relation_loss(rows, server_rows)
        kept = members.any(dim=1)  # (B,)
        # A gradient from fewer images than the smallest batch would reveal these few.
        compared = (members & server_rows.any(dim=1)).any(dim=1)  # (B,)
        enough = compared.sum() >= inputs.smallest_batch
        relation = torch.where(enough, relation, 0.0)

        weight = self._factor * settings.unlabelled_weight
        relation_weight = self._factor * settings.relation_weight
        return Losses(
            {"loss_consistency": weight * distance, "loss_relation": relation_weight * relation},
            logs={"kept": (kept & enough).float().mean()},
            learns=weight > 0 or (relation_weight > 0 and enough),
        )

    def _members(
        self, net: nn.Module, probabilities: Tensor, features: Tensor, inputs: RoundInputs
    ) -> Tensor:
        """Return each image's pseudo-label, one-hot (B, K) bool; all False where it has none."""
        settings = self.settings
        classifier: nn.Module = net.classifier  # type: ignore[assignment]
        uncertain = uncertainty(
            classifier, features, settings.dropout, settings.passes, inputs.generator
        )
        labels, confident = pseudo_label(probabilities, settings.threshold)
        keep = confident & (uncertain <= settings.largest_uncertainty)
        return F.one_hot(labels, probabilities.shape[1]).bool() & keep.unsqueeze(1)
