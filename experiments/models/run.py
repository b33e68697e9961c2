"""Capture, tune and time models of transformers and timm. Usage: run.py --out FOLDER [--minutes N]; see README.md.

Needs the GPU that the table is for, transformers and timm; for the group `others` peft and diffusers, too. Each step
is a command of gemmtune in a process of its own: captures without the GPU, which is hidden from them, then one campaign
of all products, then a bench per case. The results are saved after each step, so a second run with the same folder goes
on where the first one ended.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from math import exp, log
from pathlib import Path

from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.consumers.inductor.bench.arms import TABLE
from gemmtune.engine.consumers.inductor.capture.captured import Captured, CapturedProduct, merged
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload

HERE = Path(__file__).parent
TOKENS = {"llama": 128256, "qwen3": 151936, "bert": 30522}
EXPERTS = {"qwen3_moe": 151936, "olmoe": 50304}
FP8 = {"fp8_llama": 128256, "fp8_qwen3": 151936}
GROUPS = ("decode 16", "decode 64", "512 tokens", "2048 tokens", "training")
OTHERS = {
    "qwen3-1.7b": "--tokens 1 --batch 16 --context 2048",
    "t5-large": "--tokens 512 --grad",
    "swin-large": "--batch 8",
    "mamba2-1.3b": "--tokens 8448",
    "gemma3-1b": "--tokens 1024",
    "modernbert-large": "--tokens 256 --batch 4",
}
"""Folders in configs, with the options of their call."""
SPACES = ("cute_splitk", "triton_mm", "quack_gemm", "quack_grouped")
"""Without cute_gemv, which was the fastest for none of 25 products of 16 rows."""
TUNED = "tune: {products} products in {seconds:.0f} s, {seconds_per_product:.1f} s each"
PTXAS = Path(find_spec("torch").origin).with_name("bin") / "ptxas"
BENCH_SECONDS = 8.0
FIRST_CALL = 1.15
"""Longest first call with a table that is wanted, in torch.compile's."""


@dataclass(frozen=True)
class Case:
    """One model at one size."""

    model: str
    group: str
    inputs: tuple[str, ...]
    grad: bool = False

    @property
    def name(self) -> str:
        return f"{self.model}-{self.group.replace(' ', '-')}"

    @property
    def options(self) -> list[str]:
        if self.model in OTHERS:
            return [f"hf:configs/{self.model}", *OTHERS[self.model].split()]
        given = [option for text in self.inputs for option in ("--input", text)]
        target = f"fp8_models:{self.model.removeprefix('fp8_')}" if self.model in FP8 else f"models:{self.model}"
        return [target, *given, *(["--grad"] if self.grad else [])]


