"""Exporter of tuned configs for a user's own Triton kernels."""

from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar

from gemmtune.engine.consumers.triton.loader import SCHEMA, parse_triton_table
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
            TableError: a row is not of an own Triton kernel, or two rows are for equal launches and have other configs.
        """
        launches: dict[tuple[str, str, str], Row] = {}
        kernels: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in table.rows:
            if row.choices[0].space not in self.spaces:
                raise TableError(f"{row.problem.name}: space {row.choices[0].space!r} is no own Triton kernel")
            fields = row.problem.to_fields()
            kernels[fields["kernel"], fields["kernel_sha256"]].append(row)
            alike = launches.setdefault((fields["kernel_sha256"], fields["scalars"], fields["dtypes"]), row)
            if _config(alike) != _config(row):
                raise TableError(
                    f"{alike.problem.name} and {row.problem.name} launch one kernel with equal integers and types, and "
                    "have other configs: pass the kernel an integer that tells them apart, or drop one of the rows, "
                    "with tune --replace if it is an earlier one"
                )
        content = {"kernels": [_kernel(*key, rows) for key, rows in sorted(kernels.items())]}
        return {
            "triton_table.json": sealed_json(table, SCHEMA, content, parse_triton_table),
            "gemmtune_triton.py": standalone("gemmtune.engine.consumers.triton.loader"),
        }


def _kernel(kernel: str, sha256: str, rows: list[Row]) -> dict[str, object]:
    entries = [_row(row) for row in rows]
    arguments = [_integers(row.problem.to_fields()["scalars"]) for row in rows]
    common = [name for name in arguments[0] if all(name in each for each in arguments)]
    sized = (
        each for each in common if all(its[each] == row.problem.size for its, row in zip(arguments, rows, strict=True))
    )
    nearest = next(sized, "") if rows[0].problem.range_size else ""
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
    fields = row.problem.to_fields()
    return {
        "arguments": _integers(fields["scalars"]),
        "dtypes": fields["dtypes"].split(","),
        "config": dict(_config(row)),
        "facts": {"problem": row.problem.name, "regret_bound": row.regret_bound, **_facts(row.choices[0])},
    }


def _config(row: Row) -> Config:
    """Return the config that a row ships; of the default's space, the one that the case says."""
    config, default = row.choices[0].config, row.problem.to_fields()["default"]
    if not config and not default:
        raise TableError(f"{row.problem.name}: the row ships the default config, and the case does not say it")
    return config or Config.from_json(default)


def _facts(choice: Choice) -> dict[str, object]:
    names = ("time_ns", "evidence", "protocol", "toolchain", "space")
    return {name: str(value) if name == "evidence" else value for name in names for value in [getattr(choice, name)]}


def _integers(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in (part.split("=") for part in text.split(",") if part)}
