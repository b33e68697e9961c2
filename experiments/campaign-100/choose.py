"""Draws the 100 problems and the 12 whose truth is swept, and writes campaign.toml. Usage: choose.py [--check].

The rule: a problem is a weight of shapes.csv at one m. For each m, in order, the drawn weight is the one whose kind of
layer, then size, then model, then tensor-parallel degree has been drawn least so far; a shuffle by a fixed seed decides
between equals. Left out is what is drawn already (several models share a size), and what one launch would take more
than half a millisecond for. The 12 are drawn from the 100 in the same way, at m that lie evenly in each range. Nothing
that was measured has a say.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import enumerate_space

HERE = Path(__file__).parent
SEED = 100
RANGES = {"decode": (1, 2, 4, 8, 16, 32, 64), "medium": (128, 256, 512), "prefill": (1024, 2048, 4096, 8192)}
OF_EACH_M = {"decode": 6, "medium": 10, "prefill": 7}
TRUTHS = {"decode": 5, "medium": 4, "prefill": 3}
"""As the 100 are spread over the ranges; the spaces are 348 configs at m = 1 and 5,373 at m = 8192."""
LONGEST_SECONDS = 0.5e-3
"""Of one launch. Timing a problem and holding its final take 10,000 times as long as one launch of its best kernel, or
longer, because the GPU rests for most of it (experiments/measurement): 5 s here, of 150 s for all."""
FLOPS_A_SECOND, BYTES_A_SECOND = 600e12, 4e12
BUDGET, BATCH = 24, 8

TIMES_A_LAUNCH = 10_000
"""Seconds of racing and finals over those of one launch: 7,000 to 11,000 where a launch takes 30 µs or more."""
EVALUATION_SECONDS = 2e-3  # the least: 370 to 700 configs a second
BUILDS_A_SECOND = {15: 25.0, 31: 50.0}
START_SECONDS = 8.0  # of a command, until its first build: assumed


@dataclass(frozen=True)
class Shape:
    """A row of shapes.csv."""

    model: str
    layer: str
    degree: int
    n: int
    k: int

    @property
    def kind(self) -> str:
        """qkv, o, gate_up or down; an expert's two products are a gate_up and a down."""
        name = self.layer.split()[0]
        return {"moe_w13": "gate_up", "moe_w2": "down"}.get(name, name)


@dataclass(frozen=True)
class Chosen:
    """A problem with where it comes from."""

    m: int
    shape: Shape

    @property
    def name(self) -> str:
        return f"{self.m}x{self.shape.n}x{self.shape.k}:bf16:nt"

    @property
    def range(self) -> str:
        return next(name for name, sizes in RANGES.items() if self.m in sizes)

    @property
    def launch_seconds(self) -> float:
        """What a launch takes at the rates assumed, 2 µs at the least."""
        m, n, k = self.m, self.shape.n, self.shape.k
        return max(2 * m * n * k / FLOPS_A_SECOND, 2 * (m * k + k * n + m * n) / BYTES_A_SECOND, 2e-6)


def shapes() -> list[Shape]:
    with (HERE / "shapes.csv").open(encoding="utf-8", newline="") as file:
        return [
            Shape(r["model"], r["layer"], int(r["tensor_parallel"]), int(r["n"]), int(r["k"]))
            for r in csv.DictReader(file)
        ]


def problems() -> list[Chosen]:
    """The 100, by m."""
    order, draw, names = shapes(), Draw(), set[str]()
    random.Random(SEED).shuffle(order)
    chosen = []
    for name, sizes in RANGES.items():
        for m in sizes:
            candidates = [Chosen(m, shape) for shape in order]
            for _ in range(OF_EACH_M[name]):
                open_to = [c for c in candidates if c.name not in names and c.launch_seconds <= LONGEST_SECONDS]
                chosen.append(draw.one(open_to))
                names.add(chosen[-1].name)
    return chosen


