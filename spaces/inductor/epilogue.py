"""Lower an epilogue behind a product, and take the kernels that Inductor generates for it. Imports torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch._inductor import ir, lowering
from torch._inductor.codecache import PyCodeCache
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import Placeholder
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv

from gemmtune.engine.records.epilogue.chain import Epilogue
from gemmtune.engine.records.epilogue.terms import Operand, OperandShape, Product, Term, evaluated, expanded
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType

_ATEN = torch.ops.aten
_OVERLOADS: Mapping[str, Any] = {
    **{name: getattr(_ATEN, name).Tensor for name in ("add", "div", "mul", "sub", "eq", "ge", "gt", "le", "lt", "ne")},
    "pow": _ATEN.pow.Tensor_Tensor,
    "where": _ATEN.where.self,
}
"""Overloads of the operations that have no default one."""


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """Triton kernel that Inductor generated."""

    module_path: str
    """Path of the Python module with the kernel."""
    module_key: str
    """Key of the module in Inductor's cache."""
    name: str
    """Name of the kernel in the module."""
    arguments: Mapping[str, str]
    """Names of the kernel's parameters with those of the tensors or sizes that they receive."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Further parameters with their values: the numbers of elements of a pointwise kernel."""
    scratch: Mapping[str, int] = field(default_factory=dict)
    """Tensors that one of several kernels hands on to the next, with their sizes in bytes."""


def input_buffer(
    graph: GraphLowering, name: str, dtype: torch.dtype, size: Sequence[Any], stride: Sequence[Any]
) -> ir.TensorBox:
    """Return an input of the graph on the GPU; sizes may be symbols."""
    layout = ir.FixedLayout(torch.device("cuda", 0), dtype, list(size), list(stride))
    buffer = ir.InputBuffer(name=name, layout=layout)
    tensor = ir.TensorBox.create(buffer)
    graph.graph_inputs[name] = tensor
    graph.graph_input_names.append(name)
    graph.graph_inputs_original[name] = buffer
    graph.name_to_buffer[name] = buffer
    return tensor


def operand_buffers(graph: GraphLowering, problem: Problem, m: int | sympy.Expr) -> dict[Operand, ir.TensorBox]:
    """Return the operands of a problem's epilogue but for scales as inputs of the graph; `m` may be a symbol."""
    n, batch = problem.n, [problem.batch] if problem.op.is_batched else []
    found = {}
    for operand in problem.unscaled_epilogue.operands:
        row_major = [*(m * n for _ in batch), n, 1]
        size, stride = {
            OperandShape.MATRIX: ([*batch, m, n], row_major if not operand.transposed else [*row_major[:-2], 1, m]),
            OperandShape.ROW: ([n], [1]),
            OperandShape.ROWS: ([*batch, 1, n], [*(n for _ in batch), n, 1]),
            OperandShape.COLUMN: ([*batch, m, 1], [*(m for _ in batch), 1, 1]),
            OperandShape.SCALAR: ([], []),
            OperandShape.GATE: ([FloorDiv(m + operand.block - 1, operand.block or 1), n], [n, 1]),
        }[operand.shape]
        buffer = input_buffer(graph, operand.name, operand_dtype(operand, problem), size, stride)
        found[operand] = _per_row(buffer, operand.block, m, n) if operand.block else buffer
    return found


def _per_row(gate: ir.TensorBox, block: int, m: int | sympy.Expr, n: int) -> ir.TensorBox:
    """Return a gate with a row per row of the output, of which no copy is made."""
    load = gate.make_loader()

    def vector_of(index: Sequence[sympy.Expr]) -> Any:  # noqa: ANN401 (a value in any of Inductor's handlers)
        return load([FloorDiv(index[0], block), index[1]])

    found: ir.TensorBox = ir.Pointwise.create(
        device=gate.get_device(), dtype=gate.get_dtype(), inner_fn=vector_of, ranges=[m, n]
    )
    return found


def lower_epilogue(
    epilogue: Epilogue, product: ir.TensorBox, operands: Mapping[Operand, ir.TensorBox], dtype: torch.dtype
) -> list[ir.TensorBox]:
    """Return the epilogue's outputs as buffers, of which Inductor's scheduler makes kernels.

    Outputs without a type of their own have `dtype`.
    """
    values: dict[Term, Any] = {Product(): _widened(product)}
    values |= {operand: _widened(buffer) for operand, buffer in operands.items()}
    outputs = []
    for output in epilogue.outputs:
        wanted = getattr(torch, DType(output.dtype).torch_name) if output.dtype else dtype
        if isinstance(output.term, Product) and wanted == product.get_dtype():
            outputs.append(product)
            continue
        found = evaluated(expanded(output.term), values, lambda x: int(x) if x.is_integer() else x, _operation)
        found = lowering.to_dtype(found, wanted)
        found.realize()
        outputs.append(found)
    return outputs


def generated_kernels(graph: GraphLowering, outputs: Mapping[str, ir.TensorBox]) -> list[GeneratedKernel]:
    """Schedule a graph and return the kernels that Inductor generates, in the order of their launches."""
    graph.graph_outputs = [ir.ExternKernel.realize_input(output) for output in outputs.values()]
    graph.finalize()
    tensors = {output.get_name(): name for name, output in outputs.items()}
    found: list[GeneratedKernel] = []

    def define(_: TritonScheduling, source: str, _nodes: object, kernel: Any) -> str:  # noqa: ANN401
        for placeholder in (Placeholder.DESCRIPTIVE_NAME, Placeholder.KERNEL_NAME):
            source = source.replace(str(placeholder), "triton_")
        key, path = PyCodeCache.write(source.replace("#pragma CMT", "#"))
        definitions, called, *_ = kernel.args.python_argdefs()
        arguments = {  # the only size that is none known is m
            definition.name: "m" if definition.name.startswith("ks") else tensors.get(str(name), str(name))
            for definition, name in zip(definitions, called, strict=True)
        }
        sizes = {f"{prefix}numel": int(size) for prefix, size in kernel.numels.items() if size.is_number}
        own = {name: graph.name_to_buffer.get(name) for name in map(str, called) if name not in tensors}
        scratch = {
            name: int(buffer.get_numel()) * buffer.get_dtype().itemsize
            for name, buffer in own.items()
            if isinstance(buffer, ir.ComputedBuffer)
        }
        found.append(GeneratedKernel(path, key, "triton_", arguments, sizes, scratch))
        return f"triton_{len(found)}"

    with patch.object(TritonScheduling, "define_kernel", define), V.set_debug_handler(DebugContext()):
        graph.codegen()
    return found


def operand_dtype(operand: Operand, problem: Problem) -> torch.dtype:
    """Return the element type of an epilogue's operand."""
    if operand.dtype == "bool":
        return torch.bool
    found: torch.dtype = getattr(torch, DType(operand.dtype or problem.out_dtype).torch_name)
    return found


def _widened(tensor: ir.TensorBox) -> ir.TensorBox:
    """Return a tensor in fp32, in which all is computed; conditions stay as they are."""
    if tensor.get_dtype() in (torch.bool, torch.float32):
        return tensor
    found: ir.TensorBox = lowering.to_dtype(tensor, torch.float32)
    return found


def _operation(op: str) -> Callable[..., Any]:
    return lowering.lowerings[_OVERLOADS.get(op) or getattr(_ATEN, op).default]
