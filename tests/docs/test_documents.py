"""README and docs: links lead somewhere, examples run, and the generated page is up to date."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
import typer
from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.core import TyperGroup

from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.cli.commands import app
from gemmtune.engine.toolchain.gpu_info import present_device

ROOT = Path(__file__).parents[2]
GUIDE = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXPERIMENTS = sorted((ROOT / "experiments").glob("*/README.md"))
DOCUMENTS = [*GUIDE, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")), *EXPERIMENTS]
MOST_LINES = {"CHANGELOG.md": 40, "README.md": 150, "docs/architecture.md": 120}
MOST_WORDS = 400
"""Words of an experiment's README: question, method, result, limits and command. The way there is in the history."""
MOST_EXPERIMENTS = {"lines of Python": 13_400, "bytes": 1_770_000}


def name(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@cache
def tokens(document: Path) -> list[Token]:
    parsed = MarkdownIt("commonmark").enable("table").parse(document.read_text(encoding="utf-8"))
    return [token for block in parsed for token in (block, *(block.children or ()))]


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(document: Path, link: str) -> str:
    path, _, anchor = link.partition("#")
    target = (document.parent / path).resolve() if path else document
    if not target.exists():
        return f"{name(document)}: {link} does not exist"
    if ROOT not in (target, *target.parents):
        return f"{name(document)}: {link} is outside the repository"
    if anchor and anchor not in anchors(target):
        return f"{name(document)}: {link} has no such heading"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_relative_link_leads_to_a_file_and_a_heading(document: Path):
    links = [
        str(t.attrs.get("href") or t.attrs.get("src")) for t in tokens(document) if t.type in ("link_open", "image")
    ]
    relative = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [said for link in relative if (said := broken(document, link))] == []


def test_a_broken_link_is_found(tmp_path: Path):
    assert broken(GUIDE[0], "docs/none.md")
    assert broken(GUIDE[0], "docs/glossary.md#none")
    assert not broken(GUIDE[0], "docs/glossary.md#glossary")


def blocks(document: Path, language: str) -> list[str]:
    return [token.content for token in tokens(document) if token.type == "fence" and token.info.strip() == language]


EXAMPLES = [
    pytest.param(text, id=f"{name(document)}-{number}")
    for document in GUIDE
    for number, text in enumerate(blocks(document, "python"), 1)
]


@pytest.mark.slow(0.5, together="commands")
@pytest.mark.skipif(present_device() is not None, reason="with a GPU the examples measure for minutes")
@pytest.mark.parametrize("text", EXAMPLES)
def test_every_python_example_runs(text: str, tmp_path: Path, served: Path):
    script = tmp_path / "example.py"
    script.write_text(re.sub(r"\b(budget|seeds)=\d+", r"\1=2", text), encoding="utf-8")  # a large one takes long
    done = subprocess.run(
        [served / "python", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr
    for picture in re.findall(r'savefig\("([^"]+)"\)', text):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
        assert (ROOT / "docs/pictures" / picture).exists()


@pytest.mark.parametrize("document", [d for d in GUIDE if any("[[problem]]" in b for b in blocks(d, "toml"))], ids=name)
def test_every_campaign_file_shown_is_a_plan(document: Path, tmp_path: Path):
    shown = [text for text in blocks(document, "toml") if "[[problem]]" in text]
    for number, text in enumerate(shown):
        campaign = tmp_path / f"{number}.toml"
        campaign.write_text(text, encoding="utf-8")
        assert read_plan(campaign).problems


def test_the_page_of_commands_is_what_the_command_line_says():
    command = [sys.executable, "-m", "typer", "gemmtune.engine.cli.commands", "utils", "docs", "--name", "gemmtune"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env={"TERM": "dumb"}).stdout
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").strip() == said.strip(), "run `make docs`"


def test_the_page_of_the_python_api_is_what_the_docstrings_say():
    said = runpy.run_path(str(ROOT / "docs/site/python_api.py"))["page"]()
    assert (ROOT / "docs/python-api.md").read_text(encoding="utf-8") == said, "run `make docs`"


def parsed(line: str) -> dict[str, object]:
    """The arguments of a command as the command line takes them."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    words = shlex.split(line, comments=True)[1:]
    command, *arguments = takewhile(lambda word: word not in ("||", "&&", "|", ">"), words)
    above = group.context_class(group, **group.context_settings)
    return group.commands[command].make_context(command, arguments, parent=above).params


@pytest.mark.parametrize("document", GUIDE, ids=name)
def test_the_command_line_takes_every_command_of_a_block(document: Path):
    shown = "\n".join(text for language in ("", "bash", "console") for text in blocks(document, language))
    for line in re.findall(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(gemmtune .*)", shown.replace("\\\n", " "), re.MULTILINE):
        assert "[OPTIONS]" in line or parsed(line), line


def test_the_first_page_names_three_commands_at_most_for_each_task_and_the_command_line_takes_them():
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Five tasks\n")[2].partition("\n## ")[0]
    tasks = re.findall(r"^\| .* \| (`.*`) \|$", section, re.MULTILINE)
    assert len(tasks) == 5
    for task in tasks:
        commands = re.findall("`([^`]+)`", task)
        assert len(commands) <= 3
        assert all(parsed(command) for command in commands if not command.startswith("export ")), task


@pytest.mark.parametrize(("document", "most"), MOST_LINES.items())
def test_the_first_pages_stay_short(document: str, most: int):
    assert len((ROOT / document).read_text(encoding="utf-8").splitlines()) <= most


@pytest.mark.parametrize("document", EXPERIMENTS, ids=name)
def test_an_experiment_says_its_finding_in_few_words(document: Path):
    assert len(document.read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_the_experiments_stay_small():
    files = [file for file in (ROOT / "experiments").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files if file.suffix == ".py")
    found = {"lines of Python": lines, "bytes": sum(file.stat().st_size for file in files)}
    assert {what: number for what, number in found.items() if number > MOST_EXPERIMENTS[what]} == {}


def test_the_glossary_is_sorted_and_each_word_stands_once():
    rows = re.findall(
        r"^\| ([^|]+) \| [^|]+ \|$", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    words = [row for row in rows if row != "word"]
    assert words == sorted(set(words))


def test_pictures_are_small():
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.png"))
    assert pictures
    assert [name(picture) for picture in pictures if picture.stat().st_size > 120_000] == []
