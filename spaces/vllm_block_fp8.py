"""Spaces of vLLM's linear kernel in fp8 with scales per block: all tiles, and what vLLM runs now."""

from collections.abc import Sequence

from gemmtune.engine.consumers.serving.contract.block_linear import VllmBlockFp8
from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.spaces.serving.engine_space import Shipped
from gemmtune.spaces.serving.linear_space import LinearSpace
from gemmtune.spaces.triton_source.launches import KernelLaunch

_FUNCTION = "_w8a8_triton_block_scaled_mm"


class VllmBlockFp8Space(LinearSpace):
    """Tiles of vLLM's `_w8a8_triton_block_scaled_mm`. All sizes are arguments at launch."""

    engine = Engine.VLLM
    workload = VllmBlockFp8.kind
    functions = (_FUNCTION,)
    examples = (("vllm_block_fp8:m16:n4096:k7168", "H200"), ("vllm_block_fp8:m64:n576:k7168", "L40S"))

    def launches(self, task: Task, config: Config) -> Sequence[KernelLaunch]:
        """Return the launch, as vLLM's `w8a8_triton_block_scaled_mm` makes it."""
        return (self.product(task, config, _FUNCTION, {}),)


class ShippedVllmBlockFp8Space(Shipped, VllmBlockFp8Space):
    """Config that vLLM runs now: its shipped file's entry with the nearest token count, or its default."""
