"""Render Inductor's GEMM templates as torch.compile does for a table row. Imports torch and triton."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor.choices import InductorChoices
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel.bmm import bmm_template
from torch._inductor.kernel.mm import mm_template, persistent_tma_mm_template
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Bias, DType, Layout, Op, Problem
from gemmtune.engine.seams.space import BuildError

__all__ = ["Rendering", "render"]

_TEMPLATES = {template.uid: template for template in (mm_template, bmm_template, persistent_tma_mm_template)}
_SETTINGS = {
    "max_autotune_gemm": True,  # without it the heuristics have no config
    "max_autotune_gemm_search_space": "DEFAULT",
    "max_autotune_prune_choices_based_on_shared_mem": False,  # Inductor would ask the GPU that is present
}


@dataclass(frozen=True, slots=True)
class Rendering:
    """Source of one kernel, rendered from a template."""

    module_path: str
    """Path of the Python module with the Triton kernel, which Inductor wrote."""
    module_key: str
    """Key of the module in Inductor's cache."""
    kernel_name: str
    """Name of the kernel in the module."""
    grid: tuple[int, int, int]
    """Blocks to launch along x, y and z for the problem's sizes."""
    workspace_bytes: int
    """Bytes of device memory for the kernel's argument `ws_ptr`; 0 if it has no such argument."""


def render(template: str, problem: Problem, config: Config) -> Rendering:
    """Render a template for static sizes and strides, or for an m that is an argument of the kernel.

    The target device must be present, or replaced by `target`.

    Args:
        template: Inductor's id, which a table row names: `triton::mm`, `triton::bmm` or `triton::mm_persistent_tma`.
        problem: the GEMM to compute.
        config: values of the template's parameters.

    Raises:
        BuildError: Inductor has no kernel for the config.
    """
    shapes = ShapeEnv()
    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()), shape_env=shapes)
    with (
        V.set_graph_handler(graph),
        inductor_config.patch(_SETTINGS),
        _fp32_precision("tf32" if problem.allow_tf32 else "ieee"),
    ):
        operands = _operands(problem, _m(problem, shapes))
        for operand in operands:
            graph.graph_inputs[operand.get_name()] = operand
            graph.name_to_buffer[operand.get_name()] = operand
        scalars: dict[str, float | int] = {"alpha": 1, "beta": 1} if problem.op is Op.ADDMM else {}
        inputs = MMKernelInputs([ir.StorageBox(operand) for operand in operands], scalars=scalars)
        # Releases of torch derive different options from the operands, so they come from Inductor's first config. Among
        # the derived options, only EVEN_K depends on the config.
        even_k = problem.k % config.integer("BLOCK_K") == 0
        own = {**config, "EVEN_K": even_k}
        first = next(InductorChoices().get_ktc(inputs, _TEMPLATES[template], str(problem.op), own))
        choice = _TEMPLATES[template].generate(
            input_nodes=tuple(inputs.nodes()),
            layout=inputs.output_layout(flexible=False),
            **first.params.to_kwargs(),
            **first.extra_kwargs,
        )
    if choice is None:
        raise BuildError("Inductor renders nothing for this config")
    request = choice.bmreq
    x, y, z = request.extra_args[-3:]  # behind the sizes and the workspace
    return Rendering(
        module_path=request.module_path,
        module_key=request.module_cache_key,
        kernel_name=request.kernel_name,
        grid=(int(x), int(y), int(z)),
        workspace_bytes=request.workspace_size or 0,
    )


def _m(problem: Problem, shapes: ShapeEnv) -> int | sympy.Expr:
    """Return m as a number, or as the symbol that Dynamo makes for a dimension marked dynamic."""
    if not problem.dynamic_m:
        return problem.m
    source = ConstantSource("m")
    return shapes.create_symbol(problem.m, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)


def _operands(problem: Problem, m: int | sympy.Expr) -> list[ir.InputBuffer]:
    """Return A and B; an addmm has the bias before them, which `tuned_addmm` expands to m×n."""
    batch = [problem.batch] if problem.op is Op.BMM else []
    operands = [
        _matrix("a", problem.a_dtype, batch, [m, problem.k], problem.a_layout),
        _matrix("b", problem.b_dtype, batch, [problem.k, problem.n], problem.b_layout),
    ]
    if problem.op is Op.ADDMM:
        stride = [0 if problem.bias is Bias.VECTOR else problem.n, 1]
        operands.insert(0, _buffer("bias", problem.out_dtype, [m, problem.n], stride))
    return operands


def _matrix(name: str, dtype: DType, batch: list[int], size: list[int | sympy.Expr], layout: Layout) -> ir.InputBuffer:
    stride = [size[1], 1] if layout is Layout.N else [1, size[0]]
    return _buffer(name, dtype, [*batch, *size], [*(size[0] * size[1] for _ in batch), *stride])


def _buffer(name: str, dtype: DType, size: list[int | sympy.Expr], stride: list[int | sympy.Expr]) -> ir.InputBuffer:
    layout = ir.FixedLayout(torch.device("cuda", 0), getattr(torch, dtype.torch_name), size, stride)
    return ir.InputBuffer(name=name, layout=layout)


@contextlib.contextmanager
def _fp32_precision(precision: str) -> Iterator[None]:
    """Set torch.backends.cuda.matmul.fp32_precision, which decides ALLOW_TF32 in the template."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = precision
    try:
        yield
    finally:
        matmul.fp32_precision = before
