"""Values of small tensors, which a model may read, computed on the CPU. Imports torch.

Masks, positions, lengths and anchors follow from sizes and integers, without a weight of the model. A program that
reads them (`if mask.all()`, `hidden[mask]`) goes on as it does on a GPU. Random numbers but integers are unknown, and
all unknown ones are taken for finite.
"""

import contextlib
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch._guards import CompileContext
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    unset_fake_temporarily,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from gemmtune.engine.consumers.inductor.loader.grouped.grouped_products import operands_of
from gemmtune.engine.io.blame import line_above

_MOST = 2**20  # elements of a tensor with values
DRAWN = "a number drawn at random"
FINITE = "whether numbers are finite"
IN_BINS = "how many bins count numbers"


class ModelMode(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's, untyped
    """Mode that watches what a model runs."""

    supports_higher_order_operators = True
    """Whether torch hands operators such as flex_attention and cond to this mode, rather than refuse them."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return that torch.compile goes on under this mode."""
        return True


class DataOnCpu(ModelMode):
    """Give data to small tensors on the CPU, and know the values of small ones without data that follow from others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self._values: Any = WeakTensorKeyDictionary()
        self._changed: set[object] = set()  # storages that unknown values were written to
        self._taken: Any = WeakTensorKeyDictionary()  # those that follow from chance or from what is taken for granted
        self._reads: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (torch's protocol)
        """Run an operation, and its copy on values if all of its tensors have some."""
        given = dict(kwargs or {})
        if CompileContext.try_get() is not None:
            return func(*args, **given)
        made = self._run(func, args, given)
        self._follow(func, (args, given), made)
        return made

    def begin_call(self) -> None:
        """Take what was drawn before, such as weights and inputs, for given, and forget what was read."""
        self._taken.clear()
        self._reads.clear()

    def take_reads(self) -> Counter[tuple[str, str]]:
        """Return what was read of numbers that no device knows, and the place in the user's code, and forget them."""
        found, self._reads = self._reads, Counter()
        return found

    def _follow(self, func: Callable[..., Any], given: object, made: object) -> None:
        """Note what follows from chance, and from numbers that are taken for finite, and each read of such a value."""
        is_random = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        known = (self._taken[each] for each in _tensors(given) if each in self._taken) if len(self._taken) else ()
        what = DRAWN if is_random else next(iter(known), "")
        if not what:
            return
        for each in _tensors(made):
            if self.value(each) is not None:
                self._taken[each] = what
        if func is torch.ops.aten._local_scalar_dense.default or _sizes_its_output(func, given):
            self._reads[what, line_above() or "a package"] += 1

    def _run(self, func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if _is_on_cpu([*args, *given.values()]):
            with unset_fake_temporarily():
                return func(*args, **given)
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **given)
        tensors = _tensors([args, given])
        if any(self.value(each) is None for each in tensors):
            self._forget(func, args, given)
            if (bins := _bins(func, args, given)) is not None:
                self._reads[IN_BINS, line_above() or "a package"] += 1
                return bins
            if func is torch.ops.aten.masked_select.default and args[0].shape == args[1].shape:
                func, args = torch.ops.aten.index.Tensor, (args[0], [args[1]])
            made = func(*self._without_masks(func, args), **given)
            if (answer := _of_finite(func, args)) is not None and made.numel() <= _MOST:
                with unset_fake_temporarily():
                    self._values[made] = torch.full(made.shape, answer, device="cpu")
                self._taken[made] = FINITE
            return made
        try:
            made = func(*args, **given)
        except (DataDependentOutputException, DynamicOutputShapeException):
            found = self._computed(func, args, given)
            if found is None:
                raise
            return tree_map(lambda leaf: self._known(leaf, tensors[0].device), found)
        outputs = _tensors(made)
        if not outputs:
            self._forget(func, args, given)
            return made
        is_known = all(leaf.numel() <= _MOST and not _is_drawn(func, leaf) for leaf in outputs)
        found = self._computed(func, args, given) if is_known else None
        if found is None:
            self._forget(func, args, given)
            return made
        for leaf, value in zip(outputs, _tensors(found), strict=True):
            if isinstance(leaf, FakeTensor) and leaf.shape == value.shape:
                self._values[leaf] = value
        return made

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the values of a tensor; None if they are unknown."""
        if not isinstance(tensor, FakeTensor):
            return tensor if has_values(tensor) else None
        value: torch.Tensor | None = self._values.get(tensor)
        return None if value is None or _storage(tensor) in self._changed else value

    def _known(self, value: Any, device: torch.device) -> Any:  # noqa: ANN401 (a tensor or a number)
        """Return a tensor without data whose values are known."""
        if not isinstance(value, torch.Tensor):
            return value
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        self._values[made] = value
        return made

    def _computed(self, func: torch._ops.OpOverload, args: Any, given: Any) -> Any:  # noqa: ANN401 (torch's)
        """Return what an operation makes of values; None where the CPU has no kernel for it."""

        def on_cpu(leaf: Any) -> Any:  # noqa: ANN401 (as above)
            return self.value(leaf) if isinstance(leaf, torch.Tensor) else to_cpu(leaf)

        values, named = tree_map(on_cpu, (list(args), given))
        with unset_fake_temporarily(), contextlib.suppress(Exception):
            return func(*values, **named)
        return None

    def _forget(self, func: torch._ops.OpOverload, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        """Forget the values of what an operation changes in place, and of all its views."""
        if func._schema.is_mutable:
            for position, argument in enumerate(func._schema.arguments):
                is_written = argument.alias_info is not None and argument.alias_info.is_write
                held = args[position] if position < len(args) else given.get(argument.name)
                if is_written:
                    for leaf in tree_leaves(held):
                        if isinstance(leaf, FakeTensor):
                            self._changed.add(_storage(leaf))

    def _without_masks(self, func: torch._ops.OpOverload, args: Sequence[Any]) -> Sequence[Any]:
        """Return an operation's arguments with positions for known masks, whose number of elements sizes the output."""
        if func._opname not in ("index", "index_put", "index_put_"):
            return args
        indices: list[Any] = []
        for each in args[1]:
            is_mask = each is not None and each.dtype in (torch.bool, torch.uint8)
            value = self.value(each) if is_mask else None
            if value is None:
                indices.append(each)
                continue
            with unset_fake_temporarily():
                positions = value.nonzero().unbind(1)
            indices += [self._known(its, each.device) for its in positions]
        return [args[0], indices, *args[2:]]


def has_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a small one on the CPU, and no parameter of a model."""
    return type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.numel() <= _MOST


class OnCpu(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's, untyped
    """Make tensors with data on the CPU that an operation would make on the GPU."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (torch's protocol)
        """Run an operation on the CPU."""
        return func(*map(to_cpu, args), **{name: to_cpu(value) for name, value in (kwargs or {}).items()})


def to_cpu(value: object) -> object:
    """Return the CPU for a GPU, and anything else as it is."""
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


def _is_on_cpu(arguments: Sequence[object]) -> bool:
    """Return whether an operation reads and makes small tensors on the CPU alone."""
    tensors = _tensors(arguments)
    if any(isinstance(leaf, torch.device) and leaf.type != "cpu" for leaf in tree_leaves(arguments)):
        return False
    if tensors:
        return all(not isinstance(each, FakeTensor) and each.device.type == "cpu" for each in tensors)
    sizes = tree_leaves([each for each in arguments if isinstance(each, list)])
    return math.prod(size for size in sizes if isinstance(size, int)) <= _MOST


def _storage(tensor: torch.Tensor) -> object:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call] # torch's, untyped


