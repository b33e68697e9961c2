"""Judge the table of a campaign: its rows, and their choices of `triton_mm` beside the full sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean

from choose import RANGES
from rehearsal import range_of

from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.table import Choice, Row


def judged(row: Row, truth: Landscape | None) -> dict:
    """Return a row's times by space in µs, what it ships, and its share of the optimum."""
    fastest, baseline, triton = row.fastest or row.choices[0], row.baseline, _of_triton(row)
    return {
        "problem": row.problem.name,
        "range": range_of(row.problem),
        "best_us": round(fastest.time_ns / 1e3, 3),
        "baseline_us": baseline and round(baseline.time_ns / 1e3, 3),
        "triton_us": triton and round(triton.time_ns / 1e3, 3),
        "others_us": _of_others(row),
        "ships": row.choices[0].space,
        "regret_bound": row.regret_bound and round(row.regret_bound, 4),
        "of_optimum": of_optimum(row, truth),
    }


def of_optimum(row: Row, truth: Landscape | None) -> float | None:
    """Return the true best time over the true time of the config found; 0 if nothing was found or it failed there."""
    if truth is None:
        return None
    found = _of_triton(row)
    point = truth.points.get(found.config) if found is not None else None
    return round(truth.optimum_ns / point.time_ns, 4) if point is not None and point.time_ns is not None else 0.0


def _of_triton(row: Row) -> Choice | None:
    return next((c for c in row.choices if c.space == "triton_mm"), None)


def _of_others(row: Row) -> dict[str, float]:
    """Return the best time of each space besides ATen and `triton_mm`, in µs."""
    others = [c for c in row.choices if c.space not in ("aten", "triton_mm")]
    return {c.space: round(c.time_ns / 1e3, 3) for c in reversed(others)}  # the first one of a space is its best


def result_lines(rows: Sequence[Mapping]) -> list[str]:
    """Render the results as text: speed-up over ATen by range of m, and shares of the optimum."""
    text = []
    for name in RANGES:
        of_range = [row for row in rows if row["range"] == name and row["baseline_us"]]
        if of_range:
            best = geometric_mean(row["baseline_us"] / row["best_us"] for row in of_range)
            text.append(f"{name}: ATen over best {best:.4f} (geo. mean)")
        text += _space_lines([row for row in of_range if row["triton_us"]])
    shares = [row for row in rows if row["of_optimum"] is not None]
    if shares:
        mean, worst = sum(r["of_optimum"] for r in shares) / len(shares), min(shares, key=lambda r: r["of_optimum"])
        text.append(
            f"of the optimum on {len(shares)} sweeps: mean {mean:.4f}, worst {worst['of_optimum']:.4f} "
            f"({worst['problem']})"
        )
    return text


def _space_lines(rows: Iterable[Mapping]) -> list[str]:
    """Render the best of each space besides ATen and `triton_mm`, relative to that of `triton_mm`."""
    behind: dict[str, list[float]] = {}
    for row in rows:
        for space, us in row["others_us"].items():
            behind.setdefault(space, []).append(us / row["triton_us"])
    return [
        f"  best of {space} over the best of triton_mm: {geometric_mean(ratios):.4f} "
        f"({min(ratios):.4f} to {max(ratios):.4f}, {len(ratios)} problems)"
        for space, ratios in sorted(behind.items())
    ]
