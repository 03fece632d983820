"""How a data set is to be cut, and the command line that says so."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedward.errors import option_words
from fedward.lab.partition.faults import Decision
from fedward.lab.partition.label_choices import NO_CHOICES, LabelChoices
from fedward.lab.partition.opened_images import Contradicting
from fedward.lab.partition.subgroup_columns import subgroup_words
from fedward.sites.hiding_windows import window_words
from fedward.sites.rendering import PLAIN, Frames, Rendering
from fedward.terminal import column_with_names

_OPTIONS = {
    "sites": "sites",
    "by": "by",
    "gamma": "dirichlet",
    "labelled": "labelled",
    "labelled_sites": "labelled-sites",
    "oracle": "oracle",
    "images": "images",
    "prefix": "prefix",
    "val": "val",
    "test": "test",
    "evaluate_together": "evaluate-together",
    "server": "server",
    "pooled": "pooled",
    "resplit": "resplit",
    "seed": "seed",
    "classes": "classes",
    "contradicting": "contradicting",
}
"""Field of :class:`Wanted` -> its option."""


@dataclass(frozen=True)
class Wanted:
    """How a data set is to be cut."""

    sites: int | None = None
    by: str | None = None
    """Column with a site for each of its values."""
    gamma: float | None = None
    """Concentration of the Dirichlet law; None: evenly."""
    labelled: float = 1.0
    """Share of its training labels that a site sees."""
    labelled_sites: int | None = None
    """Number of sites that see labels; None: all."""
    oracle: bool = False
    """Whether the data's own labels answer a job that asks for labels."""
    seed: int = 0
    classes: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of a CSV; see :class:`fedward.lab.partition.csv_pool.CsvOptions`."""
    findings: Sequence[str] = ()
    """Columns of a CSV, each of which is a finding."""
    subgroups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Column of a CSV by which right answers are counted -> its groups; none: its values."""
    images: Path | None = None
    """Folder of the images that a CSV lists; None: the CSV's own."""
    choices: LabelChoices = NO_CHOICES
    """What labels mean that could mean several things."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Class -> what it stands for on pages."""
    prefix: str = ""
    """Start of the paths in a CSV that stands for the folder of images; empty: none does."""
    rendering: Rendering = PLAIN
    """How files become images."""
    pooled: bool = False
    """Whether one site trains on the images of all, which the sites only evaluate then."""
    resplit: bool = False
    """Whether validation and test images are set apart again where the data set has splits."""
    val: float | None = None
    """Share of the images that is set apart for validation; None: the default of site files."""
    test: float | None = None
    """Likewise, for testing."""
    contradicting: Contradicting | None = None
    """What becomes of pictures with several labels; None: they are refused."""
    unopened: bool = False
    """Whether the images are not opened, and all are cut: a study takes a data set as it is."""
    evaluate_together: bool = False
    """Whether a site of its own has the validation and test images of all sites."""
    server: float = 0.0
    """Share of the training images of each class at each site that the server has instead, as far
    as whole images or groups allow; they are public images."""


def command_of(source: Path, out: Path, wanted: Wanted) -> str:
    """Return the command line that cuts a data set in this way."""
    words: list[object] = ["fedward", "partition", source]
    default = Wanted()
    for field_name, option_name in _OPTIONS.items():
        value = getattr(wanted, field_name)
        is_list = isinstance(value, list | tuple)
        if value == getattr(default, field_name) or (is_list and not value):
            continue
        words.append(f"--{option_name}")
        if is_list:
            words += value
        elif value is not True:
            words.append(value)
    columns = [f"label={name}" for name in wanted.findings]
    for purpose, name in wanted.columns.items():
        if purpose != "label" or not wanted.findings:
            columns.append(f"{purpose}={name}")
    if columns:
        words += ["--columns", *columns]
    of_subgroups = subgroup_words(wanted.subgroups)
    # What begins with a dash would be taken for an option.
    undashed = [word for word in of_subgroups if not word.startswith("-")]
    if undashed:
        words += ["--subgroups", *undashed]
    words += [f"--subgroups={word}" for word in of_subgroups if word.startswith("-")]
    words += wanted.choices.arguments()
    words += _rendering_words(wanted.rendering)
    if wanted.titles:
        words += option_words("titles", wanted.titles)
    return shlex.join(f"{word}" for word in [*words, "--out", out])


def decided_command(
    source: Path, out: Path, wanted: Wanted, decisions: Mapping[str, Decision]
) -> str:
    """Return the command line that was typed, with these decisions besides."""
    changes: dict[str, Any] = dict(decisions)
    choices: dict[str, Any] = {
        name: changes.pop(name) for name in LabelChoices._fields if name in changes
    }
    if "labels" in changes:
        choices["meanings"] = {**wanted.choices.meanings, **changes.pop("labels")}
    if "label_kind" in changes:
        choices["kind"] = changes.pop("label_kind")
    if "columns" in changes:
        changes["columns"] = {**wanted.columns, **changes["columns"]}
    if "subgroups" in changes:
        changes["subgroups"] = dict(map(column_with_names, changes["subgroups"]))
    if "frames" in changes:
        changes["rendering"] = wanted.rendering._replace(frames=Frames(at_most=None))
        del changes["frames"]
    if "window" in changes:
        words = changes.pop("window")
        window = (float(words[0]), float(words[1])) if words else None
        rendering = changes.get("rendering", wanted.rendering)
        changes["rendering"] = rendering._replace(window=window)
    changes["choices"] = wanted.choices._replace(**choices)
    return command_of(source, out, replace(wanted, **changes))


def _rendering_words(rendering: Rendering) -> list[object]:
    """Return the options by which files become images in this way."""
    words: list[object] = []
    if rendering.frames:
        words += ["--frames", rendering.frames.at_most or "all"]
    if rendering.slices:
        words += ["--slices", rendering.slices.at_most, "--axis", rendering.slices.axis]
    if rendering.window:
        words += ["--window", *window_words(rendering.window)]
    if rendering.fit != PLAIN.fit:
        words += ["--fit", rendering.fit]
    return words
