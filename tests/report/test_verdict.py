"""What a reader sees first: where the images came from, and whether the model is of any use."""

import json
import re
from statistics import fmean

import pytest
from pages import report
from run_folders import CLASSES, SITES, write_run

from fedward.evaluation import best_global, last_rounds, mean_and_interval, paired_difference
from fedward.evaluation.intervals import proportion_interval
from fedward.report import Run
from fedward.report.origin import origin
from fedward.report.sheet import render_sheet
from fedward.runs.judge import judge
from fedward.runs.over_sites import over_sites
from fedward.runs.verdict_words import in_short

KEY = "balanced_accuracy"


def changed(folder, change):
    """Let ``change`` alter each test row of a run, by its name."""
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.open()]
    for row in rows:
        if row["split"] == "test":
            row["value"] = change(row["name"], row["value"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def said(page):
    words = f"{page.by_id['verdict']} {page.by_id['numbers']}"
    return " ".join(words.split()).replace("\u00a0", " ")


def level(page):
    return next(attrs["class"] for _, attrs in page.tags if attrs.get("id") == "verdict")


def test_accuracy_is_set_beside_the_commonest_class(tmp_path):
    folder = write_run(tmp_path / "run", rounds=4, sites=SITES[:3])
    _, page = report(folder)
    run = Run.load(folder)
    chosen = best_global(run.metrics, KEY).round
    rows = [run.at(site, "test", chosen) for site in SITES[:3]]
    images = sum(row["accuracy"].n for row in rows)
    share = sum(round(row["accuracy"].n * row["accuracy"].value) for row in rows) / images
    support = {name: sum(row[f"support/{name}"].value for row in rows) for name in CLASSES}
    common = max(support, key=support.get)
    low, high = (100 * end for end in proportion_interval(share, images))
    classified = f"classifies {share * 100:.1f} % of the {images} test images of 3 sites correctly"
    assert f"{classified} (95 % interval {low:.1f} to {high:.1f} %)." in said(page)
    common_share = f"{support[common] / images * 100:.1f} %"
    assert f"Always answering “{common}” would be right for {common_share}." in said(page)
    tile = f"{share * 100:.1f} % {low:.1f} to {high:.1f} %, {images} images"
    assert page.by_id["tile-accuracy"] == tile
    assert page.by_id["tile-baseline"] == f"{common_share} {images} images"
    # Classes are not counted here, and all sites trained.
    assert (level(page), said(page).split(".")[0]) == (
        "verdict good",
        f"Better than always answering “{common}”",
    )


def test_a_round_of_few_sites_is_not_called_lower(tmp_path):
    """One easy site alone measured the first round, in which it was right about all images."""
    folder = write_run(tmp_path / "run", rounds=4, sites=SITES[:3])
    every = report(folder)[1].text
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.open()]
    rows = [
        row | {"value": 1.0} if row["name"] == KEY and row["round"] == 1 else row
        for row in rows
        if row["split"] != "val" or row["round"] != 1 or row["site"] == SITES[0]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    few = report(folder)[1].text
    assert "because its mean validation balanced accuracy is the highest (" in every
    among = "is the highest of the rounds that most sites measured ("
    assert f"because its mean validation balanced accuracy {among}" in few


def test_a_tie_of_rounds_passes_none_over(tmp_path):
    """Equal means may differ in the last bit: 0.2, 0.2 and 0.2 have more than 0.1, 0.2 and 0.3."""
    folder = write_run(tmp_path / "run", rounds=4, sites=SITES[:3])
    first = dict.fromkeys(SITES[:3], 0.2)
    last = dict(zip(SITES[:3], (0.1, 0.2, 0.3), strict=True))
    assert fmean(first.values()) > fmean(last.values())
    values = {1: first, 4: last}
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.open()]
    for row in rows:
        if row["name"] == KEY and row["split"] == "val":
            row["value"] = values.get(row["round"], {}).get(row["site"], 0.0)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    highest = "Round 4 was selected because its mean validation balanced accuracy is the highest ("
    assert highest in report(folder)[1].text


@pytest.mark.parametrize(
    ("accuracy", "balanced", "found", "begin"),
    [
        (0.3, 0.12, "poor", "Of no use: worse than always answering “MEL”."),
        (0.45, 0.12, "poor", "Not shown to be better than always answering “MEL”."),
        (
            0.45,
            0.5,
            "mixed",
            "It tells classes apart, but is not shown to be right more often than always "
            "answering “MEL”.",
        ),
        (0.9, 0.5, "good", "Better than always answering “MEL”."),
    ],
)
def test_the_verdict_follows_from_the_baselines(tmp_path, accuracy, balanced, found, begin):
    """MEL has 150 of 338 images of each site, which is 44 %."""
    values = {"accuracy": accuracy, "balanced_accuracy": balanced}
    folder = changed(
        write_run(tmp_path / "run", rounds=4, sites=SITES[:3]),
        values.get,
    )
    verdict = judge(Run.load(folder))
    assert verdict.level == found
    assert in_short.lead(verdict) == begin


def test_classes_never_recognised_are_named_first(tmp_path):
    """A class that one site recognises once is not among them, nor is one without test images."""
    folder = write_run(tmp_path / "run", rounds=4, sites=SITES[:3])
    changed(folder, lambda name, value: 0.0 if name in ("f1/MEL", "f1/DF") and value else value)
    verdict = judge(Run.load(folder))
    blind = "but it recognises none of the test images of MEL, DF."
    assert in_short.lead(verdict) == f"Better than always answering “MEL”, {blind}"
    assert verdict.level == "mixed"


def test_the_worst_site_has_its_interval_and_images(tmp_path):
    folder = write_run(tmp_path / "run", rounds=4)
    _, page = report(folder)
    run = Run.load(folder)
    end = last_rounds(run.metrics, KEY)
    found = mean_and_interval([choice.test for choice in end.sites])
    assert (
        f"{found.mean:.3f} on average over sites (95 % interval over sites {found.low:.3f} to"
        in page.text
    )
    rows = run.metrics.test_rows("accuracy", best_global(run.metrics, KEY).round)
    right = {site: round(row.value * row.n) / row.n for site, row in rows.items()}
    worst = min(right, key=right.get)
    low, high = proportion_interval(right[worst], rows[worst].n)
    assert (
        f"Lowest site: right for {right[worst] * 100:.1f} % of the {rows[worst].n} test images of "
        f"{worst} (95 % interval {low * 100:.1f} to {high * 100:.1f} %)." in said(page)
    )
    assert page.by_id["tile-worst"].startswith(f"{right[worst] * 100:.1f} %")


def test_of_few_sites_the_lowest_and_highest_are_shown():
    """A t interval of three values would reach from 0 to 1."""
    few = over_sites([0.3, 0.9, 0.6], "accuracy")
    assert few.ends() == "0.300 to 0.900 at 3 sites"
    many = over_sites([0.3, 0.9, 0.6, 0.5, 0.7, 0.6], "accuracy")
    found = mean_and_interval([0.3, 0.9, 0.6, 0.5, 0.7, 0.6])
    assert many.ends() == f"95 % interval over sites {found.low:.3f} to {found.high:.3f}"
    assert over_sites([0.5] * 9, "accuracy").ends() == ""


def test_sites_that_are_alike_have_no_worst_and_no_interval(tmp_path):
    _, page = report(changed(write_run(tmp_path / "run", rounds=4), lambda name, value: 1.0))
    assert "Lowest site" not in page.text
    assert "tile-worst" not in page.by_id
    assert page.by_id["tile-auroc"] == "1.000 10 sites"
    assert "is 1.000 on average over sites." in page.text


def test_compared_runs_are_among_the_key_results(tmp_path):
    """The report's own run minus the other one: a better method has a difference above 0."""
    good = write_run(tmp_path / "good", rounds=4)
    bad = write_run(tmp_path / "bad", rounds=4, method="fedavg", gain=0.2)
    values = [
        {choice.site: choice.test for choice in last_rounds(Run.load(each).metrics, KEY).sites}
        for each in (good, bad)
    ]
    found = paired_difference(*([value[site] for site in SITES] for value in values))
    assert found.mean == pytest.approx(fmean(values[0].values()) - fmean(values[1].values()))
    interval = f"95 % interval {found.low:+.3f} to {found.high:+.3f}"
    difference = f"{found.mean:+.3f} ({interval}) in test balanced accuracy, paired over 10 sites."
    assert found.low > 0
    assert f"Better than fedavg: {difference}" in report(good, bad)[1].text
    assert "Worse than fedperl: " in report(bad, good)[1].by_id["warnings"]
    assert "it is worse than fedperl." in said(report(bad, good)[1])
    assert "it is worse than fedperl." in render_sheet(Run.load(bad), [Run.load(good)])
    same = "Not shown to be better than fedperl (2): +0.000"
    assert same in report(good, good)[1].by_id["warnings"]
    assert "Their lengths differ" not in report(good, bad)[1].text


def test_a_single_site_has_no_mean_and_no_lowest_value(tmp_path):
    _, page = report(write_run(tmp_path / "run", rounds=2, sites=SITES[:1]))
    assert "At the only site that measured it, the selected model" in page.text
    assert re.search(r"on test images \(0\.\d{3} at site-1\)", page.text)
    assert "on average over sites" not in page.text
    assert "at each)" not in page.text
    assert "of the global model: only one site has it." in page.text


def test_sites_that_choose_a_round_are_compared_with_themselves(tmp_path):
    """Two of three sites have too few validation images of each class to report a value."""
    folder = write_run(tmp_path / "run", rounds=3, sites=SITES[:3])
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.open()]
    for row in rows:
        if row["split"] == "val" and row["site"] != SITES[0]:
            row["value"] = None
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    _, page = report(folder)
    run = Run.load(folder)
    chosen = best_global(run.metrics, KEY).round
    there = run.at(SITES[0], "test", chosen)[KEY].value
    assert (
        f"the mean test value would be {there:.3f} at site-1, where the selected round has "
        f"{there:.3f}." in page.text
    )


