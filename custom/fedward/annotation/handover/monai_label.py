"""A folder as MONAI Label's local datastore keeps it.

It has the index ``datastore_v2.json`` and the folders ``images/`` and ``labels/final/``. MONAI
Label has no format of its own for the class of an image. The class is in the ``info`` of the final
label, where clients put their own fields (``params`` of the REST call that saves a label), and in
the label's JSON file. Of several annotators' decisions a datastore holds one: an adjudicator's
comes first, then a class before "cannot tell", and among equals the newest.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fedward.annotation import times
from fedward.annotation.handover.content import Content, stem
from fedward.annotation.handover.json_file import part, read_json, text
from fedward.annotation.records import CANNOT_TELL, Decision, Refused, Return, Returned
from fedward.errors import DataError

INDEX = "datastore_v2.json"
_LABELS = Path("labels") / "final"


def write(folder: Path, content: Content, shown: Collection[str]) -> None:
    """Write the index and the labels of the images shown."""
    decisions: dict[str, Decision] = {}
    for decision in sorted(content.decisions, key=_priority):
        decisions.setdefault(decision.sample_id, decision)
    (folder / _LABELS).mkdir(parents=True)
    objects = {
        stem(name): _object(folder, name, content.about(name), decisions.get(name))
        for name in shown
    }
    index = {
        "name": "fedward",
        "description": "Images that federated active learning asks about",
        "images_dir": "images",
        "labels_dir": "labels",
        "objects": objects,
    }
    (folder / INDEX).write_text(json.dumps(index, indent=2), "utf-8")


def _priority(decision: Decision) -> tuple[bool, bool]:
    """Return the key that sorts adjudications first, then classes before "cannot tell".

    Sorting is stable, so the newest of equal ones stays first.
    """
    return not decision.adjudicates, decision.kind == CANNOT_TELL


def _object(
    folder: Path, sample_id: str, about: dict[str, Any], decision: Decision | None
) -> dict[str, Any]:
    name = stem(sample_id)
    labels = {}
    if decision:
        answer = {"label": decision.text, "annotator": decision.annotator, "time": decision.time}
        (folder / _LABELS / f"{name}.json").write_text(json.dumps(answer), "utf-8")
        labels["final"] = {"ext": ".json", "info": {"name": f"{name}.json", **answer}}
    info = {"name": f"{name}.png", "sample_id": sample_id, **about}
    return {"image": {"ext": ".png", "info": info}, "labels": labels}


def read(folder: Path) -> Return:
    """Read the final labels of a datastore; an image without one is open.

    Raises:
        DataError: the folder is not a datastore.
    """
    index = read_json(folder / INDEX, dict, f"a MONAI Label datastore with {INDEX}")
    objects = index.get("objects")
    if not isinstance(objects, dict):
        raise DataError(
            f"returned folder {folder}",
            "Send back the whole datastore.",
            expected="'objects' in its index",
            found=type(objects).__name__,
        )
    answers: list[Returned] = []
    refused: list[Refused] = []
    open_count = 0
    for name, entry in objects.items():
        sample_id = text(part(entry, "image", "info", "sample_id")) or unquote(name)
        final = part(entry, "labels", "final")
        if final is None:
            open_count += 1
            continue
        info = part(final, "info")
        fields = info
        if not text(part(info, "label")):
            fields = _label_file(folder, index, name, final)
        label = text(part(fields, "label"))
        if not label:
            reason = "expected a class as 'label' of the final label, found none"
            refused.append(Refused(name, sample_id, reason))
            continue
        time = text(part(fields, "time")) or _time_of_seconds(part(info, "ts"))
        answers.append(Returned(name, sample_id, label, text(part(fields, "annotator")), time))
    return Return("MONAI Label", answers, refused, open_count)


def _label_file(folder: Path, index: dict[str, Any], name: str, final: object) -> Any:
    """Return the content of a label's own file.

    It is None if the file is not JSON, would lie outside the datastore, or has a name that no file
    can have.
    """
    labels_name = text(index.get("labels_dir")) or "labels"
    try:
        labels = (folder / labels_name / "final").resolve()
        path = labels / f"{name}{text(part(final, 'ext'))}"
        is_inside = labels.is_relative_to(folder.resolve()) and path.resolve().parent == labels
    except ValueError:  # A name has a zero byte, or half a surrogate pair.
        return None
    if path.suffix != ".json" or not is_inside:
        return None
    try:
        return read_json(path, dict, "a label")
    except DataError:
        return None


def _time_of_seconds(value: object) -> str:
    """Return a number of seconds since 1970 as a time; an empty text for any other value."""
    if not isinstance(value, int | float):
        return ""
    try:
        return times.from_seconds(float(value))
    except (OverflowError, ValueError, OSError):
        return ""
