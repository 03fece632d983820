"""What FedPerl's anonymous peer hides from attackers who know more and more.

Each of them guesses which sites a peer was averaged from.

    OMP_NUM_THREADS=1 python benchmarks/anonymity.py [--processes 2]
    python benchmarks/anonymity.py --page docs/results/anonymity.md docs/results/tables/anonymity.md

FedPerl runs on sites with synthetic images, with the small GroupNorm network, three seeds, three
participants a round. What each site receives is recorded, and every receiver of a peer guesses who
is in it:

- **classes**: knows each site's class proportions, and compares what the peer and the global model
  say of its own images.
- **schedule**: knows all global models and which sites trained in which round (the job's seed
  tells). From the global model's steps it estimates what each site adds, and so each site's model.
  The unit is the length of the step, as all steps shrink with the learning rate.
- **leak**: knows besides all models that the server held some rounds earlier.
- **all models**: knows the models that the server holds now.
- **coalition**: all sites but one work together and compute the last one's model.

With T = 1 peers are sent as they are, without anonymisation. The second command writes the tables
of the kept lines into the pages.
"""

import io
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from committees import (
    Rate,
    chance,
    closest_committee,
    most_aligned_committee,
    rate,
    reconstruct,
    site_offsets,
)
from fedward.config import Experiment
from fedward.jobs import load_experiment, site_names
from fedward.lab.bench.markdown import Table
from fedward.lab.local import LocalTransport, Sites
from fedward.model_state import State
from fedward.nets import build
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message, decode_peer, flatten, roles, unflatten
from fedward.seeds import numpy_generator
from fedward.sites import SiteData
from fedward.training.batches import Pixels
from fedward.training.evaluation import predict
from measured import Line, Measurement, run
from quiet_run import data_at, run_quietly

SITES = (5, 10)
SIZES = (1, 2, 3)
SEEDS = (1, 2, 3)
ROUNDS = 24
WARM_UP = 4
SETTINGS = (
    f"rounds={ROUNDS}",
    f"warm_up={WARM_UP}",
    "participants=3",
    "images_per_round=64",
    "batch=16",
    "synthetic.images=160",
    "synthetic.places=null",
    "net=small_cnn_gn",
    "data.image_size=32",
    f"evaluate_every={ROUNDS}",
)
LEAKS = {
    "schedule": None,
    "leak, 10 rounds old": 10,
    "5 rounds old": 5,
    "1 round old": 1,
    "all models": 0,
}
"""Age in rounds of the models an attacker knows; None for no model."""
ATTACKERS = ("classes", *LEAKS)
LARGEST_ERROR = 0.05
"""Relative error below which a reconstructed model counts as the victim's: peers are rounded before
they travel.
"""
DIGITS = 3
"""Significant digits of a kept error."""


@dataclass
class Received:
    """One site's peer in one round, and the truth about it."""

    round: int
    site: str
    peer: np.ndarray
    shift: np.ndarray
    """(K,) how much more often the peer names each class than the global model, on the site's own
    images.
    """
    members: frozenset[str] = frozenset()


@dataclass
class History:
    """What passed between server and sites, as vectors."""

    models: list[np.ndarray] = field(default_factory=list)
    """The global model sent in each round, from round 1 on."""
    updates: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    """Site -> round -> its update."""
    received: list[Received] = field(default_factory=list)
    proportions: dict[str, np.ndarray] = field(default_factory=dict)

    def last(self, site: str, before: int) -> int | None:
        """Return the last round before ``before`` in which a site trained."""
        return max(
            (round_ for round_ in self.updates.get(site, {}) if round_ < before), default=None
        )

    def model(self, site: str, round_: int) -> np.ndarray:
        """Return the model a site trained in a round."""
        model: np.ndarray = self.models[round_ - 1] + self.updates[site][round_]
        return model

    def candidates(self, of: Received) -> list[str]:
        """Return the sites that may be in a peer, shuffled, so that ties favour none."""
        there = [
            site for site in sorted(self.updates) if site != of.site and self.last(site, of.round)
        ]
        numpy_generator(of.round, "candidates", of.site).shuffle(there)
        return there


class Recording(LocalTransport):
    """The in-process engine, which writes down what is sent."""

    def __init__(self, experiment: Experiment, names: Sequence[str], folder: Path) -> None:
        super().__init__(Sites(experiment, folder), names)
        self.history = History(
            proportions={name: proportions(data_at(self, name)) for name in names}
        )
        self._net = build(experiment.net, len(experiment.data.classes))

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        history = self.history

        def recorded(site: str, answer: Message) -> None:
            if answer.arrays:
                history.updates.setdefault(site, {})[answer.meta["round"]] = vector("diff", answer)
            deliver(site, answer)

        history.models.append(vector("model", next(iter(requests.values()))))
        for site, request in requests.items():
            if "peer0" in roles(request.arrays):
                model = unflatten("model", request.arrays, self._net.state_dict())
                peer = decode_peer("peer0", request.arrays, self._net.state_dict())
                shift = self._says(site, peer) - self._says(site, model)
                decoded = vector("peer0", Message({}, flatten("peer0", peer)))
                history.received.append(Received(request.meta["round"], site, decoded, shift))
        super().exchange(requests, timeout, recorded)

    def _says(self, site: str, model: State) -> np.ndarray:
        self._net.load_state_dict(dict(model))
        pixels = Pixels.of(data_at(self, site).unlabelled, torch.device("cpu"))
        shares: np.ndarray = predict(self._net, pixels).mean(dim=0).numpy()
        return shares


