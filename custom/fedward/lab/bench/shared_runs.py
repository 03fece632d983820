"""Which studies have some of the same runs: they are judged together.

Runs are the same if data set, cut, network and all settings are, whatever the seeds.
"""

from collections.abc import Iterator

from pydantic import ValidationError

from fedward.errors import ConfigError
from fedward.lab.bench.bounds import has_bounds
from fedward.lab.bench.records import with_defaults
from fedward.lab.bench.results import Results, kept_with_results


def sharing_runs(results: Results, variant: str) -> Iterator[tuple[Results, str]]:
    """Yield (other study, its variant) of the neighbours' variants that share runs with a variant.

    A study without bounds is judged as a whole, so that no variant of it escapes.
    """
    if not results.neighbours:
        return
    variants = (variant,) if has_bounds(results, variant) else tuple(results.study.variants)
    own_keys = _run_keys(results)
    ours = {key for name in variants for key in own_keys[name]}
    for neighbour in results.neighbours:
        for other_variant, keys in _run_keys(neighbour).items():
            if ours & keys:
                yield neighbour, other_variant


@kept_with_results
def _run_keys(results: Results) -> dict[str, set[tuple[object, ...]]]:
    """Return variant -> what the runs of its rows are of, without the seed."""
    keys: dict[str, set[tuple[object, ...]]] = {}
    for variant in results.study.variants:
        of_rows = [_run_key(results, variant, row) for row in results.study.rows_of(variant)]
        keys[variant] = {key for key in of_rows if key is not None}
    return keys


def _run_key(results: Results, variant: str, row: str) -> tuple[object, ...] | None:
    """Return what a row's runs are of, without the seed; None if there is nothing to share.

    It is the cut, whether sites are alone, all settings, and the same of the row whose weights it
    begins with.
    """
    study = results.study
    variant = study.variant_of(variant, row)
    records = results.repetitions(variant, row)
    if not records:
        return None
    try:
        experiment = with_defaults(records[0].experiment)
    except (ValidationError, ConfigError):
        # A line that no version of today could run again shares its run with no other study.
        return None
    settings = experiment.model_copy(update={"seed": 0}).model_dump_json()
    needed = tuple(_run_key(results, variant, name) for name in study.rows[row].needs)
    return (results.cut(variant, row), study.rows[row].alone, settings, needed)
