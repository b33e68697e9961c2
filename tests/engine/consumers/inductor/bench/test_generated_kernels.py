"""Rows of the kernels that Inductor chooses a config for, by times that the test gives."""

from __future__ import annotations

import time
from functools import partial
from typing import Any
from unittest import mock

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter, with_generated
from gemmtune.engine.records.table import Table
from gemmtune.engine.toolchain.gpu_info import present_device
from tests.engine.consumers.inductor.bench.test_shared_choices import kernel

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:::torch")  # torch warns of itself


@pytest.fixture
def tuning():
    """Return a tuning in whose context launches take their launchers' times, and 1 % more in every other round."""
    from torch._inductor.runtime import triton_heuristics
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    from gemmtune.engine.consumers.inductor.bench.generated_kernels import KernelTuning

    def times(calls, _prepare):
        return [[call().ms * 1e6 * (1 + number % 2 * 0.01) for number in range(10)] for call in calls]

    def bench(_self, launcher, *_args, **_kwargs):
        benchmarker: Any = vars(triton_heuristics)["benchmarker"]
        return benchmarker.benchmark(fn=partial(lambda its: its, launcher), device="cuda", rep=40)

    found = KernelTuning(times, "torch 2.13.0, triton 3.7.0")
    with mock.patch.object(CachingAutotuner, "bench", bench), found.chosen():
        yield found


def blocks(tuning):
    return [row.choice.config["XBLOCK"] for row in tuning.rows.values()]


def test_the_winner_of_a_race_becomes_a_row(tuning):
    its = kernel("triton_poi_0", {512: 1.1, 1024: 1.0})
    its.autotune_to_one_config()
    assert its.launchers[0].config.kwargs == {"XBLOCK": 1024}
    (row,) = tuning.rows.values()
    assert dict(row.choice.config) == {"XBLOCK": 1024, "num_warps": 4, "num_stages": 3}
    assert row.choice.time_ns == pytest.approx(1e6, rel=0.01)
    assert row.default_ns == pytest.approx(1.1e6, rel=0.01)
    assert (row.name, row.choice.fault) == ("triton_poi_0", "")


def test_a_config_that_loses_its_race_stays_loaded_for_the_final(tuning):
    its, closed = kernel("triton_poi_0", {512: 1.1, 1024: 1.0}), []
    for launcher in its.launchers:
        runner = type("Runner", (), {"run": lambda _: None, "close": lambda _, of=launcher: closed.append(of)})()
        launcher._is_static, launcher.__globals__ = True, {"runner": runner.run}
    its.autotune_to_one_config()
    assert (blocks(tuning), closed) == ([1024], [])


def test_a_winner_within_the_noise_yields_to_the_config_that_inductor_starts_from(tuning):
    its = kernel("triton_poi_0", {512: 1.0, 1024: 1.0})
    its.launchers.reverse()
    its.autotune_to_one_config()
    assert its.launchers[0].config.kwargs == {"XBLOCK": 1024}
    assert blocks(tuning) == [1024]


def test_what_a_large_kernel_descends_to_becomes_a_row_and_it_descends_once(tuning):
    its = kernel("triton_per_0", {512: 1.0, 1024: 0.9, 256: 1.1}, descends=True)
    launcher = its.coordinate_descent_tuning(its.launchers[0])
    assert launcher.config.found_by_coordesc  # else the kernel's next run would descend again
    assert (launcher.config.kwargs["XBLOCK"], blocks(tuning)) == (1024, [1024])


def test_what_a_short_kernel_could_descend_to_is_not_looked_for(tuning):
    its = kernel("triton_per_0", {512: 0.010, 1024: 0.005}, descends=True)
    launcher = its.coordinate_descent_tuning(its.launchers[0])
    assert launcher.config.found_by_coordesc
    assert (launcher.config.kwargs["XBLOCK"], blocks(tuning)) == (512, [])


