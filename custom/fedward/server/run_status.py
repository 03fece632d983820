"""How far a run is, read from its folder alone.

It is shown to a person at the server, in an administrator's kit, and by monitoring.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedward.errors import RunError, reason_of
from fedward.evaluation.selection import MetricRow, mean_over_sites
from fedward.methods import settings_of
from fedward.runs.open_questions import open_questions
from fedward.runs.sentences import (
    MOST_SITES,
    first_sites,
    more_sites,
    nobody_asked,
    unanswered,
)
from fedward.runs.standing import standing
from fedward.server.questions import enough_labels
from fedward.storage import audit
from fedward.storage.info import INTERRUPTED, read_info
from fedward.storage.rows import RoundRow, read_rows
from fedward.storage.run_folder import RunFolder
from fedward.terminal import fold
from fedward.text import count


def progress(run_folder: Path, *, is_own: bool = False) -> dict[str, Any]:
    """Return how far a run is, as plain JSON values.

    ``is_own`` says that this process writes the run: its folder is then not searched for links and
    pipes, which would take long after each of its rounds.

    A value that is not known yet is None:

    - ``status``: ``running``, ``finished``, ``failed``, or ``stopped`` by Ctrl-C or a kill, before
      its last round.
    - ``reason``: why it failed.
    - ``method``: name of the method.
    - ``sites``: number of sites.
    - ``started``, ``written``: when it began and when it last wrote to its folder, in UTC.
    - ``round``, ``rounds``: rounds committed and planned. Rounds that a resumed run has given up,
      as their state was damaged, do not count.
    - ``seconds_per_round``: mean over the committed rounds.
    - ``committed``: when the last round was committed.
    - ``purpose``: what the next round is for; only in the answer of a running job's controller.
    - ``under_way``: the exchange that is not answered yet, with its ``round``, ``part``, ``asked``
      (sites) and ``since``.
    - ``waiting``: site -> digest of the job, for sites whose administrator has not approved it.
    - ``refused``: sites whose policy forbids the job, if the run failed for that reason.
    - ``exchange``: the last committed exchange, with its ``round``, ``seconds``, ``asked``,
      ``replied`` (sites) and ``failed`` (site -> reason).
    - ``metric``: the key metric.
    - ``best``, ``last``: its mean over sites on validation images as ``{"round", "value"}``, of the
      best round so far and of the last evaluated one.
    - ``not_evaluated``: site -> why it did not evaluate the last model of a finished run.
    - ``enough_labels``: site -> why nobody is asked for labels there.
    - ``open_questions``: site -> images that it has asked about and that have no label yet.
    - ``bytes_down``, ``bytes_up``: of all committed exchanges.

    Raises:
        RunError: the folder is not a run folder, or a file in it is broken.
    """
    try:
        info = read_info(run_folder, is_own=is_own)
        return _progress(RunFolder(run_folder, info, records=(), reopened=True))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"run folder {run_folder}",
            "Restore the folder from a copy, or read it with the version of fedward that wrote it.",
            expected="files as a run writes them",
            found=reason_of(error),
        ) from error


def _progress(run: RunFolder) -> dict[str, Any]:
    info = run.info
    experiment = run.experiment
    rounds = list(read_rows(run.path / "rounds.jsonl", RoundRow, []))
    newest = next(audit.rows(run.path), None)
    committed = next(audit.rows(run.path, "committed"), None)
    done = max((row.round for row in rounds), default=0)
    # A run whose newest state was damaged has gone back to before the last round that it committed.
    goes_on_from = next(audit.rows(run.path, "committed", "resumed"), None)
    if goes_on_from:
        done = goes_on_from["details"]["round"]
    rounds_with_tasks = [row for row in rounds if row.asked]
    return {
        "status": standing(run.path, info),
        "reason": None if info.summary.reason == INTERRUPTED else info.summary.reason,
        "method": experiment.method,
        "sites": len(run.sites),
        "started": info.started,
        "written": newest["time"] if newest else info.started,
        "round": done,
        "rounds": settings_of(experiment.method, experiment.options).rounds,
        "seconds_per_round": sum(row.seconds for row in rounds) / done if done else None,
        "committed": committed and committed["time"],
        "under_way": newest and _under_way(newest),
        "waiting": info.summary.waiting,
        "refused": list(info.summary.refused),
        "exchange": _exchange(rounds_with_tasks[-1]) if rounds_with_tasks else None,
        **_key_metric(run, experiment.key_metric),
        "not_evaluated": info.summary.not_evaluated,
        "enough_labels": enough_labels(run.path, experiment),
        "open_questions": open_questions(run.path),
        "bytes_down": sum(row.bytes_down for row in rounds),
        "bytes_up": sum(row.bytes_up for row in rounds),
    }


def _exchange(row: RoundRow) -> dict[str, Any]:
    return {
        "round": row.round,
        "seconds": row.seconds,
        "asked": list(row.asked),
        "replied": list(row.replied),
        "failed": dict(row.failed),
    }


def _under_way(newest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the exchange that the newest line of the audit log asks for; None if it is another."""
    if newest["event"] != "asked":
        return None
    details = newest["details"]
    return {
        "round": details["round"],
        "part": details["part"],
        "asked": sorted({*details["tasks"], *details["evaluate"]}),
        "since": newest["time"],
    }


