"""A folder as MONAI Label's local datastore keeps it: ``datastore_v2.json``, ``images/``,
``labels/final/``.

MONAI Label has no format of its own for the class of an image: the class stands in the ``info`` of
the final label, where clients put what they know (``params`` of the REST call that saves a label),
and in the label's JSON file. Of several annotators' decisions a datastore holds one: the newest.
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
    # A class before "cannot tell", then the newest; `decisions` has the newest first.
    said = sorted(
        content.decisions,
        key=lambda decision: (not decision.adjudicates, decision.kind == CANNOT_TELL),
    )
    newest = {decision.sample_id: decision for decision in reversed(said)}
    (folder / _LABELS).mkdir(parents=True)
    index = {
        "name": "fedward",
        "description": "Images that federated active learning asks about",
        "images_dir": "images",
        "labels_dir": "labels",
        "objects": {
            stem(each): _object(folder, each, content.about(each), newest.get(each))
            for each in shown
        },
    }
    (folder / INDEX).write_text(json.dumps(index, indent=2), "utf-8")


def _object(
    folder: Path, sample_id: str, about: dict[str, Any], decision: Decision | None
) -> dict[str, Any]:
    name = stem(sample_id)
    labels = {}
    if decision:
        said = {"label": decision.text, "annotator": decision.annotator, "time": decision.time}
        (folder / _LABELS / f"{name}.json").write_text(json.dumps(said), "utf-8")
        labels["final"] = {"ext": ".json", "info": {"name": f"{name}.json", **said}}
    info = {"name": f"{name}.png", "sample_id": sample_id, **about}
    return {"image": {"ext": ".png", "info": info}, "labels": labels}


def read(folder: Path) -> Return:
    """Read the final labels of a datastore; an image without one is open.

    Raises:
        DataError: the folder is no datastore.
    """
    index = read_json(folder / INDEX, dict, f"a MONAI Label datastore with {INDEX}")
    objects = index.get("objects")
    if not isinstance(objects, dict):
        where = f"returned folder {folder}"
        found = type(objects).__name__
        remedy = "Send back the whole datastore."
        raise DataError(where, expected="'objects' in its index", found=found, remedy=remedy)
    answers: list[Returned] = []
    refused: list[Refused] = []
    left = 0
    for name, entry in objects.items():
        sample_id = text(part(entry, "image", "info", "sample_id")) or unquote(name)
        final = part(entry, "labels", "final")
        if final is None:
            left += 1
            continue
        info = part(final, "info")
        said = info if text(part(info, "label")) else _file(folder, index, name, final)
        if not text(part(said, "label")):
            refused.append(
                Refused(
                    name, sample_id, "expected a class as 'label' of the final label, found none"
                )
            )
            continue
        time = text(part(said, "time")) or _seconds(part(info, "ts"))
        answers.append(
            Returned(name, sample_id, text(said["label"]), text(part(said, "annotator")), time)
        )
    return Return("MONAI Label", answers, refused, left)


def _file(folder: Path, index: dict[str, Any], name: str, final: object) -> Any:
    """Return what the label's own file says; nothing if it is no JSON, or would lie outside the
    datastore.
    """
    labels = (folder / (text(index.get("labels_dir")) or "labels") / "final").resolve()
    path = labels / f"{name}{text(part(final, 'ext'))}"
    if (
        path.suffix != ".json"
        or not labels.is_relative_to(folder.resolve())
        or path.resolve().parent != labels
    ):
        return None
    try:
        return read_json(path, dict, "a label")
    except DataError:
        return None


def _seconds(value: object) -> str:
    try:
        return times.from_seconds(float(value)) if isinstance(value, int | float) else ""
    except (OverflowError, ValueError, OSError):
        return ""
