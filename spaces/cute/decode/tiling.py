"""Work of each thread of the decode kernels, as arithmetic that kernels and tests share. Needs no package.

A block computes `tile_n` columns of the output for `rows` rows. Its warps share them along n and along k; the blocks of
a cluster share k. A warp reads its columns of B in chunks of `unroll` vectors per lane and column, and takes every
`parts`-th chunk. The sums of all warps meet in the shared memory of the cluster's blocks, each of which adds up one
slice of the tile.

Functions take Python's integers and those of a kernel alike.
"""

from dataclasses import dataclass

WARP = 32
"""Threads of one warp."""
LOAD_BYTES = 16
"""Bytes of a row that a lane loads at once."""
VECTOR = 8
"""Elements of 16 bits that a lane multiplies at once: those of a load, or half a load of 8-bit elements."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Share of each warp and block in a product."""

    rows: int
    """Rows of A and of the output per block."""
    columns: int
    """Columns of the output, which are rows of a transposed B, per warp."""
    lanes_k: int
    """Lanes of a warp that read one row of an operand: 32 for a GEMV, 4 for tensor cores."""
    warps_n: int
    """Warps of a block along n."""
    warps_k: int
    """Warps of a block along k."""
    split_k: int
    """Blocks of a cluster, all along k."""
    unroll: int
    """Loads of a lane per row of an operand and chunk."""
    stages: int
    """Chunks per warp in shared memory, one of which is computed while the others are loaded."""
    shares_a: bool = False
    """Whether the warps along n load one copy of A together, instead of a copy each."""
    elements: int = VECTOR
    """Elements of a row per load: 8 of 16 bits, or 16 of 8 bits."""

    @property
    def threads(self) -> int:
        """Threads per block, a multiple of 32."""
        return WARP * self.warps_n * self.warps_k

    @property
    def tile_n(self) -> int:
        """Columns of the output per block."""
        return self.columns * self.warps_n

    @property
    def parts(self) -> int:
        """Warps of a cluster that share k."""
        return self.warps_k * self.split_k

    @property
    def chunk(self) -> int:
        """Vectors of a row per chunk."""
        return self.lanes_k * self.unroll

    @property
    def rows_per_lane(self) -> int:
        """Rows of A that a lane reads."""
        return self.rows * self.lanes_k // WARP

    @property
    def sharers(self) -> int:
        """Warps that load one copy of A together."""
        return self.warps_n if self.shares_a else 1

    @property
    def columns_per_lane(self) -> int:
        """Columns of B that a lane reads."""
        return self.columns * self.lanes_k // WARP

    @property
    def loads(self) -> int:
        """Loads of a lane per chunk."""
        return (self.rows_per_lane // self.sharers + self.columns_per_lane) * self.unroll

    @property
    def tile(self) -> int:
        """Elements of the output per cluster."""
        return self.rows * self.tile_n

    @property
    def slice(self) -> int:
        """Elements of the output that one block adds up and writes."""
        return -(-self.tile // self.split_k)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory per block: the loads of all stages, and a sum per part and element of the slice."""
        return LOAD_BYTES * self.loads * self.stages * self.threads + 4 * self.parts * self.slice

    @property
    def steps(self) -> int:
        """Groups of elements in a load that are multiplied one behind the other."""
        return self.elements // VECTOR

    def chunks_of_part(self, vectors: int, part: int) -> int:
        """Return the number of chunks that a part of k reads: chunks `part`, `part + parts` and so on."""
        chunks = (vectors + (self.chunk - 1)) // self.chunk
        return (chunks + (self.parts - 1) - part) // self.parts

    def vector(self, part: int, step: int, load: int, lane_k: int) -> int:
        """Return the vector of a row that a lane reads in its part's chunk number `step`; it may lie beyond the row."""
        return ((part + step * self.parts) * self.unroll + load) * self.lanes_k + lane_k
