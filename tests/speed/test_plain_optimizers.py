"""Optimisers without torch's compiler: the same numbers as torch's own."""

import pytest
import torch
from torch import Tensor, nn

from fedward.speed.plain_optimizers import without_compiler

KINDS = [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD]


def weights_after_steps(kind: type[torch.optim.Optimizer]) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    weight = nn.Parameter(torch.rand(4, 3, generator=generator))
    optimizer = kind([weight], lr=0.1, weight_decay=0.01, fused=True)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        inputs = torch.rand(3, 2, generator=generator)
        ((weight @ inputs) ** 2).sum().backward()
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("kind", KINDS)
def test_it_steps_exactly_as_torchs_own(kind: type[torch.optim.Optimizer]) -> None:
    assert torch.equal(weights_after_steps(without_compiler(kind)), weights_after_steps(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_one_of_torchs_optimisers(kind: type[torch.optim.Optimizer]) -> None:
    plain = without_compiler(kind)
    assert issubclass(plain, kind)
    assert plain.__name__ == kind.__name__


def test_a_step_records_no_gradients() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = without_compiler(torch.optim.SGD)([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    assert weight.grad_fn is None
    assert weight.requires_grad
