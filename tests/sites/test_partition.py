"""FedPerl's ten sites from a pooled skin data set."""

import csv
import os
from collections import Counter
from pathlib import Path

import pytest

from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.lab.partition.fedperl import (
    FEDPERL_SOURCES,
    THINNED_SOURCE,
    Sample,
    fedperl_layout,
    read_skin,
    write_site_files,
)
from fedward.sites import load_site


@pytest.fixture
def samples(hospital):
    """Every source has 24 images of 8 lesions; one lesion of a loner's source is also in the
    archive.
    """
    sources = [source for part in FEDPERL_SOURCES.values() for source in part[0]]

    def image(name, index):
        os.link(hospital.folder / hospital.rows[index][1], hospital.folder / f"{name}.png")
        return f"{name}.png"

    made = [
        Sample(
            f"{source}-{index}",
            image(f"{source}-{index}", index),
            "NV" if index < 18 else "MEL",
            f"{source}-{index // 3}",
            source,
        )
        for source in sources
        for index in range(24)
    ]
    shared = Sample("shared", image("shared", 30), "MEL", "vidir_modern-7", THINNED_SOURCE)
    return [*made, shared]


def test_fedperl_layout_is_five_three_two_and_a_server(samples):
    layout = fedperl_layout(samples)
    assert list(layout) == [f"site-{index}" for index in range(1, 11)] + ["server"]
    sources = {site: {sample.source for sample in part} for site, part in layout.items()}
    archive = set(FEDPERL_SOURCES["archive"][0])
    assert set.union(*(sources[site] for site in ["server", *list(layout)[:5]])) == archive
    assert all(sources[f"site-{index}"] == {"rosendahl"} for index in (6, 7, 8))
    assert [sources[site] for site in ("site-9", "site-10")] == [{THINNED_SOURCE}, {"vienna_dias"}]
    used = Counter(sample.sample_id for part in layout.values() for sample in part)
    assert max(used.values()) == 1
    assert {sample.sample_id for sample in samples} - set(used) == {"shared"}
    places = Counter(
        group for group, _ in {(s.group, site) for site, part in layout.items() for s in part}
    )
    assert max(places.values()) == 1


def test_a_source_without_images_is_named(samples):
    with pytest.raises(DataError, match="rosendahl"):
        fedperl_layout([sample for sample in samples if sample.source != "rosendahl"])


def test_site_files_load_without_copies(samples, hospital, tmp_path):
    layout = fedperl_layout(samples)
    files = write_site_files(layout, hospital.folder, tmp_path / "out", labelled=0.5)
    assert [file.stem for file in files] == list(layout)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".csv", ".yaml"}
    for file in files:
        data = load_site(file, DataSpec(classes=("MEL", "NV"), image_size=16))
        expected = sorted(sample.sample_id for sample in layout[file.stem])
        found = [
            i for name in ("labelled", "unlabelled", "val", "test") for i in getattr(data, name).ids
        ]
        assert sorted(found) == expected
        if file.stem == "server":
            assert len(data.val) == len(expected)


def test_read_skin_groups_an_image_without_lesion_alone(tmp_path):
    rows = [
        ("sample_id", "image", "diagnosis", "lesion_id", "source"),
        ("a", "a.jpg", "NV", "", "s"),
    ]
    with (tmp_path / "m.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert read_skin(tmp_path / "m.csv") == [Sample("a", "a.jpg", "NV", "a", "s")]
    with (tmp_path / "m.csv").open("a") as file:
        file.write("b,b.jpg\n")
    with pytest.raises(DataError, match="line 3"):
        read_skin(tmp_path / "m.csv")


def test_what_is_no_skin_data_set_is_refused_in_its_own_terms(tmp_path):
    (tmp_path / "m.csv").write_text("sample_id,image\n")
    for name, place, found in (
        ("none.csv", "", "found no such file"),
        ("m.csv", ", line 1", "missing: diagnosis"),
    ):
        with pytest.raises(
            DataError, match=f"{name}{place}: .*{found}.*Name the folder of a pooled skin"
        ) as caught:
            read_skin(tmp_path / name)
        assert "site file" not in str(caught.value)


def test_files_of_an_interrupted_cut_are_whole_and_the_same_call_writes_the_rest(
    tmp_path, monkeypatch
):
    layout = {name: [Sample(name, f"{name}.jpg", "NV", name, "s")] for name in ("site-1", "site-2")}
    out = tmp_path / "out"
    write_whole = Path.write_bytes

    def killed(path, content):
        if path.name.startswith("site-1.yaml"):
            write_whole(path, content[:20])
            raise KeyboardInterrupt
        write_whole(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            write_site_files(layout, tmp_path, out)
    assert [path.name for path in out.iterdir() if path.suffix in (".csv", ".yaml")] == [
        "site-1.csv"
    ]
    write_site_files(layout, tmp_path, out)
    write_site_files(layout, tmp_path, tmp_path / "other")
    assert {path.name for path in out.iterdir()} == {"site-1.csv", "site-1.yaml"} | {
        "site-2.csv",
        "site-2.yaml",
    }
    for path in out.iterdir():
        text = path.read_text().replace(str(out.resolve()), str((tmp_path / "other").resolve()))
        assert text == (tmp_path / "other" / path.name).read_text()


def test_other_site_files_are_kept_and_nothing_is_written(tmp_path):
    layout = {name: [Sample(name, f"{name}.jpg", "NV", name, "s")] for name in ("site-1", "site-2")}
    first = write_site_files(layout, tmp_path, tmp_path / "out")
    assert write_site_files(layout, tmp_path, tmp_path / "out") == first
    edited = tmp_path / "out" / "site-2.yaml"
    edited.write_text(edited.read_text() + "processes: 2\n")
    (tmp_path / "out" / "site-1.yaml").unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(ConfigError, match=r"site-2\.yaml, .*edited by hand"):
        write_site_files(layout, tmp_path, tmp_path / "out")
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
