"""Exporter of tuned configs for a user's own Triton kernels."""

import json
from collections import defaultdict
from collections.abc import Mapping
from importlib.metadata import version
from typing import ClassVar

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.export import standalone
from gemmtune.engine.tables.table_file import table_sha256

__all__ = ["SCHEMA", "TritonExporter"]

SCHEMA = 1
"""Number of the table's schema."""

_DEFAULT = "triton_default"
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_SOFTMAX = "scalars=n_rows={rows},n_columns=1024;dtypes=torch.bfloat16,torch.bfloat16;nearest=rows;kernel_sha256=0a1b"


class TritonExporter(Exporter):
    """Export `triton_table.json`, and `gemmtune_triton.py` that loads it into the cache of an autotuner."""

    workloads: ClassVar[tuple[str, ...]] = ("triton",)
    spaces: ClassVar[tuple[str, ...]] = ("triton_kernel", _DEFAULT)
    example: ClassVar[tuple[str, Config]] = ("triton_kernel", Config({"ROWS": 4, "num_warps": 8}))
    example_problems: ClassVar[tuple[str, ...]] = tuple(
        f"triton:Softmax@0123456789ab:rows={rows},columns=1024:{_SOFTMAX.format(rows=rows)}" for rows in (1024, 4096)
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
        content = {
            "schema": SCHEMA,
            "gemmtune": version("gemmtune"),
            "table_sha256": table_sha256(table),
            "device": {"sku": table.device.sku, "name": table.device.name, "arch": table.device.arch},
            "objective": table.objective,
            "kernels": [_kernel(*key, rows) for key, rows in sorted(kernels.items())],
        }
        return {
            "triton_table.json": json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n",
            "gemmtune_triton.py": standalone("gemmtune.engine.tables.triton_kernel.loader"),
        }


def _kernel(name: str, sha256: str, rows: list[Row]) -> dict[str, object]:
    entries = [_row(row) for row in rows]
    arguments = [_integers(row.problem.to_fields()["scalars"]) for row in rows]
    common = [name for name in arguments[0] if all(name in each for each in arguments)]
    sized = (
        each for each in common if all(its[each] == row.problem.size for its, row in zip(arguments, rows, strict=True))
    )
    nearest = next(sized, "") if rows[0].problem.range_size else ""
    return {"kernel": name, "source_sha256": sha256, "arguments": common, "nearest": nearest, "rows": entries}


def _row(row: Row) -> dict[str, object]:
    fields, config = row.problem.to_fields(), _config(row)
    return {
        "arguments": _integers(fields["scalars"]),
        "dtypes": fields["dtypes"].split(","),
        "kwargs": {name: value for name, value in config.items() if name not in _OPTIONS},
        "options": {name: value for name, value in config.items() if name in _OPTIONS},
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
