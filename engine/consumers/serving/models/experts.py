"""Fused mixture-of-experts layers of a model, as an engine runs them on one rank."""

from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.consumers.serving.contract.moe_layer import INTEGERS, MoeLayer, MoeType, SglangMoe, VllmMoe
from gemmtune.engine.consumers.serving.contract.wna16_layer import SglangWna16, VllmWna16
from gemmtune.engine.consumers.serving.models.config import EXPERTS, ModelConfig
from gemmtune.engine.consumers.serving.models.quantization import WeightType
from gemmtune.engine.consumers.serving.models.sharding import Sharding
from gemmtune.engine.records.errors import UsageError

_TOP_K = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk", "moe_top_k",
    "moe_k", "top_k",
)  # fmt: skip
_INTER = (
    "moe_intermediate_size", "expert_hidden_dim", "expert_ffn_hidden_size", "ffn_hidden_size", "intermediate_size",
)  # fmt: skip
_HIDDEN = ("routed_expert_hidden_size", "moe_latent_size", "hidden_size", "d_model")
_UNGATED = ("relu2", "relu")
"""Activations of experts without a gate, whose first product has half the columns of a gated one's."""
_DEEPSEEK_EXPERTS = 256
"""Experts of the DeepSeek models whose shared expert SGLang fuses."""
_LAYERS = {
    (Engine.VLLM, False): VllmMoe,
    (Engine.SGLANG, False): SglangMoe,
    (Engine.VLLM, True): VllmWna16,
    (Engine.SGLANG, True): SglangWna16,
}
"""Class of an engine's layers, without and with a scale per group of integers."""


def expert_layers(config: ModelConfig, sharding: Sharding, of: WeightType) -> tuple[MoeLayer, ...]:
    """Return the layers of one token that the ranks run; two where they have different numbers of experts.

    Raises:
        UsageError: the ranks do not divide a size, or no space of gemmtune has such a layer.
    """
    if str(config.text.get("mlp_hidden_act") or config.text.get("hidden_act")) in _UNGATED:
        raise UsageError("its experts have no gate, and the spaces of gemmtune take experts that have one")
    if of.dtype is None:
        raise UsageError(f"its experts are in {of.words}, which no space of gemmtune builds")
    hidden = config.needed(*_HIDDEN)
    inter = sharding.cut(config.needed(*_INTER), sharding.expert_tp, "the intermediate size of an expert")
    depth = of.block[1] if of.block else of.group
    if depth and inter % depth:
        raise UsageError(
            f"a rank of tp={sharding.tp} and ep={sharding.ep} has {inter} of an expert's inputs, which cuts a scale's "
            f"{depth}, and {sharding.engine} refuses that, too: lower tp, or deal the experts to the ranks by ep"
        )
    if config.needed(*_TOP_K) > config.needed(*EXPERTS):
        raise UsageError(f"a token takes {config.needed(*_TOP_K)} of {config.needed(*EXPERTS)} experts")
    shared = fused_experts(config, sharding, of)
    found = []
    for local in sharding.local_experts(config.needed(*EXPERTS)):
        experts = local + shared
        top_k = min(config.needed(*_TOP_K) + shared, experts)  # a rank with fewer experts runs none of them twice
        sizes = {"tokens": 1, "experts": experts, "top_k": top_k, "hidden": hidden, "inter": inter}
        weight = float(len(config.expert_layers))
        found.append(_layer(sharding.engine, sizes, of, weight))
    return tuple(found)


def fused_experts(config: ModelConfig, sharding: Sharding, of: WeightType) -> int:
    """Return the shared experts that the engine appends to the routed ones on an NVIDIA GPU.

    vLLM 0.33 has none there. SGLang 0.5.23 has them as `shared_experts_fusion_disable_reason` of its models says, with
    its default backends.
    """
    if sharding.engine is Engine.VLLM:
        return 0
    shared, name = config.number("n_shared_experts"), config.architecture
    if name == "Qwen3NextForCausalLM":
        size = config.number("shared_expert_intermediate_size")
        return int(size > 0 and size == config.number("moe_intermediate_size"))
    if sharding.ep > 1:
        return 0
    if name in ("DeepseekV3ForCausalLM", "GlmMoeDsaForCausalLM"):
        of_integers = of.dtype is MoeType.INT4_W4A16 and config.quantization.get("quant_method") == "compressed-tensors"
        return int(shared == 1 and config.number("n_routed_experts") == _DEEPSEEK_EXPERTS and not of_integers)
    if name in ("Glm4MoeLiteForCausalLM", "MiniMaxM3SparseForConditionalGeneration"):
        return int(shared == 1)
    return shared if name in ("Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration") else 0


def _layer(engine: Engine, sizes: dict[str, int], of: WeightType, weight: float) -> MoeLayer:
    in_groups = of.group > 0
    layers = _LAYERS[engine, in_groups]
    assert of.dtype is not None
    traits: dict[str, object] = {"dtype": of.dtype}
    if in_groups:
        assert of.dtype in INTEGERS
        traits |= {"group": of.group, "zeros": "zeros" if of.zeros else ""}
    elif of.block is not None:
        traits["block"] = f"block={of.block[0]}x{of.block[1]}"
    return layers(**sizes, **traits, weight=weight)  # type: ignore[arg-type]
