"""List the problems, and the candidates of each space."""

from __future__ import annotations

from functools import cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import enumerate_space
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes

# Decode to prefill. The second is early so that its binaries, of a type of their own, are built while others are timed.
PROBLEMS = (
    "16x4096x4096:bf16:nt",  # Llama-3.1-8B o
    "512x4096x4096:fp16:nt",  # Llama-3.1-8B o
    "1x6144x4096:bf16:nt",  # Llama-3.1-8B qkv
    "64x4096x14336:bf16:nt",  # Llama-3.1-8B down
    "128x2880x2880:bf16:nt",  # gpt-oss-20b expert w2: columns that fill no tile
    "256x6144x4096:bf16:nt",  # Llama-3.1-8B qkv
    "1000x3584x2368:bf16:nt",  # Qwen2.5-7B down, an eighth: no size fills its tiles
    "2048x4096x4096:bf16:nt",  # Llama-3.1-8B o
    "8192x1024x8192:bf16:nt",  # Llama-3.1-70B, an eighth of the projections' inputs
    "512x7168x2048:e4m3:nt",  # DeepSeek-V3 expert down
)
REFUSED = "1024x1280x3420:bf16:nt"  # a row of 6,840 bytes, which TMA cannot address: no CuTe kernel serves it
CUTE_SPACES = ("cute_gemm", "quack_gemm")
SPACES = ("aten", *CUTE_SPACES, "triton_mm")
BEST_RECORDED = 20


@cache
def tasks(device: Device, names: tuple[str, ...]) -> dict[Task, tuple[Config, ...]]:
    """Yield every task with its candidates: all feasible configs, or for triton_mm those of `triton_candidates`."""
    found = {}
    for name in names:
        for space in SPACES:
            task = Task(Problem.parse(name), device, space)
            feasible = (
                triton_candidates(task)[0]
                if space == "triton_mm"
                else enumerate_space(registry.space(space), task).feasible
            )
            if feasible:
                found[task] = feasible
    return found


def triton_candidates(task: Task) -> tuple[tuple[Config, ...], str]:
    """Return the best recorded configs of a problem, or Inductor's own list without a record; and which of the two."""
    space = registry.space(task.space)
    for landscape in _recorded():
        if landscape.problem == task.problem:
            points = sorted((p for p in landscape.points.values() if p.time_ns is not None), key=lambda p: p.time_ns)
            best = [p.config for p in points if space.check(task, p.config)][:BEST_RECORDED]
            return tuple(best), f"the {len(best)} best recorded"
    return space.seeds(task), "Inductor's DEFAULT list"


def thinned(configs: tuple[Config, ...], limit: int | None) -> tuple[Config, ...]:
    """Return at most `limit` of the configs, spread evenly."""
    if limit is None or len(configs) <= limit:
        return configs
    return tuple(configs[i * len(configs) // limit] for i in range(limit))


@cache
def _recorded() -> tuple[Landscape, ...]:
    return tuple(landscape for path in embedded("triton_mm") for landscape in read_landscapes(path))
