"""Section on the time of all problems: where it is, and what of it the table saves."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from gemmtune.engine.records.table import Row
from gemmtune.engine.records.workload import baseline_name, baseline_words
from gemmtune.engine.report.campaign_record import CampaignRecord, row_id
from gemmtune.engine.report.html.page import Bar, Bars, Part, Section, Sheet, Stack, legible
from gemmtune.engine.report.layout import count, readable, readable_unit
from gemmtune.engine.report.why import why

_NAMED = 12  # problems with a bar of their own; the table has all


@dataclass(frozen=True, slots=True)
class _Spent:
    """Weighted scores of one problem."""

    row: Row
    before: float
    after: float
    id: str


def time_shares(record: CampaignRecord) -> Section:
    """Draw each problem's part of the baselines' weighted total, of the table's, and what is saved between them."""
    title, table, unit = "Where the time is", record.table, record.objective.unit
    spent = [
        _Spent(row, row.problem.weight * row.baseline.time_ns, row.problem.weight * row.choices[0].time_ns, row_id(at))
        for at, row in enumerate(table.rows)
        if row.baseline
    ]
    if not spent:
        return Section(title, "No row has a measured baseline.")
    spent.sort(key=lambda each: (-each.before, each.row.problem.name))
    before, after = record.totals
    widest, saved, its = max(before, after), before - after, readable_unit(unit)
    words, name = (of(each.row.problem for each in spent) for of in (baseline_words, baseline_name))
    kinds = [why(each.row, table.margin).kind for each in spent]
    now = [
        Part(each.row.problem.name, each.after / widest, kind, each.id) for each, kind in zip(spent, kinds, strict=True)
    ]
    gain = Part(f"saved: {readable(saved, unit)} {its}", saved / widest, "saved")
    change = f", {after / before - 1:+.1%}"
    was = [Part(each.row.problem.name, each.before / widest, "was", each.id) for each in spent]
    stacks = [
        Stack(f"{words[0].upper()}{words[1:]} alone", f"{readable(before, unit)} {its}", legible(was)),
        Stack(
            "With the table", f"{readable(after, unit)} {its}{change}", [*legible(now), *([gain] if saved > 0 else [])]
        ),
    ]
    longest = max(max(each.before, each.after) for each in spent)
    bars = [
        Bar(
            each.row.problem.name,
            each.before / longest,
            each.after / longest,
            kind,
            f"{' → '.join(dict.fromkeys(readable(score, unit) for score in (each.before, each.after)))} {its}",
            each.id,
        )
        for each, kind in zip(spent[:_NAMED], kinds, strict=False)
    ]
    text = (
        f"Each problem's time per launch times its weight, the largest first. Each bar is the table's time, its "
        f"mark that of {words} alone. Green ships a kernel, grey {words}."
    )
    if "loss" in kinds:
        text += f" Orange ships a kernel slower than {words}, for equal bits at every size."
    text += f" The table below has all {len(spent)} problems." if len(spent) > _NAMED else ""
    missing = len(table.rows) - len(spent)
    text += f" Left out without a measured baseline: {count(missing, 'row')}." if missing else ""
    headers = ["problem", "weight", f"{name} {its}", f"table {its}", f"saved {its}", "of the time", "of the saving"]
    return Section(title, text, sheet=Sheet(headers, _rows(spent, record), ("problem",)), bars=Bars(stacks, bars))


def _rows(spent: Sequence[_Spent], record: CampaignRecord) -> list[list[str]]:
    unit, total = record.objective.unit, fsum(each.after for each in spent)
    saved = fsum(each.before - each.after for each in spent)
    return [
        [
            each.row.problem.name,
            f"{each.row.problem.weight:g}",
            *(readable(score, unit) for score in (each.before, each.after, each.before - each.after)),
            f"{each.after / total:.1%}",
            f"{(each.before - each.after) / saved:.1%}" if saved > 0 else "-",
        ]
        for each in spent
    ]
