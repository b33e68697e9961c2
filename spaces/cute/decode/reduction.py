"""Sum of the warps' shares of an output tile over a cluster, in distributed shared memory. Imports cutlass.

Each warp writes its sums into the shared memory of the block that owns them. Behind one barrier of the cluster, each
block adds up its own slice in a fixed order, so that equal inputs give equal bits. All threads of all blocks pass both
barriers whatever the sizes are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.memory import SmemAllocator

from gemmtune.engine.records.epilogue.chain import Epilogue
from gemmtune.engine.records.epilogue.terms import Operand
from gemmtune.spaces.cute.decode.tiling import Tiling
from gemmtune.spaces.cute.epilogue import computed


@dataclass(frozen=True, slots=True)
class Behind:
    """Operations behind the sum of an element."""

    bias: str
    """Summand of addmm: `none`, `vector` or `matrix`."""
    epilogue: Epilogue
    """Operations on the sum with the bias, with one output."""

    def value(
        self, total: cutlass.Float32, further: Sequence[cute.Tensor], row: cutlass.Int32, column: cutlass.Int32
    ) -> cutlass.Float32:
        """Return an element of the output; `further` has the bias and the epilogue's operands."""
        bias, *operands = further
        if self.bias != "none":
            total = total + bias[column if self.bias == "vector" else (row, column)].to(cutlass.Float32)
        read = {
            operand: _element(operand, tensor, row, column)
            for operand, tensor in zip(self.epilogue.operands, operands, strict=True)
        }
        (value,) = computed(self.epilogue, total, read)
        return value


def _element(operand: Operand, tensor: cute.Tensor, row: cutlass.Int32, column: cutlass.Int32) -> Any:  # noqa: ANN401
    """Return the element of an epilogue's operand for an element of the output."""
    place = (row if operand.shape.has_rows else 0, column if operand.shape.has_columns else 0)
    return tensor[place].to(cutlass.Float32)


@cute.jit
def announce(tiling: cutlass.Constexpr[Tiling]) -> None:
    """Tell the cluster that this block runs; nobody may write to its shared memory before `store_share` waited."""
    if cutlass.const_expr(tiling.split_k > 1):
        cute.arch.cluster_arrive_relaxed()


def shared_sums(tiling: Tiling, memory: SmemAllocator) -> cute.Tensor:
    """Return the block's shared memory, shape (slice, parts)."""
    layout = cute.make_layout((tiling.slice, tiling.parts), stride=(1, tiling.slice))
    return memory.allocate_tensor(cutlass.Float32, layout, byte_alignment=16)


@cute.jit
def store_share(
    tiling: cutlass.Constexpr[Tiling],
    sums: cute.Tensor,
    part: cutlass.Int32,
    element: cutlass.Int32,
    value: cutlass.Float32,
) -> None:
    """Write a warp's sum of one element of the tile to the block that owns the element."""
    if cutlass.const_expr(tiling.split_k > 1):
        owner, place = element // tiling.slice, element % tiling.slice
        here = sums.iterator + (place + part * tiling.slice)
        cute.arch.inline_ptx(
            "st.shared::cluster.f32 [{$r0}], {$r1};",
            read_only_args=[cutlass.Int32(cute.arch.map_dsmem_ptr(here, owner).toint()), value],
        )
    else:
        sums[element, part] = value


@cute.jit
def reduce_and_store(
    tiling: cutlass.Constexpr[Tiling],
    sums: cute.Tensor,
    out: cute.Tensor,
    further: list[cute.Tensor],
    behind: cutlass.Constexpr[Behind],
    first_row: cutlass.Int32,
    first_column: cutlass.Int32,
    rank: cutlass.Int32,
    thread: cutlass.Int32,
) -> None:
    """Wait for all shares of the block's slice, add them up with the bias, and write the epilogue's output."""
    if cutlass.const_expr(tiling.split_k > 1):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    else:
        cute.arch.sync_threads()
    m, n = out.shape
    for place in cutlass.range(thread, tiling.slice, tiling.threads):
        element = rank * tiling.slice + place
        row = first_row + element // tiling.tile_n
        column = first_column + element % tiling.tile_n
        if element < tiling.tile and row < m and column < n:
            total = cutlass.Float32(0.0)
            for part in cutlass.range(tiling.parts, unroll=min(8, tiling.parts)):
                total += sums[place, part]
            out[row, column] = behind.value(total, further, row, column).to(out.element_type)
