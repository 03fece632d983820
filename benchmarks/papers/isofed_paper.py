"""Tables 1 and 2 of IsoFed (Saha et al., MICCAI 2023): percent, from one run each.

The text's averages for PneumoniaMNIST (85.45) and the mean gain over RSCFed (6.91) do not follow from these cells.
"""

from typing import NamedTuple


class Scores(NamedTuple):
    """Percent on the official test images."""

    accuracy: float
    auroc: float
    """Macro, one versus rest."""
    precision: float
    """Macro; 0 for a class that is never predicted."""
    recall: float
    """Macro."""


_CELLS = """
blood     upper        4  79.57 96.61 77.65 75.70  79.45 96.80 78.28 73.31
blood     mt_wfedavg   3  77.32 96.70 74.16 73.79  70.89 95.11 73.46 65.06
blood     rscfed       3  76.94 95.54 75.11 71.18  75.18 94.99 76.55 68.96
blood     isofed       3  79.43 97.32 76.70 76.67  76.10 95.88 77.13 72.29
blood     mt_wfedavg   2  75.88 96.56 72.85 71.94  58.29 88.35 57.85 60.46
blood     rscfed       2  75.97 95.30 73.58 72.77  61.18 91.50 54.85 60.79
blood     isofed       2  80.47 97.25 77.11 78.11  64.05 90.01 60.26 64.03
blood     mt_wfedavg   1  75.24 95.13 72.43 70.37  52.56 89.39 57.89 55.81
blood     rscfed       1  71.88 93.96 70.47 67.75  19.35 64.31 07.05 23.62
blood     isofed       1  79.23 96.43 76.68 77.00  63.70 90.58 70.22 63.81
path      upper        4  70.45 94.92 72.13 69.84  68.97 94.93 68.05 67.58
path      mt_wfedavg   3  60.97 93.60 68.14 62.00  57.92 92.93 67.20 59.98
path      rscfed       3  61.55 93.71 61.00 58.95  58.33 93.59 60.68 58.73
path      isofed       3  63.10 94.73 69.25 64.62  60.23 93.98 52.80 61.66
path      mt_wfedavg   2  67.10 95.17 66.41 66.40  61.28 91.26 61.50 57.56
path      rscfed       2  64.18 93.17 60.79 58.89  58.83 90.35 58.88 55.02
path      isofed       2  70.32 94.74 65.96 64.86  64.00 93.46 63.88 61.22
path      mt_wfedavg   1  59.57 90.66 63.14 58.93  56.31 89.92 60.42 53.92
path      rscfed       1  64.75 94.09 66.89 63.66  57.42 89.43 54.96 53.53
path      isofed       1  66.48 92.24 63.71 62.06  64.02 93.99 66.12 62.39
pneumonia upper        4  87.34 95.32 86.71 89.02  87.02 95.64 86.45 88.76
pneumonia mt_wfedavg   3  86.54 95.20 85.94 88.21  86.86 94.85 85.92 87.86
pneumonia rscfed       3  86.58 95.63 89.02 88.68  86.70 94.50 85.75 87.65
pneumonia isofed       3  87.10 95.04 86.45 89.00  89.26 95.80 88.26 89.44
pneumonia mt_wfedavg   2  83.65 89.74 82.45 82.99  82.21 96.17 83.20 85.26
pneumonia rscfed       2  78.37 87.36 77.31 78.76  84.46 95.58 84.58 86.88
pneumonia isofed       2  84.70 90.75 83.56 84.64  82.68 95.15 83.34 85.41
pneumonia mt_wfedavg   1  81.41 89.84 82.05 77.69  79.97 94.45 81.28 83.12
pneumonia rscfed       1  78.85 86.66 77.56 76.84  62.50 50.00 31.25 50.00
pneumonia isofed       1  85.00 91.68 83.98 83.95  77.12 93.65 80.47 81.40
organa    upper        4  69.72 94.41 67.44 69.60  69.50 94.63 68.12 69.60
organa    mt_wfedavg   3  68.36 93.72 68.02 69.38  66.49 93.69 67.51 68.25
organa    rscfed       3  68.14 94.26 67.44 69.53  67.08 93.82 68.82 68.36
organa    isofed_wo_pt 3  68.98 94.32 68.83 69.88  67.45 93.98 67.85 69.35
organa    isofed       3  69.47 95.05 68.04 70.85  68.65 94.88 68.64 69.77
organa    mt_wfedavg   2  66.28 92.77 66.12 67.63  61.71 92.55 65.79 62.66
organa    rscfed       2  66.68 92.42 66.90 66.56  62.51 91.89 64.09 63.35
organa    isofed_wo_pt 2  68.67 93.25 67.65 68.50  64.37 92.11 65.70 65.17
organa    isofed       2  68.95 93.95 68.32 69.83  64.08 92.45 64.56 65.47
organa    mt_wfedavg   1  57.75 90.95 61.50 55.68  50.84 87.65 60.07 48.51
organa    rscfed       1  58.50 90.86 63.48 55.76  54.90 89.58 50.53 53.41
organa    isofed_wo_pt 1  62.03 91.36 64.50 61.44  56.40 89.79 61.61 55.72
organa    isofed       1  62.77 91.48 64.52 61.79  61.90 91.55 62.39 60.21
"""
"""Data set, method, labelled sites of four; then the four scores for gamma 0.8 and for 0.5."""


def _read(text: str) -> dict[tuple[str, str, int, float], Scores]:
    table = {}
    for line in text.strip().splitlines():
        dataset, method, labelled, *numbers = line.split()
        values = [float(number) for number in numbers]
        table[dataset, method, int(labelled), 0.8] = Scores(*values[:4])
        table[dataset, method, int(labelled), 0.5] = Scores(*values[4:])
    return table


PAPER = _read(_CELLS)
"""(data set, method, labelled sites of four, gamma) -> scores."""
