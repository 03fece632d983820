"""What a report says of more sites than a person reads one by one: both ends, quartiles, and one
long table.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedward.runs.choices import Choices, tested_values
from fedward.runs.exchanges import traffic_by_site
from fedward.runs.run import Run
from fedward.runs.site_lines import SiteLine

MANY = 30
"""With more sites than this a report shows groups of them."""
_END = 10
"""Sites shown at either end."""
QUARTILES = ("lowest", "lower quartile", "median", "upper quartile", "highest")


@dataclass(frozen=True)
class LongLine:
    """One site in the table of all sites."""

    site: SiteLine
    end: float | None
    """Test key metric, mean of the last rounds; then at the best single round, and at the site's
    own best.
    """
    shared: float | None
    best: float | None
    auroc: float | None
    """Macro AUROC on test images, of the selected model."""
    down: float
    """Megabytes; as ``up``."""
    up: float


def long_lines(run: Run, choices: Choices, sites: Sequence[SiteLine]) -> list[LongLine]:
    """Return a line per site: by rising test value of the selected model, those without one last."""
    values = tested_values(run, choices.shared.metric, choices.reported)
    found = [
        {choice.site: choice.test for choice in each.sites}
        for each in (choices.end, choices.shared, choices.own)
    ]
    auroc = tested_values(run, "auroc_macro", choices.reported)
    moved = traffic_by_site(run)
    lines = []
    for line in sites:
        end, shared, best = (by_site.get(line.site) for by_site in found)
        down, up, _ = moved[line.site]
        lines.append(LongLine(line, end, shared, best, auroc.get(line.site), down / 1e6, up / 1e6))
    return sorted(lines, key=lambda line: values.get(line.site.site, np.inf))


def ends(run: Run, choices: Choices, sites: Sequence[SiteLine]) -> list[SiteLine]:
    """Return the sites a report shows one by one: all, or of many those with the lowest and the
    highest test values.

    Where too few have a value, the first of all stand for them.
    """
    if len(sites) <= MANY:
        return list(sites)
    values = tested_values(run, choices.shared.metric, choices.reported)
    measured = sorted(
        (line for line in sites if line.site in values), key=lambda line: values[line.site]
    )
    return (
        [*measured[:_END], *measured[-_END:]]
        if len(measured) >= 2 * _END
        else list(sites[: 2 * _END])
    )


def quartiles(lines: Sequence[LongLine]) -> list[tuple[str, int, list[float]]]:
    """Return what sites differ in: (what, digits to show, values at :data:`QUARTILES` over the
    sites that have one).
    """
    columns: Mapping[str, tuple[int, Iterable[float | None]]] = {
        "labelled images": (0, (line.site.labelled for line in lines)),
        "unlabelled images": (0, (line.site.unlabelled for line in lines)),
        "validation images": (0, (line.site.val for line in lines)),
        "test images": (0, (line.site.test for line in lines)),
        "rounds trained": (0, (line.site.trained for line in lines)),
        "failures": (0, (line.site.failures for line in lines)),
        "test value, last rounds": (3, (line.end for line in lines)),
        "test value, best single round": (3, (line.shared for line in lines)),
        "test value, best per site": (3, (line.best for line in lines)),
        "macro AUROC, selected model": (3, (line.auroc for line in lines)),
        "MB down": (1, (line.down for line in lines)),
        "MB up": (1, (line.up for line in lines)),
    }
    rows = []
    for name, (digits, values) in columns.items():
        known = [value for value in values if value is not None]
        if known:
            rows.append(
                (
                    name,
                    digits,
                    [float(value) for value in np.quantile(known, (0, 0.25, 0.5, 0.75, 1))],
                )
            )
    return rows
