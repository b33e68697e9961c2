"""Layers of real models, by the sizes and the type of their tuned file; hidden sizes and top-k are the models' own."""

from __future__ import annotations

TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""Token counts of both engines' own tuners."""
FEW_TOKENS = (1, 4, 16, 64, 128, 512, 2048)
"""Token counts for the layers of SGLang."""

MOE = {
    "qwen3-30b-tp2": "e128:k8:h2048:n384:bf16",
    "qwen3-30b-fp8-tp2": "e128:k8:h2048:n384:fp8_block",
    "mixtral-8x7b-fp8-tp8": "e8:k2:h4096:n1792:fp8_tensor",
    "moonlight-16b-tp2": "e64:k6:h2048:n704:bf16",
    "llama4-scout-fp8-tp8": "e16:k1:h5120:n1024:fp8_tensor",
    "glm-4.5-air-fp8-tp4": "e128:k8:h4096:n352:fp8_tensor",
    "qwen3-next-80b-tp4": "e512:k10:h2048:n128:bf16",
    "deepseek-v3-fp8-tp8": "e256:k8:h7168:n256:fp8_block",
}
"""vLLM ships an NVIDIA_H200 file for six; it has none for moonlight-16b-tp2 and glm-4.5-air-fp8-tp4."""
SHIPPED_BY_SGLANG = (
    "qwen3-30b-tp2",
    "qwen3-30b-fp8-tp2",
    "mixtral-8x7b-fp8-tp8",
    "qwen3-next-80b-tp4",
    "deepseek-v3-fp8-tp8",
)
LINEAR = {"deepseek-v3-q-a": "n1536:k7168", "deepseek-v3-down-tp8": "n7168:k2304"}
"""Layers in fp8 with scales per block, for which both engines ship an NVIDIA_H200 file."""


def layers(engine: str) -> dict[str, tuple[str, str]]:
    """Return kind and sizes of the layers that are run for an engine, by name."""
    if engine == "vllm":
        return {name: ("vllm_moe", sizes) for name, sizes in MOE.items()}
    found = {name: ("sglang_moe", MOE[name]) for name in SHIPPED_BY_SGLANG}
    for each in ("sglang", "vllm"):
        found |= {f"{name}-{each}": (f"{each}_block_fp8", sizes) for name, sizes in LINEAR.items()}
    return found


def tokens(engine: str) -> tuple[int, ...]:
    """Return the token counts that are run for an engine."""
    return TOKENS if engine == "vllm" else FEW_TOKENS
