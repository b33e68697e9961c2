"""Kernels in the forms that programs have, tuned by a table and launched through Triton's own decorators."""

import importlib.util
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from gemmtune.engine.consumers.triton.exporter import TritonExporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.spaces.triton.kind import definition_of

H200 = catalogue.device("H200")
TUNED = Config({"BLOCK": 512, "num_warps": 8, "num_stages": 3})
KERNEL = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({{"BLOCK": block}}) for block in (128, 256)]
{before}

{decorators}
@triton.jit
def scale(out, x, n, {parameters}BLOCK: tl.constexpr{last}):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

class Scale:
    kernel = scale
    params = {{"BLOCK": (512,), "num_warps": (8,)}}
    cases = {cases}
    outputs = ("out",)
    {members}
    def arguments(self, case, make):
        return {{"out": make.empty((case["n"],)), "x": make.normal((case["n"],)), "n": case["n"], {given}}}
    def grid(self, case, meta):
        return (triton.cdiv(case["n"], meta["BLOCK"]),)
    def reference(self, case, arguments):
        return arguments["x"].double() * 2
"""


def write(folder, **change):
    """Return the cases of a class in a new file, with its parts changed."""
    parts = {
        "before": "",
        "decorators": "@triton.autotune(CONFIGS, key=['n'])",
        "parameters": "",
        "last": "",
        "given": "",
    }
    parts |= {"cases": '{"small": {"n": 4096}, "large": {"n": 65536}}', "members": ""}
    file = folder / f"scale_{len(list(folder.iterdir()))}.py"
    file.write_text(KERNEL.format(**parts | change))
    return expand_workloads(f"triton:{file}:Scale")


def row(case, *configs, space="triton_kernel", toolchain=None):
    """Return a row of configs, each with its time in ns or 9,000 ns."""
    timed = [each if isinstance(each, tuple) else (each, 9e3) for each in configs or (TUNED,)]
    toolchain = toolchain or f"triton {version('triton')}"
    choices = tuple(
        Choice(space, config, ns, ns, ns, 32, Evidence.MEASURED, toolchain, "graph-cold-l2") for config, ns in timed
    )
    return Row(case, choices, None, 0.0, (timed[0][0],), regret_bound=0.001)


def export(folder, rows):
    """Write the exported files of rows and return their loader."""
    for name, text in TritonExporter().export(Table(H200, tuple(rows), "latency")).items():
        (folder / name).write_text(text, encoding="utf-8")
    return module_of(folder / "gemmtune_triton.py")


def module_of(path):
    """Return a freshly imported file."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_{len(sys.modules)}", path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


class Launches:
    """Launches of a kernel through its real decorators; there is no GPU, so that the last one alone is replaced."""

    def __init__(self, monkeypatch, kernel):
        import triton

        self.launched, self.benchmarked = [], []
        layer = kernel
        while not isinstance(layer, triton.runtime.JITFunction):
            if isinstance(layer, triton.runtime.Autotuner):
                monkeypatch.setattr(layer, "_do_bench", lambda *_, **__: self.benchmarked.append(1) or [1.0])
                self.tuner = layer
            layer = layer.fn
        self.kernel, self.jit = kernel, layer
        monkeypatch.setattr(layer, "run", lambda *_, **given: self.launched.append(given))

    def __call__(self, *arguments, **named):
        """Launch, and return the BLOCK that ran."""
        self.kernel[(1,)](*arguments, **named)
        return self.launched[-1]["BLOCK"]

    def of(self, case):
        """Launch what a case's class gives: tensors and numbers by position, constexpr arguments by name."""
        given = definition_of(case).tensors(case.sizes)
        constant = {param.name for param in self.jit.params if param.is_constexpr}
        named = {name: value for name, value in given.items() if name in constant}
        return self(*(value for name, value in given.items() if name not in constant), **named)


@pytest.fixture
def forms(tmp_path, monkeypatch):
    """Functions of this file, with the test's folder and its patches."""
    return SimpleNamespace(
        write=lambda **change: write(tmp_path, **change),
        export=lambda rows: export(tmp_path, rows),
        launches=lambda kernel: Launches(monkeypatch, kernel),
        kernel_of=lambda case: definition_of(case).kernel,
        row=row,
        module_of=module_of,
        tuned=TUNED,
    )
