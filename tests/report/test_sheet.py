"""The page for clinicians: the same numbers in plain words, on one sheet of paper."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pages import Page
from run_folders import CLASSES, SITES, add_answers, write_run

from chromium import printed, start_browser
from fedward.cards import SITE_ITEMS, STUDY_ITEMS
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.intervals import mean_and_interval
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.report import Run, write_report
from fedward.report.clinical import Clinical
from fedward.runs.choices import site_test_values
from fedward.runs.judge import judge

ROUNDS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with counts whose model never predicts SCC, and both of its pages."""
    folder = write_run(tmp_path_factory.mktemp("sheet") / "run", rounds=ROUNDS, synthetic=())
    add_answers(folder, ROUNDS)
    write_report(folder)
    return folder


def sheet(folder: Path) -> Page:
    return Page((folder / "clinician.html").read_text(encoding="utf-8"))


def test_numbers_are_those_of_the_report(folder):
    page = sheet(folder)
    report = Page((folder / "report.html").read_text(encoding="utf-8"))
    for line, full in zip(
        page.tables["table-sheet"][1:], report.tables["table-rates"][1:], strict=True
    ):
        assert line[:2] == full[:2]
        numbers = [
            [round(float(number)) for number in re.findall(r"[\d.]+", cell)] for cell in full[2:5]
        ]
        found = [[int(number) for number in re.findall(r"\d+", cell)] for cell in line[2:5]]
        assert all(np.allclose(a, b, atol=1) for a, b in zip(found, numbers, strict=True))
    # A human reads every image, so that no number of images stands below that.
    assert page.text.count("Ask a human about every image: it never answers SCC.") == 1
    assert report.text.count("Ask a human about every image: it never answers SCC.") == 1
    assert "If a human reads" not in page.text + report.text
    assert "Data: images in files of 10 sites, as each site stated." in page.text


def test_limits_name_what_is_missed_or_was_not_tested(folder):
    page = sheet(folder)
    answers = Clinical.of(Run.load(folder), ROUNDS).pooled
    assert "It answers SCC for no test image: expect it to miss every such image." in page.text
    assert "Not tested: VASC (1 of 8 classes)." in page.text
    assert "Images of this class are in no number" in page.text
    few = [line for line in answers.lines if line.images < 30]
    assert [line.name for line in few] == []
    sites = Clinical.of(Run.load(folder), ROUNDS).sites
    accuracy = {answers.name: answers.accuracy.value * 100 for answers in sites}
    worst = min(accuracy, key=accuracy.get)
    best = max(accuracy, key=accuracy.get)
    lowest = f"right for {accuracy[worst]:.0f} of 100 images at {worst}, the lowest (95 % interval"
    assert lowest in page.text
    assert f"tested), to {accuracy[best]:.0f} at {best} (" in page.text


def test_both_pages_say_which_classes_are_found_least(folder):
    lowest = judge(Run.load(folder)).classes[:4]
    for name in ("clinician.html", "report.html"):
        page = Page((folder / name).read_text(encoding="utf-8"))
        assert lowest[0].name == "SCC"
        assert page.by_id["least"].startswith(
            "Classes that it finds least often: SCC (0 of 100 images), "
        )
        assert re.findall(r"(\w+) \((\d+)", page.by_id["least"]) == [
            (one.name, f"{one.value * 100:.0f}") for one in lowest
        ]


