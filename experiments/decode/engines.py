"""Build vLLM's two CuTe kernels. Usage: engines.py FOLDER_WITH_THEIR_FILES ARCH OUT.

The GEMV has the config that vLLM's own rule takes; the split-K kernel is built with several, of which the best counts.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from products import decode_products

WORKERS = 4  # beside the builders of the search
FILES = ("_skinny_gemm.py", "_ll_bf16_splitk.py", "skinny_gemm.py")
SPLIT_K, STAGES = (2, 4, 8), (4,)  # vLLM takes 2 to 8 and 2 to 5


def imported(folder: str, name: str):
    key = f"engine{name.removesuffix('.py')}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, Path(folder) / name)
        sys.modules[key] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[key]


def kernels_of(folder: str, m: int, n: int, k: int) -> dict[str, tuple]:
    """Return (kind, what to build) by name; equal builds serve several problems."""
    dispatch = imported(folder, "skinny_gemm.py").ShapeDynamicSkinnyGemm
    found = {}
    if m <= 16:
        config = dispatch._config(m, n, k)
        sizes = (config.block_size, config.outputs_per_block, config.vector_width)
        if n % sizes[1] == 0 and k % (sizes[0] * sizes[2]) == 0:
            found["vllm skinny"] = ("skinny", (m, *sizes, config.k_unroll))
    for split in SPLIT_K:
        for stages in STAGES:
            found[f"vllm splitk {split}x{stages}"] = ("splitk", (split, stages))
    return found


def built(folder: str, arch: str, kind: str, what: tuple, target: str) -> tuple[str, str]:
    """Compile one kernel into a file; return the file and the reason of a failure."""
    import cutlass
    from cutlass import cute

    def fake(shape, div):
        stride = (cute.sym_int64(divisibility=div), 1)
        return cute.runtime.make_fake_tensor(cutlass.BFloat16, shape, stride=stride, assumed_align=div * 2)

    try:
        stream = cute.runtime.make_fake_stream()
        if kind == "skinny":
            m, block, outputs, vector, unroll = what
            kernel = imported(folder, "_skinny_gemm.py").CuteSkinnyGemm(
                element_type=cutlass.BFloat16, num_rows=m, block_size=block, outputs_per_block=outputs,
                vector_width=vector, k_unroll=unroll,
            )  # fmt: skip
            n, k = cute.sym_int(divisibility=outputs), cute.sym_int(divisibility=block * vector)
            out = fake((m, n), 1)
            tensors = (fake((m, k), vector), fake((n, k), vector), out, out, stream)
            options = "--enable-tvm-ffi --ptxas-options -maxrregcount=64"
        else:
            split, stages = what
            kernel = imported(folder, "_ll_bf16_splitk.py").LLBf16SplitK(
                out_dtype=cutlass.BFloat16, tile_n=16, tile_k=256, num_stages=stages, num_dma_warps=4, split_k=split
            )
            m, n, k = cute.sym_int(), cute.sym_int(), cute.sym_int()
            tensors = (fake((m, k), 8), fake((n, k), 8), fake((m, n), 1), stream, 1.0)
            options = "--enable-tvm-ffi"
        compiled = cute.compile(kernel, *tensors, options=f"{options} --gpu-arch {arch}")
        compiled.export_to_c(target, function_name="kernel")
    except Exception as error:
        return "", f"{kind} {what}: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return target, ""


def build_engines(engines: str, arch: str, folder: Path) -> None:
    """Build the kernels of all products, each binary once, and list them in engines.json."""
    wanted = {name: kernels_of(engines, *map(int, name.split(":")[0].split("x"))) for name in decode_products()}
    builds = {one: None for its in wanted.values() for one in its.values()}
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for number, (kind, what) in enumerate(builds):
            target = str(folder / f"engine{number}.o")
            builds[kind, what] = pool.submit(built, engines, arch, kind, what, target)
    results = {one: future.result() for one, future in builds.items()}
    for _, reason in results.values():
        if reason:
            print(reason, flush=True)
    found = {
        name: {arm: (one[0], results[one][0]) for arm, one in its.items() if results[one][0]}
        for name, its in wanted.items()
    }
    (folder / "engines.json").write_text(json.dumps(found))


if __name__ == "__main__":
    build_engines(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
