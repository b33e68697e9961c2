"""Operands' places in memory; on the CPU, where the rules are the same."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.operands.operand_memory import OperandAllocator, OperandMemory  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.operands import Values  # noqa: E402 (as above)

CPU = torch.device("cpu")
BF16 = Values(torch.bfloat16)


def arena(nbytes=1 << 20):
    return OperandMemory(CPU, [nbytes], lambda: [nbytes])


def span(tensor):
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


def test_all_tensors_of_a_kind_are_views_of_values_drawn_once():
    shared = arena()
    one, other = (OperandAllocator(shared).normal(BF16, (64, 96), "x") for _ in range(2))
    assert span(one) == span(other)
    assert one.shape == (64, 96)
    assert one.is_contiguous()
    assert one.float().std() == pytest.approx(1, abs=0.1)
    assert torch.equal(one, OperandAllocator(arena()).normal(BF16, (64, 96), "x"))


def test_each_kind_of_values_and_the_outputs_have_memory_of_their_own():
    shared = arena()
    places = OperandAllocator(shared)
    integers = places.normal(Values(torch.int8, 32.0), (1000,), "x")
    assert integers.float().std() == pytest.approx(32, rel=0.1)
    values = places.normal(BF16, (1000,), "x")
    before = values.clone()
    for number in range(1000):
        OperandAllocator(shared).empty(torch.float32, (16, 16), str(number)).fill_(number)
    assert torch.equal(values, before)


def test_tensors_of_one_problem_do_not_overlap_and_what_fits_nowhere_is_apart():
    places = OperandAllocator(arena(64 * 512))
    spans = sorted(span(places.empty(torch.int32, (128,), str(i))) for i in range(64))
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert places.own_bytes == 0
    late = places.empty(torch.int32, (128,), "late")
    large = places.normal(BF16, (1 << 20,), "large")
    assert places.own_bytes == late.nbytes + large.nbytes


def test_places_depend_on_names_alone_and_are_scattered():
    def offsets():
        places = OperandAllocator(arena())
        return [places.normal(BF16, (32,), str(i)).storage_offset() * 2 for i in range(16)]

    first = offsets()
    assert first == offsets()
    assert all(offset % 512 == 0 for offset in first)
    assert max(first) - min(first) > 1 << 19


def test_without_memory_everything_is_drawn_apart():
    places = OperandAllocator(OperandMemory(CPU, [], list))
    drawn = places.normal(BF16, (8, 8), "x")
    assert places.own_bytes == drawn.nbytes == 128
    assert torch.equal(drawn, OperandAllocator(OperandMemory(CPU, [], list)).normal(BF16, (8, 8), "x"))
    assert not torch.equal(drawn, places.normal(BF16, (8, 8), "y"))


def test_of_sizes_the_first_that_can_be_had_is_taken(monkeypatch):
    empty = torch.empty

    def short(size, **terms):
        if size > 1 << 20:
            raise torch.OutOfMemoryError
        return empty(size, **terms)

    monkeypatch.setattr(torch, "empty", short)
    shared = OperandMemory(CPU, [1 << 30, 4096], lambda: [1 << 30, 1 << 20, 512])
    assert (shared.piece(None).nbytes, shared.piece(BF16).nbytes) == (4096, 1 << 20)
