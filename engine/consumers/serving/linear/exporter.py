"""Exporters for linear layers of 8-bit floats in vLLM and SGLang: a table, its kernels, and the plug-in for them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from gemmtune.engine.consumers.serving.linear.table import SCHEMA, cubin_name, parse_linear_table
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import DType, Op
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.export import sealed_json
from gemmtune.engine.tables.kernels.binary import packed
from gemmtune.engine.tables.kernels.builds import Built, built_kernels, cute_entry
from gemmtune.engine.tables.licence import LICENCES, notices
from gemmtune.engine.tables.standalone import package

_ROOM = "gemmtune.engine.consumers.serving.linear"
_TRITON, _VENDOR = "triton_mm", "aten"
_SCALED = "e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])"
_LEAST_DYNAMIC = 2  # torch compiles an open m for sizes from here on


class _Served(NamedTuple):
    """Row or range that the plug-in serves."""

    problem: Problem
    first: int
    last: int
    choice: Choice
    """Choice that the table ships."""
    kernels: tuple[tuple[Task, Config], ...]
    """Kernels to build, the fastest first; none where the vendor library leads."""


class _LinearExporter(Exporter):
    engine: ClassVar[str]
    """Name of the engine in the names of files."""
    group: ClassVar[str]
    """Group of the entry points that the engine calls."""

    row_wise: ClassVar[tuple[bool, ...]] = (True, False)
    """Whether scales are per row and column, or one each, in the products that the engine asks for."""

    on_request = True  # the kernels of all rows are built again
    spaces = (_VENDOR, "cute_gemv", "cute_splitk", "quack_gemm", _TRITON)
    example_problems = tuple(f"{m}x4096x4096:{_SCALED}" for m in (1, 16, 64))

    def export(self, table: Table) -> Mapping[str, str]:
        """Export the rows and ranges of e4m3 with its scales; `left_out` counts the other rows.

        Returns:
            The text of each file, by name.

        Raises:
            TableError: two rows have one key, a kernel does not build here, or the plug-in serves no row.
        """
        found = (*_rows(table, self.spaces), *_ranges(table, self.spaces))
        served = [each for each in found if getattr(each.problem.scaling, "is_row_wise", False) in self.row_wise]
        if table.rows and not served:
            first = table.rows[0]
            raise TableError(
                f"{first.problem.name}: the plug-in of {self.engine} cannot run space {first.choices[0].space!r} for "
                f"it; it serves products such as 16x4096x4096:{_SCALED} by {', '.join(self.spaces)}: tune such"
            )
        built = built_kernels((job for each in served for job in each.kernels), _entry)
        rows = defaultdict[str, list[dict[str, object]]](list)
        for each in served:
            rows[_product(each.problem)].append(_row(each, built))
        entries = dict(sorted(built.values()))
        cubins = {name: entry for name, entry in entries.items() if "launch" in entry}
        content = {
            "left_out": len(table.rows) - sum(each.first == each.last for each in served),
            "rows": dict(rows),
            "binaries": {name: entry for name, entry in entries.items() if name not in cubins},
            "cubins": cubins,
        }
        compiled = {name for task, _ in built for name in registry.space(task.space).compiled_packages}
        files, name = package(f"{_ROOM}.{self.engine}_plugin"), f"gemmtune_{self.engine}"
        return {
            f"{self.engine}_fp8_table.json": sealed_json(
                table, SCHEMA, content, partial(parse_linear_table, consumer=f"{self.engine}_fp8")
            ),
            **{f"{name}/{file}": text for file, text in files.items()},
            f"{name}-0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: gemmtune-{self.engine}\nVersion: 0\n",
            f"{name}-0.dist-info/entry_points.txt": f"[{self.group}]\ngemmtune = {name}:register\n",
            **({LICENCES: notices(compiled)} if content["binaries"] else {}),
        }


class VllmFp8Exporter(_LinearExporter):
    """Export `vllm_fp8_table.json`, the package `gemmtune_vllm`, and the entry point by which vLLM finds it."""

    engine, group = "vllm", "vllm.general_plugins"


class SglangFp8Exporter(_LinearExporter):
    """Export `sglang_fp8_table.json`, the package `gemmtune_sglang`, and the entry point by which SGLang finds it."""

    engine, group = "sglang", "sglang.srt.plugins"
    row_wise = (True,)


def _rows(table: Table, spaces: tuple[str, ...]) -> Iterator[_Served]:
    """Yield the rows of a static m that the plug-in serves; those of a dynamic m have ranges."""
    for row in table.rows:
        problem = gemm(row.problem)
        if row.choices[0].space in spaces and _is_scaled(problem) and not problem.dynamic_m:
            jobs = tuple((Task(problem, table.device, choice.space), choice.config) for choice in _runnable(row))
            yield _Served(problem, problem.m, problem.m, row.choices[0], jobs)


def _ranges(table: Table, spaces: tuple[str, ...]) -> Iterator[_Served]:
    """Yield the ranges that the plug-in serves, of a static m where none is of a dynamic one.

    A Triton kernel of a range takes m as an argument, as the kernels of a dynamic m do that were timed.
    """
    dynamic = {_product(gemm(each.problem)) for each in table.ranges if gemm(each.problem).dynamic_m}
    for ranged in table.ranges:
        problem, choice, first = gemm(ranged.problem), ranged.choice, ranged.first
        if choice.space == _TRITON:
            first = max(first, _LEAST_DYNAMIC)
        other = not problem.dynamic_m and _product(problem) in dynamic
        if choice.space not in spaces or not _is_scaled(problem) or first >= ranged.last or other:
            continue
        built = replace(problem, m=ranged.last, dynamic_m=True) if choice.space == _TRITON else problem
        jobs = () if choice.space == _VENDOR else ((Task(built, table.device, choice.space), choice.config),)
        yield _Served(problem, first, ranged.last, choice, jobs)


def _is_scaled(problem: Problem) -> bool:
    """Return whether a layer of vLLM or SGLang may compute the problem."""
    scaling = problem.scaling
    return (
        scaling is not None
        and not scaling.rest
        and problem.op is Op.MM
        and (problem.a_dtype, problem.b_dtype) == (DType.E4M3, DType.E4M3)
        and problem.out_dtype in (DType.BF16, DType.FP16)
        and f"{problem.a_layout}{problem.b_layout}" == "nt"
        and not problem.is_strided
    )


def _runnable(row: Row) -> Iterator[Choice]:
    """Yield the first choice if it is a kernel, and where CuTe's packages run it, Triton's if that beats the vendor."""
    first = row.choices[0]
    if first.space == _VENDOR:
        return
    yield first
    others = [choice for choice in row.choices if choice.space == _TRITON]
    best = min(others, key=lambda choice: choice.time_ns, default=None)
    if best is not None and first.space != _TRITON and row.baseline and best.time_ns < row.baseline.time_ns:
        yield best


def _product(problem: Problem) -> str:
    """Return the problem's name behind its m."""
    return replace(problem, m=1, dynamic_m=False).name.removeprefix("1x")


