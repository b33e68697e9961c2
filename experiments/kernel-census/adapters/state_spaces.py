"""Adapters of kernels of state-spaces/mamba, linkedin/Liger-Kernel and unslothai/unsloth."""

from base import Adapter, imported
from repositories import liger, mamba


def unsloth(module: str, kernel: str):
    bare = ("unsloth", "unsloth.kernels", "unsloth.kernels.moe", "unsloth.kernels.moe.grouped_gemm")
    return getattr(imported("unsloth", f"{bare[-1]}.kernels.{module}", (*bare, f"{bare[-1]}.kernels")), kernel)


SCAN = {"b": 2, "t": 2048, "h": 16, "p": 64, "g": 1, "s": 128, "c": 256}
ROWS = ({"m": 4096, "n": 1024},)
CHUNKS = "dt_ptr[B,H,T//C,C]:f32 dA_cumsum_ptr[B,H,T//C,C]:f32"


class Swiglu(Adapter):
    kernel = mamba("k_activations", "_swiglu_fwd_kernel")
    text = "X[M,N] Y[M,N] >OUT[M,N] stride_x_row=N stride_y_row=N stride_out_row=N ncols=N"
    blocks = "(m, cdiv(n, BLOCK_N))"
    sizes = ROWS


class SelectiveNorm(Adapter):
    kernel = mamba("layer_norm", "_layer_norm_fwd_1pass_kernel")
    text = """
        X[M,N] >Y[M,N] W[N]:f32 B=None RESIDUAL[M,N]:f32 X1=None W1=None B1=None Y1=None >RESIDUAL_OUT[M,N]:f32
        ROWSCALE=None SEEDS=None DROPOUT_MASK=None Mean=None >Rstd[M]:f32 stride_x_row=N stride_y_row=N stride_res_row=N
        stride_res_out_row=N stride_x1_row=0 stride_y1_row=0 M N eps=1e-5 dropout_p=0.0 IS_RMS_NORM=True BLOCK_N=pow2(N)
        HAS_RESIDUAL=True STORE_RESIDUAL_OUT=True HAS_BIAS=False HAS_DROPOUT=False STORE_DROPOUT_MASK=False
        HAS_ROWSCALE=False
    """
    blocks = "m"
    sizes = ROWS


class SelectiveNormBackward(Adapter):
    kernel = mamba("layer_norm", "_layer_norm_bwd_kernel")
    text = """
        X[M,N] W[N]:f32 B[N]:f32 Y=None DY[M,N] >DX[M,N] >DW[132,N]:f32 >DB[132,N]:f32 DRESIDUAL=None W1=None DY1=None
        DX1=None DW1=None DB1=None DRESIDUAL_IN=None ROWSCALE=None SEEDS=None Mean[M]:f32 Rstd[M]:f32 stride_x_row=N
        stride_y_row=0 stride_dy_row=N stride_dx_row=N stride_dres_row=0 stride_dy1_row=0 stride_dx1_row=0
        stride_dres_in_row=0 M N eps=1e-5 dropout_p=0.0 rows_per_program=cdiv(M,132) IS_RMS_NORM=False BLOCK_N=pow2(N)
        HAS_DRESIDUAL=False STORE_DRESIDUAL=False HAS_BIAS=True HAS_DROPOUT=False
    """
    blocks = "132"
    sizes = ROWS


class ChunkProduct(Adapter):
    kernel = mamba("ssd_bmm", "_bmm_chunk_fwd_kernel")
    text = """
        a_ptr[B,T,G,S] b_ptr[B,T,G,S] >out_ptr[B,T//C,G,C,C]:f32 seq_idx_ptr=None seqlen=T chunk_size=C K=S ngroups=G
        a_ptr.strides=stride_a_batch,stride_a_seqlen,stride_a_head,stride_ak
        b_ptr.strides=stride_b_batch,stride_b_seqlen,stride_b_head,stride_bk
        out_ptr.strides=stride_out_batch,stride_out_chunk,stride_out_head,stride_outm,stride_outn stride_seq_idx_batch=0
        stride_seq_idx_seqlen=0 IS_CAUSAL=True dot_dtype=tl.bfloat16 HAS_SEQ_IDX=False
    """
    blocks = "(cdiv(c, BLOCK_SIZE_M) * cdiv(c, BLOCK_SIZE_N), b, t // c * g)"
    sizes = (SCAN, {**SCAN, "t": 4096})


