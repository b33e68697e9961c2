"""What makes another kernel is in the workload's name, its compared fields and the loader's hash, and nothing else."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.engine.consumers.triton.contract import source_sha256
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.store.database import Database
from gemmtune.spaces.triton import definition as definition_module
from gemmtune.spaces.triton.kind import definition_of

pytestmark = pytest.mark.slow(10)

H200 = catalogue.device("H200")
HELPERS = """
import triton
import triton.language as tl

STEP = tl.constexpr(1)

@triton.jit
def inner(x):
    return x + STEP

def twice(number):
    return number * 2

@triton.constexpr_function
def wide(number):
    return int(number) * 4

@tl.core.builtin
def shifted(x, _semantic=None):
    return x.__add__(twice(5), _semantic=_semantic)

@tl.core._aggregate
class Pair:
    x: tl.tensor

    @triton.constexpr_function
    def __init__(self, x):
        self.x = x

    @triton.jit
    def total(self):
        return self.x + 6

@triton.jit
def act(x):
    return inner(x) * 2.0
"""
KERNEL = """
import enum
import functools
import os
import torch
import triton
import triton.language as tl
import types
import helpers_of_act
import numpy
from helpers_of_act import Pair, act, shifted, wide
import unrelated_of_act

SCALE = tl.constexpr(2.0)
PLAIN = tl.constexpr(3)
DTYPE = torch.bfloat16
ACC = tl.float32
SIZES = (256, 512)
TERMS = tl.constexpr((1, (2.5, tl.int8)))
ALIGNED, WAVES, PAD = 16, 4, 0
late = []


class Mode(enum.Enum):
    ON = 1


MODE = tl.constexpr(Mode.ON)
NUMPYS = tl.constexpr(numpy.float32(8))
FEW = {128, 256}


class Limits:
    most = 1 << 20

    def least(self):
        return 1


LIMITS = Limits()
OPTIONS = types.SimpleNamespace(waves=1)


def even(unit, args):
    return args["n"] % ALIGNED == unit


@functools.cache
def per_row():
    return PAD


def shape(case):
    late.append(object())  # a memo is no constant
    return (case["n"] + per_row() + (case["n"] in FEW),)


