"""FLARE's simulator gives the weights of the in-process engine, on any number of threads.

Of the tests that are not slow, test_recipes.py runs FedPerl so, and test_tutorial.py a method of
another package.
"""

import json

import pytest
from simulator import SITES, assert_same_memory, assert_same_run, start

from fedward.config import SyntheticData
from fedward.flare.jobs.export import export_job
from fedward.starting_model import Weights
from findings import chest, write_findings
from running import run_local
from tiny import tiny
from tracked import events

pytestmark = [pytest.mark.simulator, pytest.mark.slow, pytest.mark.usefixtures("without_report")]


@pytest.mark.parametrize(
    ("method", "threads"),
    [
        ("fedperl", 3),
        ("selffed", 3),
        ("fedperl", 1),
        ("fedavg", 3),
        ("rscfed", 3),
        ("fedirm", 3),
        ("fedmatch", 3),
        ("fedal", 3),
        ("ssfl", 3),
        ("alone", 3),
    ],
)
def test_the_simulator_equals_the_in_process_engine(tmp_path, method, threads):
    # What sites keep needs a process that remembers, and answers need a network at the server.
    # In the second phase the server contrasts, and the sites that take part change.
    options = {
        "selffed": {"upload": "encoder", "participants": 2, "predicted_pixels": "raw"},
        "alone": {"learns_from": "all_images", "participants": None},
        "fedavg": {"average_decay": 0.5},
        "ssfl": {"pseudo_labels": "soft", "temperature": 0.4, "proximal_weight": 0.01},
        "fedperl": {"similarity": "answers", "anonymise": threads == 3},
    }.get(method, {})
    synthetic = SyntheticData(images=40, labelled=0.5, isolated=method in ("rscfed", "fedirm"))
    dtype = "float16" if method == "fedperl" else "float32"
    experiment = tiny(method, synthetic=synthetic, options=options, update_dtype=dtype)
    export_job(experiment, tmp_path / "job")
    process = start(tmp_path / "job", tmp_path / "workspace", threads)
    local = run_local(experiment, tmp_path / "local", sites=SITES)
    assert process.wait() == 0
    results = tmp_path / "workspace" / "server" / "simulate_job"
    assert_same_run(results / "fedward", local)
    if method == "alone":
        for site in SITES:
            assert_same_memory(tmp_path / "workspace" / site / "fedward", local / "sites" / site)
    info = json.loads((results / "fedward" / "run.json").read_text())
    assert (info["engine"], info["job"]) == ("simulator", "job")
    # With fewer threads, a site's process may end before FLARE has sent its scalars.
    if threads == len(SITES):
        for site in SITES:
            flares_events = events(results / "tb_events" / site)
            assert set(flares_events) == set(events(local / "tb_events" / site))
    assert str(results / "fedward") in (tmp_path / "workspace.log").read_text()


@pytest.mark.parametrize(
    ("method", "options", "synthetic"),
    [
        ("fedperl", {"server_labels": True, "policy": "validation"}, {}),
        ("ssfl", {"server_labels": True}, {}),
        ("fedavg", {"server_labels": True}, {}),
        ("fedperl", {}, {"labelled_sites": (2,)}),
        ("fedperl", {"participants": None}, {"labelled_sites": (2,)}),
    ],
)
def test_fedperls_scenarios_equal_the_in_process_engine(tmp_path, method, options, synthetic):
    """Labels at the server alone, and few labelled sites of which some or all take part."""
    images = SyntheticData(images=40, labelled=1.0, sites=len(SITES), **synthetic)
    experiment = tiny(method, synthetic=images, options=options)
    export_job(experiment, tmp_path / "job")
    process = start(tmp_path / "job", tmp_path / "workspace")
    local = run_local(experiment, tmp_path / "local", sites=SITES)
    assert process.wait() == 0
    assert_same_run(tmp_path / "workspace" / "server" / "simulate_job" / "fedward", local)


@pytest.mark.parametrize(("method", "annotation"), [("fedperl", "none"), ("fedal", "oracle")])
def test_several_labels_equal_the_in_process_engine(tmp_path, method, annotation):
    sites = write_findings(tmp_path, len(SITES), annotation=annotation)
    experiment = chest(method, options={"rounds": 2})
    export_job(experiment, tmp_path / "job")
    process = start(tmp_path / "job", tmp_path / "workspace", FEDWARD_SITES=str(sites))
    local = run_local(experiment, tmp_path / "local", sites=SITES, site_folders=[sites])
    assert process.wait() == 0
    assert_same_run(tmp_path / "workspace" / "server" / "simulate_job" / "fedward", local)


def test_a_job_with_weights_equals_the_in_process_engine(tmp_path):
    before = run_local(
        tiny("fedavg", seed=77, options={"rounds": 1}), tmp_path / "before", sites=SITES
    )
    experiment = tiny("fedavg", options={"rounds": 1})
    export_job(experiment, tmp_path / "job", sites=SITES, init=before)
    process = start(tmp_path / "job", tmp_path / "workspace")
    local = run_local(experiment, tmp_path / "local", sites=SITES, init=before)
    assert process.wait() == 0
    flare = tmp_path / "workspace" / "server" / "simulate_job" / "fedward"
    assert_same_run(flare, local)
    infos = [json.loads((folder / "run.json").read_text())["init"] for folder in (flare, local)]
    assert infos[0] == infos[1]
    assert infos[0]["folder"] == str(before)
    begun = [
        json.loads((folder / "audit.jsonl").read_text().splitlines()[0])["details"]
        for folder in (flare, local)
    ]
    assert begun[0]["init"] == begun[1]["init"] == infos[0]["sha256"]
    assert Weights.of(flare).sha256 == Weights.of(local).sha256, "a start as good as the other"
    assert not list((tmp_path / "workspace").glob("site-*/**/*.safetensors"))
