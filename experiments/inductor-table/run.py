"""Check that torch.compile takes every row of a table and benchmarks nothing. Usage: run.py EXPORT --json OUT.

EXPORT is a folder that `gemmtune export --to inductor` wrote. Needs torch 2.11 to 2.13 and the table's GPU. With
`--default` the table's problems are autotuned by Inductor's DEFAULT list instead, without the table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median

# Set before torch is loaded: what an earlier run left on disk must not answer for this one.
CACHE = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{CACHE.name}/inductor"
os.environ["TRITON_CACHE_DIR"] = f"{CACHE.name}/triton"
# Inductor sets this too late, so that autotuning compiles nearly everything twice.
PTXAS = Path(find_spec("torch").origin).with_name("bin") / "ptxas"
if PTXAS.is_file():
    os.environ.setdefault("TRITON_PTXAS_PATH", str(PTXAS))

import torch  # noqa: E402
import torch._inductor.config  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402

COLD_BYTES = 512 << 20  # several times the largest L2: between two launches on one pair of operands, so much is read
LEAD_CYCLES = 400_000  # about 0.2 ms in which Python gets ahead of the GPU, so that no launch overhead is timed
TOLERANCE = {"bf16": 4e-3, "fp16": 5e-4, "fp32": 1e-5, "tf32": 2e-3}  # ‖out − fp64‖ / ‖fp64‖, rounding of the output
BENCHMARKS = re.compile(r"select_algorithm_|benchmarking\.|.*_bench$")  # Inductor's own counters


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("export", type=Path, help="folder with gemmtune_inductor and its table")
    arguments.add_argument("--json", type=Path, required=True, help="where the results go")
    arguments.add_argument("--default", action="store_true", help="autotune the problems without the table")
    arguments.add_argument("--launches", type=int, default=60, help="timed launches of each of the two (default 60)")
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        print("no GPU found: this experiment compiles and times on one")
        return 2
    info = json.loads((given.export / "inductor_table.json").read_text())
    here = torch.cuda.get_device_name()
    if here != info["device"]["name"]:
        print(f"the table is for {info['device']['name']}, this GPU is {here}")
        return 2

    sys.path.insert(0, str(given.export))
    import gemmtune_inductor

    options: dict[str, object] = {"max_autotune_gemm": True}
    if not given.default:
        gemmtune_inductor.install()
        options = gemmtune_inductor.options()
    rows = []
    products = {key: entries for key, entries in info["rows"].items() if key.startswith("mm:") and "static" in key}
    entries = [entry for of_product in products.values() for entry in of_product if entry["first"] == entry["last"]]
    for entry in sorted(entries, key=lambda entry: entry["facts"]["problem"]):
        row = check(entry["facts"]["problem"], as_inductor_has_it(entry), options, given.launches)
        if given.default:
            row["failures"] = []  # another choice, and its benchmarks, are what is asked
        row["row_us"] = entry["facts"]["time_ns"] / 1e3
        print(line(row), flush=True)
        rows.append(row)
    failed = [row["problem"] for row in rows if row["failures"]]
    report = {
        "device": here,
        "torch": torch.__version__,
        "table_sha256": info["table_sha256"],
        "failed": failed,
        "rows": rows,
    }
    given.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{len(rows) - len(failed)} of {len(rows)} rows hold" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def as_inductor_has_it(entry: dict) -> dict:
    """Return the row with the values that the loader derives from it."""
    named = {"template_id": entry["template"], **entry["kwargs"]}
    k = int(entry["facts"]["problem"].split(":")[0].split("x")[-1])
    return named | ({"EVEN_K": k % named["BLOCK_K"] == 0} if "BLOCK_K" in named else {})


def check(problem: str, entry: dict, options: dict, launches: int) -> dict:
    sizes, dtype, layout = problem.split(":")
    m, n, k = map(int, sizes.split("x"))
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
    generator = torch.Generator("cuda").manual_seed(0)
    a = torch.randn((m, k) if layout[0] == "n" else (k, m), generator=generator, device="cuda", dtype=kind)
    b = torch.randn((k, n) if layout[1] == "n" else (n, k), generator=generator, device="cuda", dtype=kind)

    def product(a, b):
        return (a if layout[0] == "n" else a.t()) @ (b if layout[1] == "n" else b.t())

    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(product, dynamic=False, options=options)
    start = time.perf_counter()
    out, codes = run_and_get_code(compiled, a, b)
    torch.cuda.synchronize()
    compile_seconds = time.perf_counter() - start
    benchmarks = {name: count for name, count in counters["inductor"].items() if BENCHMARKS.match(name)}
    reference = product(a.double(), b.double())
    error = float((out.double() - reference).norm() / reference.norm())
    del reference
    table_us, eager_us = times(compiled, product, a, b, launches)
    failures = [f"{name} counted {count}" for name, count in benchmarks.items()]
    failures += [f"the generated code lacks {text}" for text in missing(entry, "\n".join(codes))]
    if not error <= TOLERANCE[dtype]:
        failures.append(f"error {error:.2e} > {TOLERANCE[dtype]:.0e}")
    return {
        "problem": problem,
        "entry": entry,
        "failures": failures,
        "error_norm": error,
        "benchmarks": benchmarks,
        "compile_seconds": compile_seconds,
        "table_us": table_us,
        "eager_us": eager_us,
    }


def missing(entry: dict, code: str) -> list[str]:
    """Return the parts of the code that Inductor generates from the row and that this code lacks."""
    if entry["template_id"] == "aten::mm":
        return [text for text in ("extern_kernels.mm(",) if text not in code]
    wanted = [
        f"{name} : tl.constexpr = {entry[name]}" for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "EVEN_K")
    ]
    wanted += [f"num_stages={entry['num_stages']}", f"num_warps={entry['num_warps']}"]
    found = [text for text in wanted if text not in code]
    return [*found, "a Triton kernel alone"] if "extern_kernels.mm(" in code else found


def times(first, second, a, b, launches: int) -> tuple[float, float]:
    """Return the median time per launch of both, in µs: on cold L2, alternating, without the cost of events."""
    copies = max(2, -(-COLD_BYTES // (a.nbytes + b.nbytes)))
    pairs = [(a, b), *((a.clone(), b.clone()) for _ in range(copies - 1))]
    nothing = [timed(lambda x, y: torch.cuda._sleep(0), pairs, turn) for turn in range(launches + 5)][5:]
    samples: tuple[list[float], list[float]] = ([], [])
    for turn in range(launches + 5):
        for function, kept in zip((first, second), samples, strict=True):
            elapsed = timed(function, pairs, 2 * turn + (function is second))
            if turn >= 5:  # the first ones warm clocks and allocator
                kept.append(elapsed - median(nothing))
    return median(samples[0]), median(samples[1])


def timed(function, pairs, turn: int) -> float:
    """Return the µs between two events around one call, on operands that were not used for a while."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a, b = pairs[turn % len(pairs)]
    torch.cuda._sleep(LEAD_CYCLES)
    start.record()
    function(a, b)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def line(row: dict) -> str:
    entry = row["entry"]
    what = "aten"
    if entry["template_id"] != "aten::mm":
        what = "{BLOCK_M}x{BLOCK_N}x{BLOCK_K} g{GROUP_M} s{num_stages} w{num_warps}".format(**entry)
    ratio = row["eager_us"] / row["table_us"]
    verdict = "ok" if not row["failures"] else "FAILED: " + "; ".join(row["failures"])
    return (
        f"{row['problem']:<24} {what:<20} row {row['row_us']:7.1f} us  compiled {row['table_us']:7.1f} us  "
        f"eager {row['eager_us']:7.1f} us {ratio:5.2f}x  compile {row['compile_seconds']:5.1f} s  "
        f"error {row['error_norm']:.1e}  {verdict}"
    )


if __name__ == "__main__":
    with CACHE, torch._inductor.config.patch(fx_graph_cache=False):
        sys.exit(main())
