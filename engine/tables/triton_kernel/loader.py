"""Load tuned configs into kernels under `triton.autotune`, which then benchmark nothing. Needs Triton and torch alone.

Call `load(kernel)` once per kernel, before its first launch. Pass tensors in the order of the kernel's arguments. For a
kernel without an autotuner, wrap it first: `kernel = triton.autotune([triton.Config({})], key=["n"])(kernel)`.
"""

import json
from pathlib import Path
from typing import Any

from gemmtune.engine.platform.kernel_source import source_sha256

__all__ = ["TunedConfigs", "load"]


class TunedConfigs(dict[tuple[object, ...], Any]):
    """Configs by the autotuner's key; a key that differs in one size alone may get those of the nearest tuned value."""

    def __init__(self, configs: dict[tuple[object, ...], Any], positions: dict[tuple[object, ...], int]) -> None:
        """Take the tuned configs, and by key the position of the size that may differ, for those that have one."""
        super().__init__(configs)
        self._positions = positions

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._nearest(key) is not None

    def __getitem__(self, key: tuple[object, ...]) -> Any:  # noqa: ANN401 (Triton has no types)
        near = key if super().__contains__(key) else self._nearest(key)
        return super().__getitem__(key if near is None else near)

    def _nearest(self, key: Any) -> tuple[object, ...] | None:  # noqa: ANN401 (numbers and texts)
        if not isinstance(key, tuple):
            return None
        alike = [
            (abs(each[at] - key[at]), each[at], each)
            for each, at in self._positions.items()
            if each[:at] + each[at + 1 :] == key[:at] + key[at + 1 :]
        ]
        return min(alike, default=(0, 0, None))[2]


def load(kernel: Any, path: str | Path | None = None, *, device: str | None = None) -> int:  # noqa: ANN401
    """Fill the cache of a kernel under `triton.autotune` with the table's configs; return the number of rows.

    Args:
        kernel: the decorated kernel.
        path: the table; by default triton_table.json beside this file.
        device: name of the GPU; by default that of torch's current one.

    Raises:
        ValueError: the table is for another GPU, has no rows for this source of the kernel, or has two configs for one
            key of the autotuner.
    """
    table = json.loads(Path(path or Path(__file__).with_name("triton_table.json")).read_text(encoding="utf-8"))
    import torch
    import triton

    present = device or torch.cuda.get_device_name()
    if present != table["device"]["name"]:
        raise ValueError(f"the table is for {table['device']['name']}, not {present}: tune on this GPU")
    sha256 = source_sha256(kernel)
    found = [each for each in table["kernels"] if each["source_sha256"] == sha256]  # one per class of the kernel
    if not found:
        known = ", ".join(f"{each['kernel']} ({each['source_sha256'][:12]})" for each in table["kernels"])
        raise ValueError(f"the kernel's source is {sha256[:12]}, and the table has {known}: tune it again")
    rows: dict[tuple[object, ...], Any] = {}
    positions = {}
    for entry in found:
        keys = [name for name in kernel.keys if name in entry["arguments"]]
        for row in entry["rows"]:
            key = (*(row["arguments"][name] for name in keys), *row["dtypes"])
            _require_alike(rows.setdefault(key, row), row, kernel.keys)
            if entry["nearest"] in keys:
                positions[key] = keys.index(entry["nearest"])
    configs = {key: triton.Config(row["kwargs"], **row["options"]) for key, row in rows.items()}
    kernel.cache = TunedConfigs(configs, positions)
    if len(kernel.configs) == 1:  # an autotuner with one config never looks into its cache
        kernel.configs = [*kernel.configs, *kernel.configs]
    return sum(len(entry["rows"]) for entry in found)


def _require_alike(one: Any, other: Any, keys: list[str]) -> None:  # noqa: ANN401 (rows of the table)
    """Refuse two rows with one key of the autotuner and different configs."""
    if (one["kwargs"], one["options"]) != (other["kwargs"], other["options"]):
        apart = [name for name, value in one["arguments"].items() if other["arguments"].get(name) != value]
        raise ValueError(
            f"{one['facts']['problem']} and {other['facts']['problem']} have one key of the autotuner "
            f"({', '.join(keys) or 'no argument'}) and two configs: add {' or '.join(apart)} to its key"
        )
