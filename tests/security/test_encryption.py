"""Secure aggregation: the mean is the plain one, and only the site itself sees its update."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import tenseal
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.signal import Signal
from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.fuel.sec.security_content_service import SecurityContentManager, SecurityContentService
from nvflare.fuel.utils import fobs

from asking import NEEDS, AdmitsAll, facts, requests, rules_of
from clients import new_client
from fedward.client.client import Client
from fedward.client.respondent import public_text
from fedward.config import DERMOSCOPY, Experiment
from fedward.errors import ConfigError, RunError, WireError
from fedward.flare import executor as executor_module
from fedward.flare.encryption import SERVER, SITE, context_of
from fedward.flare.jobs.configurations import SYNTHETIC
from fedward.flare.shareables import TASK, pack_request, unpack
from fedward.lab.local import LocalTransport, Sites
from fedward.lab.synthetic import SyntheticSites
from fedward.methods import method_of
from fedward.methods.aggregation import mean_of as plain_mean
from fedward.methods.requirements import Requirements, TensorRules
from fedward.methods.weight_limits import effective_number
from fedward.methods.workflow import ClientTask, ClientUpdate, Exchange
from fedward.protocol import answer_checks, wire
from fedward.protocol.fields import RefusedError
from fedward.protocol.messages import WaitingAnswer
from fedward.protocol.requests import DECRYPT, read_request
from fedward.protocol.wire import Message
from fedward.security import encryption
from fedward.security.encryption import (
    FRACTION_BITS,
    LARGEST_NUMBER,
    Adder,
    SiteKey,
    mean_of,
    new_contexts,
)
from fedward.security.encryption_site import open_sum, seal
from fedward.server.claims import Claims
from fedward.server.encrypted_transport import EncryptedTransport
from fedward.storage.model_files import SiteModels
from flare_app import config_folder, executor_of
from run_files import in_vain, rows, weights
from running import run_experiment, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-9"]
SERVER_CONTEXT, SITE_CONTEXT = new_contexts()
KEY = SiteKey(SITE_CONTEXT)
OTHER_KEY = SiteKey(new_contexts()[1])
ADDER = Adder(SERVER_CONTEXT)
MANY = range(100_002)
"""Numbers of ciphertexts whose names do not sort by number."""
RUN = "0123456789abcdef" * 2
PLAIN_SGD = {"participants": 3, "optimizer": "sgd", "learning_rate": 0.01}
"""Adam divides by the size of a gradient, so that it can make a difference of the last bit a large
one.
"""


def secure(method="fedavg", **changes) -> Experiment:
    options = {**PLAIN_SGD, **changes.pop("options", {})}
    return tiny(method, **{"secure_aggregation": True, **changes, "options": options})


def plain(experiment: Experiment) -> Experiment:
    return experiment.model_copy(update={"secure_aggregation": False})


def largest_difference(one: Path, other: Path) -> float:
    a = weights(one)
    b = weights(other)
    assert list(a) == list(b)
    return max(float((a[key].double() - b[key].double()).abs().max()) for key in a)


class Tampering(LocalTransport):
    """Lets a test see and change what a site answers; keeps every message."""

    def __init__(self, experiment, folder, tamper):
        super().__init__(Sites(experiment, folder), SITES, KEY)
        self.tamper = tamper
        self.seen = []

    def exchange(self, requests, timeout, deliver):
        def change(site, answer):
            answer = self.tamper(site, requests[site], answer)
            if answer is not None:
                self.seen.append((site, requests[site], answer))
                deliver(site, answer)

        super().exchange(requests, timeout, change)


class Twice(Tampering):
    """Delivers each answer twice."""

    def exchange(self, requests, timeout, deliver):
        def both(site, answer):
            deliver(site, answer)
            deliver(site, answer)

        super().exchange(requests, timeout, both)


def run(
    tmp_path,
    experiment,
    tamper=lambda site, request, answer: answer,
    resume=False,
    keys=None,
    transport=Tampering,
) -> Tampering:
    """Run with the keys of this file, the folder being ``run``."""
    inner = transport(experiment, tmp_path / "cache", tamper)
    for site, key in (keys or {}).items():
        inner.client(site).key = key
    encrypted = EncryptedTransport(
        inner, experiment, method_of(experiment), ADDER, tmp_path / "run"
    )
    run_experiment(experiment, tmp_path / "run", encrypted, resume=resume)
    return inner


def failures(tmp_path) -> list[dict[str, str]]:
    return [row["failed"] for row in rows(tmp_path / "run", "rounds")]


# --- ciphertexts


def update(values) -> dict[str, np.ndarray]:
    return {"diff/a": np.asarray(values, np.float32)}


def summed(*updates_and_weights) -> list[np.ndarray]:
    total = []
    for values, weight in updates_and_weights:
        ciphers = ADDER.read("s", KEY.encrypt(update(values), weight))
        total = ADDER.add(total, ciphers) if total else ciphers
    return list(ADDER.write(total).values())


def test_sums_at_the_limit_are_exact():
    """With 64 sites and the largest numbers, the noise of the ciphertexts is rounded away."""
    largest = LARGEST_NUMBER / 2**FRACTION_BITS
    signs = np.random.default_rng(1).choice([-1.0, 1.0], 5000)
    numbers = KEY.decrypt(summed(*[(largest * signs, 1)] * 64), 64)
    assert len(numbers) == 2 * wire.CIPHER_VALUES
    np.testing.assert_array_equal(numbers[:5000], 64 * LARGEST_NUMBER * signs.astype(np.int64))
    assert not numbers[5000:].any()


def test_ciphertexts_differ_and_sums_ignore_their_order():
    values = np.linspace(-1, 1, 10)
    one, other = (KEY.encrypt(update(values), 3)["cipher/00000"] for _ in range(2))
    assert not np.array_equal(one, other)
    terms = [(values, 3), (values**2, 5), (-values, 1)]
    sums = [KEY.decrypt(summed(*order), 3) for order in (terms, terms[::-1])]
    np.testing.assert_array_equal(*sums)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 2**32 - 1)), min_size=2, max_size=4))
def test_the_mean_is_within_its_bound(sites):
    """``2^-21`` divided by the mean weight, and half a unit of float32."""
    model = {"a": (3, 5), "b": (), "c": (7,)}
    updates = [
        np.random.default_rng(seed).normal(0, 0.1, 23).astype(np.float32) for _, seed in sites
    ]
    counts = [weight for weight, _ in sites]
    numbers = KEY.decrypt(summed(*zip(updates, counts, strict=True)), len(sites))
    decrypted = dict(mean_of(numbers, sum(counts), model))
    assert {name: array.shape for name, array in decrypted.items()} == model
    flat = np.concatenate([array.ravel() for array in decrypted.values()]).astype(np.float64)
    expected = np.average(np.array(updates, np.float64), axis=0, weights=counts)
    bound = (
        2.0 ** -(FRACTION_BITS + 1) * len(sites) / sum(counts) + 2.0**-24 * np.abs(expected) + 1e-15
    )
    assert (np.abs(flat - expected) <= bound).all()


@pytest.mark.parametrize("value", [2.0**21 / 10, -3e5, np.inf, np.nan])
def test_an_update_beyond_the_limit_is_refused_without_a_number_of_it(value):
    with pytest.raises(RefusedError, match="product with the weight 10") as refused:
        KEY.encrypt(update([0.0, value * 1.001]), 10)
    assert public_text(refused.value) == (
        "update to be encrypted: expected numbers whose product with the weight 10 is below "
        "2097152; what was found is in the site's own log"
    )


def test_whatever_is_no_sum_of_this_key_is_not_decrypted():
    cipher = summed(([1.0], 1))
    with pytest.raises(WireError, match="another key"):
        OTHER_KEY.decrypt(cipher, 1)
    with pytest.raises(WireError, match="another key"):  # more than one term could be
        KEY.decrypt(summed(([2.0**21], 1), ([2.0**21], 1)), 1)
    half = tenseal.ckks_vector(
        tenseal.context_from(SITE_CONTEXT), [0.5] * wire.CIPHER_VALUES, scale=2.0**40
    )
    with pytest.raises(WireError, match="whole numbers"):
        KEY.decrypt([np.frombuffer(half.serialize(), np.uint8)], 1)


def without_scale() -> bytes:
    vector = tenseal.ckks_vector(
        tenseal.context_from(SITE_CONTEXT), [1.0] * wire.CIPHER_VALUES, scale=2.0**30
    )
    return vector.serialize()


def short() -> bytes:
    return tenseal.ckks_vector(tenseal.context_from(SITE_CONTEXT), [1.0], scale=2.0**40).serialize()


@pytest.mark.parametrize("content", [b"", b"abc", bytes(1000), without_scale(), short()])
def test_the_server_adds_nothing_but_whole_ciphertexts(content):
    with pytest.raises(WireError, match="cipher/00000 of site-1"):
        ADDER.read("site-1", {"cipher/00000": np.frombuffer(content, np.uint8)})


def numbered(role: str) -> dict[str, np.ndarray]:
    """The ciphertexts of 410 million numbers, each of which holds only its number."""
    return {
        wire.cipher_name(role, number): np.frombuffer(f"{number}".encode(), np.uint8)
        for number in MANY
    }


def test_the_server_adds_ciphertexts_by_number(monkeypatch):
    monkeypatch.setattr(encryption, "_vector", lambda context, cipher, where: int(cipher.tobytes()))
    assert ADDER.read("s", numbered("cipher")) == list(MANY)


def test_a_site_decrypts_ciphertexts_by_number(monkeypatch, tmp_path):
    numbers = []

    def decrypt(key: SiteKey, ciphers: list[np.ndarray], terms: int) -> np.ndarray:
        numbers.extend(int(cipher.tobytes()) for cipher in ciphers)
        raise KeyboardInterrupt

    monkeypatch.setattr(SiteKey, "decrypt", decrypt)
    request = read_request(to_decrypt((0.5, 1), (0.25, 3)).meta)
    model = {"w": (len(MANY), wire.CIPHER_VALUES)}
    with pytest.raises(KeyboardInterrupt):
        open_sum(request, numbered("sum"), "s", secure(), KEY, model=model, folder=tmp_path, own=1)
    assert numbers == list(MANY)


def test_a_changed_byte_never_changes_a_sum_unnoticed():
    """Most show when the ciphertext is read; the others decrypt to numbers that are not whole."""
    values = np.linspace(-1, 1, wire.CIPHER_VALUES)
    whole = KEY.encrypt(update(values), 7)["cipher/00000"]
    expected = KEY.decrypt([whole], 1)
    noticed = {"read": 0, "decrypted": 0}
    for position in np.random.default_rng(3).integers(0, len(whole), 60):
        changed = whole.copy()
        changed[position] ^= 0x55
        stage = "read"
        try:
            total = ADDER.read("s", {"cipher/00000": changed})
            stage = "decrypted"
            decrypted = KEY.decrypt(list(ADDER.write(total).values()), 1)
        except WireError:
            noticed[stage] += 1
        else:
            np.testing.assert_array_equal(decrypted, expected)
    assert min(noticed.values()) > 0


def serialised(**changes) -> bytes:
    parameters = {"poly_modulus_degree": 8192, "coeff_mod_bit_sizes": [60, 40, 40], **changes}
    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS, encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC, **parameters
    )
    context.global_scale = 2**40
    return context.serialize(save_secret_key=True)


def test_contexts_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="no secret key"):
        Adder(SITE_CONTEXT)
    with pytest.raises(ConfigError, match="expected a secret key"):
        SiteKey(SERVER_CONTEXT)
    for wrong in (b"", b"nonsense", serialised(coeff_mod_bit_sizes=[50, 30, 40])):
        with pytest.raises(ConfigError, match="HEBuilder"):
            SiteKey(wrong)
    for degree in (4096, 16384):
        with pytest.raises(ConfigError, match="degree 8192"):
            SiteKey(serialised(poly_modulus_degree=degree, coeff_mod_bit_sizes=[40, 20, 40]))


def test_without_tenseal_the_error_tells_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedward\[he\]'"):
        run_local(secure(), tmp_path / "run", sites=SITES)
    assert run_local(plain(secure(options={"rounds": 1})), tmp_path / "plain", sites=SITES).exists()


# --- the wire list


MODEL = {"w": torch.zeros(70, 60), "count": torch.tensor(3)}


def request(**meta) -> Message:
    asked = requests(secure(), Exchange(1, MODEL, {"s": ClientTask()}))["s"]
    return Message({**asked.meta, **meta}, asked.arrays)


def check(*args, classes=(), **options) -> None:
    answer_checks.check_answer(*args, rules_of(NEEDS, classes), **options)


def sealed(arrays=None, **meta) -> Message:
    base = {
        "site": "s",
        "round": 1,
        "labelled": 3,
        "unlabelled": 4,
        "steps": 2,
        "train": {"loss": 1.0},
        "metrics": [],
    }
    ciphers = {f"cipher/{number:05d}": np.ones(9, np.uint8) for number in range(2)}  # 4200 numbers
    return Message({**base, wire.KEY: "a" * 64, **meta}, ciphers if arrays is None else arrays)


def test_an_encrypted_answer_is_ciphertexts_by_name_and_number():
    check(sealed(), "s", request(), encrypted=True)
    largest = {"cipher/00000": ONE, "cipher/00001": np.ones(wire.LARGEST_CIPHER, np.uint8)}
    check(sealed(largest), "s", request(), encrypted=True)
    idle = Message(
        {name: value for name, value in sealed(steps=0).meta.items() if name != wire.KEY}
    )
    check(idle, "s", request(), encrypted=True)
    check(Message({"site": "s", "round": 1, "error": "boom"}), "s", request(), encrypted=True)


ONE = np.ones(9, np.uint8)
FLOATS = np.zeros((70, 60), np.float32)


def keyless() -> Message:
    """Return ciphertexts that do not say which key made them."""
    answer = sealed()
    del answer.meta[wire.KEY]
    return answer


@pytest.mark.parametrize(
    "answer",
    [
        keyless(),
        sealed({"cipher/00000": ONE}),
        sealed({"cipher/00000": ONE, "cipher/00001": ONE, "cipher/00002": ONE}),
        sealed({"cipher/00000": ONE, "cipher/1": ONE}),
        sealed({"cipher/00000": ONE, "cipher/00001": FLOATS}),
        sealed({"cipher/00000": ONE, "cipher/00001": ONE.astype(np.float32)}),
        sealed({"cipher/00000": ONE, "cipher/00001": ONE[:0]}),
        sealed({"cipher/00000": ONE, "cipher/00001": ONE.reshape(3, 3)}),
        sealed({"cipher/00000": ONE, "cipher/00001": np.ones(wire.LARGEST_CIPHER + 1, np.uint8)}),
        sealed({"cipher/00000": ONE, "cipher/00001": ONE, "diff/w": FLOATS}),
        sealed({"diff/w": FLOATS}),
        sealed({}),
        sealed(key="short"),
        sealed(key=None),
        sealed(path="/data"),
        sealed(steps=0),
    ],
)
def test_nothing_else_passes_in_its_place(answer):
    with pytest.raises(WireError):
        check(answer, "s", request(), encrypted=True)


def test_ciphertexts_and_keys_have_no_place_in_a_plain_answer():
    for answer in (sealed(), sealed({"diff/w": FLOATS})):
        with pytest.raises(WireError):
            check(answer, "s", request())


def test_a_mean_is_the_models_tensors_and_nothing_else():
    shapes = wire.shapes(request())
    assert shapes == {"w": (70, 60)}
    meta = {"site": "s", "round": 1}
    answer_checks.check_mean(Message(meta, {"mean/w": FLOATS}), "s", 1, shapes)
    answer_checks.check_mean(Message({**meta, "restarts": 1}, {"mean/w": FLOATS}), "s", 1, shapes)
    answer_checks.check_mean(Message({**meta, "error": "boom"}), "s", 1, shapes)
    waiting = Message({**meta, "waiting": "a" * 64})
    content = answer_checks.check_mean(waiting, "s", 1, shapes)
    assert content == WaitingAnswer(site="s", round=1, waiting="a" * 64)
    with pytest.raises(WireError, match="arrays of s: expected only nothing"):
        answer_checks.check_mean(Message(waiting.meta, {"mean/w": FLOATS}), "s", 1, shapes)
    wrong = [
        {},
        {"mean/w": FLOATS[1:]},
        {"mean/w": FLOATS, "mean/v": FLOATS},
        {"mean/w": FLOATS * np.nan},
    ]
    for arrays in wrong:
        with pytest.raises(WireError):
            answer_checks.check_mean(Message(meta, arrays), "s", 1, shapes)
    for change in (
        {"site": "t"},
        {"round": 2},
        {"labelled": 3},
        {"restarts": True},
        {"round": True},
        {"round": 1.0},
    ):
        with pytest.raises(WireError):
            answer_checks.check_mean(
                Message({**meta, **change}, {"mean/w": FLOATS}), "s", 1, shapes
            )


# --- what can be had


@pytest.mark.parametrize(
    ("method", "options", "reason"),
    [
        ("fedperl", {}, "ssfl is the same without peers"),
        ("wfedavg", {}, "distance_scale=0 weights by images alone"),
        ("mt_wfedavg", {}, "distances of single sites' models"),
        ("isofed", {}, "distances of single sites' models"),
        ("rscfed", {"distance_scale": 0.0}, "each pass weights"),
        ("fedprox", {"distance_scale": 1.0}, "distance_scale=0 weights by images alone"),
    ],
)
def test_a_job_that_needs_single_models_is_refused(method, options, reason):
    raw = tiny(method).model_dump(mode="json") | {"secure_aggregation": True}
    raw["options"] |= {"participants": 3, **options}
    with pytest.raises(ConfigError, match=reason) as error:
        Experiment.parse(raw, "job")
    assert f"{method} cannot work with secure_aggregation=true: " in str(error.value)


def test_the_mean_of_one_site_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="secure_aggregation, which needs at least 2 sites a round"
    ):
        secure(options={"participants": 1})


def test_updates_in_float16_are_not_encrypted():
    raw = tiny("fedavg").model_dump(mode="json") | {
        "secure_aggregation": True,
        "update_dtype": "float16",
    }
    with pytest.raises(
        ConfigError, match="update_dtype=float16 cannot be combined with secure_aggregation"
    ):
        Experiment.parse(raw, "job")


def test_a_job_may_ask_for_more_than_two():
    assert secure().smallest_sum == 2
    assert secure(minimum_replies=3).smallest_sum == 3
    with pytest.raises(
        ConfigError, match="secure_aggregation, which needs at least 3 sites a round"
    ):
        secure(minimum_replies=3, options={"participants": 2})


# --- whole runs


UNEQUAL = {"images_per_round": None, "images_at_most": None, "batch": 4}
"""Every site passes through its own images: the larger ones take more steps."""


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedavg", {}),
        ("ssfl", UNEQUAL),
        ("isofed", {"distance_scale": 0.0}),
    ],
)
def test_the_weights_are_those_of_plain_averaging(tmp_path, method, options):
    """Three rounds of SGD are within 2e-6 of the plain run, and one round within 2^-21."""
    experiment = secure(method, options=options)
    encrypted = run_local(experiment, tmp_path / "encrypted", sites=SITES)
    in_plain = run_local(plain(experiment), tmp_path / "plain", sites=SITES)
    assert not any(row["failed"] for row in rows(encrypted, "rounds"))
    assert largest_difference(encrypted, in_plain) < 2e-6
    first_metrics = [
        [row for row in rows(folder, "metrics") if row["round"] == 0]
        for folder in (encrypted, in_plain)
    ]
    assert first_metrics[0] == first_metrics[1]


def test_the_weights_differ_where_sites_do(tmp_path):
    """The test above means nothing unless the mean by steps is another than the plain mean."""
    steps = {}

    def note(site, request, answer):
        if request.meta["task"] == "train":
            steps[site] = answer.meta["steps"]
        return answer

    run(tmp_path, secure(options={**UNEQUAL, "rounds": 1}), note)
    assert len(set(steps.values())) > 1


def test_no_single_model_is_stored_or_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(SiteModels, "put", None)
    folder = run_local(secure("fedprox"), tmp_path / "run", sites=SITES)
    assert not list(folder.glob("models/*"))
    assert rows(folder, "groups") == []  # the distances in it are those of single models
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"


def test_bytes_count_what_travelled(tmp_path):
    inner = run(tmp_path, secure(options={"rounds": 1}))
    trained = [
        (request, answer) for _, request, answer in inner.seen if request.meta["task"] == "train"
    ]
    opened = [
        (request, answer) for _, request, answer in inner.seen if request.meta["task"] == DECRYPT
    ]
    assert len(trained) == 3
    assert len(opened) == 3
    size = {array.nbytes for request, _ in trained for array in [*request.arrays.values()]}
    assert size
    (row,) = rows(tmp_path / "run", "rounds")
    assert row["bytes_up"] == sum(answer.nbytes for _, answer in trained + opened)
    model = sum(array.nbytes for array in trained[0][0].arrays.values())
    assert row["bytes_down"] == 3 * model + sum(request.nbytes for request, _ in opened)


def beginnings(arrays: dict[str, np.ndarray]) -> list[bytes]:
    """Return the bytes of four numbers of each array, from its first one that is not 0."""
    decrypted = [
        array.ravel()[np.flatnonzero(array)[0] :][:4] for array in arrays.values() if array.any()
    ]
    return [numbers.tobytes() for numbers in decrypted if len(numbers) == 4]


def test_nothing_plain_is_on_the_wire(tmp_path):
    """The first numbers of an update's tensors that are not 0 are in no answer to the server."""
    updates = []

    def plain_answers(site, request, answer):
        updates.append(answer.arrays)
        return answer

    one_round = secure(options={"rounds": 1})
    inner = Tampering(plain(one_round), tmp_path / "cache", plain_answers)
    run_experiment(plain(one_round), tmp_path / "plain", inner)
    pieces = [piece for arrays in updates for piece in beginnings(arrays)]
    assert len(pieces) > 3 * len(tiny_model()) / 2
    encrypted = run(tmp_path, one_round)
    for _, asked, answer in encrypted.seen:
        if asked.meta["task"] == "train":
            assert {array.dtype for array in answer.arrays.values()} == {np.dtype(np.uint8)}
        everything = (
            b"".join(array.tobytes() for array in answer.arrays.values())
            + repr(answer.meta).encode()
        )
        assert not [piece for piece in pieces if piece in everything]


