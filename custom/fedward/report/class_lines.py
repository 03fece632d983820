"""The report's tables of classes: test values per class, and per class and site."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedward.evaluation.selection import mean
from fedward.runs.run import Run

_WITHHELD = "none, or too few to report"
"""Small counts do not leave a site; from outside they look like no images at all."""
_ONLY_CLASS = "none of another class"
_NOT_MEASURED = "not measured"
MARKS = {_WITHHELD: "·", _ONLY_CLASS: "○", _NOT_MEASURED: "?"}
"""Why a site has no AUROC of a class -> the sign in its place."""


@dataclass(frozen=True)
class ClassAtSite:
    """One class at one site."""

    auroc: float | None
    support: int | None
    """Test images of the class; None where the site does not report it."""
    why: str
    """Why there is no AUROC; empty where there is one."""

    @property
    def mark(self) -> str:
        """A sign in place of a missing AUROC, which the table's caption explains."""
        return MARKS.get(self.why, "")


@dataclass(frozen=True)
class ClassLine:
    """One class: test values per site, and their mean over the sites that report them."""

    name: str
    support: int
    """Test images of the class over the sites that report it."""
    sites: int
    """Sites that report how many."""
    untold: int
    """Other sites that were measured: they have no image of it, or too few."""
    f1: float | None
    auroc: float | None
    auprc: float | None
    by_site: tuple[ClassAtSite, ...]
    """In the run's order of sites."""


def class_lines(run: Run, round_: int | None) -> list[ClassLine]:
    """Return one line per class for the model after ``round_`` rounds."""
    return [_class_line(run, name, round_) for name in run.classes]


def _class_line(run: Run, name: str, round_: int | None) -> ClassLine:
    support = run.metrics.values("test", f"support/{name}", round_)
    f1 = run.metrics.values("test", f"f1/{name}", round_)
    auroc = run.metrics.values("test", f"auroc/{name}", round_)
    auprc = run.metrics.values("test", f"auprc/{name}", round_)
    by_site = tuple(_class_at_site(auroc.get(site), support, site) for site in run.info.sites)
    return ClassLine(
        name=name,
        support=sum(at_site.support or 0 for at_site in by_site),
        sites=sum(bool(at_site.support) for at_site in by_site),
        untold=sum(at_site.why == _WITHHELD for at_site in by_site),
        f1=mean(f1.values()),
        auroc=mean(auroc.values()),
        auprc=mean(auprc.values()),
        by_site=by_site,
    )


def _class_at_site(
    auroc: float | None, supports: Mapping[str, float | None], site: str
) -> ClassAtSite:
    if site not in supports:
        return ClassAtSite(auroc, None, _NOT_MEASURED)
    support = supports[site]
    if support is None:
        return ClassAtSite(None, None, _WITHHELD)
    return ClassAtSite(auroc, round(support), _ONLY_CLASS if auroc is None else "")
