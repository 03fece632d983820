"""Texts of labels that only a person can decide: is this no label, and are these two the same?

A table from a spreadsheet or from pandas holds ``NaN``, ``-1`` or ``?`` where nobody knows, and
``mel`` beside ``MEL``. None of these becomes a class by itself, and none is merged with another.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from unicodedata import category, normalize

from fedward.sites.answer_words import ABSENT, NO, YES
from fedward.text import composed

_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)(e[+-]?\d{1,2})?")
_GAPS = re.compile(r"[\s_\-\u2010-\u2015\u2212]+")
"""Spaces, underscores and all that looks like a hyphen."""
_LIST = re.compile(r"\s*[,;/+&]\s*")
_TRUTH = {**dict.fromkeys(YES, "1"), **dict.fromkeys(NO, "0")}
"""Answers in words -> the number that says the same."""
_SPREADSHEET_ERRORS = frozenset(
    {
        "#na",
        "#value!",
        "#ref!",
        "#div/0!",
        "#name?",
        "#null!",
        "#num!",
    }
)
"""What a spreadsheet shows where a formula fails."""
_CODES = frozenset(
    {
        "-1",
        "-9",
        "-99",
        "-999",
        "-9999",
        "99",
        "255",
        "999",
        "9999",
        "?",
        "??",
        "???",
        "-",
        "--",
        "---",
        "–",
        "—",
        ".",
        "..",
        "...",
        "*",
        "/",
    }
)
"""Numbers and signs that stand for an absent value."""
_ENGLISH = frozenset(
    {
        "unknown",
        "unk",
        "undefined",
        "undetermined",
        "not determined",
        "indeterminate",
        "inconclusive",
        "uncertain",
        "missing",
        "not available",
        "not applicable",
        "not known",
        "no label",
        "nolabel",
        "unclear",
        "unspecified",
        "blank",
        "empty",
        "pending",
        "unsure",
        "not sure",
        "not labeled",
        "to be determined",
        "to be reviewed",
        "not reviewed",
        "not assessed",
        "not evaluable",
        "not done",
        "nd",
        "n.d.",
        "unlabeled",
        "n.a.",
        "n. a.",
        "tbd",
        "todo",
    }
)
"""English words for it."""
_OTHER_LANGUAGES = frozenset(
    {
        "unbekannt",
        "leer",
        "unklar",
        "nicht bekannt",
        "keine angabe",
        "offen",
        "ausstehend",
        "inconnu",
        "inconnue",
        "indetermine",
        "non determine",
        "a determiner",
        "desconocido",
        "sconosciuto",
        "onbekend",
        "k.a.",
        "k. a.",
    }
)
"""Words of other languages for it."""
_UNKNOWN = ABSENT | _SPREADSHEET_ERRORS | _CODES | _ENGLISH | _OTHER_LANGUAGES
"""Texts, in lower case and without accents, that usually say that nobody knows."""
_MONTHS = "jan|feb|mar|mär|mrz|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez"
_MEASURE = re.compile(
    r"[<>~]? ?[+-]?\d+([.,]\d+)? ?%"
    r"|(\d{1,2}[-./]\d{1,2}[-./](\d\d){1,2}|\d{4}[-./]\d{1,2}[-./]\d{1,2})([ t].*)?"
    rf"|\d{{1,2}}[. -]+({_MONTHS})[a-z]*\.?|({_MONTHS})[a-z]*\.?[ -]\d{{1,4}}"
)
"""A percentage, or a date, which Excel also makes of labels such as ``1-2``."""
_PRINTED_LIST = re.compile(r"[\[{(]\s*['\"].*['\"]\s*[\]})]")
"""A list as Python or JSON prints it, such as ``['Edema', 'Mass']``."""
_PRINTED_TEXT = re.compile(r"'([^']*)'|\"([^\"]*)\"")
"""A text in such a list."""
_EDGES = " .,:;?!'\"`*()[]{}"
"""Signs at the ends of a label that rarely make it another."""
_LETTERS = str.maketrans(
    {
        **{"æ": "ae", "œ": "oe", "ø": "o", "ł": "l"},
        **dict(zip("аеорсухікмтвн", "aeopcyxikmtbh", strict=True)),
        **dict(zip("αορνκιτ", "aopvkit", strict=True)),
    }
)
"""Letters that are also written otherwise, and have no accent that Unicode parts from them, and
letters of other alphabets that look like Latin ones."""


class Undecided(NamedTuple):
    """Texts that a person must decide."""

    unknown: tuple[str, ...]
    """Those that may mean that there is no label."""
    alike: tuple[tuple[str, ...], ...]
    """Those that may be the same, in groups; the commonest, or the decided one, comes first."""
    fractions: tuple[str, ...] = ()
    """Numbers that are not whole, percentages and dates, as measurements are."""
    lists: tuple[str, ...] = ()
    """Those that are several other texts, with a comma or the like between them."""

    def meanings(self) -> dict[str, str]:
        """Return text -> class, as a person most likely decides; an empty class is no label."""
        meanings = dict.fromkeys(self.unknown, "")
        for first, *others in self.alike:
            meanings |= dict.fromkeys(others, first)
        return meanings


def undecided(
    counts: Mapping[str, int], meanings: Mapping[str, str], classes: Collection[str] = ()
) -> Undecided:
    """Return the texts that only a person can decide.

    Args:
        counts: text of a label -> its images.
        meanings: text -> class, as a person has decided.
        classes: further names that are decided.
    """
    decided = {*meanings.values(), *classes} - {""}
    open_texts = [text for text in counts if text and text not in meanings and text not in decided]
    unknown = tuple(text for text in open_texts if looks_unknown(text))
    known_texts = dict.fromkeys([*open_texts, *decided])
    spelt = _by_spelling([text for text in known_texts if text not in unknown])
    lists = tuple(text for text in open_texts if text not in unknown and _is_list(text, spelt))
    alike = tuple(_alike(spelt, counts, decided))
    fractions = tuple(text for text in open_texts if "." in _number(text) or is_measure(text))
    return Undecided(unknown, alike, fractions, lists)


def _by_spelling(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return what texts share that may be the same (:func:`_spelling`) -> these texts."""
    spelt: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        spelt[_spelling(text)].append(text)
    return spelt


