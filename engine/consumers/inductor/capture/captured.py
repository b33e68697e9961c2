"""Products of a model, and the campaign that tunes them."""

from __future__ import annotations

import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmtune.engine.consumers.inductor.floor.shares import Cost, Floor, Kind, Work, floor_of
from gemmtune.engine.io.printing import one_line
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE
from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.flex.attention_text import SIZES
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.stated import STATED
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.workload import Workload, spanning, summed

BUDGET = 24
"""Evaluations per captured product; experiments/models says what more of them gain."""

ROUTING = (
    "No capture knows how rows spread over groups: the routing of a grouped product is uniform until you write zipf, "
    "zipf(1.2) or counts(A.B.C…)."
)
"""Sentence on what a capture leaves to the user."""

_BLOCKS = ("block_q", "block_kv")
_NO_TEXTS = ("m", "n", "k", "groups", "batch", "dynamic_m", "allow_tf32", *STATED, *SIZES.values(), *_BLOCKS)
_FEW_ROWS = 64  # largest m of the space cute_splitk
PRODUCTS = (  # of ATen, without an underscore in front
    *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot"),
    *("int_mm", "scaled_mm", "scaled_mm_v2", "grouped_mm", "scaled_grouped_mm", "scaled_grouped_mm_v2"),
)
_REST = "everything else"
_INDUCTORS = "kernels that Inductor writes"
_UNREADABLE = "unreadable: "  # beginning of what the recorder writes for an epilogue without a text


