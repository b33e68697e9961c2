"""The base class of the spaces of engines' linear kernels in fp8 with scales per block."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from gemmtune.engine.platform.serving.engine_source import kernel_text
from gemmtune.engine.platform.serving.file_name import Engine, Kernel
from gemmtune.engine.platform.triton_tiles import least_shared_bytes
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.serving.block_linear import BlockLinear
from gemmtune.engine.records.serving.moe_layer import SCALE_BLOCK
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.spaces.serving.rules import TILE_PARAMS, column_blocks, fits, serves_fp8, tile
from gemmtune.spaces.serving.shipped import deployed_params, engine_source, is_deployed, known_configs
from gemmtune.spaces.serving.toolchain import engine_toolchain
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch, Pointer, Workspace

__all__ = ["LinearSpace", "ShippedLinearSpace"]

_A, _B, _OUT, _A_SCALE, _B_SCALE = (
    Pointer(t, (i,)) for i, t in enumerate(("fp8e4nv", "fp8e4nv", "bf16", "fp32", "fp32"))
)
"""Tensors in the order of `Operands.arguments` in spaces/workloads/block_linear.py."""


class LinearSpace(Space):
    """Tile, order and pipeline of one product."""

    preload = ("gemmtune.spaces.triton_source.preload",)

    engine: ClassVar[Engine]
    """Engine whose kernel is built."""
    functions: ClassVar[tuple[str, ...]]
    """Functions of the engine's file that the launches name."""

    @abstractmethod
    def launches(self, task: Task, config: Config) -> Sequence[KernelLaunch]:
        """Return the engine's launches, in order."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the engine's own tuner."""
        return TILE_PARAMS

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject tiles that compute a wrong result, are of no use, or do not fit."""
        if not (served := serves_fp8(task)):
            return served
        layer = self.layer(task)
        swaps = bool(config.get("SWAP_AB"))
        return fits(task, config, 1, rows=layer.tokens, depth=layer.k, scaled=True, swaps=swaps)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return what the engine runs now, and the nearest other entries of its tuned file."""
        return tuple(known_configs(self, task, self.layer(task), self.engine))

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how the product fills the GPU, what padding costs, and how much the pipeline holds."""
        layer, (block_m, block_n, block_k) = self.layer(task), tile(config)
        rows = block_n if config.get("SWAP_AB") else block_m
        shared = least_shared_bytes(task.device.capability, tile(config), config.integer("num_stages"), (1, 1), rows)
        resident = max(1, task.device.shared_memory_per_sm_bytes // (shared + 1024))
        splits = int(config.get("SPLIT_K", 1))
        blocks = self.blocks(task, config) * splits
        return {
            "filled rows": layer.tokens / (-(-layer.tokens // block_m) * block_m),
            "resident blocks": math.log2(resident),
            "bytes in flight": math.log2(resident * shared),
            "operations per byte": math.log2(block_m * block_n / (block_m + block_n)),
            "waves": math.log2(blocks / (task.device.sm_count * resident)),
            "steps": math.log2(max(1.0, layer.k / block_k / splits)),
        }

    def blocks(self, task: Task, config: Config) -> int:
        """Return the number of tiles of the output."""
        layer = self.layer(task)
        return -(-layer.tokens // config.integer("BLOCK_SIZE_M")) * column_blocks(layer.n, config)

    def layer(self, task: Task) -> BlockLinear:
        """Return the task's layer."""
        assert isinstance(task.problem, BlockLinear)
        return task.problem

    def toolchain(self) -> Toolchain:
        """Return the versions of the engine and of Triton, and the hash of the kernels' source."""
        return engine_toolchain(self.engine, self.source()[1])

    def source(self) -> tuple[str, str]:
        """Return the text of the kernels' module and its SHA-256; raises like `find_engine`."""
        return kernel_text(engine_source(self.engine).kernel_file(Kernel.LINEAR), self.functions)

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return a key that all layers share whose launches Triton compiles alike: sizes are run-time arguments."""
        if not config:  # the baseline's, where the engine is missing
            return super().artifact_key(task, config)
        compiled = [(each.function, each.specialised()) for each in self.launches(task, config)]
        digest = hashlib.sha256(repr(compiled).encode()).hexdigest()[:16]
        return f"{task.device.sku}/{self.engine}_block_fp8/{digest}/{config.digest}"

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Compile the engine's kernels."""
        from gemmtune.spaces.triton_source.build import build_kernels

        return build_kernels(self, task, config, folder, self.source()[0], self.launches(task, config))

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubins through the CUDA driver."""
        from gemmtune.spaces.triton_source.kernels import TritonKernels

        return TritonKernels(artifact, self.launches(task, Config.from_json(str(dict(artifact.launch)["config"]))))

    def product(
        self, task: Task, config: Config, function: str, constants: Mapping[str, object], into: Workspace | None = None
    ) -> KernelLaunch:
        """Return the launch of the product.

        Args:
            task: task of the config.
            config: config of the kernel.
            function: name of the kernel's function.
            constants: constexpr arguments beside the tile.
            into: memory for partial sums of a split k; by default the output is written.
        """
        layer = self.layer(task)
        n, k = layer.n, layer.k
        per_row = k // SCALE_BLOCK
        arguments: dict[str, Argument] = {
            "A": _A,
            "B": _B,
            "C": into or _OUT,
            "As": _A_SCALE,
            "Bs": _B_SCALE,
            "M": layer.tokens,
            "N": n,
            "K": k,
            "group_n": SCALE_BLOCK,
            "group_k": SCALE_BLOCK,
            "stride_am": k,
            "stride_ak": 1,
            "stride_bk": 1,
            "stride_bn": k,
            "stride_cm": n,
            "stride_cn": 1,
            "stride_As_m": per_row,
            "stride_As_k": 1,
            "stride_Bs_k": 1,
            "stride_Bs_n": per_row,
        }
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
        return KernelLaunch(
            function=function,
            arguments=arguments,
            constants={**{name: config[name] for name in names}, **constants},
            grid=(self.blocks(task, config), int(config.get("SPLIT_K", 1)), 1),
            num_warps=config.integer("num_warps"),
            num_stages=config.integer("num_stages"),
        )

    @property
    def output(self) -> Pointer:
        """Output of the product."""
        return _OUT


class ShippedLinearSpace(LinearSpace):
    """One config: what the engine runs now, from its tuned file or its default. The baseline of every layer."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return each parameter with the one value that the engine runs; none where the engine is missing."""
        return deployed_params(self.layer(task), self.engine, task.device)

    def check(self, task: Task, config: Config) -> Verdict:
        """Accept what the engine runs; whether it is of use is not asked."""
        return is_deployed(self.layer(task), self.engine, task.device, config)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the one config, if the engine runs one."""
        values = {param.name: param.values[0] for param in self.params(task)}
        return (Config(values),) if values else ()
