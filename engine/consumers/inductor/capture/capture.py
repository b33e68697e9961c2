"""Capture the products of a callable, on this machine's GPU or for a device that need not be present. Imports torch."""

import contextlib
import gc
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from traceback import walk_tb
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from gemmtune.engine.consumers.inductor.capture.calls import (
    Builder,
    Call,
    built_call,
    cause_of,
    described,
    models_of,
    on_fake_gpu,
)
from gemmtune.engine.consumers.inductor.capture.captured import Captured, CapturedCall, CapturedProduct, Unseen, merged
from gemmtune.engine.consumers.inductor.capture.data_on_cpu import DRAWN, FINITE, IN_BINS, DataOnCpu, DrawsOfPython
from gemmtune.engine.consumers.inductor.capture.eager import EagerProducts
from gemmtune.engine.consumers.inductor.capture.fake_gpu import GPU, device_answers, fake_gpu
from gemmtune.engine.consumers.inductor.capture.lowering import Lowering
from gemmtune.engine.consumers.inductor.capture.model_calls import MadeArguments, ModelCall
from gemmtune.engine.consumers.inductor.capture.no_data import without_data
from gemmtune.engine.consumers.inductor.inputs import InputSpec, open_sizes
from gemmtune.engine.consumers.inductor.loader.explain.table_use import LIBRARY
from gemmtune.engine.io.importing import imported
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError, did_you_mean

_READ = {DRAWN: "captured as one draw", FINITE: "captured as if all are", IN_BINS: "captured as minlength"}
"""Assumption about each kind of value that a model reads and no device knows."""
_LOOP = re.compile("decompose_(scan|map)_to_while_loop")
"""Function of Inductor that lowers an operator of torch by a loop."""
_ASKS_CUDA = re.compile("CUDA|_cuda_|cudaMem|dummy base class|launcher_cls")  # for a stream, a generator or a kernel
_OUTSIDE = "runs outside of compiled graphs"
_WAY_OF_EXPERTS = (
    "; a loop over experts, or a model that drops tokens, has as many rows as values decide: call "
    'torch.nn.functional.grouped_mm on all rows, in transformers by experts_implementation="grouped_mm"'
)


def capture_products(
    call: Call | str | Builder, calls: Sequence[ModelCall], *, grad: bool, device: Device, is_present: bool
) -> list[Captured]:
    """Lower every graph of a callable, forward and backward, and return its products, those of each call apart.

    A model with open sizes is called between the ends of each range and at the ends, and the products of all graphs
    are kept; runs are those of the call with most. Weights of calls are not yet counted.

    Args:
        call: a callable, its name, or what builds it.
        calls: calls of it, each with its inputs.
        grad: whether to lower the gradients, too, and to set models to training.
        device: GPU to lower for.
        is_present: whether the device is this machine's GPU, on which the callable then runs.

    Raises:
        UsageError: the callable fails; the message has its reason.
    """
    name = call if isinstance(call, str) else getattr(call, "name", "") or getattr(call, "__qualname__", "")
    what = "forward and backward" if grad else "forward"
    where = f"on this {device.name}" if is_present else f"for {device.name}"
    source = f"Products of {name or type(call).__name__}, {what}, lowered {where}."
    torch._dynamo.reset()
    made = _imported(call, device, is_present=is_present) if isinstance(call, str) else call
    made = made.build if isinstance(made, Builder) else made
    data = DataOnCpu()
    with contextlib.ExitStack() as stack:
        stack.callback(gc.enable if gc.isenabled() else gc.disable)
        gc.disable()  # a search that begins while a tensor with weak references is freed crashes Python 3.11
        stack.callback(gc.collect, 1)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", module=r"torch\.")  # advice on code that no capture runs
        for logger in [each for each in logging.root.manager.loggerDict if each.startswith("torch")]:
            logging.getLogger(logger).addFilter(_is_no_error)  # torch logs errors that it raises, too
            stack.callback(logging.getLogger(logger).removeFilter, _is_no_error)
        if not is_present:
            stack.enter_context(fake_gpu(device, data))
        function = made
        if isinstance(call, str | Builder):
            has_inputs = any(each.inputs for each in calls)
            function = _built(made, str(name), has_inputs=has_inputs, is_present=is_present)
        if not is_present:
            stack.enter_context(on_fake_gpu(function))
        stack.enter_context(_mode(function, grad=grad))
        try:
            captured = []
            for each in calls:
                at = f"{each.name}: " if len(calls) > 1 else ""
                found = _captured(function, each, source, at, data, grad=grad, is_present=is_present)
                captured.append(replace(found, device=device))
        finally:
            torch._dynamo.reset()
            del function, made  # frees tensors before Python searches again
    return captured


