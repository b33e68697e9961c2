"""Reports of `gemmtune replay` and `gemmtune compare`."""

from gemmtune.engine.report.layout import Grid, Report, count, json_fields
from gemmtune.engine.studies.comparison import BUDGETS, GOALS, Comparison, Curve
from gemmtune.engine.studies.sampler_study import StudyResult


def study_report(result: StudyResult) -> Report:
    """Report the fraction of the optimum per problem, and their mean."""
    rows = [[name, f"{fraction:.4f}"] for name, fraction in result.problems.items()]
    rows.append(["mean", f"{result.fraction_of_optimum:.4f}"])
    terms = f"sampler {result.sampler}, budget {result.budget}, {count(result.seeds, 'seed')}"
    grid = Grid.of_rows(["problem", "of optimum"], rows, left=("problem",))
    record = json_fields(result, "sampler", "budget", "seeds", "fraction_of_optimum", "problems")
    return Report(record, [f"{terms}: optimum / best found", grid])


def comparison_report(result: Comparison) -> Report:
    """Report the curves over all landscapes, and the score P per landscape."""
    terms = f"{count(len(result.landscapes), 'landscape')}, budget {result.budget}, {count(result.seeds, 'seed')}"
    budgets = [budget for budget in BUDGETS if budget <= result.budget]
    headers = ["sampler", *map(str, budgets), *(f"to {goal:.0%}" for goal in GOALS), "P"]
    rows = [
        [*_row(result.curve(arm), budgets, result.seeds, result.budget), mean_score_text(result, arm)]
        for arm in result.arms
    ]
    sections: list[str | Grid] = [
        f"{terms}: optimum / best found after so many evaluations (± half of the 95 % interval),\n"
        f"evaluations in the median search to find so much of the optimum, and the performance score P",
        Grid.of_rows(headers, rows, left=("sampler",)),
    ]
    if len(result.landscapes) > 1:
        by_landscape = [
            [name, *(score_text(result.curve(arm, name)) for arm in result.arms)] for name in result.landscapes
        ]
        grid = Grid.of_rows(["landscape", *result.arms], by_landscape, left=("landscape",))
        sections += ["P by landscape", grid]
    short = [
        f"{found[1]} of {name}"
        for name, found in zip(result.landscapes, result.ranges, strict=True)
        if found is not None and found[1] > result.budget
    ]
    if short:
        sections.append(f"P looks at more evaluations than the budget of {result.budget}: {', '.join(short)}")
    return Report(result.to_json(), sections)


def _row(curve: Curve, budgets: list[int], seeds: int, most: int) -> list[str]:
    cells = [curve.arm]
    for budget in budgets:
        half = (curve.high[budget - 1] - curve.low[budget - 1]) / 2
        cells.append(f"{curve.mean[budget - 1]:.3f}" + (f" ± {half:.3f}" if seeds > 1 else ""))
    medians = [curve.reached[goal].median for goal in GOALS]
    cells += [f"> {most}" if median is None else str(median) for median in medians]
    return cells


def mean_score_text(comparison: Comparison, arm: str) -> str:
    """Return the mean score of an arm, with the number of landscapes that have one where some have none."""
    known = sum(comparison.curve(arm, name).score is not None for name in comparison.landscapes)
    return score_text(comparison.curve(arm)) + of_landscapes(known, len(comparison.landscapes))


def of_landscapes(known: int, landscapes: int) -> str:
    """Return the end of a mean score's text: how many landscapes have one, where some but not all do."""
    return f" of {known} of {landscapes} landscapes" if 0 < known < landscapes else ""


def score_text(curve: Curve) -> str:
    """Return the score as `0.81 [0.78, 0.84]`; a dash where P is undefined."""
    score = curve.score
    return "-" if score is None else f"{score.value:.2f} [{score.low:.2f}, {score.high:.2f}]"
