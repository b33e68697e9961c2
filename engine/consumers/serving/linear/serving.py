"""Answers of a table to products as they come, counted by name. Needs torch."""

import logging
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from gemmtune.engine.consumers.serving.linear.launching import CuteKernel, TableKernel, TritonKernel, operands_of
from gemmtune.engine.consumers.serving.linear.table import (
    EXACT,
    LinearRow,
    LinearTable,
    parse_linear_table,
    product_text,
)
from gemmtune.engine.io.bundled import picked
from gemmtune.engine.tables.kernels.binary import difference
from gemmtune.engine.tables.sealed import read_sealed

_SHORT = {torch.bfloat16: "bf16", torch.float16: "fp16"}
_log = logging.getLogger("gemmtune")


class Product(NamedTuple):
    """Product of a layer, but for its m."""

    n: int
    """Number of columns of B."""
    k: int
    """Number of columns of A."""
    out_dtype: torch.dtype
    """Element type of the output."""
    row_wise: bool
    """Whether rows of A and columns of B have scales of their own."""
    bias: bool
    """Whether a bias is added."""

    @property
    def text(self) -> str:
        """Name behind the m, see `product_text`."""
        return product_text(self.n, self.k, _SHORT[self.out_dtype], row_wise=self.row_wise, bias=self.bias)


class _Answer:
    """Kernel for one product and m, with its uses."""

    def __init__(self, kernels: list[TableKernel], outcome: str) -> None:
        self.kernels, self.outcome, self.calls = kernels, outcome, Counter[str]()


