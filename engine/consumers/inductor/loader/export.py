"""Files of the loader: the package `gemmtune_inductor` with the parts that a table needs, and `gemmtune_record`.

Imports of torch's names ask `private`, for such names come and go.
"""

from collections.abc import Mapping

from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable
from gemmtune.engine.records.gemm.stated import STRIDES
from gemmtune.engine.tables.standalone import package

_LOADER = "gemmtune.engine.consumers.inductor.loader"
_EPILOGUES = "gemmtune.engine.consumers.inductor.epilogues.reader"
_RECORDER = f"{_LOADER}.recorder"


def loader_files(table: InductorTable) -> Mapping[str, str]:
    """Return the files of the loader of a table, text by name."""
    rows = [row for of_product in table.rows.values() for row in of_product]
    reads = any(row.fuses_cheap for row in rows) or any(map(_has_epilogue, table.rows))
    views = any(f"{name}=" in key for key in table.rows for name in STRIDES)
    batches = any(key.partition(":")[0] in ("bmm", "baddbmm") for key in table.rows)
    parts = {
        (_EPILOGUES, "epilogues", "_HAS_EPILOGUES"): reads,
        (f"{_LOADER}.hooks.dynamic_rows", "dynamic_rows", "_HAS_DYNAMIC_ROWS"): batches
        or any(":dynamic" in key for key in table.rows),
        (f"{_LOADER}.hooks.open_sizes", "dynamic_rows", ""): batches or views,
        (f"{_LOADER}.hooks.binaries", "binaries", ""): bool(table.kernels),
        (f"{_LOADER}.kernels.binary", "binary", ""): bool(table.kernels),
    }
    lacking = [part for part, has_it in parts.items() if not has_it]
    instead = tuple((module, f"{_LOADER}.without.{name}") for module, name, _ in lacking)
    flags = tuple((f"{flag} = True", f"{flag} = False") for _, _, flag in lacking if flag)
    resolver = f"{_LOADER}.hooks.private_names.private"
    packages = {
        "gemmtune_inductor": package(f"{_LOADER}.loader", resolver, instead, (*flags, (_RECORDER, "gemmtune_record"))),
        "gemmtune_record": package(_RECORDER, resolver),
    }
    return {f"{name}/{file}": text for name, files in packages.items() for file, text in files.items()}


def _has_epilogue(key: str) -> bool:
    """Return whether the last part of a product's key is an epilogue."""
    *_, last = key.split(":")
    return "=" not in last and last not in ("static", "dynamic")