def cases() -> list[Case]:
    """Return all cases: decoding is one token of 16 or 64 sequences, and BERT's are the tokens of one text."""
    found = []
    for model, below in TOKENS.items():
        rows = [[1, 16], [1, 64]] if model == "bert" else [[16, 1], [64, 1]]
        for group, (batch, length) in zip(GROUPS, [*rows, [1, 512], [1, 2048]], strict=False):
            found.append(Case(model, group, (f"input_ids=int64[{batch},{length}]%{below}",)))
        tokens = f"int64[1,2048]%{below}"
        found.append(Case(model, "training", (f"input_ids={tokens}", f"labels={tokens}"), grad=True))
    for model, below in {**EXPERTS, **FP8}.items():
        one, many = f"int64[16,1]%{below}", f"int64[1,2048]%{below}"
        found.append(Case(model, "decode 16", (f"input_ids={one}",)))
        found.append(Case(model, "2048 tokens", (f"input_ids={many}",)))
        found.append(Case(model, "training", (f"input_ids={many}", f"labels={many}"), grad=True))
    for group, images in (("512 tokens", 3), ("2048 tokens", 10)):
        found.append(Case("vit", group, (f"bf16[{images},3,224,224]",)))
    found.append(Case("vit", "training", ("bf16[10,3,224,224]",), grad=True))
    found.append(Case("whisper", "2048 tokens", ("input_features=bf16[1,128,3000]",)))
    found.append(Case("whisper", "training", ("input_features=bf16[1,128,3000]",), grad=True))
    found += [Case(model, "others", ()) for model in OTHERS]
    tokens = "int64[1,1024]%151936"
    found.append(Case("lora", "others", (f"input_ids={tokens}", f"labels={tokens}"), grad=True))
    found.append(Case("flux", "others", ("picture=bf16[1,1024,64]", "text=bf16[1,512,4096]", "pooled=bf16[1,768]")))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the campaign, the table and the results")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further step after this time")
    parser.add_argument("--models", default="llama,qwen3,qwen3_moe,olmoe,bert,vit,whisper", help="models, with commas")
    parser.add_argument("--groups", default=",".join(GROUPS), help="groups, with commas; others has all its models")
    parser.add_argument("--arms", default="eager,compile,max-autotune,table", help="arms of the bench, with commas")
    parser.add_argument("--spaces", default=",".join(SPACES), help="spaces to search, with commas")
    parser.add_argument("--seconds", type=float, help="time of the search; by default a quarter of the minutes")
    parser.add_argument("--bench-seconds", type=float, default=BENCH_SECONDS, help="time of the rounds per case")
    parser.add_argument("--device", default="H200", help="GPU that the captures are for and that this runs on")
    parser.add_argument("--tune-kernels", action="store_true", help="give the kernels between the products rows")
    parser.add_argument("--rehearse", action="store_true", help="capture only, as a machine without a GPU can")
    given = parser.parse_args()
    models, groups = given.models.split(","), given.groups.split(",")
    models += [case.model for case in cases() if case.group == "others"]
    wanted = [case for group in groups for case in cases() if case.model in models and case.group == group]
    given.out.mkdir(parents=True, exist_ok=True)
    run = Run(given.out.resolve(), time.monotonic() + given.minutes * 60, given.arms, given.device)
    run.bench_options = ["--seconds", str(given.bench_seconds), *(["--tune-kernels"] if given.tune_kernels else [])]
    run.capture([case for case in wanted if case.name not in run.result["captures"]])
    if not given.rehearse:
        if not run.result["tune"]:
            run.tune(given.seconds or given.minutes * 15, given.spaces.split(","))
        run.bench([case for case in wanted if case.name not in run.result["benches"]])
    print("\n".join(run.summary()))
    return int(bool(run.failures))


