"""What is said and refused before round 1: every image is opened once, and looked at."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedward
from fedward import cli
from fedward.errors import ConfigError, DataError
from fedward.flare.simulated_sites import simulated_leaks
from fedward.jobs import load_experiment
from fedward.lab.duration import Passes, SiteSize, passes_of
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted, command_of
from fedward.lab.simulation import Simulation
from fedward.sites import named_sites, open_site, read_site, site_csv
from fedward.sites.data_file import read_data_file, read_measuring_cut
from fedward.sites.leaks import Place, leak_counts, leak_notes
from fedward.sites.rendering import Frames, Rendering, Slices

SMALL = ("rounds=1", "images_per_round=8", "batch=4", "net=small_cnn")


def picture(path: Path, number: int, top: int = 255) -> None:
    """Write a picture of 16 pixels a side that no other number has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, top + 1, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def folder_of_classes(folder: Path, classes: int, images: int) -> Path:
    for place in range(classes):
        for index in range(images):
            picture(folder / f"c{place}" / f"{index:02}.png", 100 * place + index)
    return folder


def said(sites: Path, out: Path, job: str = "fedavg", **choices: bool) -> tuple[list[str], str]:
    """Return the sites that take part, and what is said, in single spaces."""
    changes = SMALL if job == "fedavg" else ()
    experiment = load_experiment(job, changes, data=read_data_file(sites))
    paragraphs: list[str] = []
    simulation = Simulation(experiment, out, named_sites(sites), site_files=sites)
    names = list(simulation.entered(paragraphs.append, **choices).sites)
    return names, " ".join(" ".join(paragraphs).split())


def test_it_says_what_is_trained_on_and_what_is_measured_where(tmp_path):
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)
    partition(source, tmp_path / "sites", Wanted(sites=2, labelled=0.25))
    names, text = said(tmp_path / "sites", tmp_path / "run", "fedperl")
    assert names == ["site-1", "site-2"]
    # 20 images of each class at a site: 12 to train, of which 3 are labelled, 3 and 5.
    assert "site-1 6 18 6 10 0 2/2 site-2 6 18 6 10 0 2/2 all 12 36 12 20 0 " in text
    assert (
        "validation: not measured: c0, c1 (a site needs 5 images of a class to measure it); so no "
        "round can be chosen as the best test: all 2 classes at each of 2 sites time: "
    ) in text
    assert re.search(r"time: (\d+ \w+ to \d+ \w+|a few seconds) here", text)


def test_it_says_where_a_single_class_would_choose_the_round(tmp_path):
    sites = tmp_path / "sites"
    sites.mkdir()
    for number, validation in ((1, "aaaaaa"), (2, "aaaaabbbbb")):
        rows = ["sample_id,image,label,split"]
        for split, labels in (("train", "ab"), ("val", validation), ("test", "aaaaabbbbb")):
            for label in labels:
                name = f"{number}-{len(rows)}.png"
                picture(tmp_path / name, 100 * number + len(rows))
                rows.append(f"{len(rows)},{name},{label},{split}")
        table = tmp_path / f"site-{number}.csv"
        table.write_text("\n".join(rows))
        (sites / f"site-{number}.yaml").write_text(
            f"{{kind: manifest, folder: {tmp_path}, manifest: {table}, columns: {{group: null}}}}"
        )
    (sites / "data.json").write_text('{"classes": ["a", "b"], "image_size": 16}')
    _, text = said(sites, tmp_path / "run")
    assert (
        "validation: a at each of 2 sites; b at site-2; site-1 measures a single class, so a model "
        "that always answers it looks perfect there test: all 2 classes at each of 2 sites time: "
    ) in text


def test_every_image_is_opened_once_and_a_run_takes_it_from_the_cache(tmp_path):
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)
    partition(source, tmp_path / "sites", Wanted(sites=2))
    said(tmp_path / "sites", tmp_path / "run")
    experiment = load_experiment("fedavg", SMALL, data=read_data_file(tmp_path / "sites"))
    opened = []
    cache = tmp_path / "run" / "sites" / "site-1" / "cache"
    site = read_site(tmp_path / "sites" / "site-1.yaml", experiment.data)
    open_site(site, experiment.data, cache, after_each_file=lambda: opened.append(1))
    assert not opened
    # The run may begin in a folder that has these images alone.
    folder = tmp_path / "run"
    run = fedward.run(experiment, folder, site_files=tmp_path / "sites")
    assert run.info.status == "finished"
    assert len(list(cache.glob("*.npy"))) == 1


