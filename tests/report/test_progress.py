"""How far a run is within its rounds."""

from dataclasses import dataclass

import pytest

from fedward.console.progress import Progress, duration


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_shown_before_and_after_the_rounds():
    progress = Progress()
    assert progress.state() == ("", None)
    progress.begin(rounds=2)
    progress.asked(1, 0, ["a"])
    assert progress.state() == ("  0%  round 1/2  0/1 sites, a works", 0.0)
    progress.end()
    assert progress.state() == ("", None)


def test_the_time_left_follows_from_what_is_done_and_runs_down():
    clock = Clock()
    progress = Progress(clock=clock)
    progress.begin(rounds=4)
    progress.asked(1, 0, ["b", "a"])
    clock.now += 10
    progress.answered("a")
    assert progress.state() == (" 12%  round 1/4  70 s left  1/2 sites, b works", 0.125)
    clock.now += 8
    assert "  62 s left  " in progress.state().words
    clock.now += 900
    assert "  0 s left  " in progress.state().words


def test_only_the_last_rounds_say_how_long_others_take():
    """A first round that loads images is soon forgotten; a resumed run counts its own rounds."""
    clock = Clock()
    progress = Progress(clock=clock)
    progress.begin(rounds=20)
    for round_ in range(8, 17):
        progress.asked(round_, 0, ["a"])
        clock.now += 1000 if round_ == 8 else 3
        progress.answered("a")
    assert "  12 s left  " in progress.state().words


def test_several_exchanges_make_one_round():
    progress = Progress()
    progress.begin(rounds=2)
    for part in (0, 1):
        progress.asked(1, part, ["a"])
        progress.answered("a")
    assert progress.state().share == 0.5
    assert progress.state().words.startswith(" 50%  round 1/2")
    progress.asked(2, 0, ["a"])
    progress.answered("a")
    assert progress.state().share == 0.75
    assert progress.state().words.startswith(" 75%  round 2/2")


def test_one_of_several_at_work_is_waited_for():
    progress = Progress(workers=3)
    progress.begin(rounds=1)
    progress.asked(1, 0, ["a", "b"])
    progress.answered("a")
    progress.answered("a")
    assert progress.state().words.endswith("1/2 sites, waiting for b")


def test_the_last_evaluation_and_the_report_belong_to_no_round():
    progress = Progress()
    progress.begin(rounds=1)
    progress.asked(2, 0, ["a", "b"])
    assert progress.state() == ("evaluation of the last model  0/2 sites, a works", None)
    progress.answered("a")
    progress.answered("b")
    progress.reporting()
    assert progress.state() == ("writes the report", None)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (89 * 60, "89 min"),
        (90 * 60, "1 h 30 min"),
        (86400, "24 h 0 min"),
    ],
)
def test_durations_are_in_words(seconds, words):
    assert duration(seconds) == words
