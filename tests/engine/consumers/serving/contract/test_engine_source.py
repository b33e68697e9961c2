from __future__ import annotations

import json

import pytest

from gemmtune.engine.consumers.serving.contract.engine_source import find_engine, kernel_text
from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName, Kernel
from gemmtune.engine.records.errors import ToolchainMissing, UsageError

MOE = "vllm/model_executor/layers/fused_moe"
KERNEL = """import heavy_package_that_is_not_here

@triton.jit
def helper(x):
    return x

def get_default_config(M: int, E: int, unknown: not_a_type) -> dict[str, int]:
    if envs.VLLM_BATCH_INVARIANT or current_platform.is_rocm():
        return {}
    return {"BLOCK_SIZE_M": 16 if M <= 32 else 64}

@triton.jit
def kernel(
    a,
):
    helper(a)
"""


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / MOE
    (folder / "configs").mkdir(parents=True)
    (folder / "fused_moe.py").write_text(KERNEL)
    return tmp_path


def test_kernels_are_taken_with_their_decorators_and_without_importing(package):
    text, digest = kernel_text(package / MOE / "fused_moe.py", ("helper", "kernel"))
    assert text.count("@triton.jit") == 2
    assert "heavy_package" not in text
    assert "get_default_config" not in text
    assert len(digest) == 64


def test_the_default_is_asked_for_together_with_the_function_that_it_asks(package):
    file = package / MOE / "fused_moe.py"
    file.write_text(
        "def should_moe_wna16_use_cuda(rows: int):\n    return current_platform.is_cuda() and rows <= 6\n\n"
        "def get_default_config(M: int):\n"
        "    return {'BLOCK_SIZE_M': next_power_of_2(M) if should_moe_wna16_use_cuda(M) else 64}\n"
    )
    found = find_engine(Engine.VLLM, {"GEMMTUNE_VLLM": str(package)})
    assert [found.default_moe_config(m, shared_bytes=1)["BLOCK_SIZE_M"] for m in (1, 5, 7)] == [1, 8, 64]


def test_the_engines_own_default_answers(package):
    found = find_engine(Engine.VLLM, {"GEMMTUNE_VLLM": str(package)})
    assert found.version == "unknown"
    assert found.default_moe_config(8, 4, None, shared_bytes=232448) == {"BLOCK_SIZE_M": 16}
    assert found.default_moe_config(512, 4, None, shared_bytes=232448) == {"BLOCK_SIZE_M": 64}


def test_sglang_takes_the_folder_of_its_triton_and_then_the_newest(tmp_path):
    name = FileName(Engine.SGLANG, Kernel.MOE, (8, 512), "NVIDIA_H200")
    root = tmp_path / "sglang/srt/layers/moe/moe_runner/triton_utils/configs"
    for version in ("3_4_0", "3_10_0", "3_9_1"):
        (root / f"triton_{version}").mkdir(parents=True)
        (root / f"triton_{version}" / name.text).write_text(json.dumps({"1": {"BLOCK_SIZE_M": 16}}))
    found = find_engine(Engine.SGLANG, {"GEMMTUNE_SGLANG": str(tmp_path)})
    assert "triton_3_4_0" in found.tuned_file(name, "3.4.0").path
    assert "triton_3_10_0" in found.tuned_file(name, "3.8.0").path
    assert found.tuned_file(FileName(Engine.SGLANG, Kernel.MOE, (9, 512), "NVIDIA_H200"), "3.8.0") is None


def test_a_missing_engine_function_or_layout_is_refused_with_the_way_out(package):
    with pytest.raises(ToolchainMissing, match="GEMMTUNE_VLLM"):
        find_engine(Engine.VLLM, {})
    with pytest.raises(ToolchainMissing, match="has no folder vllm"):
        find_engine(Engine.VLLM, {"GEMMTUNE_VLLM": str(package / "vllm")})
    with pytest.raises(UsageError, match="no function other"):
        kernel_text(package / MOE / "fused_moe.py", ("other",))
    with pytest.raises(UsageError, match=r"has no .*fp8_utils"):
        find_engine(Engine.VLLM, {"GEMMTUNE_VLLM": str(package)}).kernel_file(Kernel.LINEAR)
