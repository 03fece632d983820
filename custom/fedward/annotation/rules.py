"""How a site's images are read: what an answer may be and which images it is about, by how many,
who adjudicates.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedward.annotation.records import NO_CLASS, NONE_OF_THESE
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.labels import NO_FINDING, SEPARATOR


@dataclass(frozen=True)
class Rules:
    """The ``reading`` part of a site file, as far as it says which answer counts, and what the job
    asks for.
    """

    readers: int = 1
    """How many people must decide a question before its answer counts."""
    adjudicators: frozenset[str] = frozenset()
    """Who decides where readers differ; empty: anyone who has not answered yet."""
    lesions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Image -> its patient and lesion, of the images that share an answer with others."""
    label_kind: LabelKind = ONE_LABEL
    """What an answer may name: one of the classes, or any number of them."""

    def together(self, sample_id: str) -> tuple[str, ...]:
        """Return the images that an answer to this one is about, itself among them, sorted."""
        return self._images.get(self.lesions.get(sample_id, ("", "")), (sample_id,))

    @property
    def no_class(self) -> tuple[str, ...]:
        """What may be said in place of a label; where several may be named, that none is shown is a
        label.
        """
        if self.label_kind.exclusive:
            return NO_CLASS
        return tuple(answer for answer in NO_CLASS if answer != NONE_OF_THESE)

    def findings(self, label: str) -> frozenset[str]:
        """Return the classes that a label names."""
        names = frozenset(self.label_kind.split(label))
        return names if self.label_kind.exclusive else names - {NO_FINDING}

    def label(self, text: str, words: Mapping[str, str]) -> str:
        """Return what a text says as a label: a class, or the names of findings in alphabetical
        order.

        Args:
            text: a class; or findings with a bar between them, ``No Finding`` or ``none of these``.
            words: what may stand for a class -> the class, empty for none.

        Raises:
            ValueError: it says something else; the text is what was expected.
        """
        if self.label_kind.exclusive:
            found = words.get(text)
            if found:
                return found
            raise ValueError(", ".join(words))
        known = {**words, NO_FINDING: NO_FINDING, NONE_OF_THESE: NO_FINDING}
        said = {part.strip() for part in text.split(SEPARATOR)}
        names = {known.get(part, part) for part in said} - {""}
        if (
            not names
            or not said <= known.keys()
            or (len(said) > 1 and said & {NO_FINDING, NONE_OF_THESE})
        ):
            raise ValueError(
                f"{', '.join(words)} (with {SEPARATOR} between several), {NO_FINDING} (alone)"
            )
        return SEPARATOR.join(sorted(names - {NO_FINDING})) or NO_FINDING

    @cached_property
    def _images(self) -> dict[tuple[str, str], tuple[str, ...]]:
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for sample_id, lesion in self.lesions.items():
            found[lesion].append(sample_id)
        return {lesion: tuple(sorted(ids)) for lesion, ids in found.items()}
