"""Adapters of kernels of pytorch/ao, facebookresearch/xformers, triton-lang/kernels and pytorch-labs/tritonbench."""

from base import Adapter, imported
from repositories import ao, bench, triton_kernels


def xformers(module: str, kernel: str):
    return getattr(
        imported("xformers", f"xformers.ops._triton.{module}", ("xformers", "xformers.ops", "xformers.ops._triton")),
        kernel,
    )


SQUARE = {"m": 2048, "n": 2048, "k": 2048}
GEMM = "A.strides=stride_am,stride_ak B.strides=stride_bk,stride_bn C.strides=stride_cm,stride_cn M N K"
POINTERS = """a_ptr.strides=stride_am,stride_ak b_ptr.strides=stride_bk,stride_bn c_ptr.strides=stride_cm,stride_cn
    M N K"""
TILES = "cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N)"
SIZED_TILES = "cdiv(m, BLOCK_SIZE_M) * cdiv(n, BLOCK_SIZE_N)"


class QkvScale(Adapter):
    kernel = ao("prototype.attention.quantization.triton_qkv_quantization", "single_phase1_kernel")
    text = """
        x_ptr[B,H,S,D] >partial_max_ptr[B*H,cdiv(S,512)]:f32 x_ptr.strides=stride_b,stride_h,stride_s,stride_d S D H
        chunk_size=512 num_chunks=cdiv(S,512)
    """
    blocks = "(b, h, cdiv(s, 512))"
    sizes = ({"b": 2, "h": 16, "s": 4096, "d": 128},)


class Fp8BlockProduct(Adapter):
    kernel = ao("prototype.blockwise_fp8_training.kernels", "triton_fp8_gemm_1x128_128x128_kernel")
    text = """
        a_ptr[M,K]:e4m3 a_ptr.strides=a_stride_dim_0,a_stride_dim_1 b_ptr[K,N]:e4m3
        b_ptr.strides=b_stride_dim_0,b_stride_dim_1 >c_ptr[M,N] c_ptr.strides=c_stride_dim_0,c_stride_dim_1
        a_s_ptr[M,K//128]:f32 a_s_ptr.strides=a_s_stride_dim_0,a_s_stride_dim_1 b_s_ptr[K//128,N//128]:f32
        b_s_ptr.strides=b_s_stride_dim_0,b_s_stride_dim_1 M N K out_dtype=tl.bfloat16 BLOCK_SIZE_K=128
    """
    blocks = "(cdiv(m, BLOCK_SIZE_M), cdiv(n, BLOCK_SIZE_N))"
    sizes = (SQUARE,)


class Fp8ActivationBlocks(Adapter):
    kernel = ao("prototype.blockwise_fp8_training.kernels", "triton_fp8_blockwise_act_quant_lhs_kernel")
    text = """
        x_ptr[M,K] x_ptr.strides=x_stride_dim_0,x_stride_dim_1 >y_ptr[M,K]:e4m3
        y_ptr.strides=y_stride_dim_0,y_stride_dim_1 >s_ptr[M,K//128]:f32 s_ptr.strides=s_stride_dim_0,s_stride_dim_1 M K
        BLOCK_SIZE=128 EPS=1e-12 FP8_MAX=448.0
    """
    blocks = "(cdiv(m, NUM_GROUPS), k // 128)"
    sizes = (SQUARE,)


class Fp8Cast(Adapter):
    kernel = ao("prototype.float8nocompile.kernels.fp8_dynamic_tensorwise", "_to_fp8_row_major")
    text = """
        input_ptr[N] >out_ptr[N]:e4m3 scale_ptr[1]:f32 num_elements=N fp8_dtype_min=-448.0 fp8_dtype_max=448.0
        input_dtype=tl.bfloat16 output_dtype=tl.float8e4nv EPS=1e-12
    """
    blocks = "cdiv(n, BLOCK_SIZE)"
    sizes = ({"n": 1 << 22}, {"n": 1 << 24})


class AbsoluteMaximum(Adapter):
    kernel = ao("prototype.float8nocompile.kernels.fp8_dynamic_tensorwise", "_amax_atomic")
    text = "input_ptr[N] ~amax_ptr[1]:f32 num_elements=N input_dtype=tl.bfloat16 EPS=1e-12"
    blocks = "cdiv(n, BLOCK_SIZE)"
    sizes = ({"n": 1 << 22},)


class Fp8RowwiseExperts(Adapter):
    kernel = ao("prototype.moe_training.kernels.float8_rowwise", "_triton_fp8_rowwise_3d_transpose_scales_rhs_kernel")
    text = """
        input_ptr[E,K,N] input_ptr.strides=stride_input_dim0,stride_input_dim1,stride_input_dim2 ~scales_ptr[E,K]:f32
        scales_ptr.strides=stride_scales_dim0,stride_scales_dim1 E N K fp8_dtype_min=-448.0 fp8_dtype_max=448.0
        input_dtype=tl.bfloat16 round_scales_to_power_of_2=True EPS=1e-12
    """
    blocks = "(e, cdiv(k, BLOCK_SIZE_K), cdiv(n, BLOCK_SIZE_N))"
    sizes = ({"e": 8, "k": 1024, "n": 2048},)


