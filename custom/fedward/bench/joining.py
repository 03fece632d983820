"""Does joining pay? For each site, the model that it trained alone beside the federation's, paired by seed."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from fedward.bench.numbers import difference, head, line, mean

_DIGITS = 3
Sites = Mapping[str, Mapping[str, float]]
"""Site -> metric -> test value, and ``images``, how many test images it has."""


def joining(title: str, metrics: Mapping[str, str], joined: Mapping[int, Sites], alone: Mapping[int, Sites]) -> str:
    """Return a table of sites in markdown, the last line with their mean; "" where no site can be compared.

    A site is compared in the seeds in which both models answered for as many of its test images.

    Args:
        title: line above the table.
        metrics: name -> its label in the table.
        joined: seed -> what the federation's model does at its sites, in the order of the table's lines.
        alone: seed -> what each site's own model does there.
    """
    pairs: list[dict[str, _Pair]] = []
    for seed in sorted(set(joined) & set(alone)):
        ours, theirs = joined[seed], alone[seed]
        same = [site for site in ours if site in theirs and ours[site]["images"] == theirs[site]["images"]]
        pairs.append({site: (ours[site], theirs[site]) for site in same})
    if not (sites := dict.fromkeys(site for pair in pairs for site in pair)):
        return ""
    columns = [
        f"{label}{model}" for label in metrics.values() for model in (", alone", ", joined", ", what joining brings")
    ]
    lines = [f"{title}\n", *head("site", "seeds", *columns)]
    for site in sites:
        seeds = [[pair[site]] for pair in pairs if site in pair]
        lines.append(line(site, str(len(seeds)), *_cells(metrics, seeds)))
    every = [list(pair.values()) for pair in pairs if pair]
    return "\n".join([*lines, line("mean over sites", str(len(every)), *_cells(metrics, every))])


_Pair = tuple[Mapping[str, float], Mapping[str, float]]
"""Metric -> test value of a site, joined and alone."""


def _cells(metrics: Mapping[str, str], seeds: Sequence[Sequence[_Pair]]) -> Iterator[str]:
    """Yield both models' values and their difference in each metric, from the pairs of sites of each seed."""
    for name in metrics:
        complete = [[pair for pair in pairs if all(name in values for values in pair)] for pairs in seeds]
        joined, alone = ([fmean(pair[side][name] for pair in pairs) for pairs in complete if pairs] for side in (0, 1))
        if joined:
            yield from (mean(alone, _DIGITS), mean(joined, _DIGITS), difference(joined, alone, _DIGITS))
        else:
            yield from ("",) * 3
