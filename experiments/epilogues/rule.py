"""Check which epilogues a plain row's kernel may compute, against measured times. Usage: rule.py [TABLE.db SWEEP.db].

With databases of run.py their times are written to times.csv.gz first, where the vendor library's times of plain
products stay: rows without an epilogue, of campaign-100 on 2026-11-23. Plain times of configs are those of a sweep of
campaign-100 for one product. Elsewhere `mul(0.5).to(fp32)` stands for plain.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from gemmtune.engine.consumers.inductor.exporter import _fuses_cheap  # the rule itself, not a copy of it
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice

HERE = Path(__file__).parent
SWEEPS = HERE.parent / "campaign-100" / "truth"
PLAIN = ""
SWEPT = "4096x1280x2048"
PARAMS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps")
NEAR = 1.15  # of the best plain time: configs that a plain row might ship
FEW = 2**20  # elements of an output up to which half of x in fp32 costs nothing
CONVERSION = "mul(0.5).to(fp32)"


def main() -> None:
    if sys.argv[1:]:
        collect(map(Path, sys.argv[1:]))
    times, library = read()
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for (product, epilogue), found in times.items():
        if (product, PLAIN) not in library or (product, epilogue) not in library or epilogue == "gelu":
            continue
        m, n, _ = map(int, product.split("x"))
        plain = swept() if product == SWEPT else times[product, CONVERSION] if m * n <= FEW else {}
        if not plain or (product != SWEPT and epilogue == CONVERSION):
            continue
        apart = library[product, epilogue] - library[product, PLAIN]
        problem = Problem.parse(f"{product}:bf16:nt")
        for config, us in found.items():
            if config in plain and plain[config] <= NEAR * min(plain.values()):
                is_cheap, room = parse_epilogue(epilogue).is_cheap, has_room(problem, config)
                kind = "fuses by the rule" if is_cheap and room else "cheap, no room" if is_cheap else "not cheap"
                where = SWEPT if product == SWEPT else f"at most {FEW} elements"
                groups[where, f"{kind}: {epilogue}"].append((us - plain[config], apart))
    print(f"{'':<62}{'configs':>8}{'fused +us':>10}{'apart +us':>10}{'lose':>6}{'worst us':>9}")
    for (where, kind), its in sorted(groups.items()):
        cost, apart = (statistics.median(each[i] for each in its) for i in (0, 1))
        lose = [fused - separate for fused, separate in its if fused > separate]
        worst = max(lose, default=0)
        print(f"{where + ', ' + kind:<62}{len(its):8}{cost:10.2f}{apart:10.2f}{len(lose):6}{worst:9.2f}")


def collect(databases) -> None:
    """Write the times of run.py's databases: those of the library's sequence without a config."""
    _, library = read()
    plain = {key: us for key, us in library.items() if key[1] == PLAIN}
    lines = {(*key, *[""] * len(PARAMS)): us for key, us in plain.items()}
    for database in databases:
        rows = sqlite3.connect(f"file:{database}?mode=ro", uri=True).execute(
            "SELECT t.key, m.config, m.estimate FROM measurements m JOIN tasks t ON t.id = m.task_id"
            " WHERE m.status = 'ok'"
        )
        for key, config, estimate in rows:
            product, epilogue = key.split("/")[-1].split(":bf16:nt:")
            values = json.loads(config)
            us = json.loads(estimate)["time_ns"] / 1e3
            name = (product, epilogue.split("epilogue=")[1], *(values.get(each, "") for each in PARAMS))
            lines[name] = min(us, lines.get(name, us))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["product", "epilogue", *PARAMS, "us"])
    writer.writerows([*name, round(us, 3)] for name, us in sorted(lines.items(), key=str))
    (HERE / "times.csv.gz").write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def read():
    """Return the fused times, per product and epilogue by config, and those of the library's sequences."""
    times, library = defaultdict(dict), {}
    for row in rows_of(HERE / "times.csv.gz"):
        name = row["product"], row["epilogue"]
        if row["BLOCK_M"]:
            times[name][tuple(int(row[each]) for each in PARAMS)] = float(row["us"])
        else:
            library[name] = float(row["us"])
    return times, library


def swept():
    """Return the plain time of every config of the one product that was swept."""
    rows = rows_of(SWEEPS / f"{SWEPT}.csv.gz")
    return {tuple(int(row[each]) for each in PARAMS): float(row["time_us"]) for row in rows if row["status"] == "ok"}


def rows_of(path: Path):
    return csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))


def has_room(problem: Problem, config: tuple[int, ...]) -> bool:
    values = Config(dict(zip(PARAMS, config, strict=True)))
    choice = Choice("triton_mm", values, 1.0, 1.0, 1.0, 1, Evidence.MEASURED, "", "")
    return _fuses_cheap(catalogue.device("H200"), problem, choice)


if __name__ == "__main__":
    main()
