"""Loader of a gemmtune table for PyTorch Inductor. Needs torch, and the CuTe packages for rows of CuTe kernels.

    import gemmtune_inductor
    gemmtune_inductor.install()                     # before the first torch.compile

    model = torch.compile(model, options=gemmtune_inductor.options())

A product (mm, addmm, bmm) that has a row compiles to the row's kernel, any other to ATen. Nothing is benchmarked,
unless `install(miss="autotune")` asks for it where there is no row. torch.export and AOTInductor use the table alike.

A row serves one m or a range of m. Graphs with a dynamic m use only rows that were tuned with a dynamic m. Each such
graph serves one range: the loader guards m, so that an m of another range compiles a graph of its own. AOTInductor, and
an m marked with a minimum and a maximum, allow no guards: there a row applies if it serves all m of the graph.

A row of a CuTe kernel runs a binary that the table contains, and compiles nothing. Without nvidia-cutlass-dsl and
apache-tvm-ffi in the versions that built it, and under AOTInductor, the row's next choice runs, and a warning tells it.

`report()` tells which products have a row. Each compiled product is a line of the logger `gemmtune` at INFO. A graph in
which no product has a row ends with a warning.

A row may be for a product with an epilogue: the pointwise operations behind it, which Inductor computes in the row's
kernel. Without such a row, a product with an epilogue takes the row of the plain product. Its epilogue then stays in a
kernel of its own, unless the row says that fusing is safe and the epilogue is cheap.

`options()` is needed: Inductor offers its Triton templates only with `max_autotune_gemm`, and its padding pass would
change k after timing it online.
"""

from __future__ import annotations

import copyreg
import inspect
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor import choices as inductor_choices
from torch._inductor import config, virtualized
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.common import custom_backend_passes, init_backend_registration
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.ir import as_storage_and_layout
from torch._inductor.kernel.bmm import bmm_template
from torch._inductor.kernel.mm import mm_template, persistent_tma_mm_template
from torch._inductor.utils import _use_autotune_backend, can_use_tma
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from gemmtune.engine.tables.inductor.fusing import fuse_only, may_fuse
from gemmtune.engine.tables.inductor.graph_sizes import cut_sizes
from gemmtune.engine.tables.inductor.kernels.binary import KernelBinary, difference
from gemmtune.engine.tables.inductor.kernels.extern import link, registered
from gemmtune.engine.tables.inductor.loader_rows import InductorTable, ProductRow, parse_inductor_table
from gemmtune.engine.tables.inductor.lowered import (
    AtenChoices,
    LoweredProduct,
    Template,
    is_autotuning,
    is_for_aten,
    is_for_templates,
    lowered_product,
)
from gemmtune.engine.tables.inductor.recorder import ProductFile, RecordingChoices, see
from gemmtune.engine.tables.inductor.table_use import (
    NearestRow,
    ProductUse,
    TableUse,
    UseLog,
    nearest_row,
    problem_name,
    row_name,
)
from gemmtune.engine.tables.sealed import read_sealed

if TYPE_CHECKING:
    from torch._inductor.codegen.common import KernelTemplate
    from torch._inductor.ir import ChoiceCaller
    from torch._inductor.kernel_inputs import KernelInputs
    from torch._inductor.scheduler import BaseSchedulerNode, Scheduler

__all__ = ["install", "options", "record", "report", "sizes", "stop_recording", "uninstall", "warm_up"]

_LOGIC = 6  # part of the cache key: add 1 whenever this file compiles a row to something else
_POLICIES = ("strict", "warn", "ignore")
_MISSES = ("aten", "autotune")
_TRITON = {
    "triton::mm": mm_template,
    "triton::bmm": bmm_template,
    "triton::mm_persistent_tma": persistent_tma_mm_template,
}
_TMA = "triton::mm_persistent_tma"
_OPTIONS = {"max_autotune_gemm": True, "shape_padding": False}
_LEAST = 2  # Dynamo compiles m = 0 and m = 1 for themselves
_NO_END = 2**63 - 1
_NAMED = 3  # problems that a warning names
_log = logging.getLogger("gemmtune")


