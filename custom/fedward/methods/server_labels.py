"""Labels at the server alone: it trains on labelled images, and the sites on unlabelled ones.

Bdair, Navab, Albarqouni, MELBA 2022, Sec. 3, second scenario ("unlabelled clients"): the server's
labelled images train the global model, and a site treats all its images as unlabelled ones. The
setting is also known as labels at the server (Jeong, Yoon, Yang, Hwang: *Federated semi-supervised
learning with inter-client consistency and disjoint learning*, ICLR 2021).

How they are read: neither FedPerl's text nor its Algorithm 1 says when the server trains, and its
released code lacks the scenario. FedMatch's code trains the server's model before each round's
sites are asked. So does this module: once before the first round, then after each average, by the
sites' settings. It also trains after the last average, which that code does not, so that the last
model was made as all models before it, which the sites evaluate.
"""

from fedward.methods.algorithm import ServerState
from fedward.methods.local import Phase
from fedward.methods.requirements import ServerImages
from fedward.methods.schedule import rate_of_round
from fedward.methods.settings import ServerLabels
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import Federation

AT_SERVER = "at_server"
"""Task of the server: cross-entropy on its own labelled images."""


def images_at_server(settings: ServerLabels) -> frozenset[ServerImages]:
    """Return what the server's own images are used for: their labels, or nothing."""
    return frozenset({"labels"} if settings.server_labels else ())


def server_phase(settings: ServerLabels, round_: int) -> Phase:
    """Return the server's training after a round, from 0, with the rate of that round.

    Before the first round, which is round 0 here, the rate is that of the first.
    """
    largest_rate = settings.server_learning_rate or settings.learning_rate
    return Phase(Supervised(), rate_of_round(largest_rate, max(round_, 1), settings))


def train_at_server(state: ServerState, round_: int, federation: Federation) -> None:
    """Train the global model on the server's labelled images, if the method uses them.

    Args:
        state: the server's; its model is replaced.
        round_: number of rounds that the model has been trained for, 0 before the first one.
        federation: without ``learn`` if the labels are at the sites. Nothing happens then.
    """
    if federation.learn is not None:
        state.model = federation.learn(state.model, round_, AT_SERVER, {})
