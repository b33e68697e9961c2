"""Text of `gemmtune replay` and `gemmtune compare`."""

from __future__ import annotations

from gemmtune.engine.report.layout import Grid, count
from gemmtune.engine.studies.comparison import BUDGETS, GOALS, Comparison, Curve
from gemmtune.engine.studies.sampler_study import StudyResult

__all__ = ["comparison", "study"]


def study(result: StudyResult) -> str:
    """Return a table with one line per problem and the mean last."""
    rows = [[name, f"{fraction:.4f}"] for name, fraction in result.problems.items()]
    rows.append(["mean", f"{result.fraction_of_optimum:.4f}"])
    terms = f"sampler {result.sampler}, budget {result.budget}, {count(result.seeds, 'seed')}"
    title = f"{terms}: optimum / best found"
    return f"{title}\n\n{Grid.of_rows(['problem', 'of optimum'], rows, left=('problem',)).to_text()}"


def comparison(result: Comparison, width: int | None = None) -> str:
    """Return a table over all landscapes, and one of the score P per landscape."""
    terms = f"{count(len(result.landscapes), 'landscape')}, budget {result.budget}, {count(result.seeds, 'seed')}"
    budgets = [budget for budget in BUDGETS if budget <= result.budget]
    headers = ["sampler", *map(str, budgets), *(f"to {goal:.0%}" for goal in GOALS), "P"]
    rows = [_row(result.curve(arm), budgets, result.seeds, result.budget) for arm in result.arms]
    parts = [
        f"{terms}: optimum / best found after so many evaluations (± half of the 95 % interval),\n"
        f"evaluations in the median search to find so much of the optimum, and the performance score P",
        Grid.of_rows(headers, rows, left=("sampler",)).to_text(width),
    ]
    if len(result.landscapes) > 1:
        by_landscape = [[name, *(_score(result.curve(arm, name)) for arm in result.arms)] for name in result.landscapes]
        grid = Grid.of_rows(["landscape", *result.arms], by_landscape, left=("landscape",))
        parts += ["P by landscape", grid.to_text()]
    short = [
        f"{found[1]} of {name}"
        for name, found in zip(result.landscapes, result.ranges, strict=True)
        if found is not None and found[1] > result.budget
    ]
    if short:
        parts.append(f"P looks at more evaluations than --budget {result.budget}: {', '.join(short)}")
    return "\n\n".join(parts)


def _row(curve: Curve, budgets: list[int], seeds: int, most: int) -> list[str]:
    cells = [curve.arm]
    for budget in budgets:
        half = (curve.high[budget - 1] - curve.low[budget - 1]) / 2
        cells.append(f"{curve.mean[budget - 1]:.3f}" + (f" ± {half:.3f}" if seeds > 1 else ""))
    medians = [curve.reached[goal].median for goal in GOALS]
    cells += [f"> {most}" if median is None else str(median) for median in medians]
    return [*cells, _score(curve)]


def _score(curve: Curve) -> str:
    """Return the score as `0.81 [0.78, 0.84]`; a dash where P is undefined."""
    score = curve.score
    return "-" if score is None else f"{score.value:.2f} [{score.low:.2f}, {score.high:.2f}]"
