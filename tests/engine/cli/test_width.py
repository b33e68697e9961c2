"""Output at 80 columns, with the longest names of problems."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.engine.cli import output
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes, write_landscapes

LONGEST = [
    "65536x131072x16384:bf16:nt:addmm:bias=matrix:dynamic_m=true",
    "16x131072x16384:bf16:nt:addmm:bias=matrix:dynamic_m=true",
]


@pytest.fixture
def long_named(tmp_path):
    """Recorded landscapes under the longest names: every twelfth config of triton_mm, and the vendor library."""
    found = []
    for space in ("triton_mm", "aten"):
        recorded = [each for each in read_landscapes(embedded(space)[0]) if each.problem is not None][:2]
        for name, landscape in zip(LONGEST, recorded, strict=True):
            points = dict(list(landscape.points.items())[::12])
            found.append(replace(landscape, name=name, problem=Problem.parse(name), points=points))
    path = tmp_path / "long.csv"
    write_landscapes(path, found)
    return path


def too_long(text):
    """Return the lines beyond 80 columns; a path or a command that is longer by itself is not broken."""
    plain = re.sub(r"\x1b\[\d*m", "", text)
    return [line for line in plain.splitlines() if len(line) > 80 and " " in line.strip()]


def test_every_report_fits_80_columns_with_the_longest_names(run, long_named, monkeypatch):
    monkeypatch.setattr(output, "columns", lambda: 80)
    study = ("--budget", "4", "--seeds", "1")
    commands = [
        ("tune", "--replay", long_named, "--budget", "4", "--ranges", "--no-report"),
        ("show", "out/table.json"),
        ("show", "out/measurements.db"),
        ("show", "out/inductor/inductor_table.json"),  # has the names of products
        ("show", long_named),
        ("campaigns", "out/measurements.db"),
        ("show", "out/table.json", "--graphs", "all"),
        ("compare", long_named, "--sampler", "transfer", *study),
        ("compare", long_named, "--sampler", "random,evolution,transfer,tpe", *study),
        ("diff", "out/table.json", "out/table.json"),
    ]
    for command in commands:
        shown = run(*command)
        assert shown.status == 0, shown.err
        assert too_long(shown.out) == [], command
        assert (
            any(name in shown.out for name in LONGEST)
            or command[0] == "diff"
            or "--graphs" in command
            or "inductor" in command[1]
        )
    assert Path("comparison/report.html").exists()
