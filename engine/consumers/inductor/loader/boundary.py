"""Boundary to torch: where a part of it is gone or fails, a warning says so, and torch makes its own choice."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")
_warned: set[object] = set()  # kinds of warnings, of the whole process
absent: list[str] = []
"""Names that were asked for and that this torch lacks, such as `torch._inductor.choices.InductorChoices`."""


def private(module: str, *names: str) -> Any:  # noqa: ANN401 (whatever torch has under the names)
    """Return names of a module of torch; in the place of one that this torch lacks, a class without content.

    An exported loader asks here instead of importing, so that its own import ends well under every torch. With a name
    `absent`, `install` uses no table.
    """
    found: list[Any] = []
    for name in names:
        try:
            found.append(getattr(__import__(module, fromlist=[name]), name))
        except Exception:  # a module of torch may fail in any way
            absent.append(f"{module}.{name}")
            found.append(type(name, (), {}))
    return found if len(names) > 1 else found[0]


def or_else(instead: Callable[_Asked, _Answer]) -> Callable[[Callable[_Asked, _Answer]], Callable[_Asked, _Answer]]:
    """Return a decorator for what Inductor calls: if it raises, `instead` answers, and a warning says so.

    Each function warns once per type of exception and process, and functions that fail alike warn once together. A
    warning that the user's filters turn into an error is raised.
    """

    def decorated(function: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
        @functools.wraps(function)
        def guarded(*args: _Asked.args, **kwargs: _Asked.kwargs) -> _Answer:
            try:
                return function(*args, **kwargs)
            except Warning:
                raise
            except Exception as error:  # a torch that changed fails in any way
                failed = error
            answer = instead(*args, **kwargs)  # raises without a warning where torch without a table fails alike
            what = f"{type(failed).__name__}: {first_line(failed)}"
            message = f"gemmtune's loader failed in {function.__name__} under torch {torch.__version__}: {what}"
            kinds = (function.__qualname__, type(failed)), (type(failed), what)
            warn_once(f"{message}. torch goes on as without a table; please report this", *kinds)
            return answer

        return guarded

    return decorated


def nothing(*_: Any, **__: Any) -> Any:  # noqa: ANN401 (None, in the place of any type)
    """Return None for a guarded function that failed."""


def warn_once(message: str, *kinds: object) -> None:
    """Warn, unless this process has warned of one of the kinds; by default, of the message."""
    is_new = _warned.isdisjoint(kinds or {message})
    _warned.update(kinds or {message})
    if is_new:
        warnings.warn(message, stacklevel=3)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; empty without one."""
    return next(iter(str(error).splitlines()), "")
