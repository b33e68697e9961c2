"""Draw docs/pictures from the recorded landscapes: `python docs/site/pictures.py [NAME...]`.

Needs Chromium and playwright.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rich import terminal_theme
from rich.console import Console, RenderableType

import gemmtune as gt
from gemmtune.engine.report.progress.live import LiveView
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams.executor import Load

COLUMNS = 92
PICTURES = Path(__file__).parents[1] / "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def main(wanted: Sequence[str]) -> None:
    """Draw the pictures of these names, or all: report-light, report-dark, compare, live and curves."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for picture, (page, scheme) in PAGES.items():
            if picture in (wanted or PAGES):
                view = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme=scheme)
                view.goto(page(Path(name)).as_uri())
                shot = view.locator("svg.rich-terminal") if picture == "live" else view
                shot.screenshot(path=PICTURES / f"{picture}.png")
                shrink(PICTURES / f"{picture}.png")
        browser.close()
    if "curves" in (wanted or ["curves"]):  # of the README's lines of Python
        study = gt.replay(gt.landscapes("h200"), sampler="evolution", budget=32, seeds=5)
        study.plot().savefig(PICTURES / "curves.png")
        shrink(PICTURES / "curves.png")


@cache
def report(folder: Path) -> Path:
    """Tune the recorded problems, and return the report."""
    gt.tune(backend=gt.landscapes("h200"), budget=64, out=folder / "tuned")
    return folder / "tuned/report.html"


def comparison(folder: Path) -> Path:
    """Compare four samplers on the recorded landscapes, and return the report."""
    samplers = ["random", "tpe", "evolution", "transfer"]
    gt.replay(gt.landscapes("h200"), samplers, budget=48, seeds=10, out=folder / "compared")
    return folder / "compared/report.html"


def live(folder: Path) -> Path:
    """Tune the recorded problems, and return the live view at three fifths of the evaluations as a page."""
    state = CampaignState("ns", time.monotonic)
    view = LiveView(state, Console(file=io.StringIO(), force_terminal=True, width=COLUMNS, height=24))
    seen = Snapshot(state, view)
    gt.tune(backend=gt.landscapes("h200"), budget=64, callbacks=(state, view, seen), report=False)
    console = Console(record=True, file=io.StringIO(), force_terminal=True, width=COLUMNS)
    console.print("$ gemmtune tune", highlight=False)
    console.print(seen.shown)
    drawn = console.export_svg(title="gemmtune tune", theme=terminal_theme.DIMMED_MONOKAI)
    page = folder / "live.html"
    page.write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL), encoding="utf-8")  # nothing is fetched
    return page


class Snapshot(Callback):
    """Keeps the live view of one moment."""

    def __init__(self, state: CampaignState, view: LiveView) -> None:
        """Watch this view, which hears each event first."""
        self.shown: RenderableType = ""
        self._state, self._view = state, view

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Keep what is drawn until three fifths of the evaluations are done."""
        if self._state.done <= 0.6 * self._state.total:
            self.shown = self._view.live.get_renderable()


PAGES = {
    "report-light": (report, "light"),
    "report-dark": (report, "dark"),
    "compare": (comparison, "light"),
    "live": (live, "dark"),
}
"""Maker of the page and colour scheme, by the name of the picture."""


def shrink(picture: Path) -> None:
    """Reduce a picture to 64 colours; pages of charts and text lose nothing that is seen."""
    Image.open(picture).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
