"""First calls, outputs and memory of a model's arms. Imports torch."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.utils import fresh_cache
from torch.utils._pytree import tree_leaves

from gemmtune.engine.consumers.inductor.bench.arms import BASE
from gemmtune.engine.consumers.inductor.capture.calls import Call, models_of
from gemmtune.engine.consumers.inductor.capture.capture import run_backward
from gemmtune.engine.consumers.inductor.loader import loader

_ARGUMENTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "compile": dict,
    "max-autotune": lambda: {"mode": "max-autotune-no-cudagraphs"},  # every arm gets its CUDA graph from the bench
    "table": lambda: {"options": loader.options()},
}
_RECOMPILES = 64


@dataclass(frozen=True)
class Prepared:
    """A model with the arguments of its call."""

    call: Call
    """Model or function that is called."""
    positional: Sequence[object]
    """Positional arguments of the call."""
    named: Mapping[str, object]
    """Keyword arguments of the call."""
    grad: bool
    """Whether a call computes gradients, too."""
    rewinders: Sequence[Callable[[], None]] = ()
    """Functions that undo what a call does to its arguments."""
    _gradients: list[torch.Tensor] = field(default_factory=list, init=False, repr=False)

    def arm(self, call: Call) -> RunnableArm:
        """Return the function that runs one call of an arm."""
        return RunnableArm(call, self)

    def gradients_of(self, outputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the gradients of a call's outputs: 1 for a loss, else normal numbers, drawn in the first call.

        With 1 everywhere, weights before a layer norm would receive rounding errors alone.
        """
        if not self._gradients:
            self._gradients.extend(torch.randn_like(each) if each.dim() else torch.ones_like(each) for each in outputs)
        return self._gradients

    @property
    def leaves(self) -> list[torch.Tensor]:
        """Tensors that receive a gradient: parameters of the models, and inputs."""
        parameters = [each for model in models_of(self.call) for each in model.parameters()]
        inputs = [each for each in (*self.positional, *self.named.values()) if isinstance(each, torch.Tensor)]
        return [each for each in (*parameters, *inputs) if each.requires_grad]


@dataclass(frozen=True)
class RunnableArm:
    """One call of an arm, forward or with gradients."""

    compiled: Call
    """Model as the arm runs it."""
    prepared: Prepared
    """Model with the arguments of its call."""

    def __call__(self) -> object:
        """Run the call once; gradients start from nothing, and arguments that a call changes from what they were."""
        for rewind in self.prepared.rewinders:
            rewind()
        if not self.prepared.grad:
            with torch.no_grad():
                return self.compiled(*self.prepared.positional, **self.prepared.named)
        for leaf in self.prepared.leaves:
            leaf.grad = None
        output = self.compiled(*self.prepared.positional, **self.prepared.named)
        run_backward(output, self.prepared.gradients_of)
        return output

    def results(self) -> list[list[torch.Tensor]]:
        """Run the call once and return each output by itself, then all gradients together, detached."""
        outputs = [each.detach() for each in tree_leaves(self()) if isinstance(each, torch.Tensor)]
        gradients = [leaf.grad for leaf in self.prepared.leaves if leaf.grad is not None] if self.prepared.grad else []
        return [*([each] for each in outputs if each.is_floating_point()), gradients]


@dataclass(frozen=True, slots=True)
class FirstCall:
    """First call of an arm."""

    seconds: float
    """Time with compilation, s."""
    product_benchmarks: int
    """Products whose choices Inductor benchmarked."""
    kernel_benchmarks: int
    """Kernels that Inductor benchmarked."""


def compiled_arm(prepared: Prepared, name: str) -> RunnableArm:
    """Return an arm that is not compiled yet."""
    if name == "eager":
        return prepared.arm(prepared.call)
    return prepared.arm(torch.compile(prepared.call, **_ARGUMENTS[name]()))


@contextlib.contextmanager
def cold() -> Iterator[None]:
    """Compile into caches of one's own, and take nothing from those of earlier runs."""
    with torch._dynamo.config.patch(recompile_limit=_RECOMPILES), fresh_cache():
        yield


def load_compiler(prepared: Prepared) -> None:
    """Compile the model once, untimed, so that no arm's first call loads what all of them need.

    That is Inductor's modules and compiling processes, and what Dynamo imports to read the model's code.
    """
    with cold():
        compiled_arm(prepared, BASE)()
    AsyncCompile.wait_pool_ready()
    torch._dynamo.reset()


def first_call(arm: RunnableArm) -> FirstCall:
    """Call an arm for the first time and wait for the GPU."""
    counters.clear()
    began = time.perf_counter()
    arm()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    inductor = counters["inductor"]
    kernels = sum(count for name, count in inductor.items() if str(name).endswith(".benchmark_gpu"))
    return FirstCall(seconds, int(inductor["select_algorithm_autotune"]), int(kernels))


def peak_bytes(arm: RunnableArm) -> int:
    """Return the most memory that a call holds beyond what was held before it."""
    for leaf in arm.prepared.leaves:
        leaf.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    arm()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def relative_error(found: Sequence[Sequence[torch.Tensor]], expected: Sequence[Sequence[torch.Tensor]]) -> float:
    """Return the largest ratio of a difference's norm to the norm of the expected tensors, by group of tensors.

    Gradients are one group. Some, such as that of a key's bias, are rounding errors, which differ in any two programs.

    Raises:
        ValueError: the numbers of tensors or their sizes differ.
    """
    if [[each.shape for each in group] for group in found] != [[each.shape for each in group] for group in expected]:
        raise ValueError("outputs or gradients have other sizes than eager's")
    worst = 0.0
    for ones, others in zip(found, expected, strict=True):
        norm = hypot(*(float(other.double().norm()) for other in others))
        pairs = zip(ones, others, strict=True)
        difference = hypot(*(float((one.double() - other.double()).norm()) for one, other in pairs))
        worst = max(worst, difference / norm if norm else difference)
    return worst


def quietly(call: Callable[[], Any]) -> Any:  # noqa: ANN401 (what the call returns)
    """Call with the loader's warnings alone; torch's concern no user of the bench."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", message="gemmtune's ")
        return call()
