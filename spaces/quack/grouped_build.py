"""Trace and compile QuACK's GEMM over groups, to read where each group ends. Imports torch, cutlass and quack.

QuACK's kernels read cumulative lengths with a 0 in front. Torch's grouped products have the ends alone, so a caller
would launch a copy before each product. The kernels compiled here read the ends themselves.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cutlass
import torch
from cutlass import cute
from quack import gemm as dispatch
from quack import gemm_interface as interface
from quack.compile_utils import make_fake_tensor
from quack.gemm_base import GemmBase
from quack.gemm_config import GemmConfig
from quack.gemm_runtime import host
from quack.varlen_utils import VarlenArguments, VarlenManager

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.terms import Layout
from gemmtune.engine.records.grouped.product import Form, Grouped, grouped
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space
from gemmtune.spaces.cute.artifact import Compiled
from gemmtune.spaces.quack.build import accumulation, built, target
from gemmtune.spaces.quack.epilogue import compiled_epilogue


class _CumulativeLengths:
    """Cumulative lengths, read from the ends of the groups: 0, then the end of each group before."""

    def __init__(self, ends: Any) -> None:  # noqa: ANN401 (a tensor of the DSL, by whose stubs it has no shape)
        self._ends = ends

    @property
    def shape(self) -> tuple[Any]:
        """Number of groups plus 1."""
        return (self._ends.shape[0] + 1,)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (values of the GPU)
        return self._ends[cutlass.max(index - 1, 0)] * cutlass.min(index, 1)

    def __extract_mlir_values__(self) -> list[Any]:
        return list(cutlass.extract_mlir_values(self._ends))

    def __new_from_mlir_values__(self, values: list[Any]) -> "_CumulativeLengths":
        return _CumulativeLengths(cutlass.new_from_mlir_values(self._ends, values))


def build_grouped(space: Space, task: Task, config: Config, folder: Path) -> Artifact:
    """Compile `config` for the task's device, and leave the object file in `folder`.

    Raises:
        BuildError: QuACK or the compiler refuse the config, or it needs more than a block may have.
    """
    return built(_compile, space, task, config, folder)


def _compile(task: Task, config: Config) -> Compiled:
    """Return the function that QuACK itself compiles for such operands and this config, reading ends of groups."""
    product = grouped(task.problem)
    (a, b, out), lengths = _operands_of(product), torch.empty(product.groups + 1, dtype=torch.int32, device="meta")
    quacks_config = GemmConfig(**config, device_capacity=task.device.capability[0])
    cut = {"cu_seqlens_m" if product.form is Form.ROWS else "cu_seqlens_k": lengths}
    one = product.of_one_group
    with target(task.device), _reading_ends(), accumulation(one):
        if product.epilogue:
            scales = {"column": a.new_empty(product.m, dtype=torch.float32)}
            scales["row"] = a.new_empty((product.groups, product.n), dtype=torch.float32)
            plan = compiled_epilogue(one, (a, b, out), scales, quacks_config, **cut)
        else:
            *_, plan = interface.gemm_tuned.fn(a, b, out, config=quacks_config, **cut)
    compiled: Compiled = plan.compiled_fn
    return compiled


def _operands_of(product: Grouped) -> list[torch.Tensor]:
    """Return A, B and out without memory, because compiling reads only their types, sizes and strides."""
    dtypes, layouts = (product.dtype, product.dtype, product.out_dtype), (product.a_layout, product.b_layout, Layout.N)
    operands = []
    for shape, layout, dtype in zip(product.shapes, layouts, dtypes, strict=True):
        stored = shape if layout is Layout.N else (*shape[:-2], shape[-1], shape[-2])
        tensor = torch.empty(stored, dtype=getattr(torch, dtype.torch_name), device="meta")
        operands.append(tensor if layout is Layout.N else tensor.mT)
    return operands


@contextlib.contextmanager
def _reading_ends() -> Iterator[None]:
    """Let QuACK's kernel and its scheduler read ends of groups where they would read cumulative lengths.

    The ends may begin at any element, since only single ones are read.
    """

    def fake_arguments(varlen_m: bool, varlen_k: bool, *_: object, **__: object) -> VarlenArguments:
        ends = make_fake_tensor(cutlass.Int32, (cute.sym_int(),), leading_dim=0, divisibility=1)
        return VarlenArguments(mCuSeqlensM=ends if varlen_m else None, mCuSeqlensK=ends if varlen_k else None)

    def wrapped(ends: Any) -> Any:  # noqa: ANN401 (a tensor of the DSL, or None)
        return None if ends is None else _CumulativeLengths(ends)

    def parameters(arguments: VarlenArguments, **_: object) -> VarlenManager.Params:
        return VarlenManager.Params(wrapped(arguments.mCuSeqlensM), wrapped(arguments.mCuSeqlensK))

    def scheduled(gemm: GemmBase, *arguments: Any) -> Any:  # noqa: ANN401 (QuACK's own types)
        *operands, varlen, epilogue = arguments
        lengths = varlen._replace(mCuSeqlensM=wrapped(varlen.mCuSeqlensM), mCuSeqlensK=wrapped(varlen.mCuSeqlensK))
        return scheduler_arguments(gemm, *operands, lengths, epilogue)

    scheduler_arguments = GemmBase.get_scheduler_arguments
    with (
        patch.object(dispatch, "make_fake_varlen_args", fake_arguments),
        patch.object(host, "make_fake_varlen_args", fake_arguments),
        patch.object(VarlenManager, "to_underlying_arguments", staticmethod(parameters)),
        patch.object(GemmBase, "get_scheduler_arguments", scheduled),
    ):
        yield
