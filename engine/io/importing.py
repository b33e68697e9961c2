"""Import what a command line or a file names."""

import importlib
from collections.abc import Callable

from gemmtune.engine.records.errors import UsageError

__all__ = ["imported"]


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
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot import {path}: {error}") from None
    if not callable(found):
        raise UsageError(f"{path} is {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]
