"""Space of Inductor's `triton::grouped_mm` template, which max-autotune benchmarks for grouped products."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product as every
from math import prod
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact, KernelCode, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.grouped.product import Form, grouped
from gemmtune.engine.records.grouped.routing import UNIFORM
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import triton_toolchain
from gemmtune.spaces.common.tile_limits import fits_in_registers, fits_in_shared_memory
from gemmtune.spaces.common.triton_config import triton_config
from gemmtune.spaces.grouped.alignment import cut, strided
from gemmtune.spaces.grouped.tiling import Tiling

_PARAMS = (
    Param("BLOCK_M", (16, 32, 64, 128, 256)),
    Param("BLOCK_N", (32, 64, 128, 256)),
    Param("BLOCK_K", (32, 64, 128, 256)),
    Param("num_stages", (2, 3, 4, 5)),
    Param("num_warps", (4, 8)),
)
_LISTED = ((16, 32, 64, 128), (64, 128, 256), (64, 128), (3, 4), (4, 8))
"""Values of `_NV_CONFIGS` in torch 2.13's torch/_inductor/kernel/mm_grouped.py, without BLOCK_K 256."""
_ROWS = ((16, 16, 32), (32, 16, 64), (64, 32, 128))
"""Average rows of a group, and the least and the largest BLOCK_M that `early_config_prune` there leaves up to them."""
_BARRIER_BYTES = 8
_LARGEST_INT32 = 2**31 - 1
_FIRST_WITH_TMA = (9, 0)


class TritonGroupedSpace(Space):
    """Tile and pipeline of Inductor's `triton::grouped_mm`, a persistent kernel with one block per multiprocessor.

    The rows, or k where that is cut, are an argument of the kernel; groups and the other sizes are compiled in.
    """

    workload = "grouped"
    preload = ("gemmtune.spaces.inductor.preload",)
    examples = (
        ("grouped:rows:m4096:g64:n1536:k2048:bf16:nt", "H200"),
        ("grouped:rows:m8:g8:n14336:k4096:bf16:nn:routing=zipf", "H100"),
        ("grouped:inner:m1536:g16:n2048:k4096:bf16:tn", "H200"),
        ("grouped:rows:m512:g4:n256:k64:fp16:tt", "A100-80GB"),
        ("grouped:batched:m64:g4:n256:k128:bf16:nn", "H200"),
    )

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the template; the values cover Inductor's list."""
        return _PARAMS

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject products that the template does not serve, and tiles that cannot fit."""
        product, capability = grouped(task.problem), task.device.capability
        if not (is_cut := cut(product)):
            return is_cut
        if product.dtype.is_float8:
            return Verdict.no("dtype", "torch.compile runs no row of triton_grouped, so of e4m3 none is rendered")
        if capability < _FIRST_WITH_TMA:
            return Verdict.no("architecture", f"the template copies by TMA, which {task.device.arch} lacks")
        block_k, block_m, block_n, num_stages, num_warps = (int(value) for value in config.values())  # by name
        needed = num_stages * ((block_m + block_n) * block_k * product.dtype.itemsize + _BARRIER_BYTES)
        return (
            strided(product, "TMA")
            and fits_in_registers(task, block_m, block_n, num_warps)
            and fits_in_shared_memory(task, needed, num_stages)
        )

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return what Inductor would benchmark for such groups, least operand traffic of the busiest SM first."""
        product = grouped(task.problem)
        average = product.m // product.groups if product.form is Form.ROWS else product.m
        least, most = next((bounds for rows, *bounds in _ROWS if average <= rows), (64, 128))
        names = [param.name for param in _PARAMS]
        listed = (Config(dict(zip(names, values, strict=True))) for values in every(*_LISTED))
        suited = (c for c in listed if least <= c.integer("BLOCK_M") <= most and self.check(task, c))
        return tuple(sorted(suited, key=lambda config: _tiling(task, config).busiest_traffic(task.device)))

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how the groups' tiles fit the GPU, and what the pipeline holds."""
        held = config.integer("num_stages") * config.integer("BLOCK_K")
        own = {"k in flight": float(held), "warps": float(config.integer("num_warps"))}
        return {**_tiling(task, config).features(task.device), **own}

    def toolchain(self) -> Toolchain:
        """Return the versions of torch and Triton, and what changes their kernels; see `triton_toolchain`."""
        return triton_toolchain("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return all that the binary depends on: sizes but the range size, the width of indices, and the blocks."""
        product, device = grouped(task.problem), task.device
        width = 64 if max(map(prod, product.shapes)) > _LARGEST_INT32 else 32
        name = replace(product.series, routing=UNIFORM).name
        return f"{task.space}/{device.arch}/{device.sm_count}/{name}/{width}/{config.digest}"

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Render the template and cross-compile it for the task's device."""
        from gemmtune.spaces.inductor.grouped import build_grouped

        return build_grouped(self, task, config, folder)

    def config_source(self, task: Task, config: Config) -> str:
        """Return a config as Triton's source."""
        return triton_config(config)

    def code(self, task: Task, config: Config, folder: Path) -> KernelCode:
        """Return the PTX of what is launched, with the config."""
        from gemmtune.spaces.triton_source.code import triton_code

        return triton_code(self, task, config, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubin, with memory for the tensor maps that its blocks write."""
        from gemmtune.spaces.inductor.kernel import GroupedKernel

        return GroupedKernel(artifact, grouped(task.problem))


def _tiling(task: Task, config: Config) -> Tiling:
    tile = config.integer("BLOCK_M"), config.integer("BLOCK_N")
    return Tiling.of(grouped(task.problem), tile, config.integer("BLOCK_K"))
