"""How large one site's update may be."""

import math

from fedward.model_state import State
from fedward.protocol.fields import refuse
from fedward.protocol.norms import norm
from fedward.protocol.wire import Message, uploaded_names


def check_update_size(site: str, answer: Message, model: State, largest: float) -> None:
    """Raise RefusedError if the L2 norm of an update is over ``largest`` times that of the model.

    One site would otherwise decide the average alone. Both norms are over all tensors of the update
    together, in float64.
    """
    update_norm = norm(answer.arrays)
    tensor_norms = [float(model[name].double().norm()) for name in uploaded_names(answer)]
    bound = largest * math.hypot(*tensor_norms)
    if update_norm > bound:
        expected = f"a norm of at most {bound:.3g} (largest_update = {largest:g})"
        refuse(f"update of {site}", expected, f"{update_norm:.3g}")
