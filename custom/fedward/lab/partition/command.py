"""``fedward partition``. Imports nothing heavy before it runs."""

import argparse
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedward.errors import ConfigError, listed, option
from fedward.lab.partition.arguments import FEDPERL_SHARE, add_arguments

if TYPE_CHECKING:
    from fedward.sites.rendering import Rendering


_OF_FEDPERL = {"source", "out", "sites", "by", "labelled", "pooled", "seed"}
"""Arguments that FedPerl's ten sites may be cut by; the others need ``sites`` or ``by``."""


def add_partition(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``partition``."""
    parser.set_defaults(command=_partition, unopened=False)
    add_arguments(parser)


def _partition(options: argparse.Namespace) -> int:
    if options.sites is None and options.by is None:
        return _fedperl(options)
    from fedward.lab.partition.cut import partition
    from fedward.lab.partition.label_choices import LabelChoices
    from fedward.lab.partition.wanted import Wanted

    labels = [name for purpose, name in options.columns if purpose == "label"]
    for name, pairs in (("titles", options.titles), ("labels", options.labels)):
        _refuse_repeated(name, pairs, "Write each with one class or title.")
    columns = [(purpose, name) for purpose, name in options.columns if purpose != "label"]
    _refuse_repeated("columns", columns, "Only labels may be in several columns.")
    together = f"Write all groups of a column together, as in {option('subgroups', 'sex=F,M')}."
    _refuse_repeated("subgroups", options.subgroups, together)
    wanted = Wanted(
        sites=options.sites,
        by=options.by,
        gamma=options.dirichlet,
        labelled=1.0 if options.labelled is None else options.labelled,
        labelled_sites=options.labelled_sites,
        oracle=options.oracle,
        seed=options.seed,
        classes=options.classes,
        columns=dict(options.columns),
        findings=labels if len(labels) > 1 else (),
        subgroups=dict(options.subgroups),
        images=options.images,
        choices=LabelChoices(
            meanings=dict(options.labels),
            uncertain=options.uncertain,
            blank=options.blank,
            no_finding=options.no_finding,
            kind=options.label_kind,
        ),
        titles=dict(options.titles),
        prefix=options.prefix,
        rendering=_rendering(options),
        pooled=options.pooled,
        resplit=options.resplit,
        val=options.val,
        test=options.test,
        evaluate_together=options.evaluate_together,
        server=options.server,
        contradicting=options.contradicting,
        unopened=options.unopened,
    )
    print(partition(options.source, options.out, wanted))
    return 0


def _refuse_repeated(name: str, pairs: Sequence[tuple[str, object]], remedy: str) -> None:
    """Raise ConfigError if an option names something with two values: one would get lost."""
    counts = Counter(first for first, _ in pairs)
    repeated = [first for first, number in counts.items() if number > 1]
    if repeated:
        raise ConfigError(
            option(name), remedy, expected="each once", found=f"{listed(repeated)} several times"
        )


def _rendering(options: argparse.Namespace) -> "Rendering":
    """Return how files become images, as the options say."""
    from fedward.sites.rendering import Frames, Rendering, Slices

    if options.axis and not options.slices:
        raise ConfigError(
            option("axis"),
            f"Say how many slices of a volume become images, as in {option('slices', 16)}.",
            expected=f"{option('slices')} besides",
            found="none",
        )
    window = None
    if options.window:
        centre, width = options.window
        if not (math.isfinite(centre + width) and width > 0):
            raise ConfigError(
                option("window"),
                "Write for example 40 400.",
                expected="a width above 0",
                found=f"{centre} {width}",
            )
        window = (centre, width)
    frames = None
    if options.frames:
        frames = Frames(at_most=None if options.frames == "all" else options.frames)
    slices = None
    if options.slices:
        slices = Slices(axis=options.axis or "axial", at_most=options.slices)
    return Rendering(window=window, frames=frames, slices=slices, fit=options.fit or "squash")


def _fedperl(options: argparse.Namespace) -> int:
    """Cut a pooled skin data set into FedPerl's ten sites."""
    from fedward.lab.partition.fedperl import (
        fedperl_layout,
        read_skin,
        write_centralised,
        write_site_files,
    )
    from fedward.lab.partition.out_folder import require_writable

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    defaults = vars(parser.parse_args(["SOURCE", "--out", "FOLDER"]))
    given = [
        option(name.replace("_", "-"))
        for name, default in defaults.items()
        if name not in _OF_FEDPERL and getattr(options, name) != default
    ]
    manifest = options.source / "manifest.csv"
    if given or (options.source.exists() and not manifest.exists()):
        raise ConfigError(
            "fedward partition",
            f"Say into how many sites, as in {option('sites', 4)}.",
            expected=f"{option('sites')} or {option('by')}",
            found=" and ".join(given) or f"{options.source}",
        )
    require_writable(options.out)
    layout = fedperl_layout(read_skin(manifest), options.seed)
    labelled = FEDPERL_SHARE if options.labelled is None else options.labelled
    write = write_centralised if options.pooled else write_site_files
    for path in write(layout, options.source, options.out, labelled, options.seed):
        print(path)
    print(f"\nNext: fedward run fedperl --site-files {shlex.quote(f'{options.out}')}")
    return 0
