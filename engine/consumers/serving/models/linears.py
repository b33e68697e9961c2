"""Linear layers of a model in fp8 with scales per block, as an engine runs them on one rank."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gemmtune.engine.consumers.serving.contract.block_linear import BlockLinear, SglangBlockFp8, VllmBlockFp8
from gemmtune.engine.consumers.serving.contract.file_name import Engine
from gemmtune.engine.consumers.serving.contract.layer import SCALE_BLOCK
from gemmtune.engine.consumers.serving.models.config import ModelConfig
from gemmtune.engine.consumers.serving.models.quantization import WeightType
from gemmtune.engine.consumers.serving.models.sharding import Sharding
from gemmtune.engine.records.errors import UsageError

_LATENT = ("DeepseekV2", "DeepseekV3", "DeepseekV32", "GlmMoeDsa", "KimiK25", "KimiVL")
"""Architectures with multi-head latent attention, as DeepSeek-V3's, without `ForCausalLM` and the like."""
_HEADS = (
    "Dots1", "Ernie4_5_Moe", "Glm4Moe", "Glm4vMoe", "Llama", "MiniMaxM2", "Mistral", "Mixtral", "Olmoe", "Phi3",
    "PhiMoE", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe", "Qwen3VL", "Qwen3VLMoe",
)  # fmt: skip
"""Architectures with one fused product for queries, keys and values in every layer."""
_ENDS = ("ForCausalLM", "ForConditionalGeneration")


@dataclass(frozen=True, slots=True)
class _Part:
    module: str
    """Name of the module in the model's files, below its layer; the first one of those that are fused."""
    n: int
    """Output features on a rank."""
    k: int
    """Input features on a rank."""
    layers: Iterable[int]
    """Numbers of the layers that have it."""


def block_linears(config: ModelConfig, sharding: Sharding, of: WeightType, fused: int) -> tuple[BlockLinear, ...]:
    """Return the layers of one token, each with the number of its modules as weight.

    Args:
        config: the model.
        sharding: the engine and its ranks.
        of: type of the quantised weights.
        fused: shared experts that run with the routed ones.

    Raises:
        UsageError: gemmtune does not know the attention, the ranks do not divide a size, or cut a block of scales.
    """
    if of.block != (SCALE_BLOCK, SCALE_BLOCK):
        return ()
    layers = VllmBlockFp8 if sharding.engine is Engine.VLLM else SglangBlockFp8
    counts: dict[tuple[int, int], int] = {}
    for part in (*_attention(config, sharding), *_feed_forward(config, sharding, fused)):
        if part.k % SCALE_BLOCK:
            raise UsageError(f"{part.module} has {part.k} inputs on a rank, no multiple of {SCALE_BLOCK}: lower tp")
        runs = sum(of.covers(f"model.layers.{number}.{part.module}") for number in part.layers)
        if runs:
            counts[part.n, part.k] = counts.get((part.n, part.k), 0) + runs
    return tuple(layers(tokens=1, n=n, k=k, weight=float(runs)) for (n, k), runs in counts.items())


def _attention(config: ModelConfig, sharding: Sharding) -> Iterator[_Part]:
    name = config.architecture
    for end in _ENDS:
        name = name.removesuffix(end)
    if name not in (*_LATENT, *_HEADS):
        raise UsageError(f"gemmtune does not know the attention of {config.architecture or 'a nameless architecture'}")
    hidden, heads = config.needed("hidden_size"), config.needed("num_attention_heads")
    own = sharding.cut(heads, sharding.tp, "the attention heads")
    if name in _LATENT:
        yield from _latent(config, hidden, own)
        return
    size = config.number("head_dim") or hidden // heads
    pairs = config.number("num_key_value_heads") or heads
    own_pairs = max(1, pairs // sharding.tp)  # keys and values of one head are on several ranks
    yield _Part("self_attn.q_proj", (own + 2 * own_pairs) * size, hidden, config.layers)
    yield _Part("self_attn.o_proj", hidden, own * size, config.layers)


def _latent(config: ModelConfig, hidden: int, heads: int) -> Iterator[_Part]:
    """Yield the products of multi-head latent attention; both engines fuse the first ones of queries and of keys."""
    rank, plain, turned = (config.needed(key) for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"))
    values, of_queries, queries = config.needed("v_head_dim"), config.number("q_lora_rank"), heads * (plain + turned)
    if of_queries:
        yield _Part("self_attn.q_a_proj", of_queries + rank + turned, hidden, config.layers)
        yield _Part("self_attn.q_b_proj", queries, of_queries, config.layers)
    else:
        yield _Part("self_attn.q_proj", queries, hidden, config.layers)
        yield _Part("self_attn.kv_a_proj_with_mqa", rank + turned, hidden, config.layers)
    yield _Part("self_attn.kv_b_proj", heads * (plain + values), rank, config.layers)
    yield _Part("self_attn.o_proj", hidden, heads * values, config.layers)
    if index := config.number("index_n_heads") * config.number("index_head_dim"):
        yield _Part("self_attn.indexer.wq_b", index, of_queries, config.layers)


def _feed_forward(config: ModelConfig, sharding: Sharding, fused: int) -> Iterator[_Part]:
    """Yield the products of layers without experts, and those of shared experts that run by themselves."""
    hidden, sparse = config.needed("hidden_size"), config.expert_layers
    if dense := sorted(set(config.layers) - sparse):
        inter = config.needed("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size")
        yield from _gated("mlp", inter, hidden, sharding, dense)
    one = config.number("shared_expert_intermediate_size")
    several = config.number("n_shared_experts", "moe_num_shared_experts") * config.number("moe_intermediate_size")
    if sparse and not fused and (one or several):
        yield from _gated(
            "mlp.shared_expert" if one else "mlp.shared_experts", one or several, hidden, sharding, sparse
        )


def _gated(module: str, inter: int, hidden: int, sharding: Sharding, layers: Iterable[int]) -> Iterator[_Part]:
    own = sharding.cut(inter, sharding.tp, f"the intermediate size of {module}")
    yield _Part(f"{module}.gate_proj", 2 * own, hidden, layers)
    yield _Part(f"{module}.down_proj", hidden, own, layers)
