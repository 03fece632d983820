"""Check of a run's logs against its audit log, without the log of any site."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any, get_args

from fedward.errors import RunError
from fedward.operation.server_record import Evaluation, ServerRecord
from fedward.protocol.messages import Split
from fedward.sites import SERVER
from fedward.storage import chain
from fedward.storage.audit import LOG

_KEYS: Mapping[str, tuple[str, ...]] = {
    "binned": ("round", "site"),
    "rounds": ("round", "part"),
    "groups": ("round", "part", "group"),
    "surveys": ("site",),
}
"""Log -> fields of which no two rows have the same values."""
_KEYS_OF_EXCHANGE: Mapping[str, tuple[str, ...]] = {
    "bytes": ("round", "site"),
    "queries": ("round", "site"),
    "peers": ("round",),
    "heads": ("round",),
}
"""Log -> fields of which at most as many rows have the same values as the round has exchanges."""
_EVALUATED = get_args(Split)


def check_logs(server: ServerRecord) -> None:
    """Check that a run's logs hold only rows that the audit log accounts for, each of them once.

    Args:
        server: the server's side of the run.

    Raises:
        RunError: names the first line of a log that is wrong, or the numbers that are missing.
    """
    _check_metrics(server)
    _check_binned(server)
    _check_surveys(server)
    logs = {path.stem for path in server.folder.glob("*.jsonl") if path.name != LOG}
    for log in sorted(logs - {"metrics"}):
        _check_keys(server, log)


def _check_metrics(server: ServerRecord) -> None:
    """Check that metrics.jsonl holds the evaluations and trainings that the audit log names."""
    named = server.evaluations(server.exchanges.named)
    # Site, round -> exchanges in which the site was to train.
    trainings = Counter(
        (site, exchange.round)
        for exchange in server.exchanges.named
        for site in exchange.request["details"]["tasks"]
    )
    counts: Counter[tuple[Any, ...]] = Counter()
    evaluated = set[Evaluation]()
    number = 0
    for number, row in server.numbered_rows("metrics"):
        site = row["site"]
        round_ = row["round"]
        split = row["split"]
        if split in _EVALUATED:
            _require_named("metrics", number, site, round_, named)
            evaluated.add((site, round_))
            most = 1
        elif site == SERVER:
            continue  # It has trained on images of its own, which only it can say.
        else:
            most = trainings[site, round_]
            if not most:
                raise _unnamed("metrics", number, f"a training of {site} in round {round_}")
        key = (site, round_, split, row["name"])
        counts[key] += 1
        if counts[key] > most:
            raise _repeated(
                "metrics", number, f"{row['name']} of {split} of {site}, round {round_}"
            )
    committed = server.evaluations(server.exchanges.committed)
    for site, round_ in sorted(committed.keys() - evaluated):
        expected = f"metrics of {site} after round {round_}, which {LOG} names"
        raise chain.fault("metrics.jsonl", number + 1, expected, "none")


def _check_binned(server: ServerRecord) -> None:
    """Check that binned.jsonl holds only evaluations that the audit log names."""
    named = server.evaluations(server.exchanges.named)
    for number, row in server.numbered_rows("binned"):
        _require_named("binned", number, row["site"], row["round"], named)


def _check_surveys(server: ServerRecord) -> None:
    """Check that surveys.jsonl holds only surveys of sites that have answered, by the audit log."""
    for number, row in server.numbered_rows("surveys"):
        if not server.has_replied(row["site"]):
            raise _unnamed("surveys", number, f"an answer of {row['site']}")


def _check_keys(server: ServerRecord, log: str) -> None:
    """Check the layout of each row of a log, and that no row is there more often than it can be."""
    fields = _KEYS.get(log) or _KEYS_OF_EXCHANGE.get(log)
    parts = _exchanges_of_rounds(server)
    counts: Counter[tuple[Any, ...]] = Counter()
    for number, row in server.numbered_rows(log):
        if not fields:
            continue
        key = tuple(row[name] for name in fields)
        counts[key] += 1
        if counts[key] > (1 if log in _KEYS else parts[row["round"]]):
            about = ", ".join(f"{name} {value}" for name, value in zip(fields, key, strict=True))
            raise _repeated(log, number, about)


def _exchanges_of_rounds(server: ServerRecord) -> Mapping[int, int]:
    """Return round -> number of its exchanges, by the audit log; 0 for all other rounds."""
    parts = defaultdict[int, set[int]](set)
    for row in server.requests:
        parts[row["details"]["round"]].add(row["details"]["part"])
    return Counter({round_: len(found) for round_, found in parts.items()})


def _require_named(
    log: str, number: int, site: str, round_: int, named: Collection[Evaluation]
) -> None:
    """Raise RunError unless the audit log names an evaluation."""
    if (site, round_) not in named:
        raise _unnamed(log, number, f"an evaluation by {site} after round {round_}")


def _unnamed(log: str, number: int, about: str) -> RunError:
    """Return the error about a row of which the audit log knows nothing."""
    return chain.fault(f"{log}.jsonl", number, f"only rows that {LOG} accounts for", about)


def _repeated(log: str, number: int, about: str) -> RunError:
    """Return the error about a row that is there too often."""
    return chain.fault(f"{log}.jsonl", number, "each row once", f"another for {about}")
