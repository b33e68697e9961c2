"""Makes PyTorch Inductor take its matrix products from a gemmtune table. Needs torch alone; torch 2.11 to 2.13.

    import gemmtune_inductor
    gemmtune_inductor.install()                     # before the first torch.compile

    model = torch.compile(model, options=gemmtune_inductor.options())

A product in the table compiles to the row's kernel and nothing is benchmarked; any other product is chosen as if
this module were not there. A key holds exact sizes and strides: with dynamic shapes it is the first size seen.

`options()` matters: Inductor offers its Triton template only with `max_autotune_gemm`, and its padding pass would
change k, and with it the key, after timing it online.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import config, virtualized
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.common import custom_backend_passes
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.kernel.mm import mm_template
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.lookup_table.choices import LookupTableChoices
from torch._inductor.utils import _use_autotune_backend

if TYPE_CHECKING:
    from torch._inductor.codegen.common import KernelTemplate
    from torch._inductor.ir import ChoiceCaller
    from torch._inductor.kernel_inputs import KernelInputs
    from torch._inductor.select_algorithm import ExternKernelChoice

    _Templates = list[KernelTemplate | ExternKernelChoice]

__all__ = ["install", "options", "uninstall"]

_TESTED_TORCH = ("2.11", "2.12", "2.13")
_LOGIC = 1  # part of the cache key: a change of what this file makes of a row adds 1
_ATEN, _TRITON = "aten::mm", "triton::mm"
_SIZES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps")
_FIXED = {"ACC_TYPE": "tl.float32", "USE_FAST_ACCUM": False}
_OPERAND = r"\(torch\.(\w+), \[(\d+), (\d+)\], \[(\d+), (\d+)\]\)"
_KEY = re.compile(rf"(?P<device>.+)\+\({_OPERAND}, {_OPERAND}\)\+mm")

_Row = Mapping[str, object]


def install(path: str | Path | None = None) -> None:
    """Use the table at `path`, by default `lookup_table.json` beside this file, in every thread of this process.

    A second call replaces the first one's table. Code compiled before stays as it is; the caches on disk tell tables
    apart. Warns of a torch that was not tested, and once, while compiling, of a GPU the table is not for or of a row
    that Inductor's settings keep it from using.

    Raises:
        OSError: the file cannot be read.
        TypeError: a part of the file has the wrong type.
        ValueError: the file is not JSON, or a key or a row is not one this module can vouch for.
        RuntimeError: another choices handler is in place.
    """
    source = Path(__file__).with_name("lookup_table.json") if path is None else Path(path)
    content = source.read_bytes()
    table = _parse(content, source)
    with _lock:
        _restore()
        current = type(virtualized.V.choices)
        if current is not InductorChoices:
            raise RuntimeError(
                f"Inductor already chooses by {current.__module__}.{current.__qualname__}: remove it first"
            )
        if not torch.__version__.startswith(tuple(f"{v}." for v in _TESTED_TORCH)):
            known = ", ".join(_TESTED_TORCH)
            warnings.warn(f"gemmtune's table was tested with torch {known}, not {torch.__version__}", stacklevel=2)
        _place(_TableChoices(table), hashlib.sha256(content).hexdigest())


def uninstall() -> None:
    """Choose as before `install`; does nothing where nothing is installed."""
    with _lock:
        _restore()


def options() -> dict[str, bool]:
    """Settings for `torch.compile(options=...)` under which every row of the table can be used."""
    return {"max_autotune_gemm": True, "shape_padding": False}


class _TableChoices(LookupTableChoices):
    """Inductor's own lookup, with the table in hand and what stops a row from being used said aloud."""

    def __init__(self, table: Mapping[str, list[_Row]]) -> None:
        self._table = {key: [dict(row) for row in rows] for key, rows in table.items()}
        self._devices = sorted({_device(key) for key in table})
        self._warned: set[str] = set()

    def _get_lookup_table(self) -> dict[str, list[dict[str, Any]]]:
        return self._table

    def make_lookup_key(self, kernel_inputs: KernelInputs, op_name: str, include_device: bool = False) -> str | None:
        # A symbolic k would be looked up by the first size seen, but the row's EVEN_K holds for that size alone.
        if op_name != "mm" or not isinstance(kernel_inputs, MMKernelInputs) or _symbolic_k(kernel_inputs):
            return None
        return super().make_lookup_key(kernel_inputs, op_name, include_device)

    def get_template_configs(
        self,
        kernel_inputs: KernelInputs,
        templates: _Templates,
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[ChoiceCaller]:
        offered = self._offer(kernel_inputs, templates, op_name)
        return super().get_template_configs(kernel_inputs, offered, op_name, kwarg_overrides)

    def _offer(self, kernel_inputs: KernelInputs, templates: _Templates, op_name: str) -> _Templates:
        """The templates, with the row's own where Inductor left it out.

        Inductor drops `triton::mm` where k ≥ 64·max(m, n), in favour of splitting k, and on GPUs under 68 SMs. The
        row has been timed against the alternatives, and a row that cannot be used would mean benchmarks.
        """
        key = self.make_lookup_key(kernel_inputs, op_name, include_device=True)
        if key is None:
            return templates
        rows = self._table.get(key)
        if rows is None:
            device = _device(key)
            if self._devices and device not in self._devices:
                self._warn_once(f"gemmtune's table is for {', '.join(self._devices)}; on {device} no row applies")
            return templates
        wanted = rows[0]["template_id"]
        if any(template.uid == wanted for template in templates) or kernel_inputs.out_dtype() != kernel_inputs.dtype():
            return templates
        tuning = config.max_autotune or config.max_autotune_gemm
        if wanted == _TRITON and tuning and _use_autotune_backend("TRITON"):
            return [*templates, mm_template]
        self._warn_once(
            f"gemmtune's table has a {wanted} row that Inductor's settings rule out: pass "
            f"options=gemmtune_inductor.options() to torch.compile, and keep ATEN and TRITON in "
            f"max_autotune_gemm_backends"
        )
        return templates

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=2)


