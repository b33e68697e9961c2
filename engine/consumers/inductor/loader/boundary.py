"""Boundary between Inductor and the loader: what fails behind it ends in a warning and in torch's own choice."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")
_warned: set[object] = set()  # kinds of warnings, of the whole process


def or_else(instead: Callable[_Asked, _Answer]) -> Callable[[Callable[_Asked, _Answer]], Callable[_Asked, _Answer]]:
    """Return a decorator for what Inductor calls: if it raises, a warning says so, and `instead` answers.

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
                what = next(iter(str(error).splitlines()), "")
                message = (
                    f"gemmtune's loader failed in {function.__name__} under torch {torch.__version__}: "
                    f"{type(error).__name__}: {what}. torch goes on as without a table; please report this"
                )
                warn_once(message, (function.__qualname__, type(error)), (type(error), what))
            return instead(*args, **kwargs)

        return guarded

    return decorated


def nothing(*_: Any) -> Any:  # noqa: ANN401 (None, in the place of any type)
    """Return None for a guarded function that failed."""


def warn_once(message: str, *kinds: object) -> None:
    """Warn, unless this process has warned of one of the kinds; by default, of the message."""
    is_new = _warned.isdisjoint(kinds or {message})
    _warned.update(kinds or {message})
    if is_new:
        warnings.warn(message, stacklevel=3)
