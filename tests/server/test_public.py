"""What a run asks of the server's own images before it begins."""

from pathlib import Path
from typing import Any

import pytest

from fedward.config import DataSpec
from fedward.errors import ConfigError
from fedward.lab.local import LocalTransport, Sites
from isolated import CLASSES, SITES, write_sites
from public_images import write_public_npz
from running import run_experiment
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")


class Untouched(LocalTransport):
    """No site is asked for anything."""

    def exchange(self, requests: Any, timeout: int, deliver: Any) -> None:
        raise AssertionError("a round has begun")


@pytest.mark.parametrize("policy", ["validation", "gated_validation"])
@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ({"train": 4, "val": 0, "test": 4}, r"server\.yaml names none"),
        (None, r"no file server\.yaml"),
    ],
)
def test_a_validation_policy_needs_images_before_round_one(
    policy: str, images: dict[str, int] | None, reason: str, tmp_path: Path
) -> None:
    sites = write_sites(tmp_path / "sites")
    if images:
        write_public_npz(sites / "public.npz", **images)
        (sites / "server.yaml").write_text(
            "{kind: npz, file: public.npz, labels: {0: A, 1: B, 2: C}}"
        )
    data = DataSpec(classes=CLASSES, image_size=16)
    experiment = tiny(data=data, synthetic=None, options={"policy": policy})
    transport = Untouched(Sites(experiment, tmp_path / "cache", [sites]), SITES)
    with pytest.raises(
        ConfigError,
        match=f"method fedperl: expected labelled validation images.*{reason}.*policy=static",
    ):
        run_experiment(experiment, tmp_path / "run", transport, site_folders=[sites])