class _CacheTag(CustomGraphModulePass):
    """A pass for a device that does not exist: it never runs, but its uuid is part of every compile cache key."""

    def __init__(self, digest: str) -> None:
        self._uuid = f"gemmtune-table:{_LOGIC}:{digest}"

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        """Change nothing."""

    def uuid(self) -> str:
        return self._uuid


_TAG_DEVICE = "gemmtune"
_lock = Lock()
_installs = count(1)
_before: list[tuple[str, Any]] = []  # at most one: the name and the default that install replaced


def _place(handler: _TableChoices, digest: str) -> None:
    """Put the handler and the cache tag where every thread finds them. Called under the lock.

    The documented ways do not reach far enough: `V.set_choices_handler` holds for the calling thread only, and since
    torch 2.12 so do `config.inductor_choices_class` and `compiler.config.cache_key_tag` (contextvars). A handler
    that a thread has resolved earlier stays with that thread under the name `_key`, so the name changes with each
    install. The table of backend passes belongs to the process, and torch 2.11 to 2.13 hash all of it into the
    FX graph and the AOTAutograd cache keys (FxGraphHashDetails).
    """
    choices = virtualized._choices
    _before.append((choices._key, choices._default))
    choices._key = f"{choices._key}_gemmtune_{next(_installs)}"
    choices._default = lambda: handler
    custom_backend_passes[_TAG_DEVICE] = _CacheTag(digest)


def _restore() -> None:
    if _before:
        virtualized._choices._key, virtualized._choices._default = _before.pop()
        del custom_backend_passes[_TAG_DEVICE]


def _device(key: str) -> str:
    return key.split("+((", 1)[0]


def _symbolic_k(kernel_inputs: MMKernelInputs) -> bool:
    k = kernel_inputs.mat1mat2()[0].get_size()[-1]
    return bool(getattr(k, "free_symbols", None))


def _parse(content: bytes, source: Path) -> dict[str, list[_Row]]:
    try:
        table = json.loads(content.decode(), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"{source}: not JSON, or truncated: line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    if not isinstance(table, dict):
        raise TypeError(f"{source}: not a lookup table: its JSON is not an object")
    for key, rows in table.items():
        try:
            _check(key, rows)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{source}: {key}: {error}") from None
    return table


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(k for k in keys if keys.count(k) > 1)} stands twice")
    return record


def _check(key: str, rows: object) -> None:
    """Refuse what Inductor would trip over, benchmark, or compute wrongly.

    Raises:
        TypeError: the rows or a value have the wrong type.
        ValueError: the key or a value is wrong.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise ValueError("not a key of the form DEVICE+((dtype, [m, k], [strides]), (dtype, [k, n], [strides]))+mm")
    a_dtype, a_k, b_dtype, b_k = match.group(2), match.group(4), match.group(7), match.group(8)
    if (a_dtype, a_k) != (b_dtype, b_k):
        raise ValueError(f"A is {a_dtype} with k={a_k}, B is {b_dtype} with k={b_k}")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TypeError("its rows are not a list of objects")
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows; one a key, for Inductor benchmarks several")
    row = rows[0]
    template = row.get("template_id")
    if template not in (_ATEN, _TRITON):
        raise ValueError(f"template_id={template!r} is not {_ATEN} or {_TRITON}")
    wanted = {"template_id"} if template == _ATEN else {"template_id", "EVEN_K", *_SIZES, *_FIXED}
    if set(row) != wanted:
        raise ValueError(f"fields that differ from those of {template}: {', '.join(sorted(set(row) ^ wanted))}")
    if template == _TRITON:
        _check_triton(row, int(a_k))


def _check_triton(row: _Row, k: int) -> None:
    for name in _SIZES:
        value = row[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r} is not an integer")
        if value < 1 or (name.startswith("BLOCK_") and (value < 16 or value & (value - 1))):
            raise ValueError(f"{name}={value} is not " + ("a power of 2 from 16 on" if "BLOCK" in name else "above 0"))
    for name, value in _FIXED.items():
        if row[name] != value or type(row[name]) is not type(value):
            raise ValueError(f"{name}={row[name]!r} is not {value!r}")
    block_k = row["BLOCK_K"]
    assert isinstance(block_k, int)
    if row["EVEN_K"] is not (k % block_k == 0):  # Inductor trusts it: a wrong one gives wrong results
        raise ValueError(f"EVEN_K={row['EVEN_K']!r} is wrong for k={k} and BLOCK_K={block_k}")
