"""How a site's files become 2D images: windows, and which frames and slices are used."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedward.sites.decoding import Fit

T = TypeVar("T")
Window: TypeAlias = tuple[float, float]
"""Centre and width of the values that are shown, after the modality rescale: Hounsfield for CT."""
Values: TypeAlias = npt.NDArray[np.float32]
Affine: TypeAlias = npt.NDArray[np.float64]
Percentile: TypeAlias = Annotated[float, Field(ge=0, le=100)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Frames(_Part):
    """Which frames of a DICOM file, or pages of a TIFF file, of several become images."""

    every: int = Field(1, ge=1)
    """Every k-th frame, from the first on."""
    at_most: int | None = Field(None, ge=1)
    """Most of these that are used, evenly spaced; unset: all."""

    def chosen(self, count: int) -> Sequence[int]:
        """Return the numbers of the frames, from 0, of a file that has ``count``; ascending."""
        return evenly(range(0, count, self.every), self.at_most)


class Slices(_Part):
    """Which slices of a volume become images, and how they are shown without a window."""

    axis: Literal["axial", "coronal", "sagittal"] = "axial"
    at_most: int = Field(16, ge=1)
    """Slices of a volume, evenly spaced among those that are not almost empty."""
    percentiles: tuple[Percentile, Percentile] = (1, 99)
    """Percentiles of the volume's values that are black and white."""

    @model_validator(mode="after")
    def _ascending(self) -> "Slices":
        if self.percentiles[0] >= self.percentiles[1]:
            raise ValueError("percentiles: two numbers, the lower first")
        return self


class Rendering(NamedTuple):
    """How files are read; by default 2D images only, with their own windows."""

    window: Window | None = None
    """For grey DICOM files and volumes; None: the file's own."""
    frames: Frames | None = None
    """None: files of several frames or pages are refused."""
    slices: Slices | None = None
    """None: volumes are refused."""
    fit: Fit = "squash"
    """How a picture becomes a square."""

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
            "fit": None if self.fit == "squash" else self.fit,
        }
        return {name: value for name, value in fields.items() if value is not None}


PLAIN = Rendering()


class Volume(NamedTuple):
    """The values of a scan, and how they lie in the patient."""

    values: Values
    """(x, y, z) in the order of the file; NaN: background, which is black in every window."""
    affine: Affine | None
    """(4, 4) from indices to RAS; None: unknown, and z is the order of slices as they are shown."""
    window: tuple[Window, str] | None = None
    """Window of the file and the name of its VOI function; None: it has none, or several."""


def windowed(values: npt.NDArray[Any], window: Window, function: str) -> npt.NDArray[Any]:
    """Return values as 0..1 by a VOI function: LINEAR, LINEAR_EXACT or SIGMOID.

    Source: DICOM PS3.3, C.11.2.1.
    """
    centre, width = window
    if function == "SIGMOID":
        exponent = np.clip(-4 * (values - centre) / width, -500, 500)  # exp must not overflow
        return np.asarray(1 / (1 + np.exp(exponent)))
    if function == "LINEAR" and width == 1:
        # The window is a threshold.
        return np.asarray(values > centre - 0.5, np.float64)
    if function == "LINEAR" and width > 1:
        centre = centre - 0.5
        width = width - 1
    return np.clip((values - centre) / width + 0.5, 0, 1)


def eight_bits(shown: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return values as 0..255; those outside 0..1 are clipped, and NaN becomes 0."""
    levels = (np.clip(shown, 0, 1) * 255).round()
    return np.asarray(np.nan_to_num(levels, copy=False).astype(np.uint8))


def evenly(items: Sequence[T], most: int | None) -> Sequence[T]:
    """Return at most ``most`` items, in the middle of equal parts of the sequence; None: all."""
    if most is None or len(items) <= most:
        return items
    return [items[(2 * part + 1) * len(items) // (2 * most)] for part in range(most)]
