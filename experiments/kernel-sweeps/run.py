"""Tune public kernels with a tenth of a sweep, and launch them as their programs do.

    python experiments/kernel-sweeps/run.py --sources CHECKOUTS --out FOLDER [--gpus 2] [--only Gemm,Rotary]
    python experiments/kernel-sweeps/run.py --sources CHECKOUTS --interpret

A run that was killed goes on where it was: each part keeps what it found in FOLDER. `--interpret` compares each kernel
with its reference under Triton's interpreter, which needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import subprocess
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from threading import Lock
from typing import Any

HERE = Path(__file__).parent
ADAPTERS = HERE.parent / "kernel-census/adapters"
FILES = sorted(ADAPTERS.glob("tuned_*.py"))
SPACE = "triton_kernel"
PARTS = ("own", "sweep", "tune", "duel", "program")
BUDGETS = (10, 7, 5, 3, 2)
"""Budgets of the searches: the largest that is at most a tenth of a case's configs. Few, as each is a campaign."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True, help="folder of the checkouts")
    parser.add_argument("--out", type=Path, default=Path("kernel-sweeps"), help="folder of the results")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs to use")
    parser.add_argument("--builders", type=int, default=len(os.sched_getaffinity(0)), help="processes that build")
    parser.add_argument("--only", default="", help="take kernels whose names contain one of these texts, with commas")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of these, in this order")
    parser.add_argument("--interpret", action="store_true", help="compare with the references on the CPU")
    given = parser.parse_args()
    given.out = given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ["KERNEL_CENSUS"] = str(given.sources.resolve())
    os.environ.setdefault("TRITON_CACHE_DIR", str(given.out / "triton-cache"))
    names = [name for name in adapters() if any(text in name for text in given.only.split(","))]
    if given.interpret:
        return interpret(names, given.builders)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(given.gpus)))
    run = Run(given.out, given.gpus, given.builders, names)
    for part in given.parts.split(","):
        started = time.monotonic()
        try:
            getattr(run, part)()
        except Exception as error:  # the other parts say what they can
            run.failed(part, error)
        run.found.setdefault("seconds", {})[part] = round(time.monotonic() - started, 1)
        run.save()
        print(f"{part}: {run.found['seconds'][part]} s", flush=True)
    run.print()
    return 0


def adapters() -> dict[str, str]:
    """Return FILE.py:CLASS of each adapter by the class's name, without importing it."""
    return {
        line[6:].partition("(")[0]: f"{file}:{line[6:].partition('(')[0]}"
        for file in FILES
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("class ")
    }