def _row(served: _Served, built: Mapping[tuple[Task, Config], Built]) -> dict[str, object]:
    choice = served.choice
    return {
        "first": served.first,
        "last": served.last,
        "kernels": [built[job][0] for job in served.kernels],
        "facts": {
            "problem": served.problem.name,
            "space": choice.space,
            "config": str(choice.config),
            "time_ns": choice.time_ns,
            "evidence": choice.evidence.value,
            "protocol": choice.protocol,
            "toolchain": choice.toolchain,
        },
    }


def _entry(task: Task, artifact: Artifact, binary: bytes) -> Built | str:
    """Return a kernel's name and entry: of a Triton kernel the cubin and its launch, of a CuTe kernel `cute_entry`."""
    if task.space != _TRITON:
        return cute_entry(task, artifact, binary, str(gemm(task.problem).epilogue))
    problem, launch = gemm(task.problem), dict[str, Any](artifact.launch)
    numbers = {name: int(launch[name]) for name in ("grid_x", "grid_y", "grid_z", "threads", "shared_bytes")}
    first = _LEAST_DYNAMIC if problem.dynamic_m else problem.m
    fields: dict[str, object] = {
        "product": _product(problem),
        "entry": str(launch["entry"]),
        "arguments": str(launch["arguments"]),
        "launch": {"first": first, "last": problem.m, "block_m": int(launch.get("block_m", 0)), **numbers},
    }
    return cubin_name(binary, fields), {"object": packed(binary), **fields}
