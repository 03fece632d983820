"""The dashboard and the alert rules: they name metrics that exist, and Prometheus takes them."""

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedward

MONITORING = Path(__file__).parents[1] / "provisioning" / "monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
RULES = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
PACKAGE = Path(fedward.__file__).parent


def written() -> set[str]:
    """Return the metrics of the two modules that write some: the first argument of each family."""
    text = "".join(
        (PACKAGE / file).read_text() for file in ("server/job_metrics.py", "flare/kits/metrics.py")
    )
    names = re.findall(r'(?:Family|_by_site)\(\s*f?"([a-z_{}]+)"', text)
    directions = ("down", "up")
    expanded = [name.replace("{direction}", way) for name in names for way in directions]
    return {f"fedward_{name}" for name in expanded}


def named(expressions: list[str]) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\bfedward_\w+", text)}


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_alerts_and_dashboard_name_metrics_that_are_written():
    rules = named([rule["expr"] for rule in RULES])
    assert rules <= written()
    assert named(queries()) == written()  # each has its place
    assert named([entry["query"] for entry in DASHBOARD["templating"]["list"]]) <= written()


def test_every_alert_says_who_and_how_bad_it_is():
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert re.search(r"\$labels\.(site|job_name)", rule["annotations"]["summary"])


def test_the_dashboard_is_one_that_grafana_can_draw():
    assert {"title", "uid", "schemaVersion", "time", "templating"} <= set(DASHBOARD)
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in ("stat", "gauge", "timeseries")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
    variables = {entry["name"] for entry in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps([panel["targets"] for panel in panels])))
    assert used == variables


def test_panels_lie_side_by_side():
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        apart = any(
            a[axis] + a[size] <= b[axis]
            for axis, size in ("xw", "yh")
            for a, b in ((one, other), (other, one))
        )
        assert apart


# --- with Prometheus' own tool


def promtool(*arguments: object) -> None:
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed; it is in Debian's package prometheus")
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_rules_and_queries(tmp_path):
    promtool("check", "rules", MONITORING / "alerts.yml")
    recorded = [
        {"record": f"query:{number}", "expr": query} for number, query in enumerate(queries())
    ]
    (tmp_path / "queries.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]})
    )
    promtool("check", "rules", tmp_path / "queries.yml")


DAY = 24 * 60
RUN = 'job_name="fedperl",job_id="1"'
CERTIFICATE_END = 'fedward_certificate_expiry_timestamp_seconds{site="a",certificate="own"}'
FIRE: dict[str, tuple[dict[str, str], int, dict[str, str], str]] = {
    "FedwardParticipantDown": (
        {'fedward_written_timestamp_seconds{site="a"}': "0x60"},
        6,
        {"site": "a"},
        "a has written no metrics for 6m 0s: is its process alive?",
    ),
    "FedwardSiteSilent": (
        {'fedward_last_contact_timestamp_seconds{site="a"}': "0x60"},
        16,
        {"site": "a"},
        "The server has not heard of a for 16m 0s",
    ),
    "FedwardCertificateEndsWithin30Days": (
        {CERTIFICATE_END: f"{29 * 86400}x60"},
        1,
        {"site": "a", "certificate": "own"},
        "A certificate of a (own) ends in 28d 23h 59m 0s",
    ),
    "FedwardCertificateEndsWithin7Days": (
        {CERTIFICATE_END: f"{6 * 86400}x60"},
        1,
        {"site": "a", "certificate": "own"},
        "A certificate of a (own) ends in 5d 23h 59m 0s",
    ),
    "FedwardDiskFull": (
        {
            'fedward_disk_free_bytes{site="a",place="kit"}': "9x60",
            'fedward_disk_size_bytes{site="a",place="kit"}': "100x60",
        },
        20,
        {"site": "a", "place": "kit"},
        "a: 9% of the disk of kit is free",
    ),
    "FedwardUnreadable": (
        {'fedward_unreadable{site="a",about="privacy"}': "1x60"},
        20,
        {"site": "a", "about": "privacy"},
        "a: files about its privacy cannot be read, see its log",
    ),
    "FedwardBudgetNearlySpent": (
        {'fedward_epsilon{site="a"}': "9x60", 'fedward_epsilon_budget{site="a"}': "10x60"},
        1,
        {"site": "a"},
        "a has spent 90% of its privacy budget",
    ),
    "FedwardQuestionsWait": (
        {'fedward_waiting_questions{site="a"}': f"2x{4 * DAY}"},
        3 * DAY,
        {"site": "a"},
        "a: images have waited for a clinician for three days, at least 2",
    ),
    "FedwardRunStuck": (
        {
            f"fedward_last_commit_timestamp_seconds{{{RUN}}}": "0x600",
            f'fedward_status{{{RUN},status="running"}}': "1x600",
        },
        361,
        {"job_name": "fedperl", "job_id": "1"},
        "fedperl (1) has finished no round for 6h 1m 0s",
    ),
    "FedwardRunFailed": (
        {
            f'fedward_status{{{RUN},status="running"}}': "1 1 0x60",
            f'fedward_status{{{RUN},status="failed"}}': "0 0 1x60",
        },
        10,
        {"job_name": "fedperl", "job_id": "1", "status": "failed"},
        "fedperl (1) has failed",
    ),
    "FedwardSiteFails": (
        {
            f'fedward_site_replied{{{RUN},site="a"}}': "0x90",
            f'fedward_status{{{RUN},status="running"}}': "1x90",
        },
        70,
        {"job_name": "fedperl", "job_id": "1", "site": "a"},
        "a does not reply to fedperl (1)",
    ),
}
"""Alert -> series from minute 0 on, the minute at which it fires, its labels, and what it says."""


