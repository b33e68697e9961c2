"""Spaces of vLLM's fused mixture-of-experts kernel: all tiles, and what vLLM runs now."""

from __future__ import annotations

from gemmtune.engine.platform.serving.file_name import Engine
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.serving.moe_layer import SCALE_BLOCK, MoeLayer, MoeType, VllmMoe
from gemmtune.engine.records.task import Task
from gemmtune.spaces.serving.moe_operands import FIRST, ROUTED, SECOND, Operand, aligned, scale_strides
from gemmtune.spaces.serving.moe_space import MoeSpace, ShippedMoeSpace
from gemmtune.spaces.serving.rules import column_blocks
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch

__all__ = ["ShippedVllmMoeSpace", "VllmMoeSpace"]


class VllmMoeSpace(MoeSpace):
    """Tiles of vLLM's `fused_moe_kernel` in bf16, or in fp8 with scales per tensor or per block.

    One config serves both grouped GEMMs. All sizes are arguments at launch, so that layers share the binaries.
    """

    engine = Engine.VLLM
    workload = VllmMoe.kind
    layers = VllmMoe
    examples = (
        ("vllm_moe:m64:e256:k8:h7168:n256:fp8_block:zipf=1.2", "H200"),
        ("vllm_moe:m1:e128:k8:h2048:n768:bf16", "A100"),
    )

    def launches(self, task: Task, config: Config) -> tuple[KernelLaunch, KernelLaunch]:
        """Return both launches, as vLLM's `invoke_fused_moe_triton_kernel` makes them."""
        layer, swaps = self.layer(task), self.swaps(task, config)
        return _launch(layer, config, FIRST, swaps), _launch(layer, config, SECOND, swaps)


class ShippedVllmMoeSpace(ShippedMoeSpace, VllmMoeSpace):
    """What vLLM runs now: the entry of its shipped file with the nearest token count, or its default."""


def _launch(layer: MoeLayer, config: Config, which: Operand, swaps: bool) -> KernelLaunch:
    block_m = config.integer("BLOCK_SIZE_M")
    n, k = layer.products[which.number]
    input_rows = layer.tokens if which is FIRST else layer.rows
    naive = layer.takes_rows_unsorted
    padded = layer.rows * block_m if naive else layer.sorted_rows(block_m)
    if input_rows < block_m:  # a token's experts differ: no more than one block per row
        padded = min(padded, layer.rows * block_m)
    fp8, block = layer.dtype is not MoeType.BF16, layer.dtype is MoeType.FP8_BLOCK
    a_scale, b_scale = scale_strides(layer, which)
    arguments: dict[str, Argument] = {
        "a_ptr": which.a(layer),
        "b_ptr": which.b(layer),
        "c_ptr": which.c,
        "b_bias_ptr": None,
        "a_scale_ptr": which.a_scale if fp8 else None,
        "b_scale_ptr": which.b_scale if fp8 else None,
        "topk_weights_ptr": ROUTED.weights,
        "sorted_token_ids_ptr": None if naive else aligned(block_m, 0),
        "expert_ids_ptr": ROUTED.experts if naive else aligned(block_m, 1),
        "num_tokens_post_padded_ptr": aligned(block_m, 2),
        "N": n,
        "K": k,
        "EM": padded,
        "num_valid_tokens": layer.rows,
        "stride_am": k,
        "stride_ak": 1,
        "stride_be": n * k,
        "stride_bk": 1,
        "stride_bn": k,
        "stride_cm": n,
        "stride_cn": 1,
        "stride_asm": a_scale[0],
        "stride_ask": a_scale[1],
        "stride_bse": b_scale[0],
        "stride_bsk": b_scale[1],
        "stride_bsn": b_scale[2],
        "stride_bbe": 0,
        "stride_bbn": 0,
    }
    constants = {
        "group_n": SCALE_BLOCK if block else 0,
        "group_k": SCALE_BLOCK if block else 0,
        "naive_block_assignment": naive,
        **{name: config[name] for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")},
        "SPLIT_K": 1,
        "MUL_ROUTED_WEIGHT": which is SECOND,
        "top_k": layer.top_k if which is FIRST else 1,
        "compute_type": "tl.bfloat16",
        "use_fp8_w8a8": fp8,
        "use_int8_w8a8": False,
        "use_int8_w8a16": False,
        "per_channel_quant": False,
        "HAS_BIAS": False,
        "SWAP_AB": swaps,
        "USE_TD": False,
    }
    return KernelLaunch(
        function="fused_moe_kernel",
        arguments=arguments,
        constants=constants,
        grid=(-(-padded // block_m) * column_blocks(n, config), 1, 1),
        num_warps=config.integer("num_warps"),
        num_stages=config.integer("num_stages"),
        unaligned=frozenset({"EM", "num_valid_tokens"}),  # they change from step to step, and enter masks alone
    )
