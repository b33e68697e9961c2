"""Models of transformers, timm, diffusers and peft with random weights at their real widths and with four layers.

Each function without parameters builds a model on torch's default device, so that `gemmtune capture models:llama`
takes it. The folders in configs are models that gemmtune builds itself: `gemmtune capture hf:configs/t5-large`.
"""

from __future__ import annotations

import torch

LAYERS = 4


def llama() -> torch.nn.Module:
    """Return Llama-3.2-1B with four layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=LAYERS,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        vocab_size=128256,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(config).bfloat16()


def qwen3() -> torch.nn.Module:
    """Return Qwen3-0.6B with four layers."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=LAYERS,
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
        num_hidden_layers=LAYERS,
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

    return timm.create_model("vit_large_patch16_224", depth=LAYERS).bfloat16()


def whisper() -> torch.nn.Module:
    """Encoder of Whisper large-v3: 1,500 positions per 30 s of sound."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=1280,
        encoder_layers=LAYERS,
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
        num_hidden_layers=LAYERS,
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
        num_hidden_layers=LAYERS,
        num_attention_heads=16,
        num_key_value_heads=16,
        num_experts=64,
        num_experts_per_tok=8,
        vocab_size=50304,
        use_cache=False,
        experts_implementation="grouped_mm",
    )
    return OlmoeForCausalLM(config).bfloat16()


def lora() -> torch.nn.Module:
    """Qwen3-0.6B with adapters of rank 16 at all layers, which alone are trained."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(qwen3(), config, autocast_adapter_dtype=False)


class flux(torch.nn.Module):  # noqa: N801 (built by its name, as the others are)
    """FLUX.1's transformer, with two layers of either kind: a step of a picture beside 512 tokens of text."""

    def __init__(self) -> None:
        from diffusers import FluxTransformer2DModel

        super().__init__()
        self.inner = FluxTransformer2DModel(num_layers=2, num_single_layers=2, guidance_embeds=False).bfloat16()

    def forward(self, picture: torch.Tensor, text: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        step = torch.full((len(picture),), 0.5, dtype=picture.dtype, device=picture.device)
        places = (picture.new_zeros(each.shape[1], 3) for each in (picture, text))
        return self.inner(picture, text, pooled, step, *places, return_dict=False)[0]