@pytest.mark.parametrize("silent", [["site-2", "site-9"], ["site-2"]])
def test_the_mean_of_too_few_is_not_decrypted(tmp_path, silent):
    """With one update, or two of three that the job asks for, no site decrypts."""
    minimum = 3 if len(silent) == 1 else 1
    experiment = secure(minimum_replies=minimum, options={"rounds": 1})
    tasks = set()
    sizes = []

    def silence(site, request, answer):
        tasks.add(request.meta["task"])
        if site in silent and request.meta["task"] == "train":
            return None
        sizes.append(answer.nbytes)
        return answer

    with in_vain():
        run(tmp_path, experiment, silence)
    assert "train" in tasks
    assert DECRYPT not in tasks
    (failed,) = failures(tmp_path)
    assert set(failed) == set(SITES)
    assert (
        f"{experiment.smallest_sum} or more encrypted updates, found {3 - len(silent)}"
        in failed["site-1"]
    )
    assert not (tmp_path / "run" / "sums").exists()
    (row,) = rows(tmp_path / "run", "rounds")
    assert row["bytes_up"] == sum(sizes) > 0


def test_without_means_a_run_gives_up(tmp_path):
    with pytest.raises(RunError, match="in a row"):
        run_local(secure(options={"rounds": 5}), tmp_path / "run", sites=["site-1"])


