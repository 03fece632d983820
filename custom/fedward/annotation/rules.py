"""The rules of reading: what an answer may be, which images share one, and how many must agree."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedward.annotation.records import NO_CLASS, NONE_OF_THESE
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.labels import NO_FINDING, SEPARATOR


@dataclass(frozen=True)
class Rules:
    """The rules that decide which answer counts.

    They are the part ``reading`` of a site file, and the kind of labels that the job asks for.
    """

    readers: int = 1
    """How many people must decide a question before its answer counts."""
    adjudicators: frozenset[str] = frozenset()
    """Readers who decide where others differ; empty: anyone who has not answered yet."""
    lesions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Image -> its patient and lesion, for images that may share an answer with others."""
    label_kind: LabelKind = ONE_LABEL
    """What an answer may name: one of the classes, or any number of them."""
    repeat: float = 0.0
    """The share of a reader's questions that come again; see :mod:`fedward.annotation.checks`."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Image of known class -> its label; readers are shown it to check them."""

    @property
    def has_checks(self) -> bool:
        """Whether checks are mixed in between the questions of readers."""
        return bool(self.repeat or self.known)

    def checks(self, annotator: str) -> bool:
        """Return whether checks are mixed in between the questions of this reader."""
        return self.has_checks and annotator not in self.adjudicators

    def together(self, sample_id: str) -> tuple[str, ...]:
        """Return the images that an answer to this one is about, itself among them, sorted."""
        lesion = self.lesions.get(sample_id)
        if lesion is None:
            return (sample_id,)
        return self._images_of_lesion[lesion]

    @property
    def no_class(self) -> tuple[str, ...]:
        """The answers that may be given in place of a label.

        Where an answer may name several findings, that an image shows none of them is a label too.
        """
        if self.label_kind.exclusive:
            return NO_CLASS
        return tuple(answer for answer in NO_CLASS if answer != NONE_OF_THESE)

    def findings(self, label: str) -> frozenset[str]:
        """Return the classes that a label names."""
        names = frozenset(self.label_kind.split(label))
        if self.label_kind.exclusive:
            return names
        return names - {NO_FINDING}

    def label(self, text: str, words: Mapping[str, str]) -> str:
        """Return the label that a text means: a class, or findings in alphabetical order.

        Args:
            text: a class; or findings with a bar between them, ``No Finding`` or ``none of these``.
            words: a word that may stand for a class -> the class; empty for a word to ignore.

        Raises:
            ValueError: the text is not a label; the message lists what may be written.
        """
        if self.label_kind.exclusive:
            class_name = words.get(text)
            if not class_name:
                raise ValueError(", ".join(words))
            return class_name
        return self._findings_label(text, words)

    def _findings_label(self, text: str, words: Mapping[str, str]) -> str:
        class_of_word = {**words, NO_FINDING: NO_FINDING, NONE_OF_THESE: NO_FINDING}
        parts = {part.strip() for part in text.split(SEPARATOR)}
        are_known = parts <= class_of_word.keys()
        contradicts_itself = len(parts) > 1 and bool(parts & {NO_FINDING, NONE_OF_THESE})
        names = {class_of_word.get(part, part) for part in parts} - {""}
        if not names or not are_known or contradicts_itself:
            raise ValueError(
                f"{', '.join(words)} (with {SEPARATOR} between several), {NO_FINDING} (alone)"
            )
        return SEPARATOR.join(sorted(names - {NO_FINDING})) or NO_FINDING

    @cached_property
    def _images_of_lesion(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Lesion -> its images, sorted."""
        images: dict[tuple[str, str], list[str]] = defaultdict(list)
        for sample_id, lesion in self.lesions.items():
            images[lesion].append(sample_id)
        return {lesion: tuple(sorted(ids)) for lesion, ids in images.items()}
