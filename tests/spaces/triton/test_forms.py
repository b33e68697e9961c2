"""Kernels in the forms that programs have: their configs, their operands, and builds without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import torch
from triton.runtime import driver

from gemmtune.engine.measure.operands.operands import make_operands
from gemmtune.engine.measure.operands.reference import ReferenceResult, poison
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.seams.space import BuildError
from gemmtune.engine.seams.workload import Restorable
from gemmtune.spaces.triton.kind import definition_of
from gemmtune.spaces.triton.launch import HookedKernels

pytestmark = pytest.mark.slow(15)

H200 = catalogue.device("H200")
CPU = torch.device("cpu")
TEXT = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({{"BLOCK": block}}) for block in (256, 512)]
{before}

{decorators}
@triton.jit{jit}
def kernel(out, x, n, {parameters}BLOCK: tl.constexpr{last}):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    {body}
    tl.store(out + at, value, mask=at < n)

class Kernel:
    kernel = kernel
    cases = {{"one": {{"n": 1024}}}}
    outputs = ("out",)
    {members}
    def arguments(self, case, make):
        n, dtype = case["n"], {dtype}
        return {{"out": {out}, "x": {x}, "n": n, {given}}}
    def grid(self, case, meta):
        return (triton.cdiv(case["n"], meta["BLOCK"]),)
    def reference(self, case, arguments):
        x = arguments["x"]
        return {reference}
"""
PARTS = {
    **dict.fromkeys(("before", "parameters", "given", "jit", "last"), ""),
    "decorators": "@triton.autotune(CONFIGS, key=['n'])",
    "members": "pass",
    "body": "pass",
    "dtype": "torch.float32",
    "out": "make.empty((n,), dtype)",
    "x": "make.normal((n,), torch.float32)",
    "reference": "x",
}


@pytest.fixture
def case_of(tmp_path):
    """Return a function that writes a class with its parts changed, and returns its case."""

    def write(**change: str) -> Any:
        file = tmp_path / f"form_{len(list(tmp_path.iterdir()))}.py"
        file.write_text(TEXT.format(**PARTS | change))
        return expand_workloads(f"triton:{file}:Kernel")[0]

    return write


def space_and_task(case, name="triton_kernel"):
    return registry.space(name), Task(case, H200, name)


def seeds(case):
    return [dict(seed) for seed in registry.space("triton_kernel").seeds(Task(case, H200, "triton_kernel"))]


def built(case, config, folder):
    space, task = space_and_task(case)
    return dict(space.build(task, Config(config), folder).launch)


def operands_of(case) -> Any:
    return make_operands(case, CPU)


def check(case, result=None, spoil=None):
    """Return the check of a launch that writes `result`, by default the right one, into poisoned outputs."""
    operands = operands_of(case)
    reference = ReferenceResult(case, operands)
    (out,) = operands.outputs
    right = definition_of(case).reference(case.sizes, operands.by_name)[0] if result is None else result
    right = right.clone()
    poison(out)
    if isinstance(operands, Restorable):
        operands.restore()
    out.copy_(right)
    if spoil:
        spoil(out)
    return reference.check(out).reason


MASKED = "torch.where(torch.arange(n_of(x), device=x.device) < 4, -torch.inf, x.double())"
OUTPUTS = {
    "infinity": {"reference": MASKED, "before": "n_of = len"},
    "all infinite": {"reference": "torch.full_like(x, -torch.inf)"},
    "bool": {"dtype": "torch.bool", "reference": "x > 0"},
    "complex": {"dtype": "torch.complex64", "reference": "torch.complex(x, -x)"},
    "int64": {"dtype": "torch.int64", "reference": "(x * 2**40).long()"},
    "int32": {"dtype": "torch.int32", "reference": "torch.arange(len(x), device=x.device).int() + 2**24"},
    "int8": {"dtype": "torch.int8", "reference": "(x * 20).to(torch.int8)"},
    "int32 of floats": {"dtype": "torch.int32", "reference": "(x * 20).round().double()"},
}
SPOILED = {
    "one": lambda out: (
        out.view(torch.uint8).select(0, 9).fill_(1 - int(out[9])) if out.dtype is torch.bool else out[9].add_(1)
    ),
    "finite": lambda out: out.__setitem__(2, -3e38),
    "unwritten": lambda out: poison(out[7:9]),
}