@triton.heuristics({"EVEN": functools.partial(even, 0)})
@triton.autotune([triton.Config({"BLOCK": block}) for block in SIZES], key=["n"])
@triton.jit
def scale_kernel(out, x, n, FLAG: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = act(tl.load(x + at, mask=at < n)).to(ACC)
    value += TERMS[1][0] if MODE is not None else 0
    value = Pair(shifted(helpers_of_act.inner(value))).total() * wide(NUMPYS)
    tl.store(out + at, value * SCALE + PLAIN, mask=at < n)


class Scale:
    flag = True
    rows = 4
    per_wave = 1
    cases = {"a": {"n": 65536}}
    outputs = ("out",)
    kernel = scale_kernel

    def __init__(self):
        self.waves = 1

    def arguments(self, case, make):
        x = make.normal(shape(case), DTYPE)
        return {"out": make.empty((case["n"],), DTYPE), "x": x, "n": case["n"] * self.rows, "FLAG": self.flag}

    def grid(self, case, meta):
        waves = max(WAVES * OPTIONS.waves, LIMITS.least())
        return (min(waves * self.per_wave * self.waves, Limits.most, triton.cdiv(case["n"], meta["BLOCK"])),)

    def reference(self, case, arguments):
        return arguments["x"].double() * 4
"""
FILES = {"helpers_of_act.py": HELPERS, "unrelated_of_act.py": "VALUE = 1\n", "scale.py": KERNEL}


def write(folder, file="scale.py", old="", new=""):
    for name, text in FILES.items():
        assert name != file or old in text
        (folder / name).write_text(text.replace(old, new) if name == file else text)


def case_of(folder):
    """Return the case of a folder, which imports afresh what its file imports."""
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)
    return expand_workloads(f"triton:{folder / 'scale.py'}:Scale")[0]


@pytest.fixture(autouse=True)
def _own_path(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    write(folder)
    return case_of(folder)


EDITS = {
    "constant": ("scale.py", "tl.constexpr(2.0)", "tl.constexpr(3.0)"),
    "constant of another line": ("scale.py", "constexpr(3)", "constexpr(4)"),
    "type as constant": ("scale.py", "ACC = tl.float32", "ACC = tl.float16"),
    "imported helper": ("helpers_of_act.py", "* 2.0", "* 7.0"),
    "helper of a helper": ("helpers_of_act.py", "x + STEP", "x - STEP"),
    "constant of a helper": ("helpers_of_act.py", "constexpr(1)", "constexpr(2)"),
    "inlining of a helper": ("helpers_of_act.py", "jit\ndef act", "jit(noinline=True)\ndef act"),
    "function that is called while compiling": ("helpers_of_act.py", "(number) * 4", "(number) * 5"),
    "builtin of the user's": ("helpers_of_act.py", "__add__(twice(5)", "__add__(twice(7)"),
    "helper of a builtin": ("helpers_of_act.py", "number * 2", "number * 3"),
    "method of an aggregate": ("helpers_of_act.py", "self.x + 6", "self.x + 7"),
    "number of numpy's": ("scale.py", "numpy.float32(8)", "numpy.float32(9)"),
    "number in a tuple": ("scale.py", "(2.5,", "(3.5,"),
    "type in a tuple": ("scale.py", "tl.int8", "tl.int16"),
    "member of an enum": ("scale.py", "ON = 1", "ON = 2"),
}
"""Edits of what Triton compiles, which the loader's hash must see too."""
OTHER_EDITS = {
    "type of tensors": ("scale.py", "DTYPE = torch.bfloat16", "DTYPE = torch.float16"),
    "bool argument": ("scale.py", "flag = True", "flag = False"),
    "text argument": ("scale.py", "flag = True", "flag = 'yes'"),
    "type of an argument": ("scale.py", "flag = True", "flag = 1"),
    "integer argument": ("scale.py", "rows = 4", "rows = 8"),
    "heuristic": ("scale.py", "% ALIGNED == unit", "% ALIGNED < 1"),
    "member of a set": ("scale.py", "{128, 256}", "{128, 512}"),
    "value of a partial heuristic": ("scale.py", "partial(even, 0)", "partial(even, 1)"),
    "attribute that __init__ gives": ("scale.py", "self.waves = 1", "self.waves = 2"),
    "constant of a heuristic": ("scale.py", "ALIGNED, WAVES, PAD = 16", "ALIGNED, WAVES, PAD = 32"),
    "attribute of a class that the grid names": ("scale.py", "1 << 20", "1 << 21"),
    "method of an object that the grid names": ("scale.py", "        return 1\n", "        return 2\n"),
    "attribute of an object that the grid names": ("scale.py", "Namespace(waves=1)", "Namespace(waves=2)"),
    "constant of the grid": ("scale.py", "= 16, 4, 0", "= 16, 8, 0"),
    "constant that a helper of arguments reads": ("scale.py", "= 16, 4, 0", "= 16, 4, 8"),
    "helper of arguments": ("scale.py", 'case["n"] + per', 'case["n"] - per'),
    "attribute of the class": ("scale.py", "per_wave = 1", "per_wave = 2"),
    "option of the kernel": ("scale.py", "jit\ndef scale", "jit(debug=True)\ndef scale"),
    "configs": ("scale.py", "SIZES = (256, 512)", "SIZES = (256, 1024)"),
    "default": ("scale.py", "SIZES = (256, 512)", "SIZES = (512, 256)"),
    "key": ("scale.py", 'key=["n"]', 'key=["n", "FLAG"]'),
}


@pytest.mark.parametrize("edit", [*EDITS.values(), *OTHER_EDITS.values()], ids=[*EDITS, *OTHER_EDITS])
def test_an_edit_of_what_makes_another_kernel_makes_another_workload(tmp_path, before, edit):
    write(tmp_path, *edit)
    after = case_of(tmp_path)
    assert after.name != before.name
    assert after != before
    assert after.to_fields() != before.to_fields()
    assert (after.kernel_sha256 != before.kernel_sha256) == (edit in EDITS.values())


@pytest.mark.parametrize(
    "edit",
    [
        ("unrelated_of_act.py", "VALUE = 1", "VALUE = 2"),
        ("scale.py", "SIZES = (256, 512)", "\n\nSIZES = (256, 512)  # moved"),
        ("helpers_of_act.py", "import triton\n", "# a comment\nimport triton\n"),
        ("scale.py", "arguments['x'].double() * 4", "arguments['x'].double() * 8"),
    ],
    ids=["unused module", "moved", "comment", "reference"],
)
def test_an_edit_of_nothing_that_is_compiled_keeps_the_workload(tmp_path, before, edit):
    if edit[1] not in FILES[edit[0]]:
        edit = (edit[0], edit[1].replace("'", '"'), edit[2])
    write(tmp_path, *edit)
    after = case_of(tmp_path)
    assert (after.name, after) == (before.name, before)


def test_a_stored_time_does_not_answer_for_an_edited_class(tmp_path, before):
    write(tmp_path, "scale.py", "flag = True", "flag = False")
    edited, toolchain = case_of(tmp_path), Toolchain((("triton", "3.7.1"),))
    with Database.open(tmp_path / "times.db") as database:
        database.add(
            [
                Measurement(
                    task=Task(before, H200, "triton_kernel"),
                    config=Config({"BLOCK": 256}),
                    status=Status.OK,
                    evidence=Evidence.MEASURED,
                    protocol="graph-cold-l2",
                    toolchain=toolchain,
                    worker="host:0:1",
                    created_at="2026-11-26T10:00:00Z",
                    samples_ns=(5e3,) * 8,
                    estimate=Estimate(5e3, 4.9e3, 5.1e3),
                )
            ]
        )
        known = [
            len(database.known(Task(case, H200, "triton_kernel"), "graph-cold-l2", Evidence.MEASURED, toolchain))
            for case in (before, edited)
        ]
    assert known == [1, 0]


def test_the_hash_is_of_the_kernel_whatever_decorates_it_and_wherever_it_lies(tmp_path):
    write(tmp_path)
    kernel = definition_of(expand_workloads(f"triton:{tmp_path / 'scale.py'}:Scale")[0]).kernel
    assert source_sha256(kernel) == source_sha256(kernel.fn) == source_sha256(kernel.fn.fn)


GPU_DEPENDENT = """
import os
SEES = os.environ.get("CUDA_VISIBLE_DEVICES") != ""  # stands for torch.cuda.is_available()
"""
BUILD = """
import os, pickle
os.environ["CUDA_VISIBLE_DEVICES"] = ""
from pathlib import Path
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
task = Task(pickle.loads(Path("case.pickle").read_bytes()), catalogue.device("H200"), "triton_default")
space = registry.space("triton_default")
try:
    print(space.build(task, space.seeds(task)[0], Path(".")).key)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow(2, together="probes")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("SIZES = (256, 512)", "SIZES = (512, 1024) if SEES else (64, 128)", "BLOCK=512;"),
        ("ALIGNED == unit", "(ALIGNED if SEES else 17) == unit", "another heuristics here than where"),
        ("tl.constexpr(2.0)", "tl.constexpr(2.0 if SEES else 3.0)", "another kernel here than where triton:Scale@"),
        ("= act(", "= form(", "another kernel here than where"),
        (
            "= torch.bfloat16",
            "= torch.bfloat16 if SEES else torch.float16",
            "gives {'types': ('torch.float16', 'torch.float16')} here and",
        ),
        ("flag = True", "flag = SEES", "gives {'FLAG': 'False'} here and {'FLAG': 'True'} where triton:Scale@"),
    ],
    ids=["configs", "same text", "constant", "helper", "type of tensors", "argument"],
)
def test_a_builder_that_sees_no_gpu_builds_what_the_parent_read_or_refuses_it_by_name(
    tmp_path, monkeypatch, probe, old, new, said
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    write(tmp_path, "scale.py", old, new)
    file = tmp_path / "scale.py"
    form = f"{GPU_DEPENDENT}from helpers_of_act import inner\nform = act if SEES else inner\n"
    file.write_text(file.read_text().replace("import unrelated_of_act", form))
    (tmp_path / "case.pickle").write_bytes(pickle.dumps(case_of(tmp_path)))
    (tmp_path / "build.py").write_text(BUILD)
    done = probe(tmp_path / "build.py", tmp_path)
    assert said in done.stdout, done.stdout + done.stderr[-800:]
    if said != "BLOCK=512;":
        assert "asks for a GPU on import, which builders do not see" in done.stdout


def test_a_file_that_was_edited_since_is_refused(tmp_path):
    write(tmp_path)
    before = case_of(tmp_path)
    definition_module.module_of.cache_clear()
    definition_module.load_definition.cache_clear()
    write(tmp_path, "scale.py", 'case["n"],), DTYPE)', 'case["n"],), torch.float16)')
    with pytest.raises(ProblemError, match="gives Scale another arguments here than where triton:Scale@"):
        registry.space("triton_kernel").params(Task(before, H200, "triton_kernel"))


def test_the_file_of_a_case_travels_with_it_and_its_parts_do_not_count(before):
    assert Path(before.file).name == "scale.py"
    known = {"kernel", "arguments", "grid", "heuristics", "hooks", "configs", "reached"}
    assert {name for name, _ in before.parts} == known
