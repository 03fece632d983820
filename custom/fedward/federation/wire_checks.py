"""The checks of the wire list: an answer is what may leave a site and what was asked for, or it is refused.

The site calls them before it sends, the server before it uses anything; see :mod:`fedward.federation.wire`.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from fedward.errors import WireError
from fedward.federation.small_counts import SMALLEST_COUNT
from fedward.federation.wire import (
    ANSWER_FIELDS,
    CIPHER_VALUES,
    CLASS_METRICS,
    COUNTS,
    ERROR_FIELDS,
    KEY,
    LABEL_COUNTS,
    LARGEST_CIPHER,
    METRICS,
    ROW_FIELDS,
    SPLITS,
    TRAIN_FIELDS,
    UNTRAINED,
    WAITING_FIELDS,
    Message,
    norm,
    shapes,
    uploaded_names,
)
from fedward.methods.samplers import SCORE_INTERVALS
from fedward.methods.workflow import SCORE, State

_LARGEST_COUNT = 10_000_000
"""Of images, steps or labels at one site."""
_LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""Sums and squares of such numbers stay finite in float64."""
_ROUNDING = 1e-6
"""How far outside [0, 1] a mean of shares may lie."""


class RefusedError(WireError):
    """A message is not what the wire list allows.

    ``found`` quotes it, and must not leave the site whose answer it is; ``where`` and ``expected`` quote nothing.
    """


def check_answer(
    answer: Message,
    site: str,
    request: Message,
    encrypted: bool = False,
    withheld: tuple[str, ...] = (),
    *,
    classes: Collection[str],
) -> None:
    """Raise WireError unless the answer holds what the wire list allows and the request asked for.

    Called by the site before it sends and by the server before it uses anything. An ``encrypted`` answer has
    ciphertexts in place of differences: of these, only names and sizes can be checked. ``withheld``: how the names
    of tensors begin that do not go up after the request's task, by the method's word. ``classes``: those of the job.
    """
    with _nothing_but_refusals(f"answer of {site}"):
        _check_answer(answer, site, request, encrypted, withheld, classes)


def check_mean(answer: Message, site: str, request: Message, model: Mapping[str, tuple[int, ...]]) -> None:
    """Raise WireError unless the answer to a sum is its mean: tensors of the model's shapes and nothing else."""
    with _nothing_but_refusals(f"answer of {site}"):
        _check_origin(answer, site, request, ERROR_FIELDS if "error" in answer.meta else frozenset({"site", "round"}))
        _check_arrays(answer, site, "mean", {} if "error" in answer.meta else model)


@contextmanager
def _nothing_but_refusals(where: str) -> Iterator[None]:
    """Turn whatever else a check stumbles over into a refusal: one site's answer must not end the run of all."""
    try:
        yield
    except WireError:
        raise
    except Exception as error:
        raise _refusal(where, "what the wire list allows", f"{type(error).__name__}: {error}") from error


def _check_answer(
    answer: Message, site: str, request: Message, encrypted: bool, withheld: tuple[str, ...], classes: Collection[str]
) -> None:
    meta, task = answer.meta, request.meta["task"]
    if "error" in meta or "waiting" in meta:
        _check_origin(answer, site, request, ERROR_FIELDS if "error" in meta else WAITING_FIELDS)
        _check_arrays(answer, site, "diff", {})
        return
    trained = task not in UNTRAINED and meta.get("steps") != 0
    sealed = encrypted and trained
    _check_origin(answer, site, request, ANSWER_FIELDS | {KEY} if sealed else ANSWER_FIELDS)
    for name in (*COUNTS, *({"restarts"} & set(meta))):
        if not _is_count(meta.get(name)):
            _refuse(f"answer of {site}, {name}", "a count of 0 or more", _shown(meta.get(name)))
    if meta["steps"] and not meta["labelled"] + meta["unlabelled"]:
        _refuse(f"answer of {site}, steps", "0 without an image to take them on", _shown(meta["steps"]))
    _check_labels(site, meta)
    _check_scores(site, meta, task)
    _check_train(site, meta.get("train"))
    _check_metrics(site, meta.get("metrics"), bool(request.meta["evaluate"]), classes)
    if sealed:
        if not _is_fingerprint(meta.get(KEY)):
            _refuse(f"key of {site}", "the fingerprint of a key", _shown(meta.get(KEY)))
        check_ciphers(f"answer of {site}", "cipher", answer.arrays, shapes(request, withheld))
    else:
        if kept := [name for name in uploaded_names(answer) if name.startswith(withheld)]:
            _refuse(f"arrays of {site}", f"none of what does not go up ({', '.join(withheld)})", _shown_names(kept))
        _check_arrays(answer, site, "diff", shapes(request, withheld) if trained else {})
    if task in UNTRAINED and meta["steps"]:
        _refuse(f"answer of {site}, steps", f"0 after the task {task}", _shown(meta["steps"]))


