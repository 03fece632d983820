"""How eight diagnoses look under a dermatoscope, and what cameras make of it: the numbers behind
the drawing.
"""

from dataclasses import dataclass
from typing import TypeAlias

Colour: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class Spots:
    """Round structures inside a lesion: globules, milia-like dots, lacunae, ovoid nests, dotted
    vessels.
    """

    count: int
    size: float
    """Standard deviation of a dot, in image coordinates."""
    colour: Colour
    strength: float


@dataclass(frozen=True)
class Appearance:
    """Mean appearance of one diagnosis; strengths from 0 (absent) to 1."""

    red: float
    green: float
    blue: float
    """Main colour."""
    red2: float
    green2: float
    blue2: float
    """Second colour, in patches."""
    patches: float
    """How much of the second colour."""
    radius: float
    irregular: float
    """Relative amplitude of the border's waves."""
    soft: float
    """Width of the border."""
    network: float
    """Strength of the pigment network."""
    pitch: float
    """Its mesh width."""
    warp: float
    """How atypical (distorted) it is."""
    ridges: float = 0.0
    """Cerebriform ridges."""
    streaks: float = 0.0
    """Radial streaks at the border."""
    veil: float = 0.0
    """Blue-white veil."""
    scar: float = 0.0
    """White or keratin centre."""
    vessels: float = 0.0
    """Branching vessels."""
    scale: float = 0.0
    """White, scaly surface."""


APPEARANCES: dict[str, Appearance] = {
    "MEL": Appearance(
        0.34,
        0.22,
        0.17,
        0.12,
        0.09,
        0.10,
        0.8,
        0.56,
        0.22,
        0.07,
        0.5,
        0.40,
        0.8,
        streaks=0.7,
        veil=0.75,
    ),
    "NV": Appearance(0.55, 0.36, 0.24, 0.42, 0.26, 0.17, 0.4, 0.46, 0.05, 0.09, 0.75, 0.27, 0.1),
    "BCC": Appearance(
        0.80, 0.56, 0.52, 0.72, 0.46, 0.46, 0.4, 0.48, 0.13, 0.12, 0, 0.3, 0, vessels=0.85
    ),
    "AK": Appearance(
        0.78, 0.47, 0.42, 0.84, 0.62, 0.54, 0.6, 0.56, 0.16, 0.26, 0.35, 0.2, 0.4, scale=0.6
    ),
    "BKL": Appearance(
        0.58, 0.44, 0.30, 0.44, 0.31, 0.20, 0.5, 0.50, 0.09, 0.03, 0, 0.3, 0.2, ridges=0.8
    ),
    "DF": Appearance(
        0.64, 0.43, 0.34, 0.54, 0.33, 0.26, 0.3, 0.38, 0.05, 0.16, 0.5, 0.20, 0.1, scar=0.9
    ),
    "VASC": Appearance(0.58, 0.13, 0.20, 0.38, 0.07, 0.22, 0.5, 0.38, 0.08, 0.05, 0, 0.3, 0),
    "SCC": Appearance(
        0.76, 0.40, 0.36, 0.62, 0.26, 0.22, 0.5, 0.52, 0.17, 0.13, 0, 0.3, 0, scar=0.5, scale=0.35
    ),
}
"""Diagnosis -> its appearance, by the structures of the revised pattern analysis of dermoscopy."""

SPOTS: dict[str, tuple[Spots, ...]] = {
    "MEL": (Spots(6, 0.05, (0.07, 0.05, 0.06), 0.8),),
    "NV": (Spots(9, 0.05, (0.28, 0.16, 0.10), 0.5),),
    "BCC": (Spots(5, 0.085, (0.30, 0.31, 0.40), 0.85),),
    "AK": (Spots(14, 0.055, (0.93, 0.83, 0.68), 0.6),),
    "BKL": (Spots(10, 0.042, (0.95, 0.90, 0.78), 0.9), Spots(6, 0.05, (0.20, 0.13, 0.08), 0.7)),
    "DF": (),
    "VASC": (Spots(7, 0.11, (0.40, 0.02, 0.10), 0.9),),
    "SCC": (Spots(12, 0.042, (0.50, 0.08, 0.10), 0.85),),
}


@dataclass(frozen=True)
class Style:
    """A site's camera: colour gains, brightness exponent, dark corners, blur (pixels), noise, zoom,
    hair, gel.
    """

    gains: Colour = (1.0, 1.0, 1.0)
    gamma: float = 1.0
    corners: float = 0.2
    blur: float = 0.4
    noise: float = 0.015
    zoom: float = 1.0
    hair: float = 1.0
    gel: float = 0.3
