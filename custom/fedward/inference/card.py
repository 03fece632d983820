"""The model card: where a model comes from, how good it was, and what it is not for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedward.digests import file_digest
from fedward.errors import RunError, listed, reason_of
from fedward.evaluation.selection import mean
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.inference.model import TrainedModel
from fedward.json_text import read_json_file
from fedward.runs.about import NOT_STATED, About, with_titles
from fedward.runs.judge import judge
from fedward.runs.measured import Measured
from fedward.runs.run import Run
from fedward.runs.sentences import named
from fedward.runs.site_lines import SiteLine, site_lines
from fedward.runs.titles import METRIC_TITLES
from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words import coverage, in_short
from fedward.runs.verdict_words.shares import percent
from fedward.storage.audit import LOG
from fedward.terminal import one_line
from fedward.text import count

RESEARCH_ONLY = "Research alone. It is not a medical device, and not for diagnosis or treatment."
_TEXT = """# Model card: {title}

> {research}

{summary}

## Use

Run it in this folder. `predictions.csv` then has a line for each image: its path and the
probabilities, in the order of the classes below.

```sh
pip install torch "monai[ignite,fire]" pillow
python -m monai.bundle run --config_file configs/inference.json \\
    --dataset_dir IMAGES --output_dir OUTPUT
```

The run stops at an image that cannot be read, is blank, is DICOM, or has colours of 16 bits.
`scripts/decoding.py` reads images as in the training. It is a part of fedward (Apache-2.0).

| | |
|---|---|
| input | {channels} x {size} x {size}, float32 in [0, 1]; pictures are squashed to this size |
| sites with `fit: crop` in their file | cut out the central square first: `--fit crop` |
| output | probabilities of {number} classes: {classes} |
| network | {net}, with its input normalisation and {output} inside |
| temperature | {temperature} |

## Intended use

Research on images like those of the sites below: of the same kind, from the same kind of device
and patients{each}.
Before any use elsewhere, evaluate the model on local images (`fedward evaluate`).

What the study states about itself. Nobody has checked it.

{study}

## Limits

- {others}
- A probability is no measure of doubt unless it was calibrated where it is used.
- Sites differ. A mean over sites hides those at which the model is poor.
- {tested} Elsewhere it may be worse.
- The model may reveal something about its training images.

## Data

{counted}

{data}

What the sites state about their images:

{cards}

## Performance

{verdict}

Shares of right answers; of a class that is its sensitivity. What is expected of a group is the
share of all images of the same classes and sites, and the group furthest below it comes first.

{shares}

What this model reaches on each site's test images.

{performance}

## Provenance

