"""Adapt the repository's Markdown to the site: home page, changelog, experiments, links into the source."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
EXPERIMENTS = {
    f"experiments/{path.parent.name}.md": path.relative_to(ROOT).as_posix()
    for path in sorted(ROOT.glob("experiments/*/README.md"))
}
ADDED = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    **EXPERIMENTS,
}
"""Pages of the site that are files elsewhere than in docs/."""
WHOLE_WIDTH = ("index.md", "releases.md")
"""Pages without a table of contents beside them: with a diagram or a table that is as wide as the page."""
STYLE = """\
.md-header__button:has(+ .md-search[hidden]) { display: none }
.md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: .6em .45em }
"""
"""Style of the site. Opened from a disk it has no search, and no icon that opens one; columns are as wide as needed."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere in the repository, and the style."""
    files.append(File.generated(config, "style.css", content=STYLE))
    for page, source in ADDED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links to the site's pages, print those into the source as text, and leave out `no-run` of examples."""
    own = page.file.src_uri
    if own in WHOLE_WIDTH:
        page.meta["hide"] = ["toc"]
    folder = dirname(ADDED.get(own, f"docs/{own}"))
    text = LINK.sub(lambda found: _link(found, folder, dirname(own)), markdown)
    return re.sub(r"^```(\w+) no-run$", r"```\1", text, flags=re.MULTILINE)


def _link(found: re.Match[str], folder: str, place: str) -> str:
    """Return a link of a file in `folder`, from a page in `place`; text with the file's path if the site lacks it."""
    image, words, address = found.groups()
    path, hash_, anchor = address.partition("#")
    if not path or re.match("[a-z]+:", address):
        return found.group()
    file = normpath(join(folder, path))
    pages = {source: page for page, source in ADDED.items()}
    target = pages.get(file, file.removeprefix("docs/") if file.startswith("docs/") else "")
    if not target:
        return f'<span title="{file}" markdown="span">{words}</span>'
    return f"{image}[{words}]({relpath(target, place or '.')}{hash_}{anchor})"
