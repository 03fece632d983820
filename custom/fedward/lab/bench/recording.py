"""Reads the results that a repository keeps from run folders, and checks kept results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedward.config import Experiment
from fedward.digests import digest, file_digest
from fedward.errors import RunError
from fedward.evaluation import (
    MetricRow,
    Selection,
    SiteChoice,
    best_global,
    last_rounds,
    mean_over_sites,
)
from fedward.evaluation.names import ERRORS
from fedward.evaluation.selection import kept_round
from fedward.lab.bench.by_group import Answered, bootstrap_standard_errors
from fedward.lab.bench.records import (
    DIGITS,
    Curve,
    Drawn,
    Record,
    read_records,
    rounded,
)
from fedward.lab.bench.study_parts import METRICS, Cell
from fedward.lab.noted_answers import answers_of
from fedward.operation.audit_check import verify
from fedward.runs.communities import picks_of
from fedward.runs.pseudo_labels import last_rows, quality
from fedward.runs.run import Run
from fedward.text import natural

CURVES = ("accuracy", "f1_macro")
"""Test metrics of which every evaluation is kept for figures; none chooses a round."""
_SAME = 1e-9
"""Largest difference of two equal accuracies."""


class _Chosen(NamedTuple):
    """A run with the round whose model is reported."""

    run: Run
    round: int | None
    """None if no round may be chosen."""


def record(cell: Cell, runs: Sequence[Run], drawn: Drawn) -> Record:
    """Return the result of a cell from its finished run, or from its sites' runs if they are alone.

    Args:
        cell: of the study.
        runs: its finished ones.
        drawn: which images they use.

    Raises:
        RunError: an audit log does not agree with the files of its folder.
    """
    experiment = Experiment.parse(runs[0].info.experiment, str(runs[0].folder))
    metric = experiment.key_metric
    chosen = _best_rounds(runs, metric)
    best_val = _at(chosen, metric).val
    seconds = [row.value or 0.0 for row in _rows(runs, "seconds") if row.split == "train"]
    transferred = sum(row.down + row.up for run in runs for row in run.bytes)
    return Record(
        variant=cell.variant,
        row=cell.row,
        seed=cell.seed,
        settings=experiment.model_dump(mode="json"),
        audit=_joint_hash([verify(run.folder).last_hash for run in runs]),
        model=_joint_hash([file_digest(run.folder / "model.safetensors") for run in runs]),
        rounds=max(run.info.summary.rounds or 0 for run in runs),
        trainings=len(seconds),
        seconds=round(sum(seconds), 1),
        megabytes=round(transferred / 1e6, 2),
        curve=_curve(runs, metric),
        test={
            "last": _test_values([_last(runs, name) for name in (*METRICS, *ERRORS)]),
            "global": _test_values([_at(chosen, name) for name in METRICS]),
        },
        pseudo_labels=_pseudo_labels(runs),
        sites=_site_values(chosen),
        picks=_picks(runs),
        metric=metric,
        best_round=_rounds_by_site(chosen, metric),
        best_val=None if best_val is None else round(best_val, DIGITS),
        repetition=drawn.repetition,
        cut=drawn.cut,
        doubled=cell.doubled,
        by_group=_by_group(chosen, len(experiment.data.classes)),
    )


def _joint_hash(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else digest(list(hashes))


def _rows(runs: Sequence[Run], metric: str) -> list[MetricRow]:
    return [row for run in runs for row in run.metrics.named(metric)]


def _pseudo_labels(runs: Sequence[Run]) -> dict[str, float]:
    rows = [row for run in runs for row in last_rows(run)]
    return rounded(quality(rows)._asdict()) if rows else {}


def _curve(runs: Sequence[Run], key_metric: str) -> Curve:
    """Return the evaluations of a cell by round."""
    val = mean_over_sites(_rows(runs, key_metric), key_metric)
    val.pop(0, None)
    test: dict[str, tuple[float, ...]] = {}
    for metric in CURVES:
        line = mean_over_sites(_rows(runs, metric), metric, "test")
        test[metric] = tuple(round(line[round_], DIGITS) for round_ in val if round_ in line)
    return Curve(
        round=tuple(val),
        val=tuple(round(value, DIGITS) for value in val.values()),
        test=test,
        labels=_known_labels(runs, val),
    )


def _known_labels(runs: Sequence[Run], rounds: Iterable[int]) -> tuple[int, ...]:
    """Return the number of labels known in each round; empty if the runs ask for none."""
    labels_of_runs = [_labels_of_sites(run) for run in runs]
    if not any(labels_of_runs):
        return ()
    return tuple(
        sum(_known_after(of_sites, round_) for of_sites in labels_of_runs) for round_ in rounds
    )


def _labels_of_sites(run: Run) -> dict[int, dict[str, int]]:
    """Return round -> site -> its labels then, of all rounds in which sites counted them.

    A site that took no part in a round keeps its last number. Empty if no site counts labels.
    """
    of_sites: dict[int, dict[str, int]] = {}
    last: dict[str, int] = {}
    for row in sorted(run.queries, key=lambda row: row.round):
        last = {**last, row.site: row.labelled}
        of_sites[row.round] = last
    return of_sites


def _known_after(of_sites: Mapping[int, Mapping[str, int]], until: int) -> int:
    """Return the labels that all sites together have by a round; 0 before the first count."""
    counted_by_then = [round_ for round_ in of_sites if round_ <= until]
    return sum(of_sites[max(counted_by_then)].values()) if counted_by_then else 0


def _first_round_of_all_labels(run: Run) -> int:
    """Return the first round whose model was trained with all labels that the run bought.

    It is 0 for a run whose sites had all their labels whenever they were asked.
    """
    of_sites = _labels_of_sites(run)
    if not of_sites:
        return 0
    # A site that is first asked in a later round had its labels before, too.
    at_end = of_sites[max(of_sites)]
    short_of_all = [
        round_
        for round_, known in of_sites.items()
        if any(at_end[site] != number for site, number in known.items())
    ]
    if not short_of_all:
        return 0
    return min(round_ for round_ in of_sites if round_ > max(short_of_all))


def _best_rounds(runs: Sequence[Run], key_metric: str) -> list[_Chosen]:
    """Return each run with its round of the best validation value.

    It is the same rule for sites together and alone: the mean over the run's sites counts, and a
    site that is alone is the only one of its run. Models that were trained before the last labels
    were bought do not count, so that rows are compared at equal labels.
    """
    chosen = []
    for run in runs:
        first = _first_round_of_all_labels(run)
        rows = [row for row in run.metrics.named(key_metric) if row.round >= first]
        chosen.append(_Chosen(run, best_global(rows, key_metric).round))
    return chosen


def _rounds_by_site(chosen: Sequence[_Chosen], metric: str) -> dict[str, int]:
    """Return site -> its chosen round, of the sites that have one."""
    choices = _at(chosen, metric).sites
    rounds = {choice.site: choice.round for choice in choices if choice.round is not None}
    return {site: rounds[site] for site in sorted(rounds, key=natural)}


def _at(chosen: Sequence[_Chosen], metric: str) -> Selection:
    """Return the values of a metric in the chosen rounds, as one selection of all sites."""
    sites: list[SiteChoice] = []
    for run, round_ in chosen:
        # Not the run's own choice: only rounds with all labels count, see _best_rounds.
        sites += kept_round(run.metrics.named(metric), metric, round_).sites
    return Selection("best_global", metric, (), tuple(sites))


def _last(runs: Sequence[Run], metric: str) -> Selection:
    return last_rounds(_rows(runs, metric), metric)


def _test_values(selections: Sequence[Selection]) -> dict[str, float]:
    """Return metric -> test value, and the accuracy of all images together."""
    values = {selection.metric: selection.test for selection in selections}
    for selection in selections:
        if selection.metric == "accuracy":
            values["pooled"] = selection.pooled
    return rounded(values)


def _site_values(chosen: Sequence[_Chosen]) -> dict[str, dict[str, float]]:
    """Return site -> metric -> test value in its chosen round, and its number of test images."""
    by_site: dict[str, dict[str, float]] = {}
    for metric in (*METRICS, *ERRORS):
        for choice in _at(chosen, metric).sites:
            if choice.test is not None:
                values = by_site.setdefault(choice.site, {"images": choice.images})
                values[metric] = round(choice.test, DIGITS)
    return {site: by_site[site] for site in sorted(by_site, key=natural)}


def _by_group(chosen: Sequence[_Chosen], classes: int) -> dict[str, dict[str, float]]:
    """Return :attr:`Record.by_group` of the chosen rounds.

    It is empty if a site with a test value has noted no answers in the chosen round of its run.

    Raises:
        RunError: the answers of a site are not one class for each test image, or have another
            accuracy than the run's metrics.
    """
    answered = []
    for run, round_ in chosen:
        answers = answers_of(run)
        choices = kept_round(run.metrics.named("accuracy"), "accuracy", round_).sites
        for choice in choices:
            site = answers.get(choice.site)
            if choice.test is None:
                continue
            if site is None or round_ is None or round_ not in site.by_round:
                return {}
            given = site.by_round[round_]
            _require_answers(run, choice, given, len(site.images.labels), classes)
            _require_same_accuracy(run, choice, float(np.mean(given == site.images.labels)))
            answered.append(Answered(site.images.labels, site.images.groups, given))
    return bootstrap_standard_errors(answered, classes)


def _require_answers(
    run: Run, choice: SiteChoice, given: NDArray[np.int64], images: int, classes: int
) -> None:
    """Refuse answers that are not one class for each test image."""
    others = int(np.count_nonzero((given < 0) | (given >= classes)))
    if len(given) != images or others:
        expected = f"a class from 0 to {classes - 1} for each of {images} test images"
        found = f"{len(given)} answers, {others} of them no such class"
        raise _refused_answers(run, choice, expected, found)


def _require_same_accuracy(run: Run, choice: SiteChoice, accuracy: float) -> None:
    """Refuse answers that are not those of which the run's metrics are; these are audited."""
    if choice.test is None or abs(accuracy - choice.test) > _SAME:
        expected = f"an accuracy of {choice.test} in round {choice.round}, as in metrics.jsonl"
        raise _refused_answers(run, choice, expected, f"{accuracy}")


