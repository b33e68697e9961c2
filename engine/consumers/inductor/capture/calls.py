"""Callables by their text, and models whose tensors have no data. Imports torch."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from traceback import walk_tb
from types import CellType, CodeType, FunctionType
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from gemmtune.engine.consumers.inductor.capture.no_data import is_on_fake_gpu, without_data
from gemmtune.engine.io.blame import STOPS, line_in, line_of
from gemmtune.engine.records.errors import UsageError

Call: TypeAlias = Callable[..., Any]
"""A model, or a function of its inputs."""
_COMPILERS = {"torch", "functorch", "sympy", "triton"}
"""Packages that no model's code is of."""


@dataclass(frozen=True, slots=True)
class Builder:
    """Function that builds a model on the GPU, by a name for messages."""

    build: Callable[[], Call]
    """Function without parameters that returns the model."""
    name: str
    """Name of the model."""


def built_call(found: Call, path: str, *, has_inputs: bool) -> Call:
    """Return a model or a function of the inputs; a class, or a function that returns a model, builds it.

    A function without parameters builds the model, unless the call has no inputs.

    Raises:
        UsageError: building fails, or what is built cannot be called.
    """
    if isinstance(found, torch.nn.Module):
        return found
    if isinstance(found, type) or (has_inputs and not _takes_inputs(found)):
        try:
            built: object = found()
        except STOPS:
            raise
        except BaseException as error:  # the model's own
            raise UsageError(f"{path} builds no model: {described(error)}") from error
        if not callable(built):
            raise UsageError(f"{path} returns {type(built).__name__}, which cannot be called")
        return built
    return found


def cause_of(error: BaseException) -> BaseException:
    """Return the exception behind one of a callable: the model's own behind Dynamo's, which is handled there."""
    hidden = error.__context__ if type(error).__module__.startswith("torch._dynamo") else None
    below = error.__cause__ or hidden
    return cause_of(below) if isinstance(below, Exception) else error


def described(error: BaseException) -> str:
    """Return the type and first line of the exception behind one of a callable, and its line of the user's code.

    Where none of the user's code is on the way, the line is that of the model's package.
    """
    cause = cause_of(error)
    line = next(iter(str(cause).strip().splitlines()), "")
    packages = {str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in walk_tb(cause.__traceback__)}
    place = line_of(cause) or line_in(f"{cause}\n{error}")  # traced code is in no frame
    place = place or line_of(cause, packages - _COMPILERS)
    return f"{type(cause).__name__}: {line[:300]}" + (f" ({place})" if place else "")


def _takes_inputs(function: Call) -> bool:
    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # written in C
        return True


@contextlib.contextmanager
def on_fake_gpu(call: Call) -> Iterator[None]:
    """Give every model behind a callable parameters without data on the GPU, and its own ones back at the end.

    Models are found in the callable, in what its function refers to, and in the object of a bound method.

    Raises:
        UsageError: a tensor cannot be made without its data.
    """
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    made: dict[int, torch.Tensor] = {}
    try:
        modules: list[Any] = [module for model in models_of(call) for module in model.modules()]
        kinds: list[dict[str, Any]] = [its for each in modules for its in (each._parameters, each._buffers)]
        for tensors in kinds:
            for name, tensor in tensors.items():
                if tensor is not None and not is_on_fake_gpu(tensor):
                    replaced.append((tensors, name, tensor))
                    if id(tensor) not in made:
                        made[id(tensor)] = _without_data(name, tensor)
                    tensors[name] = made[id(tensor)]
        yield
    finally:
        for tensors, name, tensor in replaced:
            tensors[name] = tensor


def _without_data(name: str, tensor: torch.Tensor) -> torch.Tensor:
    try:
        return without_data(tensor)
    except UsageError:
        raise
    except Exception as error:  # that of a class of tensors
        what = f"{name}, a {type(tensor).__name__}, cannot be made without data"
        raise UsageError(f"{what}: {described(error)}; capture the model on a machine with the GPU") from error


def models_of(call: Call) -> list[torch.nn.Module]:
    """Return the models that a callable is, refers to, or is a method of, each once."""
    return list({id(each): each for each in _reached(call) if isinstance(each, torch.nn.Module)}.values())


def _reached(call: object) -> Sequence[object]:
    """Return a callable and the objects that it refers to directly."""
    if isinstance(call, torch.nn.Module):
        return [call]
    if isinstance(call, partial):
        return [*_reached(call.func), *call.args, *call.keywords.values()]
    reached = [call, getattr(call, "__self__", None)]
    function: Any = inspect.unwrap(call) if callable(call) else call
    if inspect.isfunction(function) or inspect.ismethod(function):
        names = inspect.getclosurevars(function)
        reached += tree_leaves([names.nonlocals, names.globals])  # items of containers, too
        for code in function.__code__.co_consts:
            if isinstance(code, CodeType):  # of a lambda or a generator
                cells = tuple(map(CellType, code.co_freevars))
                reached += _reached(FunctionType(code, function.__globals__, closure=cells))  # type: ignore[union-attr]
    return reached
