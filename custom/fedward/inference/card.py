"""What is to be known of a model before it is used: where it comes from, how good it was, what it
is not for.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedward.digests import file_digest
from fedward.errors import listed
from fedward.evaluation.selection import mean
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.inference.model import TrainedModel
from fedward.runs.run import Run
from fedward.runs.site_lines import SiteLine, site_lines
from fedward.runs.titles import METRIC_TITLES
from fedward.storage.audit import LOG
from fedward.terminal import one_line

RESEARCH_ONLY = "Research alone. It is not a medical device, and not for diagnosis or treatment."
_TEXT = """# Model card: {title}

> {research}

{summary}

## Use

Run it in this folder. `predictions.csv` then has a line for each image: its path and the probabilities, in the order of
the classes below.

```sh
pip install torch "monai[ignite,fire]" pillow
python -m monai.bundle run --config_file configs/inference.json --dataset_dir IMAGES --output_dir OUTPUT
```

The run stops at an image that cannot be read, is blank, is DICOM, or has colours of 16 bits.
`scripts/decoding.py` reads images as in the training. It is a part of fedward (Apache-2.0).

| | |
|---|---|
| input | {channels} x {size} x {size}, float32 in [0, 1]; larger images are squashed to this size |
| output | probabilities of {number} classes: {classes} |
| network | {net}, with its input normalisation and {output} inside |
| temperature | {temperature} |

## Intended use

Research on images like those of the sites below: of the same kind, from the same kind of device and patients{each}.
Before any use elsewhere, evaluate the model on local images (`fedward evaluate`).

## Limits

- {others}
- A probability is no measure of doubt unless it was calibrated where it is used.
- Sites differ. A mean over sites hides those at which the model is poor.
- The numbers below are of the sites that trained the model. Other hospitals must expect lower ones.
- The model may reveal something about its training images.

## Data

Counts of images as the sites reported them. Validation and test images of classes with fewer than {few} are left out.

{data}

## Performance

Of this model, on each site's test images.

{performance}

## Provenance

| | |
|---|---|
| run | `{run}`, ended {ended} |
| method | {method}, {rounds} rounds, seed {seed} |
| model | SHA-256 `{sha256}`, of the weights in the run folder |
| experiment | SHA-256 `{experiment}` |
| audit log | SHA-256 `{audit}`, last line `{last}` |
| written by | {versions} |
"""


@dataclass(frozen=True)
class ModelCard:
    """What a run folder tells of its model."""

    model: TrainedModel
    run: Run
    round: int
    """After which the model is that of the run."""

    @classmethod
    def of(cls, model: TrainedModel, folder: Path) -> "ModelCard":
        """Read a run folder, for one of its models."""
        name = next(
            name for name in ("model", "best") if _is(folder / f"{name}.safetensors", model)
        )
        return cls(
            model, Run.load(folder), int(json.loads((folder / f"{name}.json").read_text())["round"])
        )

    @property
    def sites(self) -> tuple[str, ...]:
        """Of the run."""
        return self.run.info.sites

    @property
    def summary(self) -> str:
        """In two sentences."""
        method = self.run.info.method
        sites = len(self.sites)
        several = (
            "" if self.model.label_kind.exclusive else " of which an image may show several or none"
        )
        return (
            f"A classifier of 2D images into {len(self.model.classes)} classes{several}, trained with {method} in "
            f"{self.round} rounds of federated learning at {sites} sites. Images stayed at their sites."
        )

    @property
    def means(self) -> dict[str, float]:
        """Mean over sites of each test metric of this model that was measured."""
        found = {name: mean(self._values(name).values()) for name in self._shown}
        return {name: value for name, value in found.items() if value is not None}

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
            classes=listed(map(_cell, self.model.classes)),
            net=f"`{_cell(spec.net)}`",
            temperature=self._temperature(),
            output=self.model.label_kind.output,
            each=", each of one\nof the classes" if self.model.label_kind.exclusive else "",
            others=self.model.label_kind.card_limit,
            few=SMALLEST_COUNT,
            data=self._data(site_lines(self.run)),
            performance=self._performance(),
            run=_cell(info.id),
            ended=_cell(f"{info.ended}"),
            method=_cell(info.method),
            rounds=self.round,
            seed=info.seed,
            sha256=self.model.sha256,
            experiment=spec.digest,
            audit=file_digest(self.run.folder / LOG),
            last=_cell(f"{end.get('last_hash')}"),
            versions=_cell(
                ", ".join(f"{name} {version}" for name, version in info.versions.items())
            ),
        )

    def _temperature(self) -> str:
        if self.model.temperature == 1:
            return "1: not calibrated"
        each = (
            self.model.temperature
            if isinstance(self.model.temperature, tuple)
            else (self.model.temperature,)
        )
        return f"{', '.join(f'{value:.4g}' for value in each)}, fitted on validation images of one site"

    def _data(self, lines: Sequence[SiteLine]) -> str:
        rows = [
            (line.site, *map(_count, (line.labelled, line.unlabelled, line.val, line.test)))
            for line in lines
        ]
        return _table(("site", "labelled", "unlabelled", "validation", "test"), rows)

    def _performance(self) -> str:
        values = {name: self._values(name) for name in self._shown}
        rows = [
            (site, *(_value(values[name], site) for name in self._shown)) for site in self.sites
        ]
        rows.append(("mean over sites", *(_value(self.means, name) for name in self._shown)))
        return _table(("site", *(METRIC_TITLES[name] for name in self._shown)), rows)

    @property
    def _shown(self) -> tuple[str, ...]:
        return self.model.label_kind.card_metrics

    def _values(self, name: str) -> dict[str, float | None]:
        return self.run.metrics.values("test", name, self.round)


def _is(file: Path, model: TrainedModel) -> bool:
    return file.exists() and file_digest(file) == model.sha256


def _count(count: int | None) -> str:
    return (
        "not told"
        if count is None
        else f"fewer than {SMALLEST_COUNT}"
        if 0 < count < SMALLEST_COUNT
        else f"{count}"
    )


def _value(values: Mapping[str, float | None], name: str) -> str:
    value = values.get(name)
    return "-" if value is None else f"{value:.3f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Return a text of a run as Markdown shows it: in one line, that begins no cell, code, link or
    HTML of its own.
    """
    return re.sub(r"([|`<\[])", r"\\\1", one_line(text))