def test_a_kernel_that_raced_and_descended_is_compared_with_where_inductor_starts(tuning):
    its = kernel("triton_per_0", {512: 1.2, 1024: 1.0, 2048: 0.9})
    its.launchers.pop()
    its.autotune_to_one_config()
    its.launchers = [its.coordinate_descent_tuning(its.launchers[0])]
    (row,) = tuning.rows.values()
    assert row.choice.config["XBLOCK"] == 2048
    assert row.default_ns == pytest.approx(1.2e6, rel=0.01)


def test_kernels_of_one_source_size_and_type_share_a_row(tuning):
    for name, sizes in (("triton_poi_0", (4096,)), ("triton_poi_7", (4096,)), ("triton_poi_8", (8192,))):
        kernel(name, {512: 1.1, 1024: 1.0}, sizes=sizes).autotune_to_one_config()
    kernel("triton_poi_9", {512: 1.1, 1024: 1.0}, of="*bf16").autotune_to_one_config()
    assert len(tuning.rows) == 3


def test_a_kernel_of_other_params_and_a_users_own_get_no_row(tuning):
    own, split = (kernel(f"triton_poi_{number}", {512: 1.1, 1024: 1.0}) for number in range(2))
    own.custom_kernel = True
    for launcher in split.launchers:
        launcher.config.kwargs["RSPLIT"] = 2
    for its in (own, split):
        its.autotune_to_one_config()
        assert its.launchers[0].config.kwargs["XBLOCK"] == 1024
    assert not tuning.rows


def test_a_launch_that_the_gpu_refuses_is_infinitely_slow(tuning):
    def refused():
        raise RuntimeError("Triton Error [CUDA]: invalid configuration argument")

    with mock.patch.object(tuning, "_timer", lambda calls, _prepare: [[call()] for call in calls]):
        assert tuning.benchmark(fn=refused) == float("inf")
        with pytest.raises(RuntimeError, match="illegal"):
            tuning.benchmark(fn=lambda: (_ for _ in ()).throw(RuntimeError("illegal memory access")))


