"""Kernels for products of few rows: one on CUDA cores, one on tensor cores. Imports cutlass.

Both read a transposed B once, in rows of k, and split k over warps and over the blocks of a cluster.
"""

from abc import ABC, abstractmethod

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Int32, const_expr, cute
from cutlass.memory import SmemAllocator

from gemmtune.engine.records.epilogue.chain import Epilogue
from gemmtune.spaces.cute.decode.reduction import Behind, announce, reduce_and_store, shared_sums, store_share
from gemmtune.spaces.cute.decode.slots import address_of_row, load, make_slots
from gemmtune.spaces.cute.decode.tiling import VECTOR, WARP, Tiling
from gemmtune.spaces.cute.decode.widening import loaded, widened


class DecodeKernel(ABC):
    """Kernel for one tiling; it takes the sizes when it is launched, and is right for any."""

    def __init__(
        self, tiling: Tiling, element: type[cutlass.Numeric], added: str, epilogue: Epilogue, use_pdl: bool
    ) -> None:
        """Take the tiling, the type that is multiplied, the bias (`none`, `vector` or `matrix`), and what follows.

        A and B have that type, or 8 bits, which are converted to it in registers. The epilogue has one output. With
        `use_pdl`, launches overlap.
        """
        self._tiling, self._element, self._use_pdl = tiling, element, use_pdl
        self._added, self._epilogue = added, epilogue

    @cute.jit
    def __call__(
        self, a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, further: list[cute.Tensor], stream: CUstream
    ) -> None:
        """Launch out = epilogue(A @ Bᵀ + bias); `further` has the bias and the epilogue's operands.

        Without a bias, any tensor stands for it.
        """
        tiling = self._tiling
        m, n = out.shape
        self.kernel(a, b, out, further).launch(
            grid=[cute.ceil_div(n, tiling.tile_n) * tiling.split_k, cute.ceil_div(m, tiling.rows), 1],
            block=[tiling.threads, 1, 1],
            cluster=[tiling.split_k, 1, 1],
            stream=stream,
            use_pdl=self._use_pdl,
        )

    @cute.kernel
    def kernel(self, a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, further: list[cute.Tensor]) -> None:
        """Compute a block's share of the sums of its tile, and write a slice of the tile."""
        tiling = self._tiling
        thread, _, _ = cute.arch.thread_idx()
        block, block_m, _ = cute.arch.block_idx()
        rank = block % tiling.split_k
        announce(tiling)
        memory = SmemAllocator()
        a_threads = const_expr(tiling.threads // tiling.sharers)  # warps that share A differ in their columns alone
        a_loads, b_loads = tiling.rows_per_lane * tiling.unroll, tiling.columns_per_lane * tiling.unroll
        a_slots = make_slots(tiling.stages, a_loads, a_threads, a.element_type, memory)
        b_slots = make_slots(tiling.stages, b_loads, tiling.threads, b.element_type, memory)
        a_thread = thread % a_threads
        of_a, of_b = a_slots[None, None, a_thread, None], b_slots[None, None, thread, None]
        sums = shared_sums(tiling, memory)
        if const_expr(self._use_pdl):
            # Until the kernel before has ended, which may have written A or B. None is told to start before this one
            # ends: behind it runs a kernel of another library, and launches in a row are timed as they deploy.
            cute.arch.griddepcontrol_wait()

        warp, lane = thread // WARP, thread % WARP
        part = rank * tiling.warps_k + warp % tiling.warps_k
        column_of_warp = warp // tiling.warps_k * tiling.columns
        first_column, first_row = block // tiling.split_k * tiling.tile_n, block_m * tiling.rows
        lane_k, lane_n = lane % tiling.lanes_k, lane // tiling.lanes_k
        lanes_n = const_expr(WARP // tiling.lanes_k)

        m, k = a.shape
        n, _ = b.shape
        vectors = k // tiling.elements
        # Rows and columns beyond the matrices are read from their last one, and not written.
        first_own = warp // tiling.warps_k if const_expr(tiling.shares_a) else 0
        rows = [
            address_of_row(a, cutlass.min(first_row + (i + first_own) * lanes_n + lane_n, m - 1))
            for i in range(0, tiling.rows_per_lane, tiling.sharers)
        ]
        columns = [
            address_of_row(b, cutlass.min(first_column + column_of_warp + i * lanes_n + lane_n, n - 1))
            for i in range(tiling.columns_per_lane)
        ]
        total = self._make_total()
        total.fill(0.0)

        chunks = tiling.chunks_of_part(vectors, part)
        for step in cutlass.range(tiling.stages - 1, unroll=1):
            if step < chunks:
                self._load(rows, columns, of_a, of_b, part, step, lane_k, vectors, first_own)
            cute.arch.cp_async_commit_group()
        for step in cutlass.range(chunks, unroll=1):
            if const_expr(tiling.shares_a):
                # Now the chunk is whole, and no warp reads the one before, whose slots are loaded next.
                cute.arch.cp_async_wait_group(tiling.stages - 2)
                cute.arch.barrier(barrier_id=1 + warp % tiling.warps_k, number_of_threads=WARP * tiling.sharers)
            ahead = step + (tiling.stages - 1)
            if ahead < chunks:
                self._load(rows, columns, of_a, of_b, part, ahead, lane_k, vectors, first_own)
            cute.arch.cp_async_commit_group()
            if const_expr(not tiling.shares_a):
                cute.arch.cp_async_wait_group(tiling.stages - 1)
            slot = step % tiling.stages
            self._add(a_slots[None, None, a_thread, slot], b_slots[None, None, thread, slot], total)

        if const_expr(tiling.split_k > 1):
            cute.arch.cluster_wait()  # for `announce`: the shared memory of every block may be written
        self._share(total, sums, part, column_of_warp, lane)
        behind = Behind(self._added, self._epilogue)
        reduce_and_store(tiling, sums, out, further, behind, first_row, first_column, rank, thread)

    @cute.jit
    def _load(
        self,
        rows: list[cute.Pointer],
        columns: list[cute.Pointer],
        of_a: cute.Tensor,
        of_b: cute.Tensor,
        part: Int32,
        step: Int32,
        lane_k: Int32,
        vectors: Int32,
        first_own: Int32,
    ) -> None:
        """Start the loads of one chunk; of a shared A, each warp loads every `sharers`-th group of rows."""
        tiling = self._tiling
        slot = step % tiling.stages
        for u in cutlass.range_constexpr(tiling.unroll):
            vector = tiling.vector(part, step, u, lane_k)
            for i in cutlass.range_constexpr(tiling.columns_per_lane):
                load(columns[i], vector, vectors, of_b[None, u * tiling.columns_per_lane + i, slot], True)
            for i in cutlass.range_constexpr(tiling.rows_per_lane // tiling.sharers):
                place = u * tiling.rows_per_lane + i * tiling.sharers + first_own
                load(rows[i], vector, vectors, of_a[None, place, slot], False)

    @abstractmethod
    def _make_total(self) -> cute.Tensor:
        """Return the accumulators of a lane, in registers."""

    @abstractmethod
    def _add(self, of_a: cute.Tensor, of_b: cute.Tensor, total: cute.Tensor) -> None:
        """Add the products of one chunk."""

    @abstractmethod
    def _share(self, total: cute.Tensor, sums: cute.Tensor, part: Int32, column_of_warp: Int32, lane: Int32) -> None:
        """Write the warp's sums to the blocks that own them."""


class GemvKernel(DecodeKernel):
    """Kernel on CUDA cores: a warp reads whole lines of a row of B, and adds up over its lanes at the end."""

    def _make_total(self) -> cute.Tensor:
        """Return accumulators of shape (columns, rows)."""
        tiling = self._tiling
        return cute.make_rmem_tensor(
            cute.make_layout((tiling.columns, tiling.rows), stride=(1, tiling.columns)), cutlass.Float32
        )

    @cute.jit
    def _add(self, of_a: cute.Tensor, of_b: cute.Tensor, total: cute.Tensor) -> None:
        """Add the products of one chunk in fp32."""
        tiling = self._tiling
        b = cute.make_rmem_tensor(cute.make_layout((VECTOR, tiling.columns)), cutlass.Float32)
        a = cute.make_rmem_tensor(cute.make_layout(VECTOR), cutlass.Float32)
        for u in cutlass.range_constexpr(tiling.unroll):
            loads = [loaded(of_b[None, u * tiling.columns + i]) for i in range(tiling.columns)]
            for step in cutlass.range_constexpr(tiling.steps):
                for i in cutlass.range_constexpr(tiling.columns):
                    b[None, i].store(widened(loads[i], step).load().to(cutlass.Float32))
                for j in cutlass.range_constexpr(tiling.rows):
                    row = loaded(of_a[None, u * tiling.rows + j])
                    a.store(widened(row, step).load().to(cutlass.Float32))
                    for i in cutlass.range_constexpr(tiling.columns):
                        for v in cutlass.range_constexpr(VECTOR):
                            total[i, j] = total[i, j] + b[v, i] * a[v]

    @cute.jit
    def _share(self, total: cute.Tensor, sums: cute.Tensor, part: Int32, column_of_warp: Int32, lane: Int32) -> None:
        """Add up over the lanes; each lane writes some of the warp's sums."""
        tiling = self._tiling
        for j in cutlass.range_constexpr(tiling.rows):
            for i in cutlass.range_constexpr(tiling.columns):
                value = cute.arch.warp_reduction_sum(total[i, j])
                if lane == (j * tiling.columns + i) % WARP:
                    store_share(tiling, sums, part, j * tiling.tile_n + column_of_warp + i, value)


class SplitKKernel(DecodeKernel):
    """Kernel on tensor cores: columns of the output are the rows of m16n8k16, so that 8 rows of A fill it.

    An instruction takes its k in any order, if both operands take the same one. So lane t of four reads 8 elements in a
    row of memory, which are its operands of two instructions, and no operand changes its thread.
    """

    def _make_total(self) -> cute.Tensor:
        """Return accumulators of shape ((pair of rows, halves of 8 columns), 16 columns, 8 rows)."""
        strips, groups = self._tiling.columns // 16, self._tiling.rows // 8
        layout = cute.make_layout(((2, 2), strips, groups), stride=((1, 2), 4, 4 * strips))
        return cute.make_rmem_tensor(layout, cutlass.Float32)

    @cute.jit
    def _add(self, of_a: cute.Tensor, of_b: cute.Tensor, total: cute.Tensor) -> None:
        """Add the products of one chunk, by two instructions per step of a load."""
        tiling = self._tiling
        mma = cute.make_mma_atom(cute.nvgpu.warp.MmaF16BF16Op(self._element, cutlass.Float32, (16, 8, 16)))
        strips, groups = const_expr(tiling.columns_per_lane // 2), const_expr(tiling.rows_per_lane)
        b = cute.make_rmem_tensor(cute.make_layout((VECTOR, 2 * strips)), self._element)
        a = cute.make_rmem_tensor(cute.make_layout((VECTOR, groups)), self._element)
        # Pairs along k, the other half of the columns, and the other pairs along k; then the two instructions.
        b_operand = cute.make_tensor(
            b.iterator, cute.make_layout(((2, 2, 2), 2, strips), stride=((1, VECTOR, 2), 4, 2 * VECTOR))
        )
        a_operand = cute.make_tensor(a.iterator, cute.make_layout(((2, 2), 2, groups), stride=((1, 2), 4, VECTOR)))
        for u in cutlass.range_constexpr(tiling.unroll):
            of_columns = [loaded(of_b[None, u * 2 * strips + i]) for i in range(2 * strips)]
            of_rows = [loaded(of_a[None, u * groups + j]) for j in range(groups)]
            for step in cutlass.range_constexpr(tiling.steps):
                for i in cutlass.range_constexpr(2 * strips):
                    cute.autovec_copy(widened(of_columns[i], step), b[None, i])
                for j in cutlass.range_constexpr(groups):
                    cute.autovec_copy(widened(of_rows[j], step), a[None, j])
                for strip in cutlass.range_constexpr(strips):
                    for group in cutlass.range_constexpr(groups):
                        for half in cutlass.range_constexpr(2):
                            accumulator = total[None, strip, group]
                            cute.mma_atom_call(
                                mma,
                                accumulator,
                                b_operand[None, half, strip],
                                a_operand[None, half, group],
                                accumulator,
                            )

    @cute.jit
    def _share(self, total: cute.Tensor, sums: cute.Tensor, part: Int32, column_of_warp: Int32, lane: Int32) -> None:
        """Write each accumulator; the instruction has given each lane whole sums of its part of k."""
        tiling = self._tiling
        for strip in cutlass.range_constexpr(tiling.columns // 16):
            for group in cutlass.range_constexpr(tiling.rows // 8):
                for half in cutlass.range_constexpr(2):
                    for pair in cutlass.range_constexpr(2):
                        column = column_of_warp + strip * 16 + half * 8 + lane // 4
                        row = group * 8 + 2 * (lane % 4) + pair
                        element = row * tiling.tile_n + column
                        store_share(tiling, sums, part, element, total[(pair, half), strip, group])
