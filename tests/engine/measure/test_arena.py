"""Operands' places in memory; on the CPU, where the rules are the same."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.arena import Arena  # noqa: E402 (it imports torch)

CPU = torch.device("cpu")


def values(count, first=0):
    return torch.arange(first, first + count, dtype=torch.int32)


def test_a_copy_has_the_values_and_the_strides():
    tensor = values(96).reshape(8, 12).t()
    copy = Arena(4096, CPU).place(tensor, "owner", "name")
    assert torch.equal(copy, tensor)
    assert copy.stride() == tensor.stride()
    assert copy.data_ptr() != tensor.data_ptr()


def test_tensors_do_not_overlap_until_nothing_fits():
    arena, size = Arena(64 * 512, CPU), 512 // 4
    placed = [arena.place(values(size, i), "owner", str(i)) for i in range(64)]
    assert len({tensor.untyped_storage().data_ptr() for tensor in placed}) == 1
    assert all(torch.equal(tensor, values(size, i)) for i, tensor in enumerate(placed))
    late = values(size)
    assert arena.place(late, "owner", "late") is late
    large = values(1 << 20)
    assert arena.place(large, "owner", "large") is large


def test_places_depend_on_names_alone_and_are_scattered():
    def places():
        arena = Arena(1 << 20, CPU)
        placed = [arena.place(values(16), "owner", str(i)) for i in range(16)]
        return [tensor.storage_offset() * tensor.itemsize for tensor in placed]

    first = places()
    assert first == places()
    assert all(place % 512 == 0 for place in first)
    assert max(first) - min(first) > 1 << 19


def test_what_an_owner_releases_can_be_taken_again():
    arena = Arena(1024, CPU)
    arena.place(values(256), "first", "whole")
    second = values(256)
    assert arena.place(second, "second", "whole") is second
    arena.release("first")
    arena.release("never came")
    assert arena.place(second, "second", "whole") is not second
