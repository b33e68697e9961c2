"""Rows that compiled products use, and problems without a row. Needs the standard library alone."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow

DTYPE_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "tf32": "tf32"}
"""Names of types in a problem's text, by the names in a product's key."""
_OUTCOMES = {
    "row": "run a row's kernel",
    "aten row": "run ATen because a row says so",
    "next choice": "run a row's next choice, because its CuTe kernel cannot run here",
    "unused row": "have a row that cannot be used here",
    "miss": "have no row",
    "no problem": "are no problem that can be tuned",
    "other device": "are for another device than a GPU",
    "failed": "run as without a table, because the loader failed",
}
"""Kinds of use, with their words in a report."""


class NearestRow(NamedTuple):
    """Row that is most like a product without one."""

    name: str
    """Problem of the row, with the range of m that it serves."""
    differences: tuple[str, ...]
    """Facts that differ, each with both values; none if the row itself would serve the product."""

    def __str__(self) -> str:
        """Return a text such as `nearest row 16x4096x4096:bf16:nt: dtype bf16, here fp16`."""
        return f"nearest row {self.name}{': ' if self.differences else ''}{'; '.join(self.differences)}"


@dataclass(frozen=True, slots=True)
class ProductUse:
    """Use of the table by one compiled product."""

    problem: str
    """Name of the problem, which `gemmtune tune --problem` takes; the operation if the product is no problem."""
    outcome: str
    """Kind of use: `row`, `aten row`, `next choice`, `unused row`, `miss`, `no problem`, `other device`, `failed`."""
    detail: str
    """Row that serves the product, or the reason why none does."""
    nearest: NearestRow | None = None
    """Row that is most like a product without one; None in an empty table."""

    def __str__(self) -> str:
        """Return one line for a log."""
        return f"{self.problem}: {self.outcome}, {self.detail}{'' if self.nearest is None else f'; {self.nearest}'}"


@dataclass(frozen=True, slots=True)
class TableUse:
    """Use of a table by all products that were compiled since it was installed."""

    counts: Mapping[ProductUse, int]
    """Number of compiled products per use, in the order of their first compilation."""
    device: str
    """Name of the table's GPU."""
    unused: str = ""
    """Reason why this torch can use no table; empty where it can."""

    @property
    def products(self) -> int:
        """Number of compiled products."""
        return sum(self.counts.values())

    @property
    def misses(self) -> tuple[str, ...]:
        """Names of the problems without a row, each once, ready for `gemmtune tune --problem`."""
        return tuple(dict.fromkeys(use.problem for use in self.counts if use.outcome == "miss"))

    def count(self, outcome: str) -> int:
        """Return the number of compiled products with an outcome of `ProductUse`."""
        return sum(number for use, number in self.counts.items() if use.outcome == outcome)

    def to_dict(self) -> dict[str, object]:
        """Return counts, misses and uses as values that JSON can hold."""
        return {
            "products": self.products,
            "rows": self.count("row"),
            "aten_rows": self.count("aten row"),
            "next_choices": self.count("next choice"),
            "unused_rows": self.count("unused row"),
            "without_row": self.count("miss"),
            "no_problem": self.count("no problem"),
            "other_device": self.count("other device"),
            "failed": self.count("failed"),
            "device": self.device,
            "unused": self.unused,
            "misses": list(self.misses),
            "uses": [
                {
                    "problem": use.problem,
                    "outcome": use.outcome,
                    "detail": use.detail,
                    "nearest": use.nearest and {"row": use.nearest.name, "differences": [*use.nearest.differences]},
                    "count": number,
                }
                for use, number in self.counts.items()
            ],
        }

    def __str__(self) -> str:
        """Return the counts, each product with its row, and the command that tunes the misses."""
        if self.unused:
            return f"no table is used, and torch compiles as without one: {self.unused}"
        if not self.counts:
            return "no product was compiled since install: torch compiled nothing, or took it from its caches"
        counts = [f"{self.count(outcome)} {text}" for outcome, text in _OUTCOMES.items() if self.count(outcome)]
        products = f"{self.products} product{'s' * (self.products > 1)}"
        lines = [f"{products} compiled: {', '.join(counts)}"]
        if self.count("other device") == self.products:
            where = " and ".join(dict.fromkeys(use.detail.removeprefix("on ") for use in self.counts))
            was = "were" if self.products > 1 else "was"
            lines = [f"{products} {was} compiled for {where}; the table is for {self.device}"]
        lines += [f"  {use}{f' ({number} times)' if number > 1 else ''}" for use, number in self.counts.items()]
        if self.misses:
            lines.append("to tune: gemmtune tune " + " ".join(f"--problem {shlex.quote(name)}" for name in self.misses))
        return "\n".join(lines)


