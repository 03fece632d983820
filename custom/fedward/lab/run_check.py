"""What is done before round 1 of a run on this machine: every image is opened once, and looked at.

All that starts such a run comes through here: ``fedward run``, ``fedward bench``,
:func:`fedward.run` and the scripts ``job.py``. What is said before round 1 is for the person who
sits at this machine and has all the images; nothing of it is sent.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedward.client.earlier_answers import with_present_answers
from fedward.client.site_data import DataSource
from fedward.config import Experiment
from fedward.console.live_line import live_line
from fedward.console.progress import State
from fedward.console.progress import duration as duration_in_words
from fedward.errors import DataError, command, listed, option
from fedward.evaluation.evaluated_images import fewest_measured
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.lab.duration import Passes, SiteSize, duration_of, passes_of
from fedward.labels import class_counts
from fedward.methods import job_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.survey import Survey
from fedward.operation.measured import measured_by
from fedward.operation.measured import unmeasured as why_unmeasured
from fedward.operation.next_step import NO_LABELS
from fedward.runs.sentences import MOST_SITES, omitted_sites
from fedward.sites import open_site
from fedward.sites.check import read_sites
from fedward.sites.dark_images import dark_count, dark_images
from fedward.sites.data import Images
from fedward.sites.hiding_windows import hiding_note_of_site
from fedward.sites.job_checks import by_reason
from fedward.sites.leaks import (
    Place,
    contradiction_notes,
    contradictions,
    dicom_images,
    leak_counts,
    leak_notes,
    leaks_between,
    pictures,
    sets_of,
)
from fedward.sites.path_patients import patients_in_paths_note
from fedward.sites.site_csv import SiteRows
from fedward.sites.site_file import NpzSite
from fedward.sites.unused_columns import patients_note, unused_patients_of_site
from fedward.terminal import fold, shortened
from fedward.text import count, natural

_EVALUATED = {"val": "validation", "test": "test"}
"""Split that models are evaluated on -> its name in sentences."""
_MOST_NAMED = 3
"""Sites that a sentence names."""
_FEW_SECONDS = 10.0
_ROW_OF_TABLE = re.compile(r"\S {3,}\S")
_LONGEST_SITE = 17
"""Letters of a site's name in the table."""

Say = Callable[[str], None]
"""Shows a person a line or a paragraph."""


@dataclass(frozen=True)
class OpenedSite:
    """What is known of a site once all its images have been opened."""

    name: str
    sizes: Mapping[str, int]
    """Set of :func:`fedward.sites.leaks.sets_of` -> number of images."""
    evaluated: int
    """Validation and test images, where any of them are evaluated."""
    seen_classes: int
    """Classes of which a training label is seen."""
    measured: Mapping[str, frozenset[int]]
    """Split -> classes, by their places, of which the site measures numbers."""
    left_out: int
    """Rows that are not used."""
    reasons: str
    """Why they are not, with their numbers; empty if there are none."""
    dark: tuple[str, ...]
    """Ids of images that are nearly black or of one grey."""
    dark_cause: str
    """The window that hides them, and another one, in sentences; empty if none is known to."""
    pictures: Sequence[tuple[bytes, Place]]
    """Hash and place of each image."""
    dicom: Sequence[tuple[Path, Place]]
    """DICOM file and place of each image that is of one; its header may name the patient."""
    answers: bool
    """Whether somebody answers a job that asks for labels."""
    patient_columns: tuple[str, ...]
    """Columns of its CSV that nothing uses although they look like patients."""
    path_notes: tuple[str, ...]
    """What its images' paths say of patients that nothing uses."""

    @property
    def training(self) -> int:
        """Number of training images."""
        return self.sizes["labelled"] + self.sizes["unlabelled"]


class Entered(NamedTuple):
    """What is known before round 1."""

    sites: list[str]
    """Those that take part."""
    leaks: Mapping[str, Mapping[str, int]]
    """What is in several splits, as :func:`fedward.sites.leaks.leak_counts` says."""


def folded(paragraph: str) -> str:
    """Return a paragraph in lines that fit a terminal; rows of a table keep their spaces."""
    lines: list[str] = []
    for line in paragraph.splitlines():
        lines += [line] if _ROW_OF_TABLE.search(line) else fold(line, others="  ") or [""]
    return "\n".join(lines)


def print_folded(paragraph: str) -> None:
    """Print a paragraph for people."""
    print(folded(paragraph))


class _Opening:
    """How far the opening of the images is, for the line in a terminal."""

    def __init__(self, sites: int) -> None:
        self._sites = sites
        self._site = ""
        self._place = 0
        self._files = 0

    def site(self, name: str) -> None:
        """Note that the images of the next site are opened."""
        self._site = name
        self._place += 1
        self._files = 0

    def file(self) -> None:
        """Note that a file has been opened."""
        self._files += 1

    def state(self) -> State:
        """Return the line."""
        if not self._site:
            return State("")
        opened = f", {count(self._files, 'file')}" if self._files else ""
        words = f"opens the images of {self._site} ({self._place} of {self._sites} sites{opened})"
        return State(words, (self._place - 1) / self._sites)


