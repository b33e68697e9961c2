"""Adapters of kernels of fla-org/flash-linear-attention."""

from base import Adapter
from repositories import fla

SEQUENCE = {"b": 2, "t": 2048, "h": 8, "k": 128, "v": 128, "bt": 64}
ROWS = {"t": 4096, "d": 1024}, {"t": 16384, "d": 1024}
VARLEN = "cu_seqlens=None chunk_indices=None"


class Swish(Adapter):
    kernel = fla("modules.activations", "swish_fwd_kernel")
    text = "x[T,D] >y[T,D] stride_x_row=D stride_y_row=D T D"
    blocks = "cdiv(t * d, B)"
    sizes = ROWS

    def reference(self, case, arguments):
        return arguments["x"].double() * arguments["x"].double().sigmoid()


class SwigluBackward(Adapter):
    kernel = fla("modules.activations", "swiglu_fwdbwd_kernel")
    text = """
        x[T,D] y[T,D] g[T,D] >dx[T,D] >dy[T,D] >z[T,D] stride_x_row=D stride_y_row=D stride_g_row=D stride_dx_row=D
        stride_dy_row=D stride_z_row=D T D
    """
    blocks = "cdiv(t * d, B)"
    sizes = ROWS


class SwigluBackwardAlone(Adapter):
    kernel = fla("modules.activations", "swiglu_fwdbwd_kernel")
    text = """
        x[T,D] y[T,D] g[T,D] >dx[T,D] >dy[T,D] z=None stride_x_row=D stride_y_row=D stride_g_row=D stride_dx_row=D
        stride_dy_row=D stride_z_row=0 T D
    """
    blocks = "cdiv(t * d, B)"
    sizes = ROWS


class CausalConv(Adapter):
    kernel = fla("modules.conv.triton.kernels", "causal_conv1d_fwd_kernel")
    text = """
        x[B,T,D] >y[B,T,D] weight[D,W] bias=None residual=None cu_seqlens=None initial_state=None chunk_indices=None B
        T x.strides=stride_x_n,stride_x_t,stride_x_d D W BT=64 BW=pow2(W) NB=2048 ACTIVATION='silu'
    """
    blocks = "(cdiv(d, BD), cdiv(t, 64), b)"
    sizes = ({"b": 2, "t": 2048, "d": 1024, "w": 4},)


class CausalConvUpdate(Adapter):
    kernel = fla("modules.conv.triton.kernels", "causal_conv1d_update_kernel")
    text = """
        x[B,D] ~cache[B,D,W] residual=None >y[B,D] weight[D,W] bias[D] x.strides=stride_x_n,stride_x_d
        y.strides=stride_y_n,stride_y_d D W BW=pow2(W) ACTIVATION='swish'
    """
    blocks = "cdiv(d, BD) * b"
    sizes = ({"b": 64, "d": 1024, "w": 4},)


class LayerNormQuant(Adapter):
    kernel = fla("modules.fused_bitlinear", "layer_norm_fwd_kernel_quant")
    text = """
        X[T,D] >Y[T,D] W[D] B=None RESIDUAL=None RESIDUAL_OUT=None Mean=None >Rstd[T]:f32 stride_x_row=D
        stride_y_row=D stride_res_row=0 stride_res_out_row=0 N=D eps=1e-6 IS_RMS_NORM=True BLOCK_N=pow2(D)
        HAS_RESIDUAL=False STORE_RESIDUAL_OUT=False HAS_WEIGHT=True HAS_BIAS=False
    """
    blocks = "t"
    sizes = ROWS


class LayerNormGated(Adapter):
    kernel = fla("modules.fused_norm_gate", "layer_norm_gated_fwd_kernel")
    text = """
        x[T,D] g[T,D] >y[T,D] w[D] b=None residual=None residual_out=None mean=None >rstd[T]:f32 eps=1e-6 T D
        BD=pow2(D) NB=cdiv(T,32*132) ACTIVATION='swish' IS_RMS_NORM=True
    """
    blocks = "cdiv(t, BT)"
    sizes = ({"t": 16384, "d": 128},)


