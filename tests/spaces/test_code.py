"""Kernels of spaces as programs: Triton's interpreter runs them on the CPU, and they check themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.api.code.forms import CodeForm, _Writer
from gemmtune.engine.api.code.sass import sass_of
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads

pytest.importorskip("triton")
pytestmark = pytest.mark.slow(6)

SCALE = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]

@triton.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["out"])
@triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})
@triton.jit
def scale_kernel(out, x, factor, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (at < n) | EVEN
    value = tl.load(out + at, mask=mask) + tl.load(x + at, mask=mask) * factor
    tl.store(out + at, value, mask=mask)

class Scale:
    kernel = scale_kernel
    params = {"num_warps": (1, 4)}
    cases = {"small": {"n": 1000}}
    outputs = ("out",)
    def arguments(self, case, make):
        size = (case["n"],)
        out, x = make.empty(size, torch.float32), make.normal(size, torch.float32)
        return {"out": out, "x": x, "factor": 2.0, "n": case["n"]}
    def grid(self, case, meta):
        return triton.cdiv(case["n"], meta["BLOCK"])
    def reference(self, case, arguments):
        return arguments["x"].double() * 2
"""
TILE = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 2, "num_warps": 2}
GEMMS = (
    "33x64x96:fp16:nt:epilogue=add(row).relu.mul(matrix[fp32,t])+x:dynamic_m=true",
    "2x32x48x64:fp16:nn:baddbmm:lda=72:alpha=0.5",
)
RUN = """
import gc, runpy, sys
for file in sys.argv[1:]:
    try:
        runpy.run_path(file, run_name="__main__")
    except SystemExit as end:
        print(end)
gc.freeze()  # nothing to find at the end, among all that torch imports
"""


def task_of(text: str, space: str) -> Task:
    return Task(expand_workloads(text)[0], catalogue.device("H200"), space)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("code")


@pytest.fixture(scope="module")
def codes(folder):
    """Code of two GEMMs and of an own kernel, which leave their binaries in the folder."""
    (folder / "scale.py").write_text(SCALE, encoding="utf-8")
    own = task_of(f"triton:{folder / 'scale.py'}:Scale", "triton_kernel")
    wanted = [(task_of(text, "triton_mm"), Config(TILE)) for text in GEMMS]
    wanted.append((own, Config({"BLOCK": 128, "num_warps": 4, "num_stages": 3})))
    return [registry.space(task.space).code(task, config, folder) for task, config in wanted]


def test_the_programs_of_kernels_check_what_they_launch(codes, tmp_path):
    import triton

    gemm, batched, own = (code.script for code in codes)
    wrong = gemm.replace("acc += tl.dot", "acc -= tl.dot")
    assert wrong != gemm
    version, told = tuple(map(int, triton.__version__.split(".")[:2])), {own: ["out"]}
    if version >= (3, 7):  # the interpreter before takes no computed range with today's numpy
        told |= {wrong: ["out", "the result is wrong"], gemm: ["out", "out2"]}
    if (3, 7) <= version < (3, 9):  # and that of 3.9 at a mask of tensors and a scalar, as a batch has
        told[batched] = ["out"]
    files = [tmp_path / f"kernel{number}.py" for number in range(len(told))]
    for file, script in zip(files, told, strict=True):
        file.write_text(script, encoding="utf-8")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *files], env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    lines = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert lines == [line for its in told.values() for line in its], done.stdout


def test_the_ptx_is_of_the_tables_gpu_and_of_the_kernel_that_the_program_launches(codes):
    assert [code.kernels for code in codes] == [("triton_",), ("triton_bmm",), ("scale_kernel",)]
    for code in codes:
        assert ".target sm_90a" in code.ptx
        assert f".entry {code.kernels[0]}(" in code.ptx


def test_the_code_is_of_the_config_that_the_row_has(codes):
    assert f"BLOCK_N : tl.constexpr = {TILE['BLOCK_N']}\n" in codes[0].script
    assert "num_warps=2, num_stages=2)" in codes[0].script
    assert 'CONFIG = triton.Config({"BLOCK": 128}, num_warps=4, num_stages=3)' in codes[2].script
    assert ".reqntid 64\n" in codes[0].ptx  # threads: two warps
    assert ".reqntid 128\n" in codes[2].ptx


def test_every_cubin_of_a_file_is_disassembled_also_one_that_is_data_of_another(codes, folder):
    cubins = [path.read_bytes() for path in folder.glob("*.cubin*")]
    text = sass_of(b"\x7fELF\x02 of the host" + bytes(40) + b"and".join(cubins) + b"rest")
    assert len(cubins) == 3
    assert all(f"\n.text.{code.kernels[0]}:\n" in text for code in codes)
    assert sass_of(b"no code") == ""


def test_a_kernel_of_another_compiler_tells_the_forms_that_it_has():
    grouped = task_of("grouped:rows:m256:g4:n256:k128:bf16:nt", "triton_grouped")
    config = registry.space("triton_grouped").seeds(grouped)[0]
    found = _Writer()((grouped, config, CodeForm.TRITON))
    assert (found.text, found.others, found.fault) == ("", (CodeForm.PTX, CodeForm.SASS), "")
    library = task_of("16x256x128:bf16:nt", "aten")
    found = _Writer()((library, Config({}), CodeForm.SASS))
    assert (found.text, found.others, found.fault) == ("", (), "")


def test_a_config_that_does_not_build_is_told_with_its_reason():
    task = task_of("16x16x8192:bf16:nt", "decompose_k")
    assert "k_split 7 does not divide" in _Writer()((task, Config({"k_split": 7}), CodeForm.SASS)).fault
