"""Ask how good a proxy must be that ranks configs before the best few are built. Usage: proxy.py.

The twelve problems that experiments/campaign-100 swept are searched. Screened are all configs, or the ones that came
nearest to the optimum of one of the ten problems that ship. A proxy's time is the recorded time with an independent
log-normal error per config. The best `KEPT` configs by it are built; the fastest of them counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from unseen import recorded

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.landscape import Landscape

ERRORS, KEPT, SCREENED, DRAWS = (0.0, 0.02, 0.05, 0.1), (2, 4, 8, 12), (64, 128, 300, 6000), 50


def main() -> None:
    draw = np.random.default_rng(0)
    known = nearest_first(recorded()[:10])
    for screened in SCREENED:
        for error in ERRORS:
            found = np.array([survivors(x, known[:screened], error, draw) for x in recorded()[10:]])
            means, worst = found.mean(axis=0).round(4).tolist(), found.min(axis=0).round(3).tolist()
            count = min(screened, len(known))
            print(f"{count} screened, error {error}: kept {KEPT}: mean {means}, worst problem {worst}", flush=True)


def nearest_first(landscapes: Sequence[Landscape]) -> list[Config]:
    """Return all configs, by the least factor over the optimum that one of the landscapes has for them."""
    factors: dict[Config, float] = {}
    for landscape in landscapes:
        optimum = landscape.optimum_ns
        for config, point in landscape.points.items():
            if point.time_ns is not None:
                factors[config] = min(factors.get(config, np.inf), point.time_ns / optimum)
    return sorted(factors, key=lambda config: (factors[config], config.json))


def survivors(landscape: Landscape, screened: Sequence[Config], error: float, draw: np.random.Generator) -> list[float]:
    """Return optimum over the fastest of the kept configs, per number kept, mean over draws."""
    points = [landscape.points[config] for config in screened if config in landscape.points]
    times = np.array([point.time_ns or np.inf for point in points])
    proxies = np.log(times) + draw.normal(0, error, (DRAWS, len(times)))
    sorted_times = times[np.argsort(proxies, axis=1)]
    return [float((landscape.optimum_ns / sorted_times[:, :kept].min(axis=1)).mean()) for kept in KEPT]


if __name__ == "__main__":
    main()
