"""Page of a campaign, or of a table alone."""

from collections.abc import Sequence

from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.workload import baseline_name
from gemmtune.engine.report.campaign_record import CampaignRecord
from gemmtune.engine.report.html import (
    code_section,
    pair_section,
    range_section,
    roofline_section,
    row_sections,
    run_sections,
    search_sections,
    time_section,
)
from gemmtune.engine.report.html.page import Card, Page, Section, render
from gemmtune.engine.report.layout import count, lead_text, readable, readable_unit
from gemmtune.engine.report.progress.state import duration
from gemmtune.engine.report.tables import made_with
from gemmtune.engine.report.why import why


def campaign_html(record: CampaignRecord, sources: str = "", first: Sequence[Section] = ()) -> str:
    """Return the page of a campaign: headline, pictures with their numbers, every row, and Markdown to paste.

    Args:
        record: the campaign.
        sources: hash of what the page is made from, which its head names.
        first: sections of consumers, which stand before the others.
    """
    table = record.table
    title = f"{table.device.name}: {count(len(table.rows), 'row')}, {table.objective}"
    cards = _cards(record)
    headline = [f"{card.value} {card.meaning}" for card in cards]
    found = [
        *first,
        time_section.time_shares(record),
        row_sections.leads(record),
        roofline_section.roofs(record),
        range_section.m_ranges(record),
        search_sections.regret(record),
        search_sections.best_over_time(record),
        row_sections.finals(record),
        search_sections.params(record),
        pair_section.param_pairs(record),
        run_sections.timeline(record),
        run_sections.boards(record),
        run_sections.failures(record),
        row_sections.all_rows(record),
        code_section.code(record),
        row_sections.markdown(record, [title, *headline]),
    ]
    sections = [section for section in found if section and (section.pictures or section.sheet or section.code)]
    absent = [f"{section.title}: {section.text}" for section in found if section and section not in sections]
    sections += [Section("Not shown", " ".join(absent))] if absent else []
    return render(Page(f"gemmtune: {title}", _subtitle(record), sections, cards, sources))


def _subtitle(record: CampaignRecord) -> str:
    parts = [", ".join(sorted(each.value for each in record.evidence)), made_with(record.table)]
    if record.run:
        parts += [f"run at {record.run.started_at}", record.run.command]
    return " · ".join(part for part in parts if part)


def _cards(record: CampaignRecord) -> list[Card]:
    rows, run = record.table.rows, record.run
    baseline = baseline_name(row.problem for row in rows)
    cards = []
    if record.mean_lead is not None:
        cards.append(
            Card(lead_text(record.mean_lead), f"lead of the table over {baseline}, geometric mean of its rows")
        )
        before, after = record.totals
        unit = record.objective.unit
        change = f"{after / before - 1:+.1%}"
        its = readable_unit(unit)
        cards.append(Card(change, f"weighted total: {readable(before, unit)} → {readable(after, unit)} {its}"))
    wins = sum(why(row, record.table.margin).kind == "win" for row in rows)
    if Evidence.ESTIMATED not in record.evidence:
        cards.append(Card(f"{wins} of {len(rows)}", f"rows ship a kernel instead of {baseline}"))
    else:
        cards.append(Card("estimated", "built, not timed: no row ships unasked"))
    if run:
        cards.append(Card(str(run.evaluations), f"evaluations in {duration(run.seconds)}, {run.known} known before"))
    if run and run.cost is not None:
        cards.append(Card(f"{run.cost:.2f}", f"cost: {run.gpu_seconds_held / 3600:.2f} GPU-hours by the named price"))
    return cards
