"""Import what a command line or a file names."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from gemmtune.engine.io.blame import STOPS, account, line_of
from gemmtune.engine.records.errors import UsageError, did_you_mean


def parse_callable(path: str) -> tuple[str, str]:
    """Return both names of `module:function`, and import nothing; raises UsageError if the text has another form."""
    module, _, name = path.partition(":")
    if module.endswith(".py") and name:
        raise UsageError(f"{path} names a file: name the module, {Path(module).stem}:{name}, in the file's folder")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise UsageError(f"malformed callable {path[:200]!r}: expected module:function")
    if "." in name:
        whole, _, part = name.partition(".")
        raise UsageError(f"{path} names {part} of {whole}: name {module}:{whole}, or a function that calls it")
    return module, name


_NEEDS_GPU = ("not compiled with CUDA", "NVIDIA driver", "CUDA GPUs", "CUDA error", "CUDA driver", "active drivers")
"""Parts of what torch and Triton say where code needs a GPU, and none is there."""


def imported(path: str, as_written: str = "") -> Callable[..., object]:
    """Import the callable that `module:function` names; messages name it as the user wrote it, where that is given.

    Raises:
        UsageError: there is no such module, or it has nothing callable of that name.
    """
    module, name = parse_callable(path)
    written = as_written or path
    importlib.invalidate_caches()  # the file may be younger than the last look into its folder
    try:
        held = importlib.import_module(module)
        found = getattr(held, name)
    except STOPS:
        raise
    except BaseException as error:  # the module is the user's
        is_absent = isinstance(error, ImportError | AttributeError) and not line_of(error)
        reason = str(error) if is_absent else account(error)
        known = vars(sys.modules[module]) if is_absent and module in sys.modules else ()
        meant = did_you_mean(name, (each for each in known if not each.startswith("_"))).rstrip()
        raise UsageError(f"cannot import {written}: {reason}{'; ' * bool(meant)}{meant}{_way_out(reason)}") from error
    if not callable(found):
        raise UsageError(f"{written} is {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]


def _way_out(reason: str) -> str:
    if reason.startswith(SystemExit.__name__):
        return '; put what runs as a program below `if __name__ == "__main__":`'
    if any(part in reason for part in _NEEDS_GPU):
        return "; move what needs the GPU into build(), or the like: gemmtune capture runs it there, without a GPU, too"
    return ""
