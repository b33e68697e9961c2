"""Models of transformers, timm and diffusers by name, with random weights and one or two layers. Imports torch.

`build` returns the model that the environment variable CENSUS names as JSON, so that `gemmtune capture models:build`
captures it.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from typing import Any

import torch

LAYERS = 2
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
_DEPTH = re.compile(r"(\w+_)?(n_)?(num_)?\w*layers?|depths?|n_layer|num_blocks|blocks_per_\w+")
_NO_DEPTH = re.compile(r"\w*(feature|select|out|return|output|every|freq|interval|share|norm|skip|exit|kv)\w*_layers?")
_HEADS = """
    CAUSAL_LM SEQ_TO_SEQ_CAUSAL_LM SPEECH_SEQ_2_SEQ CTC MASKED_LM IMAGE_TEXT_TO_TEXT MULTIMODAL_LM
    IMAGE_CLASSIFICATION OBJECT_DETECTION SEMANTIC_SEGMENTATION UNIVERSAL_SEGMENTATION DEPTH_ESTIMATION
    AUDIO_CLASSIFICATION VIDEO_CLASSIFICATION TEXT_TO_WAVEFORM TEXT_TO_SPECTROGRAM PRETRAINING
"""
_PREFERRED = _HEADS.split()
_FAMILIES = """
    resnet50 vit_base_patch16_224 swin_base_patch4_window7_224 convnext_base efficientnet_b0
    mobilenetv3_large_100 deit3_base_patch16_224 beit_base_patch16_224 eva02_base_patch14_224 maxvit_tiny_tf_224
    coatnet_0_rw_224 regnety_032 resnext50_32x4d densenet121 vgg16 inception_v3 xception41 dm_nfnet_f0 levit_256
    cait_s24_224 crossvit_small_240 pit_b_224 twins_svt_base poolformer_s24 mixer_b16_224 resmlp_24_224
    gmlp_s16_224 efficientformer_l1 mobilevit_s mobileone_s1 repvgg_b0 edgenext_small davit_base
    focalnet_base_srf hiera_base_224 fastvit_t8 convmixer_768_32 hrnet_w18 xcit_small_12_p16_224 volo_d1_224
"""
TIMM = _FAMILIES.split()


def names() -> list[str]:
    """Return all names, LIBRARY/MODEL: of transformers one per architecture, which is a folder of its models."""
    import diffusers
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    kinds = re.compile(r"\w*(Transformer\w*|UNet\w*)Model|UNet\w*Model|\w*Transformer2DModel")
    folders: dict[str, str] = {}
    for kind in classes():
        folder = model_type_to_module_name(kind)
        if folder not in folders or kind == folder:
            folders[folder] = kind
    found = [f"transformers/{kind}" for kind in sorted(folders.values())]
    found += [f"timm/{name}" for name in TIMM]
    return found + [f"diffusers/{name}" for name in dir(diffusers) if kinds.fullmatch(name)]


def classes() -> dict[str, list[str]]:
    """Return the classes of models for each type of configuration; types that share the first one stand once."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    tables = {
        name.removeprefix("MODEL_").removeprefix("FOR_").removesuffix("_MAPPING_NAMES"): table
        for name, table in vars(modeling_auto).items()
        if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES")
    }
    tables["BASE"] = tables.pop("MAPPING_NAMES", {}) or modeling_auto.MODEL_MAPPING_NAMES
    order = [*_PREFERRED, *(name for name in tables if name not in (*_PREFERRED, "BASE")), "BASE"]
    found: dict[str, list[str]] = {}
    taken: set[str] = set()
    for kind in CONFIG_MAPPING_NAMES:
        entries = [tables[name][kind] for name in order if kind in tables.get(name, {})]
        its = [each for entry in entries for each in ([entry] if isinstance(entry, str) else entry)]
        if its and its[0] not in taken:
            taken.add(its[0])
            found[kind] = its
    return found


def build() -> torch.nn.Module:
    """Return the model that CENSUS names."""
    return made(**json.loads(os.environ["CENSUS"]))


def made(name: str, dtype: str, cut: bool) -> torch.nn.Module:
    """Return a model with random weights; `cut` leaves at most two layers of each stack."""
    library, _, model = name.partition("/")
    return {"transformers": _transformers, "timm": _timm, "diffusers": _diffusers}[library](model, DTYPES[dtype], cut)


def configuration(kind: str, cut: bool) -> Any:
    """Return the published configuration of a type of transformers, with few layers."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(kind)
    if cut:
        _shorten(config)
    for each in _parts(config):
        for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop", "layer_drop"):
            if hasattr(each, name):  # a layer that is left out by chance has no truth
                setattr(each, name, 0.0)
    return config


def config_of(model: torch.nn.Module) -> Any:
    """Return what a model says of its sizes."""
    return getattr(model, "config", None)


def _parts(config: Any) -> list[Any]:
    names = getattr(type(config), "sub_configs", {})
    inner = [its for name in names if (its := getattr(config, name, None)) is not None and hasattr(its, "to_dict")]
    return [config, *(part for its in inner for part in _parts(its))]


def _shorten(config: Any) -> None:
    for part in _parts(config):
        depths = {
            getattr(part, name, None) for name in ("num_hidden_layers", "num_layers", "n_layer", "encoder_layers")
        }
        for name, value in list(vars(part).items()):
            if name.startswith("_") or _NO_DEPTH.fullmatch(name):
                continue
            short = _shortened(name, value, depths)
            if short is not value:
                try:
                    setattr(part, name, short)
                except (AttributeError, NotImplementedError, TypeError, ValueError):
                    continue


def _shortened(name: str, value: Any, depths: set[Any]) -> Any:
    if _DEPTH.fullmatch(name) and type(value) is int and value > LAYERS:
        return LAYERS
    if name in ("depths", "num_blocks", "layers") and isinstance(value, (list, tuple)):
        return type(value)(1 if isinstance(each, int) else each for each in value)
    if isinstance(value, (list, tuple)) and len(value) > LAYERS and len(value) in depths:
        other = next((each for each in value if each != value[0]), value[1])
        return type(value)([value[0], other])  # one layer of each of two kinds
    return value


def _transformers(kind: str, dtype: torch.dtype, cut: bool) -> torch.nn.Module:
    import transformers

    config = configuration(kind, cut)
    known = [getattr(transformers, each) for each in classes()[kind]]
    fitting = [each for each in known if each.config_class is type(config)] or known
    return fitting[0]._from_config(config, dtype=dtype)


def _timm(name: str, dtype: torch.dtype, cut: bool) -> torch.nn.Module:
    import timm

    model = timm.create_model(name)
    if cut:
        for module in model.modules():
            if isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList)):
                while (
                    len(module) > LAYERS
                    and len({type(each) for each in module}) == 1
                    and type(module[0]).__module__.startswith("timm.models")
                ):
                    del module[len(module) - 1]
    return model.to(dtype)


def _diffusers(name: str, dtype: torch.dtype, cut: bool) -> torch.nn.Module:
    import diffusers

    kind = getattr(diffusers, name)
    given: dict[str, Any] = {}
    if cut:
        for each in inspect.signature(kind.__init__).parameters.values():
            is_depth = _DEPTH.fullmatch(each.name) and not _NO_DEPTH.fullmatch(each.name)
            if is_depth and type(each.default) is int and each.default > LAYERS:
                given[each.name] = LAYERS
    return kind(**given).to(dtype)
