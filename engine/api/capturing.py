"""A model in, its products out: what a table has to serve."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gemmtune.engine.consumers.inductor.capture.captured import Captured, merged_calls
from gemmtune.engine.consumers.inductor.capture.model_calls import CallLike, ModelCall, parse_call
from gemmtune.engine.consumers.inductor.capture.recorded import read_recorded
from gemmtune.engine.consumers.inductor.hugging_face.settings import PREFIX, settings_of
from gemmtune.engine.consumers.inductor.inputs import InputSpec, OpenSize
from gemmtune.engine.io.arguments import check_types
from gemmtune.engine.io.importing import parse_callable
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, UsageError
from gemmtune.engine.toolchain.gpu_info import present_device, why_no_gpu
from gemmtune.engine.toolchain.installed import require_extra


def capture(
    call: Callable[..., object] | str,
    *inputs: object,
    calls: Iterable[CallLike] = (),
    tokens: int | Iterable[int] = (),
    batch: int | Iterable[int] = (),
    context: int | None = None,
    layers: int | None = None,
    grad: bool = False,
    dynamic: Mapping[tuple[int, int], tuple[int, int]] | None = None,
    device: str | None = None,
) -> Captured:
    """Return every product that a model runs, as problems to tune, with how often each runs.

    Inductor lowers the model with the settings that a table needs. On a machine without the GPU nothing is computed and
    no memory is needed: the model's tensors get sizes and no data.

    Args:
        call: a torch module, a function of tensors, or the name of either, MODULE:CALL. A named class, and a named
            function without parameters, builds the model on the GPU. Or the file of a recorded program: problems.jsonl
            of `gemmtune_inductor.record`, tunableop_untuned0.csv of PyTorch's TunableOp, a list of AITER (.csv),
            FlashInfer's configs (.json), or a log of Inductor (.log), with those of other processes as inputs. Or a
            model of transformers, "hf:Qwen/Qwen3-0.6B", or the folder of its config.json, "hf:./folder".
        inputs: tensors; texts such as "bf16[16,2048]", "int64[1,512]%32000" (integers below 32000) and
            "mask=bool[1,512]" (a named argument); other objects, which are passed as they are. A size that differs
            between calls has a name and a range: "bf16[m:1..4096,2048]".
        calls: further calls of the model, each captured by itself: a list of inputs, or their text. "weight=512" among
            them says how often the model is called so, by default 1; products are merged, and their runs add up.
        tokens: tokens per sequence of a model by name, or several: 1 decodes with a cache, more are a prompt. Each is
            a call at each `batch`. In `calls` it is "tokens=1 batch=16 weight=512".
        batch: sequences per call of a model by name, or several.
        context: tokens that the cache of a decoding step holds.
        layers: number of layers of a model by name to capture, at least 2; the others count as repetitions of these.
        grad: whether to capture the gradients, too. Models are in training mode then, in evaluation mode otherwise.
        dynamic: range of a size of an input that is a tensor, by the positions of both: {(0, 1): (1, 2048)}.
        device: SKU of the GPU to lower for; by default this machine's.

    Raises:
        DeviceError: no device is named and none is here, or the catalogue does not know it.
        UsageError: an input is malformed, or the callable fails.
        ToolchainMissing: torch or triton is not installed.

    Example:
        >>> import gemmtune as gt
        >>> inputs = "bf16[16,4096]", "bf16[4096,4096]"
        >>> captured = gt.capture(lambda x, w: x @ w, *inputs, device="H200")  # doctest: +SKIP
        >>> [problem.name for problem in captured.problems]  # doctest: +SKIP
        ['16x4096x4096:bf16:nn']
    """
    if (
        isinstance(call, str)
        and not call.startswith(PREFIX)
        and (":" not in call or "://" in call or os.path.exists(call))
    ):
        files = [each for each in (call, *inputs) if isinstance(each, str)]
        if calls or len(files) <= len(inputs) or not all(map(os.path.exists, files[1:])):
            raise UsageError(f"{call} is a record, which takes no inputs but further records")
        return read_recorded(*(Path(find(each, FileKind.RECORDING)) for each in files))
    if not isinstance(call, str) and not callable(call):
        raise UsageError(f"call={str(call)[:80]!r} is no model, no function, and no text MODULE:CALL")
    check_types({"calls": calls}, {"calls": Iterable})
    further = [calls] if isinstance(calls, str) else list(calls)
    counts, sizes = ([each] if isinstance(each, int) else list(each) for each in (tokens, batch))
    if isinstance(call, str) and call.startswith(PREFIX):
        if inputs or dynamic:
            raise UsageError(f"{call} makes its own inputs: give --tokens and --batch (in Python tokens= and batch=)")
        settings = settings_of(counts, sizes, context, further)
        given = []
    else:
        if counts or sizes or context is not None or layers is not None:
            raise UsageError("tokens, batch, context and layers are for a model by name, hf:Qwen/Qwen3-0.6B")
        first = [_opened_call(inputs, dynamic or {})] if inputs or dynamic or not further else []
        given = [*first, *map(parse_call, further)]
        if isinstance(call, str):
            parse_callable(call)  # a typo is told before torch is imported
    here = present_device()
    wanted = catalogue.device(device) if device else here
    if wanted is None:
        raise DeviceError(f"{why_no_gpu()}; or name a GPU to capture for, --device H200 (in Python device='H200')")
    require_extra("triton", "capture", "torch", "triton")
    is_present = here is not None and here.name == wanted.name
    if isinstance(call, str) and call.startswith(PREFIX):
        require_extra("hf", f"capture of {call}", "transformers")
        from gemmtune.engine.consumers.inductor.hugging_face.depth import capture_model

        return merged_calls(
            capture_model(call, settings, layers=layers, grad=grad, device=wanted, is_present=is_present)
        )
    from gemmtune.engine.consumers.inductor.capture.capture import capture_products

    return merged_calls(capture_products(call, given, grad=grad, device=wanted, is_present=is_present))


def _opened_call(inputs: Sequence[object], dynamic: Mapping[tuple[int, int], tuple[int, int]]) -> ModelCall:
    """Return the call of some inputs, of which `dynamic` opens sizes."""
    call = parse_call(inputs)
    given, ranges = list(call.inputs), list(call.sizes)
    for at, span in _spans(dynamic):
        given[at[0]] = _opened(given, *at)
        ranges.append(OpenSize(_size_name(*at), *span))
    return replace(call, inputs=given, sizes=ranges)


def _spans(dynamic: Mapping[tuple[int, int], tuple[int, int]]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the positions and the range of each open size."""
    if not isinstance(dynamic, Mapping):
        raise UsageError(f"dynamic={str(dynamic)[:80]} is no dict; write {{(0, 1): (1, 4096)}}: input 0, its size 1")
    for at, span in dynamic.items():
        if not _is_pair(at):
            raise UsageError(f"dynamic names {str(at)[:80]}; write the positions of an input and of its size, (0, 1)")
        if not _is_pair(span) or not 1 <= span[0] < span[1]:
            shown = str(span)[:80]
            raise UsageError(f"dynamic gives size {at[1]} of input {at[0]} the range {shown}; write (1, 4096)")
        yield (at[0], at[1]), (span[0], span[1])


def _is_pair(value: object) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(type(each) is int for each in value)


def _opened(inputs: list[object], position: int, dimension: int) -> InputSpec:
    """Return the description of a tensor with one more open size."""
    found = inputs[position] if 0 <= position < len(inputs) else None
    if not isinstance(found, InputSpec):
        if not hasattr(found, "shape") or not hasattr(found, "dtype"):
            raise UsageError(f"dynamic names input {position}, which is no tensor; inputs: {len(inputs)}")
        sizes: tuple[int | str, ...] = tuple(map(int, found.shape))
        found = InputSpec("", str(found.dtype).removeprefix("torch."), sizes, 1)
    if not 0 <= dimension < len(found.sizes):
        raise UsageError(f"dynamic names size {dimension} of input {position}, which has {len(found.sizes)} sizes")
    opened = [*found.sizes]
    opened[dimension] = _size_name(position, dimension)
    return InputSpec(found.name, found.dtype, tuple(opened), found.below)


def _size_name(position: int, dimension: int) -> str:
    return f"input{position}_size{dimension}"