def cut(cipher: np.ndarray) -> np.ndarray:
    return cipher[: len(cipher) // 2]


@pytest.mark.parametrize("damage", [cut, np.zeros_like, lambda cipher: cipher.view(np.int8)])
def test_a_damaged_ciphertext_costs_its_site_alone(tmp_path, damage):
    def tamper(site, request, answer):
        if site != "site-2" or request.meta["task"] != "train" or not answer.arrays:
            return answer
        last = sorted(answer.arrays)[-1]
        return Message(answer.meta, {**answer.arrays, last: damage(answer.arrays[last])})

    inner = run(tmp_path, secure(options={"rounds": 1}), tamper)
    (failed,) = failures(tmp_path)
    assert set(failed) == {"site-2"}
    (row,) = rows(tmp_path / "run", "rounds")
    assert row["replied"] == ["site-1", "site-9"]
    assert row["bytes_up"] == sum(answer.nbytes for _, _, answer in inner.seen)


def test_what_only_the_key_shows_to_be_damaged_costs_the_round(tmp_path):
    """The sum with a ciphertext of another key is refused by every site, and the model stays."""

    def tamper(site, request, answer):
        if site == "site-2" and request.meta["task"] == "train":
            return Message({**answer.meta, wire.KEY: KEY.fingerprint}, answer.arrays)
        return answer

    with in_vain():
        run(tmp_path, secure(options={"rounds": 1}), tamper, keys={"site-2": OTHER_KEY})
    (failed,) = failures(tmp_path)
    assert set(failed) == set(SITES)
    assert "a ciphertext is damaged, or made with another key" in failed["site-1"]


def test_a_site_with_another_key_is_named(tmp_path):
    inner = run(tmp_path, secure(options={"rounds": 1}), keys={"site-9": OTHER_KEY})
    (failed,) = failures(tmp_path)
    assert set(failed) == {"site-9"}
    assert "the key of site-1, site-2, found another key" in failed["site-9"]
    (row,) = rows(tmp_path / "run", "rounds")
    assert row["bytes_up"] == sum(answer.nbytes for _, _, answer in inner.seen)


def test_where_no_key_is_that_of_most_nobody_counts(tmp_path):
    def silence(site, request, answer):
        return None if site == "site-1" else answer

    with in_vain():
        run(tmp_path, secure(options={"rounds": 1}), silence, keys={"site-9": OTHER_KEY})
    (failed,) = failures(tmp_path)
    assert set(failed) == set(SITES)
    assert "one key at most sites" in failed["site-2"]


def test_approvals_withdrawn_before_the_decryption_are_said_to_be(tmp_path):
    experiment = secure(options={"rounds": 1})

    def wait(site, request, answer):
        if request.meta["task"] != DECRYPT or site == "site-1":
            return answer
        return Message({"site": site, "round": 1, "waiting": experiment.digest})

    with in_vain():
        run(tmp_path, experiment, wait)
    (failed,) = failures(tmp_path)
    assert set(failed) == set(SITES)
    waiting = "waiting for approval of the job"
    assert f"site-2: {waiting}; site-9: {waiting}" in failed["site-1"]


@pytest.mark.parametrize(
    ("liars", "deaf", "said"),
    [
        (
            ["site-1"],
            [],
            "found another one from site-1 than from site-2, site-9. The round counts as failed "
            "and the model stays as it was. If this happens again, start a new run without site-1.",
        ),
        (["site-1"], ["site-9"], "found different ones: site-1 against site-2."),
        (["site-1", "site-2"], [], "found another one from site-9 than from site-1, site-2."),
    ],
    ids=["one of three", "one of two", "two of three"],
)
def test_disagreeing_decryptions_are_not_used(tmp_path, liars, deaf, said):
    """Two who cooperate do not outvote an honest site."""

    def lie(site, request, answer):
        if request.meta["task"] != DECRYPT:
            return answer
        if site in deaf:
            return None
        name = next(iter(answer.arrays))
        off = np.float32(1e-6 if site in liars else 0)
        return Message(answer.meta, {**answer.arrays, name: answer.arrays[name] + off})

    with in_vain():
        run(tmp_path, secure(options={"rounds": 1}), lie)
    (failed,) = failures(tmp_path)
    assert set(failed) == set(SITES)
    assert said in failed["site-1"]


@pytest.mark.parametrize(("deaf", "counts"), [(["site-9"], True), (["site-2", "site-9"], False)])
def test_two_sites_must_tell_the_mean(tmp_path, deaf, counts):
    def tamper(site, request, answer):
        return None if site in deaf and request.meta["task"] == DECRYPT else answer

    with nullcontext() if counts else in_vain():
        run(tmp_path, secure(options={"rounds": 1}), tamper)
    (failed,) = failures(tmp_path)
    assert (failed == {}) == counts
    if not counts:
        assert "the mean from 2 sites or more" in failed["site-9"]


def test_second_answers_are_not_added(tmp_path):
    experiment = secure(options={"rounds": 1})
    run(tmp_path / "twice", experiment, transport=Twice)
    run(tmp_path, experiment)
    assert largest_difference(tmp_path / "twice" / "run", tmp_path / "run") == 0


def test_a_site_that_tells_the_mean_twice_is_one_witness(tmp_path):
    def alone(site, request, answer):
        return answer if site == "site-1" or request.meta["task"] != DECRYPT else None

    with in_vain():
        run(tmp_path, secure(options={"rounds": 1}), alone, transport=Twice)
    (failed,) = failures(tmp_path)
    assert set(failed) == set(SITES)
    assert "the mean from 2 sites or more" in failed["site-1"]


def test_an_update_with_impossible_counts_is_in_no_sum(tmp_path):
    """A sum is decrypted whole, and its weight would be as wrong as the counts."""

    def lie(site, request, answer):
        if site == "site-9" and request.meta["task"] == "train":
            return Message({**answer.meta, "steps": 10_000}, answer.arrays)
        return answer

    inner = run(tmp_path, secure(options={"rounds": 1}), lie)
    (failed,) = failures(tmp_path)
    assert set(failed) == {"site-9"}
    assert "steps of site-9: expected at most 2, found 10000" in failed["site-9"]
    sums = [asked.meta["sites"] for _, asked, _ in inner.seen if asked.meta["task"] == DECRYPT]
    assert sums == [2, 2]


# --- interruptions


@pytest.mark.parametrize("error", [RunError, ConfigError])
def test_an_abort_during_decryption_costs_no_round(tmp_path, error):
    """As FLARE's transport raises it; the round is asked for again when the run is resumed."""
    experiment = secure(options={"rounds": 2})

    def abort(site, request, answer):
        if request.meta["task"] == DECRYPT and request.meta["round"] == 2:
            raise error(
                "job",
                expected="to run to its end",
                found="an abort",
                remedy="Resume it when wanted.",
            )
        return answer

    straight = run_local(experiment, tmp_path / "straight", sites=SITES)
    with pytest.raises(error, match="an abort"):
        run(tmp_path, experiment, abort)
    assert failures(tmp_path) == [{}]
    run(tmp_path, experiment, resume=True)
    assert failures(tmp_path) == [{}, {}]
    assert largest_difference(straight, tmp_path / "run") == 0


def test_tasks_whose_updates_do_not_add_up_are_not_sent(tmp_path, monkeypatch):
    """They are of one length, so that only their names tell."""
    experiment = secure()
    inner = Tampering(experiment, tmp_path / "cache", lambda site, request, answer: answer)
    transport = EncryptedTransport(
        inner, experiment, method_of(experiment), ADDER, tmp_path / "run"
    )
    excluded = {"train": ("a.",), "pretrain": ("b.",)}
    monkeypatch.setattr(
        transport, "_requirements", Requirements(tensors=TensorRules(excluded=excluded))
    )
    work = {"site-1": ClientTask("train"), "site-2": ClientTask("pretrain")}
    with pytest.raises(
        RunError, match=r"withhold the same tensors, found pretrain: b\., train: a\."
    ):
        transport.exchange(
            requests(experiment, Exchange(1, tiny_model(), work), SITES), 60, lambda *_: None
        )
    assert inner.seen == []
    del work["site-2"]
    transport.exchange(
        requests(experiment, Exchange(1, tiny_model(), work), ["site-2"]), 60, lambda *_: None
    )
    assert {site for site, _, _ in inner.seen} == {"site-1", "site-2"}


def test_an_error_that_carries_arrays_costs_its_site_alone(tmp_path):
    def tamper(site, request, answer):
        if site == "site-2" and answer.arrays and request.meta["task"] == "train":
            return Message(
                {"site": site, "round": request.meta["round"], "error": "boom"}, answer.arrays
            )
        return answer

    run(tmp_path, secure(options={"rounds": 1}), tamper)
    (failed,) = failures(tmp_path)
    assert set(failed) == {"site-2"}


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_an_unforeseen_error_in_a_check_costs_its_site_alone(tmp_path, monkeypatch, is_encrypted):
    check = Claims.check

    def fail(self, answer, request):
        if answer.site == "site-2":
            raise OverflowError("too large")
        check(self, answer, request)

    monkeypatch.setattr(Claims, "check", fail)
    experiment = secure(options={"rounds": 1})
    folder = tmp_path / "run"
    run_local(experiment if is_encrypted else plain(experiment), folder, sites=SITES)
    (row,) = rows(folder, "rounds")
    assert row["replied"] == ["site-1", "site-9"]
    assert list(row["failed"]) == ["site-2"]
    assert "answer of site-2: " in row["failed"]["site-2"]


def die_in(task: str, round_: int):
    """Return a tampering that ends the server's process once the first site has answered a task."""

    def die(site, request, answer):
        if request.meta["task"] == task and request.meta["round"] == round_:
            raise KeyboardInterrupt
        return answer

    return die


@pytest.mark.parametrize("task", ["train", DECRYPT])
def test_a_resumed_run_ends_with_the_same_weights(tmp_path, task):
    """A site that has decrypted the sum already gives the same mean: sums are exact."""
    experiment = secure(options={"rounds": 2})
    straight = run_local(experiment, tmp_path / "straight", sites=SITES)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, experiment, die_in(task, 2))
    run(tmp_path, experiment, resume=True)
    assert largest_difference(straight, tmp_path / "run") == 0
    assert not any(failures(tmp_path))


