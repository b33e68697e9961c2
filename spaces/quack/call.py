"""Arguments of a kernel of QuACK, which runs without QuACK."""

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.kernel_call import Argument

__all__ = ["call_of"]

# The fields of quack.gemm_default_epi.GemmDefaultEpiMixin.EpilogueArguments (0.6.5), all empty in a plain GEMM.
_NO_EPILOGUE = (None,) * 12


def call_of(artifact: Artifact, task: Task) -> list[Argument]:
    """Return the arguments as in `_gemm_execute` of quack/gemm_interface.py: B is k×n, and the stream is torch's.

    With swap_ab the kernel computes out.T = B.T @ A.T, and takes its second operand as n×k, which A is.
    """
    launch = dict(artifact.launch)
    # quack.tile_scheduler.TileSchedulerOptions (0.6.5): clusters, raster order (compiled in), swizzle size; then
    # semaphore, permutation and all-gather, which a plain GEMM with a static or hardware scheduler lacks.
    clusters = task.device.max_active_clusters(int(launch["cluster_size"]))
    scheduler = (clusters, None, int(launch["max_swizzle_size"]), None, None, None)
    operands = ("b.mT", "a", "out.mT") if launch["swap_ab"] else ("a", "b", "out")
    return [*operands, None, _NO_EPILOGUE, scheduler, None, None, None]
