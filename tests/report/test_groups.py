"""What a report says of methods that average sites with and without labels apart."""

import json
import re

import numpy as np
import pytest
from pages import report
from run_folders import average, write_run

from fedward.report import Run, groups
from fedward.runs.site_lines import site_lines

SITES = ("a", "b", "c", "d")
WARM_UP = (average(1, 0, "labelled", a=(0.5, 9.0), c=(0.5, 9.0)),)
APART = (
    *WARM_UP,
    average(2, 0, "unlabelled", b=(0.25, 1.0), d=(0.75, 3.0)),
    average(2, 1, "labelled", a=(0.4, 2.0), c=(0.6, 4.0)),
    average(3, 0, "unlabelled", b=(0.35, 2.0), d=(0.65, 4.0)),
    average(3, 1, "labelled", a=(1.0, 0.0)),
)
PASSES = (
    *WARM_UP,
    average(2, 0, "all", a=(0.5, 1.0), b=(0.5, 2.0)),
    average(2, 1, "all", a=(0.2, 3.0), d=(0.8, 4.0)),
    average(3, 0, "all", b=(0.1, 6.0), d=(0.9, 2.0)),
)
TOGETHER = (*WARM_UP, average(2, 0, "all", a=(0.1, 1.0), b=(0.2, 1.0), c=(0.3, 1.0), d=(0.4, 1.0)))
NEVER = tuple(average(r, 0, "labelled", a=(0.5, 1.0), c=(0.5, 1.0)) for r in (1, 2))


@pytest.fixture
def make_run(tmp_path):
    """A function that writes the folder of a run of four sites with the given averages; b and d
    have no labels.
    """

    def make(groups, sites=SITES, **changes):
        options = {"method": "isofed", "rounds": 8, "unlabelled": sites[1::2], "groups": groups}
        return write_run(
            tmp_path / f"run{len(list(tmp_path.iterdir()))}",
            **(options | {"sites": sites} | changes),
        )

    return make


def test_shares_of_one_average_a_round_are_its_weights(make_run):
    assert groups.effective_weights(Run.load(make_run(APART))) == {
        "a": {1: 0.5, 2: 0.4, 3: 1.0},
        "b": {2: 0.25, 3: 0.35},
        "c": {1: 0.5, 2: 0.6},
        "d": {2: 0.75, 3: 0.65},
    }


def test_shares_of_several_averages_worked_by_hand(make_run):
    """Round 2 has two averages: a is in both with 0.5 and 0.2, b and d in one each."""
    table = groups.effective_weights(Run.load(make_run(PASSES)))
    assert table["a"] == pytest.approx({1: 0.5, 2: 0.35})
    assert table["b"] == pytest.approx({2: 0.25, 3: 0.1})
    assert table["d"] == pytest.approx({2: 0.4, 3: 0.9})


def test_shares_of_a_round_sum_to_one(make_run):
    draw = np.random.default_rng(3)
    rows = []
    for round_ in range(1, 6):
        for part in range(3):
            members = draw.choice(SITES, int(draw.integers(1, 5)), replace=False)
            weights = draw.dirichlet(np.ones(len(members))).tolist()
            rows.append(
                average(
                    round_,
                    part,
                    "all",
                    **{m: (w, 1.0) for m, w in zip(members, weights, strict=True)},
                )
            )
    table = groups.effective_weights(Run.load(make_run(rows)))
    for round_ in range(1, 6):
        assert sum(line.get(round_, 0.0) for line in table.values()) == pytest.approx(1)


def test_the_table_worked_by_hand(make_run):
    """Means leave the warm-up (round 1) out, and the rounds a site did not contribute to."""
    _, page = report(make_run(APART))
    assert page.tables["table-groups"][1:] == [
        ["a", "labelled", "16", "144", "0.700", "1.000", "3"],
        ["c", "labelled", "16", "144", "0.600", "4.000", "2"],
        ["b", "unlabelled", "0", "144", "0.300", "1.500", "2"],
        ["d", "unlabelled", "0", "144", "0.700", "3.500", "2"],
    ]


def test_distances_are_means_over_averages(make_run):
    """The site a was in two averages of round 2, at distances 1 and 3, and in none of round 3."""
    _, page = report(make_run(PASSES))
    assert page.tables["table-groups"][1] == ["a", "labelled", "16", "144", "0.350", "2.000", "2"]


def test_a_site_only_seen_in_the_warm_up_has_no_means(make_run):
    _, page = report(make_run(PASSES))
    assert page.tables["table-groups"][2] == ["c", "labelled", "16", "144", "n/a", "n/a", "1"]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            APART,
            "Sites with labels (a, c) were averaged among themselves, and so were sites without "
            "(b, d); the two groups were never mixed. In the warm-up (1 round), only sites with "
            "labels trained.",
        ),
        (
            TOGETHER,
            "Sites with labels (a, c) and sites without (b, d) were averaged together. "
            "In the warm-up (1 round), only sites with labels trained.",
        ),
        (
            PASSES,
            "Sites with labels (a, c) and sites without (b, d) were averaged together. "
            "A round's model is the mean of up to 2 such averages, each over some of the sites. "
            "In the warm-up (1 round), only sites with labels trained.",
        ),
        (NEVER, "Only sites with labels (a, c) were averaged; the others contributed nothing."),
        (
            APART[1:2],
            "Only sites without labels (b, d) were averaged so far. " + "In the warm-up (1 round)",
        ),
    ],
)
def test_who_was_averaged_with_whom_in_words(make_run, rows, sentence):
    _, page = report(make_run(rows))
    assert page.by_id["grouping"].startswith(sentence)


