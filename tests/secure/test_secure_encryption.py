"""Secure aggregation between processes of a provisioned federation whose kits hold the contexts."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import local_federation
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from local_federation import HOSPITALS, LEAD, SERVER, Federation
from tiny import clinical
from waiting import PATIENCE

pytestmark = [pytest.mark.secure, pytest.mark.slow]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """The shipped project with the two builders that docs/encryption.md names."""
    provisioning = shutil.copytree(
        local_federation.PROVISIONING, tmp_path_factory.mktemp("copy") / "provisioning"
    )
    project = yaml.safe_load((provisioning / "project.yml").read_text())
    project["builders"] += [
        {"path": "nvflare.lighter.impl.he.HEBuilder"},
        {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
    ]
    (provisioning / "project.yml").write_text(yaml.safe_dump(project, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_federation, "PROVISIONING", provisioning)
        with Federation(tmp_path_factory.mktemp("federation"), image_size=16) as running:
            yield running


@pytest.fixture(scope="module")
def finished(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a clinical FedAvg job on all three hospitals, two rounds."""
    folder = tmp_path_factory.mktemp("finished")
    experiment = clinical(secure_aggregation=True, timeout=120, options={"rounds": 2})
    export_job(experiment, folder / "job", clinical=True)
    with session(federation.kit(LEAD)) as flare:
        return fetch(flare, wait(flare, submit(flare, folder / "job"), PATIENCE), folder / "out")


def test_signed_kits_with_own_rules_run_an_encrypted_job(federation, finished):
    """Each site's data file was written into ``local/`` after the kit had been signed."""
    assert all(
        (federation.kit(hospital) / "startup" / "signature.json").is_file()
        for hospital in HOSPITALS
    )
    rounds = [json.loads(line) for line in (finished / "rounds.jsonl").read_text().splitlines()]
    assert [(row["replied"], row["failed"]) for row in rounds] == [(sorted(HOSPITALS), {})] * 2
    assert json.loads((finished / "run.json").read_text())["status"] == "finished"


def test_the_server_has_no_key_and_keeps_no_single_model(federation, finished):
    server = federation.kit(SERVER)
    assert not list(server.rglob("client_context.tenseal"))
    key = (
        federation.kit(next(iter(HOSPITALS))) / "startup" / "client_context.tenseal"
    ).read_bytes()
    files = [
        path
        for place in (server, federation.folder / "server")
        for path in place.rglob("*")
        if path.is_file()
    ]
    assert files
    assert not [path for path in files if key in path.read_bytes()]
    assert not list(finished.glob("models/*"))
    noted = [json.loads(path.read_text()) for path in sorted(finished.glob("sums/*.json"))]
    assert [sums["sites"] for sums in noted] == [sorted(HOSPITALS)] * 2
    for hospital in HOSPITALS:
        assert len(list((federation.kit(hospital) / "fedward" / "decrypted").rglob("*.json"))) == 2