def test_each_table_is_read_once(tmp_path, monkeypatch):
    """On a share of a hospital, to look for 100,000 files takes longer than to open some."""
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)
    sites = tmp_path / "sites"
    partition(source, sites, Wanted(sites=2))
    tables = []
    read_table = site_csv.read_table

    def reading(path, *arguments):
        tables.append(path.name)
        return read_table(path, *arguments)

    monkeypatch.setattr(site_csv, "read_table", reading)
    said(sites, tmp_path / "run")
    assert tables == ["site-1.csv", "site-2.csv"]
    experiment = load_experiment("fedavg", SMALL, data=read_data_file(sites))
    assert simulated_leaks(named_sites(sites), [sites], experiment.data) == {}
    assert tables == ["site-1.csv", "site-2.csv"] * 2


def test_images_that_cannot_be_read_are_refused_before_round_1_once_a_site(tmp_path, capsys):
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)
    sites = tmp_path / "sites"
    partition(source, sites, Wanted(sites=2))
    broken = [line.split(",")[1] for line in (sites / "site-2.csv").read_text().splitlines()[1:]][
        :4
    ]
    for name in broken:
        (source / name).write_bytes(b"no image")
    words = ["run", "fedavg", "--site-files", f"{sites}", "--out", f"{tmp_path / 'run'}"]
    words += [word for change in SMALL for word in ("--set", change)]
    capsys.readouterr()
    assert cli.main(words) == 1
    printed = capsys.readouterr()
    assert "1 of 2 that cannot be used" in printed.err
    assert f"at most 5% of 40 rows unusable, found 4: 4 like row 2 ({broken[0]}): " in printed.err
    assert printed.err.count("expected a whole image") == 1
    assert not (tmp_path / "run" / "run.json").exists()
    assert "or go on without these sites (--allow-missing)" in printed.err
    # The other site's images are not opened again.
    assert cli.main([*words, "--allow-missing"]) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["sites"] == ["site-1"]
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("expected a whole image") == 1


@pytest.mark.parametrize(("classes", "images", "sites"), [(2, 30, 3), (5, 12, 3)])
def test_where_nothing_is_measured_the_command_that_is_offered_cures_it(
    tmp_path, monkeypatch, capsys, classes, images, sites
):
    monkeypatch.chdir(tmp_path)
    folder_of_classes(tmp_path / "data", classes, images)
    words = ["partition", "data", "--sites", f"{sites}", "--out", "sites"]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "measure fewer than 2 classes on test images. This cut measures" in " ".join(lines)
    with pytest.raises(DataError, match=r"(?s)none .2 of the classes needed.*--evaluate-together"):
        said(Path("sites"), Path("run"))
    assert said(Path("sites"), Path("run"), unmeasured=True)[0] == named_sites(Path("sites"))
    # The doctor says the same as the run.
    assert cli.main(["doctor", "sites", "--out", "sheets"]) == 0
    examined = capsys.readouterr().out
    assert "This run would say nothing about its model: sites need 5 test images" in examined
    better = Path("sites/measures_more.sh").read_text()
    assert examined.splitlines()[-1] == f"Next: {better.strip()}"
    (place,) = [place for place, line in enumerate(lines) if line.startswith("Next: ")]
    command = "\n".join(lines[place:]).removeprefix("Next: fedward ").replace("\\\n", "")
    assert cli.main(shlex.split(command)) == 0
    names, text = said(Path("sites-measured"), Path("run-measured"))
    assert names[0] == "evaluation"
    assert f"test: all {classes} classes at evaluation" in text


