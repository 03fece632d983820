"""Encoded differences: how exact they are, and that nothing else than an encoding is read."""

import hashlib
import json
import struct
import zlib

import numpy as np
import pytest
import torch

from fedward.digests import arrays_digest
from fedward.errors import WireError
from fedward.methods.workflow import ClientTask, Exchange
from fedward.protocol import wire
from fedward.protocol.encoding import VERSION, decode, encode
from fedward.protocol.fields import RefusedError
from fedward.protocol.wire import Message
from fedward.server.requests import models_by_site, sent_hashes

SHAPES = [(3, 2, 2), (5,), (), (2, 0), (0,), (4, 1)]
LARGEST = 2.0**100


def tensors(seed: int = 0, scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(scale * rng.standard_normal(shape)).astype(np.float32) for shape in SHAPES]


def decoded(encoded: np.ndarray, shapes: object = SHAPES, *, int8: bool = True) -> list[np.ndarray]:
    return decode("peer0", encoded, shapes, int8=int8)  # type: ignore[arg-type]


def packed(content: bytes, version: int = VERSION) -> np.ndarray:
    return np.frombuffer(bytes([version]) + zlib.compress(content), np.uint8)


# --- what is kept


def test_the_bytes_by_hand():
    """A row of 127 and -1 has the scale 1; 3 in float16 is 3 * 2^13 with the scale 2^-13."""
    encoded = encode([np.array([[127, -1]], np.float32), np.array([3], np.float32)], int8=True)
    assert encoded[0] == VERSION
    planes = np.frombuffer(struct.pack("<2f", 1.0, 2.0**-13), np.uint8).reshape(2, 4).T.tobytes()
    half = np.frombuffer(struct.pack("<e", 3 * 2.0**13), np.uint8).tobytes()
    assert zlib.decompress(encoded[1:].tobytes()) == planes + half + struct.pack("2b", 127, -1)
    decoded_tensors = decoded(encoded, [(1, 2), (1,)])
    assert [each.tolist() for each in decoded_tensors] == [[[127.0, -1.0]], [3.0]]


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e29])
@pytest.mark.parametrize("int8", [True, False])
def test_each_value_is_within_half_a_step_of_its_row(scale, int8):
    before = tensors(scale=scale)
    after = decoded(encode(before, int8=int8), int8=int8)
    for old, new in zip(before, after, strict=True):
        assert (new.dtype, new.shape) == (np.float32, old.shape)
        if int8 and old.ndim > 1:
            step = np.abs(old).max(axis=tuple(range(1, old.ndim)), keepdims=True, initial=0) / 127
            assert (np.abs(new - old) <= 0.5001 * step).all()
        else:
            assert (np.abs(new - old) <= np.abs(old) * 2.0**-11).all()


def test_a_row_of_zeros_and_the_largest_of_a_row_are_exact():
    rows = np.array([[0, 0], [-5, 1], [1e-45, 0]], np.float32)
    (decoded_tensors,) = decoded(encode([rows], int8=True), [(3, 2)])
    assert decoded_tensors[0].tolist() == [0, 0]
    assert decoded_tensors[1, 0] == -5
    assert np.abs(decoded_tensors[2]).max() <= 1e-44


def test_float16_neither_overflows_nor_loses_small_tensors():
    """Plain float16 ends at 65504, and has nothing below 6e-8."""
    values = [
        np.array([1e30, -2e22], np.float32),
        np.array([3e-20, 1e-22], np.float32),
        np.zeros(3, np.float32),
    ]
    decoded_tensors = decoded(encode(values, int8=False), [(2,), (2,), (3,)], int8=False)
    for new, old in zip(decoded_tensors, values, strict=True):
        np.testing.assert_allclose(new, old, rtol=2.0**-11)


