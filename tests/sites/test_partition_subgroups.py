"""Columns of subgroups that a cut carries from a CSV into its site files, runs and reports."""

import argparse
import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from deciding import read_csv
from fedward import cli
from fedward.client.admission import Admission
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.lab.partition.arguments import add_arguments
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted, command_of
from fedward.runs.judge import judge
from fedward.runs.run import Run
from fedward.sites import load_site
from fedward.sites.subgroups import NOT_STATED

AGES = ("7.0", "39.5", "40", "64", "65.0", "88", "")
SEXES = ("female", "Male", "male", "unknown")


@pytest.fixture
def clinic(tmp_path):
    """A CSV of 168 images of two classes that differ by brightness, each of its own patient."""
    folder = tmp_path / "clinic"
    folder.mkdir()
    rows = [["image", "label", "patient", "sex", "age", "site"]]
    for number in range(168):
        rng = np.random.default_rng(number)
        grey = rng.normal((60, 190)[number % 2], 15, (16, 16)).clip(0, 255).astype(np.uint8)
        Image.fromarray(grey).save(folder / f"{number}.png")
        sex = SEXES[number // 2 % 4]
        age = AGES[number // 2 % 7]
        rows.append([f"{number}.png", "ab"[number % 2], f"P{number}", sex, age, "arm, left"])
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


WANTED = {"sex": (), "age": ("0-39", "40-64", "65+"), "site": ()}


def test_all_sites_get_the_columns_and_the_same_groups(clinic, tmp_path):
    text = partition(clinic / "t.csv", tmp_path / "s", Wanted(sites=2, subgroups=WANTED))
    assert (
        "Right answers are also counted by sex (female, Male) and age (0-39, 40-64, 65+) and site "
        '("arm, left").'
    ) in " ".join(text.split())
    spec = DataSpec.model_validate(json.loads((tmp_path / "s/data.json").read_text()))
    of_source = {row["image"]: row for row in csv.DictReader((clinic / "t.csv").open())}
    for name in ("site-1", "site-2"):
        content = yaml.safe_load((tmp_path / f"s/{name}.yaml").read_text())
        groups = {"sex": ["female", "Male"], "age": ["0-39", "40-64", "65+"], "site": ["arm, left"]}
        assert content["subgroups"] == groups
        rows = list(csv.DictReader((tmp_path / f"s/{name}.csv").open()))
        assert rows
        for row in rows:
            expected = {column: of_source[row["image"]][column] for column in WANTED}
            assert {column: row[column] for column in WANTED} == expected
        test = load_site(tmp_path / f"s/{name}.yaml", spec).test
        for image, (sex, age, place) in zip(test.ids, test.subgroups, strict=True):
            source = of_source[image]
            known = {"female": "female", "male": "Male"}
            assert sex == known.get(source["sex"].lower(), NOT_STATED)
            number = float(source["age"] or -1)
            band = "0-39" if number < 40 else "40-64" if number < 65 else "65+"
            assert age == (band if source["age"] else NOT_STATED)
            assert place == "arm, left"


def test_without_the_option_nothing_is_carried(clinic, tmp_path):
    partition(clinic / "t.csv", tmp_path / "s", Wanted(sites=2))
    assert "subgroups" not in (tmp_path / "s/site-1.yaml").read_text()
    header = (tmp_path / "s/site-1.csv").read_text().splitlines()[0]
    assert header == "sample_id,image,label,group,split"


@pytest.mark.parametrize("allowed", [True, False])
def test_a_run_reports_the_groups_if_the_policy_lets_them_out(
    clinic, tmp_path, monkeypatch, allowed
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Admission, "lets_subgroups_out", lambda self: allowed)
    words = ["--sites", "2", "--subgroups", "sex", "age=0-39,40-64,65+", "--out", "s"]
    assert cli.main(["partition", "clinic/t.csv", "--test", "0.5", *words]) == 0
    changes = ["rounds=1", "images_per_round=16", "participants=null", "net=small_cnn"]
    settings = [word for change in changes for word in ("--set", change)]
    assert cli.main(["run", "fedavg", "--site-files", "s", *settings, "--out", "r"]) == 0
    counted = {group.title for group in judge(Run.load(Path("r"))).subgroups}
    report = Path("r/report.html").read_text()
    if allowed:
        assert {"female (sex)", "Male (sex)", "40-64 (age)"} <= counted
        assert "Male (sex)" in report
    else:
        assert not counted
        assert "(sex)" not in report


@pytest.mark.parametrize(
    ("subgroups", "said"),
    [
        ({"sx": ()}, r"columns of the CSV \(image, label, .*\), found sx \(did you mean sex\?\)"),
        ({"image": ()}, "columns that say nothing of a single patient, found image, which names"),
        ({"patient": ()}, "found patient, which names images or patients"),
        ({"label": ()}, "other names than sample_id, image, .*, found label. Rename the column"),
        ({"sex": ("female", "mal")}, r"it has female, Male\), found none of mal \(did you mean"),
        ({"age": ("0-50", "40-64")}, "age: bands that do not overlap.*as in --subgroups age=0-39"),
        ({"age": ("0-39", "200+")}, r"groups of age with an image .*found none of 200\+"),
        ({"sex": ("not stated",)}, "no group not stated"),
        (dict.fromkeys(("sex", "age", "site", "place"), ()), "found place"),
    ],
)
def test_columns_and_groups_that_cannot_be_counted_are_refused(clinic, subgroups, said):
    with pytest.raises(ConfigError, match=said):
        read_csv(clinic / "t.csv", clinic, CsvOptions(subgroups=subgroups))


def test_a_column_of_many_values_needs_its_groups(clinic):
    text = (clinic / "t.csv").read_text().splitlines()
    with_code = [f"{line},{'code' if not place else place % 12}" for place, line in enumerate(text)]
    (clinic / "t.csv").write_text("\n".join(with_code))
    with pytest.raises(
        ConfigError,
        match=r"code: expected a column of 1 to 11 values, found 12: 0, 1, 2, .*code=0-39,40-64,65",
    ):
        read_csv(clinic / "t.csv", clinic, CsvOptions(subgroups={"code": ()}))


def with_column(clinic: Path, cells: list[str]) -> Path:
    """Add a column ``code`` to the CSV, with these cells in turn; return its path."""
    table = clinic / "t.csv"
    rows = list(csv.reader(table.open(newline="")))
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(
            [*row, cells[number % len(cells)] if number >= 0 else "code"]
            for number, row in enumerate(rows, -1)
        )
    return table


@pytest.mark.parametrize(
    ("cells", "groups"),
    [
        (["1", "1.0", "2", "2,0", ""], ["1", "2"]),
        (["Mu\u0308nchen", "München", "KÖLN", "Köln"], ["KÖLN", "München"]),
        (["1", "2", "99"], ["1", "2"]),
    ],
)
def test_cells_that_are_the_same_are_one_group(clinic, cells, groups):
    pool = read_csv(with_column(clinic, cells), clinic, CsvOptions(subgroups={"code": ()}))
    assert pool.subgroups == {"code": groups}


def test_images_in_no_group_are_counted(clinic, tmp_path):
    cells = ["20", "85+", "65 years", "99", "", "NaN", "-1"]
    wanted = Wanted(sites=2, subgroups={"code": ("0-64", "65+")})
    text = " ".join(partition(with_column(clinic, cells), tmp_path / "s", wanted).split())
    count = 2 * 168 // len(cells)
    assert (
        f"Images in no group of code, which count as not stated: {count}, with 65 years, 99."
        in text
    )


@pytest.mark.parametrize(
    ("subgroups", "said"),
    [
        (
            {"sx": (), "patient": (), "image": (), "label": ()},
            r"(?s)3 things must .*found sx.*found patient, image, which name .*found label",
        ),
        ({"code": (), "number": ()}, r"(?s)2 things must .*code: expected.*number: expected"),
        (
            {"code": ("0-9", "200+")},
            r"it has 0, 1, .*, \.\.\.\), found none of 200\+\. Name .* alone\.$",
        ),
        ({"empty": ()}, "empty: expected a column with values, found empty cells.* another column"),
        ({"empty": ("a",)}, "groups of empty with an image, found none of a"),
        ({"code": ("a", "A")}, "code: cells that are in one group each"),
        ({"code": ("7", "7.0")}, "code: cells that are in one group each"),
        (dict.fromkeys(["sex", "age", "site", "a", "b", "c"], ()), "at most 5 columns, found 6"),
    ],
)
def test_all_that_is_wrong_with_subgroups_is_told_at_once(clinic, subgroups, said):
    table = clinic / "t.csv"
    rows = list(csv.reader(table.open(newline="")))
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*rows[0], "code", "number", "empty", "a", "b", "c"])
        for number, row in enumerate(rows[1:]):
            writer.writerow([*row, number % 40, number, "", "x", "x", "x"])
    with pytest.raises(ConfigError, match=said):
        read_csv(table, clinic, CsvOptions(subgroups=subgroups))


