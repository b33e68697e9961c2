"""What the config.json of published models states, as far as a serving engine's layers depend on it."""

from __future__ import annotations

BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
LATENT = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "num_local_experts": 8, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_30B = {
    "architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 6144, "mlp_only_layers": [], "moe_intermediate_size": 768,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_30B_FP8 = {
    **QWEN3_30B,
    "quantization_config": {**BLOCKS, "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]},
}
QWEN3_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"], "hidden_size": 2048, "moe_intermediate_size": 512, "num_experts": 512,
    "num_experts_per_tok": 10, "num_hidden_layers": 48, "shared_expert_intermediate_size": 512,
    "num_attention_heads": 16, "quantization_config": BLOCKS,
}  # fmt: skip
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "quantization_config": BLOCKS, **LATENT,
}  # fmt: skip
DEEPSEEK_V32 = {
    **DEEPSEEK_V3, "architectures": ["DeepseekV32ForCausalLM"], "index_n_heads": 64, "index_head_dim": 128,
}  # fmt: skip
KIMI_K2 = {**DEEPSEEK_V3, "first_k_dense_replace": 1, "n_routed_experts": 384, "num_attention_heads": 64}
KIMI_K25 = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {name: value for name, value in KIMI_K2.items() if name != "quantization_config"},
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "input_activations": None,
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
            }
        },
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    },
}
GLM_45 = {
    "architectures": ["Glm4MoeForCausalLM"], "first_k_dense_replace": 3, "hidden_size": 5120,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 1,
    "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 92, "num_key_value_heads": 8,
}  # fmt: skip
DBRX = {
    "architectures": ["DbrxForCausalLM"], "attn_config": {"kv_n_heads": 8}, "d_model": 6144, "n_heads": 48,
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}, "n_layers": 40,
}  # fmt: skip
JAMBA = {
    "architectures": ["JambaForCausalLM"], "expert_layer_offset": 1, "expert_layer_period": 2, "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_experts": 16,
    "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
}  # fmt: skip
QWEN3_OMNI = {
    "architectures": ["Qwen3OmniMoeForConditionalGeneration"], "thinker_config": {"text_config": QWEN3_30B},
}  # fmt: skip
SCOUT = {
    "architectures": ["Llama4ForConditionalGeneration"], "torch_dtype": "bfloat16",
    "text_config": {
        "hidden_size": 5120, "interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_local_experts": 16,
    },
}  # fmt: skip
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880, "num_experts_per_tok": 4,
    "num_hidden_layers": 24, "num_local_experts": 32,
}  # fmt: skip
GPT_OSS_MXFP4 = {**GPT_OSS, "quantization_config": {"quant_method": "mxfp4"}}
QWEN3_32B_FP8 = {
    "architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "hidden_size": 5120, "intermediate_size": 25600,
    "num_attention_heads": 64, "num_hidden_layers": 64, "num_key_value_heads": 8, "quantization_config": BLOCKS,
}  # fmt: skip
