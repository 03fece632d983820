"""Which exchange of a run evaluates which model.

A model that begins a round is evaluated in the first exchange of that round, which sends it anyway.
The model after the last round is evaluated in an exchange after it, in which nobody trains.

No round begins with a moving average (:func:`fedward.methods.averages.moving_average`). So the
average after a round has an exchange of its own, the last one of that round, in which nobody
trains. Only the average after the last round has none: it is evaluated like any last model.
"""

from typing import Any

from fedward.methods.algorithm import Algorithm
from fedward.methods.survey import Survey
from fedward.methods.workflow import Turn


def evaluation_turn(algorithm: Algorithm[Any] | Survey, rounds: int) -> Turn:
    """Return the exchange that evaluates the model after so many rounds, from 0.

    Part 0 stands for the first exchange of a round: a round may leave parts out.
    """
    settings = algorithm.settings
    if settings.average_decay and 0 < rounds < settings.rounds:
        # The parts before it are those that the method's own exchanges may have.
        return Turn(rounds, algorithm.requirements.server.exchanges)
    return Turn(rounds + 1, 0)


def evaluates_average(algorithm: Algorithm[Any] | Survey, turn: Turn) -> bool:
    """Return whether an exchange is the one in which the average after its round is evaluated."""
    return turn == evaluation_turn(algorithm, turn.round)


def rounds_of_model(algorithm: Algorithm[Any] | Survey, turn: Turn) -> int:
    """Return how many rounds have made the model that an exchange sends to be evaluated."""
    return turn.round if evaluates_average(algorithm, turn) else turn.round - 1