def _tensors(values: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _sizes_its_output(func: Callable[..., Any], given: object) -> bool:
    """Return whether values decide an operation's sizes; those of an index do if it is a mask."""
    if torch.Tag.dynamic_output_shape not in getattr(func, "tags", ()):
        return False
    is_index = getattr(func, "_opname", "").startswith("index")
    return not is_index or any(each.dtype in (torch.bool, torch.uint8) for each in _tensors(given))


def _is_drawn(func: torch._ops.OpOverload, made: torch.Tensor) -> bool:
    """Return whether the numbers that an operation makes are chance's; integers without a value are written later."""
    is_random = torch.Tag.nondeterministic_seeded in func.tags or func._opname.startswith(("empty", "new_empty"))
    return is_random and made.is_floating_point()


def _bins(func: torch._ops.OpOverload, args: Sequence[Any], given: Mapping[str, Any]) -> torch.Tensor | None:
    """Return the counts of an operation that counts integers in a known number of bins; None for another one."""
    if func is not torch.ops.aten.bincount.default:
        return None
    named = operands_of(func, args, given)
    kind = torch.int64 if named.get("weights") is None else torch.float64
    least = named.get("minlength", 0)
    return torch.empty(least, dtype=kind, device=named["self"].device) if least else None


def _of_finite(func: torch._ops.OpOverload, args: Sequence[Any]) -> bool | None:
    """Return what an operation answers for each finite number; None for one that asks something else."""
    name = func._opname
    if name in ("isfinite", "isnan", "isinf"):
        return name == "isfinite"
    if name in ("eq", "ne") and (args[0] is args[1] or (isinstance(args[1], float) and args[1] == math.inf)):
        return name == ("eq" if args[0] is args[1] else "ne")
    return None


class DrawsOfPython:
    """Numbers that Python's `random` and numpy draw from the generators that a process shares."""

    def __init__(self) -> None:
        """Take what was drawn before for given."""
        self._before = self._states()

    def lines(self, call: Callable[[], object]) -> Counter[str]:
        """Return the places that drew since, and how often: those of another run of `call`, which may fail."""
        found = Counter[str]()
        if self._states() == self._before:
            return found

        def seen(function: Callable[..., Any], *args: Any, **named: Any) -> Any:  # noqa: ANN401 (as the function)
            found[line_above() or "a package"] += 1
            return function(*args, **named)

        with contextlib.ExitStack() as stack:
            for module in filter(None, (random, getattr(sys.modules.get("numpy"), "random", None))):
                shared = module.random.__self__
                for name, function in [*vars(module).items()]:
                    if name != "seed" and getattr(function, "__self__", None) is shared:
                        stack.enter_context(patch.object(module, name, partial(seen, function)))
            stack.enter_context(contextlib.suppress(Exception))
            call()
        return found or Counter({"a place that took the function by its name": 1})

    @staticmethod
    def _states() -> object:
        numpy: Any = sys.modules.get("numpy")
        key, place = numpy.random.get_state()[1:3] if numpy else (b"", 0)
        return random.getstate(), bytes(key), place
