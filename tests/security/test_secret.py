"""The secret of a site's draws: made once, private, part of every draw and of nothing else."""

import json
import logging
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asking import requests
from clients import new_client
from fedward.client import ranks
from fedward.client.admission import Admission
from fedward.client.client import Client
from fedward.client.ranks import Processes
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.methods import method_of
from fedward.methods.workflow import ClientTask, Exchange
from fedward.protocol.wire import Message
from fedward.security.policy import OPEN, Policy
from fedward.security.secret import SECRET_BYTES, SECRET_FILE, site_secret
from hospital import HERE, fresh, hospital, request
from starting import initial_model
from tiny import tiny


def site(folder: Path, experiment: Experiment, policy: Policy | None = None) -> Client:
    rules = policy or Policy()
    admission = Admission(HERE, experiment, method_of(experiment), folder, lambda: rules)
    return new_client(HERE, experiment, folder, admission=admission)


def flat(answer: Message) -> np.ndarray:
    return np.concatenate([array.ravel() for array in answer.arrays.values()])


# --- the file


def test_it_is_made_once_for_its_owner_alone(tmp_path):
    folder = tmp_path / "kit" / "fedward"
    before = os.umask(0)
    try:
        secret = site_secret(folder)
    finally:
        os.umask(before)
    assert len(secret) == SECRET_BYTES == 32
    assert site_secret(folder) == secret == (folder / SECRET_FILE).read_bytes()
    assert stat.S_IMODE((folder / SECRET_FILE).stat().st_mode) == 0o600
    assert site_secret(tmp_path / "another") != secret
    assert [path.name for path in folder.iterdir() if not path.name.endswith(".lock")] == [
        SECRET_FILE
    ]


