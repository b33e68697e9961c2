"""The kernels' arithmetic, followed thread by thread on a CPU."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gemmtune.spaces.cute.decode.tiling import VECTOR, WARP, Tiling

GEMV = Tiling(rows=3, columns=2, lanes_k=32, warps_n=2, warps_k=2, split_k=3, unroll=2, stages=4)
TENSOR_CORES = Tiling(rows=16, columns=32, lanes_k=4, warps_n=2, warps_k=4, split_k=2, unroll=2, stages=3)


def blocks(tiling, m, n):
    """First row, first column and rank of each block."""
    for row in range(0, m, tiling.rows):
        for block in range(-(-n // tiling.tile_n) * tiling.split_k):
            yield row, block // tiling.split_k * tiling.tile_n, block % tiling.split_k


def warps(tiling, rank):
    """Part of k and first column of each warp of a block."""
    for warp in range(tiling.threads // WARP):
        yield rank * tiling.warps_k + warp % tiling.warps_k, warp // tiling.warps_k * tiling.columns


def read(matrix, row, vector):
    """A load: of the last row beyond the matrix, and zeros beyond a row."""
    row = min(row, matrix.shape[0] - 1)
    if vector >= matrix.shape[1] // VECTOR:
        return np.zeros(VECTOR)
    return matrix[row, VECTOR * vector : VECTOR * (vector + 1)]


def instruction(b_registers, a_registers):
    """m16n8k16 on the registers of 32 lanes, by the layouts of the PTX manual; returns 4 sums per lane."""
    first, second = np.zeros((16, 16)), np.zeros((16, 8))
    for lane in range(WARP):
        group, thread = lane // 4, lane % 4
        for i in range(8):
            row = group + 8 * (i // 2 % 2)
            first[row, 2 * thread + i % 2 + 8 * (i // 4)] = b_registers[lane][i]
        for i in range(4):
            second[2 * thread + i % 2 + 8 * (i // 2), group] = a_registers[lane][i]
    product = first @ second
    return [[product[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] for i in range(4)] for lane in range(WARP)]


def warp_sums(tiling, a, b, first_row, first_column, part):
    """A warp's sums as (row, column of the warp, value)."""
    lanes_n = WARP // tiling.lanes_k
    total = np.zeros((tiling.rows, tiling.columns))
    for step in range(tiling.chunks_of_part(a.shape[1] // VECTOR, part)):
        for load in range(tiling.unroll):
            of_a = np.zeros((WARP, tiling.rows_per_lane, VECTOR))
            of_b = np.zeros((WARP, tiling.columns_per_lane, VECTOR))
            for lane in range(WARP):
                vector = tiling.vector(part, step, load, lane % tiling.lanes_k)
                for i in range(tiling.rows_per_lane):
                    of_a[lane, i] = read(a, first_row + i * lanes_n + lane // tiling.lanes_k, vector)
                for i in range(tiling.columns_per_lane):
                    of_b[lane, i] = read(b, first_column + i * lanes_n + lane // tiling.lanes_k, vector)
            if tiling.lanes_k == WARP:
                total += np.einsum("lrv,lcv->rc", of_a, of_b)
                continue
            for strip in range(tiling.columns // 16):
                for group in range(tiling.rows // 8):
                    for half in range(2):
                        # registers: pairs along k, the other eight columns, the other pairs along k
                        first = [
                            [of_b[lane, 2 * strip + i // 2 % 2, 4 * half + i % 2 + 2 * (i // 4)] for i in range(8)]
                            for lane in range(WARP)
                        ]
                        second = [
                            [of_a[lane, group, 4 * half + i % 2 + 2 * (i // 2)] for i in range(4)]
                            for lane in range(WARP)
                        ]
                        for lane, sums in enumerate(instruction(first, second)):
                            for i, value in enumerate(sums):
                                column = strip * 16 + 8 * (i // 2) + lane // 4
                                total[group * 8 + 2 * (lane % 4) + i % 2, column] += value
    return total


@pytest.mark.parametrize(
    ("tiling", "m", "n", "k"),
    [(GEMV, 3, 7, 1544), (GEMV, 5, 4, 520), (TENSOR_CORES, 3, 70, 1032), (TENSOR_CORES, 17, 40, 264)],
)
def test_the_shares_of_all_warps_make_the_product(tiling, m, n, k):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    out = np.full((m, n), np.nan)
    shared = {}
    for row, column, rank in blocks(tiling, m, n):
        for part, of_warp in warps(tiling, rank):
            total = warp_sums(tiling, a, b, row, column + of_warp, part)
            for (i, j), value in np.ndenumerate(total):
                owner, place = divmod(i * tiling.tile_n + of_warp + j, tiling.slice)
                assert (row, column, owner, place, part) not in shared
                shared[row, column, owner, place, part] = value
    for row, column, rank in blocks(tiling, m, n):
        for place in range(tiling.slice):
            element = rank * tiling.slice + place
            i, j = row + element // tiling.tile_n, column + element % tiling.tile_n
            if element < tiling.tile and i < m and j < n:
                assert np.isnan(out[i, j])
                out[i, j] = sum(shared[row, column, rank, place, part] for part in range(tiling.parts))
    np.testing.assert_allclose(out, a @ b.T, atol=1e-9)


@pytest.mark.parametrize("tiling", [GEMV, TENSOR_CORES])
@pytest.mark.parametrize("vectors", [1, 64, 129, 1792])
def test_every_vector_of_a_row_is_read_once(tiling, vectors):
    reads = Counter(
        tiling.vector(part, step, load, lane)
        for part in range(tiling.parts)
        for step in range(tiling.chunks_of_part(vectors, part))
        for load in range(tiling.unroll)
        for lane in range(tiling.lanes_k)
    )
    assert {vector: reads[vector] for vector in range(vectors)} == dict.fromkeys(range(vectors), 1)
    assert max(reads) < vectors + tiling.chunk


def test_warps_that_share_a_load_each_row_once_into_the_slots_that_all_of_them_read():
    tiling = Tiling(rows=32, columns=32, lanes_k=4, warps_n=2, warps_k=4, split_k=1, unroll=2, stages=4, shares_a=True)
    own = tiling.rows_per_lane // tiling.sharers
    loaded = [first + i * tiling.sharers for first in range(tiling.warps_n) for i in range(own)]
    assert sorted(loaded) == list(range(tiling.rows_per_lane))
    assert tiling.loads == (2 + 4) * 2
    slots = tiling.unroll * (tiling.columns_per_lane * 8 + tiling.rows_per_lane * 4)  # of 8 warps, and of 4
    assert tiling.shared_bytes == 16 * WARP * slots * 4 + 4 * tiling.parts * tiling.slice


def test_shared_memory_holds_all_stages_and_the_sums_of_a_slice():
    assert GEMV.slice == 4  # 12 elements of 3 blocks
    assert GEMV.shared_bytes == 16 * (3 + 2) * 2 * 4 * 128 + 4 * 6 * 4
    assert TENSOR_CORES.loads == (2 + 4) * 2
    assert TENSOR_CORES.shared_bytes == 16 * 12 * 3 * 256 + 4 * 8 * 512
