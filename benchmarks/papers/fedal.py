"""FedAL's Tables 3 and 4 and Figures 2 and 3 (Deng, Yang, Suzuki, arXiv 2406.11310): four hospitals of skin lesions.

All rows of a seed share the split, the initial model, the schedule and the local work; those that buy labels share the
first ones and the number bought in each query too. Validation images choose a round among those after the last query.
The two bounds differ from FedAvg by nothing but who trains: one site that holds all images, and does the work of all,
or each hospital alone.

The paper gives neither the share of the first labels nor the batch size; here they are a tenth, as in the experiments
of SA, and 32 or less. It cuts squares from the images, here they are squashed to squares.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedward.bench.processes import run_all
from fedward.bench.runs import require_all, require_same_images, run_or_resume
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.local import run_local
from fedward.report.run import Run
from fedward.storage.checkpoint import save_json
from papers.fedal_paper import HOSPITALS
from papers.fedal_results import CHOOSES, Schedule, classes_bought, curve_of, mean_over_hospitals, scores_of
from papers.fedal_sites import CLASSES, POOL, Federation, federation, pooled, write_site_files
from papers.runs import without_result


class Row(NamedTuple):
    """A method as the tables name it."""

    title: str
    sampler: str = "random"
    everything: bool = False
    """All labels from the start, and none to ask for."""

    @property
    def data(self) -> str:
        """Share of the training images that has a label at the end."""
        return "100 %" if self.everything else "50 %"


ROWS = {
    "centralised": Row("Centralised", everything=True),
    "full": Row("FedAvg, all labels", everything=True),
    "aift": Row("FedAvg + AIFT", "aift"),
    "sa": Row("FedAvg + SA", "sa"),
    "mcdal": Row("FedAvg + MCDAL", "mcdal"),
    "fedal": Row("FedAL", "fedal"),
    "random": Row("FedAvg + random", "random"),
    "local_entropy": Row("entropy of the local model", "local_entropy"),
    "global_entropy": Row("entropy of the global model", "global_entropy"),
    "margin": Row("FedAvg + margin", "margin"),
    "bald": Row("FedAvg + BALD", "bald"),
    "core_set": Row("FedAvg + core-set", "core_set"),
    "localised": Row("Localised", everything=True),
}
_COMPARED = ("full", "aift", "sa", "mcdal", "fedal", "random")
TABLES = {3: ("centralised", *_COMPARED), 4: (*_COMPARED, "localised")}
"""The rows of the paper's tables."""
FIGURES = {2: _COMPARED, 3: ("full", "fedal", "local_entropy", "global_entropy")}
"""The lines of the paper's figures; all labels are a level line."""


class Scale(NamedTuple):
    """How large the images, the network and the local work are."""

    net: str
    pretrained: bool
    image_size: int
    local_epochs: int
    images_per_round: int | None = None
    """Of each hospital, whatever it has labels of; None: it passes through these."""
    batch: int = 32
    learning_rate: float = 2e-4
    schedule: Schedule = Schedule(rounds=25, query_every=2, steps=10)
    """Paper: 25 rounds, 10 queries."""


SCALES = {
    "tiny": Scale("small_cnn_gn", False, 32, local_epochs=1, batch=8, schedule=Schedule(4, 1, 2)),
    "small": Scale("tf_efficientnet_lite0", True, 64, 1, 512, learning_rate=1e-3, schedule=Schedule(13, 1, 10)),
    "paper": Scale("resnet101", True, 224, local_epochs=5),
}
"""``tiny`` shows in seconds that all fits together; ``paper`` is the paper's, and needs a GPU.

``small`` has the paper's ten queries, one after each round instead of every second. A round is 512 images of each
hospital, whatever it has labels of: few labels are then seen often, as in the paper's five epochs, and many are not
seen all at once, at a cost that a CPU can bear (a core trains on about 140 images in a second). The learning rate is
five times the paper's: of 3e-4, 1e-3 and 2e-3, the one with the best macro-F1 of a random baseline on the validation
images of one split.
"""


@dataclass(frozen=True)
class Cell:
    """A row of the tables with one split and one seed (of the split, the first labels, the model and the training)."""

    scale: str
    split: str
    """``images``: by image, as in the paper; ``lesions``: all images of a lesion together."""
    row: str
    seed: int


