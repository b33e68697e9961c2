"""The pages as Chromium shows them: nothing loaded, nothing cut, nothing overlapping; sort and filter work."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest

import gemmtune as gt
from gemmtune.engine.api.reporting import report
from gemmtune.engine.consumers.inductor.capture.captured import Captured, CapturedCall, CapturedProduct, Unseen
from gemmtune.engine.consumers.inductor.floor.shares import Cost
from gemmtune.engine.consumers.inductor.report.capture_page import capture_html
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.report.html.change_pages import diff_html, verify_html
from gemmtune.engine.report.html.drawing import PANELS
from gemmtune.engine.report.live.page import live_html
from gemmtune.engine.report.live.server import LivePages
from gemmtune.engine.store.database import Database

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("needs Chromium: apt-get install chromium", allow_module_level=True)
if find_spec("playwright") is None:
    pytest.skip("needs playwright: pip install playwright", allow_module_level=True)
pytestmark = pytest.mark.slow(15)

WIDTHS = (1280, 600, 390)
NOW = datetime(2026, 11, 27, tzinfo=UTC)

OVERLAPS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter(t => t.textContent.trim());
    const boxes = texts.map(t => t.getBoundingClientRect());
    const scale = frame.width / svg.viewBox.baseVal.width;
    for (const t of texts)
      if (parseFloat(getComputedStyle(t).fontSize) * scale < 9) found.push(`too small: ${t.textContent}`);
    if (frame.right > innerWidth) found.push("a picture is out of sight");
    boxes.forEach((box, i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
          || box.bottom > frame.bottom + 1)
        found.push(`cut: ${texts[i].textContent}`);
      for (let j = 0; j < i; j++) {
        const width = Math.min(box.right, boxes[j].right) - Math.max(box.left, boxes[j].left);
        const height = Math.min(box.bottom, boxes[j].bottom) - Math.max(box.top, boxes[j].top);
        if (width > 1 && height > 2.5) found.push(`${texts[i].textContent} over ${texts[j].textContent}`);
      }
    });
  }
  for (const each of document.querySelectorAll("h1, h2, p, .card, summary, nav a"))
    if (each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== "inline")
      found.push(`too wide: ${each.textContent.slice(0, 60)}`);
  const raw = document.body.innerText.match(/\\{\\w+\\}/);
  if (raw) found.push(`waits for a value: ${raw[0]}`);
  const escaped = document.body.innerText.match(/\\\\[xu][0-9a-f]{2}/);
  if (escaped) found.push(`shows an escape: ${escaped[0]}`);
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  for (const each of innerWidth < 600 ? document.querySelectorAll("figure, .scroll, .bars, .stack") : [])
    if (each.scrollWidth > each.clientWidth + 1) found.push(`scrolls sideways: ${each.className}`);
  return found;
}"""


def _failing(landscape: Landscape) -> Landscape:
    """The landscape with every third config failing."""
    points: dict[Config, Point] = {}
    for number, (config, point) in enumerate(landscape.points.items()):
        failed = Point(config, Status.BUILD_FAILED, None, reason="out of resource: <shared memory>")
        points[config] = failed if number % 3 == 1 else point
    return replace(landscape, points=points)


def _captured() -> Captured:
    """Capture of two calls, with long names and with work that no row can serve."""
    problems = [gt.Problem.parse(f"{m}x{n}x4096:bf16:nt:addmm") for m in (16, 8192) for n in (4096, 12288, 128256)]
    attention = [f"aten._scaled_dot_product_{kind}_attention.default" for kind in ("flash", "efficient")]
    unseen = [Unseen(name, "a library's kernel", 32, {Cost(1e9, 1e8, "bf16"): 32}) for name in attention]
    unseen.append(Unseen("mine.operator.default", "a library's kernel", 2, {Cost(None, 1e8): 2}))
    calls = [CapturedCall(f"input_ids=int64[16,{m}] weight", 512, 3, 96, 1e6, 0.5) for m in (1, 512)]
    products = [CapturedProduct(each, 32) for each in problems]
    source = "Products of mymodel:build, forward, lowered for NVIDIA H200."
    return Captured(products, unseen, source, "2.13.0", {}, calls, 1e9, catalogue.device("H200"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder, recorded = tmp_path_factory.mktemp("pages"), gt.landscapes("h200")
    whole = gt.tune(backend=recorded, budget=16, sampler="evolution", out=folder / "whole")
    failing = [each if each.context["space"] == "aten" else _failing(each) for each in recorded]
    some = [each.problem for each in recorded[::4]]
    gt.tune(some, backend=failing, budget=8, sampler="random", out=folder / "failing")
    gt.tune(
        ["16x4096x4096:bf16:nt", "2048x4096x4096:bf16:nt"],
        backend=recorded,
        ranges=True,
        budget=16,
        sampler="random",
        out=folder / "ranges",
    )
    compared = recorded[-(PANELS + 1) :]  # one more than has a panel
    gt.replay(compared, ["random", "evolution"], budget=8, seeds=2, out=folder / "compare")
    verified = gt.verify(whole.table, backend=recorded)
    other = gt.tune(backend=recorded, budget=2, seed=4, sampler="random")
    differences = other.table.diff(whole.table)
    assert differences.winner
    changes = {
        "verify": verify_html(verified.record),
        "diff": diff_html(differences, other.table, whole.table, ("before/table.json", "after/table.json")),
    }
    found = {path.parent.name: path for path in folder.glob("*/report.html")}
    for name, text in changes.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(text)
    found["capture"] = folder / "capture.html"
    found["capture"].write_text(capture_html(_captured()))
    found["alone"] = report(folder / "whole" / "table.json", folder / "alone.html")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    from playwright.sync_api import sync_playwright  # half a second, which only the process of these tests takes

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.parametrize("name", ["whole", "failing", "ranges", "compare", "verify", "diff", "alone", "capture"])
def test_a_page_loads_nothing_and_cuts_nothing(browser, pages, name):
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 900})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = pages[name].as_uri()
    page.goto(address)
    found = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        found[width] = page.evaluate(OVERLAPS)
    page.close()
    assert (said, asked) == ([], [address])
    assert found == {width: [] for width in WIDTHS}


