"""NVIDIA's analytic model of GEMM kernels, nvMatmulHeuristics, asked in a process of its own.

It knows a kernel by its tile and its cluster, in CTAs; a space says which of those a config has. Its times are good for
ranking: of bf16 4096x4096x4096 it expects 156 µs on an H200 and of fp16 269 µs, which there are as fast as each other.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.prior import Prior
from gemmtune.engine.records.problem import DType, Layout, Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.matmul_heuristics.helper_process import AnsweringProcess, NoAnswerError

__all__ = ["Advice", "Proposal", "Shape", "advice", "prior_of", "proposed", "ranked"]

_PACKAGE = "nvidia-matmul-heuristics"
_HELPER = Path(__file__).with_name("server.py")
_TIMEOUT_SECONDS = 60.0  # an answer takes 0.015 s, the first one 0.05 (2 cores, 2026-11-22)
_TILE_K_BYTES = 128  # what the kernels of both architectures load of a row at once

# The library's own names of the GPUs in the catalogue; those that are missing it does not know.
_GPUS = {
    "A100-80GB": "A100_SXM_80GB",
    "A100-80GB-PCIe": "A100_PCIE_80GB",
    "B200": "B200",
    "GB200": "GB200_NVL",
    "H100-PCIe": "H100_PCIE",
    "H100-SXM": "H100_SXM",
    "H200": "H200_SXM",
    "L4": "L4",
    "L40S": "L40S",
    "RTX-3090": "RTX_3090",
    "RTX-4090": "RTX_4090",
    "RTX-5090": "RTX_5090",
}
# Letters of cuBLAS. Source: cutlass.operators 0.3.0, heuristics/nvmatmul/_mapping.py.
_OPERANDS = {DType.BF16: "T", DType.FP16: "H", DType.INT8: "B", DType.E4M3: "Q", DType.E5M2: "R"}
_OTHERS = _OPERANDS | {DType.FP32: "S", DType.INT32: "I"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the model tells kernels apart by."""

    tile_m: int
    """Rows of the output a CTA computes; of a kernel whose CTAs work in pairs, half of what a pair does."""
    tile_n: int
    """Columns of the output a CTA computes."""
    cluster_m: int
    """CTAs of a cluster along m. On sm_100 the model takes an even number for pairs of CTAs."""
    cluster_n: int
    """CTAs of a cluster along n."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A kernel the model proposes."""

    shape: Shape
    """Its tile and cluster."""
    tile_k: int
    """Elements of k a stage holds."""
    split_k: int
    """CTAs that share the k of one tile; 1 for a plain kernel."""
    seconds: float
    """Estimated time of one launch."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What the model says of one task."""

    proposals: tuple[Proposal, ...] = ()
    """The model's choices, best first by its own rules, which need not be by time."""
    times_ns: Mapping[Shape, float] = field(default_factory=dict)
    """Estimated time of one launch of each shape that is valid there."""
    reason: str = ""
    """Why there is nothing; empty where there is."""


def ranked(task: Task) -> tuple[Proposal, ...]:
    """What the model proposes for a task, best first; nothing where `advice` has a reason."""
    return advice(task).proposals


def proposed(task: Task, configs: Iterable[Config], shape_of: Callable[[Config], Shape | None]) -> tuple[Config, ...]:
    """The first of `configs` that has the shape of each proposal, the best proposal first; without split k."""
    first: dict[Shape | None, Config] = {}
    for config in configs:
        first.setdefault(shape_of(config), config)
    shapes = dict.fromkeys(proposal.shape for proposal in ranked(task) if proposal.split_k == 1)
    return tuple(first[shape] for shape in shapes if shape in first)


def prior_of(task: Task, configs: Iterable[Config], shape_of: Callable[[Config], Shape | None]) -> Prior:
    """The model's times of `configs`; one whose shape is None, or not valid to the model, is left out."""
    found = advice(task)
    if found.reason:
        return Prior(reason=found.reason)
    shapes = ((config, shape_of(config)) for config in configs)
    times_ns = {c: found.times_ns[shape] for c, shape in shapes if shape is not None and shape in found.times_ns}
    if not times_ns:
        return Prior(reason=f"{_PACKAGE} prices none of the configs of {task.key}")
    return Prior(times_ns, f"{_PACKAGE} {version(_PACKAGE)}")


@cache
def advice(task: Task) -> Advice:
    """Ask the model, once a task; an answer that fails to come is an advice with its reason."""
    question = _question(task)
    if isinstance(question, str):
        return Advice(reason=question)
    found = _asked(tuple(question.items()))
    return found if found.proposals or found.reason else Advice(reason=f"{_PACKAGE} proposes nothing for {task.key}")


@cache
def _asked(question: tuple[tuple[str, str | int], ...]) -> Advice:
    """Ask it once of each problem, whichever spaces ask; neither proposals nor a reason where it has none."""
    try:
        answer: Any = _helper(os.getpid()).ask(dict(question))
    except NoAnswerError as why:
        return Advice(reason=f"{_PACKAGE} {why}")
    return Advice(
        tuple(Proposal(Shape(m, n, c_m, c_n), k, split, s) for m, n, k, c_m, c_n, split, s in answer["proposals"]),
        {Shape(m, n, c_m, c_n): seconds * 1e9 for m, n, c_m, c_n, seconds in answer["times"]},
    )


@cache
def _helper(_process: int) -> AnsweringProcess:
    """That of the calling process; one that is forked has its own."""
    helper = AnsweringProcess(_HELPER, _TIMEOUT_SECONDS)
    atexit.register(helper.close)
    return helper


def _question(task: Task) -> dict[str, str | int] | str:
    """What the helper is asked, or why there is nothing to ask."""
    problem = task.problem
    try:
        version(_PACKAGE)
    except PackageNotFoundError:
        return f"{_PACKAGE} is not installed: pip install {_PACKAGE}"
    if task.device.sku not in _GPUS:
        return f"{_PACKAGE} does not know the {task.device.name}; it knows {', '.join(_GPUS)}"
    precision = _precision(problem)
    if precision is None:
        given = f"{problem.a_dtype}, {problem.b_dtype}, {problem.out_dtype} accumulated in {problem.acc_dtype}"
        return f"{_PACKAGE} is not asked about operands of {given}"
    # T is row-major to the library and N is not, of both operands: as cutlass.operators 0.3.0 asks it.
    a, b = ("T" if layout is Layout.N else "N" for layout in (problem.a_layout, problem.b_layout))
    return {
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "batch": problem.batch,
        "gpu": _GPUS[task.device.sku],
        "layout": f"{a}{b}_ROW_MAJOR",
        "precision": precision,
        "tile_k": _TILE_K_BYTES // problem.a_dtype.itemsize,
    }


def _precision(problem: Problem) -> str | None:
    if problem.a_dtype != problem.b_dtype or problem.a_dtype not in _OPERANDS:
        return None
    operand, sums, out = (_OTHERS[dtype] for dtype in (problem.a_dtype, problem.acc_dtype, problem.out_dtype))
    if problem.a_dtype in (DType.E4M3, DType.E5M2):
        return f"{operand}{operand}{out}{sums}{out}"  # A, B, C, accumulator, output
    return f"{operand}{sums}{out}"
