"""Whether a job can use a site file, and which of its caller's options the refusal proposes."""

from pathlib import Path

import pytest

from fedward.cli import main
from fedward.errors import DataError, offering
from fedward.labels import NO_FINDING
from fedward.sites.job_checks import check_labels
from fedward.sites.site_file import read_site_file

OWN = "kind: npz\nfile: images.npz\nlabels: {0: naevus, 1: my melanoma}\n"
CLASSES = ("NV", "MEL")


def refusal(folder: Path, text: str = OWN) -> str:
    file = folder / "site-1.yaml"
    file.write_text(text)
    with pytest.raises(DataError) as refused:
        check_labels(read_site_file(file), CLASSES)
    return refused.value.remedy


def test_a_refusal_proposes_what_the_command_offers(tmp_path: Path) -> None:
    training = """--set "data.classes=[naevus, my melanoma]\""""
    assert refusal(tmp_path) == f"Map the labels to these, or train on the site's own ({training})."
    with offering("classes"):
        assert refusal(tmp_path) == (
            "Map the labels to these, or name the site's own (--classes naevus 'my melanoma')."
        )
        several = OWN.replace("naevus", f"naevus, 2: {NO_FINDING}")
        assert refusal(tmp_path, several) == "Map the labels to these."
    with offering():
        assert refusal(tmp_path) == "Map the labels to these."


def test_the_doctor_proposes_its_own_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "site-1.yaml"
    file.write_text(OWN)
    (tmp_path / "images.npz").touch()
    assert main(["doctor", str(file), "--classes", *CLASSES]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "or name the site's own (--classes naevus 'my melanoma')." in printed
    assert "--set" not in printed
