"""Kernels of 8-bit floats with scales on the GPU that is here, against float64 of what the operands stand for."""

from __future__ import annotations

import re

import pytest

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import Accumulation
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")

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

ROWS, TENSORS = "mul(column[fp32]).mul(row[fp32])", "mul(scalar[fp32]).mul(scalar2[fp32])"
DECODE = [
    f"16x4096x4096:e4m3:nt:epilogue={ROWS}",
    f"1x4096x4096:e4m3:nt:epilogue={ROWS}",
    f"3x33x7184:e4m3:nt:epilogue={ROWS}.add(row2)",
    f"13x999x528:e5m2:nt:b_dtype=e4m3:epilogue={TENSORS}.add(row)",
    f"16x250x4112:e4m3:nt:out_dtype=fp32:epilogue={TENSORS}",
    f"7x96x2048:e5m2:nt:out_dtype=fp16:epilogue={ROWS}.relu",
    "1x1x1024:e4m3:nt",
]
SPLIT_K = [f"33x520x4096:e4m3:nt:epilogue={ROWS}", f"64x4096x4112:e4m3:nt:epilogue={ROWS}.add(row2)"]
TILES = [
    f"64x4096x4096:e4m3:nt:epilogue={ROWS}",
    f"591x1032x1040:e4m3:nt:epilogue={ROWS}.add(row2)",
    f"1x1024x2048:e5m2:nt:b_dtype=e4m3:epilogue={TENSORS}.add(row)",
    f"512x264x528:e4m3:nt:out_dtype=fp32:epilogue={TENSORS}",
    f"300x512x1024:e5m2:nt:out_dtype=fp16:epilogue={ROWS}.relu",
    "200x512x1024:e4m3:nt",
]
KERNELS = [
    *(("quack_gemm", f"{problem}{exact}") for problem in TILES for exact in ("", ":accumulation=exact")),
    *(("cute_gemv", problem) for problem in DECODE),
    *(("cute_splitk", problem) for problem in (*DECODE, *SPLIT_K)),
]


def exactly(problem, named):
    """The result in float64."""
    product = named["a"].double() @ named["b"].double()
    for name in ("column", "row", "scalar", "scalar2"):
        if re.search(rf"mul\({name}[\[)]", str(problem.epilogue)):
            product = product * named[name].double()
    for name in ("row", "row2"):
        if f"add({name})" in str(problem.epilogue):
            product = product + named[name].double()
    return product.relu() if "relu" in str(problem.epilogue) else product


def operands(problem):
    """Operands quantised by their rows or as a whole, saturated in places, with the scales that restore them."""
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*sizes):
        return torch.randn(*sizes, device="cuda", generator=generator)

    def quantised(values, dtype, dim):
        largest = torch.finfo(getattr(torch, dtype.torch_name)).max
        scale = (values.abs().amax(dim, keepdim=True) if dim is not None else values.abs().max().view(1, 1)) / largest
        clamped = (values / scale * 1.25).clamp(-largest, largest)  # a part saturates
        return clamped.to(getattr(torch, dtype.torch_name)), scale / 1.25

    by_rows = "column" in str(problem.epilogue)
    a, of_a = quantised(normal(problem.m, problem.k), problem.a_dtype, 1 if by_rows else None)
    b, of_b = quantised(normal(problem.n, problem.k) / problem.k**0.5, problem.b_dtype, 1 if by_rows else None)
    out = torch.full(
        (problem.m, problem.n), float("nan"), device="cuda", dtype=getattr(torch, problem.out_dtype.torch_name)
    )
    named = {"a": a, "b": b.T, "out": out}
    scales = {"column": of_a, "row": of_b.T.contiguous()} if by_rows else {"scalar": of_a, "scalar2": of_b}
    named |= {name: scale for name, scale in scales.items() if name in str(problem.epilogue)}
    for name in ("row", "row2"):
        if f"add({name})" in str(problem.epilogue):
            named[name] = normal(1, problem.n).to(out.dtype)
    return named


def configs_of(space, task):
    if task.space == "quack_gemm":
        pytest.importorskip("quack", reason="quack-kernels is not installed")
        swapped = [config for config in space.seeds(task) if config["swap_ab"]]
        small = [config for config in space.points(task) if config["tile_n"] == 32 and space.check(task, config)]
        return dict.fromkeys((space.seeds(task)[0], swapped[0], swapped[-1], small[0]))
    feasible = [config for config in space.points(task) if space.check(task, config)]
    return dict.fromkeys((space.seeds(task)[0], feasible[0], feasible[-1]))


def bound(problem, *, fast):
    """The largest error of an element over its size: of rounding, and of sums of 14 bits, short ones if exact."""
    rounding = {"bf16": 2**-8, "fp16": 2**-10, "fp32": 1e-4}[problem.out_dtype.value]
    return rounding + 2**-13 * (problem.k if fast else 128) ** 0.5


@pytest.mark.parametrize(("name", "text"), KERNELS)
def test_a_kernel_is_right_with_saturated_values_and_keeps_nan_in_its_row_and_column(name, text, tmp_path):
    problem = Problem.parse(text)
    space, task = registry.space(name), Task(problem, DEVICE, name)
    named = operands(problem)
    right = exactly(problem, named)
    rms = float(right.square().mean().sqrt())
    last, fast = problem.m - 1, name == "quack_gemm" and problem.accumulation is Accumulation.FAST
    for config in configs_of(space, task):
        kernel = space.load(space.build(task, config, tmp_path), task)
        arguments = [named[argument] for argument in problem.argument_names]
        named["out"].fill_(float("nan"))
        kernel(*arguments)
        wrong = (named["out"].double() - right).abs() - bound(problem, fast=fast) * (right.abs() + rms)
        assert float(wrong.max()) <= 0, (config, float(wrong.max()) / rms)
        kept = named["a"][last, 0].clone()
        named["a"].view(torch.uint8)[last, 0] = 0x7F  # NaN in both types
        kernel(*arguments)
        found = named["out"].isnan()
        expected = exactly(problem, named).isnan()
        assert torch.equal(found, expected), config
        named["a"][last, 0] = kept
        torch.cuda.synchronize()
        kernel.close()


@pytest.mark.parametrize(("name", "text"), [KERNELS[0], ("cute_gemv", DECODE[0]), ("cute_splitk", DECODE[0])])
def test_a_captured_launch_with_scales_replays(name, text, tmp_path):
    problem = Problem.parse(text)
    space, task = registry.space(name), Task(problem, DEVICE, name)
    named = operands(problem)
    kernel = space.load(space.build(task, space.seeds(task)[0], tmp_path), task)
    arguments = [named[argument] for argument in problem.argument_names]
    kernel(*arguments)
    torch.cuda.synchronize()
    first, graph = named["out"].clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        kernel(*arguments)
    named["out"].fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(first, named["out"])
    del graph
    kernel.close()
