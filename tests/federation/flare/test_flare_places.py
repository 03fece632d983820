"""Where the server writes and where a site looks."""

from pathlib import Path

import pytest
from nvflare.apis.workspace import Workspace

from fedward.errors import ConfigError
from fedward.federation.flare.places import run_folder, site_folders, site_state


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    for variable in ("FEDWARD_RUNS", "FEDWARD_SITES"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "local").mkdir()
    (tmp_path / "startup").mkdir()
    return Workspace(str(tmp_path))


def test_by_default_everything_lies_in_flares_own_folders(workspace, tmp_path):
    assert site_folders(workspace) == [tmp_path / "local"]
    assert site_state(workspace) == tmp_path / "fedward"
    assert run_folder(workspace, "job-id", "fedperl") == tmp_path / "job-id" / "fedward"


def test_named_folders_come_on_top(workspace, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDWARD_RUNS", "/data/runs")
    monkeypatch.setenv("FEDWARD_SITES", "/data/sites")
    assert site_folders(workspace) == [tmp_path / "local", Path("/data/sites")]
    assert run_folder(workspace, "job-id", "fedperl") == Path("/data/runs/fedperl")


@pytest.mark.parametrize("variable", ["FEDWARD_RUNS", "FEDWARD_SITES"])
def test_a_relative_folder_is_refused(workspace, monkeypatch, variable):
    monkeypatch.setenv(variable, "runs")
    with pytest.raises(ConfigError, match=variable):
        site_folders(workspace), run_folder(workspace, "job-id", "fedperl")