def _captured(
    function: Call, call: ModelCall, source: str, at: str, data: DataOnCpu, *, grad: bool, is_present: bool
) -> Captured:
    """Return the products of one call, which `at` names in messages."""
    values = open_sizes(call.sizes)
    products: list[CapturedProduct] = []
    unseen: list[Unseen] = []
    rest = 0.0
    compiled: Any = None
    torch._dynamo.reset()
    gc.collect(0)  # graphs of the call before refer to each other
    lowering = Lowering(call.sizes, values, torch.Tensor.cpu if is_present else data.value)
    with lowering.settings():
        for number, sizes in enumerate(values):
            positional, named, lowering.drawn = _arguments(call.inputs, sizes, grad=grad, is_open=number == 0)
            data.begin_call()
            of_python = DrawsOfPython()
            try:
                if compiled is None:
                    compiled = torch.compile(function, backend=lowering.compile)
                with EagerProducts(lambda: lowering.is_running) as eager:
                    output = compiled(*positional, **named)
                    if grad:
                        run_backward(output)
            except Exception as error:
                way = _arguments_way(error, function, call.inputs)
                raise _refusal(error, at, sizes, way, is_present=is_present) from error
            if isinstance(output, torch.nn.Module):
                raise UsageError(
                    "the callable builds a model, and no input is named: add --input, once for each tensor of a call, "
                    "for example --input bf16[16,2048] (in Python, further arguments)"
                )
            if lowering.mixed:
                raise UsageError(
                    f"{at}a product has operands {lowering.mixed}, which PyTorch refuses: give inputs and "
                    "parameters one type, as with --input bf16[...] or .bfloat16() on the model"
                )
            ran, others, moved = lowering.take_runs()
            others += [Unseen(name, _OUTSIDE, costs.total(), dict(costs)) for name, costs in eager.costs.items()]
            others += [Unseen(name, LIBRARY, costs.total(), dict(costs)) for name, costs in eager.layers.items()]
            reads = data.take_reads()
            for place, count in of_python.lines(partial(function, *positional, **named)).items():
                reads[DRAWN, place] += count
            others += [Unseen(w, f"read at {place}, and {_READ[w]}", count) for (w, place), count in reads.items()]
            ran, others = merged(ran, others)
            products, unseen = merged([*products, *ran], [*unseen, *others], max)
            rest = max(rest, moved)
    runs = sum(each.count for each in products)
    counts = (CapturedCall(call.name, call.weight, len(products), runs),)
    return Captured(products, unseen, source, torch.__version__, lowering.compiled, counts, rest)


def _imported(path: str, device: Device, *, is_present: bool) -> Call:
    """Import a callable where torch sees the GPU; without one, if that fails, where it sees none."""
    if not is_present:
        with contextlib.suppress(UsageError), device_answers(device):
            return imported(path)
        torch.set_default_device(None)  # which the module may have set
    return imported(path)


def _built(found: Call, path: str, *, has_inputs: bool, is_present: bool) -> Call:
    """Return a model that is built on the GPU; without one, if that fails, on the CPU, where small tensors have data.

    Raises:
        UsageError: building fails; the message has its reason.
    """
    try:
        with GPU:
            return built_call(found, path, has_inputs=has_inputs)
    except UsageError as failed:
        if is_present:
            raise
        try:
            return built_call(found, path, has_inputs=has_inputs)
        except UsageError as again:
            if not _needs_data(again):
                raise (again if _needs_data(failed) else failed) from None
            way = "it reads values of large tensors, so build it as its module is imported, and name the object"
            raise UsageError(f"{again}; {way}") from again


def _needs_data(error: BaseException) -> bool:
    return type(cause_of(error)).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException")


def _is_no_error(record: logging.LogRecord) -> bool:
    return not record.exc_info


def run_backward(
    output: object, gradients: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]] | None = None
) -> None:
    """Run the gradients of an output: of its `loss` if it has one, else of all tensors in it and in its objects.

    `gradients` gives the gradient of each of these tensors; 1 by default.
    """
    loss = getattr(output, "loss", None)
    held = [each if isinstance(each, torch.Tensor) else getattr(each, "__dict__", each) for each in tree_leaves(output)]
    leaves = [loss] if isinstance(loss, torch.Tensor) else tree_leaves(held)
    wanted = [each for each in leaves if isinstance(each, torch.Tensor) and each.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, gradients(wanted) if gradients else [torch.ones_like(each) for each in wanted])


