"""Tune both examples of docs/own-kernel.md, sweep them, load a table, and tune faulty kernels.

    python experiments/own-kernel/run.py --out FOLDER --minutes 3
    python experiments/own-kernel/run.py --out FOLDER --phases table,faults

A phase keeps what others left in FOLDER/result.json. Without a GPU, `gemmtune check` builds a few configs of a kernel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections import Counter
from pathlib import Path

import torch
import triton
from triton.runtime.autotuner import Autotuner

import gemmtune as gt
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "docs/examples/own_kernel"
KERNELS = (f"triton:{EXAMPLES / 'softmax.py'}:Softmax", f"triton:{EXAMPLES / 'int4_gemm.py'}:Int4Gemm")
FAULTY = f"triton:{HERE.parents[1] / 'tests/engine/execution/faulty_kernel.py'}"
SPACE = "triton_kernel"
PHASES = ("tune", "sweep", "table", "faults")


def module_of(file: Path):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def feasible(case, device):
    return list(feasible_configs(registry.space(SPACE), Task(case, device, SPACE)))


def tune(kernel: str, out: Path) -> dict:
    """Tune a kernel's cases with a tenth of their configs each; return what became of each case.

    Each case is a campaign of its own, since a campaign has one budget for all its tasks. A case learns from those
    before it.
    """
    device, database, lines = present_device(), out / "measurements.db", {}
    totals = {case: len(feasible(case, device)) for case in expand_workloads(kernel)}
    for number, (case, total) in enumerate(totals.items()):
        started, tenth = time.monotonic(), -(-total // 10)
        folder = out / case.kernel / str(number)
        (row,) = gt.tune([case], budget=tenth, database=database, out=folder, report=False).rows
        with Database.open(str(database), read_only=True) as store:
            evaluated = len(list(store.measurements(case, space=SPACE)))
        lines[case.name] = {
            "tuned": choice_of(row),
            "in_seconds": round(time.monotonic() - started, 1),
            "configs": total,
            "tenth": tenth,
            "evaluated": evaluated,
        }
        print(case.name, json.dumps(lines[case.name]), flush=True)
    return lines


def choice_of(row) -> dict | None:
    """Return the fastest config of the kernel in a row; None if only its default is there."""
    best = next((choice for choice in row.choices if choice.space == SPACE), None)
    return None if best is None else {"config": dict(best.config), "time_ns": best.time_ns}


def sweep(kernel: str, out: Path, tuned: dict, seconds: float) -> None:
    """Measure every config of each case, and add the tuned config's loss to its line."""
    database = out / "measurements.db"
    for case in expand_workloads(kernel):
        line, started = tuned[case.name], time.monotonic()
        swept = gt.tune(
            [case], sampler="exhaustive", budget=line["configs"], seconds=seconds, batch=64, database=database
        )
        (whole,) = swept.rows
        with Database.open(str(database), read_only=True) as store:
            found = list(store.measurements(case, space=SPACE))
            final = store.finals(case)[-1]
        times = {f.config: f.estimate.time_ns for f in final.finalists if f.task.space == SPACE}
        screened = {m.config: m.estimate.time_ns for m in found if m.status is Status.OK}
        config = Config(line["tuned"]["config"]) if line["tuned"] else None
        reached, fastest = times.get(config), min(times.values())
        line |= {
            "sweep_seconds": round(time.monotonic() - started, 1),
            "swept": len(found),
            "statuses": dict(Counter(m.status.value for m in found)),
            "best": dict(min(times, key=lambda each: times[each])),
            "best_ns": fastest,
            "default_ns": whole.baseline.time_ns if whole.baseline else None,
            # In one final with the sweep's best if it is among its finalists, else by the screened times.
            "loss": None
            if config is None
            else (reached or screened[config]) / (fastest if reached else min(screened.values())) - 1,
            "by": "final" if reached else "screening",
            "in_tie_band": config is not None and config in whole.tie_band,
        }
        print(case.name, json.dumps(line), flush=True)


