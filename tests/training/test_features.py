"""Features of frozen encoders: when they are computed, and that heads learn from them."""

import copy
import fcntl
import gc
import json
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asking import facts
from clients import new_client
from fedward.client.queries import _pool
from fedward.config import DataSpec, Experiment
from fedward.errors import ConfigError, DataError, WorkError
from fedward.evaluation.one_label import classification_metrics
from fedward.lab.local import Sites
from fedward.methods import method_of
from fedward.methods.local import logits_and_features
from fedward.methods.samplers import sampler_of
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets import build
from fedward.nets.trainable import TrainablePart
from fedward.protocol.wire import Message
from fedward.registry import NETWORKS
from fedward.seeds import torch_generator
from fedward.server.requests import models_by_site, task_requests
from fedward.sites import Images, SiteData
from fedward.sites.caches import KEPT, Cache
from fedward.sites.sampling import virtual_client
from fedward.training import features as module
from fedward.training.batches import Pixels
from fedward.training.features import Encoder, Features, stored_views
from fedward.training.networks import Networks
from fedward.training.pool import observe
from fedward.views import VIEWS
from file_modes import modes
from installed import install
from isolated import SITES, isolated, write_sites
from loading import MODELS, Loading
from starting import initial_model
from tiny import tiny
from waiting import appears

CPU = torch.device("cpu")
V = 2
NONE = Images((), np.empty((0, 16, 16, 3), np.uint8), np.empty(0, np.int64))


def heads(method: str = "fedavg", **changes: Any) -> Experiment:
    return tiny(
        method, **{"net": "small_cnn_gn", "trainable": "head", "stored_views": V, **changes}
    )


def images(*ids: str, size: int = 16) -> Images:
    pixels = [
        np.random.default_rng([*name.encode()]).integers(0, 256, (size, size, 3), np.uint8)
        for name in ids
    ]
    return Images(
        ids, np.array(pixels, np.uint8).reshape(-1, size, size, 3), np.arange(len(ids)) % 8
    )


def data(
    labelled: Images, unlabelled: Images = NONE, val: Images = NONE, test: Images = NONE
) -> SiteData:
    return SiteData("north", heads().data.classes, labelled, unlabelled, val, test)


