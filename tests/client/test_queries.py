"""A site's queries: how long a round waits for people."""

from pathlib import Path

import pytest

from clients import new_client
from fedward.client import labels
from fedward.config import DataSpec
from hospital import HERE, hospital, request
from isolated import CLASSES, write_sites


@pytest.mark.parametrize(("wait_for_labels", "waited"), [(600, 30.0), (20, 20.0)])
def test_a_site_waits_for_half_of_the_jobs_timeout_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for_labels: int, waited: float
) -> None:
    """An answer that comes after the 60 seconds of this job would not count."""
    slept = list[float]()
    monkeypatch.setattr(labels, "sleep", slept.append)
    monkeypatch.setattr(labels, "monotonic", lambda: sum(slept))
    folder = write_sites(tmp_path / "files")
    (folder / f"{HERE}.yaml").write_text(
        "kind: npz\nfile: images.npz\nlabels: {0: A, 1: B, 2: C}\nlabelled: 0.6\n"
        f"annotation: queue\nwait_for_labels: {wait_for_labels}\n"
    )
    options = {"target_fraction": 0.9, "participants": None, "images_at_most": None}
    data = DataSpec(classes=CLASSES, image_size=16)
    experiment = hospital("fedal", options=options).model_copy(
        update={"data": data, "synthetic": None, "timeout": 60}
    )
    site = new_client(HERE, experiment, tmp_path / "site", [folder])
    counts = site.handle(request(experiment, round_=2, task="query")).meta["label_counts"]
    assert counts["waiting"] == counts["asked"] > 0
    assert sum(slept) == waited
