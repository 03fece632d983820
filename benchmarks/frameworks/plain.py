"""FedAvg as a plain loop over PyTorch, in one process."""

import copy
import random

import torch
import work


def main() -> None:
    """Run it."""
    net = work.network()
    chance = random.Random(0)
    model = copy.deepcopy(net.state_dict())
    for round_ in range(1, work.ROUNDS + 1):
        states = []
        for site in chance.sample(range(work.SITES), work.TRAINING):
            net.load_state_dict(model)
            work.train(net, site, round_)
            states.append(copy.deepcopy(net.state_dict()))
        model = {name: torch.stack([state[name] for state in states]).mean(0) for name in model}
        work.say(round_)


if __name__ == "__main__":
    main()