def promtool_test(tmp_path: Path, tests: list[dict[str, Any]]) -> None:
    content = {
        "rule_files": [str(MONITORING / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": tests,
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(content))
    promtool("test", "rules", tmp_path / "tests.yml")


def steady(values: str) -> str:
    """Return a series in promtool's notation, where a number alone is repeated by adding 0."""
    return " ".join(re.sub(r"^(\d+)x(\d+)$", r"\1+0x\2", part) for part in values.split())


def test_there_is_a_case_for_every_alert():
    assert set(FIRE) == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("alert", FIRE)
def test_an_alert_fires(tmp_path, alert):
    series, minute, labels, summary = FIRE[alert]
    (rule,) = (rule for rule in RULES if rule["alert"] == alert)
    fires = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": {"summary": summary}}
    inputs = [{"series": name, "values": steady(values)} for name, values in series.items()]
    case = {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": [fires]}
    promtool_test(tmp_path, [{"interval": "1m", "input_series": inputs, "alert_rule_test": [case]}])


def test_nothing_fires_while_all_is_well(tmp_path):
    """An hour in which files are written, sites connect, rounds end, and certificates, disk and
    budget last.
    """
    inputs = {
        'fedward_written_timestamp_seconds{site="a"}': "0+60x60",
        'fedward_last_contact_timestamp_seconds{site="a"}': "0+60x60",
        CERTIFICATE_END: f"{360 * 86400}+0x60",
        'fedward_disk_free_bytes{site="a",place="kit"}': "50+0x60",
        'fedward_disk_size_bytes{site="a",place="kit"}': "100+0x60",
        'fedward_unreadable{site="a",about="privacy"}': "0+0x60",
        'fedward_epsilon{site="a"}': "5+0x60",
        'fedward_epsilon_budget{site="a"}': "10+0x60",
        'fedward_waiting_questions{site="a"}': "0+0x60",
        f"fedward_last_commit_timestamp_seconds{{{RUN}}}": "0+60x60",
        f'fedward_status{{{RUN},status="running"}}': "1+0x60",
        f'fedward_status{{{RUN},status="failed"}}': "0+0x60",
        f'fedward_site_replied{{{RUN},site="a"}}': "1+0x60",
    }
    series = [{"series": name, "values": values} for name, values in inputs.items()]
    cases = [{"eval_time": "60m", "alertname": alert, "exp_alerts": []} for alert in FIRE]
    promtool_test(tmp_path, [{"interval": "1m", "input_series": series, "alert_rule_test": cases}])
