"""Products in files of other tools: heads and rows as ROCm/aiter has them, lines as torch 2.13 logs them."""

from __future__ import annotations

import json

import pytest

import gemmtune as gt
from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.records.errors import UsageError

BF16 = """\
gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw
gfx950,256,64,256,5120,False,torch.bfloat16,torch.bfloat16,False,False,asm,5,13,7.9,_ZN5aiter,0.0,21.19,417.92
gfx942,80,64,256,5120,False,torch.bfloat16,torch.bfloat16,False,False,asm,5,13,9.9,_ZN5aiter,0.0,21.19,417.92
gfx950,256,80,256,5120,True,torch.float16,torch.float16,False,True,asm,7,13,7.9,_ZN5aiter,0.0,26.32,436.97
gfx950,256,80,256,5120,False,torch.bfloat16,torch.float32,False,False,asm,7,13,7.9,_ZN5aiter,0.0,26.32,436.97
"""
INT8 = "gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us\ngfx942,80,1,1280,8192,torch.int8,34,0,20\n"
BLOCKS = "cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n304,16,1536,7168,8,0,19.3,a,18.25,578.88,0.0\n"
MOE = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,us\n"
    "256,4,4096,384,128,8,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,torch.float8_e4m3fn,"
    "QuantType.per_1x128,1,47.6\n"
    "256,4,4096,384,128,8,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,47.6\n"
    "256,4,4096,192,128,8,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,torch.float8_e4m3fn,"
    "QuantType.per_1x128,1,47.6\n"
    "256,4,4096,384,128,8,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.int8,QuantType.per_Token,1,47.6\n"
)
LOG = """\
W1127 compiling
[rank0]:AUTOTUNE mm(16x4096, 4096x4096)
[rank0]:strides: [4096, 1], [1, 4096]
[rank0]:dtypes: torch.bfloat16, torch.bfloat16
  mm 0.0191 ms 100.0%
  triton_mm_17 0.0210 ms 90.9% ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=64, BLOCK_M=16, num_warps=4
SingleProcess AUTOTUNE benchmarking takes 0.9 seconds and 0.2 seconds precompiling for 19 choices
AUTOTUNE addmm(16x64, 16x32, 32x64)
strides: [0, 1], [32, 1], [64, 1]
dtypes: torch.float16, torch.float16, torch.float16
AUTOTUNE bmm(4x16x64, 4x64x32)
strides: [64, 256, 1], [2048, 32, 1]
dtypes: torch.bfloat16, torch.bfloat16
AUTOTUNE baddbmm(4x16x32, 4x16x64, 4x64x32)
strides: [512, 32, 1], [1024, 64, 1], [2048, 32, 1]
dtypes: torch.bfloat16, torch.bfloat16, torch.bfloat16
"""


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_list_of_aiter_has_each_product_once_and_names_what_no_row_serves(tmp_path):
    found = gt.capture(written(tmp_path / "bf16_tuned_gemm.csv", BF16), written(tmp_path / "a8w8_tuned_gemm.csv", INT8))
    assert [(each.name, each.weight) for each in found.problems] == [
        ("64x256x5120:bf16:nt", 1),
        ("80x256x5120:fp16:nt:addmm", 1),
    ]
    assert [each.operation for each in found.unseen] == [
        "1x1280x8192 torch.int8",
        "80x256x5120 torch.bfloat16→torch.float32",
    ]


def test_layers_with_scales_per_block_are_problems_of_their_own_kind(tmp_path):
    paths = [
        written(tmp_path / "a8w8_blockscale_tuned_gemm.csv", BLOCKS),
        written(tmp_path / "tuned_fmoe.csv", MOE),
        written(tmp_path / "bf16_tuned_gemm.csv", BF16),
    ]
    names = [
        "vllm_block_fp8:m16:n1536:k7168",
        "vllm_moe:m4:e128:k8:h4096:n384:fp8_block",
        "vllm_moe:m4:e128:k8:h4096:n384:bf16",
    ]
    found = gt.capture(*paths)
    assert [each.name for each in found.layers] == names
    reasons = {each.operation: each.reason for each in found.unseen}
    assert "no multiple of 128" in reasons["vllm_moe:m4:e128:k8:h4096:n192:fp8_block"]
    assert "QuantType.per_Token of torch.int8" in reasons["vllm_moe:m4:e128:k8:h4096:n384"]
    campaign = tmp_path / "problems.toml"
    campaign.write_text(found.to_toml(), encoding="utf-8")
    plans = read_plan(campaign), read_plan(*paths)
    assert [sorted(each.name for each in plan.problems) for plan in plans] == [
        sorted([*names, "64x256x5120:bf16:nt", "80x256x5120:fp16:nt:addmm"])
    ] * 2


def test_spaces_and_products_of_batches_are_read(tmp_path):
    found = gt.capture(written(tmp_path / "bf16_untuned_batched_gemm.csv", "B,M,N,K\n16, 1, 1280, 8192 \n"))
    assert [each.name for each in found.problems] == ["16x1x1280x8192:bf16:nt:bmm"]
    assert not gt.capture(written(tmp_path / "a8w8_untuned_gemm.csv", "M,N,K")).problems


