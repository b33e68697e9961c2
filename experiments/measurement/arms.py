"""Run one arm of the experiment. Usage: arms.py FOLDER ARM [NUMBER]; run.py starts a process per arm."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from run import RATED, REPEATED, SELECTED

from gemmtune.engine.measure.bench import Bench
from gemmtune.engine.measure.deciding.finals import hold_final
from gemmtune.engine.measure.deciding.screening import LaunchLimits
from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.measure.operands.operand_sets import BLOCK_SAMPLES
from gemmtune.engine.measure.operands.operands import make_operands
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.measure.worker import worker_pool
from gemmtune.engine.seams import registry
from gemmtune.engine.statistics import estimate

PROTOCOL = protocol("graph-cold-l2")
FINALISTS = 8
SPARE_SECONDS = 5  # until the spare process has imported everything
TRUTH_ROUNDS = 16


def by_problem(items, names) -> dict:
    groups = defaultdict(list)
    for item in items:
        if item[0].problem.name in names:
            groups[item[0].problem.name].append(item)
    return groups


def repeated(items, number: int) -> dict:
    """Measure every config of four problems by the full protocol, in an order that depends on the pass."""
    bench = Bench(PROTOCOL)
    chosen = [item for group in by_problem(items, REPEATED).values() for item in group[:50]]
    random.Random(number).shuffle(chosen)
    times = {}
    for task, config, artifact in chosen:
        reading = bench(MeasureJob(task, config, artifact))
        times[f"{task.problem.name} {config.json}"] = round(reading.estimate.time_ns, 1)
    return times


def raced(items) -> dict:
    """Screen each config against the leader, like a campaign, then hold a final of the best eight."""
    bench, found = Bench(PROTOCOL), {}
    for name, group in by_problem(items, SELECTED).items():
        order = group[:50]
        random.Random(0).shuffle(order)
        warm(bench, order[0])
        began = time.perf_counter()
        readings = [bench(MeasureJob(*item, early_stopping=True)) for item in order]
        screened = time.perf_counter()
        ranked = sorted(range(len(order)), key=lambda i: readings[i].estimate.time_ns)
        finalists = [order[i] for i in ranked[:FINALISTS]]
        final = held(bench, finalists)
        found[name] = final | {
            "ten_best": [order[i][1].json for i in ranked[:10]],
            "screen_seconds": screened - began,
            "final_seconds": time.perf_counter() - screened,
            "samples": sum(len(r.samples_ns) for r in readings) + final["samples"],
        }
    return found


def held(bench, finalists) -> dict:
    """Hold a final like the bench, and return also the reference's times beside each finalist."""
    with timers_of(bench, finalists) as timers:
        standings = hold_final(timers, LaunchLimits(), bench._telemetry.may_be_throttled)
    names = [config.json for _, config, _ in finalists]
    return {
        "pick": names[standings[0].number],
        "tie_band": [names[s.number] for s in standings if s.behind[0] <= 0],
        "regret_bound": max(0.0, *(-s.behind[0] for s in standings)),
        "samples": sum(len(s.samples_ns) for s in standings),
        "finalists": {
            names[s.number]: {"ns": round(s.estimate.time_ns), **rounds(s.samples_ns, s.reference_ns)}
            for s in standings
        },
    }


@contextmanager
def timers_of(bench, items):
    """Yield timers of one problem's kernels, loaded anew and checked, as for a final."""
    problem, space = items[0][0].problem, registry.space("triton_mm")
    setup = bench._setups.get(problem)
    kernels = [space.load(artifact, task) for task, _, artifact in items]
    for kernel in kernels:
        assert not (reason := setup.check(kernel, 0).reason), reason
    run = bench._setups.final_run(problem)
    timers = [bench._setups.timer(kernel, problem, run) for kernel in kernels]
    yield [bench._paced(timer, setup) for timer in timers]
    for timer in timers:
        timer.close()
    for kernel in kernels:
        kernel.close()


def rounds(samples_ns, reference_ns) -> dict:
    """Return the locations of a kernel's samples and of the reference's beside them, per round, in whole ns."""
    return {
        which: [round(estimate(taken[i : i + BLOCK_SAMPLES]).time_ns) for i in range(0, len(taken), BLOCK_SAMPLES)]
        for which, taken in (("kernel", samples_ns), ("reference", reference_ns))
    }


def warm(bench, item) -> None:
    """Set up a problem before an arm's clock starts: operands, reference level and steady clocks."""
    bench(MeasureJob(*item))
    bench._leaders.clear()


def timed_by(folder: Path, items, measure) -> dict:
    """Measure every config once by another way of timing, in the time that screening and final took for all."""
    budget = json.loads((folder / "race.json").read_text())
    found = {}
    for name, group in by_problem(items, SELECTED).items():
        order = group[:50]
        random.Random(0).shuffle(order)
        problem = order[0][0].problem
        operands = make_operands(problem, torch.device("cuda", 0))
        kernels = [registry.space("triton_mm").load(artifact, task) for task, _, artifact in order]
        calls = [partial(k, operands.a, operands.b, operands.out) for k in kernels]
        share_ms = 1e3 * (budget[name]["screen_seconds"] + budget[name]["final_seconds"]) / len(calls)
        asked = fitting(measure, calls, share_ms)
        began = time.perf_counter()
        times = [measure(call, asked) for call in calls]
        found[name] = {
            "pick": order[min(range(len(times)), key=times.__getitem__)][1].json,
            "seconds": time.perf_counter() - began,
        }
        for kernel in kernels:
            kernel.close()
    return found


