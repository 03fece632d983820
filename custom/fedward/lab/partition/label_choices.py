"""What a person decides of the labels of a data set, and the refusal where somebody must."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from fedward.errors import (
    ConfigError,
    DataError,
    did_you_mean,
    most_like,
    option,
    option_words,
)
from fedward.lab.partition.faults import Faults
from fedward.labels import SEPARATOR
from fedward.sites.label_texts import Undecided, is_measure, parts_of, undecided
from fedward.sites.written import CellRules, CountsAs


class LabelChoices(NamedTuple):
    """How labels are read that could mean several things; by default nothing is decided."""

    meanings: Mapping[str, str] = {}
    """Label in the data -> class; an empty class is no label."""
    uncertain: CountsAs | None = None
    """What -1 counts as in columns of findings."""
    blank: Literal["negative", "unlabelled"] | None = None
    """What an empty cell counts as in columns of findings, beside cells that are not empty."""
    no_finding: Literal["ignored", "unlabelled"] | None = None
    """What a row with ``No Finding`` beside a finding means: the finding, or no label."""
    kind: Literal["one", "several"] | None = None
    """How many classes an image may show; None: what the labels look like."""

    @property
    def cell_rules(self) -> CellRules:
        """How cells of findings are read that are neither 0 nor 1."""
        return CellRules(self.uncertain, self.blank)

    def decided(self, words: Sequence[str]) -> list[str]:
        """Return what words of an image mean, without those that are no label."""
        names = []
        for word in words:
            meaning = self.meanings.get(word, word)
            names += [part.strip() for part in meaning.split(SEPARATOR)]
        return [name for name in names if name]

    def options(self) -> list[str]:
        """Return the names of the options by which they were given."""
        return list(self._given())

    def arguments(self) -> list[str]:
        """Return the arguments of the command by which they are given."""
        words: list[str] = []
        for name, value in self._given().items():
            words += option_words(name, value)
        return words

    def _given(self) -> dict[str, str | Mapping[str, str]]:
        """Return option -> its value, of those that were given."""
        values: dict[str, str | Mapping[str, str] | None] = {
            "labels": self.meanings,
            "label-kind": self.kind,
            "uncertain": self.uncertain,
            "blank": self.blank,
            "no-finding": self.no_finding,
        }
        return {name: value for name, value in values.items() if value}


NO_CHOICES = LabelChoices()
_FEW_IMAGES = 20
"""So many images may each have a class of its own."""


def _require_shared(where: str, counts: Mapping[str, int], names: Collection[str]) -> None:
    """Raise DataError if most labels are of one image alone, as texts and measurements are."""
    images = sum(number for text, number in counts.items() if text)
    texts = [text for text in counts if text]
    if names or images < _FEW_IMAGES or len(texts) <= images / 2:
        return
    raise DataError(
        f"{where}, labels",
        f"Name another column, as in {option('columns', {'label': 'NAME'})}. To use some of these, "
        f"name them with {option('classes')}.",
        expected="labels that images share",
        found=f"{len(texts)} different ones for {images} images, as {texts[0]!r:.50}",
    )


def with_decisions(
    where: str,
    words: Iterable[str],
    choices: LabelChoices,
    names: Collection[str],
    faults: Faults,
) -> LabelChoices:
    """Return choices that decide all labels: a person's, and the likeliest where faults are noted.

    Labels that may be no label, or the same as another, are faults until a person decides.

    Args:
        where: for errors.
        words: the label of each image, or each of its findings.
        choices: what is decided.
        names: further names that are decided, as the person gave them.
        faults: gets what must be decided, each with the option that does so.
    """
    counts = Counter(words)
    strangers = [text for text in choices.meanings if text not in counts]
    if strangers:
        choices = choices._replace(meanings=_corrected(choices.meanings, counts))
        faults.note(
            ConfigError(
                option("labels"),
                "Write LABEL=CLASS for labels as the data has them.",
                expected=f"labels of the data ({', '.join(sorted(counts)):.300})",
                found=", ".join(f"{text}{did_you_mean(text, counts)}" for text in strangers),
            )
        )
    open_texts = undecided(counts, choices.meanings, names)
    is_of_labels = False
    with faults.noted():
        _require_shared(where, counts, names)
        _require_no_measures(f"{where}, labels", open_texts)
        is_of_labels = True
    if not is_of_labels:
        # What else is odd about the cells of another column is no fault of the labels.
        return choices
    lists = {text: SEPARATOR.join(parts_of(text)) for text in open_texts.lists}
    with faults.noted(labels=lists):
        _require_no_lists(f"{where}, labels", open_texts, counts)
    meanings = _likely_meanings(open_texts, choices, counts)
    with faults.noted(labels=meanings):
        _require_one_spelling(f"{where}, labels", open_texts, counts)
    return choices._replace(meanings={**choices.meanings, **meanings, **lists})


def _corrected(meanings: Mapping[str, str], counts: Mapping[str, int]) -> dict[str, str]:
    """Return the meanings of labels with those of unknown ones for the labels most like them.

    What was to be no label, as -1, is left out: a class that is like it, as 1, is one.
    """
    corrected = {}
    for text, meaning in meanings.items():
        if text in counts:
            corrected[text] = meaning
        elif meaning:
            corrected[most_like(text, counts) or text] = meaning
    return corrected


def _likely_meanings(
    open_texts: Undecided, choices: LabelChoices, counts: Mapping[str, int]
) -> dict[str, str]:
    """Return what a person most likely decides, so that two classes are left where there are two.

    ``+`` and ``-`` are two classes, although ``-`` alone would be no label; and so are ``A`` and
    ``a`` if there is no third one.
    """
    meanings = open_texts.meanings()
    alike = [text for texts in open_texts.alike for text in texts]
    for texts in (open_texts.unknown, alike):
        left = {choices.meanings.get(text, meanings.get(text, text)) for text in counts} - {""}
        if len(left) < 2:
            meanings |= {text: text for text in texts}
    return meanings


def _require_no_measures(where: str, open_texts: Undecided) -> None:
    """Raise DataError for labels that are measurements or dates."""
    if not open_texts.fractions:
        return
    kinds = "numbers that are not whole"
    if any(map(is_measure, open_texts.fractions)):
        kinds = "percentages, dates or numbers that are not whole"
    raise DataError(
        where,
        f"Name another column, as in {option('columns', {'label': 'NAME'})}. To keep them as "
        f"classes, name all classes, as in {option('classes', *open_texts.fractions):.200}",
        expected="labels that are classes",
        found=f"{kinds}: {', '.join(open_texts.fractions[:5])}",
    )


def _require_no_lists(where: str, open_texts: Undecided, counts: Mapping[str, int]) -> None:
    """Raise DataError for labels that are several labels."""
    if not open_texts.lists:
        return
    lists = {text: SEPARATOR.join(parts_of(text)) for text in open_texts.lists}
    raise DataError(
        where,
        "If an image may show several findings, write | between them, as in "
        f"{option('labels', lists)}. To keep such a label as a class: "
        f"{option('labels', {text: text for text in open_texts.lists})}.",
        expected="one class in each label",
        found=f"several in {'; '.join(_counted(text, counts) for text in open_texts.lists)}",
    )


def _require_one_spelling(where: str, open_texts: Undecided, counts: Mapping[str, int]) -> None:
    """Raise DataError for labels that may be no label, or the same as another."""
    if not open_texts.unknown and not open_texts.alike:
        return
    shown = [_counted(text, counts) for text in open_texts.unknown]
    for texts in open_texts.alike:
        shown.append(" beside ".join(_counted(text, counts) for text in texts))
    themselves = {text: text for texts in (open_texts.unknown, *open_texts.alike) for text in texts}
    raise DataError(
        where,
        f"Decide what they mean, as in {option('labels', open_texts.meanings())} (nothing after "
        "= is no label). To keep them as classes of their own: "
        f"{option('labels', themselves)}.",
        expected="labels that are classes, each written in one way",
        found="; ".join(shown),
    )


def _counted(text: str, counts: Mapping[str, int]) -> str:
    """Return a label with its number of images; letters that do not show are escaped."""
    written = text if text.isprintable() else ascii(text)
    return f"{written} ({counts[text]})"
