"""What a site notes of its pseudo-labels by labels that the run hides.

The numbers are right, and nothing else changes.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedward.client.site_data import DataSource
from fedward.config import DataSpec, SyntheticData
from fedward.lab.pseudo_labels import PseudoLabelObserver, Tally, note
from fedward.lab.synthetic import SyntheticSites, synthetic_site
from fedward.methods import method_of
from fedward.runs.pseudo_labels import notes
from fedward.seeds import Draws
from fedward.sites import load_site
from fedward.storage.rows import PseudoLabelRow
from fedward.training.batches import Pixels
from fedward.training.device_data import DeviceData
from fedward.training.learner import Learner
from fedward.training.networks import Networks
from findings import chest, write_findings
from interrupted import interrupted
from isolated import CLASSES, write_sites
from run_files import assert_equal, rows, steady_rows, weights
from running import resume_local, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-9"]
JUST = {"threshold": 0.14}
"""A threshold that some of a hardly trained network's pseudo-labels reach."""
CPU = torch.device("cpu")


def tally_of(
    truth: list[int], batches: list[list[tuple[int, int, bool]]], classes: int = 3
) -> Tally:
    """Return the tally of batches of (image, pseudo-label, whether it is kept)."""
    tally = Tally(torch.tensor(truth), classes)
    for batch in batches:
        which, labels, keep = (torch.tensor(column) for column in zip(*batch, strict=True))
        tally.add(which, labels, keep.bool())
    return tally


def test_pseudo_labels_counted_by_hand() -> None:
    """Image 0 is of class 2, image 1 of class 0, image 2 of none that is known."""
    batches = [[(0, 2, True), (1, 1, True), (2, 1, True)], [(1, 0, False), (0, 2, True)]]
    assert tally_of([2, 0, -1], batches).counts() == ([0, 1, 2], 2, 4, 3)
    assert tally_of([2, 0, -1], []).counts() == ([0, 0, 0], 0, 0, 0)


ANSWERS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.booleans()), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-1, 2), min_size=5, max_size=5), st.lists(ANSWERS, max_size=4))
def test_counts_equal_a_naive_loop(
    truth: list[int], batches: list[list[tuple[int, int, bool]]]
) -> None:
    with_truth = [
        (truth[image], label, keep)
        for batch in batches
        for image, label, keep in batch
        if truth[image] >= 0
    ]
    kept = [label for _, label, keep in with_truth if keep]
    right = [keep for true, label, keep in with_truth if true == label]
    expected = ([kept.count(c) for c in range(3)], sum(right), len(with_truth), len(right))
    assert tally_of(truth, batches).counts() == expected


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.lab.simulation.write_report", lambda folder: None)
        return run_local(tiny(options=JUST), folder, sites=SITES, checks_pseudo_labels=True)


def id_of(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["id"])


def test_a_judged_run_is_the_same_run(judged: Path, tmp_path: Path) -> None:
    other = run_local(tiny(options=JUST), tmp_path / "run", sites=SITES)
    assert_equal(weights(judged), weights(other))
    for log in ("metrics", "peers", "bytes"):
        assert steady_rows(judged, log) == steady_rows(other, log)
    assert notes(other, id_of(other)) == {}
    assert not list(other.glob("sites/*/pseudo_labels"))


def test_shares_are_those_the_sites_report(judged: Path) -> None:
    """There are two steps of eight images a round.

    All labels are known, so the share kept is the one that is reported.
    """
    reported = {
        (r["round"], r["site"]): r["value"] for r in rows(judged, "metrics") if r["name"] == "kept"
    }
    noted = {
        (row.round, site): row
        for site, rows_ in notes(judged, id_of(judged)).items()
        for row in rows_
    }
    assert set(noted) == set(reported)
    for place, row in noted.items():
        assert row.labelled == 16
        assert sum(row.kept.values()) / row.labelled == pytest.approx(reported[place])
        assert row.kept_right <= min(row.right, sum(row.kept.values()))
    assert 0 < sum(sum(row.kept.values()) for row in noted.values()) < 16 * len(noted)


def test_hidden_labels_are_those_of_the_whole_site(judged: Path) -> None:
    experiment = tiny()
    for site, site_notes in notes(judged, id_of(judged)).items():
        whole = synthetic_site(
            site, experiment.data, SyntheticData(images=40, labelled=1.0), experiment.seed
        )
        seen = synthetic_site(site, experiment.data, experiment.synthetic, experiment.seed)
        labels = dict(zip(whole.labelled.ids, whole.labelled.labels, strict=True))
        assert all(
            labels[name] == label
            for name, label in zip(seen.labelled.ids, seen.labelled.labels, strict=True)
        )
        hidden = np.bincount([labels[name] for name in seen.unlabelled.ids], minlength=8).tolist()
        assert all(list(row.hidden.values()) == hidden for row in site_notes)
        assert (seen.unlabelled.labels == -1).all()


