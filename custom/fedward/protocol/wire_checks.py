"""The checks of the wire list, which refuse an answer with anything but what was asked for.

The site calls them before it sends an answer, and the server before it uses anything of it.
:mod:`fedward.protocol.messages` says what an answer may hold at all; the checks here depend on the
job or the request.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, get_args

import numpy as np

from fedward.errors import WireError
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.model_state import State
from fedward.protocol.answer_rules import AnswerRules
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
"""Metrics of single classes, which are reported as ``<metric>/<class>``."""
_ROUNDING = 1e-6
"""How far outside [0, 1] a mean of shares may be."""
_ROW_ROUNDING = 2e-3
"""How far probabilities of an update in float16 may be from a range, or from their sum."""


def check_answer(
    answer: Message, site: str, request: Message, rules: AnswerRules, *, encrypted: bool = False
) -> Answer | ErrorAnswer | WaitingAnswer:
    """Return the content of an answer that the wire list allows and the request asked for.

    Args:
        answer: the answer. Of an encrypted one, which has ciphertexts in place of differences, only
            names and sizes can be checked.
        site: the site that was asked.
        request: what it was asked.
        rules: what answers of the job may hold.
        encrypted: whether an update must be encrypted.

    Raises:
        RefusedError: the answer holds anything else.
    """
    round_ = request.meta["round"]
    with _only_refusals(f"answer of {site}"):
        if "error" in answer.meta:
            return _content_without_arrays(ErrorAnswer, answer, site, round_)
        if "waiting" in answer.meta:
            return _content_without_arrays(WaitingAnswer, answer, site, round_)
        content = _content(Answer, answer, site, round_)
        _check_work(content, rules.training_numbers)
        is_evaluated = bool(request.meta["evaluate"])
        _check_metrics(f"metrics of {site}", content.metrics, is_evaluated, rules)
        if content.binned is not None:
            check_binned(f"counts of {site}", content.binned, content.metrics, rules)
        _check_update(content, answer, request, encrypted, rules)
        return content


def check_survey_answer(
    answer: Message, site: str, classes: Collection[str]
) -> SurveyAnswer | ErrorAnswer | WaitingAnswer:
    """Return the content of an answer to a survey.

    Args:
        answer: the answer.
        site: the site that was asked.
        classes: those of the job.

    Raises:
        RefusedError: it holds anything but possible counts.
    """
    with _only_refusals(f"answer of {site}"):
        if "error" in answer.meta:
            return _content_without_arrays(ErrorAnswer, answer, site, 1)
        if "waiting" in answer.meta:
            return _content_without_arrays(WaitingAnswer, answer, site, 1)
        content = _content_without_arrays(SurveyAnswer, answer, site, 1)
        check_survey(f"survey of {site}", content.survey, len(classes))
        return content


def check_mean(
    answer: Message, site: str, round_: int, model: Mapping[str, tuple[int, ...]]
) -> MeanAnswer | ErrorAnswer:
    """Return the content of the answer to a sum of ciphertexts.

    Args:
        answer: the answer.
        site: the site that was asked.
        round_: the round of the request.
        model: name -> shape of the tensors that travel.

    Raises:
        RefusedError: it holds anything but the mean, in tensors of these shapes.
    """
    with _only_refusals(f"answer of {site}"):
        if "error" in answer.meta:
            return _content_without_arrays(ErrorAnswer, answer, site, round_)
        _check_arrays(answer, site, "mean", model)
        return _content(MeanAnswer, answer, site, round_)


@contextmanager
def _only_refusals(where: str) -> Iterator[None]:
    """Turn any error of a check into a refusal: one site's answer must not end the run of all."""
    try:
        yield
    except WireError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {error}"[:200]
        raise refusal(where, "what the wire list allows", found) from error


def _content(kind: type[ReplyT], answer: Message, site: str, round_: int) -> ReplyT:
    """Return the content of an answer, which must name the site and the round of its request."""
    content = parse(kind, answer.meta, f"answer of {site}")
    if (content.site, content.round) != (site, round_):
        found = f"site {content.site}, round {content.round}"[:100]
        _refuse(f"answer of {site}", f"site {site}, round {round_}", found)
    return content