@pytest.fixture
def changing():
    """Return a kernel that adds 1 to `x` in place, its launcher, `x`, and launches, copies and restorations so far."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    its, x, events = kernel("triton_poi_0", {512: 1.0}), torch.zeros(4), []
    its.mutated_arg_names = ["x"]

    class Built:
        n_spills = 0

        def __call__(self, given, *, stream):
            events.append(("launch", given.tolist()))
            given.add_(1)

    def noted(function, name, when):
        def run(self, given, *rest):
            events.extend([name] * when(given))
            return function(self, given, *rest)

        return run

    copy, restore = CachingAutotuner.maybe_clone_args, CachingAutotuner.restore_args_from_cpu
    with (
        mock.patch.object(its, "get_device_interface"),
        mock.patch.object(CachingAutotuner, "maybe_clone_args", noted(copy, "copy", lambda given: not given)),
        mock.patch.object(CachingAutotuner, "restore_args_from_cpu", noted(restore, "restore", bool)),
    ):
        yield its, Built(), x, events


def saving(its, saved):
    return mock.patch.object(its, "copy_args_to_cpu_if_needed", return_value=saved)


@pytest.mark.parametrize("on_cpu", [False, True])
def test_what_a_kernel_changes_is_copied_or_put_back_before_the_timed_part(changing, on_cpu):
    from gemmtune.engine.consumers.inductor.bench.generated_kernels import KernelTuning

    its, launcher, x, events = changing

    def timer(calls, prepare):
        for _ in range(3):
            prepare()
            events.append("timed")
            calls[0]()
        return [[1.0]]

    tuning = KernelTuning(timer, "torch 2.13.0, triton 3.7.0")
    with tuning.chosen(), saving(its, {"x": (x, x.clone())} if on_cpu else {}):
        assert its.bench(launcher, x) == pytest.approx(1e-6)
    what, timed = "restore" if on_cpu else "copy", ["timed", ("launch", [0.0] * 4)]
    first = timed if on_cpu else [timed[0], "copy", timed[1]]  # no operands are known before the first call
    assert events == [*first, what, *timed, what, *timed, what]
    assert x.tolist() == [0.0] * 4


def test_calls_that_differ_in_what_is_on_the_cpu_leave_the_operand_as_it_was(changing):
    from gemmtune.engine.consumers.inductor.bench.generated_kernels import KernelTuning

    its, launcher, x, events = changing
    calls = []

    def timer(of, prepare):
        for call in of * 3:
            prepare()
            call()
        return [[1.0]] * len(of)

    tuning = KernelTuning(timer, "torch 2.13.0, triton 3.7.0")
    with mock.patch.object(tuning, "benchmark", lambda fn, **_: calls.append(fn) or 0.0), tuning.chosen():
        for saved in ({"x": (x, x.clone())}, {}):
            with saving(its, saved):
                its.bench(launcher, x)
    tuning._timed(calls)
    assert [each for each in events if each[0] == "launch"] == [("launch", [0.0] * 4)] * 6
    assert x.tolist() == [0.0] * 4


def softmax_and_gelu(x, y):
    return torch.softmax(x, -1), torch.nn.functional.gelu(y) * 2


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
def test_what_the_host_does_before_a_launch_is_no_part_of_its_time():
    from gemmtune.engine.consumers.inductor.bench.generated_kernels import ColdTimer

    x = torch.zeros(1024, device="cuda")

    def slow():
        time.sleep(0.001)
        x.add_(1)

    assert max(ColdTimer()([slow])[0]) < 500_000  # ns


def changed(x, y):
    return x.add_(y)


def added(x, y):
    return x + y


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
def test_a_kernel_that_changes_its_operand_takes_as_long_as_one_that_does_not(tmp_path):
    from gemmtune.engine.consumers.inductor.bench import running
    from gemmtune.engine.consumers.inductor.bench.generated_kernels import generated_rows

    write_all(InductorExporter().export(Table(present_device(), (), "latency")), tmp_path)
    inputs = [torch.randn(torch.cuda.get_device_properties(0).L2_cache_size // 4, device="cuda") for _ in range(2)]
    times = []
    for function in (changed, added):
        torch._dynamo.reset()
        prepared = running.Prepared(function, inputs, {}, grad=False)
        (row,) = generated_rows(prepared, tmp_path / "inductor_table.json", binaries=True)
        times.append(row.choice.time_ns)
    assert times[0] == pytest.approx(times[1], rel=0.25)  # a copy within the timed part takes two thirds of it more


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
def test_kernels_with_rows_are_timed_once_and_then_neither_race_nor_descend(tmp_path):
    from torch._dynamo.utils import counters

    from gemmtune.engine.consumers.inductor.bench import running
    from gemmtune.engine.consumers.inductor.bench.generated_kernels import generated_rows
    from gemmtune.engine.consumers.inductor.loader import loader

    rows_of_x = torch.cuda.get_device_properties(0).L2_cache_size // 2048 // 2  # reads and writes four times the L2
    inputs = [torch.randn(rows, 2048, device="cuda") for rows in (rows_of_x, 2048)]
    prepared = running.Prepared(softmax_and_gelu, inputs, {}, grad=False)
    table, file = Table(present_device(), (), "latency"), tmp_path / "inductor_table.json"
    write_all(InductorExporter().export(table), tmp_path)

    def timed():
        torch._dynamo.reset()
        with running.cold():
            loader.install(file)
            try:
                arm = running.compiled_arm(prepared, "table")
                first = running.quietly(lambda: running.first_call(arm))
                found = first.kernel_benchmarks, counters["inductor"]["coordesc_tuning_bench"]
                assert running.relative_error(arm.results(), prepared.arm(softmax_and_gelu).results()) < 1e-5
            finally:
                loader.uninstall()
        return found

    raced, descended = timed()
    assert raced > descended > 1
    rows = generated_rows(prepared, file, binaries=True)
    assert len(rows) == 2
    write_all(with_generated(file.read_text(encoding="utf-8"), table, rows), tmp_path)
    assert timed() == (0, 0)
    assert generated_rows(prepared, file, binaries=True) == ()
