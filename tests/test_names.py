"""Public names are in the glossary's words: no module, function, class or constant is named by a metaphor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "spaces", "objectives")
LISTED = """
    arena asked calm cellar circle crossing crossings exchange fleet forgo gate heard holdings lesson lessons opening
    origin parcel parcels place places probing race ring rig seat session settle settled settles shelf site slot
    spotting stand standing stands teach teaching tell told turn turns unsettled watcher
"""
METAPHORS = frozenset(LISTED.split())
ALLOWED = {
    "ask": "a sampler is asked for configs",
    "tell": "a sampler is told the results",
    "AskTell": "the field's name of a loop around a sampler",
    "ask_tell": "as above",
    "asked": "torch asks questions of a size, which become guards",
    "asked_by_torch": "as above",
}


def words(name: str) -> list[str]:
    """`PackedArtifacts`, `packed_artifacts` and `_PACKED_ARTIFACTS` are packed, artifacts."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def public_names(path: Path) -> Iterator[str]:
    """The module's name, the names that it defines, and the methods and fields of its classes."""
    yield path.parent.name if path.stem == "__init__" else path.stem
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    yield member.name
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    yield member.target.id


def test_public_names_are_no_metaphors():
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    offending = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in sorted(set(public_names(path)) - ALLOWED.keys())
        if not name.startswith("_") and METAPHORS & set(words(name))
    ]
    assert len(files) > 300
    assert offending == [], "name it by a word of docs/glossary.md"
