"""What the run folder records of an exchange: rows of its logs, and the best model so far."""

from collections.abc import Mapping

from fedward.evaluation.selection import MetricRow, latest_best, mean_by_most, named_mean
from fedward.methods.workflow import Exchange
from fedward.model_state import State
from fedward.protocol import wire
from fedward.protocol.messages import Answer
from fedward.server.exchange import Result
from fedward.storage.info import CardOfSite
from fedward.storage.rows import (
    BinnedRow,
    ByteRow,
    ClusterPart,
    QueryRow,
    RoundRow,
    SubgroupColumn,
)
from fedward.storage.run_folder import RunFolder


def record_sites(run: RunFolder, exchange: Exchange, result: Result, rounds: int) -> None:
    """Write what each site has sent, and the method's decisions.

    ``rounds``: how many have made the model that the exchange has sent.
    """
    run.note_origins({site: answer.synthetic for site, answer in result.answers.items()})
    cards = {site: answer.card for site, answer in result.answers.items() if answer.card}
    run.note_cards({site: CardOfSite(**card.model_dump()) for site, card in cards.items()})
    for site, answer in sorted(result.answers.items()):
        _record_evaluation(run, rounds, site, answer)
        if site in exchange.tasks:
            _record_training(run, exchange, site, answer)
        if answer.label_counts:
            row = QueryRow(
                exchange.round,
                site,
                **answer.label_counts.model_dump(),
                labelled=answer.labelled,
                unlabelled=answer.unlabelled,
                minutes=answer.minutes,
            )
            run.append("queries", row)
    for site, request in result.requests.items():
        bytes_up = result.bytes_up.get(site, 0)
        peers = len(wire.roles(request.arrays))
        run.append("bytes", ByteRow(exchange.round, site, request.nbytes, bytes_up, peers))
    for log, decision in exchange.decisions.items():
        run.append(log, {"round": exchange.round, **decision})


def _record_evaluation(run: RunFolder, rounds: int, site: str, answer: Answer) -> None:
    """Write a site's metrics and counts of the model after so many rounds."""
    splits_with_classes = set[str]()
    for metric in answer.metrics:
        fields = dict(vars(metric))
        # All rows of a split have the same classes, and only the first one names them.
        if metric.split in splits_with_classes:
            del fields["classes"]
        splits_with_classes.add(metric.split)
        run.append("metrics", MetricRow(rounds, site, **fields))
    # Counts without a metric are of no images.
    if answer.binned and answer.metrics:
        fields = answer.binned.model_dump(exclude={"subgroups", "clusters"})
        columns = answer.binned.subgroups
        clusters = answer.binned.clusters
        row = BinnedRow(
            rounds,
            site,
            **fields,
            subgroups=tuple(SubgroupColumn(**vars(one)) for one in columns) if columns else None,
            clusters=ClusterPart(**vars(clusters)) if clusters else None,
        )
        run.append("binned", row)


def _record_training(run: RunFolder, exchange: Exchange, site: str, answer: Answer) -> None:
    """Write a site's mean losses and its numbers of training images."""
    images = answer.labelled + answer.unlabelled
    numbers = {
        **answer.train,
        "labelled": answer.labelled,
        "unlabelled": answer.unlabelled,
    }
    for name, value in numbers.items():
        run.append("metrics", MetricRow(exchange.round, site, "train", name, value, images))


def record_round(run: RunFolder, exchange: Exchange, result: Result, seconds: float) -> RoundRow:
    """Write the row of an exchange that belongs to a round, and return it.

    Sites without training images are not counted among those that are asked to train.
    """
    without = result.without_images
    failed = {site: reason for site, reason in result.failed.items() if site not in without}
    answers = sorted(result.answers.items())
    requests = result.requests.values()
    row = RoundRow(
        round=exchange.round,
        part=exchange.part,
        seconds=round(seconds, 3),
        asked=tuple(sorted(exchange.tasks.keys() - without)),
        replied=tuple(result.trained),
        failed=failed,
        restarts={site: answer.restarts for site, answer in answers if answer.restarts},
        bytes_down=sum(request.nbytes for request in requests),
        bytes_up=sum(result.bytes_up.values()),
        peer_models=sum(len(wire.roles(request.arrays)) for request in requests),
    )
    run.append("rounds", row)
    return row


def key_values(answers: Mapping[str, Answer], key_metric: str) -> dict[str, float | None]:
    """Return site -> key metric of the evaluated model on validation images.

    None where the metric is not defined; sites that did not evaluate are left out.
    """
    values = {}
    for site, answer in sorted(answers.items()):
        for metric in answer.metrics:
            if metric.split == "val" and metric.name == key_metric:
                values[site] = metric.value
    return values


def keep_best(
    run: RunFolder,
    model: State,
    rounds: int,
    values: Mapping[str, float | None],
    key_metric: str,
) -> None:
    """Keep an evaluated model if it is the best so far by the mean over sites.

    Args:
        run: the run.
        model: the model.
        rounds: how many have made it.
        values: of :func:`key_values`.
        key_metric: name of the metric that the values are of.
    """
    mean = mean_by_most(values, run.sites)
    if mean is None:
        return
    candidates = {rounds: mean}
    best = run.best()
    if best:
        best_round, best_value = best
        candidates[best_round] = best_value
    if latest_best(candidates) == rounds:
        about = {"round": rounds, "metric": named_mean(key_metric), "value": mean}
        run.keep_best(model, about)
