"""Configs that an engine runs now for a layer: an entry of its tuned file, or its default."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice

from gemmtune.engine.consumers.serving.contract.block_linear import BlockLinear
from gemmtune.engine.consumers.serving.contract.engine_source import EngineSource, find_engine
from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName
from gemmtune.engine.consumers.serving.contract.layer import SCALE_BLOCK
from gemmtune.engine.consumers.serving.contract.layer_files import file_name_of
from gemmtune.engine.consumers.serving.contract.moe_layer import MoeLayer
from gemmtune.engine.consumers.serving.contract.tuned_file import TunedFile
from gemmtune.engine.consumers.serving.contract.wna16_layer import Wna16Layer
from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import ToolchainMissing, UsageError
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Space

_MOST_SEEDS = 5
"""Configs that are tried first: what runs now, and its nearest neighbours in the tuned file."""
_OPTIONS = {"num_warps": 4, "num_stages": 3}
"""Triton's own values of the options that an entry may leave out."""
_WITHOUT_EFFECT = {"SPLIT_K": 1, "num_ctas": 1, "USE_TMA": False, "SWAP_AB": False}
"""Values that equal leaving the parameter out."""
_FILLED = ("BLOCK_SIZE_N", "BLOCK_SIZE_K")
"""Parameters that vLLM fills in for integer weights with a scale per group."""
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
    block = list(layer.scale_block) if layer.scale_block else None
    block = [0, layer.group] if isinstance(layer, Wna16Layer) else block
    arguments = [layer.tokens, layer.experts, layer.inter, layer.hidden, layer.top_k, layer.dtype.short or None]
    arguments += [False] if engine is Engine.SGLANG else []  # no Marlin kernel
    default = source.default_moe_config(*arguments, block, shared_bytes=device.shared_memory_per_block_bytes)
    return Deployed(_effective(default, layer, engine), "default")


def wna16_tile(inputs: int) -> dict[str, Value]:
    """Return what vLLM fills in for a product with so many input rows (`get_moe_wna16_block_config`)."""
    return dict(zip(_FILLED, (32, 64) if inputs == 1 else (64, 32), strict=True))


def known_configs(space: Space, task: Task, layer: MoeLayer | BlockLinear, engine: Engine) -> list[Config]:
    """Return what the engine runs now and the nearest other entries of its tuned file, if the space has them.

    Without the engine's package there is none.
    """
    found: list[Config] = []
    with suppress(ToolchainMissing, UsageError):
        now, file = deployed(layer, engine, task.device).config, _file(layer, engine, task.device)
        found += [] if now is None else [now]
        entries = sorted(file.entries if file else (), key=lambda entry: abs(entry.tokens - layer.tokens))
        near = (_effective(entry.config, layer, engine) for entry in entries if entry.config is not None)
        found += [config for config in near if config is not None]
    listed = {param.name: param.values for param in space.params(task)}
    inside = (c for c in dict.fromkeys(found) if all(c.get(name) in values for name, values in listed.items()))
    return list(islice((config for config in inside if space.check(task, config)), _MOST_SEEDS))


def deployed_params(layer: MoeLayer | BlockLinear, engine: Engine, device: Device) -> tuple[Param, ...]:
    """Return each parameter with the value that the engine runs; none where it runs another kernel, or is missing."""
    with suppress(ToolchainMissing, UsageError):
        config = deployed(layer, engine, device).config
        return () if config is None else tuple(Param(name, (value,)) for name, value in config.items())
    return ()


def is_deployed(layer: MoeLayer | BlockLinear, engine: Engine, device: Device, config: Config) -> Verdict:
    """Return whether a config is what the engine runs."""
    try:
        now = deployed(layer, engine, device)
    except (ToolchainMissing, UsageError) as missing:
        return Verdict.no("engine", str(missing))
    if now.config != config:
        return Verdict.no("not deployed", f"{engine} runs {now.config} here, from {now.file}")
    return Verdict.yes()


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
            continue  # vLLM sets it to 1 itself, or has a kernel that does not use it
        if name in _WITHOUT_EFFECT and value == _WITHOUT_EFFECT[name] and name not in values:
            continue
        if not isinstance(value, bool | int):
            return None
        values[name] = value
    known = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"}
    known |= {"SWAP_AB", "SPLIT_K"} if hopper else set()
    if engine is Engine.VLLM and isinstance(layer, Wna16Layer):
        if "SPLIT_K" not in entry:
            return None  # the kernel has no value for it
        if not {*_FILLED} <= values.keys():
            first, second = wna16_tile(layer.tokens), wna16_tile(layer.rows)
            values = {name: value for name, value in values.items() if name not in _FILLED}
            values, known = (values | first, known) if first == second else (values, known - {*_FILLED})
    if set(values) != known:
        return None
    if isinstance(layer, MoeLayer) and layer.deepest_tile and engine is Engine.VLLM:
        values["BLOCK_SIZE_K"] = min(int(values["BLOCK_SIZE_K"]), layer.deepest_tile)
    return Config(values)
