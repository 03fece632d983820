"""The checks of the wire list: an answer is what may leave a site and what was asked for, or it is
refused.

The site calls them before it sends, the server before it uses anything.
:mod:`fedward.protocol.messages` says what an answer may hold at all; what is checked here hangs on
the job or the request.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, get_args

import numpy as np

from fedward.errors import WireError
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.methods.requirements import Requirements
from fedward.methods.workflow import State
from fedward.protocol.binned_checks import check_binned
from fedward.protocol.fields import parse, refusal
from fedward.protocol.messages import (
    Answer,
    ErrorAnswer,
    MeanAnswer,
    Metric,
    ReplyT,
    Split,
    SurveyAnswer,
    WaitingAnswer,
)
from fedward.protocol.survey_checks import check_survey
from fedward.protocol.wire import (
    CIPHER_VALUES,
    LARGEST_CIPHER,
    UNTRAINED,
    Message,
    norm,
    shapes,
    uploaded_names,
)
from fedward.terminal import shown

_CLASS_METRICS = ("auprc", "auroc", "f1", "support")
_ROUNDING = 1e-6
"""How far outside [0, 1] a mean of shares may lie."""


def check_answer(
    answer: Message,
    site: str,
    request: Message,
    needs: Requirements,
    classes: Collection[str],
    metrics: Sequence[str] = (),
    *,
    label_kind: LabelKind = ONE_LABEL,
    encrypted: bool = False,
) -> Answer | ErrorAnswer | WaitingAnswer:
    """Return what an answer says, if it holds what the wire list allows and the request asked for.

    Of an ``encrypted`` answer, which has ciphertexts in place of differences, only names and sizes
    can be checked.

    ``needs``: the algorithm's, which say what does not go up after the task, and which means of its
    training a site sends. ``classes`` and ``label_kind``: the job's. ``metrics``: names of the
    job's metrics of other packages.

    Raises:
        RefusedError: it does not.
    """
    round_ = request.meta["round"]
    with _nothing_but_refusals(f"answer of {site}"):
        if "error" in answer.meta:
            return _without_arrays(ErrorAnswer, answer, site, round_)
        if "waiting" in answer.meta:
            return _without_arrays(WaitingAnswer, answer, site, round_)
        said = _said(Answer, answer, site, round_)
        _check_work(said, needs.sends.reported)
        names = (*label_kind.metric_names, *metrics)
        _check_metrics(
            f"metrics of {site}",
            said.metrics,
            bool(request.meta["evaluate"]),
            classes,
            names,
            label_kind,
        )
        if said.binned is not None:
            check_binned(f"counts of {site}", said.binned, said.metrics, len(classes), label_kind)
        _check_update(
            said, answer, request, encrypted, needs.tensors.withheld(request.meta["task"])
        )
        return said


def check_survey_answer(
    answer: Message, site: str, classes: Collection[str]
) -> SurveyAnswer | ErrorAnswer | WaitingAnswer:
    """Return what an answer to a survey says; RefusedError unless it holds possible counts alone.

    ``classes``: of the job.
    """
    with _nothing_but_refusals(f"answer of {site}"):
        if "error" in answer.meta:
            return _without_arrays(ErrorAnswer, answer, site, 1)
        if "waiting" in answer.meta:
            return _without_arrays(WaitingAnswer, answer, site, 1)
        survey = _without_arrays(SurveyAnswer, answer, site, 1)
        check_survey(f"survey of {site}", survey.survey, len(classes))
        return survey


def check_mean(
    answer: Message, site: str, round_: int, model: Mapping[str, tuple[int, ...]]
) -> MeanAnswer | ErrorAnswer:
    """Return what the answer to a sum says; RefusedError unless it is its mean, tensors of the
    model's shapes alone.
    """
    with _nothing_but_refusals(f"answer of {site}"):
        if "error" in answer.meta:
            return _without_arrays(ErrorAnswer, answer, site, round_)
        _check_arrays(answer, site, "mean", model)
        return _said(MeanAnswer, answer, site, round_)


@contextmanager
def _nothing_but_refusals(where: str) -> Iterator[None]:
    """Turn whatever else a check stumbles over into a refusal: one site's answer must not end the
    run of all.
    """
    try:
        yield
    except WireError:
        raise
    except Exception as error:
        raise refusal(
            where, "what the wire list allows", f"{type(error).__name__}: {error}"[:200]
        ) from error


def _said(kind: type[ReplyT], answer: Message, site: str, round_: int) -> ReplyT:
    said = parse(kind, answer.meta, f"answer of {site}")
    if (said.site, said.round) != (site, round_):
        _refuse(
            f"answer of {site}",
            f"site {site}, round {round_}",
            f"site {said.site}, round {said.round}"[:100],
        )
    return said


def _without_arrays(kind: type[ReplyT], answer: Message, site: str, round_: int) -> ReplyT:
    _check_arrays(answer, site, "", {})
    return _said(kind, answer, site, round_)


def _check_work(answer: Answer, scalars: frozenset[str]) -> None:
    where = f"answer of {answer.site}"
    if answer.steps and not answer.labelled + answer.unlabelled:
        _refuse(f"{where}, steps", "0 without an image to take them on", f"{answer.steps}")
    _only(f"{where}, train", answer.train, scalars)


def _check_update(
    said: Answer, answer: Message, request: Message, encrypted: bool, withheld: tuple[str, ...]
) -> None:
    site = said.site
    task = request.meta["task"]
    trained = said.steps > 0 and task not in UNTRAINED
    model = shapes(request, withheld) if trained else {}
    if (said.key is not None) != (sealed := encrypted and trained):
        expected = "the fingerprint of a key" if sealed else "none without an encrypted update"
        _refuse(f"key of {site}", expected, shown(said.key))
    if sealed:
        check_ciphers(f"answer of {site}", "cipher", answer.arrays, model)
        return
    kept = [name for name in uploaded_names(answer) if name.startswith(withheld)]
    if kept:
        _refuse(
            f"arrays of {site}",
            f"none of what does not go up ({', '.join(withheld)})",
            ", ".join(kept)[:200],
        )
    _check_arrays(answer, site, "diff", model)
    if said.steps and not trained:
        _refuse(f"answer of {site}, steps", f"0 after the task {task}", f"{said.steps}")


def check_ciphers(
    where: str, role: str, arrays: Mapping[str, np.ndarray], model: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise WireError unless the arrays are ``<role>/00000`` and so on: the ciphertexts of a model
    of these shapes.
    """
    values = sum(math.prod(shape) for shape in model.values())
    expected = [f"{role}/{number:05d}" for number in range(math.ceil(values / CIPHER_VALUES))]
    _only(where, arrays, expected)
    for name in expected:
        array = arrays.get(name)
        if (
            array is None
            or array.dtype != np.uint8
            or array.ndim != 1
            or not 0 < array.size <= LARGEST_CIPHER
        ):
            found = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
            _refuse(f"{where}, {name}", f"1 to {LARGEST_CIPHER} bytes, as uint8", found)


