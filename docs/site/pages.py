"""Adapt the repository's Markdown to the site: home page, changelog, links into the source."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
ADDED = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
"""Pages of the site that are files at the top of the repository."""
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand at the top of the repository, with links seen from docs/."""
    for page, source in ADDED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = re.sub(r"\]\((?![a-z]+:|#)([^)\s]+)\)", r"](../\1)", text)
        files.append(File.generated(config, page, content=text.replace("](../docs/", "](")))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Print links into the source as text, and leave out the word that keeps the tests from running an example."""
    text = LINK.sub(_link, markdown)
    return re.sub(r"^```(\w+) no-run$", r"```\1", text, flags=re.MULTILINE)


def _link(match: re.Match[str]) -> str:
    """Return the link as it is within the site, else its text with the file's path as its title."""
    words, address = match.groups()
    if not address.startswith("../"):
        return match.group()
    file = PurePosixPath(normpath(f"docs/{address}"))
    pages = {source: page for page, source in ADDED.items()}
    if str(file) in pages:
        return f"[{words}]({pages[str(file)]})"
    return f'<span title="{file}" markdown="span">{words}</span>'
