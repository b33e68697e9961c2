"""The base class of the spaces of engines' fused mixture-of-experts kernels."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from gemmtune.engine.platform.serving.engine_source import kernel_text
from gemmtune.engine.platform.serving.file_name import Engine, Kernel
from gemmtune.engine.platform.triton_tiles import least_shared_bytes
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.serving.moe_layer import MoeLayer, MoeType
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.spaces.serving.rules import TILE_PARAMS, column_blocks, fits, serves_fp8, tile
from gemmtune.spaces.serving.shipped import deployed_params, engine_source, is_deployed, known_configs
from gemmtune.spaces.serving.toolchain import engine_toolchain
from gemmtune.spaces.triton_source.launches import KernelLaunch

__all__ = ["MoeSpace", "ShippedMoeSpace"]

_SWAP_BELOW, _SWAP_FROM = 64, 64
"""Tiles of fewer rows and at least so many columns, whose operands both engines swap on sm_90 in fp8."""
_RESERVED_SHARED_BYTES = 1024
"""Shared memory that the system takes per resident block."""


class MoeSpace(Space):
    """Tile, order and pipeline of both grouped GEMMs of a layer, which one config serves."""

    preload = ("gemmtune.spaces.triton_source.preload",)

    engine: ClassVar[Engine]
    """Engine whose kernel is built."""
    layers: ClassVar[type[MoeLayer]]
    """Kind of workload that the kernel serves."""

    @abstractmethod
    def launches(self, task: Task, config: Config) -> tuple[KernelLaunch, KernelLaunch]:
        """Return both launches of the engine's kernel, in order."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the engine's own tuner."""
        return TILE_PARAMS

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject tiles that are clamped, of no use, or do not fit."""
        layer = self.layer(task)
        if layer.dtype is not MoeType.BF16 and not (served := serves_fp8(task)):
            return served
        return fits(
            task,
            config,
            layer.dtype.itemsize,
            rows=layer.tokens,
            depth=max(layer.hidden, layer.inter),
            scaled=layer.dtype is MoeType.FP8_BLOCK,
            swaps=self.swaps(task, config),
        )

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return what the engine runs now, and the nearest other entries of its tuned file."""
        return tuple(known_configs(self, task, self.layer(task), self.engine))

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how both products fill the GPU, what padding costs, and how much the pipeline holds."""
        layer = self.layer(task)
        block_m, block_n, block_k = tile(config)
        stages, itemsize = config.integer("num_stages"), layer.dtype.itemsize
        rows = block_n if self.swaps(task, config) else block_m
        shared = least_shared_bytes(task.device.capability, tile(config), stages, (itemsize, itemsize), rows)
        per_sm = task.device.shared_memory_per_sm_bytes // (shared + _RESERVED_SHARED_BYTES)
        threads = config.integer("num_warps") * task.device.warp_size
        resident = max(1, min(per_sm, task.device.max_threads_per_sm // threads))
        active = max(1.0, layer.active_experts)
        row_blocks = active * math.ceil(layer.rows / active / block_m)
        found = {
            "filled rows": layer.rows / (row_blocks * block_m),
            "resident blocks": math.log2(resident),
            "bytes in flight": math.log2(resident * shared),
            "operations per byte": math.log2(block_m * block_n / (block_m + block_n)),
        }
        for number, (columns, depth) in enumerate(layer.products):
            blocks = row_blocks * column_blocks(columns, config)
            found[f"waves {number}"] = math.log2(blocks / (task.device.sm_count * resident))
            found[f"steps {number}"] = math.log2(max(1, depth // block_k))
        return found

    def swaps(self, task: Task, config: Config) -> bool:
        """Return whether the engine swaps A and B for this tile."""
        block_m, block_n, _ = tile(config)
        hopper_fp8 = task.device.capability == (9, 0) and self.layer(task).dtype is not MoeType.BF16
        return hopper_fp8 and block_m < _SWAP_BELOW and block_n >= _SWAP_FROM

    def layer(self, task: Task) -> MoeLayer:
        """Return the task's layer."""
        assert isinstance(task.problem, self.layers)
        return task.problem

    def toolchain(self) -> Toolchain:
        """Return the versions of the engine and of Triton, and the hash of the kernel's source."""
        return engine_toolchain(self.engine, self.source()[1])

    def source(self) -> tuple[str, str]:
        """Return the text of the kernel's module and its SHA-256; raises like `find_engine`."""
        path = engine_source(self.engine).kernel_file(Kernel.MOE)
        return kernel_text(path, ("write_zeros_to_output", "fused_moe_kernel"))

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return a key that all layers share whose launches Triton compiles alike: sizes are run-time arguments."""
        if not config:  # the baseline's, where the engine runs another kernel
            return super().artifact_key(task, config)
        compiled = [(each.function, each.specialised()) for each in self.launches(task, config)]
        digest = hashlib.sha256(repr(compiled).encode()).hexdigest()[:16]
        return f"{task.device.sku}/{self.engine}_moe/{digest}/{config.digest}"

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Compile the engine's kernel for both products of the layer."""
        from gemmtune.spaces.triton_source.build import build_kernels

        return build_kernels(self, task, config, folder, self.source()[0], self.launches(task, config))

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load both cubins through the CUDA driver."""
        from gemmtune.spaces.triton_source.kernels import TritonKernels

        config = Config.from_json(str(dict(artifact.launch)["config"]))
        return TritonKernels(artifact, self.launches(task, config))


class ShippedMoeSpace(MoeSpace):
    """One config: what the engine runs now, from its tuned file or its default. The baseline of every layer."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return each parameter with the one value that the engine runs; none where it runs another kernel."""
        return deployed_params(self.layer(task), self.engine, task.device)

    def check(self, task: Task, config: Config) -> Verdict:
        """Accept what the engine runs; whether it is of use is not asked."""
        return is_deployed(self.layer(task), self.engine, task.device, config)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the one config, if the engine runs one."""
        values = {param.name: param.values[0] for param in self.params(task)}
        return (Config(values),) if values else ()
