"""Adapters of kernels of FlagOpen/FlagGems and ROCm/aiter, whose modules ask for a GPU on import."""

import os

from base import Adapter, imported

os.environ["GEMS_VENDOR"] = "nvidia"
os.environ["FLAGGEMS_ENABLE_DISK_CACHE"] = "0"
os.environ["AITER_TRITON_CONV_AUTOTUNE"] = "1"
os.environ["CHUNK_DELTA_ATTN_TRITON_AUTOTUNE"] = "1"
os.environ["GATED_DELTA_RULE_TRITON_AUTOTUNE"] = "1"


def gems(module: str, kernel: str):
    return getattr(
        imported("FlagGems/src", f"flag_gems.{module}", ("flag_gems", "flag_gems.ops", "flag_gems.fused"), gpu=True),
        kernel,
    )


def rocm(module: str, kernel: str):
    parts = f"aiter.ops.triton._triton_kernels.{module}".split(".")
    bare = tuple(".".join(parts[:at]) for at in range(1, len(parts)))
    return getattr(imported("aiter", ".".join(parts), bare, gpu=True), kernel)


SQUARE = {"m": 2048, "n": 2048, "k": 2048}
GEMM = "A.strides=stride_am,stride_ak B.strides=stride_bk,stride_bn C.strides=stride_cm,stride_cn M N K"
SEQUENCE = {"b": 2, "t": 2048, "h": 8, "k": 128, "v": 128, "bt": 64}
ROWS = ({"m": 4096, "n": 1024},)


class AddProduct(Adapter):
    kernel = gems("ops.addmm", "addmm_kernel")
    text = """
        a_ptr[M,K] b_ptr[K,N] i_ptr[M,N] >c_ptr[M,N] alpha=1.0 beta=0.5 M N K a_ptr.strides=stride_am,stride_ak
        b_ptr.strides=stride_bk,stride_bn i_ptr.strides=stride_im,stride_in c_ptr.strides=stride_cm,stride_cn
    """
    blocks = "(cdiv(m, BLOCK_SIZE_M), cdiv(n, BLOCK_SIZE_N))"
    sizes = (SQUARE, {"m": 2000, "n": 2048, "k": 2048})


class Product(Adapter):
    kernel = gems("ops.mm", "mm_kernel_general")
    text = f"A[M,K] B[K,N] >C[M,N] {GEMM} GROUP_M=8"
    blocks = "cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N)"
    sizes = (SQUARE,)


class BatchedProduct(Adapter):
    kernel = gems("ops.bmm", "bmm_kernel")
    text = "A[B,M,K] B[B,K,N] >O[B,M,N] M N K"
    blocks = "(cdiv(m, TILE_M), cdiv(n, TILE_N), b)"
    sizes = ({"b": 4, "m": 1024, "n": 1000, "k": 512},)


class Maximum(Adapter):
    kernel = gems("ops.amax", "amax_kernel")
    text = "inp[M,N] >out[M] M N"
    blocks = "cdiv(m, BLOCK_M)"
    sizes = ROWS


class Kronecker(Adapter):
    kernel = gems("ops.kron", "kron_kernel")
    text = """
        a_ptr[1,M1,N1] b_ptr[1,M2,N2] >c_ptr[1,M1*M2,N1*N2] map_ptr[1,2]:i64<1 batch_size=1 M=M1*M2 N=N1*N2 M1 M2 N1 N2
        a_stride_0=N1 a_stride_1=1 b_stride_0=N2 b_stride_1=1 c_stride_0=N1*N2 c_stride_1=1 a_batch_stride=M1*N1
        b_batch_stride=M2*N2 c_batch_stride=M1*M2*N1*N2
    """
    blocks = "cdiv(m1 * m2, BLOCK_M) * cdiv(n1 * n2, BLOCK_N)"
    sizes = ({"m1": 32, "n1": 32, "m2": 32, "n2": 32},)


class MatrixVector(Adapter):
    kernel = gems("ops.mv", "mv_kernel")
    text = "A[N,M] B[M] >C[N] N M stride_an=M stride_am=1 stride_bm=1 stride_cn=1"
    blocks = "cdiv(n, BLOCK_N)"
    sizes = ROWS


