"""Adapters with references of matrix products: int4, fp8, int8, grouped, split along k."""

import torch
from base import Adapter
from repositories import ao, bench, fla, liger, triton_kernels

STRIDES = """
    a_ptr.strides=stride_am,stride_ak b_ptr.strides=stride_bk,stride_bn c_ptr.strides=stride_cm,stride_cn M N K
"""
TILES = "cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N)"
SHARED_BYTES = 232448
"""Shared memory that a block may have on an H100."""


class Int4Gemm(Adapter):
    kernel = bench("operators.int4_gemm.kernel", "matmul_kernel")
    params = {
        **{"BLOCK_SIZE_M": (16, 32, 64), "BLOCK_SIZE_N": (32, 64), "BLOCK_SIZE_K": (32, 64)},
        **{"num_warps": (2,), "num_stages": (2, 3, 5), "maxnreg": (None, 128)},
    }
    where = (
        "m // 4 <= BLOCK_SIZE_M <= m and BLOCK_SIZE_N * max(num_warps * 2, BLOCK_SIZE_M) <= 2048 * num_warps and "
        f"(2 * BLOCK_SIZE_M + BLOCK_SIZE_N // 2) * BLOCK_SIZE_K * (num_stages - 1) <= {SHARED_BYTES}"
    )
    text = f"a_ptr[M,K] b_ptr[K//2,N]:i8<127 >c_ptr[M,N] {STRIDES}"
    blocks = "cdiv(m, BLOCK_SIZE_M) * cdiv(n, BLOCK_SIZE_N)"
    sizes = ({"m": 16, "n": 4096, "k": 4096}, {"m": 128, "n": 4096, "k": 4096})
    small = {"m": 16, "n": 128, "k": 256}

    def reference(self, case, arguments):
        packed = arguments["b_ptr"].int()
        low, high = (packed << 28) >> 28, packed >> 4
        weight = torch.stack((low, high), 1).view(case["k"], case["n"])
        return arguments["a_ptr"].double() @ weight.double()


class Fp8BlockGemm(Adapter):
    kernel = ao("prototype.blockwise_fp8_training.kernels", "triton_fp8_gemm_1x128_128x128_kernel")
    params = {
        **{"BLOCK_SIZE_M": (16, 32), "BLOCK_SIZE_N": (32,), "num_warps": (2,), "num_stages": (3, 4, 5)},
        **{"maxnreg": (None, 128)},
    }
    where = (
        "8 <= BLOCK_SIZE_M * BLOCK_SIZE_N // num_warps // 32 <= 128 and "
        f"(BLOCK_SIZE_M + BLOCK_SIZE_N) * 128 * num_stages <= {SHARED_BYTES}"
    )
    text = """
        a_ptr[M,K]:e4m3 a_ptr.strides=a_stride_dim_0,a_stride_dim_1 b_ptr[N,K]:e4m3
        b_ptr.strides=b_stride_dim_1,b_stride_dim_0 >c_ptr[M,N] c_ptr.strides=c_stride_dim_0,c_stride_dim_1
        a_s_ptr[M,K//128]:f32 a_s_ptr.strides=a_s_stride_dim_0,a_s_stride_dim_1 b_s_ptr[K//128,N//128]:f32
        b_s_ptr.strides=b_s_stride_dim_0,b_s_stride_dim_1 M N K out_dtype=tl.bfloat16 BLOCK_SIZE_K=128
    """
    blocks = "(cdiv(m, BLOCK_SIZE_M), cdiv(n, BLOCK_SIZE_N))"
    sizes = ({"m": 2048, "n": 2048, "k": 2048}, {"m": 512, "n": 4096, "k": 4096})
    small = {"m": 64, "n": 128, "k": 256}

    def reference(self, case, arguments):
        a, b, a_scale, b_scale = (arguments[name].double() for name in ("a_ptr", "b_ptr", "a_s_ptr", "b_s_ptr"))
        b = b * b_scale.T.repeat_interleave(128, 0).repeat_interleave(128, 1)
        return (a * a_scale.repeat_interleave(128, 1)) @ b.T


class Int8Gemm(Adapter):
    kernel = ao("prototype.quantized_training.int8_mm", "_scaled_int8_mm_kernel")
    params = {"BLOCK_K": (256,)}
    where = (
        "BLOCK_K >= 64 and 8 <= BLOCK_M * BLOCK_N // num_warps // 32 <= 128 and "
        f"(BLOCK_M + BLOCK_N) * BLOCK_K * num_stages <= {SHARED_BYTES}"
    )
    text = """
        A_ptr[M,K]:i8<100 B_ptr[N,K]:i8<100 >C_ptr[M,N] row_scale_ptr[M] col_scale_ptr[N] M N K
        A_ptr.strides=stride_am,stride_ak B_ptr.strides=stride_bn,stride_bk C_ptr.strides=stride_cm,stride_cn
    """
    blocks = TILES
    sizes = ({"m": 2048, "n": 2048, "k": 2048}, {"m": 256, "n": 4096, "k": 4096})
    small = {"m": 64, "n": 64, "k": 128}

    def reference(self, case, arguments):
        a, b, row, column = (arguments[f"{name}_ptr"].double() for name in ("A", "B", "row_scale", "col_scale"))
        return a @ b.T * row[:, None] * column