def enter(
    experiment: Experiment,
    sources: Sequence[DataSource],
    *,
    say: Say,
    allow_missing: bool = False,
    unmeasured: bool = False,
    workers: int = 1,
) -> Entered:
    """Open all images of the sites' files, say what follows, and return who takes part.

    Args:
        experiment: what is to run.
        sources: of the sites, each with a site file. Decoded images are kept in its ``cached``.
        say: shows what is to be known before round 1.
        allow_missing: go on without sites whose files or images cannot be used.
        unmeasured: go on even if too few classes would be measured.
        workers: sites that work at the same time.

    Raises:
        DataError: the files or images of some sites cannot be used, and ``allow_missing`` is not
            given, or none can; no site shows a label that the job needs; or nothing would be
            measured, and ``unmeasured`` is not given.
    """
    sites = _usable_sites(experiment, sources, allow_missing, say)
    names = [site.name for site in sites]
    for line in _table(experiment, sites):
        say(line)
    algorithm = job_of(experiment)
    if isinstance(algorithm, Survey):  # It trains nothing.
        return Entered(names, _say_what_is_odd(sites, say))
    # Before the lines on what is measured: without any label they would only repeat this error.
    _require_labels(algorithm, sites, say)
    # A run that leaves the classifier as it is has no numbers.
    has_numbers = not algorithm.requirements.tensors.untrained
    if has_numbers:
        for split in _EVALUATED:
            say(_measured_line(experiment, sites, split))
    leaks = _say_what_is_odd(sites, say)
    if has_numbers and not unmeasured:
        _require_measured(experiment, sites, [source for source in sources if source.site in names])
    say(_time_line(experiment, sites, workers))
    return Entered(names, leaks)


def _usable_sites(
    experiment: Experiment, sources: Sequence[DataSource], allow_missing: bool, say: Say
) -> list[OpenedSite]:
    """Open the images of all sites, and return those that can be used.

    Arguments are as those of :func:`enter`.

    Raises:
        DataError: some cannot be used, and ``allow_missing`` is not given, or none can.
    """
    names = [source.site for source in sources]
    # What the site files and CSVs say is looked at first: to open images takes much longer.
    read = read_sites(names, sources[0].site_folders, experiment.data)
    problems = dict(read.problems)
    opened: list[OpenedSite] = []
    if not problems or allow_missing:
        opened, unreadable = _opened(experiment, sources, read.usable)
        problems |= unreadable
    if problems:
        _refuse_or_say(problems, len(sources), allow_missing, say)
    return opened


def _say_what_is_odd(sites: Sequence[OpenedSite], say: Say) -> dict[str, dict[str, int]]:
    """Say what looks wrong with images; return :attr:`Entered.leaks`."""
    all_pictures = [pair for site in sites for pair in site.pictures]
    all_dicom = [pair for site in sites for pair in site.dicom]
    leaks = leaks_between(all_pictures, all_dicom)
    contradicting = contradiction_notes(contradictions(all_pictures))
    for line in (*contradicting, *leak_notes(leaks), *_odd_lines(sites)):
        say(line)
    return leak_counts(leaks)


def _opened(
    experiment: Experiment,
    sources: Sequence[DataSource],
    described: Mapping[str, SiteRows | NpzSite],
) -> tuple[list[OpenedSite], dict[str, str]]:
    """Return the sites whose images can be used, and site -> what is wrong with the others.

    ``described``: site -> what describes its images; sites without any are left out.
    """
    problems: dict[str, str] = {}
    opening = _Opening(len(described))
    sites = []
    with live_line(opening):
        for source in sources:
            if source.site not in described:
                continue
            opening.site(source.site)
            try:
                sites.append(_open(experiment, source, described[source.site], opening))
            except DataError as error:
                problems[source.site] = str(error).removeprefix(f"site {source.site}, ")
    return sites, problems


