"""The loss against labels that all methods here share."""

from torch import Tensor, nn

from fedward.methods.local import Batch, Losses, RoundInputs, Stateless


class Supervised(Stateless):
    """Cross-entropy on the labelled images, and nothing else."""

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        """Return ``L_sup = CE_w(y, f(α(x)))``; Bdair et al., MELBA 2022, eq. (2), first term."""
        if batch.labelled is None or batch.labels is None:
            return Losses({})
        loss = supervised_loss(net(batch.labelled), batch.labels, inputs)
        return Losses({"loss_supervised": loss})


def supervised_loss(logits: Tensor, labels: Tensor, inputs: RoundInputs) -> Tensor:
    """Return the cross-entropy of a network's logits against labels.

    With one label an image it is weighted by class. With several it is the mean of K binary ones,
    ``-(1 / B K) Σ_i Σ_c y_ic log σ(z_ic) + (1 - y_ic) log(1 - σ(z_ic))``.

    Args:
        logits: (B, K) z, with gradient.
        labels: (B,) int64; in a multi-label job (B, K) of 0 and 1.
        inputs: of the phase: weights of the classes, and what logits mean.
    """
    return inputs.outputs.loss(logits, labels, inputs.class_weights)
