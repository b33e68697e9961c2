"""Bench of one model: all arms in one process, on this machine's GPU. Imports torch."""

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch._dynamo.utils import counters

from gemmtune.engine.consumers.inductor.bench.arms import ARMS, TABLE
from gemmtune.engine.consumers.inductor.bench.generated_kernels import generated_rows
from gemmtune.engine.consumers.inductor.bench.model_bench import ArmTimes, ModelBench, ProductGain
from gemmtune.engine.consumers.inductor.bench.rounds import timed_in_graphs, timed_rounds
from gemmtune.engine.consumers.inductor.bench.running import (
    Prepared,
    RunnableArm,
    cold,
    compiled_arm,
    first_call,
    load_compiler,
    peak_bytes,
    quietly,
    relative_error,
)
from gemmtune.engine.consumers.inductor.bench.shared_choices import SharedChoices
from gemmtune.engine.consumers.inductor.capture.calls import Builder, Call, built_call, described, models_of
from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU
from gemmtune.engine.consumers.inductor.capture.model_calls import MadeArguments
from gemmtune.engine.consumers.inductor.inputs import InputSpec
from gemmtune.engine.consumers.inductor.loader import loader
from gemmtune.engine.consumers.inductor.loader.explain.table_use import TableUse
from gemmtune.engine.io.importing import imported
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.table import GeneratedRow, Table


def bench_model(
    call: Call | str | Builder,
    inputs: Sequence[object],
    *,
    arms: Sequence[str],
    table: Table | None,
    loader_file: Path | None,
    binaries: bool,
    grad: bool,
    seconds: float,
    device: Device,
    notify: Callable[[str], None],
    keep: Callable[[Sequence[GeneratedRow]], None] | None = None,
) -> ModelBench:
    """Run a model in each arm, first once with cold caches, then in alternating rounds.

    An arm that fails keeps its reason, and the others go on. `loader_file` is the table's `inductor_table.json`;
    all rounds take `seconds`. `keep` takes the rows of the kernels between the products, which are then
    tuned before the arm with the table.

    Raises:
        UsageError: the callable cannot be built, or fails without torch.compile.
    """
    prepared = _prepared(call, inputs, grad=grad)
    ready: dict[str, RunnableArm] = {}
    found: dict[str, ArmTimes] = {}
    use: TableUse | None = None
    choices = SharedChoices()
    torch._dynamo.reset()
    try:
        expected = quietly(prepared.arm(prepared.call).results)  # loads the vendor library, and allocates
    except Exception as error:
        raise UsageError(f"the callable fails: {described(error)}") from error
    with suppress(Exception):  # arms that cannot compile say so
        quietly(partial(load_compiler, prepared))
    for name in (each for each in ARMS if each in arms):
        try:
            if name == TABLE and keep is not None:
                notify(f"{name}: tuning the kernels between the products, for some seconds each")
                keep(generated_rows(prepared, loader_file, binaries=binaries))
            notify(f"{name}: first call")
            with cold(), choices.kept():
                if name == TABLE:
                    loader.install(loader_file, binaries=binaries)
                    if reason := loader.report().unused:
                        raise RuntimeError(reason)
                try:
                    arm = compiled_arm(prepared, name)
                    first = quietly(partial(first_call, arm))
                    results, peak = arm.results(), peak_bytes(arm)
                finally:
                    if name == TABLE:
                        use = loader.report()
                        loader.uninstall()
            of_first = first.seconds, first.product_benchmarks, first.kernel_benchmarks
            off = relative_error(results, expected)
            found[name] = ArmTimes(name, (), *of_first, peak, off, shared_kernels=choices.taken)
            ready[name] = arm
            del results
        except Exception as error:  # the model's own, or one of torch's compilers
            found[name] = ArmTimes(name, failure=described(error))
        gc.collect()
        torch.cuda.empty_cache()
    samples, in_graphs = _timed(ready, seconds, notify)
    timed = tuple(replace(arm, samples_ns=samples.get(name, ())) for name, arm in found.items())
    facts = grad, device.name, torch.__version__, in_graphs
    products = gains(use, table) if use is not None else ()
    return ModelBench(_name(call), tuple(filter(None, map(_text, inputs))), *facts, timed, products)


def _timed(
    arms: Mapping[str, RunnableArm], seconds: float, notify: Callable[[str], None]
) -> tuple[dict[str, tuple[float, ...]], bool]:
    """Return the times per call in each round and arm, ns, and whether they are of CUDA graphs."""
    notify("timing " + ", ".join(arms))
    graphs = counters["stats"]["unique_graphs"]
    with torch._dynamo.config.patch(recompile_limit=64):
        samples, refused = quietly(partial(timed_in_graphs, arms, seconds)) if arms else ({}, "no arm ran")
        if refused:
            notify(f"without CUDA graphs: {refused}")
            samples = timed_rounds(arms, seconds)
    if counters["stats"]["unique_graphs"] > graphs:
        notify("torch compiled again while the arms were timed, without the table: do not trust the table's time")
    return samples, not refused


def gains(use: TableUse, table: Table | None) -> tuple[ProductGain, ...]:
    """Return what a table's rows gain by product; most expected gain first."""
    rows = {row.problem.name: row for row in table.rows} if table else {}
    found = []
    for product, count in use.counts.items():
        row = rows.get(product.problem) or rows.get(product.detail.partition(" ")[0])  # a plain row serves it, too
        baseline = row.baseline.time_ns if row is not None and row.baseline is not None else None
        its = row.choices[0].time_ns if row is not None else None
        found.append(ProductGain(product.problem, count, product.outcome, product.detail, baseline, its))
    return tuple(sorted(found, key=lambda gain: -gain.saved_ns))


def _prepared(call: Call | str | Builder, inputs: Sequence[object], *, grad: bool) -> Prepared:
    """Return the model and its arguments on the GPU, in training mode for gradients, else in evaluation."""
    torch.manual_seed(0)
    if isinstance(call, str | Builder):
        found = imported(call) if isinstance(call, str) else call.build
        with GPU:
            function = built_call(found, _name(call), has_inputs=bool(inputs))
    else:
        function = call
    for model in models_of(function):
        model.train(grad)
    positional: list[object] = []
    named: dict[str, object] = {}
    rewinders = []
    for each in inputs:
        if isinstance(each, MadeArguments):
            made = each.make_arguments(GPU)
            rewinders.append(each.rewinder(made))
            named |= made
        elif not isinstance(each, InputSpec):
            positional.append(each.to(GPU) if isinstance(each, torch.Tensor) else each)
        else:
            tensor = each.make({}, GPU)
            if grad and tensor.is_floating_point():
                tensor.requires_grad_()
            if each.name:
                named[each.name] = tensor
            else:
                positional.append(tensor)
    return Prepared(function, positional, named, grad, rewinders)


def _name(call: Call | str | Builder) -> str:
    if isinstance(call, Builder):
        return call.name
    return call if isinstance(call, str) else getattr(call, "__qualname__", type(call).__name__)


def _text(given: object) -> str:
    if isinstance(given, InputSpec | MadeArguments):
        return str(given)
    if isinstance(given, torch.Tensor):
        return f"{str(given.dtype).removeprefix('torch.')}{list(given.shape)}"
    return type(given).__name__