@pytest.mark.parametrize("change", OUTPUTS.values(), ids=OUTPUTS)
def test_outputs_of_every_type_are_right_or_wrong(case_of, change):
    case = case_of(**change)
    assert check(case) == ""
    assert check(case, spoil=SPOILED["unwritten"]) != ""
    if "infinite" not in change["reference"] and "torch.full" not in change["reference"]:
        assert check(case, spoil=SPOILED["one"]) != ""
    if "inf" in change["reference"]:
        assert "error norm inf" in check(case, spoil=SPOILED["finite"])


def test_unwritten_outputs_are_counted(case_of):
    for dtype in ("torch.bool", "torch.complex64", "torch.int32"):
        case = case_of(dtype=dtype, reference="x > 0")
        assert "2 of 1024 output elements" in check(case, spoil=SPOILED["unwritten"])


IN_PLACE = {"members": "restore = ('out',)"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"members": "restore = ('out',)", "out": "make.zeros((n,), dtype)", "reference": "arguments['out'] + 1"}, 0.0),
        (
            {"members": "restore = ('out',)", "out": "make.normal((n,), dtype)", "reference": "arguments['out'] * 2"},
            None,
        ),
        (
            {
                "decorators": "@triton.autotune(CONFIGS, key=['n'], restore_value=['out'])",
                "out": "make.normal((n,), dtype)",
                "reference": "arguments['out'] * 2",
            },
            None,
        ),
        ({"decorators": "@triton.autotune(CONFIGS, key=['n'], reset_to_zero=['out'])"}, 0.0),
        (
            {
                "before": "def zero(nargs, reset_only=False): nargs['out'].zero_()",
                "decorators": "@triton.autotune(CONFIGS, key=['n'], pre_hook=zero)",
            },
            0.0,
        ),
    ],
    ids=["parts", "in place", "restore_value", "reset_to_zero", "hook of the autotuner"],
)
def test_a_launch_that_is_checked_finds_its_outputs_as_they_were_before_the_first(case_of, change, expected):
    case = case_of(**change)
    operands = operands_of(case)
    first = operands.outputs[0].clone()
    operands.outputs[0].add_(1)  # as launches that were timed do
    right = ReferenceResult(case, operands)
    poison(operands.outputs[0])
    operands.restore()
    assert torch.equal(operands.outputs[0], first if expected is None else torch.full_like(first, expected))
    assert right.check(operands.outputs[0]).reason or "out" not in change.get("reference", "out")
    if "arguments['out']" in change.get("reference", ""):
        result = first * 2 if expected is None else torch.full_like(first, expected) + 1
        operands.outputs[0].copy_(result)
        assert right.check(operands.outputs[0]).reason == ""


def test_every_check_of_a_kernel_in_place_begins_with_the_first_values(case_of):
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from gemmtune.engine.measure.operands.operand_memory import OperandMemory
    from gemmtune.engine.measure.operands.operand_sets import OperandSets
    from gemmtune.engine.measure.problem_setup import ProblemSetup
    from gemmtune.engine.records.measurement import ReferenceLevel

    case = case_of(**IN_PLACE, out="make.normal((n,), dtype)", reference="arguments['out'] * 2")
    sets = OperandSets.make(case, True, 1, 1 << 20, OperandMemory(CPU, [], list))
    setup = ProblemSetup(case, sets, ReferenceLevel("torch 2.13.0", "GPU-0", 1000.0))
    assert [setup.check(lambda out, *_: out.mul_(2), 0).reason for _ in range(3)] == ["", "", ""]
    assert "error norm" in setup.check(lambda *_: None, 0).reason


def test_memory_that_a_kernel_changes_is_shared_with_nothing(case_of):
    case = case_of(**IN_PLACE, out="(one := make.normal((n,), dtype))", x="one")
    operands = operands_of(case)
    assert operands.by_name["out"].data_ptr() != operands.by_name["x"].data_ptr()


