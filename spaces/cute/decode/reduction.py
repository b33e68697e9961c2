"""Sum of the warps' shares of an output tile over a cluster, in distributed shared memory. Imports cutlass.

Each warp writes its sums into the shared memory of the block that owns them. Behind one barrier of the cluster, each
block adds up its own slice in a fixed order, so that equal inputs give equal bits. All threads of all blocks pass both
barriers whatever the sizes are.
"""

import cutlass
from cutlass import cute
from cutlass.memory import SmemAllocator

from gemmtune.spaces.cute.decode.tiling import Tiling

__all__ = ["announce", "reduce_and_store", "shared_sums", "store_share"]


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
    bias: cute.Tensor,
    out: cute.Tensor,
    added: cutlass.Constexpr[str],
    first_row: cutlass.Int32,
    first_column: cutlass.Int32,
    rank: cutlass.Int32,
    thread: cutlass.Int32,
) -> None:
    """Wait for all shares of the block's slice, add them up with the bias, and write the output."""
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
            if cutlass.const_expr(added == "vector"):
                total += bias[column].to(cutlass.Float32)
            if cutlass.const_expr(added == "matrix"):
                total += bias[row, column].to(cutlass.Float32)
            out[row, column] = total.to(out.element_type)