def test_float16_keeps_eleven_bits_of_all_but_tiny_values():
    """Of what is below 2^-28 of its tensor's largest value fewer are kept, and in the end none."""
    rng = np.random.default_rng(0)
    sizes = np.arange(0, 45)
    for largest in (1.0, 1.999):
        values = np.concatenate([[largest], largest * 2.0**-sizes * rng.uniform(1, 2, 45)]).astype(
            np.float32
        )
        values[values > largest] = largest
        (decoded_tensors,) = decoded(encode([values], int8=False), [values.shape], int8=False)
        off = np.abs(decoded_tensors - values) / values
        assert (off[values >= largest * 2.0**-28] <= 2.0**-11).all()
        assert (off[values < largest * 2.0**-30] > 2.0**-11).any()
        assert (decoded_tensors[values < largest * 2.0**-41] == 0).all()


def test_the_largest_numbers_stay_finite():
    values = [np.full((2, 3), LARGEST, np.float32), np.full(3, -LARGEST, np.float32)]
    for new, old in zip(decoded(encode(values, int8=True), [(2, 3), (3,)]), values, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, LARGEST * 1.001])
def test_what_is_not_finite_is_not_encoded(value):
    for shape in ((2, 2), (2,)):
        with pytest.raises(WireError, match="finite numbers"):
            encode([np.full(shape, value, np.float32)], int8=True)


def test_equal_tensors_have_equal_bytes_and_no_tensor_is_fine():
    assert np.array_equal(encode(tensors(), int8=True), encode(iter(tensors()), int8=True))
    assert decoded(encode([], int8=True), []) == []


# --- attacks


def test_a_bomb_is_not_decompressed(monkeypatch):
    """No more bytes come out than the model has, and one by which it shows."""
    most = []
    plain = zlib.decompressobj

    class Watched:
        def __init__(self) -> None:
            self.inner = plain()

        def decompress(self, content: bytes, largest: int) -> bytes:
            most.append(largest)
            return self.inner.decompress(content, largest)

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    bomb = packed(bytes(10**7))
    shape = (200, 100)
    assert bomb.nbytes < 200 * 100
    with pytest.raises(RefusedError, match="a whole stream of 20800 bytes"):
        decoded(bomb, [shape])
    assert most == [20801]
    with pytest.raises(RefusedError, match=r"2 to .* bytes, as uint8"):
        decoded(packed(bytes(10**7)), [(2, 2)])


GOOD = encode(tensors(), int8=True)


@pytest.mark.proves(
    "server",
    "a peer of another encoding, version, size or type, a bomb, or NaN",
    "refused; no more is decompressed than the model has",
)
@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        pytest.param(GOOD.astype(np.float32), "as uint8", id="type"),
        pytest.param(GOOD.reshape(1, -1), "as uint8", id="shape"),
        pytest.param(GOOD[:1], "2 to", id="empty"),
        pytest.param(np.tile(GOOD, 50), "2 to", id="too long"),
        pytest.param(
            np.concatenate([[VERSION + 1], GOOD[1:]]).astype(np.uint8),
            "version 1 .*2",
            id="version",
        ),
        pytest.param(GOOD[:-1], "a whole stream", id="cut"),
        pytest.param(np.concatenate([GOOD, GOOD[:1]]), "a whole stream", id="more behind"),
        pytest.param(np.concatenate([GOOD[:1], GOOD[:0:-1]]), "a zlib stream", id="no zlib"),
        pytest.param(packed(bytes(61)), "a whole stream", id="one byte less"),
        pytest.param(packed(bytes(63)), "a whole stream", id="one byte more"),
    ],
)
def test_anything_but_an_encoding_of_the_shapes_is_refused(encoded, message):
    with pytest.raises(RefusedError, match=message):
        decoded(encoded)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1.0, LARGEST * 1.001])
def test_scales_are_finite_not_negative_and_bounded(scale):
    planes = np.frombuffer(struct.pack("<f", scale), np.uint8).tobytes()
    with pytest.raises(RefusedError, match="scales from 0 to"):
        decoded(packed(planes + bytes(2)), [(1, 2)])


