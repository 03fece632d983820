"""FedAvg on Flower's simulation engine; its only backend is Ray, one CPU for each client."""

from collections.abc import Iterable
from typing import Any

import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client = ClientApp()
server = ServerApp()


class Watched(FedAvg):
    """Tells when a round's answers have been averaged."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        result = super().aggregate_train(server_round, replies)
        work.say(server_round)
        return result


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train at a site."""
    net = work.network()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    seen = work.train(
        net, int(context.node_config["partition-id"]), message.content["config"]["server-round"]
    )
    content = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"num-examples": seen}),
    }
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    del context
    share = work.TRAINING / work.SITES
    strategy = Watched(
        fraction_train=share,
        fraction_evaluate=0.0,
        min_train_nodes=work.TRAINING,
        min_available_nodes=work.SITES,
    )
    strategy.start(
        grid=grid, initial_arrays=ArrayRecord(work.network().state_dict()), num_rounds=work.ROUNDS
    )


if __name__ == "__main__":
    run_simulation(
        server,
        client,
        work.SITES,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
