"""Space of Inductor's `triton::mm_persistent_tma` template.

Inductor offers it if `enable_persistent_tma_matmul` is set; gemmtune's loader runs its rows without that setting too.
"""

from collections.abc import Mapping

from gemmtune.engine.records.config import Param
from gemmtune.engine.records.problem import Op, gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.spaces.inductor.rules import TILE_PARAMS, Numbers, is_wgmma
from gemmtune.spaces.inductor.space import InductorSpace
from gemmtune.spaces.operand_rows import aligned

__all__ = ["TritonMmTmaSpace"]

# (BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps) of `persistent_mm_configs` in torch's
# torch/_inductor/template_heuristics/triton.py, the same from 2.11 to 2.13.
_DEFAULT_LIST = (
    (128, 256, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 128, 128, 3, 8),
    (128, 128, 128, 3, 4),
    (128, 128, 64, 4, 8),
    (128, 128, 64, 5, 8),
    (256, 128, 64, 4, 8),
    (128, 128, 64, 5, 4),
)

_TEMPLATES = dict.fromkeys((Op.MM, Op.ADDMM), "triton::mm_persistent_tma")
_HOPPER, _DATACENTER_BLACKWELL = 9, 10  # majors of the compute capability
_TMA_BYTES = 16
_BARRIER_BYTES = 8


class TritonMmTmaSpace(InductorSpace):
    """Tile, pipeline and swizzle of a persistent kernel: one block per multiprocessor computes tile after tile.

    The Tensor Memory Accelerator loads the operands, by descriptors that each block writes when it starts. The
    template's other arguments follow from problem and GPU: A_ROW_MAJOR, B_ROW_MAJOR, NUM_SMS, TMA_SIZE. The output is
    stored without the accelerator, as in Inductor unless `triton.enable_template_tma_store` is set.
    """

    # "num_warps=2 not safe for TMA" (`TMAWorkspaceMixin._filter_configs`)
    values = (*TILE_PARAMS, Param("num_warps", (4, 8)))
    inductors_list = _DEFAULT_LIST
    templates = _TEMPLATES

    def offered(self, task: Task) -> Verdict:
        """Apply the rules of `use_triton_tma_template` and `can_use_tma` in torch/_inductor/utils.py."""
        problem, device = gemm(task.problem), task.device
        if problem.dynamic_m:
            # torch 2.13 guards on the m it sees (`add_guards`), and compiles again for every other m.
            return Verdict.no("dynamic m", f"{task.space} is for static sizes: leave out dynamic_m")
        major, _ = device.capability
        if major < _HOPPER:
            return Verdict.no("architecture", f"TMA needs sm_90 or later, not {device.arch}")
        if major == _DATACENTER_BLACKWELL:
            # `tuned_mm` asks `use_triton_blackwell_tma_template` first.
            return Verdict.no("architecture", f"Inductor has another persistent template for {device.arch}")
        loads = aligned(problem, _TMA_BYTES, "TMA", ("A", "B"))
        if loads and problem.m == 1:
            # `is_transposed` is true for such an A, and then the stride of its descriptor would be one element.
            return Verdict.no("one row", "Inductor takes an A of one row for a transposed one, which TMA cannot read")
        return loads

    def shared_bytes(self, task: Task, values: Mapping[str, Numbers]) -> Numbers:
        """Return the bytes of shared memory of the operand tiles in the pipeline, and of one barrier per buffer.

        Source: binaries of Triton 3.6 and 3.7. With wgmma both tiles have `num_stages` buffers, otherwise one less; if
        that leaves none, only the larger tile has a buffer.
        """
        block_m, block_n = values["BLOCK_M"], values["BLOCK_N"]
        row_bytes = values["BLOCK_K"] * gemm(task.problem).a_dtype.itemsize
        buffers = values["num_stages"] - 1 + is_wgmma(task, block_m, values["num_warps"])
        larger = block_m + (block_n - block_m) * (block_n > block_m)
        alone = (larger * row_bytes + _BARRIER_BYTES) * (buffers == 0)
        needed: Numbers = alone + buffers * ((block_m + block_n) * row_bytes + _BARRIER_BYTES)
        return needed
