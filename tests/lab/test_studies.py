"""The studies of the repository, and what the results pages say of them."""

from pathlib import Path

import pytest
import timm

from fedward.lab.bench.bench import verified
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.study_parts import Cell
from fedward.methods import method_of

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "benchmarks" / "studies").glob("*.json"))
RESULTS = ROOT / "docs" / "results"


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_a_study_can_be_run(file: Path) -> None:
    """All its settings are known to the jobs that it names."""
    study = read_study(file)
    for cell in study.cells():
        assert study.experiment(cell).seed == cell.seed


def test_rows_of_selffed_do_equal_work() -> None:
    """A site sees as many images in each, and one centralised site as many as three."""
    study = read_study(ROOT / "benchmarks" / "studies" / "selffed_splits.json")
    for row in study.rows:
        settings = method_of(study.experiment(Cell("10 %", row, 121))).settings
        sites = 3 if row == "central" else 1
        assert settings.rounds * settings.images_per_round == 120 * 1024 * sites
        assert (settings.batch, settings.learning_rate) == (16, 1e-3)


def test_networks_that_start_from_imagenet_have_weights_in_timm() -> None:
    study = read_study(ROOT / "benchmarks" / "studies" / "selffed_imagenet.json")
    experiments = [study.experiment(cell) for cell in study.cells() if "imagenet" in cell.row]
    names = {experiment.net for experiment in experiments if experiment.net != "swin_224"}
    assert len(names) == 3
    assert names <= set(timm.list_pretrained())
    assert all(experiment.pretrained is True for experiment in experiments)


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
    said = verified(Bench(read_study(file), tmp_path, tmp_path, results, {}), file, page)
    assert said.startswith(
        f"{len(results.read_text().splitlines())} results have the study's settings"
    )


def test_every_kept_result_is_of_a_study_on_a_page() -> None:
    shown = {study.stem for _, study in pages()}
    assert {file.stem for file in (RESULTS / "data").glob("*.jsonl")} <= shown


def test_fedperls_variants_are_those_of_the_papers_tables() -> None:
    """Table 2: T = 1 to 5 with and without anonymous peers, FedMatch and FedMatch+, random peers.

    Table 10: three policies, two of them with three gates. One anonymous peer is refused.
    """
    study = read_study(ROOT / "benchmarks" / "studies" / "fedperl_variants.json")
    committees = set()
    policies = set()
    others = set()
    for cell in study.cells():
        settings = method_of(study.experiment(cell)).settings
        if cell.row == "ssfl":
            continue
        committees.add((settings.committee, settings.anonymise))
        policies.add((settings.policy, settings.gate, settings.anonymise))
        others.add((settings.peers, settings.similarity, settings.anonymise))
    both = (True, False)
    assert committees == {(number, way) for number in range(1, 6) for way in both} - {(1, True)}
    gates = {"validation": [0.85], "gated_validation": [0.75, 0.85, 0.95]}
    gates |= {"static": [0.85], "gated_similarity": [0.75, 0.85, 0.95]}
    assert policies == {
        (policy, gate, way) for policy in gates for gate in gates[policy] for way in both
    }
    chosen = [("similar", "moments"), ("similar", "rows"), ("similar", "answers")]
    chosen.append(("random", "moments"))
    assert others == {(*choice, way) for choice in chosen for way in both}
