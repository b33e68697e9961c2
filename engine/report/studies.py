"""Reports of `gemmtune compare`, of one sampler and of several."""

from collections.abc import Mapping

from gemmtune.engine.report.layout import Grid, Report, count, json_fields
from gemmtune.engine.studies.comparison import BUDGETS, GOALS, Comparison, Curve
from gemmtune.engine.studies.intervals import LEAST_SEEDS, least_results
from gemmtune.engine.studies.sampler_study import StudyResult


def study_report(result: StudyResult, settings: Mapping[str, object]) -> Report:
    """Report the fraction of the optimum per problem, and their mean; for `settings`, see `settings_text`."""
    rows = [[name, f"{fraction:.4f}"] for name, fraction in result.problems.items()]
    rows.append(["mean", f"{result.fraction_of_optimum:.4f}"])
    terms = (
        f"sampler {result.sampler}, budget {result.budget}, {count(result.seeds, 'seed')}, {settings_text(settings)}"
    )
    grid = Grid.of_rows(["problem", "of optimum"], rows, left=("problem",))
    record = json_fields(result, "sampler", "budget", "seeds", "fraction_of_optimum", "problems")
    return Report(record, [f"{terms}: optimum / best found", grid])


def settings_text(settings: Mapping[str, object]) -> str:
    """Return in words what decides a ranking beside budget and seeds: a study's batch, apart, cold and noise."""
    mode = "searches apart" if settings["apart"] else "a campaign per seed"
    further = "".join(f", {each}" for each in ("cold", "noise") if settings.get(each))
    return f"batch {settings['batch']}, {mode}{further}"


def comparison_report(result: Comparison, settings: Mapping[str, object]) -> Report:
    """Report the curves over all landscapes, and the score P per landscape; for `settings`, see `settings_text`."""
    terms = f"{count(len(result.landscapes), 'landscape')}, budget {result.budget}, {count(result.seeds, 'seed')}"
    budgets = [budget for budget in BUDGETS if budget <= result.budget] or [result.budget]
    curves = [[arm, *(fraction_text(result.curve(arm), budget) for budget in budgets)] for arm in result.arms]
    goals = [[arm, *_goals(result.curve(arm), result.budget), mean_score_text(result, arm)] for arm in result.arms]
    sections: list[str | Grid] = [
        f"{terms}, {settings_text(settings)}:\n"
        f"optimum / best found after so many evaluations {interval_text(result.seeds, len(result.landscapes))}",
        Grid.of_rows(["sampler", *map(str, budgets)], curves, left=("sampler",)),
        "evaluations in the median search to find so much of the optimum, and the performance score P",
        Grid.of_rows(["sampler", *(f"to {goal:.0%}" for goal in GOALS), "P"], goals, left=("sampler",)),
    ]
    sections += _ranking(result)
    if len(result.landscapes) > 1:
        rows = [[name, *(score_text(result.curve(arm, name)) for arm in result.arms)] for name in result.landscapes]
        grid = Grid.of_rows(["landscape", *result.arms], rows, left=("landscape",))
        sections += [f"P by landscape {interval_text(result.seeds, 1)}", grid]
    short = [
        f"{found[1]} of {name}"
        for name, found in zip(result.landscapes, result.ranges, strict=True)
        if found is not None and found[1] > result.budget
    ]
    if short:
        sections.append(f"P looks at more evaluations than the budget of {result.budget}: {', '.join(short)}")
    return Report(result.to_json(), sections)


def _ranking(result: Comparison) -> list[str | Grid]:
    """Return the sections of ranks and pairs; none of a single sampler or landscape."""
    if result.ranking is None or len(result.landscapes) < 2:
        return []
    found, names = result.ranking, count(len(result.landscapes), "landscape")
    ranks = [[arm, f"{rank:.2f}"] for arm, rank in found.ranks.items()]
    pairs = [
        [
            f"{x.arm} - {x.other}",
            f"{x.difference:.4f}{_ends_text(x.low, x.high, 4)}",
            "-" if x.p is None else f"{x.p:.3g}",
        ]
        for x in found.pairs
    ]
    return [
        f"mean rank over {names} after {result.budget} evaluations; {found.critical_difference:.2f} apart is beyond "
        "chance (Nemenyi, 95 %)",
        Grid.of_rows(["sampler", "rank"], ranks, left=("sampler",)),
        "lead, paired by seed, and p of Wilcoxon's test over the landscapes (Holm)",
        Grid.of_rows(["samplers", "lead", "p"], pairs, left=("samplers",)),
    ]


def interval_text(seeds: int, landscapes: int) -> str:
    """Return what stands behind the numbers of so many seeds, means over so many landscapes."""
    results = least_results(landscapes)
    if seeds < (least := max(results, LEAST_SEEDS)):
        return f"(no interval below {least} seeds)"
    return f"[95 % interval, from {results} different results on]"


def fraction_text(curve: Curve, budget: int) -> str:
    """Return the fraction of the optimum after so many evaluations, `0.993 [0.911, 1.000]`."""
    return f"{curve.mean[budget - 1]:.3f}{_ends_text(curve.low[budget - 1], curve.high[budget - 1], 3)}"


def _ends_text(low: float | None, high: float | None, digits: int) -> str:
    return "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"


def _goals(curve: Curve, most: int) -> list[str]:
    medians = [curve.reached[goal].median for goal in GOALS]
    return [f"> {most}" if median is None else str(median) for median in medians]


def mean_score_text(comparison: Comparison, arm: str) -> str:
    """Return the mean score of an arm, with the number of landscapes where all arms have one, if that is not all."""
    known = sum(all(comparison.curve(a, n).score for a in comparison.arms) for n in comparison.landscapes)
    return score_text(comparison.curve(arm)) + of_landscapes(known, len(comparison.landscapes))


def of_landscapes(known: int, landscapes: int) -> str:
    """Return the end of a mean score's text: how many landscapes have one, where some but not all do."""
    return f" of {known} of {landscapes} landscapes" if 0 < known < landscapes else ""


def score_text(curve: Curve) -> str:
    """Return the score as `0.81 [0.78, 0.84]`, without an interval where there is none; a dash where P is undefined."""
    score = curve.score
    return "-" if score is None else f"{score.value:.2f}{_ends_text(score.low, score.high, 2)}"