def test_a_resumed_run_has_no_second_sum_decrypted(tmp_path):
    """The sums of three sites and of two of them would give the server the third's update."""
    experiment = secure()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, experiment, die_in(DECRYPT, 2))

    def silence(site, request, answer):
        return None if site == "site-9" and request.meta["round"] == 2 else answer

    inner = run(tmp_path, experiment, silence, resume=True)
    exchanges = {(asked.meta["task"], asked.meta["round"]) for _, asked, _ in inner.seen}
    assert (DECRYPT, 2) not in exchanges
    first, second, third = failures(tmp_path)
    assert first == {}
    assert third == {}
    assert "decrypted before an interruption" in second["site-1"]


@pytest.mark.parametrize("damage", ["", "[" * 100_000], ids=["empty", "lists without end"])
def test_a_resumed_run_without_a_readable_record_has_no_sum_decrypted(tmp_path, damage):
    experiment = secure()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, experiment, die_in(DECRYPT, 2))
    (record,) = (tmp_path / "run").rglob("sums/00002-*.json")
    record.write_text(damage)
    inner = run(tmp_path, experiment, resume=True)
    exchanges = {(asked.meta["task"], asked.meta["round"]) for _, asked, _ in inner.seen}
    assert (DECRYPT, 2) not in exchanges
    first, second, third = failures(tmp_path)
    assert first == {}
    assert third == {}
    assert "expected a record of the updates that were decrypted" in second["site-1"]


