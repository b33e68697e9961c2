"""Pages of the site link to each other, and to the experiments behind their figures."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed")

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "docs/site/pages.py"))


def shown(markdown: str, page: str) -> str:
    return PAGES["on_page_markdown"](markdown, SimpleNamespace(file=SimpleNamespace(src_uri=page), meta={}))


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "[how](experiments/models/README.md)", "[how](experiments/models.md)"),
        ("index.md", "[m](docs/models.md#a)", "[m](models.md#a)"),
        ("index.md", "![p](docs/pictures/live.png)", "![p](pictures/live.png)"),
        ("tuning.md", "[how](../experiments/search/README.md#b)", "[how](experiments/search.md#b)"),
        ("tuning.md", "[log](../CHANGELOG.md)", "[log](changelog.md)"),
        ("experiments/search.md", "[tuning](../../docs/tuning.md)", "[tuning](../tuning.md)"),
        ("experiments/search.md", "[other](../tables/README.md)", "[other](tables.md)"),
        (
            "experiments/search.md",
            "[run](run.py)",
            '<span title="experiments/search/run.py" markdown="span">run</span>',
        ),
        ("tuning.md", "[web](https://example.org)", "[web](https://example.org)"),
        ("tuning.md", "[here](#below)", "[here](#below)"),
    ],
)
def test_a_link_leads_to_the_page_on_the_site(page, link, expected):
    assert shown(link, page) == expected


def test_a_page_with_a_wide_table_has_no_contents_beside_it():
    pages = [SimpleNamespace(file=SimpleNamespace(src_uri=name), meta={}) for name in ("releases.md", "tuning.md")]
    for page in pages:
        PAGES["on_page_markdown"]("", page)
    assert [page.meta for page in pages] == [{"hide": ["toc"]}, {}]


def test_every_experiment_is_a_page_that_the_navigation_lists():
    navigation = (ROOT / "docs/site/mkdocs.yml").read_text(encoding="utf-8")
    written = sorted(path.parent.name for path in ROOT.glob("experiments/*/README.md"))
    assert written
    assert [name for name in written if f"- experiments/{name}.md\n" not in navigation] == []
