"""Constraints that the engines' Triton kernels have in common, each stated once."""

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.toolchain.triton_tiles import least_shared_bytes
from gemmtune.spaces.common.tile_limits import fits_in_registers, fits_in_shared_memory, padded

TILE = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
"""Parameters that the kernels take as constexpr arguments; the others are options of Triton."""

TILE_PARAMS = (
    Param("BLOCK_SIZE_M", (16, 32, 64, 128, 256)),
    Param("BLOCK_SIZE_N", (32, 64, 128, 256)),
    Param("BLOCK_SIZE_K", (64, 128, 256)),
    Param("GROUP_SIZE_M", (1, 16, 32, 64)),
    Param("num_warps", (4, 8)),
    Param("num_stages", (2, 3, 4, 5)),
)
"""Parameters of the engines' own tuners."""

_FIRST_WITH_FP8 = (8, 9)


def tile(config: Config) -> tuple[int, int, int]:
    """Return rows, columns and depth of the tile."""
    return config.integer("BLOCK_SIZE_M"), config.integer("BLOCK_SIZE_N"), config.integer("BLOCK_SIZE_K")


def column_blocks(columns: int, config: Config) -> int:
    """Return the number of tiles along the columns of a product."""
    return -(-columns // config.integer("BLOCK_SIZE_N"))


def serves_fp8(task: Task) -> Verdict:
    """Return whether the device multiplies 8-bit floats."""
    if task.device.capability < _FIRST_WITH_FP8:
        return Verdict.no("architecture", f"fp8 needs sm_89 or later, not {task.device.arch}")
    return Verdict.yes()


def fits(
    task: Task, config: Config, itemsizes: tuple[int, int], *, rows: int, depth: int, scaled: int, swaps: bool
) -> Verdict:
    """Return whether a tile can be right and is of use.

    A tile has at most `scaled` columns of k for its scales; 0 is no bound. A group of tiles has at most `rows` rows; a
    kernel that `swaps` A and B has the tile's columns as rows of its instruction.
    """
    block_m, block_n, block_k = tile(config)
    if scaled and block_k > scaled:
        return Verdict.no(
            "BLOCK_SIZE_K over the scales", f"BLOCK_SIZE_K {block_k} > {scaled}, the elements that share a scale"
        )
    if block_k > max(padded(depth), 64):
        return Verdict.no("BLOCK_SIZE_K beyond k", f"BLOCK_SIZE_K {block_k} > {padded(depth)}, the padded k of {depth}")
    if block_m > padded(rows):
        return Verdict.no(
            "BLOCK_SIZE_M beyond the rows",
            f"BLOCK_SIZE_M {block_m} > {padded(rows)}: no group of rows has more than {rows}",
        )
    num_warps, num_stages = config.integer("num_warps"), config.integer("num_stages")
    in_registers = fits_in_registers(task, block_m, block_n, num_warps)
    mma_rows = block_n if swaps else block_m
    needed = least_shared_bytes(task.device.capability, (block_m, block_n, block_k), num_stages, itemsizes, mma_rows)
    return in_registers and fits_in_shared_memory(task, needed, num_stages)
