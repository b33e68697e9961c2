"""Pages: sections, numbers equal to the table's, escaping, and nothing that is loaded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.api.reporting import report
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.campaign_record import gather
from gemmtune.engine.report.html.campaign_page import campaign_html
from gemmtune.engine.report.html.change_pages import diff_html
from gemmtune.engine.report.html.drawing import wrapped
from gemmtune.engine.report.html.page import Page, Section, Sheet, render
from gemmtune.engine.report.why import Why, why
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database

pytestmark = pytest.mark.slow(10)

PROBLEMS = ("16x4096x4096:bf16:nt", "128x2880x2880:bf16:nt")


class Text(HTMLParser):
    """The words of each section of a page, and all links that a browser would follow."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sections: dict[str, list[str]] = {}
        self.loaded: list[str] = []
        self._in = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "section":
            self._in = found["aria-labelledby"]
            self.sections[self._in] = []
        loaded = [found.get("src"), found.get("data"), found.get("xlink:href"), tag == "link" and found.get("href")]
        self.loaded += [x for x in loaded if x and not x.startswith(("data:,", "#"))]

    def handle_data(self, data):
        if self._in and data.strip():
            self.sections[self._in].append(data.strip())


@pytest.fixture(scope="module")
def campaign(tmp_path_factory) -> tuple[gt.TuneResult, Path]:
    folder = tmp_path_factory.mktemp("campaign")
    found = gt.tune(PROBLEMS, backend=gt.landscapes("h200"), budget=24, out=folder, command="gemmtune tune --budget 24")
    return found, folder


def test_the_report_of_a_campaign_has_every_section_and_the_tables_numbers(campaign):
    result, folder = campaign
    page = (folder / "report.html").read_text()
    text = Text(page)
    assert set(text.sections) == {
        *("where-the-time-is", "lead-over-the-vendor-library", "roofline", "regret-over-evaluations", "best-so-far"),
        *("parameters", "parameter-pairs", "all-rows", "code", "for-a-pull-request", "not-shown"),
    }
    assert all(f"{absent}:" in page for absent in ("Finals", "Timeline", "Failures"))
    for row in result.rows:
        words = text.sections["all-rows"]
        at = words.index(row.problem.name)
        assert words[at + 1 : at + 3] == [row.choices[0].space, f"{row.choices[0].time_ns / 1e3:.1f}"]
    assert "gemmtune tune --budget 24" in page
    ships = [row for row in result.rows if row.choices[0].config]
    assert [word for word in text.sections["code"] if word.startswith("gemmtune show")] == [
        f"gemmtune show table.json --problem {row.problem.name} --as config" for row in ships
    ]
    assert re.findall(r'<a href="#(code-\d)" data-row>code</a>', page) == re.findall(r'<tr id="(code-\d)">', page) != []
    assert text.loaded == []
    marked = re.findall(r'class="mark" tabindex="-1" href="#([\w-]+)"', page)
    assert set(marked) == {"row-1", "row-2"}
    assert len(marked) == 4  # a dot per row among the leads and below the roofs
    assert [page.count(f'id="{row}"') for row in ("row-1", "row-2")] == [1, 1]
    assert not re.search(r"url\((?!#)|@import|fetch\(", page)
    assert len(page) < 2_000_000


def test_a_report_is_made_again_from_a_folder_a_table_and_a_database(campaign, tmp_path):
    _, folder = campaign
    first = (folder / "report.html").read_text()
    assert report(folder).read_text() == first
    assert report(folder / "table.json", tmp_path / "again.html").read_text() == first
    known = Text(report(folder / "measurements.db", tmp_path / "known.html").read_text())
    assert known.sections["all-rows"] == Text(first).sections["all-rows"]
    (tmp_path / "table.json").write_bytes((folder / "table.json").read_bytes())
    alone = Text(report(tmp_path / "table.json").read_text())
    assert "Best so far: No evaluations are at hand" in " ".join(alone.sections["not-shown"])


def test_a_repeated_campaign_leaves_the_record_of_its_run(campaign):
    _, folder = campaign
    before = (folder / "run.json").read_bytes()
    assert json.loads(before)["evaluations"] == 48
    again = gt.tune(PROBLEMS, backend=gt.landscapes("h200"), budget=24, out=folder)
    assert (again.run.evaluations, (folder / "run.json").read_bytes()) == (0, before)


def test_a_page_is_written_again_only_when_there_is_more_to_show(campaign):
    _, folder = campaign
    page = folder / "report.html"
    before = page.stat().st_mtime_ns
    gt.tune(PROBLEMS, backend=gt.landscapes("h200"), budget=24, out=folder)
    assert page.stat().st_mtime_ns == before
    gt.tune(PROBLEMS, backend=gt.landscapes("h200"), budget=25, out=folder)
    assert page.stat().st_mtime_ns > before