def load_table(kernel: str, out: Path) -> dict:
    """Tune all cases into one table, load it, and launch the kernel as production does."""
    result = gt.tune(kernel, budget=16, database=out / "measurements.db", out=out / "table", report=False)
    loader = module_of(out / "table/triton/gemmtune_triton.py")
    benchmarked: list[object] = []
    bench = Autotuner._bench  # Triton has a listener from 3.9 on alone
    Autotuner._bench = lambda self, *given, **named: benchmarked.append(named["config"]) or bench(self, *given, **named)
    lines = {"rows": len(result.rows)}
    for name, loaded in (("with_table", True), ("without", False)):
        sys.modules.pop("softmax", None)
        module = module_of(EXAMPLES / "softmax.py")
        if loaded:
            lines["loaded"] = loader.load(module.softmax_kernel)
        benchmarked.clear()
        for rows, columns in ((32768, 1024), (30000, 1024), (4096, 8192)):
            x = torch.randn((rows, columns), device="cuda").bfloat16()
            out_tensor = torch.empty_like(x)
            module.softmax_kernel[lambda meta, rows=rows: (triton.cdiv(rows, meta["ROWS"] * meta["STEPS"]),)](
                out_tensor, x, rows, columns, COLUMNS=triton.next_power_of_2(columns)
            )
            error = (out_tensor.double() - torch.softmax(x.double(), 1)).norm() / torch.softmax(x.double(), 1).norm()
            lines[f"{name}_error"] = max(lines.get(f"{name}_error", 0.0), float(error))
        lines[f"{name}_benchmarked"] = len(benchmarked)
    Autotuner._bench = bench
    sources = json.loads((out / "table/triton/triton_table.json").read_text())
    sources["kernels"][0]["source_sha256"] = "0" * 64
    edited = out / "edited.json"
    edited.write_text(json.dumps(sources))
    try:
        loader.load(module.softmax_kernel, edited)
        lines["refuses_another_source"] = False
    except ValueError as error:
        lines["refuses_another_source"] = str(error)
    return lines


def faults(name: str, out: Path) -> dict:
    """Tune every config of a faulty class; return what became of each."""
    started = time.monotonic()
    result = gt.tune(f"{FAULTY}:{name}", sampler="exhaustive", budget=64, database=out / "faults.db")
    with Database.open(str(out / "faults.db"), read_only=True) as store:
        found = [m for m in store.measurements() if m.task.problem.kernel == name and m.task.space == SPACE]
    return {
        "seconds": round(time.monotonic() - started, 1),
        "statuses": {
            f"FAULT={m.config['FAULT']} BLOCK={m.config['BLOCK']}": f"{m.status}: {m.reason}"[:150] for m in found
        },
        "rows": [row.choices[0].space for row in result.rows],
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, required=True, help="folder of the results")
    options.add_argument("--minutes", type=float, default=3.0, help="time for the sweeps, altogether")
    options.add_argument("--phases", default=",".join(PHASES), help=f"some of {','.join(PHASES)}, in this order")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    phases = given.phases.split(",")
    if unknown := [each for each in phases if each not in PHASES]:
        raise SystemExit(f"no phase {unknown[0]!r}; known: {', '.join(PHASES)}")
    result = given.out / "result.json"
    found: dict = json.loads(result.read_text()) if result.is_file() else {}
    found |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    if "tune" in phases:
        found["cases"] = {name: line for kernel in KERNELS for name, line in tune(kernel, given.out).items()}
        save(found, given.out)
    for kernel in KERNELS if "sweep" in phases else ():
        sweep(kernel, given.out, found["cases"], 60 * given.minutes / len(found["cases"]))
        save(found, given.out)
    if "table" in phases:
        found["table"] = load_table(KERNELS[0], given.out)
        save(found, given.out)
    for name in ("Copy", "Endless") if "faults" in phases else ():
        found[name] = faults(name, given.out)
        save(found, given.out)
    print(json.dumps({name: found[name] for name in ("table", "Copy", "Endless") if name in found}, indent=1))
    print(f"\n{'case':<52} configs evaluated default us  tuned us  best us   loss  by")
    for name, line in (found.get("cases", {}) if "sweep" in phases else {}).items():
        tuned = line["tuned"]["time_ns"] if line["tuned"] else float("nan")
        print(
            f"{name:<52} {line['configs']:>7} {line['evaluated']:>9} {(line['default_ns'] or 0) / 1e3:>10.2f} "
            f"{tuned / 1e3:>9.2f} {line['best_ns'] / 1e3:>8.2f} {(line['loss'] or 0):>6.2%}  {line['by']}"
        )


def save(found: dict, out: Path) -> None:
    (out / "result.json").write_text(json.dumps(found, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
