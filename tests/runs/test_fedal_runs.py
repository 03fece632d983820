"""Federated active learning from end to end: what sites choose, what travels, what resumes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch

from asking import RUN, requests
from clients import new_client
from fedward.annotation import Queue, queue_folder
from fedward.annotation.desk import Desk, SentAnswer
from fedward.client.client import Client
from fedward.config import DataSpec, SyntheticData
from fedward.lab.local import LocalTransport
from fedward.methods.samplers.fedal import ensemble_entropy
from fedward.methods.samplers.pool import Pool
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets import build
from fedward.protocol import wire
from fedward.report import Run
from fedward.seeds import torch_generator
from fedward.training.batches import Pixels
from fedward.training.evaluation import predict
from fedward.training.pool import observe
from interrupted import interrupted
from isolated import CLASSES, write_sites
from run_files import assert_equal, rows, weights
from running import resume_local, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-6", "site-9"]


def active(**options):
    """Four rounds; queries in the second and third, from a fifth of the images to six tenths."""
    schedule = {
        "rounds": 4,
        "query_every": 1,
        "steps": 2,
        "initial_fraction": 0.2,
        "target_fraction": 0.6,
    }
    return tiny(
        "fedal", synthetic=SyntheticData(images=40, labelled=1.0), options={**schedule, **options}
    )


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run."""
    return run_local(active(), tmp_path_factory.mktemp("fedal") / "run", sites=SITES)


# --- a site


def request(experiment, round_: int, task: str, seed: int) -> wire.Message:
    net = build(experiment.net, len(experiment.data.classes), experiment.data.channels, seed=seed)
    exchange = Exchange(round_, net.state_dict(), {"site-1": ClientTask(task)})
    return requests(experiment, exchange)["site-1"]


def labels_after(folder: Path, round_: int) -> dict[str, int]:
    """Return the labels that a site remembers after a round, by the image's name."""
    return json.loads((folder / "memory" / RUN / f"{round_:05d}-000.json").read_text())["labels"]


def own_model(site: Client, sent: wire.Message, answer: wire.Message) -> dict[str, torch.Tensor]:
    return wire.rebuild(
        wire.unflatten("model", sent.arrays, site.learner.networks.template), answer
    )


def test_a_query_takes_the_highest_entropy_of_both_models(tmp_path):
    """The entropy is computed by hand from the two models.

    They are the site's own model after round 1 and the global model of round 2.
    """
    experiment = active()
    site = new_client("site-1", experiment, tmp_path)
    sent = [request(experiment, 1, "train", 5), request(experiment, 2, "query", 6)]
    first, second = (site.handle(message) for message in sent)
    assert "error" not in second.meta
    initial = labels_after(tmp_path, 1)
    after = labels_after(tmp_path, 2)
    labelled = site.data.labelled
    truth = dict(zip(labelled.ids, labelled.labels.tolist(), strict=True))
    assert initial == {name: truth[name] for name in initial}
    assert after == {name: truth[name] for name in after}
    assert len(labelled) == 24
    assert len(initial) == 5
    assert len(after) == 10, "a fifth of 24, then half of the way to 14, rounded up"

    rest = [name for name in labelled.ids if name not in initial]
    pixels = Pixels.of(labelled.named(rest), site.learner.networks.device)
    models = [
        own_model(site, sent[0], first),
        wire.unflatten("model", sent[1].arrays, site.learner.networks.template),
    ]
    outputs = [predict(site.learner.networks.load(state), pixels) for state in models]
    scores = ensemble_entropy(torch.stack(outputs))
    highest = {rest[index] for index in scores.topk(5).indices.tolist()}
    assert set(after) - set(initial) == highest
    assert torch.allclose(outputs[0], outputs[1]) is False


