"""The rooms stay small, and their prose stays plain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ("gemmtune", "engine", "spaces", "objectives")
MOST_FILES = 15
"""Python files in one folder of the source, `__init__.py` included."""
MOST_LINES_OF_A_FILE = 400
"""Lines of one Python file outside tests and experiments."""
MOST_LINES = 69_920
"""Lines of Python outside tests and experiments; the aim is 24,000. Lower this bound whenever something goes."""
MOST_PER_THOUSAND = 40
"""Docstrings per 1,000 that break a rule of prose."""

OPENING = re.compile(r"(What|The same|As (?!well)|Of |Those|How|So |Whose|Who|Which|Where it|One of|Somebody)\b")
"""First words of a docstring that leads with a clause or a pronoun in place of a verb or a noun."""
UNIT = "config|core|GPU|host|job|kernel|launch|line|machine|node|problem|process|product|row|second|space|task|worker"
DISTRIBUTIVE = re.compile(
    rf"\b(one|two|\d[\d.,]*|seconds|bytes|launches|evaluations|configs?|process) a ({UNIT})\b", re.I
)
"""`one process a GPU` for `one process per GPU`."""

PLACEHOLDER = re.compile(r"(?<!\{)\{[a-z_]\w*(?:[.:!][^{}]*)?\}(?!\})")
"""Place of a value in a text, as in `ships {baseline}`."""


def files(*folders: str) -> list[Path]:
    """Python files below folders of the repository; links are not followed."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if ".venv" not in path.parts]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring: of modules, classes and functions, and below attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text
        if isinstance(node, ast.Module | ast.ClassDef):
            for before, below in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(below, ast.Expr):
                    value = below.value
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield below.lineno, value.value


def faults(text: str) -> list[str]:
    """Rules that a docstring breaks."""
    sentences = re.split(r"(?<=[.:;])\s+", text)
    return [
        name
        for name, broken in {
            "opens with a clause or a pronoun": OPENING.match(text.strip()),
            "has three words or fewer": len(text.split()) <= 3,
            "says `a` for `per`": DISTRIBUTIVE.search(text),
            "has a sentence of over 35 words": any(len(sentence.split()) > 35 for sentence in sentences),
        }.items()
        if broken
    ]


def test_no_folder_of_the_source_holds_too_many_files():
    folders = {path.parent for path in files(*SOURCES)}
    crowded = {str(f.relative_to(ROOT)): n for f in folders if (n := len(list(f.glob("*.py")))) > MOST_FILES}
    assert crowded == {}


def test_rooms_that_serve_every_workload_name_no_size_of_a_gemm():
    found = []
    for path in files(*(f"engine/{room}" for room in ("search", "scheduling", "execution", "store", "report"))):
        nodes: Iterator[Any] = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for node in nodes:
            named = isinstance(node, ast.Attribute) and node.attr in {"m", "n", "k"} and ast.unparse(node.value)
            if named and named.split(".")[-1] in {"p", "problem", "workload"}:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
            if isinstance(node, ast.ImportFrom) and {each.name for each in node.names} & {"Problem", "gemm"}:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_no_file_of_the_source_is_long():
    lines = {str(f.relative_to(ROOT)): len(f.read_text(encoding="utf-8").splitlines()) for f in files(*SOURCES)}
    assert {name: number for name, number in lines.items() if number > MOST_LINES_OF_A_FILE} == {}


def test_the_source_stays_small():
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files(*SOURCES)) <= MOST_LINES


def test_every_text_with_a_place_for_a_value_is_an_f_string_or_formatted_where_it_stands():
    found = []
    for path in files(*SOURCES):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        filled = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                filled |= {id(part) for part in ast.walk(node)}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
                filled.add(id(node.func.value))
        texts = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
        found += [
            f"{path.relative_to(ROOT)}:{text.lineno}: {text.value!r}"
            for text in texts
            if id(text) not in filled and PLACEHOLDER.search(text.value)
        ]
    assert found == []


def test_docstrings_keep_the_rules_of_prose():
    found, total = [], 0
    for path in files(*SOURCES, "experiments"):
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            total += 1
            found += [f"{path.relative_to(ROOT)}:{line} {fault}: {text.splitlines()[0]}" for fault in faults(text)]
    assert len(found) <= MOST_PER_THOUSAND * total / 1000, "\n".join(found)


def test_each_rule_of_prose_finds_its_fault():
    assert faults("What was built.") == ["opens with a clause or a pronoun", "has three words or fewer"]
    assert faults("Start one process a GPU and wait.") == ["says `a` for `per`"]
    assert faults("Return " + "many " * 40 + "words.") == ["has a sentence of over 35 words"]
    assert faults("Return the configs that fit in shared memory.") == []
