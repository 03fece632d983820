"""The table of all recorded studies on the first page and on the results' first page."""

import results_table


def test_both_pages_have_the_table_of_the_recorded_lines() -> None:
    for page, text in results_table.texts().items():
        assert page.read_text(encoding="utf-8") == text, "run benchmarks/results_table.py"
