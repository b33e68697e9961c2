"""What the loader serves beside exact keys: nearest rows, hooks, configs that no longer fit, and its warnings."""

from __future__ import annotations

import ast
import sys
import threading
import time
import warnings
import weakref

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import torch
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources

from gemmtune.engine.records.config import Config

PRUNE = "prune_configs_by={'early_config_prune': prune}"
DIVIDES = """
def prune(configs, named_args, **kwargs):
    return [config for config in configs if named_args["n"] % config.kwargs["BLOCK"] == 0]
"""
HOOKS = """
called = []
def zero(nargs):
    called.append(("zero", nargs["BLOCK"], nargs["n"]))
def nothing(nargs):
    called.append(("nothing", nargs["BLOCK"], nargs["n"]))
"""


def two(block="(128, 256)"):
    return f"[triton.Config({{'BLOCK': block}}, pre_hook=hook) for block, hook in zip({block}, (zero, nothing))]"


def of_size(n):
    return [*[torch.empty(n, dtype=torch.bfloat16, device="meta")] * 2, n]


def test_the_nearest_row_is_served_where_the_kernels_own_pruning_keeps_its_config(forms):
    cases = forms.write(
        before=DIVIDES, decorators=f"@triton.autotune(CONFIGS, key=['n'], {PRUNE})", members="nearest = 'n'"
    )
    loader = forms.export([forms.row(cases[0]), forms.row(cases[1], Config({**forms.tuned, "BLOCK": 256}))])
    launches = forms.launches(forms.kernel_of(cases[0]))
    loader.load(launches.kernel, device="NVIDIA H200")
    assert [launches(*of_size(n)) for n in (4096, 5120, 65536, 66048)] == [512, 512, 256, 256]
    assert launches(*of_size(4352)) == 256  # 512 does not divide it, and the row after the nearest one does
    assert launches.benchmarked == []
    launches(*of_size(4096 + 128))  # the kernel's own config of 128 alone divides it
    assert loader.report() == {"scale(4224, torch.bfloat16, torch.bfloat16)": 1}


def test_a_pruning_that_changes_configs_changes_no_row(forms):
    before = DIVIDES.replace(
        "return [",
        "for c in configs:\n        c.kwargs['BLOCK'] = min(named_args['n'], c.kwargs['BLOCK'])\n    return [",
    )
    cases = forms.write(
        before=before, decorators=f"@triton.autotune(CONFIGS, key=['n'], {PRUNE})", members="nearest = 'n'"
    )
    loader = forms.export(map(forms.row, cases))
    launches = forms.launches(forms.kernel_of(cases[0]))
    loader.load(launches.kernel, device="NVIDIA H200")
    assert [launches(*of_size(n)) for n in (256, 1024, 4096)] == [128, 512, 512]
    assert loader.report() == {"scale(256, torch.bfloat16, torch.bfloat16)": 1}


@pytest.mark.parametrize("rows", [8, 512])
def test_a_size_between_rows_costs_less_than_a_microsecond_the_second_time(tmp_path, forms, rows):
    loader = forms.export([forms.row(forms.write()[0])])
    keys = [(1024 * (number + 1), "torch.bfloat16", "torch.bfloat16") for number in range(rows)]
    tuned = loader.TunedConfigs({key: key[0] for key in keys}, dict.fromkeys(keys, 0))
    between = (5000, "torch.bfloat16", "torch.bfloat16")
    assert between in tuned
    assert tuned[between] == 5120

    def seconds():
        started = time.perf_counter()
        for _ in range(2000):
            if between in tuned:
                tuned[between]
        return (time.perf_counter() - started) / 2000

    assert min(seconds() for _ in range(20)) < 1e-6


def test_the_hook_of_the_config_with_equal_params_runs_before_every_launch(forms):
    cases = forms.write(before=HOOKS, decorators=f"@triton.autotune({two()}, key=['n'])", members="params = {}")
    configs = [Config({"BLOCK": block, "num_warps": 8, "num_stages": 2}) for block in (128, 256)]
    loader = forms.export(map(forms.row, cases, configs))
    kernel = forms.kernel_of(cases[0])
    launches = forms.launches(kernel)
    loader.load(kernel, device="NVIDIA H200")
    called = launches.jit.fn.__globals__["called"]
    assert [launches.of(case) for case in (*cases, cases[0])] == [128, 256, 128]
    assert called == [("zero", 128, 4096), ("nothing", 256, 65536), ("zero", 128, 4096)]