@pytest.mark.parametrize("half", [np.nan, np.inf, -np.inf])
def test_halves_are_finite(half):
    planes = np.frombuffer(struct.pack("<e", half), np.uint8).tobytes()
    with pytest.raises(RefusedError, match="finite values"):
        decoded(packed(struct.pack("<f", 1.0) + planes), [(1,)])


def test_changed_bytes_are_refused_or_finite():
    rng = np.random.default_rng(0)
    content = np.frombuffer(zlib.decompress(GOOD[1:].tobytes()), np.uint8)
    read = 0
    for _ in range(300):
        changed = content.copy()
        changed[rng.integers(0, len(content), 3)] = rng.integers(0, 256, 3)
        try:
            decoded_tensors = decoded(packed(changed.tobytes()))
        except RefusedError:
            continue
        read += 1
        assert all(np.isfinite(each).all() for each in decoded_tensors)
    assert 0 < read < 300


# --- peers and updates as they travel

MODEL = {
    "conv": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "bn.mean": torch.tensor([0.5, 0.25]),
    "bn.num_batches_tracked": torch.tensor(4),
}
PEER = {
    "conv": torch.tensor([[1.5, 2.0], [3.0, 3.0]]),
    "bn.mean": torch.tensor([0.75, 1.25]),
    "bn.num_batches_tracked": torch.tensor(9),
}


def arrays() -> dict[str, np.ndarray]:
    return {**wire.flatten("model", MODEL), "peer0": wire.encode_peer(PEER, MODEL)}


def test_a_peer_is_the_model_and_its_difference():
    peer = wire.decode_peer("peer0", arrays(), MODEL)
    assert list(peer) == list(MODEL)
    torch.testing.assert_close(peer["conv"], PEER["conv"])
    torch.testing.assert_close(peer["bn.mean"], PEER["bn.mean"])
    assert peer["bn.num_batches_tracked"] == 4


@pytest.mark.parametrize("variance", [0.0, 1e-9])
def test_no_variance_is_below_zero(variance):
    """A channel that is constant at a site: float16 may round its loss of variance up."""
    model = {"bn.running_var": torch.tensor([0.7, 0.7003, 0.6999, 0.7123])}
    trained = {"bn.running_var": torch.full((4,), variance)}
    plain = wire.difference(trained, model)
    rounded = wire.decode_update(wire.encode_update(Message({}, plain)), {"bn.running_var": (4,)})
    assert (model["bn.running_var"] + rounded.arrays["diff/bn.running_var"]).min() < 0
    rebuilt = wire.rebuild(model, rounded)["bn.running_var"]
    assert rebuilt.min() == 0
    peer_arrays = {**wire.flatten("model", model), "peer0": wire.encode_peer(trained, model)}
    peer = wire.decode_peer("peer0", peer_arrays, model)["bn.running_var"]
    assert peer.min() == 0
    torch.testing.assert_close(peer, torch.zeros(4), rtol=0, atol=3e-4)


def test_the_order_of_a_models_tensors_does_not_matter():
    turned = dict(reversed(MODEL.items()))
    assert np.array_equal(wire.encode_peer(PEER, turned), arrays()["peer0"])
    peer = wire.decode_peer("peer0", arrays(), turned)
    assert torch.equal(peer["conv"], wire.decode_peer("peer0", arrays(), MODEL)["conv"])


def test_a_peer_beyond_float32_is_refused():
    largest = float(np.finfo(np.float32).max)
    model = {"w": torch.full((2, 2), largest)}
    factor = packed(
        np.frombuffer(struct.pack("<2f", LARGEST, LARGEST), np.uint8).reshape(2, 4).T.tobytes()
        + b"\x7f" * 4
    )
    with pytest.raises(WireError, match="a model of finite numbers"):
        wire.decode_peer("peer0", {**wire.flatten("model", model), "peer0": factor}, model)


