"""Spaces of both engines' fused mixture-of-experts kernel for GPTQ and AWQ models: all tiles, and what runs now."""

from collections.abc import Mapping

from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.consumers.serving.contract.wna16_layer import SglangWna16, VllmWna16
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.spaces.serving.engine_space import Shipped
from gemmtune.spaces.serving.moe_operands import FIRST
from gemmtune.spaces.serving.shipped import wna16_tile
from gemmtune.spaces.serving.wna16_space import Wna16Space
from gemmtune.spaces.triton_source.launches import KernelLaunch
from gemmtune.spaces.vllm_moe import padded_rows


class VllmWna16Space(Wna16Space):
    """Tiles of vLLM's `fused_moe_kernel_gptq_awq`, for int4 or int8 weights with a scale per group.

    One config serves both grouped GEMMs. The sizes of the weights are compiled in, so that each layer has binaries of
    its own.
    """

    engine = Engine.VLLM
    workload = VllmWna16.kind
    examples = (
        ("vllm_moe_wna16:m64:e128:k8:h2048:n768:g128:int4_w4a16", "H200"),
        ("vllm_moe_wna16:m1:e8:k2:h4096:n1792:g64:int8_w8a16:zeros", "A100"),
    )

    def launch(self, task: Task, config: Config, which: int) -> KernelLaunch:
        """Return the launch of one product, as vLLM's `invoke_fused_moe_wna16_triton_kernel` makes it."""
        layer = self.layer(task)
        whole = Config({**wna16_tile(layer.tokens if which == FIRST else layer.rows), **config})
        padded, depth = padded_rows(layer, which, whole.integer("BLOCK_SIZE_M")), layer.products[which][1]
        constants = {"block_k_diviable": depth % whole.integer("BLOCK_SIZE_K") == 0, "SPLIT_K": 1}
        return self.product_of(
            task, whole, which, padded, {"topk_weights_ptr": None} if which == FIRST else {}, constants
        )


class ShippedVllmWna16Space(Shipped, VllmWna16Space):
    """Config that vLLM runs now: its shipped file's entry with the nearest token count, or its default."""

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return the features of the first product's tile, which vLLM's default leaves out for a single token."""
        return super().features(task, Config({**wna16_tile(self.layer(task).tokens), **config}))


class SglangWna16Space(Wna16Space):
    """Tiles of SGLang's `fused_moe_kernel_gptq_awq`, for int4 or int8 weights with a scale per group.

    One config serves both grouped GEMMs. The sizes of the weights are compiled in, so that each layer has binaries of
    its own.
    """

    engine = Engine.SGLANG
    workload = SglangWna16.kind
    examples = (
        ("sglang_moe_wna16:m64:e128:k8:h2048:n768:g128:int4_w4a16", "H200"),
        ("sglang_moe_wna16:m1:e8:k2:h4096:n1792:g64:int8_w8a16:zeros", "A100"),
    )

    def launch(self, task: Task, config: Config, which: int) -> KernelLaunch:
        """Return the launch of one product, as SGLang's `invoke_fused_moe_kernel` makes it."""
        layer = self.layer(task)
        padded = layer.sorted_rows(config.integer("BLOCK_SIZE_M"))
        # SGLang asks whether the tile divides the bytes of a row, not its elements.
        even = layer.products[which][1] // layer.dtype.packed % config.integer("BLOCK_SIZE_K") == 0
        return self.product_of(task, config, which, padded, {}, {"even_Ks": even})


class ShippedSglangWna16Space(Shipped, SglangWna16Space):
    """Config that SGLang runs now: its shipped file's entry with the nearest token count, or its default."""
