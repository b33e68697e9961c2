"""Tune public kernels with a tenth of a sweep, and launch them as their programs do.

    python experiments/kernel-sweeps/run.py --sources CHECKOUTS --out FOLDER [--gpus 2] [--seconds 580] [--only Gemm]
    python experiments/kernel-sweeps/run.py --sources CHECKOUTS --interpret

A run takes one kernel per GPU at a time and ends within its seconds. Each part of a kernel is written once it is made.
The next run goes on from there, first with the kernel that was stopped: what its database holds is not measured again.
`--interpret` compares each kernel with its reference under Triton's interpreter, which needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from statistics import geometric_mean
from threading import Lock
from typing import Any

from kernel import Kernel, adapters, host, unfinished, write_whole

FIRST = (
    *("FlashAttention", "ChunkedScan", "LayerNormForward", "LayerNormGradient", "CrossEntropyInPlace"),
    *("RotaryEmbedding", "Int4Gemm", "Fp8BlockGemm", "GroupedSwiglu", "SplitKGemm"),
)
"""Kernels of the kinds that matter most, which are measured first."""
MOST_WAIT = 60
"""Seconds that a GPU waits for a kernel's builds."""
END_SECONDS = 15
"""Seconds before the end of a run from which no kernel is begun, and that a stopped one has to end in."""


def main() -> int:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True, help="folder of the checkouts")
    parser.add_argument("--out", type=Path, default=Path("kernel-sweeps"), help="folder of the results")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs to use")
    parser.add_argument("--seconds", type=float, default=580.0, help="seconds after which the run ends")
    parser.add_argument("--builders", type=int, default=max(1, cores - 1), help="processes that build, for all GPUs")
    parser.add_argument("--only", default="", help="take kernels whose names contain one of these texts, with commas")
    parser.add_argument("--interpret", action="store_true", help="compare with the references on the CPU")
    parser.add_argument("--kernel", help="measure this kernel alone, on the visible GPU, in FOLDER/KERNEL")
    given = parser.parse_args()
    given.out = given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ["KERNEL_CENSUS"] = str(given.sources.resolve())
    os.environ.setdefault("TRITON_CACHE_DIR", str(given.out / "triton-cache"))
    names = [name for name in adapters() if any(text in name for text in given.only.split(","))]
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    if given.interpret:
        return interpret(names, given.builders)
    if given.kernel:
        Kernel(given.out / given.kernel, given.builders, given.kernel).measure()
    else:
        Phase(given, names).run()
    return 0


