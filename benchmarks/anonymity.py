"""What FedPerl's anonymous peer hides from attackers who know more and more.

Each of them guesses which sites a peer was averaged from.

    OMP_NUM_THREADS=1 python benchmarks/anonymity.py [--workers 2]

FedPerl runs on sites with synthetic images, with the small GroupNorm network, three seeds, three
participants a round. What each site receives is recorded, and every receiver of a peer guesses who
is in it:

- **classes**: knows each site's class proportions, and compares what the peer and the global model
  say of its own images.
- **schedule**: knows all global models and which sites trained in which round (the job's seed
  tells). From the global model's steps it estimates what each site adds, and so each site's model.
- **leak**: knows besides all models that the server held some rounds earlier.
- **all models**: knows the models that the server holds now.
- **coalition**: all sites but one work together and compute the last one's model.

With T = 1 peers are sent as they are, without anonymisation.
"""

import argparse
import io
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from committees import (
    chance,
    closest_committee,
    most_aligned_committee,
    rate,
    reconstruct,
    site_offsets,
)
from fedward.client.client import Client
from fedward.config import Experiment
from fedward.console.console import Console
from fedward.jobs import load_experiment, site_names
from fedward.lab.local import LocalTransport
from fedward.methods import method_of
from fedward.model_state import State
from fedward.nets import build
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message, decode_peer, flatten, roles, unflatten
from fedward.report import write_report
from fedward.seeds import numpy_generator
from fedward.server.loop import run_experiment
from fedward.training.batches import Pixels
from fedward.training.evaluation import predict

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
EXACT = 0.05
"""Relative error below which a reconstructed model counts as the victim's: peers are rounded before
they travel.
"""


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
        return self.models[round_ - 1] + self.updates[site][round_]

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
        super().__init__(experiment, names, folder)
        self.history = History(proportions={name: proportions(self.client(name)) for name in names})
        self._net = build(experiment.net, len(experiment.data.classes))

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        history = self.history

        def recorded(site: str, answer: Message) -> None:
            if answer.arrays:
                history.updates.setdefault(site, {})[answer.meta["round"]] = vector("diff", answer)
            deliver(site, answer)

        history.models.append(vector("model", next(iter(requests.values()))))
        for site, request in requests.items():
            if "peer0" in roles(request):
                model = unflatten("model", request.arrays, self._net.state_dict())
                peer = decode_peer("peer0", request.arrays, self._net.state_dict())
                shift = self._says(site, peer) - self._says(site, model)
                decoded = vector("peer0", Message({}, flatten("peer0", peer)))
                history.received.append(Received(request.meta["round"], site, decoded, shift))
        super().exchange(requests, timeout, recorded)

    def _says(self, site: str, model: State) -> np.ndarray:
        self._net.load_state_dict(dict(model))
        pixels = Pixels.of(self.client(site).data.unlabelled, torch.device("cpu"))
        return predict(self._net, pixels).mean(dim=0).numpy()


def vector(role: str, message: Message) -> np.ndarray:
    """Return a model of a message as one float32 vector."""
    return np.concatenate(
        [
            message.arrays[key].ravel()
            for key in sorted(message.arrays)
            if key.startswith(f"{role}/")
        ]
    )


def proportions(site: Client) -> np.ndarray:
    """Return the class proportions (K,) of a site's labelled images of all splits."""
    labels = np.concatenate(
        [part.labels for part in (site.data.labelled, site.data.val, site.data.test)]
    )
    return np.bincount(labels, minlength=len(site.data.classes)) / len(labels)


def record(sites: int, size: int, seed: int) -> History:
    """Run FedPerl and return what passed."""
    changes = [*SETTINGS, f"committee={size}", f"anonymise={str(size > 1).lower()}", f"seed={seed}"]
    experiment = load_experiment("fedperl", changes)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        transport = Recording(experiment, site_names(sites), Path(folder) / "cache")
        run = run_experiment(
            experiment,
            method_of(experiment),
            Path(folder) / "run",
            transport,
            engine="local",
            console=Console(),
            report=write_report,
        )
        rows = map(json.loads, (run / "peers.jsonl").read_text(encoding="utf-8").splitlines())
        chosen = {row["round"]: row["chosen"] for row in rows}
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
    typical = np.mean(list(steps.values()), axis=0)
    design = [share - 1 / len(everyone) for share in shares.values()]
    observed = [step - typical for step in steps.values()]
    leaked = (
        {site: history.last(site, peer.round - age) for site in sites} if age is not None else {}
    )
    known_rounds = {site: q for site, q in leaked.items() if q is not None}
    unit_rows = np.eye(len(everyone))
    design += [unit_rows[everyone.index(site)] - shares[q] for site, q in known_rounds.items()]
    observed += [history.updates[site][q] - steps[q] for site, q in known_rounds.items()]
    offsets = site_offsets(np.stack(design), np.stack(observed))

    def held(site: str) -> np.ndarray:
        last = history.last(site, peer.round)
        assert last is not None
        if last == known_rounds.get(site):
            return history.model(site, last)
        return models[last] + offsets[everyone.index(site)] - shares[last] @ offsets

    return closest_committee(peer.peer, np.stack([held(site) for site in sites]), size)[0]


