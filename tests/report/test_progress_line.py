"""The line that says how far a run is within a round."""

from dataclasses import dataclass

import pytest

from fedward.console.progress_line import ProgressLine, in_words


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_shown_before_and_after_the_rounds():
    line = ProgressLine()
    assert line.text() == ""
    line.begin(rounds=2)
    line.asked(1, 0, ["a"])
    assert line.text() == "[----------]   0%  round 1/2  0/1 sites, a works"
    line.end()
    assert line.text() == ""


def test_the_time_left_follows_from_what_is_done_and_runs_down():
    line = ProgressLine(clock=(clock := Clock()))
    line.begin(rounds=4)
    line.asked(1, 0, ["b", "a"])
    clock.now += 10
    line.answered("a")
    assert line.text() == "[#---------]  12%  round 1/4  70 s left  1/2 sites, b works"
    clock.now += 8
    assert "  62 s left  " in line.text()
    clock.now += 900
    assert "  0 s left  " in line.text()


def test_only_the_last_rounds_say_how_long_others_take():
    """A first round that loads the images is soon forgotten; a resumed run counts its own rounds
    alone.
    """
    line = ProgressLine(clock=(clock := Clock()))
    line.begin(rounds=20)
    for round_ in range(8, 17):
        line.asked(round_, 0, ["a"])
        clock.now += 1000 if round_ == 8 else 3
        line.answered("a")
    assert "  12 s left  " in line.text()


def test_several_exchanges_make_one_round():
    line = ProgressLine()
    line.begin(rounds=2)
    for part in (0, 1):
        line.asked(1, part, ["a"])
        line.answered("a")
    assert line.text().startswith("[#####-----]  50%  round 1/2")
    line.asked(2, 0, ["a"])
    line.answered("a")
    assert line.text().startswith("[#######---]  75%  round 2/2")


def test_one_of_several_at_work_is_waited_for():
    line = ProgressLine(workers=3)
    line.begin(rounds=1)
    line.asked(1, 0, ["a", "b"])
    line.answered("a")
    line.answered("a")
    assert line.text().endswith("1/2 sites, waiting for b")


def test_the_last_evaluation_and_the_report_belong_to_no_round():
    line = ProgressLine()
    line.begin(rounds=1)
    line.asked(2, 0, ["a", "b"])
    assert line.text() == "evaluation of the last model  0/2 sites, a works"
    line.answered("a")
    line.answered("b")
    assert line.text() == "writes the report"


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
    assert in_words(seconds) == words