class Fp8Jagged(Adapter):
    kernel = ao("prototype.moe_training.kernels.jagged_float8_scales", "_triton_fp8_per_group_rowwise_scales_kernel")
    text = """
        input_ptr[M,K] +offsets_ptr[8]:i32=torch.arange(1,9)*(K//8) >out_ptr[M,K]:e4m3 >scales_ptr[8*M]:f32 M K
        N_GROUPS=8
        stride_input_row=K stride_output_col=1 fp8_dtype_min=-448.0 fp8_dtype_max=448.0 input_dtype=tl.bfloat16
        output_dtype=tl.float8e4nv round_scales_to_power_of_2=True EPS=1e-12 STRIDE_OUTPUT_ROW=K STRIDE_INPUT_COL=1
    """
    blocks = "(cdiv(m, BLOCK_SIZE), 8)"
    sizes = (SQUARE,)


class GroupedHadamard(Adapter):
    kernel = ao("prototype.moe_training.nvfp4_training.group_hadamard_amax_triton", "_pergroup_cta_rht_amax_kernel")
    text = """
        a_ptr[M,N] b_ptr[16,16] +offsets_ptr[8]:i32=torch.arange(1,9)*(M//8) ~global_amax_row_ptr[8]:f32
        ~global_amax_col_ptr[8]:f32 M N CTAS_PER_GROUP=16 RHT_SIZE=16 GROUP_SIZE_N=8
    """
    blocks = "8 * 16"
    sizes = (SQUARE,)
    device = "B200"


class Mxfp8Dequantised(Adapter):
    kernel = ao("prototype.mx_formats.kernels", "_dequant_mxfp8_kernel")
    text = """
        e4m3_data[M,N]:e4m3 e8m0_scales[M,N//32]:u8<255 >out_buffer[M,N] input_num_rows=M input_num_cols=N
        scale_num_rows=M scale_num_cols=N//32 out_dtype=tl.bfloat16 SCALE_BLOCK_SIZE=32
    """
    blocks = "(cdiv(m, ROW_TILE_SIZE), cdiv(n, COL_TILE_SIZE))"
    sizes = (SQUARE,)


class ScaledInt8Product(Adapter):
    kernel = ao("prototype.quantized_training.int8_mm", "_scaled_int8_mm_kernel")
    text = """
        A_ptr[M,K]:i8<100 B_ptr[K,N]:i8<100 >C_ptr[M,N] row_scale_ptr[M] col_scale_ptr[N] M N K
        A_ptr.strides=stride_am,stride_ak B_ptr.strides=stride_bk,stride_bn C_ptr.strides=stride_cm,stride_cn
    """
    blocks = TILES
    sizes = (SQUARE,)


class TiledProduct(Adapter):
    kernel = xformers("tiled_matmul_kernels", "_xformers_tiled_matmul_kernel")
    text = (
        " ".join(f"A{i}{j}[M,K]" for i in "123" for j in "123")
        + " "
        + " ".join(f"B{i}{j}[K,N]" for i in "123" for j in "123")
        + " "
        + " ".join(f"~C{i}{j}[M,N]" for i in "123" for j in "123")
        + " "
        + " ".join(f"{each}{i}={each}" for each in "MNK" for i in "123")
        + " stride_am1=K stride_am2=K stride_am3=K stride_ak1=1 stride_ak2=1 stride_ak3=1 stride_bk1=N stride_bk2=N "
        "stride_bk3=N stride_bn1=1 stride_bn2=1 stride_bn3=1 stride_cm1=N stride_cm2=N stride_cm3=N stride_cn1=1 "
        "stride_cn2=1 stride_cn3=1 ACC_TYPE=tl.float32"
    )
    blocks = "(9 * cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N), SPLIT_K)"
    sizes = ({"m": 512, "n": 512, "k": 512},)


class SplitProduct(Adapter):
    kernel = triton_kernels("matmul", "_kernel")
    text = f"""A[M,K] B[K,N] ~C[M,N] {GEMM} acc_dtype=tl.float32 input_precision='ieee' fp8_fast_accum=True GROUP_M=8
        AB_DTYPE=None"""
    blocks = f"({TILES}, SPLIT_K)"
    sizes = (SQUARE,)


