"""On a GPU the kernels of an exported table compute a layer's products, also in a CUDA graph. vLLM is not needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gemmtune.engine.consumers.serving.linear.exporter import VllmFp8Exporter
from gemmtune.engine.consumers.serving.linear.table import parse_linear_table
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.table import Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

sys.path.insert(0, str(Path(__file__).parent))

from linear_tables import SCALED, TENSOR_WISE, choice, ranged  # noqa: E402 (beside this file)

from gemmtune.engine.consumers.serving.linear.serving import Linears, Product  # noqa: E402 (it imports torch)

DEVICE = present_device()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE is None or DEVICE.arch not in ("sm_90a", "sm_100a"),
        reason="needs a GPU of sm_90a or sm_100a and gemmtune[triton,cute]",
    ),
    pytest.mark.timeout(400),
    # what quack-kernels 0.6.5 imports: names that nvidia-cutlass-dsl 4.8 deprecates, and parts of torch
    pytest.mark.filterwarnings("ignore:cutlass.utils:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

N, K = 528, 1040
ROWS = {
    f"1x{N}x{K}:e4m3:nt:epilogue={SCALED}": "cute_gemv",
    f"16x{N}x{K}:e4m3:nt:epilogue={SCALED}": "cute_splitk",
    f"32x{N}x{K}:e4m3:nt:epilogue={SCALED}": "triton_mm",
    f"64x{N}x{K}:e4m3:nt:epilogue={SCALED}": "quack_gemm",
    f"32x{N}x{K}:e4m3:nt:epilogue={SCALED}.add(row2)": "triton_mm",
    f"64x{N}x{K}:e4m3:nt:out_dtype=fp16:epilogue={TENSOR_WISE}.add(row)": "triton_mm",
    f"16x{N}x{K}:e4m3:nt:out_dtype=fp16:epilogue={TENSOR_WISE}.add(row)": "cute_splitk",
    f"64x{N}x{K}:e4m3:nt:out_dtype=fp16:epilogue={TENSOR_WISE}:accumulation=exact": "quack_gemm",
}
ROW_WISE, TENSORS = (torch.bfloat16, True), (torch.float16, False)
CALLS = [
    *((m, *ROW_WISE, False) for m in (1, 16, 32, 64, 129, 250, 256)),
    (32, *ROW_WISE, True),
    *((m, *TENSORS, True) for m in (16, 64)),
    (64, *TENSORS, False),
]


@pytest.fixture(scope="module")
def linears():
    def row(name, space):
        problem = Problem.parse(name)
        seed = registry.space(space).seeds(Task(problem, DEVICE, space))[0]
        return Row(problem, (choice(space, config=seed),), None, 0.0, ())

    rows = tuple(row(*each) for each in ROWS.items())
    span = ranged(f"256x{N}x{K}:e4m3:nt:epilogue={SCALED}", 129, 256, "triton_mm")
    files = VllmFp8Exporter().export(Table(DEVICE, rows, "latency", (span,)))
    return Linears(parse_linear_table(files["vllm_fp8_table.json"].encode()))


def operands(m, row_wise, out_dtype, has_bias):
    a = torch.randn(m, K, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(N, K, device="cuda").to(torch.float8_e4m3fn).T
    scales = [torch.rand(size if row_wise else 1, 1, device="cuda") + 0.5 for size in (m, N)]
    return a, b, tuple(scales), torch.randn(N, device="cuda", dtype=out_dtype) if has_bias else None


def right(a, b, scales, bias):
    found = (a.double() @ b.double()) * scales[0].double() * scales[1].double().T
    return found if bias is None else found + bias.double()


def is_close(found, a, b, scales, bias):
    wanted = right(a, b, scales, bias)
    return (found.double() - wanted).abs().max() <= 0.02 * wanted.pow(2).mean().sqrt() + 2**-7 * wanted.abs().max()


@pytest.mark.parametrize(("m", "out_dtype", "row_wise", "has_bias"), CALLS)
def test_a_rows_kernel_computes_the_product_in_and_outside_of_a_graph(linears, m, out_dtype, row_wise, has_bias):
    a, b, scales, bias = operands(m, row_wise, out_dtype, has_bias)
    linears.load(Product(N, K, out_dtype, row_wise, has_bias), b, scales[1])
    found = linears.compute(a, b, scales, out_dtype, bias)
    assert found is not None, linears.report()
    assert is_close(found, a, b, scales, bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = linears.compute(a, b, scales, out_dtype, bias)
    a.copy_(torch.randn(m, K, device="cuda").to(torch.float8_e4m3fn))
    graph.replay()
    torch.cuda.synchronize()
    assert is_close(captured, a, b, scales, bias)
    assert {*linears.report()} == {"row"}