class UseLog:
    """Uses of one installed table, by all threads of the process."""

    def __init__(self, device: str, unused: str = "") -> None:
        """Begin without a use.

        Args:
            device: name of the table's GPU.
            unused: reason why this torch can use no table; empty where it can.
        """
        self._device, self.unused = device, unused
        self._lock = Lock()
        self._counts: Counter[ProductUse] = Counter()
        self._graphs: WeakKeyDictionary[object, list[ProductUse]] = WeakKeyDictionary()

    def add(self, graph: object, use: ProductUse) -> bool:
        """Record a product of a graph, and return whether it is the graph's first one; never without a graph."""
        with self._lock:
            self._counts[use] += 1
            if graph is None:
                return False
            uses = self._graphs.setdefault(graph, [])
            uses.append(use)
            return len(uses) == 1

    def end(self, graph: object) -> tuple[ProductUse, ...]:
        """Forget a graph and return the uses of its products."""
        with self._lock:
            return tuple(self._graphs.pop(graph, ()))

    def report(self) -> TableUse:
        """Return all uses up to now."""
        with self._lock:
            return TableUse(dict(self._counts), self._device, self.unused)


class _Kind(NamedTuple):
    """Parts of a product's key."""

    op: str
    dtype: str
    layout: str
    batch: int
    n: int
    k: int
    dynamic: bool
    epilogue: str

    @property
    def facts(self) -> dict[str, object]:
        """Values to compare with another product's, by their names in a message."""
        m = "dynamic" if self.dynamic else "static"
        dtype = DTYPE_NAMES.get(self.dtype, self.dtype)
        sizes = {"batch": self.batch, "n": self.n, "k": self.k}
        facts = {"operation": self.op, "dtype": dtype, "layout": self.layout, **sizes, "kind of m": m}
        return {**facts, "epilogue": self.epilogue or "none"}


def problem_name(key: str, m: int) -> str:
    """Return the problem of a product at `m`, as text that `Problem.parse` reads."""
    kind = _parsed(key)
    epilogue = f":epilogue={kind.epilogue}" if kind.epilogue else ""
    batch = f"{kind.batch}x" if kind.op == "bmm" else ""
    op = "" if kind.op == "mm" else f":{kind.op}"
    dtype, dynamic = DTYPE_NAMES.get(kind.dtype, kind.dtype), ":dynamic_m=true" if kind.dynamic else ""
    return f"{batch}{m}x{kind.n}x{kind.k}:{dtype}:{kind.layout}{op}{dynamic}{epilogue}"


def row_name(key: str, row: ProductRow) -> str:
    """Return the problem of a row, with the range of m that the row serves."""
    return problem_name(key, row.last) + (f" (m {row.first} to {row.last})" if row.first < row.last else "")


def nearest_row(rows: Mapping[str, Sequence[ProductRow]], key: str, m: int) -> NearestRow | None:
    """Return the row with the fewest differing facts, then the nearest sizes; None if there are no rows.

    Args:
        rows: rows of a table by product.
        key: product to compare with.
        m: rows of the product's first factor.
    """
    wanted = _parsed(key)
    kinds = {other: _parsed(other) for other, its in rows.items() if its}
    ranked = {other: _distance(wanted, kind) for other, kind in kinds.items()}
    if not ranked:
        return None
    fewest = min(count for count, _ in ranked.values())
    # A product with one differing fact more may have a row that serves this very m.
    near = [other for other, (count, _) in ranked.items() if count <= fewest + 1]
    candidates = ((other, row) for other in near for row in rows[other])

    def distance(candidate: tuple[str, ProductRow]) -> tuple[int, float, str, int]:
        other, row = candidate
        (count, sizes), away = ranked[other], _away(row, m)
        return count + (away > 0), sizes + away, other, row.last

    other, row = min(candidates, key=distance)
    here = wanted.facts
    differences = [
        f"{name} {fact}, here {here[name]}" for name, fact in kinds[other].facts.items() if fact != here[name]
    ]
    if _away(row, m):
        served = str(row.first) if row.first == row.last else f"{row.first} to {row.last}"
        differences.append(f"m {served}, here {m}")
    return NearestRow(row_name(other, row), tuple(differences))


def _parsed(key: str) -> _Kind:
    op, dtype, layout, sizes, bias, kind, *epilogue = key.split(":")
    batch, n, k = map(int, sizes.split("x"))
    return _Kind(
        f"{op}:bias=matrix" if bias == "matrix" else op,
        dtype,
        layout,
        batch,
        n,
        k,
        kind == "dynamic",
        "".join(epilogue),
    )


def _distance(wanted: _Kind, other: _Kind) -> tuple[int, float]:
    """Return the number of differing facts, and the difference of the sizes in powers of 2."""
    count = sum(one != two for one, two in zip(wanted, other, strict=True))
    sizes = ((wanted.batch, other.batch), (wanted.n, other.n), (wanted.k, other.k))
    return count, sum(abs(log2(max(one, 1) / two)) for one, two in sizes)


def _away(row: ProductRow, m: int) -> float:
    """Return the distance of a row's sizes from `m` in powers of 2; 0 if the row serves it."""
    return abs(log2(min(max(m, row.first), row.last) / max(m, 1)))
