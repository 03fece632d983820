"""The report's section on labels that were bought during a run: curves, counts, and sentences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedward.report import figures, multiples
from fedward.report.comparison import lines_by_run
from fedward.report.figures import mean_line
from fedward.runs.run import Run
from fedward.runs.sentences import MOST_NAMED
from fedward.runs.titles import title_of
from fedward.storage.rows import QueryRow
from fedward.text import count


@dataclass(frozen=True)
class LabelLine:
    """What one site's questions brought, by its last answer."""

    site: str
    asked: int
    """Images it asked about in the run."""
    last: QueryRow
    """Its last row of queries.jsonl."""


@dataclass(frozen=True)
class Labels:
    """What the section shows."""

    sentences: Sequence[str]
    curve: Markup | None
    """Validation key metric against labels bought at all sites; None if none was bought."""
    curves: Mapping[str, Markup]
    """Site -> its own curve, for the shown sites that bought labels."""
    lines: Sequence[LabelLine]
    """The table's lines."""

    @classmethod
    def of(cls, run: Run, others: Sequence[Run], shown: Sequence[str]) -> "Labels | None":
        """Return the section; None for a run that buys no labels.

        Args:
            run: the run of the report.
            others: the runs it is compared with.
            shown: the sites that a table shows.
        """
        lines = label_lines(run)
        if not lines:
            return None
        curves = site_curves(run)
        most = max((max(curve) for curve in curves.values()), default=0)
        curves_shown = {site: curve for site, curve in curves.items() if site in shown}
        curve = None
        if curves:
            by_run = lines_by_run(run, others, lambda one: overall_curve(one, run.key_metric))
            curve = figures.label_curves(by_run, title_of(run.key_metric))
        return cls(
            sentences=sentences(run),
            curve=curve,
            curves=multiples.label_curves(curves_shown, most) if curves_shown else {},
            lines=[line for line in lines if line.site in shown],
        )


def label_lines(run: Run) -> list[LabelLine]:
    """Return one line per site that answered, in the run's order."""
    by_site: dict[str, list[QueryRow]] = {}
    for row in run.queries:
        by_site.setdefault(row.site, []).append(row)
    lines = []
    for site in run.info.sites:
        if site in by_site:
            rows = by_site[site]
            lines.append(LabelLine(site, sum(row.asked for row in rows), rows[-1]))
    return lines


def site_curves(run: Run) -> dict[str, dict[int, float]]:
    """Return site -> labels bought there -> validation key metric there.

    The value is that after the last round trained with so many labels. A site that got no label has
    no curve.
    """
    bought = _bought(run)
    curves = {}
    for site, values in run.series("val", run.key_metric).items():
        curve = _curve(bought.get(site, {}), values)
        if curve:
            curves[site] = curve
    return curves


def overall_curve(run: Run, metric: str) -> dict[int, float]:
    """Return labels bought at all sites -> mean of a validation metric over sites."""
    bought = _bought(run)
    totals = {}
    for round_ in sorted({row.round for row in run.queries}):
        totals[round_] = sum(_bought_by(by_round, round_) for by_round in bought.values())
    return _curve(totals, mean_line(run.series("val", metric)))


def _bought(run: Run) -> dict[str, dict[int, int]]:
    """Return site -> round -> labels bought there so far."""
    table: dict[str, dict[int, int]] = {}
    for row in run.queries:
        table.setdefault(row.site, {})[row.round] = row.bought
    return table


def _bought_by(by_round: Mapping[int, int], round_: int) -> int:
    """Return what a site had bought by a round, which it may have missed."""
    earlier = [number for number in by_round if number <= round_]
    return by_round[max(earlier)] if earlier else 0


def _curve(bought: Mapping[int, int], values: Mapping[int, float]) -> dict[int, float]:
    """Return labels bought -> value; empty if none was ever bought."""
    curve = {bought[round_]: value for round_, value in sorted(values.items()) if round_ in bought}
    return dict(sorted(curve.items())) if any(curve) else {}


def sentences(run: Run) -> list[str]:
    """Return what to know of the labels, and of sites whose questions were not all answered."""
    lines = label_lines(run)
    if not lines:
        return []
    newest = [line.last for line in lines]
    labelled = sum(row.labelled for row in newest)
    bought = sum(row.bought for row in newest)
    images = labelled + sum(row.unlabelled for row in newest)
    overall = [
        f"{count(bought, 'label')} came by asking, at {count(len(lines), 'site')}; {labelled} of "
        f"{count(images, 'training image')} had a label at the end."
    ]
    minutes = [row.minutes for row in newest if row.minutes is not None]
    if minutes:
        where = ""
        if len(minutes) < len(lines):
            sites = "only site" if len(minutes) == 1 else f"{len(minutes)} sites"
            where = f" at the {sites} that reported the time for one answer"
        duration = count(round(sum(minutes)), "minute")
        overall.append(f"Annotation took {duration}{where}.")
    return overall + [sentence for remark in _REMARKS for sentence in remark.on(lines)]


@dataclass(frozen=True)
class _Remark:
    """Something to know of the sites to which it applies."""

    applies: Callable[[LabelLine], bool]
    on_one: Callable[[LabelLine], str]
    """Returns the sentence on one site."""
    on_many: str
    """The sentence on too many sites to name, which follows their number."""

    def on(self, lines: Sequence[LabelLine]) -> list[str]:
        """Return a sentence on each site that it applies to; on many one on all together."""
        affected = [line for line in lines if self.applies(line)]
        if len(affected) > MOST_NAMED:
            return [f"{count(len(affected), 'site')} {self.on_many}"]
        return [self.on_one(line) for line in affected]


def _asked_nobody(line: LabelLine) -> bool:
    return not line.asked


def _got_no_answer(line: LabelLine) -> bool:
    return line.asked > 0 and not line.last.bought and line.last.waiting >= line.asked


def _got_no_label(line: LabelLine) -> bool:
    return line.asked > 0 and not line.last.bought and line.last.waiting < line.asked


def _waits(line: LabelLine) -> bool:
    return line.asked > 0 and line.last.bought > 0 and line.last.waiting > 0


_REMARKS = (
    _Remark(
        applies=_asked_nobody,
        on_one=lambda line: (
            f"{line.site} asked nobody: it trained with the {count(line.last.labelled, 'label')} "
            "it has."
        ),
        on_many="asked nobody: they trained with the labels they have.",
    ),
    _Remark(
        applies=_got_no_answer,
        on_one=lambda line: (
            f"{line.site} asked about {count(line.asked, 'image')} and got no label. Does somebody "
            "answer there?"
        ),
        on_many="asked about images and got no label. Does somebody answer there?",
    ),
    _Remark(
        applies=_got_no_label,
        on_one=lambda line: (
            f"{line.site} asked about {count(line.asked, 'image')}, and no answer was a label that "
            "it could use."
        ),
        on_many="asked about images, and no answer was a label that they could use.",
    ),
    _Remark(
        applies=_waits,
        on_one=lambda line: (
            f"At {line.site}, {line.last.waiting} of {count(line.asked, 'image')} asked about had "
            "no label yet."
        ),
        on_many="have images that they asked about and that had no label yet.",
    ),
    _Remark(
        applies=lambda line: line.last.unusable > 0,
        on_one=lambda line: (
            f"At {line.site}, {count(line.last.unusable, 'answer')} could not be used; the log "
            "there says why."
        ),
        on_many="got answers that could not be used; the logs there say why.",
    ),
)
"""What is said of single sites, in the order of the sentences."""
