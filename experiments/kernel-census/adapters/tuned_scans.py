"""Adapters with references of attention and of kernels that scan chunks of a sequence."""

import torch
from base import Adapter
from repositories import fla, mamba

SEQUENCE = {"b": 2, "t": 2048, "h": 8, "k": 128, "v": 128, "bt": 64}
LONG = {**SEQUENCE, "b": 4, "t": 4096}
TINY = {"b": 1, "t": 64, "h": 2, "k": 64, "v": 64, "bt": 32}
SCAN = {"b": 2, "t": 2048, "h": 16, "p": 64, "g": 1, "s": 128, "c": 256}
WIDE = {**SCAN, "b": 4, "t": 4096, "p": 128}
SHORT = {"b": 1, "t": 64, "h": 2, "p": 64, "g": 1, "s": 32, "c": 32}


class FlashAttention(Adapter):
    """Causal attention with grouped heads. Its library chooses tiles by the GPU, without an autotuner."""

    kernel = fla("ops.attn.parallel", "parallel_attn_fwd_kernel")
    params = {
        **{"BT": (32, 64, 128, 256), "BS": (16, 32, 64, 128), "num_warps": (2, 4, 8, 16)},
        **{"num_stages": (1, 2, 3, 4, 5), "maxnreg": (None, 128)},
    }
    default = {"BT": 128, "BS": 64, "num_warps": 8}
    where = "BT >= BS and 8 <= BT // num_warps <= 32 and (2 * BS * num_stages + BT) * k * 2 <= 232448"
    text = """
        q[B,T,HQ,K] k[B,T,H,K] v[B,T,H,K] >o[B,T,HQ,K] g_cumsum=None sink_bias=None >lse[B,T,HQ]:f32 scale=K**-0.5
        cu_seqlens=None chunk_indices=None T W=None B H HQ G=HQ//H K V=K BK=K BV=K
    """
    blocks = "(1, cdiv(t, BT), b * hq)"
    sizes = ({"b": 2, "t": 2048, "h": 4, "hq": 16, "k": 128}, {"b": 1, "t": 8192, "h": 2, "hq": 8, "k": 64})
    small = {"b": 1, "t": 200, "h": 1, "hq": 2, "k": 64}

    def reference(self, case, arguments):
        t, shared, hidden = case["t"], case["hq"] // case["h"], arguments["q"].device
        mask = torch.ones((t, t), dtype=torch.bool, device=hidden).triu(1)
        found = {name: torch.empty_like(arguments[name], dtype=torch.float64) for name in ("o", "lse")}
        for b in range(case["b"]):
            for h in range(case["hq"]):
                q, k, v = arguments["q"][b, :, h], arguments["k"][b, :, h // shared], arguments["v"][b, :, h // shared]
                scores = (q.double() @ k.double().T * case["k"] ** -0.5).masked_fill_(mask, float("-inf"))
                found["lse"][b, :, h] = scores.logsumexp(1) / torch.log(torch.tensor(2.0, dtype=torch.float64))
                found["o"][b, :, h] = scores.softmax(1) @ v.double()
        return found


class ChunkedScan(Adapter):
    kernel = mamba("ssd_chunk_scan", "_chunk_scan_fwd_kernel")
    params = {**{"BLOCK_SIZE_M": (16,), "BLOCK_SIZE_N": (16,), "BLOCK_SIZE_K": (128,)}, **{"num_stages": (1, 2, 3)}}
    where = (
        "BLOCK_SIZE_N <= p and 8 <= BLOCK_SIZE_M * BLOCK_SIZE_N // num_warps // 32 <= 64 and "
        "(2 * BLOCK_SIZE_M + BLOCK_SIZE_N) * BLOCK_SIZE_K * num_stages * 2 <= 200000"
    )
    text = """
        cb_ptr[B,T//C,G,C,C]:f32 x_ptr[B,T,H,P] z_ptr=None >out_ptr[B,T,H,P] out_x_ptr=None dt_ptr[B,H,T//C,C]:f32
        dA_cumsum_ptr[B,H,T//C,C]:f32 seq_idx_ptr=None C_ptr[B,T,G,S] prev_states_ptr[B,T//C,H,P,S] D_ptr[H]:f32
        chunk_size=C hdim=P dstate=S batch=B seqlen=T nheads_ngroups_ratio=H//G
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
    sizes = (SCAN, WIDE)
    small = SHORT

    def reference(self, case, arguments):
        b, t, h, p, c = (case[name] for name in "bthpc")
        names = ("cb_ptr", "dt_ptr", "dA_cumsum_ptr", "C_ptr", "prev_states_ptr", "x_ptr", "D_ptr")
        cb, dt, decay, c_of, states, x, skip = (arguments[name].double() for name in names)
        x, c_of = x.view(b, t // c, c, h, p), c_of.view(b, t // c, c, case["g"], -1)
        out = torch.empty_like(x)
        causal = torch.ones((c, c), dtype=torch.bool, device=x.device).tril()
        for head in range(h):
            group, ours = head // (h // case["g"]), decay[:, head]
            kept = (ours[..., :, None] - ours[..., None, :]).clamp(max=0).exp() * dt[:, head, :, None, :]
            inside = (cb[:, :, group] * kept * causal) @ x[..., head, :]
            before = c_of[..., group, :] @ states[:, :, head].mT * ours.exp()[..., None]
            out[..., head, :] = inside + before + skip[head] * x[..., head, :]
        return out.view(b, t, h, p)


class ChunkState(Adapter):
    kernel = fla("ops.common.chunk_h", "chunk_fwd_kernel_h")
    params = {"BK": (16, 128), "BV": (16, 128), "num_stages": (1,), "maxnreg": (None, 96, 128)}
    where = "num_warps >= 2 and 4 <= BK * BV // num_warps // 32 <= 128"  # one warp takes 20 s to build
    text = """
        k[B,T,H,K] v[B,T,H,V] >h[B,T//BT,H,K,V] g[B,T,H]:f32 g_gamma=None gk=None gv=None h0=None >ht[B,H,K,V]:f32
        cu_seqlens=None split_offsets=None T H K V BT BS=BT USE_G=True USE_G_GAMMA=False USE_GK=False USE_GV=False
        STATE_V_FIRST=False
    """
    blocks = "(cdiv(k, BK), cdiv(v, BV), b * h)"
    sizes = (SEQUENCE, {**LONG, "bt": 32})
    small = TINY
    tolerance = 0.03  # factors are rounded to bfloat16, and states of normal gates differ much in size

    def reference(self, case, arguments):
        k, v, gate = (arguments[name].double() for name in "kvg")
        chunks, states = case["t"] // case["bt"], []
        state = k.new_zeros((case["b"], case["h"], case["k"], case["v"]))
        for at in range(chunks):
            here = slice(at * case["bt"], (at + 1) * case["bt"])
            states.append(state)
            last = gate[:, here][:, -1]
            scaled = v[:, here] * (last[:, None] - gate[:, here]).exp2()[..., None]
            state = state * last.exp2()[..., None, None] + torch.einsum("bthk,bthv->bhkv", k[:, here], scaled)
        return {"h": torch.stack(states, 1), "ht": state}


class ChunkOutput(Adapter):
    kernel = fla("ops.common.chunk_o", "chunk_fwd_kernel_o")
    params = {**{"BK": (16,), "BV": (16,), "num_stages": (1, 2, 4, 5)}, **{"maxnreg": (None, 128)}}
    where = "8 <= bt * BV // num_warps // 32 <= 64"
    text = """
        q[B,T,H,K] k[B,T,H,K] v[B,T,H,V] h[B,T//BT,H,K,V] g[B,T,H]:f32 g_gamma=None >o[B,T,H,V] cu_seqlens=None
        chunk_indices=None scale=0.0884 T H HV=H K V BT STATE_V_FIRST=False
    """
    blocks = "(cdiv(v, BV), t // bt, b * h)"
    sizes = (SEQUENCE, {**LONG, "h": 16})
    small = TINY
    tolerance = 0.015  # scores are rounded to bfloat16

    def reference(self, case, arguments):
        shape = (case["b"], case["t"] // case["bt"], case["bt"], case["h"], -1)
        q, k, v = (arguments[name].double().view(shape) for name in "qkv")
        gate = arguments["g"].double().view(shape[:-1])
        causal = torch.ones((case["bt"],) * 2, dtype=torch.bool, device=q.device).tril()
        scores = torch.einsum("bcihk,bcjhk->bchij", q, k)
        apart = (gate.transpose(2, 3)[..., :, None] - gate.transpose(2, 3)[..., None, :]).exp2()
        inside = torch.einsum("bchij,bcjhv->bcihv", torch.where(causal, scores * apart, 0.0), v)
        before = torch.einsum("bcihk,bchkv->bcihv", q, arguments["h"].double()) * gate.exp2()[..., None]
        return ((inside + before) * 0.0884).reshape(case["b"], case["t"], case["h"], -1)


class ChunkedProduct(Adapter):
    kernel = mamba("ssd_bmm", "_bmm_chunk_fwd_kernel")
    params = {"BLOCK_SIZE_K": (128,), "num_stages": (1, 2)}
    where = (
        "BLOCK_SIZE_K <= s and 16 <= BLOCK_SIZE_M * BLOCK_SIZE_N // num_warps // 32 <= 128 and "
        "(BLOCK_SIZE_M + BLOCK_SIZE_N) * BLOCK_SIZE_K * num_stages * 2 <= 232448"
    )
    text = """
        a_ptr[B,T,G,S] b_ptr[B,T,G,S] >out_ptr[B,T//C,G,C,C]:f32 seq_idx_ptr=None seqlen=T chunk_size=C K=S ngroups=G
        a_ptr.strides=stride_a_batch,stride_a_seqlen,stride_a_head,stride_ak
        b_ptr.strides=stride_b_batch,stride_b_seqlen,stride_b_head,stride_bk
        out_ptr.strides=stride_out_batch,stride_out_chunk,stride_out_head,stride_outm,stride_outn stride_seq_idx_batch=0
        stride_seq_idx_seqlen=0 IS_CAUSAL=False dot_dtype=tl.bfloat16 HAS_SEQ_IDX=False
    """
    blocks = "(cdiv(c, BLOCK_SIZE_M) * cdiv(c, BLOCK_SIZE_N), b, t // c * g)"
    sizes = ({**SCAN, "b": 8, "g": 8}, {**SCAN, "b": 8, "t": 8192, "g": 8, "s": 64})
    small = SHORT

    def reference(self, case, arguments):
        shape = (case["b"], case["t"] // case["c"], case["c"], case["g"], case["s"])
        a, b = (arguments[name].double().view(shape) for name in ("a_ptr", "b_ptr"))
        return torch.einsum("bcigs,bcjgs->bcgij", a, b)


class CumulativeSums(Adapter):
    kernel = fla("ops.utils.cumsum", "chunk_local_cumsum_vector_kernel")
    params = {"BS": (4, 8, 16, 128), "num_warps": (1, 16), "maxnreg": (None, 24, 32, 40, 48, 64, 80, 96, 128, 168)}
    where = "2 <= bt * BS // num_warps // 32 <= 256"
    text = """
        s[B,T,H,K]:f32 >o[B,T,H,K]:f32 scale=None cu_seqlens=None chunk_indices=None T B H S=K BT REVERSE=False
    """
    blocks = "(cdiv(k, BS), t // bt, b * h)"
    sizes = (SEQUENCE, LONG)
    small = TINY

    def reference(self, case, arguments):
        s = arguments["s"].double()
        return s.view(case["b"], -1, case["bt"], case["h"], case["k"]).cumsum(2).view_as(s)
