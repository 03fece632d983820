"""The server's half of a survey: it asks the sites once what their images are.

No model is sent, and none is trained. Policy, approval, the audit log and the run folder are the
same as for training.
"""

import time
from dataclasses import dataclass, field

from fedward.console.listener import Listener, Start
from fedward.errors import RunError
from fedward.methods.participants import draw_participants
from fedward.methods.survey import Survey
from fedward.methods.workflow import Turn
from fedward.protocol import answer_checks
from fedward.protocol.messages import SurveyAnswer
from fedward.protocol.transport import Transport
from fedward.protocol.wire import Message
from fedward.server.asking import Inquiry, Replies, common_fields
from fedward.server.consent import Consent
from fedward.server.requests import sent_hashes, survey_requests
from fedward.storage.info import Summary
from fedward.storage.rows import RoundRow
from fedward.storage.run_folder import RunFolder

LOG = "surveys"
"""Name of the log in the run folder that has a row for each site that has answered."""
_ROUND = 1
"""Counts of the same images would be the same in a second round, so there is only one."""


@dataclass
class SurveyState:
    """How far a survey has got."""

    round: int
    """0 before the answers, 1 after."""


@dataclass
class SurveyReplies(Replies):
    """What came back from a survey, by site."""

    answers: dict[str, SurveyAnswer] = field(default_factory=dict)
    """The checked answers."""

    @property
    def given(self) -> set[str]:
        """Sites that have reported what their images are."""
        return set(self.answers)


class SurveyCourse:
    """The course of a run that asks sites what their images are."""

    def __init__(self, survey: Survey, synthetic: bool) -> None:
        self._survey = survey
        self._synthetic = synthetic
        """Whether the images of all sites are."""

    def prepare(self) -> None:
        """Return no first model: a survey has none."""

    def check_resumed(self, run: RunFolder) -> None:
        """Check nothing: a survey has no weights that a resumed run could lack."""

    def carry_out(
        self,
        run: RunFolder,
        transport: Transport,
        consent: Consent,
        listener: Listener,
    ) -> Summary:
        """Ask the sites, write what they answer into ``surveys.jsonl``, and finish the run.

        Args:
            run: its folder. A survey that was interrupted before its answers were written is
                repeated.
            transport: how messages reach the sites.
            consent: keeps account of sites that refuse the job or wait for approval.
            listener: receives the events of the survey.

        Raises:
            RunRefusedError: too few sites' policies allow the survey.
            RunError: fewer sites have answered than ``minimum_replies``.
        """
        state = run.restore(SurveyState)
        finished_rounds = state.round if state else 0
        start = Start(run.experiment, run.sites, _ROUND, finished_rounds, synthetic=self._synthetic)
        listener.header(start)
        if state is None:
            run.commit(0, SurveyState(0))
        if finished_rounds == 0:
            participants = self._survey.settings.participants
            _ask(run, participants, transport, consent, listener)
            run.commit(_ROUND, SurveyState(_ROUND))
        summary = Summary(rounds=_ROUND)
        run.set_status("finished", summary)
        return summary


def _ask(
    run: RunFolder,
    participants: int | None,
    transport: Transport,
    consent: Consent,
    listener: Listener,
) -> None:
    """Carry out the one exchange of a survey and record it."""
    started = time.perf_counter()
    experiment = run.experiment
    sites = draw_participants(run.sites, participants, experiment.seed, _ROUND)
    replies = SurveyReplies(_requests(run, sites))

    def accept(site: str, answer: Message) -> None:
        checked = answer_checks.check_survey_answer(answer, site, experiment.data.classes)
        if isinstance(checked, SurveyAnswer):
            replies.answers[site] = checked
        else:
            replies.note_unwilling(site, checked)

    def too_few() -> bool:
        return len(replies.answers) < experiment.minimum_replies

    Inquiry(run, transport, consent, listener).ask(Turn(_ROUND, 0), replies, accept, too_few)
    seconds = time.perf_counter() - started
    run.note_origins({site: answer.synthetic for site, answer in replies.answers.items()})
    enough = not too_few()
    if not enough:
        _drop(replies, experiment.minimum_replies)
    row = _record(run, replies, seconds)
    listener.round(row)
    consent.require(_ROUND, replies.answers, replies.refusals)
    if not enough:
        run.flush()  # No commit follows that would write the row of the round.
        reasons = "; ".join(f"{site}: {why}" for site, why in sorted(replies.failed.items()))
        raise RunError(
            f"survey: fewer than {experiment.minimum_replies} sites have answered: {reasons}",
            "Correct what the sites report, then resume this run folder.",
        )


def _requests(run: RunFolder, sites: list[str]) -> dict[str, Message]:
    """Log the requests in the audit log, and return them; they name its line."""
    last_hash = run.audit.add(
        "asked",
        round=_ROUND,
        part=0,
        tasks=dict.fromkeys(sites, "survey"),
        evaluate=[],
        decisions={},
        **sent_hashes({site: {} for site in sites}),
    )
    return survey_requests(sites, common_fields(run, last_hash))


def _drop(replies: SurveyReplies, needed: int) -> None:
    """Drop all answers: there are fewer than the ``needed`` ones, so none may be used."""
    replies.drop(replies.answers, needed, len(replies.answers))
    replies.answers.clear()


def _record(run: RunFolder, replies: SurveyReplies, seconds: float) -> RoundRow:
    """Write the audit log's line, a row for each answer, and the row of the round."""
    answers = dict(sorted(replies.answers.items()))
    run.audit.add(
        "answered",
        round=_ROUND,
        part=0,
        replied=list(answers),
        updates={},
        evaluated=[],
        failed=replies.failed,
    )
    for site, answer in answers.items():
        run.record(LOG, {"round": _ROUND, "site": site, **answer.survey.model_dump()})
    row = RoundRow(
        round=_ROUND,
        part=0,
        seconds=round(seconds, 3),
        asked=tuple(replies.requests),
        replied=tuple(answers),
        failed=replies.failed,
        restarts={site: answer.restarts for site, answer in answers.items() if answer.restarts},
        bytes_down=0,
        bytes_up=0,
        peer_models=0,
    )
    run.append("rounds", row)
    return row
