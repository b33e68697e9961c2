"""Which m share one compiled graph of a linear layer, by the guards Inductor sets itself. Imports no torch.

A graph that Dynamo compiles with a dynamic m serves every m that answers alike what Inductor asked of m while it
compiled; any other m compiles, and tunes, again. This module asks the same questions of numbers. They were read in
torch 2.11.0, 2.12.1 and 2.13.0; tests/engine/tables/inductor/test_guards.py compares the answers with torch.compile:

- 2.11, pad_mm: of each product with a size that could be padded, whether k exceeds m and n, and whether the product
  is bound by arithmetic. It asks symbolic sizes, which guards; from 2.12 on the sizes seen first, which does not.
- all, with a table: the loader guards the range of m of a product's row, and the span around an m that has none. What
  these guards and those before would leave of one size joins the range after it, or else the one before: for that size
  alone torch compiles no graph of a dynamic m.
- all: whether a Triton template, where one is among the choices, may index with 32 bits. A graph that is compiled where
  it may not asks no more: were it the first, it would serve the smaller m too.

What padding gains, which the pass times, changes nothing of this. What else stands in a model's graph may ask more;
TORCH_LOGS=+dynamic,recompiles names it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.problem import DType, Op, Problem
from gemmtune.engine.records.table import RangeRow

__all__ = [
    "PADDED_DTYPES",
    "TORCH_VERSIONS",
    "Guard",
    "Linear",
    "Product",
    "Range",
    "product_ranges",
    "ranges",
    "rows_of",
    "rows_of_products",
]

TORCH_VERSIONS = ("2.11", "2.12", "2.13")
"""Those whose guards are known."""
_ASKING_SYMBOLS = ("2.11",)
_LIBRARY = "aten"
_LEAST = 2  # Dynamo compiles m = 0 and m = 1 for themselves
_INT32_MAX = 2**31 - 1
_NO_END = 2**63 - 1
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
    rows: Mapping[str, RangeRow] = field(default_factory=dict)
    """The row of a table that each of its products runs, where there is one."""

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
class Product:
    """`m`×`k` by `k`×`n`, one of the three sizes dynamic."""

    role: str
    """What of a layer or a model it is."""
    m: _Size
    k: _Size
    n: _Size
    layout: str = "nt"
    """Of both factors, as a problem has it."""
    ops: tuple[Op, ...] = (Op.MM,)
    """The operations that it may be, by whether there is a bias."""

    def __str__(self) -> str:
        m, k, n = ("m" if size is None else size for size in (self.m, self.k, self.n))
        return f"{self.role} mm({m}×{k}, {k}×{n})"


def ranges(
    layer: Linear, torch: str, device: Device, *, shape_padding: bool = True, rows: Sequence[RangeRow] = ()
) -> tuple[Range, ...]:
    """All m from 2 on, cut where a graph compiled with max_autotune_gemm no longer serves.

    Args:
        layer: the layer, called with a dynamic m.
        torch: one of TORCH_VERSIONS.
        device: the GPU it runs on: its speed and its bandwidth are in one of the questions.
        shape_padding: Inductor's setting of that name, True unless it is changed.
        rows: a table's ranges of m; those of the layer's products cut its graphs.

    Raises:
        UsageError: nothing is known of that torch.
    """
    products = tuple(_products(layer))
    return product_ranges(products, layer.dtype, torch, device, shape_padding=shape_padding, rows=rows)


def product_ranges(
    products: Sequence[Product],
    dtype: DType,
    torch: str,
    device: Device,
    *,
    shape_padding: bool = True,
    rows: Sequence[RangeRow] = (),
    first: int = _LEAST,
    end: int | None = None,
) -> tuple[Range, ...]:
    """The same for the products of one graph, whose m goes from `first` to `end`."""
    if torch not in TORCH_VERSIONS:
        raise UsageError(f"the guards of torch {torch} are not known; known: {', '.join(TORCH_VERSIONS)}")
    padding = shape_padding and torch in _ASKING_SYMBOLS
    found: list[Range] = []
    at: int | None = first
    while at is not None:
        asked = tuple(_guards(products, dtype, device, at, padding))
        hits, held = _held(rows_of_products(products, dtype, rows), at, asked)
        guards = (*asked, *held)
        ends = [guard.last for guard in guards if guard.last is not None]
        last = min([*ends, *([] if end is None else [end])], default=None)
        found.append(Range(at, last, guards, hits))
        at = None if last is None or last == end else last + 1
    return tuple(found)


def _guards(products: Sequence[Product], dtype: DType, device: Device, m: int, padding: bool) -> Iterator[Guard]:
    """What a graph that is compiled at `m` relies on."""
    for product in products:
        if padding and _is_ragged(product, _ALIGNMENT[dtype]):
            yield from _compute_bound(product, dtype, device, m)
        yield from _indexing(product, m)


def rows_of(layer: Linear, rows: Sequence[RangeRow]) -> dict[str, list[RangeRow]]:
    """A table's ranges for the layer's products with a dynamic m: product to ranges, by m."""
    return rows_of_products(tuple(_products(layer)), layer.dtype, rows)


def rows_of_products(products: Sequence[Product], dtype: DType, rows: Sequence[RangeRow]) -> dict[str, list[RangeRow]]:
    """The same for the products of a graph.

    The gradient of a weight has a dynamic k, for which a table has no row. A bias makes another row of a layer's
    forward product; where a table has both, they cut both.
    """
    return {
        str(product): sorted((row for row in rows if _is_of(product, row.problem, dtype)), key=lambda row: row.first)
        for product in products
        if product.m is None
    }


def _is_of(product: Product, problem: Problem, dtype: DType) -> bool:
    return (
        problem.dynamic_m
        and problem.op in product.ops
        and (problem.k, problem.n) == (product.k, product.n)
        and f"{problem.a_layout}{problem.b_layout}" == product.layout
        and problem.a_dtype == problem.b_dtype == problem.out_dtype == dtype
    )


def _held(
    of_product: Mapping[str, Sequence[RangeRow]], m: int, guards: Sequence[Guard]
) -> tuple[dict[str, RangeRow], list[Guard]]:
    """What gemmtune_inductor.py runs in a graph compiled at `m`, and guards for it, one product after another."""
    least = max([_LEAST, *(guard.first for guard in guards)])
    greatest = min([_NO_END, *(guard.last for guard in guards if guard.last is not None)])
    hits: dict[str, RangeRow] = {}
    found: list[Guard] = []
    for product, its in of_product.items():
        tuned = [row for row in its if row.choice.space != _LIBRARY and row.first < row.last]
        part = _part(tuned, m, least, greatest)
        alone = _part(tuned, m, _LEAST, _NO_END)  # as if there were no other product: its guards hold, too
        least, greatest = part.first, part.last
        if (max(alone.first, least), min(alone.last, greatest)) == (least, greatest):
            part = alone
        library = (row for row in its if row.choice.space == _LIBRARY and row.first <= m <= row.last)
        row = part.row or next(library, None)
        if row is not None:
            hits[product] = row
        if tuned and (part.first > _LEAST or part.last < _NO_END):
            found.append(_row_guard(product, part))
    return hits, found


def _row_guard(product: str, part: _Part) -> Guard:
    last = part.last if part.last < _NO_END else None
    asked = f"the row of m {part.first}–{'' if last is None else last}" if part.row else "no row but the library's"
    text = f"m >= {part.first}" if last is None else f"m <= {last}"
    return Guard(text, part.first, last, asked, product, "gemmtune_inductor.py: _held")


@dataclass(frozen=True, slots=True)
class _Part:
    """Sizes that one row serves, or none."""

    row: RangeRow | None
    first: int
    last: int


def _part(rows: Sequence[RangeRow], m: int, least: int, greatest: int) -> _Part:
    parts = _parts(rows, least, greatest)
    return next((part for part in parts if part.first <= m <= part.last), _Part(None, least, greatest))


def _parts(rows: Sequence[RangeRow], least: int, greatest: int) -> list[_Part]:
    """As the loader's function of that name: no part is of one size, if there are more sizes."""
    cut: list[_Part] = []
    begin = least
    for row in (row for row in rows if max(row.first, begin) <= min(row.last, greatest)):
        if row.first > begin:
            cut.append(_Part(None, begin, row.first - 1))
        cut.append(_Part(row, max(row.first, begin), min(row.last, greatest)))
        begin = cut[-1].last + 1
    if begin <= greatest:
        cut.append(_Part(None, begin, greatest))
    found: list[_Part] = []
    begin = least
    for part in cut:
        if begin == part.last:
            continue
        if found and found[-1].row is part.row:
            begin = found.pop().first
        found.append(_Part(part.row, begin, part.last))
        begin = part.last + 1
    if found and begin <= greatest:
        last = found.pop()
        found.append(_Part(last.row, last.first, greatest))
    return found or cut