@pytest.mark.proves(
    "files",
    "a folder of site files whose proposed cut is another command",
    "not shown: only a `fedward partition` is proposed",
)
@pytest.mark.parametrize(
    "content",
    [
        b"curl example.org | sh",
        b"fedward partition data --out x; curl example.org",
        b"fedward partition $(id) --out x",
        b'fedward partition "$(id)" --out x',
        b"fedward partition data --out x\nid",
        b"fedward partition data --out 'x\n\x1b[2J'",
        b"fedward partition data --out 'x",
        b"fedward run fedavg",
        b"\xff\xfe",
    ],
)
def test_no_other_command_is_offered_than_a_cut(tmp_path, content):
    (tmp_path / "measures_more.sh").write_bytes(content)
    assert read_measuring_cut(tmp_path) == ""
    (tmp_path / "measures_more.sh").write_text("fedward partition 'my $data' --out x\n")
    assert read_measuring_cut(tmp_path) == "fedward partition 'my $data' --out x"


def test_a_cut_whose_sites_measure_one_class_each_is_offered_a_better_one(
    tmp_path, monkeypatch, capsys
):
    """Together they measure both, and no site tells them apart."""
    monkeypatch.chdir(tmp_path)
    folder_of_classes(tmp_path / "data", 2, 44)
    files = sorted(path.relative_to(tmp_path) for path in (tmp_path / "data").rglob("*.png"))
    rows = ["image,label,hospital"]
    for place, file in enumerate(files):
        name = file.parent.name
        is_rare = place % 11 == 0
        own = "A" if name == files[0].parent.name else "B"
        rows.append(f"{file},{name},{'AB'['BA'.index(own)] if is_rare else own}")
    Path("all.csv").write_text("\n".join(rows))
    assert cli.main(["partition", "all.csv", "--by", "hospital", "--out", "sites"]) == 0
    text = " ".join(capsys.readouterr().out.replace("\\\n", "").split())
    assert "A cut that measures more: fedward partition all.csv --by hospital" in text
    assert "--evaluate-together" in text


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(sites=3, gamma=0.5, labelled=0.0, labelled_sites=2, seed=4, oracle=True),
        Wanted(by="a hospital", val=0.0, test=0.4, classes=["b c", "a"], pooled=True),
        Wanted(sites=1, columns={"label": "dx", "group": ""}, images=Path("my images")),
        Wanted(sites=1, columns={"label": "B"}, findings=["A, left", "B"], evaluate_together=True),
        Wanted(
            sites=2,
            rendering=Rendering(
                window=(40.0, 400.0), frames=Frames(), slices=Slices(at_most=4), fit="crop"
            ),
        ),
    ],
)
def test_the_command_that_is_offered_cuts_in_the_same_way(monkeypatch, wanted):
    cuts = []
    monkeypatch.setattr("fedward.lab.partition.cut.partition", lambda *cut: cuts.append(cut) or "")
    words = shlex.split(command_of(Path("my data"), Path("out"), wanted))
    assert cli.main(words[1:]) == 0
    ((source, out, parsed),) = cuts
    assert (source, out) == (Path("my data"), Path("out"))
    assert replace(parsed, findings=list(parsed.findings)) == replace(
        wanted, findings=list(wanted.findings), classes=list(wanted.classes)
    )


def test_labels_that_nobody_shows_or_gives_are_missed_before_round_1(tmp_path):
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)
    partition(source, tmp_path / "sites", Wanted(sites=2, labelled=0.0))
    for job in ("fedavg", "isofed", "fedal"):
        with pytest.raises(DataError, match="No site shows a label"):
            said(tmp_path / "sites", tmp_path / job, job)
    assert said(tmp_path / "sites", tmp_path / "survey", "survey")[0] == ["site-1", "site-2"]
    partition(source, tmp_path / "silent", Wanted(sites=2, labelled=0.5))
    with pytest.raises(DataError, match=r"nobody answers at any site.*--oracle"):
        said(tmp_path / "silent", tmp_path / "fedal", "fedal")
    partition(source, tmp_path / "asked", Wanted(sites=2, labelled=0.0, oracle=True))
    assert said(tmp_path / "asked", tmp_path / "run", "fedal")[0] == ["site-1", "site-2"]


