"""What a run prints: eighty columns, one row a round, failures by name."""

import io
from dataclasses import replace
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from run_folders import SITES, write_run

from fedward.config import Experiment
from fedward.console.console import WIDTH, Console
from fedward.console.listener import Start
from fedward.console.run_end import last_lines
from fedward.evaluation.selection import kept_round
from fedward.report import Run
from fedward.runs.judge import judge
from fedward.runs.outcome import outcome
from fedward.runs.verdict_words import in_short
from fedward.storage.info import INTERRUPTED, Summary
from fedward.storage.rows import RoundRow

ROW = RoundRow(
    round=4,
    seconds=12.34,
    asked=("a", "b", "c"),
    replied=("a", "b"),
    failed={"c": "no answer within 3600 s"},
    bytes_down=12_345_678,
    bytes_up=3_000_000,
    peer_models=0,
)


def printed(*steps):
    stream = io.StringIO()
    console = Console(stream)
    for step in steps:
        step(console)
    return stream.getvalue().splitlines()


def evaluated(console):
    """Let the newest row be printed, by an evaluation without a value."""
    console.evaluated(ROW.round, {})


NO_TEST = "test: not measured, as no site reports test images (of five or more in a class)"


def test_one_header_one_row_a_round_one_closing_block(tmp_path):
    (tmp_path / "run.json").touch()
    experiment = Experiment(method="fedperl", options={"rounds": 20, "participants": 3}, seed=7)
    summary = Summary(rounds=20, best_round=17, best_value=0.71234)
    lines = printed(
        lambda console: console.header(Start(experiment, ["a", "b", "c"], rounds=20)),
        lambda console: console.round(replace(ROW, failed={}), 0.42),
        lambda console: console.evaluated(4, {"a": 0.5, "b": 0.7}),
        lambda console: console.closing(tmp_path, summary),
    )
    assert (
        lines[0] == "fedward fedperl · dermoscopy 32px · small_cnn · 3 sites · 20 rounds · seed 7"
    )
    legend = " ".join(line.strip() for line in lines[1:4])
    assert all(f"{column}: " in legend for column in ("replied", "val", "kept", "MB"))
    assert lines[4].split() == [
        "round",
        "seconds",
        "replied",
        "val",
        "kept",
        "MB",
        "down",
        "MB",
        "up",
    ]
    assert lines[5].split() == [
        "4",
        "12.3",
        "2/3",
        "0.600",
        "[0.500,",
        "0.700]",
        "0.42",
        "12.3",
        "3.0",
    ]
    assert lines[6] == "trained for 20 rounds, and nothing was measured on test images"
    assert lines[7] == "best: round 17 (highest mean validation accuracy over sites, 0.712)"
    assert lines[8] == NO_TEST
    assert lines[9] == f"folder: {tmp_path}"
    assert lines[10:] == ["files: run.json"]


def test_a_reason_that_stays_the_same_is_printed_once():
    late, other, well = ROW, replace(ROW, failed={"c": "no disk"}), replace(ROW, failed={})
    rows = [late, late, other, late, well, late]
    lines = printed(*[lambda console, row=row: console.round(row) for row in rows], evaluated)
    reasons = [line.strip() for line in lines if line.startswith(" " * 7 + "c:")]
    late_reason = "c: no answer within 3600 s"
    assert reasons == [late_reason, "c: no disk", late_reason, late_reason]


def test_the_end_tells_the_test_result_and_links_to_the_report(tmp_path):
    folder = write_run(tmp_path / "a run", rounds=5)
    (folder / "report.html").touch()
    summary = Summary(rounds=5, best_round=3, best_value=0.5)
    test = outcome(folder, summary)
    lines = printed(lambda console: console.closing(folder, summary))
    images = f"mean of {test.sites} sites, {test.images} images"
    assert f"test: {test.metric} {test.value:.3f} after round 3 ({images})" in lines
    start = next(place for place, line in enumerate(lines) if line.startswith("verdict: "))
    said = " ".join(line.strip() for line in lines[start:-1])
    assert said.startswith(f"verdict: {in_short.lead(judge(Run.load(folder)))}")
    assert lines[-1] == f"report: file://{tmp_path}/a%20run/report.html"


def test_a_run_that_had_finished_before_is_told_as_at_its_end(tmp_path):
    folder = write_run(tmp_path / "run", rounds=5)
    (folder / "report.html").touch()
    lines = last_lines(folder)
    verdict = judge(Run.load(folder))
    assert lines[0] in printed(lambda console: console.closing(folder, Summary(rounds=5)))
    assert lines[0].startswith("test: balanced_accuracy ")
    said = f"verdict: {in_short.lead(verdict)} {in_short.line(verdict)}"
    assert " ".join(lines[1:-1]) == said
    assert lines[-1] == f"report: file://{folder}/report.html"
    assert last_lines(write_run(tmp_path / "failed", rounds=5, status="failed")) == []


