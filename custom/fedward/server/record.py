"""What the run folder records of an exchange: rows of its logs, and the best model so far."""

from collections.abc import Mapping
from statistics import fmean

from fedward.evaluation.selection import MetricRow, evaluated, latest_best
from fedward.methods.workflow import Exchange
from fedward.protocol import wire
from fedward.protocol.messages import Answer
from fedward.server.exchange import Result
from fedward.storage.rows import BinnedRow, ByteRow, QueryRow, RoundRow
from fedward.storage.run_folder import RunFolder


def record_sites(run: RunFolder, exchange: Exchange, result: Result) -> None:
    """Write what each site has sent, and the method's decisions."""
    run.note_origins({site: answer.synthetic for site, answer in result.answers.items()})
    for site, answer in sorted(result.answers.items()):
        counts = {"labelled": answer.labelled, "unlabelled": answer.unlabelled}
        told = set[str]()
        for metric in answer.metrics:
            # All rows of a split have the same classes: the first says them.
            said = {
                name: value
                for name, value in vars(metric).items()
                if name != "classes" or metric.split not in told
            }
            told.add(metric.split)
            run.append("metrics", MetricRow(exchange.model_round, site, **said))
        binned = answer.binned
        if binned:
            run.append("binned", BinnedRow(exchange.model_round, site, **binned.model_dump()))
        for name, value in ({**answer.train, **counts} if site in exchange.tasks else {}).items():
            run.append(
                "metrics",
                MetricRow(exchange.round, site, "train", name, value, sum(counts.values())),
            )
        labels = answer.label_counts
        if labels:
            row = QueryRow(
                exchange.round, site, **labels.model_dump(), **counts, minutes=answer.minutes
            )
            run.append("queries", row)
    for site, request in result.requests.items():
        up = result.bytes_up.get(site, 0)
        peers = len(wire.roles(request.arrays))
        run.append("bytes", ByteRow(exchange.round, site, request.nbytes, up, peers))
    for log, decision in exchange.record.items():
        run.append(log, {"round": exchange.round, **decision})


def record_round(run: RunFolder, exchange: Exchange, result: Result, seconds: float) -> RoundRow:
    """Write the row of an exchange that belongs to a round, and return it."""
    row = RoundRow(
        round=exchange.round,
        part=exchange.part,
        seconds=round(seconds, 3),
        asked=tuple(sorted(exchange.tasks)),
        replied=tuple(result.useful),
        failed=result.failed,
        restarts={
            site: answer.restarts
            for site, answer in sorted(result.answers.items())
            if answer.restarts
        },
        bytes_down=sum(request.nbytes for request in result.requests.values()),
        bytes_up=sum(result.bytes_up.values()),
        peer_models=sum(len(wire.roles(request.arrays)) for request in result.requests.values()),
    )
    run.append("rounds", row)
    return row


def key_values(answers: Mapping[str, Answer], key_metric: str) -> dict[str, float | None]:
    """Return site -> key metric of the evaluated model on validation images; None where it is not
    defined.
    """
    return {
        site: metric.value
        for site, answer in sorted(answers.items())
        for metric in answer.metrics
        if (metric.split, metric.name) == ("val", key_metric)
    }


def keep_best(
    run: RunFolder, exchange: Exchange, values: Mapping[str, float | None], key_metric: str
) -> None:
    """Save the evaluated model if it is the best so far by the mean over sites."""
    if not evaluated(values, run.sites):
        return
    round_ = exchange.model_round
    mean = fmean(value for value in values.values() if value is not None)
    best = run.best()
    if latest_best({round_: mean, **dict([best] if best else [])}) == round_:
        about = {"round": round_, "metric": f"mean over sites of val {key_metric}", "value": mean}
        run.save_global("best", exchange.model, about)
