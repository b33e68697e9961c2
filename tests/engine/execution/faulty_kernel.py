"""A kernel that is right, wrong, endless, or reads memory that is not its own, by one parameter."""

import triton
import triton.language as tl


@triton.jit
def copy_kernel(out, x, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    if FAULT == 1:  # wrong
        values += 1.0
    if FAULT == 2:  # endless: no value is below minus infinity
        while tl.max(tl.load(x + at, mask=at < n, cache_modifier=".cv").to(tl.float32), axis=0) > -1e30:
            values += 0.0
    if FAULT == 3:  # outside of all memory
        values += tl.load(x + at.to(tl.int64) + (1 << 45))
    tl.store(out + at, values, mask=at < n)


class Copy:
    kernel = copy_kernel
    params = {"BLOCK": (256, 1024), "FAULT": (0, 1, 3), "num_warps": (4,)}
    default = {"BLOCK": 1024, "FAULT": 0, "num_warps": 4}
    cases = {"one": {"n": 1 << 22}}
    outputs = ("out",)

    def arguments(self, case, make):
        return {"out": make.empty((case["n"],)), "x": make.normal((case["n"],)), "n": case["n"]}

    def grid(self, case, meta):
        return (triton.cdiv(case["n"], meta["BLOCK"]),)

    def reference(self, case, arguments):
        return arguments["x"]


class Endless(Copy):
    params = {"BLOCK": (1024,), "FAULT": (0, 2), "num_warps": (4,)}

    def arguments(self, case, make):
        return super().arguments(case, make)

    def grid(self, case, meta):
        return super().grid(case, meta)
