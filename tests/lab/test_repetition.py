"""A seed is a whole repetition: what a study's seeds move, and what its lines say of it."""

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedward.digests import digest
from fedward.errors import ConfigError
from fedward.lab.bench.bench import CUT_BEGUN, cut
from fedward.lab.bench.repetition import compared_seeds
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.study_parts import Cell
from fedward.methods import method_of, settings_of
from fedward.sites import load_site
from fedward.sites.data import SiteData
from fedward.sites.stored_images import StoredImages
from public_images import write_public_npz

SETTINGS = {"data.name": "images", "data.classes": list("0123456"), "data.channels": 3}
STUDY: dict[str, Any] = {
    "title": "Tiny",
    "settings": {**SETTINGS, "data.image_size": 28, "synthetic": None, "rounds": 4},
    "partition": "images.npz --sites 2 --labelled 0.3 --resplit",
    "rows": {
        "few": {"title": "few", "job": "fedavg", "sites": "few"},
        "all": {"title": "all", "job": "fedavg", "sites": "all"},
        "centralised": {"title": "centralised", "job": "fedavg", "sites": "centralised"},
        "head": {"title": "head", "job": "oneshot", "sites": "few", "settings": {"rounds": 1}},
    },
    "seeds": [1, 2],
    "doubled": [2],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_public_npz(tmp_path / "images.npz", train=140, val=42, test=42)
    return tmp_path


def bench_of(data: Path, out: str, **changes: Any) -> Bench:
    """Return a study's bench, with the site files of all its seeds."""
    study = Study.model_validate({**STUDY, **changes})
    folder = data / out
    work = Bench(study, folder, folder / "sites", folder / "results.jsonl", {})
    cut(study, study.cells(), work.site_files, data)
    return work


def sites_of(work: Bench, row: str, seed: int) -> dict[str, SiteData]:
    cell = Cell("all", row, seed)
    files = work.files_of(cell)
    assert files is not None
    spec = work.experiment(cell).data
    return {file.stem: load_site(file, spec) for file in sorted(files.glob("*.yaml"))}


def ids_of(sites: dict[str, SiteData], *parts: str) -> set[str]:
    return {name for site in sites.values() for part in parts for name in getattr(site, part).ids}


def test_equal_seeds_cut_alike_and_other_seeds_move_split_and_labels(data: Path) -> None:
    first = bench_of(data, "first")
    again = bench_of(data, "again")
    for row in ("few", "all"):
        for seed in (1, 2):
            cell = Cell("all", row, seed)
            assert first.drawn(cell) == again.drawn(cell)
            assert first.drawn(cell).repetition == "data and weights"
    assert first.drawn(Cell("all", "few", 1)).cut != first.drawn(Cell("all", "few", 2)).cut
    own = sites_of(first, "few", 1)
    other = sites_of(first, "few", 2)
    assert ids_of(own, "test") != ids_of(other, "test")
    assert ids_of(own, "labelled") != ids_of(other, "labelled")
    everything = ("labelled", "unlabelled", "val", "test")
    assert ids_of(own, *everything) == ids_of(other, *everything)
    assert len(ids_of(own, *everything)) == 224


def test_what_a_repetition_draws_is_known_without_reading_an_image(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = bench_of(data, "out")
    cell = Cell("all", "few", 1)
    sites = sites_of(work, "few", 1)
    labels = {site: sorted(images.labelled.ids) for site, images in sites.items()}

    def read(self: StoredImages, indices: Iterable[int]) -> Iterator[Any]:
        raise AssertionError("an image is read")

    monkeypatch.setattr(StoredImages, "read", read)
    drawn = work.drawn(cell).cut
    assert drawn.test == digest(sorted(ids_of(sites, "test")))
    assert drawn.labels == digest(labels)


def test_rows_of_a_repetition_share_its_split_and_one_site_may_train_for_all(data: Path) -> None:
    work = bench_of(data, "out")
    few = sites_of(work, "few", 1)
    all_labels = sites_of(work, "all", 1)
    together = sites_of(work, "centralised", 1)
    train = ids_of(few, "labelled", "unlabelled")
    assert ids_of(all_labels, "labelled") == train
    assert set(together["pooled"].labelled.ids) == train
    assert not len(together["pooled"].test)
    for site in ("site-1", "site-2"):
        assert few[site].test.ids == all_labels[site].test.ids == together[site].test.ids
        assert ids_of({site: together[site]}, "labelled", "unlabelled") == set()


def test_seeds_that_move_nothing_are_repetitions_of_the_weights_alone(data: Path) -> None:
    """The official split, one folder for all seeds, and copies that pretend to be other cuts."""
    official = bench_of(data, "official", partition="images.npz --sites 2 --labelled 0.3")
    assert official.drawn(Cell("all", "few", 1)).repetition == "weights", (
        "the test images are the same"
    )
    rows = {"few": {"title": "few", "job": "fedavg", "sites": "{seed}"}}
    copied = bench_of(data, "copied")
    (data / "mine").mkdir()
    for seed in (1, 2):
        shutil.copytree(copied.site_files / "seed-1" / "few", data / "mine" / f"{seed}")
    study = Study.model_validate({**STUDY, "partition": "", "rows": rows})
    mine = Bench(study, data / "out", data / "mine", data / "results.jsonl", {})
    assert mine.drawn(Cell("all", "few", 2)).repetition == "weights"
    alone = study.model_copy(update={"seeds": (1,)})
    one = Bench(alone, data / "out", data / "mine", data / "results.jsonl", {})
    assert one.drawn(Cell("all", "few", 1)).repetition == "weights", (
        "nothing shows that images differ"
    )


def test_a_single_seed_is_compared_with_another_one() -> None:
    study = Study.model_validate({**STUDY, "seeds": [1], "doubled": []})
    assert compared_seeds(study, (1, 7)) == (1, 7)
    assert compared_seeds(study, (1,)) == (1, 2)
    assert compared_seeds(study.model_copy(update={"partition": ""}), (1, 7)) == (1,)


NAMED_FOLDERS = {
    "partition": "",
    "sites": {"few": "images.npz --sites 2 --resplit"},
    "rows": {"few": STUDY["rows"]["few"]},
}
"""A study that says for each folder of site files how it is made."""


@pytest.mark.parametrize(("changes", "folder"), [({}, "seed-1/few"), (NAMED_FOLDERS, "few")])
def test_a_cut_whose_process_was_killed_is_made_again(
    data: Path, changes: dict[str, Any], folder: str
) -> None:
    work = bench_of(data, "out", **changes)
    place = work.site_files / folder
    files = {path.name: path.read_bytes() for path in place.iterdir()}
    begun = place.with_name(f"{place.name}{CUT_BEGUN}")
    assert not begun.exists()
    for name in list(files)[1:]:
        (place / name).unlink()
    begun.touch()
    cut(work.study, work.study.cells(), work.site_files, data)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == files
    assert not begun.exists()


@pytest.mark.parametrize(("changes", "folder"), [({}, "seed-1/few"), (NAMED_FOLDERS, "few")])
def test_files_that_were_written_by_hand_stay_even_after_a_cut_that_failed(
    data: Path, changes: dict[str, Any], folder: str
) -> None:
    study = Study.model_validate({**STUDY, **changes})
    cells = [Cell("all", "few", 1)]
    with pytest.raises(ConfigError, match="nothing there"):
        cut(study, cells, data / "sites", data / "nowhere")
    place = data / "sites" / folder
    assert not place.exists()
    place.mkdir()
    (place / "site-1.yaml").write_text("by hand")
    cut(study, cells, data / "sites", data)
    assert [path.name for path in place.iterdir()] == ["site-1.yaml"]
    assert (place / "site-1.yaml").read_text() == "by hand"


def test_a_variant_may_have_a_share_of_labels_of_its_own(data: Path) -> None:
    variants = {"30 %": {"title": "30 %"}, "60 %": {"title": "60 %", "labelled": 0.6}}
    work = bench_of(data, "out", variants=variants)
    labelled = []
    for variant in variants:
        files = work.files_of(Cell(variant, "few", 1))
        assert files is not None
        text = (files / "site-1.yaml").read_text()
        labelled.append([line for line in text.splitlines() if line.startswith("labelled")])
    assert labelled == [["labelled: 0.3"], ["labelled: 0.6"]]


def test_one_seed_runs_again_with_twice_the_rounds() -> None:
    study = Study.model_validate({**STUDY, "settings": {**STUDY["settings"], "evaluate_every": 2}})
    doubled = [cell for cell in study.cells() if cell.doubled]
    assert [(cell.row, cell.seed) for cell in doubled] == [
        ("few", 2),
        ("all", 2),
        ("centralised", 2),
    ]
    usual = study.experiment(Cell("all", "few", 2))
    longer = study.experiment(doubled[0])
    assert method_of(longer).settings.rounds == 2 * method_of(usual).settings.rounds == 8
    assert longer.evaluate_every == usual.evaluate_every == 2
    warm = study.model_copy(update={"settings": {**study.settings, "rounds": 8, "warm_up": 3}})
    rows = {"perl": warm.rows["few"].model_copy(update={"job": "fedperl"})}
    warm = warm.model_copy(update={"rows": rows})
    assert method_of(warm.experiment(Cell("all", "perl", 2, doubled=True))).settings.warm_up == 6


@pytest.mark.parametrize(
    ("methods", "names"),
    [
        (("alone", "fedavg", "fedmatch", "oneshot", "ssfl"), {"rounds"}),
        (("fedperl", "fedprox", "isofed", "mt_wfedavg", "rscfed", "wfedavg"), {"warm_up"}),
        (("fedirm",), {"warm_up", "ramp_up"}),
        (("fedal",), {"query_every"}),
        (("selffed",), {"pretraining_rounds", "pretraining_warm_up", "warm_up"}),
    ],
)
def test_each_method_says_which_settings_grow_with_the_rounds(
    methods: tuple[str, ...], names: set[str]
) -> None:
    for method in methods:
        assert set(settings_of(method, {}).counted_in_rounds) == {"rounds", *names}


def with_row(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the rows, and one of other settings."""
    other = {"title": "other", "job": "fedavg", "sites": "few", "settings": settings}
    return {**STUDY["rows"], "other": other}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"partition": "images.npz --sites 2 --seed 3"}, "partition without --seed"),
        ({"partition": "images.npz --sites 2 --seed=3"}, "partition without --seed"),
        ({"partition": "images.npz --sites 2 --out=elsewhere"}, "partition without --out"),
        ({"partition": "--sites 2 images.npz"}, "begins with a path below the data folder"),
        ({"partition": "'images.npz --sites 2"}, "No closing quotation"),
        ({"partition": "images.npz --sits 2"}, "unrecognized arguments: --sits 2"),
        ({"variants": {"a": {"title": "a", "partition": "images.npz --sits 2"}}}, "--sits 2"),
        (
            {"partition": "", "variants": {"a": {"title": "a", "partition": "images.npz"}}},
            "partition of a variant, where the study has none",
        ),
        ({"sites": {"few": "images.npz --sites 2"}}, "where partition says how"),
        ({"rows": {"few": {**STUDY["rows"]["few"], "sites": "mine"}}}, "rows few with other"),
        ({"rows": with_row({"evaluate_every": 3})}, "one rule by which all rows stop"),
        ({"rows": with_row({"key_metric": "f1_macro"})}, "one rule by which all rows stop"),
    ],
)
def test_a_partition_that_would_not_be_fair_is_refused(
    changes: dict[str, Any], found: str, tmp_path: Path
) -> None:
    file = tmp_path / "study.json"
    file.write_text(json.dumps({**STUDY, **changes}))
    with pytest.raises(ConfigError, match=found):
        read_study(file)
