"""Nested settings by their dotted names."""

from fedward.runs.settings import by_dotted_name

NESTED = {"net": "swin_28", "data": {"size": 28, "titles": {"MEL": "melanoma"}, "card": {}}}


def test_only_mappings_with_content_are_divided() -> None:
    assert by_dotted_name(NESTED) == {
        "net": "swin_28",
        "data.size": 28,
        "data.titles.MEL": "melanoma",
        "data.card": {},
    }


def test_a_mapping_may_stay_one_value() -> None:
    assert by_dotted_name(NESTED, whole=("data.titles",)) == {
        "net": "swin_28",
        "data.size": 28,
        "data.titles": {"MEL": "melanoma"},
        "data.card": {},
    }
