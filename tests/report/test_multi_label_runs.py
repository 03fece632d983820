"""Whole runs on images that show several classes, or none, and what is made of them."""

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import torch
from pages import Page
from safetensors.torch import load_file

from fedward import cli
from fedward.annotation import queue_of
from fedward.annotation.desk import Desk, SentAnswer
from fedward.client.labels import bought_labels
from fedward.errors import ConfigError
from fedward.evaluation.intervals import proportion_interval
from fedward.evaluation.names import MULTI_LABEL
from fedward.evaluation.performance import THRESHOLDS
from fedward.inference.evaluation import evaluate
from fedward.inference.export import facts, traced
from fedward.inference.model import load_model
from fedward.inference.prediction import probabilities_of
from fedward.jobs import load_experiment
from fedward.lab.local import LocalTransport
from fedward.label_kinds import SEVERAL_LABELS
from fedward.report import write_report
from fedward.report.clinical import Clinical
from fedward.runs.choices import Choices
from fedward.runs.judge import judge
from fedward.runs.over_sites import over_sites
from fedward.runs.run import Run
from fedward.runs.site_counts import SiteCounts
from fedward.runs.verdict_words import in_short
from fedward.sites import load_site
from findings import FINDINGS, chest, write_findings
from running import run_local

SITES = ("site-1", "site-2")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_findings(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def finished(sites: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = chest(
        net="small_cnn_gn", options={"rounds": 8, "images_per_round": 64, "learning_rate": 0.003}
    )
    return run_local(
        experiment, tmp_path_factory.mktemp("run") / "run", sites=SITES, site_folders=[sites]
    )


def asked(model, images) -> np.ndarray:
    return probabilities_of(model, np.asarray(images.pixels), torch.device("cpu")).astype(float)


def loss_of(logits: np.ndarray, truth: np.ndarray) -> float:
    return float(np.logaddexp(0, np.where(truth == 1, -logits, logits)).mean())


def last_rows(run: Path) -> dict[tuple[str, str], dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = max(row["round"] for row in rows if row["split"] == "test")
    return {
        (row["site"], row["name"]): row
        for row in rows
        if (row["split"], row["round"]) == ("test", last)
    }


@pytest.mark.parametrize("method", ["fedavg", "ssfl", "fedperl"])
def test_a_run_is_the_same_in_two_processes(tmp_path, sites, method, without_report):
    experiment = chest(method, options={"rounds": 2})
    alone = run_local(experiment, tmp_path / "alone", sites=SITES, site_folders=[sites])
    both = run_local(experiment, tmp_path / "both", sites=SITES, site_folders=[sites], workers=2)
    first, second = (load_file(run / "model.safetensors") for run in (alone, both))
    assert all(torch.equal(first[name], second[name]) for name in first)
    rows = last_rows(alone)
    assert rows == last_rows(both)
    assert {name for site, name in rows if "/" not in name} == {*MULTI_LABEL}
    assert all(rows[site, "support/Hernia"]["value"] is None for site in SITES)
    assert all(rows[site, "auroc/Mass"]["value"] is not None for site in SITES)


def test_encrypted_updates_come_with_metrics_of_several_labels(tmp_path, sites, without_report):
    experiment = chest(options={"rounds": 1}, secure_aggregation=True, minimum_replies=2)
    run = run_local(experiment, tmp_path / "run", sites=SITES, site_folders=[sites])
    measured = {name for site, name in last_rows(run) if site == "site-1" and "/" not in name}
    assert measured == {*MULTI_LABEL}


def test_sites_buy_sets_of_labels(tmp_path, sites, without_report):
    """Two processes answer as one does; what a site bought is what its data say."""
    folder = write_findings(tmp_path, labelled=1.0, annotation="oracle")
    experiment = chest("fedal", options={"rounds": 3, "steps": 2})
    alone = run_local(experiment, tmp_path / "alone", sites=SITES, site_folders=[folder])
    both = run_local(experiment, tmp_path / "both", sites=SITES, site_folders=[folder], workers=2)
    first, second = (load_file(run / "model.safetensors") for run in (alone, both))
    assert all(torch.equal(first[name], second[name]) for name in first)
    rows = [json.loads(line) for line in (alone / "queries.jsonl").read_text().splitlines()]
    got = [row["bought"] for row in rows if row["round"] == 3]
    assert sum(got) == pytest.approx(45, abs=1), "half of 90 images"
    truth = np.load(tmp_path / "chest.npz")["train_labels"].tolist()
    run = json.loads((alone / "run.json").read_text())["id"]
    for site, number in zip(SITES, got, strict=True):
        labels = bought_labels(alone / "sites" / site / "memory", run, 99)
        assert len(labels) == number
        assert labels == {name: truth[int(name.partition("-")[2])] for name in labels}


def test_people_answer_with_sets_of_findings(tmp_path, monkeypatch, without_report):
    """What they say, in whatever order, trains as the same labels in the data would; "none of
    these" is a label.
    """
    folder = write_findings(tmp_path, labelled=0.0, annotation="queue")
    truth = np.load(tmp_path / "chest.npz")["train_labels"].tolist()
    exchange = LocalTransport.exchange

    def answered(self: LocalTransport, requests: dict, timeout: int, deliver: Callable) -> None:
        for site in SITES:
            queue = queue_of(folder / f"{site}.yaml", SEVERAL_LABELS)
            for asked in queue.pending():
                shown = truth[int(asked.sample_id.partition("-")[2])]
                named = [name for name, there in zip(FINDINGS, shown, strict=True) if there]
                label = queue.rules.label(
                    "|".join(named) or "No Finding", {name: name for name in FINDINGS}
                )
                Desk(queue, {asked.sample_id}).answer(
                    SentAnswer("ab", asked.sample_id, "label", label, uuid4().hex, 0)
                )
        exchange(self, requests, timeout, deliver)

    monkeypatch.setattr(LocalTransport, "exchange", answered)
    experiment = chest("fedal", options={"rounds": 3, "steps": 2})
    run = run_local(experiment, tmp_path / "run", sites=SITES, site_folders=[folder])
    name = json.loads((run / "run.json").read_text())["id"]
    for site in SITES:
        labels = bought_labels(run / "sites" / site / "memory", name, 99)
        assert len(labels) > 4
        assert [0, 0, 0] in labels.values()
        assert labels == {each: truth[int(each.partition("-")[2])] for each in labels}


def test_it_learns(finished):
    found = last_rows(finished)
    assert min(found[site, "auroc_macro"]["value"] for site in SITES) > 0.9
    assert (
        json.loads((finished / "run.json").read_text())["experiment"]["key_metric"] == "auroc_macro"
    )


def test_the_report_has_the_tables_of_several_labels(finished):
    page = Page(write_report(finished).read_text())
    titles = ["Site", "Macro AUROC", "Macro AUPRC", "Macro F1", "Hamming accuracy", "Exact match"]
    assert page.tables["table-overall"][0] == titles
    told = page.tables["table-rates"]
    rows = last_rows(finished)
    assert [row[0] for row in told[1:]] == ["Mass", "Edema"]
    for name, line in zip(("Mass", "Edema"), told[1:], strict=True):
        assert int(line[1]) == sum(rows[site, f"support/{name}"]["value"] for site in SITES)
    assert "table-matrix" not in page.tables
    sheet = (finished / "clinician.html").read_text()
    assert (
        "says which of 3 findings it shows, several or none: Mass, Edema, Hernia"
        in Page(sheet).text
    )
    assert "Not tested: Hernia (1 of 3 classes)." in sheet
    assert "without a human" not in sheet.lower()
    assert (
        "At 2 sites, some classes have fewer than five test images with them, or without them, and "
        "are not measured (site-1: Hernia; site-2: Hernia)."
    ) in page.text
    assert (
        "A site with fewer than five test images that show the class, or fewer than five that do "
        "not, is left out, and not counted as zero."
    ) in page.text
    text = (finished / "report.html").read_text()
    assert "Guessing would give 0.5." in text
    assert "Can its confidence be trusted?" not in text
    assert all(
        f"Share of images that show {name} by its probability" in text for name in ("Mass", "Edema")
    )
    run = Run.load(finished)
    counts = Clinical.of(run, Choices.of(run, "auroc_macro").reported).pooled.counts
    assert [row[0] for row in page.tables["table-trust"][1:]] == ["Mass", "Edema"]
    confusion = counts.confusion
    for place, row in enumerate(page.tables["table-trust"][1:]):
        total = counts.scores.images[place].sum()
        others = total - confusion.images[place]
        right = confusion.true_positives[place] + others - confusion.false_positives[place]
        assert row[1].split()[0] == f"{100 * right / total:.1f}"


def test_predictions_name_all_findings_or_none(finished, sites, tmp_path):
    words = [
        "predict",
        str(finished),
        str(sites.parent / "chest.npz"),
        "--out",
        str(tmp_path / "p.csv"),
    ]
    assert cli.main([*words, "--refer-below", "0.6"]) == 0
    with (tmp_path / "p.csv").open(encoding="utf-8-sig") as file:
        rows = [row for row in csv.DictReader(file) if row["image"].startswith("test-")]
    found = np.array([[float(row[f"probability/{name}"]) for name in FINDINGS] for row in rows])
    for row, values in zip(rows, found, strict=True):
        said = [name for name, value in zip(FINDINGS, values, strict=True) if value >= 0.5]
        assert row["prediction"] == ("|".join(said) or "No Finding")
        refer = ["yes" if sure < 0.6 else "no" for sure in np.maximum(values, 1 - values)]
        assert [row[f"refer/{name}"] for name in FINDINGS] == refer
        assert row["refer"] == max(refer)
    assert {"No Finding", "Mass"} <= {row["prediction"] for row in rows}
    assert any("|" in row["prediction"] for row in rows)
    truth = np.load(sites.parent / "chest.npz")["test_labels"]
    assert ((found >= 0.5) == truth)[:, :2].mean() > 0.8


def test_an_evaluation_equals_the_runs_metrics(finished, sites, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(
        tmp_path
    )  # what is printed holds the name of the file and not a long path to it
    found = evaluate(load_model(finished), sites / "site-1.yaml")
    rows = last_rows(finished)
    for name in MULTI_LABEL:
        assert found["overall"][name]["value"] == pytest.approx(rows["site-1", name]["value"])
    assert found["not_evaluated"] == ["Hernia"]
    assert (found["calibration_error"], found["confusion"], found["referral"]) == (None, None, None)
    words = ["evaluate", str(finished), str(sites / "site-1.yaml"), "--out", "evaluation.json"]
    assert cli.main(words) in (0, 1)
    told = capsys.readouterr().out
    assert "exact match" in told
    assert "refer below 0.9" in told
    assert max(map(len, told.splitlines())) <= 80


def doubtful(folder: Path) -> Path:
    """Return sites' files whose images show a sixth of the findings otherwise than their labels
    say.
    """
    sites = write_findings(folder)
    rng = np.random.default_rng(0)
    arrays = dict(np.load(folder / "chest.npz"))
    for name in ("val_labels", "test_labels"):
        arrays[name] = arrays[name] ^ (rng.random(arrays[name].shape) < (1 / 6, 1 / 6, 0))
    np.savez(folder / "chest.npz", **arrays)
    return sites


def test_each_finding_is_calibrated_and_referred(finished, tmp_path, monkeypatch):
    """A temperature for each class goes from the evaluation into predictions, and changes no
    answer.
    """
    monkeypatch.chdir(tmp_path)
    sites = doubtful(tmp_path)
    assert cli.main(["evaluate", str(finished), str(sites / "site-1.yaml"), "--out", "e.json"]) == 0
    found = json.loads(Path("e.json").read_text())
    plain = load_model(finished)
    warm = found["temperature"]["classes"]
    assert set(warm) == set(found["classes"]) == {"Mass", "Edema"}
    data = load_site(sites / "site-1.yaml", plain.experiment.data)
    test = data.test
    val = data.val
    scores = asked(plain, data.test)
    before = asked(plain, data.val)
    for place, name in enumerate(("Mass", "Edema")):
        told = found["classes"][name]
        value = warm[name]["value"]
        sure = np.maximum(scores, 1 - scores)[:, place]
        right = (scores >= 0.5)[:, place] == test.labels[:, place]
        row = told["referral"][THRESHOLDS.index(0.6)]
        assert row["referred"] == pytest.approx((sure < 0.6).mean(), abs=4 / len(test))
        assert told["referral"][0]["accuracy"]["value"] == pytest.approx(right.mean())
        logits = np.log(before[:, place]) - np.log1p(-before[:, place])
        truth = val.labels[:, place]
        losses = [loss_of(logits / t, truth) for t in (value, value * 1.1, value / 1.1)]
        assert losses[0] == min(losses)
    model = load_model(finished, calibration="e.json")
    assert model.temperature == (warm["Mass"]["value"], warm["Edema"]["value"], 1.0)
    assert np.array_equal(asked(model, test) >= 0.5, scores >= 0.5)
    logits = np.log(scores) - np.log1p(-scores)
    assert np.allclose(asked(model, test), 1 / (1 + np.exp(-logits / model.temperature)), atol=1e-5)
    assert torch.allclose(
        traced(model)(torch.zeros(1, *model.image_shape)), model(torch.zeros(1, *model.image_shape))
    )


def test_what_does_not_fit_several_labels_is_refused(finished, sites, tmp_path):
    model = load_model(finished)
    with pytest.raises(ConfigError, match="--groups is not for a multi-label model"):
        evaluate(model, sites / "site-1.yaml", groups={"a": ["Mass"], "b": ["Edema", "Hernia"]})
    about = {"model": {"sha256": model.sha256}, "temperature": None}
    for told in (None, {"classes": {}}, {"classes": {"Mass": {"value": 0}}}):
        (tmp_path / "e.json").write_text(json.dumps({**about, "temperature": told}))
        with pytest.raises(ConfigError, match=r"expected a temperature from 0\.05 to 20, found"):
            load_model(finished, calibration=tmp_path / "e.json")


def test_an_exported_model_answers_for_each_class(finished):
    model = load_model(finished)
    images = torch.rand(3, *model.image_shape)
    assert torch.allclose(traced(model)(images), torch.sigmoid(model.net(images)), atol=1e-6)
    assert torch.allclose(model(images), torch.sigmoid(model.net(images)))
    assert json.loads(facts(model)["multi_label"]) is True


SEVERAL = "data.multi_label=true"


@pytest.mark.parametrize(
    ("job", "change", "found"),
    [
        *(
            (job, "seed=1", "it is written for one label an image")
            for job in (
                "isofed",
                "rscfed",
                "selffed",
                "oneshot",
                "fedprox",
                "wfedavg",
                "mt_wfedavg",
            )
        ),
        ("fedavg", "class_weighting=median_frequency", "class_weighting=median_frequency"),
        ("ssfl", "pseudo_labels=soft", "pseudo_labels=soft"),
        ("fedperl", "combine=sum", "combine=sum"),
        ("fedperl", "policy=gated_validation", "policy=gated_validation"),
        *(("fedal", f"sampler={name}", f"sampler={name}") for name in ("sa", "mcdal")),
    ],
)
def test_methods_for_one_label_are_refused(job, change, found):
    refusal = f"{job} cannot work with {SEVERAL}: {found}. "
    remedy = (
        "Set data.multi_label=false, or choose one of alone, fedal, fedavg, fedperl, ssfl with its"
    )
    with pytest.raises(ConfigError, match=refusal + remedy):
        load_experiment(job, [SEVERAL, change])


def test_the_best_round_has_a_metric_of_its_kind():
    assert load_experiment("fedavg", [SEVERAL]).key_metric == "auroc_macro"
    assert load_experiment("ssfl", [SEVERAL, "key_metric=exact_match"]).key_metric == "exact_match"
    assert chest().key_metric == "auroc_macro"
    for change in ("key_metric=accuracy", "metrics=[brier]"):
        with pytest.raises(ConfigError, match=change.partition("=")[0]):
            load_experiment("fedavg", [SEVERAL, change])
    with pytest.raises(ConfigError, match="key_metric='exact_match' must be one of accuracy"):
        load_experiment("fedavg", ["key_metric=exact_match"])


def test_synthetic_images_have_one_class(tmp_path, capsys):
    assert cli.main(["run", "fedavg", "--set", SEVERAL, "--out", str(tmp_path / "run")]) == 2
    assert "synthetic images show one class each" in capsys.readouterr().err


def luck_of(run: Run, round_: int, effects: Sequence[float]) -> float:
    """Return how far from 0.5 guessing may be, with each site's images for each independent one."""
    variances = []
    for site, effect in zip(SITES, effects, strict=True):
        rows = run.at(site, "test", round_)
        errors = []
        for name in run.classes:
            support = rows.get(f"support/{name}")
            if support and support.value:
                with_it = support.value
                without = rows["auroc_macro"].n - with_it
                errors.append(((with_it + without + 1) / (12 * with_it * without)) ** 0.5)
        variances.append(effect * (sum(errors) / len(errors)) ** 2)
    return 1.96 * float(sum(variances)) ** 0.5 / len(SITES)


def test_few_sites_beat_guessing_only_beyond_luck(finished: Path) -> None:
    """Two sites a little above 0.5 are what a model that guesses reaches every fourth time."""
    run = Run.load(finished)
    verdict = judge(run)
    assert verdict
    assert verdict.auroc
    assert not verdict.auroc.is_interval
    assert verdict.luck == pytest.approx(luck_of(run, verdict.round, (1, 1)))
    for mean, better in ((0.5 + 0.9 * verdict.luck, False), (0.5 + 1.1 * verdict.luck, True)):
        other = replace(verdict, auroc=over_sites([mean, mean], "auroc_macro"))
        assert other.is_above_baseline == better
        assert in_short.lead(other).startswith("Better than") == better
    alarm = replace(verdict, alarms=("Edema",))
    assert "it sees Edema in more than half of the images without it" in in_short.lead(alarm)


def changed(run: Path, log: str, folder: Path, change: Callable[[dict], dict]) -> Run:
    """Return a copy of a run in which ``change`` has been made to each row of a log."""
    copy = shutil.copytree(run, folder)
    rows = [change(json.loads(line)) for line in (run / log).read_text().splitlines()]
    (copy / log).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return Run.load(copy)


@pytest.mark.parametrize(("auroc", "guessed"), [(0.5, ("Mass",)), (0.51, ())])
def test_a_finding_is_guessed_up_to_half_on_average(
    finished: Path, tmp_path: Path, auroc: float, guessed: tuple[str, ...]
) -> None:
    values = {SITES[0]: auroc - 0.2, SITES[1]: auroc + 0.2}

    def change(row: dict) -> dict:
        is_changed = (row["split"], row["name"]) == ("test", "auroc/Mass")
        return {**row, "value": values[row["site"]]} if is_changed else row

    verdict = judge(changed(finished, "metrics.jsonl", tmp_path / "run", change))
    assert verdict
    assert verdict.guessed == guessed


def test_images_of_patients_widen_what_is_said_of_findings(finished: Path, tmp_path: Path) -> None:
    """Images of a class are worth a quarter of their number, and so are all images of a site."""

    def change(row: dict) -> dict:
        effective = [images // 4 for images in row["images"]]
        patients = [5 if images else 0 for images in row["images"]]
        all_of = {"all_patients": 5, "all_effective": 0}
        return {**row, "clusters": {"patients": patients, "effective": effective, **all_of}}

    run = changed(finished, "binned.jsonl", tmp_path / "run", change)
    verdict = judge(run)
    assert verdict
    effects = []
    for row in run.binned(verdict.round):
        inflated = [images**2 / (images // 4) for images in row.images if images]
        effects.append(sum(inflated) / sum(row.images))
    assert len(effects) == len(SITES)
    assert verdict.luck == pytest.approx(luck_of(run, verdict.round, effects))
    effect = sum(effects) / len(effects)  # Both sites test 40 images.
    assert verdict.design_effect == pytest.approx(effect)
    assert [finding.name for finding in verdict.findings] == ["Mass", "Edema"]
    counts = SiteCounts.of(run, verdict.round).merged
    assert counts
    for finding in verdict.findings:
        assert finding.right.n == 80
        ends = proportion_interval(finding.right.value, 80 / effect)
        assert (finding.right.low, finding.right.high) == pytest.approx(ends)
        answers = counts.scores.answers(run.classes.index(finding.name))
        assert finding.referred == tuple(answers.referred_for(part, effect) for part in (0.9, 0.95))
