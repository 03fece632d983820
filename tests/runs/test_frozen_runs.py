"""Runs in which a part of the network is frozen: what travels, who refuses, what comes out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedward
from asking import facts
from clients import new_client
from fedward.config import Experiment
from fedward.errors import ConfigError, RunError
from fedward.lab.local import LocalTransport
from fedward.methods.workflow import ClientTask, Exchange
from fedward.operation.audit_check import verify
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.registry import METHODS
from fedward.server.requests import models_by_site, task_requests
from fedward.starting_model import Weights
from fedward.storage.model_files import StoredState
from fedward.storage.run_folder import RunFolder
from interrupted import interrupted
from run_files import assert_equal, rows, steady_rows, weights
from running import resume_local, run_local
from starting import initial_model, network_of
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-6"]
HEAD = ["classifier.weight", "classifier.bias"]
FROZEN = "features.0.0.weight"
PARTS = pytest.mark.parametrize("trainable", ["head", "last:1"])


def frozen(trainable: str = "last:1", method: str = "fedavg", **changes: Any) -> Experiment:
    return tiny(method, **{"net": "small_cnn_gn", "trainable": trainable, **changes})


def whole_of(experiment: Experiment) -> dict[str, Tensor]:
    """Return all tensors of the network that a run begins with."""
    net = network_of(experiment)
    state = net.whole.state_dict()  # type: ignore[operator, union-attr]
    return {name: tensor.clone() for name, tensor in state.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run that trains the head alone."""
    return run_local(frozen("head"), tmp_path_factory.mktemp("frozen") / "run", sites=SITES)


# --- a run


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"alone", "fedmatch", "selffed"}))
def test_every_method_trains_a_part(method: str, tmp_path: Path) -> None:
    run = run_local(frozen("head", method), tmp_path / "run", sites=SITES)
    first = initial_model(frozen("head", method)).state
    state = weights(run)
    assert set(HEAD) <= set(state) == set(first)
    assert not any(name.startswith("features") for name in state)
    assert not all(torch.equal(state[name], first[name]) for name in state)
    for path in (run / "rounds").glob("*/state.safetensors"):
        assert not any("features." in name for name in StoredState(path))
    assert verify(run).files