def install(path: str | Path | None = None, *, policy: str = "warn", miss: str = "aten") -> None:
    """Use a table in every thread of this process.

        gemmtune_inductor.install("tables/h200/inductor_table.json", policy="strict")

    A second call replaces the first one's table; a call that raises leaves it in place. Code compiled before stays as
    it is; compile caches on disk tell tables apart. While compiling, a warning names rows that Inductor's settings rule
    out, each once.

    Under any torch and Triton, rows apply wherever their template has the source that was timed.

    | policy | rows whose template's source differs or is not known | the GPU differs |
    |---|---|---|
    | `warn` | warn once, use the rows | warn once, use no row. |
    | `strict` | warn once, use no such row | warn once, use no row. |
    | `ignore` | use the rows | use the rows. |

    | miss | a product without a row |
    |---|---|
    | `aten` | runs ATen, nothing is benchmarked. |
    | `autotune` | is benchmarked as without a table. |

    Args:
        path: file of the table, by default `inductor_table.json` beside this file.
        policy: rows to use where they were timed with something else, see above.
        miss: handling of products without a row, see above.

    Raises:
        OSError: the file cannot be read.
        TypeError: a part of the file has the wrong type.
        ValueError: the file is not JSON, of another schema, edited after it was written, or has an invalid row; or
            `policy` or `miss` is unknown.
        RuntimeError: another choices handler is in place, or this torch asks none in the way that this file knows.
    """
    if policy not in _POLICIES:
        raise ValueError(f"policy={policy!r} is not one of {', '.join(_POLICIES)}")
    if miss not in _MISSES:
        raise ValueError(f"miss={miss!r} is not one of {', '.join(_MISSES)}")
    table = _read(path)
    with _lock:
        current = type(virtualized.V.choices)
        if current not in (InductorChoices, RecordingChoices, _TableChoices):
            raise RuntimeError(
                f"Inductor already chooses by {current.__module__}.{current.__qualname__}: remove it first"
            )
        if lacking := _lacking():
            raise RuntimeError(f"torch {torch.__version__} has no {lacking}: export the table with a newer gemmtune")
        changed = _changed_templates(table) if policy != "ignore" else []
        if changed:
            made = "; ".join(f"{package} {', '.join(its)}" for package, its in sorted(table.made_with.items()))
            then = "their rows do not apply" if policy == "strict" else "verify it with gemmtune verify, or tune again"
            warnings.warn(
                f"gemmtune's table was made with another source of {', '.join(changed)} than torch {torch.__version__} "
                f"has ({made or 'its versions are not known'}): {then}",
                stacklevel=2,
            )
        handler = _TableChoices(table, policy, miss, refused=changed if policy == "strict" else ())
        for kernel in table.kernels.values():
            registered(kernel)  # for code from torch's caches, which calls it without asking a handler
        _restore()
        _activate(handler)


def uninstall() -> None:
    """Let Inductor choose as before `install`; do nothing if no table is installed."""
    with _lock:
        _restore()
        if _recordings:
            _activate(RecordingChoices(_recordings[0]))