def test_synthetic_images_are_named_wherever_numbers_of_them_are(tmp_path):
    start = Start(Experiment(method="fedperl"), ["a"], rounds=5, synthetic=True)
    head = printed(lambda console: console.header(start))[0]
    assert head.startswith("fedward fedperl · dermoscopy 32px · synthetic images · small_cnn · ")
    folder = write_run(tmp_path / "run", rounds=5, synthetic=SITES)
    summary = Summary(rounds=5, best_round=3)
    lines = printed(lambda console: console.closing(folder, summary))
    test = outcome(folder, summary)
    assert test.tested == f"{test.images} synthetic images"
    end = " ".join(line.strip() for line in lines)
    assert f"(mean of {len(SITES)} sites, {test.images} synthetic images)" in end
    lead = in_short.lead(judge(Run.load(folder)))
    assert f"verdict on synthetic images: {lead}" in end


def test_the_outcome_is_that_of_the_report(tmp_path):
    folder = write_run(tmp_path / "run", rounds=5)
    run = Run.load(folder)
    shared = kept_round(list(run.metrics), run.key_metric, 3)
    images = sum(site.images for site in shared.sites)
    assert outcome(folder, Summary(rounds=5, best_round=3)) == (
        run.key_metric,
        3,
        shared.test,
        len(SITES),
        images,
        "image",
        False,
    )
    assert outcome(folder, Summary(rounds=5, best_round=0)).round == 0
    assert outcome(folder, Summary(rounds=5)).round == 5
    assert outcome(folder, Summary(reason="no replies")) is None
    assert outcome(tmp_path / "absent", Summary(rounds=5)) is None


def test_a_reader_who_has_left_ends_no_run():
    calls = []

    class Left(io.StringIO):
        def write(self, text: str) -> int:
            calls.append(text)
            raise BrokenPipeError

    console = Console(Left())
    console.header(Start(Experiment(method="fedavg"), ["a"]))
    console.round(ROW)
    assert len(calls) == 1


def test_a_resumed_run_says_so():
    experiment = Experiment(method="fedavg")
    assert "resumed after round 3" in printed(
        lambda console: console.header(Start(experiment, ["a"], resumed_after=3))
    )


def test_failures_name_site_and_reason():
    lines = printed(lambda console: console.round(ROW), evaluated)
    assert lines[1].strip() == "c: no answer within 3600 s"


def test_a_thousand_failures_take_ten_lines_and_one():
    failed = {f"site-{number:04d}": "gone" for number in range(1000)}
    summary = Summary(rounds=1, not_evaluated=failed)
    waiting = dict.fromkeys(failed, "0" * 64)
    for step in (
        lambda console: (console.round(replace(ROW, failed=failed)), evaluated(console)),
        lambda console: console.closing(Path("x"), summary),
        lambda console: console.waiting(waiting),
    ):
        lines = printed(step)
        assert sum("site-" in line for line in lines) == 10
        assert sum("and 990 more sites, which the run folder names" in line for line in lines) == 1
        assert len(lines) < 40


def test_sites_that_wait_for_approval_are_in_the_order_of_their_numbers():
    waiting = {f"site-{number}": f"{number}" for number in (10, 1, 2)}
    lines = printed(lambda console: console.waiting(waiting))
    assert [line.strip() for line in lines] == [
        f"waiting for approval: site-{number}, job {number}" for number in (1, 2, 10)
    ]


def test_the_legend_says_how_often_val_is_measured():
    for every, words in (
        (1, "after the round, mean"),
        (3, "after the round, every 3 rounds, mean"),
    ):
        experiment = Experiment(method="fedavg", evaluate_every=every)
        lines = printed(
            lambda console, experiment=experiment: console.header(Start(experiment, ["a"]))
        )
        assert words in " ".join(line.strip() for line in lines)


def test_a_site_with_nothing_to_do_takes_one_line():
    reason = "took no training step: 0 labelled, 240 unlabelled images"
    lines = printed(
        lambda console: console.round(replace(ROW, failed={"site-2": reason, "site-4": reason})),
        evaluated,
    )
    assert [line.strip() for line in lines[1:]] == [f"site-2: {reason}", f"site-4: {reason}"]


def test_many_sites_with_nothing_to_do_share_lines():
    reason = "took no training step: 0 labelled, 240 unlabelled images"
    failed = {f"site-{number}": reason for number in (1, 10, 2, 3)}
    lines = printed(
        lambda console: console.round(replace(ROW, failed=failed | {"site-4": "gone"})),
        evaluated,
    )
    assert [line.strip() for line in lines[1:]] == [
        "nothing to train on yet at 4 sites: site-1, site-2, site-3, site-10",
        "site-4: gone",
    ]