def vector(role: str, message: Message) -> np.ndarray:
    """Return a model of a message as one float32 vector."""
    return np.concatenate(
        [
            message.arrays[key].ravel()
            for key in sorted(message.arrays)
            if key.startswith(f"{role}/")
        ]
    )


def proportions(data: SiteData) -> np.ndarray:
    """Return the class proportions (K,) of a site's labelled images of all splits."""
    labels = np.concatenate([part.labels for part in (data.labelled, data.val, data.test)])
    counts = np.bincount(labels, minlength=len(data.classes))
    shares: np.ndarray = counts / len(labels)
    return shares


def record(cell: Mapping[str, Any]) -> History:
    """Run FedPerl and return what passed."""
    experiment = load_experiment(cell["job"], cell["changes"])
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        transport = Recording(experiment, site_names(cell["sites"]), Path(folder) / "cache")
        run_folder = run_quietly(experiment, Path(folder) / "run", transport)
        lines = (run_folder / "peers.jsonl").read_text(encoding="utf-8").splitlines()
    chosen = {row["round"]: row["chosen"] for row in map(json.loads, lines)}
    for peer in transport.history.received:
        peer.members = frozenset(chosen[peer.round][peer.site])
    return transport.history


def guess_by_classes(
    history: History, peer: Received, sites: list[str], size: int
) -> tuple[int, ...]:
    """Guess the sites by the classes that the peer names more often than the global model.

    They are the sites that hold more images of these classes.
    """
    mean = np.mean(list(history.proportions.values()), axis=0)
    return most_aligned_committee(
        peer.shift, np.stack([history.proportions[site] - mean for site in sites]), size
    )


def guess_by_models(
    history: History, peer: Received, sites: list[str], size: int, age: int | None
) -> tuple[int, ...]:
    """Guess the sites whose models, known or estimated, have the mean closest to the peer."""
    everyone = list(history.proportions)
    models = history.models
    attendance = {
        q: np.array([q in history.updates.get(site, {}) for site in everyone])
        for q in range(1, peer.round)
    }
    shares = {q: there / there.sum() for q, there in attendance.items()}
    steps = {q: models[q] - models[q - 1] for q in shares}
    lengths = {q: float(np.linalg.norm(step)) for q, step in steps.items()}
    typical = np.mean([steps[q] / lengths[q] for q in steps], axis=0)
    design = [share - 1 / len(everyone) for share in shares.values()]
    observed = [steps[q] / lengths[q] - typical for q in steps]
    leaked = (
        {site: history.last(site, peer.round - age) for site in sites} if age is not None else {}
    )
    known_rounds = {site: q for site, q in leaked.items() if q is not None}
    unit_rows = np.eye(len(everyone))
    design += [unit_rows[everyone.index(site)] - shares[q] for site, q in known_rounds.items()]
    observed += [
        (history.updates[site][q] - steps[q]) / lengths[q] for site, q in known_rounds.items()
    ]
    offsets = site_offsets(np.stack(design), np.stack(observed))

    def held(site: str) -> np.ndarray:
        last = history.last(site, peer.round)
        assert last is not None
        if last == known_rounds.get(site):
            return history.model(site, last)
        offset = offsets[everyone.index(site)] - shares[last] @ offsets
        model: np.ndarray = models[last] + lengths[last] * offset
        return model

    return closest_committee(peer.peer, np.stack([held(site) for site in sites]), size)[0]


