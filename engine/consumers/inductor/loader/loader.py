"""Loader of a gemmtune table for PyTorch Inductor. Needs torch, and the CuTe packages for rows of CuTe kernels.

    import gemmtune_inductor
    gemmtune_inductor.install()                     # before the first torch.compile

    model = torch.compile(model, options=gemmtune_inductor.options())

A product (mm, addmm, bmm, or one of groups) that has a row compiles to the row's kernel, any other to ATen, and nothing
is benchmarked.
The loader guards a dynamic m, so that an m of another range compiles a graph of its own. Where torch lacks or changes a
part of Inductor, it compiles as without a table, and a warning says so. A table with CuTe kernels is code.
"""

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch._inductor import config, virtualized
from torch._inductor.choices import InductorChoices

from gemmtune.engine.consumers.inductor.loader.boundary import warn_once
from gemmtune.engine.consumers.inductor.loader.hooks.activation import AUTOTUNING, activate, lacking, restore
from gemmtune.engine.consumers.inductor.loader.hooks.table_choices import TableChoices, changed_templates
from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable, parse_inductor_table
from gemmtune.engine.consumers.inductor.loader.lowered import AtenChoices, Counts
from gemmtune.engine.io.bundled import picked
from gemmtune.engine.tables.sealed import read_sealed, require_one_of, shortened

__all__ = ["install", "options", "record", "report", "sizes", "stop_recording", "uninstall", "warm_up"]

_POLICIES, _MISSES = ("strict", "warn", "ignore", "raise"), ("aten", "autotune")
_OPTIONS = {"max_autotune_gemm": False, "shape_padding": False, "coordinate_descent_tuning": False}
_lock = RLock()
_counts: list[Counts] = []  # at most one: that of the table that was installed last
_recordings: list[Any] = []  # at most one `ProductFile`
_placed: list[AtenChoices] = []  # at most one: the handler that `_put` put in place


def install(
    path: str | Path | None = None,
    *,
    policy: str = "warn",
    miss: str = "aten",
    sha256: str | None = None,
    binaries: bool = True,
    device: str | None = None,
) -> None:
    """Use a table in every thread of this process, in the place of one that an earlier call has installed.

    A call that raises leaves the earlier table in place. Compiled code stays as it is.

    | policy | rows whose template's source differs or is not known | the GPU differs | this torch lacks a part |
    |---|---|---|---|
    | `warn` | warn once, use the rows | warn once, use no row | warn once, use no row. |
    | `strict` | warn once, use no such row | warn once, use no row | warn once, use no row. |
    | `ignore` | use the rows | use the rows | warn once, use no row. |
    | `raise` | raise RuntimeError | warn once, use no row | raise RuntimeError. |

    Args:
        path: file of the table, by default `inductor_table.json` beside this package.
        policy: see above.
        miss: `aten` runs ATen for a product without a row; `autotune` benchmarks it as `max_autotune_gemm` does, which
            a batch-invariant table refuses.
        sha256: digest that the file must have, as `sha256sum` prints it; by default any file is taken.
        binaries: whether rows may run binaries of the table; if False, the next choices of such rows run.
        device: name of the GPU whose table to take, such as `NVIDIA H200`; by default that of torch's current GPU.

    Raises:
        OSError: the file cannot be read.
        TypeError, ValueError: an argument or a part of the file has another type or value than it may have.
        RuntimeError: another choices handler is in place; or the policy is `raise`, and the others would warn now.
    """
    require_one_of("policy", policy, _POLICIES), require_one_of("miss", miss, _MISSES)
    require_one_of("binaries", binaries, (True, False))  # the text "False" of a setting is true
    table = _read(path, sha256, device)
    if table.batch_invariant and miss != "aten":
        raise ValueError(
            f"miss={miss!r} with a batch-invariant table: what benchmarks choose has other bits at another m"
        )
    with _lock:
        if missing := lacking():
            _leave(table, policy, _lacks(missing))
            return
        _check_place()
        if changed := changed_templates(table) if policy != "ignore" else []:
            made = "; ".join(f"{package} {', '.join(its)}" for package, its in sorted(table.made_with.items()))
            then = "their rows do not apply" if policy == "strict" else "verify it with gemmtune verify, or tune again"
            message = (
                f"gemmtune's table was made with another source of {', '.join(changed)} than torch {torch.__version__} "
                f"has ({made or 'its versions are not known'}): {then}"
            )
            if policy == "raise":
                raise RuntimeError(message)
            warnings.warn(message, stacklevel=2)
        refused, counts = changed if policy == "strict" else (), _counts_of(table, miss)
        try:
            choices = TableChoices(table, policy, counts, _recordings, refused=refused, binaries=binaries)
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # asking would end a later fork
                choices.is_other_gpu(torch.device("cuda", torch.cuda.current_device()))
            _put(choices)
            _counts[:] = [counts]
        except Warning:
            raise
        except Exception as error:  # a torch that changed fails in any way
            _leave(table, policy, _lacks(f"place for a table, {type(error).__name__}: {error}"))


def _counts_of(table: InductorTable, miss: str = "aten", unused: str = "") -> Counts:
    """Return counts of a table's products, with names and reasons where `gemmtune_report` is there."""
    try:
        from gemmtune.engine.consumers.inductor.loader.explain.notes import ProductNotes

        return ProductNotes(table.device, miss, unused)
    except (ImportError, TypeError):  # it is missing, or of another gemmtune
        return Counts(table.device, miss, unused)


def _lacks(part: str) -> str:
    return f"torch {torch.__version__} has no {part}: export the table with a newer gemmtune"


