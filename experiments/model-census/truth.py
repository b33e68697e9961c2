"""Products that torch alone counts: every product of an eager run on the meta device, attention opaque. Imports torch.

Nothing of gemmtune's capture is used here. Graphs of AOTAutograd on a CPU without data are the second count: they
leave out what no output needs, and compute equal products once, as every compilation does.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any
from unittest.mock import patch

import inputs as dummies
import models
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from gemmtune.engine.consumers.inductor.inputs import parse_inputs

_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64"}
_MOST_ON_CPU = 600_000_000  # parameters of a model that runs with data
_MOST_TRIES = 30


class Counts(TorchDispatchMode):
    """Products by "batch x m x n x k : type", attentions with their sizes, and kernels of others."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self.convolutions: Counter[str] = Counter()
        self._is_paused = False

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return that torch.compile goes on under this mode."""
        return True

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count no product inside the context."""
        before, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self._is_paused and not torch.compiler.is_compiling():
            self.take(func, args, [each for each in args if isinstance(each, torch.Tensor)], out)
        return out

    def take(self, func: Any, args: Any, tensors: Any, out: Any) -> None:
        """Count an operation that torch dispatches."""
        name = getattr(func, "_opname", str(func))
        if name in ("mm", "addmm", "bmm", "baddbmm", "convolution"):
            kinds = {each.dtype for each in tensors}
            if len(kinds) > 1:
                raise TypeError(f"{name} of several types: {sorted(map(str, kinds))}")
        if name in ("mm", "addmm", "bmm", "baddbmm"):
            left, right = tensors[-2:]
            batch = left.shape[0] if "bmm" in name else 1
            sizes = (batch, left.shape[-2], right.shape[-1], left.shape[-1])
            self.products[f"{'x'.join(map(str, sizes))}:{_NAMES.get(left.dtype, left.dtype)}"] += 1
        elif name == "convolution":
            self.convolutions[pointwise(tensors[0], tensors[1], args[3:], out)] += 1
        elif name in ("_grouped_mm", "_scaled_mm", "_int_mm"):
            self.others[name] += 1


def pointwise(data: Any, weight: Any, rest: Any, out: Any) -> str:
    """Return the product that a convolution is if its kernel is 1x1; else an empty text."""
    _, padding, _, transposed, _, groups = rest[:6]
    is_one = all(size == 1 for size in weight.shape[2:]) and groups == 1 and not transposed
    if not is_one or any(pad for pad in padding):
        return ""
    rows = out.shape[0] * out[0, 0].numel()
    return f"1x{rows}x{weight.shape[0]}x{weight.shape[1]}:{_NAMES.get(data.dtype, data.dtype)}"


@contextlib.contextmanager
def opaque(found: Counter[str], layers: Counter[str]) -> Iterator[None]:
    """Replace attention by a function of its sizes, and note them; count recurrent layers as one call each."""

    def attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **__: Any) -> Any:
        if query.shape[0] != key.shape[0] and 1 not in (query.shape[0], key.shape[0]):
            raise RuntimeError(f"attention of batches of {query.shape[0]} and {key.shape[0]}")
        batch = query.shape[:-2].numel()
        found[f"{batch}x{query.shape[-2]}x{key.shape[-2]}x{query.shape[-1]}x{value.shape[-1]}"] += 1
        moved = query.transpose(-2, -3) if query.dim() > 3 else query
        wide = moved[..., :1].expand(*moved.shape[:-1], value.shape[-1]) * (key.sum() + value.sum())
        if attn_mask is not None and attn_mask.requires_grad:  # a bias that is computed has a gradient
            wide = wide * attn_mask.sum().to(wide.dtype)
        return wide.transpose(-2, -3) if query.dim() > 3 else wide

    def recurrent(name: str, run: Any, *args: Any) -> Any:
        layers[name] += 1
        with _disable_current_modes():
            return run(*args)

    with contextlib.ExitStack() as stack:
        for name in ("lstm", "gru"):
            layer = partial(recurrent, name, getattr(torch._VF, name))
            stack.enter_context(patch.object(torch._VF, name, layer, create=True))
        stack.enter_context(patch.object(torch.nn.functional, "scaled_dot_product_attention", attention))
        yield


def tensors_of(texts: list[str], device: str, grad: bool) -> tuple[list[Any], dict[str, Any]]:
    specs, _ = parse_inputs(texts)
    positional, named = [], {}
    for spec in specs:
        its = torch.device("cpu") if device == "fake" else torch.device(device)
        made = spec.make({}, its)
        if grad and made.is_floating_point():
            made.requires_grad_()
        if spec.name:
            named[spec.name] = made
        else:
            positional.append(made)
    return positional, named


def backward(output: Any) -> None:
    loss = getattr(output, "loss", None)
    leaves = [loss] if isinstance(loss, torch.Tensor) else tree_leaves(output)
    wanted = [each for each in leaves if isinstance(each, torch.Tensor) and each.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [torch.ones_like(each) for each in wanted])


def summed(counts: Counts, attention: Counter[str]) -> dict[str, Any]:
    """Return counts as a line of the census holds them."""
    its = {"products": counts.products, "convolutions": counts.convolutions, "others": counts.others}
    return {name: dict(each) for name, each in (its | {"attention": attention}).items()}