def check_norm(site: str, answer: Message, model: State, largest: float) -> None:
    """Raise WireError where an update's L2 norm is over ``largest`` times the model's: one site
    would decide alone.

    Both norms are over all tensors of the update together, in float64.
    """
    found = norm(answer.arrays)
    bound = largest * math.hypot(
        *(float(model[key].double().norm()) for key in uploaded_names(answer))
    )
    if found > bound:
        _refuse(
            f"update of {site}",
            f"a norm of at most {bound:.3g} (largest_update = {largest:g})",
            f"{found:.3g}",
        )


def _check_metrics(
    where: str,
    rows: Sequence[Metric],
    asked: bool,
    classes: Collection[str],
    names: Collection[str],
    label_kind: LabelKind,
) -> None:
    if rows and not asked:
        _refuse(where, "none, as the model was not to be evaluated", f"{len(rows)} rows")
    of_job = frozenset(classes)
    for row in rows:
        _check_metric(where, row, of_job, names, label_kind.fewest_others)
    if len({(row.split, row.name) for row in rows}) < len(rows):
        _refuse(where, "one row for each split and name", "two for one of them")
    for split in get_args(Split):  # all rows of a split are of the same images
        of_split = [row for row in rows if row.split == split]
        if len({(row.n, *row.classes) for row in of_split}) > 1:
            _refuse(f"{where}, {split}", "one number of images and one list of classes", "several")
        counted = sum(row.value or 0 for row in of_split if row.name.startswith("support/"))
        if label_kind.exclusive and of_split and counted > (images := of_split[0].n):
            _refuse(
                f"{where}, {split}",
                "classes with no more images together than all",
                f"{counted} of {images}",
            )


def _check_metric(
    where: str, row: Metric, classes: frozenset[str], names: Collection[str], fewest_others: int
) -> None:
    kind, _, of = row.name.partition("/")
    if row.name not in names and not (kind in _CLASS_METRICS and of in classes):
        expected = f"one of {sorted(names)}, or of {list(_CLASS_METRICS)} and a class of the job"
        _refuse(f"{where}, name", expected, shown(row.name))
    if not classes.issuperset(row.classes) or len(set(row.classes)) < len(row.classes):
        _refuse(f"{where}, classes", "classes of the job, each once", shown(row.classes))
    if row.value is None:
        return
    if kind == "support":
        if row.value != int(row.value) or not SMALLEST_COUNT <= row.value <= row.n - fewest_others:
            less = f" less {fewest_others}" if fewest_others else ""
            expected = f"a count from {SMALLEST_COUNT} to the images{less}, or nothing"
            _refuse(f"{where}, {row.name}", expected, f"{row.value} of {row.n}")
    elif not -_ROUNDING <= row.value <= 1 + _ROUNDING:
        _refuse(f"{where}, {row.name}", "a number from 0 to 1, or nothing", f"{row.value}")


def _check_arrays(
    answer: Message, site: str, role: str, model: Mapping[str, tuple[int, ...]]
) -> None:
    expected = {f"{role}/{name}": shape for name, shape in model.items()}
    _only(f"arrays of {site}", answer.arrays, expected)
    for name, shape in sorted(expected.items()):
        where = f"array {name} of {site}"
        array = answer.arrays.get(name)
        if array is None:
            _refuse(where, f"shape {shape}", "nothing")
        if array.shape != shape or array.dtype != np.float32:
            _refuse(where, f"float32 of shape {shape}", f"{array.dtype} of shape {array.shape}")
        if not np.isfinite(array).all():
            _refuse(
                where,
                "finite numbers; NaN or infinity mean that the site's training diverged",
                "others",
            )


def _only(where: str, found: Iterable[Any], allowed: Collection[str]) -> None:
    extra = sorted(map(str, set(found) - set(allowed)))
    if extra:
        _refuse(
            where,
            f"only {', '.join(sorted(allowed)) or 'nothing'}",
            f"also {', '.join(extra)[:200]}",
        )


def _refuse(where: str, expected: str, found: str) -> NoReturn:
    raise refusal(where, expected, found)
