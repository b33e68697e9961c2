"""Spaces of SGLang's fused mixture-of-experts kernel: all tiles, and what SGLang runs now."""

from __future__ import annotations

from gemmtune.engine.platform.serving.file_name import Engine
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.serving.moe_layer import SCALE_BLOCK, MoeLayer, MoeType, SglangMoe
from gemmtune.engine.records.task import Task
from gemmtune.spaces.serving.moe_operands import FIRST, ROUTED, SECOND, Operand, aligned, scale_strides
from gemmtune.spaces.serving.moe_space import MoeSpace, ShippedMoeSpace
from gemmtune.spaces.serving.rules import column_blocks, tile
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch

__all__ = ["SglangMoeSpace", "ShippedSglangMoeSpace"]

_FIRST_WITH_DEPENDENT_LAUNCH = (9, 0)
"""Lowest compute capability for which SGLang builds the kernel with a programmatic dependent launch."""
_EARLY_ROWS = 512
"""Most input rows with which the kernel lets the next one start at its beginning."""


class SglangMoeSpace(MoeSpace):
    """Tiles of SGLang's `fused_moe_kernel` in bf16, or in fp8 with scales per tensor or per block.

    One config serves both grouped GEMMs, as SGLang runs a file without a `_down` file beside it. The kernel is built
    for a dependent launch where SGLang does so, and timed without one: an activation stands between both GEMMs.
    """

    engine = Engine.SGLANG
    workload = SglangMoe.kind
    layers = SglangMoe
    examples = (
        ("sglang_moe:m64:e256:k8:h7168:n256:fp8_block:zipf=1.2", "H200"),
        ("sglang_moe:m1:e128:k8:h2048:n768:bf16", "A100"),
    )

    def launches(self, task: Task, config: Config) -> tuple[KernelLaunch, KernelLaunch]:
        """Return both launches, as SGLang's `invoke_fused_moe_kernel` makes them."""
        layer, swaps = self.layer(task), self.swaps(task, config)
        dependent = task.device.capability >= _FIRST_WITH_DEPENDENT_LAUNCH
        first, second = (_launch(layer, config, which, swaps, dependent) for which in (FIRST, SECOND))
        return first, second


class ShippedSglangMoeSpace(ShippedMoeSpace, SglangMoeSpace):
    """What SGLang runs now: the entry of its shipped file with the nearest token count, or its default."""


def _launch(layer: MoeLayer, config: Config, which: Operand, swaps: bool, dependent: bool) -> KernelLaunch:
    block_m, _, block_k = tile(config)
    n, k = layer.products[which.number]
    padded = layer.sorted_rows(block_m)
    fp8, block = layer.dtype is not MoeType.BF16, layer.dtype is MoeType.FP8_BLOCK
    a_scale, (of_expert, of_k, of_n) = scale_strides(layer, which)
    if layer.dtype is MoeType.FP8_TENSOR:
        of_expert = 0  # one scale per expert in one dimension, which SGLang passes without a stride
    elif block:
        of_n = k // SCALE_BLOCK
    arguments: dict[str, Argument] = {
        "a_ptr": which.a(layer),
        "a_desc": None,
        "b_ptr": which.b(layer),
        "b_desc": None,
        "bias_ptr": None,
        "c_ptr": which.c,
        "a_scale_ptr": which.a_scale if fp8 else None,
        "b_scale_ptr": which.b_scale if fp8 else None,
        "topk_weights_ptr": ROUTED.weights,
        "sorted_token_ids_ptr": aligned(block_m, 0),
        "expert_ids_ptr": aligned(block_m, 1),
        "num_tokens_post_padded_ptr": aligned(block_m, 2),
        "add_mask_ptr": None,
        "N": n,
        "K": k,
        "EM": padded,
        "num_valid_tokens": layer.rows,
        "stride_am": k,
        "stride_ak": 1,
        "stride_be": n * k,
        "stride_bk": 1,
        "stride_bn": k,
        "stride_bias_e": 0,
        "stride_bias_n": 0,
        "stride_cm": n,
        "stride_cn": 1,
        "stride_asm": a_scale[0],
        "stride_ask": a_scale[1],
        "stride_bse": of_expert,
        "stride_bsk": of_k,
        "stride_bsn": of_n,
    }
    constants = {
        "group_n": SCALE_BLOCK if block else 0,
        "group_k": SCALE_BLOCK if block else 0,
        **{name: config[name] for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")},
        "MUL_ROUTED_WEIGHT": which is SECOND,
        "top_k": layer.top_k if which is FIRST else 1,
        "compute_type": "tl.bfloat16",
        "use_fp8_w8a8": fp8,
        "use_int8_w8a8": False,
        "use_int8_w8a16": False,
        "per_channel_quant": False,
        "even_Ks": k % block_k == 0,
        "c_sorted": False,
        "swap_ab": swaps,
        "FUSE_ADD_TO_OUTPUT": False,
        "MASK_OUTPUT": False,
        "FUSE_SUM_ALL_REDUCE": False,
        "ROUTER_TOPK": 1,
        "FUSE_SWIGLU": False,
        "USE_GDC": dependent,
        "GDC_EARLY": dependent and (layer.tokens if which is FIRST else layer.rows) <= _EARLY_ROWS,
        "A_OUTPUT_SLICES": 1,
        "A_OUTPUT_SLICE_WIDTH": 0,
        "A_OUTPUT_SLICE_K": 0,
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
