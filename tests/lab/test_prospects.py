"""What a study's file settles before it runs: claims that no runs could have judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedward.cli import main
from fedward.lab.bench.prospects import hopeless_claims
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_file import read_study

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
HOPELESS = "judged, whatever the runs say. The rules of evidence need:"
CLAIM = {"row": "ssfl", "than": "lower", "metric": "accuracy", "direction": "higher"}
CLOSED_FORM = {**CLAIM, "row": "once", "than": "once_all"}


def study(**changes: Any) -> Study:
    """Return a study whose claim may be judged, but for the changes."""
    fields = {
        "title": "t",
        "partition": "images.npz --sites 2 --labelled 0.5 --resplit",
        "settings": {"rounds": 4},
        "rows": {
            "lower": {"title": "Lower", "job": "fedavg", "sites": "few"},
            "ssfl": {"title": "SSFL", "job": "ssfl", "sites": "few"},
            "once": {"title": "Few", "job": "oneshot", "settings": {"rounds": 1}, "sites": "few"},
            "once_all": {
                "title": "All",
                "job": "oneshot",
                "settings": {"rounds": 1},
                "sites": "all",
            },
            "upper": {"title": "Upper", "job": "fedavg_full", "sites": "all"},
        },
        "seeds": (1, 2, 3, 4, 5),
        "doubled": (1,),
        "lower": "lower",
        "upper": "upper",
        "metrics": ("accuracy",),
        "claims": (CLAIM,),
    }
    return Study.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"claims": ()}, ""),
        ({"seeds": (1, 2, 3)}, "No claim can be @\n- 5 seeds or more, where the study has 3"),
        (
            {"doubled": ()},
            "No claim can be @\n"
            "- a seed in doubled, whose runs show by twice the rounds that rows have converged",
        ),
        (
            {"seeds": (1, 2), "doubled": (), "claims": (CLAIM, CLOSED_FORM)},
            "1 of 2 claims cannot be @\n"
            "- 5 seeds or more, where the study has 2\n"
            "- a seed in doubled, whose runs show by twice the rounds that rows have converged",
        ),
        (
            {"upper": "", "claims": (CLAIM, CLOSED_FORM)},
            "No claim can be @\n- rows of few and of all labels, named in lower and upper",
        ),
        ({"claims": (CLOSED_FORM,), "doubled": (), "seeds": (1, 2)}, ""),
    ],
)
def test_what_a_file_lacks_for_its_claims_is_said(changes: dict[str, Any], said: str) -> None:
    assert hopeless_claims(study(**changes)) == said.replace("@", HOPELESS)


def test_rows_whose_images_are_the_same_for_all_seeds_are_named() -> None:
    rows = {
        "lower": {"title": "Lower", "job": "fedavg", "sites": "one"},
        "ssfl": {"title": "SSFL", "job": "ssfl", "sites": "few/{seed}"},
        "upper": {"title": "Upper", "job": "fedavg_full"},
    }
    own_images = {"row": "upper", "than": "ssfl", "metric": "accuracy", "direction": "higher"}
    made = study(partition="", rows=rows, claims=(CLAIM, own_images))
    assert hopeless_claims(made) == (
        f"1 of 2 claims cannot be {HOPELESS}\n"
        "- another division of the images for each seed, by partition or {seed} in sites"
    )


def test_each_shipped_study_without_lines_may_judge_its_claims() -> None:
    recorded = {file.stem for file in (STUDIES.parents[1] / "docs/results/data").glob("*.jsonl")}
    files = sorted(file for file in STUDIES.glob("*.json") if file.stem not in recorded)
    assert [file.stem for file in files if hopeless_claims(read_study(file))] == []


def test_it_is_said_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.json"
    file.write_text(json.dumps(study(seeds=(1,)).model_dump(mode="json")))
    # Without a data folder the command ends before any run.
    assert main(["bench", str(file), "--out", str(tmp_path / "out")]) == 2
    assert f"No claim can be {HOPELESS}" in capsys.readouterr().out