def encoder(folder: Path, experiment: Experiment | None = None) -> Encoder:
    experiment = experiment or heads()
    part = Networks(experiment, method_of(experiment), CPU).on_images
    assert isinstance(part, TrainablePart)
    return Encoder(part, experiment, Cache(folder))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hashes of the images that are encoded, in order."""
    hashes = list[str]()
    encode = Encoder._encoded

    def counted(self: Encoder, pixels: Any, image_hash: str, *, with_views: bool) -> Any:
        hashes.append(image_hash)
        return encode(self, pixels, image_hash, with_views=with_views)

    monkeypatch.setattr(Encoder, "_encoded", counted)
    return hashes


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.npy")}


# --- what is stored


def test_features_are_what_the_classifier_receives(tmp_path: Path) -> None:
    """By hand: the encoder on the image alone, and on its views of fixed seeds as one batch."""
    given = images("a", "b", "c")
    features_encoder = encoder(tmp_path)
    features = features_encoder.table(data(given))(given)
    net = build("small_cnn_gn", 8, seed=3).eval()
    views = VIEWS["rotation_invariant"]
    for row in range(3):
        one = torch.from_numpy(given.pixels[row : row + 1]).permute(0, 3, 1, 2).float() / 255
        name = module.hashlib.sha256(given.pixels[row].tobytes()).hexdigest()
        drawn = [
            getattr(views, kind)(one, torch_generator(0, "features", name, kind, number))
            for kind in ("weak", "strong")
            for number in range(V)
        ]
        with torch.no_grad():
            batches = [
                part.contiguous(memory_format=torch.channels_last)
                for part in (one, torch.cat(drawn))
            ]
            expected = [logits_and_features(net, part)[1].half() for part in batches]
        index = torch.tensor([row])
        assert torch.equal(features.take(index), expected[0].float())
        assert torch.equal(features.originals(index)[0], expected[1])
    assert torch.equal(features.labels, torch.arange(3))
    assert features.table.dtype == torch.float16


def test_views_draw_among_the_stored_ones(tmp_path: Path) -> None:
    given = images("a", "b", "c", "d")
    features = encoder(tmp_path).table(data(given))(given)
    stored = features.originals(torch.arange(4))
    views = stored_views(V)
    drawn = {"weak": set[int](), "strong": set[int]()}
    for seed in range(20):
        for kind, view in views._asdict().items():
            chosen = view(stored, torch_generator(seed))
            assert chosen.dtype == torch.float32
            for row in range(4):
                (number,) = [
                    n for n in range(2 * V) if torch.equal(chosen[row], stored[row, n].float())
                ]
                drawn[kind].add(number)
    assert drawn == {"weak": {0, 1}, "strong": {2, 3}}
    assert torch.equal(
        views.weak(stored, torch_generator(1)), views.weak(stored, torch_generator(1))
    )


def test_held_out_images_have_one_row(tmp_path: Path) -> None:
    parts = [images(name) for name in ("a", "b", "c", "d")]
    of = encoder(tmp_path).table(data(*parts))
    features_of_parts = [of(part) for part in parts]
    assert [features.view_rows for features in features_of_parts] == [2 * V, 2 * V, 0, 0]
    assert len(features_of_parts[0].table) == 2 * (1 + 2 * V) + 2
    both = Features.together(features_of_parts[:2])
    assert torch.equal(
        both.take(torch.arange(2)),
        torch.cat([features.take(torch.arange(1)) for features in features_of_parts[:2]]),
    )
    assert [len(features) for features in both.split([2, 0])] == [2, 0]
    assert of(NONE).take(torch.arange(0)).shape == (0, 128)


def test_an_image_in_two_parts_is_stored_once(tmp_path: Path, computed: list[str]) -> None:
    a = images("a")
    twin = Images(("twin",), images("a").pixels, np.zeros(1, np.int64))
    of = encoder(tmp_path).table(data(a, val=twin))
    assert len(computed) == 1
    assert torch.equal(of(a).take(torch.arange(1)), of(twin).take(torch.arange(1)))


def test_two_images_of_one_id_are_refused(tmp_path: Path) -> None:
    twin = Images(("a",), images("b").pixels, np.zeros(1, np.int64))
    with pytest.raises(DataError, match="Site north has several images with the id 'a'"):
        encoder(tmp_path).table(data(images("a"), val=twin))


# --- hits and misses


def test_equal_inputs_are_read_bit_by_bit(tmp_path: Path, computed: list[str]) -> None:
    given = data(images("a", "b"), images("c"), images("d"))
    first = encoder(tmp_path).table(given)
    files_before = files(tmp_path)
    computed[:] = []
    again = encoder(tmp_path).table(given)
    assert not computed
    assert files(tmp_path) == files_before
    for part in (given.labelled, given.unlabelled, given.val):
        assert torch.equal(first(part).table, again(part).table)
        assert torch.equal(first(part).first, again(part).first)


def one_weight(made: Encoder) -> Encoder:
    with torch.no_grad():
        made.part.whole.features[0][0].weight[0, 0, 0, 0] += 1e-6
    return made


CHANGES: dict[str, Callable[[Path], Encoder]] = {
    "one weight": lambda folder: one_weight(encoder(folder)),
    "the seed of a random encoder": lambda folder: encoder(folder, heads(seed=4)),
    "the network": lambda folder: encoder(folder, heads(net="small_cnn")),
    "the views": lambda folder: encoder(
        folder, heads(data=DataSpec(image_size=16, views="mirrored"))
    ),
    "the number of views": lambda folder: encoder(folder, heads(stored_views=V + 1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_encoder_or_view_is_a_miss(
    change: str, tmp_path: Path, computed: list[str]
) -> None:
    given = images("a", "b")
    encoder(tmp_path).table(data(given))
    before = files(tmp_path)
    computed[:] = []
    content = {path.name: path.read_bytes() for path in tmp_path.glob("*.npy")}
    CHANGES[change](tmp_path).table(data(given))
    assert len(computed) == 2
    assert files(tmp_path) > before
    assert all(
        (tmp_path / name).read_bytes() == bytes_before for name, bytes_before in content.items()
    ), "never written into"


@pytest.mark.parametrize("fact", ["versions", "threads"])
def test_another_version_or_number_of_threads_is_a_miss(
    fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = encoder(tmp_path).key
    if fact == "versions":
        monkeypatch.setattr(module, "version", lambda name: "another")
    else:
        monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert encoder(tmp_path).key != first


@pytest.mark.parametrize(
    "changes",
    [
        {"net": "ours"},
        {"net": "monai:DenseNet121"},
        {"data": {"image_size": 16, "views": "ours"}},
    ],
    ids=["network", "network of MONAI", "views"],
)
def test_another_version_of_a_package_of_the_job_is_a_miss(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code computes features of equal tensors, or draws the views that they are of."""
    features_encoder = encoder(tmp_path)
    keys = set[str]()
    version_of = module.version
    for version in ("1.0", "1.1"):
        with monkeypatch.context() as patch:
            code = """
from fedward.nets.small_cnn_gn import SmallCNNGN as Ours
from fedward.views.recipes import UPRIGHT
"""
            install(
                tmp_path / version,
                patch,
                "ours",
                "ours",
                code,
                version,
                network={"ours": "ours:Ours"},
                view={"ours": "ours:UPRIGHT"},
            )
            patch.setattr(
                module,
                "version",
                lambda name, as_if=version: as_if if name == "monai" else version_of(name),
            )
            keys.add(replace(features_encoder, experiment=heads(**changes)).key)
    assert len(keys) == 2


