"""The model that is sent of a FedMatch site's helpers: σ of the global model, ψ of theirs."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from fedward.methods.fedmatch.decomposition import NAME
from fedward.model_state import State


class HelperModel(Mapping[str, Tensor]):
    """The model that helps a site: σ of the global model, and ψ of its helper.

    ``θ_j = σ_G + ψ_h``. Tensors without a ψ, such as BatchNorm's statistics, are the global
    model's. Each tensor is computed when it is read.

    Source: Jeong et al., ICLR 2021, for one helper; the released code adds ψ of the helper to σ of
    the site, which is the global one when a round begins.

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
