"""Tiles of a config of QuACK, and the order in which it computes them."""

from dataclasses import replace

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import gemm
from gemmtune.engine.records.gemm.terms import Layout
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute.clustered_tile import ClusteredTile
from gemmtune.spaces.matmul_heuristics.model import Shape


def transposed(task: Task) -> Task:
    """Return the task that a kernel computes with swap_ab: out.T = B.T @ A.T. A and B have one type."""
    problem = gemm(task.problem)
    a_layout, b_layout = (Layout.N if other is Layout.T else Layout.T for other in (problem.b_layout, problem.a_layout))
    return replace(task, problem=replace(problem, m=problem.n, n=problem.m, a_layout=a_layout, b_layout=b_layout))


def modelled(task: Task, config: Config) -> Shape | None:
    """Return the config's shape as nvMatmulHeuristics counts it, regardless of swap_ab.

    Return None on sm_100 for CTAs along m that are no pairs: the model takes every even cluster_m for pairs.
    """
    rows, cluster_m = cta_rows(task.device.arch, config), config.integer("cluster_m")
    if task.device.arch == "sm_100a" and cluster_m % 2 == 0 and rows == config.integer("tile_m"):
        return None
    return Shape(rows, config.integer("tile_n"), cluster_m, config.integer("cluster_n"))


def clustered_tile(task: Task, config: Config) -> ClusteredTile:
    """Return tile and cluster of a CTA along the output's m and n; swap_ab exchanges those of the kernel."""
    rows, columns = cta_rows(task.device.arch, config), config.integer("tile_n")
    cluster_m, cluster_n = config.integer("cluster_m"), config.integer("cluster_n")
    if config["swap_ab"]:
        return ClusteredTile(columns, rows, cluster_n, cluster_m)
    return ClusteredTile(rows, columns, cluster_m, cluster_n)


def tile_order(task: Task, config: Config, max_swizzle_size: int) -> tuple[bool, int]:
    """Return whether tiles advance along m, and the width of a group of tiles in clusters.

    Source: `TileScheduler.Params.create` in quack/tile_scheduler.py, without a raster option.
    """
    m, n = gemm(task.problem).m, gemm(task.problem).n
    if config["swap_ab"]:  # the kernel computes the transpose
        m, n = n, m
    clusters_m = -(-m // (cta_rows(task.device.arch, config) * config.integer("cluster_m")))
    clusters_n = -(-n // (config.integer("tile_n") * config.integer("cluster_n")))
    along_m = -(-clusters_n // max_swizzle_size) > -(-clusters_m // max_swizzle_size)
    return along_m, min(max_swizzle_size, clusters_m if along_m else clusters_n)


def operand_traffic(task: Task, config: Config) -> int:
    """Return the operand elements that the busiest SM loads per step of k: waves × (rows + columns)."""
    tile = clustered_tile(task, config)
    tiles = -(-gemm(task.problem).m // tile.m) * -(-gemm(task.problem).n // tile.n)
    return -(-tiles // task.device.sm_count) * (tile.m + tile.n)


def cta_rows(arch: str, config: Config) -> int:
    """Return the rows of a CTA: half a tile if two CTAs share the MMA (`cta_tile_shape_m` in quack/gemm_config.py)."""
    tile_m = config.integer("tile_m")
    pair = arch == "sm_100a" and config.integer("cluster_m") % 2 == 0 and tile_m in (128, 256)
    return tile_m // 2 if pair else tile_m
