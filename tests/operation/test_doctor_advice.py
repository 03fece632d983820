"""What the doctor proposes where a run would measure nothing of its model."""

from pathlib import Path

import numpy as np
import pytest

from fedward import cli

ALREADY_ENOUGH = (
    "Next: cut the data again into another folder, with test images that are evaluated together: "
    "fedward partition ... --evaluate-together."
)
MORE_TESTS = (
    "Next: cut the data again into another folder, with more test images that are evaluated "
    "together: fedward partition ... --evaluate-together --val 0 --test 0.3."
)
MORE_IMAGES = (
    "Next: add images until classes have 10 labelled images each or more, to train and to test, "
    "or evaluate the model elsewhere with fedward evaluate."
)


@pytest.mark.parametrize(
    ("sites", "training", "tested", "instruction"),
    [
        (2, 9, 3, ALREADY_ENOUGH),
        (1, 20, 2, MORE_TESTS),
        (1, 3, 2, MORE_IMAGES),
    ],
)
def test_the_last_lines_are_one_instruction(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    sites: int,
    training: int,
    tested: int,
    instruction: str,
) -> None:
    """``training`` and ``tested`` are numbers of images of each of two classes at each site."""
    rng = np.random.default_rng(0)
    for number in range(1, sites + 1):
        arrays = {}
        for split, of_class in (("train", training), ("val", 0), ("test", tested)):
            arrays[f"{split}_images"] = rng.integers(0, 256, (2 * of_class, 28, 28), np.uint8)
            arrays[f"{split}_labels"] = np.repeat([0, 1], of_class)
        np.savez(tmp_path / f"{number}.npz", **arrays)
        site_file = f"{{kind: npz, file: {number}.npz, labels: {{0: A, 1: B}}}}"
        (tmp_path / f"site-{number}.yaml").write_text(site_file)
    words = ["doctor", f"{tmp_path}", "--classes", "A", "B", "--out", f"{tmp_path}"]
    assert cli.main(words) == 0
    _, _, last = capsys.readouterr().out.rpartition("(2 of the classes needed).\n")
    assert " ".join(last.split()) == instruction
    assert max(map(len, last.splitlines())) <= 80
