"""What a model was tested on, and what it was not tested on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedward.runs.choices import site_test_values
from fedward.runs.run import Run
from fedward.runs.site_counts import SiteCounts
from fedward.runs.site_lines import site_lines


@dataclass(frozen=True)
class Tested:
    """What was tested and what was not."""

    images: int
    """Test images, or patients, of all sites that were evaluated."""
    classes: tuple[str, ...]
    """Classes with numbers from one site or more, in the job's order."""
    untested: tuple[str, ...]
    """Classes without any number."""
    partly: tuple[str, ...]
    """Tested classes of which some evaluated site has no test image, or too few to name them."""
    unnamed: int
    """Evaluated images of classes too rare at their site to have numbers. Hospitals have none."""
    sites: tuple[str, ...]
    """All sites of the run."""
    trained: tuple[str, ...]
    """Sites whose training was used in some round."""
    evaluated: tuple[str, ...]
    """Sites that evaluated the model."""
    without_training_images: tuple[str, ...] = ()
    """Sites that only evaluate, for they have no training images."""
    trains_at_sites: bool = True
    """Whether the run needs its sites to train; False where the server alone has labels."""

    @classmethod
    def of(cls, run: Run, round_: int, class_images: Mapping[str, int]) -> "Tested":
        """Read what was tested from a run.

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
        return cls(
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

    @property
    def not_trained(self) -> tuple[str, ...]:
        """Sites that the model should have learned from, and did not."""
        if not self.trains_at_sites:
            return ()
        known = {*self.trained, *self.without_training_images}
        return tuple(site for site in self.sites if site not in known)

    @property
    def not_evaluated(self) -> tuple[str, ...]:
        """Sites whose images are in no number."""
        return tuple(site for site in self.sites if site not in self.evaluated)

    @property
    def all_classes(self) -> bool:
        """Whether every class has numbers, and no image of one may have been left out of them."""
        return not (self.untested or self.partly or self.unnamed)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing: no class, no image and no site."""
        return self.all_classes and not self.not_evaluated and not self.not_trained


def images_by_class(run: Run, round_: int, counts: SiteCounts) -> dict[str, int]:
    """Return class -> its test images at the sites that report them, for classes with some.

    They come from the sites' counts; without any, from the rows of the run's log.
    """
    if counts.merged is not None:
        counted = zip(run.classes, counts.merged.confusion.images.tolist(), strict=True)
        return {name: number for name, number in counted if number}
    images = {}
    for name in run.classes:
        support = site_test_values(run, f"support/{name}", round_)
        if any(support.values()):
            images[name] = round(sum(support.values()))
    return images


def _classes_not_reported(run: Run, round_: int, evaluated: Iterable[str]) -> set[str]:
    """Return the classes of which a site says neither how many images it has, nor that none."""
    classes = set()
    for name in run.classes:
        support = run.metrics.values("test", f"support/{name}", round_)
        if any(support.get(site) is None for site in evaluated):
            classes.add(name)
    return classes