def check_ciphers(
    where: str, role: str, arrays: Mapping[str, np.ndarray], model: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise WireError unless the arrays are as many ciphertexts as a model of these shapes fills, by the right names.

    They are named ``<role>/00000`` and so on.
    """
    values = sum(math.prod(shape) for shape in model.values())
    expected = [f"{role}/{number:05d}" for number in range(math.ceil(values / CIPHER_VALUES))]
    _only(where, set(arrays), frozenset(expected))
    for name in expected:
        array = arrays.get(name)
        if array is None or array.dtype != np.uint8 or array.ndim != 1 or not 0 < array.size <= LARGEST_CIPHER:
            found = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
            _refuse(f"{where}, {name}", f"1 to {LARGEST_CIPHER} bytes, as uint8", found)


def _is_fingerprint(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _check_origin(answer: Message, site: str, request: Message, fields: frozenset[str]) -> None:
    meta, asked = answer.meta, request.meta["round"]
    _only(f"answer of {site}", set(meta), fields)
    if meta.get("site") != site or meta.get("round") != asked:
        found = f"site {meta.get('site')}, round {meta.get('round')}"
        _refuse(f"answer of {site}", f"site {site}, round {asked}", found[:100])
    if not isinstance(meta.get("error", ""), str):
        _refuse(f"error of {site}", "text", type(meta["error"]).__name__)
    if meta.get("refused", True) is not True:
        _refuse(f"refused of {site}", "true", _shown(meta["refused"]))
    if "waiting" in meta and not _is_fingerprint(meta["waiting"]):
        _refuse(f"waiting of {site}", "the digest of a job", _shown(meta["waiting"]))


def _check_arrays(answer: Message, site: str, role: str, model: Mapping[str, tuple[int, ...]]) -> None:
    expected = {f"{role}/{name}": shape for name, shape in model.items()}
    _only(f"arrays of {site}", set(answer.arrays), frozenset(expected))
    for name, shape in sorted(expected.items()):
        _check_array(site, name, answer.arrays.get(name), shape)


def labels_asked(request: Mapping[str, Any], free: int) -> int | None:
    """Return how many labels a request has a site ask for; None where it leaves that to the site.

    Raises WireError for a number that is no share of what the site has reported: it may ask about ``free`` images.
    """
    labels = request.get("labels")
    if labels is not None and not (_is_count(labels) and labels <= free):
        _refuse("labels in a request", "none, or a count up to the images that may be asked about", _shown(labels))
    return labels


def check_norm(site: str, answer: Message, model: State, largest: float) -> None:
    """Raise WireError where an update's L2 norm is over ``largest`` times the model's: one site would decide alone.

    Both norms are over all tensors of the update together, in float64.
    """
    found = norm(answer.arrays)
    bound = largest * math.hypot(*(float(model[key].double().norm()) for key in uploaded_names(answer)))
    if found > bound:
        _refuse(f"update of {site}", f"a norm of at most {bound:.3g} (largest_update = {largest:g})", f"{found:.3g}")


def _check_labels(site: str, meta: Mapping[str, Any]) -> None:
    minutes = meta.get("minutes", 0)
    if not _is_number(minutes) or minutes < 0:
        _refuse(f"minutes of annotation at {site}", "a number of 0 or more", _shown(minutes))
    if "label_counts" not in meta:
        return
    counts: Any = meta["label_counts"]
    _check_names(f"label counts of {site}", counts, LABEL_COUNTS)
    for name, value in counts.items():
        if not _is_count(value):
            _refuse(f"label counts of {site}, {name}", "a count of 0 or more", _shown(value))


def _check_scores(site: str, meta: Mapping[str, Any], task: str) -> None:
    found = {"scores", "due"} & set(meta)
    if found != ({"scores", "due"} if task == SCORE else set()):
        expected = "scores and due" if task == SCORE else "no scores"
        _refuse(f"answer of {site} to the task {task}", expected, ", ".join(sorted(found)) or "none")
    if task != SCORE:
        return
    counts, due = meta["scores"], meta["due"]
    if not isinstance(counts, list) or len(counts) != SCORE_INTERVALS or not all(_is_count(count) for count in counts):
        _refuse(f"scores of {site}", f"{SCORE_INTERVALS} counts of 0 or more", _shown(counts))
    if not _is_whole(due) or abs(due) > _LARGEST_COUNT:
        _refuse(f"labels due at {site}", "a whole number", _shown(due))


def _check_train(site: str, train: Any) -> None:
    if not isinstance(train, dict):
        _refuse(f"training numbers of {site}", "numbers by name", _shown(train))
    _only(f"training numbers of {site}", set(train), TRAIN_FIELDS)
    for name, value in train.items():
        if not _is_number(value):
            _refuse(f"{name} of {site}", "a finite number", _shown(value))


def _check_metrics(site: str, rows: Any, asked: bool, classes: Collection[str]) -> None:
    where = f"metrics of {site}"
    if not isinstance(rows, list):
        _refuse(where, "a list of rows", _shown(rows))
    if rows and not asked:
        _refuse(where, "none, as the model was not to be evaluated", f"{len(rows)} rows")
    for row in rows:
        _check_row(site, row, classes)
    if len({(row["split"], row["name"]) for row in rows}) < len(rows):
        _refuse(where, "one row for each split and name", "two for one of them")
    for split in SPLITS:
        _check_split(f"{where}, {split}", [row for row in rows if row["split"] == split])


def _check_split(where: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse rows that cannot be of the same images."""
    if len({(row["n"], *row["classes"]) for row in rows}) > 1:
        _refuse(where, "one number of images and one list of classes", "several")
    counted = sum(row["value"] or 0 for row in rows if row["name"].startswith("support/"))
    if rows and counted > rows[0]["n"]:
        _refuse(where, f"classes of {rows[0]['n']} images together at most", _shown(counted))


def _check_row(site: str, row: Any, classes: Collection[str]) -> None:
    where = f"metric row of {site}"
    _check_names(where, row, ROW_FIELDS)
    split, name, value, n = (row[field] for field in ("split", "name", "value", "n"))
    if split not in SPLITS:
        _refuse(f"{where}, split", " or ".join(SPLITS), _shown(split))
    kind, _, of = name.partition("/")
    if name not in METRICS and not (kind in CLASS_METRICS and of in classes):
        expected = f"one of {sorted(METRICS)}, or of {sorted(CLASS_METRICS)} and a class of the job"
        _refuse(f"{where}, name", expected, _shown(name))
    if not _is_count(n):
        _refuse(f"{where}, n", "a count of 0 or more", _shown(n))
    present = row["classes"]
    if not isinstance(present, list) or not set(present) <= set(classes) or len(set(present)) < len(present):
        _refuse(f"{where}, classes", "classes of the job, each once", _shown(present))
    if value is None:
        return
    if kind == "support":
        if not _is_number(value) or value != int(value) or not SMALLEST_COUNT <= value <= n:
            _refuse(f"metric {name} of {site}", f"a count from {SMALLEST_COUNT} to {n}, or nothing", _shown(value))
    elif not _is_number(value) or not -_ROUNDING <= value <= 1 + _ROUNDING:
        _refuse(f"metric {name} of {site}", "a number from 0 to 1, or nothing", _shown(value))


def _check_array(site: str, name: str, array: np.ndarray | None, shape: tuple[int, ...]) -> None:
    where = f"array {name} of {site}"
    if array is None:
        _refuse(where, f"shape {shape}", "nothing")
    elif array.shape != shape or array.dtype != np.float32:
        _refuse(where, f"float32 of shape {shape}", f"{array.dtype} of shape {array.shape}")
    elif not np.isfinite(array).all():
        _refuse(where, "finite numbers; NaN or infinity mean that the site's training diverged", "others")


def _check_names(where: str, value: Any, names: frozenset[str]) -> None:
    """Refuse what is no dictionary with all of these keys and no other."""
    if not isinstance(value, dict):
        _refuse(where, f"values of {', '.join(sorted(names))}", _shown(value))
    _only(where, set(value), names)
    if missing := sorted(names - set(value)):
        _refuse(where, f"all of {', '.join(sorted(names))}", f"no {', '.join(missing)}")


def _only(where: str, found: set[Any], allowed: frozenset[str]) -> None:
    if extra := sorted(map(str, found - allowed)):
        _refuse(where, f"only {', '.join(sorted(allowed)) or 'nothing'}", f"also {_shown_names(extra)}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and 0 <= value <= _LARGEST_COUNT


def _is_number(value: Any) -> bool:
    """Return whether it is finite, which NaN is not, and not so large that a sum of several would not be."""
    return (_is_whole(value) or isinstance(value, float)) and -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER


def _shown(value: Any) -> str:
    return repr(value)[:100]


def _shown_names(names: Iterable[str]) -> str:
    return ", ".join(names)[:200]


def _refuse(where: str, expected: str, found: str) -> NoReturn:
    raise _refusal(where, expected, found)


def _refusal(where: str, expected: str, found: str) -> RefusedError:
    return RefusedError(where, expected=expected, found=found, remedy="The answer is not used; see the wire list.")
