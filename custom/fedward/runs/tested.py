"""Reads from a run's folder what its model was tested on, and what it was not tested on."""

from collections.abc import Iterable, Mapping

from fedward.runs.choices import site_test_values
from fedward.runs.run import Run
from fedward.runs.site_lines import site_lines
from fedward.runs.verdict import Tested


def images_by_class(run: Run, round_: int) -> dict[str, int]:
    """Return class -> its test images at the sites that report them, for classes with some.

    They come from the metrics alone, which each evaluating site has: its counts may be missing, and
    a class's share of all test images would be too small without that site's images.
    """
    images = {}
    for name in run.classes:
        support = site_test_values(run, f"support/{name}", round_)
        if any(support.values()):
            images[name] = round(sum(support.values()))
    return images


def tested_of(run: Run, round_: int, class_images: Mapping[str, int]) -> Tested:
    """Return what was tested in a run.

    Args:
        run: the run.
        round_: the round whose model was tested.
        class_images: as :func:`images_by_class` returns them for this round.
    """
    rows = run.metrics.test_rows(run.label_kind.metric_names[0], round_)
    evaluated = tuple(
        site for site in run.info.sites if site in rows and rows[site].value is not None
    )
    images = sum(rows[site].n for site in evaluated)
    not_everywhere = _classes_not_reported(run, round_, evaluated)
    unnamed = images - sum(class_images.values()) if run.label_kind.exclusive else 0
    lines = site_lines(run)
    return Tested(
        images=images,
        classes=tuple(name for name in run.classes if name in class_images),
        untested=tuple(name for name in run.classes if name not in class_images),
        partly=tuple(
            name for name in run.classes if name in class_images and name in not_everywhere
        ),
        unnamed=max(unnamed, 0),
        sites=run.info.sites,
        trained=tuple(line.site for line in lines if line.trained),
        evaluated=evaluated,
        without_training_images=tuple(
            line.site for line in lines if line.labelled == 0 and line.unlabelled == 0
        ),
        trains_at_sites=not run.server_labels,
    )


def _classes_not_reported(run: Run, round_: int, evaluated: Iterable[str]) -> set[str]:
    """Return the classes of which some site does not say how many images it has."""
    classes = set()
    for name in run.classes:
        support = run.metrics.values("test", f"support/{name}", round_)
        if any(support.get(site) is None for site in evaluated):
            classes.add(name)
    return classes
