"""torch.compile in a process of its own, with empty caches: arm.py NAME OUT.json PROBLEM... [--table FOLDER].

NAME is default or exhaustive (Inductor's search spaces, on the problems), or reload (the exported table in FOLDER).
Kernels are timed as experiments/inductor-table does it, with rests. Without a GPU it rehearses small products on the
CPU: the numbers mean nothing then.
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
from pathlib import Path
from statistics import median

# Set before torch is loaded: what an earlier run left on disk must not answer for this one.
CACHE = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{CACHE.name}/inductor"
os.environ["TRITON_CACHE_DIR"] = f"{CACHE.name}/triton"

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torch._inductor.config  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE, DTYPE, MOST = ("cuda", torch.bfloat16, math.inf) if GPU else ("cpu", torch.float32, 64)
LAUNCHES = 60
COLD_BYTES = 512 << 20  # several times the largest L2: between two launches on one pair of operands, so much is read
SPREAD = 0.5  # share of the memory that copies of operands are scattered over
ALIGNMENT = 512  # bytes
LEAD_CYCLES = 400_000  # about 0.2 ms in which Python gets ahead of the GPU, so that no launch overhead is timed
RESTS = 6  # times a launch, behind it: a GPU without rest meets its power limit (experiments/measurement)
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
        row = reloaded(problem, options, entries[problem]) if entries else check(problem, options)[0]
        rows.append(row)
        report = {"arm": given.name, "torch": torch.__version__, "seconds": time.perf_counter() - began, "rows": rows}
        given.out.write_text(json.dumps(report, indent=1) + "\n")
        print(line(row), flush=True)
    return 1 if any(row.get("failures") for row in rows) else 0


def rows_of(table: Path) -> dict[str, dict]:
    """The table's rows by problem."""
    info = json.loads((table / "inductor_table.json").read_text())
    products = [entries for key, entries in info["rows"].items() if key.startswith("mm:") and key.endswith(":static")]
    return {entry["facts"]["problem"]: entry for entries in products for entry in entries}


def check(problem: str, options: dict) -> tuple[dict, str]:
    """Compile and time a problem: what was benchmarked for it, what runs and for how long; and the generated code."""
    a, b = operands(problem)
    torch._dynamo.reset()
    counters.clear()
    function = compiled(product, options)
    began = time.perf_counter()
    out, codes = run_and_get_code(function, a, b)
    wait()
    seconds = time.perf_counter() - began
    benchmarks = {name: count for name, count in counters["inductor"].items() if BENCHMARKS.match(name)}
    code = "\n".join(codes)
    reference = a.double() @ b.double().t()
    error = float((out.double() - reference).norm() / reference.norm())
    del reference, out
    compiled_us, eager_us = times(function, product, a, b)
    row = {
        "problem": problem,
        "compile_seconds": round(seconds, 4),
        "compiled_us": round(compiled_us, 3),
        "eager_us": round(eager_us, 3),
        "chosen": chosen(code),
        "benchmarks": benchmarks,
        "error_norm": error,
    }
    return row, code


def reloaded(problem: str, options: dict, entry: dict) -> dict:
    """The same with the table's row: whether it is what runs, unasked, right, and as fast as it says."""
    row, code = check(problem, options)
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
    """What the code would hold if Inductor had taken the row, and does not."""
    if entry["template"] == "aten::mm":
        return [text for text in ("extern_kernels.mm(",) if text not in code]
    row = entry["kwargs"]
    wanted = [f"{name} : tl.constexpr = {row[name]}" for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")]
    wanted += [f"num_stages={row['num_stages']}", f"num_warps={row['num_warps']}"]
    found = [text for text in wanted if text not in code]
    return [*found, "a Triton kernel alone"] if "extern_kernels.mm(" in code else found


def chosen(code: str) -> str:
    """What the generated code runs: aten, or a tile."""
    if "extern_kernels.mm(" in code:
        return "aten"
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


def times(first: Callable, second: Callable, a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Median time of one launch of each, in microseconds: cold L2, the two in turns, less the cost of the events."""
    pairs = scattered(a, b)
    nothing = [timed(lambda x, y: pause(0), pairs, turn) for turn in range(LAUNCHES + 5)][5:]
    samples: dict[Callable, list[float]] = {first: [], second: []}
    for turn in range(LAUNCHES + 5):
        for place, function in enumerate((first, second) if turn % 2 else (second, first)):
            elapsed = timed(function, pairs, 2 * turn + place)
            time.sleep(RESTS * elapsed / 1e6)
            if turn >= 5:  # the first ones warm clocks and allocator
                samples[function].append(elapsed - median(nothing))
    return median(samples[first]), median(samples[second])


def scattered(a: torch.Tensor, b: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Copies of the operands, far from each other, as the weights of a model are and the operands of the tuner.

    The number is odd, so that of two functions in turns each comes to all of them.
    """
    copies = max(3, -(-COLD_BYTES // (a.nbytes + b.nbytes)) | 1) if GPU else 3
    size = sum(-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in (a, b))
    spread = int(SPREAD * torch.cuda.mem_get_info()[1]) if GPU else copies * size
    memory = torch.empty(max(spread, copies * size), dtype=torch.int8, device=DEVICE)
    pairs = []
    for part in memory.split(memory.nbytes // copies // ALIGNMENT * ALIGNMENT)[:copies]:
        x, y = part[: a.nbytes], part[size - -(-b.nbytes // ALIGNMENT) * ALIGNMENT :][: b.nbytes]
        pairs.append((x.view(a.dtype).view(a.shape).copy_(a), y.view(b.dtype).view(b.shape).copy_(b)))
    return pairs


def timed(function: Callable, pairs: list, turn: int) -> float:
    """Microseconds between two events around one call, on operands that were not touched for a while."""
    a, b = pairs[turn % len(pairs)]
    if not GPU:
        began = time.perf_counter()
        function(a, b)
        return (time.perf_counter() - began) * 1e6
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    pause(LEAD_CYCLES)
    start.record()
    function(a, b)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def pause(cycles: int) -> None:
    if GPU:
        torch.cuda._sleep(cycles)


def wait() -> None:
    if GPU:
        torch.cuda.synchronize()


def line(row: dict) -> str:
    ratio = row["eager_us"] / row["compiled_us"]
    text = (
        f"{row['problem']:<26} {row['compile_seconds']:7.2f} s  compiled {row['compiled_us']:8.2f} us  "
        f"eager {row['eager_us']:8.2f} us {ratio:5.2f}x"
    )
    if "row_us" in row:
        text += f"  row {row['row_us']:8.2f} us {row['apart']:+.1%}  "
        return text + ("ok" if not row["failures"] else "FAILED: " + "; ".join(row["failures"]))
    return f"{text}  {row['chosen']}"


if __name__ == "__main__":
    with CACHE, torch._inductor.config.patch(fx_graph_cache=False):
        sys.exit(main())
