"""Tiles of a grouped product, group by group, and how they fill a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from typing import Self

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.grouped.product import Form, Grouped


@dataclass(frozen=True, slots=True)
class Tiling:
    """Clusters of tiles that a persistent kernel computes, group by group."""

    form: Form
    """Dimension that is cut into groups."""
    tile: tuple[int, int]
    """Rows and columns of the output that a block computes."""
    cluster: tuple[int, int]
    """Blocks of a cluster along m and n."""
    rows: tuple[int, ...]
    """Clusters along m of each group; none where a group has no rows."""
    columns: int
    """Clusters along n of every group."""
    depths: tuple[int, ...]
    """Steps along k of each group's tiles."""
    padding: float
    """Elements of all tiles over elements of the output."""

    @classmethod
    def of(cls, product: Grouped, tile: tuple[int, int], step: int, cluster: tuple[int, int] = (1, 1)) -> Self:
        """Return the tiling of a product whose kernel takes `step` elements of k at once."""
        height, width = tile[0] * cluster[0], tile[1] * cluster[1]
        counts, by_rows = product.counts, product.form is Form.ROWS
        rows = tuple(-(-(count if by_rows else product.m) // height) for count in counts)
        depths = tuple(-(-(product.k if by_rows else count) // step) for count in counts)
        columns, there = -(-product.n // width), product.m * (1 if by_rows else product.groups)
        padding = sum(rows) * height / there * columns * width / product.n
        return cls(product.form, tile, cluster, rows, columns, depths, padding)

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def clusters(self) -> int:
        """Clusters of all groups."""
        return sum(self.rows) * self.columns

    def resident(self, device: Device) -> int:
        """Return the clusters that the GPU runs at once, with a block per multiprocessor."""
        return max(1, device.max_active_clusters(self.blocks) if self.blocks > 1 else device.sm_count)

    def waves(self, device: Device) -> int:
        """Return the clusters that the busiest place on the GPU computes."""
        return -(-self.clusters // self.resident(device))

    def busiest_traffic(self, device: Device) -> int:
        """Return the operand elements that the busiest SM loads per step of k: waves × (rows + columns)."""
        return self.waves(device) * sum(self.tile)

    def features(self, device: Device) -> Mapping[str, float]:
        """Return how groups and tiles fill the GPU, what a block loads and computes: logarithms to base 2, by name."""
        (tile_m, tile_n), (cluster_m, cluster_n) = self.tile, self.cluster
        waves, resident, clusters = self.waves(device), self.resident(device), self.clusters
        steps = sum(rows * depth for rows, depth in zip(self.rows, self.depths, strict=True)) / sum(self.rows)
        return {
            "tiles per SM": log2(clusters * self.blocks / device.sm_count),
            "waves": log2(waves),
            "tail": log2(waves * resident / clusters),
            "idle SMs": log2(device.sm_count / (resident * self.blocks)),
            "padding": log2(self.padding),
            "tiles of the largest group": log2(max(self.rows) * self.columns),
            "groups with rows": log2(sum(rows > 0 for rows in self.rows)),
            "traffic of the busiest SM": log2(self.busiest_traffic(device)),
            "traffic of its share": log2(waves * (tile_m / cluster_n + tile_n / cluster_m)),
            "work of the busiest SM": log2(waves * tile_m * tile_n * max(1.0, steps)),
            "deepest tile": log2(max(1, *self.depths)),
            "accumulators": log2(tile_m * tile_n),
            "blocks of a cluster": log2(self.blocks),
        }