def test_a_random_query_draws_and_looks_at_no_model(tmp_path, monkeypatch):
    monkeypatch.setattr("fedward.training.pool.predict", None)
    experiment = active(sampler="random")
    site = new_client("site-1", experiment, tmp_path)
    for message in (request(experiment, 1, "train", 5), request(experiment, 2, "query", 6)):
        assert "error" not in site.handle(message).meta
    initial = labels_after(tmp_path, 1)
    rest = sorted(name for name in site.data.labelled.ids if name not in initial)
    order = torch.randperm(len(rest), generator=torch_generator(3, "site-1", "query", 2)).tolist()
    assert set(labels_after(tmp_path, 2)) - set(initial) == {rest[index] for index in order[:5]}
    assert not list((tmp_path / "memory" / RUN).glob("*.safetensors")), (
        "no sampler here needs the own model"
    )


@pytest.mark.parametrize("sampler", ["random", "global_entropy", "bald", "sa"])
def test_the_first_labels_are_the_same_for_all_samplers(tmp_path, sampler):
    folders = [tmp_path / "fedal", tmp_path / sampler]
    for folder, name in zip(folders, ["fedal", sampler], strict=True):
        experiment = active(sampler=name)
        new_client("site-1", experiment, folder).handle(request(experiment, 1, "train", 5))
    assert labels_after(folders[0], 1) == labels_after(folders[1], 1)


def test_a_late_site_is_told_the_global_model_replaces_its_own(tmp_path, caplog):
    experiment = active()
    site = new_client("site-1", experiment, tmp_path)
    assert site.handle(request(experiment, 3, "query", 5)).meta["label_counts"]["asked"] == 5
    (tmp_path / "memory" / RUN / "00003-000.safetensors").unlink()
    assert site.handle(request(experiment, 4, "query", 5)).meta["label_counts"]["asked"] == 9, (
        "what it missed, too"
    )
    assert "no own model yet, the global one is used in its place" in caplog.text


def test_only_counts_of_labels_leave_the_site(tmp_path):
    experiment = active()
    answer = new_client("site-1", experiment, tmp_path).handle(request(experiment, 1, "train", 5))
    assert answer.meta["label_counts"] == {
        "asked": 5,
        "bought": 5,
        "waiting": 0,
        "cannot_tell": 0,
        "unusable": 0,
    }
    assert answer.meta["labelled"] == 5
    assert answer.meta["unlabelled"] == 19
    text = json.dumps(answer.meta)
    assert not any(name in text for name in labels_after(tmp_path, 1))


@pytest.fixture
def refused(monkeypatch) -> list[Pool]:
    """Let the filter refuse the first sixteen images by name; return the pools it looked at."""
    pools = []

    def refuse(pool: Pool) -> dict[str, float]:
        pools.append(pool)
        return dict.fromkeys(sorted(pool.ids)[:16], 0.5)

    monkeypatch.setattr("fedward.client.askable.out_of_distribution", refuse)
    monkeypatch.setattr("fedward.client.askable.LEAST_LABELLED", 5)
    return pools


@pytest.mark.parametrize("sampler", ["fedal", "core_set", "random"])
def test_what_the_filter_refuses_is_not_asked_about(tmp_path, refused, caplog, sampler):
    """Of 19 images without a label three are left, though five labels are due.

    The site's folder and log list the others.
    """
    experiment = active(out_of_distribution_filter=True, sampler=sampler)
    site = new_client("site-1", experiment, tmp_path)
    site.handle(request(experiment, 1, "train", 5))
    assert not refused, "no label yet"
    answer = site.handle(request(experiment, 2, "query", 6))
    (pool,) = refused
    assert len(pool.ids) == 19
    assert pool.features.shape == (19, 256)
    assert len(pool.labelled) == 5
    names = sorted(pool.ids)
    assert set(labels_after(tmp_path, 2)) - set(labels_after(tmp_path, 1)) == set(names[16:])
    assert answer.meta["label_counts"] == {
        "asked": 3,
        "bought": 8,
        "waiting": 0,
        "cannot_tell": 0,
        "unusable": 0,
    }
    listed = tmp_path / "memory" / RUN / "out_of_distribution" / "00002.json"
    assert json.loads(listed.read_text()) == dict.fromkeys(names[:16], 0.5)
    assert "16 of 19 images look like no labelled one" in caplog.text
    assert not any(name in json.dumps(answer.meta) for name in names)