class Phase:
    """One run: every GPU takes the next kernel until the time is over.

    As many processes as a quarter of the builders compile the kernels' own configs meanwhile, for their autotuners.
    """

    def __init__(self, given: argparse.Namespace, names: list[str]) -> None:
        self.given, self.names, self.lock = given, names, Lock()
        self.end = time.monotonic() + given.seconds
        self.begun: set[str] = set()
        self.warmers = ThreadPoolExecutor(max(1, given.builders // 4))
        cold = [name for name in names if "own" in unfinished(self.found(name))]
        self.warmed = {name: [self.warmers.submit(self.warm, name, part) for part in range(4)] for name in cold}

    def run(self) -> None:
        list(ThreadPoolExecutor(self.given.gpus).map(self.serve, range(self.given.gpus)))
        self.warmers.shutdown(cancel_futures=True)
        self.write(show=True)

    def warm(self, name: str, part: int) -> None:
        """Compile a part of a kernel's own configs, as far as the time allows."""
        host("warm", name, "--part", str(part), seconds=max(1.0, self.left()), CUDA_VISIBLE_DEVICES="")

    def left(self) -> float:
        """Return the seconds in which a process may still run."""
        return self.end - END_SECONDS - time.monotonic()

    def serve(self, gpu: int) -> None:
        while self.left() > END_SECONDS and (name := self.next()):
            wait(self.warmed.get(name, ()), timeout=max(0.0, min(MOST_WAIT, self.left() - END_SECONDS)))
            started = time.monotonic()
            stopped = self.measure(name, gpu)
            print(f"{name}: {time.monotonic() - started:.0f} s{', stopped' if stopped else ''}", flush=True)
            with self.lock:
                self.write()

    def next(self) -> str:
        """Return the kernel with the fewest parts left that this run has not begun; empty if there is none."""
        with self.lock:
            left = {name: len(unfinished(self.found(name))) for name in self.names if name not in self.begun}
            name = min(filter(left.__getitem__, left), key=left.__getitem__, default="")
            self.begun.add(name)
            return name

    def measure(self, name: str, gpu: int) -> bool:
        """Measure a kernel in a process of its own, and return whether the time was over before its end."""
        given = self.given
        command = [sys.executable, __file__, "--sources", str(given.sources), "--out", str(given.out)]
        command += ["--kernel", name, "--builders", str(max(1, given.builders // given.gpus))]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
        with (given.out / f"{name}.log").open("a") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
            try:
                child.wait(max(1.0, self.left()))
                return False
            except subprocess.TimeoutExpired:
                for signal_ in (signal.SIGTERM, signal.SIGKILL):
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, signal_)
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(END_SECONDS / 3)
                return True

    def found(self, name: str) -> dict[str, Any]:
        file = self.given.out / name / "result.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def write(self, show: bool = False) -> None:
        """Write what is known of all kernels into one file, and print it as a table if asked."""
        found: dict[str, Any] = {"cases": {}, "programs": {}, "failed": {}, "seconds": {}}
        for name in self.names:
            of = self.found(name)
            found["cases"] |= of.get("cases", {})
            found["programs"] |= of.get("programs", {})
            found["failed"] |= {f"{name} {part}": why for part, why in of.get("failed", {}).items()}
            found["seconds"][name] = of.get("seconds", {})
        summarise(found, show=show)
        write_whole(self.given.out / "result.json", found)


def interpret(names: list[str], builders: int) -> int:
    pool = ThreadPoolExecutor(builders)
    lines = list(pool.map(lambda name: host("interpret", name, TRITON_INTERPRET="1"), names))
    print("\n".join(f"{name} {line}" for name, line in zip(names, lines, strict=True)))
    return int(any("fails" in line for line in lines))


def summarise(found: dict[str, Any], *, show: bool) -> None:
    """Add each case's loss and gain and their geometric means to a result, and print them if asked."""
    said = [f"{name}: {reason}" for name, reason in reasons(found)]
    said.append(f"{'case':<58} configs evals  own us tuned us  best us  loss  gain  benchmarked eager, compiled")
    for name, line in found["cases"].items():
        duel, program = line.get("duel", {}), found["programs"].get(line["kernel"], {})
        times = [duel.get(each) or math.nan for each in ("own", "tuned", "best")]
        loss, gain = times[1] / min(times) - 1, times[0] / times[1] - 1
        line.update({"loss": loss, "gain": gain} if not math.isnan(sum(times)) else {})
        modes = program.get(name.partition(" ")[2], {})
        counts = ", ".join(
            str(modes.get(mode, program).get("benchmarked", "fails" if program else "-"))
            for mode in ("eager", "compiled")
        )
        swept = f"{line.get('sweep', {}).get('configs', 0)}/{line.get('points', 0)}"
        numbers = " ".join(f"{each / 1e3:>8.1f}" for each in times)
        evaluated = line.get("tune", {}).get("evaluated", 0)
        said.append(f"{name[:58]:<58} {swept:>7} {evaluated:>5} {numbers} {loss:>5.1%} {gain:>5.1%}  {counts}")
    known = [line for line in found["cases"].values() if "loss" in line]
    found["summary"] = {"cases": len(known)}
    for what, worst in (("loss", max), ("gain", min)) if known else ():
        ratios = [1 + line[what] for line in known]
        found["summary"] |= {what: geometric_mean(ratios) - 1, f"worst_{what}": worst(ratios) - 1}
    if show:
        print("\n".join([*said, json.dumps(found["summary"])]))


def reasons(found: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of everything that failed, with its reason."""
    for key, value in found.items() if isinstance(found, dict) else ():
        if key == "fails":
            yield name, value
        yield from reasons(value, f"{name} {key}".strip())


if __name__ == "__main__":
    sys.exit(main())
