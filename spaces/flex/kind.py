"""Attention: operands with their mask's blocks, and outputs or gradients in float64."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.flex.attention import Flex, Phase
from gemmtune.engine.records.flex.functions import TENSORS
from gemmtune.engine.records.flex.masks import NONE
from gemmtune.engine.records.flex.tensors import tensors_of, values_of
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import MAX_SIZE, DType
from gemmtune.engine.records.gemm.text import SHOWN
from gemmtune.engine.records.workload import spanning
from gemmtune.engine.seams.workload import Expected, Operands, TensorSource, WorkloadKind, gemm_like

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask

_TOLERANCE = {DType.BF16: 8e-3, DType.FP16: 1e-3}
"""Largest ‖out − reference‖ / ‖reference‖ that rounding may cause, by the operands' type."""
_OF_GRADIENTS = 3.0
"""Factor for gradients, whose kernel rounds the weights and their gradients between its products."""
_OF_ROW = 2.0
"""Tolerances of its query's root mean square that an element may be off: a query that sees few keys has larger values.
Rounding is a quarter of a tolerance in the mean, and gets to seven times that in 10^8 elements."""
_LEAST_LENGTH = 2  # torch compiles a length of 1 for itself
_MOST_BESIDE = 8192
"""Largest sizes of the GEMM that is timed beside an attention: 128 MiB of weight, which no L2 holds."""


@dataclass(frozen=True, slots=True)
class FlexOperands:
    """Tensors of one kernel of attention."""

    tensors: Mapping[str, torch.Tensor]
    """Tensors by the names of `Flex.argument_names`, in their order."""
    written: tuple[str, ...]
    """Names of the outputs that are checked."""

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """Arguments of a kernel's call, in the order of `Flex.argument_names`."""
        return tuple(self.tensors.values())

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """Outputs of the kernel."""
        return tuple(self.tensors[name] for name in self.written)

    @property
    def read(self) -> tuple[torch.Tensor, ...]:
        """Tensors that the mask reads."""
        return tuple(self.tensors[name] for name in TENSORS if name in self.tensors)


class FlexKind(WorkloadKind[Flex]):
    """Kernels of flex_attention: forward, backward and decode, see `Flex`."""

    sizes: ClassVar[tuple[str, ...]] = (
        "batch", "heads", "kv_heads", "queries", "keys", "head_dim", "value_dim", "block_q", "block_kv",
    )  # fmt: skip
    needed: ClassVar[tuple[str, ...]] = ("batch", "heads", "queries", "keys", "head_dim")
    listed: ClassVar[str] = "keys"

    def parse(self, text: str) -> Flex:
        """Return the attention of its text; see `Flex.parse`."""
        return Flex.parse(text)

    def expand(self, text: str) -> tuple[Flex, ...]:
        """Return the attention of a text, or those that span a range of lengths: `s128..16384`, or `kv2..8192`.

        Raises:
            ProblemError: the text is malformed, or the range has no length.
        """
        found = re.search(r":(s|kv)(-?[0-9.]+)\.\.(-?[0-9.]*)(?=:|$)", text)
        if found is None:
            return (self.parse(text),)
        first, last = (int(each) if re.fullmatch("[0-9]{1,18}", each) else 0 for each in found.groups()[1:])
        if not 1 <= first <= last <= MAX_SIZE or last < _LEAST_LENGTH:
            way_out = f"write the least length first, as in s128..16384, from 1 to {MAX_SIZE}"
            raise ProblemError(f"{text[:SHOWN]!r}: {found[0][1:SHOWN]} is no range of lengths: {way_out}")
        sizes = spanning(max(_LEAST_LENGTH, first), last)
        head, tail = text[: found.start()], text[found.end() :]
        return tuple(self.parse(f"{head}:{found[1]}{size}{tail}:dynamic={found[1]}") for size in sizes)

    def from_fields(self, fields: Mapping[str, str]) -> Flex:
        """Return the attention of text fields; see `Flex.from_fields`."""
        return Flex.from_fields(fields)

    def operands(self, workload: Flex, source: TensorSource, number: int) -> FlexOperands:
        """Return standard-normal queries, keys, values and gradient, and the blocks of the mask.

        A backward kernel gets the softmax's sums and `delta` of the reference.
        """
        import torch

        a, name = workload, f"{workload.name}#{number}" if number else workload.name
        dtype: torch.dtype = getattr(torch, a.dtype.torch_name)
        of_queries, of_keys = (a.batch, a.heads, a.queries), (a.batch, a.kv_heads, a.keys)
        shapes = {"q": (*of_queries, a.head_dim), "k": (*of_keys, a.head_dim), "v": (*of_keys, a.value_dim)}
        found = {each: source.normal(dtype, shape, f"{name} {each}") for each, shape in shapes.items()}
        found |= _blocks(a, source, name)
        read = tuple(found[each] for each in TENSORS if each in found)
        written: tuple[str, ...] = ("out",)
        if a.phase is Phase.BACKWARD:
            from gemmtune.spaces.flex import reference

            written = ("dq", "dk", "dv")
            found |= {f"d{each}": source.empty(dtype, shape, f"{name} d{each}") for each, shape in shapes.items()}
            found["do"] = source.normal(dtype, (*of_queries, a.value_dim), f"{name} do")
            out, lse = reference.forward(a, found["q"], found["k"], found["v"], read)
            found["lse"] = source.own(torch.float32, of_queries, f"{name} lse").copy_(lse)
            delta = (out * found["do"].float()).sum(-1)
            found["delta"] = source.own(torch.float32, of_queries, f"{name} delta").copy_(delta)
        else:
            found["out"] = source.empty(dtype, (*of_queries, a.value_dim), f"{name} out")
            for each in ("lse", "max"):
                found[each] = source.own(torch.float32, of_queries, f"{name} {each}")
        return FlexOperands({each: found[each] for each in a.argument_names}, written)

    def expected(self, workload: Flex, operands: Operands) -> tuple[Expected, ...]:
        """Return the output, or the gradients of queries, keys and values, computed in float64."""
        from gemmtune.spaces.flex import reference

        assert isinstance(operands, FlexOperands)
        q, k, v = (operands.tensors[name] for name in "qkv")
        tolerance = _TOLERANCE[workload.dtype]
        if workload.phase is not Phase.BACKWARD:
            out, _ = reference.forward(workload, q, k, v, operands.read)
            return (Expected(out, tolerance, of_row=_OF_ROW * tolerance),)
        grad, delta = operands.tensors["do"], operands.tensors["delta"]
        found = reference.gradients(workload, q, k, v, grad, delta, operands.read)
        tolerance *= _OF_GRADIENTS
        return tuple(Expected(each, tolerance, of_row=_OF_ROW * tolerance) for each in found)

    def timed_beside(self, workload: Flex) -> Problem:
        """Return a bf16 GEMM with about the operations and bytes of the attention, at most 8192 in each size."""
        flops, nbytes = 2 * _MOST_BESIDE**3, 2 * _MOST_BESIDE**2
        return gemm_like(min(workload.flops, flops), min(workload.min_bytes, nbytes), workload.weight)