def _refused_answers(run: Run, choice: SiteChoice, expected: str, found: str) -> RunError:
    """Return the error of answers that a site noted."""
    return RunError(
        f"run {run.folder}, answers of {choice.site}",
        "Delete the folder, and run the command again.",
        expected=expected,
        found=found,
    )


def _as_far_as_kept(of_runs: Record, kept: Record) -> Record:
    """Return the result of runs without what an older line lacks, which is the best round."""
    return of_runs if kept.best_round else replace(of_runs, best_round={}, best_val=None)


def _picks(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """Return how often each site was another site's peer; empty if no site had a peer."""
    picks = picks_of(runs[0].info.sites, [row for run in runs for row in run.peers])
    return picks if any(picks.values()) else {}


def check_records(file: Path, runs_of: Callable[[Cell], Sequence[Run]]) -> list[Cell]:
    """Compare kept results with the run folders that exist here; return the compared cells.

    Args:
        file: the kept results.
        runs_of: cell -> its finished runs; empty if they are not here.

    Raises:
        RunError: an audit log does not agree with the files of its folder, or a kept result
            differs from its folder.
    """
    compared = []
    for cell, kept in read_records(file).items():
        if kept.reference:
            continue
        runs = runs_of(cell)
        if not runs:
            continue
        # A run folder does not hold these: the cut, the row's title, the study's claims and rules.
        drawn = Drawn(kept.cut, kept.repetition)
        found = replace(
            record(cell, runs, drawn),
            claims=kept.claims,
            judged_by=kept.judged_by,
            title=kept.title,
        )
        of_runs = _as_far_as_kept(found, kept)
        if of_runs != kept:
            fields = asdict(of_runs)
            wrong = [name for name, value in asdict(kept).items() if fields[name] != value]
            raise RunError(
                f"{file}, {cell}",
                "Record the run again, and write the page again.",
                expected=f"what {runs[0].folder} says",
                found=f"other {', '.join(wrong)}",
            )
        compared.append(cell)
    return compared