class Linears:
    """Table in use: kernels per product and m, and what was asked for."""

    def __init__(self, table: LinearTable) -> None:
        """Take a table of this process's GPU; nothing is loaded before it is called."""
        self._table = table
        self._answers: dict[tuple[Product, int], _Answer] = {}
        self._broken: dict[TableKernel, str] = {}

    @cached_property
    def _kernels(self) -> Mapping[str, TableKernel]:
        """Kernels that the installed packages run, by name; a warning names the first reason of the others."""
        needs = {name: difference(kernel, any_version=False) for name, kernel in self._table.binaries.items()}
        if reason := next(filter(None, needs.values()), ""):
            _log.warning("CuTe kernels of gemmtune's table cannot run here: one %s; the rows' next kernels run", reason)
        runnable = {name: CuteKernel(its) for name, its in self._table.binaries.items() if not needs[name]}
        return {**runnable, **{name: TritonKernel(its) for name, its in self._table.cubins.items()}}

    def sizes(self, product: Product) -> list[int]:
        """Return an m for each row that serves a product with kernels of the table; none without such rows."""
        rows, least = self._rows(product), dict[int, int]()
        for m in sorted({m for row in rows for m in (row.first, row.last + 1)}):
            if (row := self._row(product, m)) is not None and row.kernels:
                least.setdefault(id(row), m)
        return sorted(least.values())

    def load(self, product: Product, b: torch.Tensor, scale_b: torch.Tensor) -> None:
        """Compute a product once with each of its rows: a first launch loads the kernel. Calls are not counted."""
        for m in self.sizes(product):
            a = torch.zeros((m, product.k), dtype=torch.uint8, device=b.device).view(b.dtype)
            scale_a = torch.ones((m if product.row_wise else 1, 1), device=b.device)
            bias = torch.zeros(product.n, dtype=product.out_dtype, device=b.device) if product.bias else None
            self.compute(a, b, (scale_a, scale_b), product.out_dtype, bias)
            if answer := self._answers.get((product, m)):
                answer.calls.clear()

    def compute(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        scales: tuple[torch.Tensor, torch.Tensor],
        out_dtype: torch.dtype,
        bias: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Return the product of 8-bit floats by its row's kernel; None where the engine's own kernel is to run.

        Args:
            a: row-major matrix of shape (m, k).
            b: matrix of shape (k, n) with contiguous columns.
            scales: scales of A and of B, one per row and column, or one each.
            out_dtype: element type of the output.
            bias: vector of n values of the output's type; None adds none.
        """
        n = b.shape[1]
        product = Product(n, a.shape[1], out_dtype, scales[1].numel() == n, bias is not None)
        answer = self._answers.get((product, a.shape[0]))
        if answer is None:
            answer = self._answers[product, a.shape[0]] = self._find(product, a.shape[0])
        if not answer.kernels:
            answer.calls[answer.outcome] += 1
            return None
        fits = {a.dtype, b.dtype} == {torch.float8_e4m3fn}
        fits = fits and (bias is None or (bias.dtype is out_dtype and bias.numel() == n))
        tensors = operands_of(a, b, scales, bias, row_wise=product.row_wise) if fits else None
        if tensors is None:
            answer.calls["unread operands"] += 1
            return None
        tensors["out"] = torch.empty((a.shape[0], n), dtype=out_dtype, device=a.device)
        for kernel in answer.kernels:
            if kernel not in self._broken and self._runs(kernel, tensors, self._name(product, a.shape[0])):
                answer.calls[answer.outcome] += 1
                return tensors["out"]
        answer.calls[self._broken[answer.kernels[-1]]] += 1
        return None

    def _runs(self, kernel: TableKernel, tensors: dict[str, torch.Tensor], name: str) -> bool:
        """Launch a kernel; one that fails warns, and is not tried again."""
        try:
            kernel(tensors)
        except Exception as error:  # missing libraries and drivers fail in any way
            self._broken[kernel] = f"failed: {type(error).__name__}"
            _log.warning("gemmtune's kernel for %s cannot run: %s: %s", name, type(error).__name__, error)
            return False
        return True

    def _find(self, product: Product, m: int) -> _Answer:
        """Return the kernels of the row that serves a product, and what its calls count as."""
        if (row := self._row(product, m)) is None:
            return _Answer([], "miss")
        kernels = [self._kernels[name] for name in row.kernels if name in self._kernels]
        return _Answer(kernels, "row" if kernels else "needs other packages" if row.kernels else "vendor row")

    def _rows(self, product: Product) -> list[LinearRow]:
        """Return the rows of a product, the narrowest of each sum first; exact ones serve behind those of its sum."""
        texts = (product.text, product.text + EXACT) if product.out_dtype in _SHORT else ()
        return [row for text in texts for row in self._table.rows.get(text, ())]

    def _row(self, product: Product, m: int) -> LinearRow | None:
        return next((row for row in self._rows(product) if row.first <= m <= row.last), None)

    @staticmethod
    def _name(product: Product, m: int) -> str:
        known = product.out_dtype in _SHORT
        return f"{m}x{product.text if known else f'{product.n}x{product.k}:out_dtype={product.out_dtype}'}"

    def report(self) -> dict[str, dict[str, int]]:
        """Return calls from Python by outcome and problem: `row`, `vendor row`, `miss`, or why no kernel ran.

        Names are those of `gemmtune tune --problem`. A replayed CUDA graph counts nothing.
        """
        found: dict[str, dict[str, int]] = {}
        for (product, m), answer in sorted(self._answers.items(), key=str):
            for outcome, calls in answer.calls.items():
                found.setdefault(outcome, {})[self._name(product, m)] = calls
        return found


def empty_product(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return an output of a product of A (m, k) and B (k, n) without its values, for a compiler that traces it."""
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


def linears_of(source: Path, gpu: str) -> tuple[Linears | None, str]:
    """Return the table of a GPU in a file, or why there is none, which a warning says, too."""
    consumer = source.name.removesuffix("_table.json")
    try:
        table = read_sealed(source, lambda content: parse_linear_table(picked(content, gpu)[0], consumer))
    except (OSError, TypeError, ValueError) as error:
        _log.warning("gemmtune's table cannot be read, so the engine's own kernels run: %s", error)
        return None, "has no table that can be read"
    if table.device != gpu:
        _log.warning("gemmtune's table is for %s; on %s the engine's own kernels run", table.device, gpu)
        return None, f"has a table for {table.device}, not for {gpu}"
    return Linears(table), ""
