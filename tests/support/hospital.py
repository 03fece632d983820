"""A hospital with synthetic images, jobs that its default policy allows, and requests."""

from typing import Any

from torch import Tensor

from asking import requests
from fedward.config import Experiment, SyntheticData
from fedward.methods.workflow import ClientTask, Exchange
from fedward.model_state import State
from fedward.protocol.wire import Message
from starting import initial_model
from tiny import clinical

HERE = "site-1"


def hospital(method: str = "fedavg", images: int = 240, **changes: Any) -> Experiment:
    """Return a job that the default policy allows, at a hospital with this number of images."""
    return clinical(method, synthetic=SyntheticData(images=images, labelled=0.5), **changes)


def fresh(experiment: Experiment) -> dict[str, Tensor]:
    return initial_model(experiment)[0]  # type: ignore[return-value]


def request(
    experiment: Experiment, model: State | None = None, round_: Any = 1, **changes: Any
) -> Message:
    """Return an honest server's request for training, with the test's changes to its meta."""
    message = requests(experiment, Exchange(1, model or fresh(experiment), {HERE: ClientTask()}))[
        HERE
    ]
    return Message({**message.meta, "members": 3, "round": round_, **changes}, message.arrays)
