import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedward.errors import DataError
from fedward.sites.sampling import virtual_client


@given(st.integers(1, 50), st.integers(0, 170), st.integers(0, 5))
def test_every_image_occurs_floor_or_ceil_times(pool, images, seed):
    drawn = virtual_client(pool, images, torch.Generator().manual_seed(seed))
    assert drawn.dtype == torch.int64
    assert drawn.shape == (images,)
    counts = torch.bincount(drawn, minlength=pool)
    assert len(counts) == pool
    assert set(counts.tolist()) <= {images // pool, -(-images // pool)}


def test_equal_generators_give_equal_draws():
    one, two, other = (
        virtual_client(30, 20, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_an_empty_pool():
    assert virtual_client(0, 0, torch.Generator()).tolist() == []
    with pytest.raises(DataError, match="no images to draw from"):
        virtual_client(0, 3, torch.Generator())
