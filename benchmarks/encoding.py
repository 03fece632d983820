"""What encodings of peers and updates change in predictions, and in metrics of whole runs.

    python benchmarks/encoding.py predictions [--data FOLDER]
    python benchmarks/encoding.py runs [--seeds 10] [--out runs/bench/encoding]

- **predictions**: FedPerl on four sites with BloodMNIST. In its last round each peer is compared
  with itself as a site decodes it, on the images that the site trains on, and each site's update
  with itself in float16. A label or a keep decision changes where the mean of the site's and its
  peers' predictions gives another.
- **runs**: the job ``fedperl`` with peers and updates in float32, with the peers that sites get,
  and with updates in float16 as well. Test metrics after the last round, differences pair by pair
  over seeds. Runs that were killed go on where they were. A network is discontinuous in its
  weights: runs that differ in a last bit end apart.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import yaml
from torch import Tensor

from fedward.config import Experiment
from fedward.evaluation import last_round, paired_difference
from fedward.jobs import load_experiment, simulated_sites, site_names
from fedward.lab.bench.markdown import gap_text, header_lines, mean_text, table_line
from fedward.lab.bench.runs import complete_run, run_or_resume
from fedward.lab.local import LocalTransport, Sites
from fedward.methods.fedperl.pseudo_labels import committee_mean
from fedward.methods.pseudo_labels.threshold import pseudo_label
from fedward.model_state import State
from fedward.nets import build
from fedward.protocol import wire
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.runs.run import Run
from fedward.server import requests
from fedward.training.batches import Pixels
from fedward.training.evaluation import predict
from quiet_run import data_at, run_quietly

SITES = 4
ROUNDS = {"small_cnn": 12, "tf_efficientnet_lite0": 3}
IMAGES = {"train": 400, "val": 40, "test": 40}
"""Of each site."""
DATA = "blood"
FILE = "bloodmnist.npz"
CLASSES = tuple(map(str, range(8)))
METRICS = ("accuracy", "f1_weighted", "f1_macro", "auroc_macro")


class Variant(NamedTuple):
    """How models travel in a run."""

    plain: bool
    """Whether peers travel in float32."""
    changes: tuple[str, ...] = ()
    """Changes of the job."""


VARIANTS = {
    "all in float32": Variant(plain=True),
    "peers encoded": Variant(plain=False),
    "peers encoded, updates in float16": Variant(plain=False, changes=("update_dtype=float16",)),
}


class Last(LocalTransport):
    """The in-process engine, which keeps the last round's requests and updates."""

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        def kept(site: str, answer: Message) -> None:
            if answer.arrays:
                self.updates[site] = dict(answer.arrays)
            deliver(site, answer)

        if any(request.meta["task"] != "idle" for request in requests.values()):
            self.requests = {site: dict(request.arrays) for site, request in requests.items()}
            self.updates = dict[str, dict[str, np.ndarray]]()
        super().exchange(requests, timeout, kept)

    def images(self, site: str) -> Pixels:
        """Return the images that a site trains on without their labels."""
        return Pixels.of(data_at(self, site).unlabelled, torch.device("cpu"))


