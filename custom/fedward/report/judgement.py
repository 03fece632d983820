"""A verdict in the sentences that the report and the page for clinicians share."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words import advice, for_clinicians, in_short, trust


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
            lead=in_short.lead(verdict),
            advice=advice.ask_human(verdict),
            found_least=for_clinicians.found_least(verdict),
            other_referrals=advice.other_referrals(verdict),
            trust=trust.sentence(verdict),
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences that name classes on both pages."""
        return self.lead, self.advice, self.found_least
