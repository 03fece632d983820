"""Tables 3 and 4 of FedAL (Deng, Yang, Suzuki, arXiv 2406.11310): percent, over five seeds."""

from typing import NamedTuple

METRICS = {"accuracy": "Micro-F1", "f1_macro": "Macro-F1", "auroc_macro": "AUC"}
"""Metrics of the tables by their names in run folders. Of one label an image, micro-F1 is the accuracy."""

HOSPITALS = ("A", "B", "C", "D")


class Score(NamedTuple):
    """Mean and standard deviation over the seeds."""

    mean: float
    sd: float


_TABLE_3 = """
centralised 87.20 0.35 79.62 0.26 92.07 0.44
full        86.31 0.98 78.53 0.30 91.89 0.33
aift        83.89 0.80 75.11 1.58 89.68 0.83
sa          84.33 1.07 76.39 1.45 90.36 0.90
mcdal       82.12 1.16 74.14 1.38 89.91 0.75
fedal       86.17 0.62 78.50 1.08 91.43 0.47
random      83.58 0.75 76.14 1.77 90.94 1.12
"""
"""Row; mean and standard deviation of each metric, mean over hospitals."""

_TABLE_4 = """
full      78.3 82.7 82.9 70.1 78.5
aift      73.4 78.4 81.6 67.1 75.1
sa        75.2 78.7 82.1 69.8 76.4
mcdal     73.8 75.4 79.5 67.7 74.1
fedal     76.3 84.3 82.7 70.5 78.5
random    76.0 79.4 80.8 68.0 76.1
localised 73.6 71.7 68.5 52.3 66.5
"""
"""Row; macro-F1 of each hospital, and their mean."""


def _read(text: str) -> dict[str, list[float]]:
    lines = [line.split() for line in text.strip().splitlines()]
    return {row: [float(number) for number in numbers] for row, *numbers in lines}


TABLE_3 = {
    row: {name: Score(*numbers[2 * index : 2 * index + 2]) for index, name in enumerate(METRICS)}
    for row, numbers in _read(_TABLE_3).items()
}
"""Row -> metric -> score, mean over hospitals."""

TABLE_4 = {row: dict(zip((*HOSPITALS, "mean"), numbers, strict=True)) for row, numbers in _read(_TABLE_4).items()}
"""Row -> hospital or ``mean`` -> macro-F1."""