def _products(layer: Linear) -> Iterator[Product]:
    """The forward product, and those of the gradients that are needed."""
    yield Product("forward", None, layer.inputs, layer.outputs, "nt", (Op.MM, Op.ADDMM))
    if layer.weight_grad:
        yield Product("weight gradient", layer.outputs, None, layer.inputs, "tn")
    if layer.input_grad:
        yield Product("input gradient", None, layer.outputs, layer.inputs, "nn")


def _is_ragged(product: Product, alignment: int) -> bool:
    """Whether a size can be padded: pad_mm.py, get_padded_length."""
    sizes = (product.m, product.k, product.n)
    return any(size is not None and size != 1 and size % alignment for size in sizes)


def _compute_bound(product: Product, dtype: DType, device: Device, m: int) -> Iterator[Guard]:
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


def _exceeds(product: Product, left: _Size, right: _Size, names: str, source: str, m: int) -> tuple[bool, Guard | None]:
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


def _first_above(product: Product, balance: float) -> int:
    """The least m whose product has more operations a value than `balance`; above _INT32_MAX where none has.

    That is m·n·k / (m·k + n·k + m·n), which grows with each size.
    """
    known = [size for size in (product.m, product.k, product.n) if size is not None]
    area, edges = known[0] * known[1], sum(known)
    sizes = range(_LEAST, _INT32_MAX + 1)
    return _LEAST + bisect_right(sizes, balance, key=lambda m: m * area / (m * edges + area))


def _indexing(product: Product, m: int) -> Iterator[Guard]:
    """What codegen/simd.py, can_use_32bit_indexing asks for a Triton template: no guard where the answer is no."""
    known = [size for size in (product.m, product.k, product.n) if size is not None]
    last = _INT32_MAX // max(known)
    if m <= last and known[0] * known[1] <= _INT32_MAX:
        source = "torch/_inductor/codegen/simd.py: can_use_32bit_indexing"
        yield Guard(f"m <= {last}", _LEAST, last, f"m·{max(known)} <= 2³¹-1", str(product), source)
