"""Measure what screening saves and costs on drawn launches. Usage: racing.py --json OUT [--seeds 20].

A launch of a config is its recorded median times the deviation of a recorded launch of that problem. Launches of the
vendor's kernel beside it are drawn alike. Each order has 64 configs, the best one among them, and a final. The script
needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gemmtune.engine.measure.deciding.blocks import Block
from gemmtune.engine.measure.deciding.clock_drift import Drift
from gemmtune.engine.measure.deciding.finals import hold_final
from gemmtune.engine.measure.deciding.screening import LaunchLimits, ScreeningResult, screen
from gemmtune.engine.measure.jobs import FinalistReading
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes

COUNT = 64
"""Number of configs per order."""
NEAR = 1.005
"""Factor on the optimum within which a config counts as good as it."""
FINALISTS = 8
LAUNCHES = 8
"""Launches of each kernel per block."""
LIMITS = LaunchLimits()
FULL = len(LIMITS.slowness_limits) + LAUNCHES * LIMITS.most_blocks
"""Launches of a config that is not stopped."""


class DrawnTimer:
    """Drawn launches of one config beside the vendor's kernel."""

    def __init__(self, time_ns: float, reference_ns: float, deviations: np.ndarray, draw: np.random.Generator) -> None:
        self._times = time_ns, reference_ns
        self._deviations, self._draw = deviations, draw

    def single(self) -> Block:
        return self._launches(1)

    def block(self, number: int) -> Block:
        return self._launches(LAUNCHES)

    def _launches(self, count: int) -> Block:
        own, reference = (time * self._draw.choice(self._deviations, count) for time in self._times)
        return Block(tuple(own.tolist()), tuple(reference.tolist()))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path, required=True, help="file for the results")
    arguments.add_argument("--seeds", type=int, default=20)
    given = arguments.parse_args()
    began, orders = time.process_time(), []
    vendor = {landscape.name: landscape for landscape in recorded("aten")}
    for landscape in recorded("triton_mm"):
        for seed in range(given.seeds):
            orders.append(race(landscape, vendor[landscape.name], np.random.default_rng([seed, len(orders)])))
    configs = len(orders) * COUNT
    result = {
        "orders": len(orders),
        "stopped": share(orders, "stopped", configs),
        "stopped after one launch": share(orders, "after one", configs),
        "launches avoided": 1 - share(orders, "launches", configs * FULL),
        "optimum stopped": sum(order["optimum stopped"] for order in orders),
        "all within 0.5 % stopped": sum(order["near stopped"] for order in orders),
        "pick beyond 0.5 %": sum(order["of optimum"] < 1 / NEAR for order in orders),
        "of optimum": share(orders, "of optimum", len(orders)),
        "launches of a final": share(orders, "final", len(orders)),
        "cpu ms a candidate": 1e3 * (time.process_time() - began) / configs,
    }
    result = {name: round(value, 4) for name, value in result.items()}
    given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def recorded(space: str) -> list[Landscape]:
    return [landscape for path in embedded(space) for landscape in read_landscapes(path)]


def race(landscape: Landscape, vendor: Landscape, draw: np.random.Generator) -> dict[str, float]:
    """Screen one random order of configs and hold its final; return counts and the quality of the pick."""
    points = [point for point in landscape.points.values() if point.time_ns]
    deviations = np.concatenate([np.array(point.samples_ns) / np.median(point.samples_ns) for point in points])
    [reference] = (point.time_ns for point in vendor.points.values())
    best = min(range(len(points)), key=lambda number: points[number].time_ns)
    order = [best, *draw.choice([n for n in range(len(points)) if n != best], COUNT - 1, replace=False)]
    draw.shuffle(order)
    times = [points[number].time_ns for number in order]
    timers = [DrawnTimer(time_ns, reference, deviations, draw) for time_ns in times]
    found = screened(timers, Drift(reference))
    optimum, stopped = min(times), [bool(each.stopped) for each in found]
    near = [ended for ended, time_ns in zip(stopped, times, strict=True) if time_ns <= NEAR * optimum]
    finalists = sorted(range(COUNT), key=lambda number: found[number].estimate.time_ns)[:FINALISTS]
    ranking = hold_final([timers[number] for number in finalists], LIMITS)
    return {
        "stopped": sum(stopped),
        "after one": sum(len(each.samples_ns) == 1 for each in found),
        "launches": sum(len(each.samples_ns) for each in found),
        "optimum stopped": stopped[times.index(optimum)],
        "near stopped": all(near),
        "of optimum": optimum / times[finalists[ranking[0].number]],
        "final": launches(ranking),
    }


def screened(timers: Sequence[DrawnTimer], drift: Drift) -> list[ScreeningResult]:
    """Screen each config against the best so far."""
    leader, found = None, []
    for timer in timers:
        found.append(screen(timer, drift, leader, LIMITS))
        estimate = found[-1].estimate
        if leader is None or estimate.time_ns < leader.time_ns:
            leader = estimate
    return found


def launches(ranking: Sequence[FinalistReading]) -> int:
    return sum(len(standing.samples_ns) for standing in ranking)


def share(orders: Sequence[dict[str, float]], name: str, of: int) -> float:
    return sum(order[name] for order in orders) / of


if __name__ == "__main__":
    main()
