"""Jobs of a provisioned federation end with the weights of the same sites in one process."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from fedward.client.admission import Admission
from fedward.config import Experiment, SyntheticData
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.lab.synthetic import synthetic_site
from fedward.security.secret import site_secret
from fedward.seeds import Draws
from fedward.storage.model_files import StoredState
from local_federation import HOSPITALS, LEAD, SERVER, Federation
from run_files import rows
from running import run_local
from tiny import clinical
from waiting import PATIENCE

pytestmark = [pytest.mark.secure, pytest.mark.slow, pytest.mark.usefixtures("without_report")]

EVERYONE = sorted(HOSPITALS)
SERVER_FILE = "server.yaml"

WEIGHTS_OF_LOSSES = {"unlabelled_weight": 1.0, "relation_weight": 1.0}
"""FedIRM's weights as the default policy of a hospital allows them."""

CASES = {
    "fedirm": (clinical("fedirm", options={"rounds": 2, **WEIGHTS_OF_LOSSES}), 0.0),
    "server_labels": (clinical("fedperl", options={"rounds": 2, "server_labels": True}), 0.5),
    "alone": (clinical("alone", options={"rounds": 2, "learns_from": "all_images"}), 0.5),
}
"""Name -> experiment, and the share of its training labels that hospital-c uses."""


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server with labelled images, and three hospitals."""
    folder = tmp_path_factory.mktemp("federation")
    with Federation(folder, image_size=16, environment={"OMP_NUM_THREADS": "1"}) as running:
        give_server_images(running)
        yield running


def give_server_images(federation: Federation) -> None:
    """Write labelled images for the server, and the file that names them into its kit."""
    images = SyntheticData(images=60)
    data = synthetic_site("server", federation.spec, images, seed=1, labels_at_server=True)
    arrays: dict[str, Any] = {}
    for split, part in {"train": data.labelled, "val": data.val, "test": data.test}.items():
        arrays[f"{split}_images"] = part.pixels
        arrays[f"{split}_labels"] = part.labels
    file = federation.folder / "data" / "server.npz"
    np.savez(file, **arrays)
    labels = dict(enumerate(federation.spec.classes))
    text = yaml.safe_dump({"kind": "npz", "file": str(file), "labels": labels})
    (federation.kit(SERVER) / "local" / SERVER_FILE).write_text(text)


@pytest.mark.parametrize(("experiment", "labelled"), CASES.values(), ids=CASES)
def test_weights_are_those_of_one_process(
    experiment: Experiment,
    labelled: float,
    federation: Federation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process draws by the secrets of the hospitals."""
    site_file = federation.kit("hospital-c") / "local" / "fedward_site.yaml"
    site_file.write_text(
        yaml.safe_dump({**yaml.safe_load(site_file.read_text()), "labelled": labelled})
    )
    export_job(experiment, tmp_path / "job", clinical=True)
    with session(federation.kit(LEAD)) as lead:
        run = fetch(
            lead, wait(lead, submit(lead, tmp_path / "job"), PATIENCE), tmp_path / "results"
        )
    folders = {site: federation.kit(site) / "fedward" for site in EVERYONE}

    def draws(self: Admission) -> Draws:
        return Draws(experiment.seed, site_secret(folders[self._site]))

    monkeypatch.setattr(Admission, "draws", draws)
    files = copied_site_files(federation, tmp_path / "sites")
    local = run_local(experiment, tmp_path / "local", sites=EVERYONE, site_folders=[files])
    assert [row["replied"] for row in rows(run, "rounds")] == [
        row["replied"] for row in rows(local, "rounds")
    ]
    assert_same(run / "model.safetensors", local / "model.safetensors")
    for site, folder in folders.items():
        in_process = kept_models(local, local / "sites" / site)
        for theirs, ours in zip(kept_models(run, folder), in_process, strict=True):
            assert_same(theirs, ours)


def copied_site_files(federation: Federation, folder: Path) -> Path:
    """Copy the files that name the images of hospitals and server from their kits to a folder."""
    folder.mkdir()
    for hospital in HOSPITALS:
        file = federation.kit(hospital) / "local" / "fedward_site.yaml"
        shutil.copy(file, folder / f"{hospital}.yaml")
    shutil.copy(federation.kit(SERVER) / "local" / SERVER_FILE, folder)
    return folder


def kept_models(run: Path, site_folder: Path) -> list[Path]:
    """Return the models that a site has kept for itself in a run, in the order of the rounds."""
    run_id = json.loads((run / "run.json").read_text())["id"]
    return sorted(site_folder.glob(f"memory/{run_id}/*.safetensors"))


def assert_same(one: Path, other: Path) -> None:
    first = StoredState(one)
    second = StoredState(other)
    assert list(first) == list(second)
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=0, atol=1e-6, msg=name)
