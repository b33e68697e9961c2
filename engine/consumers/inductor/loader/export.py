"""Files of the loader: `gemmtune_inductor` with the parts that a table needs, `gemmtune_report` and `gemmtune_record`.

Imports of torch's names ask `private`, for such names come and go.
"""

import json
from collections.abc import Mapping

from gemmtune.engine.consumers.inductor.loader.kernels.binary import KernelBinary
from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable
from gemmtune.engine.records.gemm.stated import STRIDES
from gemmtune.engine.seams.kernel_call import CLUSTERS
from gemmtune.engine.tables.standalone import package

_LOADER = "gemmtune.engine.consumers.inductor.loader"
_BESIDE = {f"{_LOADER}.recorder": "gemmtune_record", f"{_LOADER}.notes": "gemmtune_report"}
"""Modules that serve no product, with the packages that they become."""
_RESOLVER = f"{_LOADER}.boundary.private"


def loader_files(table: InductorTable) -> Mapping[str, str]:
    """Return the files of the loader of a table, text by name."""
    rows = [row for of_product in table.rows.values() for row in of_product]
    reads = any(row.fuses_cheap for row in rows) or any(map(_has_epilogue, table.rows))
    views = any(f"{name}=" in key for key in table.rows for name in STRIDES)
    batches = any(key.partition(":")[0] in ("bmm", "baddbmm") for key in table.rows)
    parts = {
        ("gemmtune.engine.consumers.inductor.epilogues.reader", "_HAS_EPILOGUES"): reads,
        (f"{_LOADER}.hooks.dynamic_rows", "_HAS_DYNAMIC_ROWS"): batches or any(":dynamic" in key for key in table.rows),
        (f"{_LOADER}.hooks.open_sizes", ""): batches or views,
        ("gemmtune.engine.toolchain.unread_bias", "_HAS_UNREAD_BIAS"): any(
            "beta=0" in key.split(":") for key in table.rows
        ),
        ("gemmtune.engine.toolchain.occupancy", ""): any(map(_has_clusters, table.kernels.values())),
        (f"{_LOADER}.hooks.binaries", ""): bool(table.kernels),
        (f"{_LOADER}.kernels.binary", ""): bool(table.kernels),
    }
    lacking = [part for part, has_it in parts.items() if not has_it]
    instead = tuple((module, f"{_LOADER}.without") for module, _ in lacking)
    flags = tuple((f"{flag} = True", f"{flag} = False") for _, flag in lacking if flag)
    packages = {
        "gemmtune_inductor": package(f"{_LOADER}.loader", _RESOLVER, instead, (*flags, *_BESIDE.items())),
        **{name: package(module, _RESOLVER, types_of="gemmtune_inductor") for module, name in _BESIDE.items()},
    }
    return {f"{name}/{file}": text for name, files in packages.items() for file, text in files.items()}


def _has_clusters(kernel: KernelBinary) -> bool:
    """Return whether the launch of a kernel depends on the number of clusters that a GPU runs at once."""
    return f'"{CLUSTERS}.' in json.dumps(kernel.call)


def _has_epilogue(key: str) -> bool:
    """Return whether the last part of a product's key is an epilogue."""
    *_, last = key.split(":")
    return "=" not in last and last not in ("static", "dynamic")