@dataclass(frozen=True, slots=True)
class CapturedProduct:
    """Product that a model runs, as a problem to tune."""

    problem: Problem | Grouped | Flex
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

    def times(self, factor: float) -> CapturedProduct:
        """Return the product with its runs times a factor."""
        chains = tuple((chain, count * factor) for chain, count in self.epilogues)
        return replace(self, count=self.count * factor, epilogues=chains)

    @property
    def work(self) -> Work:
        """Runs by their cost, without what can be fused behind the product, at the m that torch saw first."""
        whole = self.problem
        plain = replace(whole, epilogue=NO_EPILOGUE) if isinstance(whole, Problem) else whole
        cost = Cost(plain.flops, plain.min_bytes, plain.compute_type)
        return Work(whole.name, Kind.ATTENTION if isinstance(whole, Flex) else Kind.PRODUCT, {cost: self.count})

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of the range size to tune: the problem's own, or a few that span the range."""
        if not self.m:
            return (self.problem.size,)
        return spanning(self.first, self.last, self.step) or (self.problem.size,)

    @property
    def variants(self) -> tuple[CapturedProduct, ...]:
        """Product with each of its epilogues as part of the problem, and without one for the other runs, if any."""
        fused, left, unreadable = [], self.count, []
        for chain, count in self.epilogues:
            if chain.startswith(_UNREADABLE):
                unreadable.append((chain, count))
            else:
                problem = replace(gemm(self.problem), epilogue=parse_epilogue(chain))
                fused.append(replace(self, problem=problem, count=count, epilogues=()))
                left -= count
        return (*fused, *([replace(self, count=left, epilogues=tuple(unreadable))] if left > 0 else []))

    @property
    def problems(self) -> tuple[Problem | Grouped | Flex, ...]:
        """Problems to tune, which share the product's runs as their weight."""
        return tuple(
            variant.problem.resized(m, variant.count / len(self.sizes)) for variant in self.variants for m in self.sizes
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
    costs: Mapping[Cost, float] = field(default_factory=dict)
    """Runs by what one costs; empty in a recorded program."""

    def times(self, factor: float) -> Unseen:
        """Return the work with its runs times a factor."""
        costs = {cost: runs * factor for cost, runs in self.costs.items()}
        return replace(self, count=self.count * factor, costs=costs)

    @property
    def work(self) -> Work:
        """Runs by their cost, with the reason why no row can serve them."""
        name = self.operation.partition(".")[2] or self.operation
        is_product = name.partition(".")[0].partition("[")[0].lstrip("_") in PRODUCTS
        kind = Kind.ATTENTION if "attention" in name else Kind.PRODUCT if is_product else Kind.LIBRARY
        return Work(self.operation, kind, self.costs, self.reason)


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """Call of a model, and how much of the products is its."""

    name: str
    """Text of the call's inputs."""
    weight: float
    """Call frequency, relative to the model's other calls."""
    products: int
    """Number of distinct products of the call."""
    runs: float
    """Runs of products per call, without the weight."""
    floor_ns: float | None = None
    """Least time per call on the GPU; None where nobody knows it."""
    servable: float | None = None
    """Fraction of the least time that rows of a table can serve; None where nobody knows it."""


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
    rest_bytes: float = 0.0
    """Bytes that everything but products and kernels of others moves at least, per call of the model."""
    device: Device | None = None
    """GPU that the model was lowered for; None for a recorded program."""
    layers: Sequence[Workload] = ()
    """Problems of other kinds than a GEMM, which a file of another tool names."""

    @property
    def _to_tune(self) -> tuple[Problem | Grouped | Flex, ...]:
        """Products to tune as problems, each once, with its runs as weight."""
        return summed(problem for product in self.products for problem in product.problems)

    @property
    def problems(self) -> tuple[Workload, ...]:
        """Problems to tune, each once, with its runs as weight."""
        return (*self._to_tune, *self.layers)

    @property
    def has_open_sizes(self) -> bool:
        """Whether a product has an open m, so that its rows serve ranges of m."""
        return any(product.m for product in self.products)

    @property
    def floor(self) -> Floor | None:
        """Least time of the model on its GPU, by product and kernel; None for a recorded program.

        Calls of several weights are added up by these.
        """
        if self.device is None:
            return None
        rest = Work(_REST, Kind.REST, {Cost(0.0, self.rest_bytes): 1.0}, _INDUCTORS)
        works = [*(each.work for each in self.products), *(each.work for each in self.unseen), rest]
        return floor_of(works, self.device)

    def to_toml(self) -> str:
        """Return the campaign file that tunes the products, for a person: texts of a recording stand in comments."""
        comments = [self.source, *([f"Lowered by torch {self.torch}."] if self.torch else [])]
        runs = sum(product.count for product in self.products)
        comments.append(f"Distinct products: {len(self.products)}, with {_times(runs, 'run')}.")
        if len(self.calls) > 1:
            comments += [
                f"Call {x.name}, weight {x.weight:g}: {_times(x.products, 'product')}, {_times(x.runs, 'run')}."
                for x in self.calls
            ]
        comments += [
            f"Not to be tuned, {_times(each.count, 'time')}: {each.operation} ({each.reason})" for each in self.unseen
        ]
        lines = [*map(_comment, comments), "", f"budget = {BUDGET}"]
        if self.has_open_sizes:
            lines += ["", "# Products with an open m get rows for ranges of m.", "ranges = true"]
        if any(isinstance(its.problem, Problem) and its.problem.m <= _FEW_ROWS for its in self.products):
            lines += ["", "# On Hopper and Blackwell, kernels for few rows are often faster; they need the extra cute."]
            lines += ['# space = ["triton_mm", "cute_gemv", "cute_splitk"]']
        if any(isinstance(its.problem, Grouped) for its in self.products):
            lines += ["", f"# {ROUTING}"]
        if self.layers or not self.products:
            lines += ["", "problems = [", *(f"    {json.dumps(each.name)}," for each in self.layers), "]"]
        weights = {problem: problem.weight for problem in self._to_tune}
        for variant in (variant for product in self.products for variant in product.variants):
            lines += _tables(variant, weights)
        return "\n".join(lines) + "\n"


def merged(
    products: Iterable[CapturedProduct], unseen: Iterable[Unseen], add: Callable[[float, float], float] = operator.add
) -> tuple[list[CapturedProduct], list[Unseen]]:
    """Join equal products, and equal work that is not to be tuned; `add` joins the runs of two that are equal."""
    found: dict[tuple[str, bool], CapturedProduct] = {}
    for each in products:
        key = (each.problem.resized(1) if each.m else each.problem).name, bool(each.m)
        found[key] = _joined(found[key], each, add) if key in found else each
    works: dict[tuple[str, str], Unseen] = {}
    for work in unseen:
        name = (work.operation, work.reason)
        works[name] = _joined_work(works[name], work, add) if name in works else work
    return list(found.values()), sorted(works.values(), key=lambda work: (-work.count, work.operation, work.reason))


def _joined_work(one: Unseen, other: Unseen, add: Callable[[float, float], float]) -> Unseen:
    """Return work with the runs of two; where `add` takes those of one, with its costs."""
    count = add(one.count, other.count)
    if count in (one.count, other.count):
        return one if count == one.count else other
    costs = Counter(one.costs)
    costs.update(other.costs)
    return replace(one, count=count, costs=dict(costs))


def scaled(captured: Captured, factor: float) -> Captured:
    """Return a capture with its runs times a factor."""
    products = [each.times(factor) for each in captured.products]
    unseen = [each.times(factor) for each in captured.unseen]
    rest = captured.rest_bytes * factor
    return replace(captured, products=products, unseen=unseen, rest_bytes=rest)


def added(parts: Sequence[Captured]) -> Captured:
    """Return the capture whose products are those of all parts; runs of equal ones add up, and those with 0 runs go."""
    products, unseen = merged(
        (product for part in parts for product in part.products), (work for part in parts for work in part.unseen)
    )
    return replace(
        parts[0],
        products=[each for each in products if each.count],
        unseen=[each for each in unseen if each.count],
        compiled=sum((Counter(part.compiled) for part in parts), Counter()),
        calls=[call for part in parts for call in part.calls],
        rest_bytes=sum(part.rest_bytes for part in parts),
    )


def merged_calls(parts: Sequence[Captured]) -> Captured:
    """Return the capture of all calls of a model, of a part per call, whose runs count by the call's weight."""
    parts = [replace(part, calls=[_with_floor(call, part.floor) for call in part.calls]) for part in parts]
    weights = [call.weight for part in parts for call in part.calls]
    return parts[0] if weights == [1] else added([scaled(*each) for each in zip(parts, weights, strict=True)])


def _with_floor(call: CapturedCall, floor: Floor | None) -> CapturedCall:
    return call if floor is None else replace(call, floor_ns=floor.total_ns, servable=floor.servable)


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
        step=math.gcd(one.step, other.step),
        epilogues=tuple(chains.items()),
    )