def _content_without_arrays(kind: type[ReplyT], answer: Message, site: str, round_: int) -> ReplyT:
    _check_names(f"arrays of {site}", answer.arrays, allowed=())
    return _content(kind, answer, site, round_)


def _check_work(content: Answer, training_numbers: frozenset[str]) -> None:
    where = f"answer of {content.site}"
    if content.steps and not content.labelled + content.unlabelled:
        _refuse(f"{where}, steps", "0 without an image to take them on", f"{content.steps}")
    _check_names(f"{where}, train", content.train, training_numbers)


def _check_update(
    content: Answer, answer: Message, request: Message, encrypted: bool, rules: AnswerRules
) -> None:
    site = content.site
    task = request.meta["task"]
    withheld = rules.withheld(task)
    has_trained = content.steps > 0 and task not in UNTRAINED
    model = shapes(request, withheld) if has_trained else {}
    must_be_encrypted = encrypted and has_trained
    if must_be_encrypted and content.key is None:
        _refuse(f"key of {site}", "the fingerprint of a key", shown(content.key))
    if content.key is not None and not must_be_encrypted:
        _refuse(f"key of {site}", "none without an encrypted update", shown(content.key))
    if must_be_encrypted:
        check_ciphers(f"answer of {site}", "cipher", answer.arrays, model)
        return
    sent_though_withheld = [name for name in uploaded_names(answer) if name.startswith(withheld)]
    if sent_though_withheld:
        _refuse(
            f"arrays of {site}",
            f"none of what does not go up ({', '.join(withheld)})",
            ", ".join(sent_though_withheld)[:200],
        )
    _check_arrays(answer, site, "diff", model)
    for name in rules.distributions:
        if name in model:
            received = request.arrays[f"model/{name}"].astype(np.float64)
            rows = received + answer.arrays[f"diff/{name}"]
            _check_distributions(f"array diff/{name} of {site}", rows)
    if content.steps and not has_trained:
        _refuse(f"answer of {site}, steps", f"0 after the task {task}", f"{content.steps}")


