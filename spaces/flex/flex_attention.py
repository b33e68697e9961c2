"""Space of Inductor's templates of flex_attention: forward, backward and decoding."""

from collections.abc import Mapping
from math import log2
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.flex.attention import Flex, Phase, flex
from gemmtune.engine.records.flex.attention_text import decodes
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import triton_toolchain
from gemmtune.spaces.common.tile_limits import fits_in_registers, fits_in_shared_memory, padded

_LARGEST_INT32 = 2**31 - 1
_BLOCKS = (16, 32, 64, 128)
_LEAST_DYNAMIC = 2
_LEAST_HEAD_DIM = 16
_WGMMA, _WGMMA_ROWS, _WGMMA_WARPS = 9, 64, 4  # major capability, and least tile and warps
_PIPELINE = (Param("num_stages", (1, 2, 3, 4, 5)), Param("num_warps", (2, 4, 8)))
_PARAMS = {
    Phase.FORWARD: (Param("BLOCK_M", (*_BLOCKS, 256)), Param("BLOCK_N", _BLOCKS), *_PIPELINE),
    Phase.BACKWARD: (*(Param(f"BLOCK_{name}", _BLOCKS) for name in ("M1", "N1", "M2", "N2")), *_PIPELINE),
    Phase.DECODE: (Param("BLOCK_N", _BLOCKS), *_PIPELINE),
}
_LISTED: Mapping[Phase, tuple[tuple[int, ...], ...]] = {
    Phase.FORWARD: (
        *((128, 64, 3, 8), (64, 64, 3, 4), (128, 128, 3, 8), (128, 128, 2, 8)),
        *((128, 64, 3, 4), (64, 128, 3, 4), (64, 32, 3, 4)),
    ),
    Phase.BACKWARD: (
        *((64, 128, 128, 64, 3, 8), (64, 64, 64, 64, 3, 4), (64, 64, 64, 64, 2, 4)),
        *((64, 128, 128, 64, 2, 8), (32, 64, 64, 32, 3, 4), (64, 64, 64, 64, 1, 4)),
    ),
    Phase.DECODE: ((64, 3, 2), (64, 1, 2), (128, 3, 4), (32, 3, 2), (128, 3, 2)),
}
"""Configs that `flex_attn_*_autotune_configs` and the defaults of torch 2.13 list for GPUs, and their neighbours."""