def _leave(table: InductorTable, policy: str, reason: str) -> None:
    """Let torch compile as without a table, and say so. Called under the lock."""
    if policy == "raise":
        raise RuntimeError(reason)
    restore()
    _counts[:] = [_counts_of(table, unused=reason)]
    warn_once(f"{reason}; this process compiles as without a table")


def _put(table: TableChoices | None) -> None:
    """Put a table's handler, or a recording's, in the place of the one before it. Called under the lock."""
    restore()
    handler = table or next((each.choices() for each in _recordings), None)
    if handler is None:
        return
    try:
        activate(handler)
    except Exception:
        restore()
        raise
    _placed[:] = [handler]


def _check_place() -> None:
    """Refuse to choose where another handler does."""
    kind = type(handler := virtualized.V.choices)
    if kind is not InductorChoices and handler not in _placed:
        raise RuntimeError(f"Inductor already chooses by {kind.__module__}.{kind.__qualname__}: remove it first")


def uninstall() -> None:
    """Let Inductor choose as before `install`; do nothing if no table is installed."""
    with _lock:
        _put(None)


def record(path: str | Path) -> None:
    """Append every product that this process compiles from now on to a file, for `gemmtune tune FILE`.

    With a table, its rows run meanwhile. Several processes may write to one file. Graphs of torch's caches are
    compiled again.

    Raises:
        OSError: the file cannot be written.
        RuntimeError: the export's package `gemmtune_record` is missing, another choices handler is in place, or this
            torch asks none in the way that this package knows.
    """
    try:
        from gemmtune.engine.consumers.inductor.loader.recorder import ProductFile, absent
    except ModuleNotFoundError:
        raise RuntimeError("recording needs gemmtune_record, which the export has beside this package") from None
    with _lock:
        if missing := lacking() or " and ".join(absent):
            raise RuntimeError(_lacks(missing))
        _check_place()
        stop_recording()
        _recordings.append(ProductFile(path))
        _put(_table_in_place())


def stop_recording() -> None:
    """End the recording that `record` began; do nothing if there is none."""
    with _lock:
        if _recordings:
            _recordings.pop().close()
            _put(_table_in_place())


def _table_in_place() -> TableChoices | None:
    return handler if isinstance(handler := virtualized.V.choices, TableChoices) else None


def options() -> dict[str, bool | str]:
    """Return settings for `torch.compile(options=...)` that allow every row of the installed table.

    There is none where `install` used no table. One that this torch no longer has is left out, with a warning.
    """
    if lacking() or (_counts and _counts[-1].unused):
        return {}
    settings = _OPTIONS | (AUTOTUNING if (table := _table_in_place()) is not None and table.autotunes else {})
    if gone := [name for name in settings if not hasattr(config, name)]:
        warnings.warn(f"torch {torch.__version__} has no setting {', '.join(gone)}", stacklevel=2)
    return {name: value for name, value in settings.items() if name not in gone}


def report() -> Any:  # noqa: ANN401 (`TableUse` of `gemmtune_report`)
    """Return which rows the products use that were compiled since the last `install`, but for those of torch's caches.

    The report has a text, `misses` as names for `gemmtune tune --problem`, and `to_dict()`.

    Raises:
        RuntimeError: no table was installed, or the export's package `gemmtune_report` is missing.
    """
    if not _counts:
        raise RuntimeError("no table was installed: call gemmtune_inductor.install() before the first torch.compile")
    return _counts[-1].report()


def sizes(path: str | Path | None = None, *, sha256: str | None = None) -> tuple[int, ...]:
    """Return one m per graph that a table may make, ascending: for each row, each range, and beyond the last range.

    Arguments and errors of the file are those of `install`.
    """
    rows = [row for of_product in _read(path, sha256).rows.values() for row in of_product]
    beyond = max((row.last for row in rows if row.first < row.last), default=None)
    return tuple(sorted({row.last for row in rows} | ({beyond + 1} if beyond else set())))


def warm_up(call: Callable[[int], object], path: str | Path | None = None, *, sha256: str | None = None) -> bytes:
    """Call a model at every m of `sizes`, and return the compiled code for `torch.compiler.load_cache_artifacts`.

        artifacts = gemmtune_inductor.warm_up(lambda m: model(torch.randn(m, 4096, device="cuda")))

    A process that loads it after `install` with equal arguments compiles nothing. It is code. A size that the model
    refuses is skipped with a warning, unless it is the first.

    Raises:
        RuntimeError: torch compiled nothing that it caches, or the package `gemmtune_report` is missing.
    """
    try:
        from gemmtune.engine.consumers.inductor.loader.explain.notes import warmed_up
    except ImportError:
        raise RuntimeError("a warm-up needs gemmtune_report, which the export has beside this package") from None
    return warmed_up(call, sizes(path, sha256=sha256))


def _read(path: str | Path | None, sha256: str | None = None, device: str | None = None) -> InductorTable:
    """Return a table; refuse one whose bytes have another digest than `sha256`, unless that is None."""

    def parse(content: bytes) -> InductorTable:
        found = hashlib.sha256(content).hexdigest()
        if sha256 is not None and found != str(sha256).lower():
            raise ValueError(f"sha256 {found} is not {shortened(sha256)}, which was asked for: take the reviewed file")
        of_gpu, others = picked(content, device)
        table = parse_inductor_table(of_gpu)
        if device is not None and (others or table.device != device):
            raise ValueError(f"device={shortened(device)} has no table there: name {others or table.device}")
        return table._replace(device=others) if others else table

    source = Path(__file__).parent.with_name("inductor_table.json") if path is None else Path(path)
    try:
        return read_sealed(source, parse)
    except OSError as error:
        place = "beside its loader" if path is None else "there"
        ways = "write one with gemmtune export table.json --to inductor, and pass its path: install(path)"
        raise type(error)(f"{source}: no table can be read {place} ({error.strerror}): {ways}") from None
