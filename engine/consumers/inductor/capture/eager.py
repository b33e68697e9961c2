"""Products and kernels of libraries that run outside of compiled graphs. Imports torch."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from gemmtune.engine.consumers.inductor.capture.captured import PRODUCTS
from gemmtune.engine.consumers.inductor.capture.data_on_cpu import ModelMode
from gemmtune.engine.consumers.inductor.floor.call_costs import cost_of_call
from gemmtune.engine.consumers.inductor.floor.shares import Cost

_KERNELS = ("convolution", "attention")
"""Parts of names of other operations that multiply matrices."""
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Functions of whole recurrent layers: each is one call of cuDNN on a GPU, and many products elsewhere."""


class _Recurrent(torch.autograd.Function):
    """Recurrent layer without data, whose gradients are one call as well: torch's own are a product per step."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[], Any], note: Callable[[object], None], *tensors: torch.Tensor) -> Any:  # noqa: ANN401 (torch's)
        ctx.note = note
        ctx.save_for_backward(*tensors)
        return run()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401 (torch's)
        is_needed = ctx.needs_input_grad[2:]
        made = [torch.empty_like(x) if needed else None for x, needed in zip(ctx.saved_tensors, is_needed, strict=True)]
        ctx.note(made)
        return None, None, *made


class EagerProducts(ModelMode):
    """Counter of products, convolutions and attentions that torch runs one by one, as behind a graph break."""

    def __init__(self, is_compiled: Callable[[], bool]) -> None:
        """Count products while `is_compiled` says that no graph is traced or run."""
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self._is_compiled = is_compiled
        self.costs: defaultdict[str, Counter[Cost]] = defaultdict(Counter)
        self.layers: defaultdict[str, Counter[Cost]] = defaultdict(Counter)
        self._in_layer = False
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        """Begin to count products and recurrent layers."""
        for name in _RECURRENT:
            layer = partial(self._layer, name, getattr(torch._VF, name))
            counted = torch.compiler.disable(layer)  # type: ignore[no-untyped-call] # as above
            self._patches.enter_context(patch.object(torch._VF, name, counted, create=True))
        super().__enter__()  # type: ignore[no-untyped-call] # as above
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        """Stop counting, and give torch its own layers back."""
        self._patches.close()
        super().__exit__(kind, error, place)  # type: ignore[no-untyped-call] # as above

    def _layer(self, name: str, run: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 (torch's)
        """Run a recurrent layer and count it as one call, of which each row of the input meets each weight."""
        tensors = [each for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
        is_trained = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
        self._in_layer = True
        try:
            if is_trained and isinstance(args[0], FakeTensor):
                note = partial(self._note, f"{name}_backward", args, 2)
                out = _Recurrent.apply(partial(run, *args), note, *tensors)  # type: ignore[no-untyped-call] # torch's
            else:
                out = run(*args)
        finally:
            self._in_layer = False
        self._note(name, args, 1, out)
        return out

    def _note(self, name: str, args: Sequence[Any], factor: int, made: object) -> None:
        """Count a call of a recurrent layer, whose rows meet each weight `factor` times."""
        weights = [each for each in args if isinstance(each, list | tuple)][-1]
        rows = args[0].numel() // args[0].shape[-1]
        flops = 2.0 * factor * rows * sum(each.numel() for each in weights if each.dim() == 2)
        self.layers[f"aten.{name}{list(args[0].shape)}"][replace(cost_of_call(name, args, {}, made), flops=flops)] += 1

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (torch's protocol)
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (as above)
        """Count an operation that multiplies matrices, and run it."""
        name = getattr(func, "_opname", "")
        is_counted = name.lstrip("_") in PRODUCTS or any(part in name for part in _KERNELS)
        out = func(*args, **(kwargs or {}))
        if is_counted and not self._in_layer and not self._is_compiled() and not torch.compiler.is_compiling():
            sizes = "×".join(str(list(a.shape)) for a in args if isinstance(a, torch.Tensor))
            self.costs[f"aten.{name}{sizes}"][cost_of_call(func, args, kwargs or {}, out)] += 1
        return out
