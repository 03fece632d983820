"""Learning rates over the rounds of a run, and over the first steps of a round."""

import math

from fedward.errors import ConfigError
from fedward.methods.settings import Schedule, Settings


def scheduled_rate(
    base: float, position: float, total: float, warm_up: float = 0.0, schedule: Schedule = "cosine"
) -> float:
    """Return the learning rate at a moment of the run.

    ``η (t / T_w)`` for t < T_w, then ``η (1 + cos(π (t - T_w) / (T - T_w))) / 2``, or ``η``: a
    linear rise, followed by half a cosine down to 0, or by a constant.
    Source: Loshchilov and Hutter, *SGDR*, ICLR 2017, eq. (5), without restarts; the rise as in
    Fed-MAE's code, util/lr_sched.py, whose warm-up is 40 of 1600 rounds, then 5 of 100.

    Args:
        base: η > 0.
        position: t in [0, T], in rounds: those that the federation has finished, whichever sites
            took part, plus the finished share of this one. The rate of a whole round is that of its
            middle, round - 1/2, which is above 0 in the last round too.
        total: T > 0 rounds.
        warm_up: T_w in [0, T).
        schedule: ``cosine`` or ``constant``, after the rise.

    Returns:
        In [0, η]: 0 at the start if there is a warm-up, η at its end, and with a cosine 0 at the
        end of the run.

    Raises ConfigError: a number out of range, or NaN.
    """
    in_range = 0 <= position <= total < math.inf and 0 <= warm_up < total and 0 < base < math.inf
    if not in_range:
        raise ConfigError(
            "schedule.scheduled_rate",
            "Positions count from 0.",
            expected="0 <= position <= total, 0 <= warm_up < total, base > 0",
            found=f"base {base}, position {position}, total {total}, warm_up {warm_up}",
        )
    if position < warm_up:
        return base * position / warm_up
    if schedule == "constant":
        return base
    return base * (1 + math.cos(math.pi * (position - warm_up) / (total - warm_up))) / 2


def rate_of_round(base: float, round_: int, settings: Settings) -> float:
    """Return the learning rate of a round, from 1, by the run's schedule. Sites need no memory."""
    return scheduled_rate(base, round_ - 0.5, settings.rounds, schedule=settings.schedule)


def warm_up_factor(step: int, steps: int, share: float) -> float:
    """Return the factor by which the learning rate of a step is reduced at the start of a phase.

    ``min(1, (s + 1) / (w + 1))`` with ``w = round(share S)``: no step has a rate of 0, and step w
    is the first with the full rate. A new optimiser needs this: Adam's first step is the rate times
    the sign of the gradient, in every weight.

    Args:
        step: s >= 0, optimiser steps of the phase before this one.
        steps: S > s, batches of the phase.
        share: in [0, 1]; with 0 the rate is full from the first step on. Halves are rounded to the
            even number.
    """
    warm_up_steps = round(share * steps)
    return min(1.0, (step + 1) / (warm_up_steps + 1))
