"""Files of the loader: `gemmtune_inductor` with the parts that a table needs, `gemmtune_report` and `gemmtune_record`.

Imports of torch's names ask `private`, for such names come and go.
"""

import json
import re
import textwrap
from collections.abc import Mapping

from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable
from gemmtune.engine.seams.kernel_call import CLUSTERS
from gemmtune.engine.tables.standalone import package

_LOADER = "gemmtune.engine.consumers.inductor.loader"
_RESOLVER = f"{_LOADER}.boundary.private"
_BESIDE = {f"{_LOADER}.recorder": "gemmtune_record", f"{_LOADER}.explain.notes": "gemmtune_report"}
"""Modules that serve no product, with the packages that they become."""
_READER = "gemmtune.engine.consumers.inductor.epilogues.reader"
_BATCHED = r"^(bmm|baddbmm):"
_QUANTISED = r"^(scaled_mm|int_mm):"
_PARTS = {
    _READER: rf"{_QUANTISED}|:(static|dynamic):(.*:)?[^=:]+$",
    "gemmtune.engine.consumers.inductor.epilogues.scales": _QUANTISED,
    f"{_LOADER}.hooks.quantised": _QUANTISED,
    f"{_LOADER}.hooks.grouped_rows": r"^grouped_",
    f"{_LOADER}.hooks.flex_rows": r"^flex:",
    f"{_LOADER}.biases": r"^(addmm|baddbmm):",
    f"{_LOADER}.hooks.dynamic_rows": rf"{_BATCHED}|:dynamic([:=]|$)",
    f"{_LOADER}.hooks.open_sizes": rf"{_BATCHED}|:(ld|batch_stride_)[ab]=",
    "gemmtune.engine.toolchain.unread_bias": r":beta=0(:|$)",
}
"""Modules that rows of some products alone need, with the pattern of their keys; see `without`."""


def loader_files(*tables: InductorTable) -> Mapping[str, str]:
    """Return the files of the loader of a table, or of those of several GPUs, text by name."""
    keys = {key for table in tables for key in table.rows}
    kernels = [kernel for table in tables for kernel in table.kernels.values()]
    needed = {module for module, products in _PARTS.items() if any(re.search(products, key) for key in keys)}
    if any(table.batch_invariant for table in tables):
        needed.add(f"{_LOADER}.hooks.dynamic_rows")
    if any(row.fuses_cheap for table in tables for rows in table.rows.values() for row in rows):
        needed.add(_READER)
    unserved = {module: products for module, products in _PARTS.items() if module not in needed}
    lacking = [*unserved]
    if not kernels:
        lacking += [f"{_LOADER}.hooks.binaries", "gemmtune.engine.tables.kernels.binary"]
    if f"{_LOADER}.hooks.grouped_rows" in lacking:
        lacking.append(f"{_LOADER}.kernels.grouped_call")
    if not any(f'"{CLUSTERS}.' in json.dumps(kernel.call) for kernel in kernels):  # nothing depends on a GPU's clusters
        lacking.append("gemmtune.engine.toolchain.occupancy")
    if not any(table.batch_invariant for table in tables):
        lacking.append(f"{_LOADER}.one_order")
    if not any(table.generated for table in tables):
        lacking += [f"{_LOADER}.generated", f"{_LOADER}.hooks.generated_rows"]
    if len(tables) == 1:
        lacking.append("gemmtune.engine.io.bundled")
    lines = textwrap.wrap(" |".join(dict.fromkeys(unserved.values())), 100, break_on_hyphens=False)
    texts = [f'r"{line.replace(" ", "")}"' for line in lines]
    pattern = "".join(texts) if len(texts) < 2 else "(\n" + "".join(f"    {text}\n" for text in texts) + ")"
    replaced = (*([('_NOT_SERVED = "(?!)"', f"_NOT_SERVED = {pattern}")] if lines else []), *_BESIDE.items())
    packages = {
        "gemmtune_inductor": package(
            f"{_LOADER}.loader", _RESOLVER, tuple((module, f"{_LOADER}.without") for module in lacking), replaced
        ),
        **{name: package(module, _RESOLVER, types_of="gemmtune_inductor") for module, name in _BESIDE.items()},
    }
    return {f"{name}/{file}": text for name, files in packages.items() for file, text in files.items()}