def blood_files(data: Path, folder: Path) -> None:
    """Write a file for each site, whose images are its own part of BloodMNIST."""
    rng = np.random.default_rng(1)
    with np.load(data / FILE, allow_pickle=False) as arrays:
        order = {
            split: rng.permutation(len(arrays[f"{split}_labels"])).tolist() for split in IMAGES
        }
    for number, site in enumerate(site_names(SITES)):
        indices = {
            split: sorted(order[split][count * number :][:count]) for split, count in IMAGES.items()
        }
        content = {
            "kind": "npz",
            "file": str((data / FILE).resolve()),
            "indices": indices,
            "labelled": 0.2,
        }
        content |= {"labels": dict(enumerate(CLASSES))}
        (folder / f"{site}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def predictions(data: Path) -> None:
    """Print what the encodings change in predictions."""
    print("\n### Predictions on BloodMNIST\n")
    columns = (
        "network",
        "what",
        "images x models",
        "largest difference",
        "labels changed",
        "keep decisions changed",
    )
    print("\n".join(header_lines([*columns, "bytes / float32"], left=(0, 1))), flush=True)
    for net, rounds in ROUNDS.items():
        changes = [
            f"net={net}",
            f"data.name={DATA}",
            "data.image_size=28",
            "data.views=mirrored",
            f"rounds={rounds}",
        ]
        changes += [
            "participants=4",
            "images_per_round=96",
            "warm_up=1",
            f"evaluate_every={rounds}",
            "threshold=0.6",
        ]
        experiment = load_experiment("fedperl", changes)
        experiment = Experiment.parse(
            experiment.model_dump()
            | {"data": {**experiment.data.model_dump(), "classes": CLASSES}},
            net,
        )
        with tempfile.TemporaryDirectory() as folder, recorded_peers() as peers:
            place = Path(folder)
            blood_files(data, place)
            transport = Last(Sites(experiment, place / "cache", [place]), site_names(SITES))
            run_quietly(experiment, place / "run", transport)
            compare(experiment, transport, peers)


@contextmanager
def recorded_peers() -> Iterator[dict[bytes, State]]:
    """Note each peer by its encoding, as it was before."""
    peers_by_encoding = dict[bytes, State]()

    def noted(peer: State, model: State) -> np.ndarray:
        encoded = wire.encode_peer(peer, model)
        peers_by_encoding[encoded.tobytes()] = dict(peer)
        return encoded

    with patch.object(requests, "encode_peer", noted):
        yield peers_by_encoding


class Compared(NamedTuple):
    """Predictions (N, K) of one site's images, and the bytes of what was encoded."""

    local: Tensor
    """Of the site's own model."""
    before: Tensor
    """Of the model as it was encoded."""
    after: Tensor
    """Of the model as it was decoded."""
    share: float
    """Bytes of the encoding, as a share of the model's in float32."""


def compare(experiment: Experiment, transport: Last, peers: Mapping[bytes, State]) -> None:
    """Print a line for the peers of the last round, and one for its updates."""
    net = build(experiment.net, len(experiment.data.classes), experiment.data.channels)
    template = {key: value.clone() for key, value in net.state_dict().items()}

    def says(state: State, site: str) -> Tensor:
        net.load_state_dict(dict(state))
        return predict(net, transport.images(site))

    rows: dict[str, list[Compared]] = {"peers in int8": [], "updates in float16": []}
    for site, arrays in transport.requests.items():
        model = wire.unflatten("model", arrays, template)
        size = sum(array.nbytes for name, array in arrays.items() if name.startswith("model/"))
        local = says(model, site)
        (role,) = wire.roles(arrays)
        exact = peers[arrays[role].tobytes()]
        decoded = wire.decode_peer(role, arrays, template)
        rows["peers in int8"].append(
            Compared(local, says(exact, site), says(decoded, site), arrays[role].nbytes / size)
        )
        answer = Message({}, transport.updates[site])
        halved = wire.encode_update(answer)
        shapes = {name.removeprefix("diff/"): array.shape for name, array in answer.arrays.items()}
        before = says(wire.rebuild(model, answer), site)
        after = says(wire.rebuild(model, wire.decode_update(halved, shapes)), site)
        rows["updates in float16"].append(Compared(local, before, after, halved.nbytes / size))
    for what, found in rows.items():
        cells = changed(
            torch.cat([row.local for row in found]),
            torch.cat([row.before for row in found]),
            torch.cat([row.after for row in found]),
        )
        share = np.mean([row.share for row in found])
        print(table_line([experiment.net, what, *cells, f"{share:.3f}"]))


def changed(local: Tensor, before: Tensor, after: Tensor, threshold: float = 0.6) -> list[str]:
    """Return how many predictions there are, and how many labels and decisions to keep differ.

    A decision to keep is FedPerl's with one peer.
    """
    largest = float((before - after).abs().max())
    committees = [committee_mean(local, peer[None]) for peer in (before, after)]
    labels, keep = zip(*(pseudo_label(mean, threshold) for mean in committees), strict=True)
    alone = int((before.argmax(1) != after.argmax(1)).sum())
    other = [int((labels[0] != labels[1]).sum()), int((keep[0] != keep[1]).sum())]
    return [
        f"{len(local)}",
        f"{largest:.1e}",
        f"{alone} alone, {other[0]} with the site",
        f"{other[1]}",
    ]


@contextmanager
def plain_peers() -> Iterator[None]:
    """Let peers travel in float32, as if there were no encoding."""

    def whole(peer: State, model: State) -> np.ndarray:
        return np.concatenate([peer[key].numpy().ravel() for key in wire.travelling(model)])

    def parts(role: str, arrays: wire.Arrays, template: State) -> dict[str, Tensor]:
        names = wire.travelling(template)
        ends = np.cumsum([template[key].numel() for key in names])[:-1]
        split = zip(names, np.split(arrays[role], ends), strict=True)
        return {
            **template,
            **{key: torch.tensor(part).reshape(template[key].shape) for key, part in split},
        }

    # The server encodes by a name of its own.
    with patch.object(requests, "encode_peer", whole), patch.object(wire, "decode_peer", parts):
        yield


def carry_out(name: str, seed: int, out: Path) -> Run:
    """Return the finished run of a variant."""
    variant = VARIANTS[name]
    sizes = (
        "synthetic.images=160",
        "synthetic.sites=6",
        "synthetic.places=null",
        "images_per_round=96",
        "evaluate_every=10",
    )
    changes = (*sizes, f"seed={seed}", *variant.changes)
    experiment = load_experiment("fedperl", changes)
    folder = out / name.replace(" ", "-").replace(",", "") / f"seed-{seed}"
    if variant.plain:
        with plain_peers():
            run_or_resume(experiment, folder, simulated_sites(experiment), None, out / "cache")
    else:
        run_or_resume(experiment, folder, simulated_sites(experiment), None, out / "cache")
    return complete_run(folder)


def runs(seeds: int, out: Path) -> None:
    """Print test metrics over seeds, and how far the encodings move them."""
    metrics_by_variant = {name: list[dict[str, float]]() for name in VARIANTS}
    for seed in range(1, seeds + 1):
        for name in VARIANTS:
            run = carry_out(name, seed, out)
            last = {
                metric: last_round(run.metrics.named(metric), metric).test for metric in METRICS
            }
            metrics_by_variant[name].append(
                {metric: value for metric, value in last.items() if value is not None}
            )
            print(f"seed {seed}, {name}: {metrics_by_variant[name][-1]}", flush=True)
    print(f"\n### FedPerl's job over {seeds} seeds: test metrics after the last round\n")
    print(
        "\n".join(
            header_lines(["variant", *METRICS, *(f"{metric}, difference" for metric in METRICS)])
        )
    )
    (base, *_) = VARIANTS
    for name, values in metrics_by_variant.items():
        columns = {metric: [row[metric] for row in values] for metric in METRICS}
        gaps = []
        for metric in METRICS:
            base_values = [row[metric] for row in metrics_by_variant[base]]
            gaps.append(gap_text(paired_difference(columns[metric], base_values), digits=4))
        cells = [mean_text(columns[metric]) for metric in METRICS]
        differences = ["-"] * len(METRICS) if name == base else gaps
        print(table_line([name, *cells, *differences]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("predictions", "runs"))
    parser.add_argument(
        "--data", type=Path, help="folder with MedMNIST files (default: $FEDWARD_DATA/medmnist)"
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/bench/encoding"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "runs":
        runs(options.seeds, options.out)
    else:
        predictions(options.data or Path(os.environ.get("FEDWARD_DATA", ".")) / "medmnist")


if __name__ == "__main__":
    main()
