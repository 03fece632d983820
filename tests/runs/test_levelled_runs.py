"""Jobs of ordinary hospitals give the same model, bit for bit, with and without levelling."""

from pathlib import Path

import pytest

from fedward.config import SyntheticData
from hospital import hospital
from run_files import assert_equal, rows, weights
from running import run_local

pytestmark = pytest.mark.usefixtures("without_report")

SITES = {
    "fedperl": ["site-1", "site-2", "site-3"],
    "fedal": ["site-1", "site-2", "site-3"],
    "selffed": ["site-1", "site-2", "site-3"],
    "isofed": [f"site-{number}" for number in range(1, 7)],
}
"""Sites with odd numbers have all their labels in the last one, those with even numbers none."""


@pytest.mark.parametrize("method", SITES)
def test_ordinary_hospitals_count_as_before(method: str, tmp_path: Path) -> None:
    options = {"rounds": 2}
    if method == "selffed":
        options |= {"warm_up": 0, "images_at_most": 8}
    if method == "isofed":
        images = SyntheticData(images=80, labelled=1.0, isolated=True)
    else:
        images = SyntheticData(images=80, labelled=0.5)
    experiment = hospital(method, options=options).model_copy(update={"synthetic": images})
    models = []
    for replies in (3, 1):
        job = experiment.model_copy(update={"minimum_replies": replies})
        folder = run_local(job, tmp_path / str(replies), sites=SITES[method])
        assert all(len(row["replied"]) >= 3 for row in rows(folder, "rounds"))
        models.append(weights(folder))
    assert_equal(*models)