def _open(
    experiment: Experiment, source: DataSource, site: SiteRows | NpzSite, opening: _Opening
) -> OpenedSite:
    """Open all images of a site; DataError if they cannot be used."""
    assert source.file is not None, "a site without a file has a problem"
    spec = experiment.data
    data_in_files = open_site(site, spec, source.cached, after_each_file=opening.file)
    data = with_present_answers(data_in_files, source.file)
    dicom: list[tuple[Path, Place]] = []
    columns: list[str] = []
    path_notes: list[str] = []
    dark = dark_images(sets_of(data).values())
    dark_cause = ""
    if isinstance(site, SiteRows):
        entries = site.entries
        dicom = list(dicom_images(data, site.files, site.patients))
        dark_cause = hiding_note_of_site(dark, site.files, site.file.rendering)
        columns = unused_patients_of_site(site.file, entries)
        path_notes = patients_in_paths_note(
            [f"{entry.path}" for entry in entries], [entry.group for entry in entries]
        )
    splits = {"val": data.val, "test": data.test}
    measured = {split: _measured(experiment, images) for split, images in splits.items()}
    return OpenedSite(
        name=source.site,
        sizes={name: len(images) for name, images in sets_of(data).items()},
        evaluated=sum(len(images) for split, images in splits.items() if measured[split]),
        seen_classes=int(np.count_nonzero(class_counts(data.labelled.labels, len(spec.classes)))),
        measured=measured,
        left_out=len(data.rejected),
        reasons=by_reason(data.rejected),
        dark=tuple(dark),
        dark_cause=dark_cause,
        pictures=[(name, place._replace(site=source.site)) for name, place in pictures(data)],
        dicom=dicom,
        answers=data.annotation != "none",
        patient_columns=tuple(columns),
        path_notes=tuple(path_notes),
    )


def _measured(experiment: Experiment, images: Images) -> frozenset[int]:
    """Return the classes, by their places, of which a split of a site gives numbers."""
    return measured_by(experiment.data, images.labels, images.groups)


def _refuse_or_say(problems: Mapping[str, str], sites: int, allow_missing: bool, say: Say) -> None:
    """Refuse sites that cannot be used, or say that the run goes on without them."""
    sites_by_problem = defaultdict[str, list[str]](list)
    for site, problem in problems.items():
        sites_by_problem[problem].append(site)
    paragraphs = "".join(
        f"\n  {', '.join(alike)}: {problem}" for problem, alike in sites_by_problem.items()
    )
    unusable = f"{len(problems)} of {sites}"
    if len(problems) == sites or not allow_missing:
        remedy = "Fix them"
        if len(problems) < sites:
            remedy += f", or go on without these sites ({option('allow-missing', True)})"
        raise DataError(
            "site files",
            f"{remedy}:{paragraphs}",
            expected="images that can be used, at each site",
            found=f"{unusable} that cannot be used",
        )
    say(
        f"site files: {unusable} cannot be used, and the run goes on without these sites:"
        f"{paragraphs}"
    )


def _table(experiment: Experiment, sites: Sequence[OpenedSite]) -> Iterator[str]:
    """Yield a line for each site, and one for all."""
    names = ("labelled", "unlabelled", "val", "test")
    width = min(max(4, *(len(site.name) for site in sites)), _LONGEST_SITE)
    classes = len(experiment.data.classes)
    yield _row("site", (*names, "left out", "classes"), width)
    ordered = sorted(sites, key=lambda site: natural(site.name))
    for site in ordered[:MOST_SITES]:
        sizes = [f"{site.sizes[name]}" for name in names]
        cells = (*sizes, site.left_out, f"{site.seen_classes}/{classes}")
        yield _row(shortened(site.name, width), cells, width)
    if len(sites) > MOST_SITES:
        yield omitted_sites(len(sites))
    totals = [sum(site.sizes[name] for site in sites) for name in names]
    left_out = sum(site.left_out for site in sites)
    yield _row("all", (*totals, left_out, ""), width)


def _row(name: str, cells: Sequence[object], width: int) -> str:
    return (f"{name:<{width}}" + "".join(f"{cell:>11}" for cell in cells)).rstrip()


def _measured_line(experiment: Experiment, sites: Sequence[OpenedSite], split: str) -> str:
    """Return which classes are measured in a split, and where."""
    classes = experiment.data.classes
    title = _EVALUATED[split]
    evaluating = [site.name for site in sites if site.sizes[split]]
    if not evaluating:
        return f"{title}: no site has {title} images"
    # The sites that measure the same classes -> these classes.
    classes_at = defaultdict[tuple[str, ...], list[str]](list)
    for place, name in enumerate(classes):
        at = tuple(site.name for site in sites if place in site.measured[split])
        classes_at[at].append(name)
    nowhere = classes_at.pop((), [])
    parts = []
    for at, names in classes_at.items():
        which = listed(names)
        if len(names) == len(classes):
            which = f"all {len(classes)} classes"
        where = _sites_in_words(at)
        if len(at) == len(evaluating) > 1:
            where = f"each of {len(at)} sites"
        parts.append(f"{which} at {where}")
    if nowhere:
        unit = experiment.data.evaluate_by
        rule = f"a site needs {SMALLEST_COUNT} {unit}s of a class to measure it"
        parts.append(f"not measured: {listed(nowhere)} ({rule})")
    if split == "val" and len(nowhere) == len(classes):
        parts.append("so no round can be chosen as the best")
    elif split == "val":
        parts += _too_few_to_choose(experiment, sites)
    return f"{title}: {'; '.join(parts)}"