def block_mask(attention: Flex, device: torch.device, read: tuple[torch.Tensor, ...]) -> BlockMask | None:
    """Return the blocks of a mask on a device, as torch makes them of its function; None without a mask."""
    from torch.nn.attention.flex_attention import create_block_mask

    from gemmtune.spaces.flex.torch_functions import mask_function

    a, mask = attention, mask_function(attention)
    if a.mask == NONE:
        return None
    blocks, (batch, heads) = (a.block_q, a.block_kv), (size if size > 1 else None for size in a.mask_axes)

    def of_index(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return mask(b, h, q, kv, *read)

    return create_block_mask(of_index, batch, heads, a.queries, a.keys, device=device, BLOCK_SIZE=blocks)


def tensors_read(attention: Flex) -> dict[str, torch.Tensor]:
    """Return the tensors that a mask reads, by name, on the CPU."""
    import torch

    a = attention
    values = a.documents, a.lengths, a.seen, (a.block_q or 1, a.block_kv or 1)
    every = {tensor.name: values_of(tensor, a.axis_sizes, *values) for tensor in tensors_of(a.mask)}
    return {name: torch.from_numpy(its.copy()) for name, its in every.items()}


def _blocks(attention: Flex, source: TensorSource, name: str) -> dict[str, torch.Tensor]:
    """Return the blocks of the mask by a kernel's names for them, and the tensors that it reads."""
    import torch
    from torch.nn.attention.flex_attention import _create_empty_block_mask

    a, found = attention, dict[str, torch.Tensor]()
    for each, its in tensors_read(a).items():
        memory = source.own(torch.int32, (its.numel(),), f"{name} {each}").view(its.dtype)
        found[each] = memory[: its.numel()].view(its.shape).copy_(its)
    mask = block_mask(a, source.device, tuple(found.values()))
    if mask is None:
        sizes = (a.queries, a.keys)
        mask = _create_empty_block_mask(*(torch.empty(1, 1, size, 1, device=source.device) for size in sizes))
    none = torch.zeros(1, dtype=torch.int32, device=source.device)
    for each in (f"{full}{side}" for full in ("", "full_") for side in ("kv", "q")):
        for part, letters in (("num_blocks", "num"), ("indices", "idx")):
            its = getattr(mask, f"{each}_{part}")
            found[f"{each}_{letters}"] = none if its is None else its.contiguous()
    return found
