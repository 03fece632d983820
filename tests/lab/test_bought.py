"""Rows that use the labels which another row's run has bought."""

from copy import deepcopy
from shutil import rmtree
from typing import Any

import pytest

from fedward.cli import main
from fedward.config import DataSpec
from fedward.errors import ConfigError, RunError
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell
from fedward.runs.run import Run
from fedward.sites import load_site
from public_images import write_public_npz

SPEC = DataSpec(classes=("a", "b", "c"), image_size=28)
STUDY: dict[str, Any] = {
    "title": "Tiny",
    "settings": {"net": "small_cnn", "participants": None, "images_per_round": 16, "batch": 8},
    "rows": {
        "buy": {
            "title": "FedAL",
            "job": "fedal",
            "sites": ".",
            "settings": {
                **{"rounds": 3, "sampler": "global_entropy", "query_every": 1, "steps": 2},
                **{"initial_fraction": 0.2, "target_fraction": 0.5},
            },
        },
        "use": {
            "title": "FedAvg",
            "job": "fedavg",
            "sites": ".",
            "labels": "buy",
            "settings": {"rounds": 1},
        },
    },
    "seeds": [1],
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, without_report: None) -> Bench:
    out = tmp_path_factory.mktemp("out")
    write_public_npz(out / "images.npz", train=80, val=40, test=40)
    cut = [
        "partition",
        str(out / "images.npz"),
        "--sites",
        "2",
        "--oracle",
        "--out",
        str(out / "sites"),
    ]
    assert main([*cut, "--classes", *SPEC.classes]) == 0
    return Bench(Study.model_validate(STUDY), out, out / "sites", out / "results.jsonl", {})


def test_a_row_waits_for_the_run_that_buys_its_labels(work: Bench) -> None:
    with pytest.raises(RunError, match="buy"):
        work.run_cell(Cell("all", "use", 1))


def test_a_row_uses_the_labels_bought_and_no_others(work: Bench) -> None:
    for row in work.study.rows:
        work.run_cell(Cell("all", row, 1))
    buying = Run.load(work.folders(Cell("all", "buy", 1))[""])
    found = 0
    for site in ("site-1", "site-2"):
        bought = {row.bought for row in buying.queries if row.site == site and row.round == 3}
        used = load_site(work.out / "all" / "use" / "seed-1.sites" / f"{site}.yaml", SPEC).labelled
        whole = load_site(work.site_files / f"{site}.yaml", SPEC).labelled
        truth = dict(zip(whole.ids, whole.labels, strict=True))
        assert {len(used)} == bought
        assert [truth[name] for name in used.ids] == used.labels.tolist()
        found += len(used)
    assert found == 40, "half of the training images"


def test_a_run_whose_labels_nobody_knows_is_not_used(work: Bench) -> None:
    cell = Cell("all", "use", 1)
    file = work.out / "all" / "use" / "seed-1.sites" / "site-2.yaml"
    text = file.read_text()
    file.unlink()
    with pytest.raises(ConfigError, match=f"labels nobody knows: there is no {file}") as caught:
        work.run_cell(cell)
    assert caught.value.remedy == f"Delete this folder, so that {cell} runs again."
    file.write_text(text)
    work.run_cell(cell)


def test_other_labels_are_no_longer_those_of_a_run(work: Bench) -> None:
    cells = [Cell("all", row, 1) for row in work.study.rows]
    assert work.missing(cells) == []
    content = deepcopy(STUDY)
    content["rows"]["buy"]["settings"]["target_fraction"] = 0.3
    changed = Bench(
        Study.model_validate(content), work.out, work.site_files, work.file, work.changes
    )
    assert changed.missing(cells) == cells
    rmtree(changed.folders(cells[0])[""])
    changed.run_cell(cells[0])
    before = {path: path.read_text() for path in (work.out / "all" / "use").rglob("*.yaml")}
    with pytest.raises(ConfigError, match="expected a run with the labels that the row buy has"):
        changed.run_cell(cells[1])
    assert before == {path: path.read_text() for path in before}

    # As a process leaves it that is killed before the run has begun.
    folder = changed.folders(cells[1])[""]
    rmtree(folder)
    (folder / "sites" / "site-1" / "cache").mkdir(parents=True)
    changed.run_cell(cells[1])
    assert before != {path: path.read_text() for path in before}
