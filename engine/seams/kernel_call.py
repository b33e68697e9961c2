"""Arguments of a compiled kernel's function, as data that a table can carry to a loader. Needs the standard library."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

__all__ = ["Argument", "binder"]

Argument: TypeAlias = "str | int | Sequence[Argument] | None"
"""Argument of a kernel's function: a tensor or the stream by name, a number, None, or a tuple of such.

Names are a, b, out, bias, stream and those of an epilogue's operands; `b.mT` is B with its last two dimensions
exchanged.
"""


def binder(call: Sequence[Argument]) -> Callable[[Mapping[str, object]], tuple[object, ...]]:
    """Return a function that makes the arguments of one launch from the named tensors.

    binder(["a", "b.mT", "out", [None, 4]])({"a": a, "b": b, "out": out}) == (a, b.mT, out, (None, 4))

    Raises:
        TypeError: a part of the call is neither text, number, None nor a sequence of such.
    """
    makers = [_maker(argument) for argument in call]
    return lambda named: tuple(make(named) for make in makers)


def _maker(argument: Argument) -> Callable[[Mapping[str, object]], object]:
    if argument is None or type(argument) is int:
        return lambda named: argument
    if isinstance(argument, str):
        name, _, transposed = argument.partition(".")
        return (lambda named: named[name].mT) if transposed else (lambda named: named[name])  # type: ignore[attr-defined]
    if isinstance(argument, Sequence):
        return binder(argument)
    raise TypeError(f"{ascii(argument)[:100]} is no argument of a kernel: a name, a number, None, or a tuple of these")
