"""Products of decode steps of real models, and problems with ragged sizes."""

SHAPES = {
    # n, k: outputs and inputs of a linear layer
    (6144, 4096): "qkv of Llama 3.1 8B",
    (4096, 4096): "o of Llama 3.1 8B",
    (28672, 4096): "gate and up of Llama 3.1 8B",
    (4096, 14336): "down of Llama 3.1 8B",
    (576, 7168): "kv_a of DeepSeek V3",
    (1536, 7168): "q_a of DeepSeek V3",
    (7168, 2048): "shared expert's down of DeepSeek V3",
    (256, 7168): "router of DeepSeek V3",
    (2560, 9728): "down of Qwen3 4B",
    (1792, 5120): "qkv of Qwen3 32B, 4 GPUs",
    (5120, 6400): "down of Qwen3 32B, 4 GPUs",
    (10240, 8192): "qkv of Llama 3.3 70B",
}
"""Layers by (n, k)."""
ROWS = (1, 2, 4, 8, 16, 32)


MOST_ROWS = ROWS[-1]
"""All layers are timed with this many rows."""


def decode_products() -> list[str]:
    """All layers at 32 rows, and four layers per smaller m, so that each meets two of these: 32 problems."""
    shapes = list(SHAPES)
    return [
        f"{m}x{n}x{k}:bf16:nt"
        for number, m in enumerate(ROWS)
        for n, k in (shapes if m == MOST_ROWS else (shapes[(number + 3 * i) % len(shapes)] for i in range(4)))
    ]


RAGGED = {
    "cute_gemv": (
        "1x1x8:bf16:nt",
        "1x576x7168:bf16:nt",
        "2x1001x1032:fp16:nt:addmm",
        "3x7x1544:bf16:nt:addmm:bias=matrix",
        "5x4096x520:bf16:nt:out_dtype=fp32",
        "8x28672x4096:bf16:nt:addmm",
        "13x33x14336:fp16:nt",
        "16x1000x4104:bf16:nt:addmm:bias=matrix",
        "7x2560x9728:bf16:nt:dynamic_m=true",
    ),
    "cute_splitk": (
        "3x1792x5120:bf16:nt",
        "8x28672x4096:bf16:nt:addmm",
        "13x33x14336:fp16:nt",
        "16x1000x4104:bf16:nt:addmm:bias=matrix",
        "17x250x2056:bf16:nt",
        "33x4096x4096:fp16:nt:addmm",
        "64x999x7176:bf16:nt:addmm:bias=matrix",
        "64x128x16384:bf16:nt:out_dtype=fp32",
        "7x2560x9728:bf16:nt:dynamic_m=true",
    ),
}
"""Problems by space, with sizes that no tile divides, and with every bias and type."""
