"""How a site's files become 2D images: the window, and what is taken of files that hold several."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

Window: TypeAlias = tuple[float, float]
"""Centre and width of the values that are shown, after the modality rescale: in Hounsfield units
for CT.
"""
Values: TypeAlias = npt.NDArray[np.float32]
Affine: TypeAlias = npt.NDArray[np.float64]
Percentile: TypeAlias = Annotated[float, Field(ge=0, le=100)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Frames(_Part):
    """Which frames of a DICOM file of several become images."""

    every: int = Field(1, ge=1)
    """Each k-th, from the first on."""
    at_most: int | None = Field(None, ge=1)
    """Of those, so many, evenly spaced; unset: all."""

    def chosen(self, count: int) -> Sequence[int]:
        """Return the numbers of the frames, from 0, of a file that has ``count``; ascending."""
        return evenly(range(0, count, self.every), self.at_most)


class Slices(_Part):
    """Which slices of a volume become images, and how they are shown where the site names no
    window.
    """

    axis: Literal["axial", "coronal", "sagittal"] = "axial"
    at_most: int = Field(16, ge=1)
    """Slices of a volume, evenly spaced among those that are not almost empty."""
    percentiles: tuple[Percentile, Percentile] = (1, 99)
    """Of the volume's values: what is black and what is white."""

    @model_validator(mode="after")
    def _ascending(self) -> "Slices":
        if self.percentiles[0] >= self.percentiles[1]:
            raise ValueError("percentiles: two numbers, the lower first")
        return self


class Rendering(NamedTuple):
    """How files are read; by default as 2D images alone, with their own windows."""

    window: Window | None = None
    """Of grey DICOM files and volumes."""
    frames: Frames | None = None
    """None: DICOM files of several frames are refused."""
    slices: Slices | None = None
    """None: volumes are refused."""

    @property
    def several(self) -> bool:
        """Whether a file may become several images."""
        return bool(self.frames or self.slices)

    def plain(self) -> dict[str, Any]:
        """Return what is set, as fields of a site file."""
        fields = {
            "window": self.window and list(self.window),
            "frames": self.frames and self.frames.model_dump(exclude_defaults=True),
            "slices": self.slices and self.slices.model_dump(mode="json"),
        }
        return {name: value for name, value in fields.items() if value is not None}


PLAIN = Rendering()


class Volume(NamedTuple):
    """The values of a scan, and how they lie in the patient."""

    values: Values
    """(x, y, z) in the order of the file."""
    affine: Affine | None
    """(4, 4) from indices to RAS; None: the file does not say, and z is the order of slices as they
    are shown.
    """
    window: tuple[Window, str] | None = None
    """Of the file, with the name of its VOI function; None: it has none, or several."""


def windowed(values: npt.NDArray[Any], window: Window, function: str) -> npt.NDArray[Any]:
    """Return values as 0..1 by a VOI function: LINEAR, LINEAR_EXACT or SIGMOID (DICOM PS3.3,
    C.11.2.1).
    """
    centre, width = window
    if function == "SIGMOID":
        return np.asarray(1 / (1 + np.exp(np.clip(-4 * (values - centre) / width, -500, 500))))
    if function == "LINEAR" and width > 1:
        centre = centre - 0.5
        width = width - 1
    return np.clip((values - centre) / width + 0.5, 0, 1)


def eight_bits(shown: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return finite values as 0..255; those outside 0..1 are cut off."""
    return np.asarray((np.clip(shown, 0, 1) * 255).round().astype(np.uint8))


def evenly(items: Sequence[int], most: int | None) -> Sequence[int]:
    """Return at most so many items: those in the middle of equal parts of the sequence. None: all."""
    if most is None or len(items) <= most:
        return items
    return [items[(2 * part + 1) * len(items) // (2 * most)] for part in range(most)]
