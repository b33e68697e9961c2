"""Parts of one kernel's result, in the order in which they are made; each is kept in a file of the kernel's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import gemmtune as gt
from gemmtune.engine.execution.hosts import Hosts
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.search.enumeration import enumerate_space
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

HERE = Path(__file__).parent
FILES = sorted((HERE.parent / "kernel-census/adapters").glob("tuned_*.py"))
SPACE = "triton_kernel"
PARTS = ("own", "sweep", "tune", "duel", "program")
LEAST = 30
"""Evaluations of a search where a tenth of its sweep is less."""
MOST = 900
"""Configs of a sweep per case."""


def adapters() -> dict[str, str]:
    """Return FILE.py:CLASS of each adapter by the class's name, without importing it."""
    return {
        line[6:].partition("(")[0]: f"{file}:{line[6:].partition('(')[0]}"
        for file in FILES
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("class ")
    }


def host(verb: str, name: str, *options: str, seconds: float | None = None, **environment: str) -> dict[str, Any]:
    """Run host.py in a process of its own and return what its last line says, or why it fails."""
    command = [sys.executable, str(HERE / "host.py"), verb, adapters()[name], *options]
    given = {**os.environ, **environment}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=given, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"fails": f"over {seconds:.0f} s"}
    if done.returncode:
        return {"fails": " / ".join(done.stderr.strip().splitlines()[-3:])[-600:] or f"status {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def unfinished(found: dict[str, Any]) -> set[str]:
    """Return the parts that a kernel's result lacks; those that fail are not tried again."""
    if not found.get("cases"):
        return set() if found.get("failed") else set(PARTS)
    return set(PARTS) - found.get("seconds", {}).keys() - found.get("failed", {}).keys()


class Kernel:
    """One kernel's parts with what they found, which a later run goes on with."""

    def __init__(self, out: Path, builders: int, name: str) -> None:
        out.mkdir(exist_ok=True)
        self.out, self.builders, self.name = out, builders, name
        file = out / "result.json"
        self.result: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self.lines: dict[str, dict[str, Any]] = self.result.setdefault("cases", {})
        self.text = f"triton:{adapters()[name]}"
        try:
            self.cases = expand_workloads(self.text)
        except Exception as error:
            self.failed("class", error)
            raise

    def measure(self) -> None:
        """Run the parts that are missing; one that was stopped goes on from the measurements in its database."""
        missing = unfinished(self.result)
        for part in filter(missing.__contains__, PARTS):
            started = time.monotonic()
            try:
                getattr(self, part)()
            except Exception as error:  # the other parts say what they can
                self.failed(part, error)
            self.result.setdefault("seconds", {})[part] = round(time.monotonic() - started, 1)
            self.save()

    def failed(self, what: str, error: Exception) -> None:
        """Keep why a part fails, for the table."""
        traceback.print_exception(error)
        self.result.setdefault("failed", {})[what] = {"fails": f"{type(error).__name__}: {error}"[:600]}
        self.save()

    def save(self) -> None:
        write_whole(self.out / "result.json", self.result)

    def line(self, case: Any) -> dict[str, Any]:
        return self.lines.setdefault(f"{self.name} {text_of(case.sizes)}", {"kernel": self.name})

    def own(self) -> None:
        """Let the kernel's autotuner choose, with the builds that a run made beforehand."""
        said = host("own", self.name)
        for case in self.cases:
            self.line(case)["own"] = said.get(text_of(case.sizes), {"fails": said.get("fails", "no launch")})

    def sweep(self) -> None:
        """Measure every config of every case, at most `MOST`."""
        for case in self.cases:
            feasible = enumerate_space(registry.space(SPACE), Task(case, present_device(), SPACE)).feasible
            self.line(case)["points"] = min(MOST, len(feasible))
        database = self.out / "sweep.db"
        gt.tune(
            [self.text], sampler="exhaustive", budget=MOST, batch=64, database=database, builders=self.builders,
            report=False,
        )  # fmt: skip
        with Database.open(str(database), read_only=True) as store:
            for case in self.cases:
                measured = [m for m in store.measurements(space=SPACE) if m.task.problem.name == case.name]
                final = next((f for f in reversed(store.finals()) if f.problem.name == case.name), None)
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
        """Tune both cases in one campaign with a tenth of the smaller sweep's evaluations each, at least `LEAST`."""
        budget = max(LEAST, min(self.line(case).get("points", 0) for case in self.cases) // 10)
        gt.tune([self.text], budget=budget, out=self.out / "tuned", builders=self.builders)
        kernels = json.loads((self.out / "tuned/triton/triton_table.json").read_text())["kernels"]
        rows = {row["facts"]["problem"]: row["config"] for kernel in kernels for row in kernel["rows"]}
        with Database.open(str(self.out / "tuned/measurements.db"), read_only=True) as store:
            for case in self.cases:
                spent = sum(m.task.problem.name == case.name for m in store.measurements(space=SPACE))
                line = {"budget": budget, "evaluated": spent, "config": rows.get(case.name)}
                self.line(case)["tune"] = line

    def duel(self) -> None:
        """Time the sweep's best, the tuned row and the autotuner's choice of each case in rounds of one final."""
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

    def program(self) -> None:
        """Launch the kernel with the exported table, eager and compiled, and without it where torch fails."""
        said = host("program", self.name, "--table", str(self.out / "tuned/triton"))
        if '"fails"' in json.dumps(said):
            said["without a table"] = host("program", self.name)
        self.result["programs"] = {self.name: said}


def write_whole(file: Path, found: dict[str, Any]) -> None:
    """Write a result so that a kill at any time leaves the old or the new one."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    part.replace(file)


def time_of(final: Any, config: Any) -> float | None:
    return next((each.estimate.time_ns for each in final.finalists if each.config == config), None)


def text_of(sizes: Any) -> str:
    return ",".join(f"{name}={value}" for name, value in sizes.items())
