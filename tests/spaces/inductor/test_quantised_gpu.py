"""Products of 8-bit operands on the GPU that is here: Inductor's kernels, and the vendor library's with real scales."""

from __future__ import annotations

from typing import Any

import pytest

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (torch is there)
from gemmtune.engine.measure.operands.reference import ReferenceResult, poison  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(300),
]
ROWS, SCALARS = "mul(column[fp32]).mul(row[fp32])", "mul(scalar[fp32]).mul(scalar2[fp32])"
PROBLEMS = [
    f"520x272x1040:e4m3:nt:epilogue={ROWS}",
    f"1x4096x4096:e4m3:nt:epilogue={ROWS}",
    f"64x256x1024:e4m3:nt:epilogue={ROWS}:accumulation=exact",
    f"64x256x1024:e4m3:nt:epilogue={ROWS}.add(row2).silu.mul(matrix)",
    f"64x256x1024:e4m3:nt:epilogue={SCALARS}.add(row)",
    f"64x256x1024:e4m3:nt:epilogue={SCALARS}.relu+{SCALARS}",
    f"64x256x1024:e5m2:nt:b_dtype=e4m3:epilogue={SCALARS}:accumulation=exact",
    "64x256x1024:int8:nt",
    f"64x256x1024:int8:nt:out_dtype=bf16:epilogue={ROWS}",
]


def kernels(problem, space, folder):
    """Yield loaded kernels of the first and last seeds."""
    target, its = Task(problem, present_device(), space), registry.space(space)
    seeds = its.seeds(target)
    assert seeds
    for config in dict.fromkeys((seeds[0], seeds[len(seeds) // 2], seeds[-1])):
        kernel = its.load(its.build(target, config, folder), target)
        yield kernel
        kernel.close()


@pytest.mark.parametrize("space", ["triton_mm", "aten"])
@pytest.mark.parametrize("text", PROBLEMS)
def test_a_kernel_is_right_on_quantised_operands_and_wrong_without_a_scale(text, space, tmp_path):
    problem = Problem.parse(text)
    operands = make_operands(problem, torch.device("cuda"))
    reference = ReferenceResult(problem, operands)
    for kernel in kernels(problem, space, tmp_path):
        for out in operands.outputs:
            poison(out)
        kernel(*operands.arguments)
        torch.cuda.synchronize()
        assert reference.check(*operands.outputs).reason == ""
        for place, name in enumerate(problem.argument_names):
            if name in ("column", "row", "scalar", "scalar2") and place > 2:
                given = [*operands.arguments]
                given[place] = 2 * given[place]
                kernel(*given)
                torch.cuda.synchronize()
                assert reference.check(*operands.outputs).reason


@pytest.mark.parametrize("space", ["triton_mm", "aten"])
def test_nan_goes_into_its_row_alone_and_saturated_values_into_none(space, tmp_path):
    problem = Problem.parse(f"64x256x1024:e4m3:nt:epilogue={ROWS}")
    operands: Any = make_operands(problem, torch.device("cuda"))
    a = operands.a.clone()
    a.view(torch.uint8)[3, 5] = 0x7F  # NaN
    a.view(torch.uint8)[4] = 0x7E  # 448, the greatest
    for kernel in kernels(problem, space, tmp_path):
        kernel(a, *operands.arguments[1:])
        torch.cuda.synchronize()
        assert bool(operands.out[3].isnan().all())
        assert not bool(operands.out[:3].isnan().any())
        right = (a[4].double() @ operands.b.double()) * operands.further[0][4].double() * operands.further[1].double()
        assert float((operands.out[4].double() - right).norm() / right.norm()) < 1e-2
