"""The exported files inside QuACK, on CPU tensors: see quack_probe.py."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.consumers.cute.exporter import CuteExporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table

pytestmark = [
    pytest.mark.slow(4, together="probes"),
    pytest.mark.skipif(find_spec("quack") is None, reason="quack-kernels is not installed"),
]

CONFIG = {
    "tile_m": 128,
    "tile_n": 192,
    "cluster_m": 2,
    "cluster_n": 1,
    "pingpong": True,
    "swap_ab": False,
    "is_dynamic_persistent": False,
    "max_swizzle_size": 4,
}
SWAPPED = {**CONFIG, "tile_m": 256, "tile_n": 160, "pingpong": False, "swap_ab": True}


def row(problem, config):
    toolchain = "nvidia-cutlass-dsl 4.0.0, quack-kernels " + version("quack-kernels")
    choice = Choice("quack_gemm", Config(config), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, toolchain, "graph-cold-l2")
    return Row(Problem.parse(problem), (choice,), None, 0.0, ())


@pytest.fixture(scope="module")
def report(tmp_path_factory, probe):
    folder = tmp_path_factory.mktemp("quack")
    rows = (
        row("256x1024x256:bf16:nt", CONFIG),
        row("512x1024x256:bf16:nt", CONFIG),
        row("512x1024x256:fp16:tn", SWAPPED),
    )
    for name, text in CuteExporter().export(Table(catalogue.device("H200"), rows, "latency")).items():
        (folder / name).write_text(text, encoding="utf-8")
    done = probe(Path(__file__).with_name("quack_probe.py"), folder, str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_row_is_quacks_own_config(report):
    assert report["hit"]["type"] == "GemmConfig"
    assert {name: report["hit"][name] for name in CONFIG} == CONFIG
    assert (report["hit"]["device_capacity"], report["hit"]["split_k"]) == (9, 1)
    assert {name: report["fp16_tn"][name] for name in SWAPPED} == SWAPPED


def test_m_is_rounded_up_where_both_measured_ends_agree(report):
    assert report["rounded"] == report["hit"]


def test_operands_that_no_row_describes_have_no_config(report):
    assert report["misses"] == [None] * 5


def test_a_hit_runs_the_rows_config_and_a_miss_quacks_default(report):
    assert (report["returns_out"], report["allocates"]) == (True, [512, 1024])
    assert report["calls"] == [
        ["pinned", [512, 1024], "torch.bfloat16", 192, 1],
        ["pinned", [512, 1024], "torch.bfloat16", 192, 1],
        ["default", [64, 1024], False],
        ["default", [512, 1024], False],
    ]


def test_loading_warns_of_another_version(report):
    installed = version("nvidia-cutlass-dsl")
    message = f"gemmtune: the table was made with nvidia-cutlass-dsl 4.0.0; here is {installed}: tune again"
    assert report["loading"] == [message]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("edited", "edited after it was written"),
        ("truncated", "not JSON, or truncated"),
        ("other", "not a table for cute: export one"),
        ("older_quack", "GemmConfig of this quack-kernels has no cluster_m, cluster_n, device_capacity"),
    ],
)
def test_an_invalid_file_is_refused(report, broken, message):
    assert message in report["refusals"][broken]