def _arguments(
    inputs: Sequence[object], values: Mapping[str, int], *, grad: bool, is_open: bool
) -> tuple[list[object], dict[str, object], set[int]]:
    """Return the arguments of a call, and the storages of those that only a size and a type describe.

    Open sizes are marked as such for the first call.
    """
    positional: list[object] = []
    named: dict[str, object] = {}
    drawn: set[int] = set()
    for each in inputs:
        if isinstance(each, MadeArguments):
            named |= each.make_arguments(GPU)
        elif isinstance(each, InputSpec):
            made = each.make(values, GPU)
            drawn.add(made.untyped_storage()._cdata)
            if grad and made.is_floating_point():
                made.requires_grad_()
            for position, size in enumerate(each.sizes):
                if isinstance(size, str) and is_open:
                    torch._dynamo.maybe_mark_dynamic(made, position)
            if each.name:
                named[each.name] = made
            else:
                positional.append(made)
        else:
            positional.append(tree_map(_on_gpu, each))
    return positional, named, drawn


def _on_gpu(leaf: object) -> object:
    """Return a tensor without data on the GPU, its sizes marked for Dynamo as they were; anything else as it is."""
    if not isinstance(leaf, torch.Tensor) or leaf.device.type == GPU.type:
        return leaf
    made = without_data(leaf).requires_grad_(leaf.requires_grad)
    vars(made).update({name: mark for name, mark in vars(leaf).items() if name.startswith("_dynamo_")})
    return made


@contextlib.contextmanager
def _mode(call: Call, *, grad: bool) -> Iterator[None]:
    """Set models to training for gradients, to evaluation without, and as they were at the end."""
    models = [module for model in models_of(call) for module in model.modules()]
    before = [module.training for module in models]
    for module in models:
        module.training = grad
    try:
        with torch.set_grad_enabled(grad):
            yield
    finally:
        for module, was in zip(models, before, strict=True):
            module.training = was


def _refusal(error: Exception, call: str, values: Mapping[str, int], way: str, *, is_present: bool) -> UsageError:
    """Return the reason why a callable failed, with the way out that fits; `way` is that of its arguments."""
    at = f" at {', '.join(f'{name}={value}' for name, value in values.items())}" if values else ""
    reads = _needs_data(error) and not is_present
    way += "; it reads values of tensors, so capture it on a machine with the GPU" if reads else ""
    way += _WAY_OF_EXPERTS if reads and "nonzero" in described(error) else ""
    if "Invalid strides/sizes" in str(error):
        way += "; torch reads dense rows alone, not the gradient of .sum(): return the product, or call .contiguous()"
    if "Cannot access accelerator device" in str(error):
        way += "; without the GPU a device has no number: name it 'cuda'"
    elif not is_present and re.search("on the same device|two different devices", str(error)):
        way += "; a tensor that is no parameter or buffer of a model which the callable itself names stays on the CPU"
    elif not is_present and _ASKS_CUDA.search(str(cause_of(error))):
        way += "; it asks CUDA itself, or launches a kernel uncompiled: leave that out, or capture where the GPU is"
    elif not reads and type(cause := cause_of(error)).__name__ == "InductorError":
        frames = [frame for frame, _ in walk_tb(cause.__traceback__)]
        of = next((found[1] for each in frames if (found := _LOOP.match(each.f_code.co_name))), "")
        what, change = (f"on {of}", f"write the loop of {of} in Python") if of else ("there", "change the model's line")
        if str(frames[-1].f_globals.get("__name__")).startswith("torch."):
            way += f"; torch's own compile fails {what}, and plain torch.compile fails alike: {change}"
    return UsageError(f"{call}the callable fails{at}: {described(error)}{way}")


def _arguments_way(error: Exception, function: Call, inputs: Sequence[object]) -> str:
    """Return what a callable takes and what it was given, if its arguments did not fit; empty otherwise."""
    if not isinstance(cause_of(error), TypeError) or "argument" not in str(error):
        return ""
    given = ", ".join(str(each) if isinstance(each, InputSpec) else type(each).__name__ for each in inputs)
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        takes = list(inspect.signature(called).parameters)
    except (TypeError, ValueError):  # written in C
        takes = []
    unknown = [each.name for each in inputs if isinstance(each, InputSpec) and each.name and each.name not in takes]
    near = did_you_mean(unknown[0], takes) if unknown else ""
    known = f"it takes {', '.join(takes)}; " if takes else ""
    return f"; {near}{known}inputs given: {given}; NAME=DTYPE[SIZE,...] is one by name"
