"""Cards: what clinical reporting asks of a study and of its sites, and what no program can know.

The items are those of TRIPOD+AI, CLAIM, CONSORT-AI and model cards that are neither settings nor
counts. All are free texts, and all are optional: pages call an empty one "not stated".
"""

from collections.abc import Mapping

LONGEST_TEXT = 300
"""Characters of one text of a card."""
EXPECTED_TEXT = f"1 to {LONGEST_TEXT} printable characters in one line"
"""What a text of a card is, for errors."""

SITE_ITEMS: Mapping[str, str] = {
    "labelled_by": "Who labelled, and how",
    "reference": "Reference standard",
    "included": "Included",
    "excluded": "Excluded",
    "dates": "Dates of the images",
    "devices": "Devices",
    "patients": "Patients",
    "approval": "Ethics approval",
    "contact": "Contact",
}
"""Field of a site's card -> its title on pages."""

STUDY_ITEMS: Mapping[str, str] = {
    "intended_use": "Intended use",
    "users": "Intended users",
    "not_for": "Not intended for",
    "reference": "Reference standard",
    "sample_size": "Sample size, and why",
    "threshold": "Decision threshold, and why",
    "registration": "Registration",
    "funding": "Funding",
    "contact": "Contact",
}
"""Field of a study's card -> its title on pages."""


def is_card_text(text: str) -> bool:
    """Return whether a text may be on a card: short, in one line, without control characters.

    Marks that change the direction of writing are control characters, too.
    """
    return 1 <= len(text) <= LONGEST_TEXT and text.isprintable() and text == text.strip()


def card(texts: Mapping[str, str], items: Mapping[str, str]) -> dict[str, str]:
    """Return a card as people write it, with all white space made single spaces.

    Args:
        texts: field -> text. Empty texts are left out.
        items: the fields that there are, as :data:`SITE_ITEMS`.

    Raises:
        ValueError: a field is unknown, or a text too long or not printable. Its text says what is
            expected.
    """
    unknown = [name for name in texts if name not in items]
    if unknown:
        raise ValueError(f"only the fields {', '.join(items)}")
    joined = {name: " ".join(text.split()) for name, text in texts.items()}
    stated = {name: text for name, text in joined.items() if text}
    for name, text in stated.items():
        if not is_card_text(text):
            raise ValueError(f"{EXPECTED_TEXT} as {name}")
    return stated
