"""Tables of a study in markdown: those that its page shows, and further ones."""

from fedward.lab.bench.difference_tables import (
    first_variant_table,
    lower_bound_table,
    pair_table,
    relative_table,
)
from fedward.lab.bench.markdown import folded
from fedward.lab.bench.results import Results
from fedward.lab.bench.run_tables import (
    convergence_table,
    peer_table,
    pseudo_label_table,
    site_table,
    work_table,
)
from fedward.lab.bench.value_tables import (
    last_rounds_table,
    pooled_table,
    reference_table,
    row_table,
    variant_table,
)


def tables(results: Results) -> str:
    """Return all tables of a study."""
    return f"{value_table(results)}\n\n{further_tables(results)}"


def value_table(results: Results) -> str:
    """Return the table that a page shows: the value of each row.

    In a study of several variants it has the first metric alone.
    """
    study = results.study
    if len(study.variants) > 1:
        return variant_table(results, study.metrics[0])
    return row_table(results)


def further_tables(results: Results) -> str:
    """Return the other tables: further metrics, differences, sites, pseudo-labels and work."""
    study = results.study
    parts: list[str] = []
    if len(study.variants) > 1:
        parts += [variant_table(results, metric) for metric in study.metrics[1:]]
        parts.append(folded("Last rounds", last_rounds_table(results)))
        parts.append(reference_table(results))
        if not study.by_labels:
            parts.append(_folded_differences(first_variant_table(results)))
    else:
        parts.append(pooled_table(results))
        parts.append(_folded_differences(lower_bound_table(results)))
    if study.compare:
        parts.append(_folded_differences(pair_table(results)))
        parts.append(_folded_differences(relative_table(results)))
    parts.append(convergence_table(results))
    parts.append(site_table(results))
    parts.append(peer_table(results))
    parts.append(pseudo_label_table(results))
    parts.append(work_table(results))
    return "\n\n".join(part for part in parts if part)


def _folded_differences(table: str) -> str:
    return folded("Differences, which are no claims and not corrected for their number", table)