def test_a_value_stands_in_the_row_of_its_round():
    lines = printed(
        lambda console: console.evaluated(0, {"a": 0.1}),
        lambda console: console.round(replace(ROW, round=1, failed={})),
        lambda console: console.evaluated(1, {"a": 0.25}),
        lambda console: console.round(replace(ROW, round=2, failed={})),
        lambda console: console.round(replace(ROW, round=3, failed={})),
        lambda console: console.closing(Path("runs/x"), Summary(rounds=3)),
    )
    rows = [line.split() for line in lines if line.split()[0].isdigit()]
    assert [(row[0], row[3]) for row in rows] == [
        ("0", "0.100"),
        ("1", "0.250"),
        ("2", "-"),
        ("3", "-"),
    ]


def test_later_exchanges_of_a_round_are_told_apart():
    rows = [replace(ROW, part=part, failed={}) for part in range(3)]
    lines = printed(*[lambda console, row=row: console.round(row) for row in rows], evaluated)
    first, named, *later = lines
    assert named.strip() == "4.2 is exchange 2 of round 4."
    assert [line.split()[0] for line in (first, *later)] == ["4", "4.2", "4.3"]
    assert len({len(line) for line in (first, *later)}) == 1


def test_missing_evaluation_and_pseudo_labels_show_dashes():
    (line,) = printed(lambda console: console.round(replace(ROW, failed={})), evaluated)
    assert line.split()[3:5] == ["-", "-"]


def test_a_run_with_nothing_to_judge_has_no_best_round():
    summary = Summary(rounds=40, best_round=None, best_value=None)
    lines = printed(lambda console: console.closing(Path("runs/x"), summary, ("classifier.",)))
    assert " ".join(line.strip() for line in lines[:3]) == (
        "finished after 40 rounds "
        "The classifier has not been trained in this run, so there is nothing to judge. "
        "folder: runs/x"
    )


def test_sites_missing_in_the_last_evaluation_are_named():
    summary = Summary(rounds=20, best_round=None, best_value=None)
    lost = {"not_evaluated": {"c": "no answer within 3600 s"}}
    with_one, with_all = (
        printed(
            lambda console, more=more: console.closing(
                Path("runs/x"), summary.model_copy(update=more)
            )
        )
        for more in (lost, {"not_evaluated": {}})
    )
    assert with_one[1:3] == [
        "last model not evaluated at 1 site:",
        "       c: no answer within 3600 s",
    ]
    assert with_one[3:] == ["folder: runs/x"]
    assert with_all[1:] == [NO_TEST, "folder: runs/x"]


def test_a_failed_run_says_why():
    lines = printed(
        lambda console: console.closing(Path("runs/x"), Summary(reason="round 3: no replies"))
    )
    assert lines[0] == "failed: round 3: no replies"
    assert not any(line.startswith("best") for line in lines)


def test_a_run_that_a_person_stopped_has_not_failed():
    lines = printed(lambda console: console.closing(Path("runs/x"), Summary(reason=INTERRUPTED)))
    assert lines == ["interrupted", "folder: runs/x"]


@given(
    st.integers(0, 99_999),
    st.integers(0, 99),
    st.floats(0, 99_999),
    st.integers(0, 10**13),
    st.dictionaries(st.text(max_size=120), st.text(max_size=400), max_size=3),
    st.lists(st.floats(0, 1), max_size=5),
    st.one_of(st.none(), st.floats(0, 1)),
)
@example(0, 0, 0.0, 0, {"0" * 15 + "\x08\t" + "0" * 32 + "\x1f" * 3: "0"}, [], None)
def test_never_wider_than_eighty_columns(round_, part, seconds, size, failed, values, kept):
    row = replace(
        ROW, round=round_, part=part, seconds=seconds, bytes_down=size, bytes_up=size, failed=failed
    )
    row = replace(row, asked=("s",) * 100, replied=("s",) * 100)
    lines = printed(
        lambda console: console.round(row, kept),
        lambda console: console.evaluated(
            round_, {str(place): value for place, value in enumerate(values)}
        ),
    )
    assert all(len(line) <= WIDTH for line in lines)
    assert len(lines) <= 1 + (part > 0) + 3 * len(failed)


def test_long_headers_and_reasons_wrap():
    experiment = Experiment(
        method="fedperl", key_metric="balanced_accuracy", net="a_net_with_quite_a_long_name_indeed"
    )
    lines = printed(
        lambda console: console.header(Start(experiment, ["s"] * 1000, resumed_after=400)),
        lambda console: console.closing(Path("x"), Summary(reason="word " * 200)),
    )
    assert all(len(line) <= WIDTH for line in lines)
