"""Render Inductor's GEMM templates as torch.compile does for a table row. Imports torch and triton."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._inductor import config as inductor_config
from torch._inductor import ir, lowering
from torch._inductor.choices import InductorChoices
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel.bmm import bmm_template
from torch._inductor.kernel.mm import mm_template
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.select_algorithm import TritonTemplateCaller
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.epilogue.terms import OperandShape
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import Accumulation, DType, Op
from gemmtune.engine.seams.space import BuildError
from gemmtune.engine.toolchain.unread_bias import unread_bias
from gemmtune.engine.toolchain.vendor_gemm import product_dtype
from gemmtune.spaces.inductor.epilogue import (
    GeneratedKernel,
    generated_kernels,
    input_buffer,
    lower_epilogue,
    operand_buffers,
    operand_dtype,
)

_TEMPLATES = {Op.MM: mm_template, Op.ADDMM: mm_template, Op.BMM: bmm_template, Op.BADDBMM: bmm_template}
# Inductor's names of the arguments of a template alone, and ours.
_ARGUMENTS = {"in_ptr0": "bias", "arg_A": "a", "arg_B": "b", "out_ptr0": "out", "ks0": "m"}
_SETTINGS = {
    "max_autotune_gemm": True,  # without it the heuristics have no config
    "max_autotune_gemm_search_space": "DEFAULT",
    "max_autotune_prune_choices_based_on_shared_mem": False,  # Inductor would ask the GPU that is present
}


@dataclass(frozen=True, slots=True)
class Rendering:
    """Source of one kernel, rendered from a template."""

    kernel: GeneratedKernel
    """Kernel with the names of its arguments."""
    grid: tuple[int, int, int]
    """Blocks to launch along x, y and z for the problem's sizes."""


