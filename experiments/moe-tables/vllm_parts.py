"""Collect the parts of vLLM that time its MoE layer, small enough to carry: 13 MB of machine code instead of 138.

    pip download --no-deps vllm
    python experiments/moe-tables/vllm_parts.py --wheel vllm-*.whl --benchmark benchmark_moe.py --out FOLDER

`benchmark_moe.py` is in `benchmarks/kernels` of vLLM's source release. Both C extensions use libtorch's stable ABI, so
that they load in an older torch than vLLM asks for. Machine code for other GPUs than `--arch` is zeroed in place: xz
packs it to nothing, and every offset stays.
"""

from __future__ import annotations

import argparse
import re
import shutil
import struct
import zipfile
from pathlib import Path

WANTED = (
    r"vllm/(?!third_party/deep_gemm/).*\.py",
    r"vllm/model_executor/layers/fused_moe/configs/.*\.json",
    r"vllm/_(moe_)?C_stable_libtorch\.abi3\.so",
    r"vllm-[^/]*\.dist-info/METADATA",
)
FATBIN = struct.pack("<I", 0xBA55ED50)
CUBIN = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--benchmark", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", type=int, default=90)
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.wheel) as wheel:
        for name in wheel.namelist():
            if any(re.fullmatch(each, name) for each in WANTED):
                wheel.extract(name, arguments.out)
    for path in sorted(arguments.out.glob("vllm/*.so")):
        library = bytearray(path.read_bytes())
        kept, zeroed = keep_arch(library, arguments.arch)
        if not kept:
            raise SystemExit(f"{path.name} has no machine code for sm_{arguments.arch}; it has {sorted(zeroed)}")
        path.write_bytes(library)
        print(f"{path.name}: {kept / 1e6:.1f} MB for sm_{arguments.arch}, zeroed {sum(zeroed.values()) / 1e6:.1f} MB")
    shutil.copy(arguments.benchmark, arguments.out / "benchmark_moe.py")


def keep_arch(library: bytearray, arch: int) -> tuple[int, dict[int, int]]:
    """Zero all code but cubins of one architecture; return the bytes kept, and those zeroed per architecture."""
    kept, zeroed, at = 0, {}, library.find(FATBIN)
    while at >= 0:
        version, header, size = struct.unpack_from("<HHQ", library, at + 4)
        end = at + header + size
        if (version, header) == (1, 16) and end <= len(library):
            at += header
            while at < end:
                kind, _, header, size = struct.unpack_from("<HHIQ", library, at)
                (entry_arch,) = struct.unpack_from("<I", library, at + 28)
                at += header
                if (kind, entry_arch) == (CUBIN, arch):
                    kept += size
                else:
                    library[at : at + size] = bytes(size)
                    zeroed[entry_arch] = zeroed.get(entry_arch, 0) + size
                at += size
        else:
            at += len(FATBIN)
        at = library.find(FATBIN, at)
    return kept, zeroed


if __name__ == "__main__":
    main()
