"""Exporter for PyTorch Inductor: all rows with their loader, and the rows that stock Inductor can read.

`lookup_table.json` holds what the stock `torch._inductor.lookup_table.LookupTableChoices` reads, see `lookup`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from gemmtune.engine.platform.releases import source_hash
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Value
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import DType, Op, Problem, gemm
from gemmtune.engine.records.table import Choice, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.export import sealed_json, standalone
from gemmtune.engine.tables.inductor.loader_rows import PACKAGES, SCHEMA, parse_inductor_table
from gemmtune.engine.tables.inductor.lookup import lookup_table
from gemmtune.engine.tables.inductor.templates import template_of

__all__ = ["InductorExporter", "product_key"]


class InductorExporter(Exporter):
    """Export `inductor_table.json`, its loader `gemmtune_inductor.py`, and `lookup_table.json` for stock Inductor."""

    def export(self, table: Table) -> Mapping[str, str]:
        """Export the first choice of every row, and the choice of every range.

        Returns:
            The text of each file, by name.

        Raises:
            TableError: Inductor has no key for a row's problem, no template for its space, or one key for two rows. Or
                a config is not of its space.
        """
        rows, made_with = _rows(table), _made_with(table)
        content = {
            "made_with": made_with,
            "templates": _templates(rows, made_with.get("torch", [])),
            "params": _params(table),
            "rows": rows,
        }
        sealed = sealed_json(table, SCHEMA, content, parse_inductor_table)
        return {
            "lookup_table.json": json.dumps(lookup_table(table), indent=2, sort_keys=True, ensure_ascii=False) + "\n",
            "inductor_table.json": sealed,
            "gemmtune_inductor.py": standalone("gemmtune.engine.tables.inductor.loader"),
        }


def product_key(problem: Problem) -> str:
    """Return the loader's key of all products that differ in m alone: `mm:bfloat16:nt:1x4096x4096:none:static`.

    Raises:
        TableError: the problem is no product of one dtype that Inductor compiles.
    """
    _check_problem(problem)
    dtype = "tf32" if problem.allow_tf32 else problem.a_dtype.torch_name
    layout, sizes = f"{problem.a_layout}{problem.b_layout}", f"{problem.batch}x{problem.n}x{problem.k}"
    kind = "dynamic" if problem.dynamic_m else "static"
    return ":".join((problem.op.value, dtype, layout, sizes, problem.bias.value, kind))


def _check_problem(problem: Problem) -> None:
    if problem.epilogue:
        raise TableError(f"{problem.name}: Inductor chooses epilogues itself, epilogue={problem.epilogue} has no key")
    dtypes = {problem.a_dtype, problem.b_dtype, problem.out_dtype}
    if len(dtypes) > 1:
        raise TableError(f"{problem.name}: Inductor's {problem.op} has one dtype, not {', '.join(sorted(dtypes))}")
    if problem.acc_dtype is not DType.FP32:
        raise TableError(f"{problem.name}: Inductor's {problem.op} accumulates in fp32, not in {problem.acc_dtype}")
    if problem.dynamic_m and problem.op is Op.BMM:
        raise TableError(f"{problem.name}: rows of bmm are for one m; leave out dynamic_m")


def _rows(table: Table) -> dict[str, list[dict[str, object]]]:
    """Return rows by product: ranges for a dynamic m, rows and ranges for a static m.

    A range of one static m is left out, for that m has a row. Ranges of a dynamic m never serve one m.
    """
    found: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
    for row in table.rows:
        problem = gemm(row.problem)
        key, facts = product_key(problem), {"regret_bound": row.regret_bound, "loss": row.loss}
        entry = _entry(problem, row.choices[0], problem.m, problem.m, facts)
        if not problem.dynamic_m:
            found[key].append(entry)
    for ranged in table.ranges:
        if ranged.first == ranged.last:
            continue
        losses = {name: {str(m): loss for m, loss in getattr(ranged, name)} for name in ("tuned", "probed", "held_out")}
        entry = _entry(gemm(ranged.problem), ranged.choice, ranged.first, ranged.last, losses)
        found[product_key(gemm(ranged.problem))].append(entry)
    return dict(found)


def _entry(problem: Problem, choice: Choice, first: int, last: int, facts: Mapping[str, object]) -> dict[str, object]:
    return {
        "first": first,
        "last": last,
        "template": template_of(problem, choice),
        "kwargs": dict(choice.config),
        "facts": {
            "problem": problem.name,
            "time_ns": choice.time_ns,
            "evidence": choice.evidence.value,
            "protocol": choice.protocol,
            "toolchain": choice.toolchain,
            **facts,
        },
    }


def _made_with(table: Table) -> dict[str, list[str]]:
    """Return the versions that timed the rows, for each package that Inductor's kernels depend on."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for _, choice in _choices(table):
        for package, its in Toolchain.parse(choice.toolchain).versions:
            if package in PACKAGES:
                found[package].add(its)
    return {package: sorted(versions) for package, versions in sorted(found.items())}


def _templates(rows: Mapping[str, list[dict[str, object]]], torches: Sequence[str]) -> dict[str, list[str]]:
    """Return the hashes of each used template's source in the given versions of torch, if all are known."""
    found = {}
    for template in sorted({str(entry["template"]) for entries in rows.values() for entry in entries}):
        hashes = {source_hash(template, torch) for torch in torches}
        if hashes and None not in hashes:
            found[template] = sorted(h for h in hashes if h is not None)
    return found


def _params(table: Table) -> dict[str, dict[str, Sequence[Value]]]:
    """Return the values that each used template's space has for its params."""
    found: dict[str, dict[str, Sequence[Value]]] = {}
    for problem, choice in _choices(table):
        template = template_of(problem, choice)
        if template not in found:
            params = registry.space(choice.space).params(Task(problem, table.device, choice.space))
            found[template] = {param.name: list(param.values) for param in params}
    return found


def _choices(table: Table) -> Iterator[tuple[Problem, Choice]]:
    """Yield the choice of every row and range with its problem."""
    yield from ((gemm(row.problem), row.choices[0]) for row in table.rows)
    yield from ((gemm(row.problem), row.choice) for row in table.ranges)
