"""Label Studio's JSON: tasks with scores out, annotations back
(https://labelstud.io/guide/task_format).

Label Studio accepts scores of predictions from 0 to 1 only, so they are scaled there;
``data.score`` has the strategy's own. Its server shows pictures from a local folder when
LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED is true and LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT names
the folder in which the export lies.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
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
_OBJECT = "image"


def write(
    folder: Path, name: str, content: Content, classes: Sequence[str], shown: Collection[str]
) -> None:
    """Write ``tasks.json`` (waiting), ``results.json`` (decided) and ``label_config.xml`` of the
    images shown.

    ``name`` is the folder's own in the end.
    """
    decided: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, decision in enumerate(content.decisions, 1):
        decided[decision.sample_id].append({"id": number} | _annotation(decision, content.rules))
    scale = _scale(request.score for request in content.pending)
    seen = set(shown)
    tasks = [
        _task(name, content, request.sample_id) | _prediction(request, scale)
        for request in content.pending
        if request.sample_id in seen
    ]
    results = [
        {"id": number, "annotations": annotations} | _task(name, content, sample_id)
        for number, (sample_id, annotations) in enumerate(decided.items(), 1)
        if sample_id in seen
    ]
    (folder / "tasks.json").write_text(json.dumps(tasks, indent=1, ensure_ascii=False), "utf-8")
    (folder / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False), "utf-8")
    (folder / "label_config.xml").write_text(_configuration(classes, content.rules), "utf-8")


def _task(folder: str, content: Content, sample_id: str) -> dict[str, Any]:
    file = quote(f"{folder}/images/{stem(sample_id)}.png")
    image = {_OBJECT: f"/data/local-files/?d={file}", "sample_id": sample_id}
    return {"data": image | content.about(sample_id)}


def _prediction(request: Request, scale: Callable[[float], float]) -> dict[str, Any]:
    if request.score is None:
        return {}
    version = f"{request.strategy}, round {request.round}"
    return {
        "predictions": [{"model_version": version, "score": scale(request.score), "result": []}]
    }


def _scale(scores: Iterable[float | None]) -> Callable[[float], float]:
    known = [score for score in scores if score is not None]
    low = min(known, default=0.0)
    high = max(known, default=0.0)
    return lambda score: (score - low) / (high - low) if high > low else 1.0


def _annotation(decision: Decision, rules: Rules) -> dict[str, Any]:
    said = rules.label_kind.split(decision.text)
    choice = {
        "from_name": _CONTROL,
        "to_name": _OBJECT,
        "type": "choices",
        "value": {"choices": said},
    }
    return {
        "completed_by": {"email": decision.annotator},
        "created_at": decision.time,
        "updated_at": decision.time,
        "was_cancelled": False,
        "result": [choice],
    }


def _configuration(classes: Sequence[str], rules: Rules) -> str:
    if rules.label_kind.exclusive:
        labels = [*classes]
        choice = "single"
    else:
        labels = [*classes, NO_FINDING]
        choice = "multiple"
    choices = "".join(
        f"    <Choice value={quoteattr(name)}/>\n" for name in [*labels, *rules.no_class]
    )
    return (
        "<View>\n"
        f'  <Image name="{_OBJECT}" value="${_OBJECT}" zoom="true" zoomControl="true"/>\n'
        f'  <Choices name="{_CONTROL}" toName="{_OBJECT}" choice="{choice}" required="true">\n{choices}  </Choices>\n'
        "</View>\n"
    )


def read(path: Path) -> Return:
    """Read an export in Label Studio's JSON format: each annotation is an answer of the user who
    completed it.

    A task without annotations, and a skipped one, is open.

    Raises:
        DataError: the file is no JSON list.
    """
    answers: list[Returned] = []
    refused: list[Refused] = []
    left = 0
    for number, task in enumerate(read_json(path, list, "a JSON list of Label Studio tasks"), 1):
        where = f"task {number}"
        sample_id = text(part(task, "data", "sample_id"))
        annotations = part(task, "annotations") or part(task, "completions") or []
        if not isinstance(task, dict) or not isinstance(annotations, list):
            refused.append(Refused(where, sample_id, "expected a task with a list of annotations"))
            continue
        done = [each for each in annotations if not part(each, "was_cancelled")]
        left += not done
        for annotation in done:
            choices = _choices(annotation)
            if not choices:
                refused.append(Refused(where, sample_id, "expected a class, found none"))
                continue
            time = text(part(annotation, "updated_at")) or text(part(annotation, "created_at"))
            answers.append(
                Returned(where, sample_id, SEPARATOR.join(choices), _annotator(annotation), time)
            )
    return Return("Label Studio", answers, refused, left)


def _choices(annotation: object) -> list[str]:
    results = part(annotation, "result")
    found: list[str] = []
    for result in results if isinstance(results, list) else []:
        choices = part(result, "value", "choices")
        found += [text(choice) for choice in choices] if isinstance(choices, list) else []
    return found


def _annotator(annotation: object) -> str:
    person = part(annotation, "completed_by")
    if isinstance(person, dict):
        return text(person.get("email")) or _user(person.get("id"))
    return _user(person)


def _user(number: object) -> str:
    return f"Label Studio user {text(number)}" if text(number) else ""
