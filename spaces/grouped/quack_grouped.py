"""Space of QuACK's persistent GEMM over groups of rows or of k, for Hopper and Blackwell."""

from collections.abc import Mapping
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.terms import Accumulation
from gemmtune.engine.records.grouped.product import grouped
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES, Argument
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import toolchain_of
from gemmtune.spaces.quack.autotuner_list import DEFAULT_SWIZZLE, listed
from gemmtune.spaces.quack.grouped import call_of, runs, serves, swizzle_width, tiling_of

if TYPE_CHECKING:
    import torch

# Named as the fields of quack.gemm_config.GemmConfig.
_PARAMS = (
    Param("tile_m", (64, 128, 192, 256)),
    Param("tile_n", (16, 32, 64, 96, 128, 160, 192, 208, 224, 256, 512)),
    Param("cluster_m", (1, 2)),
    Param("cluster_n", (1, 2)),
    Param("pingpong", (False, True)),
    Param("is_dynamic_persistent", (False, True)),
    Param("max_swizzle_size", (4, 8, 16)),
)
_FLAT_TILES = tuple((64, tile_n) for tile_n in (64, 96, 128, 192, 256))
"""Tiles for groups of few rows on sm_90, which QuACK's list lacks: taller ones compute more rows that are not there."""
_READS_ENDS = "1"
"""Revision of how kernels read where groups end; a kernel of another one is measured again."""


class QuackGroupedSpace(Space):
    """Tile, cluster, schedule and swizzle of QuACK's GEMM over groups; the kernel computes only rows that are there.

    Groups of rows are forward products and gradients of inputs; groups of k are gradients of weights. Kernels read
    where groups end from torch's own `offs`. A group without rows gives nothing, or zeros with groups of k. Without
    swap_ab, which QuACK lacks for groups of rows, a group's rows always lie along m.
    """

    workload = "grouped"
    preload = ("gemmtune.spaces.quack.grouped_build",)
    needs = RUNTIME_PACKAGES
    compiled_packages = ("nvidia-cutlass-operators", "quack-kernels")  # QuACK builds on an example of CUTLASS
    launch_params = ("max_swizzle_size",)
    examples = (
        ("grouped:rows:m4096:g64:n1536:k2048:bf16:nt", "H200"),
        ("grouped:rows:m8:g8:n14336:k4096:bf16:nn:routing=zipf", "H100"),
        ("grouped:inner:m1536:g16:n2048:k4096:bf16:tn", "H200"),
        ("grouped:inner:m512:g4:n256:k64:fp16:tn:routing=counts(0.64.0.0)", "B200"),
        ("grouped:rows:m4096:g64:n1536:k2048:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])", "H200"),
        ("grouped:rows:m512:g4:n256:k64:bf16:tt", "H200"),
        ("grouped:batched:m64:g4:n256:k128:bf16:nn", "H200"),
    )

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters, equal for every task; `check` rejects values that an architecture cannot run."""
        return _PARAMS

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject configs that QuACK cannot run here, and configs that equal another one."""
        return serves(task) and runs(task, config)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return what QuACK's autotuner would try and flat tiles, least operand traffic of the busiest SM first."""
        product, arch = grouped(task.problem), task.device.arch
        quacks = (
            Config({k: v for k, v in c.items() if k != "swap_ab"})
            for c in listed(arch, float8=product.dtype.is_float8, exact=product.accumulation is Accumulation.EXACT)
        )
        found = dict.fromkeys((*quacks, *(_flat(*tile) for tile in _FLAT_TILES)))
        feasible = (config for config in found if self.check(task, config))
        return tuple(sorted(feasible, key=lambda config: tiling_of(task, config).busiest_traffic(task.device)))

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how the groups' clusters and tiles fit the GPU, and how wide the swizzled groups of tiles are."""
        tiling = tiling_of(task, config)
        _, group = swizzle_width(tiling, config.integer("max_swizzle_size"))
        return {**tiling.features(task.device), "group": log2(group)}

    def toolchain(self) -> Toolchain:
        """Return the versions of QuACK, of CUTLASS's DSL, which compiles, of TVM-FFI, and of our reading of ends."""
        versions = toolchain_of(*RUNTIME_PACKAGES, "quack-kernels", extra="cute").versions
        return Toolchain(tuple(sorted((*versions, ("gemmtune-ends", _READS_ENDS)))))

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return all that the binary depends on; sizes, groups and the number of clusters are its arguments."""
        product = grouped(task.problem)
        scaled = (product.accumulation.value,) if product.dtype.is_float8 else ()
        types = f"{product.dtype}:{product.layout}"
        return "/".join((task.space, task.device.arch, product.form, types, *scaled, config.digest))

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Trace and cross-compile QuACK's kernel for the task's device."""
        from gemmtune.spaces.quack.grouped_build import build_grouped

        return build_grouped(self, task, config, folder)

    def deployed_call(self, artifact: Artifact, task: Task) -> list[Argument]:
        """Return the operands, the ends of the groups, and the schedule that the kernel was compiled for."""
        return call_of(artifact, task)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the kernel with the host code that launches it, without QuACK."""
        return _GroupedKernel(self, artifact, task)


class _GroupedKernel:
    """Kernel that is not launched for operands without elements, which no tensor map describes."""

    def __init__(self, space: QuackGroupedSpace, artifact: Artifact, task: Task) -> None:
        from gemmtune.spaces.cute.artifact import CuteKernel

        names = grouped(task.problem).argument_names
        self._kernel = CuteKernel(artifact, space.deployed_call(artifact, task), names)

    def __call__(self, a: "torch.Tensor", b: "torch.Tensor", out: "torch.Tensor", *further: "torch.Tensor") -> None:
        """Enqueue the products; further tensors are the scales of e4m3, and where groups end."""
        if a.numel():
            self._kernel(a, b, out, *further)
        else:
            out.zero_()

    def close(self) -> None:
        """Unload the kernel from the GPU."""
        self._kernel.close()


def _flat(tile_m: int, tile_n: int) -> Config:
    flags = {"pingpong": tile_n <= 128, "is_dynamic_persistent": False}
    cluster = {"cluster_m": 1, "cluster_n": 1}
    return Config({"tile_m": tile_m, "tile_n": tile_n, **cluster, **flags, "max_swizzle_size": DEFAULT_SWIZZLE})