def fitting(measure, calls, share_ms) -> float:
    """Find by trial the milliseconds to request, so that each config takes its share of the time."""
    asked = share_ms / 4
    for _ in range(4):
        began = time.perf_counter()
        for call in calls[:10]:
            measure(call, asked)
        asked *= min(max(share_ms * 10 / (1e3 * (time.perf_counter() - began)), 0.25), 4.0)
    return asked


def with_do_bench(call, milliseconds) -> float:
    from triton.testing import do_bench

    return do_bench(call, warmup=milliseconds / 5, rep=milliseconds, return_mode="median")


def with_inductor(call, milliseconds) -> float:
    from torch._inductor.runtime.benchmarking import InductorBenchmarker

    rounds = max(1, round(milliseconds / 0.1))
    return InductorBenchmarker().benchmark_gpu(
        call, estimation_iters=1, memory_warmup_iters=rounds, benchmark_iters=rounds
    )


def truth(folder: Path, items, number: str) -> dict:
    """Hold a long final between the picks of the arms and the ten best of the screening; 128 samples of each.

    The rounds go into a file of their own.
    """
    arms = {arm: json.loads((folder / f"{arm}.json").read_text()) for arm in ("race", "do_bench", "inductor")}
    bench, found, played_by = Bench(PROTOCOL), {}, {}
    for name, group in by_problem(items, SELECTED).items():
        called = {found_by[name]["pick"] for found_by in arms.values()} | set(arms["race"][name]["ten_best"])
        meeting = {item[1].json: item for item in group if item[1].json in called}
        with timers_of(bench, list(meeting.values())) as timers:
            lanes = [([], []) for _ in timers]
            for played in range(TRUTH_ROUNDS):
                turns = list(zip(timers, lanes, strict=True))
                for timer, (samples_ns, reference_ns) in turns if played % 2 else reversed(turns):
                    block = timer.block(played)
                    samples_ns.extend(block.samples_ns)
                    reference_ns.extend(block.reference_ns)
        met = dict(zip(meeting, lanes, strict=True))
        found[name] = {config: round(estimate(samples_ns).time_ns, 1) for config, (samples_ns, _) in met.items()}
        played_by[name] = {config: rounds(*lane) for config, lane in met.items()}
    (folder / f"rounds-{number}.json").write_text(json.dumps(played_by))
    return found


def rate(items) -> dict:
    """Measure configs per second through the worker process, and compare with the full protocol's winner."""
    found = {}
    pool = worker_pool(PROTOCOL, ("triton_mm",))
    through(pool, [MeasureJob(*items[0])])
    time.sleep(SPARE_SECONDS)
    for name, group in by_problem(items, RATED).items():
        random.Random(0).shuffle(group)
        through(pool, [MeasureJob(*group[0])])
        seconds, raced_readings = through(pool, [MeasureJob(*item, early_stopping=True) for item in group])
        best = sorted(range(len(group)), key=lambda i: raced_readings[i].estimate.time_ns)[:FINALISTS]
        final_seconds, (final,) = through(pool, [FinalJob(tuple(MeasureJob(*group[i]) for i in best))])
        full_seconds, full = through(pool, [MeasureJob(*item) for item in group])
        full_best = sorted(range(len(group)), key=lambda i: full[i].estimate.time_ns)[:FINALISTS]
        _, (full_final,) = through(pool, [FinalJob(tuple(MeasureJob(*group[i]) for i in full_best))])
        pick, full_pick = (
            group[numbers[f.ranking[0].number]][1].json for numbers, f in ((best, final), (full_best, full_final))
        )
        bands = [
            {group[numbers[s.number]][1].json for s in f.ranking if s.behind[0] <= 0}
            for numbers, f in ((best, final), (full_best, full_final))
        ]
        found[name] = {
            "configs": len(group),
            "seconds": seconds,
            "final_seconds": final_seconds,
            "full_seconds": full_seconds,
            "launches": [len(r.samples_ns) for r in raced_readings],
            "pick": pick,
            "full_pick": full_pick,
            "same_within_the_tie_band": full_pick in bands[0] or pick in bands[1],
            "full_pick_behind": next(
                (s.behind for s in final.ranking if group[best[s.number]][1].json == full_pick), None
            ),
        }
    pool.close()
    return found


def through(pool, jobs):
    began = time.perf_counter()
    results = {id(outcome.job): outcome.result for outcome in pool.run(jobs)}
    return time.perf_counter() - began, [results[id(job)] for job in jobs]


def crash(items) -> dict:
    """Return the seconds from a worker's death to the next result, with a spare process ready."""
    pool = worker_pool(PROTOCOL, ("triton_mm",))
    group = by_problem(items, RATED)[RATED[0]]
    delays = []
    for _ in range(2):
        through(pool, [MeasureJob(*item, early_stopping=True) for item in group[:5]])
        time.sleep(SPARE_SECONDS)
        os.kill(pool._slots[0].process._process.pid, signal.SIGKILL)
        delays.append(through(pool, [MeasureJob(*group[0], early_stopping=True)])[0])
    pool.close()
    return {"seconds": delays}


def main() -> None:
    folder, arm = Path(sys.argv[1]), sys.argv[2]
    items = pickle.loads((folder / "built.pickle").read_bytes())
    torch.cuda.init()
    found = {
        "pass": lambda: repeated(items, int(sys.argv[3])),
        "race": lambda: raced(items),
        "do_bench": lambda: timed_by(folder, items, with_do_bench),
        "inductor": lambda: timed_by(folder, items, with_inductor),
        "truth": lambda: truth(folder, items, sys.argv[3]),
        "rate": lambda: rate(items),
        "crash": lambda: crash(items),
    }[arm]()
    (folder / f"{'-'.join(sys.argv[2:])}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