def test_nothing_is_noted_where_nothing_is_labelled(tmp_path: Path) -> None:
    folder = run_local(
        tiny("fedavg", options={"rounds": 1}),
        tmp_path / "run",
        sites=["site-1"],
        checks_pseudo_labels=True,
    )
    assert notes(folder, id_of(folder)) == {}


def test_a_file_of_a_site_tells_what_its_share_hides(tmp_path: Path) -> None:
    """Site 1 sees all of its labels, the others none."""
    folder = write_sites(tmp_path / "sites")
    data = DataSpec(classes=CLASSES, image_size=16)
    experiment = tiny("ssfl", data=data, synthetic=None, options={"rounds": 1})
    run = run_local(
        experiment,
        tmp_path / "run",
        sites=["site-1", "site-2"],
        site_folders=[folder],
        checks_pseudo_labels=True,
    )
    notes_by_site = notes(run, id_of(run))
    assert list(notes_by_site) == ["site-2"], "the other hides nothing"
    whole = load_site(folder / "site-2.yaml", experiment.data, labelled=1.0)
    counts = np.bincount(whole.labelled.labels, minlength=len(experiment.data.classes)).tolist()
    assert list(notes_by_site["site-2"][0].hidden.values()) == counts
    source = DataSource("site-2", experiment, tmp_path, [folder])
    assert PseudoLabelObserver(source).hidden_labels == dict(
        zip(whole.labelled.ids, whole.labelled.labels.tolist(), strict=True)
    )


def test_a_repeated_round_is_noted_once(tmp_path: Path, judged: Path) -> None:
    experiment = tiny(options=JUST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "interrupted.run_local",
            lambda *given, **named: run_local(*given, **named, checks_pseudo_labels=True),
        )
        interrupted(experiment, tmp_path / "run", SITES, 2, 3)
    folder = resume_local(tmp_path / "run", checks_pseudo_labels=True)
    assert notes(folder, id_of(folder)) == notes(judged, id_of(judged))


def test_rows_survive_a_file_and_a_cut_line(tmp_path: Path) -> None:
    row = PseudoLabelRow(1, 0, {"a": 3, "b": 0}, 2, 5, 4, {"a": 4, "b": 6})
    note(tmp_path / "sites" / "x", "run", row)
    path = tmp_path / "sites" / "x" / "pseudo_labels" / "run.jsonl"
    path.write_text(path.read_text() + '{"round": 2, "par')
    assert notes(tmp_path, "run") == {"x": [row]}
    assert notes(tmp_path, "another") == {}
    assert path.parent.stat().st_mode & 0o077 == 0


def test_worker_processes_note_the_same(tmp_path: Path, judged: Path) -> None:
    folder = run_local(
        tiny(options=JUST), tmp_path / "run", sites=SITES, checks_pseudo_labels=True, workers=2
    )
    assert notes(folder, id_of(folder)) == notes(judged, id_of(judged))


def test_images_that_people_refused_are_not_counted(tmp_path: Path) -> None:
    """Nothing trains on them, so only the other images are counted."""
    experiment = tiny("ssfl", options=JUST)
    source = DataSource(
        "site-1", experiment, tmp_path / "sites" / "site-1", synthetic=SyntheticSites()
    )
    algorithm = method_of(experiment)
    data = source.read(class_totals=False)
    refused = data.unlabelled.ids[:4]
    others = data.unlabelled.ids[4:]
    networks = Networks(experiment, algorithm, CPU)
    images = DeviceData(replace(data, refused=frozenset(refused)), CPU)
    learner = Learner("site-1", experiment, algorithm, networks, images, Draws(experiment.seed))
    observer = PseudoLabelObserver(source)
    observer.observed(learner, "run").train(dict(networks.template), [], 1)
    (row,) = notes(tmp_path, "run")["site-1"]
    truth = observer.hidden_labels
    hidden = np.bincount([truth[name] for name in others], minlength=8).tolist()
    assert list(row.hidden.values()) == hidden
    trained_on = images["unlabelled"]
    assert isinstance(trained_on, Pixels)
    of_the_others = Pixels.of(data.unlabelled.named(others), CPU)
    assert torch.equal(trained_on.pixels, of_the_others.pixels), "in the order of the labels"


def test_findings_have_no_such_numbers_and_train_as_without(tmp_path: Path) -> None:
    sites = write_findings(tmp_path)
    experiment = chest("ssfl", options={"rounds": 1})
    names = ["site-1", "site-2"]
    observed, unobserved = (
        run_local(
            experiment,
            tmp_path / f"{checked}",
            sites=names,
            site_folders=[sites],
            checks_pseudo_labels=checked,
        )
        for checked in (True, False)
    )
    assert_equal(weights(observed), weights(unobserved))
    assert notes(observed, id_of(observed)) == {}
