"""Import what a command line or a file names."""

import importlib
from collections.abc import Callable

from gemmtune.engine.io.blame import STOPS, account, place_of
from gemmtune.engine.records.errors import UsageError

__all__ = ["imported"]

_NEEDS_GPU = ("not compiled with CUDA", "NVIDIA driver", "CUDA GPUs", "CUDA error", "CUDA driver", "active drivers")
"""Parts of what torch and Triton say where code needs a GPU, and none is there."""


def imported(path: str) -> Callable[..., object]:
    """Import the callable that `module:function` names.

    Raises:
        UsageError: there is no such module, or it has nothing callable of that name.
    """
    module, _, name = path.partition(":")
    if not name:
        raise UsageError(f"malformed callable {path!r}: expected module:function")
    if module.endswith(".py"):
        raise UsageError(f"{path} names a file: name the module, {module.removesuffix('.py')}:{name}")
    try:
        found = getattr(importlib.import_module(module), name)
    except STOPS:
        raise
    except BaseException as error:  # the module is the user's
        is_absent = isinstance(error, ImportError | AttributeError) and not place_of(error)
        reason = str(error) if is_absent else account(error)
        raise UsageError(f"cannot import {path}: {reason}{_way_out(reason)}") from error
    if not callable(found):
        raise UsageError(f"{path} is {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]


def _way_out(reason: str) -> str:
    if reason.startswith(SystemExit.__name__):
        return '; put what runs as a program below `if __name__ == "__main__":`'
    if any(part in reason for part in _NEEDS_GPU):
        return "; move what needs the GPU into build(), or the like: gemmtune capture runs it there, without a GPU, too"
    return ""
