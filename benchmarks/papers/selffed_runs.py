"""Running the SelfFed benchmark: site files, pre-trainings, then the fine-tunings that begin with them."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from fedward.bench.processes import run_all
from fedward.bench.runs import require_same, require_same_images, run_or_resume, whole_run
from fedward.errors import ConfigError
from fedward.jobs import site_names
from fedward.local import run_local
from fedward.report.run import Run
from fedward.storage.checkpoint import save_json
from papers.isofed import DATASETS
from papers.runs import without_result
from papers.selffed import (
    CHOOSES,
    SCALES,
    SKIN,
    USUAL_SHARE,
    Cell,
    Pretraining,
    describe,
    experiment_of,
    pretraining_experiment,
    pretraining_of,
)
from papers.selffed_sites import POOL, SITES, write_npz, write_skin


def run(todo: Sequence[Cell], data: Path, out: Path, workers: int) -> None:
    """Run every cell that has no result yet, several at once, after the pre-trainings they need.

    A run that was killed goes on where it was. A pre-training that fails costs the cells that begin with it, no others.

    Raises:
        ConfigError: a run in ``out``, or the pre-training it began with, has other settings or other images than are
            asked for, or began with other weights.
    """
    for each in _pretrainings(todo):
        require_same(pretraining_folder(out, each), pretraining_experiment(each))
    missing = without_result(todo, partial(result_file, out), experiment_of, partial(_init_of, out))
    for scale in dict.fromkeys(cell.scale for cell in missing):
        _source(scale, data)
    require_same_images(out, "--data", data)
    for cell in missing:
        write_sites(cell, data, out)
    run_all(
        {f"pre-training, {' '.join(map(str, each))}": partial(pretrain, each, out) for each in _pretrainings(missing)},
        {describe(cell): partial(run_cell, cell, out) for cell in missing},
        workers=workers,
    )


def _pretrainings(cells: Sequence[Cell]) -> list[Pretraining]:
    """Return what the cells begin with, each once."""
    return list(dict.fromkeys(filter(None, map(pretraining_of, cells))))


def _init_of(out: Path, cell: Cell) -> Path | None:
    begins = pretraining_of(cell)
    return begins and pretraining_folder(out, begins)


def pretrain(run: Pretraining, out: Path) -> str:
    """Run a pre-training whose site files are written, and say its last loss."""
    sites = [POOL] if run.start == "pooled" else site_names(SITES)
    folder, files = pretraining_folder(out, run), site_folder(out, run.scale, run.gamma, USUAL_SHARE, run.seed)
    run_or_resume(run_local, pretraining_experiment(run), folder, sites, files, out / "cache")
    record = whole_run(folder)
    losses = [row for row in record.metrics if row.name == "loss" and row.value is not None]
    last = [row for row in losses if row.round == losses[-1].round]
    return f"loss {sum(float(row.value or 0) * row.n for row in last) / sum(row.n for row in last):.3f}"


def run_cell(cell: Cell, out: Path) -> str:
    """Run a cell whose site files are there, write its result, and say its test accuracy.

    Raises RunError where the pre-training it begins with has not finished with all its sites.
    """
    result, init = result_file(out, cell), _init_of(out, cell)
    if init:
        whole_run(init)
    files = site_folder(out, cell.scale, cell.gamma, cell.share, cell.seed)
    run_or_resume(run_local, experiment_of(cell), result.parent / "run", site_names(SITES), files, out / "cache", init)
    record = whole_run(result.parent / "run")
    tables = {split: _over_images(record, split) for split in ("val", "test")}
    chosen = max(tables["val"], key=lambda round_: (tables["val"][round_], -round_))
    content = {
        **asdict(cell),
        "round": chosen,
        "validation": round(tables["val"][chosen], 3),
        "accuracy": round(tables["test"][chosen], 3),
        "last": round(tables["test"][max(tables["test"])], 3),
        "seconds": round(sum(row.seconds for row in record.rounds), 1),
    }
    save_json(result, content)
    return f"accuracy {content['accuracy']:.2f}"


def _over_images(run: Run, split: str) -> dict[int, float]:
    """Return round -> accuracy in percent over the images of all sites."""
    right: dict[int, float] = {}
    images: dict[int, int] = {}
    for row in run.metrics:
        if row.split == split and row.name == CHOOSES and row.value is not None:
            right[row.round] = right.get(row.round, 0.0) + row.value * row.n
            images[row.round] = images.get(row.round, 0) + row.n
    return {round_: 100 * right[round_] / images[round_] for round_ in right}


def write_sites(cell: Cell, data: Path, out: Path) -> None:
    """Write the site files of a cell and of its pre-training, where they are not there yet.

    Raises ConfigError where the data set is not in ``data``.
    """
    source, known = _source(cell.scale, data), DATASETS.get(SCALES[cell.scale].data)
    begins = pretraining_of(cell)
    # Pre-trainings read those of the usual share: they look at no label.
    settings = {(cell.gamma, cell.share), *([(begins.gamma, USUAL_SHARE)] if begins else [])}
    for gamma, share in sorted(settings):
        folder = site_folder(out, cell.scale, gamma, share, cell.seed)
        if (folder / f"{POOL}.yaml").exists():  # the last one to be written
            continue
        if known:
            write_npz(source, known.classes, folder, gamma, share, cell.seed)
        else:
            write_skin(source, SKIN, folder, gamma, share, cell.seed)


def _source(scale: str, data: Path) -> Path:
    """Return the MedMNIST file of a scale, or the folder of the skin lesions; raise ConfigError where it is not."""
    known = DATASETS.get(SCALES[scale].data)
    source = data / "medmnist" / known.file if known else data / "skin"
    needed = source if known else source / "manifest.csv"
    if not needed.is_file():
        raise ConfigError(
            "paper.py selffed",
            expected=f"{needed}",
            found="no such file",
            remedy="Name the folder that has medmnist/ and skin/ with --data or FEDWARD_DATA.",
        )
    return source


def _setting(gamma: float, share: float) -> str:
    return f"gamma-{gamma:g}/labelled-{share:g}"


def site_folder(out: Path, scale: str, gamma: float, share: float, seed: int) -> Path:
    """Return where the site files of a setting lie."""
    return out / "sites" / SCALES[scale].data / _setting(gamma, share) / f"seed-{seed}"


def pretraining_folder(out: Path, run: Pretraining) -> Path:
    """Return the run folder of a pre-training."""
    return out / run.scale / "pre-training" / f"gamma-{run.gamma:g}" / run.start / f"seed-{run.seed}"


def result_file(out: Path, cell: Cell) -> Path:
    """Return where a cell's result lies."""
    return out / cell.scale / _setting(cell.gamma, cell.share) / cell.row / f"seed-{cell.seed}" / "result.json"