def _tables(product: CapturedProduct, weights: dict[Problem | Grouped | Flex, float]) -> list[str]:
    """Return the lines of a `[[problem]]` per weight of the product's sizes, and take the weights of these.

    Fields that have their default are left out, and sizes whose weight another product has taken. A grouped product has
    its routing for the user to change.
    """
    problem = product.problem
    sizes_of: dict[float, list[int]] = {}
    for size in product.sizes:
        if (weight := weights.pop(problem.resized(size), None)) is not None:
            sizes_of.setdefault(weight, []).append(size)
    listed = list(sizes_of.items())
    fields, implied = problem.to_fields(), dict[str, str]()
    if not isinstance(problem, Problem):
        fields = {"kind": problem.kind, **{name: text for name, text in fields.items() if text}}
        if fields.get("dynamic") == "s":  # queries are as many as keys
            del fields["queries"]
        if isinstance(problem, Flex):  # its range size has no name, and the size is 1
            listed = [(weight, [size]) for weight, sizes in listed for size in sizes]
    else:
        implied = dict(Problem.parse(f"1x{problem.n}x{problem.k}").to_fields())
    named = problem.range_size
    kept = {
        name: text
        for name, text in fields.items()
        if name in ("m", "n", "k") or text != implied.get(name, "")
        if name != named
    }
    open_size = f", {named} from {product.first} to {product.last or 'any size'}" if product.m else ""
    comments = [f"{problem.name}, {_times(product.count, 'run')}{open_size}"]
    comments += [f"{count:g} of them with the epilogue {chain}" for chain, count in product.epilogues]
    lines: list[str] = []
    for weight, sizes in listed:
        lines += ["", *map(_comment, comments), "[[problem]]"]
        lines += [f"{named} = {sizes[0] if len(sizes) == 1 else sizes}"] if named else []
        texts = (f"{name} = {text if name in _NO_TEXTS else json.dumps(text)}" for name, text in kept.items())
        lines += [*texts, f"weight = {weight:.6g}"]
    return lines


def _times(number: float, thing: str) -> str:
    return f"{number:g} {thing}{'' if number == 1 else 's'}"


def _comment(text: str) -> str:
    return f"# {one_line(text)}"
