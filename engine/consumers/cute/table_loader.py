"""Reader of a gemmtune table for CuTe dispatchers. Needs the standard library alone.

A key is the problem as the dispatcher sees it. Its m counts exactly, or rounded up to a power of two where the row has
a `rounded_loss`, the largest loss at the measured sizes that round up. Each row is the best of its dispatcher's
kernels. Where another space leads, `winner` names that space and `loss` is the distance to it.
"""

import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from gemmtune.engine.io.bundled import picked
from gemmtune.engine.tables.sealed import (
    parse_sealed,
    read_sealed,
    require_config,
    require_number,
    require_object,
    require_params,
    require_text,
    shortened,
)

__all__ = [
    "KERNEL",
    "SCHEMA",
    "CuteTable",
    "Key",
    "TableWarning",
    "dtype_name",
    "kernel_of",
    "layout_of",
    "parse_cute_table",
]

SCHEMA = 3
KERNEL = {"cute_gemm": "operator", "quack_gemm": "gemm_config"}
"""Field that names the kernel in its dispatcher's terms, by space."""

_PACKAGES = ("nvidia-cutlass-dsl", "nvidia-cutlass-operators", "quack-kernels")
_SCHEDULERS = {
    "static": "StaticPersistentTileSchedulerMetadata",
    "clc": "CLCDynamicPersistentTileSchedulerMetadata",
    "none": None,
}
_NUMBERS = ("time_ns", "low_ns", "high_ns", "samples", "loss", "lead", "regret_bound", "rounded_loss")
_MAYBE_NULL = ("lead", "regret_bound", "rounded_loss")
_FIELDS = {"problem", "config", "evidence", "protocol", "packages", "winner", *_NUMBERS}
_EVIDENCE = ("measured", "replayed", "estimated")
_ARCH = re.compile(r"sm_(\d{1,2})(\d)[a-z]?", re.ASCII)
_SIZE = r"[1-9]\d{0,9}"
_KEY = re.compile(rf"{_SIZE}x{_SIZE}x{_SIZE}(:\w+){{4}}:[nt]{{2}}", re.ASCII)
_LARGEST = 1e300
_log = logging.getLogger("gemmtune")


class TableWarning(UserWarning):
    """Warning of a use that the table was not made for.

    `warnings.simplefilter("error", TableWarning)` makes it fatal.
    """


class Key(NamedTuple):
    """A plain product out[m, n] = A[m, k] @ B[k, n] with a row-major output."""

    m: int
    """Rows of A and of the output."""
    n: int
    """Columns of B and of the output."""
    k: int
    """Columns of A, rows of B."""
    a: str
    """Element type of A, by `dtype_name`."""
    b: str
    """Element type of B, by `dtype_name`."""
    out: str
    """Element type of the output, by `dtype_name`."""
    acc: str
    """Element type of the accumulator, by `dtype_name`."""
    layout: str
    """Layouts of A and B, n for row-major and t for transposed, such as `nt`."""

    @property
    def text(self) -> str:
        """Key in the file, such as `512x1024x256:bfloat16:bfloat16:bfloat16:float32:nt`."""
        return ":".join((f"{self.m}x{self.n}x{self.k}", self.a, self.b, self.out, self.acc, self.layout))


class CuteTable:
    """Rows of one file that belong to one space.

    A TableWarning, each once, tells of other versions of the packages, of estimated rows, and of another GPU, on which
    no row applies.
    """

    def __init__(self, path: Path, space: str, *, exact: bool = False) -> None:
        """Read the rows of a space from `cute_table.json`; if `exact`, m is never rounded up.

        Raises:
            OSError: the file cannot be read.
            TypeError: a part of the file has the wrong type.
            ValueError: the file is not JSON, of another schema, edited after it was written, or has an invalid row.
        """
        content = read_sealed(path, _parsed)
        self._device: Mapping[str, str] = content["device"]
        self._rows: Mapping[str, Mapping[str, Any]] = content["rows"][space]
        self._exact = exact
        self._messages: set[str] = set()
        self._lock = Lock()
        self._warn_of_versions()
        estimated = sum(row["evidence"] == "estimated" for row in self._rows.values())
        if estimated:
            self.warn(f"{estimated} of the table's {len(self._rows)} {space} rows are estimated, not measured")

    @property
    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """Rows of the space, by the text of their keys."""
        return self._rows

    @property
    def compute_capability(self) -> int:
        """Compute capability of the table's GPU, 90 for sm_90a."""
        major, minor = _capability(self._device["arch"])
        return 10 * major + minor

    def row(self, key: Key, gpu: str | None = None) -> Mapping[str, Any] | None:
        """Find the row for a problem; `gpu` names the GPU that will run it, None one elsewhere.

        Returns:
            The row, or None without one; None is logged once per key.
        """
        if gpu not in (None, self._device["name"]):
            self.warn(f"the table is for {self._device['name']}; on {gpu} no row applies")
            return None
        found = self._rows.get(key.text)
        if found is None and not self._exact:
            rounded = self._rows.get(key._replace(m=1 << (key.m - 1).bit_length()).text)
            found = rounded if rounded is not None and rounded["rounded_loss"] is not None else None
        if found is None:
            self.log(f"no row for {key.text}: the default chooses")
        return found

    def log(self, message: str) -> None:
        """Log a message at INFO to `gemmtune`, once."""
        if self._is_new(message):
            _log.info(message)

    def warn(self, message: str) -> None:
        """Warn with a TableWarning, once per message and table."""
        if self._is_new(message):
            warnings.warn(f"gemmtune: {message}", TableWarning, stacklevel=3)

    def _is_new(self, message: str) -> bool:
        with self._lock:
            new = message not in self._messages
            self._messages.add(message)
        return new

    def _warn_of_versions(self) -> None:
        timed = {(name, v) for row in self._rows.values() for name, v in row["packages"].items() if name in _PACKAGES}
        for name, theirs in sorted(timed):
            ours = _installed(name)
            if ours != theirs:
                self.warn(f"the table was made with {name} {theirs}; here is {ours or 'none'}: tune again")


