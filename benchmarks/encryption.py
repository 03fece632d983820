"""What secure aggregation costs: bytes and seconds of a round's exchange of updates.

    python benchmarks/encryption.py [--net small_cnn tf_efficientnet_lite0] [--sites 3] [--repeats
    3]

Everything between a site's trained model and the server's mean, in one process with one site after
the other: plain, the difference, its check and the weighted mean; encrypted, also ciphertexts,
their sum, and its decryption at every site. Training, files and the network are left out. Seconds
are the process's own CPU time.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

from fedward.methods.averages import weighted_average
from fedward.methods.workflow import ClientTask, Exchange
from fedward.model_state import State
from fedward.nets import build
from fedward.protocol import wire
from fedward.protocol.wire import Message
from fedward.security.encryption import Adder, SiteKey, mean_of, new_contexts
from fedward.server.requests import models_by_site

STEPS = 26
CLASSES = 8


def plain_round(model: State, trained: list[State]) -> tuple[State, int]:
    """Return the mean model and the bytes that went up."""
    updates = [wire.difference(state, model) for state in trained]
    states = [wire.rebuild(model, wire.Message({}, arrays)) for arrays in updates]
    sent = sum(array.nbytes for arrays in updates for array in arrays.values())
    return weighted_average(states, [float(STEPS)] * len(states)), sent


def encrypted_round(
    model: State, trained: list[State], key: SiteKey, adder: Adder
) -> tuple[State, int, int, dict[str, float]]:
    """Return the mean model, the bytes up, the further bytes down, and the seconds of each step."""
    clocks = [time.process_time()]
    sealed = [key.encrypt(wire.difference(state, model), STEPS) for state in trained]
    clocks.append(time.process_time())
    total: list[Any] = []  # of ciphertexts, for whose type TenSEAL has no name
    for number, ciphers in enumerate(sealed):
        read = adder.read(f"site-{number}", ciphers)
        total = adder.add(total, read) if total else read
    asked = adder.write(total)
    clocks.append(time.process_time())
    shapes = wire.shapes(
        Message({}, models_by_site(Exchange(1, model, {"s": ClientTask()}), [], dict)["s"])
    )
    for _ in trained:
        numbers = key.decrypt(list(asked.values()), len(trained))
        mean = dict(mean_of(numbers, STEPS * len(trained), shapes))
    clocks.append(time.process_time())
    arrays = {f"diff/{name}": array for name, array in mean.items()}
    up = sum(array.nbytes for ciphers in sealed for array in ciphers.values())
    up += len(trained) * sum(array.nbytes for array in mean.values())
    down = len(trained) * sum(array.nbytes for array in asked.values())
    seconds = dict(zip(("encrypt", "add", "decrypt"), np.diff(clocks).tolist(), strict=True))
    return wire.rebuild(model, wire.Message({}, arrays)), up, down, seconds


def measure(name: str, sites: int, repeats: int, key: SiteKey, adder: Adder) -> None:
    """Print the rows of one network."""
    model = build(name, CLASSES).state_dict()
    generator = torch.Generator().manual_seed(0)
    trained: list[State] = [
        {
            tensor: value + 1e-3 * torch.randn(value.shape, generator=generator)
            if value.is_floating_point()
            else value
            for tensor, value in model.items()
        }
        for _ in range(sites)
    ]
    plain_seconds = []
    steps = []
    for _ in range(repeats):
        started = time.process_time()
        expected, plain_up = plain_round(model, trained)
        plain_seconds.append(time.process_time() - started)
        decrypted, up, further, seconds = encrypted_round(model, trained, key, adder)
        steps.append(seconds)
    error = max(
        float((decrypted[tensor] - expected[tensor]).abs().max())
        for tensor in wire.travelling(model)
    )
    plain_down = plain_up  # the global model to every site
    median = {step: statistics.median(row[step] for row in steps) for step in steps[0]}
    whole = sum(median.values())
    before = statistics.median(plain_seconds)
    numbers = sum(model[tensor].numel() for tensor in wire.travelling(model))
    print(f"| {name}, {numbers:,} numbers | plain | encrypted | ratio |\n|---|--:|--:|--:|")
    print(f"| MB up | {plain_up / 1e6:.2f} | {up / 1e6:.2f} | {up / plain_up:.1f} |")
    down = plain_down + further
    print(f"| MB down | {plain_down / 1e6:.2f} | {down / 1e6:.2f} | {down / plain_down:.1f} |")
    print(f"| CPU seconds | {before:.3f} | {whole:.2f} | {whole / before:.0f} |")
    for step, value in median.items():
        print(f"| &nbsp; {step} | | {value:.2f} | |")
    print(f"| largest difference of the means | | {error:.1e} | |\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", nargs="+", default=["small_cnn", "tf_efficientnet_lite0"])
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    server, site = new_contexts()
    key = SiteKey(site)
    adder = Adder(server)
    print(f"{options.sites} sites, median of {options.repeats}\n")
    for name in options.net:
        measure(name, options.sites, options.repeats, key, adder)


if __name__ == "__main__":
    main()
