"""Values that a launch takes, by parameter: what Triton and the engines' kernels refuse."""

from collections.abc import Callable, Iterator

from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName, Kernel
from gemmtune.engine.consumers.serving.contract.tuned_file import Entry, TunedFile
from gemmtune.engine.io.numbers import shown

_MOST_WARPS = 32
"""Warps of 32 threads in the largest block."""
_LEAST_DEPTH = {"fp8_w8a8": 32, "int8_w8a8": 32, "fp8_w8a8_channelwise": 32}
"""Least k of `tl.dot` by data type where both operands have 8 bits: `min_dot_size` of Triton's NVIDIA backend."""
_LEAST_WIDE_DEPTH = 16
"""Least k of `tl.dot` with wider operands."""


def refused_values(file: TunedFile) -> Iterator[tuple[Entry, str]]:
    """Yield each entry with a value that its launch refuses, and what is wrong with it."""
    for entry in file.entries:
        if entry.config is None:
            if not file.name.dtype.endswith("channelwise"):  # there null means another kernel
                yield entry, "null is no config"
            continue
        for name, value in entry.config.items():
            fits, wanted = _TAKEN.get(name, (None, ""))
            if fits is not None and not fits(value):
                yield entry, f"{name}={shown(value)} is no {wanted}"
        if fault := _shallow(file.name, entry):
            yield entry, fault


def clamped_depth(name: FileName, block_k: int) -> int:
    """Return the k per step that the kernel runs: vLLM's MoE launch cuts BLOCK_SIZE_K to the block of scales."""
    if name.block is not None and (name.engine, name.kernel) == (Engine.VLLM, Kernel.MOE):
        return min(block_k, *name.block)
    return block_k


def integer_of(entry: Entry, name: str) -> int:
    """Return a positive integer of an entry; 0 where it has none."""
    value = None if entry.config is None else entry.config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _shallow(name: FileName, entry: Entry) -> str:
    """Return the fault of a tile whose k is below the least of `tl.dot`; empty without one."""
    block_k = integer_of(entry, "BLOCK_SIZE_K")
    depth = clamped_depth(name, block_k)
    least = _LEAST_DEPTH.get(name.dtype, _LEAST_WIDE_DEPTH)
    if not block_k or depth >= least or not name.device.startswith("NVIDIA_"):
        return ""
    cut = f", cut to {depth} by the block of scales," if depth < block_k else ""
    return f"BLOCK_SIZE_K={block_k}{cut} is below {least}, the least k of tl.dot"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_power(value: object) -> bool:
    return _is_count(value) and isinstance(value, int) and value & (value - 1) == 0


_COUNT: tuple[Callable[[object], bool], str] = (_is_count, "positive integer")
_POWER: tuple[Callable[[object], bool], str] = (_is_power, "power of two")
_FLAG: tuple[Callable[[object], bool], str] = (lambda value: value in (0, 1) and not isinstance(value, float), "flag")
_TAKEN: dict[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_ctas"), _POWER),
    **dict.fromkeys(("GROUP_SIZE_M", "SPLIT_K", "num_stages"), _COUNT),
    **dict.fromkeys(("USE_TMA", "SWAP_AB", "launch_cooperative_grid", "launch_pdl"), _FLAG),
    "num_warps": (lambda value: _is_power(value) and value <= _MOST_WARPS, f"power of two up to {_MOST_WARPS}"),  # type: ignore[operator]
    "maxnreg": (lambda value: value is None or _is_count(value), "positive integer or null"),
}
"""Test of each parameter's value, and the values that pass, in words."""
