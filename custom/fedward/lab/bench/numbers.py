"""How the benchmarks' tables write numbers over several runs, and their lines in markdown."""

from collections.abc import Collection, Sequence

from fedward.evaluation import mean_and_interval, paired_difference


def mean(values: Sequence[float], digits: int) -> str:
    """Return mean and sample standard deviation; the mean alone for one run."""
    interval = mean_and_interval(values)
    return f"{interval.mean:.{digits}f}" + (
        "" if interval.sd is None else f" ± {interval.sd:.{digits}f}"
    )


def difference(ours: Sequence[float], theirs: Sequence[float], digits: int) -> str:
    """Return the mean of ours - theirs, pair by pair, with its 95 % t interval; the mean alone for
    one pair.
    """
    interval = paired_difference(ours, theirs)
    spread = (
        ""
        if interval.low is None
        else f" [{interval.low:+.{digits}f}, {interval.high:+.{digits}f}]"
    )
    return f"{interval.mean:+.{digits}f}{spread}"


def head(*names: str, left: Collection[int] = (0,)) -> list[str]:
    """Return a table's first two lines: the columns' names, words to the ``left``, by place,
    numbers to the right.
    """
    return [
        line(*names),
        "|" + "".join("---|" if place in left else "--:|" for place in range(len(names))),
    ]


def line(*cells: str) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"
