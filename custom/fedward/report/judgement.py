"""A verdict in the sentences that the report and the page for clinicians share."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.runs import verdict_words
from fedward.runs.verdict import Verdict


@dataclass(frozen=True)
class Judgement:
    """What both pages say of a model."""

    verdict: Verdict
    lead: str
    """The verdict in a sentence."""
    advice: str
    """When to ask a human, in a sentence."""
    found_least: str
    """How many images of the classes that it finds least; may be empty."""
    other_referrals: Sequence[str]
    """What other shares of images to ask a human about would bring."""
    trust: str
    """Whether its confidence can be trusted; empty for a model that may name several classes."""

    @classmethod
    def of(cls, verdict: Verdict) -> "Judgement":
        """Put a verdict into words."""
        return cls(
            verdict=verdict,
            lead=verdict_words.lead(verdict),
            advice=verdict_words.ask_human(verdict),
            found_least=verdict_words.found_least(verdict),
            other_referrals=verdict_words.other_referrals(verdict),
            trust=verdict_words.trust(verdict),
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences that name classes on both pages."""
        return self.lead, self.advice, self.found_least