def test_compared_runs_of_other_lengths_are_told(tmp_path):
    long = write_run(tmp_path / "long", rounds=4)
    short = write_run(tmp_path / "short", rounds=2, method="fedavg")
    told = "Their lengths differ: fedperl has 4 rounds and fedavg has 2 rounds."
    assert told in report(long, short)[1].text


def test_runs_on_other_test_images_are_not_paired(tmp_path):
    """Sites of the same names, with other images: a difference would say nothing."""
    one = write_run(tmp_path / "a", rounds=1)
    other = write_run(tmp_path / "b", rounds=1, method="fedavg")
    path = other / "metrics.jsonl"
    path.write_text(path.read_text().replace('"n": ', '"n": 9'))
    _, page = report(one, other)
    assert (
        "fedperl and fedavg have no site with the same test images, so their difference is not "
        "known." in page.text
    )
    assert page.tables["table-comparison"][2][7:9] == ["–", "–"]


def test_a_single_site_of_synthetic_images_is_not_counted(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1, sites=SITES[:1], synthetic=SITES[:1])
    words = "Synthetic data: the only site worked on images that fedward draws."
    assert origin(Run.load(folder)).warning.startswith(words)


@pytest.mark.parametrize(
    ("synthetic", "words", "loud"),
    [
        (SITES, "Synthetic data: all 10 sites worked on images that fedward draws.", True),
        (
            SITES[:2],
            "Synthetic data: 2 of 10 sites (site-1, site-2) worked on images that fedward draws.",
            True,
        ),
        (
            (),
            "Data: images in files of 10 sites, as each site stated.",
            False,
        ),
        (None, "This run does not record whether its images were synthetic.", False),
    ],
)
def test_a_banner_says_that_data_is_synthetic(tmp_path, synthetic, words, loud):
    html, page = report(write_run(tmp_path / "run", rounds=1, synthetic=synthetic))
    assert words in page.text
    assert ("banner synthetic" in [attrs.get("class") for _, attrs in page.tags]) == loud
    assert html.index(words) < html.index('id="results"')
    assert ("synthetic.labelled" in page.text) == (synthetic != ()), (
        "settings of what nobody drew say nothing"
    )
