"""Product of bf16 activations with a weight of 4-bit integers, which the kernel dequantises on the fly."""

import torch
import triton
import triton.language as tl

GROUP = 128  # rows of the weight that share a scale


@triton.jit
def nibbles(packed, scale):
    """Return the values of the lower and the upper four bits, scaled."""
    low = ((packed & 0xF).to(tl.float32) - 8.0) * scale
    high = ((packed >> 4).to(tl.float32) - 8.0) * scale
    return low, high


@triton.jit
def int4_gemm_kernel(
    out, x, weight, scales, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Write out = x @ weight; byte i of a column holds rows 2i and 2i + 1 of the weight."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pairs = tl.arange(0, BLOCK_K // 2)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        inside = m[:, None] < M
        even = tl.load(x + m[:, None] * K + k + 2 * pairs[None, :], mask=inside, other=0.0)
        odd = tl.load(x + m[:, None] * K + k + 2 * pairs[None, :] + 1, mask=inside, other=0.0)
        packed = tl.load(weight + (k // 2 + pairs[:, None]) * N + n[None, :], mask=n[None, :] < N, other=0)
        scale = tl.load(scales + (k // 128) * N + n, mask=n < N, other=0.0).to(tl.float32)
        low, high = nibbles(packed, scale[None, :])
        total += tl.dot(even, low.to(even.dtype)) + tl.dot(odd, high.to(odd.dtype))
    tl.store(
        out + m[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


class Int4Gemm:
    """Decode products of a layer with 4096 inputs."""

    kernel = int4_gemm_kernel
    params = {
        "BLOCK_M": (16, 32, 64),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64, 128),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3, 4, 5),
    }
    default = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3}
    cases = {"decode": {"m": 16, "n": 4096, "k": 4096, "weight": 8}, "draft": {"m": 64, "n": 4096, "k": 4096}}
    outputs = ("out",)
    nearest = "m"
    dtype = torch.bfloat16

    def arguments(self, case, make):
        """Make what one launch takes; the config gives the rest."""
        m, n, k = case["m"], case["n"], case["k"]
        return {
            "out": make.empty((m, n), self.dtype),
            "x": make.normal((m, k), self.dtype),
            "weight": make.integers(0, 256, (k // 2, n), torch.uint8),
            "scales": make.normal((k // GROUP, n), self.dtype, scale=0.05),
            "M": m,
            "N": n,
            "K": k,
        }

    def grid(self, case, meta):
        """Return the programs to launch; `meta` has the arguments and the config."""
        return triton.cdiv(case["m"], meta["BLOCK_M"]), triton.cdiv(case["n"], meta["BLOCK_N"])

    def check(self, case, config):
        """Reject tiles that are mostly padding."""
        if config["BLOCK_M"] > max(16, case["m"]):
            return f"BLOCK_M={config['BLOCK_M']} > {max(16, case['m'])}, the rows there are"
        return None

    def reference(self, case, arguments):
        """Return the right output, from weights rounded as the kernel rounds them."""
        packed, scales = arguments["weight"], arguments["scales"]
        weight = torch.stack((packed & 0xF, packed >> 4), dim=1).view(case["k"], case["n"]).float() - 8
        weight = (weight * scales.float().repeat_interleave(GROUP, dim=0)).to(self.dtype)
        return arguments["x"].double() @ weight.double()

    def flops(self, case):
        """Return the operations of one launch."""
        return 2 * case["m"] * case["n"] * case["k"]

    def bytes(self, case):
        """Return the bytes that one launch must move: the weight at half a byte per element, and the rest."""
        m, n, k = case["m"], case["n"], case["k"]
        return n * k // 2 + 2 * (m * k + m * n + n * k // GROUP)