# --- a run


def test_budgets_of_a_run_are_kept_and_recorded(straight):
    table = {(row["site"], row["round"]): row for row in rows(straight, "queries")}
    assert {key: row["labelled"] for key, row in table.items() if key[0] == "site-1"} == {
        ("site-1", 1): 5,
        ("site-1", 2): 10,
        ("site-1", 3): 14,
        ("site-1", 4): 14,
    }
    assert all(row["labelled"] == row["bought"] for row in table.values())
    assert {row["asked"] for (_, round_), row in table.items() if round_ == 4} == {0}


@pytest.mark.parametrize("sampler", ["aift", "mcdal", "core_set", "margin"])
def test_every_sampler_goes_through_a_run_and_buys_as_many(straight, tmp_path, sampler):
    other = run_local(active(sampler=sampler), tmp_path / "run", sites=SITES)
    assert rows(other, "queries") == rows(straight, "queries")
    heads = {name for name in weights(other) if name.startswith("auxiliary.")}
    assert len(heads) == (4 if sampler == "mcdal" else 0)


def test_a_site_away_at_the_last_query_asks_alone_afterwards(straight, tmp_path, monkeypatch):
    exchange = LocalTransport.exchange
    looks = []

    def away(self: LocalTransport, requests: dict, timeout: int, deliver: Callable) -> None:
        requests = {
            site: message
            for site, message in requests.items()
            if (site, message.meta["round"]) != ("site-6", 3)
        }
        exchange(self, requests, timeout, deliver)

    def looked(site: str, *arguments: Any) -> Any:
        looks.append(site)
        return observe(site, *arguments)

    monkeypatch.setattr(LocalTransport, "exchange", away)
    monkeypatch.setattr("fedward.client.queries.observe", looked)
    other = run_local(active(), tmp_path / "run", sites=SITES)
    labelled = [
        {row["site"]: row["labelled"] for row in rows(run, "queries")[-3:]}
        for run in (other, straight)
    ]
    assert labelled[0] == labelled[1]
    assert looks[3:] == [*SITES, "site-1", "site-9", "site-6"], (
        "the first three are drawn by chance"
    )


def test_samplers_differ_in_choice_and_never_in_number(straight, tmp_path):
    other = run_local(active(sampler="random"), tmp_path / "run", sites=SITES)
    assert rows(other, "queries") == rows(straight, "queries")
    assert any(
        not torch.equal(a, b)
        for a, b in zip(weights(other).values(), weights(straight).values(), strict=True)
    )


@pytest.mark.parametrize(("round_", "answered"), [(1, 1), (2, 1), (2, 3), (3, 2)])
def test_a_run_killed_in_a_round_resumes_bit_identically(
    straight: Path, tmp_path: Path, round_: int, answered: int
) -> None:
    """After so many sites have answered: they are asked again, and have the labels they had."""
    interrupted(active(), tmp_path / "run", SITES, round_, answered)
    resumed = resume_local(tmp_path / "run")
    assert_equal(weights(resumed), weights(straight))
    assert rows(resumed, "queries") == rows(straight, "queries")


# --- hospitals


HOSPITALS = {
    "site-1": "labelled: 1.0\nannotation: oracle\nminutes_per_label: 0.5\n",
    "site-2": "labelled: 0.0\nannotation: queue\n",
    "site-3": "labelled: 0.2\n",
}
"""An oracle, people, and a site that asks nobody."""


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """Site files of three hospitals with the same 60 training images."""
    folder = write_sites(tmp_path / "files")
    for site, lines in HOSPITALS.items():
        (folder / f"{site}.yaml").write_text(
            f"kind: npz\nfile: images.npz\nlabels: {{0: A, 1: B, 2: C}}\n{lines}"
        )
    return folder