def test_what_trains_is_no_part_of_the_key(tmp_path: Path) -> None:
    features_encoder = encoder(tmp_path)
    other = copy.deepcopy(features_encoder.part)
    with torch.no_grad():
        other.classifier.weight.add_(1)
    assert Encoder(other, features_encoder.experiment, Cache(tmp_path)).key == features_encoder.key


def test_another_size_is_a_miss(tmp_path: Path, computed: list[str]) -> None:
    encoder(tmp_path).table(data(images("a")))
    computed.clear()
    larger = heads(data=DataSpec(image_size=18))
    given = images("a", size=18)
    encoder(tmp_path, larger).table(
        SiteData("north", larger.data.classes, given, *[images(size=18)] * 3)
    )
    assert len(computed) == 1


def test_one_pixel_is_a_miss_of_that_image(tmp_path: Path, computed: list[str]) -> None:
    given = images("a", "b", "c")
    first = encoder(tmp_path).table(data(given))(given)
    computed.clear()
    pixels = given.pixels.copy()
    pixels[1, 0, 0, 0] ^= 1
    changed = Images(given.ids, pixels, given.labels)
    second = encoder(tmp_path).table(data(changed))(changed)
    assert computed == [module.hashlib.sha256(pixels[1].tobytes()).hexdigest()]
    rows = torch.tensor([0, 2])
    assert torch.equal(first.originals(rows), second.originals(rows))
    assert not torch.equal(first.take(torch.tensor([1])), second.take(torch.tensor([1])))


def test_more_images_reuse_rows_and_equal_a_fresh_table(
    tmp_path: Path, computed: list[str]
) -> None:
    few = images("a", "b")
    more = images("b", "c", "a")
    encoder(tmp_path / "cache").table(data(few))
    computed.clear()
    grown = encoder(tmp_path / "cache").table(data(more))(more)
    assert len(computed) == 1
    fresh = encoder(tmp_path / "fresh").table(data(more))(more)
    assert torch.equal(grown.table, fresh.table)
    computed.clear()
    held_out = encoder(tmp_path / "cache").table(data(images("c"), val=images("a")))
    assert not computed, "an image that no longer trains keeps its own row"
    assert torch.equal(held_out(images("a")).take(torch.arange(1)), fresh.take(torch.tensor([2])))


