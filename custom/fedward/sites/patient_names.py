"""Which rows of a data set name the same patient, however their cells are written.

People type ``P01``, ``p01`` and ``P 01`` for one patient, Excel makes 7 of ``007``, and pandas 7.0.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from fedward.sites.label_texts import group_or_empty, without_accents

Words: TypeAlias = tuple[str, ...]
"""Words and numbers of a name, which all its spellings share."""
_WORDS = re.compile(r"\d+|[^\W\d_]+")
"""Runs of digits and runs of letters."""
_UMLAUTS = re.compile("(?<=[aou])e")
"""The letter that stands for two dots above the one before."""
_WHOLE = re.compile(r"(\d+)[.,]0+")
"""A whole number, as pandas writes it in a column with empty cells."""


class PatientNames(NamedTuple):
    """The patients, or other groups, of N rows."""

    of_rows: Sequence[str]
    """(N,) whom each row names, in one spelling; empty where it says that nobody knows."""
    spellings: Mapping[str, Sequence[str]]
    """Name -> its spellings, that name first; of those alone that have several."""


def patient_names(cells: Sequence[str], ids: Sequence[str] = ()) -> PatientNames:
    """Return the patients of N rows, each in the spelling that most cells have.

    To tear a patient apart puts images of one person into training and test. To take two patients
    for one only keeps their images together. So cells name one patient if their words and numbers
    are the same: case, accents, zeros before a number, and blanks and signs do not tell them apart.
    Nor does an e after a, o or u, as in ``Mueller`` for ``Müller``. ``1-23`` and ``12-3`` are two
    patients, and so are ``P1`` and ``P1a``.

    Args:
        cells: of the column of patients.
        ids: of the rows. A row that has its own id as its patient is alone, unless other rows name
            the patient, too: ids may differ in their case alone. Empty: rows have no ids.
    """
    names = [group_or_empty(cell) for cell in cells]
    own_ids = ids or [""] * len(names)
    words = {name: words_of(name) for name in set(names)}
    counts = Counter(
        name for name, own_id in zip(names, own_ids, strict=True) if words[name] and name != own_id
    )
    alike = defaultdict[Words, list[str]](list)
    for name in counts:
        alike[words[name]].append(name)
    spelling_of: dict[Words, str] = {}
    spellings: dict[str, list[str]] = {}
    for spelt, texts in alike.items():
        texts.sort(key=lambda text: (not text.isprintable(), -counts[text], len(text), text))
        spelling_of[spelt] = texts[0]
        if len(texts) > 1:
            spellings[texts[0]] = texts
    return PatientNames(
        [spelling_of.get(words[name], name) if words[name] else "" for name in names], spellings
    )


def words_of(name: str) -> Words:
    """Return the words and numbers of a patient's name, which all its spellings share.

    A name of signs alone is a word. One without a visible letter has none.
    """
    plain = without_accents(name)
    whole = _WHOLE.fullmatch(plain)
    words = _WORDS.findall(whole[1] if whole else plain) or [plain]
    return tuple(_plain(word) for word in words if word)


def _plain(word: str) -> str:
    """Return a number without zeros in front, or a word with a, o and u for ae, oe and ue."""
    if word.isdecimal():
        return word.lstrip("0") or "0"
    return _UMLAUTS.sub("", word)
