"""The page shows what the rows say, needs nothing else, and survives hostile and partial runs."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import escape
from statistics import fmean, median

import pytest
from pages import report
from run_folders import CLASSES, SITES, write_run

from fedward.errors import RunError
from fedward.evaluation import best_global, best_per_site, last_rounds
from fedward.evaluation.names import OVERALL
from fedward.evaluation.small_counts import withhold_small_counts
from fedward.report import Run, comparison, figures, peers, write_report
from fedward.report.model_file import ModelFile
from fedward.report.page import _settings
from fedward.report.shades import shade
from fedward.report.site_order import community_order
from fedward.runs.exchanges import merged_rounds
from fedward.storage.info import INTERRUPTED, Summary
from fedward.text import natural

KEY = "balanced_accuracy"


def shown(value, digits=3):
    return "n/a" if value is None else f"{value:.{digits}f}"


@pytest.fixture
def make_run(tmp_path):
    """A function that writes a run folder below the test's own folder."""
    return lambda name="run", **changes: write_run(tmp_path / name, **changes)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A whole run and its page."""
    folder = write_run(tmp_path_factory.mktemp("full") / "run", rounds=6, warm_up=2)
    return Run.load(folder), report(folder)[1]


def test_numbers_of_the_three_protocols_equal_the_rows(full):
    run, page = full
    end, shared, own = (
        choose(run.metrics, KEY) for choose in (last_rounds, best_global, best_per_site)
    )
    body = page.tables["table-protocols"][1:]
    for line, a, b, c in zip(body, end.sites, shared.sites, own.sites, strict=False):
        n = run.at(a.site, "test", 0)["accuracy"].n
        assert line == [a.site, str(n), shown(a.test), shown(b.test), shown(c.test), str(c.round)]
    assert body[-1][0] == "Mean over sites"
    assert body[-1][2:] == [shown(end.test), shown(shared.test), shown(own.test), ""]
    assert page.tables["table-protocols"][0][2] == "Last rounds (4, 5, 6)"
    when = "Over the last evaluations (rounds 4, 5, 6)"
    assert f"{when}, test balanced accuracy is {end.test:.3f} on average" in page.text
    assert len(body) == len(SITES) + 1


def test_accuracy_is_also_shown_over_all_images(make_run):
    folder = make_run(rounds=4)
    info = json.loads((folder / "run.json").read_text())
    info["experiment"]["key_metric"] = "accuracy"
    (folder / "run.json").write_text(json.dumps(info))
    _, page = report(folder, folder)
    metrics = Run.load(folder).metrics
    found = [choose(metrics, "accuracy") for choose in (last_rounds, best_global, best_per_site)]
    last = page.tables["table-protocols"][-1]
    assert last[0] == "Over all images"
    assert last[2:5] == [shown(selection.pooled) for selection in found]
    assert last[2] != page.tables["table-protocols"][-2][2], (
        "sites have different numbers of images"
    )
    assert page.tables["table-comparison"][1][3:7] == [
        shown(v) for v in (found[0].test, found[0].pooled, found[1].test, found[2].test)
    ]
    assert f"and {found[0].pooled:.3f} where each image of all sites counts once" in page.text


def test_numbers_per_site_equal_the_rows(full):
    run, page = full
    chosen = best_global(run.metrics, KEY).round
    body = page.tables["table-overall"][1:]
    for line, site in zip(body, SITES, strict=False):
        rows = run.at(site, "test", chosen)
        assert line == [site, *(shown(rows[name].value) for name in OVERALL)]
    for line, summary in zip(body[-2:], (fmean, median), strict=True):
        expected = [
            summary(run.at(site, "test", chosen)[name].value for site in SITES) for name in OVERALL
        ]
        assert line[1:] == [shown(value) for value in expected]


def test_numbers_per_class_equal_the_rows(full):
    run, page = full
    chosen = best_global(run.metrics, KEY).round
    for line, name in zip(page.tables["table-classes"][1:], CLASSES, strict=True):
        rows = [run.at(site, "test", chosen) for site in SITES]
        here = [row for row in rows if row[f"support/{name}"].value]
        means = [
            fmean(row[f"{kind}/{name}"].value for row in here) for kind in ("f1", "auroc", "auprc")
        ]
        support = sum(int(row[f"support/{name}"].value) for row in here)
        others = len(SITES) - len(here)
        assert line == [name, str(support), str(len(here)), str(others), *map(shown, means)]
    for line, site in zip(page.tables["table-class-sites"][1:], SITES, strict=True):
        row = run.at(site, "test", chosen)
        for cell, name in zip(line[1:], CLASSES, strict=True):
            value = row[f"auroc/{name}"].value
            support = row[f"support/{name}"].value
            assert cell == ("·" if value is None else f"{value:.2f} {support:.0f}")


def test_sites_bytes_and_failures_equal_the_rows(full):
    run, page = full
    for line, site in zip(page.tables["table-sites"][1:], SITES, strict=False):
        rows = run.at(site, "test", 0)
        present = rows["accuracy"].classes
        trained = sum(site in row.replied for row in run.rounds)
        failed = sum(site in row.failed for row in run.rounds)
        counts = ["16", "144"] if trained else ["n/a", "n/a"]
        n = str(rows["accuracy"].n)
        known = f"{len(present)} of 8"
        assert line == [site, *counts, n, n, str(trained), str(failed), known, known]
    for line in page.tables["table-bytes"][1:]:
        mine = [row for row in run.bytes if row.site == line[0]]
        assert line[1] == f"{sum(row.down for row in mine) / 1e6:,.1f}"
        assert line[2] == f"{sum(row.up for row in mine) / 1e6:,.1f}"
        assert line[3] == str(sum(row.peer_models for row in mine))
    failures = [
        [str(row.round), site, reason] for row in run.rounds for site, reason in row.failed.items()
    ]
    assert failures
    assert page.tables["table-failures"][1:] == failures


def test_tiles_and_sentences_equal_the_rows(full):
    run, page = full
    shared = best_global(run.metrics, KEY)
    auroc = fmean(run.at(site, "test", shared.round)["auroc_macro"].value for site in SITES)
    assert page.by_id["tile-auroc"].split()[0] == shown(auroc)
    assert page.by_id["tile-round"].split()[0] == str(shared.round)
    model = f"the selected model (round {shared.round})"
    assert (
        f"On average over 10 sites, {model} has a macro AUROC of {auroc:.3f} on test images"
        in page.text
    )
    assert "At 4 sites, some classes have fewer than five test images, or none" in page.text
    assert "Too few test images for a reliable number: site-10 (8)." in page.text


def test_the_selected_and_the_final_model_have_their_values_and_rounds(full):
    run, page = full
    selected = best_global(run.metrics, KEY).round

    def at(round_, name=KEY):
        return fmean(run.at(site, "test", round_)[name].value for site in SITES)

    values = {site: run.at(site, "test", selected)[KEY].value for site in SITES}
    low, high = (choose(values, key=values.get) for choose in (min, max))
    assert (
        f"Its test balanced accuracy is {at(selected):.3f} on average (lowest {values[low]:.3f} at "
        f"{low}, highest {values[high]:.3f} at {high}); before training it was {at(0):.3f}."
    ) in page.text
    final = (
        f"The final model (round 6) has a test balanced accuracy of {at(6):.3f} and a macro AUROC "
        f"of {at(6, 'auroc_macro'):.3f}."
    )
    assert final in page.text
    assert (f"{final} It is the selected round." in page.text) == (selected == 6)


def test_the_model_to_deploy_is_named_with_its_hash(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1, sites=SITES[:2])
    run = Run.load(folder)
    assert ModelFile.of(run) is None, "there is no file"
    for name in ("best", "model"):
        (folder / f"{name}.safetensors").write_bytes(name.encode())
    for best, name in ((1, "best"), (None, "model")):
        info = run.info.model_copy(update={"summary": Summary(best_round=best)})
        digest = hashlib.sha256(name.encode()).hexdigest()
        file = ModelFile.of(replace(run, info=info))
        assert file == ModelFile(f"{name}.safetensors", digest)
    assert report(folder)[1].by_id["model-file"].endswith(digest)
    unfinished = run.info.model_copy(update={"status": "running"})
    assert ModelFile.of(replace(run, info=unfinished)) is None


def test_few_validation_images_select_by_luck(tmp_path, full):
    folder = write_run(tmp_path / "run", rounds=2, sites=SITES[:2])
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(
        "".join(
            json.dumps(row | ({"n": 13} if row["split"] == "val" else {})) + "\n" for row in rows
        )
    )
    text = report(folder)[1].text
    assert "26 validation images to select a round by" in text
    assert "With so few, a share of right answers may be off by 0.18" in text, (
        "by Wilson's interval"
    )
    assert "to select a round by" not in full[1].text


def test_few_images_are_marked(full):
    _, page = full
    few = [attrs for tag, attrs in page.tags if attrs.get("class") == "few"]
    # site-10 has 8 test images: its count, three protocols, nine metrics and the three classes it
    # has.
    assert len(few) == 1 + 3 + 9 + 3


def test_the_page_needs_nothing_but_itself(make_run):
    html, page = report(make_run(rounds=3), make_run("avg", method="fedavg", rounds=3))
    assert (
        re.findall(r"(?i)https?:|//[a-z]|url\((?!#)|@import|<link|<iframe|javascript:", html) == []
    )
    references = [
        v
        for _, attrs in page.tags
        for k, v in attrs.items()
        if k in ("src", "href", "xlink:href", "data")
    ]
    assert {reference for reference in references if not reference.startswith("#")} == {
        "clinician.html"
    }
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]


def test_the_page_may_run_its_own_script_alone(make_run):
    """By the script's hash: what a run folder holds could not run, even if it got into the page as
    a script.
    """
    html, page = report(make_run(rounds=1))
    (policy,) = [
        attrs["content"]
        for tag, attrs in page.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"


def test_contents_lead_to_all_sections(make_run):
    _, page = report(make_run(rounds=3))
    sections = [attrs["id"] for tag, attrs in page.tags if tag == "h2"]
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert links == ["clinician.html", *(f"#{name}" for name in sections)]
    assert len(sections) == 10


def test_sites_sort_as_a_person_would(make_run):
    """In every table, and in pictures: site-2 comes before site-10, wherever run.json has them."""
    names = sorted(SITES)
    assert names[1] == "site-10"
    _, page = report(make_run(rounds=3, sites=tuple(names)))
    for name in ("sites", "protocols", "overall", "class-sites", "bytes"):
        assert [line[0] for line in page.tables[f"table-{name}"][1:11]] == list(SITES), name
    assert sorted(["b", "a10", "a9x", "a9", "10", "9"], key=natural) == [
        "9",
        "10",
        "a9",
        "a9x",
        "a10",
        "b",
    ]


def test_the_page_is_well_formed_and_accessible(full):
    _, page = full
    assert page.unclosed == []
    drawings = [attrs for tag, attrs in page.tags if tag == "svg"]
    assert len(drawings) == 1 + len(SITES) + 2 + 1 + 2
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in drawings)
    ids = [attrs["id"] for tag, attrs in page.tags if "id" in attrs and tag in ("table", "h2")]
    assert len(ids) == len(set(ids))
    assert sum(tag == "table" for tag, _ in page.tags) == sum(
        tag == "caption" for tag, _ in page.tags
    )


def test_hostile_names_are_only_text(make_run):
    sites = (
        "<script>alert(1)</script>",
        "$x_1$ \\frac",
        "_quiet",
        '"><b onmouseover=x>&amp;',
        "Klinik Süd {{ 7*7 }}",
    )
    folder = make_run(rounds=3, warm_up=0, sites=sites)
    html, page = report(folder)
    assert html.count("<script") == 1, "the page's own"
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert sorted(line[0] for line in page.tables["table-sites"][1:-1]) == sorted(sites)
    assert page.unclosed == []


@pytest.mark.parametrize("name", [r"$\frac{$", "$x$", "_quiet", "<b>"])
def test_names_of_runs_are_drawn_as_they_are(make_run, name):
    """matplotlib would take what stands between dollars for mathematics, and fail or draw it as
    such.
    """
    first = make_run("a", rounds=2)
    second = make_run("b", rounds=2)
    folder = first.with_name(name)
    first.rename(folder)
    _, page = report(folder, second)
    assert [line[0] for line in page.tables["table-comparison"][1:]] == [
        f"fedperl ({name})",
        "fedperl (b)",
    ]
    lines = {name: {0: 0.1, 1: 0.2}, "other": {0: 0.2, 1: 0.1}}
    drawn = [
        figures.comparison(lines, "m"),
        figures.label_curves(lines, "m"),
        figures.heat_map([name, "other"], [[1, 0], [0, 1]], "words", "down", "across"),
    ]
    assert all(f">{escape(name, quote=False)}</text>" in svg for svg in drawn)


@pytest.mark.parametrize(
    ("status", "words"),
    [("failed", "round 12: too few replies"), ("running", "still going on, or it was killed")],
)
def test_a_run_that_did_not_end_well_says_so_first(make_run, status, words):
    html, page = report(make_run(rounds=3, status=status))
    assert words in page.text
    assert html.index('class="banner') < html.index('id="results"')


def test_a_run_that_a_person_stopped_has_not_failed(make_run):
    folder = make_run(rounds=3, status="failed")
    info = json.loads((folder / "run.json").read_text())
    info["summary"]["reason"] = INTERRUPTED
    (folder / "run.json").write_text(json.dumps(info))
    text = report(folder)[1].text
    assert "This run was stopped by a person, with 3 rounds on record." in text
    assert "fedward status FOLDER names the command that continues it" in text
    assert "This run failed" not in text


def test_a_finished_run_has_no_banner(full):
    assert not [attrs for _, attrs in full[1].tags if "banner" in (attrs.get("class") or "")]


def test_a_run_cut_off_in_mid_line_is_reported(make_run):
    folder = make_run(rounds=3, status="running")
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-11])
    assert "cut off" in report(folder)[1].text


def test_what_was_in_several_splits_is_said_first(make_run):
    folder = make_run(rounds=3)
    info = json.loads((folder / "run.json").read_text())
    info["leaks"] = {
        "picture": {"in_several_splits": 3, "in_training_and_test": 0},
        "patient": {"in_several_splits": 1, "in_training_and_test": 1},
    }
    (folder / "run.json").write_text(json.dumps(info))
    html, page = report(folder)
    assert (
        "3 pictures and 1 patient are in several of training, validation and test. 1 patient is in "
        "both training and test: the numbers are too good." in page.text
    )
    assert html.index("in several of training") < html.index('id="results"')
    assert "some of the test patients are also in training" in page.by_id["verdict"]


def test_pictures_in_training_and_validation_alone_do_not_spoil_the_test(make_run):
    folder = make_run(rounds=3)
    info = json.loads((folder / "run.json").read_text())
    info["leaks"] = {"picture": {"in_several_splits": 1, "in_training_and_test": 0}}
    (folder / "run.json").write_text(json.dumps(info))
    _, page = report(folder)
    assert (
        "1 picture is in several of training, validation and test. None is in both training and "
        "test, but numbers on validation images, which choose the round, may be too good."
        in page.text
    )
    assert "in training" not in page.by_id["verdict"] + page.by_id["ask"]


@pytest.mark.parametrize("kept", [(), ("rounds",), ("metrics",), ("peers",), ("bytes",)])
def test_whatever_has_been_written_so_far_makes_a_page(make_run, kept):
    folder = make_run(rounds=3, warm_up=0, status="running")
    for path in folder.glob("*.jsonl"):
        if path.stem not in kept:
            path.unlink()
    _, page = report(folder)
    assert page.unclosed == []
    assert ("Nothing has been measured yet" in page.text) == (
        kept not in (("metrics",), ("rounds",))
    )


def test_only_the_first_model_has_been_measured(make_run):
    folder = make_run(rounds=1, warm_up=0)
    path = folder / "metrics.jsonl"
    path.write_text("".join(line for line in path.open() if json.loads(line)["round"] == 0))
    assert report(folder)[1].by_id["tile-round"].split()[0] == "0"


def test_runs_side_by_side(make_run):
    first = make_run(rounds=4)
    second = make_run("avg", method="fedavg", rounds=4, seed=5, gain=0.3)
    _, page = report(first, second)
    runs = [Run.load(first), Run.load(second)]
    lines = page.tables["table-comparison"][1:]
    assert [line[0] for line in lines] == ["fedperl", "fedavg"]
    for line, run in zip(lines, runs, strict=True):
        expected = [
            choose(run.metrics, KEY).test for choose in (last_rounds, best_global, best_per_site)
        ]
        assert line[3:6] == [shown(value) for value in expected]
    a, b = ({c.site: c.test for c in last_rounds(run.metrics, KEY).sites} for run in runs)
    assert lines[1][7].startswith(f"{fmean(a[site] - b[site] for site in SITES):+.3f} [")
    assert lines[1][8] == "10"
    mean_a = fmean(a[site] for site in SITES)
    mean_b = fmean(b[site] for site in SITES)
    assert lines[1][9] == f"{100 * (mean_a - mean_b) / mean_b:+.1f}"
    megabytes = [sum(row.down + row.up for row in run.bytes) for run in runs]
    assert lines[1][11] == f"{100 * (megabytes[0] / megabytes[1] - 1):+.1f}"
    assert (lines[0][9], lines[0][11]) == ("–", "–")


def test_withheld_classes_and_absent_ones_look_alike(make_run):
    """As they leave the site, by the wire list: of site 10's eight test images nothing is told by
    class.
    """
    folder = make_run(rounds=1)
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.open()]
    for round_ in (0, 1):
        rows = [
            row
            for row in lines
            if (row["site"], row["split"], row["round"]) == ("site-10", "test", round_)
        ]
        whole = [row | {"classes": rows[0]["classes"]} for row in rows]
        for row, told in zip(rows, withhold_small_counts(whole), strict=True):
            row.update(told)
    path.write_text("".join(json.dumps(row) + "\n" for row in lines))
    _, page = report(folder)
    cells = {line[0]: line[1:] for line in page.tables["table-class-sites"][1:]}
    assert set(cells["site-10"]) == {"·"}
    withheld = [name for name, cell in zip(CLASSES, cells["site-6"], strict=True) if cell == "·"]
    assert withheld == ["SCC"]
    counts = {line[0]: line[1:4] for line in page.tables["table-classes"][1:]}
    assert counts["MEL"] == [str(9 * 150), "9", "1"]
    assert counts["SCC"][1:] == ["7", "3"]
    sites = {line[0]: line[-1] for line in page.tables["table-sites"][1:]}
    assert (sites["site-10"], sites["site-6"]) == ("0 of 8", "7 of 8")
    assert (
        "At 4 sites, some classes have fewer than five test images, or none, and are not measured "
        f"(site-6: SCC; site-7: AK, SCC; site-9: DF, VASC; site-10: {', '.join(CLASSES)})."
    ) in page.text


def test_a_sign_says_why_a_site_has_no_area_of_a_class(make_run):
    """The only class of site-3 is MEL, and site-2 was not measured; site-6 has no SCC."""
    folder = make_run(rounds=1)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    kept = [row for row in rows if row["site"] != "site-2" or row["split"] != "test"]
    for row in kept:
        if (row["site"], row["name"]) == ("site-3", "auroc/MEL"):
            row["value"] = None
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    _, page = report(folder)
    cells = {line[0]: line[1:] for line in page.tables["table-class-sites"][1:]}
    assert set(cells["site-2"]) == {"?"}
    assert cells["site-3"][0] == "○"
    assert cells["site-6"][-1] == "·"
    counts = {line[0]: line[1:4] for line in page.tables["table-classes"][1:]}
    # A site that was not measured is not among the others.
    assert counts["MEL"] == [str(8 * 150 + 3), "9", "0"]


def test_without_validation_nothing_chose_a_round(make_run):
    folder = make_run(rounds=3)
    sentence = (
        "No site reports validation images, of five or more in a class, so no round was chosen by "
        "them."
    )
    assert sentence not in report(folder)[1].text
    rows = [
        line for line in (folder / "metrics.jsonl").open() if json.loads(line)["split"] != "val"
    ]
    (folder / "metrics.jsonl").write_text("".join(rows))
    assert sentence in report(folder)[1].text


def test_a_site_that_validates_on_one_class_is_named(make_run):
    folder = make_run(rounds=3)
    assert "choose a round by luck" not in report(folder)[1].text
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    for row in rows:
        if (row["site"], row["split"]) == ("site-3", "val"):
            row["classes"] = ["NV"]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, page = report(folder)
    assert "site-3: the validation images that are reported show one class" in page.text
    assert {line[0]: line[7] for line in page.tables["table-sites"][1:]}["site-3"] == "1 of 8"


def lose_last_evaluation(folder, *sites):
    """Let a finished run have no answer of sites to its last evaluation."""
    info = json.loads((folder / "run.json").read_text())
    last = info["experiment"]["options"]["rounds"]
    info["summary"] = {
        "rounds": last,
        "not_evaluated": dict.fromkeys(sites, "no answer within 3600 s"),
    }
    (folder / "run.json").write_text(json.dumps(info))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    kept = [
        row
        for row in rows
        if row["round"] < last or row["split"] == "train" or row["site"] not in sites
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    return folder


def test_sites_lost_in_the_last_evaluation_are_said(make_run):
    _, whole = report(make_run("whole", rounds=3))
    _, page = report(lose_last_evaluation(make_run(rounds=3), "site-2", "site-9"))
    assert "2 of 10 sites did not evaluate the final model (site-2, site-9)" in page.text
    assert "did not evaluate" not in whole.text
    rows = [["last evaluation", site, "no answer within 3600 s"] for site in ("site-2", "site-9")]
    assert page.tables["table-failures"][1:3] == rows
    failures = [
        {line[0]: int(line[6]) for line in each.tables["table-sites"][1:-1]}
        for each in (whole, page)
    ]
    assert {site: failures[1][site] - failures[0][site] for site in SITES} == {
        site: int(site in ("site-2", "site-9")) for site in SITES
    }


def test_a_model_never_evaluated_is_not_called_final(make_run):
    _, page = report(lose_last_evaluation(make_run(rounds=3), *SITES))
    assert "The newest measured model (round 2) has a test" in page.text
    assert "The final model (" not in page.text


def test_a_model_that_training_did_not_improve_is_called_so(make_run):
    _, page = report(make_run(rounds=3, gain=-0.4))
    assert "It is the model before training: no round improved on it." in page.text


def test_equal_methods_are_told_apart_by_folder(make_run):
    runs = [Run.load(make_run(name, rounds=1)) for name in ("a", "b")]
    assert comparison.names(runs) == ["fedperl (a)", "fedperl (b)"]


def test_equal_folders_are_told_apart_by_the_path_before_them(make_run):
    folders = [make_run(name, rounds=2) for name in ("a/x/run", "b/x/run", "b/y/run")]
    html, page = report(*folders)
    names = ["fedperl (a/x/run)", "fedperl (b/x/run)", "fedperl (b/y/run)"]
    assert [line[0] for line in page.tables["table-comparison"][1:]] == names
    assert all(f">{name}</text>" in html for name in names), "each has its line in the figure"


def test_a_folder_named_twice_is_two_runs_with_a_number_each(make_run):
    run = Run.load(make_run(rounds=1))
    other = Run.load(make_run("avg", method="fedavg", rounds=1))
    assert comparison.names([run, other, run]) == ["fedperl (1)", "fedavg", "fedperl (2)"]


def test_runs_that_buy_labels_are_told_apart_by_how_they_choose(make_run):
    first = make_run("a", rounds=1)
    second = make_run("b", rounds=1)
    for folder, sampler in ((first, "fedperl"), (second, "random")):
        info = json.loads((folder / "run.json").read_text())
        info["experiment"]["options"] = {"sampler": sampler}
        (folder / "run.json").write_text(json.dumps(info))
    assert comparison.names([Run.load(first), Run.load(second)]) == ["fedperl", "fedperl, random"]


def test_a_report_of_no_run_is_refused(tmp_path, make_run):
    with pytest.raises(RunError):
        write_report(tmp_path)
    with pytest.raises(RunError):
        write_report(make_run(rounds=1), [tmp_path])


def test_peer_shares_and_bytes_worked_by_hand(make_run):
    folder = make_run(rounds=1, sites=("a", "b", "c"))
    rows = [
        {
            "round": r,
            "sites": [],
            "nearest": [],
            "similarity": [],
            "chosen": chosen,
            "anonymised": True,
            "features": 24,
        }
        for r, chosen in enumerate([{"a": ["b", "c"]}, {"a": ["b"], "b": []}, {"a": ["b"]}])
    ]
    (folder / "peers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = [(1, "a", 300, 2), (1, "b", 100, 0), (2, "a", 200, 1)]
    keys = ("round", "site", "down", "peer_models")
    lines = [dict(zip(keys, size, strict=True)) | {"up": 0} for size in sizes]
    (folder / "bytes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    run = Run.load(folder)
    assert peers.peer_shares(run, run.info.sites) == (
        ["a", "b", "c"],
        [[0, 0.75, 0.25], [0, 0, 0], [0, 0, 0]],
    )
    assert peers.peer_bytes(run) == {1: 200, 2: 100}


def test_peer_models_are_counted_per_request_after_the_warm_up(make_run):
    """Three sites are asked in each round: in round 2 each gets two models, and in round 3 one."""
    folder = make_run(rounds=3, warm_up=1)
    rows = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [row["peer_models"] for row in rows] == [0, 3, 3]
    rows[1]["peer_models"] = 6
    (folder / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = "After the warm-up, each site received 1.50 peer models per training request"
    assert told in report(folder)[1].text


def test_exchanges_of_one_round_are_added_up(make_run):
    folder = make_run(rounds=1)
    row = json.loads((folder / "rounds.jsonl").read_text())
    other = row | {
        "seconds": 1.0,
        "asked": ["site-x"],
        "replied": [],
        "failed": {"site-x": "gone"},
        "bytes_up": 7,
    }
    (folder / "rounds.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(other) + "\n")
    (merged,) = merged_rounds(Run.load(folder))
    assert merged.seconds == pytest.approx(row["seconds"] + 1)
    assert merged.asked == (*row["asked"], "site-x")
    assert merged.failed == {"site-x": "gone"}
    assert merged.bytes_up == row["bytes_up"] + 7


def test_similarities_are_those_of_the_last_comparison(make_run):
    """In round 2 only a is compared: with b anew; b and c keep what round 1 told, a and d never
    met.
    """
    folder = make_run(rounds=1, sites=("a", "b", "c", "d"))
    common = {"chosen": {}, "anonymised": True, "features": 24}
    rows = [
        {"round": 1, "sites": ["b"], "nearest": [["c", "a", "d"]], "similarity": [[0.9, 0.2, 0.1]]},
        {"round": 2, "sites": ["a"], "nearest": [["b"]], "similarity": [[0.4]]},
    ]
    (folder / "peers.jsonl").write_text("".join(json.dumps(row | common) + "\n" for row in rows))
    sites, matrix = peers.similarity(Run.load(folder), ["a", "b", "c", "d", "e"])
    known = {
        (sites[i], sites[j]): matrix[i][j]
        for i in range(4)
        for j in range(i)
        if matrix[i][j] == matrix[j][i]
    }
    assert known == {("b", "a"): 0.4, ("c", "b"): 0.9, ("d", "b"): 0.1}
    assert [matrix[i][i] for i in range(4)] == [1.0] * 4
    assert sorted(community_order(matrix)) == list(range(4))
    assert "Similarity of the sites" in report(folder)[0]


def test_any_part_of_a_whole_has_a_shade():
    assert [shade(part, 10) for part in (0, 1, 2, 3, 5, 6, 9, 10)] == [0, 1, 1, 2, 2, 3, 4, 4]


def test_many_sites_and_equal_values_still_draw():
    names = [f"site {i}" for i in range(20)]
    drawing = figures.heat_map(names, [[1.0] * 20] * 20, "all alike", "a", "b")
    assert "site 19" in drawing
    assert "all alike, from 1.0 (dark) to 1.0 (bright)" in drawing
    texts = re.findall(r">([^<>]+)</text>", drawing)
    assert texts.count("1.0") == 1, "no number in a field, one beside the scale"


def test_a_heat_map_has_a_scale_of_its_own_values():
    drawing = figures.heat_map(["a", "b"], [[1.0, 0.4], [0.4, 1.0]], "two", "a", "b")
    texts = re.findall(r">([^<>]+)</text>", drawing)
    assert texts[-3:] == [".40", ".70", "1.0"]


def test_settings_have_no_words_of_python(tmp_path):
    run = Run.load(write_run(tmp_path / "run", rounds=1))
    experiment = {"options": {"limit": None, "anonymise": True}, "metrics": [], "sites": ["a", "b"]}
    stated = [
        ("options.limit", "not set"),
        ("options.anonymise", "yes"),
        ("metrics", "none"),
        ("sites", "a, b"),
    ]
    info = run.info.model_copy(update={"experiment": experiment, "settings": {}})
    assert _settings(replace(run, info=info)) == stated
    info = info.model_copy(update={"settings": {"limit": None, "mixed": False, "rate": 0.1}})
    by_default = [("options.mixed", "no (default)"), ("options.rate", "0.1 (default)")]
    assert _settings(replace(run, info=info)) == [*stated, *by_default]