class ChunkProductBackward(Adapter):
    kernel = mamba("ssd_bmm", "_bmm_chunk_bwd_kernel")
    text = """
        a_ptr[B,T,G,S] dout_ptr[B,T//C,G,C,C]:f32 >db_ptr[B,T,G,S] res_ptr=None seqlen=T chunk_size=C K=S ngroups=G
        a_ptr.strides=stride_a_batch,stride_a_seqlen,stride_a_head,stride_ak
        dout_ptr.strides=stride_dout_batch,stride_dout_chunk,stride_dout_head,stride_dout_csize_m,stride_dout_csize_n
        db_ptr.strides=stride_db_batch,stride_db_seqlen,stride_db_head,stride_db_k stride_res_batch=0
        stride_res_seqlen=0 stride_res_head=0 stride_res_k=0 dot_dtype=tl.float16 HAS_RESIDUAL=False
    """
    blocks = "(cdiv(c, BLOCK_SIZE_M) * cdiv(s, BLOCK_SIZE_N), b, t // c * g)"
    sizes = (SCAN,)


class ChunkScan(Adapter):
    kernel = mamba("ssd_chunk_scan", "_chunk_scan_fwd_kernel")
    text = f"""
        cb_ptr[B,T//C,G,C,C]:f32 x_ptr[B,T,H,P] z_ptr=None >out_ptr[B,T,H,P] out_x_ptr=None {CHUNKS} seq_idx_ptr=None
        C_ptr[B,T,G,S] prev_states_ptr[B,T//C,H,P,S] D_ptr[H]:f32 chunk_size=C hdim=P dstate=S batch=B seqlen=T
        nheads_ngroups_ratio=H//G
        cb_ptr.strides=stride_cb_batch,stride_cb_chunk,stride_cb_head,stride_cb_csize_m,stride_cb_csize_k
        x_ptr.strides=stride_x_batch,stride_x_seqlen,stride_x_head,stride_x_hdim stride_z_batch=0 stride_z_seqlen=0
        stride_z_head=0 stride_z_hdim=0
        out_ptr.strides=stride_out_batch,stride_out_seqlen,stride_out_head,stride_out_hdim
        dt_ptr.strides=stride_dt_batch,stride_dt_head,stride_dt_chunk,stride_dt_csize
        dA_cumsum_ptr.strides=stride_dA_cs_batch,stride_dA_cs_head,stride_dA_cs_chunk,stride_dA_cs_csize
        stride_seq_idx_batch=0 stride_seq_idx_seqlen=0
        C_ptr.strides=stride_C_batch,stride_C_seqlen,stride_C_head,stride_C_dstate
        prev_states_ptr.strides=stride_states_batch,stride_states_chunk,stride_states_head,stride_states_hdim,stride_states_dstate
        stride_D_head=1 IS_CAUSAL=True HAS_D=True D_HAS_HDIM=False HAS_Z=False HAS_SEQ_IDX=False
        BLOCK_SIZE_DSTATE=max(pow2(S),16) IS_TRITON_22=True
    """
    blocks = "(cdiv(c, BLOCK_SIZE_M) * cdiv(p, BLOCK_SIZE_N), b * (t // c), h)"
    sizes = (SCAN,)


class ChunkScanGradient(Adapter):
    kernel = mamba("ssd_chunk_scan", "_chunk_scan_bwd_dc_kernel")
    text = """
        dout_ptr[B,T,H,P] prev_states_ptr[B,T//C,H,P,S] C_ptr[B,T,G,S] dA_cumsum_ptr[B,H,T//C,C]:f32 seq_idx_ptr=None
        >dc_ptr[B,T,1,G,S]:f32 ~ddA_cumsum_ptr[B,H,T//C,C]:f32 chunk_size=C dstate=S hdim=P batch=B seqlen=T nheads=H
        nheads_per_program=H//G ngroups=G
        dout_ptr.strides=stride_dout_batch,stride_dout_seqlen,stride_dout_head,stride_dout_hdim
        prev_states_ptr.strides=stride_prev_states_batch,stride_prev_states_chunk,stride_prev_states_head,stride_prev_states_hdim,stride_prev_states_dstate
        C_ptr.strides=stride_C_batch,stride_C_seqlen,stride_C_head,stride_C_dstate
        dA_cumsum_ptr.strides=stride_dA_cs_batch,stride_dA_cs_head,stride_dA_cs_chunk,stride_dA_cs_csize
        stride_seq_idx_batch=0 stride_seq_idx_seqlen=0
        dc_ptr.strides=stride_dc_batch,stride_dc_seqlen,stride_dc_split,stride_dc_group,stride_dc_dstate
        ddA_cumsum_ptr.strides=stride_ddA_cs_batch,stride_ddA_cs_head,stride_ddA_cs_chunk,stride_ddA_cs_csize
        stride_ddA_tile=0 BLOCK_SIZE_K=64 HAS_DDA_CS=True HAS_SEQ_IDX=False DETERMINISTIC_REDUCTION=False
    """
    blocks = "(cdiv(c, BLOCK_SIZE_M) * cdiv(s, BLOCK_SIZE_N), b * (t // c), g)"
    sizes = (SCAN,)


