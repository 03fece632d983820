"""What a FedMatch site is sent of a helper: a model with the global σ and the helper's ψ."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from fedward.methods.fedmatch.decomposition import NAME
from fedward.model_state import State


class HelperModel(Mapping[str, Tensor]):
    """A model whose σ is that of the global model, and whose ψ is that of a helper.

    ``θ_h = σ_G + ψ_h = θ_G - ψ_G + ψ_h``. Tensors without a ψ, such as BatchNorm's statistics, are
    those of the global model. Each tensor is computed when it is read.

    Source: Jeong et al., ICLR 2021, for one helper. The released code adds the helper's ψ to the
    site's σ, which is the global σ when a round begins.

    Args:
        model: the global model.
        helper: the model of one site, or the mean of several, whose ψ is the mean of theirs.
    """

    def __init__(self, model: State, helper: State) -> None:
        self._model = model
        self._helper = helper

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._model[name]
        if name.startswith(f"{NAME}."):
            return self._helper[name]
        psi_name = f"{NAME}.{name}"
        if psi_name not in self._model:
            return tensor
        return tensor - self._model[psi_name] + self._helper[psi_name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._model)

    def __len__(self) -> int:
        return len(self._model)