@pytest.mark.parametrize("row", ["304,16,1536", "304,16,x,7168", "304,16,0,7168", "304,16,-1,7168"])
def test_a_row_of_aiter_without_its_sizes_is_refused_by_its_line(tmp_path, row):
    with pytest.raises(UsageError, match="line 2 is no row of AITER: M, N, K are not integers from 1 on"):
        gt.capture(written(tmp_path / "a.csv", f"cu_num,M,N,K\n{row}\n"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cu_num,M,N,K,M\n", "line 1 names column 'M' twice"),
        (f"cu_num,M,N,K,kernelName\n304,1,2,3,{'x' * 131_073}\n", "line 2 is not CSV: field larger than field limit"),
    ],
)
def test_a_file_of_aiter_that_no_table_can_be_is_refused(tmp_path, text, reason):
    with pytest.raises(UsageError, match=reason):
        gt.capture(written(tmp_path / "a.csv", text))


def test_autotune_lines_of_inductors_log_are_products_with_their_layouts_and_strides(tmp_path):
    found = gt.capture(written(tmp_path / "inductor.log", LOG * 2))
    assert [(each.name, each.weight) for each in found.problems] == [
        ("16x4096x4096:bf16:nt", 2),
        ("16x64x32:fp16:nn:addmm", 2),
        ("4x16x32x64:bf16:nn:bmm:lda=256:batch_stride_a=64", 2),
        ("4x16x32x64:bf16:nn:baddbmm", 2),
    ]
    assert [each.name for each in read_plan(tmp_path / "inductor.log").problems] == [x.name for x in found.problems]


FLASHINFER = {
    "_metadata": {"flashinfer_version": "0.6.12", "gpu": "NVIDIA H200"},
    "('bf16_gemm', 'CutlassBf16GemmRunner', ((16, 4096), (4096, 1024)), ())": ["CutlassBf16GemmRunner", 3],
    "('bf16_gemm', 'CublasltRunner', ((16, 4096), (4096, 1024), (0,)), (16, torch.bfloat16))": ["CublasltRunner", 0],
    "('fp16_tgv_gemm', 'TGVGemmRunner', ((8, 64), (64, 32), (32,), (0,), (8, 32)), ())": ["TGVGemmRunner", [1, 2]],
    "('bf16_gemm', 'Runner', ((4, 16, 64), (4, 64, 32)), ())": ["Runner", -1],
    "('fp8_gemm', 'Runner', ((1, 16, 64), (1, 64, 32)), ())": ["Runner", 1],
    "('bf16_gemm', 'Runner', ((16, 64), (32, 64)), ())": ["Runner", 1],
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((16, 64),), ())": ["MoERunner", 1],
}


def test_configs_of_flashinfer_are_products_with_weights_stored_by_output(tmp_path):
    path = written(tmp_path / "flashinfer.json", json.dumps(FLASHINFER))
    found = gt.capture(path)
    assert [(each.name, each.weight) for each in found.problems] == [
        ("16x1024x4096:bf16:nt", 1),
        ("8x32x64:fp16:nt:addmm", 1),
        ("4x16x32x64:bf16:nt:bmm", 1),
    ]
    assert sorted((each.operation, each.reason[:12]) for each in found.unseen) == [
        ("bf16_gemm(16x64, 32x64)", "these are no"),
        ("fp8_gemm(1x16x64, 1x64x32)", "tables have "),
        ("trtllm::fused_moe::gemm1(16x64)", "tables have "),
    ]
    assert [each.name for each in read_plan(path).problems] == [each.name for each in found.problems]
    with pytest.raises(UsageError, match="is no key of FlashInfer"):
        gt.capture(written(tmp_path / "torn.json", json.dumps({"('bf16_gemm', 'Runner')": [1]})))


MM, HALF = "AUTOTUNE mm(16x4, 4x4)", "dtypes: torch.float16, torch.float16"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["AUTOTUNE mm_plus_mm(16x4, 4x4, 16x4, 4x4)", "strides: [4, 1]", HALF], "tables have rows of"),
        ([MM, "strides: [4, 1], [4, 1]", "dtypes: torch.int8, torch.int8"], "tables have rows of"),
        ([MM, "strides: [4, 1], [1, s0]", HALF], "are open"),
        ([MM, "strides: [4, 1], [8, 2]", HALF], "neither row-major"),
        (["AUTOTUNE mm(16x4, 5x4)", "strides: [4, 1]", HALF], "are open"),
        ([MM, "  mm 0.0191 ms 100.0%"], "names no types and strides"),
        ([MM, MM], "names no types and strides"),
        (["AUTOTUNE mm(16x32, 64x128)", "strides: [32, 1], [128, 1]", HALF], "no operands of mm"),
        (["AUTOTUNE bmm(4x16x32, 8x32x64)", "strides: [512, 32, 1], [2048, 64, 1]", HALF], "no operands of bmm"),
        (["AUTOTUNE addmm(16x32, 32x64)", "strides: [32, 1], [64, 1]", HALF], "no operands of addmm"),
    ],
)
def test_what_no_row_serves_is_named_with_its_sizes(tmp_path, lines, reason):
    found = gt.capture(written(tmp_path / "inductor.log", "\n".join(lines)))
    assert not found.problems
    assert found.unseen[0].operation.startswith(lines[0].removeprefix("AUTOTUNE "))
    assert reason in found.unseen[0].reason


def test_a_log_without_such_lines_says_how_to_get_them(tmp_path):
    with pytest.raises(UsageError, match="TORCHINDUCTOR_MAX_AUTOTUNE_GEMM=1"):
        gt.capture(written(tmp_path / "some.log", "nothing\n"))
