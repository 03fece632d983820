"""Labels at the server alone: it trains on labelled images, and the sites on unlabelled ones.

Bdair, Navab, Albarqouni, MELBA 2022, Sec. 3, second scenario, in which clients have no labels: the
server's labelled images train the global model, and a site treats all its images as unlabelled
ones. The setting is also known as labels at the server (Jeong, Yoon, Yang, Hwang: *Federated
semi-supervised learning with inter-client consistency & disjoint learning*, ICLR 2021).

How this module reads the papers: neither FedPerl's text nor its Algorithm 1 says when the server
trains, and its released code lacks the scenario. FedMatch's code trains the server's model before
the sites of each round are asked. So does this module: once before the first round, and then after
each average, with the settings of the sites. Unlike that code, it also trains after the last
average, so that the last model that the sites evaluate was made like those before it.
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
    """Return what a method uses the server's images for: ``labels``, or nothing."""
    return frozenset({"labels"} if settings.server_labels else ())


def server_phase(settings: ServerLabels, round_: int) -> Phase:
    """Return the server's training after a round, with the learning rate of that round.

    Round 0 stands for the time before the first round, and has the rate of the first.
    """
    largest_rate = settings.server_learning_rate or settings.learning_rate
    return Phase(Supervised(), rate_of_round(largest_rate, max(round_, 1), settings))


def train_at_server(state: ServerState, round_: int, federation: Federation) -> None:
    """Train the global model on the server's labelled images, if the method uses them.

    Args:
        state: the server's state, whose model is replaced.
        round_: number of the last finished round, 0 before the first one.
        federation: its ``learn`` is None if the labels are at the sites. Then nothing happens.
    """
    if federation.learn is not None:
        state.model = federation.learn(state.model, round_, AT_SERVER, {})
