"""Checks of the resources that a job asks of its sites.

A lead writes them into the job's ``resource_spec``. FLARE 2.9 hands them to a site's resource
manager before the site's policy is asked. The manager subtracts them from what is free and adds
them again later, whatever they are. Minus infinity turns the free memory of a GPU into "not a
number", and one GPU and a half takes all GPUs. No other job gets them until the job ends, or until
the site's process is started again. Only numbers are accepted that a manager gives back as it took
them.
"""

import math
from collections.abc import Mapping
from typing import Any

from nvflare.apis.job_def import JobMetaKey
from nvflare.utils.job_launcher_utils import get_resource_manager_spec

from fedward.errors import ConfigError
from fedward.flare.kits.app_check import refused, values

_MEMORY = "mem_per_gpu_in_GiB"
"""The one resource that may be a fraction."""

_LARGEST = 2**53
"""Largest amount of a resource: larger whole numbers are not exact as FLARE's floats."""
_MEBIBYTES = 1024
"""Mebibytes in a gibibyte.

Whole mebibytes are subtracted and added again without rounding, in any order. Other fractions are
not, and free memory would shrink a little with each job."""

_SPEC = "resource_spec of the job"


def check_requirements(requirements: object) -> None:
    """Check what a site's resource manager is asked for.

    Args:
        requirements: what FLARE hands to the manager: name of a resource -> how much of it.

    Raises:
        ConfigError: it is something else, or an amount is not a whole number from 0 on, in
            mebibytes for memory.
    """
    if not isinstance(requirements, dict):
        raise refused(_SPEC, "amounts by the names of resources", type(requirements).__name__)
    for name, amount in requirements.items():
        if not isinstance(name, str):
            raise refused(_SPEC, "amounts by the names of resources", repr(name))
        expected = f"a whole number from 0 on for {name!r:.40}"
        is_amount = _is_number(amount) and isinstance(amount, int)
        if name == _MEMORY:
            expected = f"a number from 0 on for {name}, in whole MiB (1/{_MEBIBYTES} GiB)"
            is_whole = isinstance(amount, int) or (
                isinstance(amount, float) and (amount * _MEBIBYTES).is_integer()
            )
            is_amount = _is_number(amount) and is_whole
        if not is_amount:
            raise refused(_SPEC, expected, repr(amount))


def check_job(meta: Mapping[str, Any]) -> None:
    """Check what a job asks of its sites: of resource managers, and of what starts its processes.

    Args:
        meta: the content of the job's ``meta.json``.

    Raises:
        ConfigError: as :func:`check_requirements`, or there is a number that is not finite or is
            below 0.
    """
    spec = meta.get(JobMetaKey.RESOURCE_SPEC.value)
    if spec is None:
        return
    if not isinstance(spec, dict):
        raise refused(_SPEC, "the resources of each site", repr(spec))
    for value in values(spec):
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            raise refused(_SPEC, "finite numbers from 0 on", repr(value))
    for site in spec:
        try:
            requirements = get_resource_manager_spec(dict(meta), site)
        except (AttributeError, TypeError, ValueError) as error:
            raise refused(_SPEC, "the resources of each site", repr(spec[site])) from error
        check_requirements(requirements)


def problem_with(requirements: object) -> str:
    """Return what is wrong with what a site's resource manager is asked for; empty if nothing."""
    try:
        check_requirements(requirements)
    except ConfigError as error:
        return str(error)
    return ""


def _is_number(amount: object) -> bool:
    """Return whether a value is a number from 0 to :data:`_LARGEST`."""
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return False
    return 0 <= amount <= _LARGEST