class Run:
    """The steps, and what they found."""

    def __init__(self, out: Path, end: float, arms: str, device: str) -> None:
        self.out, self.end, self.arms, self.device = out, end, arms, device
        self.result: dict = {"captures": {}, "tune": {}, "benches": {}}
        if (out / "result.json").exists():
            self.result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        self.bench_options: list[str] = []
        self.failures: list[str] = []
        self.skipped: list[str] = []

    def capture(self, wanted: list[Case]) -> None:
        """Capture every case with the GPU hidden, one per core."""
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}

        def one(case: Case) -> None:
            command = ["capture", *case.options, "--device", self.device, "--out", str(self.out / f"{case.name}.toml")]
            seconds, report = self.gemmtune(f"capture {case.name}", command, hidden)
            if report is not None:
                self.result["captures"][case.name] = {"seconds": seconds, **report}

        began = time.monotonic()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(one, wanted))
        self.result["capture_seconds"] = self.result.get("capture_seconds", 0) + time.monotonic() - began
        self.save()

    def tune(self, seconds: float, spaces: list[str]) -> None:
        """Tune the products of all cases in one campaign."""
        products = [
            CapturedProduct(problem, problem.weight)
            for name in self.result["captures"]
            for problem in read_plan(self.out / f"{name}.toml").problems
        ]
        found, _ = merged(products, ())
        campaign = self.out / "problems.toml"
        campaign.write_text(Captured(found, [], "All cases of experiments/models.").to_toml(), encoding="utf-8")
        command = ["tune", str(campaign), "--out", str(self.out / "table"), "--seconds", str(seconds)]
        kinds = {each.problem.kind for each in found}
        served = [each for each in spaces if registry.space(each).workload in kinds]  # tune takes no other space
        command += [option for space in served for option in ("--space", space)]
        took, report = self.gemmtune("tune", [*command, "--no-report"], dict(os.environ))
        if report is not None:
            self.result["tune"] = {
                "seconds": took,
                "products": len(found),
                "seconds_per_product": took / max(1, len(found)),
            }
        self.save()

    def bench(self, wanted: list[Case]) -> None:
        """Time every case in all arms, and compare what the capture listed with what the GPU's compile lowered."""
        environment = dict(os.environ)
        if PTXAS.is_file():  # as Inductor sets it, but too late, so that max-autotune compiles nearly everything twice
            environment.setdefault("TRITON_PTXAS_PATH", str(PTXAS))
        for case in wanted:
            if time.monotonic() > self.end:
                self.skipped.append(case.name)
                continue
            file = self.out / f"{case.name}.json"
            command = [
                "bench",
                *case.options,
                "--table",
                str(self.out / "table"),
                "--arms",
                self.arms,
                "--out",
                str(file),
            ]
            seconds, report = self.gemmtune(f"bench {case.name}", [*command, *self.bench_options], environment)
            if report is not None:
                differences = differing(self.result["captures"].get(case.name, {}), report)
                self.result["benches"][case.name] = {"seconds": seconds, **report, "capture_differs": differences}
            self.save()

    def gemmtune(self, what: str, command: list[str], environment: dict) -> tuple[float, dict | None]:
        """Run a command of gemmtune; return its seconds and its JSON, or None if it failed."""
        print(f"== {what}", flush=True)
        began = time.monotonic()
        whole = [sys.executable, "-m", "gemmtune", *command, "--json"]
        done = subprocess.run(whole, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        (self.out / f"{what.replace(' ', '-')}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            self.failures.append(f"{what}: {done.stderr.strip()[-600:]}")
            return seconds, None
        return seconds, json.loads(done.stdout)

    def save(self) -> None:
        (self.out / "result.json").write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")

    def summary(self) -> list[str]:
        lines = [f"FAILED {failure}" for failure in self.failures]
        for name, capture in self.result["captures"].items():
            runs = sum(product["count"] for product in capture["products"])
            lines.append(f"{name}: {len(capture['products'])} products, {runs:g} runs, {capture['seconds']:.0f} s")
        if self.result["tune"]:
            lines.append(TUNED.format(**self.result["tune"]))
        arms_ms = " | ".join(f"{arm} ms" for arm in self.arms.split(","))
        lines += ["", f"| case | {arms_ms} | vs compile | vs fastest | first calls | misses | capture differs |"]
        ratios, first_calls = [], []
        for name, bench in self.result["benches"].items():
            arms = {arm["arm"]: arm for arm in bench["arms"]}
            timed = {arm: its["time_ns"] / 1e6 for arm, its in arms.items() if its["time_ns"]}
            times = [f"{timed[arm]:.3f}" if arm in timed else "-" for arm in self.arms.split(",")]
            ratio = (arms.get("table") or {}).get("over_compile")
            ratios += [ratio["factor"]] if ratio else []
            misses = sum(product["outcome"] == "miss" for product in bench["products"])
            factor = f"{ratio['factor']:.3f}" if ratio else "-"
            others = [its["time_ns"] for arm, its in arms.items() if arm != TABLE and its["time_ns"]]
            table_s, compile_s = (arms[arm]["first_call_seconds"] for arm in ("table", "compile"))
            first_calls.append(table_s / compile_s)
            first = f"{table_s:.1f}/{compile_s:.1f} s, {first_calls[-1]:.2f}"
            leads = f"{min(others) / arms['table']['time_ns']:.3f}" if arms["table"]["time_ns"] else "-"
            cells = [name, *times, factor, leads, first, str(misses), str(len(bench["capture_differs"]))]
            lines.append(f"| {' | '.join(cells)} |")
        if ratios:
            lines.append(f"geometric mean over torch.compile: {exp(sum(map(log, ratios)) / len(ratios)):.3f}")
        if first_calls:
            above = sum(its > FIRST_CALL for its in first_calls)
            lines.append(f"first calls: {max(first_calls):.2f} of torch.compile's at most, {above} above {FIRST_CALL}")
        lines += [f"skipped for time: {', '.join(self.skipped)}"] if self.skipped else []
        return lines


def differing(capture: dict, bench: dict) -> list[str]:
    """Return the products whose compiled occurrences in the capture are not those of the GPU's compile."""
    listed: dict[str, float] = {}
    for product in capture.get("products", ()):
        name = parse_workload(product["problem"]).name
        listed[name] = listed.get(name, 0) + product["compiled"]
    lowered: dict[str, int] = {}
    for product in bench["products"]:
        if product["outcome"] != "no problem":
            name = parse_workload(product["problem"]).name
            lowered[name] = lowered.get(name, 0) + product["count"]
    return [
        f"{name}: captured {listed.get(name, 0):g}, lowered {lowered.get(name, 0)}"
        for name in sorted({*listed, *lowered})
        if listed.get(name, 0) != lowered.get(name, 0)
    ]


if __name__ == "__main__":
    sys.exit(main())
