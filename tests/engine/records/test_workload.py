"""Search, scheduling, execution, store and report serve every kind of workload."""

from __future__ import annotations

import ast
from pathlib import Path

ENGINE = Path(__file__).parents[3] / "engine"
ROOMS = ("campaign", "execution", "measure", "scheduling", "report", "search", "store", "studies")
SIZES = ("m", "n", "k")
GEMMS = ("captures.py", "explain.py", "files.py", "plan_keys.py")
"""Reports of what holds GEMMs alone: a model's products, tables of Inductor and CuTe, keys of a campaign file."""


def sources() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ENGINE / room).rglob("*.py")) if path.name not in GEMMS]


def gemm_words(path: Path) -> list[str]:
    """Mentions of a GEMM in a file: the record of one, and its sizes as attributes or texts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    found = [module for module in found if module == "gemmtune.engine.records.gemm.problem"]
    found += [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in SIZES]
    return found + [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in SIZES]


def test_no_room_above_the_seams_knows_a_gemm():
    assert {str(path.relative_to(ENGINE)): found for path in sources() if (found := gemm_words(path))} == {}
