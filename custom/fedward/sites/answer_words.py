"""Words of tables for yes, no, and an absent value, in lower case.

What a cell says of a finding (:mod:`fedward.sites.written`), and which labels may be the same or
none (:mod:`fedward.sites.label_texts`), goes by the same words.
"""

YES = frozenset(
    {
        "1",
        "true",
        "yes",
        "y",
        "wahr",
        "ja",
        "vrai",
        "oui",
        "verdadero",
        "vero",
        "si",
        "sí",
        "sì",
        "checked",
        "positive",
        "pos",
        "present",
        "✓",
    }
)
NO = frozenset(
    {
        "0",
        "false",
        "no",
        "n",
        "falsch",
        "nein",
        "faux",
        "non",
        "falso",
        "unchecked",
        "negative",
        "neg",
        "absent",
    }
)
ABSENT = frozenset(
    {
        "nan",
        "n/a",
        "#n/a",
        "na",
        "<na>",
        "nat",
        "null",
        "none",
        "nil",
        "(null)",
        "[null]",
    }
)
"""What programs write for an absent value."""