class Anonymity(Measurement):
    """A run of FedPerl for each number of sites, T and seed, and all attacks on its peers."""

    name = "anonymity"

    def cells(self) -> list[dict[str, Any]]:
        cells = []
        for sites, size, seed in product(SITES, SIZES, SEEDS):
            anonymise = str(size > 1).lower()
            choices = [f"committee={size}", f"anonymise={anonymise}", f"seed={seed}"]
            cells.append(
                {
                    "sites": sites,
                    "committee": size,
                    "seed": seed,
                    "job": "fedperl",
                    "changes": [*SETTINGS, *choices],
                }
            )
        return cells

    def measure(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Run FedPerl, and mount all attacks on each peer of T members.

        A peer whose members leave nothing to guess is not attacked. ``candidates`` has for each
        peer how many sites may be in it, ``members_named`` for each attacker and peer how many of
        its T guesses are members, and ``errors`` for each member of each peer the
        :func:`reconstruction_error`.
        """
        size = cell["committee"]
        history = record(cell)
        numbers_of_candidates = []
        members_named: dict[str, list[int]] = {name: [] for name in ATTACKERS}
        errors = []
        for peer in history.received:
            candidates = history.candidates(peer)
            if len(peer.members) != size or len(candidates) == size:
                continue
            numbers_of_candidates.append(len(candidates))
            guesses = {"classes": guess_by_classes(history, peer, candidates, size)}
            for name, age in LEAKS.items():
                guesses[name] = guess_by_models(history, peer, candidates, size, age)
            for name, guess in guesses.items():
                named = {candidates[index] for index in guess}
                members_named[name].append(len(named & peer.members))
            for member in sorted(peer.members):
                error = reconstruction_error(history, peer, candidates, size, member)
                errors.append(float(f"{error:.{DIGITS}g}"))
        return {
            "candidates": numbers_of_candidates,
            "members_named": members_named,
            "errors": errors,
        }

    def tables(self, lines: Sequence[Line]) -> dict[str, str]:
        return {
            "anonymity_committees": rate_table(lines, committee_rate, committee_chance),
            "anonymity_members": rate_table(lines, member_rate, member_chance),
            "anonymity_coalition": coalition_table(lines),
        }


def reconstruction_error(
    history: History, peer: Received, candidates: list[str], size: int, victim: str
) -> float:
    """Return how far the victim's model, as all other sites compute it, is from the true one.

    The unit is the distance of the true model from the global model.

    The global model is the one after the round in which the victim trained last.
    """
    lasts = {site: history.last(site, peer.round) or 0 for site in candidates}
    held = {site: history.model(site, last) for site, last in lasts.items()}
    near = history.models[lasts[victim]]
    model = held.pop(victim)
    reconstructed = reconstruct(peer.peer, np.stack(list(held.values())), size, near)
    return float(np.linalg.norm(reconstructed - model) / np.linalg.norm(model - near))


def of_case(lines: Sequence[Line], sites: int, size: int) -> list[Mapping[str, Any]]:
    """Return what came out of the runs of all seeds."""
    return [
        line.outcome
        for line in lines
        if (line.cell["sites"], line.cell["committee"]) == (sites, size)
    ]


def committee_rate(named: Sequence[int], size: int) -> Rate:
    """Return how often the whole committee was named; one guess for each peer."""
    return rate(count == size for count in named)


def committee_chance(candidates: int, size: int) -> float:
    """Return the probability that a random guess is the committee."""
    return chance(candidates, size)


def member_rate(named: Sequence[int], size: int) -> Rate:
    """Return how often a named site was a member; T guesses for each peer."""
    return rate(place < count for count in named for place in range(size))


def member_chance(candidates: int, size: int) -> float:
    """Return the probability that a random site is a member."""
    return size / candidates


def rate_table(
    lines: Sequence[Line],
    rate_of: Callable[[Sequence[int], int], Rate],
    chance_of: Callable[[int, int], float],
) -> str:
    """Return a table with a row for each number of sites and T, a column for each attacker.

    Args:
        lines: all runs.
        rate_of: takes the number of members named of each peer, and T.
        chance_of: takes the number of candidates, and T.
    """
    table = Table(["sites", "T", "guesses", "chance", *ATTACKERS], left=())
    for sites, size in product(SITES, SIZES):
        runs = of_case(lines, sites, size)
        rates = []
        for name in ATTACKERS:
            named = [count for outcome in runs for count in outcome["members_named"][name]]
            rates.append(rate_of(named, size))
        candidates = [number for outcome in runs for number in outcome["candidates"]]
        by_chance = fmean(chance_of(number, size) for number in candidates)
        table.add(
            f"{sites}",
            f"{size}",
            f"{rates[0].guesses}",
            f"{by_chance:.3f}",
            *map(rate_text, rates),
        )
    return table.markdown()


def coalition_table(lines: Sequence[Line]) -> str:
    """Return a table of how well all other sites together compute the model of one."""
    table = Table(["sites", "T", "models", "computed", "median error", "largest error"], left=())
    for sites, size in product(SITES, SIZES):
        errors = [error for outcome in of_case(lines, sites, size) for error in outcome["errors"]]
        found = rate(error < LARGEST_ERROR for error in errors)
        table.add(
            f"{sites}",
            f"{size}",
            f"{found.guesses}",
            rate_text(found),
            f"{median(errors):.3f}",
            f"{max(errors):.3f}",
        )
    return table.markdown()


def rate_text(interval: Rate) -> str:
    """Return a rate with its 95 % interval."""
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


if __name__ == "__main__":
    run(Anonymity(), __doc__)
