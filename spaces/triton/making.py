"""Tensors that a user's class asks for, and which arguments can be passed. Imports torch."""

import hashlib

import torch

from gemmtune.engine.consumers.triton.contract import VALUE_TEXT, text_of
from gemmtune.engine.seams.workload import TensorSource

_WAYS_OUT = {
    "Enum": "give its value",
    "str": "give one of at most 99 characters",
    "integer": "give an int of it",
    "floating": "give a float of it",
    "tuple": "give its values as arguments of their own",
    "list": "give its values as arguments of their own",
    "TensorDescriptor": "give the tensor, and let the kernel make the descriptor with tl.make_tensor_descriptor",
    "JITFunction": "give a text or number that the kernel chooses the function by",
    "constexpr": "give its value",
}
"""Ways to express arguments that neither a launch nor a table can hold, by their types."""


def unpassable(value: object) -> str:
    """Return why neither a launch nor a table can hold an argument, with a way out; empty if both can."""
    if isinstance(value, torch.Tensor) or VALUE_TEXT.fullmatch(text_of(value) or ""):
        return ""
    kinds = [each.__name__ for each in type(value).__mro__]
    ways_out = [_WAYS_OUT[each] for each in kinds if each in _WAYS_OUT]
    return f"a {kinds[0]}, which no table can hold: {(*ways_out, 'give a tensor, number, text, None or type')[0]}"


def share_memory(value: object, tensor: torch.Tensor) -> bool:
    """Return whether a value is a tensor in the memory of another."""
    return isinstance(value, torch.Tensor) and value.untyped_storage()._cdata == tensor.untyped_storage()._cdata


class Make:
    """Maker of a launch's tensors: each call gives values and memory of their own."""

    def __init__(self, source: TensorSource, name: str) -> None:
        """Take tensors from `source`, with names that begin with `name`."""
        self._source = source
        self._name = name
        self._count = 0
        self._empty: list[torch.Tensor] = []

    @property
    def device(self) -> torch.device:
        """Device of the tensors, for those that the class makes itself; `meta` where no values are needed."""
        return self._source.device

    def normal(self, shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> torch.Tensor:
        """Return normal values of standard deviation `scale`; integers are 32 times as large and rounded."""
        if dtype.is_floating_point and scale == 1.0:
            return self._source.normal(dtype, shape, self._next())
        if dtype.is_floating_point:
            return (self._source.own(torch.float32, shape, self._next()) * scale).to(dtype)
        return self._source.normal(dtype, shape, self._next(), 32.0 * scale)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Return integers from `low` to `high` - 1, each as likely."""
        tensor = torch.empty(shape, dtype=dtype, device=self.device)
        seed = int.from_bytes(hashlib.sha256(self._next().encode()).digest()[:8], "big") >> 1
        if self.device.type == "meta":
            return tensor
        return tensor.random_(low, high, generator=torch.Generator(self.device).manual_seed(seed))

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Return zeros of a shape and type, contiguous, on the device of the operands."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Return memory for the kernel to write."""
        self._empty.append(self._source.empty(dtype, shape, self._next()))
        return self._empty[-1]

    def has_made_empty(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor lies in memory of `empty`, whatever its shape and strides."""
        return any(share_memory(each, tensor) for each in self._empty)

    def _next(self) -> str:
        self._count += 1
        return f"{self._name} {self._count}"


class PlainSource:
    """Source of tensors of ones; on device `meta` they have no memory, but shapes, strides and types alone."""

    def __init__(self, device: str = "meta") -> None:
        self._device = torch.device(device)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self._device

    def normal(self, dtype: torch.dtype, shape: tuple[int, ...], name: str, scale: float = 1.0) -> torch.Tensor:
        """Return a tensor of ones."""
        return torch.ones(shape, dtype=dtype, device=self._device)

    own = empty = normal
