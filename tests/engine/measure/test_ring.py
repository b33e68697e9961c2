"""The operand sets that launches rotate through; on the CPU, where the rules are the same."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.problem import Problem

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.measure.timing import SLOTS, OperandRing  # noqa: E402 (it imports torch)

CPU = torch.device("cpu")
PROBLEM = Problem.parse("64x64x64")
BYTES = 3 * 64 * 64 * 2


def ring(cold=True, l2_bytes=1, memory_bytes=1 << 30):
    return OperandRing.make(PROBLEM, cold, l2_bytes, memory_bytes, CPU)


def test_a_cold_ring_has_a_set_for_every_slot_and_as_many_for_the_reference():
    cold = ring()
    assert (len(cold.kernel), len(cold.reference)) == (SLOTS, SLOTS)
    places = {tensor.data_ptr() for operands in (*cold.kernel, *cold.reference) for tensor in (operands.a, operands.b)}
    assert len(places) == 2 * 2 * SLOTS
    assert cold.nbytes == 2 * SLOTS * BYTES
    assert not torch.equal(cold.kernel[0].a, cold.kernel[1].a)


def test_a_warm_ring_is_one_set():
    warm = ring(cold=False)
    assert warm.kernel == warm.reference
    assert (len(warm.kernel), warm.nbytes, warm.evicts) == (1, BYTES, False)


@pytest.mark.parametrize(("memory_bytes", "sets"), [(2 * 3 * BYTES, 3), (2 * BYTES, 1), (1, 1)])
def test_memory_bounds_the_sets_but_one_is_always_there(memory_bytes, sets):
    small = ring(memory_bytes=memory_bytes)
    assert (len(small.kernel), len(small.reference)) == (sets, sets)


def test_l2_is_emptied_besides_where_the_sets_cannot_do_it():
    assert not ring(l2_bytes=SLOTS * BYTES // 4).evicts
    assert ring(l2_bytes=SLOTS * BYTES).evicts
