"""Keys of the autotuner, as Triton builds them from every kind of argument and below every kind of decorator."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import torch
import triton

from gemmtune.engine.consumers.triton.contract import layers, text_of, value_of
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.tables.sealed import seal_of

FLAG = {"parameters": "FLAG: tl.constexpr, ", "decorators": "@triton.autotune(CONFIGS, key=['n', 'FLAG'])"}
EVEN = {"parameters": "EVEN: tl.constexpr, "}
HEURISTIC = "@triton.heuristics({'EVEN': lambda args: args['n'] % 4096 == 0})"
LIBRARY_ENTRY = """
class Entry(triton.runtime.jit.KernelInterface):
    def __init__(self, fn):
        self.fn, self.arg_names = fn, fn.arg_names
    def run(self, *arguments, **named):
        return self.fn.run(*arguments, **named)
"""
TRANSPARENT = """
class Transparent:
    def __init__(self, fn):
        self.fn = fn
    def __getattr__(self, name):
        return getattr(vars(self)["fn"], name)
    def __getitem__(self, grid):
        return self.fn[grid]
"""


@pytest.mark.parametrize(
    "value", ["True", "False", "None", "0", "1e-06", "float('inf')", "'relu, \"x\"=;'", "tl.float32", "torch.float16"]
)
def test_a_key_of_any_type_hits(forms, value):
    cases = forms.write(**FLAG, given=f"'FLAG': {value}")
    loader = forms.export(map(forms.row, cases))
    launches = forms.launches(forms.kernel_of(cases[0]))
    assert loader.load(launches.kernel, device="NVIDIA H200") == 2
    assert [launches.of(case) for case in cases] == [512, 512]
    assert (launches.benchmarked, loader.report()) == ([], {})


def test_a_key_with_a_constexpr_of_the_programs_hits(forms):
    cases = forms.write(**FLAG, given="'FLAG': 3")
    loader = forms.export(map(forms.row, cases))
    launches = forms.launches(forms.kernel_of(cases[0]))
    loader.load(launches.kernel, device="NVIDIA H200")
    tensors = [torch.empty(64, dtype=torch.bfloat16, device="meta")] * 2
    assert launches(*tensors, 4096, FLAG=triton.language.constexpr(3)) == 512
    launches(*tensors, 4096, FLAG=triton.language.constexpr(4))
    assert loader.report() == {"scale(4096, constexpr[4], torch.bfloat16, torch.bfloat16)": 1}


@pytest.mark.parametrize(
    "value", [True, False, None, 0, -(2**40), 1e-6, 0.5, float("inf"), "", "relu", "a,b=c;'d'", torch.float16]
)
def test_an_argument_is_read_back_from_its_text_with_its_type(value):
    found = value_of(text_of(value))
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    "text", ["", "true", "1.", "'a'b'", "tl.fp33", "torch.nn", "os.system", "__import__('os')", "1_0"]
)
def test_a_text_of_no_argument_is_refused(text):
    with pytest.raises(ValueError, match="is no "):
        value_of(text)


def test_two_cases_that_differ_in_a_bool_alone_have_a_row_each(forms):
    cases = forms.write(
        **FLAG,
        given="'FLAG': case['flag'] == 1",
        cases="{'a': {'n': 64, 'flag': 1}, 'b': {'n': 64, 'flag': 2}}",
    )
    other = Config({**forms.tuned, "BLOCK": 256})
    loader = forms.export([forms.row(cases[0]), forms.row(cases[1], other)])
    launches = forms.launches(forms.kernel_of(cases[0]))
    loader.load(launches.kernel, device="NVIDIA H200")
    assert [launches.of(case) for case in cases] == [512, 256]


NO_ARGUMENT = ", 'nowhere'" if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9) else ""
"""Key that names no argument; Triton 3.9 refuses it."""


@pytest.mark.parametrize(
    ("decorators", "before"),
    [
        (f"{HEURISTIC}\n@triton.autotune(CONFIGS, key=['n'])", ""),
        (f"{HEURISTIC}\n@triton.autotune(CONFIGS, key=['n', 'EVEN'])", ""),
        (f"@triton.autotune(CONFIGS, key=['n', 'EVEN'])\n{HEURISTIC}", ""),
        (f"@triton.heuristics({{}})\n{HEURISTIC}\n@triton.autotune(CONFIGS, key=['n'{NO_ARGUMENT}])", ""),
        (f"@Entry\n{HEURISTIC}\n@triton.autotune(CONFIGS, key=['n', 'EVEN'])", LIBRARY_ENTRY),
        (f"@triton.autotune(CONFIGS, key=['n'])\n@Entry\n{HEURISTIC}", LIBRARY_ENTRY),
        (f"@Transparent\n{HEURISTIC}\n@Transparent\n@triton.autotune(CONFIGS, key=['n'])", TRANSPARENT),
    ],
    ids=["above", "above and keyed", "below and keyed", "twice", "library", "library below", "transparent"],
)
def test_the_autotuner_is_found_below_other_decorators(forms, decorators, before):
    cases = forms.write(**EVEN, decorators=decorators, before=before)
    loader = forms.export(map(forms.row, cases))
    launches = forms.launches(forms.kernel_of(cases[0]))
    assert loader.load(launches.kernel, device="NVIDIA H200") == 2
    assert loader.load(launches.kernel, device="NVIDIA H200") == 2  # as two modules of a program may
    assert [launches.of(case) for case in cases] == [512, 512]
    assert launches.benchmarked == []


def test_a_kernel_below_heuristics_alone_is_refused_with_the_way_out(forms):
    cases = forms.write(**EVEN, decorators=HEURISTIC, members="default = {'BLOCK': 512, 'num_warps': 8}")
    loader = forms.export(map(forms.row, cases))
    kernel = forms.kernel_of(cases[0])
    with pytest.raises(ValueError, match=r"has no autotuner: wrap it in triton\.autotune\("):
        loader.load(kernel, device="NVIDIA H200")
    wrapped = triton.autotune([triton.Config({})], key=["n"])(kernel)
    assert loader.load(wrapped, device="NVIDIA H200") == 2


def test_an_argument_that_a_launch_may_leave_out_hits_with_and_without_it(forms):
    change = {"last": ", FLAG: tl.constexpr = 3", "decorators": "@triton.autotune(CONFIGS, key=['n', 'FLAG'])"}
    (case,) = forms.write(**change, cases="{'one': {'n': 64}}")
    loader = forms.export([forms.row(case)])
    launches = forms.launches(forms.kernel_of(case))
    loader.load(launches.kernel, device="NVIDIA H200")
    tensors = [torch.empty(64, dtype=torch.bfloat16, device="meta")] * 2
    assert [launches(*tensors, 64), launches(*tensors, 64, FLAG=3)] == [512, 512]
    assert launches.benchmarked == []
    launches(*tensors, 64, FLAG=4)
    assert loader.report() == {"scale(64, 4, torch.bfloat16, torch.bfloat16)": 1}


@pytest.mark.parametrize("key", [["n", "x"], ["FLAG"]])
def test_a_key_that_is_in_no_row_is_refused(tmp_path, forms, key):
    cases = forms.write(parameters="FLAG: tl.constexpr, ", given="'FLAG': True")
    loader = forms.export(map(forms.row, cases))
    kernel = forms.kernel_of(cases[0])
    path = tmp_path / "triton_table.json"
    table = json.loads(path.read_text())
    table["kernels"][0]["arguments"].remove("FLAG")
    for each in table["kernels"][0]["rows"]:
        del each["arguments"]["FLAG"]
    unsigned = json.dumps(table | {"sha256": ""})
    path.write_text(unsigned.replace('"sha256": ""', f'"sha256": "{seal_of(unsigned.encode(), "")}"'))
    kernel.keys = key
    with pytest.raises(ValueError, match=f"key names {key[-1]}, which is in no row of Scale: take it out"):
        loader.load(kernel, device="NVIDIA H200")


def test_a_key_that_leaves_a_size_out_gets_the_row_of_least_loss(forms):
    small, large = forms.write(decorators="@triton.autotune(CONFIGS, key=[])")
    one, two, three = (Config({**forms.tuned, "BLOCK": block}) for block in (128, 256, 512))
    rows = [
        forms.row(small, (one, 10.0), (two, 12.0), (three, 10.5)),
        forms.row(large, (two, 100.0), (one, 150.0), (three, 109.0)),
    ]
    loader = forms.export(rows)  # worst losses: 50 %, 20 % and 9 %
    launches = forms.launches(forms.kernel_of(small))
    assert loader.load(launches.kernel, device="NVIDIA H200") == 2
    assert [launches.of(case) for case in (small, large)] == [512, 512]
    with pytest.raises(TableError, match="have one key of the kernel's autotuner, and no config was measured for both"):
        forms.export([forms.row(small, one), forms.row(large, two)])


def test_launches_of_equal_arguments_get_the_config_of_least_loss(forms):
    small, large = forms.write(cases='{"small": {"n": 4096, "rows": 1}, "large": {"n": 4096, "rows": 9}}')
    one, two = (Config({**forms.tuned, "BLOCK": block}) for block in (128, 256))
    loader = forms.export([forms.row(small, (one, 10.0), (two, 11.0)), forms.row(large, (two, 100.0), (one, 150.0))])
    launches = forms.launches(forms.kernel_of(small))
    assert loader.load(launches.kernel, device="NVIDIA H200") == 2
    assert [launches.of(case) for case in (small, large)] == [256, 256]
    with pytest.raises(TableError, match="equal arguments and types, and no config was measured for both"):
        forms.export([forms.row(small, one), forms.row(large, two)])


ROUNDING = """
class Tuner(triton.runtime.Autotuner):
    strategy = [lambda n: -(-n // 4096) * 4096]
    def run(self, *arguments, **named):
        n = self.strategy[0](arguments[2])
        key = (n, *(str(each.dtype) for each in arguments[:2]))
        if key not in self.cache:
            self.cache[key] = min(self.configs, key=lambda config: self._do_bench(config))
        self.best_config = self.cache[key]
        return self.fn.run(*arguments, **named, **self.best_config.all_kwargs())

def tuner(fn):
    return Tuner(fn, fn.arg_names, CONFIGS, ["n"], None, None)
"""


def test_a_key_that_the_autotuner_rounds_hits(forms):
    cases = forms.write(
        before=ROUNDING, decorators="@tuner", cases='{"one": {"n": 4000}, "two": {"n": 65536}, "three": {"n": 65000}}'
    )
    kernel = forms.kernel_of(cases[0])
    loader = forms.export(map(forms.row, cases))
    launches = forms.launches(kernel)
    assert loader.load(kernel, device="NVIDIA H200") == 3
    assert [launches.of(case) for case in cases] == [512, 512, 512]
    assert (launches.benchmarked, loader.report()) == ([], {})
    other = Config({"BLOCK": 256, "num_warps": 4, "num_stages": 3})
    loader = forms.export([forms.row(cases[1]), forms.row(cases[2], other)])
    with pytest.raises(ValueError, match=r"two configs: it rounds n, so keep one of them"):
        loader.load(kernel, device="NVIDIA H200")


def test_only_the_autotuner_of_a_kernel_is_changed(tmp_path, forms):
    cases = forms.write(**EVEN, decorators=f"{HEURISTIC}\n@triton.autotune(CONFIGS, key=['n'])")
    loader = forms.export(map(forms.row, cases))
    fresh = forms.module_of(tmp_path / "scale_0.py").scale
    launches = forms.launches(fresh)
    loader.load(fresh, device="NVIDIA H200")
    loader.load(fresh, device="NVIDIA H200")  # a second time, as two modules of a program may
    assert [type(layer).__name__ for layer in layers(fresh)] == ["Heuristics", "Autotuner", "JITFunction"]
    # The third is for torch.compile, which does not prune below heuristics in torch 2.11.
    assert len(launches.tuner.configs) == (2 if torch.__version__.startswith("2.11.") else 3)
    launches(*[torch.empty(64, dtype=torch.float32, device="meta")] * 2, 64)
    assert len(launches.benchmarked) == 2  # the kernel's own configs
