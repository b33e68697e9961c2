"""What `gemmtune replay` prints."""

from __future__ import annotations

from gemmtune.engine.campaign.study import StudyResult
from gemmtune.engine.report.layout import count, table_text

__all__ = ["study"]


def study(result: StudyResult) -> str:
    """One line a problem, the mean last."""
    rows = [[name, f"{fraction:.4f}"] for name, fraction in result.problems.items()]
    rows.append(["mean", f"{result.fraction_of_optimum:.4f}"])
    terms = f"sampler {result.sampler}, budget {result.budget}, {count(result.seeds, 'seed')}"
    title = f"{terms}: optimum / best found"
    return f"{title}\n\n{table_text(['problem', 'of optimum'], rows, left=('problem',))}"
