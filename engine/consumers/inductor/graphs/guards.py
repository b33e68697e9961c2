"""Sizes of m that share one compiled graph, by the guards that Inductor and the loader set.

A graph with a dynamic m serves every m that answers Inductor's questions alike; any other m compiles again. For known
versions of torch the answers are computed here. Another torch is asked itself, if it is installed.

| torch | asked |
|---|---|
| 2.11 | pad_mm, of products with sizes to pad: whether k exceeds m and n, and whether arithmetic bounds the product. |
| all | whether a Triton template may index with 32 bits; no guard where it may not. |
| all, with a table | the ranges of m of each product, see `graph_sizes`. |

From 2.12 on pad_mm guards nothing. Other code of a model may guard more: TORCH_LOGS=+dynamic names it. The test
test_guards.py compares the answers with torch.compile.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gemmtune.engine.consumers.inductor.graphs.layers import Product, Question
from gemmtune.engine.consumers.inductor.graphs.products import asked_by_torch
from gemmtune.engine.consumers.inductor.loader.graph_sizes import cut_sizes
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.table import RangeRow
from gemmtune.engine.toolchain.releases import PADDING_GUARDS, TORCH_VERSIONS

_BASELINE_SPACE = "aten"
_LEAST = 2  # Dynamo compiles m = 0 and m = 1 for themselves
_INT32_MAX = 2**31 - 1
_NO_END = 2**63 - 1
_HOPPER = (9, 0)

# pad_mm.py, get_alignment_size_dtype
_ALIGNMENT = {DType.BF16: 8, DType.FP16: 8, DType.FP32: 4}
# torch/_inductor/analysis/device_info.py: TFLOP/s of fp16 and bf16, and of fp32, by the exact name of the GPU
_DATASHEET = {"NVIDIA H100": (1979.0, 67.5), "NVIDIA A100": (312.5, 19.5), "NVIDIA L4": (242.0, 30.3)}
# triton/testing.py, get_max_tensorcore_tflops and get_max_simd_tflops: operations of a quarter SM in a clock
_OPERATIONS = {DType.BF16: 512, DType.FP16: 512, DType.FP32: 32}


@dataclass(frozen=True, slots=True)
class Guard:
    """One answer that a graph relies on."""

    first: int
    """Least m with this answer."""
    last: int | None
    """Greatest m with this answer; None without an end."""
    asked: str
    """Question with its numbers."""
    product: str
    """Product that the question is about."""
    source: str
    """File and function that ask the question."""

    @property
    def text(self) -> str:
        """Condition on m, such as `m <= 1280`."""
        return f"m >= {self.first}" if self.last is None else f"m <= {self.last}"


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes that share one graph."""

    first: int
    """Least m of the graph."""
    last: int | None
    """Greatest m of the graph; None without an end."""
    guards: tuple[Guard, ...]
    """Answers that the graph relies on."""
    rows: Mapping[str, RangeRow] = field(default_factory=dict)
    """Row of a table that each product runs, if it has one."""

    @property
    def ends(self) -> tuple[Guard, ...]:
        """Guards that end the range."""
        return tuple(guard for guard in self.guards if guard.last is not None and guard.last == self.last)


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
    """Cut the sizes from `first` to `end` where a graph of these products, made with a table's options, ends.

    Args:
        products: products of one graph, each with one dynamic size.
        dtype: element type of all products.
        torch: version of torch, such as `2.13`.
        device: the GPU that the products run on; its speed and bandwidth are in one of the questions.
        shape_padding: Inductor's setting of that name, True unless it is changed.
        rows: a table's ranges of m; those of the products cut the graphs.
        first: least size.
        end: greatest size; None without an end.

    Raises:
        UsageError: the guards of the torch are neither known nor is it installed.
    """
    padding = shape_padding and torch in PADDING_GUARDS
    found: list[Range] = []
    at: int | None = first
    while at is not None:
        asked = [guard for product in products for guard in _guards(product, dtype, torch, device, at, padding=padding)]
        running, of_rows = _row_guards(rows_of(products, dtype, rows), at, asked)
        guards = (*asked, *of_rows)
        ends = [guard.last for guard in guards if guard.last is not None]
        last = min([*ends, *([] if end is None else [end])], default=None)
        found.append(Range(at, last, guards, running))
        at = None if last is None or last == end else last + 1
    return tuple(found)


def rows_of(products: Sequence[Product], dtype: DType, rows: Sequence[RangeRow]) -> dict[str, list[RangeRow]]:
    """Return a table's ranges for the products with a dynamic m: product to ranges, by m.

    The gradient of a weight has a dynamic k, for which a table has no row. If a table has rows of a forward product
    with and without a bias, both cut the graphs.
    """
    return {
        str(product): sorted((row for row in rows if _is_of(product, row, dtype)), key=lambda row: row.first)
        for product in products
        if product.m is None
    }


def _is_of(product: Product, row: RangeRow, dtype: DType) -> bool:
    problem = row.problem
    return (
        isinstance(problem, Problem)
        and problem.dynamic_m
        and problem.op in product.ops
        and (problem.k, problem.n) == (product.k, product.n)
        and f"{problem.a_layout}{problem.b_layout}" == product.layout
        and problem.a_dtype == problem.b_dtype == problem.out_dtype == dtype
    )