PRUNED = {
    "before": """
def prune(configs, named_args, HEAD, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= HEAD]
""",
    "parameters": "HEAD: tl.constexpr, ",
    "given": "'HEAD': 256",
    "decorators": "@triton.autotune([triton.Config({'BLOCK': b}) for b in (512, 128, 256)], key=['n'], "
    "prune_configs_by={'early_config_prune': prune})",
}


def test_seeds_and_the_default_are_what_the_kernels_own_pruning_keeps(case_of, tmp_path):
    case = case_of(**PRUNED)
    assert [seed["BLOCK"] for seed in seeds(case)] == [128, 256]
    assert '"BLOCK":128' in case.default
    space, task = space_and_task(case)
    pruned = space.check(task, Config({"BLOCK": 512, "num_warps": 4, "num_stages": 3}))
    assert (bool(pruned), pruned.rule, pruned.reason) == (
        False,
        "autotuner",
        "the autotuner's early_config_prune drops it",
    )
    default, of_default = space_and_task(case, "triton_default")
    assert "BLOCK=128" in default.build(of_default, default.seeds(of_default)[0], tmp_path).key
    told = case_of(**PRUNED | {"members": "default = {'BLOCK': 256}"})
    assert '"BLOCK":256' in told.default


def test_a_pruning_of_any_signature_is_asked_with_what_it_takes(case_of):
    ways = ("configs, named_args, **_", "configs, named_args, n, HEAD", "configs, nargs, *, n, **_", "configs, n, **_")
    for signature in ways:
        before = f"def prune({signature}): return configs[1:]"
        assert [seed["BLOCK"] for seed in seeds(case_of(**PRUNED | {"before": before}))] == [128, 256]


def test_a_pruning_that_gives_a_config_a_hook_is_refused_before_anything_is_built(case_of):
    before = "def prune(*_, **__): return [triton.Config({'BLOCK': 256}, pre_hook=print)]"
    space, task = space_and_task(case_of(**PRUNED | {"before": before, "members": "default = {'BLOCK': 256}"}))
    with pytest.raises(
        ProblemError, match="ValueError: it gives a config a pre_hook that the autotuner's configs lack"
    ):
        space.check(task, space.seeds(task)[0])


def test_a_pruning_may_yield_configs_and_change_those_that_it_is_given(case_of):
    before = """
def prune(configs, named_args, **_):
    for config in reversed(configs):
        config.kwargs["BLOCK"] = min(256, config.kwargs["BLOCK"])
        yield config
"""
    assert [seed["BLOCK"] for seed in seeds(case_of(**PRUNED | {"before": before}))] == [128, 256]


def test_a_pruning_that_asks_for_the_gpu_per_config_is_answered_from_memory(case_of, monkeypatch):
    asked = []
    utils = SimpleNamespace(get_device_properties=lambda gpu: asked.append(gpu) or {"max_shared_mem": 2**17})
    monkeypatch.setattr(driver, "_active", SimpleNamespace(utils=utils))
    before = """
def prune(configs, named_args, **kwargs):
    of = triton.runtime.driver.active.utils.get_device_properties
    return [config for config in configs if 512 * config.kwargs["BLOCK"] <= of(0)["max_shared_mem"]]
"""
    assert [seed["BLOCK"] for seed in seeds(case_of(**PRUNED | {"before": before}))] == [128, 256]
    assert asked == [0]


def test_none_and_types_are_values_of_params(case_of, tmp_path):
    configs = "[triton.Config({'BLOCK': 256, 'ACC': acc}, maxnreg=n) for acc, n in ((tl.float16, 64), (None, None))]"
    change = {"decorators": f"@triton.autotune({configs}, key=['n'])", "parameters": "ACC: tl.constexpr, "}
    case = case_of(**change, body="value = value if ACC is None else value.to(ACC).to(tl.float32)")
    assert [(seed["ACC"], seed["maxnreg"]) for seed in seeds(case)] == [("tl.fp16", 64), ("None", "None")]
    binaries = [built(case, seed, tmp_path) for seed in seeds(case)]
    assert len({launch["bytes_0"] for launch in binaries}) == 2
    told = case_of(**change, members="params = {'ACC': (tl.bfloat16,)}; default = {'BLOCK': 256, 'ACC': None}")
    assert definition_of(told).params["ACC"] == ("tl.bf16", "tl.fp16", "None")


