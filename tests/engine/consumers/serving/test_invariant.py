"""Configs for vLLM's batch-invariant product, and the plug-in that hands them over."""

from __future__ import annotations

import importlib
import logging
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.serving.invariant.exporter import VllmBatchInvariantExporter
from gemmtune.engine.consumers.serving.invariant.vllm_plugin import parse_invariant_table
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.testing.exporter_conformance import check_exporter, example_table

TILES = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 4, "num_stages": 3, "num_warps": 4}
NAME = "gemmtune_vllm_batch_invariant"


def ranged(first, last, text="4096x4096:bf16:nt:dynamic_m=true", **tiles):
    choice = Choice("triton_mm", Config({**TILES, **tiles}), 9.0, 8.0, 9.5, 32, Evidence.MEASURED, "torch 2.13.0", "p")
    return RangeRow(Problem.parse(f"{last}x{text}"), first, last, choice, ((last, 0.0),))


TABLE = replace(
    example_table(), rows=(), ranges=(ranged(2, 16), ranged(17, 512, BLOCK_M=128, num_warps=8)), batch_invariant=True
)


class _MatmulMConfig(NamedTuple):  # vLLM 0.33.0's
    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


class _MatmulShapeConfig(NamedTuple):
    block_k: int
    m_buckets: tuple[tuple[int, _MatmulMConfig], ...]


@pytest.fixture
def vllm(monkeypatch):
    """Return vLLM's module of configs, with the rows it has of its own; the GPU is an H200."""
    names = ("vllm", "vllm.model_executor", "vllm.model_executor.determinism", "vllm.platforms")
    modules: dict[str, Any] = {name: ModuleType(name) for name in (*names, f"{names[2]}.batch_invariant_configs")}
    configs = modules[f"{names[2]}.batch_invariant_configs"]
    own = {(4096, 4096): "of vLLM", (512, 64): "of vLLM"}
    configs._BATCH_INVARIANT_MATMUL_TUNED_CONFIGS = {"hopper": own}
    configs._MatmulMConfig, configs._MatmulShapeConfig = _MatmulMConfig, _MatmulShapeConfig
    modules[names[2]].batch_invariant_configs = configs
    modules["vllm.platforms"].current_platform = ModuleType("platform")
    modules["vllm.platforms"].current_platform.get_device_name = lambda: "NVIDIA H200"
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    write_all(export_table(VllmBatchInvariantExporter(), TABLE), tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(NAME)
    for name in [each for each in sys.modules if each.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_the_exporter_keeps_its_contract():
    check_exporter(VllmBatchInvariantExporter)


def test_ranges_become_buckets_with_one_block_of_k(plugin, vllm):
    configs = vllm["vllm.model_executor.determinism.batch_invariant_configs"]
    plugin.register()
    assert configs._BATCH_INVARIANT_MATMUL_TUNED_CONFIGS == {
        "hopper": {(4096, 4096): (128, ((16, (64, 128, 4, 3)), (512, (128, 128, 8, 3)))), (512, 64): "of vLLM"}
    }


@pytest.mark.parametrize("lacking", ["vllm.platforms", "vllm.model_executor.determinism"])
def test_another_vllm_runs_its_own_configs_with_a_warning(plugin, vllm, caplog, monkeypatch, lacking):
    for name in vars(vllm[lacking]).copy():
        if not name.startswith("__"):
            monkeypatch.delattr(vllm[lacking], name)
    monkeypatch.setitem(sys.modules, "vllm.model_executor.determinism.batch_invariant_configs", None)
    with caplog.at_level(logging.WARNING, logger="gemmtune"):
        plugin.register()
    assert ["does not know this vLLM" in record.getMessage() for record in caplog.records] == [True]


def test_another_gpu_runs_what_vllm_would_run(plugin, vllm, caplog):
    vllm["vllm.platforms"].current_platform.get_device_name = lambda: "NVIDIA L4"
    plugin.register()
    configs = vllm["vllm.model_executor.determinism.batch_invariant_configs"]
    assert configs._BATCH_INVARIANT_MATMUL_TUNED_CONFIGS["hopper"][4096, 4096] == "of vLLM"
    assert "for NVIDIA H200; on NVIDIA L4" in caplog.text


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ((ranged(2, 16), ranged(17, 64, BLOCK_K=64)), "^n=4096, k=4096 has BLOCK_K 64, 128, and vLLM one:"),
        (
            (ranged(2, 16, "4096x4096:fp16:nt:dynamic_m=true"),),
            "vLLM's batch-invariant product is .* tune with --batch-invariant",
        ),
        ((ranged(2, 16), ranged(2, 16, "4096x4096:bf16:nt:addmm:dynamic_m=true")), "another product has n=4096"),
    ],
)
def test_rows_that_vllm_could_not_run_with_equal_bits_are_refused(ranges, said):
    with pytest.raises(TableError, match=said):
        VllmBatchInvariantExporter().export(replace(TABLE, ranges=ranges))


def test_the_plug_in_refuses_a_file_that_was_edited():
    text = VllmBatchInvariantExporter().export(TABLE)["vllm_batch_invariant_table.json"]
    assert parse_invariant_table(text.encode()).family == "hopper"
    with pytest.raises(ValueError, match="edited"):
        parse_invariant_table(text.replace('"block_k": 128', '"block_k": 64').encode())