def _row_guards(
    of_product: Mapping[str, Sequence[RangeRow]], m: int, guards: Sequence[Guard]
) -> tuple[dict[str, RangeRow], list[Guard]]:
    """Return the row that each product runs in a graph compiled at `m`, and the guards the loader sets for them."""
    least = max([_LEAST, *(guard.first for guard in guards)])
    greatest = min([_NO_END, *(guard.last for guard in guards if guard.last is not None)])
    running: dict[str, RangeRow] = {}
    found: list[Guard] = []
    for product, its in of_product.items():
        tuned = [row for row in its if row.choice.space != _BASELINE_SPACE]
        row, first, last = _part_at(m, tuned, least, greatest)
        own = _part_at(m, tuned, _LEAST, _NO_END)  # without the guards of the other products
        least, greatest = first, last
        if (max(own[1], least), min(own[2], greatest)) == (least, greatest):
            row, first, last = own
        if tuned and (first > _LEAST or last < _NO_END):
            end = None if last == _NO_END else last
            asked = f"the row of m {first}–{end or ''}" if row is not None else "no row but the vendor library's"
            found.append(Guard(first, end, asked, product, "gemmtune_inductor"))
        row = row or next((r for r in its if r.choice.space == _BASELINE_SPACE and r.first <= m <= r.last), None)
        if row is not None:
            running[product] = row
    return running, found


def _part_at(m: int, rows: Sequence[RangeRow], least: int, greatest: int) -> tuple[RangeRow | None, int, int]:
    for index, first, last in cut_sizes([(row.first, row.last) for row in rows], least, greatest):
        if first <= m <= last:
            return None if index is None else rows[index], first, last
    return None, least, greatest


def _guards(product: Product, dtype: DType, torch: str, device: Device, m: int, *, padding: bool) -> Iterator[Guard]:
    """Yield the guards that Inductor sets for a product in a graph compiled at `m`."""
    known = torch in TORCH_VERSIONS
    questions = _questions(product, dtype, device, m, padding=padding) if known else asked_by_torch(product, torch, m)
    for question in questions:
        changes_at = _first_other_answer(question)
        if m >= changes_at:
            yield Guard(changes_at, None, question.text, str(product), question.source)
        elif changes_at <= _INT32_MAX + 1:
            yield Guard(_LEAST, changes_at - 1, question.text, str(product), question.source)


def _first_other_answer(question: Question) -> int:
    """Return the least m that answers unlike m = 2; beyond _INT32_MAX + 1 if there is none."""
    sizes, answer = range(_LEAST, _INT32_MAX + 2), question.holds(_LEAST)
    return _LEAST + bisect_left(sizes, True, key=lambda m: question.holds(m) is not answer)


def _questions(product: Product, dtype: DType, device: Device, m: int, *, padding: bool) -> Iterator[Question]:
    known = [size for size in (product.m, product.k, product.n) if size is not None]
    if padding and any(size != 1 and size % _ALIGNMENT[dtype] for size in known):
        yield from _compute_bound(product, dtype, device, m)

    def fits(size: int) -> bool:
        m, k, n = product.sizes(size)
        return max(m * k, k * n, m * n) <= _INT32_MAX

    if fits(m):
        source = "torch/_inductor/codegen/simd.py: can_use_32bit_indexing"
        yield Question(f"m·{max(known)} <= 2³¹-1", fits, source)


def _compute_bound(product: Product, dtype: DType, device: Device, m: int) -> Iterator[Question]:
    """Yield the questions of is_mm_compute_bound on a dynamic size, in order, up to the one that decides."""
    source = "torch/_inductor/fx_passes/pad_mm.py: is_mm_compute_bound"
    if dtype is DType.BF16:
        for names, other, position in (("K > M", product.m, 0), ("K > N", product.n, 2)):

            def exceeds(size: int, position: int = position) -> bool:
                return product.sizes(size)[1] > product.sizes(size)[position]

            if product.k is None or other is None:
                left, right = ("m" if size is None else size for size in (product.k, other))
                yield Question(f"{names}, {left} > {right}", exceeds, source)
            if not exceeds(m):
                break
        else:
            if device.capability < _HOPPER:
                return
    balance = _machine_balance(dtype, device)

    def bound(size: int) -> bool:
        m, k, n = product.sizes(size)
        return m * n * k / (m * k + n * k + m * n) > balance

    yield Question(f"arithmetic intensity > {balance:.6g}", bound, source)


def _machine_balance(dtype: DType, device: Device) -> float:
    """Return the operations per byte above which pad_mm takes a product for bound by arithmetic.

    Outside its datasheet Inductor gives Triton MHz for kHz: that balance is a thousandth, which every product exceeds.
    """
    rates = _DATASHEET.get(device.name)
    if rates is not None:
        tflops = rates[dtype is DType.FP32]
    else:
        tflops = 4 * device.sm_count * device.boost_clock_mhz * _OPERATIONS[dtype] * 1e-9
    return 1000 * tflops / device.memory_bandwidth_gb_s * 0.5
