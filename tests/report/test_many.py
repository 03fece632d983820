"""Reports of more sites than a person reads one by one, and rows kept as columns."""

import numpy as np
import pytest
from pages import report
from run_folders import write_run

from fedward.evaluation.selection import MetricRow, best_global
from fedward.report import Run, figures, multiples
from fedward.runs.metrics import Metrics

SITES = tuple(f"h{number:02d}" for number in range(45))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """A run of 45 sites and its page."""
    folder = write_run(
        tmp_path_factory.mktemp("many") / "run", method="fedavg", rounds=2, sites=SITES
    )
    return Run.load(folder), report(folder)[1]


def ranked(run):
    """Return the sites by rising test value of the selected model, and these values."""
    values = {
        choice.site: choice.test for choice in best_global(run.metrics, run.key_metric, SITES).sites
    }
    return sorted(SITES, key=values.__getitem__), values


def test_tables_show_both_ends_and_one_table_all_sites(crowd):
    run, page = crowd
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


def test_quartiles_are_those_of_all_sites(crowd):
    run, page = crowd
    _, values = ranked(run)
    rows = {line[0]: line[1:] for line in page.tables["table-quartiles"][1:]}
    expected = np.quantile(list(values.values()), (0, 0.25, 0.5, 0.75, 1))
    assert rows["Test value, best single round"] == [f"{value:.3f}" for value in expected]
    trained = [sum(site in row.replied for row in run.rounds) for site in SITES]
    assert rows["Rounds trained"] == [
        f"{value:.0f}" for value in np.quantile(trained, (0, 0.25, 0.5, 0.75, 1))
    ]


def test_totals_and_means_are_of_all_sites(crowd):
    run, page = crowd
    _, values = ranked(run)
    assert page.tables["table-protocols"][-1][4] == f"{np.mean(list(values.values())):.3f}"
    assert page.tables["table-sites"][-1][4] == str(
        sum(run.at(site, "test", 0)["accuracy"].n for site in SITES)
    )


def test_pictures_do_not_grow_with_sites_and_rounds(crowd):
    _, page = crowd
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
