"""Time both dispatchers with the exported tables, beside QuACK's own autotuner. Usage: load.py OUT.

run.py starts it, with fresh caches, in a process that cannot import gemmtune. It measures the first call of each row,
then QuACK's autotuner, then all of them alternating.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

# Set before quack is loaded: compiled kernels and tuned configs of earlier runs must not answer for this one.
CACHE = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
os.environ["QUACK_CACHE_DIR"] = os.environ["QUACK_HOME"] = CACHE.name
os.environ.pop("QUACK_CACHE_AUTOTUNING", None)

import cutlass.operators as ops  # noqa: E402
import torch  # noqa: E402
from quack import gemm_interface  # noqa: E402

COLD_BYTES = 512 << 20  # several times the largest L2: between two launches on one pair of operands, so much is read
LEAD_CYCLES = 2_000_000  # about 1 ms in which Python gets ahead of the GPU, so that no launch overhead is timed
LAUNCHES = 60
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
TOLERANCE = {"bf16": 4e-3, "fp16": 5e-4}  # ‖out − fp64‖ / ‖fp64‖, rounding of the output


class Product:
    """Operands of one problem, with its reference result."""

    def __init__(self, name: str) -> None:
        sizes, self.dtype, _ = name.split(":")
        m, n, k = map(int, sizes.split("x"))
        generator = torch.Generator("cuda").manual_seed(0)
        kind = {"device": "cuda", "dtype": TYPES[self.dtype]}
        self.a = torch.randn((m, k), generator=generator, **kind)
        self.b = torch.randn((n, k), generator=generator, **kind).t()
        self.out = torch.empty((m, n), **kind)

    def error(self) -> float:
        """Return the error of the output, and poison the output for the next launch."""
        torch.cuda.synchronize()
        reference = self.a.double() @ self.b.double()
        found = float((self.out.double() - reference).norm() / reference.norm())
        self.out.fill_(float("nan"))
        return found

    def pairs(self):
        """Return pairs of operands that have left L2 when their turn comes again."""
        copies = max(2, -(-COLD_BYTES // (self.a.nbytes + self.b.nbytes)))
        return [(self.a, self.b), *((self.a.clone(), self.b.t().clone().t()) for _ in range(copies - 1))]


class CutlassRow:
    """Arm of `cutlass.operators` with the table as its heuristic."""

    def __init__(self, product: Product, heuristic, row: dict) -> None:
        target = "".join(map(str, torch.cuda.get_device_capability())) + "a"
        args = ops.GemmArguments(product.a, product.b, product.out, torch.float32)
        product.out.fill_(float("nan"))
        began = time.perf_counter()
        self.operator, *others = ops.get_operators(args, target_sm=target, heuristic=heuristic, limit=1)
        chosen = time.perf_counter()
        self.compiled = self.operator.compile(args, target_sm=target)
        self.operator.run(args, self.compiled, assume_supported_args=True)
        torch.cuda.synchronize()
        design = self.operator.metadata.design
        ran = [type(self.operator).__name__, list(design.tile_shape[:2]), list(design.cluster_shape[:2])]
        wanted = row["operator"]
        self.facts = {
            "ran": ran,
            "is_the_row": not others
            and ran == [wanted["class"], wanted["design"]["tile_shape"], wanted["design"]["cluster_shape"]],
            "choose_seconds": round(chosen - began, 3),
            "first_call_seconds": round(time.perf_counter() - began, 3),
        }

    def calls(self, pairs, out):
        prepared = [ops.GemmArguments(a, b, out, torch.float32) for a, b in pairs]
        return [lambda x=x: self.operator.run(x, self.compiled, assume_supported_args=True) for x in prepared]


class QuackRow:
    """Arm of QuACK with the table as its map."""

    def __init__(self, product: Product, table, row: dict) -> None:
        self.table, ran, execute = table, [], gemm_interface._gemm_execute

        def recorded(*args, **kwargs):
            ran.append(asdict(kwargs["config"]))
            return execute(*args, **kwargs)

        product.out.fill_(float("nan"))
        began = time.perf_counter()
        with patch.object(gemm_interface, "_gemm_execute", recorded):
            table.gemm(product.a, product.b, product.out)
        torch.cuda.synchronize()
        seconds, wanted = round(time.perf_counter() - began, 3), row["gemm_config"]
        self.facts = {
            "ran": {name: ran[0][name] for name in wanted},
            "is_the_row": len(ran) == 1 and all(ran[0][name] == value for name, value in wanted.items()),
            "first_call_seconds": seconds,
        }

    def calls(self, pairs, out):
        return [lambda a=a, b=b: self.table.gemm(a, b, out) for a, b in pairs]


class QuackTuned:
    """Arm of QuACK with its autotuner."""

    def __init__(self, product: Product) -> None:
        tuner = gemm_interface.gemm_tuned
        product.out.fill_(float("nan"))
        began = time.perf_counter()
        gemm_interface.gemm(product.a, product.b, out=product.out, tuned=True)
        torch.cuda.synchronize()
        self.facts = {
            "seconds": round(time.perf_counter() - began, 2),
            "configs": len(tuner.configs_timings),
            "config": asdict(tuner.best_config.kwargs["config"]),
        }

    def calls(self, pairs, out):
        return [lambda a=a, b=b: gemm_interface.gemm(a, b, out=out, tuned=True) for a, b in pairs]


class QuackDefault:
    """Arm of QuACK without autotuner and table: the first choice of nvMatmulHeuristics."""

    def __init__(self, product: Product) -> None:
        product.out.fill_(float("nan"))
        began = time.perf_counter()
        gemm_interface.gemm(product.a, product.b, out=product.out, tuned=False)
        torch.cuda.synchronize()
        self.facts = {"first_call_seconds": round(time.perf_counter() - began, 3)}

    def calls(self, pairs, out):
        return [lambda a=a, b=b: gemm_interface.gemm(a, b, out=out, tuned=False) for a, b in pairs]


class Eager:
    """Arm of eager mode, which runs cuBLAS."""

    def __init__(self, product: Product) -> None:
        torch.mm(product.a, product.b, out=product.out)
        self.facts = {}

    def calls(self, pairs, out):
        return [partial(torch.mm, a, b, out=out) for a, b in pairs]


def main() -> None:
    sys.modules["gemmtune"] = None  # any import of it fails from here on
    out, folder = Path(sys.argv[1]), Path(sys.argv[1]) / "tuned/cute"
    sys.path.insert(0, str(folder))
    import gemmtune_cutlass
    import gemmtune_quack

    heuristic, quack_map = gemmtune_cutlass.TableHeuristic(), gemmtune_quack.QuackMap()
    of_space = json.loads((folder / "cute_table.json").read_text())["rows"]
    cutlass_rows, quack_rows = (
        {row["problem"]: row for row in of_space[space].values()} for space in ("cute_gemm", "quack_gemm")
    )
    found, running = {}, {}
    for name in dict.fromkeys((*cutlass_rows, *quack_rows)):
        product = Product(name)
        running[name] = product, {}
        found[name] = {}
        for arm, rows, make in (
            ("cutlass", cutlass_rows, lambda p, row: CutlassRow(p, heuristic, row)),
            ("quack", quack_rows, lambda p, row: QuackRow(p, quack_map, row)),
        ):
            if name in rows:
                start(found[name], running[name], arm, lambda p, r=rows[name], make=make: make(p, r))
            else:
                found[name][arm] = {"failure": "the table has no row"}
        (out / "load.json").write_text(json.dumps(found))
    for name, (product, arms) in running.items():
        for arm, make in (("quack_default", QuackDefault), ("quack_tuned", QuackTuned), ("eager", Eager)):
            start(found[name], running[name], arm, make)
        for arm, facts in times(product, arms).items():
            found[name][arm] |= facts
        running[name] = None  # its operands go
        (out / "load.json").write_text(json.dumps(found))
        print(name, {arm: facts.get("us") for arm, facts in found[name].items()}, flush=True)


def start(found: dict, running, arm: str, make) -> None:
    """Make one arm of a problem and check its result; a failure costs this arm alone."""
    product, arms = running
    try:
        made = make(product)
        error = product.error()
    except Exception as failure:  # the other arms may do
        found[arm] = {"failure": f"{type(failure).__name__}: {failure}"[:300]}
        return
    found[arm] = made.facts | {"error_norm": error, "right": error <= TOLERANCE[product.dtype]}
    arms[arm] = made


def times(product: Product, arms: dict) -> dict:
    """Return the median µs per launch of each arm, alternating on cold operands, and the µs of Python per call.

    The first excludes the cost of events.
    """
    pairs = product.pairs()
    calls = {arm: made.calls(pairs, product.out) for arm, made in arms.items()}
    nothing = [timed(lambda: torch.cuda._sleep(0)) for _ in range(LAUNCHES)]
    samples = {arm: [] for arm in calls}
    for turn in range(LAUNCHES + 5):
        for place, arm in enumerate(calls):
            elapsed = timed(calls[arm][(turn * len(calls) + place) % len(pairs)])
            if turn >= 5:  # the first ones warm clocks and allocator
                samples[arm].append(elapsed)
    return {
        arm: {"us": round(median(samples[arm]) - median(nothing), 2), "host_us": host_us(calls[arm][0])}
        for arm in calls
    }


def timed(call) -> float:
    """Return the µs between two events around one call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(LEAD_CYCLES)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def host_us(call, calls: int = 50) -> float:
    """Return the µs until one call returns, while the GPU is busy."""
    torch.cuda._sleep(20 * LEAD_CYCLES)
    began = time.perf_counter()
    for _ in range(calls):
        call()
    seconds = time.perf_counter() - began
    torch.cuda.synchronize()
    return round(1e6 * seconds / calls, 1)


if __name__ == "__main__":
    with CACHE:
        main()
