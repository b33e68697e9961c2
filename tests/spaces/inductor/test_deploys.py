"""The kernels that are timed are those torch.compile deploys: its lowering writes the same, for a GPU not here."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch._dynamo.source import ConstantSource  # noqa: E402 (it needs torch)
from torch._inductor import config, select_algorithm, utils  # noqa: E402 (as above)
from torch._inductor.choices import get_template_heuristic  # type: ignore[attr-defined]  # noqa: E402 (as above)
from torch._inductor.debug import DebugContext  # noqa: E402 (as above)
from torch._inductor.graph import GraphLowering  # noqa: E402 (as above)
from torch._inductor.kernel import mm as mm_kernels  # noqa: E402 (as above)
from torch._inductor.virtualized import V  # noqa: E402 (as above)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402 (as above)
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402 (as above)
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv  # noqa: E402 (as above)

from gemmtune.spaces.inductor.target import environment, target  # noqa: E402 (as above)

try:  # torch 2.14 moved it
    from torch._inductor.heuristics.template.triton import GemmConfig
except ModuleNotFoundError:
    from torch._inductor.template_heuristics.triton import GemmConfig

H200 = catalogue.device("H200")
MM, BMM = "triton::mm", "triton::bmm"
TILE = GemmConfig(64, 32, 32, 3, 4, group_m=8)  # what the fixture `rendered` renders
SETTINGS = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "shape_padding": False,
    "compile_threads": 1,  # or each case starts processes to compile in
}


@contextmanager
def present(device, problem, folder):
    """Inductor takes the device for present, and the tile for the one that its list has for the template."""
    facts = {
        "name": device.name,
        "multi_processor_count": device.sm_count,
        "shared_memory_per_block_optin": device.shared_memory_per_block_bytes,
        "total_memory": 2**37,
        "warp_size": device.warp_size,
    }
    properties = SimpleNamespace(**facts, major=device.capability[0], minor=device.capability[1], gcnArchName="")

    def nothing_to_time(*arguments, **more):
        raise AssertionError("Inductor has more than one kernel to choose from")

    with ExitStack() as stack:
        stack.enter_context(environment(str(folder)))
        stack.enter_context(target(device))
        stack.enter_context(patch.object(torch.cuda, "get_device_properties", lambda *_: properties))
        stack.enter_context(patch.object(torch.cuda, "current_device", lambda: 0))
        stack.enter_context(patch.object(utils, "is_big_gpu", lambda *_: True))
        stack.enter_context(patch("torch._inductor.scheduler.has_triton", lambda *_: True))
        stack.enter_context(
            patch.object(select_algorithm.AlgorithmSelectorCache, "do_autotuning", nothing_to_time),
        )
        # what is no template with a tile: a product in several parts along k, and a copy of B first
        stack.enter_context(patch.object(mm_kernels, "use_decompose_k_choice", lambda *_, **__: False))
        stack.enter_context(config.patch(SETTINGS))
        heuristic = get_template_heuristic(BMM if problem.op.is_batched else MM, "cuda", str(problem.op))
        stack.enter_context(patch.object(heuristic, "mm_configs", [TILE]))
        yield


def operands(problem, shapes):
    m = problem.m
    if problem.dynamic_m:
        source = ConstantSource("m")
        symbol = shapes.create_symbol(m, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        m = shapes.create_symintnode(symbol, hint=problem.m, source=source)
    batch = (problem.batch,) if problem.op.is_batched else ()
    dtype = getattr(torch, problem.a_dtype.torch_name)
    sizes = {"a": (*batch, m, problem.k), "b": (*batch, problem.k, problem.n)}
    made = [
        torch.empty_strided(size, problem.strides_of(name, m), dtype=dtype, device="cuda")
        for name, size in sizes.items()
    ]
    if problem.op.adds_bias:
        shape = (m, problem.n) if problem.bias == "matrix" else problem.bias_shape
        made.insert(0, torch.empty(shape, dtype=dtype, device="cuda"))
    return made


def deployed(problem, folder):
    """The code that Inductor writes for a graph of this one product."""
    shapes = ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes)
    with present(H200, problem, folder):
        with mode:
            tensors = operands(problem, shapes)
            scalars = {"alpha": problem.alpha, "beta": problem.beta} if problem.op.adds_bias else {}
            module = make_fx(partial(getattr(torch, problem.op), **scalars))(*tensors)
        graph = GraphLowering(module, example_inputs=tensors, shape_env=shapes)
        with V.set_graph_handler(graph), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            choices = V.choices.get_template_configs

            def templates_alone(inputs, templates, name, **more):
                known = [one for one in templates if getattr(one, "uid", "").startswith("triton::")]
                return choices(inputs, known, name, **more)

            with patch.object(V.choices, "get_template_configs", templates_alone):
                graph.run(*tensors)
                code, *_ = graph.codegen()
    return code.value


def kernel(source):
    """The kernel's parameters with types and what Triton may assume of them, and the lines of its body."""
    signature = re.search(r"'signature': (\{.*?\})", source)[1]
    attributes = re.search(r"'configs': (\[.*?\}\])", source)[1]
    parameters, body = re.search(r"def triton_\w+(\(.*?\)):\n(.*?)(?:'''|\Z)", source, re.DOTALL).groups()
    return parameters, signature, attributes, [line.strip() for line in body.splitlines() if line.strip()]


@pytest.mark.parametrize(
    "problem",
    [
        "520x304x96:bf16:nt",
        "520x304x100:fp16:tn",
        "520x304x96:bf16:nt:addmm",
        "520x304x96:bf16:nn:addmm:bias=matrix",
        "3x520x304x96:bf16:nt:bmm",
        "3x520x304x100:fp16:tt:bmm",
        "520x304x96:bf16:nt:dynamic_m=true",
        "520x304x100:bf16:tt:addmm:dynamic_m=true",
        "520x304x96:bf16:nn:addmm:bias=matrix:dynamic_m=true",
        "3x520x304x96:bf16:tn:bmm:dynamic_m=true",
        "520x304x96:bf16:nt:lda=256:ldb=112",
        "520x304x96:bf16:nn:lda=531:dynamic_m=true",
        "520x304x96:bf16:nn:addmm:lda=99:alpha=0.5",
        "3x520x304x96:bf16:nn:bmm:lda=288:batch_stride_a=96:batch_stride_b=0",
        "520x304x96:bf16:nn:addmm:bias=matrix:alpha=2:beta=-0.25:dynamic_m=true",
        "3x520x304x96:bf16:nt:baddbmm",
        "3x520x304x96:bf16:nt:baddbmm:alpha=0.125:beta=3",
        "3x520x304x96:bf16:nn:baddbmm:bias=matrix:lda=100",
        "3x520x304x96:bf16:nn:baddbmm:bias=vector",
        "3x520x304x96:bf16:nn:baddbmm:bias=vectors",
    ],
)
def test_the_rendered_kernel_equals_the_one_inductor_deploys(problem, rendered, tmp_path):
    source, _ = rendered(problem)
    ours, inductors = kernel(source), kernel(deployed(Problem.parse(problem), tmp_path / "deployed"))
    assert ours == inductors
    assert len(ours[-1]) > 40
