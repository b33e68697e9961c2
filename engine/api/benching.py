"""A model with a table against itself without one."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.api.table import read_table
from gemmtune.engine.consumers.inductor.bench.arms import ARMS, TABLE
from gemmtune.engine.consumers.inductor.bench.model_bench import ModelBench
from gemmtune.engine.consumers.inductor.exporter import with_generated
from gemmtune.engine.consumers.inductor.hugging_face.settings import PREFIX, CallSettings, settings_of
from gemmtune.engine.consumers.inductor.inputs import parse_inputs
from gemmtune.engine.io.arguments import checks_arguments
from gemmtune.engine.io.importing import parse_callable
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.io.reading import read_text
from gemmtune.engine.records.errors import DeviceError, TableError, UsageError, did_you_mean
from gemmtune.engine.records.table import GeneratedRow, Table
from gemmtune.engine.report.layout import count
from gemmtune.engine.tables.table_file import write_table
from gemmtune.engine.toolchain.gpu_info import present_device, why_no_gpu
from gemmtune.engine.toolchain.installed import require_extra

LOADER_FILE = "inductor/inductor_table.json"
"""The loader's table in a campaign's folder."""


@checks_arguments
def bench(
    call: Callable[..., object] | str,
    *inputs: object,
    tokens: int | None = None,
    batch: int | None = None,
    context: int | None = None,
    table: str | os.PathLike[str] | None = None,
    arms: Sequence[str] = ("eager", "compile", "table"),
    binaries: bool = True,
    grad: bool = False,
    tune_kernels: bool = False,
    seconds: float = 10.0,
    notify: Callable[[str], None] = lambda _: None,
) -> ModelBench:
    """Time a model eager, compiled, and compiled with a table, in one process on this machine's GPU.

    Each arm is first called once, with cold caches. Then all are replayed in alternating rounds, as CUDA graphs where
    every arm allows one.

    Args:
        call: a torch module or a function of tensors on the GPU, or the name of either, MODULE:CALL, as in `capture`;
            or a model of transformers, "hf:Qwen/Qwen3-0.6B", with random weights.
        inputs: tensors, texts and other objects, as in `capture`; no size may be open.
        tokens: tokens per sequence of a model by name: 1 decodes with a cache, more are a prompt.
        batch: sequences, or pictures, of a model by name; by default 1.
        context: tokens that the cache of a decoding step holds.
        table: a campaign's folder or its table.json, with inductor/ beside; the arm `table` needs it.
        arms: arms to run: eager, compile, max-autotune and table.
        binaries: whether the table's binaries, which are code, are linked; without them their rows' next choices run.
        grad: whether a call is a forward pass with its gradients.
        tune_kernels: whether first the kernels that torch generates between the products get rows: the model runs once
            with the table, each such kernel's configs are timed, and the table and its loader get what leads.
        seconds: time for all rounds, s.
        notify: receiver of lines about the progress.

    Raises:
        DeviceError: there is no GPU here.
        TableError: kernels are to be tuned, and the loader's table is of another table, or of several GPUs.
        UsageError: an argument is wrong, or the folder holds no table for Inductor.

    Example:
        >>> import gemmtune as gt
        >>> result = gt.bench("mymodel:build", "bf16[16,2048]", table="out")  # doctest: +SKIP
        >>> result.ratio("table").factor  # doctest: +SKIP
        1.07
    """
    if unknown := [arm for arm in arms if arm not in ARMS]:
        meant = did_you_mean(unknown[0], ARMS)
        raise UsageError(f"arm {unknown[0]!r} is not one of {', '.join(ARMS)}{'; ' * bool(meant)}{meant}".rstrip())
    if (TABLE in arms) != (table is not None):
        missing = "name its folder" if table is None else "add it to the arms"
        raise UsageError(f"the arm with the table and the folder of a table go together: {missing}")
    if seconds <= 0:
        raise UsageError(f"seconds={seconds} is not above 0")
    is_hub = isinstance(call, str) and call.startswith(PREFIX)
    settings = _settings(call, inputs, tokens, batch, context) if is_hub else None
    if not (is_hub or tokens is batch is context is None):
        raise UsageError("tokens, batch and context are for a model by name, hf:Qwen/Qwen3-0.6B")
    if isinstance(call, str) and not is_hub:
        parse_callable(call)
    described, sizes = parse_inputs([each for each in inputs if isinstance(each, str)])
    if sizes:
        raise UsageError(f"size {sizes[0].name!r} is open; bench times one size, so write a number")
    specs = iter(described)
    given = [next(specs) if isinstance(each, str) else each for each in inputs]
    table_file = None if table is None else Path(find(table, FileKind.TABLE))
    content = None if table_file is None else read_table(table_file)
    loader_file = None if table_file is None else table_file.parent / LOADER_FILE
    if loader_file is not None and not loader_file.is_file():
        raise UsageError(f"there is no {loader_file}: write it with gemmtune export {table_file}")
    if tune_kernels and (content is None or content.batch_invariant):
        lacks = "no table is named" if content is None else "this one is batch-invariant and takes none"
        raise UsageError(f"tuned kernels become rows of a table, and {lacks}: leave tune_kernels out, or name another")
    if content and table_file and tune_kernels:
        _with_rows(content, table_file, ())  # refuses what could not be extended after the work
    device = present_device()
    if device is None:
        raise DeviceError(
            f"bench times a model on a GPU, and {why_no_gpu()}; gemmtune capture --device lists a model's products "
            "without one"
        )
    if content is not None and content.device.name != device.name:
        raise DeviceError(
            f"the table is for {content.device.name}, and this GPU is {device.name}: its rows do not apply"
        )
    from gemmtune.engine.consumers.inductor.bench.bench_model import bench_model  # torch takes a while to import

    target: Any = call
    if settings is not None:
        require_extra("hf", f"bench of {call}", "transformers")
        from gemmtune.engine.consumers.inductor.hugging_face.config import find_config
        from gemmtune.engine.consumers.inductor.hugging_face.model import HubModel

        model = HubModel(target, find_config(target))
        target, given = model.builder, [*model.call(settings, grad=grad).inputs]
    return bench_model(
        target,
        given,
        arms=arms,
        table=content,
        loader_file=loader_file,
        binaries=binaries,
        grad=grad,
        seconds=seconds,
        device=device,
        notify=notify,
        keep=partial(_add_kernels, content, table_file, notify) if content and table_file and tune_kernels else None,
    )


def _add_kernels(table: Table, table_file: Path, notify: Callable[[str], None], rows: Sequence[GeneratedRow]) -> None:
    """Add the rows of generated kernels to the file of a table, and to the loader in its folder."""
    files = _with_rows(table, table_file, rows)
    write_table(table_file, table.with_generated(rows))
    write_all(files, (table_file.parent / LOADER_FILE).parent)
    notify(f"{count(len(rows), 'kernel')} between the products got a row in {table_file}")


def _with_rows(table: Table, table_file: Path, rows: Sequence[GeneratedRow]) -> Mapping[str, str]:
    """Return the loader's files with rows of generated kernels, see `with_generated`."""
    return with_generated(read_text(table_file.parent / LOADER_FILE, "export", TableError), table, rows)


def _settings(
    call: object, inputs: Sequence[object], tokens: int | None, batch: int | None, context: int | None
) -> CallSettings:
    """Return the sizes of the one call of a model by name."""
    if inputs:
        raise UsageError(f"{call} makes its own inputs: give --tokens and --batch (in Python tokens= and batch=)")
    counts, sizes = ([] if each is None else [each] for each in (tokens, batch))
    [settings] = settings_of(counts, sizes, context, ())
    return settings