def _key_metric(run: RunFolder, metric: str) -> dict[str, Any]:
    # A long run has hundreds of thousands of rows: most are skipped before they are parsed.
    rows = read_rows(run.path / "metrics.jsonl", MetricRow, [], containing=metric)
    values = mean_over_sites(rows, metric)
    best = run.best()
    last = max(values, default=None)
    return {
        "metric": metric,
        "best": best and {"round": best[0], "value": best[1]},
        "last": None if last is None else {"round": last, "value": values[last]},
    }


def lines(state: Mapping[str, Any]) -> list[str]:
    """Return what :func:`progress` found, as text of at most 80 columns."""
    sites = count(state["sites"], "site")
    rounds = f"round {state['round']} of {state['rounds']}"
    text = [f"{state['method']}: {state['status']}, {rounds}, {sites}"]
    if state["reason"]:
        text += _item("reason", state["reason"])
    started = _readable_time(state["started"])
    text += _item("started", f"{started}, last written {_readable_time(state['written'])}")
    if state["seconds_per_round"] is not None:
        text += _item("a round", f"{state['seconds_per_round']:.1f} s")
    purpose = state.get("purpose")
    if purpose:
        text += _item("purpose", purpose)
    text += _present(state)
    exchange = state["exchange"]
    if exchange:
        text += _item("exchange", _outcome(exchange))
        text += _reasons(exchange["failed"])
    for name in ("best", "last"):
        measured = state[name]
        if measured:
            value = f"{state['metric']} {measured['value']:.3f}"
            text += _item(name, f"{value} after {count(measured['round'], 'round')}")
    text += _item("labels", nobody_asked(state["enough_labels"]))
    text += _item("questions", unanswered(state["open_questions"]))
    missing = state["not_evaluated"]
    if missing:
        text += _item("missing", f"evaluation of the last model, at {count(len(missing), 'site')}")
        text += _reasons(missing)
    down = state["bytes_down"] / 1e6
    up = state["bytes_up"] / 1e6
    text += _item("traffic", f"{down:.1f} MB down, {up:.1f} MB up")
    return text


def _present(state: Mapping[str, Any]) -> list[str]:
    """Return the lines of what goes on now: who was asked, and who waits for approval."""
    text = list[str]()
    exchange = state["under_way"]
    if exchange:
        asked = exchange["asked"]
        sites = ", ".join(asked) if len(asked) <= MOST_SITES else count(len(asked), "site")
        since = _readable_time(exchange["since"])
        text += _item("now", f"round {exchange['round']}: {sites} asked at {since}")
    waiting = state["waiting"]
    for site in first_sites(waiting):
        text += _item("waiting", f"for approval: {site}, job {waiting[site]}")
    return text + _item("", more_sites(len(waiting)))


def _outcome(exchange: Mapping[str, Any]) -> str:
    asked = len(exchange["asked"])
    replied = len(exchange["replied"])
    failed = len(exchange["failed"])
    counts = f"{asked} asked, {replied} replied, {failed} failed"
    return f"round {exchange['round']}: {counts}, {exchange['seconds']:.1f} s"


def round_lines(state: Mapping[str, Any], first: int) -> list[str]:
    """Return what :func:`progress` found of the rounds since ``first``, of at most 80 columns.

    There is one line, and one more for each site of the last exchange that did not answer.
    """
    last_round = state["round"]
    done = f"round {last_round}" if first >= last_round else f"rounds {first} to {last_round}"
    facts = list[str]()
    failed = list[str]()
    exchange = state["exchange"]
    if exchange:
        sites = count(len(exchange["asked"]), "site")
        facts.append(f"{len(exchange['replied'])} of {sites} replied")
        failed = _reasons(exchange["failed"])
    measured = state["last"]
    if measured:
        facts.append(f"{state['metric']} {measured['value']:.3f} (round {measured['round']})")
    if exchange:
        facts.append(f"{exchange['seconds']:.1f} s")
    text = f"{done} of {state['rounds']}"
    if facts:
        text += f": {', '.join(facts)}"
    return [*fold(text, others="  "), *failed]


def _readable_time(time: str) -> str:
    return time.replace("T", " ").replace("+00:00", " UTC")


def _reasons(failed: Mapping[str, str]) -> list[str]:
    """Return the lines of why sites failed, of the first few sites."""
    text = list[str]()
    for site in first_sites(failed):
        text += _item("", f"{site}: {failed[site]}")
    return text + _item("", more_sites(len(failed)))


def _item(name: str, text: str) -> list[str]:
    """Return the lines of an item; no line for an empty text."""
    return fold(text, first=f"  {name:<10}", others=" " * 12)
