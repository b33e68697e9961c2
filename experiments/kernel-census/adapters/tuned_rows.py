"""Adapters with references of kernels that work on rows: norms, losses, rotary embeddings."""

import torch
from base import Adapter
from repositories import fla, liger

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REGISTERS = (None, 24, 32, 40, 48, 64, 80, 96, 128, 168)
"""Bounds on the registers of a thread; a block of 32 warps has 64 each."""


class LayerNormForward(Adapter):
    kernel = fla("modules.layernorm", "layer_norm_fwd_kernel")
    params = {"BT": ROWS, "num_warps": (1, 16, 32), "maxnreg": REGISTERS}
    where = "32 * num_warps <= BT * d <= 4096 * num_warps and (maxnreg or 0) * num_warps <= 2048"
    text = """
        x[T,D] >y[T,D] w[D] b[D] res=None res_out=None >mean[T]:f32 >rstd[T]:f32 eps=1e-5 T G=1 D BD=pow2(D)
        NB=cdiv(T,32*2048) IS_RMS_NORM=False HAS_RESIDUAL=False STORE_RESIDUAL_OUT=False HAS_WEIGHT=True HAS_BIAS=True
    """
    blocks = "cdiv(t, BT)"
    sizes = ({"t": 16384, "d": 256}, {"t": 65536, "d": 128})
    small = {"t": 96, "d": 64}

    def reference(self, case, arguments):
        x, weight, bias = (arguments[name].double() for name in "xwb")
        mean, variance = x.mean(1), x.var(1, correction=0)
        rstd = (variance + 1e-5).rsqrt()
        return {"y": (x - mean[:, None]) * rstd[:, None] * weight + bias, "mean": mean, "rstd": rstd}


class LayerNormGradient(Adapter):
    kernel = fla("modules.layernorm", "layer_norm_bwd_kernel")
    params = {"BT": ROWS[:5], "num_warps": (1, 16), "num_stages": (1, 2, 4), "maxnreg": (None, 64, 96, 128)}
    where = "64 * num_warps <= BT * d <= 2048 * num_warps"
    text = """
        x[T,D] w[D] b[D] y=None dy[T,D] >dx[T,D] >dw[132,D]:f32 >db[132,D]:f32 dres=None dres_in=None mean[T]:f32
        rstd[T]:f32 T G=1 D BS=cdiv(T,132) BD=pow2(D) NB=cdiv(T,32*2048) GS=132 IS_RMS_NORM=False HAS_DRESIDUAL=False
        STORE_DRESIDUAL=False HAS_WEIGHT=True HAS_BIAS=True
    """
    blocks = "132"
    sizes = ({"t": 16384, "d": 256}, {"t": 65536, "d": 128})
    small = {"t": 1056, "d": 64}

    def reference(self, case, arguments):
        x, weight, dy, mean, rstd = (arguments[name].double() for name in ("x", "w", "dy", "mean", "rstd"))
        normal, weighted = (x - mean[:, None]) * rstd[:, None], dy * weight
        by_x, by_one = (normal * weighted).mean(1, True), weighted.mean(1, True)
        parts = dict.fromkeys(("dw", "db"))
        for name, gradient in (("dw", dy * normal), ("db", dy)):
            programs = -(-case["t"] // 132)
            padded = gradient.new_zeros((132 * programs, case["d"]))
            padded[: case["t"]] = gradient
            parts[name] = padded.view(132, programs, -1).sum(1)
        return {"dx": (weighted - normal * by_x - by_one) * rstd[:, None], **parts}


class CrossEntropyInPlace(Adapter):
    """Loss and gradient in one pass; the gradient overwrites the logits. Liger runs it without an autotuner."""

    kernel = liger("cross_entropy", "liger_cross_entropy_kernel")
    params = {
        **{"BLOCK_SIZE": (512, 1024, 2048, 4096, 8192, 16384, 32768), "num_warps": (2, 4, 8, 16, 32)},
        **{"num_stages": (1, 3), "maxnreg": REGISTERS},
    }
    default = {"BLOCK_SIZE": 32768, "num_warps": 32}
    where = "4 <= BLOCK_SIZE // num_warps // 32 <= 128 and (maxnreg or 0) * num_warps <= 2048"
    text = """
        ~X_ptr[M,N] X_stride=N Y_ptr[M]:i64<N Y_stride=1 weight_ptr=None >loss_ptr[M]:f32 z_loss_ptr=None loss_stride=1
        token_accuracy_ptr=None token_accuracy_stride=0 predicted_tokens_ptr=None predicted_tokens_stride=0 n_cols=N
        n_non_ignore=M sum_non_ignore_weight=M weight_sum=0.0 ignore_index=-100 lse_square_scale=0.0
        label_smoothing=0.0 reduction='mean' softcap=None RETURN_Z_LOSS=False RETURN_TOKEN_ACCURACY=False
        RETURN_PREDICTED_TOKENS=False HAS_WEIGHT=False HAS_SOFTCAPPING=False HAS_GRADIENTS=True
    """
    blocks = "m"
    sizes = ({"m": 2048, "n": 32000}, {"m": 1024, "n": 128256})
    small = {"m": 8, "n": 3000}

    def reference(self, case, arguments):
        logits, target = arguments["X_ptr"].double(), arguments["Y_ptr"]
        loss = torch.nn.functional.cross_entropy(logits, target, reduction="none")
        gradient = logits.softmax(1).scatter_add_(1, target[:, None], torch.full_like(logits[:, :1], -1.0))
        return {"X_ptr": gradient / case["m"], "loss_ptr": loss / case["m"]}


class RotaryEmbedding(Adapter):
    kernel = fla("modules.rotary", "rotary_embedding_kernel")
    params = {"num_stages": (1, 5), "maxnreg": REGISTERS}
    where = "(maxnreg or 0) * num_warps <= 2048"
    text = """
        x[B,T,H,D] cos[T,D//2] sin[T,D//2] >y[B,T,H,D] cu_seqlens=None chunk_indices=None seq_offsets=0 T B H D R=D//2
        TR=T BT=64 BD=pow2(D) IS_SEQLEN_OFFSETS_TENSOR=False IS_VARLEN=False INTERLEAVED=False CONJUGATE=False
    """
    blocks = "(cdiv(t, 64), b, h)"
    sizes = ({"b": 2, "t": 4096, "h": 16, "d": 128}, {"b": 8, "t": 2048, "h": 32, "d": 64})
    small = {"b": 2, "t": 80, "h": 2, "d": 64}

    def reference(self, case, arguments):
        x, cos, sin = (arguments[name].double() for name in ("x", "cos", "sin"))
        first, second = x.chunk(2, dim=-1)
        cos, sin = cos[None, :, None], sin[None, :, None]
        return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class L2NormForward(Adapter):
    kernel = fla("modules.l2norm", "l2norm_fwd_kernel")
    params = {"BT": ROWS, "num_warps": (32,), "maxnreg": REGISTERS}
    where = "32 * num_warps <= BT * d <= 4096 * num_warps and (maxnreg or 0) * num_warps <= 2048"
    text = "x[T,D] >y[T,D] >rstd[T]:f32 eps=1e-6 T D BD=pow2(D) NB=cdiv(T,2048*32)"
    blocks = "cdiv(t, BT)"
    sizes = ({"t": 16384, "d": 128}, {"t": 131072, "d": 128})
    small = {"t": 90, "d": 100}

    def reference(self, case, arguments):
        x = arguments["x"].double()
        rstd = (x.square().sum(1) + 1e-6).rsqrt()
        return {"y": x * rstd[:, None], "rstd": rstd}