def truths() -> list[Chosen]:
    """The 12, in the order in which they are swept: the ranges in turns, so that a stop leaves some of each."""
    order, draw = problems(), Draw()
    random.Random(SEED).shuffle(order)
    drawn: dict[str, list[Chosen]] = {name: [] for name in RANGES}
    for name, number in TRUTHS.items():
        sizes = RANGES[name]
        for turn in range(number):
            m = sizes[round(turn * (len(sizes) - 1) / (number - 1))]
            drawn[name].append(draw.one([c for c in order if c.m == m and c not in drawn[name]]))
    return [of[turn] for turn in range(max(TRUTHS.values())) for of in drawn.values() if turn < len(of)]


class Draw:
    """Takes what has been drawn least, the first of equals."""

    def __init__(self) -> None:
        self._drawn = Counter[tuple[str, object]]()

    def one(self, candidates: Iterable[Chosen]) -> Chosen:
        found = min(candidates, key=self._often)
        self._drawn.update(_facts(found))
        return found

    def _often(self, c: Chosen) -> tuple[int, ...]:
        return tuple(self._drawn[fact] for fact in _facts(c))


def _facts(c: Chosen) -> tuple[tuple[str, object], ...]:
    """What is to be drawn evenly, the first above all."""
    shape = c.shape
    return ("kind", shape.kind), ("size", (shape.n, shape.k)), ("model", shape.model), ("degree", shape.degree)


def campaign_text(chosen: Sequence[Chosen]) -> str:
    lines = [
        "# Written by choose.py: 100 products of linear layers. The sizes are those of shapes.csv.",
        'space = "triton_mm"  # and aten, the baseline, as always',
        f"budget = {BUDGET}",
        f"batch = {BATCH}",
        "problems = [",
    ]
    lines += [f'    "{c.name}",  # {c.shape.model} {c.shape.layer}, tensor-parallel {c.shape.degree}' for c in chosen]
    return "\n".join([*lines, "]", ""])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="write nothing")
    given = arguments.parse_args()
    chosen, swept = problems(), truths()
    if not given.check:
        (HERE / "campaign.toml").write_text(campaign_text(chosen), encoding="utf-8")
    facts: dict[str, Callable[[Chosen], object]] = {
        "model": lambda c: c.shape.model,
        "layer": lambda c: c.shape.kind,
        "tensor-parallel": lambda c: c.shape.degree,
        "m": lambda c: c.m,
    }
    print(f"{len(chosen)} problems, {len({(c.shape.n, c.shape.k) for c in chosen})} weights")
    for name, of in facts.items():
        counts, truth_counts = Counter(map(of, chosen)), Counter(map(of, swept))
        print(f"{name}: " + ", ".join(f"{value} {counts[value]} ({truth_counts[value]})" for value in sorted(counts)))
    print("(in parentheses: of the 12)")
    estimates(chosen, swept)


def estimates(chosen: Sequence[Chosen], swept: Sequence[Chosen]) -> None:
    """What campaign and sweeps should cost, from the rates above."""
    launches = sum(c.launch_seconds for c in chosen)
    timing = TIMES_A_LAUNCH * launches + EVALUATION_SECONDS * BUDGET * len(chosen)
    print(
        f"one launch of each: {launches * 1e3:.2f} ms, the longest {max(c.launch_seconds for c in chosen) * 1e6:.0f} µs"
    )
    for name in RANGES:
        share = sum(c.launch_seconds for c in chosen if c.range == name) / launches
        print(f"  {name}: {share:.0%} of it")
    print(f"timing, rests included: about {timing:.0f} s of the GPU's worker")
    for builders, rate in BUILDS_A_SECOND.items():
        print(f"builds: {BUDGET * len(chosen) / rate:.0f} s on {builders} builders")
    space, device, total = registry.space("triton_mm"), catalogue.device("H200"), 0
    for c in swept:
        configs = len(enumerate_space(space, Task(Problem.parse(c.name), device, "triton_mm")).feasible)
        total += configs
        print(f"truth {c.name:<26} {configs:>5} configs  {c.shape.model} {c.shape.layer}, {c.shape.degree}")
    for builders, rate in BUILDS_A_SECOND.items():
        print(
            f"truths: {total} configs, {total / rate:.0f} s on {builders} builders, "
            f"and {START_SECONDS * len(swept):.0f} s of starting"
        )


if __name__ == "__main__":
    main()