def test_a_band_without_an_end_says_why_it_holds_no_99(clinic):
    table = with_column(clinic, ["45", "99"])
    with pytest.raises(
        ConfigError, match=r"it has 45, 99\), found none of 65\+.* 99 may stand for no"
    ):
        read_csv(table, clinic, CsvOptions(subgroups={"code": ("0-64", "65+")}))
    pool = read_csv(table, clinic, CsvOptions(subgroups={"code": ("0-64", "65-120")}))
    assert pool.subgroups == {"code": ["0-64", "65-120"]}


def test_the_printed_command_has_columns_that_can_be_counted(clinic, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["partition", "clinic/t.csv", "--sites", "2", "--out", "s"]
    assert cli.main([*words, "--subgroups", "sxe", "patient", "age=0-39,40+"]) == 2
    command = shlex.split(capsys.readouterr().err.strip().splitlines()[-1])
    place = command.index("--subgroups")
    assert command[place : place + 3] == ["--subgroups", "sex", "age=0-39,40+"]
    assert "patient" not in command
    assert cli.main(command[1:]) == 0
    assert cli.main([*words, "--subgroups", "zzz=a,b"]) == 2
    refusal = capsys.readouterr().err
    assert refusal.endswith(
        "No column is the likeliest for subgroups, so no command is proposed.\n"
    )


def test_a_column_that_is_named_twice_is_refused(clinic, tmp_path, capsys):
    words = ["partition", f"{clinic / 't.csv'}", "--sites", "2", "--out", f"{tmp_path / 's'}"]
    for more in (["sex=female", "sex=male"], ["sex=female", "--subgroups", "sex=male"]):
        assert cli.main([*words, "--subgroups", *more]) == 2
        assert "each once, found sex several times" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "first", "second"),
    [("labels", "A=x", "A=y"), ("titles", "A=x", "A=y"), ("columns", "group=age", "group=sex")],
)
def test_what_has_two_values_is_refused(clinic, tmp_path, capsys, option, first, second):
    """One of them would get lost."""
    words = ["partition", f"{clinic / 't.csv'}", "--sites", "2", "--out", f"{tmp_path / 's'}"]
    assert cli.main([*words, f"--{option}", first, second]) == 2
    repeated = first.partition("=")[0]
    assert f"--{option}: expected each once, found {repeated} several" in capsys.readouterr().err


