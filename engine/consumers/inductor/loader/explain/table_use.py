"""Rows that compiled products use, and problems without a row. Needs the standard library alone."""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from threading import Lock
from weakref import WeakKeyDictionary

from gemmtune.engine.consumers.inductor.loader.loader_rows import DTYPE_NAMES
from gemmtune.engine.records.flex.attention_text import with_length

_EXACT = "exact"
_GROUPED = "grouped_"  # before the form of a grouped product, whose sizes are groups, n and k, or m with the form inner
_SCALES = "mul(column[fp32]).mul(row[fp32])"
"""Scales of every grouped product of 8-bit floats, which keys leave out."""
_USUAL_BIAS = {"addmm": "vector", "baddbmm": "matrices"}
"""Biases that a problem's text leaves out, by the operation."""
LIBRARY = "a library's kernel"
"""Reason why no row serves a call of a kernel that is neither Inductor's nor a product's."""
_OUTCOMES = {
    "row": ("rows", "run a row's kernel"),
    "aten row": ("aten_rows", "run ATen because a row says so"),
    "next choice": ("next_choices", "run a row's next choice, because its CuTe kernel cannot run here"),
    "unused row": ("unused_rows", "have a row that cannot be used here"),
    "miss": ("without_row", "have no row"),
    "no problem": ("no_problem", "are no problem that can be tuned"),
    "other device": ("other_device", "are for another device than a GPU"),
    "failed": ("failed", "run as without a table, because the loader failed"),
}
"""Kinds of use, with the names of their counts and their words in a report."""


@dataclass(frozen=True, slots=True)
class ProductUse:
    """Use of the table by one compiled product."""

    problem: str
    """Name of the problem, which `gemmtune tune --problem` takes; the operation if the product is no problem."""
    outcome: str
    """Kind of use: `row`, `aten row`, `next choice`, `unused row`, `miss`, `no problem`, `other device`, `failed`."""
    detail: str
    """Row that serves the product, or the reason why none does."""

    def __str__(self) -> str:
        """Return one line for a log."""
        return f"{self.problem}: {self.outcome}, {self.detail}"


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
            **{name: self.count(outcome) for outcome, (name, _) in _OUTCOMES.items()},
            "device": self.device,
            "unused": self.unused,
            "misses": list(self.misses),
            "uses": [{**asdict(use), "count": number} for use, number in self.counts.items()],
        }

    def __str__(self) -> str:
        """Return the counts, each product with its row, and the command that tunes the misses."""
        if self.unused:
            return f"no table is used, and torch compiles as without one: {self.unused}"
        if not self.counts:
            none = "no product was compiled since install: torch compiled nothing, or took it from its caches"
            return f"{none}; the table is for {self.device}"
        counts = [f"{self.count(outcome)} {text}" for outcome, (_, text) in _OUTCOMES.items() if self.count(outcome)]
        products, was = f"{self.products} product{'s' * (self.products > 1)}", "were" if self.products > 1 else "was"
        lines = [f"{products} compiled: {', '.join(counts)}"]
        if self.count("other device") == self.products:
            where = " and ".join(dict.fromkeys(use.detail.removeprefix("on ") for use in self.counts))
            lines = [f"{products} {was} compiled for {where}; the table is for {self.device}"]
        lines += [f"  {use}{f' ({number} times)' if number > 1 else ''}" for use, number in self.counts.items()]
        if self.misses:
            lines.append("to tune: gemmtune tune " + " ".join(f"--problem {shlex.quote(name)}" for name in self.misses))
        return "\n".join(lines)


class UseLog:
    """Uses of one installed table, by all threads of the process."""

    def __init__(self, device: str, unused: str = "") -> None:
        """Begin without a use; `device` and `unused` are those of `TableUse`."""
        self._device, self._unused = device, unused
        self._lock = Lock()
        self._counts: Counter[ProductUse] = Counter()
        self._graphs: WeakKeyDictionary[object, list[ProductUse]] = WeakKeyDictionary()

    def add(self, graph: object, use: ProductUse) -> bool:
        """Record a product of a graph, and return whether it is the graph's first one; never without a graph."""
        with self._lock:
            self._counts[use] += 1
            uses = [] if graph is None else self._graphs.setdefault(graph, [])
            uses.append(use)
            return graph is not None and len(uses) == 1

    def end(self, graph: object) -> tuple[ProductUse, ...]:
        """Forget a graph and return the uses of its products."""
        with self._lock:
            return tuple(self._graphs.pop(graph, ()))

    def report(self) -> TableUse:
        """Return all uses up to now."""
        with self._lock:
            return TableUse(dict(self._counts), self._device, self._unused)


def problem_name(key: str, m: int) -> str:
    """Return the problem of a product at `m`, as text that `Problem.parse` reads; that of attention at a length."""
    if key.startswith("flex:"):
        return with_length(key, m)
    op, dtype, layout, sizes, bias, kind, *further = key.split(":")
    batch, n, k = sizes.split("x")
    dtype, *facts = dtype.split("_")
    if op.startswith(_GROUPED):
        form = op.removeprefix(_GROUPED)
        rows, summed = (k, m) if form == "inner" else (m, k)
        scales = "" if dtype in DTYPE_NAMES else f":epilogue={_SCALES}{f':accumulation={_EXACT}' * (_EXACT in facts)}"
        return f"grouped:{form}:m{rows}:g{batch}:n{n}:k{summed}:{DTYPE_NAMES.get(dtype, dtype)}:{layout}{scales}"
    parts = [
        f"{f'{batch}x' if op in ('bmm', 'baddbmm') else ''}{m}x{n}x{k}",
        DTYPE_NAMES.get(dtype, dtype),
        layout,
        *([op] if op not in ("mm", "scaled_mm", "int_mm") else []),
        *(
            f"{'out' if fact in DTYPE_NAMES else 'b'}_dtype={DTYPE_NAMES.get(fact, fact)}"
            for fact in facts
            if fact != _EXACT
        ),
        *([f"bias={bias}"] if bias != _USUAL_BIAS.get(op, "none") else []),
        *(["dynamic_m=true"] if kind == "dynamic" else []),
        *(text if "=" in text else f"epilogue={text}" for text in further),
        *(f"accumulation={_EXACT}" for fact in facts if fact == _EXACT),
    ]
    return ":".join(parts)
