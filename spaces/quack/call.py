"""Arguments of a kernel of QuACK, which runs without QuACK."""

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.epilogue.terms import OperandShape
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.kernel_call import CLUSTERS, Argument
from gemmtune.spaces.quack.operands import EpilogueTensor, epilogue_tensors, further_outputs, is_plain

# The fields of quack.gemm_default_epi.GemmDefaultEpiMixin.EpilogueArguments (0.6.5), all empty in a plain GEMM.
NO_EPILOGUE = (None,) * 12
# Those that `EpiMod._mint` in quack/epilogue/frontend.py puts behind the tensors: buffers for a split k.
NO_SPLIT = (None, None)


def call_of(artifact: Artifact, task: Task) -> list[Argument]:
    """Return the arguments as QuACK's own launch has them: B is k×n, and the stream is torch's.

    With swap_ab the kernel computes out.T = B.T @ A.T. In a plain GEMM (`_gemm_execute` of quack/gemm_interface.py) it
    takes its second operand as n×k, which A is, and its output transposed; with an epilogue (`EpiMod.gemm`) it takes B,
    A and the output as they are, and transposes itself.
    """
    problem, launch = gemm(task.problem), dict(artifact.launch)
    # quack.tile_scheduler.TileSchedulerOptions (0.6.5): clusters, raster order (compiled in), swizzle size; then
    # semaphore, permutation and all-gather, which a GEMM with a static or hardware scheduler lacks.
    scheduler = (f"{CLUSTERS}.{launch['cluster_size']}", None, int(launch["max_swizzle_size"]), None, None, None)
    operands = ("a", "b", "out")
    if launch["swap_ab"]:
        operands = ("b.mT", "a", "out.mT") if is_plain(problem) else ("b", "a", "out")
    epilogue = NO_EPILOGUE if is_plain(problem) else _epilogue(problem)
    return [*operands, None, epilogue, scheduler, None, None, None]


def _epilogue(problem: Problem) -> tuple[Argument, ...]:
    """Return tensors and further outputs of the epilogue, vectors with one dimension, which the bias has anyway."""

    def named(tensor: EpilogueTensor) -> str:
        whole = tensor.shape is OperandShape.MATRIX or tensor.operand is None
        return tensor.name if whole else f"{tensor.name}.flat"

    return (*map(named, epilogue_tensors(problem)), *further_outputs(problem), *NO_SPLIT)
