"""Models of transformers and timm with random weights at their real widths; fewer layers than published by default.

MODELS_LAYERS sets the number of layers; 0 stands for the published number. Each function without parameters builds a
model on torch's default device, so that `gemmtune capture models:llama` takes it.
"""

from __future__ import annotations

import os

import torch

LAYERS = int(os.environ.get("MODELS_LAYERS", "4"))
PUBLISHED = {"llama": 16, "qwen3": 28, "bert": 24, "vit": 24, "whisper": 32, "qwen3_moe": 48, "olmoe": 16}


def layers(name: str) -> int:
    return LAYERS or PUBLISHED[name]


def llama() -> torch.nn.Module:
    """Llama-3.2-1B."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=layers("llama"),
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        vocab_size=128256,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(config).bfloat16()


def qwen3() -> torch.nn.Module:
    """Qwen3-0.6B."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=layers("qwen3"),
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return Qwen3ForCausalLM(config).bfloat16()


def bert() -> torch.nn.Module:
    """BERT-large, with gelu and the head for masked tokens."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=layers("bert"),
        num_attention_heads=16,
        vocab_size=30522,
        max_position_embeddings=2048,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForMaskedLM(config).bfloat16()


def vit() -> torch.nn.Module:
    """ViT-L/16 at 224 pixels, with gelu: 197 tokens per image."""
    import timm

    return timm.create_model("vit_large_patch16_224", depth=layers("vit")).bfloat16()


def whisper() -> torch.nn.Module:
    """Encoder of Whisper large-v3: 1,500 positions per 30 s of sound."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=1280,
        encoder_layers=layers("whisper"),
        encoder_attention_heads=20,
        encoder_ffn_dim=5120,
        num_mel_bins=128,
        dropout=0.0,
        encoder_layerdrop=0.0,
    )
    return WhisperEncoder(config).bfloat16()


def qwen3_moe() -> torch.nn.Module:
    """Qwen3-30B-A3B: 8 of 128 experts per token, as grouped products."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        hidden_size=2048,
        moe_intermediate_size=768,
        num_hidden_layers=layers("qwen3_moe"),
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        norm_topk_prob=True,
        vocab_size=151936,
        use_cache=False,
        experts_implementation="grouped_mm",
    )
    return Qwen3MoeForCausalLM(config).bfloat16()


def olmoe() -> torch.nn.Module:
    """OLMoE-1B-7B: 8 of 64 experts per token, as grouped products."""
    from transformers import OlmoeConfig, OlmoeForCausalLM

    config = OlmoeConfig(
        hidden_size=2048,
        intermediate_size=1024,
        num_hidden_layers=layers("olmoe"),
        num_attention_heads=16,
        num_key_value_heads=16,
        num_experts=64,
        num_experts_per_tok=8,
        vocab_size=50304,
        use_cache=False,
        experts_implementation="grouped_mm",
    )
    return OlmoeForCausalLM(config).bfloat16()
