"""QuACK's kernel with a problem's bias and epilogue in it. Imports torch, cutlass and quack."""

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

import torch
from cutlass import Float32, cute
from quack.epilogue.frontend import EpiMod
from quack.epilogue.ops import ColVecLoad, EpiOp, RowVecLoad, Scalar, TileLoad
from quack.gemm_config import GemmConfig
from quack.gemm_runtime.host import GemmEpiPlan

from gemmtune.engine.records.epilogue.terms import OperandShape
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.spaces.cute.epilogue import computed
from gemmtune.spaces.cute.target import operands_of
from gemmtune.spaces.quack.operands import EpilogueTensor, epilogue_tensors, further_outputs, product_of


class _ScalarLoad(Scalar):  # type: ignore[misc] # its package ships no types
    """Scalar in a tensor of one element, where QuACK's own takes a pointer, which no `Argument` is."""

    arg_spec_type = EpiOp.arg_spec_type
    host_arg_key = EpiOp.host_arg_key
    host_call_arg = EpiOp.host_call_arg

    def host_fake_arg(self, key: tuple[Any, int], fctx: object) -> cute.Tensor:
        """Return a tensor without memory of the type of `host_arg_key`."""
        dtype, _ = key
        return cute.runtime.make_fake_tensor(dtype, (1,), stride=(1,), assumed_align=dtype.width // 8)

    def begin(self, gemm: object, param: Any, smem_tensor: object, ctx: object) -> Any:  # noqa: ANN401 (as below)
        """Load the element as Float32, once per tile."""
        return param[0].to(Float32)


_LOADS = {
    OperandShape.MATRIX: TileLoad,
    OperandShape.ROW: RowVecLoad,
    OperandShape.COLUMN: ColVecLoad,
    OperandShape.SCALAR: _ScalarLoad,
}


def epilogue_plan(problem: Problem, config: GemmConfig) -> GemmEpiPlan:
    """Compile the kernel, and return the plan of its launch.

    Vectors have one dimension, because QuACK would require two-dimensional ones to be aligned along the first.
    """
    tensors = (*epilogue_tensors(problem), *further_outputs(problem).values())
    shaped = {tensor.name: _shaped(problem, tensor) for tensor in tensors}
    return compiled_epilogue(problem, operands_of(product_of(problem)), shaped, config)


def compiled_epilogue(
    problem: Problem,
    operands: Sequence[torch.Tensor],
    tensors: Mapping[str, torch.Tensor],
    config: GemmConfig,
    **lengths: torch.Tensor,
) -> GemmEpiPlan:
    """Compile the kernel for A, B and out, and for the epilogue's tensors by name; `lengths` says where groups end."""
    return epilogue_mod(problem).gemm(
        *operands,
        epi_args=dict(tensors),
        tile_M=config.tile_m,
        tile_N=config.tile_n,
        tile_K=config.tile_k,
        cluster_M=config.cluster_m,
        cluster_N=config.cluster_n,
        pingpong=config.pingpong,
        is_dynamic_persistent=config.is_dynamic_persistent,
        max_swizzle_size=config.max_swizzle_size,
        swap_ab=config.swap_ab,
        b_kn=True,
        _launch=False,
        **lengths,
    )


def epilogue_mod(problem: Problem) -> EpiMod:
    """Return the epilogue as QuACK takes it: a function, whose parameters are the tensors, and how each is loaded."""
    elements = _Elements(problem)
    names = ("D", *further_outputs(problem))

    def stored(acc: Any, **values: Any) -> dict[str, Any]:  # noqa: ANN401 (Float32, or a pair of such)
        return dict(zip(names, elements(acc, values), strict=True))

    loads = {name: _LOADS[shape](name) for name, shape, *_ in epilogue_tensors(problem)}
    named = [Parameter("acc", Parameter.POSITIONAL_OR_KEYWORD), *(Parameter(n, Parameter.KEYWORD_ONLY) for n in loads)]
    stored.__signature__ = Signature(named)  # type: ignore[attr-defined]
    return EpiMod(stored, outputs=names[1:], ops=loads)


class _Elements:
    """Elements of the output, from those of the product and of the epilogue's tensors."""

    def __init__(self, problem: Problem) -> None:
        self._epilogue = problem.epilogue
        self._tensors = epilogue_tensors(problem)
        self._key = f"{problem.bias}:{problem.epilogue}"

    def __quack_semantic_key__(self) -> object:
        """Return all that the elements depend on, by which QuACK finds a kernel's class again."""
        return self._key

    def __call__(self, product: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 (as above)
        """Return an element per output, or the two of a pair, as which QuACK computes on Blackwell."""
        if isinstance(product, tuple):
            pairs = ({name: value[lane] for name, value in values.items()} for lane in range(len(product)))
            return tuple(zip(*map(self, product, pairs), strict=True))
        biased = product + values["bias"] if "bias" in values else product
        operands = {each.operand: values[each.name] for each in self._tensors if each.operand is not None}
        return computed(self._epilogue, biased, operands)


def _shaped(problem: Problem, tensor: EpilogueTensor) -> torch.Tensor:
    """Return a tensor without memory, because compiling reads only its type, dimensions and strides."""
    sizes = problem.shape_of(tensor.shape)
    if tensor.shape is not OperandShape.MATRIX:
        sizes = (max(sizes),)
    return torch.empty(sizes, dtype=getattr(torch, DType(tensor.dtype).torch_name), device="meta")