def cells(scale: str, splits: Iterable[str], rows: Iterable[str], seeds: Iterable[int]) -> list[Cell]:
    """Return the cells seed by seed."""
    splits, names = list(splits), list(rows)
    return [Cell(scale, split, row, seed) for seed in seeds for split in splits for row in names]


def experiment_of(cell: Cell) -> Experiment:
    """Return a cell's experiment; evaluated before each query and after the last round."""
    row, scale = ROWS[cell.row], SCALES[cell.scale]
    raw = {
        "method": "fedal",
        "options": {
            **scale.schedule._asdict(),
            "sampler": row.sampler,
            "local_epochs": scale.local_epochs,
            "images_per_round": _images_per_round(cell.row, scale),
            "batch": scale.batch,
            "learning_rate": scale.learning_rate,
            **({"initial_fraction": 1.0, "target_fraction": 1.0} if row.everything else {}),
        },
        "data": {"name": "dermoscopy", "classes": CLASSES, "image_size": scale.image_size},
        "net": scale.net,
        "pretrained": scale.pretrained,
        "synthetic": None,
        "seed": cell.seed,
        "evaluate_every": scale.schedule.query_every,
        "key_metric": CHOOSES,
    }
    return Experiment.parse(raw, f"benchmark {cell}")


def _images_per_round(row: str, scale: Scale) -> int | None:
    everyone = len(HOSPITALS) if row == "centralised" else 1
    return scale.images_per_round and everyone * scale.images_per_round


def federations_of(cell: Cell, out: Path) -> dict[str, Federation]:
    """Return the runs of a cell by name: one, or one for each hospital where each is alone."""
    folder = site_folder(out, cell.split, cell.seed)
    if cell.row == "centralised":
        return {"run": pooled(folder)}
    hospitals = federation(folder)
    if cell.row == "localised":
        return {f"run-{site}": Federation(hospitals.folder, (site,)) for site in hospitals.sites}
    return {"run": hospitals}


def run(todo: Sequence[Cell], data: Path, out: Path, workers: int) -> None:
    """Run every cell that has no result yet, several at once; a run that was killed goes on where it was."""
    missing = without_result(todo, partial(result_file, out), experiment_of)
    if missing and not (data / "manifest.csv").is_file():
        raise ConfigError(
            "paper.py fedal",
            expected=f"manifest.csv in {data}",
            found="no such file",
            remedy="Name the folder of the skin lesions with --data, or its parent with FEDWARD_DATA.",
        )
    require_same_images(out, "--data", data)
    for split, seed in sorted({(cell.split, cell.seed) for cell in missing}):
        write_site_files(data, split, seed, site_folder(out, split, seed))
    run_all({describe(cell): partial(run_cell, cell, out) for cell in missing}, workers=workers)


def run_cell(cell: Cell, out: Path) -> str:
    """Run one cell whose site files are written, write its result, and say its macro-F1."""
    result, experiment, schedule = result_file(out, cell), experiment_of(cell), SCALES[cell.scale].schedule
    runs = []
    for name, (files, sites) in federations_of(cell, out).items():
        run_or_resume(run_local, experiment, result.parent / name, list(sites), files, out / "cache")
        runs.append(record := Run.load(result.parent / name))
        require_all(record, [POOL] if POOL in sites else sites)  # where all images are pooled, hospitals only evaluate
    content: dict[str, Any] = {
        **asdict(cell),
        **scores_of(runs, schedule),
        "curve": curve_of(runs[0], schedule) if len(runs) == 1 else [],
        "bought": classes_bought(runs[0]) if len(runs) == 1 else {},
        "seconds": round(sum(row.seconds for run in runs for row in run.rounds), 1),
    }
    save_json(result, content)
    return f"macro-F1 {mean_over_hospitals(content['chosen'], 'f1_macro'):.2f}"


def site_folder(out: Path, split: str, seed: int) -> Path:
    """Return where the site files of a split lie; all rows and scales share them."""
    return out / "sites" / split / f"seed-{seed}"


def result_file(out: Path, cell: Cell) -> Path:
    """Return where a cell's result lies."""
    return out / cell.scale / cell.split / cell.row / f"seed-{cell.seed}" / "result.json"


def describe(cell: Cell) -> str:
    """Return a cell in words."""
    return f"{cell.scale}, split by {cell.split}, {cell.row} seed {cell.seed}"