| | |
|---|---|
| run | `{run}`, ended {ended} |
| method | {method}, {rounds}, seed {seed} |
| model | SHA-256 `{sha256}`, of the weights in the run folder |
| experiment | SHA-256 `{experiment}` |
| audit log | SHA-256 `{audit}`, last line `{last}` |
| written by | {versions} |
"""


@dataclass(frozen=True)
class ModelCard:
    """What a run folder says of one of its models."""

    model: TrainedModel
    run: Run
    round: int
    """The round after which it was the run's model."""

    @classmethod
    def of(cls, model: TrainedModel, folder: Path) -> "ModelCard":
        """Read the folder of a model's run.

        Raises:
            RunError: the folder is not a run folder, or a file is damaged.
        """
        names = [name for name in ("model", "best") if _is(folder / f"{name}.safetensors", model)]
        sidecar = folder / f"{names[0]}.json"
        try:
            round_ = int(read_json_file(sidecar)["round"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise RunError(
                str(sidecar),
                "Restore it from a copy.",
                expected="what the run recorded of the model, its round among it",
                found=reason_of(error),
            ) from error
        return cls(model, Run.load(folder), round_)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the run's sites."""
        return self.run.info.sites

    @property
    def summary(self) -> str:
        """What the model is, in two sentences."""
        classes = f"{len(self.model.classes)} classes"
        if not self.model.label_kind.exclusive:
            classes += " of which an image may show several or none"
        if self._verdict and self._verdict.unimproved:
            return (
                f"A classifier of 2D images into {classes}: the model before training with "
                f"{self.run.info.method}, which no round improved."
            )
        trained = sum(line.trained > 0 for line in site_lines(self.run)) or len(self.sites)
        images = "Images stayed at their sites."
        if self.run.info.simulated:
            images = "One machine simulated the sites."
        return (
            f"A classifier of 2D images into {classes}, trained with {self.run.info.method} in "
            f"{count(self.round, 'round')} of federated learning at {count(trained, 'site')}. "
            f"{images}"
        )

    @property
    def means(self) -> dict[str, float]:
        """Mean over sites of each test metric of this model that was measured."""
        means = {name: mean(self._values(name).values()) for name in self._shown}
        return {name: value for name, value in means.items() if value is not None}

    def text(self) -> str:
        """Return the card as Markdown."""
        info = self.run.info
        spec = self.model.experiment
        end = info.audit or {}
        return _TEXT.format(
            title=_cell(f"{spec.data.name}, {info.method}"),
            research=RESEARCH_ONLY,
            summary=self.summary,
            channels=spec.data.channels,
            size=spec.data.image_size,
            number=len(self.model.classes),
            classes=listed(map(_cell, with_titles(self.run, self.model.classes))),
            net=f"`{_cell(spec.net)}`",
            temperature=self._temperature(),
            output=self.model.label_kind.output,
            each=", each of one of the classes" if self.model.label_kind.exclusive else "",
            others=self.model.label_kind.card_limit,
            counted=self._counted(),
            study=_table(("item", "statement"), self._study()),
            data=self._data(site_lines(self.run)),
            cards=_table(("item", "site", "statement"), self._cards()),
            tested=coverage.where_tested(self._verdict) if self._verdict else "Not tested.",
            verdict=_cell(self._judgement()),
            performance=self._performance(),
            shares=self._shares(),
            run=_cell(info.id),
            ended=_cell(f"{info.ended}"),
            method=_cell(info.method),
            rounds=count(self.round, "round"),
            seed=info.seed,
            sha256=self.model.sha256,
            experiment=spec.digest,
            audit=file_digest(self.run.folder / LOG),
            last=_cell(f"{end.get('last_hash')}"),
            versions=_cell(
                ", ".join(f"{name} {version}" for name, version in info.versions.items())
            ),
        )

    @cached_property
    def _verdict(self) -> Verdict | None:
        return judge(self.run, self.round)

    def _judgement(self) -> str:
        if self._verdict is None:
            return coverage.without_verdict(self.run, self.round)
        return in_short.paragraph(self._verdict)

    @property
    def _about(self) -> About:
        return About.of(self.run, site_lines(self.run))

    def _counted(self) -> str:
        return f"Counts of images as the sites reported them. {self._about.uncounted}".rstrip()

    def _study(self) -> list[tuple[str, str]]:
        return [(title, text or NOT_STATED) for title, text in self._about.study.items()]

    def _cards(self) -> list[tuple[str, str, str]]:
        rows = []
        for item in self._about.items:
            for text, sites in item.texts.items():
                rows.append((item.title, ", ".join(sites), text))
            if item.silent:
                rows.append((item.title, named(item.silent), NOT_STATED))
        return rows

    def _temperature(self) -> str:
        if self.model.temperature == 1:
            return "1: not calibrated"
        temperatures = self.model.temperature
        if not isinstance(temperatures, tuple):
            temperatures = (temperatures,)
        values = ", ".join(f"{value:.4g}" for value in temperatures)
        return f"{values}, fitted on validation images of one site"

    def _data(self, lines: Sequence[SiteLine]) -> str:
        rows = []
        for line in lines:
            counts = (line.labelled, line.unlabelled, line.val, line.test)
            rows.append((line.site, *(_count(count) for count in counts)))
        return _table(("site", "labelled", "unlabelled", "validation", "test"), rows)

    def _performance(self) -> str:
        metrics = self._shown
        values = {name: self._values(name) for name in metrics}
        rows = []
        for site in self.sites:
            rows.append((site, *(_value(values[name], site) for name in metrics)))
        rows.append(("mean over sites", *(_value(self.means, name) for name in metrics)))
        return _table(("site", *(METRIC_TITLES[name] for name in metrics)), rows)

    def _shares(self) -> str:
        """Return the shares of the verdict: of all images, and by class, site and group."""
        verdict = self._verdict
        if verdict is None:
            return ""
        rows = []
        if verdict.overall:
            rows.append(_share("all", verdict.overall))
        rows += [_share(f"class {one.name}", one) for one in verdict.parts]
        if verdict.exclusive:
            rows += [_share(f"site {one.name}", one) for one in verdict.sites]
        for group in verdict.subgroups:
            expected = f"{percent(group.expected)} %"
            rows.append(_share(f"group {group.title}", group.measured, expected))
        if not verdict.subgroups:
            untested = "not tested"
            rows.append(("groups, such as sex", untested, untested, untested, untested))
        unit = f"test {verdict.unit}s"
        return _table(("of", unit, "right", "95 % interval", "expected of a group"), rows)

    @property
    def _shown(self) -> tuple[str, ...]:
        return self.model.label_kind.card_metrics

    def _values(self, name: str) -> dict[str, float | None]:
        return self.run.metrics.values("test", name, self.round)


def _is(file: Path, model: TrainedModel) -> bool:
    return file.exists() and file_digest(file) == model.sha256


def _count(count: int | None) -> str:
    if count is None:
        return "not reported"
    if 0 < count < SMALLEST_COUNT:
        return f"fewer than {SMALLEST_COUNT}"
    return f"{count}"


def _share(name: str, share: Measured, expected: str = "-") -> tuple[str, str, str, str, str]:
    """Return a row of a share of right answers."""
    interval = "-"
    if share.low is not None and share.high is not None:
        ends = percent(share.low), percent(share.high)
        interval = f"{ends[0]} to {ends[1]} %"
    return name, _count(share.n), f"{percent(share.value)} %", interval, expected


def _value(values: Mapping[str, float | None], name: str) -> str:
    value = values.get(name)
    return "-" if value is None else f"{value:.3f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Return a text of a run that Markdown shows as it is: no cell, code, link or HTML begins."""
    return re.sub(r"([\\|`<\[])", r"\\\1", one_line(text))