class GrpoLoss(Adapter):
    kernel = fla("modules.grpo", "grpo_fwd_kernel")
    text = """
        logits_ptr[B,L+1,N] ref_logp_ptr[B,L]:f32 input_ids_ptr[B,L]:i64<N advantages_ptr[B]:f32
        completion_mask_ptr[B,L]:i32<2 >loss_ptr[B,L]:f32 >lse_ptr[B,L]:f32 beta=0.04 save_kl=False B M=B*L N L
        start_idx=0
    """
    blocks = "b * l"
    sizes = ({"b": 2, "l": 256, "n": 32000},)


class L2Norm(Adapter):
    kernel = fla("modules.l2norm", "l2norm_fwd_kernel")
    text = "x[T,D] >y[T,D] >rstd[T]:f32 eps=1e-6 T D BD=pow2(D) NB=cdiv(T,2048*32)"
    blocks = "cdiv(t, BT)"
    sizes = ({"t": 16384, "d": 128}, {"t": 131072, "d": 128})


class L2NormBackward(Adapter):
    kernel = fla("modules.l2norm", "l2norm_bwd_kernel")
    text = "y[T,D] rstd[T]:f32 dy[T,D] >dx[T,D] eps=1e-6 T D BD=pow2(D) NB=cdiv(T,2048*32)"
    blocks = "cdiv(t, BT)"
    sizes = ({"t": 16384, "d": 128},)


class LayerNorm(Adapter):
    kernel = fla("modules.layernorm", "layer_norm_fwd_kernel")
    text = """
        x[T,D] >y[T,D] w[D] b[D] res=None res_out=None >mean[T]:f32 >rstd[T]:f32 eps=1e-5 T G=1 D BD=pow2(D)
        NB=cdiv(T,32*2048) IS_RMS_NORM=False HAS_RESIDUAL=False STORE_RESIDUAL_OUT=False HAS_WEIGHT=True HAS_BIAS=True
    """
    blocks = "cdiv(t, BT)"
    sizes = ({"t": 16384, "d": 256},)


class LayerNormBackward(Adapter):
    kernel = fla("modules.layernorm", "layer_norm_bwd_kernel1")
    text = """
        x[T,D] w[D] b=None y=None dy[T,D] >dx[T,D] >dw[132,D]:f32 db=None dres=None dres_in=None mean=None rstd[T]:f32
        T G=1 D BS=cdiv(T,132) BD=pow2(D) GS=132 IS_RMS_NORM=True HAS_DRESIDUAL=False STORE_DRESIDUAL=False
        HAS_WEIGHT=True HAS_BIAS=False
    """
    blocks = "132"
    sizes = ({"t": 16384, "d": 1024},)


class Rotary(Adapter):
    kernel = fla("modules.rotary", "rotary_embedding_kernel")
    text = """
        x[B,T,H,D] cos[T,D//2] sin[T,D//2] >y[B,T,H,D] cu_seqlens=None chunk_indices=None seq_offsets=0 T B H D R=D//2
        TR=T BT=64 BD=pow2(D//2) IS_SEQLEN_OFFSETS_TENSOR=False IS_VARLEN=False INTERLEAVED=False CONJUGATE=False
    """
    blocks = "(cdiv(t, 64), b, h)"
    sizes = ({"b": 2, "t": 2048, "h": 16, "d": 128},)


class TokenShift(Adapter):
    kernel = fla("modules.token_shift", "token_shift_fwd_kernel_short")
    text = """
        x[B,T,D] >y[B,T,D] cu_seqlens=None cache=None cache_out=None T D BD=pow2(D) STORE_FINAL_STATE=False
        IS_DECODE=False
    """
    blocks = "(b, t)"
    sizes = ({"b": 2, "t": 2048, "d": 1024},)


class AttentionDecoding(Adapter):
    kernel = fla("ops.attn.decoding", "naive_attn_decoding_kernel")
    text = """
        q[1,B,HQ,K] k[1,T,H,K] v[1,T,H,V] >o[1,B,HQ,V] g_cumsum=None sink_bias=None scale=0.0884
        +cu_seqlens[B+1]:i32=torch.arange(B+1)*(T//B) T B H HQ G=HQ//H K V BS=64 BK=K BV=V
    """
    blocks = "b * hq"
    sizes = ({"b": 8, "t": 32768, "h": 8, "hq": 32, "k": 128, "v": 128},)