# --- a site's own guard, whatever the server asks


def to_decrypt(*updates_and_weights, **meta) -> Message:
    model = tiny_model()
    size = sum(tensor.numel() for tensor in model.values())
    sums = summed(*[(np.full(size, value), weight) for value, weight in updates_and_weights])
    base = {
        **facts(secure()),
        "task": DECRYPT,
        "trained": "train",
        "evaluate": False,
        "round": 4,
        "part": 0,
    }
    base |= {
        "sites": len(updates_and_weights),
        "weight": sum(weight for _, weight in updates_and_weights),
    }
    base |= {"effective": effective_number([weight for _, weight in updates_and_weights])}
    return Message(
        {**base, **meta}, {f"sum/{number:05d}": cipher for number, cipher in enumerate(sums)}
    )


def tiny_model() -> dict[str, torch.Tensor]:
    from fedward.nets import build

    return build("small_cnn", 8, 3).state_dict()


@pytest.fixture
def site(tmp_path) -> Client:
    return undaunted(secure(), tmp_path)


def undaunted(experiment: Experiment, folder: Path) -> Client:
    """A site that decrypts whatever else it was asked before."""
    log = AdmitsAll(folder, "site-1", experiment, method_of(experiment))
    return new_client("site-1", experiment, folder, key=KEY, log=log)