def test_the_peers_of_one_site_at_a_time_are_made_and_kept():
    """Each is given away before the next is made, and read again whenever somebody asks."""
    made = []
    kept = {}
    reads = []

    class Watched(dict[str, torch.Tensor]):
        def __getitem__(self, key: str) -> torch.Tensor:
            made.append(len(kept))
            return super().__getitem__(key)

    class Stored(dict[str, np.ndarray]):
        def __getitem__(self, name: str) -> np.ndarray:
            reads.append(name)
            return super().__getitem__(name)

    def keep(own: dict[str, np.ndarray]) -> Stored:
        kept[len(kept)] = own
        return Stored(own)

    tasks = {site: ClientTask(models={"peer0": Watched(PEER)}) for site in ("a", "b")}
    requests = models_by_site(Exchange(1, MODEL, tasks), ["c"], keep)
    assert [len(own) for own in kept.values()] == [1, 1, 0]
    assert set(made[: len(made) // 2]) == {0}
    assert set(made[len(made) // 2 :]) == {1}
    assert sorted(requests["a"]) == ["model/bn.mean", "model/conv", "peer0"]
    assert len(requests["a"]) == 3
    assert wire.roles(requests["a"]) == ["peer0"]
    assert wire.shapes(Message({}, requests["a"])) == {"conv": (2, 2), "bn.mean": (2,)}
    assert not reads  # names and shapes are known without
    assert requests["a"]["model/conv"] is requests["c"]["model/conv"]
    assert sent_hashes(requests)["peers"] == {
        site: wire.peers_digest(arrays()) for site in ("a", "b")
    }
    assert reads == ["peer0"] * 2


UPDATE = {
    "diff/conv": np.array([[1, -2], [0, 4]], np.float32),
    "diff/bn.mean": np.array([70000, 1], np.float32),
}
UPDATED = {"conv": (2, 2), "bn.mean": (2,)}


def test_an_update_in_float16_is_read_as_it_was_sent():
    answer = Message({"site": "s"}, UPDATE)
    sent = wire.encode_update(answer)
    assert list(sent.arrays) == ["diff"]
    read = wire.decode_update(sent, UPDATED)
    assert read.meta == {"site": "s"}
    for name, array in UPDATE.items():
        np.testing.assert_allclose(read.arrays[name], array, rtol=2.0**-11)
    assert read.nbytes == sent.nbytes == sent.arrays["diff"].nbytes
    assert read.received is not None
    bare = Message({"site": "s"})
    assert wire.encode_update(bare) is wire.decode_update(bare, UPDATED) is bare


@pytest.mark.proves(
    "site",
    "an answer in another encoding than the job's float16, a bomb, or extra numbers",
    "refused; the site counts as failed",
)
@pytest.mark.parametrize(
    "arrays",
    [
        {"diff": packed(bytes(10**6))},
        {"diff": encode([np.zeros(3, np.float32)], int8=False)},
        {"diff": encode([array for _, array in sorted(UPDATE.items())], int8=True)},
        UPDATE,
        {**UPDATE, "diff": encode([array for _, array in sorted(UPDATE.items())], int8=False)},
    ],
)
def test_another_update_than_the_jobs_is_refused(arrays):
    with pytest.raises(RefusedError):
        wire.decode_update(Message({"site": "s"}, arrays), UPDATED)


# --- hashes


def test_the_hash_of_arrays_by_hand():
    """The rule of docs/wire.md: sorted by name, JSON of name, type and shape, then the bytes."""
    arrays = {
        "peer0": np.arange(3, dtype=np.uint8),
        "model/w": np.array([[1.5, -2.0]], np.float32),
        "model/b": np.full((), 3.0, np.float32),
    }
    total = hashlib.sha256()
    for name, kind, shape in (
        ("model/b", "<f4", []),
        ("model/w", "<f4", [1, 2]),
        ("peer0", "|u1", [3]),
    ):
        total.update(json.dumps([name, kind, shape], separators=(",", ":")).encode())
        total.update(arrays[name].tobytes())
    assert arrays_digest(arrays) == total.hexdigest()
    assert arrays_digest(dict(reversed(arrays.items()))) == total.hexdigest()
