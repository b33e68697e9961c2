"""Layers that torchao quantises are captured as the products with scales, or of whole numbers, that they run."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import gemmtune as gt

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
float8 = pytest.importorskip("torchao.float8", reason="torchao is not installed")

pytestmark = [
    pytest.mark.slow(20),
    pytest.mark.filterwarnings("ignore:::torch"),  # torch warns of itself, and so does torchao
    pytest.mark.filterwarnings("ignore:::torchao"),
]

ROWS = "mul(column[fp32]).mul(row[fp32])"
TENSORS = "mul(scalar[fp32]).mul(scalar2[fp32])"


@pytest.fixture(autouse=True)
def _settings_as_they_were():
    """Take back what torchao's `quantize_` sets for the whole process."""
    config = torch._inductor.config
    with config.patch(config.get_config_copy()):
        yield


def layers():
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(512, 256, bias=False), torch.nn.GELU(), linear(256, 512, bias=False)).bfloat16()


def quantised(config):
    model = layers()
    quantization.quantize_(model, config)
    return model


def in_float8(granularity):
    return quantised(quantization.Float8DynamicActivationFloat8WeightConfig(granularity=granularity()))


BUILDERS = {
    "rows": (lambda: in_float8(quantization.PerRow), [f"e4m3:nt:epilogue={ROWS}"] * 2),
    "tensors": (lambda: in_float8(quantization.PerTensor), [f"e4m3:nt:epilogue={TENSORS}"] * 2),
    "float8 weights": (lambda: quantised(quantization.Float8WeightOnlyConfig()), ["bf16:nt", "bf16:nt"]),
    "int8": (
        lambda: quantised(quantization.Int8DynamicActivationInt8WeightConfig()),
        ["int8:nt", "int8:nt:out_dtype=bf16"],
    ),
}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("sizes", ["32", "2,16"])
def test_quantised_layers_are_products_with_their_scales(monkeypatch, name, sizes):
    build, kinds = BUILDERS[name]
    monkeypatch.setitem(sys.modules, "quantised_by_torchao", SimpleNamespace(build=build))
    found = gt.capture("quantised_by_torchao:build", f"bf16[{sizes},512]", device="H200")
    expected = [f"{size}:{kind}" for size, kind in zip(("32x256x512", "32x512x256"), kinds, strict=True)]
    assert ([each.problem.name for each in found.products], [*found.unseen]) == (expected, [])


@pytest.mark.parametrize(("recipe", "first", "others"), [("tensorwise", TENSORS, 4), ("rowwise", ROWS, 4)])
def test_a_training_step_in_float8_has_three_products_per_layer(recipe, first, others):
    model = float8.convert_to_float8_training(layers(), config=float8.Float8LinearConfig.from_recipe_name(recipe))
    found = gt.capture(model, "bf16[64,512]", grad=True, device="H200")
    names = [each.problem.name for each in found.products]
    assert names[:2] == [f"64x{size}:e4m3:nt:epilogue={first}" for size in ("256x512", "512x256")]
    assert sum("accumulation=exact" in each for each in names) == others
    assert [*found.unseen] == []
