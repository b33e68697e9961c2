"""Types of a model's weights, as its config.json states them, and which layers are left out of quantisation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gemmtune.engine.consumers.serving.contract.moe_layer import MoeType
from gemmtune.engine.consumers.serving.models.config import ModelConfig

_SKIPPED = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
_ABOVE_TEXT = "language_model."
_LONGEST = 200
_NESTED = re.compile(r"\)[*+{?]")
"""A repeated group, with which matching may take exponential time; no published model has one."""
_BITS = {4: MoeType.INT4_W4A16, 8: MoeType.INT8_W8A16}


@dataclass(frozen=True, slots=True)
class WeightType:
    """Type of a model's quantised weights."""

    dtype: MoeType | None
    """Types of activations and weights; None for one that no space of gemmtune builds."""
    words: str
    """Description for messages, `mxfp4`."""
    block: tuple[int, int] | None = None
    """Rows and columns of a weight that share a scale; None without such blocks."""
    group: int = 0
    """Elements of an integer weight's row that share a scale; 0 without groups."""
    zeros: bool = False
    """Whether each group has a zero point."""
    skipped: Sequence[str] = ()
    """Names and patterns of modules that are not quantised."""

    def covers(self, module: str) -> bool:
        """Return whether a module, `model.layers.3.mlp.experts`, is quantised."""
        return not any(_names(each.replace(_ABOVE_TEXT, ""), module) for each in self.skipped)


def plain_type(config: ModelConfig) -> WeightType:
    """Return the type of weights that are not quantised, as both engines load them: bf16 unless it is fp16."""
    stated = config.text.get("dtype") or config.text.get("torch_dtype") or config.whole.get("torch_dtype")
    dtype = MoeType.FP16 if str(stated).removeprefix("torch.") in ("float16", "half") else MoeType.BF16
    return WeightType(dtype, dtype.value)


def weight_type(config: ModelConfig) -> WeightType:
    """Return the type of a model's quantised weights, or the plain one for a model without quantisation."""
    stated = config.quantization
    if not stated:
        return plain_type(config)
    method = str(stated.get("quant_method", "")).replace("_", "-").lower()
    lists = (stated.get(key) for key in _SKIPPED)
    skipped = [each for listed in lists if isinstance(listed, list) for each in listed if isinstance(each, str)]
    if config.text.get("expert_dtype") == "fp4" or stated.get("moe_quant_algo"):
        return WeightType(None, str(stated.get("moe_quant_algo") or "fp4"))
    known = {"fp8": _fp8, "gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed, "modelopt": _modelopt}
    found = known[method](stated) if method in known else WeightType(None, method or "no quant_method")
    if method == "experts-int8":
        found = WeightType(MoeType.INT8_W8A16, method)
    return WeightType(found.dtype, found.words, found.block, found.group, found.zeros, skipped)


def _fp8(stated: Mapping[str, object]) -> WeightType:
    return _in_blocks(stated["weight_block_size"]) if stated.get("weight_block_size") else _per_tensor()


def _in_blocks(stated: object) -> WeightType:
    if isinstance(stated, list) and len(stated) == 2 and all(type(each) is int and each > 0 for each in stated):
        return WeightType(MoeType.FP8_BLOCK, f"fp8 with a scale per {stated[0]}x{stated[1]}", (stated[0], stated[1]))
    return WeightType(None, f"fp8 with blocks {stated}")


def _per_tensor() -> WeightType:
    return WeightType(MoeType.FP8_TENSOR, "fp8 with a scale per tensor")


def _gptq(stated: Mapping[str, object]) -> WeightType:
    if stated.get("desc_act"):
        return WeightType(None, "gptq in the order of activations")
    return _integers(stated.get("bits"), stated.get("group_size"), has_zeros=not stated.get("sym", True))


def _awq(stated: Mapping[str, object]) -> WeightType:
    return _integers(
        stated.get("bits", stated.get("w_bit")),
        stated.get("group_size", stated.get("q_group_size")),
        has_zeros=bool(stated.get("zero_point", True)),
    )


def _integers(bits: object, group: object, *, has_zeros: bool) -> WeightType:
    if type(bits) is int and bits in _BITS and type(group) is int and group > 0:
        words = f"int{bits} with a scale per {group}{' and zero points' if has_zeros else ''}"
        return WeightType(_BITS[bits], words, group=group, zeros=has_zeros)
    return WeightType(None, f"integers of {bits} bits with a scale per {group}")


def _compressed(stated: Mapping[str, object]) -> WeightType:
    groups = stated.get("config_groups")
    parts = list(groups.values()) if isinstance(groups, dict) else []
    if len(parts) != 1 or not isinstance(parts[0], dict) or not isinstance(weights := parts[0].get("weights"), dict):
        return WeightType(None, f"compressed-tensors with {len(parts)} groups of layers")
    bits, kind, strategy = (weights.get(key) for key in ("num_bits", "type", "strategy"))
    activations = parts[0].get("input_activations")
    if kind == "int" and strategy == "group" and not activations:
        return _integers(bits, weights.get("group_size"), has_zeros=not weights.get("symmetric", True))
    if (kind, bits) == ("float", 8) and activations:
        if strategy == "block":
            return _in_blocks(weights.get("block_structure"))
        if strategy == "tensor":
            return _per_tensor()
    return WeightType(None, f"compressed-tensors: {kind} of {bits} bits with a scale per {strategy}")


def _modelopt(stated: Mapping[str, object]) -> WeightType:
    algorithm = stated.get("quant_algo")
    return _per_tensor() if algorithm == "FP8" else WeightType(None, f"modelopt's {algorithm}")


def _names(pattern: str, module: str) -> bool:
    """Return whether a pattern names a module, a part of its path, or a module above it."""
    if pattern.startswith("re:"):
        if len(pattern) > _LONGEST or _NESTED.search(pattern):
            return False
        try:
            return re.match(pattern.removeprefix("re:"), module) is not None
        except re.error:
            return False
    if "*" in pattern:
        return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")
    return f".{pattern}." in f".{module}."
