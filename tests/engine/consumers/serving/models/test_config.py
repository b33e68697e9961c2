"""A model's configuration is found as a file, in a folder, or in the local cache, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmtune.engine.consumers.serving.models.config import ModelConfig, find_model
from gemmtune.engine.consumers.serving.models.quantization import weight_type
from gemmtune.engine.records.errors import UsageError


def put(folder: Path, content: object = None, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps({"hidden_size": 64} if content is None else content), encoding="utf-8")
    return path


def test_a_file_a_folder_and_a_name_in_the_cache_are_one_model(tmp_path):
    path = put(tmp_path / "hub/models--Qwen--Small/snapshots/abc")
    put(tmp_path / "hub/models--Qwen--Small/snapshots/zzz", {})
    revision = tmp_path / "hub/models--Qwen--Small/refs/main"
    revision.parent.mkdir()
    revision.write_text("abc\n", encoding="utf-8")
    for name, variables in (
        (str(path), {}),
        (str(path.parent), {}),
        ("Qwen/Small", {"HF_HUB_CACHE": str(tmp_path / "hub")}),
        ("hf:Qwen/Small", {"HF_HOME": str(tmp_path)}),
    ):
        assert find_model(name, variables) == ModelConfig(str(path), {"hidden_size": 64})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Qwen/Absent", "run hf download Qwen/Absent config.json"),
        ("./absent/folder", "there is no ./absent/folder"),
        ("..", "config.json"),
    ],
)
def test_what_is_nowhere_is_refused_with_the_way_out(tmp_path, monkeypatch, name, reason):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(UsageError, match=reason):
        find_model(name, {"HF_HOME": str(tmp_path)})


def test_a_file_of_something_else_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no object, but a list"):
        find_model(str(put(tmp_path, [])), {})


def test_modelopt_s_file_beside_says_how_weights_are_quantised(tmp_path):
    put(tmp_path)
    put(tmp_path, {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}, "hf_quant_config.json")
    found = weight_type(find_model(str(tmp_path), {}))
    assert (found.dtype, found.words, found.skipped) == (None, "modelopt's NVFP4", ["lm_head"])


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"first_k_dense_replace": 1}, [1, 2, 3]),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3, {}]}, [1]),
        ({"interleave_moe_layer_step": 2}, [1, 3]),
        ({"moe_layer_freq": 2}, [0, 2]),
        ({"moe_layer_freq": [0, 1, 1, 0]}, [1, 2]),
        ({"moe_layers": [2, 9]}, [2]),
        ({"moe_layers_enum": "1,3,9"}, [1, 3]),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, [1, 3]),
        ({"num_dense_layers": 3}, [3]),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 2, "moe_layer_interval": 1}, [1, 2]),
        ({"moe_layer_frequency": 2}, [1, 3]),
        ({"num_experts": 1}, []),
    ],
)
def test_layers_with_experts_are_told_by_each_architecture_s_keys(stated, expected):
    config = ModelConfig("", {"num_hidden_layers": 4, "num_experts": 8, **stated})
    assert sorted(config.expert_layers) == expected


def test_a_pattern_that_would_match_for_ages_matches_nothing():
    quantised = {"quant_method": "fp8", "ignored_layers": ["re:(a+)+$", "re:(", "model.*.mlp"]}
    found = weight_type(ModelConfig("", {"quantization_config": quantised}))
    assert found.covers("a" * 60 + "!")
    assert not found.covers("model.layers.0.mlp.experts")