def test_where_all_sites_have_labels_no_others_are_spoken_of(make_run):
    members = dict.fromkeys(SITES, (0.25, 1.0))
    _, page = report(make_run([average(1, 0, "labelled", **members)], unlabelled=()))
    assert (
        page.by_id["grouping"] == "All sites have labels (a, b, c, d) and were averaged together."
    )


def test_many_sites_are_counted_instead_of_named(make_run):
    sites = tuple(f"s{i}" for i in range(16))
    members = dict.fromkeys(sites, (1 / 16, 1.0))
    run = Run.load(make_run([average(1, 0, "all", **members)], sites, rounds=60))
    lines = groups.group_lines(run, site_lines(run))
    assert groups.grouping(run, lines).startswith(
        "Sites with labels (8 sites) and sites without (8 sites)"
    )


def test_a_site_that_never_trained_is_shown_last(make_run):
    folder = make_run(NEVER)
    path = folder / "metrics.jsonl"
    path.write_text(
        "".join(
            line for line in path.open() if not re.search(r'"site": "a".*"split": "train"', line)
        )
    )
    _, page = report(folder)
    assert page.tables["table-groups"][-1] == [
        "a",
        "never trained",
        "n/a",
        "n/a",
        "0.500",
        "1.000",
        "2",
    ]


def test_one_picture_for_each_site_that_contributed(make_run):
    _, page = report(make_run(NEVER))
    labels = [attrs["aria-label"] for tag, attrs in page.tags if tag == "svg"]
    drawn = [label for label in labels if label.startswith("Weight")]
    assert drawn == [f"Weight of {site} by round, 0.500 on average" for site in ("a", "c")]


def test_no_words_on_peers_or_pseudo_labels(make_run):
    _, page = report(make_run(APART))
    headings = {attrs["id"] for tag, attrs in page.tags if tag == "h2"}
    assert "groups" in headings
    assert not {"peers", "kept"} & headings
    assert "peer" not in page.text.lower()
    assert page.tables["table-bytes"][0] == ["Site", "Down", "Up"]


@pytest.mark.parametrize("method", ["fedperl", "fedavg"])
def test_no_section_without_groups(make_run, method):
    folder = make_run((), method=method, warm_up=2)
    (folder / "groups.jsonl").touch()
    _, page = report(folder)
    assert not page.tables["table-groups"]
    assert "groups" not in {attrs.get("id") for _, attrs in page.tags}
    said = "In the warm-up (2 rounds), sites trained without peers." in page.text
    assert said == (method == "fedperl")


def test_the_page_is_well_formed(make_run):
    _, page = report(make_run(APART, sites=SITES))
    assert page.unclosed == []
    assert sum(tag == "table" for tag, _ in page.tags) == sum(
        tag == "caption" for tag, _ in page.tags
    )


def test_hostile_names_are_only_text(make_run):
    sites = ("<script>x</script>", '"><b onmouseover=x>', "$x_1$", "{{ 7*7 }}")
    html, page = report(
        make_run([average(1, 0, "all", **dict.fromkeys(sites, (0.25, 1.0)))], sites)
    )
    assert html.count("<script") == 1
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert {line[0] for line in page.tables["table-groups"][1:]} == set(sites)


def test_groups_alone_make_a_page(make_run):
    folder = make_run(APART, status="running")
    for name in ("metrics", "rounds", "bytes"):
        (folder / f"{name}.jsonl").unlink()
    _, page = report(folder)
    assert [line[1] for line in page.tables["table-groups"][1:]] == ["never trained"] * 4


IDLE = "took no training step: 0 labelled, 144 unlabelled images"


@pytest.mark.parametrize(
    ("failed", "sentence", "failures"),
    [
        (
            {"b": IDLE, "d": IDLE},
            "Every site that was asked replied in every round. 2 answers",
            "0",
        ),
        (
            {"b": IDLE, "d": "gone"},
            "1 answer failed or came too late, in 1 of 1 round. 1 answer",
            "1",
        ),
    ],
)
def test_a_site_with_nothing_to_do_is_no_failure(make_run, failed, sentence, failures):
    folder = make_run(NEVER, rounds=1)
    row = json.loads((folder / "rounds.jsonl").read_text())
    (folder / "rounds.jsonl").write_text(json.dumps(row | {"failed": failed}) + "\n")
    _, page = report(folder)
    who = ", ".join(site for site, reason in failed.items() if reason == IDLE)
    assert (
        f"{sentence} brought no training, because the site had no image to learn from: none with "
        f"a label, or with a pseudo-label that is certain enough ({who})."
    ) in page.text
    assert page.tables["table-sites"][-1][6] == failures
    assert page.tables["table-failures"][1:] == [
        ["1", site, reason] for site, reason in failed.items()
    ]
