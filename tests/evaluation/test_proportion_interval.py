"""Wilson's interval of a share of images, and how few images have a share."""

import math

import pytest
from scipy.stats import binomtest

from fedward.errors import ConfigError
from fedward.evaluation.intervals import Share, proportion_interval


def test_by_hand() -> None:
    """For n = 4, p = 1/2 and z² = 3.8415 the middle stays 1/2.

    Half of the width is z sqrt(1/16 + z²/64) / (1 + z²/4).
    """
    z = 1.959963984540054
    half = z * math.sqrt(1 / 16 + z * z / 64) / (1 + z * z / 4)
    assert proportion_interval(0.5, 4) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-15)


@pytest.mark.parametrize(("right", "n"), [(1, 3), (213, 263), (999, 1000)])
def test_it_is_that_of_scipy(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert proportion_interval(right / n, n) == pytest.approx(
        (expected.low, expected.high), abs=1e-12
    )


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_nothing_and_everything_have_one_open_side(n: int) -> None:
    z2 = 1.959963984540054**2
    assert proportion_interval(0.0, n) == pytest.approx((0.0, z2 / (n + z2)), abs=1e-15)
    assert proportion_interval(1.0, n) == pytest.approx((n / (n + z2), 1.0), abs=1e-15)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.37, 0.9])
def test_its_mirror_image_is_that_of_the_other_share(share: float) -> None:
    low, high = proportion_interval(share, 40)
    assert low <= share <= high
    assert proportion_interval(1 - share, 40) == pytest.approx((1 - high, 1 - low), abs=1e-12)
    wider = proportion_interval(share, 10)
    assert wider[1] - wider[0] > high - low, "fewer images"


@pytest.mark.parametrize(("share", "n"), [(-0.1, 5), (1.1, 5), (math.nan, 5), (0.5, 0)])
def test_no_share_and_no_image_are_refused(share: float, n: int) -> None:
    with pytest.raises(ConfigError, match="a share in \\[0, 1\\] of at least one image"):
        proportion_interval(share, n)


def test_five_images_are_the_fewest_with_a_share() -> None:
    assert Share.of(2, 4) is None
    assert Share.of(2, 5) == Share(0.4, *proportion_interval(0.4, 5), 5)
