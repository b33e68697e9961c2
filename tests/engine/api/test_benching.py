"""Bench refuses what it cannot time, before it imports torch."""

from __future__ import annotations

import warnings

import pytest

import gemmtune as gt
from gemmtune.engine.api import benching
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, UsageError
from gemmtune.engine.tables.table_file import write_table
from gemmtune.engine.testing.exporter_conformance import example_table


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"arms": ("eager", "jit")}, "arm 'jit' is not one of eager, compile, max-autotune, table"),
        ({"arms": ("eager", "table")}, "name its folder"),
        ({"arms": ("eager",), "table": "out"}, "add it to the arms"),
        ({"arms": ("eager",), "seconds": 0}, "seconds=0 is not above 0"),
        ({"arms": ("eager",), "tune_kernels": True}, "no table is named: leave tune_kernels out"),
        ({"arms": ("eager",), "tokens": 1}, "tokens, batch and context are for a model by name"),
    ],
)
def test_wrong_arguments_are_refused(options, part):
    with pytest.raises(UsageError, match=part):
        gt.bench("models:mlp", "bf16[2,2]", **options)


def test_a_model_by_name_takes_sizes_alone():
    with pytest.raises(UsageError, match="makes its own inputs: give --tokens"):
        gt.bench("hf:x", "bf16[2,2]", arms=("eager",))
    with pytest.raises(UsageError, match="tokens=0 is not an integer from 1 on"):
        gt.bench("hf:x", arms=("eager",), tokens=0)


def test_an_open_size_is_refused():
    with pytest.raises(UsageError, match="size 'm' is open"):
        gt.bench("models:mlp", "bf16[m:1..8,2]", arms=("eager",))


def test_without_a_gpu_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr(benching, "present_device", lambda: None)
    with pytest.raises(DeviceError, match="gemmtune capture --device"):
        gt.bench("models:mlp", "bf16[2,2]", arms=("eager",))


def test_a_bench_hands_on_the_model_its_inputs_and_the_table(monkeypatch, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of itself
        from gemmtune.engine.consumers.inductor.bench import bench_model

    asked = []
    table = write_table(tmp_path / "table.json", example_table())
    monkeypatch.setattr(benching, "present_device", lambda: table.device)
    monkeypatch.setattr(bench_model, "bench_model", lambda *given, **named: asked.append((given, named)) or "found")
    with pytest.raises(UsageError, match=r"there is no .*inductor_table.json: write it with gemmtune export"):
        gt.bench("models:mlp", "bf16[2,2]", arms=("table",), table=tmp_path)
    loader_file = tmp_path / "inductor/inductor_table.json"
    loader_file.parent.mkdir()
    loader_file.touch()
    options = {"arms": ("table", "eager"), "binaries": False, "grad": True, "seconds": 0.5, "notify": print}
    assert gt.bench("models:mlp", "bf16[2,2]", 7, "x=int64[3]", table=tmp_path, **options) == "found"
    [((call, given), named)] = asked
    assert (call, [*map(str, given)]) == ("models:mlp", ["bf16[2,2]", "7", "x=int64[3]"])
    assert given[1] == 7
    assert (named.pop("table").rows, named.pop("loader_file")) == (table.rows, loader_file)
    assert named == {**options, "device": table.device, "keep": None}
    monkeypatch.setattr(benching, "present_device", lambda: catalogue.device("B200"))
    with pytest.raises(DeviceError, match="the table is for NVIDIA H200, and this GPU is NVIDIA B200"):
        gt.bench("models:mlp", "bf16[2,2]", arms=("table",), table=tmp_path)
