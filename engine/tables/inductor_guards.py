"""Which m share one compiled graph of a linear layer, by the guards Inductor sets itself. Imports no torch.

A graph that Dynamo compiles with a dynamic m serves every m that answers alike what Inductor asked of m while it
compiled; any other m compiles, and tunes, again. This module asks the same questions of numbers. They were read in
torch 2.11.0, 2.12.1 and 2.13.0; tests/engine/tables/test_inductor_guards.py compares the answers with torch.compile:

- 2.11, pad_mm: of each product with a size that could be padded, whether k exceeds m and n, and whether the product
  is bound by arithmetic. It asks symbolic sizes, which guards; from 2.12 on the sizes seen first, which does not.
- all: whether a Triton template, where one is among the choices, may index with 32 bits. A graph that is compiled where
  it may not asks no more: were it the first, it would serve the smaller m too.

What padding gains, which the pass times, changes nothing of this. What else stands in a model's graph may ask more;
TORCH_LOGS=+dynamic,recompiles names it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.problem import DType

__all__ = ["PADDED_DTYPES", "TORCH_VERSIONS", "Guard", "Linear", "Range", "ranges"]

TORCH_VERSIONS = ("2.11", "2.12", "2.13")
"""Those whose guards are known."""
_ASKING_SYMBOLS = ("2.11",)
_LEAST = 2  # Dynamo compiles m = 0 and m = 1 for themselves
_INT32_MAX = 2**31 - 1
_HOPPER = (9, 0)

# pad_mm.py, get_alignment_size_dtype
_ALIGNMENT = {DType.BF16: 8, DType.FP16: 8, DType.FP32: 4}
PADDED_DTYPES = tuple(_ALIGNMENT)
"""Types of layers whose guards are known."""
# torch/_inductor/analysis/device_info.py of 2.11: TFLOP/s of fp16 and bf16, and of fp32, by the exact name of the GPU
_DATASHEET = {"NVIDIA H100": (1979.0, 67.5), "NVIDIA A100": (312.5, 19.5), "NVIDIA L4": (242.0, 30.3)}
# triton/testing.py, get_max_tensorcore_tflops and get_max_simd_tflops: operations of a quarter SM in a clock
_OPERATIONS = {DType.BF16: 512, DType.FP16: 512, DType.FP32: 32}

_Size = int | None  # None is the dynamic m


@dataclass(frozen=True, slots=True)
class Guard:
    """One answer that a graph relies on."""

    text: str
    """What must hold: `m <= 1280`, `m < 3420`."""
    first: int
    """Least m that answers so."""
    last: int | None
    """Greatest m that answers so; None where there is no end."""
    asked: str
    """The question, with the sizes in it."""
    product: str
    """The product that it was asked of."""
    source: str
    """File and function of torch that ask it."""


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes that share one graph."""

    first: int
    """The least m."""
    last: int | None
    """The greatest; None where there is no end."""
    guards: tuple[Guard, ...]
    """What the graph relies on."""

    @property
    def ends(self) -> tuple[Guard, ...]:
        """The guards that end it."""
        return tuple(guard for guard in self.guards if guard.last is not None and guard.last == self.last)


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer, and what of it is compiled. A bias changes none of its guards."""

    inputs: int
    """Features in, the k of the forward product."""
    outputs: int
    """Features out, its n."""
    dtype: DType
    """Of input, weight and output; one of PADDED_DTYPES."""
    weight_grad: bool = True
    """Whether the weight needs a gradient."""
    input_grad: bool = False
    """Whether the input does, as within a model."""

    def __post_init__(self) -> None:
        """Refuse sizes that no product has."""
        if min(self.inputs, self.outputs) < 1:
            raise UsageError(f"a layer {self.inputs}:{self.outputs} has no product; both sizes start at 1")

    @classmethod
    def parse(cls, sizes: str, dtype: str, *, weight_grad: bool = True, input_grad: bool = False) -> Linear:
        """A layer of `IN:OUT` and a dtype's short name.

        Raises:
            UsageError: one of them is malformed or not known.
        """
        inputs, _, outputs = sizes.partition(":")
        if not (inputs.isdecimal() and outputs.isdecimal()):
            raise UsageError(f"malformed layer {sizes!r}: expected IN:OUT, for example 3420:1280")
        if dtype not in PADDED_DTYPES:
            raise UsageError(f"the guards of {dtype} layers are not known; known: {', '.join(PADDED_DTYPES)}")
        return cls(int(inputs), int(outputs), DType(dtype), weight_grad, input_grad)


@dataclass(frozen=True, slots=True)
class _Product:
    """`m`×`k` by `k`×`n`, one of the three sizes dynamic."""

    role: str
    m: _Size
    k: _Size
    n: _Size

    def __str__(self) -> str:
        m, k, n = ("m" if size is None else size for size in (self.m, self.k, self.n))
        return f"{self.role} mm({m}×{k}, {k}×{n})"


def ranges(layer: Linear, torch: str, device: Device, *, shape_padding: bool = True) -> tuple[Range, ...]:
    """All m from 2 on, cut where a graph compiled with max_autotune_gemm no longer serves.

    Args:
        layer: the layer, called with a dynamic m.
        torch: one of TORCH_VERSIONS.
        device: the GPU it runs on: its speed and its bandwidth are in one of the questions.
        shape_padding: Inductor's setting of that name, True unless it is changed.

    Raises:
        UsageError: nothing is known of that torch.
    """
    if torch not in TORCH_VERSIONS:
        raise UsageError(f"the guards of torch {torch} are not known; known: {', '.join(TORCH_VERSIONS)}")
    padding = shape_padding and torch in _ASKING_SYMBOLS
    found: list[Range] = []
    first: int | None = _LEAST
    while first is not None:
        guards = tuple(_guards(layer, device, first, padding))
        ends = [guard.last for guard in guards if guard.last is not None]
        last = min(ends, default=None)
        found.append(Range(first, last, guards))
        first = None if last is None else last + 1
    return tuple(found)


def _guards(layer: Linear, device: Device, m: int, padding: bool) -> Iterator[Guard]:
    """What a graph that is compiled at `m` relies on."""
    for product in _products(layer):
        if padding and _is_ragged(product, _ALIGNMENT[layer.dtype]):
            yield from _compute_bound(product, layer.dtype, device, m)
        yield from _indexing(product, m)


def _products(layer: Linear) -> Iterator[_Product]:
    """The forward product, and those of the gradients that are needed."""
    yield _Product("forward", None, layer.inputs, layer.outputs)
    if layer.weight_grad:
        yield _Product("weight gradient", layer.outputs, None, layer.inputs)
    if layer.input_grad:
        yield _Product("input gradient", None, layer.outputs, layer.inputs)


def _is_ragged(product: _Product, alignment: int) -> bool:
    """Whether a size can be padded: pad_mm.py, get_padded_length."""
    sizes = (product.m, product.k, product.n)
    return any(size is not None and size != 1 and size % alignment for size in sizes)


def _compute_bound(product: _Product, dtype: DType, device: Device, m: int) -> Iterator[Guard]:
    """What pad_mm.py, is_mm_compute_bound asks, in its order and no further than it goes."""
    source = "torch/_inductor/fx_passes/pad_mm.py: is_mm_compute_bound"
    if dtype is DType.BF16:
        deep = True
        for name, other in (("M", product.m), ("N", product.n)):
            deep, guard = _exceeds(product, product.k, other, f"K > {name}", source, m)
            if guard is not None:
                yield guard
            if not deep:
                break
        if deep and device.capability < _HOPPER:
            return
    balance = _machine_balance(dtype, device)
    edge = _first_above(product, balance)
    intensity, limit = "arithmetic intensity", f"{balance:.6g}"
    asked = f"{intensity} > {limit}"
    if m >= edge:
        yield Guard(asked, edge, None, asked, str(product), source)
    else:
        last = edge - 1 if edge <= _INT32_MAX else None
        yield Guard(f"{intensity} <= {limit}", _LEAST, last, asked, str(product), source)


def _exceeds(
    product: _Product, left: _Size, right: _Size, names: str, source: str, m: int
) -> tuple[bool, Guard | None]:
    """Whether one size exceeds another, and the guard if one of them is dynamic."""
    if left is None and right is not None:
        asked = f"{names}, m > {right}"
        if m > right:
            return True, Guard(f"m > {right}", right + 1, None, asked, str(product), source)
        return False, Guard(f"m <= {right}", _LEAST, right, asked, str(product), source)
    if left is not None and right is None:
        asked = f"{names}, {left} > m"
        if left > m:
            return True, Guard(f"m < {left}", _LEAST, left - 1, asked, str(product), source)
        return False, Guard(f"m >= {left}", left, None, asked, str(product), source)
    assert left is not None
    assert right is not None
    return left > right, None


def _machine_balance(dtype: DType, device: Device) -> float:
    """Operations a byte at which pad_mm takes a product for bound by arithmetic.

    Where the GPU's name is not in Inductor's datasheet, which spells few as the driver does, Triton's estimate stands
    in. Inductor gives it MHz and it expects kHz, so the balance is a thousandth, and every product exceeds it.
    """
    rates = _DATASHEET.get(device.name)
    if rates is not None:
        tflops = rates[dtype is DType.FP32]
    else:
        tflops = 4 * device.sm_count * device.boost_clock_mhz * _OPERATIONS[dtype] * 1e-9
    return 1000 * tflops / device.memory_bandwidth_gb_s * 0.5


def _first_above(product: _Product, balance: float) -> int:
    """The least m whose product has more operations a value than `balance`; above _INT32_MAX where none has.

    That is m·n·k / (m·k + n·k + m·n), which grows with each size.
    """
    known = [size for size in (product.m, product.k, product.n) if size is not None]
    area, edges = known[0] * known[1], sum(known)
    sizes = range(_LEAST, _INT32_MAX + 1)
    return _LEAST + bisect_right(sizes, balance, key=lambda m: m * area / (m * edges + area))


def _indexing(product: _Product, m: int) -> Iterator[Guard]:
    """What codegen/simd.py, can_use_32bit_indexing asks for a Triton template: no guard where the answer is no."""
    known = [size for size in (product.m, product.k, product.n) if size is not None]
    last = _INT32_MAX // max(known)
    if m <= last and known[0] * known[1] <= _INT32_MAX:
        source = "torch/_inductor/codegen/simd.py: can_use_32bit_indexing"
        yield Guard(f"m <= {last}", _LEAST, last, f"m·{max(known)} <= 2³¹-1", str(product), source)
