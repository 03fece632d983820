"""Clinical numbers in the report: those of all answers together and of each site, and nothing that
sites withhold.
"""

import json

import numpy as np
import pytest
from pages import report
from run_folders import CLASSES, SITES, add_answers, write_run
from sklearn.metrics import auc, precision_recall_curve, roc_auc_score

from fedward.evaluation import best_global
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.histograms import INTERVALS
from fedward.evaluation.intervals import proportion_interval
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.report import Run, clinical_figures, write_report
from fedward.report.clinical import Answers, Clinical, _operating_point
from fedward.runs.judge import judge

ROUNDS = 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with counts, its page, and site -> (probabilities, labels) of the evaluated images."""
    folder = write_run(tmp_path_factory.mktemp("clinical") / "run", rounds=ROUNDS)
    answers = add_answers(folder, ROUNDS)
    assert best_global(Run.load(folder).metrics, "balanced_accuracy").round == ROUNDS, (
        "the last answers are shown"
    )
    kept = {}
    for site, (probabilities, labels) in answers.items():
        common = np.bincount(labels, minlength=len(CLASSES))[labels] >= SMALLEST_COUNT
        kept[site] = probabilities[common], labels[common]
    return folder, report(folder)[1], kept


def shown(hits, of):
    """A cell of a share, as the page writes it."""
    low, high = proportion_interval(hits[of].mean(), of.sum())
    return f"{hits[of].mean() * 100:.1f} {low * 100:.1f}–{high * 100:.1f}"


def lines(probabilities, labels):
    given = probabilities.argmax(axis=1)
    for place, name in enumerate(CLASSES):
        inside = labels == place
        said = given == place
        if inside.any():
            pairs = ((said, inside), (~said, ~inside), (inside, said), (~inside, ~said))
            shares = [shown(hits, of) if of.sum() >= SMALLEST_COUNT else "–" for hits, of in pairs]
            yield [name, str(inside.sum()), *shares]


def test_rates_of_all_sites_are_those_of_all_answers(whole):
    _, page, answers = whole
    together = [np.concatenate(parts) for parts in zip(*answers.values(), strict=True)]
    assert page.tables["table-rates"][1:] == list(lines(*together))
    assert [line[0] for line in page.tables["table-rates"][1:]] == [
        name for name in CLASSES if name != "VASC"
    ]


def test_rates_of_each_site_are_those_of_its_answers(whole):
    _, page, answers = whole
    for number, site in enumerate(SITES, 1):
        assert page.tables[f"table-rates-{number}"][1:] == list(lines(*answers[site]))
    for line in page.tables["table-rates-sites"][1:]:
        probabilities, labels = answers[line[0]]
        right = probabilities.argmax(axis=1) == labels
        assert line[1] == shown(right, np.ones_like(right))
        assert line[2].split(" / ")[0] == f"{right[labels == 0].mean() * 100:.0f}"


def test_small_cells_of_the_matrix_are_withheld(whole):
    """A cell is the sum of what sites tell; what they do not tell is counted in the last column."""
    _, page, answers = whole
    body = {line[0]: line[1:] for line in page.tables["table-matrix"][1:]}
    for truth, name in enumerate(CLASSES):
        if name not in body:
            continue
        told = np.zeros(len(CLASSES), int)
        for probabilities, labels in answers.values():
            row = np.bincount(probabilities[labels == truth].argmax(axis=1), minlength=len(CLASSES))
            told += np.where((row >= SMALLEST_COUNT) | (np.arange(len(CLASSES)) == truth), row, 0)
        total = sum(int((labels == truth).sum()) for _, labels in answers.values())
        cells = [str(n) if n or place == truth else "·" for place, n in enumerate(told)]
        assert body[name] == [*cells, str(total - told.sum())]
    assert int(body["MEL"][-1]) > 0


def test_a_class_that_is_never_predicted_is_called_so(whole):
    _, page, _ = whole
    assert (
        ", but it never answers SCC; it was not tested for VASC; not every site"
        in page.by_id["verdict"]
    )


def test_the_first_screen_has_the_class_that_is_found_least(whole):
    _, page, answers = whole
    images = sum(int((labels == CLASSES.index("SCC")).sum()) for _, labels in answers.values())
    low, high = proportion_interval(0, images)
    ends = f"{low * 100:.1f} to {high * 100:.1f} %"
    assert page.by_id["tile-class"] == f"0.0 % {ends}, {images} images"
    assert "Least found: SCC" in page.text


def test_sentences_on_confidence_follow_from_the_counts(whole):
    folder, page, answers = whole
    together = [np.concatenate(parts) for parts in zip(*answers.values(), strict=True)]
    sure = together[0].max(axis=1)
    right = together[0].argmax(axis=1) == together[1]
    assert (
        f"it is {sure.mean() * 100:.0f}\N{NO-BREAK SPACE}% sure, and is right for "
        f"{right.mean() * 100:.0f} of 100" in page.by_id["confidence"]
    )
    for wanted, referred in judge(Run.load(folder)).referred:
        kept = sure >= np.quantile(sure, referred)
        assert right[kept].mean() == pytest.approx(wanted, abs=0.08)


def test_errors_of_each_site_come_from_its_counts_and_rows(whole):
    folder, page, answers = whole
    run = Run.load(folder)
    body = page.tables["table-calibration"][1:]
    errors = []
    for line, site in zip(body, SITES, strict=False):
        confidence = AnswerCounts.of_one_answer(*answers[site]).confidence
        rows = run.at(site, "test", ROUNDS)
        errors.append(
            (
                confidence.calibration_error,
                confidence.largest_calibration_error,
                rows["ece_adaptive"].value,
                rows["mce_adaptive"].value,
                rows["aurc"].value,
            )
        )
        assert line == [site, *(f"{error:.3f}" for error in errors[-1])]
    assert body[-2] == ["Mean over sites", *(f"{mean:.3f}" for mean in np.mean(errors, axis=0))]
    counts = [AnswerCounts.of_one_answer(*answers[site]) for site in SITES]
    pooled = AnswerCounts.merged(counts).confidence
    assert body[-1][1:3] == [
        f"{pooled.calibration_error:.3f}",
        f"{pooled.largest_calibration_error:.3f}",
    ]


def test_areas_of_answers_stand_beside_those_of_probabilities(whole):
    folder, page, answers = whole
    run = Run.load(folder)
    for line in page.tables["table-areas"][1:]:
        place = CLASSES.index(line[0])
        areas = []
        for probabilities, labels in answers.values():
            inside = labels == place
            answered = probabilities.argmax(axis=1) == place
            if inside.any():
                precision, recall, _ = precision_recall_curve(inside, answered)
                areas.append((roc_auc_score(inside, answered), auc(recall, precision)))
        roc, precision_recall = np.mean(areas, axis=0)
        assert (line[2], line[4]) == (f"{roc:.3f}", f"{precision_recall:.3f}")
        rows = run.metrics.values("test", f"auroc/{line[0]}", ROUNDS).values()
        assert line[1] == f"{np.mean([value for value in rows if value is not None]):.3f}"


def test_figures_and_tables_are_there_and_whole(whole):
    _, page, _ = whole
    labels = [attrs["aria-label"] for tag, attrs in page.tags if tag == "svg"]
    assert sum(label.startswith("ROC curve of ") for label in labels) == 7
    assert sum(label.startswith("Precision and recall of ") for label in labels) == 7
    assert sum(label.startswith("Share of right answers by") for label in labels) == 2
    assert page.unclosed == []
    ids = [attrs["id"] for tag, attrs in page.tags if tag in ("table", "h2")]
    assert len(ids) == len(set(ids))


def test_curves_are_of_the_classes_with_the_most_images_and_show_where_answers_are():
    """Of ten images of A eight are found, and of 20 others 15 are left alone."""
    labels = np.repeat([0, 1, 2], [10, 8, 12])
    given = np.concatenate([[0] * 8, [1] * 2, [0] * 2, [1] * 6, [0] * 3, [2] * 9])
    counts = AnswerCounts.of_one_answer(np.eye(3)[given] * 0.7 + 0.1, labels)
    answers = Answers("a", ("A", "B", "C"), counts)
    assert answers.most_frequent(2) == ["A", "C"]
    point = _operating_point(answers, "A")
    assert point == pytest.approx((0.25, 0.8))
    curve = {"A": (np.array([0.0, 1.0]), np.array([0.0, 1.0]))}
    picture = clinical_figures.roc(curve, {"A": point}, {"A": "0.775"})["A"]
    assert "area 0.775; its answers have sensitivity 0.80, specificity 0.75" in picture


def test_runs_without_counts_have_no_such_section(tmp_path):
    _, page = report(write_run(tmp_path / "run", rounds=1))
    assert "Clinical numbers" not in page.text
    assert Clinical.of(Run.load(tmp_path / "run"), None) is None


def test_only_rows_of_the_asked_round_are_read(tmp_path):
    """1 is not 11; the rows of other rounds are many and are not parsed."""
    folder = write_run(tmp_path / "run", rounds=1)
    add_answers(folder, 11, SITES[:2])
    path = folder / "binned.jsonl"
    path.write_text(path.read_text().replace('"round": 3, "site"', '"round": 3, "broken'))
    assert [(row.round, row.site) for row in Run.load(folder).binned(1)] == [
        (1, "site-1"),
        (1, "site-2"),
    ]


def test_counts_of_other_classes_are_not_shown(tmp_path):
    """As of a run.json that somebody changed: nothing would say which class is which."""
    folder = write_run(tmp_path / "run", rounds=1)
    add_answers(folder, 1)
    info = json.loads((folder / "run.json").read_text())
    info["experiment"]["data"]["classes"] = list(CLASSES[:5])
    (folder / "run.json").write_text(json.dumps(info))
    assert "Clinical numbers" not in report(folder)[1].text


def test_a_model_whose_surest_answers_are_wrong_is_said(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1)
    probabilities = np.repeat([[0.95, 0.05]], 20, axis=0)
    counts = AnswerCounts.of_one_answer(probabilities, np.repeat([0, 1], [12, 8]))
    answers = Answers("a", ("A", "B"), counts)
    assert answers.counts.confidence.referred_for(0.9) is None
    assert len(counts.confidence.images) == INTERVALS
    assert "0.60 of the surest" in clinical_figures.referral(np.array([1.0]), np.array([0.6]))
    assert Clinical.of(Run.load(folder), 1) is None


def test_a_long_run_has_a_short_page(tmp_path):
    """Ten sites and a hundred rounds, clinical numbers of each included: below 3 MB."""
    folder = write_run(tmp_path / "run", rounds=100)
    add_answers(folder, 100)
    assert 300_000 < write_report(folder).stat().st_size < 3_000_000
