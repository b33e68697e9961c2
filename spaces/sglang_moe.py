"""Spaces of SGLang's fused mixture-of-experts kernel: all tiles, and what SGLang runs now."""

from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.consumers.serving.contract.moe_layer import MoeType, SglangMoe
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.spaces.serving.engine_space import Shipped
from gemmtune.spaces.serving.moe_operands import FIRST
from gemmtune.spaces.serving.moe_space import MoeSpace
from gemmtune.spaces.serving.rules import tile
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch

_FIRST_WITH_DEPENDENT_LAUNCH = (9, 0)
"""Lowest compute capability for which SGLang builds the kernel with a programmatic dependent launch."""
_EARLY_ROWS = 512
"""Most input rows with which the kernel lets the next one start at its beginning."""
_ARGUMENTS = (
    "a_ptr a_desc b_ptr b_desc bias_ptr c_ptr a_scale_ptr b_scale_ptr topk_weights_ptr sorted_token_ids_ptr "
    "expert_ids_ptr num_tokens_post_padded_ptr add_mask_ptr N K EM num_valid_tokens stride_am stride_ak stride_be "
    "stride_bk stride_bn stride_bias_e stride_bias_n stride_cm stride_cn stride_asm stride_ask stride_bse stride_bsk "
    "stride_bsn"
)
"""Run-time arguments of SGLang's kernel, in order."""
_WITHOUT = dict.fromkeys(("a_desc", "b_desc", "bias_ptr", "add_mask_ptr")) | {"stride_bias_e": 0, "stride_bias_n": 0}
_OFF = {
    **dict.fromkeys(("c_sorted", "FUSE_ADD_TO_OUTPUT", "MASK_OUTPUT", "FUSE_SUM_ALL_REDUCE", "FUSE_SWIGLU"), False),
    "ROUTER_TOPK": 1,
    "A_OUTPUT_SLICES": 1,
    "A_OUTPUT_SLICE_WIDTH": 0,
    "A_OUTPUT_SLICE_K": 0,
}


class SglangMoeSpace(MoeSpace):
    """Tiles of SGLang's `fused_moe_kernel` in 16 bits, in fp8 with scales per tensor or block, or with int8 weights.

    One config serves both grouped GEMMs, as SGLang runs a file without a `_down` file beside it. The kernel is built
    for a dependent launch where SGLang does so, and timed without one: an activation stands between both GEMMs.
    """

    engine = Engine.SGLANG
    workload = SglangMoe.kind
    examples = (
        ("sglang_moe:m64:e256:k8:h7168:n256:fp8_block:zipf=1.2", "H200"),
        ("sglang_moe:m1:e128:k8:h2048:n768:bf16", "A100"),
    )

    def launch(self, task: Task, config: Config, which: int) -> KernelLaunch:
        """Return the launch of one product, as SGLang's `invoke_fused_moe_kernel` makes it."""
        layer, (block_m, _, block_k) = self.layer(task), tile(config)
        dependent = task.device.capability >= _FIRST_WITH_DEPENDENT_LAUNCH
        depth = layer.products[which][1]
        unlike: dict[str, Argument] = {**_WITHOUT}
        if layer.dtype is MoeType.FP8_TENSOR:
            unlike["stride_bse"] = 0  # one scale per expert in one dimension, which SGLang passes without a stride
        elif layer.scale_block:
            unlike["stride_bsn"] = depth // layer.scale_block[1]
        constants = {
            **_OFF,
            "even_Ks": depth % block_k == 0,
            "swap_ab": self.swaps(task, config),
            "USE_GDC": dependent,
            "GDC_EARLY": dependent and (layer.tokens if which == FIRST else layer.rows) <= _EARLY_ROWS,
        }
        padded = layer.sorted_rows(block_m)
        return self.product(layer, config, which, padded, _ARGUMENTS, unlike=unlike, constants=constants)


class ShippedSglangMoeSpace(Shipped, SglangMoeSpace):
    """Config that SGLang runs now: its shipped file's entry with the nearest token count, or its default."""
