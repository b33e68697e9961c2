"""Measure the cost of equal bits at every m, on 12 products. Usage: run.py --out FOLDER [--seconds 540].

Tunes two tables in one folder, one of them batch-invariant. Then it compiles each product with each table, compares the
bits of a row at every m and at two places, and times both in alternating CUDA graphs. A run whose time was over goes on
where it was when it is started again with the same folder. `--rehearse` does it all small and on a CPU, with replayed
rows: its times mean nothing. `--model` compares a model's logits instead, with the tables of a first call.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

PRODUCTS = {  # n and k of linear layers
    "Llama-3.1-8B qkv": (6144, 4096),
    "Llama-3.1-8B kv": (1024, 4096),
    "Llama-3.1-8B o": (4096, 4096),
    "Llama-3.1-8B gate": (14336, 4096),
    "Llama-3.1-8B gate_up": (28672, 4096),
    "Llama-3.1-8B down": (4096, 14336),
    "Qwen3-1.7B qkv": (4096, 2048),
    "Qwen3-1.7B kv": (1024, 2048),
    "Qwen3-1.7B o": (2048, 2048),
    "Qwen3-1.7B gate": (6144, 2048),
    "Qwen3-1.7B gate_up": (12288, 2048),
    "Qwen3-1.7B down": (2048, 6144),
}
TUNED = (2, 16, 64, 256, 1024, 4096)
TIMED = (1, 2, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
LARGEST = 4096
ARMS = ("table", "invariant")
COLD_BYTES = 200 * 2**20  # weights that launches rotate through: several times the L2
ROUNDS, LAUNCHES = 11, 24
REHEARSED = {"recorded": (4096, 14336)}, (64, 512), (1, 2, 16), 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables, the databases and result.json")
    parser.add_argument("--seconds", type=float, default=540.0, help="wall time, about")
    parser.add_argument("--budget", type=int, default=32, help="evaluations per product and m")
    parser.add_argument("--rehearse", action="store_true", help="one product, replayed and on a CPU")
    parser.add_argument(
        "--model", action="store_true", help="compare logits of a model with the tables of a first call"
    )
    given = parser.parse_args()
    ends = time.monotonic() + given.seconds
    if given.model:
        of_model(given)
        return
    products, tuned, timed, largest = REHEARSED if given.rehearse else (PRODUCTS, TUNED, TIMED, LARGEST)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "result.json"
    result = json.loads(file.read_text()) if file.exists() else {"products": {}}
    for arm in ARMS:
        if arm not in result:
            began = time.monotonic()
            result[arm] = campaign(given.out / arm, arm, products, tuned, given, 0.45 * given.seconds)
            result[arm]["seconds"] = round(time.monotonic() - began, 1)
            file.write_text(json.dumps(result, indent=1) + "\n")
    for name, (n, k) in products.items():
        if name not in result["products"] and time.monotonic() < ends:
            result["products"][name] = measured(given.out, n, k, timed, largest)
            file.write_text(json.dumps(result, indent=1) + "\n")
            print(name, json.dumps(result["products"][name]["bits"]), flush=True)
    result["summary"] = summary(result, timed)
    file.write_text(json.dumps(result, indent=1) + "\n")
    show(result, timed)
    if missing := [name for name in products if name not in result["products"]]:
        print(f"time is over; run it again for {', '.join(missing)}")


def of_model(given: argparse.Namespace) -> None:
    """Compare the logits of a model's sequence alone and in a batch, and keep the result beside the products'."""
    import model

    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "model.json"
    found = model.compared(given.out, table_in_use, rehearse=given.rehearse)
    file.write_text(json.dumps(found, indent=1) + "\n")
    model.show(found)


def campaign(out: Path, arm: str, products: dict, tuned: tuple, given: Any, seconds: float) -> dict[str, Any]:
    """Tune one table; return its price by problem, and which orders of summation had which bits."""
    import gemmtune as gt
    from gemmtune.engine.seams import registry
    from gemmtune.engine.store.database import Database

    rest = "" if given.rehearse else ":dynamic_m=true"
    problems = [f"{m}x{n}x{k}:bf16:nt{rest}" for n, k in products.values() for m in tuned]
    where = {"backend": gt.landscapes("h200")} if given.rehearse else {}
    found = gt.tune(
        problems,
        budget=given.budget,
        seconds=seconds,
        ranges=True,
        batch_invariant=arm == "invariant",
        out=out,
        **where,
    )
    digests: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    space = registry.space("triton_mm")
    with Database.open(out / "measurements.db", read_only=True) as database:
        for each in database.measurements():
            if each.task.space == "triton_mm" and each.estimate is not None and each.estimate.bits:
                order = space.summation(each.task, each.config)
                digests[each.task.problem.bits_series.name][order].add(each.estimate.bits)
    wrong = sum(each.failures.get("wrong_result", 0) for each in found.campaign.findings)
    return {
        "device": found.device.name,
        "losses": {row.problem.name: round(row.loss, 4) for row in found.rows},
        "choices": {row.problem.name: dict(row.choices[0].config) for row in found.rows},
        "digests": {name: {order: sorted(its) for order, its in of.items()} for name, of in digests.items()},
        "wrong_results": wrong,
    }


@contextmanager
def table_in_use(path: Path) -> Iterator[dict[str, Any]]:
    """Install a table, yield the options for torch.compile, and put back what was there."""
    from gemmtune.engine.consumers.inductor.loader import loader

    loader.install(path / "inductor" / "inductor_table.json")
    try:
        yield loader.options()
    finally:
        loader.uninstall()


def linear(x: Any, weight: Any) -> Any:
    return x @ weight.T


def compiled(name: str, options: dict[str, Any]) -> Callable[..., Any]:
    """Return a linear layer to compile with a table's options, whose graphs no other one shares."""
    import torch

    own = FunctionType(linear.__code__.replace(co_name=name), globals())  # graphs belong to the code object
    layer = torch.compile(own, options=options)

    def call(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 1:
            torch._dynamo.maybe_mark_dynamic(x, 0)
        return layer(x, weight)

    return call


def measured(out: Path, n: int, k: int, timed: tuple, largest: int) -> dict[str, Any]:
    """Compile a product with each table, compare the bits of a row at every m, and time both and eager torch."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch._dynamo.config.recompile_limit = 64
    found = {"eager": torch.nn.functional.linear}
    with torch.no_grad():
        bits = {"eager": compared_bits(found["eager"], n, k, largest, device)}
        for arm in ARMS:
            with table_in_use(out / arm) as options:
                found[arm] = compiled(f"linear_{arm}_{n}_{k}", options)
                bits[arm] = compared_bits(found[arm], n, k, largest, device)  # compiles every graph there is
        times = {str(m): times_us(found, m, n, k, device) for m in timed}
    return {"n": n, "k": k, "bits": bits, "times_us": times}


def compared_bits(call: Callable[..., Any], n: int, k: int, largest: int, device: str) -> dict[str, int]:
    """Return at how many m, and at how many places, a row among others has other bits than the row alone."""
    import torch

    generator = torch.Generator(device).manual_seed(n * k)
    weight, rows, row = (
        torch.randn(shape, k, dtype=torch.bfloat16, device=device, generator=generator) for shape in (n, largest, 1)
    )
    alone = call(row, weight).view(torch.int16)
    draw, differs = random.Random(0), torch.zeros(largest, 2, dtype=torch.bool, device=device)
    for m in range(1, largest + 1):
        for turn, place in enumerate((draw.randrange(m), m - 1)):
            kept = rows[place].clone()
            rows[place] = row[0]
            differs[m - 1, turn] = (call(rows[:m], weight)[place].view(torch.int16) != alone[0]).any()
            rows[place] = kept
    return {"m": largest, "m that differ": int(differs.any(1).sum()), "places that differ": int(differs.sum())}


def times_us(calls: dict[str, Callable[..., Any]], m: int, n: int, k: int, device: str) -> dict[str, float]:
    """Return the time of a launch per arm, by CUDA graphs in alternating rounds, with weights that are not in L2."""
    import torch

    copies = max(1, min(LAUNCHES, COLD_BYTES // (2 * n * k) + 1))
    x = torch.randn(m, k, dtype=torch.bfloat16, device=device)
    weights = [torch.randn(n, k, dtype=torch.bfloat16, device=device) for _ in range(copies)]
    replays = {name: replay_of(call, x, weights, device) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS):
        names = list(calls) if number % 2 else list(calls)[::-1]
        for name in names:
            samples[name].append(replays[name]())
    return {name: round(statistics.median(its), 3) for name, its in samples.items()}


def replay_of(call: Callable[..., Any], x: Any, weights: list[Any], device: str) -> Callable[[], float]:
    """Return a function that launches LAUNCHES times, and returns the microseconds of one launch."""
    import torch

    def launches() -> None:
        for number in range(LAUNCHES):
            call(x, weights[number % len(weights)])

    launches()
    if device == "cpu":
        return lambda: wall_us(launches)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launches()

    def replay() -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()  # else the host's launch of the timed one would count
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3 / LAUNCHES

    replay()
    return replay


def wall_us(launches: Callable[[], None]) -> float:
    began = time.perf_counter()
    launches()
    return (time.perf_counter() - began) * 1e6 / LAUNCHES


def summary(result: dict[str, Any], timed: tuple) -> dict[str, Any]:
    """Return the figures that judge equal bits: ratios of times, sizes m of other bits, digests per order."""
    products = result["products"]
    ratios = {name: ratios_of(its["times_us"], "invariant", "table") for name, its in products.items()}
    eager = [ratio for its in products.values() for ratio in ratios_of(its["times_us"], "invariant", "eager").values()]
    whole = [ratio for its in ratios.values() for ratio in its.values()]
    by_m = {str(m): [its[str(m)] for its in ratios.values() if str(m) in its] for m in timed}
    digests = result["invariant"]["digests"]
    return {
        "device": result["invariant"]["device"],
        "products": len(products),
        "invariant over table": mean(whole),
        "invariant over eager": mean(eager),
        "invariant over table by m": {m: mean(its) for m, its in by_m.items() if its},
        "worst": max(whole, default=None),
        "m that differ": {
            arm: sum(x["bits"][arm]["m that differ"] for x in products.values()) for arm in (*ARMS, "eager")
        },
        "orders of several digests": sum(len(its) > 1 for of in digests.values() for its in of.values()),
        "orders": sum(map(len, digests.values())),
        "digests": sum(len({each for its in of.values() for each in its}) for of in digests.values()),
    }


def ratios_of(times: dict[str, dict[str, float]], arm: str, other: str) -> dict[str, float]:
    return {m: its[arm] / its[other] for m, its in times.items()}


def mean(values: list[float]) -> float | None:
    return round(statistics.geometric_mean(values), 4) if values else None


def show(result: dict[str, Any], timed: tuple) -> None:
    """Print the ratio of times per product and m, the m that differ in bits, and the summary."""
    print(
        f"{'invariant over table':22}" + "".join(f"{m:>7}" for m in timed) + f"{'differ: table':>15}{'invariant':>11}"
    )
    for name, its in result["products"].items():
        ratios, bits = ratios_of(its["times_us"], "invariant", "table"), its["bits"]
        differ = f"{bits['table']['m that differ']:15}{bits['invariant']['m that differ']:11}"
        print(f"{name:22}" + "".join(f"{ratios.get(str(m), float('nan')):7.3f}" for m in timed) + differ)
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