class ChunkState(Adapter):
    kernel = fla("ops.common.chunk_h", "chunk_fwd_kernel_h")
    text = """
        k[B,T,H,K] v[B,T,H,V] >h[B,T//BT,H,K,V] g[B,T,H]:f32 g_gamma=None gk=None gv=None h0=None >ht[B,H,K,V]:f32
        cu_seqlens=None split_offsets=None T H K V BT BS=BT USE_G=True USE_G_GAMMA=False USE_GK=False USE_GV=False
        STATE_V_FIRST=False
    """
    blocks = "(cdiv(k, BK), cdiv(v, BV), b * h)"
    sizes = (SEQUENCE,)


class ChunkOutput(Adapter):
    kernel = fla("ops.common.chunk_o", "chunk_fwd_kernel_o")
    text = """
        q[B,T,H,K] k[B,T,H,K] v[B,T,H,V] h[B,T//BT,H,K,V] g[B,T,H]:f32 g_gamma=None >o[B,T,H,V] cu_seqlens=None
        chunk_indices=None scale=0.0884 T H HV=H K V BT STATE_V_FIRST=False
    """
    blocks = "(cdiv(v, BV), t // bt, b * h)"
    sizes = (SEQUENCE,)


class ChunkValueGradient(Adapter):
    kernel = fla("ops.common.chunk_o", "chunk_bwd_kernel_dv_local")
    text = """
        q[B,T,H,K] k[B,T,H,K] g[B,T,H]:f32 g_gamma=None A=None do[B,T,H,V] >dv[B,T,H,V] cu_seqlens=None
        chunk_indices=None scale=0.0884 T H HV=H K V BT BK=64 BV=64
    """
    blocks = "(t // bt, b * h)"
    sizes = (SEQUENCE,)


class GatedDeltaState(Adapter):
    kernel = fla("ops.common.chunk_delta_h", "chunk_gated_delta_rule_fwd_kernel_h_blockdim64")
    text = """
        k[B,T,H,K] v[B,T,H,V] w[B,T,H,K] >v_new[B,T,H,V] g[B,T,H]:f32 gk=None >h[B,T//BT,H,K,V] h0[B,H,K,V]:f32
        ht=None cu_seqlens=None chunk_offsets=None T H HV=H K V BT STATE_V_FIRST=False
    """
    blocks = "cdiv(v, BV) * b * h"
    sizes = (SEQUENCE,)


class ScaledDot(Adapter):
    kernel = fla("ops.common.chunk_scaled_dot_kkt", "chunk_scaled_dot_kkt_fwd_kernel")
    text = "k[B,T,H,K] g[B,T,H]:f32 beta[B,T,H]:f32 >A[B,T,H,BT]:f32 cu_seqlens=None chunk_indices=None T H HV=H K BT"
    blocks = "(t // bt, b * h)"
    sizes = (SEQUENCE,)


class Recurrent(Adapter):
    kernel = fla("ops.common.fused_recurrent", "fused_recurrent_fwd_kernel")
    text = """
        q[B,T,H,K] k[B,T,H,K] v[B,T,H,V] g=None g_gamma=None gk[B,T,H,K] gv=None >o[2,B,T,H,V]:f32 h0=None ht=None
        cu_seqlens=None scale=0.0884 B T H K V BK=64 BV=64 REVERSE=False USE_G=False USE_G_GAMMA=False USE_GK=True
        USE_GV=False
    """
    blocks = "(v // 64) * (k // 64) * b * h"
    sizes = (SEQUENCE,)


class MergeStates(Adapter):
    kernel = fla("ops.cp.chunk_delta_h", "merge_fwd_bwd_kernel")
    text = """
        ~h[HV,K,V]:f32 ag_hm[8,HV,K,V+K]:f32 pre_or_post_num_ranks=3 rank=4 seq_offsets=None init_offsets=None
        h0_seq_ids=None h0=None HV K V BK=K FORWARD=True INTRACARD_MODE=False NUM_SEQ_ENTRIES=0
    """
    blocks = "(cdiv(v, BV), hv)"
    sizes = ({"hv": 8, "k": 64, "v": 64},)


class DeltaFormer(Adapter):
    kernel = fla("ops.deltaformer.parallel", "parallel_deltaformer_fwd_kernel")
    text = """
        q_ptr[B,C,H,D] k_ptr[B,T,H,D] v_ptr[B,T,H,D] >u_ptr[B,C,H,D] >w_ptr[B,H,C,C] >lse_ptr[B,H,C]:f32
        beta_ptr[B,T,H] H T C D qk_scale=0.0884
    """
    blocks = "(cdiv(c, BLOCK_C), b * h)"
    sizes = ({"b": 1, "t": 1024, "c": 512, "h": 8, "d": 64},)


