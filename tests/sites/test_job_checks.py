"""Whether a job can use a site file, and which of its caller's options the refusal proposes."""

from pathlib import Path

import pytest

from fedward.cli import main
from fedward.errors import ConfigError, DataError, offering
from fedward.labels import NO_FINDING
from fedward.sites import require_one_site
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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "table.csv",
            "expected a site file in YAML, found a data set (.csv). Cut it into site files: "
            "fedward partition ... --sites 2.",
        ),
        ("table", "expected a readable YAML file, found text without fields. Write or repair it."),
    ],
)
def test_a_table_in_place_of_a_site_file_is_named_and_not_quoted(
    name: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text("Dateiname;Diagnose\nMeier-Anna.png;MEL\n")
    with pytest.raises(DataError) as refused:
        read_site_file(file)
    assert str(refused.value) == f"site table, file {file}: {text}"


def test_the_site_files_of_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found no such file in it"):
        require_one_site(tmp_path)
    only_file = tmp_path / "fedward_site.yaml"
    only_file.touch()
    with pytest.raises(ConfigError, match=r"found a folder\. Name the file itself"):
        require_one_site(tmp_path)
    only_file.unlink()
    files = [tmp_path / f"site-{number}.yaml" for number in (1, 2, 3, 4, 5, 10)]
    for number, rest in ((1, ""), (2, f", {files[1]}")):
        files[number - 1].touch()
        with pytest.raises(ConfigError) as refused:
            require_one_site(tmp_path)
        assert refused.value.remedy == f"Name one of these: {files[0]}{rest}."
    for file in files:
        file.touch()
    with pytest.raises(ConfigError) as refused:
        require_one_site(tmp_path)
    assert refused.value.remedy == (
        f"Name one of these: {', '.join(map(str, files[:5]))}, and 1 more."
    )
    require_one_site(files[0])


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
