"""Result of a census: the lines of every capture up to the first that is missing in the seeded order. Imports nothing.

Lines beyond it are counted apart: they say something of all only if they were drawn at random.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

_PACKAGES = re.compile(r"[^ (]*/site-packages/")


def write(path: Path, lines: dict[str, dict[str, Any]], order: list[str]) -> None:
    """Write counts, seconds, and the reason of everything that is not equal."""
    end = next((number for number, key in enumerate(order) if key not in lines), len(order))
    found = [lines[key] for key in order[:end]]
    beyond = [lines[key] for key in order[end:] if key in lines]
    commits: dict[str, list[str]] = {}
    for line in (*found, *beyond):
        commits.setdefault(line.get("commit", ""), []).append(line["name"])
    result = {
        "captures": len(order),
        "reached": end,
        "outcomes": dict(Counter(line["outcome"] for line in found)),
        "beyond": dict(Counter(line["outcome"] for line in beyond)),
        "cpu seconds": {
            "first commit": _seconds([line for line in found if "commit" not in line]),
            "later commits": _seconds([line for line in (*found, *beyond) if "commit" in line]),
        },
        "later commits": {commit: names for commit, names in commits.items() if commit},
        "equal": {line["name"]: line["seconds"] for line in (*found, *beyond) if line["outcome"] == "equal"},
        "others": [_short(line) for line in (*found, *beyond) if line["outcome"] != "equal"],
    }
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _seconds(lines: list[dict[str, Any]]) -> dict[str, float]:
    found = sorted(line["seconds"] for line in lines if line["outcome"] in ("equal", "unequal")) or [0.0]
    half, most = found[len(found) // 2], found[len(found) * 9 // 10]
    return {"median": half, "90 %": most, "most": found[-1], "at most 6": sum(each <= 6 for each in found)}


def _short(line: dict[str, Any]) -> dict[str, Any]:
    kept = ("name", "class", "outcome", "inputs", "device", "difference", "of graphs", "seconds")
    return {name: line[name] for name in kept if name in line} | {"why": _PACKAGES.sub("", line.get("why", ""))[:200]}