@dataclass
class Outcomes:
    """What the attacks on some runs came to."""

    chances: list[tuple[float, float]] = field(default_factory=list)
    """For each peer the chance of a random guess to be the committee, and of a random site to be a
    member.
    """
    committees: dict[str, list[bool]] = field(
        default_factory=lambda: {name: [] for name in ATTACKERS}
    )
    """Attacker -> is the guess the committee? one for each peer."""
    members: dict[str, list[bool]] = field(default_factory=lambda: {name: [] for name in ATTACKERS})
    """Attacker -> is the site a member? T for each peer."""
    errors: list[float] = field(default_factory=list)
    """Of each member's model computed by all other sites; see :func:`reconstruction_error`."""

    def add(self, other: "Outcomes") -> None:
        """Add the outcomes of another run."""
        self.chances += other.chances
        self.errors += other.errors
        for name in ATTACKERS:
            self.committees[name] += other.committees[name]
            self.members[name] += other.members[name]


def attack(sites: int, size: int, seed: int) -> Outcomes:
    """Run FedPerl, and mount all attacks on each peer of ``size`` members.

    A peer whose members leave nothing to guess is not attacked.
    """
    torch.set_num_threads(1)
    history = record(sites, size, seed)
    outcomes = Outcomes()
    for peer in history.received:
        candidates = history.candidates(peer)
        if len(peer.members) != size or len(candidates) == size:
            continue
        outcomes.chances.append((chance(len(candidates), size), size / len(candidates)))
        guesses = {"classes": guess_by_classes(history, peer, candidates, size)}
        guesses |= {
            name: guess_by_models(history, peer, candidates, size, age)
            for name, age in LEAKS.items()
        }
        for name, guess in guesses.items():
            named = {candidates[index] for index in guess}
            outcomes.committees[name].append(named == peer.members)
            outcomes.members[name] += [site in peer.members for site in named]
        outcomes.errors += [
            reconstruction_error(history, peer, candidates, size, site) for site in peer.members
        ]
    return outcomes


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


def print_rates(
    title: str, results: dict[tuple[int, int], Outcomes], what: str, place: int
) -> None:
    """Print a row for each number of sites and T, a column for each attacker."""
    print(f"\n### {title}\n\n| sites | T | guesses | chance | {' | '.join(ATTACKERS)} |")
    print(f"|--:|--:|--:|--:|{'--:|' * len(ATTACKERS)}")
    for (sites, size), outcomes in results.items():
        rates = [rate(outcomes_of) for outcomes_of in getattr(outcomes, what).values()]
        cells = [
            f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]" for interval in rates
        ]
        by_chance = np.mean([chances[place] for chances in outcomes.chances])
        print(f"| {sites} | {size} | {rates[0].guesses} | {by_chance:.3f} | {' | '.join(cells)} |")


def print_coalition(results: dict[tuple[int, int], Outcomes]) -> None:
    """Print how well all other sites together compute the model of one."""
    print("\n### All sites but one: the last one's model\n")
    print(
        "| sites | T | models | computed exactly | median error | largest error |\n"
        "|--:|--:|--:|--:|--:|--:|"
    )
    for (sites, size), outcomes in results.items():
        exact = rate([error < EXACT for error in outcomes.errors])
        cells = f"{exact.value:.2f} [{exact.low:.2f}, {exact.high:.2f}]"
        median = np.median(outcomes.errors)
        largest = max(outcomes.errors)
        print(f"| {sites} | {size} | {exact.guesses} | {cells} | {median:.1e} | {largest:.1e} |")


def main() -> None:
    """Run, attack, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="runs at once (default: 2)")
    workers = parser.parse_args().workers
    results = {case: Outcomes() for case in product(SITES, SIZES)}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        runs = {
            (*case, seed): pool.submit(attack, *case, seed) for case in results for seed in SEEDS
        }
        for (sites, size, seed), future in runs.items():
            results[sites, size].add(future.result())
            print(f"{sites} sites, T = {size}, seed {seed}: done", file=sys.stderr, flush=True)
    print_rates("The whole committee is named", results, "committees", 0)
    print_rates("A named site is a member", results, "members", 1)
    print_coalition(results)


if __name__ == "__main__":
    main()
