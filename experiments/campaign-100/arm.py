"""Run torch.compile in a process with empty caches. Usage: arm.py NAME OUT.json PROBLEM... [--table FOLDER].

NAME is default or exhaustive (Inductor's search spaces, on the problems), or reload (the exported table in FOLDER).
`launches.py` times the kernels. Without a GPU the script rehearses on small products on the CPU, and its numbers mean
nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

# Set before torch is loaded: what an earlier run left on disk must not answer for this one.
CACHE = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{CACHE.name}/inductor"
os.environ["TRITON_CACHE_DIR"] = f"{CACHE.name}/triton"
# Inductor sets this itself, but after Triton has put the release of its own ptxas into the keys of its cache: then its
# pool of processes compiles under other keys, and each benchmark compiles once more what the pool had compiled.
PTXAS = Path(find_spec("torch").origin).with_name("bin") / "ptxas"
if PTXAS.is_file():
    os.environ.setdefault("TRITON_PTXAS_PATH", str(PTXAS))

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torch._inductor.config  # noqa: E402
from launches import GPU, Clock  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402

DEVICE, DTYPE, MOST = ("cuda", torch.bfloat16, math.inf) if GPU else ("cpu", torch.float32, 64)
TOLERANCE = 4e-3  # ‖out − fp64‖ / ‖fp64‖ of bf16, rounding of the output
AGREES = 0.03  # of the row's time
BENCHMARKS = re.compile(r"select_algorithm_|benchmarking\.|.*_bench$")  # Inductor's own counters
TILE = re.compile(r"(BLOCK_[MNK]|GROUP_M) : tl\.constexpr = (\d+)|(num_stages|num_warps)=(\d+)")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("name", choices=("default", "exhaustive", "reload"))
    arguments.add_argument("out", type=Path)
    arguments.add_argument("problems", nargs="+")
    arguments.add_argument("--table", type=Path, help="folder with gemmtune_inductor.py and its table")
    given = arguments.parse_args()
    clock = Clock()
    torch._dynamo.config.recompile_limit = 1000
    options: dict[str, object] = {"max_autotune_gemm": True}
    if given.name == "exhaustive":
        options["max_autotune_gemm_search_space"] = "EXHAUSTIVE"
    entries: dict[str, dict] = {}
    if given.name == "reload":
        sys.path.insert(0, str(given.table))
        import gemmtune_inductor

        gemmtune_inductor.install()
        options, entries = gemmtune_inductor.options(), rows_of(given.table)
    compiled(torch.relu, {})(torch.zeros(8, device=DEVICE))  # the compiler's own start is not a problem's
    began, rows = time.perf_counter(), []
    for problem in given.problems:  # each is kept at once, for time may be over before the next
        row = reloaded(problem, options, entries[problem], clock) if entries else check(problem, options, clock)[0]
        rows.append(row)
        report = {"arm": given.name, "torch": torch.__version__, "seconds": time.perf_counter() - began, "rows": rows}
        given.out.write_text(json.dumps(report, indent=1) + "\n")
        print(line(row), flush=True)
    return 1 if any(row.get("failures") for row in rows) else 0


def rows_of(table: Path) -> dict[str, dict]:
    """Return the table's rows by problem."""
    info = json.loads((table / "inductor_table.json").read_text())
    products = [entries for key, entries in info["rows"].items() if key.startswith("mm:") and key.endswith(":static")]
    return {entry["facts"]["problem"]: entry for entries in products for entry in entries}


def check(problem: str, options: dict, clock: Clock) -> tuple[dict, str]:
    """Compile and time a problem.

    The result tells what was benchmarked, which kernel runs for how long, and the generated code.
    """
    a, b = operands(problem)
    torch._dynamo.reset()
    counters.clear()
    function = compiled(product, options)
    began = time.perf_counter()
    out, codes = run_and_get_code(function, a, b)
    wait()
    seconds = time.perf_counter() - began
    code = "\n".join(codes)
    reference = a.double() @ b.double().t()
    error = float((out.double() - reference).norm() / reference.norm())
    del reference, out
    row: dict = {"problem": problem, "compile_seconds": round(seconds, 4), "chosen": chosen(code), "error_norm": error}
    row |= clock.times({"compiled": function, "eager": product}, a, b)
    # Counted up to here: nothing was benchmarked on the operands that were timed either.
    row["benchmarks"] = {name: count for name, count in counters["inductor"].items() if BENCHMARKS.match(name)}
    row["recompiled"] = counters["stats"]["unique_graphs"] - 1
    return row, code


