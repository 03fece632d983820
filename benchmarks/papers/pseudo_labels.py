"""The table of pseudo-labels: how good they were, by the labels that the experiments hide."""

from collections.abc import Mapping, Sequence

from fedward.report.pseudo_labels import favourite, last_rows, quality
from fedward.report.run import Run
from papers.numbers import head, line, mean


def table(rows: Mapping[str, Sequence[Run]]) -> str:
    """Return a table in markdown of methods by their titles, with those whose sites noted anything; else nothing."""
    columns = ("share kept", "kept that are right", "all that are right", "sites' own models", "most kept (true share)")
    lines = [
        "\n### Unlabelled images, last three rounds of training\n",
        *head("method", "seeds", *columns, left=(0, 6)),
    ]
    found = {title: [judged for run in runs if (judged := last_rows(run))] for title, runs in rows.items()}
    for title, by_run in found.items():
        if by_run:
            numbers = zip(*map(quality, by_run), strict=True)
            told = [[value for value in column if value is not None] for column in numbers]
            cells = [mean(column, digits=3) if column else "-" for column in told]
            every = [row for judged in by_run for row in judged]
            lines.append(line(title, str(len(by_run)), *cells, favourite(every)))
    return "\n".join(lines) if any(found.values()) else ""
