"""The other runs that a run is compared with, in the report and on the page for clinicians."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.report.comparison import ComparedRun, compared_runs, notes
from fedward.report.joining import Joining
from fedward.runs.run import Run
from fedward.runs.titles import title_of
from fedward.runs.verdict import Against


@dataclass(frozen=True)
class OtherRuns:
    """A run beside others: those of the federation as a whole, and those of single sites."""

    metric: str
    """By which runs are compared: the key metric."""
    whole: Sequence[Run]
    """The others that are not of one of its sites alone."""
    lines: Sequence[ComparedRun]
    """The run itself, and then each of these."""
    joining: Joining | None
    """The run beside those of single sites; None where no site can be paired."""

    @classmethod
    def of(cls, run: Run, others: Sequence[Run]) -> "OtherRuns":
        """Compare a run with others; those of one of its sites are compared site by site."""
        of_one_site, whole = split(run, others)
        metric = run.key_metric
        return cls(
            metric=metric,
            whole=whole,
            lines=compared_runs([run, *whole], metric),
            joining=Joining.of(run, of_one_site),
        )

    @property
    def against(self) -> list[Against]:
        """The run's model beside each other one that was tested on the same images."""
        compared = [
            Against(line.name, title_of(self.metric), line.difference)
            for line in self.lines[1:]
            if line.difference is not None
        ]
        if self.joining and self.joining.gain:
            alone = Against("what sites train alone", title_of(self.metric), self.joining.gain)
            compared.append(alone)
        return compared

    @property
    def notes(self) -> list[str]:
        """Sentences on runs that cannot be paired or are of another length, and on fine-tuning."""
        return [*notes(self.lines), *(self.joining.about_tuning if self.joining else ())]


def split(run: Run, others: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return (runs of one site of this run alone, all other runs)."""
    sites = set(run.info.sites)
    of_one_site = []
    whole = []
    for other in others:
        if len(sites) > 1 and len(other.info.sites) == 1 and sites.issuperset(other.info.sites):
            of_one_site.append(other)
        else:
            whole.append(other)
    return of_one_site, whole
