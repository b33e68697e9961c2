"""Layers of real models, by the (E, N, dtype) of their tuned file; hidden sizes and top-k are the models' own."""

from __future__ import annotations

TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""Token counts of vLLM's own tuner."""

LAYERS = {
    "qwen3-30b-tp2": "e128:k8:h2048:n384:bf16",
    "qwen3-30b-fp8-tp2": "e128:k8:h2048:n384:fp8_block",
    "mixtral-8x7b-fp8-tp8": "e8:k2:h4096:n1792:fp8_tensor",
    "moonlight-16b-tp2": "e64:k6:h2048:n704:bf16",
    "llama4-scout-fp8-tp8": "e16:k1:h5120:n1024:fp8_tensor",
    "glm-4.5-air-fp8-tp4": "e128:k8:h4096:n352:fp8_tensor",
    "qwen3-next-80b-tp4": "e512:k10:h2048:n128:bf16",
    "deepseek-v3-fp8-tp8": "e256:k8:h7168:n256:fp8_block",
}
"""Six with a shipped NVIDIA_H200 file, and two without: moonlight-16b-tp2 and glm-4.5-air-fp8-tp4."""


def problems(names: list[str], tokens: tuple[int, ...] = TOKENS) -> list[str]:
    """Return the workloads of these layers at every token count."""
    return [f"vllm_moe:m{count}:{LAYERS[name]}" for name in names for count in tokens]