def test_views_are_found_beside_files_without_them(tmp_path: Path, computed: list[str]) -> None:
    """An image trains in one division of the data, and is held out in another.

    Its views are found whichever file's name comes first.
    """
    for other in "bcdefg":
        encoder(tmp_path).table(data(images(other), val=images("a")))
        encoder(tmp_path).table(data(images(other, "a")))
    assert len(computed) == 8, "a alone is encoded twice, before it trains and when it does"


def test_new_labels_need_no_new_features(tmp_path: Path, computed: list[str]) -> None:
    site = new_client("site-1", heads("fedal"), tmp_path)
    relabelled = site.data.with_labels({site.data.unlabelled.ids[0]: 2})
    unlabelled = len(site.learner.images["unlabelled"])
    computed.clear()
    again = site.learner.images.relabelled(relabelled)
    assert (len(again["labelled"]), again["labelled"].labels.tolist()) == (1, [2])
    assert len(again["unlabelled"]) == unlabelled + len(site.data.labelled) - 1
    assert not computed


def test_new_labels_keep_no_copy_of_the_images(tmp_path: Path) -> None:
    images = new_client("site-1", tiny("fedal"), tmp_path).learner.images
    pixels = weakref.ref(images["unlabelled"])
    relabelled = images.relabelled(images.data.with_labels({images.data.unlabelled.ids[0]: 2}))
    assert len(relabelled["labelled"]) == 1
    del images
    gc.collect()
    assert pixels() is None


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    "harm",
    [
        damage,
        Path.unlink,
        lambda file: file.with_suffix(".json").write_text("{}"),
        lambda file: file.with_suffix(".json").write_text("[" * 100_000),
    ],
)
def test_a_damaged_file_is_made_anew(
    harm: Callable[[Path], Any], tmp_path: Path, computed: list[str]
) -> None:
    given = images("a", "b")
    first = encoder(tmp_path).table(data(given))(given).table.clone()
    (file,) = tmp_path.glob("*.npy")
    harm(file)
    computed.clear()
    assert torch.equal(encoder(tmp_path).table(data(given))(given).table, first)
    assert len(computed) == 2


