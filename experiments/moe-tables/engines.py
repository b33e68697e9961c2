"""Extract what gemmtune needs of vLLM and SGLang from their wheels: kernel sources and tuned files, a few MB.

    python experiments/moe-tables/engines.py --wheels FOLDER --out .engines

FOLDER holds vllm-*.whl and sglang-*.whl, from `pip download --no-deps vllm sglang`. Afterwards GEMMTUNE_VLLM=.engines
and GEMMTUNE_SGLANG=.engines stand for installed packages.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from pathlib import Path

WANTED = (
    r"vllm/model_executor/layers/fused_moe/fused_moe\.py",
    r"vllm/model_executor/layers/fused_moe/configs/E=.*\.json",
    r"vllm/model_executor/layers/quantization/utils/fp8_utils\.py",
    r"vllm/model_executor/layers/quantization/utils/configs/N=.*\.json",
    r"sglang/kernels/ops/moe/fused_moe_triton_kernels\.py",
    r"sglang/kernels/ops/gemm/fp8_kernel\.py",
    r"sglang/kernels/ops/gemm/configs/N=.*\.json",
    r"sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config\.py",
    r"sglang/srt/layers/moe/moe_runner/triton_utils/configs/triton_\w+/E=.*\.json",
    r"(vllm|sglang)-[^/]*\.dist-info/METADATA",
)
MOST_BYTES = 10_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(".engines"))
    arguments = parser.parse_args()
    total = 0
    for package in ("vllm", "sglang"):
        found = sorted(arguments.wheels.glob(f"{package}-*.whl"))
        if not found:
            raise SystemExit(f"no {package}-*.whl in {arguments.wheels}: pip download --no-deps {package}")
        with zipfile.ZipFile(found[-1]) as wheel:
            names = [name for name in wheel.namelist() if any(re.fullmatch(each, name) for each in WANTED)]
            for name in names:
                wheel.extract(name, arguments.out)
            size = sum(wheel.getinfo(name).file_size for name in names)
        total += size
        print(f"{found[-1].name}: {len(names)} files, {size / 1e6:.1f} MB")
    if total > MOST_BYTES:
        raise SystemExit(f"{total} B > {MOST_BYTES} B: the patterns take too much")


if __name__ == "__main__":
    main()