ENDLESS = ["params = {'BLOCK': %s(1)}", "outputs = map(str, %s())", "restore = map(str, %s())"]


REFUSED = {
    "memory of an input": (
        {"out": "(one := make.empty((n,), dtype))", "x": "one"},
        r"whose memory 'x' shares: say res",
    ),
    "pruned": (
        {
            "before": "def none(configs, named, **_): return []",
            "decorators": "@triton.autotune(CONFIGS, ['n'], prune_configs_by={'early_config_prune': none})",
        },
        "keeps none of the autotuner's configs for {'n': 1024}: let it return",
    ),
    "config without a param": ({"decorators": "@triton.autotune([triton.Config({})], ['n'])"}, "has no 'BLOCK', which"),
    "function": (
        {"before": "import functools", "members": "kernel = functools.wraps(kernel)(lambda *_: None)"},
        "not decorated",
    ),
    "default with a name that is no param": (
        {"members": "params = {'BLOCK': (256,)}\n    default = {'BLOCK': 256, 'maxnreg': 64}"},
        "has 'maxnreg', which is not in params: give it there",
    ),
    "tolerance of a text": (
        {"members": "tolerance = {'out': 'tight'}"},
        "tolerance has 'out': 'tight', and takes a num",
    ),
    "no output": ({"members": "outputs = ()"}, "outputs is no list of names of arguments"),
    "tolerance below 0": ({"members": "tolerance = -1"}, "tolerance has 'out': -1, and takes a number"),
    "numbers and texts": (
        {"last": ", MODE: tl.constexpr = 1", "members": "params = {'BLOCK': (256,), 'MODE': (1, 'fast')}"},
        r"params\['MODE'\] has numbers and texts, which no table can hold: let all be texts",
    ),
    "long text": ({"given": "'n': 'x' * 299"}, "a str, which no table can hold: give one of at most 99 characters"),
    "enum": (
        {"before": "import enum\nE = enum.Enum('E', 'A')", "given": "'n': E.A"},
        "a E, which no table.*give its va",
    ),
}


@pytest.mark.parametrize(("change", "said"), REFUSED.values(), ids=REFUSED)
def test_a_class_that_cannot_be_tuned_is_refused_with_the_way_out(case_of, change, said):
    with pytest.raises(ProblemError, match=said):
        case_of(**{"members": "params = {'BLOCK': (256,)}"} | change)


def test_a_config_leaves_out_what_the_kernel_has_a_default_for(case_of):
    case = case_of(
        before="AT = triton.Config",
        decorators="@triton.autotune([AT({'BLOCK': 256}), AT({'BLOCK': 256, 'UNROLL': 2})], key=['n'])",
        last=", UNROLL: tl.constexpr = 1",
    )
    assert [seed["UNROLL"] for seed in seeds(case)] == [1, 2]


def test_a_grid_is_given_every_option(case_of, monkeypatch):
    definition = definition_of(case_of())
    monkeypatch.setattr(
        definition._user, "grid", lambda case, meta: (meta["num_stages"], meta["num_ctas"]), raising=False
    )
    assert definition.grid({"n": 1024}, {"BLOCK": 256, "num_stages": 5}) == (5, 1, 1)
    assert definition.grid({"n": 1024}, {"BLOCK": 256}) == (3, 1, 1)


def test_a_type_that_triton_does_not_have_is_no_build(case_of, tmp_path):
    case = case_of(dtype="torch.complex64")
    with pytest.raises(BuildError, match="'out' complex64, which Triton has no type for: give torch"):
        built(case, {"BLOCK": 256, "num_warps": 4, "num_stages": 3}, tmp_path)