def test_two_compute_features_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[str]
) -> None:
    """The first encoder computes until the second waits for the lock.

    The second then has nothing to compute.
    """
    given = data(images("a", "b"))
    asked = list[int]()
    flock = fcntl.flock
    counted = Encoder._encoded

    def noted(file: Any, operation: int) -> None:
        asked.extend([operation] if operation == fcntl.LOCK_EX else [])
        flock(file, operation)

    def slow(self: Encoder, pixels: Any, image_hash: str, *, with_views: bool) -> Any:
        assert appears(lambda: len(asked) == 2), "nobody else asked for the lock"
        return counted(self, pixels, image_hash, with_views=with_views)

    monkeypatch.setattr(fcntl, "flock", noted)
    monkeypatch.setattr(Encoder, "_encoded", slow)
    both = [encoder(tmp_path) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        one, other = pool.map(lambda each: each.table(given)(given.labelled).table, both)
    assert torch.equal(one, other)
    assert len(computed) == 2
    assert {path.suffix for path in tmp_path.iterdir()} == {".npy", ".json"}


@pytest.mark.usefixtures("open_umask")
def test_only_the_owner_reads_features(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "features"
    encoder(folder).table(data(images("a")))
    assert modes(tmp_path / "cache") <= {0o600, 0o700}


def test_the_newest_files_stay(tmp_path: Path) -> None:
    given = data(images("a"))
    new_files = list[set[str]]()
    for seed in range(5):
        encoder(tmp_path, heads(seed=seed)).table(given)
        new_files.append(files(tmp_path) - set().union(*new_files))
    assert files(tmp_path) == set().union(*new_files[-3:])
    assert len(list(tmp_path.iterdir())) == 6, "with their notes, and nothing else"


def test_features_that_float16_cannot_hold(tmp_path: Path) -> None:
    features_encoder = encoder(tmp_path)
    with torch.no_grad():
        features_encoder.part.whole.features[3][1].bias.fill_(1e6)
    with pytest.raises(WorkError, match="not all numbers below 65504"):
        features_encoder.table(data(images("a")))
    assert not files(tmp_path)


class Scaled(nn.Module):
    """It does something behind its classifier."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 4, 3)
        self.classifier = nn.Linear(4, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        logits: Tensor = 2 * self.classifier(self.stem(pictures).mean(dim=(2, 3)))
        return logits


def test_a_classifier_must_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS.registered, "scaled", Scaled)
    with pytest.raises(
        ConfigError, match="net scaled, trainable=head: expected a classifier of features"
    ):
        encoder(tmp_path, heads(net="scaled")).table(data(images("a")))


# --- what learns from them


def by_hand(experiment: Experiment, site: Any) -> dict[str, Tensor]:
    """Return a head after a round of supervised training: a plain loop over stored features."""
    settings = method_of(experiment).settings
    samples = site.learner.images["labelled"]
    model = initial_model(experiment).state
    head = nn.Linear(128, 8)
    head.load_state_dict({"weight": model["classifier.weight"], "bias": model["classifier.bias"]})
    optimizer = torch.optim.Adam(head.parameters(), lr=settings.learning_rate)
    stream = (experiment.seed, site.name, 1)
    order = virtual_client(
        len(samples), settings.images_per_round, torch_generator(*stream, "labelled")
    )
    draws = torch_generator(*stream, "weak labelled")
    number = torch.randint(V, (len(order),), generator=draws)
    for step in range(len(order) // settings.batch):
        part = slice(step * settings.batch, (step + 1) * settings.batch)
        rows = samples.first[order[part]] + 1 + number[part]
        optimizer.zero_grad()
        F.cross_entropy(head(samples.table[rows].float()), samples.labels[order[part]]).backward()
        optimizer.step()
    return {"classifier.weight": head.weight.detach(), "classifier.bias": head.bias.detach()}


def test_a_round_equals_a_plain_loop_over_features(tmp_path: Path) -> None:
    options = {"class_weighting": "none", "schedule": "constant", "round_warm_up": 0}
    experiment = heads(options=options)
    site = new_client("site-1", experiment, tmp_path)
    update = site.learner.train(initial_model(experiment).state, [], 1)
    assert update.steps == 2
    expected = by_hand(experiment, site)
    for name, tensor in expected.items():
        torch.testing.assert_close(update.model[name], tensor, rtol=1e-6, atol=1e-7)
    assert set(update.model) == set(expected)


def test_evaluation_sees_the_images_themselves(tmp_path: Path) -> None:
    """The metrics are those of the whole network on the pixels, up to float16."""
    experiment = heads()
    site = new_client("site-1", experiment, tmp_path)
    model = initial_model(experiment).state
    metrics = {row["name"]: row["value"] for row in site.learner.evaluate(model, ["val"]).metrics}
    net = build("small_cnn_gn", 8, seed=3).eval()
    pictures = torch.from_numpy(site.data.val.pixels.copy()).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        probabilities = net(pictures).softmax(dim=1).numpy()
    rows = classification_metrics(probabilities, site.data.val.labels, site.data.classes, {})
    assert metrics["accuracy"] == next(row["value"] for row in rows if row["name"] == "accuracy")


@pytest.fixture
def encoded_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Images of the passes through an encoder."""
    sizes = list[int]()
    forward = TrainablePart.forward

    def counted(self: TrainablePart, pictures: Tensor) -> Tensor:
        sizes.append(len(pictures))
        return forward(self, pictures)

    monkeypatch.setattr(TrainablePart, "forward", counted)
    return sizes


def test_rounds_after_the_first_leave_the_encoder_alone(
    tmp_path: Path, encoded_batches: list[int]
) -> None:
    experiment = heads("ssfl")
    site = new_client("site-1", experiment, tmp_path)
    model = initial_model(experiment).state
    model = site.learner.train(model, [], 1).model
    assert encoded_batches
    encoded_batches.clear()
    for round_ in (2, 3):
        site.learner.evaluate(model)
        model = site.learner.train(model, [], round_).model
    assert not encoded_batches


@pytest.mark.parametrize(
    "sampler", ["local_entropy", "aift", "mcdal", "core_set", "fedal", "suggestive"]
)
def test_samplers_see_what_they_would_see_of_images(sampler: str, tmp_path: Path) -> None:
    """A frozen run asks for the labels for which the whole network would ask."""

    name = {"suggestive": "sa"}.get(sampler, sampler)
    experiment = heads("fedal", options={"sampler": name})
    site = new_client("site-1", experiment, tmp_path)
    learner = site.learner
    model = initial_model(experiment).state
    other = {key: tensor + 0.1 for key, tensor in model.items()}
    chosen = sampler_of(name)
    ids = site.data.unlabelled.ids[:5]
    pool_of_features = _pool(learner, model, {"local": other}, 1, ids, chosen.uses, ids)
    networks = Networks(experiment, method_of(experiment), CPU)
    states = {"global": model, "local": other}

    def whole(which: str) -> nn.Module:
        networks.load(states[which])
        return networks.on_images

    data_ = site.data
    rest = [data_.labelled, data_.unlabelled.named(data_.unlabelled.ids[5:])]
    view = VIEWS[experiment.data.views].weak
    expected = observe(
        "north",
        data_.unlabelled.named(ids),
        rest,
        chosen.uses,
        Loading(whole),
        MODELS,
        lambda some: Pixels.of(some, CPU),
        view,
    )
    for field in ("probabilities", "features", "labelled"):
        torch.testing.assert_close(
            getattr(pool_of_features, field), getattr(expected, field), rtol=5e-3, atol=2e-3
        )


def test_one_process_trains_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the site's file says: to start others would take longer."""

    experiment = heads()
    site = new_client("site-1", experiment, tmp_path)
    monkeypatch.setattr(site, "data", replace(site.data, processes=2))
    monkeypatch.setattr("fedward.client.ranks.Processes", None)
    first = initial_model(experiment)
    exchange = Exchange(1, first.state, {"site-1": ClientTask("train")})
    server_facts = {**facts(experiment), "base": first.base}
    asked: Message = task_requests(exchange, models_by_site(exchange, [], dict), [], server_facts)[
        "site-1"
    ]
    assert site.handle(asked).meta["steps"] == 2


def test_notes_hold_hashes_and_no_ids(tmp_path: Path) -> None:
    encoder(tmp_path).table(data(images("a-patient")))
    (notes,) = tmp_path.glob("*.json")
    content = json.loads(notes.read_text())
    assert set(content) == {"crc32", "rows"}
    assert "a-patient" not in notes.read_text()


def test_sites_on_one_machine_share_features(tmp_path: Path, computed: list[str]) -> None:
    """Another division of the same images among sites reads what the first one stored."""
    stored_files = list[set[str]]()
    frozen = {"net": "small_cnn_gn", "trainable": "head", "stored_views": V}
    for seed in range(2):
        folder = write_sites(tmp_path / f"sites-{seed}", seed=seed)
        sites = Sites(
            isolated("isofed", **frozen), tmp_path / f"run-{seed}", [folder], tmp_path / "cache"
        )
        for name in SITES:
            assert sites.client(name, method_of(sites.experiment), None).learner.images["all"]
        stored_files.append(files(tmp_path / "cache" / "features"))
    assert len(computed) == len({*computed}) == 60, (
        "the others are of classes too rare to be evaluated"
    )
    assert len(stored_files[0]) == len(SITES)
    assert stored_files[0] < stored_files[1]
    assert len(stored_files[1]) > KEPT, "sites that come later remove no features of others"


def test_parts_with_and_without_views_are_not_joined() -> None:
    """The rows of views would be those of other images."""
    table = torch.zeros(12, 3, dtype=torch.float16)
    labels = torch.zeros(2, dtype=torch.int64)
    trained = Features(table, torch.tensor([0, 5]), labels, view_rows=4)
    joined = Features.together([trained, trained])
    assert joined.first.tolist() == [0, 5, 0, 5]
    held_out = Features(table, torch.tensor([10, 11]), labels, view_rows=0)
    with pytest.raises(ValueError, match="other tables or views"):
        Features.together([trained, held_out])