def record(path: str | Path) -> None:
    """Append every product that this process compiles from now on to a file, for `gemmtune tune FILE`.

        gemmtune_inductor.record("problems.jsonl")      # before the first torch.compile

    Recording changes no choice: with a table, its rows run; without one, Inductor's own. Lines are written whole, so a
    process that is killed leaves a good file, and several processes may write to one. Each graph's runs are counted,
    but for replays of CUDA graphs. Graphs of torch's caches are compiled again, since a cached graph shows no product.

    `torch.compile(options=gemmtune_inductor.options())` lowers the products that a table will serve, but without a
    table it benchmarks each. Where there is none yet, set `options={"shape_padding": False}` alone.

    Args:
        path: file to append to; it is created if it does not exist.

    Raises:
        OSError: the file cannot be written.
        RuntimeError: another choices handler is in place, or this torch asks none in the way that this file knows.
    """
    with _lock:
        current = type(virtualized.V.choices)
        if current not in (InductorChoices, RecordingChoices, _TableChoices):
            raise RuntimeError(
                f"Inductor already chooses by {current.__module__}.{current.__qualname__}: remove it first"
            )
        if lacking := _lacking():
            raise RuntimeError(f"torch {torch.__version__} has no {lacking}: export the table with a newer gemmtune")
        _end_recording()
        handler = virtualized.V.choices
        _recordings.append(ProductFile(path))
        _restore()
        _activate(handler if isinstance(handler, _TableChoices) else RecordingChoices(_recordings[0]))


def stop_recording() -> None:
    """End the recording that `record` began; do nothing if there is none."""
    with _lock:
        handler = virtualized.V.choices
        if _end_recording():
            _restore()
            if isinstance(handler, _TableChoices):
                _activate(handler)


def _end_recording() -> bool:
    """Forget the recording and return whether there was one. Called under the lock."""
    ended = [_recordings.pop() for _ in _recordings[:]]
    for each in ended:
        each.close()
    return bool(ended)


def options() -> dict[str, bool]:
    """Return settings for `torch.compile(options=...)` that allow every row of a table.

    model = torch.compile(model, options=gemmtune_inductor.options())

    A setting that this torch no longer has is left out, with a warning.
    """
    gone = [name for name in _OPTIONS if not hasattr(config, name)]
    if gone:
        warnings.warn(f"torch {torch.__version__} has no setting {', '.join(gone)}", stacklevel=2)
    return {name: value for name, value in _OPTIONS.items() if name not in gone}


def report() -> TableUse:
    """Return which rows the products use that were compiled since the last `install`.

        print(gemmtune_inductor.report())

    The report has a text, `misses` as names for `gemmtune tune --problem`, and `to_dict()`. Graphs that torch takes
    from its caches are not compiled, so their products are not counted.

    Raises:
        RuntimeError: no table was installed.
    """
    if not _uses:
        raise RuntimeError("no table was installed: call gemmtune_inductor.install() before the first torch.compile")
    return _uses[-1].report()


def sizes(path: str | Path | None = None) -> tuple[int, ...]:
    """Return one m per graph that a table may make, ascending: for each row, each range, and beyond the last range.

    Args:
        path: file of the table, by default `inductor_table.json` beside this file.

    Raises:
        OSError, TypeError, ValueError: the file cannot be read, or is no valid table, see `install`.
    """
    rows = [row for of_product in _read(path).rows.values() for row in of_product]
    beyond = max((row.last for row in rows if row.first < row.last), default=None)
    return tuple(sorted({row.last for row in rows} | ({beyond + 1} if beyond else set())))


def warm_up(call: Callable[[int], object], path: str | Path | None = None) -> bytes:
    """Call a model at every m of `sizes`, and return the compiled code for the processes that serve it.

        artifacts = gemmtune_inductor.warm_up(lambda m: model(torch.randn(m, 4096, device="cuda")))
        Path("warm.bin").write_bytes(artifacts)

    A serving process loads it after `install` and before the first call, and then compiles nothing:

        torch.compiler.load_cache_artifacts(Path("warm.bin").read_bytes())

    Both processes must install the table with the same policy and miss, which are part of the cache's key. A size that
    the model refuses is skipped with a warning, unless it is the first.

    Args:
        call: calls the model with m rows.
        path: file of the table, by default `inductor_table.json` beside this file.

    Raises:
        OSError, TypeError, ValueError: the file cannot be read, or is no valid table, see `install`.
        RuntimeError: torch compiled nothing that it caches.
        Exception: the call of the first size failed; its exception is raised as it is.
    """
    first, *others = sizes(path)
    call(first)
    for m in others:
        try:
            call(m)
        except Exception as error:  # a model may refuse a long input in any way
            what = next(iter(str(error).splitlines()), "")
            text = f"the model does not run at m = {m}, nothing is compiled for it: {type(error).__name__}: {what}"
            warnings.warn(text, stacklevel=2)
    found = torch.compiler.save_cache_artifacts()
    if found is None:
        raise RuntimeError("nothing was compiled that torch caches: is the model compiled, and fx_graph_cache on?")
    artifacts, _ = found
    return artifacts


