"""Each site reports whether its images are synthetic; no setting of the run does."""

import json
from pathlib import Path

import pytest

from fedward.config import SyntheticData
from fedward.errors import RunError
from fedward.server.loop import _Loop
from isolated import SITES, isolated, write_sites
from running import resume_local, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")


def origins(folder: Path) -> dict[str, bool]:
    synthetic_sites: dict[str, bool] = json.loads((folder / "run.json").read_text())["synthetic"]
    return synthetic_sites


def test_sites_say_that_their_images_were_drawn(tmp_path: Path) -> None:
    run = run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    assert origins(run) == dict.fromkeys(SITES, True)


def test_site_files_count_also_where_the_job_would_draw(tmp_path: Path) -> None:
    job = isolated(
        "fedprox",
        synthetic=SyntheticData(images=40, labelled=0.5),
        options={"rounds": 1, "warm_up": 0},
    )
    run = run_local(
        job, tmp_path / "run", sites=SITES, site_folders=[write_sites(tmp_path / "sites")]
    )
    assert origins(run) == dict.fromkeys(SITES, False)


def test_a_resumed_run_still_knows_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last evaluation, in which all sites answer again, is the one that breaks."""

    def broken(*_: object) -> None:
        raise RunError("run", expected="nothing", found="an end", remedy="Resume it.")

    with monkeypatch.context() as patch:
        patch.setattr(_Loop, "finish", broken)
        with pytest.raises(RunError):
            run_local(tiny("fedavg"), tmp_path / "run", sites=SITES)
    assert origins(tmp_path / "run") == dict.fromkeys(SITES, True)
    assert origins(resume_local(tmp_path / "run")) == dict.fromkeys(SITES, True)
