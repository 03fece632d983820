"""Rules of the default policy that a job breaks, with the job's own method."""

from collections.abc import Sequence

from fedward.config import Experiment
from fedward.methods import job_of
from fedward.security import policy_rules
from fedward.security.policy_rules import AppliedRule


def refused_by_default(experiment: Experiment, sites: Sequence[str] = ()) -> list[AppliedRule]:
    """Return the broken rules."""
    return policy_rules.refused_by_default(experiment, job_of(experiment), sites)