class FlexAttentionSpace(Space):
    """Tiles and pipeline of Inductor's kernels of flex_attention, beyond those that its max-autotune lists."""

    workload = "flex"
    preload = ("gemmtune.spaces.inductor.preload",)
    examples = (
        ("flex:forward:b2:h32:kvh8:s4096:d128:bf16:mask=causal", "H200"),
        ("flex:forward:b1:h8:s2048:d64:fp16:mask=window(512):score=softcap(50)", "H100"),
        ("flex:backward:b1:h16:s4096:d128:bf16:mask=causal_document:documents=16", "H200"),
        ("flex:decode:b8:h32:kvh8:q1:kv4096:d128:bf16", "B200"),
        ("flex:forward:b1:h8:s1000:d256:bf16:mask=causal:block=64x64", "A100-80GB"),
    )

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the parameters of the phase's template; the values cover Inductor's exhaustive list but for 256."""
        return _PARAMS[flex(task.problem).phase]

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject tiles that do not divide the mask's blocks or each other, and tiles that cannot fit."""
        attention = flex(task.problem)
        if not (fine := served(attention) and divided(attention, config)):
            return fine
        warps, stages = config.integer("num_warps"), config.integer("num_stages")
        fits, dims = Verdict.yes(), (padded(attention.head_dim), padded(attention.value_dim))
        for stays, moves in tiles(attention, config):
            fits = fits and fits_in_registers(task, stays, max(moves, *dims), warps)
            needed = _held(task, (stays, moves), warps, stages) * attention.dtype.itemsize
            fits = fits and fits_in_shared_memory(task, needed, stages)
        return fits

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return Inductor's defaults and what its max-autotune lists, as far as they pass `check`."""
        phase = flex(task.problem).phase
        names = [param.name for param in _PARAMS[phase]]
        listed = (Config(dict(zip(names, values, strict=True))) for values in _LISTED[phase])
        return tuple(config for config in listed if self.check(task, config))

    def features(self, task: Task, config: Config) -> Mapping[str, float]:
        """Return the work of a block, how the blocks fit the GPU, and what the pipeline holds."""
        attention = flex(task.problem)
        (m, n), *_ = tiles(attention, config)
        warps, stages = config.integer("num_warps"), config.integer("num_stages")
        blocks = attention.batch * attention.heads * -(-attention.queries // m)
        return {
            "log2 m": log2(m),
            "log2 n": log2(n),
            "log2 waves": log2(max(blocks / task.device.sm_count, 1e-3)),
            "elements per thread": m * max(n, attention.head_dim) / (warps * task.device.warp_size),
            "warps": float(warps),
            "stages": float(stages),
        }

    def toolchain(self) -> Toolchain:
        """Return the versions of torch and Triton, and what changes their kernels; see `triton_toolchain`."""
        return triton_toolchain("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return all that the binary depends on: what is known before the launch, the width of indices, the config."""
        device, attention = task.device, flex(task.problem)
        wide = "/64" if attention.dynamic and attention.most_elements > _LARGEST_INT32 else ""
        return f"{task.space}/{device.arch}/{device.sm_count}/{attention.kernel_name}{wide}/{config.digest}"

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Render the template, with torch's own config in place of an empty one; cross-compile it for the device."""
        from gemmtune.spaces.inductor.flex import build_flex

        return build_flex(self, task, config or None, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubin of an artifact; return the kernel, which is launched with the task's operands."""
        from gemmtune.spaces.inductor.flex_kernel import FlexKernel

        return FlexKernel(artifact, flex(task.problem))


def _held(task: Task, tile: tuple[int, int], warps: int, stages: int) -> int:
    """Return the elements that a block holds in shared memory at least, as Triton 3.6 to 3.9 pipeline the loops.

    wgmma reads every stage and what stays from there. mma.sync copies a stage to registers first, and of the backward
    loops not every operand is in the pipeline.
    """
    attention, (stays, moves) = flex(task.problem), tile
    dims = padded(attention.head_dim), padded(attention.value_dim)
    is_backward = attention.phase is Phase.BACKWARD
    kept = {Phase.FORWARD: dims[0], Phase.BACKWARD: sum(dims), Phase.DECODE: 0}[attention.phase] if stages > 1 else 0
    if task.device.capability[0] == _WGMMA and stays >= _WGMMA_ROWS and warps >= _WGMMA_WARPS:
        return stays * kept + stages * moves * sum(dims)
    return stays * kept // (1 + is_backward) + (stages - 1) * moves * sum(dims) // (1 + is_backward)


def tiles(attention: Flex, config: Config) -> list[tuple[int, int]]:
    """Return the tiles of a config: what stays in a block, and what its loop goes through."""
    if attention.phase is Phase.BACKWARD:
        m1, n1, m2, n2 = (config.integer(f"BLOCK_{name}") for name in ("M1", "N1", "M2", "N2"))
        return [(n1, m1), (m2, n2)]
    rows = padded(attention.queries * (attention.heads // attention.kv_heads))
    m = rows if attention.phase is Phase.DECODE else config.integer("BLOCK_M")
    return [(m, config.integer("BLOCK_N"))]


def served(attention: Flex) -> Verdict:
    """Return whether Inductor makes the phase's kernel of such a call."""
    least = min(attention.head_dim, attention.value_dim)
    if least < _LEAST_HEAD_DIM:
        return Verdict.no("head", f"heads of {least} elements are fewer than {_LEAST_HEAD_DIM}, which Inductor needs")
    if attention.dynamic and attention.size < _LEAST_DYNAMIC:
        return Verdict.no("dynamic", "torch compiles a length of 1 for itself: leave out dynamic")
    if attention.dynamic == "s" and attention.phase is Phase.DECODE:
        return Verdict.no("dynamic", "a tile of the decode kernel holds all queries: write dynamic=kv")
    queries, ratio = attention.queries, attention.heads // attention.kv_heads
    is_few = decodes(queries, attention.heads, attention.kv_heads, of_heads=attention.mask_axes[1] > 1)
    if attention.phase not in (Phase.BACKWARD, kind := Phase.DECODE if is_few else Phase.FORWARD):
        return Verdict.no("phase", f"Inductor makes its {kind} kernel of q{queries} and {ratio} heads a key")
    return Verdict.yes()


def divided(attention: Flex, config: Config) -> Verdict:
    """Return whether the tiles of a config divide the mask's blocks, and each other where the kernel needs it."""
    for name, size in config.items():
        block = attention.block_q if "_M" in name else attention.block_kv
        if name.startswith("BLOCK") and block and block % int(size):
            return Verdict.no("blocks", f"{name}={size} does not divide the mask's blocks of {block}")
    if attention.phase is Phase.BACKWARD:
        for one, other in (("N1", "M1"), ("M2", "N2")):
            if config.integer(f"BLOCK_{one}") % config.integer(f"BLOCK_{other}"):
                return Verdict.no("blocks", f"BLOCK_{other} does not divide BLOCK_{one}, as the backward kernel needs")
    return Verdict.yes()