def hospital_run(tmp_path: Path, hospitals: Path) -> Run:
    experiment = active().model_copy(
        update={"data": DataSpec(classes=CLASSES, image_size=16), "synthetic": None}
    )
    return Run.load(
        run_local(experiment, tmp_path / "run", sites=list(HOSPITALS), site_folders=[hospitals])
    )


def last(run: Run) -> dict[str, dict[str, int]]:
    """Return the counts of each site's last round."""
    return {row.site: vars(row) for row in run.queries}


def answering(monkeypatch: pytest.MonkeyPatch, labels: Callable[[str], str | None]) -> None:
    """Let site-2's clinicians answer before each round after the first what is waiting then."""
    exchange = LocalTransport.exchange

    def answered(self: LocalTransport, requests: dict, timeout: int, deliver: Callable) -> None:
        (folder,) = self.client("site-2").source.site_folders
        queue = Queue(queue_folder(folder / "site-2.yaml"))
        for asked in queue.pending():
            label = labels(asked.sample_id)
            if label:
                message = SentAnswer("ab", asked.sample_id, "label", label, uuid4().hex, 0)
                Desk(queue, {asked.sample_id}).answer(message)
        exchange(self, requests, timeout, deliver)

    monkeypatch.setattr(LocalTransport, "exchange", answered)


def test_late_answers_become_labels_a_round_later(tmp_path, hospitals, monkeypatch):
    answering(monkeypatch, lambda sample_id: "A")
    run = hospital_run(tmp_path, hospitals)
    bought = {site: [row.bought for row in run.queries if row.site == site] for site in HOSPITALS}
    assert [row.minutes for row in run.queries if row.site == "site-1"] == [6.0, 12.0, 18.0, 18.0]
    assert {row.minutes for row in run.queries if row.site != "site-1"} == {None}
    assert bought == {"site-1": [12, 24, 36, 36], "site-2": [0, 12, 24, 36], "site-3": [0, 0, 0, 0]}
    assert "took no training step" in run.rounds[0].failed["site-2"], "nothing to learn from yet"
    assert all("site-2" in row.replied for row in run.rounds[1:])


def test_a_hospital_that_answers_half_does_not_stop_the_others(tmp_path, hospitals, monkeypatch):
    answering(monkeypatch, lambda sample_id: "B" if int(sample_id.rsplit("-", 1)[-1]) % 2 else None)
    counts = last(hospital_run(tmp_path, hospitals))
    assert 0 < counts["site-2"]["bought"] < 36
    assert counts["site-2"]["bought"] + counts["site-2"]["waiting"] == 36
    assert counts["site-1"]["bought"] == 36


def test_nonsense_answers_are_counted_and_the_others_go_on(
    tmp_path, hospitals, monkeypatch, caplog
):
    answering(monkeypatch, lambda sample_id: "gibberish")
    run = hospital_run(tmp_path, hospitals)
    counts = last(run)
    assert counts["site-2"]["bought"] == 0
    assert counts["site-2"]["unusable"] == 36
    assert "'gibberish', where the job's classes are A, B, C" in caplog.text
    assert all(set(row.replied) == {"site-1", "site-3"} for row in run.rounds)


def test_a_hospital_without_answers_holds_nobody_up(tmp_path, hospitals, caplog):
    counts = last(hospital_run(tmp_path, hospitals))
    assert counts["site-2"]["bought"] == 0
    assert counts["site-2"]["waiting"] == 36
    assert counts["site-3"]["waiting"] == 0
    assert counts["site-3"]["labelled"] == 12
    assert "site site-3: nobody is asked for the 48 labels it lacks" in caplog.text