class DplrWyGradient(Adapter):
    kernel = fla("ops.generalized_delta_rule.dplr.wy_fast_bwd", "prepare_wy_repr_bwd_kernel")
    text = """
        A_ab_inv[B,T,H,BT]:f32 A_ak[B,T,H,BT]:f32 ag[B,T,H,K] v[B,T,H,V] dw[B,T,H,K] du[B,T,H,V] >dv[B,T,H,V]
        dv0[B,T,H,V] >dag[B,T,H,K] >dAak[B,T,H,BT]:f32 >dAab[B,T,H,BT]:f32 cu_seqlens=None chunk_indices=None T H K V
        BT BK=64 BV=64
    """
    blocks = "(t // bt, b * h)"
    sizes = (SEQUENCE,)


class LogLinearGradient(Adapter):
    kernel = fla("ops.log_linear_attn.chunk", "chunkwise_bwd_kernel_dhg")
    text = """
        do[B,T,H,V] q[B,T,H,K] g[B,T,H]:f32 l[B,T,H,L]:f32 h_l[B,T//BT,H,K,V] ~dh[B,T//BT,H,K,V]:f32
        ~dg_last[B,T//BT,H]:f32 ell=0 T cu_seqlens=None H K V L BT NT=T//BT
    """
    blocks = "(cdiv(k, BK), b * h)"
    sizes = ({**SEQUENCE, "l": 6},)


class GlaOutput(Adapter):
    kernel = fla("ops.gla.chunk", "chunk_gla_fwd_kernel_o")
    text = """
        q[B,T,H,K] v[B,T,H,V] g[B,T,H,K]:f32 h[B,T//BT,H,K,V] >o[B,T,H,V] A[B,T,H,BT] cu_seqlens=None
        chunk_indices=None scale=0.0884 T H HV=H K V BT STATE_V_FIRST=False
    """
    blocks = "(cdiv(v, BV), t // bt, b * h)"
    sizes = (SEQUENCE,)


class HgrnState(Adapter):
    kernel = fla("ops.hgrn.chunk", "chunk_hgrn_fwd_kernel_h")
    text = "x[B,T,D] g[B,T,D] >gc[B,T,D]:f32 >o[B,T,D]:f32 h0=None T D BT=128 USE_INITIAL_STATE=False"
    blocks = "(cdiv(d, BD), t // 128, b)"
    sizes = ({"b": 2, "t": 2048, "d": 1024},)


class KdaGate(Adapter):
    kernel = fla("ops.kda.gate", "kda_gate_fwd_kernel")
    text = "g[T,H,D] A_log[H]:f32 dt_bias[H*D]:f32 beta=None >yg[T,H,D]:f32 yb=None lower_bound=-5.0 T H D BD=pow2(D)"
    blocks = "(cdiv(t, BT), h)"
    sizes = ({"t": 4096, "h": 16, "d": 128},)


class NsaTopk(Adapter):
    kernel = fla("ops.nsa.parallel", "parallel_nsa_kernel_topk")
    text = """
        q[B,T,HQ,K] k[B,T//BS,H,K] lse=None scale=0.0884 >block_indices[B,T,H,S]:i64 cu_seqlens_q=None
        cu_seqlens_k=None token_indices_q=None chunk_offsets=None TQ=T TK=T H HQ G=HQ//H K S BC=S*2 BS BK=K
    """
    blocks = "(t, b * h)"
    sizes = ({"b": 1, "t": 1024, "h": 2, "hq": 32, "k": 128, "s": 16, "bs": 64},)


class AddCMul(Adapter):
    kernel = fla("ops.rwkv7.fused_addcmul", "fused_addcmul_fwd_kernel")
    text = """
        hidden[B,T,D] delta[B,T,D] ixr[D] ixw[D] ixk[D] ixv[D] ixa[D] ixg[D] >oxr[B,T,D] >oxw[B,T,D] >oxk[B,T,D]
        >oxv[B,T,D] >oxa[B,T,D] >oxg[B,T,D] use_xg=True T T_OFFSET=0 D BD=pow2(D)
    """
    blocks = "(b, cdiv(t, BT))"
    sizes = ({"b": 2, "t": 2048, "d": 1024},)


