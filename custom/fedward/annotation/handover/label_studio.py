"""Label Studio's JSON: tasks with scores are exported, and annotations are read.

The format is that of https://labelstud.io/guide/task_format. Label Studio accepts scores of
predictions from 0 to 1 only, so they are scaled; ``data.score`` is the strategy's own. Its server
shows pictures from a local folder when LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED is true and
LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT names the folder in which the export lies.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from fedward.annotation.handover.content import Content, stem
from fedward.annotation.handover.json_file import part, read_json, text
from fedward.annotation.records import Decision, Refused, Request, Return, Returned
from fedward.annotation.rules import Rules
from fedward.labels import NO_FINDING, SEPARATOR

_CONTROL = "class"
"""Name of the choice in the labelling configuration."""
_OBJECT = "image"
"""Name of the image in the labelling configuration."""


def write(
    folder: Path, name: str, content: Content, classes: Sequence[str], shown: Collection[str]
) -> None:
    """Write the tasks, the results and the labelling configuration.

    ``tasks.json`` has the images that wait, and ``results.json`` the decided ones.

    Args:
        folder: where to write.
        name: the name that the folder has in the end.
        content: the state of the queue.
        classes: the job's classes.
        shown: the ids of the images that have a picture; the others are left out.
    """
    shown_ids = set(shown)
    _write_json(folder / "tasks.json", _tasks(name, content, shown_ids))
    _write_json(folder / "results.json", _results(name, content, shown_ids))
    (folder / "label_config.xml").write_text(_configuration(classes, content.rules), "utf-8")


def _write_json(file: Path, content: list[dict[str, Any]]) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")


def _tasks(name: str, content: Content, shown_ids: Container[str]) -> list[dict[str, Any]]:
    scale = _scale(request.score for request in content.pending)
    tasks = []
    for request in content.pending:
        if request.sample_id in shown_ids:
            task = _task(name, content, request.sample_id)
            tasks.append(task | _prediction(request, scale))
    return tasks


def _results(name: str, content: Content, shown_ids: Container[str]) -> list[dict[str, Any]]:
    annotations: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, decision in enumerate(content.decisions, 1):
        annotation = {"id": number} | _annotation(decision, content.rules)
        annotations[decision.sample_id].append(annotation)
    results = []
    for number, sample_id in enumerate(annotations, 1):
        if sample_id in shown_ids:
            result = {"id": number, "annotations": annotations[sample_id]}
            results.append(result | _task(name, content, sample_id))
    return results


def _task(folder: str, content: Content, sample_id: str) -> dict[str, Any]:
    file = quote(f"{folder}/images/{stem(sample_id)}.png")
    image = {_OBJECT: f"/data/local-files/?d={file}", "sample_id": sample_id}
    return {"data": image | content.about(sample_id)}


def _prediction(request: Request, scale: Callable[[float], float]) -> dict[str, Any]:
    if request.score is None:
        return {}
    prediction = {
        "model_version": f"{request.strategy}, round {request.round}",
        "score": scale(request.score),
        "result": [],
    }
    return {"predictions": [prediction]}


def _scale(scores: Iterable[float | None]) -> Callable[[float], float]:
    """Return the function that maps these scores to 0 to 1, or to 1 if they are all the same."""
    numbers = [score for score in scores if score is not None]
    low = min(numbers, default=0.0)
    high = max(numbers, default=0.0)

    def scaled(score: float) -> float:
        return (score - low) / (high - low) if high > low else 1.0

    return scaled


def _annotation(decision: Decision, rules: Rules) -> dict[str, Any]:
    choice = {
        "from_name": _CONTROL,
        "to_name": _OBJECT,
        "type": "choices",
        "value": {"choices": rules.label_kind.split(decision.text)},
    }
    return {
        "completed_by": {"email": decision.annotator},
        "created_at": decision.time,
        "updated_at": decision.time,
        "was_cancelled": False,
        "result": [choice],
    }


def _configuration(classes: Sequence[str], rules: Rules) -> str:
    answers = list(classes)
    if rules.label_kind.exclusive:
        choice = "single"
    else:
        answers.append(NO_FINDING)
        choice = "multiple"
    answers += rules.no_class
    lines = [
        "<View>",
        f'  <Image name="{_OBJECT}" value="${_OBJECT}" zoom="true" zoomControl="true"/>',
        f'  <Choices name="{_CONTROL}" toName="{_OBJECT}" choice="{choice}" required="true">',
    ]
    lines += [f"    <Choice value={quoteattr(answer)}/>" for answer in answers]
    lines += ["  </Choices>", "</View>"]
    return "".join(f"{line}\n" for line in lines)


def read(path: Path) -> Return:
    """Read an export in Label Studio's JSON format.

    Each annotation is an answer of the user who completed it. A task without annotations is open,
    and so is a skipped one.

    Raises:
        DataError: the file is not a JSON list.
    """
    answers: list[Returned] = []
    refused: list[Refused] = []
    open_count = 0
    for number, task in enumerate(read_json(path, list, "a JSON list of Label Studio tasks"), 1):
        where = f"task {number}"
        sample_id = text(part(task, "data", "sample_id"))
        annotations = part(task, "annotations") or part(task, "completions") or []
        if not isinstance(task, dict) or not isinstance(annotations, list):
            refused.append(Refused(where, sample_id, "expected a task with a list of annotations"))
            continue
        completed = [item for item in annotations if not part(item, "was_cancelled")]
        if not completed:
            open_count += 1
        for annotation in completed:
            choices = _choices(annotation)
            if not choices:
                refused.append(Refused(where, sample_id, "expected a class, found none"))
                continue
            label = SEPARATOR.join(choices)
            time = text(part(annotation, "updated_at")) or text(part(annotation, "created_at"))
            answers.append(Returned(where, sample_id, label, _annotator(annotation), time))
    return Return("Label Studio", answers, refused, open_count)


def _choices(annotation: object) -> list[str]:
    """Return the classes that an annotation names."""
    results = part(annotation, "result")
    if not isinstance(results, list):
        return []
    names: list[str] = []
    for result in results:
        choices = part(result, "value", "choices")
        if isinstance(choices, list):
            names += [text(choice) for choice in choices]
    return names


def _annotator(annotation: object) -> str:
    person = part(annotation, "completed_by")
    if isinstance(person, dict):
        return text(person.get("email")) or _user(person.get("id"))
    return _user(person)


def _user(number: object) -> str:
    written = text(number)
    return f"Label Studio user {written}" if written else ""
