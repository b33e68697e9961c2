"""Spaces of SGLang's linear kernels in fp8 with scales per block: all tiles, and what SGLang runs now."""

from collections.abc import Sequence

from gemmtune.engine.consumers.serving.contract.block_linear import SglangBlockFp8
from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.spaces.serving.engine_space import Shipped
from gemmtune.spaces.serving.linear_space import OUT, LinearSpace
from gemmtune.spaces.serving.rules import TILE_PARAMS
from gemmtune.spaces.triton_source.launches import KernelLaunch, Workspace

_PLAIN, _HOPPER, _SUM = "_w8a8_block_fp8_matmul", "_w8a8_block_fp8_matmul_hopper", "_reduce_block_fp8_split_k"
_SUMMED_AT_ONCE = 256
"""Elements per block of the kernel that adds partial sums."""
_SUM_WARPS, _SUM_STAGES = 4, 3
"""Triton's own options, which SGLang leaves alone for that kernel."""
_BYTES_PER_SUM = 4
_SWAP_BELOW = 64
"""Rows of a tile from which the matrix instruction is filled without swapping A and B."""
_HOPPER_PARAMS = (Param("SWAP_AB", (False, True)), Param("SPLIT_K", (1, 2, 4, 8)))


class SglangBlockFp8Space(LinearSpace):
    """Tiles of SGLang's `_w8a8_block_fp8_matmul`, and on sm_90 of its variant that swaps A and B and splits k.

    A split k is summed by a kernel of its own, which is timed with the product.
    """

    engine = Engine.SGLANG
    workload = SglangBlockFp8.kind
    functions = (_PLAIN, _HOPPER, _SUM)
    examples = (("sglang_block_fp8:m16:n4096:k7168", "H200"), ("sglang_block_fp8:m64:n576:k7168", "L40S"))

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of SGLang's tuner; off sm_90 operands are not swapped and k is not split."""
        if task.device.capability == (9, 0):
            return (*TILE_PARAMS, *_HOPPER_PARAMS)
        return (*TILE_PARAMS, Param("SWAP_AB", (False,)), Param("SPLIT_K", (1,)))

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject what `LinearSpace` rejects, swaps of tall tiles, and splits of a k that fills the GPU already."""
        split_k, block_m = config.integer("SPLIT_K"), config.integer("BLOCK_SIZE_M")
        if config["SWAP_AB"] and block_m >= _SWAP_BELOW:
            return Verdict.no(
                "swap of a tall tile", f"BLOCK_SIZE_M {block_m} >= {_SWAP_BELOW} fills the instruction without SWAP_AB"
            )
        steps = -(-self.layer(task).k // config.integer("BLOCK_SIZE_K"))
        if split_k > steps:
            return Verdict.no("SPLIT_K beyond k", f"SPLIT_K {split_k} > {steps} steps over k")
        if split_k > 1 and (blocks := self.blocks(task, config)) >= 2 * task.device.sm_count:
            return Verdict.no(
                "SPLIT_K without need", f"SPLIT_K {split_k}: {blocks} tiles fill {task.device.sm_count} SMs twice"
            )
        return super().check(task, config)

    def launches(self, task: Task, config: Config) -> Sequence[KernelLaunch]:
        """Return the launches, as SGLang's `w8a8_block_fp8_matmul_triton` makes them."""
        layer, split_k, swaps = self.layer(task), config.integer("SPLIT_K"), bool(config["SWAP_AB"])
        constants: dict[str, object] = {"needs_masking": layer.k % config.integer("BLOCK_SIZE_K") != 0}
        if not (swaps or split_k > 1):
            return (self.product(task, config, _PLAIN, constants),)
        constants |= {"SWAP_AB": swaps, "SPLIT_K": split_k}
        if split_k == 1:
            return (self.product(task, config, _HOPPER, constants),)
        elements = layer.tokens * layer.n
        partial = Workspace("fp32", split_k * elements * _BYTES_PER_SUM)
        sums = KernelLaunch(
            function=_SUM,
            arguments={"Parts": partial, "Out": OUT},
            constants={"ELEMENTS": elements, "SPLITS": split_k, "BLOCK": _SUMMED_AT_ONCE},
            grid=(-(-elements // _SUMMED_AT_ONCE), 1, 1),
            num_warps=_SUM_WARPS,
            num_stages=_SUM_STAGES,
        )
        return self.product(task, config, _HOPPER, constants, partial), sums


class ShippedSglangBlockFp8Space(Shipped, SglangBlockFp8Space):
    """Config that SGLang runs now: its shipped file's entry with the nearest token count, or its default."""