def test_columns_that_look_like_options_and_groups_with_commas_come_back(clinic):
    table = clinic / "t.csv"
    table.write_text(table.read_text().replace("sex,", "--sex,", 1))
    wanted = Wanted(
        sites=2, subgroups={"--sex": (), "site": ("arm, left",), "age": ("0-39", "40+")}
    )
    command = shlex.split(command_of(table, Path("out"), wanted))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert dict(parser.parse_args(command[2:]).subgroups) == wanted.subgroups
    pool = read_csv(table, clinic, CsvOptions(subgroups=wanted.subgroups))
    assert pool.subgroups["site"] == ["arm, left"]


def test_a_wrong_subgroup_is_told_with_all_else(clinic):
    table = clinic / "t.csv"
    table.write_text(table.read_text().replace("image,label", "image,outcome"))
    both = r"(?s)2 things must .*1\. .*a column of labels.*2\. .*found sx"
    with pytest.raises(DataError, match=both):
        read_csv(clinic / "t.csv", clinic, CsvOptions(subgroups={"sx": ()}))


def test_what_has_no_columns_refuses_the_option(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eyes" / "A").mkdir(parents=True)
    words = ["partition", "eyes", "--subgroups", "sex", "--out", "s"]
    assert cli.main([*words, "--sites", "2"]) == 2
    assert "--subgroups: expected a CSV, found eyes" in capsys.readouterr().err
    assert cli.main(words) == 2
    assert "expected --sites or --by, found --subgroups" in capsys.readouterr().err


def test_the_command_is_repeated_with_the_groups(tmp_path):
    wanted = Wanted(sites=2, subgroups={"body site": (), "age": ("0-39", "40+")})
    command = shlex.split(command_of(Path("t.csv"), Path("out"), wanted))
    place = command.index("--subgroups")
    assert command[place : place + 3] == ["--subgroups", "body site", "age=0-39,40+"]
