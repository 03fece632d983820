"""Check of which rounds a run's last and best model are of, against its logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedward.errors import RunError
from fedward.evaluation.selection import MetricRow, latest_best, mean_by_most, values_by_round
from fedward.json_text import read_json_file
from fedward.methods.survey import Survey
from fedward.operation.server_record import ServerRecord
from fedward.storage.audit import fault
from fedward.storage.info import RunInfo
from fedward.storage.rows import read_rows

_DIGITS = 12
"""Decimal digits of a mean that are compared, as :func:`latest_best` does."""


def check_results(server: ServerRecord, info: RunInfo, key_metric: str) -> bool:
    """Check which rounds the models of a run that has ended are of, and its summary.

    The models of a run that has not finished are not used, so only its summary is checked.

    Args:
        server: the server's side of the run, in whose logs nothing wrong was found.
        info: its run.json.
        key_metric: the metric that chooses the best round.

    Returns:
        Whether the best model can be one of all rounds. False if the run may have lost an earlier
        one, as a resumed run can.

    Raises:
        RunError: names the file that is wrong.
    """
    if info.status == "running":
        return True
    if info.status == "failed":
        _require_best_in_summary(info, None)
        return True
    last_round = _last_round(server)
    if info.summary.rounds != last_round:
        raise _wrong("run.json, rounds of the summary", last_round, info.summary.rounds)
    if isinstance(server.algorithm, Survey):
        return True
    _check_last(server, info, last_round)
    is_of_all, best = _checked_best(server, key_metric)
    _require_best_in_summary(info, best)
    return is_of_all


def _last_round(server: ServerRecord) -> int:
    """Return the number of rounds that a run has gone through, by its audit log."""
    rounds = [
        int(row["details"]["round"])
        for row in server.audit_rows
        if row["event"] in ("committed", "resumed")
    ]
    return rounds[-1] if rounds else 0


def _check_last(server: ServerRecord, info: RunInfo, last_round: int) -> None:
    """Check that model.json names the last round, and that all sites were asked for its model."""
    about = _sidecar(server, "model")
    if about is None:
        raise _wrong("model.json", "the last model of a finished run", "no such file")
    if about["round"] != last_round:
        raise _wrong("model.json, round", last_round, about["round"])
    # A model that nobody trains is not evaluated at the end.
    if server.algorithm.requirements.tensors.untrained:
        return
    turns = [row for row in server.audit_rows if row["event"] in ("asked", "resumed")]
    last = turns[-1]
    if last["event"] != "asked" or last["details"]["round"] != last_round + 1:
        expected = f"a last request, for round {last_round + 1}, with the last model"
        raise fault(last["seq"], expected, f"{last['event']}, round {last['details']['round']}")
    asked_sites = set(last["details"]["evaluate"])
    if set(info.sites) != asked_sites:
        raise _wrong("run.json, sites", sorted(asked_sites), sorted(info.sites))


@dataclass(frozen=True)
class _ValidationMeans:
    """What a run's metrics say of the models by which it may choose its best."""

    server: ServerRecord
    key_metric: str

    @cached_property
    def means(self) -> Mapping[int, float]:
        """Round -> mean validation value, for each model that enough sites judge."""
        rows = read_rows(self.server.folder / "metrics.jsonl", MetricRow, [], '"split": "val"')
        values = values_by_round(rows, self.key_metric)
        evaluations = self.server.evaluations(self.server.exchanges.named)
        # All sites that the run had at that time were asked.
        sites = {
            round_: exchange.request["details"]["evaluate"]
            for (_, round_), exchange in evaluations.items()
        }
        means = {}
        for round_, asked_sites in sites.items():
            mean = mean_by_most(values.get(round_, {}), asked_sites)
            if mean is not None:
                means[round_] = mean
        return means

    @cached_property
    def kept(self) -> Mapping[int, float]:
        """Those of :attr:`means` that the run cannot have lost.

        They were evaluated after it was last resumed in such a way that evaluations were dropped.
        """
        dropped = self.server.evaluations(self.server.exchanges.dropped).values()
        last_line = max((exchange.answers["seq"] for exchange in dropped), default=0)
        evaluations = self.server.evaluations(self.server.exchanges.named)
        later = {
            round_
            for (_, round_), exchange in evaluations.items()
            if exchange.answers["seq"] > last_line
        }
        return {round_: value for round_, value in self.means.items() if round_ in later}

    @cached_property
    def dropped(self) -> set[int]:
        """The rounds whose evaluation was dropped, and not repeated by enough sites."""
        evaluations = self.server.evaluations(self.server.exchanges.dropped)
        return {round_ for _, round_ in evaluations} - self.means.keys()


def _checked_best(server: ServerRecord, key_metric: str) -> tuple[bool, tuple[int, float] | None]:
    """Check that best.json names the best model, by the rule of the server.

    A run that was killed and resumed may have lost an earlier best model
    (:meth:`fedward.storage.run_folder.RunFolder.restore`), or kept one whose evaluation was
    repeated by fewer sites.

    Returns:
        Whether the model is the best of all rounds for certain; and its round and value, None
        without one.
    """
    validation = _ValidationMeans(server, key_metric)
    about = _sidecar(server, "best")
    if about is None:
        best_kept = latest_best(validation.kept)
        if best_kept is not None:
            raise _wrong("best.json", f"the model after round {best_kept}", "no such file")
        return not validation.means, None
    round_ = int(about["round"])
    value = float(about["value"])
    mean = validation.means.get(round_)
    if mean is None and round_ not in validation.dropped:
        raise _wrong("best.json, round", "one that most sites have judged", round_)
    if mean is not None and round(mean, _DIGITS) != round(value, _DIGITS):
        raise _wrong("best.json, value", f"{mean}, by metrics.jsonl", value)
    best = latest_best({**validation.kept, round_: value})
    if best != round_:
        raise _wrong("best.json, round", f"{best}, by metrics.jsonl", round_)
    is_of_all = mean is not None and latest_best(validation.means) == round_
    return is_of_all, (round_, value)


def _require_best_in_summary(info: RunInfo, best: tuple[int, float] | None) -> None:
    """Check that run.json names the best model that there is."""
    summary = info.summary
    best_in_summary = (summary.best_round, summary.best_value)
    if best_in_summary != (best or (None, None)):
        expected = "no best round" if best is None else f"{best}, as in best.json"
        raise _wrong("run.json, best round of the summary", expected, best_in_summary)


def _sidecar(server: ServerRecord, name: str) -> dict[str, Any] | None:
    """Return the JSON file beside a model; None where the run has no such model."""
    path = server.folder / f"{name}.json"
    if path.exists() != path.with_suffix(".safetensors").exists():
        raise _wrong(f"model {name}", f"{name}.json and {name}.safetensors", "one of them")
    return dict(read_json_file(path)) if path.exists() else None


def _wrong(where: str, expected: object, found: object) -> RunError:
    """Return the error about a result that the run's logs contradict."""
    return RunError(
        where,
        "The file was changed. Do not rely on it; compare it with a copy.",
        expected=str(expected),
        found=str(found),
    )
