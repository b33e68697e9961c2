"""Run the commands that pages of instructions show, and write what they print below them.

In a page, a fence with a title is a file of the reader's folder. A `console` fence holds commands behind `$ ` with
their standard output. Durations may differ from those on the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1]
PROGRAMS = Path(sys.executable).parent
PAGES = [*sorted(DOCS.glob("quickstart-*.md")), DOCS / "own-space.md"]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
DURATION = re.compile(r"\b\d+(\.\d+)? s\b")
MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def run_page(page: str, folder: Path) -> str:
    """Return the page with the output of each command as it is now; the files it names are written to the folder."""

    def replaced(fence: re.Match[str]) -> str:
        info, content = fence["info"].strip(), fence["content"]
        if title := TITLE.search(info):
            (folder / title[1]).write_text(content, encoding="utf-8")
        if info != "console":
            return fence.group()
        return f"```console\n{''.join(_shown(command, folder) for command in _commands(content))}```"

    return FENCE.sub(replaced, page)


def masked(page: str) -> str:
    """Return the page with a placeholder for each duration and each moment."""
    return MOMENT.sub("DATE", DURATION.sub("N s", page))


def _commands(content: str) -> Iterator[str]:
    """Yield each command; a line that ends with a backslash goes on below."""
    for found in re.finditer(r"^\$ ((?:.*\\\n)*.*)$", content, re.MULTILINE):
        yield found[1]


def _shown(command: str, folder: Path) -> str:
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "CUDA_VISIBLE_DEVICES": ""}
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"$ {command}\nexit status {done.returncode}\n{done.stdout}{done.stderr}")
    lines = (line.rstrip() for line in done.stdout.splitlines())
    return "".join(f"{line}\n" for line in (f"$ {command}", *lines))


def main() -> None:
    """Write the output of the commands into the pages named, else into every page, where it has changed."""
    for page in [Path(name) for name in sys.argv[1:]] or PAGES:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            now = run_page(text, Path(folder))
        if masked(now) != masked(text):
            page.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()
