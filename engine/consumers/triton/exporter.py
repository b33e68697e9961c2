"""Exporter of tuned configs for a user's own Triton kernels."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from gemmtune.engine.consumers.triton.table_parser import SCHEMA, parse_triton_table
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.export import sealed_json
from gemmtune.engine.tables.standalone import standalone

_DEFAULT = "triton_default"
_SOFTMAX = "n_columns=1024;dtypes=torch.bfloat16,torch.bfloat16;nearest=rows;kernel_sha256=0a1b"


class TritonExporter(Exporter):
    """Export `triton_table.json`, and `gemmtune_triton.py` that loads it into the cache of an autotuner."""

    workloads: ClassVar[tuple[str, ...]] = ("triton",)
    spaces: ClassVar[tuple[str, ...]] = ("triton_kernel", _DEFAULT)
    example: ClassVar[tuple[str, Config]] = ("triton_kernel", Config({"ROWS": 4, "num_warps": 8}))
    example_problems: ClassVar[tuple[str, ...]] = tuple(
        f"triton:Softmax@0123456789ab:rows={rows},columns=1024:scalars=n_rows={rows},{_SOFTMAX}"
        for rows in (1024, 4096)
    )

    def export(self, table: Table) -> Mapping[str, str]:
        """Return the table and its loader.

        Raises:
            TableError: a row is not of an own Triton kernel, or rows that share a key have no config in common.
        """
        kernels: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        keys: defaultdict[tuple[object, ...], list[Row]] = defaultdict(list)
        for row in table.rows:
            if row.choices[0].space not in self.spaces:
                raise TableError(f"{row.problem.name}: space {row.choices[0].space!r} is no own Triton kernel")
            keys[_key(row.problem.to_fields())].append(row)
        for rows in keys.values():
            for row in _shared(rows):
                fields = row.problem.to_fields()
                kernels[fields["kernel"], fields["kernel_sha256"]].append(row)
        content = {"kernels": [_kernel(*key, rows) for key, rows in sorted(kernels.items())]}
        return {
            "triton_table.json": sealed_json(table, SCHEMA, content, parse_triton_table),
            "gemmtune_triton.py": standalone("gemmtune.engine.consumers.triton.loader"),
        }


def _key(fields: Mapping[str, str]) -> tuple[object, ...]:
    """Return what an autotuner's key tells apart of the launches of a kernel; everything where it is not known."""
    keys = fields.get("keys", "")
    named = set(re.findall(r"\w+", keys)) if keys else _arguments(fields).keys()
    told = tuple(pair for pair in _arguments(fields).items() if pair[0] in named)
    return fields["kernel_sha256"], told, fields["dtypes"]


def _shared(rows: list[Row]) -> list[Row]:
    """Return rows with one key of the autotuner, all with the config of the least worst loss among those that all know.

    Raises:
        TableError: the rows have other configs, and no config was measured for all.
    """
    if len({_config(row) for row in rows}) == 1:
        return rows
    known = [{_config(row, choice): choice for choice in reversed(row.choices)} for row in rows]
    common = [config for config in known[0] if all(config in each for each in known)]
    if not common:
        one, other = rows[0].problem, rows[1].problem
        equal = all(one.to_fields()[name] == other.to_fields()[name] for name in ("scalars", "dtypes"))
        found, way_out = "have one key of the kernel's autotuner", "add what tells them apart to its key"
        if equal:
            found = "launch one kernel with equal arguments and types"
            way_out = (
                "drop one with tune --replace if it is an earlier one, pass the kernel an integer that tells them apart"
            )
        raise TableError(
            f"{one.name} and {other.name} {found}, and no config was measured for both: {way_out}, or tune both in one "
            "campaign with --portfolio"
        )
    fastest = [min(choice.time_ns for choice in each.values()) for each in known]

    def worst(config: Config) -> float:
        return max(each[config].time_ns / best for each, best in zip(known, fastest, strict=True))

    config = min(common, key=lambda each: (worst(each), each.json))
    return [replace(row, choices=(each[config],)) for row, each in zip(rows, known, strict=True)]


def _kernel(kernel: str, sha256: str, rows: list[Row]) -> dict[str, object]:
    entries = [_row(row) for row in rows]
    arguments = [_arguments(row.problem.to_fields()) for row in rows]
    common = [name for name in arguments[0] if all(name in each for each in arguments)]
    size, keys = rows[0].problem.range_size, re.findall(r"\w+", rows[0].problem.to_fields().get("keys", ""))
    sized = (  # of equal values, one that the autotuner's key names, and whose name says so
        name
        for name in sorted(common, key=lambda each: (each not in keys, size.casefold() not in each.casefold()))
        if all(its[name] == str(row.problem.size) for its, row in zip(arguments, rows, strict=True))
    )
    nearest = next(sized, "") if size else ""
    params: dict[str, list[Value]] = {}
    for name, value in (pair for row in rows for pair in sorted(_config(row).items())):
        values = params.setdefault(name, [])
        values += [value] if repr(value) not in map(repr, values) else []
    return {
        "kernel": kernel,
        "source_sha256": sha256,
        "arguments": common,
        "nearest": nearest,
        "params": params,
        "rows": entries,
    }


def _row(row: Row) -> dict[str, object]:
    fields, choice = row.problem.to_fields(), row.choices[0]
    facts = {"problem": row.problem.name, "regret_bound": row.regret_bound, "evidence": str(choice.evidence)}
    facts |= {name: getattr(choice, name) for name in ("time_ns", "protocol", "toolchain", "space")}
    return {
        "arguments": _arguments(fields),
        "dtypes": fields["dtypes"].split(","),
        "config": dict(_config(row)),
        "facts": facts,
    }


def _config(row: Row, choice: Choice | None = None) -> Config:
    """Return the config of a choice, by default the one that a row ships; of the default's space, the case's."""
    config, default = (choice or row.choices[0]).config, row.problem.to_fields()["default"]
    if not config and not default:
        raise TableError(f"{row.problem.name}: the row ships the default config, and the case does not say it")
    return config or Config.from_json(default)


def _arguments(fields: Mapping[str, str]) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in fields["scalars"].split(",") if part)
