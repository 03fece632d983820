"""The checks of the wire list, which refuse an answer with anything but what was asked for.

The site calls them before it sends an answer, and the server before it uses anything of it.
:mod:`fedward.protocol.messages` says what an answer may hold at all; the checks here depend on the
job or the request.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from fedward.cards import SITE_ITEMS
from fedward.errors import WireError
from fedward.protocol.answer_rules import AnswerRules
from fedward.protocol.array_checks import (
    check_arrays,
    check_ciphers,
    check_distributions,
    check_moments,
)
from fedward.protocol.binned_checks import check_binned
from fedward.protocol.fields import parse, refusal, refuse, refuse_other_names, require
from fedward.protocol.messages import (
    Answer,
    ErrorAnswer,
    MeanAnswer,
    ReplyT,
    SurveyAnswer,
    WaitingAnswer,
)
from fedward.protocol.metric_checks import check_metrics
from fedward.protocol.survey_checks import check_survey
from fedward.protocol.wire import (
    UNTRAINED,
    Message,
    shapes,
    uploaded_names,
)
from fedward.terminal import shown


@contextmanager
def only_refusals(where: str) -> Iterator[None]:
    """Turn any error of a check into a refusal: one site's answer must not end the run of all.

    The refusal names the error but is not chained to it: a log would quote the answer with it.

    Args:
        where: the place that the refusal names.

    Raises:
        RefusedError: for an error that is no WireError. A WireError passes as it is.
    """
    try:
        yield
    except WireError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {error}"[:200]
        raise refusal(where, "what the wire list allows", found) from None


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
    with only_refusals(f"answer of {site}"):
        excuse = _excuse(answer, site, round_)
        if excuse:
            return excuse
        content = _content(Answer, answer, site, round_)
        _check_work(content, rules.training_numbers)
        if content.card is not None:
            items = SITE_ITEMS if rules.card else ()
            refuse_other_names(f"card of {site}", content.card.texts, items)
        is_evaluated = bool(request.meta["evaluate"])
        check_metrics(f"metrics of {site}", content.metrics, is_evaluated, rules)
        if content.binned is not None:
            where = f"counts of {site}"
            require(where, is_evaluated, "none where no evaluation was asked for")
            check_binned(where, content.binned, content.metrics, rules, content.synthetic)
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
    with only_refusals(f"answer of {site}"):
        excuse = _excuse(answer, site, 1)
        if excuse:
            return excuse
        content = _content_without_arrays(SurveyAnswer, answer, site, 1)
        check_survey(f"survey of {site}", content.survey, len(classes))
        return content


def check_mean(
    answer: Message, site: str, round_: int, model: Mapping[str, tuple[int, ...]]
) -> MeanAnswer | ErrorAnswer | WaitingAnswer:
    """Return the content of the answer to a sum of ciphertexts.

    Args:
        answer: the answer.
        site: the site that was asked.
        round_: the round of the request.
        model: name -> shape of the tensors that travel.

    Raises:
        RefusedError: it holds anything but the mean, in tensors of these shapes.
    """
    with only_refusals(f"answer of {site}"):
        excuse = _excuse(answer, site, round_)
        if excuse:
            return excuse
        check_arrays(answer, site, "mean", model)
        return _content(MeanAnswer, answer, site, round_)


def _excuse(answer: Message, site: str, round_: int) -> ErrorAnswer | WaitingAnswer | None:
    """Return the content of an answer that only says why there is no other; None for any other."""
    if "error" in answer.meta:
        return _content_without_arrays(ErrorAnswer, answer, site, round_)
    if "waiting" in answer.meta:
        return _content_without_arrays(WaitingAnswer, answer, site, round_)
    return None


def _content(kind: type[ReplyT], answer: Message, site: str, round_: int) -> ReplyT:
    """Return the content of an answer, which must name the site and the round of its request."""
    content = parse(kind, answer.meta, f"answer of {site}")
    if (content.site, content.round) != (site, round_):
        found = f"site {content.site}, round {content.round}"[:100]
        refuse(f"answer of {site}", f"site {site}, round {round_}", found)
    return content


def _content_without_arrays(kind: type[ReplyT], answer: Message, site: str, round_: int) -> ReplyT:
    refuse_other_names(f"arrays of {site}", answer.arrays, allowed=())
    return _content(kind, answer, site, round_)


def _check_work(content: Answer, training_numbers: frozenset[str]) -> None:
    where = f"answer of {content.site}"
    if content.steps and not content.labelled + content.unlabelled:
        refuse(f"{where}, steps", "0 without an image to take them on", f"{content.steps}")
    refuse_other_names(f"{where}, train", content.train, training_numbers)


def _check_update(
    content: Answer, answer: Message, request: Message, encrypted: bool, rules: AnswerRules
) -> None:
    site = content.site
    task = request.meta["task"]
    withheld = rules.withheld(task)
    has_trained = content.steps > 0 and task not in UNTRAINED
    model = shapes(request, withheld) if has_trained else {}
    must_be_encrypted = encrypted and has_trained
    _check_key(f"key of {site}", content.key, must_be_encrypted)
    if must_be_encrypted:
        check_ciphers(f"answer of {site}", "cipher", answer.arrays, model)
        return
    sent_though_withheld = [name for name in uploaded_names(answer) if name.startswith(withheld)]
    if sent_though_withheld:
        refuse(
            f"arrays of {site}",
            f"none of what does not go up ({', '.join(withheld)})",
            ", ".join(sent_though_withheld)[:200],
        )
    check_arrays(answer, site, "diff", model)
    for name in rules.distributions:
        if name in model:
            rows = _sent(name, answer, request)
            check_distributions(f"array diff/{name} of {site}", rows)
    if rules.moments and has_trained:
        shares, sums, products = (
            _sent(f"{rules.moments}.{name}", answer, request)
            for name in ("shares", "sums", "products")
        )
        check_moments(f"sums of {site}", shares, sums, products)
    if content.steps and not has_trained:
        refuse(f"answer of {site}, steps", f"0 after the task {task}", f"{content.steps}")


def _sent(name: str, answer: Message, request: Message) -> np.ndarray:
    """Return a tensor after a site's training, in float64."""
    received: np.ndarray = request.arrays[f"model/{name}"].astype(np.float64)
    return received + answer.arrays[f"diff/{name}"]


def _check_key(where: str, key: str | None, must_be_encrypted: bool) -> None:
    """Refuse an encrypted update without the fingerprint of its key, and any other with one."""
    if must_be_encrypted and key is None:
        refuse(where, "the fingerprint of a key", shown(key))
    if key is not None and not must_be_encrypted:
        refuse(where, "none without an encrypted update", shown(key))