class ChunkCumsumBackward(Adapter):
    kernel = mamba("ssd_chunk_state", "_chunk_cumsum_bwd_kernel")
    text = """
        ddA_ptr[B,H,T//C,C]:f32 ddt_out_ptr[B,H,T//C,C]:f32 dt_ptr[B,T,H] A_ptr[H]:f32 dt_bias_ptr[H]:f32
        >ddt_ptr[B,T,H] ~dA_ptr[H]:f32 ~ddt_bias_ptr[H]:f32 batch=B seqlen=T nheads=H chunk_size=C dt_min=0.0 dt_max=inf
        ddA_ptr.strides=stride_ddA_batch,stride_ddA_head,stride_ddA_chunk,stride_ddA_csize
        ddt_out_ptr.strides=stride_ddt_out_batch,stride_ddt_out_head,stride_ddt_out_chunk,stride_ddt_out_csize
        dt_ptr.strides=stride_dt_batch,stride_dt_seqlen,stride_dt_head stride_A_head=1 stride_dt_bias_head=1
        ddt_ptr.strides=stride_ddt_batch,stride_ddt_seqlen,stride_ddt_head stride_dA_batch=0 stride_dA_chunk=0
        stride_dA_head=1 stride_ddt_bias_batch=0 stride_ddt_bias_chunk=0 stride_ddt_bias_head=1 DT_SOFTPLUS=True
        HAS_DT_BIAS=True BLOCK_SIZE_CHUNK=pow2(C) DETERMINISTIC_REDUCTION=False
    """
    blocks = "(b, t // c, cdiv(h, BLOCK_SIZE_H))"
    sizes = (SCAN,)


class ScaledGradient(Adapter):
    kernel = mamba("mamba3.mamba3_siso_bwd", "mamba3_siso_bwd_kernel_dzdo")
    text = """
        DO[B,T,H,P] Z[B,T,H,P] O[B,T,H,P] >Dz[B,T,H,P] >DO_scaled[B,T,H,P]
        DO.strides=stride_do_batch,stride_do_seqlen,stride_do_head,stride_do_vdim
        Z.strides=stride_z_batch,stride_z_seqlen,stride_z_head,stride_z_vdim
        O.strides=stride_o_batch,stride_o_seqlen,stride_o_head,stride_o_vdim
        Dz.strides=stride_dz_batch,stride_dz_seqlen,stride_dz_head,stride_dz_vdim
        DO_scaled.strides=stride_do_scaled_batch,stride_do_scaled_seqlen,stride_do_scaled_head,stride_do_scaled_vdim
        seqlen=T headdim_v=P HEADDIM_V=P
    """
    blocks = "(cdiv(t, CHUNK_SIZE), h, b)"
    sizes = (SCAN,)


class CumsumFused(Adapter):
    kernel = mamba("mamba3.mamba3_mimo_utils", "bwd_dadt_cumsum_fused_kernel")
    text = """
        ddA_cs_ptr[B,H,T]:f32 ddA_cs_rev_ptr[B,H,T]:f32 dA_cs_ptr[B,H,T]:f32 dA_cs_rev_ptr[B,H,T]:f32
        ~ddt_out_ptr[B,H,T]:f32 ddt_out_ptr.strides=stride_batch,stride_head,stride_seq B H S=T CHUNK_SIZE=64
    """
    blocks = "(b, h, t // 64)"
    sizes = (SCAN,)


class DynamicTanhBackward(Adapter):
    kernel = liger("dyt", "_dyt_bwd_kernel")
    text = """
        DY[M,N] >DX[M,N] ~DA[132,cdiv(N,512)]:f32 >DG[132,N]:f32 >DB[132,N]:f32 X[M,N] Alpha[1]:f32 Gamma[N]:f32
        HAVE_BETA=True M N
    """
    blocks = "(cdiv(n, BLOCK_N), 132)"
    sizes = ({"m": 4096, "n": 4096},)


