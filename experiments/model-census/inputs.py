"""Dummy inputs of a model by the signature of its forward, as texts of `gemmtune capture`. Imports no torch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

MOST = 20  # combinations to try
TOKENS = 16
_TEXT = (
    "input_ids pixel_values input_features input_values audio_values pixel_values_videos attention_mask class_labels"
)
_EXTRA = tuple(_TEXT.split())


def candidates(model: Any, config: Any, dtype: str, library: str) -> Iterator[list[str]]:
    """Yield inputs to try: what forward demands and its main input, then more."""
    parameters = inspect.signature(model.forward).parameters
    positional = [p for p in parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    needed = [p.name for p in positional if p.default is p.empty]
    if library == "timm":
        side = model.default_cfg["input_size"][-1]
        yield [f"{dtype}[2,3,{side},{side}]"]
        return
    main = getattr(model, "main_input_name", None)
    first = dict.fromkeys(needed)
    if library == "transformers":
        first |= dict.fromkeys(name for name in (main,) if name in parameters)
        first |= dict.fromkeys(name for name in ("decoder_input_ids",) if name in parameters)
    if library == "diffusers":
        known = ("encoder_hidden_states", "timestep", "pooled_projections", "img_ids", "txt_ids", "guidance")
        first |= dict.fromkeys(name for name in known if name in parameters)
    sets = [list(first)]
    extra = [name for name in _EXTRA if name in parameters and name not in first]
    sets += [[*first, name] for name in extra]
    if not first:
        sets = [[name] for name in parameters if shapes(name, config, dtype)]
    if "bbox" in parameters:
        sets.append([*first, "bbox"])
    if len(extra) > 1:
        sets.append([*first, *extra])
    tried: set[tuple[str, ...]] = set()
    for group in sets:
        options = [shapes(name, config, dtype, library) for name in reversed(group)]
        for each in islice(product(*options), MOST):  # the main input's shape changes first
            texts = tuple(f"{name}={text}" for name, text in zip(group, reversed(each), strict=True))
            if texts and texts not in tried:
                tried.add(texts)
                yield list(texts)


def found(config: Any, *names: str, default: Any = None) -> Any:
    """Return the first of some fields of a configuration or of its parts."""
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    for part in getattr(type(config), "sub_configs", {}):
        inner = getattr(config, part, None)
        if inner is not None and not isinstance(inner, dict):
            value = found(inner, *names)
            if value is not None:
                return value
    return default


def shapes(name: str, config: Any, dtype: str, library: str = "transformers") -> list[str]:
    """Return texts for an input by its name, the likeliest first; empty for an unknown name."""
    if library == "diffusers":
        return _diffusion(name, config, dtype)
    below = min(1000, int(found(config, "vocab_size", default=100) or 100))
    size = found(config, "image_size", "input_size", "img_size", default=224)
    size = size if isinstance(size, int) else size.get("height", 224) if isinstance(size, dict) else size
    height, width = (size, size) if isinstance(size, int) else list(size)[-2:]
    channels = found(config, "num_channels", "in_channels", "in_chans", default=3)
    frames = found(config, "num_frames", "frames_per_clip", default=8)
    mels = found(config, "num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels", default=80)
    patch = found(config, "patch_size", default=16)
    patch = patch if isinstance(patch, int) else list(patch)[-1]
    temporal = found(config, "temporal_patch_size", default=1) or 1
    hidden = found(config, "hidden_size", "d_model", default=768)
    length = (found(config, "max_source_positions", default=1500) or 1500) * 2
    context = found(config, "context_length", default=64) or 64
    series = found(config, "num_input_channels", "input_size", default=1)
    match name:
        case "input_ids" | "decoder_input_ids" | "labels" | "encoder_input_ids":
            heads = found(config, "num_codebooks", default=0)
            return [f"int64[2,{TOKENS}]%{below}", *([f"int64[2,{TOKENS},{heads}]%{below}"] if heads else [])]
        case "attention_mask" | "decoder_attention_mask" | "pixel_mask":
            return [f"bool[2,{TOKENS}]"]
        case "token_type_ids" | "xpath_tags_seq" | "position_ids":
            return [f"int64[2,{TOKENS}]"]
        case "bbox":
            return [f"int64[2,{TOKENS},4]"]
        case "pixel_values":
            patches = (height // patch) * (width // patch)
            flat = channels * patch * patch
            return [
                f"{dtype}[2,{channels},{height},{width}]",
                f"{dtype}[2,{frames},{channels},{height},{width}]",
                f"{dtype}[2,1,{channels},{height},{width}]",
                f"{dtype}[2,{patches},{flat}]",
                f"{dtype}[{patches},{flat * temporal}]",
                f"{dtype}[2,3,512,512]",
                f"{dtype}[2,3,224,224]",
            ]
        case "pixel_values_videos":
            return [
                f"{dtype}[2,{frames},{channels},{height},{width}]",
                f"{dtype}[2,{channels},{frames},{height},{width}]",
            ]
        case "input_features" | "audio_features":
            return [
                f"{dtype}[2,{mels},{length}]",
                f"{dtype}[2,256,{mels}]",
                f"{dtype}[2,1,1024,{mels}]",
                f"{dtype}[2,1,{mels},1024]",
                f"{dtype}[2,160,160]",
                f"{dtype}[2,1,1001,64]",
            ]
        case "input_values" | "audio_values" | "audio":
            longest = found(config, "max_length", default=1024)
            return [
                f"{dtype}[2,16000]",
                f"{dtype}[2,1,24000]",
                f"{dtype}[2,{longest},{mels}]",
                f"{dtype}[2,{frames},{channels},{height},{width}]",
            ]
        case "past_values":
            return [f"{dtype}[2,{context},{series}]", f"{dtype}[2,{context}]", f"{dtype}[2,512]"]
        case "inputs" | "spectrogram":
            return [f"{dtype}[2,{TOKENS},{found(config, 'd_latents', default=hidden)}]", f"int64[2,{TOKENS}]%{below}"]
        case "hidden_states" | "inputs_embeds" | "encoder_hidden_states":
            return [f"{dtype}[2,{TOKENS},{hidden}]", f"{dtype}[2,{hidden},{TOKENS}]"]
    return _rare(name, config, dtype)


def _rare(name: str, config: Any, dtype: str) -> list[str]:
    states, actions = found(config, "state_dim", default=17), found(config, "act_dim", default=4)
    known = {
        "states": [f"{dtype}[2,20,{states}]"],
        "actions": [f"{dtype}[2,20,{actions}]"],
        "rewards": [f"{dtype}[2,20,1]"],
        "returns_to_go": [f"{dtype}[2,20,1]"],
        "timesteps": ["int64[2,20]"],
        "timestep": [f"{dtype}[2]"],
        "past_observed_mask": [f"{dtype}[2,64]"],
        "visual_feats": [f"{dtype}[2,10,{found(config, 'visual_feat_dim', default=2048)}]"],
        "visual_pos": [f"{dtype}[2,10,4]"],
        "prompt_pixel_values": [f"{dtype}[2,3,448,448]"],
        "prompt_masks": [f"{dtype}[2,3,448,448]"],
        "task_inputs": ["int64[2,77]"],
        "audio_codes": ["int64[2,8,32]"],
        "src_token_ids": [f"int64[2,{TOKENS}]%100"],
        "noise": [f"{dtype}[2,64,64]"],
        "spectrogram": [f"{dtype}[2,100,80]"],
    }
    return known.get(name, [])


def _diffusion(name: str, config: Any, dtype: str) -> list[str]:
    channels = found(config, "in_channels", default=4)
    channels = channels if isinstance(channels, int) else 4
    text = found(config, "cross_attention_dim", "joint_attention_dim", "text_embed_dim", "caption_channels", "text_dim")
    text = text or found(config, "cap_feat_dim", "context_dim", "caption_projection_dim", default=768)
    text = text if isinstance(text, int) else 768
    pooled = found(config, "pooled_projection_dim", default=768)
    size = found(config, "sample_size", default=32)
    size = size if isinstance(size, int) else 32
    match name:
        case "hidden_states" | "sample":
            return [
                f"{dtype}[2,{channels},{size},{size}]",
                f"{dtype}[2,64,{channels}]",
                f"{dtype}[2,{channels},4,{size},{size}]",
                f"{dtype}[2,4,{channels},{size},{size}]",
                f"{dtype}[2,{channels},{size * 16}]",
            ]
        case "encoder_hidden_states":
            return [f"{dtype}[2,32,{text}]"]
        case "timestep" | "guidance" | "timestep_r":
            return [f"{dtype}[2]", "int64[2]"]
        case "pooled_projections":
            return [f"{dtype}[2,{pooled}]"]
        case "img_ids":
            return [f"{dtype}[64,{len(found(config, 'axes_dims_rope', default=(1, 1, 1)))}]"]
        case "txt_ids":
            return [f"{dtype}[32,{len(found(config, 'axes_dims_rope', default=(1, 1, 1)))}]"]
        case "encoder_attention_mask" | "encoder_hidden_states_mask" | "attention_mask":
            return ["bool[2,32]"]
        case "class_labels" | "text_lens":
            return ["int64[2]"]
        case "original_size" | "target_size" | "crop_coords":
            return [f"{dtype}[2,2]"]
        case "text_bth":
            return [f"{dtype}[2,32,{found(config, 'text_in_dim', default=text)}]"]
        case "added_time_ids":
            return [f"{dtype}[2,3]"]
        case "num_frames":
            return []
    return _rare(name, config, dtype)