def test_rows_sort_by_number_and_filter_by_words(browser, pages):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(pages["whole"].as_uri())
    section = page.locator("section[aria-labelledby=all-rows]")
    column = section.locator("tbody tr td:nth-child(3)")
    section.locator("th:nth-child(3) button").click()
    rising = [float(text) for text in column.all_inner_texts()]
    assert rising == sorted(rising)
    section.locator("th:nth-child(3) button").click()
    assert [float(text) for text in column.all_inner_texts()] == rising[::-1]
    section.get_by_role("button", name="problem").click()
    names = section.locator("tbody tr td:nth-child(1)").all_inner_texts()
    sizes = [int(name.split("x")[0]) for name in names]
    assert sizes == sorted(sizes)
    field = section.get_by_role("searchbox")
    field.fill("8192x triton")
    shown = [row.inner_text() for row in section.locator("tbody tr:not([hidden])").all()]
    assert all("8192x" in row for row in shown)
    field.fill("8192x")
    assert section.locator("tbody tr:not([hidden])").count() == 1
    assert "1 of 10 rows" in section.inner_text()
    page.close()


def test_a_dot_tells_its_row_and_leads_to_it(browser, pages):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(pages["whole"].as_uri())
    mark = page.locator("section[aria-labelledby=roofline] a.mark").first
    name = mark.get_attribute("href")
    cells = page.locator(f"{name} td").all_inner_texts()
    mark.hover()
    told = page.locator("#tip > *").all_inner_texts()
    assert told[0] == cells[0]
    assert told[told.index("ships") + 1 : told.index("µs") + 2] == [cells[1], "µs", cells[2]]
    page.get_by_role("searchbox").first.fill("no such row")
    assert page.locator(name).is_hidden()
    mark.click()
    assert page.locator(f"{name}:target").is_visible()
    assert page.locator("#tip").is_hidden()
    page.close()


def test_the_page_of_a_running_campaign_has_the_times_of_its_database(browser, pages):
    folder, page = pages["whole"].parent, browser.new_page()
    page.set_content(live_html(str(folder / "measurements.db"), folder, NOW))
    with Database.open(folder / "measurements.db") as database:
        times: dict[tuple[str, bool], float] = {}
        for each in database.measurements():
            if each.estimate is not None:
                key = each.task.problem.name, each.task.is_baseline
                times[key] = min(each.estimate.time_ns, times.get(key, math.inf))
    shown = [row.locator("td").all_text_contents() for row in page.locator("tbody").first.locator("tr").all()]
    page.close()
    assert {name for name, _ in times} == {name for name, *_ in shown}
    for name, best, aten, lead, *_ in shown:
        ours, base = times[name, False] / 1e3, times[name, True] / 1e3
        assert (best, aten, lead) == (f"{ours:.1f}", f"{base:.1f}", f"{100 * (base / ours - 1):+.1f}%")


def test_the_page_of_a_model_has_the_numbers_of_its_capture(browser, pages):
    found, page = _captured(), browser.new_page()
    page.goto(pages["capture"].as_uri())
    shown = [row.locator("td").all_text_contents() for row in page.locator("tbody").first.locator("tr").all()]
    page.close()
    runs = {name: int(count) for name, kind, count, *_ in shown if kind == "product"}
    assert runs == {each.problem.name: each.count for each in found.products}
    gflop = {name: float(text) for name, kind, _, text, *_ in shown if kind == "product"}
    assert gflop == {each.problem.name: round(each.count * each.problem.flops / 1e9, 2) for each in found.products}


def test_the_page_of_a_campaign_looks_again_and_keeps_what_the_reader_did(browser, pages):
    folder, page = pages["whole"].parent, browser.new_page(viewport={"width": 390, "height": 900})
    said: list[str] = []
    asked: set[str] = set()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.add(request.url))
    looks = iter(range(10**6))

    def made() -> str:
        return live_html(str(folder / "measurements.db"), folder, NOW + timedelta(seconds=next(looks))).replace(
            "2000", "99"
        )

    with LivePages("127.0.0.1:0", made, {}) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        page.goto(server.url)
        assert page.evaluate(OVERLAPS) == []
        page.locator("summary").first.click()
        first = page.locator("header p").first.inner_text()
        page.wait_for_function("first => document.querySelector('header p').innerText !== first", arg=first)
        assert page.locator("details").first.get_attribute("open") is not None
        assert said == []
        server.shutdown()
    page.get_by_text("gemmtune show --live has ended").wait_for()
    thread.join()
    page.close()
    assert asked == {server.url}
    assert [each for each in said if "net::ERR_" not in each] == []  # refused or reset, after its end


def test_dark_and_print_take_their_own_colours(browser, pages):
    page = browser.new_page(color_scheme="dark")
    page.goto(pages["whole"].as_uri())
    colour = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(21, 24, 29)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.close()