def reloaded(problem: str, options: dict, entry: dict, clock: Clock) -> dict:
    """Compile and time a problem with the table's row: whether the row runs, is right, and is as fast as recorded."""
    row, code = check(problem, options, clock)
    row_us = entry["facts"]["time_ns"] / 1e3
    apart = row["compiled_us"] / row_us - 1
    failures = [f"{name} counted {count}" for name, count in row["benchmarks"].items()]
    failures += [f"the generated code lacks {text}" for text in missing(entry, code)]
    if not row["error_norm"] <= TOLERANCE:
        failures.append(f"error {row['error_norm']:.2e} > {TOLERANCE:.0e}")
    if abs(apart) > AGREES:
        failures.append(f"{apart:+.1%} of the row's {row_us:.2f} us, more than {AGREES:.0%}")
    return row | {"row": entry["template"], "row_us": row_us, "apart": round(apart, 4), "failures": failures}


def missing(entry: dict, code: str) -> list[str]:
    """Return the parts of the code that Inductor generates from the row and that this code lacks."""
    if entry["template"] == "aten::mm":
        return [text for text in ("extern_kernels.mm(",) if text not in code]
    if "kernel" in entry:  # a binary in the table
        return [text for text in (f"extern_kernels.{entry['kernel']}(",) if text not in code]
    row = entry["kwargs"]
    wanted = [f"{name} : tl.constexpr = {row[name]}" for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")]
    wanted += [f"num_stages={row['num_stages']}", f"num_warps={row['num_warps']}"]
    found = [text for text in wanted if text not in code]
    return [*found, "a Triton kernel alone"] if "extern_kernels.mm(" in code else found


def chosen(code: str) -> str:
    """Return the choice in the generated code: aten, or a tile."""
    if "extern_kernels.mm(" in code:
        return "aten"
    if binary := re.search(r"extern_kernels\.(gemmtune_\w+)\(", code):
        return binary[1]
    return " ".join(dict.fromkeys(f"{a or c}={b or d}" for a, b, c, d in TILE.findall(code))) or "something else"


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.t()


def compiled(function: Callable, options: dict) -> Callable:
    return torch.compile(function, dynamic=False, options=options)


def operands(problem: str) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = (min(int(size), MOST) for size in problem.partition(":")[0].split("x"))
    generator = torch.Generator(DEVICE).manual_seed(0)
    shapes = (m, k), (n, k)
    a, b = (torch.randn(shape, generator=generator, device=DEVICE, dtype=DTYPE) for shape in shapes)
    return a, b


def wait() -> None:
    if GPU:
        torch.cuda.synchronize()


def line(row: dict) -> str:
    """Render the row as text: times in graphs, times from the stream in brackets, and remarks."""
    text = f"{row['problem']:<26} {row['compile_seconds']:7.2f} s  "
    for name in ("compiled", "eager"):
        text += f"{name} {row[f'{name}_us']:8.2f} us ({row[f'{name}_stream_us']:.2f})  "
    text += f"{row['eager_us'] / row['compiled_us']:5.2f}x  "
    if "row_us" in row:
        verdict = "ok" if not row["failures"] else "FAILED: " + "; ".join(row["failures"])
        text += f"row {row['row_us']:8.2f} us {row['apart']:+.1%}  {verdict}"
    else:
        text += row["chosen"]
    remarks = [f"{row[fact]} {fact}" for fact in ("recompiled", "late") if row[fact]] + [row.get("note", "")]
    return text + "".join(f"  [{remark}]" for remark in remarks if remark)


if __name__ == "__main__":
    with CACHE, torch._inductor.config.patch(fx_graph_cache=False):
        sys.exit(main())
