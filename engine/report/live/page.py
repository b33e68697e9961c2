"""Page of a running campaign, made from its database and its folder."""

from datetime import datetime
from math import exp, fsum, log
from pathlib import Path

from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.report.html.page import Bar, Bars, Card, Link, Page, Part, Section, Sheet, Stack, render
from gemmtune.engine.report.layout import bound, count, doubted, lead_of, lead_text, microseconds, natural, tally
from gemmtune.engine.report.progress.progress_file import Progress, read_progress
from gemmtune.engine.report.progress.state import duration
from gemmtune.engine.report.status import IDLE_SECONDS, CampaignStatus, ProblemProgress, ago, read_status
from gemmtune.engine.store.database import Database

REFRESH_SECONDS = 2.0
"""Seconds between two looks of a page at its campaign."""
REPORT = "report.html"
"""Name of the report in a campaign's folder, and of its address beside the page."""

_TABLE = "table.json"  # which a campaign writes at its end
_BARS = 40  # problems with a bar; the table has all


def live_html(database: str, folder: Path | None, now: datetime) -> str:
    """Return the page of a campaign as it stands; a page that says why, where its database cannot be read.

    Args:
        database: file or URL of its database.
        folder: folder that holds its progress, and its report once it has ended; None for a database on a server.
        now: time of the look, in UTC.
    """
    seen = f"seen at {now:%H:%M:%S} UTC; looks again every {REFRESH_SECONDS:g} s"
    try:
        with Database.open(database, read_only=True) as store:
            found = read_status(store, now)
    except GemmtuneError as error:
        waiting = Section("Nothing to show yet", f"{error}.")
        return render(Page("gemmtune live", seen, [waiting], refresh=REFRESH_SECONDS))
    progress = read_progress(folder) if folder else None
    ended = folder is not None and progress is None and (folder / _TABLE).exists()
    said = " ".join(f"{each}." for each in doubted(found.boards))
    sections = [_progress(progress), _problems(found), _workers(found, now), Section("Boards", said) if said else None]
    devices = ", ".join(sorted({each.device for each in found.problems})) or "nothing measured yet"
    cards = _cards(found, progress, now, ended=ended)
    shown = [each for each in sections if each]
    links = [Link("Report", REPORT)] if ended and folder and (folder / REPORT).exists() else []
    return render(Page(f"gemmtune live: {devices}", seen, shown, cards, refresh=REFRESH_SECONDS, links=links))


def _cards(found: CampaignStatus, progress: Progress | None, now: datetime, *, ended: bool) -> list[Card]:
    done = count(found.measurements, "measurement")
    cards = [Card(_state(progress, now, ended=ended), f"{count(len(found.problems), 'problem')}, {done}")]
    leads = [lead for each in found.problems if (lead := lead_of(each.baseline_ns, each.best_ns)) is not None]
    if leads:
        mean = exp(fsum(log(1 + max(lead, 0.0)) for lead in leads) / len(leads)) - 1
        of = f"lead over {found.baseline} so far, 0 where it leads: geometric mean of {count(len(leads), 'problem')}"
        cards.append(Card(lead_text(mean), of))
    if found.measured_at:
        cards.append(
            Card(str(found.last_minute), f"measured in the last minute; the last {ago(found.measured_at, now)}")
        )
    if found.failures:
        cards.append(Card(str(sum(found.failures.values())), f"failed: {tally(found.failures)}"))
    return cards


def _state(progress: Progress | None, now: datetime, *, ended: bool) -> str:
    if progress is None:
        return "ended" if ended else "open"
    if (idle := (now - datetime.fromisoformat(progress.at)).total_seconds()) >= IDLE_SECONDS:
        return f"silent for {duration(idle)}"
    return "running" if progress.seconds_left is None else f"{duration(progress.seconds_left)} left"


def _progress(progress: Progress | None) -> Section | None:
    if progress is None or not progress.total:
        return None
    share = min(progress.done / progress.total, 1.0)
    done = Part("done", share, "accent", text=f"{share:.0%}" if share > 0.1 else "")
    stack = Stack("Evaluations", f"{progress.done} of {progress.total}", [done])
    return Section("Progress", "A search that ends early gives up its rest.", bars=Bars([stack], ()))


def _problems(found: CampaignStatus) -> Section | None:
    problems = sorted(
        found.problems, key=lambda each: (natural(each.problem), each.device, each.evidence, each.protocol)
    )
    if not problems:
        return None
    ids = [f"problem-{place + 1}" for place in range(len(problems))]
    timed = [(each, row) for each, row in zip(problems, ids, strict=True) if each.best_ns and each.baseline_ns]
    longest = max((max(1.0, _ratio(each)) for each, _ in timed), default=1.0)
    bars = [_bar(each, longest, row) for each, row in timed[:_BARS]]
    several = {name: [getattr(each, name) for each in problems] for name in ("device", "evidence", "protocol")}
    columns = {
        "problem": [each.problem for each in problems],
        **{name: values for name, values in several.items() if len(set(values)) > 1},
        "best µs": [microseconds(each.best_ns) for each in problems],
        f"{found.baseline} µs": [microseconds(each.baseline_ns) for each in problems],
        "lead": [lead_text(lead_of(each.baseline_ns, each.best_ns)) for each in problems],
        "best of": [each.best_space or "-" for each in problems],
        "evaluations": [str(each.evaluations) for each in problems],
        "failed": [tally(each.failures) or "-" for each in problems],
        "final": [bound(each.regret_bound) for each in problems],
    }
    text = (
        f"A bar is the best time so far, its mark that of {found.baseline}: the further behind the mark, the better. "
        "What ships is decided at the end, by finals and margin."
    )
    rows = list(zip(*columns.values(), strict=True))
    left = ("problem", "device", "evidence", "protocol", "best of", "failed")
    sheet = Sheet(list(columns), rows, left, filterable=True, ids=ids, tip=list(columns)[1:])
    return Section("Best so far", text, sheet=sheet, bars=Bars((), bars))


def _bar(each: ProblemProgress, longest: float, row: str) -> Bar:
    ratio = _ratio(each)
    figure = f"{microseconds(each.best_ns)} µs, {lead_text(lead_of(each.baseline_ns, each.best_ns))}"
    return Bar(each.problem, 1 / longest, ratio / longest, "win" if ratio < 1 else "tie", figure, row)


def _ratio(each: ProblemProgress) -> float:
    return (each.best_ns or 0.0) / (each.baseline_ns or 1.0)


def _workers(found: CampaignStatus, now: datetime) -> Section | None:
    rows = [[name, str(measured), ago(last, now)] for name, (measured, last) in found.workers.items()]
    sheet = Sheet(("worker", "measured", "last"), rows, ("worker", "last"))
    return Section("Workers", "Who measured, the most recent first.", sheet=sheet) if rows else None