class LayerNormLoop(Adapter):
    kernel = gems("ops.layernorm", "layer_norm_loop_kernel")
    text = "in_ptr[M,N] >out_ptr[M,N] weight_ptr[N] bias_ptr[N] >out_mean_ptr[M]:f32 >out_rstd_ptr[M]:f32 M N eps=1e-5"
    blocks = "m"
    sizes = ({"m": 4096, "n": 8192},)


class BatchNorm(Adapter):
    kernel = gems("ops.batch_norm", "batch_norm_forward_kernel")
    text = """
        input_pointer[B,C,S] weight_pointer[C] bias_pointer[C] >mean_pointer[C]:f32 >inv_std_pointer[C]:f32
        >output_pointer[B,C,S] ~running_mean_pointer[C]:f32 ~running_var_pointer[C]:f32 batch_dim=B spatial_dim=S
        input_pointer.strides=input_batch_stride,input_feat_stride,input_spatial_stride
        output_pointer.strides=output_batch_stride,output_feat_stride,output_spatial_stride momentum=0.1 eps=1e-5
        is_train=True
    """
    blocks = "c"
    sizes = ({"b": 16, "c": 64, "s": 784},)


class Attention(Adapter):
    kernel = gems("ops.attention", "_attn_fwd")
    text = """
        Q[B,H,T,D]:f16 K[B,H,T,D]:f16 V[B,H,T,D]:f16 attn_mask=None sm_scale=0.125 >M[B,H,T]:f32 >Out[B,H,T,D]:f16
        Q.strides=stride_q_batch,stride_q_head,stride_q_seqlen,stride_q_headsize
        K.strides=stride_k_batch,stride_k_head,stride_k_seqlen,stride_k_headsize
        V.strides=stride_v_batch,stride_v_head,stride_v_seqlen,stride_v_headsize stride_attn_mask_batch=1
        stride_attn_mask_head=1 stride_attn_mask_q_seqlen=1 stride_attn_mask_kv_seqlen=1
        Out.strides=stride_o_batch,stride_o_head,stride_o_seqlen,stride_o_headsize Z=B q_head_num=H kv_head_num=H
        GROUP_HEAD=1 Q_CTX=T KV_CTX=T HEAD_DIM=D STAGE=3 HAS_ATTN_MASK=False
    """
    blocks = "(cdiv(t, BLOCK_M), b * h)"
    sizes = ({"b": 2, "h": 16, "t": 2048, "d": 64},)


class Triangle(Adapter):
    kernel = gems("ops.triu", "triu_kernel")
    text = "X[M,N] >Y[M,N] M N diagonal=0"
    blocks = "cdiv(m, M_BLOCK_SIZE)"
    sizes = ROWS


class CrossEntropy(Adapter):
    kernel = gems("fused.cross_entropy_loss", "celoss_indices_kernel")
    text = """
        inp_ptr[M,C,D] tgt_ptr[M,D]:i64<C w_ptr=None >out_ptr[M,D]:f32 >w_tgt_ptr[M,D]:f32 ignore_index=-100 C D
    """
    blocks = "(cdiv(d, BLOCK_D), m)"
    sizes = ({"m": 1024, "c": 32000, "d": 1},)


class VectorNorm(Adapter):
    kernel = gems("ops.vector_norm", "l2_norm_kernel")
    text = "X[M,N] >Out[M] M N"
    blocks = "cdiv(m, BLOCK_M)"
    sizes = ROWS


class DecodeUpdate(Adapter):
    kernel = rocm(
        "gated_delta_rule.decode.fused_sigmoid_gating_recurrent", "fused_sigmoid_gating_delta_rule_update_kernel"
    )
    text = """
        A_log[H]:f32 a[B,1,H] dt_bias[H] softplus_beta=1.0 softplus_threshold=20.0 q[B,1,H,K] k[B,1,H,K] v[B,1,H,V]
        b[B,1,H] >o[1,B,1,H,V] ~h0_source[B,H,K,V]:f32 h0_indices[B]:i32<B cu_seqlens=None scale=0.0884 T=1 B H HV=H K V
        BK=K USE_QK_L2NORM_IN_KERNEL=True
    """
    blocks = "(1, cdiv(v, BV), b * h)"
    sizes = ({"b": 32, "h": 8, "k": 128, "v": 128},)