class BenchSplitProduct(Adapter):
    kernel = bench("operators.gemm.kernels.matmul", "_splitk_kernel")
    text = f"""A[M,K] B[K,N] ~C[M,N] {GEMM} acc_dtype=tl.float32 input_precision='tf32' fp8_fast_accum=True
        AB_DTYPE=tl.bfloat16 ENABLE_BUFFER_OPS_ASSUMES=False"""
    blocks = f"({TILES}, SPLIT_K)"
    sizes = (SQUARE,)


class Int16Product(Adapter):
    kernel = bench("operators.bf16xint16_gemm.kernel", "bf16xint16_matmul_kernel")
    text = f"a_ptr[M,K] b_ptr[K,N]:i16 >c_ptr[M,N] {POINTERS} TRANSPOSE=False"
    blocks = SIZED_TILES
    sizes = (SQUARE,)


class Int4Product(Adapter):
    kernel = bench("operators.int4_gemm.kernel", "matmul_kernel")
    text = f"a_ptr[M,K] b_ptr[K//2,N]:i8<127 >c_ptr[M,N] {POINTERS}"
    blocks = SIZED_TILES
    sizes = (SQUARE,)


class TutorialProduct(Adapter):
    kernel = bench("operators.gemm.triton_matmul", "matmul_kernel")
    text = f"a_ptr[M,K] b_ptr[K,N] >c_ptr[M,N] {POINTERS} ACTIVATION='leaky_relu' ENABLE_BUFFER_OPS_ASSUMES=False"
    blocks = TILES
    sizes = (SQUARE,)


class StreamProduct(Adapter):
    kernel = bench("operators.gemm.stream_k", "streamk_gemm")
    text = f"""A[M,K] B[K,N] >C[M,N] bias_ptr=None {GEMM} stride_bias_m=0 stride_bias_n=0 HAS_BIAS=False NUM_SMS=132
        NUM_XCDS=1 STREAMK_TILES=0 ENABLE_BUFFER_OPS_ASSUMES=False"""
    blocks = "132"
    sizes = (SQUARE,)


class DescriptorProduct(Adapter):
    kernel = bench("operators.gemm.warp_spec_persistent_matmul", "matmul_kernel_descriptor_persistent")
    text = """a_ptr[M,K] b_ptr[N,K] >c_ptr[M,N] M N K a_stride=K b_stride=K c_stride=N NUM_SMS=132 WARP_SPECIALIZE=False
        FLATTEN=False TRANSPOSE_A=False TRANSPOSE_B=True"""
    blocks = f"min(132, {SIZED_TILES})"
    sizes = (SQUARE,)


class HostDescriptorProduct(Adapter):
    kernel = bench("operators.gemm.warp_spec_persistent_matmul", "matmul_kernel_tma")
    text = """
        a_desc=TensorDescriptor(torch.empty(M,K,device='meta'),[M,K],[K,1],[64,64]) b_desc=None >c_desc[M,N] M N K
        WARP_SPECIALIZE=False DTYPE=tl.bfloat16 TRANSPOSE_A=False TRANSPOSE_B=True
    """
    sizes = (SQUARE,)
    refused = "let the kernel make the descriptor with tl.make_tensor_descriptor"


class GroupedProduct(Adapter):
    kernel = bench("operators.grouped_gemm.kernels", "grouped_matmul_kernel")
    text = """group_a_ptrs[G]:i64<9 group_b_ptrs[G]:i64<9 ~group_c_ptrs[G]:i64<9 group_gemm_sizes[G,3]:i32<99
        g_lds[G,3]:i32<99 group_size=G"""
    blocks = "NUM_SM"
    sizes = ({"g": 4},)


class JaggedSum(Adapter):
    kernel = bench("operators.jagged_sum.kernels", "triton_jagged_sum_kernel_variable_length_loop_sum_then_buffer")
    text = "input_ptr_values[L,M]:f32 +input_ptr_offsets[65]:i64=torch.arange(65)*(L//64) >output_ptr[64,M]:f32 M"
    blocks = "64 * cdiv(m, BLOCK_SIZE_M)"
    sizes = ({"l": 8192, "m": 512},)


class TemplateAttention(Adapter):
    kernel = bench("operators.template_attention.triton_attention", "triton_tem_fused_no_exp2")
    text = "arg_Q[16,16,N,64]:f16 arg_K[16,16,N,64]:f16 arg_V[16,16,N,64]:f16 >out_ptr0[16,16,N,64]:f16 num_queries=N"
    blocks = "(cdiv(n, BLOCK_M), 256)"
    sizes = ({"n": 4096},)


class Welford(Adapter):
    kernel = bench("operators.welford.triton_welford", "triton_red_fused_native_layer_norm_0")
    text = (
        """~in_out_ptr0[M]:f32 in_ptr0[M,N] in_ptr1[N] in_ptr2[N] >out_ptr0[M]:f32 >out_ptr1[M,N] xnumel=M rnumel=N"""
    )
    blocks = "cdiv(m, XBLOCK)"
    sizes = ({"m": 4096, "n": 4096},)
