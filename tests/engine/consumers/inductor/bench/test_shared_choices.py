"""Configs of kernels that several arms of a bench share. Inductor chooses here among times that the test gives."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from unittest import mock

import pytest

from gemmtune.engine.toolchain.gpu_info import present_device

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:::torch")  # torch warns of itself


@dataclass(eq=False)
class Launcher:
    """One config of a kernel, built."""

    config: object
    ms: float
    n_regs: int = 32
    n_spills: int = 0
    shared: int = 0
    cache_hash: str = ""


def kernel(name, times, source="x + 1", sizes=(4096,), *, of="*fp32", descends=False):
    """Return a kernel of Inductor's before its race, whose configs take the given times, ms.

    Where it descends, it starts at the first config, and the others are those that it can go on to.
    """
    import triton
    from torch._inductor.runtime.hints import DeviceProperties, HeuristicType
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    fn = SimpleNamespace(src=f"def {name}(x): {source}", __name__=name, fn="loaded", arg_names=["x"])
    configs = [triton.Config({"XBLOCK": block}) for block in times]
    device = DeviceProperties(
        "cuda", 0, 132, 90, major=9, warp_size=32, max_threads_per_block=1024, regs_per_multiprocessor=65536
    )
    made = CachingAutotuner(
        fn,
        {"device": device, "signature": {"x": of}},
        configs,
        None,
        [],
        optimize_mem=False,
        heuristic_type=HeuristicType.POINTWISE,
        size_hints={"x": sizes[0]},
        inductor_meta={"warp_size": 32, "max_threads_per_block": 128},  # four warps at most
    )
    launchers = [Launcher(config, times[config.kwargs["XBLOCK"]]) for config in configs]
    made.launchers = launchers[:1] if descends else launchers
    vars(made)["_precompile_config"] = lambda config: SimpleNamespace(
        make_launcher=lambda: Launcher(config, times.get(config.kwargs["XBLOCK"], 9.0) * (1 + (config.num_warps != 4)))
    )
    return made


@pytest.fixture
def raced():
    """Return a function that lets Inductor choose a kernel's config within an arm, by the times of its configs."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def choose(its):
        its.autotune_to_one_config()
        return its.launchers[0].config.kwargs["XBLOCK"]

    with mock.patch.object(CachingAutotuner, "bench", lambda _self, launcher, *_args, **_kwargs: launcher.ms):
        yield choose


def test_a_later_arm_runs_a_kernel_as_the_first_arm_with_it_does(raced):
    from gemmtune.engine.consumers.inductor.bench.shared_choices import SharedChoices

    choices = SharedChoices()
    with choices.kept():
        assert raced(kernel("triton_poi_0", {512: 1.0, 1024: 1.1})) == 512
        assert raced(kernel("triton_poi_4", {512: 1.1, 1024: 1.0})) == 1024  # one arm chooses as it would by itself
    assert choices.taken == 0
    with choices.kept():
        assert raced(kernel("triton_poi_3", {512: 1.1, 1024: 1.0})) == 512  # the name counts the kernels before it
        assert raced(kernel("triton_poi_5", {512: 1.1, 1024: 1.0}, source="x + 2")) == 1024
        assert raced(kernel("triton_poi_6", {512: 1.1, 1024: 1.0}, sizes=(8192,))) == 1024
        assert raced(kernel("triton_poi_7", {512: 1.2, 1024: 1.1, 256: 1.0})) == 256
    assert choices.taken == 1


def test_a_later_arm_descends_to_where_the_first_one_did(raced):
    from gemmtune.engine.consumers.inductor.bench.shared_choices import SharedChoices

    def descended(its):
        launcher = its.coordinate_descent_tuning(its.launchers[0])
        assert launcher.config.found_by_coordesc  # else the kernel's next run would descend again
        return launcher.config.kwargs["XBLOCK"]

    choices = SharedChoices()
    with choices.kept():
        assert descended(kernel("triton_per_0", {512: 1.0, 1024: 0.9, 256: 1.1}, descends=True)) == 1024
    assert choices.taken == 0
    with choices.kept():
        assert descended(kernel("triton_per_2", {512: 1.0, 1024: 1.1, 256: 0.9}, descends=True)) == 1024
        assert descended(kernel("triton_per_3", {512: 1.0, 256: 0.9}, source="x + 2", descends=True)) == 256
        assert descended(kernel("triton_per_4", {256: 1.0, 128: 0.9}, descends=True)) == 128  # starts elsewhere
    assert choices.taken == 1


def test_a_kernel_that_is_raced_and_descends_counts_once(raced):
    from gemmtune.engine.consumers.inductor.bench.shared_choices import SharedChoices

    choices = SharedChoices()
    for name in ("triton_poi_0", "triton_poi_1"):
        its = kernel(name, {512: 1.0, 1024: 1.1})
        with choices.kept():
            assert raced(its) == 512
            its.coordinate_descent_tuning(its.launchers[0])
    assert choices.taken == 1


def test_a_failed_arm_chooses_for_no_other(raced):
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    from gemmtune.engine.consumers.inductor.bench.shared_choices import SharedChoices

    def methods():
        return (
            CachingAutotuner.autotune_to_one_config,
            CachingAutotuner.bench,
            CachingAutotuner.coordinate_descent_tuning,
        )

    before = methods()
    choices = SharedChoices()

    def fails():
        with choices.kept():
            raced(kernel("triton_poi_0", {512: 1.0, 1024: 1.1}))
            raise RuntimeError("an arm fails")

    with pytest.raises(RuntimeError, match="an arm fails"):
        fails()
    assert before == methods()
    with choices.kept():
        assert raced(kernel("triton_poi_0", {512: 1.1, 1024: 1.0})) == 1024


@pytest.mark.gpu
@pytest.mark.skipif(present_device() is None, reason="needs a GPU")
@pytest.mark.parametrize("arm", ["compile", "max-autotune"])
def test_inductors_own_kernels_take_the_choice_of_an_earlier_arm(arm):
    import torch

    from gemmtune.engine.consumers.inductor.bench.running import Prepared, cold, compiled_arm, first_call, quietly
    from gemmtune.engine.consumers.inductor.bench.shared_choices import SharedChoices

    def f(x):
        return torch.nn.functional.gelu(x) * 2

    prepared = Prepared(f, [torch.randn(2048, 2048, device="cuda")], {}, grad=False)
    choices, found = SharedChoices(), []
    for _ in range(2):
        torch._dynamo.reset()  # both arms compile one function, in one way
        with cold(), choices.kept():
            first = quietly(lambda: first_call(compiled_arm(prepared, arm)))
        found.append((choices.taken, first.kernel_benchmarks))
    (none, timed), (shared, again) = found
    assert none == 0
    assert shared == 1
    assert timed > 1
    assert again > 1
    assert again == timed or arm == "max-autotune"  # a descent's steps depend on the times that it sees