def counted(model: Any, texts: list[str], device: str, grad: bool) -> dict[str, Any]:
    """Return the counts of an eager run."""
    model.train(grad)
    positional, named = tensors_of(texts, device, grad)
    attention: Counter[str] = Counter()
    with torch.set_grad_enabled(grad), Counts() as counts, opaque(attention, counts.others):
        output = model(*positional, **named)
        if grad:
            backward(output)
    return summed(counts, attention)


def graphs(name: str, dtype: str, cut: bool, texts: list[str], grad: bool, device: str) -> dict[str, Any]:
    """Return the counts of AOTAutograd's graphs, by their runs, and of what runs between them.

    The `device` "fake" is a CPU whose tensors have no data, "cpu" one whose tensors have.
    """
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses.fake_tensor import FakeTensorMode

    counts, attention = Counts(), Counter()

    def take(module: Any, _: Any) -> Any:
        return make_boxed_func(module.forward)

    table = {
        key: rule
        for key, rule in select_decomp_table().items()
        if getattr(key, "_opname", "") not in ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")
    }
    compilers = dict.fromkeys(("fw_compiler", "bw_compiler", "inference_compiler"), take)
    aot = aot_autograd(**compilers, partition_fn=min_cut_rematerialization_partition, decompositions=table)

    def backend(module: Any, inputs: Any) -> Any:
        with counts.paused():
            return aot(module, inputs)

    is_fake = device == "fake"
    model = built_without_data(name, dtype, cut) if is_fake else models.made(name, dtype, cut)
    with FakeTensorMode(allow_non_fake_inputs=True) if is_fake else contextlib.nullcontext():
        if is_fake:
            on_cpu(model)
        model.train(grad)
        positional, named = tensors_of(texts, device, grad)
        with torch.set_grad_enabled(grad), opaque(attention, counts.others), counts:
            output = torch.compile(model, backend=backend)(*positional, **named)
            if grad:
                backward(output)
    return summed(counts, attention)


def on_cpu(model: Any) -> None:
    """Replace the tensors of a model by ones without data on the CPU, in a mode that makes such."""
    made: dict[int, Any] = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for each, its in tensors.items():
                if its is not None:
                    fake = torch.empty_strided(its.shape, its.stride(), dtype=its.dtype, device="cpu")
                    is_weight = isinstance(its, torch.nn.Parameter)
                    made.setdefault(id(its), torch.nn.Parameter(fake, its.requires_grad) if is_weight else fake)
                    tensors[each] = made[id(its)]


def found_truth(name: str, grad: bool) -> dict[str, Any]:
    """Return how torch alone runs a model, with its counts; or why it does not.

    Returns: dtype, cut, inputs, device and the counts; or `why`.
    """
    failures: list[str] = []
    of_data: list[tuple[str, bool, list[str]]] = []  # what fails for want of data alone
    for dtype in ("bf16", "fp32"):
        for cut in (True, False):
            its = runnable(name, dtype, cut, grad, failures, of_data)
            if its:
                return its
    for dtype, cut, texts in of_data[:4]:
        os.environ["CENSUS"] = json.dumps({"name": name, "dtype": dtype, "cut": cut})
        try:
            counts = counted(models.build(), texts, "cpu", grad)
        except BaseException as error:
            failures.insert(0, told("on the CPU", error))
            continue
        return described(name, dtype, cut, texts) | {"device": "cpu", **counts}
    kept = list(dict.fromkeys(failures))
    return {"why": kept[0] if kept else "no inputs are known for its signature", "all": kept[:12]}


def runnable(
    name: str, dtype: str, cut: bool, grad: bool, failures: list[str], of_data: list[tuple[str, bool, list[str]]]
) -> dict[str, Any]:
    """Return the first inputs that a model takes on the meta device, with the counts; empty if it takes none."""
    os.environ["CENSUS"] = json.dumps({"name": name, "dtype": dtype, "cut": cut})
    try:
        model = built_without_data(name, dtype, cut)
    except BaseException as error:
        failures.append(told("builds no model", error))
        return {}
    fits = sum(each.numel() for each in model.parameters()) <= _MOST_ON_CPU
    for texts in islice(dummies.candidates(model, models.config_of(model), dtype, name.partition("/")[0]), _MOST_TRIES):
        try:
            counts = counted(model, texts, "meta", grad)
        except BaseException as error:
            failures.append(told(" ".join(texts), error))
            if fits and wants_data(error):
                of_data.append((dtype, cut, texts))
            continue
        return described(name, dtype, cut, texts) | {"device": "meta", "class": type(model).__name__, **counts}
    return {}


def built_without_data(name: str, dtype: str, cut: bool) -> Any:
    """Return a model on the meta device; built on the CPU first where building reads values."""
    try:
        with torch.device("meta"):
            return models.made(name, dtype, cut)
    except BaseException as error:
        if not wants_data(error):
            raise
    return models.made(name, dtype, cut).to("meta")


def described(name: str, dtype: str, cut: bool, texts: list[str]) -> dict[str, Any]:
    return {"class": name.partition("/")[2], "dtype": dtype, "cut": cut, "inputs": texts}


def wants_data(error: BaseException) -> bool:
    """Return whether an operation failed for the want of data on the meta device, or a tensor of another device."""
    return any(word in str(error).lower() for word in ("meta", "item()", "nonzero", "device"))


def told(what: str, error: BaseException) -> str:
    line = next(iter(str(error).strip().splitlines()), "")[:160]
    return f"{what}: {type(error).__name__}: {line}"
