"""Draw the 100 problems and the 12 that are swept, and write campaign.toml. Usage: choose.py [--check].

A problem is a weight of shapes.csv at one m. For each m, in order, the script draws the weight whose properties were
drawn least so far: first the kind of layer, then size, model and tensor-parallel degree. A shuffle by a fixed seed
decides between equals. The script skips problems that are drawn already, because several models share a size, and those
with launches above half a millisecond. The 12 are drawn from the 100 in the same way, at m spread evenly over each
range. No measurement influences the draw.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SEED = 100
RANGES = {"decode": (1, 2, 4, 8, 16, 32, 64), "medium": (128, 256, 512), "prefill": (1024, 2048, 4096, 8192)}
OF_EACH_M = {"decode": 6, "medium": 10, "prefill": 7}
TRUTHS = {"decode": 5, "medium": 4, "prefill": 3}
"""Number of swept problems per range, in proportion to the 100; a space has 348 to 5,373 configs."""
LONGEST_SECONDS = 0.5e-3
"""Longest launch of a drawn problem, in seconds.

Timing a problem takes at least 10,000 times as long as one launch of its best kernel: the GPU rests for most of that
time; see experiments/measurement.
"""
FLOPS_A_SECOND, BYTES_A_SECOND = 600e12, 4e12
BUDGET, BATCH = 24, 8


@dataclass(frozen=True)
class Shape:
    """Row of shapes.csv: one weight of a model."""

    model: str
    layer: str
    degree: int
    n: int
    k: int

    @property
    def kind(self) -> str:
        """Kind of layer: qkv, o, gate_up or down; an expert's two products are a gate_up and a down."""
        name = self.layer.split()[0]
        return {"moe_w13": "gate_up", "moe_w2": "down"}.get(name, name)


@dataclass(frozen=True)
class Chosen:
    """Problem that was drawn, with its origin."""

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
        """Estimate the time of a launch from the assumed rates, in seconds; at least 2 µs."""
        m, n, k = self.m, self.shape.n, self.shape.k
        return max(2 * m * n * k / FLOPS_A_SECOND, 2 * (m * k + k * n + m * n) / BYTES_A_SECOND, 2e-6)


def shapes() -> list[Shape]:
    with (HERE / "shapes.csv").open(encoding="utf-8", newline="") as file:
        return [
            Shape(r["model"], r["layer"], int(r["tensor_parallel"]), int(r["n"]), int(r["k"]))
            for r in csv.DictReader(file)
        ]


def problems() -> list[Chosen]:
    """Draw the 100 problems, by m."""
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
    """Draw the 12 swept problems in the order of sweeping; ranges alternate, so that a stop leaves some of each."""
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
    """Draw from candidates the one whose properties were drawn least, the first among equals."""

    def __init__(self) -> None:
        self._drawn = Counter[tuple[str, object]]()

    def one(self, candidates: Iterable[Chosen]) -> Chosen:
        found = min(candidates, key=self._often)
        self._drawn.update(_facts(found))
        return found

    def _often(self, c: Chosen) -> tuple[int, ...]:
        return tuple(self._drawn[fact] for fact in _facts(c))


def _facts(c: Chosen) -> tuple[tuple[str, object], ...]:
    """Return the properties to be drawn evenly, the most important first."""
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


if __name__ == "__main__":
    main()