def test_names_are_shown_as_text(campaign, tmp_path):
    hostile = '<script>alert("x")</script>$m^{$&lt;'
    page = render(
        Page(hostile, hostile, [Section(hostile, hostile, sheet=Sheet([hostile], [[hostile]]), code=hostile)])
    )
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert") == 10


def test_finals_are_drawn_with_their_intervals(campaign):
    result, folder = campaign
    row = result.rows[0]
    task = Task(row.problem, result.device, row.choices[0].space)
    with Database.open(folder / "measurements.db") as database:
        measured = next(iter(database.measurements(row.problem)))
        finalists = tuple(
            Finalist(task, choice.config, measured.toolchain, Estimate(ns, ns, ns), (ns,), behind)
            for choice, ns, behind in zip(row.choices, (10.0, 11.0), ((0.0, 0.0), (0.08, 0.12)), strict=False)
        )
        record = gather(result.table, registry.objective("latency"), database)
    final = Final(finalists, row.choices[0].protocol, "worker", "2026-11-23T10:00:00+00:00")
    problems = tuple(replace(p, final=final) if p.row == row else p for p in record.problems)
    words = Text(campaign_html(replace(record, problems=problems))).sections["finals"]
    assert "+8.00% to +12.00%" in words
    assert words[-1] == "behind"


def test_a_page_names_the_baseline_whatever_its_rows_ship(campaign):
    """Each kind of row is in the legends of two pictures and in the sheets, and no text waits for a value."""
    row = next(row for row in campaign[0].rows if row.choices[0].space == "triton_mm")
    kinds = {"win": (90.0, True), "tie": (99.0, False), "loss": (110.0, True)}
    rows = []
    for number, (best_ns, ships) in enumerate(kinds.values()):
        best = replace(row.choices[0], time_ns=best_ns, low_ns=best_ns, high_ns=best_ns)
        base = replace(row.baseline, time_ns=100.0, low_ns=100.0, high_ns=100.0)
        choices = (best, base) if ships else (base, best)
        work = replace(row.problem, m=(2, 1024, 16)[number])
        rows.append(replace(row, problem=work, choices=choices, baseline=base, tie_band=()).with_lead())
    page = campaign_html(gather(replace(campaign[0].table, rows=tuple(rows)), registry.objective("latency")))
    assert page.count(">ships the kernel<") == page.count(">ships the vendor library<") == 2
    assert page.count(">ships a slower kernel, for equal bits<") == 2
    assert not re.search(r"\{\w+\}", re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.DOTALL))
    words = Text(page).sections["all-rows"]
    names = [word for word in words if word.endswith(":bf16:nt")]
    assert [name.partition("x")[0] for name in names] == ["2", "16", "1024"]
    assert [word for word in words if re.fullmatch(r"[+-]\d+\.\d%", word)] == ["+11.1%", "-9.1%", "+1.0%"]


def test_versions_and_the_names_of_compared_tables_are_in_the_head_once(campaign):
    record = gather(campaign[0].table, registry.objective("latency"))
    rows = tuple(
        replace(row, choices=(replace(row.choices[0], toolchain=versions), *row.choices[1:]))
        for row, versions in zip(record.table.rows, ("torch 2.11.0", "torch 2.11.0, triton 3.6.0"), strict=True)
    )
    assert "replayed · torch 2.11.0, triton 3.6.0<" in campaign_html(
        replace(record, table=replace(record.table, rows=rows))
    )
    table = campaign[0].table
    page = diff_html(table.diff(table), table, table, ("old/table.json", "new/table.json"))
    assert "<h1>gemmtune diff: old/table.json → new/table.json</h1>" in page
    assert "No row differs." in page


@pytest.mark.parametrize(
    ("best_ns", "base_ns", "ships", "expected"),
    [
        (90.0, 100.0, True, Why.WINS),
        (110.0, 100.0, True, Why.BITS),
        (99.0, 100.0, False, Why.MARGIN),
        (90.0, 100.0, False, Why.NOISE),
        (110.0, 100.0, False, Why.SLOWER),
    ],
)
def test_a_row_says_why_it_ships_its_kernel(campaign, best_ns, base_ns, ships, expected):
    row = next(row for row in campaign[0].rows if row.choices[0].space == "triton_mm")
    best, base = replace(row.choices[0], time_ns=best_ns), replace(row.baseline, time_ns=base_ns)
    choices = (best, base) if ships else (base, best)
    assert why(replace(row, choices=choices, baseline=base), 0.02) is expected


def test_a_long_name_breaks_before_a_colon():
    assert wrapped("2048x4096x4096:bf16:nt:addmm:bias=matrix", 26) == "2048x4096x4096:bf16:nt\n:addmm:bias=matrix"