def check_ciphers(
    where: str, role: str, arrays: Mapping[str, np.ndarray], model: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise WireError unless arrays are the ciphertexts of a model: ``<role>/00000`` and so on.

    Args:
        where: beginning of the place that an error names.
        role: ``cipher`` or ``sum``.
        arrays: the arrays of a message.
        model: name -> shape of the tensors that travel.
    """
    value_count = sum(math.prod(shape) for shape in model.values())
    cipher_count = math.ceil(value_count / CIPHER_VALUES)
    names = [f"{role}/{number:05d}" for number in range(cipher_count)]
    _check_names(where, arrays, names)
    for name in names:
        array = arrays.get(name)
        expected = f"1 to {LARGEST_CIPHER} bytes, as uint8"
        if array is None:
            _refuse(f"{where}, {name}", expected, "nothing")
        is_bytes = array.dtype == np.uint8 and array.ndim == 1
        if not is_bytes or not 0 < array.size <= LARGEST_CIPHER:
            _refuse(f"{where}, {name}", expected, f"{array.dtype} of shape {array.shape}")


def check_norm(site: str, answer: Message, model: State, largest: float) -> None:
    """Raise WireError if the L2 norm of an update is over ``largest`` times that of the model.

    One site would otherwise decide the average alone. Both norms are over all tensors of the update
    together, in float64.
    """
    update_norm = norm(answer.arrays)
    tensor_norms = [float(model[name].double().norm()) for name in uploaded_names(answer)]
    bound = largest * math.hypot(*tensor_norms)
    if update_norm > bound:
        expected = f"a norm of at most {bound:.3g} (largest_update = {largest:g})"
        _refuse(f"update of {site}", expected, f"{update_norm:.3g}")


def _check_metrics(
    where: str, rows: Sequence[Metric], is_evaluated: bool, rules: AnswerRules
) -> None:
    if rows and not is_evaluated:
        _refuse(where, "none, as the model was not to be evaluated", f"{len(rows)} rows")
    classes = frozenset(rules.classes)
    for row in rows:
        _check_metric(where, row, classes, rules)
    if len({(row.split, row.name) for row in rows}) < len(rows):
        _refuse(where, "one row for each split and name", "two for one of them")
    for split in get_args(Split):
        rows_of_split = [row for row in rows if row.split == split]
        _check_split(f"{where}, {split}", rows_of_split, rules)


def _check_split(where: str, rows: Sequence[Metric], rules: AnswerRules) -> None:
    """Refuse rows of one split that are not of the same images."""
    if not rows:
        return
    if len({(row.n, *row.classes) for row in rows}) > 1:
        _refuse(where, "one number of images and one list of classes", "several")
    image_count = rows[0].n
    support = sum(row.value or 0 for row in rows if row.name.startswith("support/"))
    if rules.exclusive and support > image_count:
        expected = "classes with no more images together than all"
        _refuse(where, expected, f"{support} of {image_count}")


def _check_metric(where: str, row: Metric, classes: frozenset[str], rules: AnswerRules) -> None:
    metric, _, class_name = row.name.partition("/")
    is_of_a_class = metric in _CLASS_METRICS and class_name in classes
    if row.name not in rules.metric_names and not is_of_a_class:
        expected = (
            f"one of {sorted(rules.metric_names)}, or of {list(_CLASS_METRICS)} "
            "and a class of the job"
        )
        _refuse(f"{where}, name", expected, shown(row.name))
    if not classes.issuperset(row.classes) or len(set(row.classes)) < len(row.classes):
        _refuse(f"{where}, classes", "classes of the job, each once", shown(row.classes))
    if row.value is None:
        return
    if metric == "support":
        _check_support(f"{where}, {row.name}", row.value, row.n, rules.fewest_others)
    elif not -_ROUNDING <= row.value <= 1 + _ROUNDING:
        _refuse(f"{where}, {row.name}", "a number from 0 to 1, or nothing", f"{row.value}")


def _check_support(where: str, support: float, image_count: int, fewest_others: int) -> None:
    """Refuse a number of images of a class that the small-count rule forbids."""
    is_allowed = SMALLEST_COUNT <= support <= image_count - fewest_others
    if support != int(support) or not is_allowed:
        less = f" less {fewest_others}" if fewest_others else ""
        expected = f"a count from {SMALLEST_COUNT} to the images{less}, or nothing"
        _refuse(where, expected, f"{support} of {image_count}")


def _check_arrays(
    answer: Message, site: str, role: str, model: Mapping[str, tuple[int, ...]]
) -> None:
    shape_of = {f"{role}/{name}": shape for name, shape in model.items()}
    _check_names(f"arrays of {site}", answer.arrays, shape_of)
    for name, shape in sorted(shape_of.items()):
        where = f"array {name} of {site}"
        array = answer.arrays.get(name)
        if array is None:
            _refuse(where, f"shape {shape}", "nothing")
        if array.shape != shape or array.dtype != np.float32:
            found = f"{array.dtype} of shape {array.shape}"
            _refuse(where, f"float32 of shape {shape}", found)
        if not np.isfinite(array).all():
            expected = "finite numbers; NaN or infinity mean that the site's training diverged"
            _refuse(where, expected, "others")


def _check_distributions(where: str, rows: np.ndarray) -> None:
    """Refuse rows (R, K) that are neither distributions nor 0, up to rounding in float16."""
    sums = rows.sum(axis=1)
    in_range = (rows >= -_ROW_ROUNDING) & (rows <= 1 + _ROW_ROUNDING)
    sums_to_one = np.abs(sums - 1) <= _ROW_ROUNDING
    is_zero = (np.abs(rows) <= _ROW_ROUNDING).all(axis=1)
    if not in_range.all() or not (sums_to_one | is_zero).all():
        expected = "rows of probabilities that sum to 1, or of zeros, without noise on them"
        _refuse(where, expected, "others")


def _check_names(where: str, names: Iterable[Any], allowed: Collection[str]) -> None:
    unknown = sorted(str(name) for name in set(names) - set(allowed))
    if unknown:
        expected = f"only {', '.join(sorted(allowed)) or 'nothing'}"
        _refuse(where, expected, f"also {', '.join(unknown)[:200]}")


def _refuse(where: str, expected: str, found: str) -> NoReturn:
    raise refusal(where, expected, found)
