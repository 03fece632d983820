"""The model that is sent of a FedMatch site's helpers."""

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from fedward.methods.averages import weighted_average
from fedward.methods.fedmatch.decomposition import NAME
from fedward.model_state import State


class HelperModel(Mapping[str, Tensor]):
    """The model that helps a site: σ of the global model, and the mean ψ of the helpers.

    ``θ_j = σ_G + (1 / |H|) Σ_h ψ_h``. Tensors without a ψ, such as BatchNorm's statistics, are the
    global model's. Each tensor is computed when it is read.
    Source: Jeong et al., ICLR 2021, for one helper; the released code adds ψ of the
    helper to σ of the site, which is the global one when a round begins.

    Args:
        model: the global model.
        helpers: models of one or more sites. The mean of one is its own ψ.
    """

    def __init__(self, model: State, helpers: Sequence[State]) -> None:
        self._model = model
        self._helpers = helpers

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._model[name]
        if name.startswith(f"{NAME}."):
            return self._mean(name)
        psi_name = f"{NAME}.{name}"
        if psi_name not in self._model:
            return tensor
        return tensor - self._model[psi_name] + self._mean(psi_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._model)

    def __len__(self) -> int:
        return len(self._model)

    def _mean(self, name: str) -> Tensor:
        parts = [{name: helper[name]} for helper in self._helpers]
        return weighted_average(parts, [1.0] * len(parts))[name]
