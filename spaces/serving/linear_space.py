"""The base class of the spaces of engines' linear kernels in fp8 with scales per block."""

import math
from collections.abc import Mapping

from gemmtune.engine.consumers.serving.contract.block_linear import BlockLinear
from gemmtune.engine.consumers.serving.contract.file_name import Kernel
from gemmtune.engine.consumers.serving.contract.layer import SCALE_BLOCK
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.spaces.serving.engine_space import EngineSpace
from gemmtune.spaces.serving.rules import TILE, column_blocks, fits, serves_fp8, tile
from gemmtune.spaces.triton_source.launches import KernelLaunch, Pointer, Workspace

_A, _B, OUT, _A_SCALE, _B_SCALE = (
    Pointer(t, (i,)) for i, t in enumerate(("fp8e4nv", "fp8e4nv", "bf16", "fp32", "fp32"))
)
"""Tensors in the order of `Operands.arguments` in spaces/serving/linear_kind.py."""


class LinearSpace(EngineSpace):
    """Tile, order and pipeline of one product."""

    kernel = Kernel.LINEAR

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject tiles that compute a wrong result, are of no use, or do not fit."""
        layer, swaps = self.layer(task), self.swaps(task, config)
        return serves_fp8(task) and fits(
            task, config, (1, 1), rows=layer.tokens, depth=layer.k, scaled=SCALE_BLOCK, swaps=swaps
        )

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return how the product fills the GPU, what padding costs, and how much the pipeline holds."""
        layer, (block_m, _, block_k) = self.layer(task), tile(config)
        splits = int(config.get("SPLIT_K", 1))
        blocks = self.blocks(task, config) * splits
        return {
            "filled rows": layer.tokens / (-(-layer.tokens // block_m) * block_m),
            **self.tile_features(task, config, (1, 1)),
            "waves": math.log2(blocks / (task.device.sm_count * self.resident(task, config, (1, 1))[0])),
            "steps": math.log2(max(1.0, layer.k / block_k / splits)),
        }

    def blocks(self, task: Task, config: Config) -> int:
        """Return the number of tiles of the output."""
        layer = self.layer(task)
        return -(-layer.tokens // config.integer("BLOCK_SIZE_M")) * column_blocks(layer.n, config)

    def swaps(self, task: Task, config: Config) -> bool:
        """Return whether the config swaps A and B."""
        return bool(config.get("SWAP_AB"))

    def layer(self, task: Task) -> BlockLinear:
        """Return the task's layer."""
        assert isinstance(task.problem, BlockLinear)
        return task.problem

    def product(
        self, task: Task, config: Config, function: str, constants: Mapping[str, object], into: Workspace | None = None
    ) -> KernelLaunch:
        """Return the launch of the product, whose partial sums of a split k go `into` memory of their own."""
        layer = self.layer(task)
        n, k, per_row = layer.n, layer.k, layer.k // SCALE_BLOCK
        operands = {"A": _A, "B": _B, "C": into or OUT, "As": _A_SCALE, "Bs": _B_SCALE}
        sizes = {"M": layer.tokens, "N": n, "K": k, "group_n": SCALE_BLOCK, "group_k": SCALE_BLOCK}
        strides = {"am": k, "ak": 1, "bk": 1, "bn": k, "cm": n, "cn": 1}
        strides |= {"As_m": per_row, "As_k": 1, "Bs_k": 1, "Bs_n": per_row}
        return KernelLaunch(
            function=function,
            arguments={**operands, **sizes, **{f"stride_{name}": value for name, value in strides.items()}},
            constants={**{name: config[name] for name in TILE}, **constants},
            grid=(self.blocks(task, config), int(config.get("SPLIT_K", 1)), 1),
            num_warps=config.integer("num_warps"),
            num_stages=config.integer("num_stages"),
        )
