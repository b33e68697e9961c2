"""The base class of the spaces of serving engines' Triton kernels, and their baselines: what an engine runs now."""

import hashlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from gemmtune.engine.consumers.serving.contract.block_linear import BlockLinear
from gemmtune.engine.consumers.serving.contract.engine_source import kernel_text
from gemmtune.engine.consumers.serving.contract.file_name import Engine, Kernel
from gemmtune.engine.consumers.serving.contract.moe_layer import MoeLayer
from gemmtune.engine.records.artifact import Artifact, KernelCode, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.triton_tiles import least_shared_bytes
from gemmtune.engine.toolchain.versions import triton_toolchain
from gemmtune.spaces.serving.rules import TILE_PARAMS, tile
from gemmtune.spaces.serving.shipped import deployed_params, engine_source, is_deployed, known_configs
from gemmtune.spaces.triton_source.launches import KernelLaunch

_DIGITS = 12
"""Digits of the source's hash in a toolchain."""
_RESERVED_SHARED_BYTES = 1024
"""Shared memory that the system takes per resident block."""


class EngineSpace(Space):
    """Tile, order and pipeline of an engine's kernels. All sizes are arguments at launch."""

    preload = ("gemmtune.spaces.triton_source.preload",)

    engine: ClassVar[Engine]
    """Engine whose kernels are built."""
    kernel: ClassVar[Kernel]
    """Kind of kernel, by which the engine's files are found."""
    functions: ClassVar[tuple[str, ...]]
    """Functions of the engine's file that the launches need."""

    @abstractmethod
    def launches(self, task: Task, config: Config) -> Sequence[KernelLaunch]:
        """Return the engine's launches, in order."""

    @abstractmethod
    def layer(self, task: Task) -> MoeLayer | BlockLinear:
        """Return the task's layer."""

    @abstractmethod
    def swaps(self, task: Task, config: Config) -> bool:
        """Return whether the kernel swaps A and B for this tile."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the engine's own tuner."""
        return TILE_PARAMS

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return what the engine runs now, and the nearest other entries of its tuned file."""
        return tuple(known_configs(self, task, self.layer(task), self.engine))

    def resident(self, task: Task, config: Config, itemsizes: tuple[int, int]) -> tuple[int, int]:
        """Return how many blocks an SM holds at least, and the shared memory of each in bytes."""
        shared = self.shared_bytes(task, config, itemsizes)
        per_sm = task.device.shared_memory_per_sm_bytes // (shared + _RESERVED_SHARED_BYTES)
        threads = config.integer("num_warps") * task.device.warp_size
        return max(1, min(per_sm, task.device.max_threads_per_sm // threads)), shared

    def shared_bytes(self, task: Task, config: Config, itemsizes: tuple[int, int]) -> int:
        """Return the shared memory that a block needs at least, in bytes."""
        rows = tile(config)[1 if self.swaps(task, config) else 0]
        return least_shared_bytes(task.device.capability, tile(config), config.integer("num_stages"), itemsizes, rows)

    def tile_features(self, task: Task, config: Config, itemsizes: tuple[int, int]) -> dict[str, float]:
        """Return how much the pipeline holds, and how much arithmetic a tile does per element that it loads."""
        (resident, shared), (block_m, block_n, _) = self.resident(task, config, itemsizes), tile(config)
        return {
            "resident blocks": math.log2(resident),
            "bytes in flight": math.log2(resident * shared),
            "operations per byte": math.log2(block_m * block_n / (block_m + block_n)),
        }

    def toolchain(self) -> Toolchain:
        """Return the versions of the engine and of Triton, and the hash of the kernels' source."""
        kernel = self.source()[1][:_DIGITS]
        ours = (self.engine.value, engine_source(self.engine).version), (f"{self.engine.value}_kernel", kernel)
        return Toolchain(tuple(sorted((*triton_toolchain().versions, *ours))))

    def source(self) -> tuple[str, str]:
        """Return the text of the kernels' module and its SHA-256; raises like `find_engine`."""
        return kernel_text(engine_source(self.engine).kernel_file(self.kernel), self.functions)

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return a key that all layers share whose launches Triton compiles alike: sizes are run-time arguments."""
        if not config:  # the baseline's, where the engine is missing or runs another kernel
            return super().artifact_key(task, config)
        compiled = [(each.function, each.specialised()) for each in self.launches(task, config)]
        digest = hashlib.sha256(repr(compiled).encode()).hexdigest()[:16]
        return f"{task.device.sku}/{self.workload}/{digest}/{config.digest}"

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Compile the engine's kernels."""
        from gemmtune.spaces.triton_source.build import build_kernels

        return build_kernels(self, task, config, folder, self.source()[0], self.launches(task, config))

    def code(self, task: Task, config: Config, folder: Path) -> KernelCode:
        """Return the PTX of the engine's kernels; a config as source is an entry of the engine's files."""
        from gemmtune.spaces.triton_source.code import triton_code

        return triton_code(self, task, config, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubins through the CUDA driver."""
        from gemmtune.spaces.triton_source.kernels import TritonKernels

        return TritonKernels(artifact, self.launches(task, Config.from_json(str(dict(artifact.launch)["config"]))))


class Shipped(EngineSpace):
    """One config: what the engine runs now, from its tuned file or its default. The baseline of every layer."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return each parameter with the one value that the engine runs; none where it is missing or runs another."""
        return deployed_params(self.layer(task), self.engine, task.device)

    def check(self, task: Task, config: Config) -> Verdict:
        """Accept what the engine runs; whether it is of use is not asked."""
        return is_deployed(self.layer(task), self.engine, task.device, config)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the one config, if the engine runs one."""
        values = {param.name: param.values[0] for param in self.params(task)}
        return (Config(values),) if values else ()
