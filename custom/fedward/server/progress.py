"""How far a run is, from its folder alone: for a person at the server, an admin's kit, and
monitoring.
"""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedward.errors import RunError, reason_of
from fedward.evaluation.selection import MetricRow, mean_over_sites
from fedward.methods import settings_of
from fedward.runs.sentences import MOST_SITES, more_sites, nobody_asked
from fedward.server.questions import enough_labels
from fedward.storage import audit
from fedward.storage.lock import is_held
from fedward.storage.rows import RoundRow, read_rows
from fedward.storage.run_folder import RunFolder
from fedward.text import count

WIDTH = 80


def progress(run_folder: Path) -> dict[str, Any]:
    """Return how far a run is, JSON-able; a value that is not known yet is None.

    ======================  ===========================================================================================
    status                  ``running``, ``finished``, ``failed``, or ``stopped``: killed, no process here writes it
    reason                  why it failed
    method, sites           name, and number of sites
    started, written        times in UTC: when it began, and when it last wrote to its folder
    round, rounds           rounds committed, and planned
    seconds_per_round       mean of the committed ones
    committed               when the last round was
    purpose                 what the next round is for; only in the answer of a running job's controller
    under_way               the exchange not yet answered: ``round``, ``part``, ``asked`` (sites), ``since``
    waiting                 site -> digest of the job, of those whose administrator has not approved it
    refused                 sites whose policy forbids the job, where the run failed over that
    exchange                the last committed one: ``round``, ``seconds``, ``asked``, ``replied`` (sites), ``failed``
                            (site -> reason)
    metric, best, last      key metric, and its mean over sites on validation images as ``{"round", "value"}``: of the
                            best round so far, and of the last evaluated one
    not_evaluated           site -> reason of those that did not evaluate the last model of a finished run
    enough_labels           site -> how many labels it has, of those where nobody is asked, as the job wants no more
    bytes_down, bytes_up    of all committed exchanges
    ======================  ===========================================================================================

    Raises:
        RunError: the folder is no run folder, or a file in it is broken.
    """
    try:
        return _progress(RunFolder.reopen(run_folder))
    except (KeyError, TypeError, ValueError) as error:
        where = f"run folder {run_folder}"
        found = reason_of(error)
        remedy = (
            "Restore the folder from a copy, or read it with the version of fedward that wrote it."
        )
        raise RunError(
            where, expected="files as a run writes them", found=found, remedy=remedy
        ) from error


def _progress(run: RunFolder) -> dict[str, Any]:
    info = run.info
    experiment = run.experiment
    rounds = list(read_rows(run.path / "rounds.jsonl", RoundRow, []))
    newest = next(audit.rows(run.path), None)
    committed = next(audit.rows(run.path, "committed"), None)
    done = (
        committed["details"]["round"]
        if committed
        else max((row.round for row in rounds), default=0)
    )
    return {
        "status": "stopped" if info.status == "running" and not is_held(run.path) else info.status,
        "reason": info.summary.reason,
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
        "exchange": next((_exchange(row) for row in reversed(rounds) if row.asked), None),
        **_key_metric(run, experiment.key_metric),
        "not_evaluated": info.summary.not_evaluated,
        "enough_labels": enough_labels(run.path, experiment),
        "bytes_down": sum(row.bytes_down for row in rounds),
        "bytes_up": sum(row.bytes_up for row in rounds),
    }


def _exchange(row: RoundRow) -> dict[str, Any]:
    lists = {"asked": list(row.asked), "replied": list(row.replied), "failed": dict(row.failed)}
    return {"round": row.round, "seconds": row.seconds, **lists}


def _under_way(last: Mapping[str, Any]) -> dict[str, Any] | None:
    if last["event"] != "asked":
        return None
    details = last["details"]
    asked = sorted({*details["tasks"], *details["evaluate"]})
    return {
        "round": details["round"],
        "part": details["part"],
        "asked": asked,
        "since": last["time"],
    }


def _key_metric(run: RunFolder, metric: str) -> dict[str, Any]:
    # A long run has hundreds of thousands of rows: most are told apart before they are parsed.
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
    """Return what :func:`progress` tells as text of at most 80 columns."""
    rounds = f"round {state['round']} of {state['rounds']}"
    found = [f"{state['method']}: {state['status']}, {rounds}, {count(state['sites'], 'site')}"]
    if state["reason"]:
        found += _item("reason", state["reason"])
    found += _item("started", f"{_when(state['started'])}, last written {_when(state['written'])}")
    if state["seconds_per_round"] is not None:
        found += _item("a round", f"{state['seconds_per_round']:.1f} s")
    purpose = state.get("purpose")
    if purpose:
        found += _item("purpose", purpose)
    now = state["under_way"]
    if now:
        asked = now["asked"]
        who = ", ".join(asked) if len(asked) <= MOST_SITES else count(len(asked), "site")
        found += _item("now", f"round {now['round']}: {who} asked at {_when(now['since'])}")
    for site, digest in list(state["waiting"].items())[:MOST_SITES]:
        found += _item("waiting", f"for approval: {site}, job {digest}")
    found += _item("", more_sites(len(state["waiting"])))
    last = state["exchange"]
    if last:
        counts = f"{len(last['asked'])} asked, {len(last['replied'])} replied, {len(last['failed'])} failed"
        found += _item("exchange", f"round {last['round']}: {counts}, {last['seconds']:.1f} s")
        found += _reasons(last["failed"])
    for name in ("best", "last"):
        value = state[name]
        if value:
            found += _item(
                name,
                f"{state['metric']} {value['value']:.3f} after {count(value['round'], 'round')}",
            )
    found += _item("labels", nobody_asked(state["enough_labels"]))
    missing = state["not_evaluated"]
    if missing:
        found += _item("missing", f"evaluation of the last model, at {count(len(missing), 'site')}")
        found += _reasons(missing)
    return found + _item(
        "traffic", f"{state['bytes_down'] / 1e6:.1f} MB down, {state['bytes_up'] / 1e6:.1f} MB up"
    )


def round_lines(state: Mapping[str, Any], first: int) -> list[str]:
    """Return what :func:`progress` tells of the rounds from ``first`` to the last committed one, of
    80 columns at most.

    One line, and one more for each site of the last exchange that did not answer.
    """
    done = (
        f"round {state['round']}"
        if first >= state["round"]
        else f"rounds {first} to {state['round']}"
    )
    facts = []
    exchange = state["exchange"]
    if exchange:
        facts.append(
            f"{len(exchange['replied'])} of {count(len(exchange['asked']), 'site')} replied"
        )
    last = state["last"]
    if last:
        facts.append(f"{state['metric']} {last['value']:.3f} (round {last['round']})")
    if exchange:
        facts.append(f"{exchange['seconds']:.1f} s")
    text = f"{done} of {state['rounds']}" + (f": {', '.join(facts)}" if facts else "")
    failed = _reasons(exchange["failed"]) if exchange else []
    return [*textwrap.wrap(text, WIDTH, subsequent_indent="  "), *failed]


def _when(time: str) -> str:
    return time.replace("T", " ").replace("+00:00", " UTC")


def _reasons(failed: Mapping[str, str]) -> list[str]:
    shown = [
        line
        for site, reason in sorted(failed.items())[:MOST_SITES]
        for line in _item("", f"{site}: {reason}")
    ]
    return shown + _item("", more_sites(len(failed)))


def _item(name: str, text: str) -> list[str]:
    """Return the lines of an item; none of an empty text."""
    return textwrap.wrap(text, WIDTH, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12)
