"""Operand memory and its allocator, on the CPU."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.operands.operand_memory import OperandAllocator, OperandMemory  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.operands import Values  # noqa: E402 (as above)

CPU = torch.device("cpu")
BF16 = torch.bfloat16


def memory(nbytes=1 << 20):
    return OperandMemory(CPU, [nbytes], lambda: [nbytes])


def span(tensor):
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


def test_all_tensors_of_a_kind_are_views_of_one_region():
    shared = memory()
    one, other = (OperandAllocator(shared).normal(BF16, (64, 96), "x") for _ in range(2))
    assert span(one) == span(other)
    assert one.shape == (64, 96)
    assert one.is_contiguous()
    assert one.float().std() == pytest.approx(1, abs=0.1)
    assert torch.equal(one, OperandAllocator(memory()).normal(BF16, (64, 96), "x"))


def test_each_kind_of_values_and_the_outputs_have_a_region():
    shared = memory()
    allocator = OperandAllocator(shared)
    integers = allocator.normal(torch.int8, (1000,), "x", 32.0)
    assert integers.float().std() == pytest.approx(32, rel=0.1)
    values = allocator.normal(BF16, (1000,), "x")
    before = values.clone()
    for number in range(1000):
        OperandAllocator(shared).empty(torch.float32, (16, 16), str(number)).fill_(number)
    assert torch.equal(values, before)


def test_tensors_of_one_problem_do_not_overlap_and_the_rest_gets_memory_of_its_own():
    allocator = OperandAllocator(memory(64 * 512))
    fitting = [allocator.empty(torch.int32, (128,), str(i)) for i in range(64)]
    spans = sorted(map(span, fitting))
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert allocator.own_bytes(fitting) == 0
    late = allocator.empty(torch.int32, (128,), "late")
    large = allocator.normal(BF16, (1 << 20,), "large")
    assert allocator.own_bytes([late, *fitting, large, late]) == late.nbytes + large.nbytes


def test_positions_depend_on_names_alone_and_are_scattered():
    def offsets():
        allocator = OperandAllocator(memory())
        return [allocator.normal(BF16, (32,), str(i)).storage_offset() * 2 for i in range(16)]

    first = offsets()
    assert first == offsets()
    assert all(offset % 512 == 0 for offset in first)
    assert max(first) - min(first) > 1 << 19


def test_without_regions_every_tensor_gets_memory_of_its_own():
    allocator = OperandAllocator(OperandMemory(CPU, [], list))
    drawn = allocator.normal(BF16, (8, 8), "x")
    assert allocator.own_bytes([drawn]) == drawn.nbytes == 128
    assert torch.equal(drawn, OperandAllocator(OperandMemory(CPU, [], list)).normal(BF16, (8, 8), "x"))
    assert not torch.equal(drawn, allocator.normal(BF16, (8, 8), "y"))


def test_a_region_has_the_first_size_that_fits(monkeypatch):
    empty = torch.empty

    def limited(size, **options):
        if size > 1 << 20:
            raise torch.OutOfMemoryError
        return empty(size, **options)

    monkeypatch.setattr(torch, "empty", limited)
    shared = OperandMemory(CPU, [1 << 30, 4096], lambda: [1 << 30, 1 << 20, 512])
    assert (shared.region(None).nbytes, shared.region(Values(BF16)).nbytes) == (4096, 1 << 20)
