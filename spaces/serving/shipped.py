"""What an engine runs now for a layer: the entry of its tuned file, or its default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from gemmtune.engine.platform.serving.engine_source import EngineSource, find_engine
from gemmtune.engine.platform.serving.file_name import Engine, FileName
from gemmtune.engine.platform.serving.layer_files import file_name_of
from gemmtune.engine.platform.serving.tuned_file import TunedFile
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError, ToolchainMissing
from gemmtune.engine.records.serving.block_linear import BlockLinear
from gemmtune.engine.records.serving.moe_layer import SCALE_BLOCK, MoeLayer, MoeType

__all__ = ["Deployed", "deployed", "engine_source", "neighbours"]

_BLOCK = (SCALE_BLOCK, SCALE_BLOCK)
_OPTIONS = {"num_warps": 4, "num_stages": 3}
"""Triton's own values of the options that an entry may leave out."""
_WITHOUT_EFFECT = {"SPLIT_K": 1, "num_ctas": 1, "USE_TMA": False, "SWAP_AB": False}
"""Values that equal leaving the parameter out."""
_LINEAR_DEFAULT_STAGES = {Engine.VLLM: 2, Engine.SGLANG: 3}
"""Stages of the config that each engine runs for a linear layer without a tuned file."""


def engine_source(engine: Engine) -> EngineSource:
    """Return the engine's package on this host; raises like `find_engine`."""
    return find_engine(engine, os.environ)


@dataclass(frozen=True, slots=True)
class Deployed:
    """Config that an engine runs now."""

    config: Config | None
    """Effective parameters of the kernel; None if the engine runs another kernel, or fails."""
    file: str
    """Path of the tuned file below the package's folder, or `default`."""


def deployed(layer: MoeLayer | BlockLinear, engine: Engine, device: Device) -> Deployed:
    """Return what the engine runs for a layer on a device.

    Raises:
        ToolchainMissing: the engine's package is not on this host.
        UsageError: the package has another layout than gemmtune knows.
    """
    source, file = engine_source(engine), _file(layer, engine, device)
    if file is not None and file.entries:
        entry = file.entry(layer.tokens).config
        return Deployed(None if entry is None else _effective(entry, layer, engine), file.path)
    if isinstance(layer, BlockLinear):
        stages = _LINEAR_DEFAULT_STAGES[engine]
        tile = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": SCALE_BLOCK, "BLOCK_SIZE_K": SCALE_BLOCK, "GROUP_SIZE_M": 32}
        return Deployed(_effective({**tile, "num_warps": 4, "num_stages": stages}, layer, engine), "default")
    dtype = None if layer.dtype is MoeType.BF16 else "fp8_w8a8"
    block = list(_BLOCK) if layer.dtype is MoeType.FP8_BLOCK else None
    arguments = [layer.tokens, layer.experts, layer.inter, layer.hidden, layer.top_k, dtype]
    arguments += [False] if engine is Engine.SGLANG else []  # no Marlin kernel
    default = source.default_moe_config(*arguments, block, shared_bytes=device.shared_memory_per_block_bytes)
    return Deployed(_effective(default, layer, engine), "default")


def neighbours(layer: MoeLayer | BlockLinear, engine: Engine, device: Device) -> list[Config]:
    """Return the configs of the tuned file's entries, nearest token count first; none without a file or package."""
    try:
        file = _file(layer, engine, device)
    except (ToolchainMissing, TableError):
        return []
    entries = sorted(file.entries if file else (), key=lambda entry: abs(entry.tokens - layer.tokens))
    found = (_effective(entry.config, layer, engine) for entry in entries if entry.config is not None)
    return list(dict.fromkeys(config for config in found if config is not None))


def _file(layer: MoeLayer | BlockLinear, engine: Engine, device: Device) -> TunedFile | None:
    name = file_name_of(layer, device)
    assert name is not None
    return _tuned(engine_source(engine), name, _triton())


@cache
def _tuned(source: EngineSource, name: FileName, triton: str) -> TunedFile | None:
    return source.tuned_file(name, triton)


def _triton() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return ""


def _effective(entry: Mapping[str, object], layer: MoeLayer | BlockLinear, engine: Engine) -> Config | None:
    """Return the parameters that the kernel gets for an entry; None for one that the space has no parameter for."""
    values: dict[str, Value] = dict(_OPTIONS)
    hopper = isinstance(layer, BlockLinear) and engine is Engine.SGLANG
    if hopper:
        values |= {"SWAP_AB": False, "SPLIT_K": 1}
    for name, value in entry.items():
        if name == "SPLIT_K" and isinstance(layer, MoeLayer):
            continue  # vLLM sets it to 1 itself
        if name in _WITHOUT_EFFECT and value == _WITHOUT_EFFECT[name] and name not in values:
            continue
        if not isinstance(value, bool | int):
            return None
        values[name] = value
    known = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"}
    known |= {"SWAP_AB", "SPLIT_K"} if hopper else set()
    if set(values) != known:
        return None
    if isinstance(layer, MoeLayer) and layer.dtype is MoeType.FP8_BLOCK and engine is Engine.VLLM:
        values["BLOCK_SIZE_K"] = min(int(values["BLOCK_SIZE_K"]), SCALE_BLOCK)
    return Config(values)