def _too_few_to_choose(experiment: Experiment, sites: Sequence[OpenedSite]) -> list[str]:
    """Return which sites choose a round by too few classes, in a clause; none without such sites.

    With one label an image a single class is too few.
    """
    needed = fewest_measured(experiment.data.label_kind)
    affected = [site.name for site in sites if 0 < len(site.measured["val"]) < needed]
    if not affected:
        return []
    measure = "measures" if len(affected) == 1 else "each measure"
    return [
        f"{_sites_in_words(affected)} {measure} a single class, so a model that always answers it "
        "looks perfect there"
    ]


def _sites_in_words(names: Sequence[str]) -> str:
    """Return the names of the first sites, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        shown += f" and {len(names) - _MOST_NAMED} more"
    return shown


def _odd_lines(sites: Sequence[OpenedSite]) -> Iterator[str]:
    """Yield what looks wrong: rows that are left out, dark images, columns of patients."""
    for site in sites:
        if site.reasons:
            yield f"left out at {site.name}: {site.reasons}"
    dark = [(len(site.dark), site.name, site.dark[0]) for site in sites if site.dark]
    if dark:
        images = sum(site.sizes[name] for site in sites for name in site.sizes)
        where = ", ".join(
            f"{number} at {site}, such as {example}" for number, site, example in dark
        )
        total = sum(number for number, _, _ in dark)
        causes = [f"At {site.name}: {site.dark_cause}" for site in sites if site.dark_cause]
        yield (
            f"looks wrong: {dark_count(total, images)} ({where}). "
            f"{' '.join(causes) or 'See them with fedward doctor'}"
        )
    for site in sites:
        for note in site.path_notes:
            yield f"looks wrong at {site.name}: {note}"
    columns = list(dict.fromkeys(name for site in sites for name in site.patient_columns))
    for note in patients_note(
        columns, lambda name: f"columns: {{group: {name}}} in the site files"
    ):
        yield f"looks wrong: {note}"


def _time_line(experiment: Experiment, sites: Sequence[OpenedSite], workers: int) -> str:
    """Return how long the run will take."""
    sizes = [
        SiteSize(site.sizes["labelled"], site.sizes["unlabelled"], site.evaluated) for site in sites
    ]
    passes: Passes = passes_of(experiment, sizes)
    estimate = duration_of(experiment, passes)
    shortest, longest = estimate.range_of(max(1, min(workers, len(sites))))
    if longest < _FEW_SECONDS:
        return f"time: a few seconds here ({estimate.device})"
    return (
        f"time: {duration_in_words(shortest)} to {duration_in_words(longest)} here "
        f"({estimate.device}), if the machine is as busy as now"
    )


def _require_labels(algorithm: Algorithm[Any], sites: Sequence[OpenedSite], say: Say) -> None:
    """Refuse a job that learns from labels where no site shows any and nobody gives any.

    Where the job asks for labels, say at which sites nobody answers.

    Raises:
        DataError: there is no label to learn from, or nobody whom the job could ask.
    """
    answered = any(site.answers for site in sites)
    needs = algorithm.requirements
    learns_elsewhere = needs.hidden_labels or "labels" in needs.server.images
    needs_none = learns_elsewhere or needs.tensors.untrained or (algorithm.active and answered)
    if not needs_none and not any(site.sizes["labelled"] for site in sites):
        raise DataError(NO_LABELS)
    silent = [site.name for site in sites if site.sizes["unlabelled"] and not site.answers]
    if not algorithm.active or not silent:
        return
    if not answered:
        raise DataError(
            "The job asks for labels, and nobody answers at any site: it would learn from the "
            "labels that are there, as fedavg does",
            "Say who answers (annotation: queue in the site files, or oracle where the data's own "
            f"labels do: {command('partition', option('oracle', True))}), or run fedavg.",
        )
    say(
        f"looks wrong: nobody answers the job's questions about labels at "
        f"{_sites_in_words(silent)}: annotation in the site files says who does"
    )


def _require_measured(
    experiment: Experiment, sites: Sequence[OpenedSite], sources: Sequence[DataSource]
) -> None:
    """Refuse a run that would measure nothing.

    Raises:
        DataError: the sites together measure too few classes on their test images.
    """
    tests = [site.measured["test"] for site in sites]
    folder = sources[0].site_folders[0]
    nothing = why_unmeasured(
        experiment.data, tests, folder, lambda: (source.whole() for source in sources)
    )
    if nothing:
        raise DataError(
            nothing.problem,
            f"To train without numbers: {option('unmeasured', True)}. {nothing.cure}",
        )