def host(verb: str, name: str, *options: str, **environment: str) -> dict[str, Any]:
    """Run host.py in a process of its own and return what its last line says, or why it fails."""
    command = [sys.executable, str(HERE / "host.py"), verb, adapters()[name], *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode:
        return {"fails": " / ".join(done.stderr.strip().splitlines()[-3:])[-600:] or f"status {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def interpret(names: list[str], builders: int) -> int:
    with ThreadPoolExecutor(builders) as pool:
        said = pool.map(lambda name: (name, host("interpret", name, TRITON_INTERPRET="1")), names)
        lines = dict(said)
    for name, line in lines.items():
        print(name, line)
    return int(any("fails" in line for line in lines.values()))


class Run:
    """Parts of a run with what they found, which a later run goes on with."""

    def __init__(self, out: Path, gpus: int, builders: int, names: list[str]) -> None:
        import gemmtune as gt
        from gemmtune.engine.seams.kinds import expand_workloads

        self.gt, self.out, self.gpus, self.builders, self.names = gt, out, gpus, builders, names
        self.lock = Lock()
        file = out / "result.json"
        self.found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self.lines: dict[str, dict[str, Any]] = self.found.setdefault("cases", {})
        self.found["failed"] = {}
        self.cases = {}
        for name in names:
            try:
                self.cases |= dict.fromkeys(expand_workloads(f"triton:{adapters()[name]}"), name)
            except Exception as error:  # the other kernels are tuned all the same
                self.failed(name, error)
        self.names = list(dict.fromkeys(self.cases.values()))

    def failed(self, what: str, error: Exception) -> None:
        """Keep why a part or a kernel fails, for the table."""
        traceback.print_exception(error)
        self.found["failed"][what] = {"fails": f"{type(error).__name__}: {error}"[:600]}

    def save(self) -> None:
        with self.lock:
            (self.out / "result.json").write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")

    def line(self, case: Any) -> dict[str, Any]:
        return self.lines.setdefault(label(self.cases[case], case.sizes), {"kernel": self.cases[case]})

    def on_gpus(self, each: int, work: Callable[[str, str], None], names: Iterable[str]) -> None:
        """Run work(name, gpu) for every kernel, `each` at a time on each GPU."""
        free: queue.Queue[str] = queue.Queue()
        for number in range(self.gpus * each):
            free.put(str(number % self.gpus))

        def take(name: str) -> None:
            gpu = free.get()
            try:
                work(name, gpu)
                self.save()
            finally:
                free.put(gpu)

        with ThreadPoolExecutor(self.gpus * each) as pool:
            list(pool.map(take, names))

    def own(self) -> None:
        """Let each kernel's autotuner choose, on a GPU that nothing else uses; its builds are made before."""
        left = [name for name in self.names if any("own" not in line for line in self.of(name))]
        context = get_context("spawn")
        jobs = [(adapters()[name], part) for name in left for part in range(8)]
        with ProcessPoolExecutor(self.builders, context) as pool:
            list(pool.map(warm, jobs))

        def choose(name: str, gpu: str) -> None:
            said = host("own", name, CUDA_VISIBLE_DEVICES=gpu)
            with self.lock:
                for case in (case for case, of in self.cases.items() if of == name):
                    self.line(case)["own"] = said.get(text_of(case.sizes), {"fails": said.get("fails", "no launch")})

        self.on_gpus(1, choose, left)

    def of(self, name: str) -> Iterator[dict[str, Any]]:
        return (self.line(case) for case, of in self.cases.items() if of == name)

    def sweep(self) -> None:
        """Measure every config of every case, all kernels in one campaign."""
        from gemmtune.engine.records.measurement import Status

        texts = [f"triton:{adapters()[name]}" for name in self.names]
        database = self.out / "sweep.db"
        self.gt.tune(
            texts, sampler="exhaustive", budget=200, batch=64, database=database, builders=self.builders, report=False
        )
        with self.opened(database) as store:
            for case in self.cases:
                measured = list(store.measurements(case, space=SPACE))
                final = store.finals(case)[-1] if store.finals(case) else None
                ok = {m.config: m.estimate.time_ns for m in measured if m.status is Status.OK}
                screened = min(ok, key=ok.__getitem__, default=None)
                finalists = [f.config for f in final.finalists if f.task.space == SPACE] if final else []
                best = next(iter(finalists), screened)
                self.line(case)["sweep"] = {
                    "configs": len(measured),
                    "statuses": dict(Counter(m.status.value for m in measured)),
                    "best": dict(best) if best is not None else None,
                    "reasons": dict(Counter(m.reason[:160] for m in measured if m.status is Status.WRONG_RESULT)),
                }

    def tune(self) -> None:
        """Tune every case with at most a tenth of its sweep's evaluations, one campaign per budget and GPU."""
        groups: defaultdict[int, list[Any]] = defaultdict(list)
        for case in self.cases:
            tenth = max(1, self.line(case).get("sweep", {}).get("configs", 0) // 10)
            groups[next((budget for budget in BUDGETS if budget <= tenth), tenth)].append(case)

        def campaign(budget: str, gpu: str) -> None:
            problems = [
                part
                for case in groups[int(budget)]
                for part in ("--problem", f"triton:{adapters()[self.cases[case]]}:{text_of(case.sizes)}")
            ]
            command = [sys.executable, "-m", "gemmtune", "tune", *problems, "--budget", budget, "--batch", "2"]
            command += ["--out", str(self.out / "tuned"), "--builders", str(max(1, self.builders // self.gpus))]
            log = self.out / f"tune-{budget}.log"
            with log.open("w") as stream:
                environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
                subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, env=environment, check=False)

        self.on_gpus(1, campaign, map(str, sorted(groups, reverse=True)))
        rows = {row["problem"]: row for row in self.table_rows()}
        with self.opened(self.out / "tuned/measurements.db") as store:
            for budget, cases in groups.items():
                for case in cases:
                    config = rows.get(case.name, {}).get("config")
                    spent = len(list(store.measurements(case, space=SPACE)))
                    self.line(case)["tune"] = {"budget": budget, "evaluated": spent, "config": config}

    def table_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the problem and config of each row of the exported table."""
        file = self.out / "tuned/triton/triton_table.json"
        for kernel in json.loads(file.read_text())["kernels"] if file.exists() else ():
            for row in kernel["rows"]:
                yield {"problem": row["facts"]["problem"], "config": row["config"]}

    def opened(self, database: Path) -> Any:
        from gemmtune.engine.store.database import Database

        return Database.open(str(database), read_only=True)

    def duel(self) -> None:
        """Time the sweep's best, the tuned row and the autotuner's choice of each case in rounds of one final."""
        from gemmtune.engine.execution.hosts import Hosts
        from gemmtune.engine.records.config import Config
        from gemmtune.engine.records.final import Final
        from gemmtune.engine.records.task import Task
        from gemmtune.engine.seams import registry
        from gemmtune.engine.toolchain.gpu_info import present_device

        device = present_device()
        protocol = registry.objective("latency").protocol
        waiting = {}
        with closing(Hosts().executor(device)((SPACE,), protocol_name=protocol, builders=self.builders)) as executor:
            for case in self.cases:
                line = self.line(case)
                told = (("best", "sweep", "best"), ("tuned", "tune", "config"), ("own", "own", "config"))
                named = {name: line.get(part, {}).get(key) for name, part, key in told}
                configs = {name: Config(config) for name, config in named.items() if config}
                if not configs:
                    continue
                waiting[case] = configs
                executor.hold_final([(Task(case, device, SPACE), each) for each in dict.fromkeys(configs.values())])
            pending = set(waiting)
            while pending:
                for final in executor.collect(5.0):
                    case = getattr(final, "problem", None)
                    if case not in pending:
                        continue
                    pending.discard(case)
                    self.line(case)["duel"] = (
                        {name: time_of(final, config) for name, config in waiting[case].items()}
                        | {"failed": {each.config.json: each.reason for each in final.failed}}
                        if isinstance(final, Final)
                        else {"fails": final.reason}
                    )
                    self.save()

    def program(self) -> None:
        """Launch each kernel with the exported table, eager and compiled, in a process per kernel."""
        folder = str(self.out / "tuned/triton")
        found = self.found.setdefault("programs", {})

        def launch(name: str, gpu: str) -> None:
            said = host("program", name, "--table", folder, CUDA_VISIBLE_DEVICES=gpu)
            with self.lock:
                found[name] = said

        each = max(1, min(8, self.builders // 3 // self.gpus))
        self.on_gpus(each, launch, [name for name in self.names if "fails" in found.get(name, {"fails": ""})])

    def print(self) -> None:
        """Print the table, and keep its figures."""
        import torch
        import triton

        for name, reason in reasons(self.found):
            print(f"{name}: {reason}")
        losses, gains = [], []
        print(f"\n{'case':<58} configs evals  own us tuned us  best us  loss  gain  benchmarked eager, compiled")
        for name, line in self.lines.items():
            duel, said = line.get("duel", {}), self.found.get("programs", {}).get(line["kernel"], {})
            own, tuned, best = (duel.get(each) or math.nan for each in ("own", "tuned", "best"))
            fastest = min((each for each in (own, tuned, best) if not math.isnan(each)), default=math.nan)
            line["loss"], line["gain"] = tuned / fastest - 1, own / tuned - 1
            losses.append(tuned / fastest)
            gains.append(own / tuned)
            modes = said.get(name.partition(" ")[2], {})
            counts = ", ".join(str(modes.get(mode, said).get("benchmarked", "fails")) for mode in ("eager", "compiled"))
            sweep, tune = line.get("sweep", {}), line.get("tune", {})
            print(
                f"{name[:58]:<58} {sweep.get('configs', 0):>7} {tune.get('evaluated', 0):>5} {own / 1e3:>7.1f} "
                f"{tuned / 1e3:>8.1f} {best / 1e3:>8.1f} {line['loss']:>5.1%} {line['gain']:>5.1%}  {counts}"
            )
        self.found["summary"] = {
            "loss": mean(losses) - 1,
            "worst_loss": max((each for each in losses if not math.isnan(each)), default=math.nan) - 1,
            "gain": mean(gains) - 1,
            "worst_gain": min((each for each in gains if not math.isnan(each)), default=math.nan) - 1,
        }
        self.found |= {"torch": torch.__version__, "triton": triton.__version__}
        if torch.cuda.is_available():
            self.found["device"] = torch.cuda.get_device_name()
        print(json.dumps({"seconds": self.found.get("seconds"), **self.found["summary"]}))
        self.save()


def reasons(found: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of everything that failed, with its reason."""
    for key, value in found.items() if isinstance(found, dict) else ():
        if key == "fails":
            yield name, value
        yield from reasons(value, f"{name} {key}".strip())


def mean(ratios: list[float]) -> float:
    """Return the geometric mean of the ratios that are known."""
    logs = [math.log(each) for each in ratios if not math.isnan(each)]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def time_of(final: Any, config: Any) -> float | None:
    return next((each.estimate.time_ns for each in final.finalists if each.config == config), None)


def text_of(sizes: Any) -> str:
    return ",".join(f"{name}={value}" for name, value in sizes.items())


def label(name: str, sizes: Any) -> str:
    return f"{name} {text_of(sizes)}"


def warm(job: tuple[str, int]) -> None:
    """Compile an eighth of an autotuner's configs into Triton's cache, without a GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import triton

    from gemmtune.engine.records import catalogue
    from gemmtune.engine.toolchain import absent_gpu
    from gemmtune.spaces.triton.definition import load_definition

    adapter, part = job
    file, name = adapter.rsplit(":", 1)
    with absent_gpu.target(catalogue.device("H100")):
        triton.runtime.driver.active.get_current_stream = lambda _: 0
        definition = load_definition(Path(file), name)
        for sizes, _ in definition.cases.values():
            for config in definition.seeds_of(sizes)[part::8] if len(definition.seeds) <= 64 else ():
                try:
                    arguments = definition.values(definition.tensors(sizes), config)
                    definition.jit.run(grid=(1, 1, 1), warmup=True, **arguments)
                except Exception as error:  # a config that does not build is the autotuner's affair
                    print(f"{name}: {type(error).__name__}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