def test_processes_that_ask_at_once_get_the_same(tmp_path):
    secrets = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        secrets.append(site_secret(tmp_path / "kit"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(secrets) == 8
    assert len(set(secrets)) == 1


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")


def show_to_the_group(file: Path) -> None:
    file.chmod(0o640)


def show_to_all(file: Path) -> None:
    file.chmod(0o604)


def link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def link_to_nothing(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def make_it_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


SPOILT = [
    shorten,
    empty,
    lengthen,
    show_to_the_group,
    show_to_all,
    link,
    link_to_nothing,
    make_it_a_folder,
]


@pytest.mark.parametrize("spoil", SPOILT)
def test_one_that_others_may_know_or_that_is_damaged_is_refused(tmp_path, spoil):
    experiment = hospital()
    assert site(tmp_path, experiment).handle(request(experiment)).arrays
    spoil(tmp_path / SECRET_FILE)
    with pytest.raises(ConfigError, match=SECRET_FILE):
        site_secret(tmp_path)
    here = site(tmp_path, experiment)
    answer = here.handle(request(experiment, round_=2))
    assert answer.meta["refused"]
    assert not answer.arrays
    assert "data" not in vars(here), "it is refused before any data are read"
    assert SECRET_FILE not in answer.meta["error"]
    assert str(tmp_path) not in answer.meta["error"]


# --- what depends on it


def ask(experiment: Experiment, task: str, round_: int = 1) -> Message:
    """Return a request for a task in a round."""
    model = initial_model(experiment).state
    message = requests(experiment, Exchange(1, model, {HERE: ClientTask(task)}))[HERE]
    return Message({**message.meta, "members": 3, "round": round_}, message.arrays)


DRAWING = [
    pytest.param("fedavg", {}, {}, "train", id="images and views"),
    pytest.param("fedavg", {"images_per_round": None}, {}, "train", id="order of all images"),
    pytest.param("ssfl", {"threshold": 0.0}, {}, "train", id="strong views"),
    pytest.param("fedavg", {}, {"trainable": "head"}, "train", id="stored views"),
    pytest.param("selffed", {}, {}, "pretrain", id="masks"),
]


@pytest.mark.proves(
    "lead",
    "which images a step was of, searched from seed, name and round",
    "unknown: draws depend on a secret of the site's kit",
)
@pytest.mark.parametrize(("method", "options", "changes", "task"), DRAWING)
def test_draws_depend_on_the_secret(tmp_path, method, options, changes, task):
    experiment = hospital(method, images=80, options=options, **changes)
    first = initial_model(experiment)
    asked = ask(experiment, task)
    base = {} if first.base is None else {"base": first.base}
    asked = Message({**asked.meta, **base}, asked.arrays)
    one, again, other, open_ = (
        site(
            tmp_path / name,
            experiment,
            Policy(draws=draws, minimum_images=1, minimum_steps=1, minimum_batch=1),
        )
        for name, draws in (
            ("one", "secret"),
            ("again", "secret"),
            ("other", "secret"),
            ("open", "seed"),
        )
    )
    (tmp_path / "again").mkdir()
    site_secret(tmp_path / "one")
    (tmp_path / "again" / SECRET_FILE).write_bytes((tmp_path / "one" / SECRET_FILE).read_bytes())
    (tmp_path / "again" / SECRET_FILE).chmod(0o600)
    updates = [flat(client.handle(asked)) for client in (one, again, other, open_)]
    assert np.array_equal(updates[0], updates[1]), "the same secret, as in a run that is resumed"
    for number, update in enumerate(updates[2:], 2):
        assert not np.allclose(updates[0], update, rtol=1e-3, atol=0), number
    assert not (tmp_path / "open" / SECRET_FILE).exists()


def test_first_labels_are_drawn_by_the_secret(tmp_path):
    """In active learning, chance chooses the first images that are asked about, and breaks ties."""
    experiment = tiny("fedal", options={"sampler": "random", "initial_fraction": 0.3})
    asked = {}
    for name, draws in (
        ("one", "secret"),
        ("other", "secret"),
        ("open", "seed"),
        ("as open", "seed"),
    ):
        here = site(tmp_path / name, experiment, OPEN.model_copy(update={"draws": draws}))
        assert "error" not in here.handle(ask(experiment, "train")).meta
        (record,) = (tmp_path / name / "memory").glob("*/*.json")
        asked[name] = json.loads(record.read_text())["asked"]
    assert asked["open"] == asked["as open"]
    assert len({tuple(sorted(sample_ids)) for sample_ids in asked.values()}) == 3
    assert len({len(sample_ids) for sample_ids in asked.values()}) == 1


def test_a_simulation_has_no_secret(tmp_path):
    experiment = hospital()
    here = new_client(HERE, experiment, tmp_path)
    assert here.handle(request(experiment)).arrays
    assert not list(tmp_path.rglob(f"*{SECRET_FILE}*"))


def test_it_is_in_no_answer_no_log_and_no_other_file(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    experiment = hospital("ssfl")
    here = site(tmp_path, experiment)
    answer = here.handle(request(experiment))
    secret = site_secret(tmp_path)
    assert answer.arrays
    revealed_text = (
        json.dumps(answer.meta) + caplog.text + repr(here.learner) + repr(here.admission)
    )
    assert secret.hex() not in revealed_text
    assert repr(secret)[2:-1] not in revealed_text
    for array in answer.arrays.values():
        assert secret not in array.tobytes()
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != SECRET_FILE:
            content = file.read_bytes()
            assert secret not in content, file
            assert secret.hex().encode() not in content, file


def test_processes_of_a_site_read_it_themselves(tmp_path, monkeypatch):
    """The file that tells them what to do says only that there is one."""
    experiment = hospital()
    given = list[Any]()
    here = site(tmp_path, experiment)
    secret = site_secret(tmp_path)

    def note(name: str, folder: Path, *others: object) -> None:
        assert not any(secret in file.read_bytes() for file in folder.iterdir())
        given.append(json.loads((folder / "request.json").read_text()))
        raise InterruptedError

    monkeypatch.setattr(ranks, "launch", note)
    train = Processes(here.source, "", replace(here.learner, smallest_batch=8), 2).train
    with pytest.raises(InterruptedError):
        train(fresh(experiment), [], 1, task="train", part=0, memory={}, aborted=lambda: False)
    (instructions,) = given
    assert instructions["secret"] is True
    assert instructions["smallest_batch"] == 8