class ChipL2NormBackward(Adapter):
    kernel = rocm("gated_delta_rule.utils.l2norm", "l2norm_bwd_kernel")
    text = "y[T,D] rstd[T]:f32 dy[T,D] >dx[T,D] eps=1e-6 T D BD=pow2(D) NB=cdiv(T,2048)"
    blocks = "cdiv(t, BT)"
    sizes = ({"t": 16384, "d": 128},)


class ChipCumulativeSum(Adapter):
    kernel = rocm("gated_delta_rule.utils.cumsum", "chunk_local_cumsum_scalar_kernel")
    text = """
        s[B,T,H]:f32 >o[B,T,H]:f32 scale=None cu_seqlens=None chunk_indices=None T B H BT REVERSE=False HEAD_FIRST=False
    """
    blocks = "(t // bt, b * h)"
    sizes = (SEQUENCE,)


class ChipGate(Adapter):
    kernel = rocm("chunk_delta_attn.gate", "chunk_delta_attn_gate_fwd_kernel")
    text = "g[T,H,D] A_log[H]:f32 dt_bias[H*D]:f32 >yg[T,H,D]:f32 lower_bound=None T H D BD=pow2(D)"
    blocks = "(cdiv(t, BT), h)"
    sizes = ({"t": 4096, "h": 16, "d": 128},)


class SparsePrefill(Adapter):
    kernel = rocm("attention.sparse_attention_dsv4", "_sparse_attn_prefill_kernel")
    text = """
        q_ptr[T,H,D] kv_ptr[S,D] kv_indices_ptr[T*64]:i32<S +kv_indptr_ptr[T+1]:i32=torch.arange(T+1)*64
        attn_sink_ptr[H]:f32 >out_ptr[T,H,D] q_ptr.strides=q_stride_t,q_stride_h,q_stride_d
        kv_ptr.strides=kv_stride_n,kv_stride_d out_ptr.strides=out_stride_t,out_stride_h,out_stride_d num_heads=H
        head_dim=D num_kv=S scale=0.0442 HAS_ATTN_SINK=True BLOCK_D=pow2(D)
    """
    blocks = "(t, cdiv(h, BLOCK_H))"
    sizes = ({"t": 1024, "h": 64, "d": 512, "s": 8192},)
    refused = "which is no argument of the kernel"


class Convolution(Adapter):
    kernel = rocm("conv.conv_1x1", "_conv2d_1x1_kernel")
    text = """
        X[N,H,W,C]:f16 W[K,C]:f16 BIAS[K]:f16 >Y[N,H,W,K]:f16 N C H W_in=W K_out=K P=H Q=W stride_h=1 stride_w=1 pad_h=0
        pad_w=0 M_total=N*H*W HAS_BIAS=True ACTIVATION='relu' LAYOUT='nhwc'
    """
    blocks = "cdiv(n * h * w, BLOCK_M) * cdiv(k, BLOCK_N)"
    sizes = ({"n": 8, "h": 28, "w": 28, "c": 256, "k": 256},)


class SplitReduce(Adapter):
    kernel = rocm("flash_attn_triton_amd.fwd_decode", "_splitK_reduce")
    text = """
        Out_splitK[B*H,S,1,K]:f32 Metadata[B*H,2,S,16]:f32 >Out[B,1,H,1,K] >LSE[B*H,1]:f32
        Out_splitK.strides=stride_osk_zhg,stride_osk_s,stride_osk_m,stride_osk_k
        Metadata.strides=stride_mzhg,stride_m2,stride_ms,stride_mm stride_oz=H*K stride_oh=K stride_og=K stride_om=H*K
        stride_ok=1 LSE.strides=stride_lse_zhg,stride_lse_m K_BLOCK_SIZE=K BLOCK_DMODEL=K ACTUAL_BLOCK_DMODEL=K H G=1
        split_k=S splitK_pow2=pow2(S) MASK_SPLITK=False PADDED_HEAD=False
    """
    blocks = "(b * h, 1, 1)"
    sizes = ({"b": 16, "h": 16, "k": 128, "s": 8},)
