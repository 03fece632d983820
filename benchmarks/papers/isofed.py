"""IsoFed's Tables 1 and 2 (Saha et al., MICCAI 2023): four sites of a MedMNIST set, with all their labels or none.

All methods of a cell share the split, the initial model, the warm-up and the local work; validation images choose the
round, and the official test images are looked at once, at the end. SSFL and FedPerl, not in the paper, have no warm-up
on the labelled sites alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from fedward.bench.processes import run_all
from fedward.bench.runs import require_all, require_same_images, run_or_resume
from fedward.config import Experiment
from fedward.errors import ConfigError, DataError
from fedward.jobs import site_names
from fedward.local import run_local
from fedward.report.run import Run
from fedward.sites.partition.divide import divide
from fedward.sites.partition.npz_pool import read_npz
from fedward.sites.partition.write import site_texts, write_files
from fedward.storage.checkpoint import save_json
from papers.isofed_paper import Scores
from papers.runs import without_result

SITES = 4
GAMMAS = (0.8, 0.5)
WARM_UP = 7
TABLES = {1: ("blood", "path"), 2: ("pneumonia", "organa")}


class Dataset(NamedTuple):
    """A MedMNIST set as the benchmark uses it."""

    file: str
    classes: tuple[str, ...]
    views: str


DATASETS = {
    "blood": Dataset(
        "bloodmnist.npz",
        (
            *("basophil", "eosinophil", "erythroblast", "immature granulocyte", "lymphocyte", "monocyte", "neutrophil"),
            "platelet",
        ),
        "mirrored",
    ),
    "path": Dataset(
        "pathmnist.npz",
        (
            *("adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle", "normal mucosa", "stroma"),
            "adenocarcinoma epithelium",
        ),
        "mirrored",
    ),
    "pneumonia": Dataset("pneumoniamnist.npz", ("normal", "pneumonia"), "upright"),
    "organa": Dataset(
        "organamnist.npz",
        (
            *("bladder", "femur left", "femur right", "heart", "kidney left", "kidney right", "liver", "lung left"),
            *("lung right", "pancreas", "spleen"),
        ),
        "upright",
    ),
}


class Row(NamedTuple):
    """A method as the table names it."""

    title: str
    method: str
    options: dict[str, Any]
    passes: float
    """Times a site passes through its images in one round behind the warm-up, on average."""


_SGD: dict[str, Any] = {
    "participants": None,
    "images_per_round": None,
    "batch": 64,
    "optimizer": "sgd",
    "learning_rate": 0.03,
    "weight_decay": 5e-4,
    "clip_gradient": 5.0,
    "class_weighting": "none",
}
"""What FedPerl and SSFL borrow from RSCFed, so that only the method differs."""

ROWS = {
    "upper": Row("all sites labelled (upper bound)", "wfedavg", {}, 1),
    "lower": Row("labelled sites only", "wfedavg", {}, 1),
    "fedprox": Row("FedProx, labelled sites only", "fedprox", {}, 1),
    "mt_wfedavg": Row("MT+wFedAvg", "mt_wfedavg", {}, 1),
    "rscfed": Row("RSCFed", "rscfed", {}, 3 * 3 / SITES),
    "isofed_wo_pt": Row("IsoFed w/o PT", "isofed", {"adapt": False}, 1),
    "isofed": Row("IsoFed", "isofed", {}, 2),
    "ssfl": Row("SSFL", "ssfl", _SGD, 1),
    "fedperl": Row("FedPerl", "fedperl", {**_SGD, "warm_up": WARM_UP}, 1),
}
TABLE_ROWS = ("upper", "mt_wfedavg", "rscfed", "isofed_wo_pt", "isofed")
"""The rows of the paper's tables."""


@dataclass(frozen=True)
class Cell:
    """One run: a row of the table in one setting with one seed (of the split, the initial model and the training)."""

    dataset: str
    gamma: float
    labelled: int
    """Sites with labels, of four."""
    row: str
    seed: int


@dataclass(frozen=True)
class Budget:
    """How long each run trains."""

    passes: int = 200
    """Passes of a site through its images, the adaptation of IsoFed included: what all methods have in common."""
    images_at_most: int | None = None
    """A pass ends after so many images; None: all of them."""

    def rounds(self, row: str) -> int:
        """Return the rounds in which a method makes its passes; a round of the warm-up is one pass."""
        return WARM_UP + round((self.passes - WARM_UP) / ROWS[row].passes)


def cells(
    datasets: Iterable[str], gammas: Iterable[float], labelled: Iterable[int], rows: Iterable[str], seeds: Iterable[int]
) -> list[Cell]:
    """Return the runs of a table, seed by seed; the upper bound has all sites labelled, once for each gamma."""
    settings, names = [(dataset, gamma) for dataset in datasets for gamma in gammas], list(rows)
    counts = list(labelled)
    found = []
    for seed in seeds:
        for dataset, gamma in settings:
            found += [Cell(dataset, gamma, SITES, "upper", seed)] * ("upper" in names)
            found += [Cell(dataset, gamma, n, row, seed) for n in counts for row in names if row != "upper"]
    return found