def test_evaluated_together_means_one_site_with_the_same_images_in_the_same_splits(tmp_path):
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)

    def samples(folder: str, wanted: Wanted) -> dict[str, set[tuple[str, str]]]:
        partition(source, tmp_path / folder, wanted)
        of_site = {}
        for name in named_sites(tmp_path / folder):
            rows = (tmp_path / folder / f"{name}.csv").read_text().splitlines()[1:]
            of_site[name] = {(row.split(",")[0], row.split(",")[4]) for row in rows}
        return of_site

    alone = samples("alone", Wanted(sites=2, val=0.1, test=0.3))
    together = samples("together", Wanted(sites=2, val=0.1, test=0.3, evaluate_together=True))
    everything = set().union(*alone.values())
    assert {split: sum(row[1] == split for row in everything) for split in ("val", "test")} == {
        "val": 8,
        "test": 24,
    }
    assert together["evaluation"] == {row for row in everything if row[1] != "train"}
    for site, rows in alone.items():
        assert together[site] == {row for row in rows if row[1] == "train"}


def test_shares_of_splits_that_the_data_has_or_that_leave_nothing_are_refused(tmp_path):
    source = folder_of_classes(tmp_path / "data" / "test", classes=2, images=20).parent
    folder_of_classes(source / "train", classes=2, images=20)
    with pytest.raises(ConfigError, match="--test: the data set has test images of its own"):
        partition(source, tmp_path / "sites", Wanted(sites=1, test=0.1))
    expected = r"--val 0.8 and --test 0.25 \(the default\) leave nothing to train on"
    with pytest.raises(ConfigError, match=expected):
        partition(source / "train", tmp_path / "sites", Wanted(sites=1, val=0.8))


def test_leaks_into_the_test_images_are_counted_by_themselves():
    def places(*splits):
        return [Place("site-1", split, f"{number}") for number, split in enumerate(splits)]

    validation = [places("train", "val"), places("val", "test")]
    test = [places("train", "val", "test"), places("test", "train", "train")]
    assert leak_counts({"picture": validation + test, "patient": []}) == {
        "picture": {"in_several_splits": 4, "in_training_and_test": 2}
    }
    assert "None is in training and test" in leak_notes({"picture": validation})[0]
    assert "2 are in training and test: the test" in leak_notes({"picture": validation + test})[0]


def test_leaks_between_sites_dark_images_and_unused_columns_are_counted(tmp_path, capsys):
    sites = tmp_path / "sites"
    for number in (1, 2):
        rows = ["sample_id,image,label,split,pid"]
        for index in range(30):
            name = f"s{number}-{index}"
            picture(tmp_path / f"{name}.png", 100 * number + index, 9 if index == 3 else 255)
            split = "test" if index % 3 == 0 else "train"
            rows.append(f"{name},{name}.png,{'ab'[index % 2]},{split},P{index // 2}")
        (tmp_path / f"site-{number}.csv").write_text("\n".join(rows))
        sites.mkdir(exist_ok=True)
        (sites / f"site-{number}.yaml").write_text(
            f"{{kind: manifest, folder: {tmp_path}, manifest: {tmp_path}/site-{number}.csv, "
            "columns: {group: null}}"
        )
    (sites / "data.json").write_text('{"classes": ["a", "b"], "image_size": 16}')
    shutil.copy(tmp_path / "s1-1.png", tmp_path / "s2-0.png")
    _, text = said(sites, tmp_path / "run")
    experiment = load_experiment("fedavg", SMALL, data=read_data_file(sites))
    names = named_sites(sites)
    simulation = Simulation(experiment, tmp_path / "run", names, site_files=sites)
    leaks = {"picture": {"in_several_splits": 1, "in_training_and_test": 1}}
    assert simulation.entered(lambda _: None).leaks == leaks
    # FLARE's simulator records the same.
    assert simulated_leaks(names, [sites], experiment.data) == leaks
    assert (
        "LEAK: 1 picture is in several of training, validation and test, such as s1-1 (site-1, "
        "train) and s2-0 (site-2, test). 1 is in training and test: the test numbers will be too "
        "good"
    ) in text
    assert (
        "looks wrong: 2 of 60 images are nearly black or of one grey (1 at site-1, such as s1-3, "
        "1 at site-2, such as s2-3)."
    ) in text
    contradiction = (
        "CONTRADICTION: 1 picture has several labels: s1-1 (site-1, train: b) and s2-0 (site-2, "
        "test: a). Decide which is right, and correct the others or take them out"
    )
    assert contradiction in text
    capsys.readouterr()
    assert cli.main(["survey", f"{sites}", "--out", f"{tmp_path / 'survey'}"]) == 0
    assert contradiction in " ".join(capsys.readouterr().out.split())
    assert "Nothing uses the column pid" in text
    assert "columns: {group: pid} in the site files" in text
    assert "validation: no site has validation images" in text
    capsys.readouterr()
    words = ["doctor", f"{sites}", "--out", f"{tmp_path / 'sheets'}"]
    assert cli.main(words) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "All sites together: LEAK: 1 picture is in several of" in text
    assert f"All sites together: {contradiction}" in text
    assert text.endswith("Next: mend the faults above, and call fedward doctor again.")
    picture(tmp_path / "s2-0.png", 777)
    assert cli.main(words) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"Next: fedward run fedavg --site-files {sites}"
    )