def test_numbers_of_fewer_than_ten_images_or_answers_are_marked(tmp_path):
    """All images are answered rightly: nine of the first class, and ten of the second."""
    folder = write_run(tmp_path / "run", rounds=1)
    labels = np.repeat([0, 1], [9, 10])
    counts = AnswerCounts.of_one_answer(np.eye(len(CLASSES))[labels], labels).to_wire()
    rows = [{"round": round_, "site": "site-1", **counts} for round_ in (0, 1)]
    (folder / "binned.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_report(folder)
    html = (folder / "clinician.html").read_text(encoding="utf-8")
    marks = [bool(mark) for mark in re.findall(r'<td( class="few")?><b>', html)]
    assert marks == [True, False, True, False, True, False]


def test_both_pages_lead_to_each_other_and_nowhere_else(folder):
    for name, other in (("clinician.html", "report.html"), ("report.html", "clinician.html")):
        page = Page((folder / name).read_text(encoding="utf-8"))
        links = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
        assert {link for link in links if not link.startswith("#")} == {other}
        assert page.unclosed == []
    assert "<script" not in (folder / "clinician.html").read_text(encoding="utf-8")


def test_synthetic_data_and_unfinished_runs_are_said_loudly(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1, synthetic=SITES, status="failed")
    write_report(folder)
    page = sheet(folder)
    banners = [attrs["class"] for _, attrs in page.tags if "banner" in (attrs.get("class") or "")]
    assert banners == ["banner failed", "banner synthetic"]
    assert "nothing can be said class by class" in page.text
    add_many_classes(folder, len(CLASSES))
    write_report(folder)
    # These counts are of other images than the metrics.
    assert "The counts of this run do not cover all test images" in sheet(folder).text


@pytest.mark.parametrize("kept", [(), ("rounds",), ("metrics",)])
def test_whatever_has_been_written_makes_a_sheet(tmp_path, kept):
    folder = write_run(tmp_path / "run", rounds=1, status="running")
    for path in folder.glob("*.jsonl"):
        if path.stem not in kept:
            path.unlink()
    write_report(folder)
    assert sheet(folder).unclosed == []
    assert "Limits" in sheet(folder).text


def test_what_sites_keep_or_nobody_trained_is_a_limit(folder, tmp_path):
    for name, words in (
        ("private", "Each site trained a classifier of its own"),
        ("untrained", "has not been trained"),
    ):
        other = write_run(tmp_path / name, rounds=1)
        info = json.loads((other / "run.json").read_text())
        (other / "run.json").write_text(json.dumps({**info, name: ["classifier."]}))
        write_report(other)
        assert words in sheet(other).text
        assert words not in sheet(folder).text


def printed_pages(browser, page: Path) -> int:
    browser.get(page.as_uri())
    return len(re.findall(rb"/Type\s*/Page\b", printed(browser)))


def hidden_on_a_phone(browser, page: Path) -> int:
    """Return how many pixels of the table's width one has to scroll to."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    hidden = browser.execute_script(
        "const box = document.querySelector('.scroll'); return box.scrollWidth - box.clientWidth"
    )
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return hidden


@pytest.mark.browser
def test_it_fits_one_page_of_paper_and_a_phone(folder, tmp_path):
    """Also with more classes than it shows, long names, a banner, and every limit."""
    long = write_run(tmp_path / "run", rounds=1, synthetic=SITES, status="failed")
    info = json.loads((long / "run.json").read_text())
    info["experiment"]["data"]["classes"] = [
        f"squamous cell carcinoma {number}" for number in range(30)
    ]
    info["experiment"]["key_metric"] = "accuracy"
    info["experiment"]["data"]["card"] = dict.fromkeys(STUDY_ITEMS, "words " * 50)
    words = {"texts": dict.fromkeys(SITE_ITEMS, "<script>alert(1)</script>" * 12), "unusable": 5}
    info["cards"] = {"site-1": words}
    (long / "run.json").write_text(json.dumps(info))
    add_many_classes(long, 30)
    write_report(long)
    findings = write_findings_run(
        tmp_path / "findings", [f"pulmonary consolidation {number}" for number in range(20)]
    )
    browser = start_browser()
    try:
        assert [
            printed_pages(browser, each / "clinician.html") for each in (folder, long, findings)
        ] == [1] * 3
        assert [
            hidden_on_a_phone(browser, each / "clinician.html") for each in (folder, long, findings)
        ] == [0] * 3
    finally:
        browser.quit()


def add_many_classes(folder: Path, classes: int) -> None:
    """Write counts of as many classes, each with ten images at one site."""
    labels = np.repeat(np.arange(classes), 2 * SMALLEST_COUNT)
    scores = np.random.default_rng(0).dirichlet(np.ones(classes), len(labels))
    rows = [
        {"round": round_, "site": "site-1", **AnswerCounts.of_one_answer(scores, labels).to_wire()}
        for round_ in (0, 1)
    ]
    (folder / "binned.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_findings_run(folder: Path, classes: list[str]) -> Path:
    """A run whose model is sure of some findings, right with its surest answers of others, and
    guesses the rest. One of its sites reports them.
    """
    write_run(folder, rounds=1, synthetic=())
    info = json.loads((folder / "run.json").read_text())
    info["experiment"]["data"] |= {"classes": classes, "multi_label": True}
    info["experiment"]["key_metric"] = "auroc_macro"
    (folder / "run.json").write_text(json.dumps(info))
    rng = np.random.default_rng(0)
    truth = (rng.random((400, len(classes))) < 0.4).astype(int)
    kind = np.arange(len(classes)) % 3
    sure = np.abs(truth - 0.03)
    guess = rng.random(truth.shape)
    half = np.where(rng.random(truth.shape) < 0.6, np.abs(truth - 0.01), 0.3 + 0.4 * guess)
    scores = np.where(kind == 0, sure, np.where(kind == 1, half, guess))
    row = {"round": 1, "site": "site-1", **AnswerCounts.of_each_class(scores, truth).to_wire()}
    (folder / "binned.jsonl").write_text(json.dumps(row) + "\n")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (auroc,) = (
        row
        for row in map(json.loads, lines)
        if (row["site"], row["split"], row["name"]) == ("site-1", "test", "auroc_macro")
        and row["round"] == 1
    )
    shown = dict(zip(classes, truth.sum(axis=0).tolist(), strict=True))
    lines += [
        json.dumps({**auroc, "name": f"support/{name}", "value": float(images)})
        for name, images in shown.items()
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    write_report(folder)
    return folder


def keep_one_site(folder: Path) -> None:
    """Leave a run one site, which trains and reports all classes."""
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "sites": ["site-1"]}))
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    metrics = [row for row in rows if row["site"] == "site-1"]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in metrics))
    write_report(folder)


def test_a_human_is_asked_by_finding(tmp_path):
    findings = ["Mass", "Edema", "Hernia"]
    folder = write_findings_run(tmp_path / "run", findings)
    every = "Ask a human about every image"
    advice = f"{every}: some classes were tested on too few images, or not at every site."
    assert advice in sheet(folder).text
    assert "its answer, yes or no" not in sheet(folder).text
    keep_one_site(folder)
    page = sheet(folder)
    assert f"{every} for Edema, Hernia." in page.text
    found = {one.name: one for one in judge(Run.load(folder)).findings}
    assert (found["Mass"].referred[-1], found["Hernia"].referred[-1]) == (0, None)
    assert 0 < found["Edema"].referred[-1] < 1
    assert "Mass: its answer, yes or no, is right for 95 of 100 images or more" in page.text
    assert max(found[name].found.value for name in ("Edema", "Hernia")) < 0.9
    assert "Edema, Hernia: it finds fewer than 90 of 100" in page.text
    assert page.unclosed == []


def test_several_findings_are_judged_in_pairs_of_a_hundred(tmp_path):
    folder = write_findings_run(tmp_path / "run", ["Mass", "Edema", "Hernia"])
    found = site_test_values(Run.load(folder), "auroc_macro", 1)
    interval = mean_and_interval([*found.values()])
    page = sheet(folder)
    mean = f"{interval.mean * 100:.0f}"
    assert (
        f"it ranks the right one higher in {mean} of 100 such pairs (95 % interval over sites"
        in page.text
    )
    assert "AUROC" not in page.text
    low, high = (f"{choose(found.values()) * 100:.0f}" for choose in (min, max))
    where = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    pairs = f"higher in {low} of 100 pairs at {where[0]}, the lowest, to {high} at {where[1]}."
    assert pairs in page.text


def test_sites_that_are_alike_are_said_to_be(tmp_path):
    folder = write_findings_run(tmp_path / "run", ["Mass", "Edema", "Hernia"])
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    alike = [row | {"value": 0.9} if row["name"] == "auroc_macro" else row for row in rows]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in alike))
    report = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "The number is the same at all sites." in sheet(folder).text
    assert (
        "macro AUROC of 0.900 on test images (0.900 at each); before training it was 0.900. Shown"
        in report.text
    )
    assert "Its test macro AUROC" not in report.text


def test_of_many_classes_the_commonest_are_shown(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1)
    info = json.loads((folder / "run.json").read_text())
    info["experiment"]["data"]["classes"] = [*CLASSES, *(f"c{number}" for number in range(12))]
    (folder / "run.json").write_text(json.dumps(info))
    add_many_classes(folder, 20)
    write_report(folder)
    page = sheet(folder)
    rows = page.tables["table-sheet"]
    assert len(rows) == 1 + 10
    assert "The 10 rarest classes are in the full report." in page.text
    beginning = "20 classes: the 10 in the table below, "
    sentence = page.text.partition(beginning)[2].partition(". It")[0]
    named = set(sentence.replace(" and ", ", ").split(", "))
    assert named | {row[0] for row in rows[1:]} == set(info["experiment"]["data"]["classes"])


def test_a_single_class_beside_the_commonest_is_the_rarest(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1)
    info = json.loads((folder / "run.json").read_text())
    info["experiment"]["data"]["classes"] = [*CLASSES, "c0", "c1", "c2"]
    (folder / "run.json").write_text(json.dumps(info))
    add_many_classes(folder, 11)
    write_report(folder)
    assert "The rarest class is in the full report." in sheet(folder).text


@pytest.mark.parametrize(
    ("sites", "together", "apart"),
    [
        (
            SITES[:1],
            "It was trained at 1 site; the images never left it. It learned from 16 images with a "
            "label. Its site also holds 144 images without one",
            "One site trained a model of its own, on its images.",
        ),
        (
            SITES[:2],
            "It was trained at 2 sites; the images never left them. It learned from 32 images with "
            "a label. Its sites also hold 288 images without one",
            "Each of 2 sites trained a model of its own, on its images.",
        ),
    ],
)
def test_sites_are_spoken_of_by_their_number(tmp_path, sites, together, apart):
    folder = write_run(tmp_path / "run", method="fedavg", rounds=1, sites=sites)
    info = json.loads((folder / "run.json").read_text())
    info["engine"] = "flare"
    (folder / "run.json").write_text(json.dumps(info))
    write_report(folder)
    assert together in sheet(folder).text
    (folder / "run.json").write_text(json.dumps({**info, "private": [""]}))
    write_report(folder)
    assert apart in sheet(folder).text


@pytest.mark.parametrize("engine", ["local", "simulator"])
def test_no_image_is_said_to_stay_at_a_site_that_one_machine_simulates(tmp_path, engine):
    folder = write_run(tmp_path / "run", method="fedavg", rounds=1, sites=SITES[:2])
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "engine": engine}))
    write_report(folder)
    text = sheet(folder).text
    assert "It was trained at 2 sites, simulated on one machine. It learned from 32" in text
    assert "never left" not in text
