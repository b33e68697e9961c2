"""Record the choices of Inductor's DEFAULT max-autotune with a fresh cache. Usage: inductor.py OUT ARGUMENTS.

Imports torch and nothing of gemmtune; run.py starts it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

# Set before torch is loaded: what an earlier run left on disk must not answer for this one.
CACHE = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = CACHE.name

import torch  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
OPTIONS = {"max_autotune_gemm": True, "max_autotune_gemm_search_space": "DEFAULT"}


def main() -> None:
    out, given, found = Path(sys.argv[1]), json.loads(sys.argv[2]), {}
    for name in given["problems"]:
        sizes, dtype, _ = name.split(":")
        if dtype not in TYPES:
            found[name] = {"chosen": f"not asked: torch.mm multiplies no {dtype}", "config": None}
            continue
        m, n, k = map(int, sizes.split("x"))
        a = torch.randn((m, k), device="cuda", dtype=TYPES[dtype])
        b = torch.randn((n, k), device="cuda", dtype=TYPES[dtype]).t()
        torch._dynamo.reset()
        began = time.perf_counter()
        try:
            _, codes = run_and_get_code(torch.compile(product, dynamic=False, options=OPTIONS), a, b)
            torch.cuda.synchronize()
            found[name] = choice("\n".join(codes)) | {"seconds": round(time.perf_counter() - began, 2)}
        except Exception as error:  # another problem may do
            found[name] = {"chosen": f"failed: {type(error).__name__}: {error}"[:300], "config": None}
        print(f"{name}: {found[name]['chosen']}", flush=True)
        (out / "inductor.json").write_text(json.dumps(found))


def product(a, b):
    return a @ b


def choice(code: str) -> dict:
    """Return the choice in the generated code: ATen, a `triton::mm` as a config of triton_mm, or another one."""
    if "extern_kernels.mm(" in code:
        return {"chosen": "aten", "config": None}
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
    values = {name: re.search(rf"{name} : tl.constexpr = (\d+)", code) for name in names}
    values |= {name: re.search(rf"{name}=(\d+)", code) for name in ("num_stages", "num_warps")}
    if not all(values.values()) or "make_tensor_descriptor" in code:
        return {"chosen": "a kernel that is no plain triton::mm", "config": None}
    config = {name: int(match[1]) for name, match in values.items()}
    return {"chosen": "x".join(str(config[n]) for n in names[:3]), "config": config}


if __name__ == "__main__":
    with CACHE:
        main()