def test_a_site_tells_the_mean_and_tells_it_again(site):
    asked = to_decrypt((0.5, 1), (0.25, 3))
    for _ in range(2):
        answer = site.handle(asked)
        assert set(answer.meta) == {"site", "round"}
        assert {float(value) for array in answer.arrays.values() for value in array.ravel()} == {
            0.3125
        }
    again = to_decrypt((0.25, 3), (0.5, 1))  # other ciphertexts, the same mean
    assert "error" not in site.handle(again).meta


@pytest.mark.parametrize(
    ("second", "decrypts"),
    [({}, False), ({"part": 1}, True), ({"round": 5}, True), ({"run": RUN[::-1]}, True)],
)
def test_a_site_decrypts_one_mean_for_each_exchange(site, second, decrypts):
    assert "error" not in site.handle(to_decrypt((0.5, 1), (0.25, 3))).meta
    answer = site.handle(to_decrypt((0.5, 1), (0.75, 3), **second))
    assert ("error" not in answer.meta) == decrypts
    if not decrypts:
        assert "one mean for each exchange" in answer.meta["error"]
        assert not answer.arrays


@pytest.mark.parametrize("place", [0, -1])
def test_a_mean_that_differs_in_one_number_is_another(site, place):
    values = np.full(sum(tensor.numel() for tensor in tiny_model().values()), 0.25)
    assert "error" not in site.handle(to_decrypt((0.5, 1), (values, 3))).meta
    values[place] = 0.75
    answer = site.handle(to_decrypt((0.5, 1), (values, 3)))
    assert "one mean for each exchange" in answer.meta["error"]


@pytest.mark.proves(
    "server",
    "decryption of a sum of which one update counts for next to nothing",
    "refused by each site, by the server's word or by its own weight",
)
@pytest.mark.parametrize(
    ("weights", "meta", "reason"),
    [
        ((1, 1, 1), {}, None),
        ((1, 1, 2), {}, None),  # worth 2.67
        ((1, 1000, 1000), {}, "updates worth 2.5 equally weighted ones, found 2"),
        (
            (1, 1000, 1000),
            {"effective": 3.0},
            "at most 2 beside this site's own weight 1, found 3 of 3 updates",
        ),
    ],
)
def test_a_site_decrypts_no_sum_that_is_next_to_one_of_fewer(tmp_path, weights, meta, reason):
    site = undaunted(secure(minimum_replies=3), tmp_path)
    asked = to_decrypt(
        *((0.25, weight) for weight in weights), experiment=site.experiment.digest, **meta
    )
    answer = site.handle(asked)
    assert bool(answer.arrays) == (reason is None)
    assert (reason or "") in answer.meta.get("error", "")


