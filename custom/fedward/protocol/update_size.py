"""How large one site's update may be."""

import math

from fedward.model_state import State
from fedward.protocol.fields import refuse_diverged
from fedward.protocol.norms import norm
from fedward.protocol.wire import Message, uploaded_names


def check_update_size(site: str, answer: Message, model: State, largest: float) -> None:
    """Raise DivergedUpdateError if an update is too large.

    Its L2 norm may be ``largest`` times that of the model at most, because one site would otherwise
    decide the average alone. Both norms are over all tensors of the update together, in float64.
    """
    update_norm = norm(answer.arrays)
    tensor_norms = [float(model[name].double().norm()) for name in uploaded_names(answer)]
    bound = largest * math.hypot(*tensor_norms)
    if update_norm > bound:
        expected = f"a norm of at most {bound:.3g} (largest_update = {largest:g})"
        refuse_diverged(f"update of {site}", expected, f"{update_norm:.3g}")
