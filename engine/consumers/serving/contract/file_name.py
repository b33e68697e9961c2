"""File names of the engines' tuned tables: which kernel, sizes, device and data type a file is for."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePosixPath

TUNED_TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""Token counts that the tuners of vLLM 0.33 and SGLang 0.5.23 measure."""


class Engine(StrEnum):
    """Serving engine that loads a file."""

    VLLM = "vllm"
    SGLANG = "sglang"


class Kernel(StrEnum):
    """Triton kernel that a file is for."""

    MOE = "moe"
    """Both grouped GEMMs of a fused mixture-of-experts layer."""
    LINEAR = "linear"
    """A linear layer whose operands have a scale per block."""


_SIZE = r"\d{1,18}"
_NAME = re.compile(
    rf"(?:E=(?P<experts>{_SIZE}),N=(?P<inter>{_SIZE})|N=(?P<n>{_SIZE}),K=(?P<k>{_SIZE})),device_name=(?P<device>[^,]*?)"
    rf"(?:,dtype=(?P<dtype>\w+?))?(?:,block_shape=\[(?P<block_n>{_SIZE}),(?P<space> ?)(?P<block_k>{_SIZE})\])?"
    r"(?P<channel>,per_channel_quant=True)?(?P<down>_down)?\.json",
    re.ASCII,
)
_FOLDER = re.compile(r"triton_(\d{1,9}(?:_\d{1,9})*)", re.ASCII)
_READ_DTYPES = {
    (Engine.VLLM, Kernel.MOE): ("", "fp8_w8a8", "fp8_w8a16", "int8_w8a16", "int4_w4a16", "float32"),
    (Engine.SGLANG, Kernel.MOE): ("", "fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16", "float32"),
    (Engine.VLLM, Kernel.LINEAR): ("fp8_w8a8", "int8_w8a8"),
    (Engine.SGLANG, Kernel.LINEAR): ("fp8_w8a8", "int8_w8a8", "fp8_w8a8_channelwise"),
}
_UNSCALED_BLOCKS = ("", "float32")
"""Data types that no look-up combines with a block of scales."""


@dataclass(frozen=True, slots=True)
class FileName:
    """Facts that the name of a tuned file and of its folder state."""

    engine: Engine
    """Engine that looks for such a name."""
    kernel: Kernel
    """Kernel that the entries are for."""
    sizes: tuple[int, int]
    """Experts and intermediate size of a MoE file; n and k of a linear one."""
    device: str
    """Name of the device with underscores for spaces, `NVIDIA_H200`."""
    dtype: str = ""
    """Data type as the engine abbreviates it, `fp8_w8a8`; empty for 16-bit floats."""
    block: tuple[int, int] | None = None
    """Elements of n and k that share a scale; None without such blocks."""
    per_channel: bool = False
    """Whether weights have a scale per channel; SGLang alone says so."""
    down: bool = False
    """Whether the file is for the second GEMM of a MoE layer alone; SGLang has such files."""
    triton: str = ""
    """Version of Triton that the folder names, `3.8.0`; empty elsewhere."""

    @property
    def text(self) -> str:
        """Name of the file, as the engine's look-up builds it."""
        first, second = self.sizes
        name = f"E={first},N={second}" if self.kernel is Kernel.MOE else f"N={first},K={second}"
        name += f",device_name={self.device}{f',dtype={self.dtype}' if self.dtype else ''}"
        if self.block is not None:
            comma = "," if self.engine is Engine.VLLM else ", "
            name += f",block_shape=[{self.block[0]}{comma}{self.block[1]}]"
        name += ",per_channel_quant=True" if self.per_channel else ""
        return f"{name}{'_down' if self.down else ''}.json"

    @property
    def folder(self) -> str:
        """Folder that SGLang's look-up adds for this version of Triton, `triton_3_8_0`; empty elsewhere."""
        return f"triton_{self.triton.replace('.', '_')}" if self.triton else ""

    @property
    def is_read(self) -> bool:
        """Whether a look-up of the engine builds this name for some layer; `devices.misspelled` looks at the device."""
        scaled = self.block is not None or self.dtype == "fp8_w8a8_channelwise"
        if self.dtype not in _READ_DTYPES[self.engine, self.kernel]:
            return False
        return scaled if self.kernel is Kernel.LINEAR else not (self.block and self.dtype in _UNSCALED_BLOCKS)

    def up(self) -> FileName:
        """Return the name of the first GEMM's file."""
        return replace(self, down=False)


def parse_name(path: PurePosixPath) -> FileName | None:
    """Return the facts of a file's name and folder; None for a file of another kind."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return None
    is_moe = found["experts"] is not None
    folder = _FOLDER.fullmatch(path.parent.name)
    scaled = found["block_n"] is not None
    if is_moe:
        engine = Engine.SGLANG if folder or found["space"] or found["channel"] or found["down"] else Engine.VLLM
    else:
        engine = Engine.SGLANG if found["space"] or not scaled else Engine.VLLM
    return FileName(
        engine=engine,
        kernel=Kernel.MOE if is_moe else Kernel.LINEAR,
        sizes=(int(found["experts"] or found["n"]), int(found["inter"] or found["k"])),
        device=found["device"],
        dtype=found["dtype"] or "",
        block=(int(found["block_n"]), int(found["block_k"])) if scaled else None,
        per_channel=bool(found["channel"]),
        down=bool(found["down"]),
        triton=folder[1].replace("_", ".") if folder else "",
    )


def version_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, `3.6.0`, or of SGLang's folder for one, `triton_3_6_0`."""
    return tuple(int(part) for part in re.split("[._]", text) if part.isdecimal())
