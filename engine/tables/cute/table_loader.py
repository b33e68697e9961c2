"""Reader of a gemmtune table for CuTe dispatchers. Needs the standard library alone.

A key is the problem as the dispatcher sees it. Its m counts exactly, or rounded up to a power of two where the row has
a `rounded_loss`, the largest loss at the measured sizes that round up. Each row is the best of its dispatcher's
kernels. Where another space leads, `winner` names that space and `loss` is the distance to it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

__all__ = ["CuteTable", "Key", "TableWarning", "dtype_name", "layout_of"]

_SCHEMA = 1
_PACKAGES = ("nvidia-cutlass-dsl", "nvidia-cutlass-operators", "quack-kernels")
_FIELDS = {
    "schema",
    "sha256",
    "gemmtune",
    "table_sha256",
    "device",
    "objective",
    "rounding_bound",
    "left_out",
    "rows",
}
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
        """Read the rows of a space.

        Args:
            path: file of the table, `cute_table.json`.
            space: name of the space, `cute_gemm` or `quack_gemm`.
            exact: whether m is never rounded up.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is not JSON, of another schema, or was edited after it was written.
        """
        content = _read(path)
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
        return int("".join(c for c in self._device["arch"] if c.isdigit()))

    def row(self, key: Key, gpu: str | None = None) -> Mapping[str, Any] | None:
        """Find the row for a problem.

        Args:
            key: the problem.
            gpu: name of the GPU that will run it; None if that is elsewhere.

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


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError:
        raise ValueError(f"{path}: not JSON, or truncated: export the table again") from None
    if not isinstance(content, dict) or content.get("schema") != _SCHEMA or set(content) != _FIELDS:
        raise ValueError(f"{path}: not a CuTe table of schema {_SCHEMA}: export it with the gemmtune of this loader")
    body = json.dumps({k: v for k, v in content.items() if k != "sha256"}, sort_keys=True, separators=(",", ":"))
    if hashlib.sha256(body.encode()).hexdigest() != content["sha256"]:
        raise ValueError(f"{path}: edited after it was written: its sha256 does not match; export the table again")
    return content
