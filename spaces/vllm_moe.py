"""Spaces of vLLM's fused mixture-of-experts kernel: all tiles, and what vLLM runs now."""

from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.consumers.serving.contract.moe_layer import MoeLayer, VllmMoe
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.spaces.serving.engine_space import Shipped
from gemmtune.spaces.serving.moe_operands import FIRST, ROUTED_EXPERTS
from gemmtune.spaces.serving.moe_space import MoeSpace
from gemmtune.spaces.triton_source.launches import Argument, KernelLaunch

_ARGUMENTS = (
    "a_ptr b_ptr c_ptr b_bias_ptr a_scale_ptr b_scale_ptr topk_weights_ptr sorted_token_ids_ptr expert_ids_ptr "
    "num_tokens_post_padded_ptr N K EM num_valid_tokens stride_am stride_ak stride_be stride_bk stride_bn stride_cm "
    "stride_cn stride_asm stride_ask stride_bse stride_bsk stride_bsn stride_bbe stride_bbn"
)
"""Run-time arguments of vLLM's kernel, in order."""
_OFF = {"HAS_BIAS": False, "USE_TD": False, "SPLIT_K": 1}


def padded_rows(layer: MoeLayer, which: int, block_m: int) -> int:
    """Return the number of sorted rows of one product, with each expert's padding, as vLLM launches it."""
    padded = layer.rows * block_m if layer.takes_rows_unsorted else layer.sorted_rows(block_m)
    if (layer.tokens if which == FIRST else layer.rows) < block_m:
        return min(padded, layer.rows * block_m)  # a token's experts differ: no more than one block per row
    return padded


class VllmMoeSpace(MoeSpace):
    """Tiles of vLLM's `fused_moe_kernel` in 16 bits, in fp8 with scales per tensor or block, or with int8 weights.

    One config serves both grouped GEMMs. All sizes are arguments at launch, so that layers share the binaries.
    """

    engine = Engine.VLLM
    workload = VllmMoe.kind
    examples = (
        ("vllm_moe:m64:e256:k8:h7168:n256:fp8_block:zipf=1.2", "H200"),
        ("vllm_moe:m1:e128:k8:h2048:n768:bf16", "A100"),
    )

    def launch(self, task: Task, config: Config, which: int) -> KernelLaunch:
        """Return the launch of one product, as vLLM's `invoke_fused_moe_triton_kernel` makes it."""
        layer, block_m = self.layer(task), config.integer("BLOCK_SIZE_M")
        naive, padded = layer.takes_rows_unsorted, padded_rows(layer, which, block_m)
        unlike: dict[str, Argument] = {"b_bias_ptr": None, "stride_bbe": 0, "stride_bbn": 0}
        unlike |= {"sorted_token_ids_ptr": None, "expert_ids_ptr": ROUTED_EXPERTS} if naive else {}
        constants = {**_OFF, "naive_block_assignment": naive, "SWAP_AB": self.swaps(task, config)}
        return self.product(layer, config, which, padded, _ARGUMENTS, unlike=unlike, constants=constants)


class ShippedVllmMoeSpace(Shipped, VllmMoeSpace):
    """Config that vLLM runs now: its shipped file's entry with the nearest token count, or its default."""