class GroupedSwiglu(Adapter):
    """Grouped product of the experts' rows, with both halves and their activation."""

    kernel = liger("fused_moe_kernels", "_fused_up_proj_swiglu_kernel")
    params = {
        **{"BLOCK_N": (16, 32, 256), "BLOCK_K": (128,)},
        **{"num_warps": (2, 16), "num_stages": (1, 2), "maxnreg": (None, 128)},
    }
    where = f"8 <= 2 * BLOCK_N // num_warps <= 128 and (64 + 2 * BLOCK_N) * BLOCK_K * num_stages * 2 <= {SHARED_BYTES}"
    text = """
        x_ptr[T,H] gate_up_proj_ptr[E,2*I,H] x_gather_idx_ptr[T*K]:i32<T
        +expert_start_ptr[E+1]:i32=torch.arange(E+1)*(T*K//E) +tile_row_start_ptr[T*K//64]:i32=torch.arange(T*K//64)*64
        +tile_expert_ptr[T*K//64]:i32=torch.arange(T*K//64)*64//(T*K//E) >pre_act_ptr[T*K,2*I] >post_act_ptr[T*K,I]
        H_dim=H I_dim=I x_ptr.strides=stride_x_T,stride_x_H gate_up_proj_ptr.strides=stride_w_E,stride_w_N,stride_w_K
        pre_act_ptr.strides=stride_pre_TK,stride_pre_N post_act_ptr.strides=stride_post_TK,stride_post_N BLOCK_M=64
    """
    blocks = "(t * k // 64, cdiv(i, BLOCK_N))"
    sizes = ({"t": 2048, "k": 2, "e": 8, "h": 2048, "i": 1024}, {"t": 4096, "k": 2, "e": 32, "h": 1024, "i": 512})
    small = {"t": 64, "k": 2, "e": 2, "h": 64, "i": 64}

    def reference(self, case, arguments):
        rows = arguments["x_ptr"].double()[arguments["x_gather_idx_ptr"].long()]
        weights = arguments["gate_up_proj_ptr"].double()
        before = torch.bmm(rows.view(case["e"], -1, case["h"]), weights.mT).view(-1, 2 * case["i"])
        gate, up = before.chunk(2, 1)
        return {"pre_act_ptr": before, "post_act_ptr": gate * gate.sigmoid() * up}


class SplitKGemm(Adapter):
    """Product split along k; a config's hook zeroes what its programs add to."""

    kernel = triton_kernels("matmul", "_kernel")
    where = "BLOCK_M <= 32 and BLOCK_K == 64 and BLOCK_N * BLOCK_M <= 2048 * num_warps"
    text = """
        A[M,K]:f16 B[K,N]:f16 ~C[M,N]:f16 A.strides=stride_am,stride_ak B.strides=stride_bk,stride_bn
        C.strides=stride_cm,stride_cn M N K acc_dtype=tl.float32 input_precision='ieee' fp8_fast_accum=True GROUP_M=8
        AB_DTYPE=None
    """
    blocks = f"({TILES}, SPLIT_K)"
    sizes = ({"m": 16, "n": 4096, "k": 4096}, {"m": 32, "n": 2048, "k": 8192})
    small = {"m": 16, "n": 64, "k": 256}
    tolerance = 4e-3

    def reference(self, case, arguments):
        return arguments["A"].double() @ arguments["B"].double()


class Gemm(Adapter):
    kernel = fla("ops.utils.matmul", "matmul_kernel")
    params = {"BK": (128,), "num_stages": (2,)}
    where = f"16 <= BM * BN // num_warps // 32 <= 128 and (BM + BN) * BK * num_stages * 2 <= {SHARED_BYTES}"
    text = """
        a[1,M,K] b[K,N] >c[1,M,N] input=None alpha=None beta=None M N K a.strides=stride_ab,stride_am,stride_ak
        b.strides=stride_bk,stride_bn c.strides=stride_cb,stride_cm,stride_cn ACTIVATION='leaky_relu' HAS_INPUT=False
        ALLOW_TF32=True
    """
    blocks = "(1, cdiv(m, BM), cdiv(n, BN))"
    sizes = ({"m": 2048, "n": 2048, "k": 2048}, {"m": 512, "n": 8192, "k": 1024})
    small = {"m": 64, "n": 96, "k": 96}

    def reference(self, case, arguments):
        product = arguments["a"].double() @ arguments["b"].double()
        return torch.where(product >= 0, product, 0.01 * product)
