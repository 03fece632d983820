"""Reports of more sites than a person reads one by one, and rows kept as columns."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from pages import report
from run_folders import write_run

from fedward.evaluation.selection import MetricRow, best_global
from fedward.report import Run, figures, labels, multiples
from fedward.report.sites import _ends
from fedward.report.survey import of_run
from fedward.report.survey_words import flags
from fedward.runs.metrics import Metrics
from fedward.runs.site_lines import site_lines
from fedward.storage.rows import SurveyRow

SITES = tuple(f"h{number:02d}" for number in range(45))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """A run of 45 sites, and its page parsed and as HTML."""
    folder = write_run(
        tmp_path_factory.mktemp("many") / "run", method="fedavg", rounds=2, sites=SITES
    )
    html, page = report(folder)
    return Run.load(folder), page, html


def ranked(run):
    """Return the sites by rising test value of the selected model, and these values."""
    values = {
        choice.site: choice.test for choice in best_global(run.metrics, run.key_metric, SITES).sites
    }
    return sorted(SITES, key=values.__getitem__), values


def test_tables_show_both_ends_and_one_table_all_sites(crowd):
    run, page, _ = crowd
    order, values = ranked(run)
    few = order[:10] + order[-10:]
    for name, last in (
        ("sites", ["All sites"]),
        ("protocols", ["Mean over sites"]),
        ("overall", ["Mean over sites", "Median over sites"]),
    ):
        assert [line[0] for line in page.tables[f"table-{name}"][1:]] == few + last
    assert [line[0] for line in page.tables["table-bytes"][1:]] == few
    assert [(line[0], line[8]) for line in page.tables["table-all"][1:]] == [
        (s, f"{values[s]:.3f}") for s in order
    ]
    assert "table-class-sites" not in page.tables
    assert page.unclosed == []


@pytest.mark.parametrize(
    ("tested", "shown", "selection"),
    [
        (19, [*range(20)], "the first 20 of 45 sites."),
        (20, [*range(20)], "20 of 45 sites: the ten lowest and the ten highest by test accuracy."),
        (
            21,
            [*range(10), *range(11, 21)],
            "20 of 45 sites: the ten lowest and the ten highest by test accuracy.",
        ),
    ],
)
def test_both_ends_are_shown_where_enough_sites_were_tested(crowd, tested, shown, selection):
    values = {site: place / 100 for place, site in enumerate(SITES[:tested])}
    ends, sentence = _ends(site_lines(crowd[0]), values, "accuracy")
    assert [line.site for line in ends] == [SITES[place] for place in shown]
    assert sentence == selection


def test_quartiles_are_those_of_all_sites(crowd):
    run, page, _ = crowd
    _, values = ranked(run)
    rows = {line[0]: line[1:] for line in page.tables["table-quartiles"][1:]}
    expected = np.quantile(list(values.values()), (0, 0.25, 0.5, 0.75, 1))
    assert rows["Test value, best single round"] == [f"{value:.3f}" for value in expected]
    trained = [sum(site in row.replied for row in run.rounds) for site in SITES]
    assert rows["Rounds trained"] == [
        f"{value:.0f}" for value in np.quantile(trained, (0, 0.25, 0.5, 0.75, 1))
    ]


def test_totals_and_means_are_of_all_sites(crowd):
    run, page, _ = crowd
    _, values = ranked(run)
    assert page.tables["table-protocols"][-1][4] == f"{np.mean(list(values.values())):.3f}"
    assert page.tables["table-sites"][-1][4] == str(
        sum(run.at(site, "test", 0)["accuracy"].n for site in SITES)
    )


def test_captions_count_sites_and_name_both_ends(crowd):
    run, page, _ = crowd
    order, values = ranked(run)
    ends = (
        f"lowest {values[order[0]]:.3f} at {order[0]}, highest {values[order[-1]]:.3f} at "
        f"{order[-1]}"
    )
    assert f"(round 2): {ends}. The line is the median." in page.text
    last = {site: line[2] for site, line in run.series("val", run.key_metric).items()}
    low, high = min(last, key=last.get), max(last, key=last.get)
    assert (
        "mean over 45 sites (thick), the middle half of the sites (dark), lowest to highest "
        f"(shaded). After round 2: lowest {last[low]:.3f} at {low}, highest {last[high]:.3f} at "
        f"{high}." in page.text
    )
    selection = "20 of 45 sites: the ten lowest and the ten highest by test balanced accuracy."
    # In the section on sites, and with each table and grid that shows these sites alone.
    assert page.text.count(selection) == 6
    assert f"Tables and pictures by site show {selection}" in page.text


def test_no_text_lists_all_of_many_sites(crowd):
    """What is said of all sites is folded, and so not printed before a reader opens it."""
    _, _, html = crowd
    shown = re.sub(r"<details class=\"screen.*?</details>", "", html, flags=re.DOTALL)
    listed = max(len(set(re.findall(r"\bh\d\d\b", line))) for line in shown.splitlines())
    assert listed <= 12


def test_pictures_do_not_grow_with_sites_and_rounds(crowd):
    _, page, _ = crowd
    assert page.pictures == {
        "sites": 1,  # the distribution of test values
        "convergence": 1 + 20,  # all sites in one figure, then each of the shown sites
        "kept": 1,
        "cost": 2,  # traffic and durations
    }
    long = {round_: 0.5 + 0.4 * np.sin(round_) for round_ in range(50_000)}
    assert len(multiples.validation_curves({"a": long}, long, {"a": 3})["a"]) < 100_000
    lines = {str(site): dict.fromkeys(range(9), 0.01 * site) for site in range(100)}
    assert len(figures.convergence(lines, "m", 0, 3)) < 1.5 * len(
        figures.convergence(dict([*lines.items()][:31]), "m", 0, 3)
    )


def test_columns_give_back_the_rows():
    rows = [
        MetricRow(1, "a", "test", "accuracy", 0.5, 9, ("MEL",)),
        MetricRow(1, "a", "test", "f1_macro", None, 9),
        MetricRow(0, "new", "test", "accuracy", 0.25, 4),
        MetricRow(2, "a", "test", "accuracy", None, 8),
        MetricRow(2, "a", "train", "loss", 1e300, 0),
    ]
    metrics = Metrics(rows, ["b", "a"])
    assert len(metrics) == 5
    told = MetricRow(
        1, "a", "test", "f1_macro", None, 9, ("MEL",)
    )  # one row says the classes for all
    assert list(metrics) == [rows[0], rows[2], rows[3], told, rows[4]]
    assert metrics.at("a", "test", 1) == {"accuracy": rows[0], "f1_macro": told}
    assert metrics.at("nobody", "test", 1) == {}
    assert metrics.values("test", "accuracy", 1) == {"a": 0.5}
    assert metrics.values("test", "accuracy", None) == metrics.values("val", "accuracy", 1) == {}
    assert metrics.newest("test", "accuracy") == {"a": rows[3], "new": rows[2]}


def survey_row(site: str, brightness: int, repeated: int, dark: int) -> SurveyRow:
    """A site with 100 images of one class, all in one interval of brightness."""
    bright = tuple(100 if place == brightness else 0 for place in range(20))
    counts = (100,)
    return SurveyRow(
        round=1,
        site=site,
        labelled=counts,
        unlabelled=0,
        val=counts,
        test=counts,
        patients=(),
        sizes=(),
        sides=(0, 100, 0, 0, 0, 0, 0, 0),
        grey=0,
        colour=100,
        brightness=bright,
        contrast=tuple(100 if place == 4 else 0 for place in range(20)),
        dark=dark,
        repeated=repeated,
        columns={},
    )


def test_a_survey_of_many_sites_names_the_ends():
    """Of 45 sites, ten are darker, some more than others, and ten have repeated images."""
    rows = [survey_row(site, 10, 0, 0) for site in SITES[:35]]
    rows += [
        survey_row(site, place // 2, 5 + 5 * place, 5 + 5 * place)
        for place, site in enumerate(SITES[35:])
    ]
    found = flags(rows, ("a",))
    together = [sentence for sentence in found if "10 sites" in sentence]
    assert [sentence.partition(":")[0].partition(".")[0] for sentence in together] == [
        "At 10 sites some validation or test images are also in another split, pixel by pixel, at "
        "least 50 at h44, which has the most",
        "At 10 sites some images are nearly black or of one grey, at least 50 at h44, which has "
        "the most",
        "Images of 10 sites are darker than the median of all sites, 0",
    ]
    assert together[-1].endswith("0.53: lowest 0.03 at h35, highest 0.23 at h43.")
    assert len(flags([*rows[:35], *rows[-2:]], ("a",))) == len(found) - 3 + 6


def test_a_site_that_answered_a_survey_later_has_not_failed(tmp_path):
    run = Run.load(write_run(tmp_path / "run", rounds=1, sites=("a", "b")))
    failed = {"a": "killed", "b": "no answer"}
    rounds = (replace(run.rounds[0], failed=failed),)
    run = replace(run, rounds=rounds, surveys=(survey_row("a", 10, 0, 0),))
    assert of_run(run).failed == {"b": "no answer"}


def test_remarks_on_labels_of_many_sites_are_counted(tmp_path):
    folder = write_run(tmp_path / "run", method="fedal", rounds=1, sites=SITES[:8])
    row = {"round": 1, "asked": 4, "bought": 3, "waiting": 1, "cannot_tell": 0, "unusable": 0}
    row |= {"labelled": 13, "unlabelled": 87, "minutes": None}
    rows = [row | {"site": site} for site in SITES[:8]]
    rows[0] |= {"unusable": 1}
    (folder / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert labels.sentences(Run.load(folder))[1:] == [
        "8 sites have images that they asked about and that had no label yet.",
        "At h00, 1 answer could not be used; the log there says why.",
    ]
