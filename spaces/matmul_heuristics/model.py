"""Query nvMatmulHeuristics, NVIDIA's analytic model of GEMM kernels, in a process of its own.

The model knows a kernel by its tile and its cluster, in CTAs; a space says which of those a config has. Its times rank
the kernels of one problem, and do not compare problems: they are 1.7 times longer for fp16 than for bf16.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import DType, Layout
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task

_PACKAGE = "nvidia-matmul-heuristics"
_PROGRAM = Path(__file__).with_name("program.py")
_TIMEOUT_SECONDS = 60.0  # an answer takes some 0.05 s
_TILE_K_BYTES = 128  # bytes of a row that the kernels of both architectures load at once

# The model's names of the GPUs in the catalogue; it does not know the missing ones.
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
    """Tile and cluster, by which the model tells kernels apart."""

    tile_m: int
    """Rows of the output that a CTA computes; half of the pair's rows if CTAs work in pairs."""
    tile_n: int
    """Columns of the output that a CTA computes."""
    cluster_m: int
    """CTAs of a cluster along m; on sm_100 the model takes an even number for pairs of CTAs."""
    cluster_n: int
    """CTAs of a cluster along n, 1 or more."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Proposals and times of the model for one task, or the reason why there are none."""

    proposals: tuple[Shape, ...] = ()
    """Kernels without split k that the model proposes, best first by its own rules, which need not be by time."""
    times_ns: Mapping[Shape, float] = field(default_factory=dict)
    """Estimated time of one launch of each valid shape, in nanoseconds."""
    reason: str = ""
    """Why there are no estimates; empty if there are."""


def proposed_configs(
    task: Task, configs: Iterable[Config], shape_of: Callable[[Config], Shape | None]
) -> tuple[Config, ...]:
    """Return the first config with the shape of each proposal, best proposal first."""
    first: dict[Shape | None, Config] = {}
    for config in configs:
        first.setdefault(shape_of(config), config)
    return tuple(first[shape] for shape in dict.fromkeys(estimates_of(task).proposals) if shape in first)


def prior_of(task: Task, configs: Iterable[Config], shape_of: Callable[[Config], Shape | None]) -> Prior:
    """Return the model's times of `configs`, without configs whose shape is None or not valid to the model."""
    estimates = estimates_of(task)
    if estimates.reason:
        return Prior(reason=estimates.reason)
    shapes = ((config, shape_of(config)) for config in configs)
    known = estimates.times_ns
    times_ns = {config: known[shape] for config, shape in shapes if shape is not None and shape in known}
    if not times_ns:
        return Prior(reason=f"{_PACKAGE} estimates none of the configs of {task.key}")
    return Prior(times_ns, f"{_PACKAGE} {version(_PACKAGE)}")


@cache
def estimates_of(task: Task) -> Estimates:
    """Query the model once per task; a missing or broken answer becomes a reason."""
    query = _query(task)
    if isinstance(query, str):
        return Estimates(reason=query)
    found = _answer(tuple(query.items()))
    return (
        found
        if found.times_ns or found.proposals or found.reason
        else Estimates(reason=f"{_PACKAGE} proposes nothing for {task.key}")
    )


@cache
def _answer(query: tuple[tuple[str, str | int], ...]) -> Estimates:
    """Query the model once per problem for all spaces; it may give neither proposals nor a reason."""
    command, given = [sys.executable, "-P", str(_PROGRAM)], json.dumps(dict(query)).encode()
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter, our own file)
            command, input=given, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Estimates(reason=f"{_PACKAGE} did not answer for {_TIMEOUT_SECONDS:g} s")
    try:
        answer: Any = json.loads(done.stdout)  # an answer counts even if the program crashed behind it
    except ValueError:
        errors = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        return Estimates(reason=f"{_PACKAGE} ended with status {done.returncode}: {errors[-1][:200]}")
    return Estimates(
        tuple(Shape(*shape) for shape in answer["proposals"]),
        {Shape(*shape): seconds * 1e9 for *shape, seconds in answer["times"]},
    )


def _query(task: Task) -> dict[str, str | int] | str:
    """Return the query for the program, or the reason why the model cannot serve the task."""
    problem = gemm(task.problem)
    try:
        version(_PACKAGE)
    except PackageNotFoundError:
        return f"{_PACKAGE} is not installed: pip install {_PACKAGE}"
    if task.device.sku not in _GPUS:
        return f"{_PACKAGE} does not know the {task.device.name}; it knows {', '.join(_GPUS)}"
    precision = _precision(problem)
    if precision is None:
        given = f"{problem.a_dtype}, {problem.b_dtype}, {problem.out_dtype} accumulated in {problem.acc_dtype}"
        return f"{_PACKAGE} has no precision for operands of {given}"
    # The model's T is row-major and its N is not, for both operands, as in cutlass.operators 0.3.0.
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
