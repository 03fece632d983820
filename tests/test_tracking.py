"""A run's numbers for TensorBoard."""

import json

import pytest

from fedward.tracking import EVENTS_FOLDER, scalars, write_scalars
from running import run_local
from tiny import tiny
from tracked import events

pytestmark = pytest.mark.usefixtures("without_report")


def test_scalars_say_which_model_they_are_of():
    row = {"split": "val", "name": "accuracy", "value": 0.5}
    meta = {
        "round": 4,
        "train": {"loss": 2.0},
        "metrics": [row, {**row, "name": "f1/MEL"}, {**row, "value": None}],
    }
    assert list(scalars(meta, part=1, exchanges=2)) == [
        ("val/accuracy", 3, 0.5),
        ("train/loss", 4, 2.0),
    ]
    assert list(scalars({"round": 4, "error": "boom"}, part=0, exchanges=2)) == []
    average = {"round": 4, "train": {}, "metrics": [row]}
    assert list(scalars(average, part=2, exchanges=2)) == [("val/accuracy", 4, 0.5)]


def test_tensorboard_reads_what_later_answers_add(tmp_path):
    for round_ in (1, 2):
        write_scalars(tmp_path / "site-1", {"round": round_, "train": {"loss": 0.5 * round_}}, 0, 1)
    assert events(tmp_path / "site-1") == {"train/loss": [(1, 0.5), (2, 1.0)]}


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_local_run_has_the_numbers_of_its_logs(tmp_path, decay):
    experiment = tiny("fedavg", options={"average_decay": decay})
    run = run_local(experiment, tmp_path / "run", sites=["site-1", "site-2"])
    logged: dict[str, dict[str, list[tuple[int, float]]]] = {"site-1": {}, "site-2": {}}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if (
            "/" not in row["name"]
            and row["value"] is not None
            and row["name"] not in ("labelled", "unlabelled")
        ):
            tag = f"{row['split']}/{row['name']}"
            logged[row["site"]].setdefault(tag, []).append(
                (row["round"], pytest.approx(row["value"]))
            )
    assert {"val/accuracy", "test/accuracy", "train/seconds"} <= set(logged["site-1"])
    assert {site: events(run / EVENTS_FOLDER / site) for site in logged} == logged