def experiment_of(cell: Cell, budget: Budget) -> Experiment:
    """Return a cell's experiment."""
    dataset, row = DATASETS[cell.dataset], ROWS[cell.row]
    rounds = budget.rounds(cell.row)
    raw = {
        "method": row.method,
        "options": {
            "rounds": rounds,
            "images_at_most": budget.images_at_most,
            "largest_share": 1.0,  # the paper's weights
            **row.options,
        },
        "data": {"name": cell.dataset, "classes": dataset.classes, "image_size": 28, "views": dataset.views},
        "net": "small_cnn",
        "synthetic": None,
        "seed": cell.seed,
        "evaluate_every": max(1, rounds // 25),
    }
    return Experiment.parse(raw, f"benchmark {cell}")


def run(todo: Sequence[Cell], budget: Budget, data: Path, out: Path, workers: int) -> None:
    """Run every cell that has no result yet, several at once; a run that was killed goes on where it was."""
    missing = without_result(todo, partial(result_file, out), lambda cell: experiment_of(cell, budget))
    for dataset in sorted({cell.dataset for cell in missing}):
        if not (data / DATASETS[dataset].file).is_file():
            raise ConfigError(
                f"data set {dataset}",
                expected=f"{DATASETS[dataset].file} in {data}",
                found="no such file",
                remedy="Fetch it from medmnist.com (28x28), or name its folder with --data or FEDWARD_DATA.",
            )
    require_same_images(out, "--data", data)
    run_all({describe(cell): partial(run_cell, cell, budget, data, out) for cell in missing}, workers=workers)


def run_cell(cell: Cell, budget: Budget, data: Path, out: Path) -> str:
    """Run one cell, evaluate its best round on the official test images, write the result, and say the accuracy."""
    result = result_file(out, cell)
    folder, experiment = result.parent, experiment_of(cell, budget)
    files = _site_files(cell, data, out)
    run_or_resume(run_local, experiment, folder / "run", site_names(SITES), files, out / "cache")
    record = Run.load(folder / "run")
    summary = record.info.summary
    require_all(record, site_names(SITES), may_decline=True)  # each is also asked to do the other group's work
    scores = evaluate(experiment, folder / "run" / "best.safetensors", files / "test.yaml")
    content = {
        **asdict(cell),
        "passes": budget.passes,
        "images_at_most": budget.images_at_most,
        "rounds": summary.rounds,
        "best_round": summary.best_round,
        "validation_accuracy": round(100 * summary.best_value, 2) if summary.best_value is not None else None,
        **{name: round(value, 2) for name, value in scores._asdict().items()},
        "uploads": sum(len(row.replied) for row in record.rounds),
        "seconds": round(sum(row.seconds for row in record.rounds), 1),
    }
    save_json(result, content)
    return f"accuracy {scores.accuracy:.2f}"


def _site_files(cell: Cell, data: Path, out: Path) -> Path:
    """Write the site files of a cell's setting, and one with the official test images."""
    dataset = DATASETS[cell.dataset]
    folder = result_file(out, cell).parent / "sites"
    npz = data / dataset.file
    texts = isolated_sites(npz, dataset.classes, folder, SITES, cell.labelled, cell.gamma, cell.seed)
    with np.load(npz, allow_pickle=False) as arrays:
        test = list(range(len(arrays["test_labels"])))
    content = {"kind": "npz", "file": str(npz.resolve()), "indices": {"test": test}}
    whole = {**content, "labels": dict(enumerate(dataset.classes))}
    write_files({**texts, folder / "test.yaml": yaml.safe_dump(whole, default_flow_style=None)})
    return folder


def isolated_sites(
    npz: Path, classes: Sequence[str], folder: Path, sites: int, labelled_sites: int, gamma: float, seed: int
) -> dict[Path, str]:
    """Return the site files of IsoFed (Sec. 3.1): sites with all their labels or none, whose test images are nowhere.

    The division is that of ``fedward partition --dirichlet --labelled-sites``. The test images are one set, on which
    the best model is evaluated once.
    """
    pool = read_npz(npz, classes)
    cut = divide(pool, sites, gamma, seed)
    used = {site: {split: rows for split, rows in mine.items() if split != "test"} for site, mine in cut.items()}
    return site_texts(pool, used, [float(index < labelled_sites) for index in range(sites)], folder, seed)


def evaluate(experiment: Experiment, model: Path, site_file: Path) -> Scores:
    """Return a saved model's scores on the test images of a site file, in percent."""
    import torch
    from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_auc_score

    from fedward.nets import build
    from fedward.sites import load_site
    from fedward.storage.checkpoint import StoredState
    from fedward.training.batches import Pixels
    from fedward.training.evaluation import predict

    spec = experiment.data
    data = load_site(site_file, spec)
    images = data.test
    if data.rejected:
        raise DataError(
            f"{site_file}",
            expected="every test image usable",
            found=f"{len(data.rejected)} that are not, the first: {data.rejected[0]}",
            remedy="Fetch the file again: a benchmark must not choose its test images.",
        )
    net = build(experiment.net, len(spec.classes), spec.channels)
    net.load_state_dict(dict(StoredState(model)))
    output, truth = predict(net, Pixels.of(images, torch.device("cpu"))).double().numpy(), images.labels[:]
    output /= output.sum(axis=1, keepdims=True)
    chosen = output.argmax(axis=1)
    binary = len(spec.classes) == 2
    averaged = {"average": "macro", "labels": range(len(spec.classes)), "zero_division": 0}
    scores = (
        accuracy_score(truth, chosen),
        roc_auc_score(truth, output[:, 1] if binary else output, multi_class="ovr", average="macro"),
        precision_score(truth, chosen, **averaged),
        recall_score(truth, chosen, **averaged),
    )
    return Scores(*(100 * float(score) for score in scores))


def result_file(out: Path, cell: Cell) -> Path:
    """Return where a cell's result lies."""
    setting = f"gamma-{cell.gamma}/labelled-{cell.labelled}"
    return out / cell.dataset / setting / cell.row / f"seed-{cell.seed}" / "result.json"


def describe(cell: Cell) -> str:
    """Return a cell in words."""
    return f"{cell.dataset} gamma {cell.gamma} {cell.labelled}:{SITES - cell.labelled} {cell.row} seed {cell.seed}"
