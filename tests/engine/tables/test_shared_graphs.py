"""One graph serves every m of a row's range, by Dynamo's own guards, on a machine without a GPU.

INDUCTOR_PROBE_PYTHON=/path/to/python pytest tests/engine/tables/test_shared_graphs.py asks another torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, RangeRow
from gemmtune.engine.tables.inductor_exporter import InductorExporter
from gemmtune.engine.testing.exporter_conformance import example_table

TILES = {"BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 4, "num_stages": 3, "num_warps": 4}


def ranged(first, last, block_m):
    problem = Problem.parse(f"{last}x384x512:bf16:nt:addmm:dynamic_m=true")
    config = Config({**TILES, "BLOCK_M": block_m})
    choice = Choice("triton_mm", config, 100.0, 99.0, 101.0, 1, Evidence.MEASURED, "by hand", "p")
    return RangeRow(problem, first, last, choice, ((last, 0.0),))


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    python = os.environ.get("INDUCTOR_PROBE_PYTHON", sys.executable)
    if python == sys.executable and (find_spec("torch") is None or find_spec("triton") is None):
        pytest.skip("torch or triton is not installed")
    folder = tmp_path_factory.mktemp("shared")
    table = replace(example_table(), rows=(), ranges=(ranged(2, 64, 16), ranged(65, 256, 64)))
    for name, text in InductorExporter().export(table).items():
        (folder / name).write_text(text, encoding="utf-8")
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [python, str(Path(__file__).with_name("shared_graph_probe.py")), str(folder)],
        env={**os.environ, **settings, "TORCH_LOGS": "recompiles"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_a_graph_is_compiled_for_each_range_and_serves_all_of_it(probe):
    found = {m: each["graphs"] for m, each in json.loads(probe.stdout)["sizes"].items()}
    assert found == {"16": 1, "32": 0, "100": 1, "200": 0, "60": 0, "1000": 1}, probe.stderr


def test_each_graph_has_the_row_of_its_range_and_the_last_has_none(probe):
    assert json.loads(probe.stdout)["blocks"] == ["16", "64", None]