def _alike(
    spelt: Mapping[str, Sequence[str]], counts: Mapping[str, int], decided: Collection[str]
) -> list[tuple[str, ...]]:
    """Return the texts of one spelling, sorted by :func:`_rank`, unless all are decided."""
    alike = []
    for texts in spelt.values():
        # Where a person has named each of them, they are decided.
        if len(texts) > 1 and not set(texts).issubset(decided):
            alike.append(tuple(sorted(texts, key=lambda text: _rank(text, counts, decided))))
    return alike


def _is_list(text: str, spelt: Mapping[str, Collection[str]]) -> bool:
    """Return whether a text lists several, of which one is alone in another place.

    A list as a program prints it needs no such place, and neither do texts between semicolons. A
    number with a decimal comma is a list only if each of its parts is a label, written alike.

    Args:
        text: of a label.
        spelt: all labels, by what :func:`_spelling` makes of them.
    """
    if _PRINTED_LIST.fullmatch(text):
        return True
    texts = parts_of(text)
    parts = [_spelling(part) for part in texts]
    if len(parts) < 2 or "" in parts:
        return False
    if _number(text):
        # By spelling, 25,0 would itself be the label 25.
        return all(part in spelt.get(_spelling(part), ()) for part in texts)
    return ";" in text or not set(parts).isdisjoint(spelt)


def parts_of(text: str) -> list[str]:
    """Return the texts of a label that lists several, as :attr:`Undecided.lists` has it."""
    if _PRINTED_LIST.fullmatch(text):
        return [first or second for first, second in _PRINTED_TEXT.findall(text)]
    return _LIST.split(text.strip())