@pytest.mark.parametrize("member", ENDLESS)
def test_an_endless_list_is_refused(case_of, member):
    with pytest.raises(ProblemError, match="lists more than 4096: list the few"):
        case_of(members=member % "__import__('itertools').count")


def test_a_config_that_gives_num_ctas_is_built_in_clusters(case_of, tmp_path):
    configs = "[triton.Config({'BLOCK': 256}, num_ctas=2), triton.Config({'BLOCK': 512})]"
    case = case_of(decorators=f"@triton.autotune({configs}, key=['n'])")
    assert [(seed["num_ctas"], built(case, seed, tmp_path)["ctas_0"]) for seed in seeds(case)] == [(2, 2), (1, 1)]


@pytest.mark.parametrize("kind", ["fp64", "fp32", "fp16", "bf16"])
def test_an_annotated_number_is_passed_by_its_type(case_of, tmp_path, kind):
    name = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[kind]
    case = case_of(parameters=f"eps: tl.{name}, ", given="'eps': 0.5", body="value += eps.to(tl.float32)")
    launch = built(case, seeds(case)[0], tmp_path)
    assert (launch["passed"], launch["types"]) == ("out x n eps", f"*fp32 *fp32 i32 {kind}")


def test_a_slice_off_alignment_is_another_binary(case_of, tmp_path):
    aligned, sliced = case_of(), case_of(x="make.normal((n + 1,), torch.float32)[1:]")
    space, _ = space_and_task(aligned)
    config = Config(seeds(aligned)[0])
    keys = [space.artifact_key(Task(case, H200, "triton_kernel"), config) for case in (aligned, sliced)]
    assert ["unaligned" in key for key in keys] == [False, True]
    digests = [space.build(Task(case, H200, "triton_kernel"), config, tmp_path).digest for case in (aligned, sliced)]
    assert digests[0] != digests[1]  # it loads 4 bytes instead of 8


HOOKED = {
    "before": """
def zero(nargs): nargs["out"].zero_()
def nothing(nargs): pass
def other(nargs): pass
""",
    "decorators": "@triton.autotune([triton.Config({'BLOCK': b}, pre_hook=h) for b, h in "
    "((128, zero), (256, nothing))], key=['n'])",
}


def test_the_hook_of_a_config_is_that_of_the_autotuners_config_with_equal_params(case_of):
    case = case_of(**HOOKED, members="params = {'BLOCK': (512,)}")
    definition = definition_of(case)
    hooks = [definition.decorators.hook_of({"BLOCK": block, "num_warps": 8}).__name__ for block in (128, 256)]
    assert hooks == ["zero", "nothing"]
    space, task = space_and_task(case)
    refused = space.check(task, Config({"BLOCK": 512, "num_warps": 4, "num_stages": 3}))
    assert not refused
    assert "pre_hooks differ, and no config has {'BLOCK': 512}" in refused.reason
    shared = case_of(**HOOKED | {"before": HOOKED["before"] + "nothing = zero"}, members="params = {'BLOCK': (512,)}")
    assert space.check(Task(shared, H200, "triton_kernel"), Config({"BLOCK": 512, "num_warps": 4, "num_stages": 3}))


def test_a_config_that_loses_its_hook_makes_another_workload(case_of):
    def source(hooks):
        configs = f"[triton.Config({{'BLOCK': b}}, pre_hook=h) for b, h in zip((128, 256, 512), {hooks})]"
        return case_of(**HOOKED | {"decorators": f"@triton.autotune({configs}, key=['n'])"}).source

    assert len({source(f"({hooks})") for hooks in ("zero, zero, zero", "zero, zero, None", "zero, None, None")}) == 3


def test_a_hooked_launch_zeroes_what_the_hook_says(case_of):
    case = case_of(**HOOKED)
    operands = operands_of(case)
    hook = definition_of(case).decorators.hook_of({"BLOCK": 128})
    seen = []
    kernels = HookedKernels(lambda *given: seen.append(given[0].sum().item()), hook, ("out", "x", "n"), {"BLOCK": 128})
    poison(operands.outputs[0])
    kernels(*operands.arguments)
    assert seen == [0.0]