def dtype_name(dtype: object) -> str:
    """Return one name for a type of torch (`torch.float8_e4m3fn`) and of CUTLASS (`Float8E4M3FN`)."""
    name = getattr(dtype, "__name__", None) or str(dtype)
    return name.removeprefix("torch.").replace("_", "").lower()


def layout_of(stride: Sequence[int]) -> str | None:
    """Return `n` for contiguous rows, `t` for contiguous columns, None for neither."""
    return "n" if stride[1] == 1 else "t" if stride[0] == 1 else None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _parsed(content: bytes) -> dict[str, Any]:
    """Return the table of the current GPU in a file."""
    of_gpu, others = picked(content)
    fields = parse_cute_table(of_gpu)
    return fields | {"device": fields["device"] | {"name": others or fields["device"]["name"]}}


def parse_cute_table(content: bytes) -> dict[str, Any]:
    """Check the JSON of a table and return it.

    Raises:
        TypeError: a part has the wrong type; the message names row and field.
        ValueError: a part has another value than exporters write; the message names row and field.
    """
    fields = parse_sealed(content, "cute", SCHEMA, {"rounding_bound", "left_out", "params", "rows"})
    arch = fields["device"]["arch"]
    _capability(arch)
    bound = require_number("rounding_bound", fields["rounding_bound"], 0, 1)
    require_object("params", fields["params"], KERNEL.keys())
    for space, rows in require_object("rows", fields["rows"], KERNEL.keys()).items():
        params = require_params(f"params.{space}", fields["params"][space])
        for key, row in require_object(f"rows.{space}", rows).items():
            try:
                _require_row(space, key, row, params, arch, bound)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{space}: {shortened(key)}: {error}") from None
    return fields


def kernel_of(space: str, config: Mapping[str, Any], arch: str) -> dict[str, Any]:
    """Return a config in its dispatcher's terms.

    An operator is found among those that serve a problem by its class and its varying design.
    """
    if space == "quack_gemm":
        major, _ = _capability(arch)
        return {**config, "device_capacity": major}
    value = config.get
    design = {
        "tile_shape": [value("mma_tiler_m"), value("mma_tiler_n")],
        "cluster_shape": [value("cluster_shape_m"), value("cluster_shape_n")],
        "use_2cta_mma": value("use_2cta_instrs"),
        "use_tma_store": value("use_tma_store"),
        "tile_scheduler": _SCHEDULERS.get(str(value("tile_scheduler"))),
    }
    return {"class": value("operator"), "design": design}


def _require_row(
    space: str, key: str, row: object, params: Mapping[str, Mapping[str, object]], arch: str, bound: float
) -> None:
    if _KEY.fullmatch(key) is None:
        raise ValueError("the key names no product, such as 512x1024x256:bfloat16:bfloat16:bfloat16:float32:nt")
    fields = require_object("the row", row, {*_FIELDS, KERNEL[space]})
    kernel = kernel_of(space, require_config("config", fields["config"], params), arch)
    if fields[KERNEL[space]] != kernel:
        raise ValueError(f"{KERNEL[space]}={shortened(fields[KERNEL[space]])} is not its config's, {kernel}")
    fields[KERNEL[space]] = kernel  # 1 and true are equal, but not to a dispatcher
    for name in _NUMBERS:
        if fields[name] is not None or name not in _MAYBE_NULL:
            least, most = (0, bound) if name == "rounded_loss" else (-1, _LARGEST)
            require_number(name, fields[name], least, most)
    for name in ("problem", "protocol", "winner"):
        require_text(name, fields[name])
    if fields["evidence"] not in _EVIDENCE:
        raise ValueError(f"evidence={shortened(fields['evidence'])} is not one of {', '.join(_EVIDENCE)}")
    for package, its in require_object("packages", fields["packages"]).items():
        require_text(f"packages.{shortened(package)}", its)


def _capability(arch: str) -> tuple[int, int]:
    """Return the compute capability of an architecture, (9, 0) for sm_90a."""
    found = _ARCH.fullmatch(arch)
    if found is None:
        raise ValueError(f"device.arch={shortened(arch)} is no architecture such as sm_90a")
    return int(found[1]), int(found[2])
