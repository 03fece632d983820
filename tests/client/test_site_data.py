"""Which data a site works on: its own file's or synthetic images, and never both in one run."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from asking import requests
from clients import new_client, public_images
from fedward.client.site_data import DataSource
from fedward.config import SyntheticData
from fedward.errors import ConfigError, DataError
from fedward.lab.synthetic import SyntheticSites
from fedward.methods import method_of
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets import build
from fedward.security import policy
from fedward.server.public import PublicImages
from fedward.sites import named_sites
from interrupted import interrupted
from isolated import SITES as ISOLATED
from isolated import isolated, write_sites
from run_files import assert_equal, weights
from running import resume_local, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

RUN = "0" * 32
FILE = "{kind: npz, file: images.npz, labels: {0: A, 1: B, 2: C}}"


def test_one_missing_site_file_gives_no_synthetic_images(tmp_path: Path) -> None:
    (tmp_path / "hospital-a.yaml").write_text(FILE)
    source = DataSource("site-1", tiny("fedavg"), tmp_path, (tmp_path,), synthetic=SyntheticSites())
    refusal = (
        r"expected a file site-1.yaml in one of .*no site's file at all.*found hospital-a.yaml"
    )
    with pytest.raises(ConfigError, match=refusal):
        source.read(class_totals=False)


def test_of_many_files_the_first_are_named(tmp_path: Path) -> None:
    for index in range(7):
        (tmp_path / f"hospital-{index}.yaml").write_text(FILE)
    source = DataSource("site-1", tiny("fedavg"), tmp_path, (tmp_path,), synthetic=SyntheticSites())
    with pytest.raises(ConfigError, match=r"hospital-3.yaml, hospital-4.yaml and 2 more"):
        source.read(class_totals=False)


def test_the_servers_file_and_other_folders_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text(FILE)
    (tmp_path / "resources.json").write_text("{}")
    with_folders = DataSource(
        "site-1",
        tiny("fedavg"),
        tmp_path,
        (tmp_path, tmp_path / "absent"),
        synthetic=SyntheticSites(),
    )
    without = DataSource("site-1", tiny("fedavg"), tmp_path, synthetic=SyntheticSites())
    assert (
        with_folders.read(class_totals=False).labelled.ids
        == without.read(class_totals=False).labelled.ids
    )


def test_without_a_simulation_there_are_no_synthetic_images(tmp_path: Path) -> None:
    source = DataSource("site-1", tiny("fedavg"), tmp_path, (tmp_path,))
    with pytest.raises(ConfigError, match="found none, and this engine has no synthetic images"):
        source.read(class_totals=False)
    images = PublicImages(
        tiny("selffed"), method_of(tiny("selffed")), tmp_path, (tmp_path,), synthetic=None
    )
    assert not images.there


def test_sites_are_named_by_their_files(tmp_path: Path) -> None:
    for name in (
        "hospital-b.yaml",
        "hospital-a.yaml",
        "server.yaml",
        policy.POLICY_FILE,
        "notes.txt",
    ):
        (tmp_path / name).write_text(FILE)
    assert named_sites(tmp_path) == ["hospital-a", "hospital-b"]


def test_a_file_for_any_site_names_none(tmp_path: Path) -> None:
    (tmp_path / "fedward_site.yaml").write_text(FILE)
    assert named_sites(tmp_path) == []


def nothing(folder: Path) -> None:
    """Leave the folder away."""


def a_file(folder: Path) -> None:
    folder.write_text(FILE)


def the_servers(folder: Path) -> None:
    folder.mkdir()
    (folder / "server.yaml").write_text(FILE)


def another_suffix(folder: Path) -> None:
    the_servers(folder)
    (folder / "site-1.yml").write_text(FILE)


def one_of_two(folder: Path) -> None:
    another_suffix(folder)
    (folder / "site-2.yaml").write_text(FILE)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (nothing, "no such folder"),
        (a_file, "a file"),
        (the_servers, "no such file in it"),
        (another_suffix, r"site-1\.yml\. Give each file the ending \.yaml"),
        (one_of_two, r"site-1\.yml\. Give each file"),
    ],
)
def test_site_files_that_are_not_read_are_refused(
    tmp_path: Path, make: Callable[[Path], None], found: str
) -> None:
    make(tmp_path / "sites")
    with pytest.raises(ConfigError, match=f"found {found}"):
        run_local(
            tiny("fedavg"), tmp_path / "run", sites=["site-1"], site_folders=[tmp_path / "sites"]
        )
    assert not (tmp_path / "run").exists()


def test_the_server_has_no_stand_in_among_sites_with_files(tmp_path: Path) -> None:
    assert public_images(tiny("selffed"), tmp_path, [tmp_path]).there
    (tmp_path / "site-1.yaml").write_text(FILE)
    images = public_images(tiny("selffed"), tmp_path, [tmp_path])
    assert not images.there
    with pytest.raises(ConfigError, match=r"no file server.yaml"):
        images.require({"training"})


@pytest.mark.parametrize("began_with_file", [True, False])
def test_a_run_goes_on_with_the_source_it_began_with(tmp_path: Path, began_with_file: bool) -> None:
    folders = {True: [tmp_path / "sites"], False: []}
    moved = tmp_path / "moved"
    for folder in (tmp_path / "sites", moved):
        folder.mkdir()
        (folder / "site-1.yaml").write_text(FILE)

    def source(site_folders: list[Path]) -> DataSource:
        return DataSource("site-1", tiny("fedavg"), tmp_path, site_folders)

    source(folders[began_with_file]).record(RUN, "cpu")
    noted = json.loads((tmp_path / "sources" / f"{RUN}.json").read_text())
    place = f"{tmp_path / 'sites' / 'site-1.yaml'}" if began_with_file else False
    assert noted == {"site_file": place, "device": "cpu"}
    source(folders[not began_with_file]).record(RUN, "cpu")  # only the first one counts
    source(folders[began_with_file]).require_same(RUN)
    source(folders[not began_with_file]).require_same("1" * 32)  # another run
    with pytest.raises(DataError, match=r"site site-1: expected .*, as when this run began"):
        source(folders[not began_with_file]).require_same(RUN)
    if began_with_file:
        source([moved]).require_same(RUN)


@pytest.mark.parametrize("damage", [b"", b"[" * 100_000, b"\xff", b"[]", b"{}", b"null"])
def test_a_damaged_record_of_the_source_is_named(tmp_path: Path, damage: bytes) -> None:
    source = DataSource("site-1", tiny("fedavg"), tmp_path)
    source.record(RUN, "cpu")
    record = tmp_path / "sources" / f"{RUN}.json"
    record.write_bytes(damage)
    with pytest.raises(DataError, match=rf"record {record}: expected .* when this run began"):
        source.require_same(RUN)


def test_a_run_records_the_device_of_a_site(tmp_path: Path) -> None:
    experiment = tiny("fedavg")
    model = build(experiment.net, 8, 3, seed=3).state_dict()
    (request,) = requests(
        experiment, Exchange(1, model, {"site-1": ClientTask("train")}), run=RUN
    ).values()
    assert new_client("site-1", experiment, tmp_path, device="cpu").handle(request).meta["steps"]
    assert json.loads((tmp_path / "sources" / f"{RUN}.json").read_text()) == {
        "site_file": False,
        "device": "cpu",
    }


def test_a_site_does_not_train_when_its_file_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = tiny("fedavg")
    model = build(experiment.net, 8, 3, seed=3).state_dict()
    (request,) = requests(
        experiment, Exchange(1, model, {"site-1": ClientTask("train")}), run=RUN
    ).values()
    DataSource("site-1", experiment, tmp_path, (write_sites(tmp_path / "sites"),)).record(
        RUN, "cpu"
    )
    with caplog.at_level(logging.ERROR):
        answer = new_client("site-1", experiment, tmp_path).handle(request)
    assert answer.meta["error"].startswith("DataError: the site's data or settings")
    assert "as when this run began" in caplog.text
    assert "Traceback" not in caplog.text, "its text says all"


def test_an_unexpected_error_is_traced_in_the_sites_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: DataSource, **_options: bool) -> None:
        raise KeyError("patient 17")

    monkeypatch.setattr(DataSource, "read", broken)
    experiment = tiny("fedavg")
    model = build(experiment.net, 8, 3, seed=3).state_dict()
    (request,) = requests(
        experiment, Exchange(1, model, {"site-1": ClientTask("train")}), run=RUN
    ).values()
    with caplog.at_level(logging.ERROR):
        answer = new_client("site-1", experiment, tmp_path).handle(request)
    assert "KeyError: 'patient 17'" in caplog.text
    assert "Traceback" in caplog.text
    assert "patient" not in answer.meta["error"]


def test_a_run_resumes_only_with_its_site_files(tmp_path: Path) -> None:
    folders = [write_sites(tmp_path / "sites")]
    experiment = isolated("wfedavg", synthetic=SyntheticData(images=40))
    straight = run_local(experiment, tmp_path / "straight", sites=ISOLATED, site_folders=folders)
    interrupted(experiment, tmp_path / "run", ISOLATED, round_=2, answered=1, site_folders=folders)
    with pytest.raises(DataError, match=r"as when this run began"):
        resume_local(tmp_path / "run")
    assert_equal(
        weights(straight),
        weights(resume_local(tmp_path / "run", site_folders=folders)),
    )
