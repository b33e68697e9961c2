"""What kernels that are compiled once for many problems refuse: views, scalars, and gates."""

from __future__ import annotations

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

VIEW, SCALED, GATED = (
    "8x4096x4096:bf16:nt:lda=8192",
    "8x4096x4096:bf16:nt:addmm:alpha=0.5",
    "8x4096x4096:bf16:nt:epilogue=mul(gate[4])",
)


def verdict(space, problem):
    """Return the verdict on the first seed of the plain problem."""
    found, device = registry.space(space), catalogue.device("H200")
    config = found.seeds(Task(Problem.parse("8x4096x4096:bf16:nt"), device, space))[0]
    return found.check(Task(Problem.parse(problem), device, space), config)


@pytest.mark.parametrize(
    ("space", "problem", "reason"),
    [
        ("cute_gemm", VIEW, "cute_gemm is compiled for dense operands, not for lda=8192"),
        ("quack_gemm", VIEW, "quack_gemm is compiled for dense operands, not for lda=8192"),
        ("quack_gemm", SCALED, "quack_gemm adds the bias as it is, not with alpha=0.5 and beta=1"),
        ("cute_gemv", SCALED, "cute_gemv adds the bias as it is, not with alpha=0.5 and beta=1"),
        ("cute_splitk", GATED, "cute_splitk reads no vector per block of rows: gate"),
        ("quack_gemm", GATED, "not gate, a gate of bf16"),
        ("cute_gemv", "8x4096x4096:bf16:nt:lda=4100", "rows of A of 8 B are no multiple of the 16 B that a load needs"),
        ("aten", "64x64x64:int8:nt:lda=128", "aten runs mm of int8, not mm of views"),
    ],
)
def test_a_kernel_that_cannot_take_a_problem_says_why(space, problem, reason):
    pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
    found = verdict(space, problem)
    assert not found
    assert reason in found.reason


@pytest.mark.parametrize(
    ("space", "problem"), [("cute_gemv", VIEW), *(("triton_mm", p) for p in (VIEW, SCALED, GATED))]
)
def test_a_kernel_that_takes_strides_and_operands_at_launch_serves_the_problem(space, problem):
    assert verdict(space, problem)
