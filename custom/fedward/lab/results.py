"""A run as a notebook reads it: what its report says, as attributes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedward.evaluation.selection import mean
from fedward.runs import run as run_folder
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.judge import judge
from fedward.runs.outcome import Outcome, outcome
from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words import in_short
from fedward.storage.outputs import REPORT, SHEET

NOT_JUDGED = "Not judged: no site measured the model on test images."
"""The verdict on a run without test values."""


@dataclass(frozen=True, repr=False)
class Run(run_folder.Run):
    """A run's results, read from its folder by :func:`fedward.run` or :meth:`load`.

    Examples:
        >>> run = fedward.Run.load("runs/fedavg")  # doctest: +SKIP
        >>> run.verdict, run.numbers["accuracy"], run.report  # doctest: +SKIP
    """

    @classmethod
    def load(cls, folder: Path | str) -> "Run":
        """Read a run folder, also of a run that has not finished.

        Raises:
            RunError: it is not a run folder, or a file in it is broken.
        """
        return super().load(Path(folder))  # type: ignore[return-value]

    @property
    def status(self) -> str:
        """How far the run is: ``running``, ``finished`` or ``failed``."""
        return self.info.status

    @property
    def report(self) -> Path:
        """The report, a page for a browser. ``fedward report FOLDER`` writes it again."""
        return self.folder / REPORT

    @property
    def clinician_page(self) -> Path:
        """One page in plain words; a survey has none."""
        return self.folder / SHEET

    @property
    def best_round(self) -> int | None:
        """The round whose model :func:`fedward.load_model` takes, the best by validation.

        Without validation images it is the last evaluated round. None before any evaluation.
        """
        return self._choices.reported

    @property
    def test(self) -> Outcome | None:
        """The key metric of the best round's model on test images, as the console prints it.

        It has the fields ``metric``, ``round``, ``value`` (mean over ``sites``), ``images`` and
        ``unit``. None if the run failed or no site has test images enough.
        """
        return outcome(self.folder, self.info.summary)

    @property
    def numbers(self) -> Mapping[str, float]:
        """Metric -> mean over sites of its value on test images, of the best round's model.

        For example ``accuracy`` or ``f1_weighted``, in [0, 1]. Metrics without a value are omitted.
        """
        more_metrics = self.info.experiment.get("metrics") or ()
        numbers = {}
        for name in (*self.label_kind.metric_names, *more_metrics):
            value = mean(site_test_values(self, name, self.best_round).values())
            if value is not None:
                numbers[name] = value
        return numbers

    @property
    def verdict(self) -> str:
        """The sentences with which the report begins: is the model of use, and where is it not?"""
        judgement = self.judgement
        return in_short.paragraph(judgement) if judgement else NOT_JUDGED

    @property
    def judgement(self) -> Verdict | None:
        """The numbers of the verdict: what was tested, lowest class, site and group, confidence.

        None where no site measured the model on test images.
        """
        return judge(self)

    @property
    def _choices(self) -> Choices:
        return Choices.of(self, self.key_metric)

    def __repr__(self) -> str:
        sites = len(self.info.sites)
        return f"<Run {self.folder}: {self.title}, {self.status}, {sites} sites>"
