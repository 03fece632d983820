"""Each site's own model beside the federation's: paired by site, on the same test images."""

import json

import pytest
from pages import report
from run_folders import SITES, write_run

from fedward.digests import file_digest
from fedward.evaluation import last_rounds, paired_difference
from fedward.report import Run
from fedward.report.joining import Joining
from fedward.report.other_runs import split

KEY = "balanced_accuracy"


def alone(folder, whole, site, gain):
    """Write a run of one site whose values are so much lower than those of the whole run."""
    folder = write_run(folder, method="fedavg", rounds=1, sites=(site,))
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").open()]
    rows = [row for row in rows if row["site"] == site and row["split"] != "train"]
    for row in rows:
        row["value"] = row["value"] - gain if row["name"] == KEY else row["value"]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def whole(tmp_path):
    """A run of ten sites."""
    folder = write_run(tmp_path / "whole", rounds=4)
    (folder / "model.safetensors").write_bytes(b"weights")  # none reads them, they have a hash
    return folder


def test_a_site_that_only_rows_name_is_the_last(whole, tmp_path):
    """As of a run.json that somebody changed."""
    info = json.loads((whole / "run.json").read_text())
    info["sites"].remove("site-2")
    (whole / "run.json").write_text(json.dumps(info))
    own = [alone(tmp_path / site, whole, site, 0.1) for site in ("site-2", "site-3")]
    joining = Joining.of(Run.load(whole), [Run.load(folder) for folder in own])
    assert [line.site for line in joining.lines] == ["site-3", "site-2"]


def test_gains_are_paired_by_site(whole, tmp_path):
    gains = {"site-8": 0.1, "site-2": 0.05, "site-3": -0.02}
    own = [alone(tmp_path / site, whole, site, gain) for site, gain in gains.items()]
    _, page = report(whole, *own)
    *body, total = page.tables["table-joining"][1:]
    joined = {choice.site: choice for choice in last_rounds(Run.load(whole).metrics, KEY).sites}
    assert body == [
        [
            site,
            str(joined[site].images),
            f"{joined[site].test - gains[site]:.3f}",
            f"{joined[site].test:.3f}",
            f"{gains[site]:+.3f}",
        ]
        for site in ("site-2", "site-3", "site-8")
    ]
    found = paired_difference(list(gains.values()), [0.0] * 3)
    assert total[-1] == f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    assert found.low < 0
    assert (
        "At 2 of 3 sites, the federation's model has a higher test balanced accuracy than the one "
        "that the site trained alone. It is lower at site-3. The mean difference is "
        f"{found.mean:+.3f} (95 % interval over sites {found.low:+.3f} to {found.high:+.3f}, which "
        "includes 0): lowest -0.020 at site-3, highest +0.100 at site-8." in page.text
    )
    assert (
        f"Not shown to be better than what sites train alone: {found.mean:+.3f} (95 % interval "
        f"{found.low:+.3f} to {found.high:+.3f}) in test balanced accuracy" in page.text
    )
    assert "table-comparison" not in page.tables, "runs alone are no lines among the compared runs"


def tuned(folder, whole, site, gain):
    """Write a run of one site that began with the whole run's model, and is so much better."""
    folder = alone(folder, whole, site, -gain)
    about = json.loads((folder / "run.json").read_text())
    about["init"] = {"sha256": file_digest(whole / "model.safetensors")}
    (folder / "run.json").write_text(json.dumps(about))
    return folder


def test_fine_tuning_is_paired_with_the_federations_model(whole, tmp_path):
    gains = {"site-1": 0.03, "site-2": 0.01}
    own = [tuned(tmp_path / site, whole, site, gain) for site, gain in gains.items()]
    both = Joining.of(Run.load(whole), [Run.load(folder) for folder in own])
    assert both.gain is None
    assert both.tuning.mean == pytest.approx(0.02)
    assert [line.tuning for line in both.lines] == pytest.approx([0.03, 0.01])
    _, page = report(whole, *own, alone(tmp_path / "own", whole, "site-1", 0.1))
    head, first, second, _ = page.tables["table-joining"]
    assert head[2:] == [
        "Alone",
        "Federation",
        "Gain by joining",
        "Fine-tuned",
        "Gain by fine-tuning",
    ]
    assert [first[0], first[4], first[6]] == ["site-1", "+0.100", "+0.030"]
    assert [second[0], second[2], second[4], second[6]] == ["site-2", "n/a", "n/a", "+0.010"]
    assert (
        "At 2 of 2 sites, the model that the site fine-tuned has a higher test balanced accuracy "
        "than the federation's. The mean difference is +0.020 " in page.text
    )


def test_another_start_is_no_fine_tuning(whole, tmp_path):
    own = tuned(tmp_path / "own", whole, "site-1", 0.1)
    about = json.loads((own / "run.json").read_text()) | {"init": {"sha256": "0" * 64}}
    (own / "run.json").write_text(json.dumps(about))
    (line,) = Joining.of(Run.load(whole), [Run.load(own)]).lines
    assert line.tuned is None
    assert line.alone == pytest.approx(line.joined + 0.1)


def test_other_runs_stay_among_the_compared_ones(whole, tmp_path):
    other = write_run(tmp_path / "other", method="fedavg", rounds=2)
    _, page = report(whole, other, alone(tmp_path / "own", whole, "site-1", 0.1))
    assert [line[0] for line in page.tables["table-comparison"][1:]] == ["fedperl", "fedavg"]
    assert [line[0] for line in page.tables["table-joining"][1:]] == ["site-1", "Mean over sites"]
    assert (
        "At 1 of 1 site, the federation's model has a higher test balanced accuracy than the one "
        "that the site trained alone. The mean difference is +0.100, of one site and without an "
        "interval." in page.text
    )


def test_several_runs_of_a_site_count_by_their_mean(whole, tmp_path):
    own = [Run.load(alone(tmp_path / str(gain), whole, "site-1", gain)) for gain in (0.1, 0.2)]
    (line,) = Joining.of(Run.load(whole), own).lines
    assert line.gain == pytest.approx(0.15)


def test_other_test_images_are_not_paired(whole, tmp_path):
    own = alone(tmp_path / "own", whole, "site-1", 0.1)
    path = own / "metrics.jsonl"
    path.write_text(path.read_text().replace('"n": ', '"n": 9'))
    assert Joining.of(Run.load(whole), [Run.load(own)]) is None
    assert "Joining or training alone" not in report(whole, own)[1].text


def test_only_single_sites_of_the_run_are_alone(tmp_path, whole):
    run = Run.load(whole)
    other = Run.load(write_run(tmp_path / "x", rounds=1, sites=("elsewhere",)))
    single = Run.load(write_run(tmp_path / "y", rounds=1, sites=(SITES[0],)))
    assert split(run, [other, single]) == ([single], [other])
    assert split(single, [single]) == ([], [single])
