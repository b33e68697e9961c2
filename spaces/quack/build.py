"""Trace and compile QuACK's kernel for a GPU that need not be present. Imports torch, cutlass and quack."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from unittest.mock import patch

from cutlass import cute
from quack import gemm as dispatch
from quack import gemm_interface as interface
from quack.epilogue import frontend
from quack.gemm_config import GemmConfig
from quack.gemm_runtime import host
from quack.gemm_sm90 import GemmSm90

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Accumulation
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space
from gemmtune.spaces.common.build_result import refusals
from gemmtune.spaces.cute.artifact import Compiled, save
from gemmtune.spaces.cute.target import driver_of, operands_of
from gemmtune.spaces.quack.epilogue import epilogue_plan
from gemmtune.spaces.quack.operands import is_plain

_FEWEST_STAGES = 2
"""Stages of A and B in shared memory: `GemmSm90.mma` of quack-kernels 0.6.5 waits for the next before it frees one."""


def build(space: Space, task: Task, config: Config, folder: Path) -> Artifact:
    """Compile `config` for the task's device, and leave the object file in `folder`.

    Raises:
        BuildError: QuACK or the compiler refuse the config, or it needs more than a block may have.
    """
    return built(_compile, space, task, config, folder, (("swap_ab", int(bool(config["swap_ab"]))),))


def built(
    compile_config: Callable[[Task, Config], Compiled],
    space: Space,
    task: Task,
    config: Config,
    folder: Path,
    launch: tuple[tuple[str, int], ...] = (),
) -> Artifact:
    """Return the artifact of what `compile_config` compiles, with `launch` and the config's own values of a launch.

    Raises:
        BuildError: QuACK or the compiler refuse the config, or it needs more than a block may have.
    """
    started = time.perf_counter()
    with refusals():
        compiled = compile_config(task, config)
    of_config = (
        ("cluster_size", config.integer("cluster_m") * config.integer("cluster_n")),
        ("max_swizzle_size", config.integer("max_swizzle_size")),
    )
    return save(space, task, config, compiled, folder, (*launch, *of_config), started)


def _compile(task: Task, config: Config) -> Compiled:
    """Return the function that QuACK itself compiles when it is called with this config.

    Sizes and strides of its tensors are symbols; the problem's strides decide which dimensions are contiguous.
    """
    problem = gemm(task.problem)
    quacks_config = GemmConfig(**config, device_capacity=task.device.capability[0])
    with target(task.device), accumulation(problem):
        if is_plain(problem):
            *_, plan = interface.gemm_tuned.fn(*operands_of(problem), config=quacks_config)
        else:
            plan = epilogue_plan(problem, quacks_config)
    compiled: Compiled = plan.compiled_fn
    return compiled


@contextlib.contextmanager
def accumulation(problem: Problem) -> Iterator[None]:
    """Let a product of 8-bit floats be summed as the problem says; QuACK's interfaces pass no choice, and sum exactly.

    An exact kernel for Hopper adds the sums of each step of k to accumulators in fp32. On Blackwell all sums are exact.
    """
    fast = problem.accumulation is Accumulation.FAST
    with patch.object(GemmSm90, "__init__", partialmethod(GemmSm90.__init__, fp8_fast_accum=fast)):
        yield


@contextlib.contextmanager
def target(device: Device) -> Iterator[None]:
    """Answer QuACK's questions about the GPU from the Device record, disable its caches, and skip the launch.

    QuACK's cache of compiled kernels would grow with every config, and on disk it would outlive the process. A kernel
    with too few stages is refused, because it hangs.
    """

    def compile_for(*args: object, options: str, **more: object) -> object:
        return compiler(*args, options=f"{options} --gpu-arch {device.arch}", **more)

    def stages_of(kind: type[GemmSm90], /, *args: object, **more: object) -> tuple[int, int, int]:
        stages: tuple[int, int, int] = compute_stages(kind, *args, **more)
        if stages[0] < _FEWEST_STAGES:
            raise ValueError(f"shared memory holds {stages[0]} of the {_FEWEST_STAGES} needed stages of A and B")
        return stages

    compiler, compute_stages = cute.compile, GemmSm90._compute_stages.__func__
    with (
        driver_of(device),
        patch.object(interface, "get_device_capacity", lambda _: device.capability),
        patch.object(dispatch, "get_device_capacity", lambda _: device.capability),
        patch.object(dispatch, "get_max_active_clusters", lambda size, **_: device.max_active_clusters(size)),
        patch.object(dispatch, "_compile_gemm", dispatch._compile_gemm.__wrapped__),
        patch.object(dispatch, "_gemm_plan_cache", {}),
        patch.object(dispatch, "run_gemm_plan", lambda *_, **__: None),
        patch.object(frontend, "get_device_capacity", lambda _: device.capability),
        patch.object(host, "get_max_active_clusters", lambda size, **_: device.max_active_clusters(size)),
        patch.object(host, "_compile_gemm_epi", host._compile_gemm_epi.__wrapped__),
        patch.object(cute, "compile", compile_for),
        patch.object(GemmSm90, "_compute_stages", classmethod(stages_of)),
    ):
        yield
