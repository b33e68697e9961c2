"""Products of a model, and the campaign that tunes them."""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmtune.engine.io.printing import one_line
from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.stated import STATED

BUDGET = 24
"""Evaluations per captured product; experiments/models says what more of them gain."""

_STEP = 4  # ratio of neighbouring sizes that stand for a range
_APART = 2  # least ratio of such a size to both ends
_NO_END = 8192  # largest m that stands for a range without an end
_FEW_ROWS = 64  # largest m of the space cute_splitk
_UNREADABLE = "unreadable: "  # beginning of what the recorder writes for an epilogue without a text


@dataclass(frozen=True, slots=True)
class CapturedProduct:
    """Product that a model runs, as a problem to tune."""

    problem: Problem
    """Problem at the m that torch saw first; its weight is 1."""
    count: float
    """Runs per call of the model, or in a recorded program."""
    m: str = ""
    """Rows of the first factor as torch's expression of the sizes that are left open; empty if m is fixed."""
    first: int = 0
    """Least m of a product whose m is open."""
    last: int | None = None
    """Greatest m of a product whose m is open; None without an end."""
    step: int = 1
    """Divisor of every m of a product whose m is open."""
    epilogues: tuple[tuple[str, float], ...] = ()
    """Chains that Inductor can fuse behind the product, each with its runs; empty without one."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of m to tune: the problem's own, or a few that span the range."""
        if not self.m:
            return (self.problem.m,)
        last = max(self.first, _NO_END) if self.last is None else self.last
        powers = (size for e in range(32) if _APART * self.first <= (size := _STEP**e) <= last / _APART)
        fitted = {max(self.step, size // self.step * self.step) for size in (self.first, *powers, last)}
        return tuple(sorted(size for size in fitted if self.first <= size <= last)) or (self.problem.m,)

    @property
    def variants(self) -> tuple[CapturedProduct, ...]:
        """Product with each of its epilogues as part of the problem, and without one for the other runs, if any."""
        fused, left, unreadable = [], self.count, []
        for chain, count in self.epilogues:
            if chain.startswith(_UNREADABLE):
                unreadable.append((chain, count))
            else:
                epilogue = parse_epilogue(chain)
                fused.append(replace(self, problem=replace(self.problem, epilogue=epilogue), count=count, epilogues=()))
                left -= count
        return (*fused, *([replace(self, count=left, epilogues=tuple(unreadable))] if left > 0 else []))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems to tune, which share the product's runs as their weight."""
        return tuple(
            replace(variant.problem, m=m, weight=variant.count / len(self.sizes))
            for variant in self.variants
            for m in self.sizes
        )


@dataclass(frozen=True, slots=True)
class Unseen:
    """Work of a model that no row of a table can serve."""

    operation: str
    """Operation by its name in torch."""
    reason: str
    """Reason why it is no problem."""
    count: float
    """Runs per call of the model, or in a recorded program."""


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """Call of a model, and how much of the products is its."""

    name: str
    """Text of the call's inputs."""
    weight: float
    """How often the model is called so, against its other calls."""
    products: int
    """Number of distinct products of the call."""
    runs: float
    """Runs of products per call, without the weight."""


@dataclass(frozen=True, slots=True)
class Captured:
    """Every distinct product that a model runs."""

    products: Sequence[CapturedProduct]
    """Distinct products, in the order in which they were lowered."""
    unseen: Sequence[Unseen]
    """Work that no row can serve, most frequent first."""
    source: str
    """Text that says how the products were found."""
    torch: str = ""
    """Version of torch that lowered the model; empty for a recorded program."""
    compiled: Mapping[str, int] = field(default_factory=dict)
    """Compiled occurrences by the name of the problem: code that runs four times is compiled once. Empty for a recorded
    program."""
    calls: Sequence[CapturedCall] = ()
    """Calls whose products are merged, in their order; empty for a recorded program."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems to tune, each once, with its runs as weight."""
        return tuple(problem for product in self.products for problem in product.problems)

    @property
    def has_open_sizes(self) -> bool:
        """Whether a product has an open m, so that its rows serve ranges of m."""
        return any(product.m for product in self.products)

    def to_toml(self) -> str:
        """Return the campaign file that tunes the products, for a person: texts of a recording stand in comments."""
        comments = [self.source, *([f"Lowered by torch {self.torch}."] if self.torch else [])]
        runs = sum(product.count for product in self.products)
        comments.append(f"Distinct products: {len(self.products)}, with {runs:g} runs.")
        if len(self.calls) > 1:
            comments += [
                f"Call {each.name}, weight {each.weight:g}: {each.products} products, {each.runs:g} runs."
                for each in self.calls
            ]
        comments += [f"Not to be tuned, {each.count:g} times: {each.operation} ({each.reason})" for each in self.unseen]
        lines = [*map(_comment, comments), "", f"budget = {BUDGET}"]
        if self.has_open_sizes:
            lines += ["", "# Products with an open m get rows for ranges of m.", "ranges = true"]
        if any(product.problem.m <= _FEW_ROWS for product in self.products):
            lines += ["", "# On Hopper and Blackwell, kernels for few rows are often faster; they need the extra cute."]
            lines += ['# space = ["triton_mm", "cute_gemv", "cute_splitk"]']
        if not self.products:
            lines += ["", "problems = []"]
        for variant in (variant for product in self.products for variant in product.variants):
            lines += ["", *_table(variant)]
        return "\n".join(lines) + "\n"


def merged(
    products: Iterable[CapturedProduct],
    unseen: Iterable[Unseen],
    add: Callable[[float, float], float] = operator.add,
) -> tuple[list[CapturedProduct], list[Unseen]]:
    """Join equal products, and equal work that is not to be tuned; `add` joins the runs of two that are equal."""
    found: dict[tuple[str, bool], CapturedProduct] = {}
    for each in products:
        is_open = bool(each.m)
        key = (replace(each.problem, m=1).name if is_open else each.problem.name, is_open)
        found[key] = _joined(found[key], each, add) if key in found else each
    counts: dict[tuple[str, str], float] = {}
    for work in unseen:
        name = (work.operation, work.reason)
        counts[name] = add(counts[name], work.count) if name in counts else work.count
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return list(found.values()), [Unseen(operation, reason, count) for (operation, reason), count in ordered]


def scaled(captured: Captured, factor: float) -> Captured:
    """Return a capture with its runs times a factor."""
    products = [
        replace(
            each,
            count=each.count * factor,
            epilogues=tuple((chain, count * factor) for chain, count in each.epilogues),
        )
        for each in captured.products
    ]
    unseen = [replace(each, count=each.count * factor) for each in captured.unseen]
    return replace(captured, products=products, unseen=unseen)


def added(parts: Sequence[Captured]) -> Captured:
    """Return the capture whose products are those of all parts; runs of equal ones add up, and those with 0 runs go."""
    products, unseen = merged(
        (product for part in parts for product in part.products), (work for part in parts for work in part.unseen)
    )
    compiled: Counter[str] = Counter()
    for part in parts:
        compiled.update(part.compiled)
    return replace(
        parts[0],
        products=[each for each in products if each.count],
        unseen=[each for each in unseen if each.count],
        compiled=compiled,
        calls=[call for part in parts for call in part.calls],
    )


def merged_calls(parts: Sequence[Captured]) -> Captured:
    """Return the capture of all calls of a model, of a part per call, whose runs count by the call's weight."""
    weights = [call.weight for part in parts for call in part.calls]
    return parts[0] if weights == [1] else added([scaled(*each) for each in zip(parts, weights, strict=True)])


def _joined(one: CapturedProduct, other: CapturedProduct, add: Callable[[float, float], float]) -> CapturedProduct:
    """Return a product with the runs, the chains and the range of two."""
    ends = [product.last for product in (one, other)]
    chains = dict(one.epilogues)
    for chain, count in other.epilogues:
        chains[chain] = add(chains[chain], count) if chain in chains else count
    return replace(
        one,
        count=add(one.count, other.count),
        first=min(one.first, other.first),
        last=None if None in ends else max(end for end in ends if end is not None),
        step=min(one.step, other.step),
        epilogues=tuple(chains.items()),
    )


def _table(product: CapturedProduct) -> list[str]:
    """Return the lines of a `[[problem]]`, without the fields that have their default."""
    implied: Mapping[str, str] = Problem.parse(f"1x{product.problem.n}x{product.problem.k}").to_fields()
    fields = product.problem.to_fields()
    kept = {
        name: text for name, text in fields.items() if name in ("n", "k") or (name != "m" and text != implied.get(name))
    }
    sizes = list(product.sizes)
    open_m = f", m from {product.first} to {'any size' if product.last is None else product.last}" if product.m else ""
    comments = [f"{product.problem.name}, {product.count:g} run{'' if product.count == 1 else 's'}{open_m}"]
    comments += [f"{count:g} of them with the epilogue {chain}" for chain, count in product.epilogues]
    lines = [*map(_comment, comments), "[[problem]]"]
    lines.append(f"m = {sizes[0] if len(sizes) == 1 else sizes}")
    lines += [f"{name} = {_toml(name, text)}" for name, text in kept.items()]
    lines.append(f"weight = {product.count / len(sizes):.6g}")
    return lines


def _comment(text: str) -> str:
    return f"# {one_line(text)}"


def _toml(name: str, text: str) -> str:
    return text if name in ("n", "k", "batch", "dynamic_m", "allow_tf32", *STATED) else json.dumps(text)