class CumulativeSum(Adapter):
    kernel = fla("ops.utils.cumsum", "chunk_local_cumsum_scalar_kernel")
    text = "s[B,T,H]:f32 >o[B,T,H]:f32 scale=None cu_seqlens=None chunk_indices=None T B H BT REVERSE=False"
    blocks = "(t // bt, b * h)"
    sizes = (SEQUENCE,)


class CumulativeSumVarlen(Adapter):
    kernel = fla("ops.utils.cumsum", "chunk_local_cumsum_vector_kernel")
    text = """
        s[1,T,H,K]:f32 >o[1,T,H,K]:f32 scale=1.4427 +cu_seqlens[B+1]:i32=torch.arange(B+1)*(T//B)
        +chunk_indices[T//BT,2]:i32=torch.stack((torch.arange(T//BT)//(T//B//BT),torch.arange(T//BT)%(T//B//BT)),1) T
        B H S=K BT REVERSE=True
    """
    blocks = "(cdiv(k, BS), t // bt, h)"
    sizes = (SEQUENCE,)


class LogSumExp(Adapter):
    kernel = fla("ops.utils.logsumexp", "logsumexp_fwd_kernel")
    text = "x[T,D] >z[T,cdiv(D,4096)]:f32 scale=None D B=4096"
    blocks = "(t, cdiv(d, 4096))"
    sizes = ({"t": 1024, "d": 32000},)


class Matmul(Adapter):
    kernel = fla("ops.utils.matmul", "matmul_kernel")
    text = """
        a[1,M,K] b[K,N] >c[1,M,N] input=None alpha=None beta=None M N K a.strides=stride_ab,stride_am,stride_ak
        b.strides=stride_bk,stride_bn c.strides=stride_cb,stride_cm,stride_cn ACTIVATION='leaky_relu' HAS_INPUT=False
        ALLOW_TF32=True
    """
    blocks = "(1, cdiv(m, BM), cdiv(n, BN))"
    sizes = ({"m": 2048, "n": 2048, "k": 2048},)


class SolveTriangular(Adapter):
    kernel = fla("ops.utils.solve_tril", "solve_tril_16x16_kernel")
    text = "A[B,T,H,16]:f32 >Ai[B,T,H,16]:f32 cu_seqlens=None chunk_indices=None T H BT=16 USE_TMA=False"
    blocks = "(t // 16, b * h)"
    sizes = (SEQUENCE,)


class WallAttention(Adapter):
    kernel = fla("ops.wall_attn.parallel", "parallel_wall_attn_fwd_kernel")
    text = """
        q[B,T,HQ,K] k[B,T,H,K] v[B,T,H,V] >o[B,T,HQ,V] g_cumsum[B,T,H,K]:f32 g_scalar_cumsum=None sink_bias=None
        >lse[B,T,HQ]:f32 scale=0.0884 cu_seqlens=None chunk_indices=None T T_BUCKET=11 W=None B H HQ G=HQ//H K V BK=K
        BV=V
    """
    blocks = "(1, cdiv(t, BT), b * hq)"
    sizes = ({"b": 1, "t": 2048, "h": 4, "hq": 8, "k": 64, "v": 64},)


class GluonGradient(Adapter):
    kernel = fla("ops.attnres.backends.gluon", "attnres_bwd_kernel_dqdw_gluon")
    text = "q[D]:f32 w[D]:f32 dqw[NP,D]:f32 dow_partial=None >dq[D]:f32 >dw[D]:f32 dow=None NP D HAS_ONORM=False"
    blocks = "cdiv(d, BD)"
    sizes = ({"np": 4096, "d": 1024},)


class ResidualAttention(Adapter):
    kernel = fla("ops.attnres.fused", "attnres_fwd_kernel")
    text = """
        q[D] res=(0,) w[D] ow=None >o[N,D] o_pre=None >rstd[N,L]:f32 >logit[N,L]:f32 >lse[N]:f32 N L L2=pow2(L) D
        eps=1e-6 scale=1.0 BD=pow2(D) HAS_ONORM=False SAVE_OPRE=False
    """
    blocks = "n"
    sizes = ({"n": 1024, "l": 4, "d": 1024},)
    refused = "give its values as arguments of their own"
