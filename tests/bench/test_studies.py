"""The studies of the repository, and what the results pages say of them."""

from pathlib import Path

import pytest

from fedward.bench.bench import verified
from fedward.bench.runs import Bench
from fedward.bench.study import read_study
from fedward.cli import main

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "benchmarks" / "studies").glob("*.json"))
RESULTS = ROOT / "docs" / "results"


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_a_study_can_be_run(file: Path) -> None:
    """All its settings are known to the jobs that it names."""
    study = read_study(file)
    for cell in study.cells():
        assert study.experiment(cell).seed == cell.seed


def pages() -> list[tuple[Path, Path]]:
    """Return each page with each study whose lines it has."""
    return [
        (page, study)
        for page in sorted(RESULTS.glob("*.md"))
        for study in STUDIES
        if f"<!-- study {study.stem} -->" in page.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize(("page", "file"), pages(), ids=lambda path: path.stem)
def test_a_page_says_what_its_results_say(page: Path, file: Path, tmp_path: Path) -> None:
    results = RESULTS / "data" / f"{file.stem}.jsonl"
    said = verified(Bench(read_study(file), tmp_path, tmp_path, results, {}, lambda: tmp_path), file, page)
    assert said.startswith(f"{len(results.read_text().splitlines())} results have the study's settings")
    assert main(["bench", str(file), "--results", str(results), "--show"]) == 0


def test_every_kept_result_is_of_a_study_on_a_page() -> None:
    shown = {study.stem for _, study in pages()}
    assert {file.stem for file in (RESULTS / "data").glob("*.jsonl")} <= shown
