"""Judge when a space that is behind another one may be given up. Usage: rivals.py [DATABASE ...].

Without a database, rivals.csv answers: per campaign, problem and space, the evaluations and the best time after 8, 16
and all of them, and that of the vendor library. With databases, rivals.csv is written anew from them.
"""

from __future__ import annotations

import csv
import math
import sys
from itertools import groupby
from pathlib import Path

import gemmtune as gt
from gemmtune.engine.records.measurement import Status

FILE = Path(__file__).with_name("rivals.csv")
COLUMNS = ("campaign", "problem", "space", "evaluations", "after_8", "after_16", "best", "library")
RULES = (
    (1.1, None),
    (1.2, None),
    (1.3, None),
    (1.5, None),
    (None, 1.1),
    (1.3, 1.1),
    (1.5, 1.1),
    (1.5, 1.2),
    (2.0, 1.2),
)


def main() -> None:
    if sys.argv[1:]:
        write(sys.argv[1:])
    with FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    groups = [list(group) for _, group in groupby(rows, lambda row: (row["campaign"], row["problem"]))]
    total = sum(int(row["evaluations"]) for row in rows)
    print(f"{len(groups)} problems in two to four spaces, {total} evaluations")
    print(f"{'behind after 8':>15}{'after 16':>10}{'saved':>8}  what ships loses")
    for first, second in RULES:
        saved, losses = 0, []
        for group in groups:
            kept = {row["space"]: float(row["best"]) for row in group}
            ended: set[str] = set()
            for count, factor in ((8, first), (16, second)):
                lead = min(float(row[f"after_{count}"]) for row in group if row["space"] not in ended)
                for row in group:
                    behind = factor is not None and float(row[f"after_{count}"]) > factor * lead
                    if behind and row["space"] not in ended:
                        ended.add(row["space"])
                        saved += max(0, int(row["evaluations"]) - count)
                        kept[row["space"]] = float(row[f"after_{count}"])
            library = float(group[0]["library"])
            loss = min(library, *kept.values()) / min(library, *(float(row["best"]) for row in group)) - 1
            losses += [loss] if loss > 0 else []
        shown = ", ".join(f"{loss:.1%}" for loss in sorted(losses, reverse=True)) or "none"
        print(f"{first or '-':>15}{second or '-':>10}{saved / total:>8.0%}  {shown}")


def write(databases: list[str]) -> None:
    """Write the running bests of every problem that several spaces were searched for."""
    lines = []
    for campaign, path in enumerate(databases):
        found: dict[str, dict[str, list[float]]] = {}
        with gt.Database.open(path, read_only=True) as database:
            for measurement in database.measurements():
                spaces = found.setdefault(measurement.task.problem.name, {})
                is_ok = measurement.status is Status.OK and measurement.estimate is not None
                time_ns = measurement.estimate.time_ns if is_ok else math.inf
                spaces.setdefault(measurement.task.space, []).append(time_ns)
        for problem, spaces in found.items():
            library = min(spaces.pop("aten", [math.inf]))
            for space, times in spaces.items() if len(spaces) > 1 else ():
                bests = (min(times[:8]), min(times[:16]), min(times))
                lines.append([campaign, problem, space, len(times), *(f"{best:.0f}" for best in (*bests, library))])
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(lines)


if __name__ == "__main__":
    main()
