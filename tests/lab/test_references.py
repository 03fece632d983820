"""References by scikit-learn: they are what a few lines of a script find, and no test image
chooses anything.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fedward.cli import main
from fedward.config import DataSpec, Experiment
from fedward.lab.bench.bench import cut
from fedward.lab.bench.records import read_records
from fedward.lab.bench.reference import Reference
from fedward.lab.bench.reference_images import ReferenceImages
from fedward.lab.bench.reference_runs import missing_references, run_references
from fedward.lab.bench.references import Fits, FittedReference, SiteImages
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell
from fedward.sites import load_site
from fedward.sites.data import Images
from public_images import write_public_npz

SITES = ("site-1", "site-2")
SHARES = {
    "title": "Two shares of the labels",
    "settings": {"net": "small_cnn", "rounds": 1, "participants": None},
    "partition": "pool.npz --sites 2 --labelled 0.3",
    "rows": {"lower": {"title": "FedAvg", "job": "fedavg", "sites": "few"}},
    "variants": {
        "30 %": {"title": "30 %", "labelled": 0.3},
        "60 %": {"title": "60 %", "labelled": 0.6},
    },
    "seeds": [3, 4],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Site files of 240 grey images of three classes, which differ by a weak pattern."""
    folder = tmp_path_factory.mktemp("references")
    rng = np.random.default_rng(5)
    labels = np.arange(240) % 3
    patterns = rng.normal(size=(3, 16, 16))
    images = 128 + 25 * patterns[labels] + 60 * rng.normal(size=(240, 16, 16))
    np.savez(folder / "pool.npz", images=images.clip(0, 255).astype(np.uint8), labels=labels)
    words = ["--sites", "2", "--labelled", "0.2", "--classes", "a", "b", "c", "--out"]
    assert main(["partition", str(folder / "pool.npz"), *words, str(folder / "sites")]) == 0
    return folder / "sites"


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    data = DataSpec(name="pool", classes=("a", "b", "c"), image_size=16, channels=1)
    return Experiment(method="fedavg", data=data, seed=3, synthetic=None, key_metric="f1_macro")


@pytest.fixture(scope="module")
def images(files: Path, experiment: Experiment) -> ReferenceImages:
    return ReferenceImages(experiment, SITES, files, files.parent / "cache")


def outcomes(
    sites: dict[str, SiteImages], images: ReferenceImages
) -> dict[Reference, FittedReference]:
    return dict(Fits(sites, images.experiment, images.inputs()).all())


@pytest.fixture(scope="module")
def found(images: ReferenceImages) -> dict[Reference, FittedReference]:
    return outcomes(images.by_site(), images)


def flat(images: Images) -> np.ndarray:
    return images.pixels.reshape(len(images), -1) / 255


def test_a_support_vector_machine_is_that_of_a_script(
    found: dict[Reference, FittedReference], files: Path, experiment: Experiment
) -> None:
    few = [load_site(files / f"{site}.yaml", experiment.data) for site in SITES]
    whole = [load_site(files / f"{site}.yaml", experiment.data, labelled=1.0) for site in SITES]
    train = np.concatenate([flat(site.labelled) for site in whole])
    pca = PCA(60, svd_solver="randomized", random_state=3).fit(train)
    x = pca.transform(np.concatenate([flat(site.labelled) for site in few]))
    y = np.concatenate([site.labelled.labels for site in few])
    models = {C: SVC(C=C, break_ties=True).fit(x, y) for C in (1.0, 10.0, 100.0)}

    def score(C: float, part: str) -> float:
        held_out = [getattr(site, part) for site in few]
        values = [
            f1_score(p.labels, models[C].predict(pca.transform(flat(p))), average="macro")
            for p in held_out
        ]
        return float(np.mean(values))

    best = max(models, key=lambda C: (score(C, "val"), -C))
    outcome = found[Reference("pixels", "svm", "pooled", "few")]
    assert outcome.chosen == {"": best}
    assert outcome.validation == pytest.approx(score(best, "val"))
    tested = [site["f1_macro"] for site in outcome.sites.values()]
    assert np.mean(tested) == pytest.approx(score(best, "test"))


