"""What a report says of pseudo-labels that sites have compared with hidden labels."""

from pathlib import Path

import pytest
from pages import report
from run_folders import CLASSES, SITES, write_run

from fedward.lab.pseudo_labels import note
from fedward.report import Run
from fedward.runs.pseudo_labels import OTHERS, Quality, against_hidden_labels, quality
from fedward.storage.rows import PseudoLabelRow

RUN = "0123456789abcdef" * 2


def counts(*numbers: int) -> dict[str, int]:
    return dict(zip(CLASSES, [*numbers, *[0] * len(CLASSES)], strict=False))


def test_quality_worked_by_hand() -> None:
    rows = [
        PseudoLabelRow(3, 0, {"a": 6, "b": 2}, 4, 16, 9, {"a": 5, "b": 5}),
        PseudoLabelRow(3, 0, {"a": 0, "b": 0}, 0, 16, 7, {"a": 0, "b": 10}),
    ]
    assert quality(rows) == Quality(0.25, 0.5, 0.5)
    assert quality(rows[1:])[:2] == (0.0, None)
    none = PseudoLabelRow(1, 0, {"a": 0}, 0, 0, 0, {"a": 5})
    assert quality([none]) == Quality(None, None, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sites; in round 1 nothing is kept, in rounds 2 to 5 ever more of the first class, which
    is rare.
    """
    run = write_run(tmp_path / "run", rounds=5)
    for site in SITES[:2]:
        for round_ in range(1, 6):
            kept = counts(10 * round_, 10, 0, 0, 0, 0, 5) if round_ > 1 else counts()
            note(
                run / "sites" / site,
                RUN,
                PseudoLabelRow(round_, 0, kept, 12, 100, 40, counts(1, 5, 2, 1, 1)),
            )
    return run


def test_classes_are_shown_by_round_beside_the_truth(folder: Path) -> None:
    found = against_hidden_labels(Run.load(folder))
    assert found is not None
    assert found.rounds == (2, 3, 4, 5)
    assert list(found.kept) == ["MEL", "NV", "VASC", "BCC", "AK", OTHERS]
    assert found.kept["MEL"] == pytest.approx([20 / 35, 30 / 45, 40 / 55, 50 / 65])
    assert [sum(shares) for shares in zip(*found.kept.values(), strict=True)] == pytest.approx(
        [1] * 4
    )
    assert found.last == pytest.approx((165 / 300, 36 / 165, 0.4))
    assert found.classes[0] == ("MEL", pytest.approx(0.1), pytest.approx(120 / 165))
    page = report(folder)[1]
    assert page.tables["table-pseudo"][1][:3] == ["MEL", "0.10", "0.73"]
    assert (
        "0.22 of the kept pseudo-labels were right, and 0.40 of all" in page.by_id["against-hidden"]
    )
    assert "in the last: MEL 0.77" in page.text


def test_without_notes_nothing_is_said(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds=2)
    note(run / "sites" / "site-1", RUN, PseudoLabelRow(1, 0, counts(), 0, 9, 3, counts(4)))
    note(run / "sites" / "site-1", "f" * 32, PseudoLabelRow(1, 0, counts(4), 0, 9, 3, counts(4)))
    assert against_hidden_labels(Run.load(run)) is None, (
        "nothing was kept, and the other file is of another run"
    )
    assert "table-pseudo" not in report(run)[1].tables