@pytest.mark.proves(
    "lead",
    "an encrypted job whose weights leave an average of three to two",
    "not decrypted; the model stays",
)
def test_the_server_has_no_unequal_sum_decrypted(tmp_path, monkeypatch):
    counts = {"site-1": 40, "site-2": 40, "site-9": 1}
    experiment = secure(minimum_replies=3, options={"rounds": 1})
    tasks = set()
    monkeypatch.setattr(
        "fedward.server.encrypted_transport.EncryptedTransport._add", adding(counts)
    )

    def note(site, request, answer):
        tasks.add(request.meta["task"])
        return answer

    with in_vain():
        run(tmp_path, experiment, note)
    assert DECRYPT not in tasks
    (failed,) = failures(tmp_path)
    assert set(failed) == set(SITES)
    assert (
        "updates that are worth 2.5 equally weighted ones: minimum_replies is 3, found 2.05"
        in failed["site-1"]
    )
    assert "images_per_round" in failed["site-1"]


def adding(counts: dict[str, int]):
    """Return what adds a site's update, as if it had these many steps."""
    add = EncryptedTransport._add

    def as_many(self, total, reply, answer, task):
        add(self, total, reply, answer, task)
        total.weights[-1] = counts[reply.site]

    return as_many


@pytest.mark.parametrize(
    "damage",
    ["{{", '"{mean}"', '["{mean}"]', '{{"sum": "{mean}"}}', "null", "[" * 100_000],
    ids=["half", "a text", "a list", "another key", "null", "lists without end"],
)
def test_a_damaged_note_of_what_was_decrypted_refuses(site, tmp_path, damage):
    asked = to_decrypt((0.5, 1), (0.25, 3))
    site.handle(asked)
    (note,) = (tmp_path / "decrypted").rglob("*.json")
    note.write_text(damage.format(mean=json.loads(note.read_text())["mean"]))
    assert "one mean for each exchange" in site.handle(asked).meta["error"]


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"sites": 1}, "sites of 2 or more"),
        ({"sites": True}, "request, sites: expected a count of 1 or more"),
        ({"weight": 0}, "request, weight: expected a count of 1 or more"),
        ({"weight": 1.5}, "request, weight: expected a count of 1 or more"),
        ({"weight": 1}, "beside this site's own weight 1, found 1.6 of 2 updates, weight 1"),
        ({"weight": 1, "effective": 1.0}, "beside this site's own weight 1, found 1 of 2 updates"),
        ({"effective": "2"}, "request, effective: expected a finite number"),
        (
            {"effective": 1.7},
            "at most 1.6 beside this site's own weight 1, found 1.7 of 2 updates, weight 4",
        ),
        (
            {"weight": 100},
            "at most 1.02 beside this site's own weight 1, found 1.6 of 2 updates, weight 100",
        ),
        ({"run": "../../elsewhere"}, "request, run: expected 32 hexadecimal digits"),
    ],
)
def test_a_site_refuses_what_no_honest_server_asks(site, tmp_path, meta, reason):
    answer = site.handle(to_decrypt((0.5, 1), (0.25, 3), **meta))
    assert reason in answer.meta["error"]
    assert not list(tmp_path.rglob("decrypted/**/*.json"))


def test_a_site_refuses_other_arrays_than_a_sum(site):
    asked = to_decrypt((0.5, 1), (0.25, 3))
    less = dict(list(asked.arrays.items())[1:])
    renamed = {name.replace("sum", "cipher"): array for name, array in asked.arrays.items()}
    for arrays in (less, renamed, {**asked.arrays, "sum/99999": ONE}):
        assert "WireError" not in site.handle(Message(asked.meta, arrays)).arrays
        assert "sum" in site.handle(Message(asked.meta, arrays)).meta["error"]


def test_a_site_decrypts_for_encrypted_jobs_alone(tmp_path):
    answer = undaunted(plain(secure()), tmp_path).handle(to_decrypt((0.5, 1), (0.25, 3)))
    assert "a job with secure aggregation" in answer.meta["error"]


def test_a_site_without_key_sends_nothing(tmp_path):
    asked = requests(secure(), Exchange(1, tiny_model(), {"site-1": ClientTask()}))["site-1"]
    answer = new_client("site-1", secure(), tmp_path).handle(asked)
    assert "ConfigError" in answer.meta["error"]
    assert not answer.arrays


def test_a_site_judges_its_update_itself(tmp_path, monkeypatch):
    """The server cannot see whether numbers are finite, or how large an update is."""
    asked = requests(secure(), Exchange(1, tiny_model(), {"site-1": ClientTask()}))["site-1"]
    diverged = {
        name.replace("model", "diff"): array * np.nan for name, array in asked.arrays.items()
    }
    with monkeypatch.context() as patch:
        patch.setattr(wire, "difference", lambda trained, received, withheld: diverged)
        broken = new_client("site-1", secure(), tmp_path, key=KEY).handle(asked)
    assert "NaN or infinity" in broken.meta["error"]
    assert broken.meta["diverged"] is True
    small = secure(largest_update=1e-9)
    asked = requests(small, Exchange(1, tiny_model(), {"site-1": ClientTask()}))["site-1"]
    large = new_client("site-1", small, tmp_path, key=KEY).handle(asked)
    assert "largest_update" in large.meta["error"]
    assert large.meta["diverged"] is True
    assert not large.arrays


# --- FLARE


class Context:
    """What the executor and the loading of contexts ask of an FLContext."""

    def __init__(self, folder, secure_mode=False):
        (folder / "local").mkdir(exist_ok=True)
        self.folder = folder
        self.secure_mode = secure_mode

    def get_engine(self):
        return self

    get_workspace = get_engine

    def get_component(self, name):
        return {SYNTHETIC: SyntheticSites()}.get(name)

    def get_job_id(self):
        return "job-1"

    def get_root_dir(self):
        return str(self.folder)

    def get_site_config_dir(self):
        return str(self.folder / "local")

    def get_app_config_dir(self, job_id):
        return str(config_folder(self.folder))

    def get_identity_name(self):
        return "site-1"

    def get_prop(self, key, default=None):
        simulated = {FLContextKey.SIMULATE_MODE: True}  # no policy
        return {FLContextKey.SECURE_MODE: self.secure_mode, **simulated}.get(key, default)


