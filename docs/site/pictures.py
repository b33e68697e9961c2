"""Draw docs/pictures from the recorded landscapes: `python docs/site/pictures.py`. Needs Chromium and playwright."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import gemmtune as gt

PICTURES = Path(__file__).parents[1] / "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def main() -> None:
    """Tune the recorded problems, compare three samplers on them, and photograph the pages."""
    recorded = gt.landscapes("h200")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gt.tune(backend=recorded, budget=64, out=folder / "tuned")
        gt.replay(recorded, ["random", "tpe", "evolution", "transfer"], budget=48, seeds=10, out=folder / "compared")
        tuned, compared = folder / "tuned/report.html", folder / "compared/report.html"
        PICTURES.mkdir(exist_ok=True)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for page, scheme, out in (
                (tuned, "light", "report-light"),
                (tuned, "dark", "report-dark"),
                (compared, "light", "compare"),
            ):
                view = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme=scheme)
                view.goto(page.as_uri())
                view.screenshot(path=PICTURES / f"{out}.png")
                shrink(PICTURES / f"{out}.png")
            browser.close()


def shrink(picture: Path) -> None:
    """Reduce a picture to 64 colours; pages of charts and text lose nothing that is seen."""
    Image.open(picture).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
