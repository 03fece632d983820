"""The device and the threads that a site file names, with made-up GPUs.

tests/gpu has real ones.
"""

import os

import pytest
import torch

from fedward.errors import DataError
from fedward.training.machine import (
    described,
    device_of,
    has_bfloat16,
    limit_threads,
    threads_limited,
)

CPU = torch.device("cpu")
GPU = torch.device("cuda")


@pytest.fixture
def gpus(monkeypatch):
    """Make a machine with two GPUs of a compute capability."""

    def make(capability=(8, 0)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "V100")

    return make


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_without_a_gpu_a_site_works_on_the_cpu(name, no_gpu):
    assert device_of(name, "site a") == CPU
    assert described(CPU) == "cpu"


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:3"])
def test_a_gpu_that_is_not_there_is_an_error(name, no_gpu):
    with pytest.raises(
        DataError, match=f"site a, field device: expected {name}, found 0 GPUs.*device: cpu or auto"
    ):
        device_of(name, "site a")


@pytest.mark.parametrize(
    ("name", "device"), [("auto", "cuda"), ("cuda", "cuda"), ("cuda:1", "cuda:1"), ("cpu", "cpu")]
)
def test_a_site_works_on_the_gpu_it_names(name, device, gpus):
    gpus()
    assert device_of(name, "site a") == torch.device(device)
    assert described(device_of(name, "site a")) == (
        device if device == "cpu" else f"{device} (V100)"
    )


def test_a_gpu_beyond_the_last_is_an_error(gpus):
    gpus()
    with pytest.raises(DataError, match="expected cuda:2, found 2 GPUs that torch sees"):
        device_of("cuda:2", "site a")


@pytest.mark.parametrize(
    ("capability", "found"), [((7, 0), False), ((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_bfloat16_is_used_where_a_gpu_computes_in_it(capability, found, gpus):
    gpus(capability)
    assert has_bfloat16(GPU) is found
    assert has_bfloat16(CPU) is False


def test_the_cores_are_those_that_the_process_may_use(monkeypatch):
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 9}, raising=False)
    limit_threads(0)
    limit_threads(8)
    monkeypatch.delattr(os, "sched_getaffinity")
    limit_threads(0)
    assert used == [3, 3, 64]


def test_threads_are_at_most_the_cores_and_for_a_while(monkeypatch):
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    for threads in (1, 10**6, 0):
        limit_threads(threads)
    cores = len(os.sched_getaffinity(0))
    assert used == [1, cores, cores]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    with threads_limited(1):
        assert used[-1] == 1
    assert used[-1] == 7