@pytest.mark.parametrize("trainable", ["head", "last:2", "adapters"])
def test_nothing_frozen_travels(
    trainable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set[str]()
    exchange = LocalTransport.exchange

    def seen(
        self: LocalTransport, requests: dict[str, Message], timeout: int, deliver: Deliver
    ) -> None:
        def look(site: str, answer: Message) -> None:
            names.update(name.split("/")[-1] for name in (*answer.arrays, *requests[site].arrays))
            deliver(site, answer)

        exchange(self, requests, timeout, look)

    monkeypatch.setattr(LocalTransport, "exchange", seen)
    experiment = frozen(trainable, net="small_cnn")
    run_local(experiment, tmp_path / "run", sites=SITES)
    assert names == set(initial_model(experiment).state)
    assert names < {*whole_of(experiment)}


def test_fewer_bytes_by_the_share_that_trains(run: Path) -> None:
    spec = initial_model(frozen("head")).state
    expected = sum(tensor.nbytes for tensor in spec.values())
    assert {row["up"] for row in rows(run, "bytes") if row["up"]} == {expected}


@PARTS
def test_a_killed_run_resumes_bit_identically(trainable: str, tmp_path: Path) -> None:
    experiment = frozen(trainable, "fedperl")
    undisturbed = run_local(experiment, tmp_path / "undisturbed", sites=SITES)
    interrupted(experiment, tmp_path / "run", SITES, 2, 1)
    resumed = resume_local(tmp_path / "run")
    assert_equal(weights(resumed), weights(undisturbed))
    assert steady_rows(resumed, "metrics") == steady_rows(undisturbed, "metrics")


@PARTS
def test_workers_give_the_same_bits(trainable: str, tmp_path: Path) -> None:
    alone = run_local(frozen(trainable), tmp_path / "alone", sites=SITES)
    both = run_local(frozen(trainable), tmp_path / "both", sites=SITES, workers=2)
    assert_equal(weights(alone), weights(both))
    assert steady_rows(alone, "metrics") == steady_rows(both, "metrics")


def test_means_of_encrypted_heads(tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    sealed = run_local(frozen("head", secure_aggregation=True), tmp_path / "run", sites=SITES)
    assert list(weights(sealed)) == HEAD


# --- what comes out


def test_a_loaded_model_is_whole(run: Path) -> None:
    model = fedward.load_model(run)
    expected = whole_of(frozen("head")) | weights(run)
    assert_equal(dict(model.net.state_dict()), expected)
    images = torch.rand(3, 3, 16, 16)
    networks = new_client(SITES[0], frozen("head"), run / "elsewhere")._networks
    networks.load(weights(run))
    torch.testing.assert_close(
        model(images), torch.softmax(networks.on_images.eval()(images), dim=1)
    )


def test_files_say_what_is_left_out(run: Path) -> None:
    base = initial_model(frozen("head")).base
    info = json.loads((run / "run.json").read_text())
    assert info["base"] == base
    for name in ("model", "best"):
        about = json.loads((run / f"{name}.json").read_text())
        assert about["base"] == base
        assert about["trainable"] == "head"


def test_nothing_is_said_where_all_trains(tmp_path: Path) -> None:
    plain = run_local(frozen("all"), tmp_path / "run", sites=SITES[:1])
    assert "base" not in json.loads((plain / "run.json").read_text())
    assert "base" not in json.loads((plain / "model.json").read_text())


def changed(run: Path, copy: Path, file: str, **fields: Any) -> Path:
    """Copy the files of a run, with other values of some fields in one of them."""
    copy.mkdir()
    for path in run.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    content = json.loads((copy / file).read_text())
    (copy / file).write_text(json.dumps(content | fields))
    return copy


def test_a_model_of_another_base_is_not_loaded(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"frozen part: expected SHA-256 {'0' * 64}"):
        fedward.load_model(changed(run, tmp_path / "copy", "run.json", base="0" * 64))


@pytest.mark.parametrize("file", ["run.json", "model.json"])
def test_an_audit_finds_another_base(run: Path, tmp_path: Path, file: str) -> None:
    with pytest.raises(RunError, match=r"base|model\.json|run\.json"):
        verify(changed(run, tmp_path / "copy", file, base="0" * 64))


def test_a_run_of_another_base_is_not_continued(tmp_path: Path) -> None:
    interrupted(frozen("head"), tmp_path / "run", SITES, 2, 1)
    info = json.loads((tmp_path / "run/run.json").read_text())
    (tmp_path / "run/run.json").write_text(json.dumps(info | {"base": "0" * 64}))
    with pytest.raises(RunError, match="Continue it with the weights and packages it began with"):
        resume_local(tmp_path / "run")


# --- who refuses what


def request(experiment: Experiment, base: str | None, **arrays: Any) -> Message:
    exchange = Exchange(1, initial_model(experiment).state, {SITES[0]: ClientTask("train")})
    server_facts = facts(experiment) | ({"base": base} if base else {})
    message = task_requests(exchange, models_by_site(exchange, [], dict), [], server_facts)[
        SITES[0]
    ]
    return Message(message.meta, {**message.arrays, **arrays})


@pytest.mark.proves(
    "server",
    "another frozen encoder than the site's, or its tensors in a request",
    "refused: the site uses its own",
)
@pytest.mark.parametrize("servers_base", ["0" * 64, None])
def test_a_site_with_another_base_refuses(servers_base: str | None, tmp_path: Path) -> None:
    experiment = frozen("head")
    answer = new_client(SITES[0], experiment, tmp_path).handle(request(experiment, servers_base))
    base = initial_model(experiment).base
    assert (
        f"net small_cnn_gn, its frozen part: expected SHA-256 {servers_base}, found {base}"
        in answer.meta["error"]
    )
    assert not answer.arrays
    fine = new_client(SITES[1], experiment, tmp_path / "other").handle(request(experiment, base))
    assert "frozen" not in fine.meta.get("error", "")


@pytest.mark.proves(
    "server",
    "another frozen encoder than the site's, or its tensors in a request",
    "refused: the site uses its own",
)
def test_a_frozen_tensor_in_a_request_is_refused(tmp_path: Path) -> None:
    experiment = frozen("head")
    tensor = whole_of(experiment)[FROZEN].numpy()
    asked = request(experiment, initial_model(experiment).base, **{f"model/{FROZEN}": tensor})
    answer = new_client(SITES[0], experiment, tmp_path).handle(asked)
    assert (
        f"tensors of model: expected those that train, found model/{FROZEN}" in answer.meta["error"]
    )


@pytest.mark.proves(
    "site",
    "an update of a frozen tensor",
    "refused; the round is averaged without it",
)
def test_an_update_of_a_frozen_tensor_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = LocalTransport.exchange
    tensor = whole_of(frozen())[FROZEN].numpy()

    def poisoned(
        self: LocalTransport, requests: dict[str, Message], timeout: int, deliver: Deliver
    ) -> None:
        def add(site: str, answer: Message) -> None:
            if site == SITES[0] and answer.arrays:
                answer.arrays[f"diff/{FROZEN}"] = tensor  # type: ignore[index]
            deliver(site, answer)

        exchange(self, requests, timeout, add)

    monkeypatch.setattr(LocalTransport, "exchange", poisoned)
    run = run_local(frozen(), tmp_path / "run", sites=SITES)
    for row in rows(run, "rounds"):
        assert row["replied"] == SITES[1:]
        assert f"also diff/{FROZEN}" in row["failed"][SITES[0]]
    assert FROZEN not in weights(run)


def test_pre_training_refuses_a_frozen_encoder() -> None:
    with pytest.raises(
        ConfigError, match="selffed cannot work with trainable=head: pre-training is to change"
    ):
        Experiment.parse(
            {"method": "selffed", "net": "masked_swin_32", "trainable": "head"}, "test"
        )


@pytest.mark.parametrize(
    "trainable", ["", "heads", "last", "last:0", "last:-1", "last:99999", "adapters:4"]
)
def test_other_parts_are_no_settings(trainable: str) -> None:
    with pytest.raises(ConfigError, match="trainable"):
        Experiment.parse({"method": "fedavg", "trainable": trainable}, "test")


# --- starting weights


def test_a_run_starts_from_one_with_the_same_base(run: Path, tmp_path: Path) -> None:
    state, facts, base = initial_model(frozen("head", "ssfl"), Weights.of(run))
    assert facts is not None
    assert facts["taken"] == HEAD
    assert facts["new"] == []
    assert facts["unused"] == []
    assert_equal(dict(state), weights(run))
    assert base == RunFolder.reopen(run).info.base


@pytest.mark.parametrize(
    "experiment",
    [frozen("all"), frozen("last:1"), frozen("head", seed=4)],
    ids=["all trains", "another part", "another seed"],
)
def test_weights_of_another_base_are_refused(run: Path, experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match="its frozen part"):
        initial_model(experiment, Weights.of(run))