def render(problem: Problem, config: Config) -> Rendering:
    """Render an operation's template for static sizes and strides, or for an m that is an argument of the kernel.

    The target device must be present, or replaced by `target`.

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
        m = _m(problem, shapes)
        operands = _operands(graph, problem, m)
        scalars = {"alpha": problem.alpha, "beta": problem.beta} if problem.op.adds_bias else {}
        out_dtype = getattr(torch, product_dtype(problem).torch_name)
        places = (0, 1) if problem.scaling else (-2, -1)  # of A and B
        inputs = MMKernelInputs([operand.data for operand in operands], scalars, out_dtype, *places)
        # Releases of torch derive different options from the operands, so they come from Inductor's first config. Among
        # the derived options, only EVEN_K depends on the config.
        even_k = problem.k % config.integer("BLOCK_K") == 0
        own = {**config, "EVEN_K": even_k}
        if problem.a_dtype.is_float8:
            own["USE_FAST_ACCUM"] = problem.accumulation is Accumulation.FAST
        template = _TEMPLATES[problem.op]
        operations = {1: "int_mm" if problem.a_dtype.is_integer else "scaled_mm"}
        operation = operations.get(problem.a_dtype.itemsize, str(problem.op))  # Inductor asks for choices by this name
        first = next(InductorChoices().get_ktc(inputs, template, operation, own))
        choice = template.generate(
            input_nodes=tuple((first.inputs if problem.scaling else inputs).nodes()),  # its scales have two dimensions
            layout=inputs.output_layout(flexible=False),
            **first.params.to_kwargs(),
            **{**first.extra_kwargs, **(unread_bias(problem.alpha) if problem.beta == 0 else {})},
        )
        if choice is None:
            raise BuildError("Inductor renders nothing for this config")
        kernel = _fused(graph, choice, problem, m) if problem.unscaled_epilogue else _plain(choice, problem)
    x, y, z = choice.bmreq.extra_args[-3:]  # behind the sizes
    return Rendering(kernel, (int(x), int(y), int(z)))


def render_pointwise(problem: Problem) -> list[GeneratedKernel]:
    """Generate the kernels that Inductor runs behind the vendor library's product, which they read as `product`.

    The target device must be present, or replaced by `target`.
    """
    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()), shape_env=ShapeEnv())
    with V.set_graph_handler(graph):
        dtype = getattr(torch, problem.out_dtype.torch_name)
        shape = problem.shape_of(OperandShape.MATRIX)
        stored = getattr(torch, product_dtype(problem).torch_name)
        product = input_buffer(
            graph, "product", stored, shape, [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        )
        behind = problem.unscaled_epilogue
        found = lower_epilogue(behind, product, operand_buffers(graph, problem, problem.m), dtype)
        names = [name for name in problem.argument_names if name.startswith("out")]
        outputs = {name: output for name, output in zip(names, found, strict=True) if output is not product}
        return generated_kernels(graph, outputs)


def render_sum(problem: Problem, parts: int) -> list[GeneratedKernel]:
    """Generate the kernel that sums an output's parts in fp32, read as `product` of shape (parts, m, n).

    The target device must be present, or replaced by `target`.
    """
    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()), shape_env=ShapeEnv())
    with V.set_graph_handler(graph):
        m, n = problem.m, problem.n
        whole = lowering.sum_(input_buffer(graph, "product", torch.float32, [parts, m, n], [m * n, n, 1]), axis=0)
        found = lowering.to_dtype(whole, getattr(torch, problem.out_dtype.torch_name))
        found.realize()
        return generated_kernels(graph, {"out": found})


def _plain(choice: TritonTemplateCaller, problem: Problem) -> GeneratedKernel:
    """Return the kernel of a template alone."""
    request, scales = choice.bmreq, problem.scaling.operands if problem.scaling else ()
    names = {**_ARGUMENTS, **{f"in_ptr{place}": each.name for place, each in enumerate(scales, 2)}}
    return GeneratedKernel(request.module_path, request.module_cache_key, request.kernel_name, names)


def _fused(
    graph: GraphLowering, choice: TritonTemplateCaller, problem: Problem, m: int | sympy.Expr
) -> GeneratedKernel:
    """Return the kernel into which Inductor's scheduler fuses a template and the problem's epilogue."""
    product = choice.output_node()  # type: ignore[no-untyped-call]
    dtype = getattr(torch, problem.out_dtype.torch_name)
    found = lower_epilogue(problem.unscaled_epilogue, product, operand_buffers(graph, problem, m), dtype)
    names = [name for name in problem.argument_names if name.startswith("out")]
    kernels = generated_kernels(graph, dict(zip(names, found, strict=True)))
    if len(kernels) != 1:
        raise BuildError(f"Inductor makes {len(kernels)} kernels of the product and its epilogue {problem.epilogue}")
    return kernels[0]


def _m(problem: Problem, shapes: ShapeEnv) -> int | sympy.Expr:
    """Return m as a number, or as the symbol that Dynamo makes for a dimension marked dynamic."""
    if not problem.dynamic_m:
        return problem.m
    source = ConstantSource("m")
    return shapes.create_symbol(problem.m, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)


def _operands(graph: GraphLowering, problem: Problem, m: int | sympy.Expr) -> list[ir.TensorBox]:
    """Return A and B; before them the bias, if any, which Inductor expands to the sizes of the output.

    Behind 8-bit floats stand their scales in torch's layouts, and then a vector as bias.
    """
    batch, n = [problem.batch] if problem.op.is_batched else [], problem.n

    def matrix(name: str, dtype: DType, size: list[int | sympy.Expr], stride: Sequence[Any]) -> ir.TensorBox:
        return input_buffer(graph, name, getattr(torch, dtype.torch_name), [*batch, *size], stride)

    operands = [
        matrix("a", problem.a_dtype, [m, problem.k], problem.strides_of("a", m)),
        matrix("b", problem.b_dtype, [problem.k, n], problem.strides_of("b", m)),
    ]
    if problem.op.adds_bias:
        row = n if problem.bias.has_rows else 0
        outer = [(m * n if row else n) if problem.bias.has_batch else 0 for _ in batch]
        operands.insert(0, matrix("bias", problem.out_dtype, [m, n], [*outer, row, 1]))
    if scaling := problem.scaling:
        layouts = [([m, 1], [1, 1]), ([1, n], [n, 1])] if scaling.is_row_wise else [([], []), ([], [])]
        for scale, layout in zip((scaling.a, scaling.b), layouts, strict=True):
            operands.append(input_buffer(graph, scale.name, torch.float32, *layout))
        if scaling.bias:
            operands.append(input_buffer(graph, scaling.bias.name, operand_dtype(scaling.bias, problem), [n], [1]))
    return operands


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
