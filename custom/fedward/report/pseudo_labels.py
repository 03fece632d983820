"""The report's section on pseudo-labels: how many are used, and if known how many are right."""

from dataclasses import dataclass

from markupsafe import Markup

from fedward.report import figures
from fedward.runs.pseudo_labels import AgainstHiddenLabels, against_hidden_labels
from fedward.runs.run import Run


@dataclass(frozen=True)
class PseudoLabels:
    """What the section shows."""

    figure: Markup
    """Share of pseudo-labels that sites used, by round."""
    first: float
    """Mean share in the first measured round."""
    last: float
    """Mean share in the last measured round."""
    against_hidden: AgainstHiddenLabels | None
    """How they compare with the labels that a simulated run hides; None in a hospital's run."""
    against_hidden_figure: Markup | None
    """Classes of the used pseudo-labels by round."""

    @classmethod
    def of(cls, run: Run) -> "PseudoLabels | None":
        """Return the section; None for a run without pseudo-labels."""
        lines = run.series("train", "kept")
        if not lines:
            return None
        mean = figures.mean_line(lines)
        quality = against_hidden_labels(run)
        return cls(
            figure=figures.share_kept(lines, run.warm_up),
            first=mean[min(mean)],
            last=mean[max(mean)],
            against_hidden=quality,
            against_hidden_figure=figures.kept_classes(quality.rounds, quality.kept)
            if quality
            else None,
        )
