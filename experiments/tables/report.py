"""Print the arms' results. Usage: report.py FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path

SLOWER = 1.02
"""Time over eager's that no m may exceed.

An m counts as slower, or as faster, if its whole interval lies beyond this factor.
"""
OF_SUMMARY = ("rows of the table", "portfolio", "to compile", "ranges of m", "  loss")


def report(folder: Path) -> list[str]:
    """Return a line per arm, and the layers that differ from eager; arms without a result are left out."""
    found = {path.stem: json.loads(path.read_text())["rows"] for path in sorted(folder.glob("*-*.json"))}
    tuned = folder / "tuned" / "summary.txt"
    lines = [line for line in tuned.read_text().splitlines() if line.startswith(OF_SUMMARY)] if tuned.exists() else []
    lines += [arm_line(name, rows) for name, rows in found.items()]
    layers = found.get("layers-table", [])
    if layers:
        for said, which in (("slower", slower), ("faster", faster), ("within 2 % or slower, undecided", undecided)):
            named = ", ".join(f"{row['layer']} m={row['m']} {interval(row)}" for row in layers if which(row))
            lines.append(f"layers {said}: {named or 'none'}")
    return lines


def arm_line(name: str, rows: list[dict]) -> str:
    benchmarks = sum(sum(row["benchmarks"].values()) for row in rows)
    benchmarks += sum(count for row in rows for key, count in row.items() if key.endswith("_benchmarks"))
    others, graphs, seconds = (
        sum(row[key] for row in rows) for key in ("other_kernels_timed", "graphs", "first_seconds")
    )
    ratios = [row["forward_over_eager"][0] for row in rows]
    compiled = f"{sum(row['compiled'] for row in rows)} compiled, " if "compiled" in rows[0] else ""
    return (
        f"{name}: {benchmarks} benchmarks, {others} other kernels timed, {graphs} graphs, {compiled}"
        f"first calls {seconds:.1f} s; "
        f"forward over eager {min(ratios):.3f} to {max(ratios):.3f} at {len(rows)} sizes"
    )


def slower(row: dict) -> bool:
    return row["forward_over_eager"][1] > SLOWER


def faster(row: dict) -> bool:
    return row["forward_over_eager"][2] < 1 / SLOWER


def undecided(row: dict) -> bool:
    return row["forward_over_eager"][1] <= SLOWER < row["forward_over_eager"][2]


def interval(row: dict) -> str:
    ratio, low, high = row["forward_over_eager"]
    return f"{ratio:.3f} ({low:.3f}–{high:.3f})"


if __name__ == "__main__":
    print("\n".join(report(Path(sys.argv[1]))))
