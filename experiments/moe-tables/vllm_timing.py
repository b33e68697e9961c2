"""Time our written files and vLLM's own with vLLM's benchmark_moe.py, entry by entry in alternating order.

    python vllm_timing.py --vllm FOLDER --out FOLDER --minutes 4

FOLDER of --vllm is what vllm_parts.py wrote. `BenchmarkWorker.benchmark` of benchmark_moe.py looks each entry up and
times it, unedited: ours with VLLM_TUNED_CONFIG_FOLDER on written/, vLLM's own without. Ray is absent, as are parts of
vLLM that are imported beside the MoE layer and are never called: see ABSENT.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import json
import multiprocessing
import os
import sys
import time
import types
from concurrent.futures import ProcessPoolExecutor
from math import prod
from pathlib import Path
from statistics import fmean

WRITTEN = Path(__file__).parent / "written"
CLAIM = 0.03
ROUNDS = 2
BUILDERS = 12
ABSENT = (
    "ray",
    "vllm.distributed.kv_transfer",
    "vllm.model_executor.model_loader",
    "vllm.v1.attention.ops.rocm_aiter_mla_sparse",
    "vllm.v1.structured_output",
)
"""Packages that stand-ins replace, since their own imports need some 60 packages more."""


class Name:
    """Something imported from an absent module: a base class or a decorator, and an error when it is called."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __call__(self, *arguments: object, **options: object) -> object:
        if len(arguments) == 1 and isinstance(arguments[0], types.FunctionType) and not options:
            return arguments[0]
        raise RuntimeError(f"{self.text} was called, which stands for an absent module: take it out of ABSENT")


class AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{self.__name__}.{name}")


class AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return AbsentModule(spec.name)

    def exec_module(self, module):
        if module.__name__ == "ray":
            module.remote = lambda **_options: lambda actor: actor
            module.get_gpu_ids = lambda: [0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4.0)
    arguments = parser.parse_args()
    began = time.monotonic()
    end = began + 60 * arguments.minutes - 5
    gains = json.loads((WRITTEN / "gains.json").read_text())
    rows = [(gain, text) for file in gains.values() for text, gain in file.items() if gain > 0]
    rows.sort(key=lambda row: (row[0] <= CLAIM, tokens(row[1])))
    vllm = str(arguments.vllm.resolve())
    with ProcessPoolExecutor(BUILDERS, multiprocessing.get_context("spawn"), find, (vllm,)) as pool:
        texts = [text for _, text in rows]
        failed = {text: reason for text, reason in zip(texts, pool.map(build, texts), strict=True) if reason}
    print(f"built for {len(rows)} rows in {time.monotonic() - began:.0f} s, {len(failed)} failed", flush=True)
    if len(failed) == len(rows):
        raise SystemExit(f"no row was built; the first: {texts[0]}: {failed[texts[0]]}")
    find(vllm)
    import benchmark_moe

    worker = benchmark_moe.BenchmarkWorker(0)
    results = []
    for gain, text in rows:
        if time.monotonic() > end:
            break
        row: dict[str, object] = {"workload": text, "claimed": gain}
        try:
            row |= {"error": failed[text]} if text in failed else timed(worker, text)
        except Exception as error:  # one row's failure is its result, and not the end of the others
            row["error"] = f"{type(error).__name__}: {error}"[:500]
        results.append(row)
    write(arguments.out, gains, results, len(rows) - len(results))


def find(vllm: str) -> None:
    """Let benchmark_moe.py and vLLM be imported from a folder, without what is absent."""
    sys.path.insert(0, vllm)
    sys.meta_path.insert(0, AbsentFinder())


def tokens(text: str) -> int:
    return int(text.split(":")[1][1:])


def sizes(text: str) -> tuple[object, ...]:
    """Return the arguments of `benchmark_config` behind the config, without iterations, for a workload's name."""
    import torch

    _, *numbers, dtype = text.split(":")
    m, experts, top_k, hidden, inter = (int(number[1:]) for number in numbers)
    return (m, experts, 2 * inter, hidden, top_k, torch.bfloat16, dtype != "bf16", False, False)


def block_shape(text: str) -> list[int] | None:
    return [128, 128] if text.endswith(":fp8_block") else None


def look_up(ours: bool) -> None:
    """Let vLLM's next look-up read our files, or none but its own."""
    from vllm.model_executor.layers.fused_moe.fused_moe import get_moe_configs

    os.environ.pop("VLLM_TUNED_CONFIG_FOLDER", None)
    if ours:
        os.environ["VLLM_TUNED_CONFIG_FOLDER"] = str(WRITTEN)
    get_moe_configs.cache_clear()


def timed(worker, text: str) -> dict[str, object]:
    """Return both configs with their times in microseconds, of 100 replays per round."""
    times: dict[bool, list[float]] = {True: [], False: []}
    configs = {}
    for number in range(ROUNDS):
        for ours in (True, False) if number % 2 else (False, True):
            look_up(ours)
            configs[ours], microseconds = worker.benchmark(*sizes(text), block_shape(text))
            times[ours].append(round(microseconds, 3))
    return {
        "ours": configs[True],
        "vllm": configs[False],
        "ours_us": times[True],
        "vllm_us": times[False],
        "ratio": round(fmean(times[False]) / fmean(times[True]), 4),
    }


def build(text: str) -> str:
    """Run both entries once, so that Triton's cache has their kernels; return a reason if that fails."""
    import benchmark_moe

    real = benchmark_moe.benchmark_config

    def once(*arguments, **options):
        return real(*arguments, **(options | {"num_iters": 1}))

    benchmark_moe.benchmark_config = once
    try:
        worker = benchmark_moe.BenchmarkWorker(0)
        for ours in (True, False):
            look_up(ours)
            worker.benchmark(*sizes(text), block_shape(text))
    except Exception as error:  # one row's failure is its result, and not the end of the others
        return f"{type(error).__name__}: {error}"[:500]
    finally:
        benchmark_moe.benchmark_config = real
    return ""


def write(out: Path, gains: dict[str, dict[str, float]], rows: list[dict], missing: int) -> None:
    """Write every row, and print per file how many claims the timing confirms."""
    import torch
    import triton
    import vllm

    out.mkdir(parents=True, exist_ok=True)
    versions = f"torch {torch.__version__}, triton {triton.__version__}, vllm {vllm.__version__}"
    record = {"device": torch.cuda.get_device_name(), "toolchain": versions, "missing": missing, "rows": rows}
    (out / "vllm_timing.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"{record['device']}, {versions}; {missing} rows not timed")
    print(f"{'file':84}{'claims':>7}{'agree':>6}{'geomean':>9}  others slower than vLLM's | against")
    for name, file in gains.items():
        of = [row for row in rows if row["workload"] in file and "ratio" in row]
        claims = [row for row in of if row["claimed"] > CLAIM]
        agree = sum(row["ratio"] > 1 for row in claims)
        mean = prod(row["ratio"] for row in of) ** (1 / max(1, len(of)))
        against = [(tokens(row["workload"]), row["ratio"]) for row in claims if row["ratio"] <= 1]
        slower = [(tokens(row["workload"]), row["ratio"]) for row in of if row["ratio"] <= 1 and row not in claims]
        print(f"{name:84}{len(claims):7}{agree:6}{mean:9.3f}  {slower or '-'} | {against or '-'}")
    if errors := [(row["workload"], row["error"]) for row in rows if "error" in row]:
        raise SystemExit(f"{len(errors)} rows failed; the first: {errors[0][0]}: {errors[0][1]}")


if __name__ == "__main__":
    main()