def test_a_config_that_leaves_out_a_default_keeps_its_hook(forms):
    configs = "[triton.Config({'BLOCK': 128}), triton.Config({'BLOCK': 128, 'SPLIT': 2}, pre_hook=zero)]"
    change = {"before": HOOKS, "decorators": f"@triton.autotune({configs}, key=['n'])", "members": "params = {}"}
    cases = forms.write(**change, last=", SPLIT: tl.constexpr = 1")
    rows = [Config({"BLOCK": 128, "SPLIT": split, "num_warps": 8, "num_stages": 2}) for split in (1, 2)]
    loader = forms.export(map(forms.row, cases, rows))
    launches = forms.launches(forms.kernel_of(cases[0]))
    loader.load(launches.kernel, device="NVIDIA H200")
    assert [launches.of(case) for case in cases] == [128, 128]
    assert launches.jit.fn.__globals__["called"] == [("zero", 128, 65536)]


def test_a_kernel_tuned_below_its_autotuner_keeps_its_hooks_or_is_refused(forms):
    change = {"before": HOOKS, "decorators": "", "members": "default = {'BLOCK': 512, 'num_warps': 8}"}
    cases = forms.write(**change)
    loader = forms.export(map(forms.row, cases))
    import triton

    configs = [triton.Config({"BLOCK": block}, pre_hook=lambda nargs: called.append(1)) for block in (128, 256)]
    called = []
    kernel = triton.autotune(configs, key=["n"])(forms.kernel_of(cases[0]))
    launches = forms.launches(kernel)
    loader.load(kernel, device="NVIDIA H200")  # one hook for all configs: it is the row's, too
    assert (launches.of(cases[0]), called) == (512, [1])
    differ = [triton.Config({"BLOCK": 128}, pre_hook=print), triton.Config({"BLOCK": 256})]
    kernel = triton.autotune(differ, key=["n"])(forms.kernel_of(cases[0]))
    with pytest.raises(ValueError, match=r"triton:Scale@.*pre_hooks differ, and no config has \{'BLOCK': 512\}: give"):
        loader.load(kernel, device="NVIDIA H200")
    assert type(kernel.cache) is dict


def test_a_config_that_no_longer_fits_is_left_to_the_autotuner(forms, monkeypatch):
    cases = forms.write()
    loader = forms.export(map(forms.row, cases))
    launches = forms.launches(forms.kernel_of(cases[0]))
    loader.load(launches.kernel, device="NVIDIA H200")
    fits = launches.jit.run

    def run(*arguments, **given):
        if given["BLOCK"] == 512:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return fits(*arguments, **given)

    monkeypatch.setattr(launches.jit, "run", run)
    with pytest.warns(
        loader.TableWarning, match="scale: a tuned config no longer fits.*shared memory, Required: 300000"
    ):
        assert launches.of(cases[0]) == 128
    assert len(launches.benchmarked) == 2
    assert launches.of(cases[0]) == 128  # and it is not tried again
    assert len(launches.benchmarked) == 2
    assert sum(loader.report().values()) == 2
    monkeypatch.setattr(launches.jit, "run", lambda *_, **__: (_ for _ in ()).throw(OutOfResources(9, 8, "registers")))
    with pytest.raises(OutOfResources):  # Triton's own choice does not fit either
        launches.of(cases[0])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_nearest_config_that_does_not_fit_is_left_to_the_autotuner_at_that_size_alone(forms, monkeypatch):
    cases = forms.write(members="nearest = 'n'")
    loader = forms.export(map(forms.row, cases))
    launches = forms.launches(forms.kernel_of(cases[0]))
    loader.load(launches.kernel, device="NVIDIA H200")
    fits = launches.jit.run

    def run(*arguments, **given):
        if given["BLOCK"] == 512 and arguments[2] == 5000:
            raise CompileTimeAssertionFailure("n % BLOCK", ast.parse("n").body[0], "n % BLOCK")
        return fits(*arguments, **given)

    monkeypatch.setattr(launches.jit, "run", run)
    assert [launches(*of_size(n)) for n in (5000, 4096, 65536, 6000)] == [128, 512, 512, 512]
    assert loader.report() == {"scale(5000, torch.bfloat16, torch.bfloat16)": 1}


