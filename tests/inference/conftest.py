"""A finished run of two hospitals."""

import pytest
from hospitals import CLASSES, SITES, Finished, site_file, write_npz

from fedward.config import DataSpec
from running import run_local
from tiny import tiny


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("federation")
    sizes = {"train": 90, "val": 60, "test": 120}
    npz = write_npz(folder / "all.npz", **sizes)
    sites = folder / "sites"
    sites.mkdir()
    for number, site in enumerate(SITES):
        indices = {split: list(range(number, images, 2)) for split, images in sizes.items()}
        site_file(sites / f"{site}.yaml", npz, indices=indices)
    spec = DataSpec(classes=CLASSES, image_size=16, channels=1, views="upright")
    experiment = tiny(
        "fedavg", data=spec, synthetic=None, options={"images_per_round": 48, "learning_rate": 0.01}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.lab.simulation.write_report", lambda path: None)
        run = run_local(experiment, folder / "run", sites=SITES, site_folders=[sites])
    return Finished(run, sites, npz)