def test_a_notebook_refuses_classes_of_others_once_and_makes_no_run(tmp_path):
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)
    partition(source, tmp_path / "sites", Wanted(sites=2))
    with pytest.raises(DataError) as raised:
        fedward.run(fedward.experiment("fedavg"), tmp_path / "run", site_files=tmp_path / "sites")
    experiment = fedward.experiment("fedavg", site_files=tmp_path / "sites", rounds=2)
    assert (experiment.data.classes, experiment.options["rounds"]) == (("c0", "c1"), 2)
    assert str(raised.value).count("field labels") == 1
    assert "\n  site-1, site-2: field labels" in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_an_experiment_for_site_files_never_trains_on_synthetic_images(tmp_path):
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)
    partition(source, tmp_path / "sites", Wanted(sites=2))
    experiment = fedward.experiment("fedavg", site_files=tmp_path / "sites", rounds=2)
    with pytest.raises(ConfigError, match="Name their folder with site_files="):
        fedward.run(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_exported_job_is_for_the_images_and_the_sites_of_the_files(tmp_path, capsys):
    source = folder_of_classes(tmp_path / "data", classes=2, images=40)
    partition(source, tmp_path / "sites", Wanted(sites=2))
    words = ["jobs", f"{tmp_path / 'jobs'}", "--site-files", f"{tmp_path / 'sites'}"]
    assert cli.main(words) == 2
    assert "needs one job" in capsys.readouterr().err
    assert cli.main([*words, "--only", "fedavg"]) == 0
    assert "test: all 2 classes at each of 2 sites" in capsys.readouterr().out
    job = tmp_path / "jobs" / "fedavg"
    server = json.loads((job / "app" / "config" / "config_fed_server.json").read_text())
    assert server["workflows"][0]["args"]["experiment"]["data"]["classes"] == ["c0", "c1"]
    meta = json.loads((job / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", "site-1", "site-2"]}


def test_the_passes_of_a_run_follow_from_its_steps():
    fedavg = load_experiment("fedavg", [*SMALL, "rounds=3", "evaluate_every=3"])
    # Two steps of four images in each round, and 5 images evaluated before and after.
    assert passes_of(fedavg, [SiteSize(10, 90, 5)]) == Passes(3 * 8, 0, 2 * 5, 0, 3)
    ssfl = load_experiment("ssfl", [*SMALL, "rounds=3", "evaluate_every=3"])
    # A strong view is learned from besides, and a weak one is looked at.
    assert passes_of(ssfl, [SiteSize(10, 90, 5)]) == Passes(3 * 16, 3 * 8, 2 * 5, 0, 3)
    groups = load_experiment(
        "mt_wfedavg", ["rounds=3", "batch=4", "images_per_round=null", "local_epochs=1"]
    )
    sites = [SiteSize(8, 0, 0), SiteSize(0, 12, 0)]
    assert passes_of(groups, sites).training == 3 * (8 + 12)