def test_a_load_without_a_gpu_says_what_to_do(forms, monkeypatch):
    cases = forms.write()
    loader = forms.export(map(forms.row, cases))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"torch sees no GPU here: .* or name its GPU by device="):
        loader.load(forms.kernel_of(cases[0]))


@pytest.mark.parametrize(
    ("toolchain", "warned"), [("triton 3.7.0", False), ("torch 2.13.0, triton 2.0.0", True), ("triton 3.70.1", True)]
)
def test_another_release_of_triton_warns(forms, monkeypatch, toolchain, warned):
    monkeypatch.setattr("triton.__version__", "3.7.1")
    cases = forms.write()
    loader = forms.export([forms.row(case, toolchain=toolchain) for case in cases])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert loader.load(forms.kernel_of(cases[0]), device="NVIDIA H200") == 2
    texts = [str(each.message) for each in found if issubclass(each.category, loader.TableWarning)]
    assert len(texts) == warned
    assert all("the table was made by Triton" in text and "this is 3.7.1: tune again" in text for text in texts)


def test_a_launch_that_hits_makes_few_calls_more_than_tritons_own(forms):
    cases = forms.write()
    loader = forms.export(map(forms.row, cases))
    kernel = forms.kernel_of(cases[0])
    launches = forms.launches(kernel)
    arguments = of_size(4096)

    def calls():
        made = []
        sys.setprofile(lambda _frame, event, _of: made.append(event) if event in ("call", "c_call") else None)
        try:
            launches.kernel.run(*arguments, grid=(1,), warmup=False)
        finally:
            sys.setprofile(None)
        return len(made)

    launches(*arguments)
    before = calls()
    loader.load(kernel, device="NVIDIA H200")
    launches(*arguments)
    assert calls() - before <= 5  # of some twenty


def test_a_launch_without_a_row_benchmarks_as_many_configs_after_any_number_of_loads(forms):
    cases = forms.write(
        before="def model(BLOCK, **_): return BLOCK\nMORE = [triton.Config({'BLOCK': block}) for block in (32, 64)]",
        decorators="@triton.autotune(CONFIGS + MORE, ['n'], prune_configs_by={'perf_model': model, 'top_k': 0.5})",
    )
    loader = forms.export([forms.row(case) for case in cases])
    launches = forms.launches(forms.kernel_of(cases[0]))
    for number in range(1, 4):
        loader.load(launches.kernel, device="NVIDIA H200")
        launches(*[torch.empty(64, device="meta")] * 2, number)
    assert len(launches.benchmarked) == 6  # one config that is left need not be timed


def test_a_tensor_that_is_passed_by_name_is_freed_after_the_launch(forms):
    cases = forms.write()
    loader = forms.export([forms.row(case) for case in cases])
    launches = forms.launches(forms.kernel_of(cases[0]))
    loader.load(launches.kernel, device="NVIDIA H200")
    x = torch.empty(64, dtype=torch.bfloat16, device="meta")
    freed = weakref.ref(x)
    assert launches(out=x, x=x, n=4096) == 512
    launches.launched.clear()
    del x
    assert freed() is None


def test_the_report_counts_kernels_of_one_name_together_while_other_threads_launch(tmp_path, forms):
    cases = forms.write()
    loader = forms.export(map(forms.row, cases))
    kernels = [forms.kernel_of(cases[0]), forms.module_of(tmp_path / "scale_0.py").scale]
    launches = [forms.launches(kernel) for kernel in kernels]
    for each in launches:
        loader.load(each.kernel, device="NVIDIA H200")
        each(*of_size(7))
    assert loader.report() == {"scale(7, torch.bfloat16, torch.bfloat16)": 2}
    sizes = threading.Thread(target=lambda: [launches[0](*of_size(n)) for n in range(100, 1600)])
    monitor = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        sizes.start()
        while sizes.is_alive():
            loader.report()
    finally:
        sys.setswitchinterval(monitor)
        sizes.join()
    assert len(loader.report()) == 1501
