"""Arguments of a compiled kernel's function, as data that a table can carry to a loader. Needs the standard library."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

RUNTIME_PACKAGES = ("apache-tvm-ffi", "nvidia-cutlass-dsl")
"""Packages that link and launch a CuTe binary; their versions are part of each CuTe toolchain."""

CLUSTERS = "clusters"
"""Name of the number of clusters that the GPU of a launch runs at once; `clusters.4` is that of clusters of 4 blocks.

It belongs to a board and not to a table: boards of one model differ.
"""

Argument: TypeAlias = "str | int | Sequence[Argument] | None"
"""Argument of a kernel's function: a tensor or the stream by name, a number, None, or a tuple of such.

Names are those of a problem's arguments, stream, and clusters; `b.mT` is B with its last two dimensions exchanged, and
`row.flat` is a vector with one dimension.
"""

_ARGUMENT_VIEWS: Mapping[str, Callable[[Any], object]] = {
    "": lambda tensor: tensor,
    "mT": lambda tensor: tensor.mT,
    "flat": lambda tensor: tensor.view(-1),
}


def binder(
    call: Sequence[Argument], active_clusters: Callable[[int], int]
) -> Callable[[Mapping[str, object]], tuple[object, ...]]:
    """Return a function that makes the arguments of one launch from the named tensors.

    binder(["a", "b.mT", [None, "clusters.2"]], {2: 66}.get)({"a": a, "b": b}) == (a, b.mT, (None, 66))

    `active_clusters` returns the clusters of so many blocks that the GPU runs at once; asked here, not per launch.

    Raises:
        TypeError, ValueError: the call is no `Argument`, or the number of blocks of a cluster is no integer.
    """
    makers = [_maker(_counted(argument, active_clusters)) for argument in call]
    return lambda named: tuple(make(named) for make in makers)


def _counted(argument: Argument, active_clusters: Callable[[int], int]) -> Argument:
    """Return an argument with the numbers of clusters in the place of their names."""
    if isinstance(argument, str):
        name, _, blocks = argument.partition(".")
        return active_clusters(int(blocks)) if name == CLUSTERS else argument
    if isinstance(argument, Sequence):
        return [_counted(each, active_clusters) for each in argument]
    return argument


def _maker(argument: Argument) -> Callable[[Mapping[str, object]], object]:
    """Return a function that makes one argument; what needs no tensor is made once."""
    if isinstance(argument, str):
        name, _, suffix = argument.partition(".")
        if suffix not in _ARGUMENT_VIEWS:
            raise TypeError(
                f"{ascii(argument)[:100]} has a suffix that is none of {', '.join(filter(None, _ARGUMENT_VIEWS))}"
            )
        view = _ARGUMENT_VIEWS[suffix]
        return (lambda named: view(named[name])) if suffix else (lambda named: named[name])
    if isinstance(argument, Sequence):
        makers = [_maker(each) for each in argument]
        if _has_names(argument):
            return lambda named: tuple(make(named) for make in makers)
        constant = tuple(make({}) for make in makers)
        return lambda named: constant
    if argument is None or type(argument) is int:
        return lambda named: argument
    raise TypeError(f"{ascii(argument)[:100]} is no argument of a kernel: a number, None, or a tuple of these")


def _has_names(argument: Argument) -> bool:
    return isinstance(argument, str) or (isinstance(argument, Sequence) and any(map(_has_names, argument)))