def test_a_logistic_regression_of_each_site_is_that_of_a_script(
    found: dict[Reference, FittedReference], files: Path, experiment: Experiment
) -> None:
    outcome = found[Reference("pixels", "logistic", "alone", "all")]
    for name in SITES:
        site = load_site(files / f"{name}.yaml", experiment.data, labelled=1.0)
        pca = PCA(60, svd_solver="randomized", random_state=3).fit(flat(site.labelled))
        scores = {}
        for C in (0.001, 0.01, 0.1, 1.0, 10.0):
            model = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=2000))
            model.fit(pca.transform(flat(site.labelled)), site.labelled.labels)
            answers = model.predict(pca.transform(flat(site.val)))
            value = f1_score(site.val.labels, answers, average="macro")
            right = accuracy_score(site.test.labels, model.predict(pca.transform(flat(site.test))))
            scores[C] = (value, -C, right)
        best = max(scores, key=lambda C: scores[C][:2])
        assert outcome.chosen[name] == best
        assert outcome.sites[name]["accuracy"] == pytest.approx(scores[best][2])


def test_all_combinations_are_fitted_once_and_equal_seeds_agree(
    found: dict[Reference, FittedReference], images: ReferenceImages
) -> None:
    names = [(r.input, r.model, r.sites, r.labels) for r in found]
    assert sorted(names) == sorted(
        ("pixels", model, sites, labels)
        for model in ("svm", "logistic")
        for sites in ("pooled", "alone")
        for labels in ("few", "all")
    )
    again = outcomes(images.by_site(), images)
    for reference, outcome in found.items():
        assert again[reference][:3] == outcome[:3]


def test_no_test_label_chooses(
    found: dict[Reference, FittedReference], images: ReferenceImages
) -> None:
    permuted = {}
    for name, site in images.by_site().items():
        test = replace(site.test, labels=np.roll(site.test.labels, 7))
        permuted[name] = replace(site, test=test)
    for reference, outcome in outcomes(permuted, images).items():
        assert outcome.chosen == found[reference].chosen
        assert outcome.validation == found[reference].validation
        assert outcome.sites != found[reference].sites


def test_a_site_without_labels_has_no_model_of_its_own_and_one_class_is_enough(
    images: ReferenceImages,
) -> None:
    sites = images.by_site()
    site = sites["site-1"]
    one_class = site.few.taken(np.flatnonzero(site.few.labels == 1))
    sites = {"site-1": replace(site, few=one_class)}
    sites["site-2"] = replace(images.by_site()["site-2"], few=site.few.taken([]))
    outcome = outcomes(sites, images)[Reference("pixels", "svm", "alone", "few")]
    assert list(outcome.chosen) == list(outcome.sites) == ["site-1"]
    share = float(np.mean(site.test.labels == 1))
    assert outcome.sites["site-1"]["accuracy"] == pytest.approx(share)


def test_all_labels_are_fitted_once_for_all_shares_of_labels(tmp_path: Path) -> None:
    """A variant with another share takes them over, and gets what fitting them again gives."""
    write_public_npz(tmp_path / "pool.npz", train=80, val=40, test=40)
    study = Study.model_validate(SHARES)
    cells = [Cell(variant, "lower", 3) for variant in study.variants]
    files = {}
    for name, order in (("reused", cells), ("fresh", cells[1:])):
        cut(study, cells, tmp_path / name / "sites", tmp_path)
        work = Bench(study, tmp_path, tmp_path / name / "sites", tmp_path / f"{name}.jsonl", {})
        for cell in order:
            run_references(work, cell)
        files[name] = read_records(work.file)
    assert not missing_references(work, cells[1:])
    seconds = {cell: line.seconds for cell, line in files["reused"].items()}
    for cell, line in files["fresh"].items():
        reused = files["reused"][cell]
        assert replace(reused, seconds=0.0) == replace(line, seconds=0.0)
        if line.reference and line.reference.labels == "all":
            assert seconds[cell] == seconds[cell._replace(variant=cells[0].variant)]