def _rank(
    text: str, counts: Mapping[str, int], decided: Collection[str]
) -> tuple[bool, bool, int, int, str]:
    """Return the key that sorts spellings: decided ones first, then the commonest and shortest."""
    # Letters without a shape come from copying, and nobody could type the class again.
    is_plain = text.isprintable()
    return text not in decided, not is_plain, -counts.get(text, 0), len(text), text


def looks_unknown(text: str) -> bool:
    """Return whether a text usually says that nobody knows, such as ``NaN``, ``-1`` or ``?``."""
    return not {_tidy(text), without_accents(text), _number(text)}.isdisjoint(_UNKNOWN)


def names_nobody(group: str) -> bool:
    """Return whether the name of a group, such as a patient, usually says that nobody knows.

    Patients are numbered through, so that 99, 255 and 9999 are some of them. To tear one apart puts
    images of one patient into training and test, and to take several for one costs nothing.
    """
    number = _number(group)
    return looks_unknown(group) and (not number or number.startswith("-"))


def is_measure(text: str) -> bool:
    """Return whether a text is a percentage or a date."""
    return bool(_MEASURE.fullmatch(_tidy(text)))


def known_or_empty(text: str) -> str:
    """Return a text, or an empty one where it usually says that nobody knows."""
    return "" if looks_unknown(text) else text


def group_or_empty(text: str) -> str:
    """Return whom a cell names; empty where it says that nobody knows. 99 is a patient's number.

    Letters are composed: a name in both of Unicode's forms is one patient's.
    """
    return "" if names_nobody(text) else composed(text)


def hint(words: Iterable[str], names: Collection[str], example: str) -> str:
    """Return what to write for words that are no label of a job; empty without words.

    Args:
        words: of a row of a site's table.
        names: words that the site file names, and classes of the job.
        example: the class that a word of which nothing is known may mean.
    """
    hints = []
    for word in words:
        alike = [name for name in names if _spelling(name) == _spelling(word)]
        if alike:
            hints.append(f"if it is {alike[0]}, write {_field(word, alike[0])}")
        elif looks_unknown(word):
            hints.append(f"if it is no label, write {_field(word, '')}")
        else:
            # In single quotes, by which reasons are alike that differ in what they quote alone.
            field = "labels: {'" + word.replace("'", "''") + f"': {_quoted(example)}}}"
            hints.append(f"if it is for example {example}, write {field}")
    return f" ({'; '.join(hints)} into the site file)" if hints else ""


def _field(word: str, name: str) -> str:
    return f"labels: {_quoted({word: name})}"


def _quoted(value: str | dict[str, str]) -> str:
    """Return a value as JSON, which is YAML, too."""
    return json.dumps(value, ensure_ascii=False)


def _spelling(text: str) -> str:
    """Return what two texts share that may be the same.

    They may differ in case, gaps, accents, signs at their ends, and how a number is written.
    """
    tidy = _tidy(text)
    plain = _GAPS.sub(" ", without_accents(text)).strip(_EDGES)
    return _number(text) or _TRUTH.get(tidy) or plain or tidy


def without_accents(text: str) -> str:
    """Return a text in lower case and without accents."""
    letters = normalize("NFD", _tidy(text).translate(_LETTERS))
    return "".join(letter for letter in letters if category(letter) != "Mn")


def _tidy(text: str) -> str:
    # Cf: characters without a shape, such as a zero-width space.
    visible = "".join(letter for letter in text if category(letter) != "Cf")
    return " ".join(normalize("NFKC", visible).casefold().split())


def _number(text: str) -> str:
    """Return a number in one way of writing, as ``0`` for ``00`` and ``0,0``; empty for texts."""
    tidy = _tidy(text)
    if not _NUMBER.fullmatch(tidy):
        return ""
    value = float(tidy.replace(",", "."))
    return str(int(value)) if value.is_integer() else repr(value)
