"""Compile operators of NVIDIA's registry for a GPU that need not be present. Imports cutlass.operators."""

import time
import warnings
from pathlib import Path
from typing import Any

import torch
from cutlass import operators

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.common.build_result import refusals
from gemmtune.spaces.cute.artifact import save
from gemmtune.spaces.cute.target import driver_of, operands_of, target_of

_SCHEDULERS = {
    "NoneType": "none",
    "CLCDynamicPersistentTileSchedulerMetadata": "clc",
    "StaticPersistentTileSchedulerMetadata": "static",
}
# Classes whose `_run` does not pass a, b, out and stream in this order.
_ARGUMENT_ORDERS = {"PersistentDenseGemmEFCOperator": "a b stream out"}


def build(space: Space, task: Task, config: Config, folder: Path) -> Artifact:
    """Compile the operator that `config` describes, and leave the object file in `folder`.

    Raises:
        BuildError: the registry has no such operator or several, or the compiler refuses it.
    """
    started = time.perf_counter()
    args = arguments(gemm(task.problem))
    target = target_of(task.device)
    operator = _operator(args, config, target)
    with refusals(), driver_of(task.device), warnings.catch_warnings():
        # NVIDIA's kernels use deprecated parts of NVIDIA's DSL, which is no config's failure.
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled = operator.compile(args, target_sm=target).compiled_obj
    launch = (("arguments", _ARGUMENT_ORDERS.get(type(operator).__name__, "a b out stream")),)
    return save(space, task, config, compiled, folder, launch, started)


def arguments(problem: Problem) -> Any:  # noqa: ANN401 (a type checker does not see cutlass.operators)
    """Return the problem as GemmArguments, with tensors that have no memory."""
    accumulator = getattr(torch, problem.acc_dtype.torch_name)
    return operators.GemmArguments(*operands_of(problem), accumulator_type=accumulator)


def design_of(metadata: Any) -> dict[str, Value]:  # noqa: ANN401 (as above)
    """Return an operator's class and design as the parameters of a config."""
    design = metadata.design
    scheduler = type(getattr(design, "tile_scheduler", None)).__name__
    return {
        "operator": metadata.operator_class.__name__,
        "mma_tiler_m": design.tile_shape[0],
        "mma_tiler_n": design.tile_shape[1],
        "cluster_shape_m": design.cluster_shape[0],
        "cluster_shape_n": design.cluster_shape[1],
        "use_2cta_instrs": getattr(design, "use_2cta_mma", False),
        "use_tma_store": getattr(design, "use_tma_store", False),
        "tile_scheduler": _SCHEDULERS.get(scheduler, scheduler),
    }


def _operator(args: Any, config: Config, target: str) -> Any:  # noqa: ANN401 (as above)
    found = operators.get_operators(args, lambda metadata: design_of(metadata) == dict(config), target)
    if len(found) != 1:
        names = ", ".join(operator.metadata.operator_name for operator in found)
        version = operators.__version__
        raise BuildError(
            f"the registry of nvidia-cutlass-operators {version} has {len(found)} operators for sm_{target} that are "
            f"{config}{': ' + names if names else ''}"[:500]
        )
    return found[0]
