"""Own Triton kernels: classes, builds without a GPU, and the examples run by Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.engine.campaign.execute import _with_searched
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import exhaustive_search
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads, parse_workload
from gemmtune.engine.search.enumeration import enumerate_space, feasible_configs
from gemmtune.engine.testing import space_conformance
from gemmtune.spaces.triton.definition import load_definition
from gemmtune.spaces.triton.kind import default_tolerance
from gemmtune.spaces.triton_kernel import TritonDefaultSpace, TritonKernelSpace

pytestmark = pytest.mark.slow(15)

EXAMPLES = Path(__file__).parents[2] / "docs/examples/own_kernel"
SOFTMAX, INT4 = f"triton:{EXAMPLES / 'softmax.py'}:Softmax", f"triton:{EXAMPLES / 'int4_gemm.py'}:Int4Gemm"
H200 = catalogue.device("H200")
KERNEL = """
import torch
import triton
import triton.language as tl

{decorators}
@triton.jit
def copy_kernel(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

class Copy:
    kernel = copy_kernel
    params = {{"BLOCK": (64, 128)}}
    cases = {{"one": {{"n": 1000}}}}
    outputs = ("out",)
    def arguments(self, case, make):
        return {{"out": make.empty((case["n"],)), "x": make.normal((case["n"],)), "n": case["n"]}}
    def grid(self, case, meta):
        return (triton.cdiv(case["n"], meta["BLOCK"]),)
    def reference(self, case, arguments):
        return arguments["x"]
{members}
"""


def autotuned(more="", *, kwargs="{'BLOCK': 64}", config=""):
    return f"@triton.autotune([triton.Config({kwargs}, {config})], key=['n'], {more})"


def arguments_with(extra):
    """Return `arguments` of the class with one other argument."""
    given = "{'out': make.empty((1000,)), 'x': make.normal((1000,)), 'n': 1000, " + extra + "}"
    imports = "from triton.tools.tensor_descriptor import TensorDescriptor"
    return f"def arguments(self, case, make):\n    {imports}\n    return {given}".replace(
        "DESCRIPTOR", "TensorDescriptor.from_tensor"
    )


def first(text, space="triton_kernel"):
    return Task(expand_workloads(text)[0], H200, space)


def user_class(folder, *, decorators="", members=""):
    file = folder / "copies.py"
    file.write_text(
        KERNEL.format(decorators=decorators, members="\n".join(f"    {line}" for line in members.split("\n")))
    )
    return f"triton:{file}:Copy"


@pytest.mark.parametrize("kind", [TritonKernelSpace, TritonDefaultSpace])
@pytest.mark.parametrize("text", [SOFTMAX, INT4])
def test_the_spaces_of_the_examples_keep_the_contract(monkeypatch, kind, text):
    monkeypatch.setattr(kind, "examples", tuple((case.name, "H200") for case in expand_workloads(text)))
    for check in space_conformance.CHECKS:
        if check is not space_conformance.describes_itself_lightly:  # a user's file imports Triton
            check(kind)


def test_configs_of_an_autotuner_are_seeds_and_its_first_is_the_default():
    task = first(SOFTMAX)
    seeds = registry.space("triton_kernel").seeds(task)
    assert [(seed["STEPS"], seed["num_warps"]) for seed in seeds] == [(1, 4), (1, 8), (8, 8), (8, 16)]
    assert Config.from_json(task.problem.to_fields()["default"]) == seeds[0]


def test_the_default_of_a_class_is_a_seed_before_those_of_the_autotuner(tmp_path):
    members = "default = {'BLOCK': 128, 'num_warps': 4, 'num_stages': 3}"
    task = first(user_class(tmp_path, decorators=autotuned(), members=members))
    assert [seed["BLOCK"] for seed in registry.space("triton_kernel").seeds(task)] == [128, 64]


def test_the_binary_of_the_default_says_the_values_that_any_of_its_launches_takes(tmp_path):
    searched, default = registry.space("triton_kernel"), registry.space("triton_default")
    task = first(SOFTMAX, "triton_default")
    built = default.build(task, Config({}), tmp_path)
    seed = searched.seeds(first(SOFTMAX))[0]
    assert built.key == searched.artifact_key(first(SOFTMAX), seed)  # one binary for both spaces
    assert Config.from_json(str(dict(built.launch)["config"])) == seed


def test_a_result_is_of_the_case_whose_default_builds():
    case = first(SOFTMAX).problem
    building = replace(case, default=Config(registry.space("triton_kernel").seeds(first(SOFTMAX))[1]).json)
    space, task = registry.space("triton_default"), Task(building, H200, "triton_default")
    plan = _with_searched(Plan(problems=(case,), spaces=("triton_kernel",)), [exhaustive_search(task, space, ())])
    assert plan.problems == (building,) != (case,)


def test_a_class_rejects_configs_with_its_reason():
    found = enumerate_space(registry.space("triton_kernel"), Task(expand_workloads(SOFTMAX)[1], H200, "triton_kernel"))
    assert found.points == 320
    assert found.rejections == {"check": 320 - len(found.feasible)}
    assert "elements per thread > 256" in found.examples["check"]


def test_builds_need_no_gpu_and_state_their_resources(tmp_path):
    for text in (SOFTMAX, INT4):
        task, space = first(text), registry.space("triton_kernel")
        config = next(feasible_configs(space, task))
        built = space.build(task, config, tmp_path)
        assert Path(built.path).read_bytes()[:4] == b"\x7fELF"
        assert built.resources.threads == 32 * config.integer("num_warps")
        assert built.key == space.artifact_key(task, config)


def test_one_binary_serves_the_sizes_that_triton_compiles_alike(tmp_path):
    case, space = first(INT4).problem, registry.space("triton_kernel")
    config = Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2})
    sizes = (16, 48, 17, 1)
    tasks = [Task(case.resized(size), H200, "triton_kernel") for size in sizes]
    keys = [space.artifact_key(task, config) for task in tasks]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    built = [Path(space.build(task, config, tmp_path).path).read_bytes() for task in tasks]
    assert built[0] == built[1]
    assert built[3] not in built[:3]  # Triton 3.6 compiles 16 and 17 alike, later ones do not


def test_an_edited_file_is_another_workload(tmp_path):
    before: Any = expand_workloads(user_class(tmp_path))[0]
    other = tmp_path / "other"
    other.mkdir()
    after = expand_workloads(user_class(other, members="pass").replace("copies", "copies"))[0]
    assert before == after
    file = other / "edited.py"
    file.write_text((other / "copies.py").read_text().replace("mask=at < n)\n", "mask=at < n, other=0)\n", 1))
    file.write_text(file.read_text().replace("tl.load(x + at, mask=at < n)", "tl.load(x + at, mask=at < n) + 0"))
    edited: Any = expand_workloads(f"triton:{file}:Copy")[0]
    assert edited.source != before.source
    assert parse_workload(before.name) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": "params = {'TILE': (1, 2)}"}, "params has 'TILE', which is no argument of the kernel"),
        ({"members": "params = {}"}, "params is no dict of values by name"),
        ({"members": "cases = {'one': {'n': 0}}"}, "a size that is no integer above 0"),
        ({"members": "outputs = ('y',)"}, "outputs names 'y', which is no tensor of arguments"),
        ({"members": "nearest = 'm'"}, "nearest='m' is no size"),
        ({"members": "def arguments(self, case, make):\n    return {'z': 1}"}, "arguments has 'z'"),
        ({"members": "def arguments(self, case, make):\n    return 1 / 0"}, "arguments failed: ZeroDivisionError"),
        (
            {"members": "def arguments(self, *_): raise SystemExit(0)"},
            r"arguments failed: SystemExit: 0 \(.*/copies.py, l",
        ),
        (
            {"members": "def __init__(self): raise SystemExit(0)"},
            r"__init__ failed: SystemExit: 0 \(.*/copies.py, line",
        ),
        (
            {"members": "kernel = property(lambda self: exit(0))"},
            r"describes no kernel: SystemExit: 0 \(.*/copies.py, l",
        ),
        ({"decorators": "raise SystemExit(0)\n"}, r"cannot be imported: SystemExit: 0 \(.*/copies.py, line 6\)"),
        ({"members": "default = {'BLOCK': 7}"}, "BLOCK=7, which is none of params"),
        ({"members": "kernel = 3"}, "kernel is not decorated by triton.jit"),
        ({"members": "kernel = print"}, "kernel is not decorated by triton.jit"),
        ({"members": "outputs = (0,)"}, "outputs is no list of names of arguments"),
        ({"members": "outputs = ('n',)"}, "outputs names 'n', which is no tensor of arguments"),
        ({"members": "del reference"}, "has no reference; needed: kernel, cases, arguments, grid, outputs, reference"),
        ({"members": "params = (64, 128)"}, "params is no dict of values by name"),
        ({"members": "params = {'BLOCK': ()}"}, r"params\['BLOCK'\] is no list of numbers, texts, None and types"),
        (
            {"members": "params = {'BLOCK': ((1, 2),)}"},
            r"params\['BLOCK'\] is no list of numbers, texts, None and types",
        ),
        ({"members": "cases = {}"}, "cases is no dict of sizes by name"),
        ({"members": "cases = [1]"}, "cases is no dict of sizes by name"),
        ({"members": "cases = {'one': 3}"}, r"cases\['one'\] is no dict of sizes"),
        ({"members": "cases = {'one': {}}"}, "a size that is no integer above 0"),
        ({"members": "cases = {'one': {'n': True}}"}, "a size that is no integer above 0"),
        ({"members": "cases = {'one': {'weight': 2}}"}, "a size that is no integer above 0"),
        ({"members": "cases = {'one': {'n': 1, 'weight': -4}}"}, "has weight=-4, which is no number above 0"),
        (
            {"members": "cases = {'one': {'n': 1, 'weight': float('nan')}}"},
            "has weight=nan, which is no number above 0",
        ),
        ({"members": "def arguments(self, case, make): return 3"}, "arguments returned int, not a dict"),
        ({"members": "flops = lambda self, case: -1"}, "flops returned something else than an integer from 0 on"),
        ({"members": "bytes = lambda self, case: 2**63"}, "bytes returned something else than an integer from 0 on"),
        ({"members": "flops = lambda self, case: 1.0"}, "flops returned something else than an integer from 0 on"),
        ({"members": "outputs = property(lambda self: 1 / 0)"}, "describes no kernel: ZeroDivisionError"),
        ({"members": "restore = ('y',)"}, "restores 'y', which is no argument of the kernel"),
        ({"decorators": autotuned("post_hook=print")}, "has a post_hook, which gemmtune does not run"),
        ({"decorators": f"{autotuned()}\n{autotuned()}"}, "has two autotuners: leave one"),
        ({"decorators": autotuned(config="ir_override='x.ttir'")}, "has ir_override, which no table can hold"),
        (
            {"decorators": "@triton.heuristics({'n': lambda args: args['nowhere']})\n" + autotuned()},
            "the heuristic of n failed: KeyError: 'nowhere'",
        ),
        (
            {"decorators": autotuned("prune_configs_by={'early_config_prune': lambda configs, args: 1 / 0}")},
            "early_config_prune failed: ZeroDivisionError",
        ),
        *(
            ({"members": arguments_with(extra)}, message)
            for extra, message in (
                (
                    "'n': (1, 2)",
                    "gives 'n' a tuple, which no table can hold: give its values as arguments of their own",
                ),
                ("'n': copy_kernel", "gives 'n' a JITFunction, .*: give a text or number that the kernel chooses"),
                ("'n': object()", "gives 'n' a object, .*: give a tensor, number, text, None or type"),
                (
                    "'x': DESCRIPTOR(make.normal((64, 64)), [64, 64])",
                    "gives 'x' a TensorDescriptor, .*: give the tensor",
                ),
                (
                    "'out': make.zeros((1000,))",
                    r"outputs names 'out', which is not made by make.empty: .* restore = \('out',",
                ),
                ("'out': make.normal((1000,))", r"outputs names 'out', which is not made by make.empty: .* restore"),
            )
        ),
        (
            {"members": "def arguments(self, case, make): return {'out': make.empty((8,)), 'n': 8}"},
            "arguments lacks 'x', which the kernel needs",
        ),
    ],
)
def test_a_class_that_cannot_be_tuned_is_refused_with_the_reason(tmp_path, change, message):
    with pytest.raises(ProblemError, match=message):
        expand_workloads(user_class(tmp_path, **change))


def definition_in(folder, **change):
    return load_definition(Path(user_class(folder, **change).split(":")[1]), "Copy")


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [
        *(("7", (7, 1, 1)), ("(7,)", (7, 1, 1)), ("[1, 2, 3]", (1, 2, 3)), ("(2**31 - 1, 1)", (2**31 - 1, 1, 1))),
        *((text, None) for text in ("()", "(1, 1, 1, 1)", "0", "(1, 0)", "2**31", "1.5", "None")),
    ],
)
def test_a_grid_is_one_to_three_numbers_of_blocks(tmp_path, grid, blocks):
    found = definition_in(tmp_path, members=f"def grid(self, case, meta): return {grid}")
    if blocks is not None:
        assert found.grid({"n": 1000}, {}) == blocks
        return
    with pytest.raises(ProblemError, match=r"grid returned .*, not one to three integers above 0"):
        found.grid({"n": 1000}, {})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("x", ""),
        ("{'out': x}", ""),
        ("{}", "reference does not give one tensor per output, and no other: out"),
        ("3", "reference does not give one tensor per output, and no other: out"),
        ("{'out': x, 'x': x}", "reference does not give one tensor per output, and no other: out"),
        ("x[:1]", r"reference gives out the shape \(1,\)"),
    ],
)
def test_a_reference_has_a_tensor_of_each_outputs_shape(tmp_path, said, message):
    body = f"def reference(self, case, arguments):\n    x = arguments['x']\n    return {said}"
    found = definition_in(tmp_path, members=body)
    given = found.tensors({"n": 1000})
    if not message:
        assert found.reference({"n": 1000}, given) == (given["x"],)
        return
    with pytest.raises(ProblemError, match=message):
        found.reference({"n": 1000}, given)


@pytest.mark.parametrize(
    ("members", "tolerance"),
    [("", 0.5), ("tolerance = 0.1", 0.1), ("tolerance = {'out': 0}", 0.0), ("tolerance = {'x': 1}", 0.5)],
)
def test_a_tolerance_is_the_classs_or_that_of_the_type(tmp_path, members, tolerance):
    import torch

    assert definition_in(tmp_path, members=members).tolerance("out", torch.float32, 0.5) == tolerance


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("bfloat16", 8e-3), ("float16", 1e-3), ("float32", 1e-4), ("float64", 1e-4), ("float8_e5m2", 0.04), ("int32", 0)],
)
def test_each_type_has_a_tolerance(dtype, tolerance):
    import torch

    assert default_tolerance(getattr(torch, dtype)) == tolerance


def test_a_file_imports_what_lies_beside_it(tmp_path, monkeypatch):
    import sys

    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "copies_beside.py").write_text("ROWS = 24\n")
    text = user_class(tmp_path, decorators="from copies_beside import ROWS\n", members="cases = {'one': {'n': ROWS}}")
    cases: Any = expand_workloads(text)
    assert [case.case for case in cases] == [(("n", 24),)]
    assert sys.path[0] == str(tmp_path)


def test_a_case_has_the_operations_of_the_class_alone_and_counts_its_bytes_unless_the_class_does(tmp_path):
    case: Any
    [case] = expand_workloads(user_class(tmp_path))
    assert (case.operations, case.least_bytes, case.operand_bytes) == (0, 2000, 4000)
    assert (case.scalars, case.dtypes, case.case) == ((("n", "1000"),), ("torch.bfloat16",) * 2, (("n", 1000),))
    told = tmp_path / "told"
    told.mkdir()
    members = "flops = lambda self, case: 0\nbytes = lambda self, case: 12 * case['n']"
    [case] = expand_workloads(user_class(told, members=members))
    assert (case.flops, case.min_bytes) == (0, 12_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("triton:softmax.py", "is not FILE.py:CLASS"),
        ("triton:no_such_file.py:Softmax", "no file .*no_such_file.py to take a kernel from"),
        (f"triton:{EXAMPLES / 'softmax.py'}:Sofmax", "has no class Sofmax; classes with a kernel: Softmax"),
        (f"triton:{EXAMPLES / 'softmax.py'}:Softmax:rows=1", "no case rows=1; its cases: rows=32768,columns"),
        ("triton:Softmax@0123456789ab:rows=1", "no file of this kernel was read here; name triton:FILE.py:Softmax"),
    ],
)
def test_a_text_that_names_no_kernel_is_refused_with_the_way_out(text, message):
    with pytest.raises(ProblemError, match=message):
        expand_workloads(text)


def test_one_case_of_a_file_is_named_by_its_sizes():
    text = f"triton:{EXAMPLES / 'softmax.py'}:Softmax"
    with pytest.raises(ProblemError, match="has 2 cases: add one behind a colon, rows=32768,columns=1024, rows=4096"):
        parse_workload(text)
    assert parse_workload(f"{text}:rows=4096,columns=8192") == expand_workloads(text)[1]


def test_values_that_heuristics_derive_are_compiled_in(tmp_path):
    text = user_class(tmp_path, decorators="@triton.heuristics({'BLOCK': lambda args: 256 if args['n'] > 500 else 64})")
    file = tmp_path / "copies.py"
    file.write_text(file.read_text().replace('params = {"BLOCK": (64, 128)}', 'params = {"num_warps": (1, 2)}'))
    task, space = first(text), registry.space("triton_kernel")
    config = next(feasible_configs(space, task))
    assert "BLOCK=256" in space.artifact_key(task, config)
    assert space.build(task, config, tmp_path).resources.threads == 32


INTERPRETED = """
import gc
import sys
import torch
from gemmtune.engine.measure.operands.operands import make_operands
from gemmtune.engine.measure.operands.reference import ReferenceResult, poison
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.spaces.triton.kind import case_of, definition_of

for text, named, sizes in zip(*[iter(sys.argv[1:])] * 3):
    definition = definition_of(expand_workloads(text)[0])
    definition._user.dtype = torch.float16  # the interpreter's products of bf16 are wrong
    case = case_of(definition, dict(zip(definition.cases[named][0], map(int, sizes.split(",")))))
    operands = make_operands(case, torch.device("cpu"))
    reference = ReferenceResult(case, operands)
    for index in (0, 1):
        values = [each[index % len(each)] for each in definition.params.values()]
        config = dict(zip(definition.params, values))
        for output in operands.outputs:
            poison(output)
        given = definition.values(operands.by_name, config)
        unknown = {"num_warps", "num_stages"}.difference(definition.argument_names)
        passed = {name: value for name, value in given.items() if name not in unknown}
        definition.jit[definition.grid(case.sizes, given)](**passed)
        check = reference.check(*operands.outputs)
        assert not check.reason, (config, check.reason)
        operands.outputs[0][0] += 1
        assert reference.check(*operands.outputs).reason
        print(config, check.error_norm)
gc.freeze()  # nothing to find at the end, among all that torch imports
"""


def test_the_examples_are_right_in_tritons_interpreter():
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED, SOFTMAX, "wide", "19,200", INT4, "decode", "7,96,256"],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("the interpreter of this triton cannot loop to a size with this numpy")
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.count("{") == 4  # two configs of each
