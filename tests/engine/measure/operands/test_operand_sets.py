"""Operand sets, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from gemmtune.engine.records.gemm.problem import Problem

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.measure.operands.operand_memory import OperandMemory  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.operand_sets import BLOCK_SAMPLES, OperandSets, reference_kernel  # noqa: E402 (as above)
from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (as above)
from gemmtune.engine.measure.operands.reference import ReferenceResult  # noqa: E402 (as above)

CPU = torch.device("cpu")
PROBLEM = Problem.parse("64x64x64")
BYTES = 3 * 64 * 64 * 2


def memory(nbytes):
    return OperandMemory(CPU, [nbytes], lambda: [nbytes])


def sets_of(cold=True, l2_bytes=1, memory_bytes=1 << 30, problem=PROBLEM):
    return OperandSets.make(problem, cold, l2_bytes, memory_bytes, memory(0))


def test_a_cold_protocol_has_sets_for_eight_blocks_and_for_one_of_the_reference():
    cold = sets_of()
    assert (len(cold.kernel), len(cold.reference), cold.parts) == (8 * BLOCK_SAMPLES, BLOCK_SAMPLES, 8)
    addresses = {
        tensor.data_ptr() for operands in (*cold.kernel, *cold.reference) for tensor in (operands.a, operands.b)
    }
    assert len(addresses) == 2 * 9 * BLOCK_SAMPLES
    assert cold.own_bytes == 9 * BLOCK_SAMPLES * BYTES
    assert not torch.equal(cold.kernel[0].a, cold.kernel[1].a)
    assert not torch.equal(cold.kernel[0].a, cold.reference[0].a)


def test_a_warm_protocol_has_one_set():
    warm = sets_of(cold=False)
    assert warm.kernel == warm.reference
    assert (len(warm.kernel), warm.parts, warm.own_bytes, warm.evicts) == (1, 1, BYTES, False)


@pytest.mark.parametrize(("l2_bytes", "evicts"), [(8 * BYTES // 3, False), (8 * BYTES // 3 + 1, True)])
def test_the_cache_is_emptied_where_a_block_touches_less_than_three_of_it(l2_bytes, evicts):
    assert sets_of(l2_bytes=l2_bytes).evicts is evicts
    assert not sets_of(l2_bytes=l2_bytes, cold=False).evicts


@pytest.mark.parametrize(("memory_bytes", "sets"), [(2 * 3 * BYTES, 3), (2 * BYTES, 1), (1, 1)])
def test_memory_limits_the_sets_but_leaves_one(memory_bytes, sets):
    small = sets_of(memory_bytes=memory_bytes)
    assert (len(small.kernel), len(small.reference)) == (sets, sets)


@pytest.mark.parametrize(("memory_bytes", "sets"), [(16 * BYTES, 8), (23 * BYTES, 8), (24 * BYTES, 16), (1 << 30, 64)])
def test_memory_beyond_one_block_adds_whole_blocks(memory_bytes, sets):
    made = sets_of(memory_bytes=memory_bytes)
    assert (len(made.kernel), len(made.reference), made.parts) == (sets, BLOCK_SAMPLES, sets // BLOCK_SAMPLES)


def test_memory_is_that_of_whole_views_and_the_cache_holds_what_they_touch():
    view = Problem.parse("64x64x64:lda=6400")
    spans = BYTES + 2 * (63 * 6400 + 64 - 64 * 64)
    made = sets_of(problem=view, memory_bytes=2 * 3 * spans)
    assert (len(made.kernel), len(made.reference)) == (3, 3)
    assert spans * 6 <= made.own_bytes < spans * 6 + 6 * BYTES
    for l2_bytes, evicts in ((8 * BYTES // 3, False), (8 * BYTES // 3 + 1, True)):
        assert sets_of(problem=view, l2_bytes=l2_bytes).evicts is evicts


def test_a_matrix_for_a_whole_batch_is_touched_once():
    shared = Problem.parse("64x16x16x16:bf16:nn:bmm:batch_stride_b=0")
    touched = 2 * (2 * 64 * 256 + 256)
    assert not sets_of(problem=shared, l2_bytes=8 * touched // 3).evicts
    assert sets_of(problem=shared, l2_bytes=8 * touched // 3 + 1).evicts


def test_positions_do_not_depend_on_the_problems_before():
    def positions(*before):
        shared = memory(256 << 20)
        for problem in (*before, PROBLEM):
            made = OperandSets.make(problem, True, 1, 1 << 20, shared)
        assert made.own_bytes == 0
        kernel: list[Any] = made.kernel
        return [operands.b.storage_offset() for operands in kernel]

    assert positions() == positions(Problem.parse("32x32x32"))


def test_a_helper_evicts_l2_if_the_sets_are_too_small():
    assert not sets_of(l2_bytes=BLOCK_SAMPLES * BYTES // 4).evicts
    assert sets_of(l2_bytes=BLOCK_SAMPLES * BYTES).evicts


def types(operands):
    return [tensor.dtype for tensor in (operands.a, operands.b, operands.out)]


@pytest.mark.parametrize("cold", [True, False])
def test_the_reference_has_the_kernels_types_if_the_vendor_library_supports_them(cold):
    made = sets_of(cold, problem=Problem.parse("64x64x64:e4m3:nt"))
    for operands in (*made.kernel, *made.reference):
        assert types(operands) == [torch.float8_e4m3fn, torch.float8_e4m3fn, torch.bfloat16]


@pytest.mark.parametrize(
    "problem", ["64x64x64:bf16:nt:addmm", "64x64x64:bf16:nt:addmm:bias=matrix", "2x8x8x8:bf16:nt:bmm"]
)
def test_every_set_of_another_operation_has_all_of_its_operands(problem):
    parsed = Problem.parse(problem)
    made = OperandSets.make(parsed, True, 1, 1 << 30, memory(64 << 20))
    expected: Any = make_operands(parsed, CPU)
    sizes = [tensor.shape for tensor in expected.arguments]
    every: list[Any] = [*made.kernel, *made.reference]
    for operands in every:
        assert [tensor.shape for tensor in operands.arguments] == sizes
    first: Any = made.reference[0]
    reference_kernel(*first.arguments)
    assert ReferenceResult(parsed, first).check(first.out).reason == ""


@pytest.mark.parametrize("cold", [True, False])
def test_the_reference_is_a_bf16_product_if_the_vendor_library_has_no_kernel(cold):
    made = sets_of(cold, problem=Problem.parse("16x64x64:int8:nt"))
    assert len(made.reference) == (BLOCK_SAMPLES if cold else 1)
    for operands in made.kernel:
        assert types(operands) == [torch.int8, torch.int8, torch.int32]
    for operands in made.reference:
        assert types(operands) == [torch.bfloat16] * 3
        assert operands.b.stride() == (1, 64)
        reference_kernel(operands.a, operands.b, operands.out)
        assert torch.allclose(operands.out, operands.a @ operands.b)