class ExpertSwiglu(Adapter):
    kernel = liger("fused_moe_kernels", "_fused_up_proj_swiglu_kernel")
    text = """
        x_ptr[T,H] gate_up_proj_ptr[E,2*I,H] x_gather_idx_ptr[T*K]:i32<T
        +expert_start_ptr[E+1]:i32=torch.arange(E+1)*(T*K//E) +tile_row_start_ptr[T*K//64]:i32=torch.arange(T*K//64)*64
        +tile_expert_ptr[T*K//64]:i32=torch.arange(T*K//64)*64//(T*K//E) >pre_act_ptr[T*K,2*I] >post_act_ptr[T*K,I]
        H_dim=H I_dim=I x_ptr.strides=stride_x_T,stride_x_H gate_up_proj_ptr.strides=stride_w_E,stride_w_N,stride_w_K
        pre_act_ptr.strides=stride_pre_TK,stride_pre_N post_act_ptr.strides=stride_post_TK,stride_post_N BLOCK_M=64
    """
    blocks = "(t * k // 64, cdiv(i, BLOCK_N))"
    sizes = ({"t": 4096, "k": 2, "e": 8, "h": 2048, "i": 1024},)


class ExpertGradient(Adapter):
    kernel = liger("fused_moe_kernels", "_moe_bwd_dW2_kernel")
    text = """
        weighted_act_ptr[T*K,I] dout_ptr[T,H] x_gather_idx_ptr[T*K]:i32<T
        +expert_start_ptr[E+1]:i32=torch.arange(E+1)*(T*K//E) ~dW2_ptr[E,H,I] H_dim=H I_dim=I
        weighted_act_ptr.strides=stride_wact_TK,stride_wact_I dout_ptr.strides=stride_dout_T,stride_dout_H
        dW2_ptr.strides=stride_dW2_E,stride_dW2_H,stride_dW2_I
    """
    blocks = "(e * cdiv(i, BLOCK_M), cdiv(h, BLOCK_N))"
    sizes = ({"t": 4096, "k": 2, "e": 8, "h": 1024, "i": 1024},)


class TernaryProduct(Adapter):
    kernel = liger("experimental.mm_int8int2", "matmul_kernel")
    text = """
        a_ptr[M,K]:i8<100 b_ptr[K//4,N]:u8<255 >c_ptr[M,N]:i32 M N K a_ptr.strides=stride_am,stride_ak
        b_ptr.strides=stride_bk,stride_bn c_ptr.strides=stride_cm,stride_cn
    """
    blocks = "cdiv(m, BLOCK_SIZE_M) * cdiv(n, BLOCK_SIZE_N)"
    sizes = ({"m": 1024, "n": 1024, "k": 4096},)


class HostDescriptors(Adapter):
    kernel = liger("mlp", "_swiglu_kernel_forward")
    text = """
        desc_input=TensorDescriptor(torch.empty(M,D,device='meta'),[M,D],[D,1],[64,64]) desc_Wg=None desc_Wu=None
        desc_A=None desc_G=None desc_U=None >S[M] dim=D hidden_dim=4*D bucket_M=M gate_multiplier=1.0
    """
    sizes = ({"m": 1024, "d": 1024},)
    refused = "let the kernel make the descriptor with tl.make_tensor_descriptor"


GROUPED = {"t": 4096, "e": 8, "n": 1024, "k": 1024}


class GroupedForward(Adapter):
    kernel = unsloth("forward", "_autotuned_grouped_gemm_forward_kernel")
    text = """
        x_ptr[T,K] w_ptr[E,N,K] >y_ptr[T,N] +m_sizes_ptr[E]:i32=torch.full((E,),T//E) gather_indices_ptr[T]:i32<T
        topk_weights_ptr=None NUM_EXPERTS=E NUM_TOKENS=T TOPK=1 N K NUM_SMS=132 PERMUTE_X=False PERMUTE_Y=True
        FUSE_MUL_PRE=False FUSE_MUL_POST=False USE_FAST_ACCUM=False acc_dtype=tl.float32
    """
    blocks = "132"
    sizes = (GROUPED,)


class GroupedWeightGradient(Adapter):
    kernel = unsloth("backward", "_autotuned_grouped_gemm_dW_kernel")
    text = """
        x_ptr[T,K] dY_ptr[T,N] >dW_ptr[E,N,K] +m_sizes_ptr[E]:i32=torch.full((E,),T//E) gather_indices_ptr[T]:i32<T
        NUM_TOKENS=T TOPK=1 NUM_EXPERTS=E N K NUM_SMS=132 PERMUTE_X=False PERMUTE_Y=False
    """
    blocks = "132"
    sizes = (GROUPED,)
