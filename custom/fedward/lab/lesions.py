"""Draws lesions with the dermoscopic structures of eight diagnoses, many images at once.

Coordinates run from -1 to 1 over the image. A lesion is a star-shaped region around its centre,
filled by a sum of structures whose strengths :data:`APPEARANCES` gives for each diagnosis. An image
is not a pure example of its class: it borrows a share of another class's appearance, its structures
may be missing, and hair, gel, blur and colour do not depend on the class.
"""

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedward.lab.lesion_appearance import APPEARANCES, SPOTS, Appearance, Colour, Style

Floats: TypeAlias = npt.NDArray[np.float32]

_PIXELS_AT_ONCE = 1 << 19
"""Pixels that are drawn together; about as many as stay in a processor's cache."""
_MOST_BORROWED = 0.15
"""Largest share of an image's look that is another class's."""
_MOST_BROWN = 0.1
"""Largest share of the common brown in a lesion's colour."""
_BROWN = (0.56, 0.37, 0.29)
_MAIN_COLOUR = slice(0, 3)
_SECOND_COLOUR = slice(3, 6)
"""Columns of the look: red, green and blue."""
_COLUMN = {field.name: index for index, field in enumerate(fields(Appearance))}


def draw(
    names: Sequence[str], size: int, style: Style | Sequence[Style], rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Draw one lesion of each named diagnosis.

    Args:
        names: N keys of :data:`APPEARANCES`.
        size: height and width.
        style: the camera of all images, or one for each.
        rng: everything that varies.

    Returns:
        uint8 (N, size, size, 3); pixels depend on the arguments alone.
    """
    styles = [style] * len(names) if isinstance(style, Style) else list(style)
    step = max(_PIXELS_AT_ONCE // (size * _oversampling(size)) ** 2, 1)
    pixels = np.zeros((len(names), size, size, 3), np.uint8)
    for start in range(0, len(names), step):
        part = slice(start, start + step)
        pixels[part] = _Batch(names[part], size, styles[part], rng).draw()
    return pixels


def _oversampling(size: int) -> int:
    return 2 if size < 64 else 1


class _Batch:
    """n images that are drawn together, R pixels wide and high before the camera reduces them.

    The order in which numbers are drawn is part of the images: it must not change.
    """

    def __init__(
        self, names: Sequence[str], size: int, styles: Sequence[Style], rng: np.random.Generator
    ) -> None:
        self.rng = rng
        self.size = size
        self.styles = styles
        self.n = len(names)
        self.resolution = size * _oversampling(size)
        steps = np.arange(self.resolution)
        self.axis: Floats = ((steps + 0.5) * (2 / self.resolution) - 1).astype(np.float32)
        class_index = np.array([list(APPEARANCES).index(name) for name in names])
        self.weights = self._mixture(class_index)
        """(n, classes): how much of each class's look an image has."""
        table = np.array([astuple(appearance) for appearance in APPEARANCES.values()], np.float32)
        self.appearances = self.weights @ table
        zoom = np.array([style.zoom for style in styles], np.float32)
        self.radius = self["radius"] * zoom * self.uniform(0.75, 1.25)
        self.centre = self.uniform(-0.18, 0.18, 2)

    def __getitem__(self, name: str) -> Floats:
        """Return a value of the look of each image, (n,)."""
        return self.appearances[:, _COLUMN[name]]

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Return numbers drawn for each image, (n, *shape)."""
        return self.rng.uniform(low, high, (self.n, *shape)).astype(np.float32)

    def strength(self, name: str) -> Floats:
        """Return the strength of a structure in each image, (n, 1, 1).

        It varies from image to image, and one image of twelve lacks the structure.
        """
        present = self.rng.random(self.n) > 1 / 12
        return (self[name] * self.uniform(0.5, 1.2) * present)[:, None, None]

    def _mixture(self, class_index: npt.NDArray[np.intp]) -> Floats:
        """Return how much of each class's look an image has, (n, classes)."""
        borrowed = self.uniform(0, _MOST_BORROWED)
        other = (class_index + self.rng.integers(1, len(APPEARANCES), self.n)) % len(APPEARANCES)
        weights = np.zeros((self.n, len(APPEARANCES)), np.float32)
        weights[np.arange(self.n), class_index] = 1 - borrowed
        weights[np.arange(self.n), other] = borrowed
        return weights

    def draw(self) -> npt.NDArray[np.uint8]:
        """Return the images, uint8 (n, size, size, 3)."""
        mask = self._shape()
        image = self._skin()
        image += mask[..., None] * (self._lesion() - image)
        self._hair(image)
        return self._camera(image)

    def _field(self, cells: int) -> Floats:
        """Return smooth noise (n, R, R): a random grid of ``cells`` cells, interpolated."""
        knots = self.rng.standard_normal((self.n, cells + 1, cells + 1), np.float32)
        place = (self.axis + 1) / 2 * cells
        weight = np.maximum(1 - np.abs(place[:, None] - np.arange(cells + 1, dtype=np.float32)), 0)
        smooth = weight * weight * (3 - 2 * weight)
        return np.asarray(smooth @ knots @ smooth.T, np.float32)

    def _shape(self) -> Floats:
        """Return the lesion's mask (n, R, R) in [0, 1].

        Keeps the polar coordinates around the lesion's centre, which its structures use.
        """
        angle = self.uniform(0, np.pi)[:, None, None]
        aspect = self.uniform(0.8, 1.0)[:, None, None]
        across = self.axis[None, None, :] - self.centre[:, 0, None, None]
        down = self.axis[None, :, None] - self.centre[:, 1, None, None]
        u = (np.cos(angle) * across + np.sin(angle) * down) / self.radius[:, None, None]
        v = (np.cos(angle) * down - np.sin(angle) * across) / (self.radius[:, None, None] * aspect)
        self.distance = np.sqrt(u * u + v * v) + np.float32(1e-6)
        self.turn = ((u + 1j * v) / self.distance).astype(np.complex64)
        border = np.ones_like(self.distance)
        wave = self.turn
        for order in range(2, 7):
            wave = wave * self.turn
            phase = np.exp(1j * self.uniform(0, 2 * np.pi)).astype(np.complex64)
            size = self["irregular"] * self.uniform(0.2, 1.4) * np.float32(1.2 / order**0.7)
            border += ((phase * size)[:, None, None] * wave).real
        border += 0.8 * self["irregular"][:, None, None] * self._field(7)
        self.inside = border - self.distance
        return _step(self.inside / self["soft"][:, None, None])

    def _skin(self) -> Floats:
        """Return skin without a lesion, (n, R, R, 3)."""
        brightness = self.uniform(0.84, 1.08, 1)
        tone = np.array([0.86, 0.66, 0.57], np.float32) * brightness
        tone = tone + self.uniform(-0.03, 0.03, 3)
        texture = 0.025 * self._field(3) + 0.012 * self._field(self.resolution // 3)
        return np.asarray(tone[:, None, None, :] + texture[..., None], np.float32)

    def _lesion(self) -> Floats:
        """Return the lesion's colours and structures as if it filled the image, (n, R, R, 3)."""
        # A small network learns colour first: it is kept vague, so that structures must count.
        shade = self.uniform(0.75, 1.2, 1, 1, 1)
        brown_share = self.uniform(0, _MOST_BROWN, 1, 1, 1)
        brown = brown_share * np.array(_BROWN, np.float32) + self.uniform(-0.05, 0.05, 1, 1, 3)
        colours = self.appearances[:, None, None, :]
        main = shade * ((1 - brown_share) * colours[..., _MAIN_COLOUR] + brown)
        second = shade * ((1 - brown_share) * colours[..., _SECOND_COLOUR] + brown)
        patch = self["patches"][:, None, None] * _step(2 * self._field(5) + 0.4 - self.distance)
        colour: Floats = np.empty((*patch.shape, 3), np.float32)
        for channel in range(3):
            difference = (second - main)[..., channel]
            colour[..., channel] = main[..., channel] + patch * difference
        self._pigment(colour)
        veil = self.strength("veil") * _step(3 * self._field(4) - 1)
        _paint(colour, veil, (0.46, 0.50, 0.62))
        scale = self.strength("scale") * _step(5 * self._field(9) - 2)
        _paint(colour, scale, (0.95, 0.90, 0.85))
        scar = self.strength("scar") * np.exp(-((self.distance / 0.42) ** 2))
        _paint(colour, scar, (0.93, 0.84, 0.74))
        vessels = self.strength("vessels") * np.exp(-((self._field(5) / 0.16) ** 2))
        _paint(colour, vessels, (0.62, 0.14, 0.16))
        self._spots(colour)
        return colour

    def _pigment(self, colour: Floats) -> None:
        """Darken the pigment network, the grooves between ridges, and the streaks at the border."""
        turn = self.uniform(0, np.pi)
        warp = self["warp"][:, None, None] * 2.2 * self._field(4)
        pitch = (self["pitch"] * self.uniform(0.85, 1.15))[:, None, None]
        mesh = np.zeros_like(self.distance)
        for third in range(3):
            direction = turn + third * np.pi / 3
            across = np.cos(direction)[:, None, None] * self.axis[None, None, :]
            down = np.sin(direction)[:, None, None] * self.axis[None, :, None]
            mesh += np.cos((2 * np.pi * (across + down)) / pitch + warp)
        lines = self.strength("network") * _step(-2.5 * mesh - 0.5)
        grooves = self.strength("ridges") * (0.5 + 0.5 * np.cos(7 * self._field(4) + 3))
        at_border = np.abs(self.inside - 0.12) < 0.22
        rays = (self.turn ** int(self.rng.integers(9, 14))).real * at_border
        streaks = self.strength("streaks") * np.maximum(rays, 0)
        dark = 0.55 * lines + 0.45 * grooves + 0.5 * streaks
        darkness = np.minimum(dark, 0.8)
        for channel, absorbed in enumerate(np.array([0.75, 0.9, 0.95], np.float32)):
            colour[..., channel] *= 1 - darkness * absorbed

    def _spots(self, colour: Floats) -> None:
        """Paint the round structures of each class into the images that look like the class."""
        for index, kinds in enumerate(SPOTS.values()):
            chosen = np.flatnonzero(self.weights[:, index] > 0.12)
            for spots in kinds:
                shape = (len(chosen), spots.count)
                away = 0.8 * np.sqrt(self.rng.random(shape)) * self.radius[chosen, None]
                turn = self.rng.uniform(0, 2 * np.pi, shape)
                across = self.centre[chosen, 0, None] + away * np.cos(turn)
                down = self.centre[chosen, 1, None] + away * np.sin(turn)
                size = spots.size * self.rng.uniform(0.7, 1.3, shape)
                weight = (self.rng.random(shape) < 0.85) * self.weights[chosen, index, None]
                dots = self._splat(across, down, size, weight)
                painted = colour[chosen]
                _paint(painted, spots.strength * _step(9 * (dots - 0.45)), spots.colour)
                colour[chosen] = painted

    def _splat(
        self, across: npt.ArrayLike, down: npt.ArrayLike, size: npt.ArrayLike, weight: npt.ArrayLike
    ) -> Floats:
        """Return sums of round bells (m, R, R), from (m, bells) places, sizes and heights.

        A bell is the product of a row and a column, so that no pixel is visited for each bell.
        """
        x = np.asarray(across, np.float32)[..., None]
        y = np.asarray(down, np.float32)[..., None]
        sigma = np.asarray(size, np.float32)[..., None]
        height = np.asarray(weight, np.float32)[..., None]
        columns = np.exp(-((self.axis - x) ** 2) / (2 * sigma * sigma))
        rows = height * np.exp(-((self.axis - y) ** 2) / (2 * sigma * sigma))
        return np.asarray(rows.transpose(0, 2, 1) @ columns, np.float32)

    def _hair(self, image: Floats) -> None:
        """Draw up to three dark arcs and sometimes a bright bubble of gel."""
        amount = np.array([style.hair for style in self.styles])
        for _ in range(3):
            chosen = np.flatnonzero(self.rng.random(self.n) < 0.28 * amount)
            shape = (len(chosen), 1, 1)
            turn = self.rng.uniform(-np.pi, np.pi, shape)
            bend = self.rng.uniform(-0.5, 0.5, shape)
            offset = self.rng.uniform(-0.8, 0.8, shape)
            across = self.axis[None, None, :]
            down = self.axis[None, :, None]
            along = np.cos(turn) * across + np.sin(turn) * down
            side = np.cos(turn) * down - np.sin(turn) * across
            distance = side - offset - bend * along * along
            hair = np.exp(-((distance / 0.025) ** 2)).astype(np.float32)
            painted = image[chosen]
            _paint(painted, 0.7 * hair, (0.16, 0.11, 0.09))
            image[chosen] = painted
        gel = np.array([style.gel for style in self.styles])[:, None]
        place = self.uniform(-0.9, 0.9, 2)
        size = self.uniform(0.05, 0.16, 1)
        present = self.rng.random((self.n, 1)) < gel
        bell = self._splat(place[:, :1], place[:, 1:], size, present)
        rim = _step(14 * (bell - 0.5)) * _step(-10 * (bell - 0.9))
        _paint(image, 0.8 * rim, (0.97, 0.96, 0.95))

    def _camera(self, image: Floats) -> npt.NDArray[np.uint8]:
        """Return what the cameras make of the images (n, R, R, 3): uint8 (n, size, size, 3)."""

        def setting(name: str) -> Floats:
            values = np.array([getattr(style, name) for style in self.styles], np.float32)
            return values[:, None, None, None]

        edge = self.axis[:, None] ** 2 + self.axis[None, :] ** 2
        image *= 1 - setting("corners") * np.clip(edge - 0.7, 0, 1)[None, :, :, None]
        step = _oversampling(self.size)
        small = image.reshape(self.n, self.size, step, self.size, step, 3).mean(axis=(2, 4))
        small = _blurred(small, setting("blur")[:, 0, 0, 0] * self.uniform(0.7, 1.3))
        gains = np.array([style.gains for style in self.styles], np.float32)
        gains = gains * self.uniform(0.95, 1.05, 3)
        small = np.clip(small * gains[:, None, None, :], 0, 1) ** setting("gamma")
        small += setting("noise") * self.rng.standard_normal(small.shape, np.float32)
        return np.asarray((np.clip(small, 0, 1) * 255).round(), np.uint8)


def _step(x: Floats) -> Floats:
    """Return a smooth step from 0 (x << 0) to 1 (x >> 0)."""
    return np.asarray(0.5 + 0.5 * x / np.sqrt(1 + x * x), np.float32)


def _paint(image: Floats, amount: npt.NDArray[np.floating], colour: Colour) -> None:
    """Mix a colour into images (n, R, R, 3) in place, by amounts (n, R, R) of it."""
    share = np.clip(amount, 0, 1)
    # One channel after the other: NumPy is slow with arrays whose last axis has three elements.
    for channel, brightness in enumerate(np.array(colour, np.float32)):
        plane = image[..., channel]
        plane += share * (brightness - plane)


def _blurred(images: Floats, sigma: Floats) -> Floats:
    """Return images (n, S, S, 3) blurred by Gaussians of sigma (n,), in pixels."""
    size = images.shape[1]
    distance = np.arange(size, dtype=np.float32)[:, None] - np.arange(size, dtype=np.float32)
    bell = np.exp(-(distance**2) / (2 * np.maximum(sigma, 0.05)[:, None, None] ** 2))
    bell /= bell.sum(axis=2, keepdims=True)
    planes = images.transpose(3, 0, 1, 2)
    return np.asarray((bell @ planes @ bell.transpose(0, 2, 1)).transpose(1, 2, 3, 0), np.float32)