class _TableChoices(AtenChoices):
    """Inductor's choices, one per product: the table's or ATen."""

    def __init__(self, table: InductorTable, policy: str, miss: str, *, refused: Sequence[str]) -> None:
        self._table, self._policy, self._miss = table, policy, miss
        self._rows = {key: [r for r in rows if r.template not in refused] for key, rows in table.rows.items()}
        self._messages: set[str] = set()
        self._unrunnable = {
            name: reason
            for name, kernel in table.kernels.items()
            if (reason := difference(kernel, any_version=policy == "ignore"))
        }
        self.uses = UseLog()

    def uuid(self) -> str:
        """Return the table's part of every compile cache key; a recording has one of its own."""
        lacking = ":".join(sorted(set(self._unrunnable.values())))
        recording = "".join(f":{each.uuid}" for each in _recordings)
        return f"gemmtune-table:{_LOGIC}:{self._policy}:{self._miss}:{self._table.sha256}:{lacking}{recording}"

    def get_template_configs(
        self,
        kernel_inputs: KernelInputs,
        templates: list[Template],
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[ChoiceCaller]:
        """Return one choice per product; on devices other than CUDA GPUs, Inductor's own choices."""
        for recording in _recordings:
            see(recording, kernel_inputs, templates, op_name)
        device = kernel_inputs.device()
        if device.type != "cuda":
            return super().get_template_configs(kernel_inputs, templates, op_name, kwarg_overrides)
        found = lowered_product(kernel_inputs, op_name)
        product = found if isinstance(found, LoweredProduct) else None
        row = None if product is None or self._is_other_gpu(device) else self._find(product)
        instead_of = ""
        if product is not None and row is not None and row.kernel:
            reason = self._why_not(row, device)
            if not reason:
                if not is_for_templates(op_name, templates):
                    return []
                self._record(found, row, device, "row")
                return [_extern(self._table.kernels[row.kernel], kernel_inputs)]
            instead_of = f" ({row.template} {reason})"
            row = row.otherwise
        template = None if product is None or row is None or row.is_aten else self._usable(row, product)
        if product is not None and row is not None and template is not None:
            if not is_for_templates(op_name, templates):
                return []
            choice = self._render(row, template, product.k, kernel_inputs, op_name)
            if choice is not None:
                fused = self._fused(product, row)
                fuse_only(choice, fused)
                apart = "" if fused else _apart(product)
                self._record(found, row, device, "next choice" if instead_of else "row", instead_of + apart)
                return [choice]
            self._warn(f"gemmtune's table has a {row.template} row that Inductor cannot render ({row}); ATen runs")
        elif row is None and self._miss == "autotune":
            if is_for_templates(op_name, templates):
                self._record(found, row, device, "miss")
            return super().get_template_configs(kernel_inputs, templates, op_name, kwarg_overrides)
        elif not is_for_aten(op_name, templates):
            return []
        served = "unused row" if row is not None and not row.is_aten else "next choice" if instead_of else "aten row"
        self._record(found, row, device, "miss" if row is None else served, instead_of)
        return self.aten(kernel_inputs, templates, op_name, kwarg_overrides)

    @staticmethod
    def can_fuse(
        scheduler: Scheduler, node1: BaseSchedulerNode, node2: BaseSchedulerNode, shared_data_score: int
    ) -> bool:
        """Keep everything out of a row's kernel but the epilogue that it may compute."""
        if not may_fuse(node1, node2):
            return False
        return InductorChoices.can_fuse(scheduler, node1, node2, shared_data_score)

    def _find(self, product: LoweredProduct) -> ProductRow | None:
        """Return the row for a product, or for the plain product; None if there is none that serves all m."""
        own = self._rows.get(product.full_key, ())
        row = self._serving(product, own)
        if row is not None or product.full_key == product.key or (own and product.is_dynamic):
            return row
        return self._serving(product, self._rows.get(product.key, ()))

    def _fused(self, product: LoweredProduct, row: ProductRow) -> frozenset[str]:
        """Return the names of the graph's nodes that a row's kernel may compute behind the product."""
        epilogue = product.read.epilogue
        if not epilogue:
            return frozenset()
        timed = self._is_of_epilogue(product, row)
        return product.read.nodes if timed or (row.fuses_cheap and epilogue.is_cheap) else frozenset()

    def _is_of_epilogue(self, product: LoweredProduct, row: ProductRow) -> bool:
        """Return whether a row was timed with the product's epilogue; a plain product has none."""
        rows = self._rows.get(product.full_key, ())
        return product.full_key != product.key and any(row in (each, each.otherwise) for each in rows)

    def _serving(self, product: LoweredProduct, rows: Sequence[ProductRow]) -> ProductRow | None:
        """Return which of a product's rows serves all m of the graph."""
        if product.is_dynamic:
            row = _dynamic_row(product, rows)
        else:
            serving = [row for row in rows if row.first <= product.hint <= row.last]
            row = min(serving, key=lambda row: row.last - row.first, default=None)
        return row

    def _record(
        self, product: LoweredProduct | str, row: ProductRow | None, device: torch.device, outcome: str, why: str = ""
    ) -> None:
        """Record and log a product that was lowered; the first one of a graph asks to be told of the graph's end."""
        if not product:
            return
        if isinstance(product, str):
            operation, _, reason = product.partition(": ")
            use = ProductUse(operation, "no problem", reason)
        elif row is None:
            name = torch.cuda.get_device_properties(device).name
            runs = "ATen runs" if self._miss == "aten" else "Inductor tunes it"
            use = ProductUse(problem_name(product.full_key, product.hint), outcome, runs, self._nearest(product, name))
        else:
            key = product.full_key if self._is_of_epilogue(product, row) else product.key
            detail = f"{row_name(key, row)} {row.template} {dict(row.kwargs) or ''}".rstrip() + why
            use = ProductUse(problem_name(product.full_key, product.hint), outcome, detail)
        _log.info("%s", use)
        graph = V.graph
        while (parent := getattr(graph, "parent", None)) is not None:
            graph = parent
        if self.uses.add(graph, use):
            _after_lowering(graph, lambda: self._warn_of_misses(self.uses.end(graph)))

    def _nearest(self, product: LoweredProduct, gpu: str) -> NearestRow | None:
        """Return the row that is most like a product without one, with all that keeps it from serving the product."""
        found = nearest_row(self._table.rows, product.full_key, product.hint)
        if found is None:
            return None
        differences = list(found.differences)
        if not differences and product.key in self._rows and self._rows[product.key]:
            differences = ["the graph serves more sizes of m than the row"] if product.is_dynamic else []
        if not differences and self._policy == "strict":
            differences = ["its template has another source than the one that was timed"]
        if gpu != self._table.device and self._policy != "ignore":
            differences.insert(0, f"device {self._table.device}, here {gpu}")
        return NearestRow(found.name, tuple(differences))

    def _warn_of_misses(self, uses: Sequence[ProductUse]) -> None:
        """Warn if no product of a graph has a row; a table of another GPU has its own warning."""
        if any(use.outcome not in ("miss", "no problem") for use in uses):
            return
        nearest = [use.nearest for use in uses if use.nearest is not None]
        closest = min(nearest, key=lambda row: len(row.differences), default=None)
        if closest is not None and any(fact.startswith("device ") for fact in closest.differences):
            return
        names = list(dict.fromkeys(use.problem for use in uses))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        reason = str(closest) if closest else next((use.detail for use in uses if use.outcome != "miss"), "it is empty")
        self._warn(
            f"gemmtune's table has no row for any product of a graph: {', '.join(names[:_NAMED])}{more}; {reason}. "
            f"See gemmtune_inductor.report()"
        )

    def _why_not(self, row: ProductRow, device: torch.device) -> str:
        """Return why a row's CuTe kernel cannot run in this graph, or an empty text; a warning tells it once."""
        if V.graph.aot_mode or V.graph.cpp_wrapper:
            return "is called from Python, not from AOTInductor's or a C++ wrapper's code"
        reason = self._unrunnable.get(row.kernel, "") or link(self._table.kernels[row.kernel], device.index or 0)
        if not reason and not is_autotuning():
            reason = "needs options=gemmtune_inductor.options() in torch.compile"
        if reason:
            self._warn(f"gemmtune's table has a row of {row.template} that {reason}; the row's next choice runs")
        return reason

    def _usable(self, row: ProductRow, product: LoweredProduct) -> KernelTemplate | None:
        """Return the row's template; None, with a warning, if Inductor's settings rule it out.

        The row was timed, so its template is used even where Inductor leaves it out: for a large k, on GPUs under
        68 SMs, and TMA without `enable_persistent_tma_matmul`, which from torch 2.12 on gives each m its own graph.
        """
        if is_autotuning() and _use_autotune_backend("TRITON"):
            if row.template != _TMA or can_use_tma(*product.factors):
                return _TRITON[row.template]
            self._warn(f"gemmtune's table has a {_TMA} row whose operands TMA cannot load here; ATen runs")
            return None
        self._warn(
            f"gemmtune's table has a {row.template} row that Inductor's settings rule out: pass "
            f"options=gemmtune_inductor.options() to torch.compile, and keep TRITON in max_autotune_gemm_backends"
        )
        return None

    def _render(
        self, row: ProductRow, template: KernelTemplate, k: int, kernel_inputs: KernelInputs, op_name: str
    ) -> ChoiceCaller | None:
        """Return the row's kernel; None if this torch or Triton cannot make it.

        This torch derives the keywords that are not tuned, but for EVEN_K: a wrong one gives wrong results.
        """
        tuned = {**row.kwargs, "EVEN_K": k % row.kwargs["BLOCK_K"] == 0}
        made = next(self.get_ktc(kernel_inputs, template, op_name, tuned), None)
        if made is None:
            return None
        made.layout = kernel_inputs.output_layout(flexible=False)
        return made.choice

    def _is_other_gpu(self, device: torch.device) -> bool:
        """Return whether no row applies because the GPU is not the table's."""
        if self._policy == "ignore":
            return False
        name = torch.cuda.get_device_properties(device).name
        if name == self._table.device:
            return False
        self._warn(f"gemmtune's table is for {self._table.device}; on {name} no row applies")
        return True

    def _warn(self, message: str) -> None:
        if message not in self._messages:
            self._messages.add(message)
            warnings.warn(message, stacklevel=2)


def _extern(kernel: KernelBinary, kernel_inputs: KernelInputs) -> ChoiceCaller:
    """Return the choice of a registered kernel, and let none of its operands change its strides any more."""
    nodes = kernel_inputs.nodes()
    for node in nodes:
        with suppress(NotImplementedError):  # of constants, which have a layout
            as_storage_and_layout(node, freeze=True)
    layout = kernel_inputs.output_layout(flexible=False)
    choice: ChoiceCaller = registered(kernel).bind(nodes, layout)  # type: ignore[no-untyped-call]
    return choice


def _apart(product: LoweredProduct) -> str:
    """Return a note that an epilogue runs in a kernel of its own; empty for a product without one."""
    if product.read.reason:
        return f", epilogue apart: {product.read.reason}"
    return ", epilogue apart" if product.read.epilogue else ""


def _after_lowering(graph: Any, call: Callable[[], None]) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
    """Call once after the lowering of a graph, whose last step in every known torch is `finalize`."""
    finalize = getattr(graph, "finalize", None)
    if finalize is None:
        return

    def ended() -> None:
        del graph.finalize
        finalize()
        call()

    graph.finalize = ended


def _dynamic_row(product: LoweredProduct, rows: Sequence[ProductRow]) -> ProductRow | None:
    """Return the row that serves all m of a graph with a dynamic m; guard m if needed and possible.

    A span that ATen serves is guarded, too, so that another m compiles its Triton row.
    """
    tuned = [row for row in rows if not row.is_aten]
    sizevars = V.graph.sizevars
    bounds = sizevars.shape_env.bound_sympy(product.m)
    if _may_guard(product.m, ends=bounds.upper < _NO_END):
        row, guards = _row_and_guards(product, tuned)
        row = row if all(sizevars.evaluate_expr(guard) for guard in guards) else None
    else:
        parts = cut_sizes([(row.first, row.last) for row in tuned], _LEAST, _NO_END)
        serving = [index for index, first, last in parts if first <= bounds.lower and bounds.upper <= last]
        row = tuned[serving[0]] if serving and serving[0] is not None else None
    return row or next((row for row in rows if row.is_aten and row.first <= product.hint <= row.last), None)


def _row_and_guards(product: LoweredProduct, rows: Sequence[ProductRow]) -> tuple[ProductRow | None, list[Any]]:
    """Return the row that serves the first m, if any, and the guards that exclude the m of other rows.

    Where m follows from one symbol s, as 128·s does, ranges and guards are of s: from 129 to 256 torch would pin s = 2.
    """
    bound = V.graph.sizevars.shape_env.bound_sympy
    symbols = sorted(product.m.free_symbols, key=str)
    step, offset = _steps(product.m, symbols)
    size = symbols[0] if step else product.m
    step = step or 1
    least, greatest = int(max(0, bound(size).lower)), int(min(_NO_END, bound(size).upper))
    hint = (product.hint - offset) // step
    ranges = [(-((offset - row.first) // step), (row.last - offset) // step) for row in rows]
    parts = (part for part in cut_sizes(ranges, least, greatest) if part[1] <= hint <= part[2])
    index, first, last = next(parts, (None, least, greatest))
    guards = [sympy.Ge(size, first)] if first > least else []
    guards += [sympy.Le(size, last)] if last < greatest else []
    return None if index is None else rows[index], guards


def _steps(m: sympy.Expr, symbols: Sequence[sympy.Symbol]) -> tuple[int, int]:
    """Return (128, 64) for 128·s + 64; (0, 0) for an expression of another form."""
    if len(symbols) == 1 and m.is_polynomial(*symbols):
        *factor, offset = sympy.Poly(m, *symbols).all_coeffs()
        if len(factor) == 1 and factor[0].is_Integer and offset.is_Integer and factor[0] > 0:
            return int(factor[0]), int(offset)
    return 0, 0


def _may_guard(m: sympy.Expr, *, ends: bool) -> bool:
    """Return whether m may be guarded.

    AOTInductor checks no guards, and an unbacked size has no value to guard. Narrowing a range that the user marked,
    where m ends without a guard, raises ConstraintViolationError.
    """
    shapes = V.graph.sizevars.shape_env
    if V.graph.aot_mode or shapes.frozen or free_unbacked_symbols(m):
        return False
    guarded = {symbol for guard in shapes.guards for symbol in guard.expr.free_symbols}
    return not ends or bool(m.free_symbols & guarded)


class _CacheTag(CustomGraphModulePass):
    """Pass for a device that does not exist: it never runs, but its uuid is part of every compile cache key."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        """Leave the graph as it is."""

    def uuid(self) -> str:
        return self._uuid


_NAME = "gemmtune"
_register = getattr(inductor_choices, "register_inductor_choices", None)
_unregister = getattr(inductor_choices, "unregister_inductor_choices", None)
_lock = Lock()
_installs = count(1)
_uses: list[UseLog] = []  # at most one: that of the table that was installed last
_recordings: list[ProductFile] = []  # at most one
_replaced: list[tuple[str, Any]] = []  # at most one: the name and the default that install replaced


def _activate(handler: _TableChoices | RecordingChoices) -> None:
    """Put the handler and its uuid where every thread finds them. Called under the lock.

    torch 2.15 has a registry of handlers, whose uuids are part of its cache keys. Other ways that it documents hold for
    the calling thread alone (`V.set_choices_handler`, since torch 2.12 also the configs). There the default handler is
    replaced, and a backend pass carries the uuid. torch hashes the process's passes in order into its cache keys
    (FxGraphHashDetails), so ours comes last. A thread keeps the handler it resolved under the name `_key`, in the
    registry, too, so each install changes the name.

    These keys also hold memory formats, pickled as attributes of any imported module that has a `torch`. That module
    differs between processes, so a reducer names torch itself.
    """
    choices = virtualized._choices
    _replaced.append((choices._key, choices._default))
    choices._key = f"{choices._key}_gemmtune_{next(_installs)}"
    if _register and _unregister:
        _register(_NAME, lambda: handler)
    else:
        choices._default = lambda: handler
        init_backend_registration()
        custom_backend_passes[_NAME] = _CacheTag(handler.uuid())
    copyreg.pickle(torch.memory_format, _name_in_torch)
    if isinstance(handler, _TableChoices):
        _uses[:] = [handler.uses]


def _name_in_torch(memory_format: torch.memory_format) -> str:
    return str(memory_format).removeprefix("torch.")


def _restore() -> None:
    if _replaced:
        virtualized._choices._key, virtualized._choices._default = _replaced.pop()
        if _register and _unregister:
            _unregister(_NAME)
        else:
            del custom_backend_passes[_NAME]
        del copyreg.dispatch_table[torch.memory_format]


def _lacking() -> str:
    """Return the first part of Inductor that the handler needs and this torch lacks; empty if it has all."""
    asked, answered = (
        [*inspect.signature(getattr(its, "get_template_configs", _lacking)).parameters]
        for its in (InductorChoices, _TableChoices)
    )
    fused = [*inspect.signature(getattr(InductorChoices, "can_fuse", _lacking)).parameters]
    has = {
        "InductorChoices.get_template_configs with the known parameters": asked == answered,
        "InductorChoices.get_ktc": hasattr(InductorChoices, "get_ktc"),
        "InductorChoices.can_fuse with the known parameters": fused
        == ["scheduler", "node1", "node2", "shared_data_score"],
        "virtualized._choices with _key and _default": {"_key", "_default"} <= set(vars(virtualized._choices)),
    }
    return next((name for name, is_there in has.items() if not is_there), "")


def _changed_templates(table: InductorTable) -> list[str]:
    """Return the templates whose rows were timed with another source than this torch has, or with an unknown one."""
    rows = [row for of_product in table.rows.values() for row in of_product]
    used = {row.template for row in (*rows, *(row.otherwise for row in rows if row.otherwise))}
    return [
        name
        for name, template in _TRITON.items()
        if name in used and list(table.templates.get(name, ())) != [template.src_hash]
    ]


def _read(path: str | Path | None) -> InductorTable:
    source = Path(__file__).with_name("inductor_table.json") if path is None else Path(path)
    return read_sealed(source, parse_inductor_table)
