"""Requests as a server of the same job and version sends them."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedward.client.site_log import SiteLog
from fedward.config import Experiment
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.methods.fedperl.algorithm import FedPerl
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.requirements import Requirements
from fedward.methods.site_weights import SiteWeight
from fedward.methods.workflow import Exchange
from fedward.protocol.answer_rules import AnswerRules
from fedward.protocol.requests import DecryptRequest, Request, read_request
from fedward.protocol.versions import versions
from fedward.protocol.wire import Message
from fedward.server.requests import models_by_site, task_requests
from fedward.server.requests import survey_requests as requests_of_survey

NEEDS = FedPerl(FedPerlSettings()).requirements
"""What the sites of a job may send."""
RUN = "0123456789abcdef" * 2
LAST_HASH = "ab" * 32


def facts(experiment: Experiment, run: str = RUN) -> dict[str, Any]:
    """Return the fields of a request that describe its job."""
    return {
        "run": run,
        "members": 1,
        "experiment": experiment.digest,
        "versions": versions(),
        "last_hash": LAST_HASH,
    }


def requests(
    experiment: Experiment, exchange: Exchange, evaluate: Iterable[str] = (), run: str = RUN
) -> dict[str, Message]:
    """Return the requests of an exchange."""
    evaluating = list(evaluate)
    models = models_by_site(exchange, evaluating, dict)
    return task_requests(exchange, models, evaluating, facts(experiment, run))


def survey_requests(
    experiment: Experiment, sites: Iterable[str] = ("site-1",), run: str = RUN
) -> dict[str, Message]:
    """Return the requests of a survey."""
    return requests_of_survey(sites, facts(experiment, run))


def rules_of(
    needs: Requirements = NEEDS, classes: Sequence[str] = (), kind: LabelKind = ONE_LABEL
) -> AnswerRules:
    """Return what answers may hold that send what ``needs`` declares, about these classes."""
    return AnswerRules(
        classes=tuple(classes),
        metric_names=(*kind.metric_names, *kind.error_names),
        training_numbers=needs.sends.reported,
        withheld=needs.tensors.withheld,
        card=needs.sends.card,
        subgroups=needs.sends.subgroups,
        clusters=needs.sends.clusters,
        distributions=needs.tensors.distributions,
        exclusive=kind.exclusive,
        fewest_others=kind.fewest_others,
    )


class AdmitsAll(SiteLog):
    """The log of a site that is asked out of turn, to see what else it would refuse."""

    def admit(self, message: Message) -> Request:
        """Let it pass."""
        return read_request(message.meta)

    def weight(self, request: DecryptRequest, weight: SiteWeight) -> int:
        """Take this site's update for one of weight 1."""
        return 1
