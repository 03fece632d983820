"""The server's checks of a site's survey: possible counts of the job's classes, nothing else."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from asking import requests, rules_of, survey_requests
from clients import new_client
from fedward.client.survey import survey_of
from fedward.errors import WireError
from fedward.methods.workflow import ClientTask, Exchange
from fedward.protocol.answer_checks import check_answer, check_survey_answer
from fedward.protocol.fields import RefusedError
from fedward.protocol.messages import SurveyAnswer
from fedward.protocol.requests import read_request
from fedward.protocol.wire import Message
from fedward.sites import SiteData
from fedward.sites.facts import Fact
from tiny import tiny

SITE = "site-1"
CLASSES = ("A", "B")
COUNTS: dict[str, Any] = {
    **{"labelled": [5, 10], "unlabelled": 20, "val": [0, 5], "test": [5, 5]},
    **{
        "patients": [10, 5, 5],
        "sizes": [{"width": 40, "height": 30, "images": 50}],
        "grey": 0,
        "colour": 50,
    },
    **{
        "sides": [0, 50, 0, 0, 0, 0, 0, 0],
        "brightness": [50, *[0] * 19],
        "contrast": [*[0] * 19, 50],
        "dark": 0,
        "repeated": 0,
    },
    "columns": {"camera": {"X": 20, "Y": 25}},
}
FINE = {"site": SITE, "round": 1, "survey": COUNTS}


def check(meta: Any) -> Any:
    return check_survey_answer(Message(meta), SITE, CLASSES)


def changed(path: str, value: Any) -> dict[str, Any]:
    content = copy.deepcopy(FINE)
    *parents, last = ("survey", *path.split("/"))
    place: Any = content
    for parent in parents:
        place = place[parent]
    place[last] = value
    return content


def test_possible_counts_are_taken() -> None:
    answer = check(FINE)
    assert isinstance(answer, SurveyAnswer)
    assert answer.survey.model_dump() == COUNTS
    check(changed("patients", []))
    check(
        changed("brightness", [70, *[0] * 19])
    )  # each of 6 counts may have lost 4 images, so that there are 74
    check(changed("colour", 75))  # 73 or 74 images, rounded to the nearest


def test_a_survey_may_be_as_long_as_its_limits() -> None:
    """Ten columns, each with twenty values and all others, and five sizes, but no more."""
    values = {f"v{number}": 5 for number in range(21)}
    columns = {f"c{number}": values for number in range(10)}
    sizes = [{"width": 4, "height": 3 + number, "images": 5} for number in range(6)]
    longest = {**COUNTS, "unlabelled": 200, "columns": columns, "sizes": sizes[:5]}
    check({**FINE, "survey": longest})
    for further, message in (
        ({"columns": {**columns, "c10": values}}, "at most 10 columns"),
        ({"columns": {"camera": {**values, "v21": 5}}}, "at most 20 short values"),
        ({"columns": {"camera": {"X": 5, "x" * 61: 5}}}, "at most 20 short values"),
        ({"sizes": sizes}, "at most 5 different ones"),
    ):
        with pytest.raises(RefusedError, match=message):
            check({**FINE, "survey": {**longest, **further}})


HOSTILE: dict[str, tuple[str, Any]] = {
    "a count below 0": ("unlabelled", -5),
    "a count of four": ("unlabelled", 4),
    "a count that is no multiple of five": ("grey", 7),
    "a count by class below 0": ("labelled", [-5, 5]),
    "a count as text": ("labelled", ["5", 5]),
    "a count as a float": ("colour", 5.0),
    "true for a count": ("repeated", True),
    "NaN": ("unlabelled", float("nan")),
    "too many images": ("unlabelled", 10**12),
    "text for a list": ("brightness", "0" * 20),
    "a class more": ("labelled", [5, 5, 5]),
    "a huge list": ("contrast", [0] * 1_000_000),
    "an interval less": ("sides", [0] * 7),
    "more images by brightness than there are": ("brightness", [75, *[0] * 19]),
    "more images by contrast than there are": ("contrast", [*[0] * 19, 75]),
    "more images by side than there are": ("sides", [75, *[0] * 7]),
    "more images by size than there are": ("sizes", [{"width": 4, "height": 3, "images": 80}]),
    "more images by colour than there are": ("grey", 30),
    "more patients than images": ("patients", [50, 5, 5]),
    "more patients than images to validate on": ("patients", [10, 15, 5]),
    "more patients than images to test on": ("patients", [10, 5, 20]),
    "two numbers of patients": ("patients", [5, 5]),
    "more repeated images than there are": ("repeated", 30),
    "more dark images than there are": ("dark", 90),
    "thousands of columns": ("columns", {f"c{number}": {} for number in range(5000)}),
    "a column with a long name": ("columns", {"x" * 61: {"X": 5}}),
    "a column with a line break in its name": ("columns", {"x\ny": {"X": 5}}),
    "a long value": ("columns", {"camera": {"x" * 61: 5}}),
    "a value with a line break": ("columns", {"camera": {"x\ny": 5}}),
    "a value without images": ("columns", {"camera": {"X": 0}}),
    "one to four images of a value": ("columns", {"camera": {"X": 3}}),
    "more images of a column than there are": ("columns", {"camera": {"X": 45, "Y": 45}}),
    "a size twice": ("sizes", [{"width": 4, "height": 3, "images": 5}] * 2),
    "a size of text": ("sizes", [{"width": "4", "height": 3, "images": 5}]),
    "a further field": ("ids", ["patient-1"]),
}


@pytest.mark.proves(
    "site",
    "impossible counts, or counts of 1 to 4 images or patients",
    "refused",
)
@pytest.mark.parametrize(("path", "value"), HOSTILE.values(), ids=HOSTILE)
def test_impossible_counts_are_refused(path: str, value: Any) -> None:
    with pytest.raises(RefusedError):
        check(changed(path, value))


def test_a_survey_answers_a_survey_alone() -> None:
    training = tiny("fedavg")
    asked = requests(training, Exchange(1, {}, {SITE: ClientTask()}))[SITE]
    with pytest.raises(RefusedError):
        check_answer(Message(FINE), SITE, asked, rules_of(classes=CLASSES))
    trained = {
        "site": SITE,
        "round": 1,
        "labelled": 1,
        "unlabelled": 1,
        "steps": 0,
        "train": {},
        "metrics": [],
    }
    for meta in (trained, {**FINE, "labelled": 7}, {**FINE, "metrics": []}):
        with pytest.raises(RefusedError):
            check(meta)
    with pytest.raises(RefusedError):
        check_survey_answer(Message(FINE, {"diff/a": np.zeros(1, np.float32)}), SITE, CLASSES)


@pytest.mark.proves(
    "lead",
    "a survey where the policy does not mention surveys or the job trains, or training in a survey",
    "refused; no image is read",
)
@pytest.mark.parametrize(
    ("method", "asks_for_survey"),
    [("fedavg", True), ("survey", False)],
)
def test_a_job_asks_for_one_of_the_two(method: str, asks_for_survey: bool, tmp_path: Any) -> None:
    experiment = tiny(method)
    if asks_for_survey:
        asked = survey_requests(experiment)[SITE]
    else:
        asked = requests(experiment, Exchange(1, {}, {SITE: ClientTask()}))[SITE]
    client = new_client(SITE, experiment, tmp_path)
    answer = client.handle(asked)
    expected = "a survey in a job that is a survey, and no survey in any other job"
    assert expected in answer.meta["error"]
    assert "data" not in vars(client)


def test_what_a_site_answers_is_what_the_server_takes(tmp_path: Any) -> None:
    experiment = tiny("survey")
    asked = survey_requests(experiment)[SITE]
    assert not asked.arrays, "no model travels"
    answer = new_client(SITE, experiment, tmp_path).handle(asked)
    survey_answer = check_survey_answer(answer, SITE, experiment.data.classes)
    assert isinstance(survey_answer, SurveyAnswer)
    assert survey_answer.synthetic
    assert set(answer.meta) == {"site", "round", "survey", "synthetic"}
    with pytest.raises(WireError):
        check_survey_answer(answer, SITE, CLASSES)


@pytest.mark.proves(
    "server",
    "more than a survey in a survey: training, evaluation, labels, pictures, smaller "
    "counts, a second round",
    "refused before anything is read",
)
@pytest.mark.parametrize(
    "further", [{"evaluate": True}, {"evaluate": False}, {"labels": 1}, {"round": 2}, {"part": 1}]
)
def test_a_request_for_a_survey_can_ask_for_nothing_else(further: dict[str, Any]) -> None:
    fields = survey_requests(tiny("survey"))[SITE].meta
    read_request(fields)
    with pytest.raises(WireError):
        read_request({**fields, **further})


def test_counts_that_must_not_leave_stay_at_the_site(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exact(data: SiteData, facts: Mapping[str, Fact]) -> dict[str, Any]:
        return {**survey_of(data, facts), "unlabelled": 17}

    monkeypatch.setattr("fedward.client.survey.survey_of", exact)
    experiment = tiny("survey")
    answer = new_client(SITE, experiment, tmp_path).handle(survey_requests(experiment)[SITE])
    assert set(answer.meta) == {"site", "round", "error"}
    assert "survey" in answer.meta["error"]
    assert "17" not in answer.meta["error"]


def test_a_request_for_a_survey_carries_no_model(tmp_path: Any) -> None:
    experiment = tiny("survey")
    asked = survey_requests(experiment)[SITE]
    with_model = Message(asked.meta, {"model/weight": np.zeros(1, np.float32)})
    answer = new_client(SITE, experiment, tmp_path).handle(with_model)
    assert "expected no arrays" in answer.meta["error"]