def use(monkeypatch, startup: Path) -> None:
    """Let FLARE's service read a startup folder; in a real process it does so once."""
    monkeypatch.setattr(
        SecurityContentService, "security_content_manager", SecurityContentManager(str(startup))
    )


def test_no_plain_update_is_in_flares_answer(tmp_path, monkeypatch):
    (tmp_path / SITE).write_bytes(SITE_CONTEXT)
    use(monkeypatch, tmp_path)
    monkeypatch.setattr(executor_module, "send_analytic_dxo", lambda component, dxo, fl_ctx: None)
    experiment = secure()
    exchange = Exchange(1, tiny_model(), {"site-1": ClientTask()})
    asked, unencrypted = (
        requests(job, exchange, ["site-1"])["site-1"] for job in (experiment, plain(experiment))
    )
    updates = new_client("site-1", plain(experiment), tmp_path / "plain").handle(unencrypted).arrays
    executor = executor_of(tmp_path, experiment)
    shareable = executor.execute(
        TASK, pack_request(asked.meta, asked.arrays), Context(tmp_path), Signal()
    )
    meta, arrays = unpack(shareable)
    assert "error" not in meta
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.uint8)}
    check(Message(meta, arrays), "site-1", asked, encrypted=True, classes=DERMOSCOPY)
    fobs.register(NumpyArrayDecomposer)  # as FLARE's processes do at their start
    sent = fobs.dumps(shareable)
    assert len(sent) > sum(array.nbytes for array in arrays.values())
    assert not [piece for piece in beginnings(updates) if piece in sent]
    opened = KEY.decrypt([arrays[name] for name in sorted(arrays)], 1)
    mean = dict(mean_of(opened, meta["steps"], wire.shapes(asked)))
    for name, array in mean.items():
        np.testing.assert_allclose(array, updates[f"diff/{name}"], rtol=0, atol=2.0**-21)


@pytest.fixture(scope="module")
def kits(tmp_path_factory) -> Path:
    """Kits of the shipped project with the lines that docs/encryption.md adds."""
    folder = tmp_path_factory.mktemp("provisioned")
    root = Path(__file__).parents[2]
    project = yaml.safe_load((root / "provisioning" / "project.yml").read_text())
    text = (root / "docs" / "encryption.md").read_text()
    lines = text.split("```yaml\n# last in builders of project.yml\n")[1].split("```")[0]
    project["builders"] += yaml.safe_load(lines)
    (folder / "project.yml").write_text(yaml.safe_dump(project, sort_keys=False))
    command = [
        sys.executable,
        "-m",
        "nvflare.cli",
        "provision",
        "--force",
        "-p",
        folder / "project.yml",
        "-w",
        folder,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "fedward" / "prod_00"


def test_the_contexts_of_provisioned_kits_load(kits, tmp_path, monkeypatch):
    keys = []
    for name in ("hospital-a", "hospital-b"):
        use(monkeypatch, kits / name / "startup")
        keys.append(SiteKey(context_of(SITE, Context(tmp_path, secure_mode=True))))
        assert not (kits / name / "startup" / SERVER).exists()
    assert keys[0].fingerprint == keys[1].fingerprint
    use(monkeypatch, kits / "localhost" / "startup")
    adder = Adder(context_of(SERVER, Context(tmp_path, secure_mode=True)))
    assert not (kits / "localhost" / "startup" / SITE).exists()
    ciphers = [
        adder.read(name, key.encrypt(update([0.5, -2.0]), 1))
        for name, key in zip("ab", keys, strict=True)
    ]
    numbers = keys[0].decrypt(list(adder.write(adder.add(*ciphers)).values()), 2)
    np.testing.assert_array_equal(numbers[:3], [2**FRACTION_BITS, -4 * 2**FRACTION_BITS, 0])


def test_a_context_that_was_changed_or_is_missing_is_refused(kits, tmp_path, monkeypatch):
    for name, content in (("none", None), ("changed", SITE_CONTEXT)):
        startup = tmp_path / name
        startup.mkdir()
        for file in (kits / "hospital-a" / "startup").iterdir():
            if file.is_file() and file.name != SITE:
                (startup / file.name).write_bytes(file.read_bytes())
        if content:
            (startup / SITE).write_bytes(content)
        use(monkeypatch, startup)
        with pytest.raises(ConfigError, match=r"a signed client_context\.tenseal") as error:
            context_of(SITE, Context(tmp_path, secure_mode=True))
        assert "HEBuilder" in str(error.value)


def test_flares_loading_without_tenseal_tells_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "nvflare.app_opt.he.homomorphic_encrypt", raising=False)
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(ConfigError, match=r"fedward\[he\]"):
        context_of(SITE, Context(tmp_path))


def test_the_contexts_made_here_are_those_of_the_builder():
    """Degree, coefficients and scale of HEBuilder's defaults, which the docstring names."""
    from nvflare.lighter.impl.he import HEBuilder

    builder = HEBuilder()
    decrypted = (
        builder.poly_modulus_degree,
        tuple(builder.coeff_mod_bit_sizes),
        2.0**builder.scale_bits,
    )
    assert decrypted == (encryption._DEGREE, encryption._COEFFICIENTS, encryption._SCALE)


# --- one rule of weights


class _Weighing:
    """A key that only notes the weight."""

    fingerprint = "key"
    weight = 0

    def encrypt(self, arrays, weight):
        self.weight = weight
        return {"cipher/00000": np.zeros(1, np.uint8)}


@pytest.mark.parametrize(
    ("method", "options", "task", "weight"),
    [
        ("fedavg", {}, "train", 2),
        ("ssfl", {}, "train", 2),
        ("fedal", {}, "query", 3),
        ("fedprox", {}, "supervised", 3),
        ("selffed", {"beta": 1}, "pretrain", 10),
        ("selffed", {"beta": 1}, "train", 3),
    ],
)
def test_a_site_weighs_its_update_as_the_plain_mean_would(method, options, task, weight):
    """Three labelled images, seven others, two steps."""
    algorithm = method_of(tiny(method, options=options, secure_aggregation=True))
    key = _Weighing()
    meta = {"site": "s", "round": 1, "labelled": 3, "unlabelled": 7, "steps": 2}
    seal(Message(meta, {"diff/w": np.ones(2, np.float32)}), task, algorithm.weight, key)
    assert key.weight == weight
    replies = [
        ClientUpdate("a", {"w": torch.zeros(1)}, 3, 7, 2),
        ClientUpdate("b", {"w": torch.ones(1)}, 6, 14, 4),
    ]
    mean = plain_mean(replies, task, algorithm.weight, algorithm.settings, {}, 1.0)
    assert mean["w"].item() == pytest.approx(2 / 3), "b counts for twice as much"
